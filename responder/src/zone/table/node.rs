//! Names and their answers as bytes in the table's arena.
//!
//! ```text
//! node     name length (1), flags (1), number of answers (2), zone (4), name, answers (24 bytes each), their sections
//! answer   key (4), header bit AA (1), RCODE (1), counts of the three sections in network order (2 each), length without what may be left out (2), whole length (2), number
//!          of pointers to move (2), additional records that may not be left out (1), nothing (1), offset of the sections from the node's start (4)
//! key      bits 0..16: QTYPE; bit 16: for queries with DO (RFC 3225); other bits 0
//! ```
//!
//! Zones are not signed yet, so no answer has bit 16: what is sent with DO will stand beside what is sent without, and costs the latter nothing.

use std::collections::HashSet;

use crate::{
    wire::message::{AA, Counts, Rcode},
    zone::load::{labels, suffixes},
};

/// The pseudo-type of the answer to every QTYPE that a node has no answer for: an alias, or a referral. RFC 6895 reserves type 0.
pub(crate) const ANY_OTHER: u16 = 0;

const NODE_HEAD: usize = 8;
const ANSWER_LEN: usize = 24;
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
    /// No name of any zone, but above an apex: with these all names above one that is here are here.
    pub(super) const ABOVE: Self = Self(16);

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

/// Names and their answers as they are rendered, before they can be looked up.
#[derive(Debug)]
pub(crate) struct Nodes {
    pub(super) arena: Vec<u8>,
    /// Where in the arena, in units.
    pub(super) places: Vec<u32>,
    /// Labels that a name has at most.
    pub(super) depth: usize,
    /// All names above the apexes.
    pub(super) above: HashSet<Vec<u8>>,
}

impl Default for Nodes {
    fn default() -> Self {
        Self::with_capacity(0)
    }
}

impl Nodes {
    /// Room for this many names.
    pub(crate) fn with_capacity(names: usize) -> Self {
        // Place 0 is that of no node.
        let mut arena = Vec::with_capacity(UNIT + names * 72);
        arena.resize(UNIT, 0);
        Self { arena, places: Vec::with_capacity(names), depth: 0, above: HashSet::new() }
    }

    /// Adds a name that is not there yet. `name` is in lower case.
    pub(crate) fn insert(&mut self, name: &[u8], flags: Flags, zone: u32, answers: &[(u16, Rendered)]) {
        let start = self.arena.len();
        self.places.push(place(start));
        self.depth = self.depth.max(labels(name));
        self.arena.extend_from_slice(&[u8_of(name.len()), flags.0]);
        self.arena.extend_from_slice(&u16_of(answers.len()).to_le_bytes());
        self.arena.extend_from_slice(&zone.to_le_bytes());
        self.arena.extend_from_slice(name);
        let mut offset = NODE_HEAD + name.len() + answers.len() * ANSWER_LEN;
        for (qtype, answer) in answers {
            self.arena.extend_from_slice(&head(*qtype, answer, offset));
            offset += answer.bytes.len() + answer.pointers.len() * 2;
        }
        for (_, answer) in answers {
            self.arena.extend_from_slice(&answer.bytes);
            for pointer in &answer.pointers {
                self.arena.extend_from_slice(&pointer.to_le_bytes());
            }
        }
        self.arena.resize(self.arena.len().next_multiple_of(UNIT), 0);
        if flags.has(Flags::APEX) {
            self.above.extend(suffixes(name).skip(1).map(<[u8]>::to_vec));
        }
    }

    /// Adds all of `other`.
    pub(crate) fn append(&mut self, other: Self) {
        let shift = place(self.arena.len() - UNIT);
        self.arena.extend_from_slice(&other.arena[UNIT..]);
        self.places.extend(other.places.iter().map(|place| place + shift));
        self.depth = self.depth.max(other.depth);
        self.above.extend(other.above);
    }
}

/// An offset in the arena in units. A zone with 2^35 bytes of answers does not fit into any machine this runs on.
fn place(offset: usize) -> u32 {
    u32::try_from(offset / UNIT).expect("the arena is smaller than 32 GB")
}

fn head(qtype: u16, answer: &Rendered, offset: usize) -> [u8; ANSWER_LEN] {
    let mut head = [0; ANSWER_LEN];
    head[..4].copy_from_slice(&u32::from(qtype).to_le_bytes());
    head[4] = if answer.authoritative { AA } else { 0 };
    head[5] = answer.rcode.0;
    let Counts { answer: records, authority, additional } = answer.counts;
    let counts = [records, authority, additional].map(u16::to_be_bytes);
    let lengths = [answer.required, answer.bytes.len(), answer.pointers.len()].map(u16_of).map(u16::to_le_bytes);
    for (half, place) in counts.iter().chain(&lengths).zip(head[6..].as_chunks_mut().0) {
        *place = *half;
    }
    head[18] = answer.required_additional;
    head[20..].copy_from_slice(&u32::try_from(offset).expect("a node is smaller than 4 GB").to_le_bytes());
    head
}

/// A name in the table; its bytes and all behind them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node<'a> {
    head: &'a [u8; NODE_HEAD],
    bytes: &'a [u8],
}

impl<'a> Node<'a> {
    /// The node at a place in the arena.
    #[inline(always)]
    pub(super) fn at(arena: &'a [u8], place: u32) -> Option<Self> {
        let bytes = arena.get(place as usize * UNIT..)?;
        Some(Node { head: bytes.first_chunk()?, bytes })
    }

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
            if answer.key() == u32::from(qtype) {
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
    fn key(self) -> u32 {
        u32_at(self.head, 0)
    }

    #[inline]
    pub(crate) fn qtype(self) -> u16 {
        u16_at(self.head, 0)
    }

    #[inline]
    pub(crate) fn rcode(self) -> Rcode {
        Rcode(self.head[5])
    }

    #[inline]
    pub(crate) fn is_authoritative(self) -> bool {
        self.aa() != 0
    }

    /// The bit in the header.
    #[inline]
    pub(crate) fn aa(self) -> u8 {
        self.head[4]
    }

    #[inline]
    pub(crate) fn counts(self) -> Counts {
        let count = |at: usize| u16::from_be_bytes([self.head[at], self.head[at + 1]]);
        Counts { answer: count(6), authority: count(8), additional: count(10) }
    }

    /// How many of its bytes must be sent or TC set.
    #[inline]
    pub(crate) fn required(self) -> usize {
        usize::from(u16_at(self.head, 12))
    }

    /// How many additional records are in those.
    #[inline]
    pub(crate) fn required_additional(self) -> u16 {
        u16::from(self.head[18])
    }

    /// The sections.
    #[inline]
    pub(crate) fn bytes(self) -> &'a [u8] {
        let start = u32_at(self.head, 20) as usize;
        &self.node[start..start + usize::from(u16_at(self.head, 14))]
    }

    /// The places of compression pointers that move with the QNAME's length.
    pub(crate) fn pointers(self) -> impl Iterator<Item = usize> + 'a {
        let start = u32_at(self.head, 20) as usize + usize::from(u16_at(self.head, 14));
        let (pointers, _) = self.node[start..start + 2 * usize::from(u16_at(self.head, 16))].as_chunks::<2>();
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

pub(super) fn u32_of(count: usize) -> u32 {
    u32::try_from(count).expect("a name has fewer labels than that")
}

fn u8_of(length: usize) -> u8 {
    u8::try_from(length).expect("a name has at most 255 bytes")
}

fn u16_of(length: usize) -> u16 {
    u16::try_from(length).expect("the renderer makes no more than a message holds")
}
