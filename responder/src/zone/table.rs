//! One table for all names of all zones: open addressing over a keyed hash, and an arena with a node for each name.
//!
//! A lookup that hits costs two cache misses: the bucket, and the node, which holds the name and its answers side by side.
//!
//! ```text
//! bucket   upper half of the hash (32 bits) | place of the node in units of 8 bytes, plus 1; 0 is empty (32 bits)
//! node     name length (1), flags (1), number of answers (2), zone (4), name, answers (20 bytes each), their sections
//! answer   QTYPE (2), RCODE and AA (1), additional records that may not be left out (1), counts of the three sections (2 each), length
//!          without what may be left out (2), whole length (2), number of pointers to move (2), offset of the sections from the node's start (4)
//! ```
//!
//! What answers mean is the matter of [`crate::answer`]; how they are made, of `render`.

use super::hash::Key;
use crate::wire::{
    message::{Counts, Rcode},
    name::Name,
};

/// The pseudo-type of the answer to every QTYPE that a node has no answer for: an alias, or a referral. RFC 6895 reserves type 0.
pub(crate) const ANY_OTHER: u16 = 0;

const NODE_HEAD: usize = 8;
const ANSWER_LEN: usize = 20;
const AA: u8 = 0x80;
const NXDOMAIN: u8 = Rcode::NxDomain as u8;
const YXDOMAIN: u8 = Rcode::YxDomain as u8;
const UNIT: usize = 8;

/// What kind of name a node is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u8);

impl Flags {
    /// The apex of a zone.
    pub(crate) const APEX: Self = Self(1);
    /// A delegation: names below it are another server's.
    pub(crate) const CUT: Self = Self(2);
    /// Names below it are rewritten (RFC 6672).
    pub(crate) const DNAME: Self = Self(4);
    /// There is a wildcard right below it.
    pub(crate) const WILDCARD: Self = Self(8);

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// A rendered answer: the three sections as they go behind the question of the name they were rendered for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rendered {
    pub(crate) rcode: Rcode,
    pub(crate) authoritative: bool,
    pub(crate) counts: Counts,
    /// The sections.
    pub(crate) bytes: Vec<u8>,
    /// How many of these bytes must be sent or TC set. The rest is additional data that may be left out.
    pub(crate) required: usize,
    /// How many additional records are among them.
    pub(crate) required_additional: u8,
    /// Where in `bytes` there are compression pointers that move when the QNAME is longer than the name this was rendered for.
    pub(crate) pointers: Vec<u16>,
}

/// Names and their answers, immutable.
#[derive(Debug)]
pub(crate) struct Table {
    key: Key,
    buckets: Vec<u64>,
    arena: Vec<u8>,
    nodes: usize,
}

impl Table {
    /// An empty table with room for this many names.
    pub(crate) fn with_capacity(names: usize) -> Self {
        let buckets = (names * 8 / 5 + 16).next_power_of_two();
        Self { key: Key::random(), buckets: vec![0; buckets], arena: Vec::with_capacity(names * 80), nodes: 0 }
    }

