//! The answer engine: a query in, its reply out, in the same buffer (RFC 1034 section 4.3.2).
//!
//! All answers were rendered when the zones were loaded. What is left is to find the right one and to copy it behind the question:
//!
//! - The QNAME exists: its node has the answer for the QTYPE, or an alias or referral for all types, or there is no data.
//! - It does not: walking down from the zone's apex shows a zone cut (referral), a DNAME (`follow`), a wildcard, or nothing (NXDOMAIN).
//!
//! An answer was rendered for some name, and is used behind a QNAME that is that name or has it (or its parent, for a wildcard) as a suffix.
//! The question is then longer by the difference in length, and so every compression pointer moves by just that difference.
//!
//! Pure: no allocation, no I/O, no clock, and no panic for any bytes. What it does not do: DNSSEC, zone transfers, NOTIFY, updates.

mod follow;

use crate::{
    counters::DropReason,
    wire::{
        message::{Counts, Edns, HEADER_LEN, OPT_LEN, Query, Rcode, Reject, opt, write_header},
        name::{NAME_MAX, Name},
    },
    zone::{
        Zones,
        table::{ANY_OTHER, Answer, Flags, Node},
    },
};

/// QTYPEs and classes with a meaning here.
mod code {
    pub(super) const CLASS_IN: u16 = 1;
    pub(super) const TYPE_CNAME: u16 = 5;
    pub(super) const TYPE_DNAME: u16 = 39;
    pub(super) const TYPE_OPT: u16 = 41;
    pub(super) const TYPE_NXNAME: u16 = 128;
    pub(super) const TYPE_TKEY: u16 = 249;
    pub(super) const TYPE_TSIG: u16 = 250;
    pub(super) const TYPE_IXFR: u16 = 251;
    pub(super) const TYPE_AXFR: u16 = 252;
    pub(super) const TYPE_ANY: u16 = 255;
}

/// A client that says nothing takes this much over UDP (RFC 1035 section 4.2.1), and less than this it cannot say (RFC 6891 section 6.2.3).
const UDP_PAYLOAD_MIN: u16 = 512;
/// What TCP's two bytes of length can announce.
const TCP_MESSAGE_MAX: usize = 65_535;

/// How a message came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In one datagram, to be answered by one.
    Udp,
    /// In a stream.
    Tcp,
}

/// What bounds a reply, beside the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How the query came.
    pub transport: Transport,
    /// The largest UDP payload that is sent, in bytes, whatever the client takes.
    pub udp_payload_max: u16,
}

/// What is to be done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The reply has been written over it and has this length.
    Reply(usize),
    /// Nothing is to be sent.
    Drop(DropReason),
}

/// Answers the query in `message[..query_len]` in place; the rest of `message` is room for the reply.
#[inline]
pub fn respond(zones: &Zones, message: &mut [u8], query_len: usize, limits: Limits) -> Outcome {
    let Some(received) = message.get(..query_len) else { return Outcome::Drop(DropReason::NoRoom) };
    let mut name = Name::empty();
    let query = match Query::parse(received, &mut name) {
        Ok(query) => query,
        Err(reject) => return rejected(message, reject, limits),
    };
    let reply = Reply { limit: limit(message.len(), query.edns, limits), message, query, name: &name, limits };
    if query.qclass == code::CLASS_IN
        && let Some(answer) = zones.table.find(&name).and_then(|node| node.answer(query.qtype))
    {
        return reply.answer(answer, 0);
    }
    otherwise(zones, reply)
}

/// The largest reply that may be sent.
#[inline]
fn limit(room: usize, edns: Option<Edns>, limits: Limits) -> usize {
    let wanted = match (limits.transport, edns) {
        (Transport::Tcp, _) => TCP_MESSAGE_MAX,
        (Transport::Udp, None) => usize::from(UDP_PAYLOAD_MIN),
        (Transport::Udp, Some(edns)) => usize::from(edns.payload_max.min(limits.udp_payload_max).max(UDP_PAYLOAD_MIN)),
    };
    room.min(wanted)
}

