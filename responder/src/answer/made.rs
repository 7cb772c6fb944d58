//! Answers that are in no zone: refusals with their reasons (RFC 8914), HINFO for ANY (RFC 8482), and what the server says of itself in class
//! CHAOS (RFC 4892).

use super::{
    Asked, Outcome, Reply, code,
    edns::{self, Options, Reason},
    policy::{AnyPolicy, Identifier, Policy},
    rejected, typed,
};
use crate::{
    counters::DropReason,
    wire::{
        message::{Counts, OPT_LEN, Query, Rcode},
        name::AnyRoom,
    },
    zone::table::Node,
};

/// Of what a server says of itself.
const CLASS_CHAOS: u16 = 3;
const TYPE_TXT: u16 = 16;

/// The record of RFC 8482 section 4.2: the QNAME, HINFO, IN, an hour, and two strings.
const HINFO: &[u8] = b"\xc0\x0c\0\x0d\0\x01\0\0\x0e\x10\0\x09\x07RFC8482\0";

/// Tells a client that it is not served (RFC 8914 section 4.19).
#[inline(never)]
pub fn refuse(message: &mut [u8], query_len: usize, asked: &mut Asked<'_>) -> Outcome {
    let Some(received) = message.get(..query_len) else { return Outcome::Drop(DropReason::NoRoom) };
    let mut room = AnyRoom::empty();
    match Query::parse(received, &mut room) {
        Ok((query, name)) => edns::with_options(None, message, query, name, asked),
        Err(reject) => rejected(message, query_len, reject, asked),
    }
}

impl Reply<'_> {
    /// An RCODE and, for who has EDNS, the reason, unless there is no room for it (RFC 8914 section 3).
    fn error(self, rcode: Rcode, reason: Reason) -> Outcome {
        let room = self.limit.saturating_sub(self.query.question_end + OPT_LEN);
        let options = Options::with_reason(self.options, reason, room);
        Reply { options: options.bytes(), ..self }.status(rcode)
    }

    pub(super) fn refused(self, reason: Reason) -> Outcome {
        self.error(Rcode::REFUSED, reason)
    }

    /// There should be an answer, and there is none: the zone is configured and was not loaded.
    pub(super) fn unavailable(self) -> Outcome {
        self.error(Rcode::SERVFAIL, Reason::InvalidData)
    }

    /// A class other than IN: CH has the server's identity and version, where configured.
    pub(super) fn other_class(self) -> Outcome {
        match chaos_text(self.policy, self.name.bytes(), self.query.qtype) {
            Some(text) if self.query.qclass == CLASS_CHAOS => self.made(&[&chaos_head(text), text.bytes()]),
            _ => self.refused(Reason::NotSupported),
        }
    }

    /// Whether ANY is answered by HINFO: the name has data and is no alias (RFC 8482 section 4.2).
    pub(super) fn is_hinfo(&self, node: Node<'_>) -> bool {
        self.query.qtype == code::TYPE_ANY
            && self.policy.any == AnyPolicy::Hinfo
            && node.answer(code::TYPE_CNAME).is_none()
            && typed(node, code::TYPE_ANY).is_some()
    }

    pub(super) fn hinfo(self) -> Outcome {
        self.made(&[HINFO])
    }

    /// An answer of one record that is in no zone.
    fn made(self, parts: &[&[u8]]) -> Outcome {
        let start = self.query.question_end;
        let end = start + parts.iter().map(|part| part.len()).sum::<usize>();
        if end + self.opt_len() > self.limit {
            return self.truncated(true);
        }
        let Some(mut rest) = self.message.get_mut(start..end) else { return Outcome::Drop(DropReason::NoRoom) };
        for part in parts {
            let (place, behind) = rest.split_at_mut(part.len());
            place.copy_from_slice(part);
            rest = behind;
        }
        self.finish(Rcode::NOERROR, true, false, Counts { answer: 1, ..Counts::default() }, end)
    }
}

/// The text for this name, which is in lower case.
fn chaos_text<'p>(policy: &'p Policy, name: &[u8], qtype: u16) -> Option<&'p Identifier> {
    if qtype != TYPE_TXT && qtype != code::TYPE_ANY {
        return None;
    }
    match name {
        b"\x02id\x06server\0" | b"\x08hostname\x04bind\0" => policy.identity.as_ref(),
        b"\x07version\x06server\0" | b"\x07version\x04bind\0" => policy.version.as_ref(),
        _ => None,
    }
}

/// The TXT record in front of its text: the QNAME, and TTL 0, since it is true of this moment (RFC 4892 section 2).
fn chaos_head(text: &Identifier) -> [u8; 13] {
    // An identifier has at most 128 bytes.
    let length = u8::try_from(text.bytes().len()).unwrap_or(0);
    [0xc0, 12, 0, 16, 0, 3, 0, 0, 0, 0, 0, length + 1, length]
}