    /// Adds a name that is not there yet. `name` is in lower case.
    pub(crate) fn insert(&mut self, name: &[u8], flags: Flags, zone: u32, answers: &[(u16, Rendered)]) {
        // A loaded zone's names are names, and a zone with 2^35 bytes of answers does not fit into any machine this runs on.
        let parsed = Name::parse(name, 0).expect("a zone has only names");
        debug_assert!(self.find(&parsed).is_none(), "a name is added once");
        self.arena.resize(self.arena.len().next_multiple_of(UNIT), 0);
        let start = self.arena.len();
        self.arena.push(u8_of(name.len()));
        self.arena.push(flags.0);
        self.arena.extend_from_slice(&u16_of(answers.len()).to_le_bytes());
        self.arena.extend_from_slice(&zone.to_le_bytes());
        self.arena.extend_from_slice(name);
        let mut offset = NODE_HEAD + name.len() + answers.len() * ANSWER_LEN;
        for (qtype, answer) in answers {
            self.arena.extend_from_slice(&qtype.to_le_bytes());
            self.arena.push(answer.rcode as u8 | if answer.authoritative { AA } else { 0 });
            self.arena.push(answer.required_additional);
            let Counts { answer: an, authority, additional } = answer.counts;
            for half in [
                an,
                authority,
                additional,
                u16_of(answer.required),
                u16_of(answer.bytes.len()),
                u16_of(answer.pointers.len()),
            ] {
                self.arena.extend_from_slice(&half.to_le_bytes());
            }
            self.arena.extend_from_slice(&u32::try_from(offset).expect("a node is smaller than 4 GB").to_le_bytes());
            offset += answer.bytes.len() + answer.pointers.len() * 2;
        }
        for (_, answer) in answers {
            self.arena.extend_from_slice(&answer.bytes);
            for pointer in &answer.pointers {
                self.arena.extend_from_slice(&pointer.to_le_bytes());
            }
        }
        self.nodes += 1;
        assert!(self.nodes < self.buckets.len(), "the table was made for as many names as there are");
        let hash = self.key.hash(parsed.padded(0), name.len());
        let place = u32::try_from(start / UNIT + 1).expect("the arena is smaller than 32 GB");
        let mut index = self.index(hash);
        while self.buckets[index] != 0 {
            index = (index + 1) & (self.buckets.len() - 1);
        }
        self.buckets[index] = hash & TAG | u64::from(place);
    }

    /// Gives back what was reserved and not used.
    pub(crate) fn shrink(&mut self) {
        self.arena.shrink_to_fit();
    }

    /// The node of a whole name.
    #[inline]
    pub(crate) fn find(&self, name: &Name) -> Option<Node<'_>> {
        self.find_suffix(name, 0)
    }

    /// The node of what is left of a name from the offset of a label.
    #[inline]
    pub(crate) fn find_suffix(&self, name: &Name, start: usize) -> Option<Node<'_>> {
        let suffix = name.suffix(start);
        let hash = self.key.hash(name.padded(start), suffix.len());
        let mut index = self.index(hash);
        loop {
            let bucket = *self.buckets.get(index)?;
            if bucket == 0 {
                return None;
            }
            if bucket & TAG == hash & TAG {
                let node = self.node(bucket)?;
                if node.name() == suffix {
                    return Some(node);
                }
            }
            index = (index + 1) & (self.buckets.len() - 1);
        }
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the mask keeps it within the table")]
    fn index(&self, hash: u64) -> usize {
        hash as usize & (self.buckets.len() - 1)
    }

    #[inline]
    fn node(&self, bucket: u64) -> Option<Node<'_>> {
        let place = usize::try_from(bucket & !TAG).ok()? - 1;
        let bytes = self.arena.get(place * UNIT..)?;
        Some(Node { head: bytes.first_chunk()?, bytes })
    }
}

/// The part of a bucket that is of the hash.
const TAG: u64 = 0xffff_ffff_0000_0000;

/// A name in the table; its bytes and all behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    head: &'a [u8; NODE_HEAD],
    bytes: &'a [u8],
}

impl<'a> Node<'a> {
    /// Its name, in lower case.
    #[inline]
    pub(crate) fn name(self) -> &'a [u8] {
        &self.bytes[NODE_HEAD..NODE_HEAD + usize::from(self.head[0])]
    }

    #[inline]
    pub(crate) fn is(self, kind: Flags) -> bool {
        Flags(self.head[1]).has(kind)
    }

    /// The index of its zone.
    #[inline]
    pub(crate) fn zone(self) -> usize {
        u32_at(self.head, 4) as usize
    }

    /// The answer for a QTYPE.
    #[inline]
    pub(crate) fn answer(self, qtype: u16) -> Option<Answer<'a>> {
        let mut rest = self.bytes.get(NODE_HEAD + usize::from(self.head[0])..)?;
        for _ in 0..u16_at(self.head, 2) {
            let (head, after) = rest.split_first_chunk()?;
            let answer = Answer { node: self.bytes, head };
            if answer.qtype() == qtype {
                return Some(answer);
            }
            rest = after;
        }
        None
    }

    /// Its answers, in the order of their types.
    #[inline]
    pub(crate) fn answers(self) -> impl Iterator<Item = Answer<'a>> {
        let count = usize::from(u16_at(self.head, 2));
        let start = NODE_HEAD + usize::from(self.head[0]);
        let (heads, _) = self.bytes[start..start + count * ANSWER_LEN].as_chunks::<ANSWER_LEN>();
        heads.iter().map(move |head| Answer { node: self.bytes, head })
    }
}