/// Everything but a QNAME and QTYPE that exist.
#[inline(never)]
fn otherwise(zones: &Zones, reply: Reply<'_>) -> Outcome {
    let (query, name) = (reply.query, reply.name);
    match query.qtype {
        // RFC 9824 section 3.5 says so of NXNAME; the others are no data either.
        code::TYPE_OPT | code::TYPE_NXNAME | code::TYPE_TKEY | code::TYPE_TSIG => return reply.status(Rcode::FormErr),
        // Transfers come with a later version; until then they are refused, over UDP and TCP alike.
        code::TYPE_AXFR | code::TYPE_IXFR => return reply.status(Rcode::Refused),
        _ if query.qclass != code::CLASS_IN => return reply.status(Rcode::Refused),
        _ => {}
    }
    let length = name.bytes().len();
    match find(zones, name) {
        Found::Exact(node) => match typed(node, query.qtype) {
            Some(answer) => reply.answer(answer, 0),
            None => reply.no_data(zones, node),
        },
        Found::Wildcard(node) => match typed(node, query.qtype) {
            Some(answer) => reply.answer(answer, length - node.name().len()),
            None => reply.no_data(zones, node),
        },
        Found::Cut(node) => match node.answer(ANY_OTHER) {
            Some(referral) => reply.answer(referral, length - node.name().len()),
            None => reply.status(Rcode::ServFail),
        },
        Found::Dname(node) => follow::rewrite(zones, reply, node),
        Found::NoName(zone) => reply.no_name(zones, zone),
        Found::NotOurs => reply.status(Rcode::Refused),
    }
}

/// A node's answer for a QTYPE. For ANY it is one RRset (RFC 8482 section 4.1).
fn typed(node: Node<'_>, qtype: u16) -> Option<Answer<'_>> {
    if qtype == code::TYPE_ANY {
        let is_rrset = |answer: &Answer<'_>| answer.qtype() != ANY_OTHER && answer.counts().answer > 0;
        return node.answers().find(is_rrset).or_else(|| node.answer(ANY_OTHER));
    }
    node.answer(qtype).or_else(|| node.answer(ANY_OTHER))
}

/// Where a QNAME leads.
enum Found<'a> {
    /// The name exists.
    Exact(Node<'a>),
    /// It does not, but this wildcard covers it (RFC 4592).
    Wildcard(Node<'a>),
    /// It lies below this delegation.
    Cut(Node<'a>),
    /// It lies below this DNAME.
    Dname(Node<'a>),
    /// It does not exist in the zone with this index.
    NoName(usize),
    /// It is in no zone of ours.
    NotOurs,
}

/// Walks from the root to the whole name. A zone's names are closed under their ancestors down to the apex, so the first name that is missing
/// ends the walk in that zone, and so does a delegation or a DNAME. A zone of ours may still begin further down, if there is one with so many
/// labels, and then it is the nearest one and answers (RFC 1034 section 4.3.2 step 2).
fn find<'a>(zones: &'a Zones, name: &Name) -> Found<'a> {
    let table = &zones.table;
    let (labels, starts) = name.labels();
    let mut encloser: Option<Node<'a>> = None;
    let mut barrier: Option<Found<'a>> = None;
    // Whether the zone that was entered last has ended, or none has been entered: only an apex counts then.
    let mut outside = true;
    for index in (0..=labels).rev() {
        let depth = labels - index;
        if outside && !zones.apex_depths.contains(&depth) {
            continue;
        }
        let node = table.find_suffix(name, usize::from(starts[index]));
        let Some(node) = node.filter(|node| !outside || node.is(Flags::APEX)) else {
            outside = true;
            continue;
        };
        (encloser, barrier) = (Some(node), None);
        if node.is(Flags::CUT) {
            barrier = Some(Found::Cut(node));
        } else if index == 0 {
            return Found::Exact(node);
        } else if node.is(Flags::DNAME) {
            barrier = Some(Found::Dname(node));
        }
        outside = barrier.is_some();
    }
    let Some(encloser) = encloser else { return Found::NotOurs };
    if let Some(barrier) = barrier {
        return barrier;
    }
    // RFC 4592 section 3.3.1: the source of synthesis is the asterisk label below the closest encloser, and no other.
    if !encloser.is(Flags::WILDCARD) {
        return Found::NoName(encloser.zone());
    }
    let mut wildcard = [0; NAME_MAX];
    let (asterisk, rest) = wildcard.split_at_mut(2);
    asterisk.copy_from_slice(b"\x01*");
    // The QNAME has at least one label more, so this fits.
    rest[..encloser.name().len()].copy_from_slice(encloser.name());
    match Name::parse(&wildcard, 0).and_then(|wildcard| table.find(&wildcard)) {
        Some(node) if node.zone() == encloser.zone() => Found::Wildcard(node),
        _ => Found::NoName(encloser.zone()),
    }
}

/// A reply being made.
struct Reply<'a> {
    message: &'a mut [u8],
    query: Query,
    name: &'a Name,
    limits: Limits,
    /// The largest length that may be sent.
    limit: usize,
}

impl Reply<'_> {
    /// Copies a rendered answer behind the question. `shift` is by how much the question is longer than the one it was rendered for.
    #[inline]
    fn answer(self, answer: Answer<'_>, shift: usize) -> Outcome {
        let bytes = answer.bytes();
        let start = self.query.question_end;
        let room = self.limit.saturating_sub(start + self.opt_len());
        let mut counts = answer.counts();
        let mut length = bytes.len();
        if length > room {
            length = answer.required();
            counts.additional = answer.required_additional();
            if length > room || length == bytes.len() {
                return self.truncated(answer.is_authoritative());
            }
        }
        let Some(sections) = self.message.get_mut(start..start + length) else {
            return Outcome::Drop(DropReason::NoRoom);
        };
        sections.copy_from_slice(&bytes[..length]);
        if shift > 0 {
            move_pointers(sections, answer, shift);
        }
        self.finish(answer.rcode(), answer.is_authoritative(), false, counts, start + length)
    }

    /// The name exists and has nothing of the QTYPE (RFC 2308 section 2.2).
    fn no_data(self, zones: &Zones, node: Node<'_>) -> Outcome {
        self.negative(zones, node.zone(), Rcode::NoError)
    }

    /// The name does not exist (RFC 2308 section 2.1).
    fn no_name(self, zones: &Zones, zone: usize) -> Outcome {
        self.negative(zones, zone, Rcode::NxDomain)
    }

    /// The zone's SOA in the authority section.
    fn negative(self, zones: &Zones, zone: usize, rcode: Rcode) -> Outcome {
        let Some(zone) = zones.zones.get(zone) else { return self.status(Rcode::ServFail) };
        let start = self.query.question_end;
        let end = start + zone.soa.len();
        if end + self.opt_len() > self.limit {
            return self.truncated(true);
        }
        let Some(sections) = self.message.get_mut(start..end) else { return Outcome::Drop(DropReason::NoRoom) };
        sections.copy_from_slice(&zone.soa);
        let shift = self.name.bytes().len() - zone.apex.len();
        for pointer in &zone.soa_pointers {
            move_pointer(sections, usize::from(*pointer), shift);
        }
        let counts = Counts { authority: 1, ..Counts::default() };
        self.finish(rcode, true, false, counts, end)
    }

    /// No records: the client is to ask again over TCP (RFC 2181 section 9).
    fn truncated(self, authoritative: bool) -> Outcome {
        let end = self.query.question_end;
        self.finish(Rcode::NoError, authoritative, true, Counts::default(), end)
    }

    /// An RCODE and nothing more.
    fn status(self, rcode: Rcode) -> Outcome {
        let end = self.query.question_end;
        self.finish(rcode, false, false, Counts::default(), end)
    }

    /// OPT, last of all records, and the header.
    #[inline]
    fn finish(self, rcode: Rcode, authoritative: bool, truncated: bool, mut counts: Counts, mut end: usize) -> Outcome {
        if let Some(edns) = self.query.edns {
            let Some(place) = self.message.get_mut(end..end + OPT_LEN) else {
                return Outcome::Drop(DropReason::NoRoom);
            };
            place.copy_from_slice(&opt(self.limits.udp_payload_max, rcode, edns));
            counts.additional += 1;
            end += OPT_LEN;
        }
        write_header(self.message, rcode, authoritative, truncated, true, counts);
        Outcome::Reply(end)
    }

    #[inline]
    fn opt_len(&self) -> usize {
        if self.query.edns.is_some() { OPT_LEN } else { 0 }
    }
}

