//! What is done to replies that are whole, by workers that are told to: rotating an RRset, cutting a reply short, and saying what it is for the rate limiter.
//!
//! All of it reads nothing but the reply, which is ours and well-formed; from bytes that are not, it returns without effect.

use super::Noted;
use crate::{
    guard::rrl::Kind,
    wire::{
        message::{AA, HEADER_LEN, Rcode, TC},
        name,
    },
};

const TYPE_NS: u16 = 2;
const TYPE_CNAME: u16 = 5;
const TYPE_SOA: u16 = 6;
const TYPE_PTR: u16 = 12;
const TYPE_MX: u16 = 15;
const TYPE_OPT: u16 = 41;
const TYPE_RRSIG: u16 = 46;
/// Type, class, TTL and length between a record's owner and its data.
const FIXED: usize = 10;

/// A record of a reply, by offsets.
#[derive(Clone, Copy)]
struct Record {
    start: usize,
    rtype: u16,
    data: usize,
    end: usize,
}

/// The records from offset `at`.
fn records(message: &[u8], mut at: usize) -> impl Iterator<Item = Record> + '_ {
    std::iter::from_fn(move || {
        let record = record(message, at)?;
        at = record.end;
        Some(record)
    })
}

fn record(message: &[u8], start: usize) -> Option<Record> {
    let fixed = name::skip(message, start)?;
    let &[t1, t0, _, _, _, _, _, _, l1, l0] = message.get(fixed..)?.first_chunk::<FIXED>()?;
    let data = fixed + FIXED;
    let end = data + usize::from(u16::from_be_bytes([l1, l0]));
    (end <= message.len()).then_some(Record { start, rtype: u16::from_be_bytes([t1, t0]), data, end })
}

/// Where the answer section begins, and the number of its records.
fn answer_section(message: &[u8]) -> Option<(usize, usize)> {
    let header: &[u8; HEADER_LEN] = message.first_chunk()?;
    let start = match [header[4], header[5]] {
        [0, 0] => HEADER_LEN,
        _ => name::skip(message, HEADER_LEN)? + 4,
    };
    (start <= message.len()).then_some((start, usize::from(u16::from_be_bytes([header[6], header[7]]))))
}

/// Puts another record of the answer's RRset first, the one that `turn` chooses, and says whether there was a choice. An RRset whose records point into each other
/// (RFC 1035 section 4.1.4) stays as it is; pointers to it from behind it move along.
#[inline(never)]
pub fn rotate(message: &mut [u8], turn: u32) -> bool {
    let Some((start, split, end)) = rotation(message, turn) else { return false };
    message[start..end].rotate_left(split - start);
    let mut at = end;
    while let Some(record) = record(message, at) {
        for place in pointers(message, record).into_iter().flatten() {
            let target = target(message, place);
            if (start..end).contains(&target) {
                let moved = if target < split { target + (end - split) } else { target - (split - start) };
                let pointer = 0xc000 | u16::try_from(moved).unwrap_or(0);
                message[place..place + 2].copy_from_slice(&pointer.to_be_bytes());
            }
        }
        at = record.end;
    }
    true
}

/// Where the RRset starts, the record that becomes its first, and where it ends. Aliases are no set, and signatures follow theirs.
fn rotation(message: &[u8], turn: u32) -> Option<(usize, usize, usize)> {
    let (at, count) = answer_section(message)?;
    if count < 2 {
        return None;
    }
    let is_of_alias = |record: &Record| matches!(record.rtype, TYPE_CNAME | TYPE_RRSIG);
    let mut answers = records(message, at).take(count).skip_while(is_of_alias);
    let first = answers.next()?;
    let mut set = 1;
    let mut end = first.end;
    for record in answers.take_while(|record| record.rtype == first.rtype) {
        set += 1;
        end = record.end;
    }
    if set < 2 || end > 0x3fff {
        return None;
    }
    let members = || records(message, first.start).take(set);
    let inward =
        |record| pointers(message, record).into_iter().flatten().any(|place| target(message, place) >= first.start);
    if members().any(inward) {
        return None;
    }
    // Steps of the golden ratio: sets of any size see each of their records equally often, whatever else is asked in between.
    let chosen = (u64::from(turn.wrapping_mul(0x9e37_79b9)) * u64::try_from(set).ok()?) >> 32;
    let split = members().nth(usize::try_from(chosen).ok()?)?.start;
    Some((first.start, split, end))
}

/// Where a record has compression pointers: at the end of its owner and of the names in its data that we compress.
fn pointers(message: &[u8], record: Record) -> [Option<usize>; 3] {
    let (first, second) = match record.rtype {
        TYPE_NS | TYPE_CNAME | TYPE_PTR => (Some(record.data), None),
        TYPE_MX => (Some(record.data + 2), None),
        TYPE_SOA => (Some(record.data), name::skip(message, record.data)),
        _ => (None, None),
    };
    [Some(record.start), first, second].map(|name| pointer(message, name?))
}

/// The offset of the pointer that ends a name, if one does.
fn pointer(message: &[u8], name: usize) -> Option<usize> {
    let mut at = name;
    loop {
        match *message.get(at)? {
            0 => return None,
            0xc0.. => return (at + 1 < message.len()).then_some(at),
            label => at += 1 + usize::from(label),
        }
    }
}

fn target(message: &[u8], pointer: usize) -> usize {
    usize::from(message[pointer] & 0x3f) << 8 | usize::from(message[pointer + 1])
}

/// Leaves of a reply its question and its OPT record, sets TC, and returns the new length.
#[inline(never)]
#[must_use]
pub fn cut_short(message: &mut [u8]) -> usize {
    let Some((start, _)) = answer_section(message) else { return message.len() };
    let opt = records(message, start).last().filter(|record| record.rtype == TYPE_OPT);
    message[2] |= TC;
    message[6..HEADER_LEN].fill(0);
    let Some(opt) = opt else { return start };
    message[HEADER_LEN - 1] = 1;
    message.copy_within(opt.start..opt.end, start);
    start + opt.end - opt.start
}

/// What kind of answer a reply is, and the name that it is about.
#[inline(never)]
#[must_use]
pub fn about<'m>(message: &'m [u8], noted: &Noted) -> (Kind, &'m [u8]) {
    const NO_ERROR: u8 = Rcode::NOERROR.0;
    const NAME_ERROR: u8 = Rcode::NXDOMAIN.0;
    let Some(header) = message.first_chunk::<HEADER_LEN>() else { return (Kind::Error, b"") };
    let is_authoritative = header[2] & AA != 0;
    let is_cut_short = header[2] & TC != 0;
    let has_answer = header[6..8] != [0, 0] || is_cut_short;
    let has_authority = header[8..10] != [0, 0] || is_cut_short;
    let kind = match header[3] & 0x0f {
        NO_ERROR if !is_authoritative && has_authority => Kind::Referral,
        // The lower bits of BADVERS.
        NO_ERROR if !is_authoritative => return (Kind::Error, b""),
        NO_ERROR if !has_answer => Kind::NoData,
        NO_ERROR if noted.is_wildcard => Kind::Wildcard,
        NO_ERROR => Kind::Positive,
        NAME_ERROR => Kind::NxDomain,
        _ => return (Kind::Error, b""),
    };
    let end = name::skip(message, HEADER_LEN).unwrap_or(HEADER_LEN);
    (kind, message.get(HEADER_LEN + usize::from(noted.name_at)..end).unwrap_or_default())
}
