//! What is done with a message once it is parsed out of its packet: the same on the bypass, on UDP sockets and on TCP.

use std::sync::Arc;

use crate::{
    answer::{
        Limits, Outcome, Transport,
        policy::{Policy, UDP_PAYLOAD_MAX},
        respond,
    },
    counters::DropReason,
    guard::{acl::Acl, rrl},
    zone::Zones,
};

/// What the operator chooses about who is answered and how. A running server takes another one whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Who is served.
    pub acl: Acl,
    /// How often one network gets one kind of answer; without it, as often as it asks.
    pub rrl: Option<rrl::Settings>,
    /// What answers are like.
    pub policy: Policy,
}

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