/// Moves the pointers of an answer, as far as its bytes were copied.
fn move_pointers(sections: &mut [u8], answer: Answer<'_>, shift: usize) {
    for pointer in answer.pointers() {
        move_pointer(sections, pointer, shift);
    }
}

/// Moves the pointer at `at`, if all of it is there.
fn move_pointer(sections: &mut [u8], at: usize, shift: usize) {
    if let Some(Some(pointer)) = sections.get_mut(at..).map(|rest| rest.first_chunk_mut::<2>()) {
        // The renderer makes no pointer that the longest QNAME would move beyond 14 bits.
        let moved = usize::from(u16::from_be_bytes(*pointer)) + shift;
        *pointer = u16::try_from(moved).unwrap_or(u16::MAX).to_be_bytes();
    }
}

/// What has no question that can be answered.
#[inline(never)]
fn rejected(message: &mut [u8], reject: Reject, limits: Limits) -> Outcome {
    let (rcode, question_end, edns) = match reject {
        Reject::Short => return Outcome::Drop(DropReason::ShortMessage),
        Reject::Response => return Outcome::Drop(DropReason::Response),
        Reject::Error { rcode, question_end, edns } => (rcode, question_end, edns),
    };
    let mut end = question_end.unwrap_or(HEADER_LEN);
    let mut counts = Counts::default();
    if let Some(edns) = edns {
        let Some(place) = message.get_mut(end..end + OPT_LEN) else { return Outcome::Drop(DropReason::NoRoom) };
        place.copy_from_slice(&opt(limits.udp_payload_max, rcode, edns));
        counts.additional = 1;
        end += OPT_LEN;
    }
    write_header(message, rcode, false, false, question_end.is_some(), counts);
    Outcome::Reply(end)
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
