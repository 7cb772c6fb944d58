//! Names below a DNAME (RFC 6672 section 3.2): the DNAME record, a CNAME made from it, and then whatever the new name leads to, as far as our
//! zones know. It is the one answer that is put together while it is sent, from pieces that were rendered behind other questions.
//!
//! A rendered piece points at its question and at itself. Both have moved: the name that takes the question's place stands in the data of the
//! last CNAME, uncompressed, and the piece begins where the message ends so far.

use super::{Found, Outcome, Reply, code, find, typed};
use crate::{
    wire::{
        message::{Counts, HEADER_LEN, Rcode},
        name::{self, AnyRoom, NAME_MAX},
    },
    zone::{
        Zones,
        table::{ANY_OTHER, Answer, Node},
    },
};

/// DNAMEs that are followed. Each of them once: a loop ends, and no record is sent twice.
const REWRITES_MAX: usize = 8;
/// A compression pointer has 14 bits.
const POINTER_MAX: u16 = 0x3fff;
/// To the question's name.
const QNAME: [u8; 2] = [0xc0, 12];
/// QTYPE and QCLASS.
const QUESTION_TAIL: usize = 4;
/// What stands before a CNAME's data: a pointer, type, class, TTL, length.
const CNAME_HEAD: usize = 12;

/// A reply as it grows.
struct Growing<'a> {
    message: &'a mut [u8],
    /// What may be used of the message, OPT not counted.
    limit: usize,
    end: usize,
    counts: Counts,
    /// Where the name that is looked up stands in the message, and its length.
    name_at: usize,
    name_len: usize,
}

/// Why a piece was not added.
enum NotAdded {
    /// There is no room.
    Room,
    /// A pointer does not reach.
    Pointer,
    /// What the table has is not what was rendered.
    Broken,
}

/// Answers a name below the DNAME of `node`.
pub(super) fn rewrite(zones: &Zones, reply: Reply<'_>, node: Node<'_>) -> Outcome {
    let qtype = reply.query.qtype;
    let limit = reply.limit.saturating_sub(reply.opt_len());
    let mut growing = Growing {
        limit: limit.min(reply.message.len()),
        message: &mut *reply.message,
        end: reply.query.question_end,
        counts: Counts::default(),
        name_at: HEADER_LEN,
        name_len: reply.name.bytes().len(),
    };
    let outcome = growing.follow(zones, node, qtype);
    let (end, counts) = (growing.end, growing.counts);
    match outcome {
        Ok(rcode) => reply.finish(rcode, true, false, counts, end),
        Err(NotAdded::Room) => reply.truncated(true),
        Err(NotAdded::Broken) => reply.unavailable(),
        // The client asks on by itself.
        Err(NotAdded::Pointer) => reply.finish(Rcode::NOERROR, true, false, counts, end),
    }
}

