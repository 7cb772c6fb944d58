//! The answer engine: a query in, its reply out, in the same buffer (RFC 1034 section 4.3.2).
//!
//! All answers were rendered when the zones were loaded. What is left is to find the right one and to copy it behind the question:
//!
//! - The QNAME exists: its node has the answer for the QTYPE, or an alias or referral for all types, or there is no data.
//! - It does not: the nearest name above it that does shows a zone cut (referral), a DNAME (`follow`), a wildcard, or nothing (NXDOMAIN).
//!
//! An answer was rendered for some name, and is used behind a QNAME that is that name or has it (or its parent, for a wildcard) as a suffix.
//! The question is then longer by the difference in length, and so every compression pointer moves by just that difference.
//!
//! Pure: no allocation, no I/O, no clock, and no panic for any bytes. What it does not do: DNSSEC, zone transfers, NOTIFY, updates.

mod asked;
mod edns;
pub mod finished;
mod follow;
mod made;
pub mod policy;

pub use asked::{Asked, Noted};
pub use made::refuse;

use self::{edns::Reason, policy::Policy};
use crate::{
    counters::DropReason,
    wire::{
        message::{AA, Counts, Edns, HEADER_LEN, OPT_LEN, Query, Rcode, Reject, TC, opt, write_header},
        name::{AnyRoom, Name, ShortRoom},
    },
    zone::{
        Zones,
        table::{ANY_OTHER, Answer, Flags, Node, Table},
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

/// Answers the query in `message[..query_len]` in place, by the default policy; the rest of `message` is room for the reply.
#[inline]
pub fn respond(zones: &Zones, message: &mut [u8], query_len: usize, limits: Limits) -> Outcome {
    let mut asked = None;
    respond_with(zones, message, query_len, limits, || asked.insert(Asked::plainly(limits)), |_, _| ())
}

/// Answers the query in `message[..query_len]` in place, for whom and as `asked` says.
pub fn respond_to(zones: &Zones, message: &mut [u8], query_len: usize, asked: &mut Asked<'_>) -> Outcome {
    respond_with(zones, message, query_len, asked.limits, || asked, |_, _| ())
}

/// The same. Most answers depend on nothing but the query and the zones: who asks is said only where it matters, and of the others QTYPE and RCODE
/// are told to `usual`. The limits are what `asked` says too.
#[inline(always)]
pub fn respond_with<'a, 'p: 'a>(
    zones: &Zones,
    message: &mut [u8],
    query_len: usize,
    limits: Limits,
    asked: impl FnOnce() -> &'a mut Asked<'p>,
    usual: impl FnOnce(u16, Rcode),
) -> Outcome {
    let Some(received) = message.get(..query_len) else { return Outcome::Drop(DropReason::NoRoom) };
    let mut room = ShortRoom::empty();
    let Some((query, name)) = Query::parse_usual(received, &mut room) else {
        return respond_long(zones, message, query_len, asked());
    };
    let mut hashes = [0; ShortRoom::LABELS];
    zones.table.hash(name, &mut hashes);
    if query.qclass == code::CLASS_IN
        && let Some(answer) = zones.table.find(hashes[0], name.bytes()).and_then(|node| node.answer(query.qtype))
    {
        return match whole(message, query, answer, limits) {
            Some(length) => {
                usual(query.qtype, answer.rcode());
                Outcome::Reply(length)
            }
            None => look_up(zones, Reply::new(message, query, name, asked(), &[]), &hashes),
        };
    }
    otherwise(zones, Reply::new(message, query, name, asked(), &[]), &hashes)
}

/// The same with room for every name.
#[inline(never)]
fn respond_long(zones: &Zones, message: &mut [u8], query_len: usize, asked: &mut Asked<'_>) -> Outcome {
    let mut room = AnyRoom::empty();
    let (query, name) = match Query::parse(&message[..query_len], &mut room) {
        Ok(parsed) => parsed,
        Err(reject) => return rejected(message, query_len, reject, asked),
    };
    if query.edns.is_some_and(|edns| !edns.options.is_none()) {
        return edns::with_options(Some(zones), message, query, name, asked);
    }
    from_zones(zones, Reply::new(message, query, name, asked, &[]))
}

/// Looks the QNAME up, whatever its length.
fn from_zones(zones: &Zones, reply: Reply<'_>) -> Outcome {
    let mut hashes = [0; AnyRoom::LABELS];
    zones.table.hash_any(reply.name, &mut hashes);
    look_up(zones, reply, &hashes)
}

/// The usual case: all of a rendered answer goes behind the question of the name that it was rendered for. `None` where it does not fit.
#[inline(always)]
fn whole(message: &mut [u8], query: Query, answer: Answer<'_>, limits: Limits) -> Option<usize> {
    let bytes = answer.bytes();
    let start = query.question_end;
    let mut counts = answer.counts();
    let answer_end = start + bytes.len();
    let end = answer_end + if query.edns.is_some() { OPT_LEN } else { 0 };
    if end > usize::from(UDP_PAYLOAD_MIN) && end > limit(message.len(), query.edns, limits) {
        return None;
    }
    let message_to_end = message.get_mut(..end)?;
    if let Some(edns) = query.edns {
        *message_to_end.last_chunk_mut()? = opt(limits.udp_payload_max, Rcode::NOERROR, edns);
        counts.additional += 1;
    }
    copy(message_to_end.get_mut(start..answer_end)?, bytes);
    write_header(message, answer.rcode(), answer.aa(), true, counts);
    Some(end)
}

/// Looks the QNAME up. `hashes` are those of its suffixes.
#[inline(never)]
fn look_up(zones: &Zones, reply: Reply<'_>, hashes: &[u64]) -> Outcome {
    let (query, name) = (reply.query, reply.name);
    if query.qclass == code::CLASS_IN
        && let Some(answer) = zones.table.find(hashes[0], name.bytes()).and_then(|node| node.answer(query.qtype))
    {
        return reply.answer(answer, 0);
    }
    otherwise(zones, reply, hashes)
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
fn otherwise(zones: &Zones, mut reply: Reply<'_>, hashes: &[u64]) -> Outcome {
    let (query, name) = (reply.query, reply.name);
    let hashes = hashes.get(..=name.starts().len()).unwrap_or_default();
    match query.qtype {
        // RFC 9824 section 3.5 says so of NXNAME; the others are no data either.
        code::TYPE_OPT | code::TYPE_NXNAME | code::TYPE_TKEY | code::TYPE_TSIG => return reply.status(Rcode::FORMERR),
        // Transfers come with a later version; until then they are refused, over UDP and TCP alike.
        code::TYPE_AXFR | code::TYPE_IXFR => return reply.refused(Reason::NotSupported),
        _ if query.qclass != code::CLASS_IN => return reply.other_class(),
        _ => {}
    }
    let length = name.bytes().len();
    let found = find(&zones.table, name, hashes);
    reply.note(zones, &found);
    let (answer, shift) = match found {
        Found::Exact(node) | Found::Wildcard(node) if reply.is_hinfo(node) => return reply.hinfo(),
        Found::Exact(node) => match typed(node, query.qtype) {
            Some(answer) => (answer, 0),
            None => return reply.no_data(zones, node),
        },
        Found::Wildcard(node) => match typed(node, query.qtype) {
            Some(answer) => (answer, length - node.name().len()),
            None => return reply.no_data(zones, node),
        },
        Found::Cut(node) => match node.answer(ANY_OTHER) {
            Some(referral) => (referral, length - node.name().len()),
            None => return reply.unavailable(),
        },
        Found::Dname(node) => return follow::rewrite(zones, reply, node),
        Found::NoName(zone) => return reply.no_name(zones, zone),
        Found::NotOurs => return reply.refused(Reason::NotAuthoritative),
    };
    reply.answer(answer, shift)
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

/// Walks up from the QNAME to the first name that exists. Zones have no names below their delegations, their DNAMEs and our other zones, and every
/// name between their own and the apex: so the first is in the nearest zone (RFC 1034 section 4.3.2 step 2), and it is what that zone
/// has to say of the QNAME.
fn find<'a>(table: &'a Table, name: Name<'_>, hashes: &[u64]) -> Found<'a> {
    let Some((index, node)) = table.nearest(name, hashes) else { return Found::NotOurs };
    if node.is(Flags::CUT) {
        return Found::Cut(node);
    }
    if index == 0 {
        return Found::Exact(node);
    }
    if node.is(Flags::DNAME) {
        return Found::Dname(node);
    }
    // RFC 4592 section 3.3.1: the source of synthesis is the asterisk label below the closest encloser, and no other.
    let wildcard = if node.is(Flags::WILDCARD) { table.wildcard(hashes[index], node) } else { None };
    match wildcard {
        Some(wildcard) if wildcard.zone() == node.zone() => Found::Wildcard(wildcard),
        _ => Found::NoName(node.zone()),
    }
}

/// A reply being made.
struct Reply<'a> {
    message: &'a mut [u8],
    query: Query,
    name: Name<'a>,
    policy: &'a Policy,
    noted: &'a mut Noted,
    limits: Limits,
    /// The largest length that may be sent.
    limit: usize,
    /// What goes into the OPT record.
    options: &'a [u8],
}

impl<'a> Reply<'a> {
    #[inline]
    fn new(message: &'a mut [u8], query: Query, name: Name<'a>, asked: &'a mut Asked<'_>, options: &'a [u8]) -> Self {
        let Asked { limits, policy, ref mut noted, .. } = *asked;
        Self { limit: limit(message.len(), query.edns, limits), message, query, name, policy, noted, limits, options }
    }

    /// Copies a rendered answer behind the question. `shift` is by how much the question is longer than the one it was rendered for.
    #[inline(always)]
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
        copy(sections, &bytes[..length]);
        if shift > 0 {
            move_pointers(sections, answer, shift);
        }
        self.finish(answer.rcode(), answer.is_authoritative(), false, counts, start + length)
    }

    /// The name exists and has nothing of the QTYPE (RFC 2308 section 2.2).
    fn no_data(self, zones: &Zones, node: Node<'_>) -> Outcome {
        self.negative(zones, node.zone(), Rcode::NOERROR)
    }

    /// The name does not exist (RFC 2308 section 2.1).
    fn no_name(self, zones: &Zones, zone: usize) -> Outcome {
        self.negative(zones, zone, Rcode::NXDOMAIN)
    }

    /// The zone's SOA in the authority section.
    fn negative(self, zones: &Zones, zone: usize, rcode: Rcode) -> Outcome {
        let Some(zone) = zones.zones.get(zone) else { return self.unavailable() };
        let start = self.query.question_end;
        let end = start + zone.soa.len();
        if end + self.opt_len() > self.limit {
            return self.truncated(true);
        }
        let Some(sections) = self.message.get_mut(start..end) else { return Outcome::Drop(DropReason::NoRoom) };
        copy(sections, &zone.soa);
        let shift = self.name.bytes().len() - zone.apex.len();
        for pointer in &zone.soa_pointers {
            move_pointer(sections, usize::from(*pointer), shift);
        }
        let counts = Counts { authority: 1, ..Counts::default() };
        self.finish(rcode, true, false, counts, end)
    }

    /// No records: the client is to ask again over TCP (RFC 2181 section 9).
    #[inline(always)]
    fn truncated(self, authoritative: bool) -> Outcome {
        let end = self.query.question_end;
        self.finish(Rcode::NOERROR, authoritative, true, Counts::default(), end)
    }

    /// An RCODE and nothing more.
    fn status(self, rcode: Rcode) -> Outcome {
        let end = self.query.question_end;
        self.finish(rcode, false, false, Counts::default(), end)
    }

    /// Notes for the rate limiter what the answer is about.
    fn note(&mut self, zones: &Zones, found: &Found<'_>) {
        let about = match found {
            Found::Exact(_) | Found::NotOurs => return,
            // Without its asterisk label.
            Found::Wildcard(node) => node.name().len() - 2,
            Found::Cut(node) | Found::Dname(node) => node.name().len(),
            Found::NoName(zone) => zones.zones.get(*zone).map_or(1, |zone| zone.apex.len()),
        };
        self.noted.name_at = u8::try_from(self.name.bytes().len() - about).unwrap_or(0);
        self.noted.is_wildcard = matches!(found, Found::Wildcard(_));
    }

    /// OPT, last of all records, and the header.
    #[inline(always)]
    fn finish(self, rcode: Rcode, authoritative: bool, truncated: bool, mut counts: Counts, mut end: usize) -> Outcome {
        if let Some(edns) = self.query.edns {
            let Some(place) = self.message.get_mut(end..end + OPT_LEN) else {
                return Outcome::Drop(DropReason::NoRoom);
            };
            place.copy_from_slice(&opt(self.limits.udp_payload_max, rcode, edns));
            counts.additional += 1;
            end += OPT_LEN;
            if !self.options.is_empty() {
                match edns::write(self.message, end, self.options) {
                    Some(behind) => end = behind,
                    None => return Outcome::Drop(DropReason::NoRoom),
                }
            }
        }
        (self.noted.qtype, self.noted.rcode) = (self.query.qtype, rcode);
        let flags = if authoritative { AA } else { 0 } | if truncated { TC } else { 0 };
        write_header(self.message, rcode, flags, true, counts);
        Outcome::Reply(end)
    }

    #[inline]
    fn opt_len(&self) -> usize {
        if self.query.edns.is_some() { OPT_LEN + self.options.len() } else { 0 }
    }
}

/// Copies bytes to where there is room for just these. Most are few, and copying them here takes less than a call.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8]) {
    if to.len() != from.len() || from.len() > 32 {
        return to.copy_from_slice(from);
    }
    match (from.first_chunk::<16>(), from.last_chunk::<16>()) {
        (Some(first), Some(last)) => {
            if let Some(place) = to.first_chunk_mut() {
                *place = *first;
            }
            if let Some(place) = to.last_chunk_mut() {
                *place = *last;
            }
        }
        _ => to.copy_from_slice(from),
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
fn rejected(message: &mut [u8], query_len: usize, reject: Reject, asked: &mut Asked<'_>) -> Outcome {
    if reject == Reject::FORMERR
        && let Some(outcome) = edns::cookie_alone(message, query_len, asked)
    {
        return outcome;
    }
    let (rcode, question_end, edns) = match reject {
        Reject::Short => return Outcome::Drop(DropReason::ShortMessage),
        Reject::Response => return Outcome::Drop(DropReason::Response),
        Reject::Error { rcode, question_end, edns } => (rcode, question_end, edns),
    };
    asked.noted.rcode = rcode;
    let mut end = question_end.unwrap_or(HEADER_LEN);
    let mut counts = Counts::default();
    if let Some(edns) = edns {
        let Some(place) = message.get_mut(end..end + OPT_LEN) else { return Outcome::Drop(DropReason::NoRoom) };
        place.copy_from_slice(&opt(asked.limits.udp_payload_max, rcode, edns));
        counts.additional = 1;
        end += OPT_LEN;
    }
    write_header(message, rcode, 0, question_end.is_some(), counts);
    Outcome::Reply(end)
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
