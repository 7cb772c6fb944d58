//! What is done with a message once it is parsed out of its packet: the same on the bypass, on UDP sockets and on TCP.

use std::sync::Arc;

use crate::{
    answer::{Limits, Outcome, Transport, respond},
    counters::DropReason,
    zone::Zones,
};

/// The largest UDP payload that is sent unless configured: it fits one unfragmented IPv6 packet on any link.
pub const UDP_PAYLOAD_MAX: u16 = 1232;

/// What answers.
#[derive(Clone, Debug)]
pub enum Service {
    /// Authoritative DNS over these zones.
    Dns(Arc<Zones>),
    /// RFC 862: the payload goes back as it came. Measures the path without DNS.
    Echo,
    /// Nothing goes back. Measures receiving.
    Sink,
}

impl Service {
    /// Answers the message in `message[..length]` in place; the rest of `message` is room for the reply.
    #[inline]
    pub fn serve(&self, message: &mut [u8], length: usize, transport: Transport) -> Outcome {
        match self {
            Self::Dns(zones) => respond(zones, message, length, Limits { transport, udp_payload_max: UDP_PAYLOAD_MAX }),
            Self::Echo => Outcome::Reply(length),
            Self::Sink => Outcome::Drop(DropReason::Sunk),
        }
    }
}
