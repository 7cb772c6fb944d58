//! One table for all names of all zones: open addressing over a keyed hash, and an arena with a node for each name.
//!
//! A lookup that hits costs two cache misses: the bucket, and the node, which holds the name and its answers side by side.
//!
//! ```text
//! bucket   place of the node in units of 8 bytes (32 bits) | lower half of the hash (32 bits); 0 is empty
//! node     name length (1), flags (1), number of answers (2), zone (4), name, answers (24 bytes each), their sections
//! answer   key (4), header bit AA (1), RCODE (1), counts of the three sections in network order (2 each), length without what may be left out (2), whole length (2), number
//!          of pointers to move (2), additional records that may not be left out (1), nothing (1), offset of the sections from the node's start (4)
//! key      bits 0..16: QTYPE; bit 16: for queries with DO (RFC 3225); other bits 0
//! ```
//!
//! Zones are not signed yet, so no answer has bit 16: what is sent with DO will stand beside what is sent without, and costs the latter nothing.
//!
//! A name's bucket is the first free one from where its hash points. There are [`SPARE`] or more for each name, and so few in a row that are taken:
//! where more than [`RUN_MAX`] are, the table draws another key. So a lookup is bounded whatever names there are, and whatever is asked.
//!
//! What answers mean is the matter of [`crate::answer`]; how they are made, of `render`.

use super::{hash::Key, load::labels, parallel::on_all_cpus};
use crate::{
    sys,
    wire::{
        message::{AA, Counts, Rcode},
        name::{AnyRoom, LABELS_MAX, Name, ShortRoom},
    },
};

/// The pseudo-type of the answer to every QTYPE that a node has no answer for: an alias, or a referral. RFC 6895 reserves type 0.
pub(crate) const ANY_OTHER: u16 = 0;

const NODE_HEAD: usize = 8;
const ANSWER_LEN: usize = 24;
const UNIT: usize = 8;
/// Buckets for each name, at least: most names that do not exist shall meet an empty one at once.
const SPARE: usize = 4;
/// Names that one CPU hashes before it takes others.
const PART: usize = 1 << 15;
/// Buckets that a lookup may look at. With so many to spare, a run of half as many does not come about by chance.
const RUN_MAX: usize = 128;

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