/// A rendered answer in the table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer<'a> {
    node: &'a [u8],
    head: &'a [u8; ANSWER_LEN],
}

impl<'a> Answer<'a> {
    #[inline]
    pub(crate) fn qtype(self) -> u16 {
        u16_at(self.head, 0)
    }

    #[inline]
    pub(crate) fn rcode(self) -> Rcode {
        match self.head[2] & !AA {
            NXDOMAIN => Rcode::NxDomain,
            YXDOMAIN => Rcode::YxDomain,
            _ => Rcode::NoError,
        }
    }

    #[inline]
    pub(crate) fn is_authoritative(self) -> bool {
        self.head[2] & AA != 0
    }

    #[inline]
    pub(crate) fn counts(self) -> Counts {
        Counts { answer: u16_at(self.head, 4), authority: u16_at(self.head, 6), additional: u16_at(self.head, 8) }
    }

    /// How many of its bytes must be sent or TC set.
    #[inline]
    pub(crate) fn required(self) -> usize {
        usize::from(u16_at(self.head, 10))
    }

    /// How many additional records are in those.
    #[inline]
    pub(crate) fn required_additional(self) -> u16 {
        u16::from(self.head[3])
    }

    /// The sections.
    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        let start = u32_at(self.head, 16) as usize;
        &self.node[start..start + usize::from(u16_at(self.head, 12))]
    }

    /// The places of compression pointers that move with the QNAME's length.
    pub(crate) fn pointers(self) -> impl Iterator<Item = usize> + 'a {
        let start = u32_at(self.head, 16) as usize + usize::from(u16_at(self.head, 12));
        let (pointers, _) = self.node[start..start + 2 * usize::from(u16_at(self.head, 14))].as_chunks::<2>();
        pointers.iter().map(|pointer| usize::from(u16::from_le_bytes(*pointer)))
    }
}

#[inline(always)]
fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

#[inline(always)]
fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u8_of(length: usize) -> u8 {
    u8::try_from(length).expect("a name has at most 255 bytes")
}

fn u16_of(length: usize) -> u16 {
    u16::try_from(length).expect("the renderer makes no more than a message holds")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(bytes: &[u8]) -> Rendered {
        Rendered {
            rcode: Rcode::NoError,
            authoritative: true,
            counts: Counts { answer: 1, authority: 2, additional: 3 },
            bytes: bytes.to_vec(),
            required: 1,
            required_additional: 2,
            pointers: vec![0, 2],
        }
    }

    fn name(index: u32) -> Vec<u8> {
        let label = format!("host{index}");
        [&[u8::try_from(label.len()).unwrap()], label.as_bytes(), b"\x07example\0"].concat()
    }

    #[test]
    fn what_goes_in_comes_out() {
        let mut table = Table::with_capacity(1000);
        for index in 0..1000 {
            table.insert(&name(index), Flags::CUT, index, &[(1, answer(b"one")), (28, answer(&name(index)))]);
        }
        for index in 0..1000 {
            let node = table.find(&Name::parse(&name(index), 0).unwrap()).unwrap();
            assert_eq!((node.name(), node.zone()), (name(index).as_slice(), index as usize));
            assert!(node.is(Flags::CUT) && !node.is(Flags::APEX));
            let found = node.answer(28).unwrap();
            assert_eq!((found.bytes(), found.required(), found.rcode()), (name(index).as_slice(), 1, Rcode::NoError));
            assert_eq!((found.counts(), found.required_additional()), (answer(b"").counts, 2));
            assert_eq!(found.pointers().collect::<Vec<_>>(), [0, 2]);
            assert!(found.is_authoritative() && node.answer(2).is_none());
        }
        assert!(table.find(&Name::parse(&name(1000), 0).unwrap()).is_none());
    }
}
