//! What goes into an answer beside the query, and what is noted on the way to it.

use std::net::{IpAddr, Ipv4Addr};

use super::{Limits, policy::Policy};
use crate::wire::message::Rcode;

/// Who asks, and by what rules the answer is made.
#[derive(Debug)]
pub struct Asked<'a> {
    /// What bounds the reply.
    pub limits: Limits,
    /// The operator's choices.
    pub policy: &'a Policy,
    /// The client's address.
    pub client: IpAddr,
    /// Seconds since 1970, exact to a few.
    pub now_s: u32,
    /// What was noted on the way to the answer.
    pub noted: Noted,
}

impl Asked<'_> {
    /// Asked by nobody in particular, of a server without configuration.
    #[inline]
    #[must_use]
    pub const fn plainly(limits: Limits) -> Self {
        let client = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        Asked { limits, policy: &Policy::DEFAULT, client, now_s: 0, noted: Noted::NONE }
    }
}

/// What the rate limiter and the counters must know of an answer and its bytes do not say, or not where it is quickly found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Where in the QNAME the name begins that the answer is about: the wildcard's parent, the delegation, the zone.
    pub name_at: u8,
    /// The answer was made from a wildcard.
    pub is_wildcard: bool,
    /// The client is not somebody else.
    pub has_valid_cookie: bool,
    /// The QTYPE; 0 where none could be read.
    pub qtype: u16,
    /// The RCODE, its upper bits included.
    pub rcode: Rcode,
}

impl Noted {
    /// Nothing: the answer is about the QNAME.
    pub const NONE: Self =
        Self { name_at: 0, is_wildcard: false, has_valid_cookie: false, qtype: 0, rcode: Rcode::NOERROR };
}