/// Names and their answers as they are rendered, before they can be looked up.
#[derive(Debug)]
pub(crate) struct Nodes {
    arena: Vec<u8>,
    /// Where in the arena, in units.
    places: Vec<u32>,
    /// Labels that a name has at most.
    depth: usize,
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
        Self { arena, places: Vec::with_capacity(names), depth: 0 }
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
    }

    /// Adds all of `other`.
    pub(crate) fn append(&mut self, other: &Self) {
        let shift = place(self.arena.len() - UNIT);
        self.arena.extend_from_slice(&other.arena[UNIT..]);
        self.places.extend(other.places.iter().map(|place| place + shift));
        self.depth = self.depth.max(other.depth);
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

/// Names and their answers, immutable.
#[derive(Debug)]
pub(crate) struct Table {
    key: Key,
    /// A power of two that hashes point at, and as many more as a lookup may go on; the last is empty.
    buckets: Vec<u64>,
    /// From a hash to its bucket.
    shift: u32,
    arena: Vec<u8>,
    /// Labels that a name has at most: names with more need not be looked up.
    depth: usize,
}

impl Table {
    /// A table of these names.
    pub(crate) fn new(nodes: Nodes) -> Self {
        let Nodes { mut arena, places, depth } = nodes;
        arena.shrink_to_fit();
        let bits = (places.len() * SPARE).next_power_of_two().ilog2().max(10);
        let mut table = Self { key: Key::random(), buckets: vec![], shift: u64::BITS - bits, arena, depth };
        while table.fill(&places, (1 << bits) + RUN_MAX + 1).is_none() {
            table.key = Key::random();
        }
        table
    }

    /// Puts all nodes into their buckets; `None` where too many are in a row.
    fn fill(&mut self, places: &[u32], length: usize) -> Option<()> {
        let mut buckets = vec![0; length];
        sys::want_huge_pages(&buckets);
        let parts: Vec<&[u32]> = places.chunks(PART).collect();
        let spreads = on_all_cpus(&parts, |_, part| self.spreads(part));
        for (place, spread) in places.iter().zip(spreads.iter().flatten()) {
            let run = buckets.get_mut(self.index(*spread)..)?.get_mut(..RUN_MAX)?;
            *run.iter_mut().find(|bucket| **bucket == 0)? = u64::from(*place) << 32 | spread & TAG;
        }
        self.buckets = buckets;
        Some(())
    }

    /// What the bits of the nodes' buckets are taken from.
    fn spreads(&self, places: &[u32]) -> Vec<u64> {
        let mut hashes = [0; LABELS_MAX + 1];
        let mut room = AnyRoom::empty();
        let mut spread = |place: &u32| {
            let node = self.node(u64::from(*place) << 32).expect("a place is that of a node");
            let name = room.read(node.name(), 0).expect("a zone has only names");
            self.key.suffixes::<{ AnyRoom::BYTES }>(name, 0, &mut hashes);
            self.key.spread(hashes[0])
        };
        places.iter().map(&mut spread).collect()
    }

    /// How many labels a name must lack for what is left of it to be one that can be here.
    #[inline]
    fn too_many(&self, name: Name<'_>) -> usize {
        name.starts().len().saturating_sub(self.depth)
    }

    /// Hashes a name in a [`ShortRoom`] and all that is above it; see [`Key::suffixes`].
    #[inline(always)]
    pub(crate) fn hash(&self, name: Name<'_>, hashes: &mut [u64]) {
        self.key.suffixes::<{ ShortRoom::BYTES }>(name, 0, hashes);
    }

    /// The same for a name in an [`AnyRoom`], as far as it can be here.
    #[inline(never)]
    pub(crate) fn hash_any(&self, name: Name<'_>, hashes: &mut [u64]) {
        self.key.suffixes::<{ AnyRoom::BYTES }>(name, self.too_many(name), hashes);
    }

    /// The node of a name with this hash. Most are in the first bucket.
    #[inline(always)]
    pub(crate) fn find(&self, hash: u64, name: &[u8]) -> Option<Node<'_>> {
        let spread = self.key.spread(hash);
        let bucket = *self.buckets.get(self.index(spread))?;
        match self.node(bucket).filter(|node| (bucket ^ spread) & TAG == 0 && same(node.name(), name)) {
            Some(node) => Some(node),
            None if bucket == 0 => None,
            None => self.find_on(hash, name),
        }
    }

    #[inline(never)]
    fn find_on(&self, hash: u64, name: &[u8]) -> Option<Node<'_>> {
        self.probe(hash, |node| same(node.name(), name))
    }

    /// The first name that exists, from a whole one upwards, and how many labels it lacks. `hashes` are those of the name's suffixes.
    #[inline(never)]
    pub(crate) fn nearest(&self, name: Name<'_>, hashes: &[u64]) -> Option<(usize, Node<'_>)> {
        let mut labels = self.too_many(name);
        while let Some(hash) = hashes.get(labels) {
            let spread = self.key.spread(*hash);
            let mut at = self.index(spread);
            let mut bucket = *self.buckets.get(at)?;
            // Most do not exist: they meet an empty bucket at once, or behind those of others.
            while bucket != 0 {
                if (bucket ^ spread) & TAG == 0
                    && let Some(node) = self.named(bucket, &name, labels)
                {
                    return Some((labels, node));
                }
                at += 1;
                bucket = *self.buckets.get(at)?;
            }
            labels += 1;
        }
        None
    }

    /// The node in a bucket, if its name is this one without so many labels.
    #[inline(never)]
    fn named(&self, bucket: u64, name: &Name<'_>, labels: usize) -> Option<Node<'_>> {
        self.node(bucket).filter(|node| same(node.name(), name.suffix(labels)))
    }

    /// The node of the asterisk label below a node with this hash.
    #[inline]
    pub(crate) fn wildcard(&self, hash: u64, parent: Node<'_>) -> Option<Node<'_>> {
        let is_below = |name: &[u8]| {
            name.split_at_checked(2).is_some_and(|(label, rest)| label == b"\x01*" && same(rest, parent.name()))
        };
        self.probe(self.key.wildcard(hash), |node| is_below(node.name()))
    }

    /// Goes along the buckets from where a hash points to one with its tag and the right name.
    #[inline]
    fn probe(&self, hash: u64, is_right: impl Fn(Node<'_>) -> bool) -> Option<Node<'_>> {
        let spread = self.key.spread(hash);
        for bucket in self.buckets.get(self.index(spread)..)? {
            if *bucket == 0 {
                return None;
            }
            if (bucket ^ spread) & TAG == 0
                && let Some(node) = self.node(*bucket)
                && is_right(node)
            {
                return Some(node);
            }
        }
        None
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "no more bits than the table has")]
    fn index(&self, spread: u64) -> usize {
        (spread >> self.shift) as usize
    }

    #[inline]
    fn node(&self, bucket: u64) -> Option<Node<'_>> {
        let bytes = self.arena.get((bucket >> 32) as usize * UNIT..)?;
        Some(Node { head: bytes.first_chunk()?, bytes })
    }
}

/// Whether two names are the same. Most are short, and comparing them here takes less than a call.
#[inline(always)]
fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let (Some(first), Some(other_first)) = (a.first_chunk::<16>(), b.first_chunk()) else { return a == b };
    let (Some(last), Some(other_last)) = (a.last_chunk::<16>(), b.last_chunk()) else { return a == b };
    first == other_first && last == other_last && (a.len() <= 32 || a == b)
}