impl Growing<'_> {
    fn follow(&mut self, zones: &Zones, first: Node<'_>, qtype: u16) -> Result<Rcode, NotAdded> {
        let mut seen: [&[u8]; REWRITES_MAX] = [&[]; REWRITES_MAX];
        let mut node = first;
        for index in 0..REWRITES_MAX {
            if seen.contains(&node.name()) {
                break;
            }
            seen[index] = node.name();
            if !self.dname(node)? {
                return Ok(Rcode::YXDOMAIN);
            }
            // The CNAME is what was asked for.
            if [code::TYPE_CNAME, code::TYPE_ANY].contains(&qtype) {
                break;
            }
            let mut room = AnyRoom::empty();
            let name = room.read(self.message, self.name_at).ok_or(NotAdded::Broken)?;
            let mut hashes = [0; AnyRoom::LABELS];
            zones.table.hash_any(name, &mut hashes);
            match find(&zones.table, name, &hashes[..=name.starts().len()]) {
                // The DNAME that was asked for is there already, and no record is sent twice (RFC 2181 section 5).
                Found::Exact(node) if qtype == code::TYPE_DNAME && seen.contains(&node.name()) => break,
                Found::Exact(node) | Found::Wildcard(node) => {
                    let Some(answer) = typed(node, qtype) else {
                        return self.negative(zones, node.zone(), Rcode::NOERROR);
                    };
                    self.answer(answer, node.name())?;
                    return Ok(answer.rcode());
                }
                Found::Cut(node) => {
                    // DS of the delegated name itself is answered on this side of the cut (RFC 4035 section 3.1.4.1).
                    let ds = node.answer(qtype).filter(|_| node.name() == name.bytes());
                    let Some(referral) = ds.or_else(|| node.answer(ANY_OTHER)) else { return Err(NotAdded::Broken) };
                    self.answer(referral, node.name())?;
                    return Ok(Rcode::NOERROR);
                }
                Found::NoName(zone) => return self.negative(zones, zone, Rcode::NXDOMAIN),
                Found::NotOurs => break,
                Found::Dname(next) => node = next,
            }
        }
        Ok(Rcode::NOERROR)
    }

    /// The DNAME record and the CNAME. False if the name becomes too long for one (RFC 6672 section 2.2).
    fn dname(&mut self, node: Node<'_>) -> Result<bool, NotAdded> {
        let dname = node.answer(code::TYPE_DNAME).ok_or(NotAdded::Broken)?;
        let record = dname.bytes();
        self.answer(dname, node.name())?;
        // Owner, a pointer or the root; type, class, TTL, length; the target, never compressed (RFC 6672 section 2.5).
        let owner_len = if record.first() == Some(&0) { 1 } else { 2 };
        let (ttl, target) =
            record.get(owner_len + 4..owner_len + 8).zip(record.get(owner_len + 10..)).ok_or(NotAdded::Broken)?;
        let kept_len = self.name_len - node.name().len();
        let alias_len = kept_len + target.len();
        if alias_len > NAME_MAX {
            return Ok(false);
        }
        let owner = self.pointer(self.name_at)?;
        let data_at = self.end + CNAME_HEAD;
        let end = data_at + alias_len;
        if end > self.limit {
            return Err(NotAdded::Room);
        }
        // The kept labels in the case in which they were asked.
        let kept = self.name_at..self.name_at + kept_len;
        self.message.copy_within(kept, data_at);
        let cname = &mut self.message[self.end..end];
        cname[..2].copy_from_slice(&owner);
        cname[2..6].copy_from_slice(&[0, 5, 0, 1]);
        cname[6..10].copy_from_slice(ttl);
        cname[10..12].copy_from_slice(&u16::try_from(alias_len).unwrap_or(0).to_be_bytes());
        cname[CNAME_HEAD + kept_len..].copy_from_slice(target);
        self.counts.answer += 1;
        self.end = end;
        (self.name_at, self.name_len) = (data_at, alias_len);
        Ok(true)
    }

    /// Adds an answer that was rendered for `question`, without what may be left out if there is no room for it.
    fn answer(&mut self, answer: Answer<'_>, question: &[u8]) -> Result<(), NotAdded> {
        let mut counts = answer.counts();
        let mut bytes = answer.bytes();
        if self.end + bytes.len() > self.limit {
            bytes = &bytes[..answer.required()];
            counts.additional = answer.required_additional();
        }
        self.piece(bytes, answer.pointers(), counts, question)
    }

    /// The zone's SOA (RFC 2308).
    fn negative(&mut self, zones: &Zones, zone: usize, rcode: Rcode) -> Result<Rcode, NotAdded> {
        let Some(zone) = zones.zones.get(zone) else { return Err(NotAdded::Broken) };
        let counts = Counts { authority: 1, ..Counts::default() };
        self.piece(&zone.soa, zone.soa_pointers.iter().map(|place| usize::from(*place)), counts, &zone.apex)?;
        Ok(rcode)
    }

    /// Adds sections that were rendered for `question`, which is the name looked up or above it, or the wildcard that covers it.
    fn piece(
        &mut self,
        bytes: &[u8],
        pointers: impl Iterator<Item = usize>,
        counts: Counts,
        question: &[u8],
    ) -> Result<(), NotAdded> {
        let (start, end) = (self.end, self.end + bytes.len());
        if end > self.limit {
            return Err(NotAdded::Room);
        }
        self.message[start..end].copy_from_slice(bytes);
        let question_end = HEADER_LEN + question.len();
        let question_at = self.name_at + self.name_len - question.len();
        for place in pointers.filter(|place| place + 2 <= bytes.len()) {
            let place = start + place;
            let target = usize::from(u16::from_be_bytes([self.message[place] & 0x3f, self.message[place + 1]]));
            let moved = if target < question_end {
                question_at + target - HEADER_LEN
            } else {
                start + target - (question_end + QUESTION_TAIL)
            };
            let pointer = self.pointer(moved)?;
            self.message[place..place + 2].copy_from_slice(&pointer);
        }
        if question.starts_with(b"\x01*") {
            self.own(start, end)?;
        }
        self.counts.answer += counts.answer;
        self.counts.authority += counts.authority;
        self.counts.additional += counts.additional;
        self.end = end;
        Ok(())
    }

    /// The owner of a wildcard's records is the name that was looked up. It points at the QNAME's place, and no list has it.
    fn own(&mut self, start: usize, end: usize) -> Result<(), NotAdded> {
        let owner = self.pointer(self.name_at)?;
        let mut at = start;
        while at < end {
            if self.message[at..].starts_with(&QNAME) {
                self.message[at..at + 2].copy_from_slice(&owner);
            }
            let fixed = name::skip(self.message, at).ok_or(NotAdded::Broken)?;
            let length = self.message.get(fixed + 8..).and_then(<[u8]>::first_chunk).ok_or(NotAdded::Broken)?;
            at = fixed + 10 + usize::from(u16::from_be_bytes(*length));
        }
        Ok(())
    }

    fn pointer(&self, target: usize) -> Result<[u8; 2], NotAdded> {
        let target = u16::try_from(target).ok().filter(|target| *target <= POINTER_MAX).ok_or(NotAdded::Pointer)?;
        Ok((0xc000 | target).to_be_bytes())
    }
}
