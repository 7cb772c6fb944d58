//! What is done with a message once it is parsed out of its packet: the same on the bypass, on UDP sockets and on TCP.

use crate::{
    answer::{Limits, Outcome, Transport, respond},
    counters::DropReason,
    zone::View,
};

/// The largest UDP payload that is sent unless configured: it fits one unfragmented IPv6 packet on any link.
pub const UDP_PAYLOAD_MAX: u16 = 1232;

/// What answers: each worker has its own.
#[derive(Clone, Debug)]
pub enum Service {
    /// Authoritative DNS over these zones.
    Dns(View),
    /// RFC 862: the payload goes back as it came. Measures the path without DNS.
    Echo,
    /// Nothing goes back. Measures receiving.
    Sink,
}

impl Service {
    /// Looks for what has been replaced; once per batch.
    #[inline]
    pub fn refresh(&mut self) {
        if let Self::Dns(zones) = self {
            zones.refresh();
        }
    }

    /// Answers the message in `message[..length]` in place; the rest of `message` is room for the reply.
    #[inline]
    pub fn serve(&self, message: &mut [u8], length: usize, transport: Transport) -> Outcome {
        match self {
            Self::Dns(view) => {
                respond(view.zones(), message, length, Limits { transport, udp_payload_max: UDP_PAYLOAD_MAX })
            }
            Self::Echo => Outcome::Reply(length),
            Self::Sink => Outcome::Drop(DropReason::Sunk),
        }
    }
}