/// The part of a bucket that is of the hash.
const TAG: u64 = 0xffff_ffff;

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
            rcode: Rcode::NOERROR,
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

    fn find<'a>(table: &'a Table, name: &[u8]) -> Option<Node<'a>> {
        let mut hashes = [0; LABELS_MAX + 1];
        table.hash_any(AnyRoom::empty().read(name, 0).unwrap(), &mut hashes);
        table.find(hashes[0], name)
    }

    /// A thousand names, in two parts.
    fn nodes() -> Nodes {
        let mut parts = [Nodes::with_capacity(1000), Nodes::with_capacity(0)];
        for index in 0..1000 {
            let answers = [(1, answer(b"one")), (28, answer(&name(index)))];
            parts[usize::from(index >= 600)].insert(&name(index), Flags::CUT, index, &answers);
        }
        let [mut nodes, rest] = parts;
        nodes.append(&rest);
        nodes
    }

    #[test]
    fn what_goes_in_comes_out() {
        let table = Table::new(nodes());
        for index in 0..1000 {
            let node = find(&table, &name(index)).unwrap();
            assert_eq!((node.name(), node.zone()), (name(index).as_slice(), index as usize));
            assert!(node.is(Flags::CUT) && !node.is(Flags::APEX));
            let found = node.answer(28).unwrap();
            assert_eq!((found.bytes(), found.required(), found.rcode()), (name(index).as_slice(), 1, Rcode::NOERROR));
            assert_eq!((found.counts(), found.required_additional()), (answer(b"").counts, 2));
            assert_eq!(found.pointers().collect::<Vec<_>>(), [0, 2]);
            assert!(found.is_authoritative() && node.answer(2).is_none());
        }
        assert!(find(&table, &name(1000)).is_none());
        assert!(find(&Table::new(Nodes::with_capacity(0)), &name(0)).is_none());
    }

    /// Names are told apart by their bytes, whatever their hashes are.
    #[test]
    fn names_whose_hashes_are_the_same_are_found() {
        let mut nodes = Nodes::with_capacity(100);
        (0..100).for_each(|index| nodes.insert(&name(index), Flags::default(), index, &[]));
        nodes.insert(b"\x01*\x05host7\x07example\0", Flags::default(), 100, &[]);
        let places = nodes.places.clone();
        let mut table = Table::new(nodes);
        table.key = Key::of_one_value();
        table.fill(&places, table.buckets.len()).unwrap();
        for index in 0..100 {
            assert_eq!(find(&table, &name(index)).unwrap().zone(), index as usize);
        }
        assert!(find(&table, &name(100)).is_none());
        assert_eq!(table.wildcard(0, find(&table, &name(7)).unwrap()).unwrap().zone(), 100);
        assert!(table.wildcard(0, find(&table, &name(8)).unwrap()).is_none());
    }

    #[test]
    fn a_key_under_which_too_many_names_are_in_a_row_is_not_taken() {
        let nodes = nodes();
        let places = nodes.places.clone();
        let mut table = Table::new(nodes);
        table.key = Key::of_one_value();
        assert!(table.fill(&places, table.buckets.len()).is_none());
    }
}
