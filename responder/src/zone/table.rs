//! One table for all names of all zones: open addressing over a keyed hash, and an arena with a node for each name.
//!
//! A lookup that hits costs two cache misses: the bucket, and the node, which holds the name and its answers side by side.
//!
//! ```text
//! bucket   place of the node in units of 8 bytes (32 bits) | lower half of the hash (32 bits); 0 is empty
//! ```
//!
//! A name's bucket is the first free one from where its hash points. There are [`SPARE`] or more for each name, and so few in a row that are taken:
//! where more than [`RUN_MAX`] are, the table draws another key. So a lookup is bounded whatever names there are, and whatever is asked.
//!
//! With the names above the apexes in it all names above one that is here are here too, so that the nearest one above a QNAME that does not exist
//! is found by halving its labels.
//!
//! What answers mean is the matter of [`crate::answer`]; how they are made, of `render`.

mod node;

use std::{collections::HashSet, mem};

pub(crate) use node::{ANY_OTHER, Answer, Flags, Node, Nodes, Rendered};

use super::{hash::Key, parallel::on_all_cpus};
use crate::{
    sys,
    wire::name::{AnyRoom, LABELS_MAX, Name, ShortRoom},
};

/// Buckets for each name, at least: most names that do not exist shall meet an empty one at once.
const SPARE: usize = 4;
/// Names that one CPU hashes before it takes others.
const PART: usize = 1 << 15;
/// Buckets that a lookup may look at. With so many to spare, a run of half as many does not come about by chance.
const RUN_MAX: usize = 128;
/// Labels that are taken off one by one to find a name that exists, before the rest of them is halved.
const NEAR: usize = 6;

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
        let Nodes { arena, mut places, depth, above } = nodes;
        let bits = ((places.len() + above.len()) * SPARE).next_power_of_two().ilog2().max(10);
        let mut table = Self { key: Key::random(), buckets: vec![], shift: u64::BITS - bits, arena, depth };
        table.fill(&places);
        let added = table.add(&above);
        places.extend(&added);
        if table.put(&added).is_none() {
            table.fill(&places);
        }
        table.arena.shrink_to_fit();
        table
    }

    /// Puts all nodes into empty buckets, under another key where too many come to be in a row.
    fn fill(&mut self, places: &[u32]) {
        loop {
            self.buckets = vec![0; (1 << (u64::BITS - self.shift)) + RUN_MAX + 1];
            sys::want_huge_pages(&self.buckets);
            if self.put(places).is_some() {
                return;
            }
            self.key = Key::random();
        }
    }

    /// Puts nodes into their buckets; `None` where too many are in a row.
    fn put(&mut self, places: &[u32]) -> Option<()> {
        let parts: Vec<&[u32]> = places.chunks(PART).collect();
        let spreads = on_all_cpus(&parts, |_, part| self.spreads(part));
        for (place, spread) in places.iter().zip(spreads.iter().flatten()) {
            let index = self.index(*spread);
            let run = self.buckets.get_mut(index..)?.get_mut(..RUN_MAX)?;
            *run.iter_mut().find(|bucket| **bucket == 0)? = u64::from(*place) << 32 | spread & TAG;
        }
        Some(())
    }

    /// Makes nodes of those names above apexes that have none, with the number of labels to the next name above that is a zone's. They are in no
    /// bucket yet.
    fn add(&mut self, above: &HashSet<Vec<u8>>) -> Vec<u32> {
        let mut room = AnyRoom::empty();
        let mut hashes = [0; LABELS_MAX + 1];
        let mut missing = Vec::new();
        for name in above {
            let name = room.read(name, 0).expect("a zone has only names");
            self.hash_any(name, &mut hashes);
            let found =
                (0..=name.starts().len()).find(|labels| self.find(hashes[*labels], name.suffix(*labels)).is_some());
            if found != Some(0) {
                missing.push((name.bytes().to_vec(), found.map_or(u32::MAX, node::u32_of)));
            }
        }
        let mut nodes = Nodes { arena: mem::take(&mut self.arena), ..Nodes::default() };
        missing.iter().for_each(|(name, labels)| nodes.insert(name, Flags::ABOVE, *labels, &[]));
        self.arena = nodes.arena;
        nodes.places
    }

    /// What the bits of the nodes' buckets are taken from.
    fn spreads(&self, places: &[u32]) -> Vec<u64> {
        let mut hashes = [0; LABELS_MAX + 1];
        let mut room = AnyRoom::empty();
        let mut spread = |place: &u32| {
            let node = Node::at(&self.arena, *place).expect("a place is that of a node");
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

    /// The longest name of a zone that this name is or is below, and how many labels it lacks. `hashes` are those of the name's suffixes.
    #[inline(never)]
    pub(crate) fn nearest(&self, name: Name<'_>, hashes: &[u64]) -> Option<(usize, Node<'_>)> {
        // Most names that are asked for lack few labels.
        let mut labels = self.too_many(name);
        let near = hashes.get(..labels + NEAR).unwrap_or(hashes);
        while let Some(hash) = near.get(labels) {
            let spread = self.key.spread(*hash);
            let mut at = self.index(spread);
            let mut bucket = *self.buckets.get(at)?;
            // Most do not exist: they meet an empty bucket at once, or behind those of others.
            while bucket != 0 {
                if (bucket ^ spread) & TAG == 0
                    && let Some(node) = self.named(bucket, &name, labels)
                {
                    return self.of_a_zone(name, hashes, labels, node);
                }
                at += 1;
                bucket = *self.buckets.get(at)?;
            }
            labels += 1;
        }
        self.bisect(name, hashes, labels)
    }

    /// The same, if it lacks at least so many labels. What is above a name that is here is here, what is below one that is not is not.
    #[inline(never)]
    fn bisect(&self, name: Name<'_>, hashes: &[u64], labels: usize) -> Option<(usize, Node<'_>)> {
        let (mut from, mut to) = (labels, hashes.len());
        let mut nearest = None;
        while from < to {
            let labels = from.midpoint(to);
            match self.find(*hashes.get(labels)?, name.suffix(labels)) {
                Some(node) => (nearest, to) = (Some(node), labels),
                None => from = labels + 1,
            }
        }
        self.of_a_zone(name, hashes, to, nearest?)
    }

    /// From the longest name that is here to the longest one of a zone.
    #[inline(always)]
    fn of_a_zone<'a>(
        &'a self,
        name: Name<'_>,
        hashes: &[u64],
        labels: usize,
        node: Node<'a>,
    ) -> Option<(usize, Node<'a>)> {
        if node.is(Flags::ABOVE) { self.above(name, hashes, labels + node.zone()) } else { Some((labels, node)) }
    }

    #[inline(never)]
    fn above(&self, name: Name<'_>, hashes: &[u64], labels: usize) -> Option<(usize, Node<'_>)> {
        Some((labels, self.find(*hashes.get(labels)?, name.suffix(labels))?))
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

    /// The node of a bucket.
    #[inline]
    fn node(&self, bucket: u64) -> Option<Node<'_>> {
        Node::at(&self.arena, (bucket >> 32) as u32)
    }
}

/// Whether two names are the same. Most are short, and comparing them here takes less than a call.
#[inline(always)]
fn same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    if a.len() >= 16 { ends_are_same::<16>(a, b) && (a.len() <= 32 || a == b) } else { same_short(a, b) }
}

#[inline(always)]
fn same_short(a: &[u8], b: &[u8]) -> bool {
    if a.len() >= 8 { ends_are_same::<8>(a, b) } else { a == b }
}

/// Whether the first and the last `N` bytes are the same.
#[inline(always)]
fn ends_are_same<const N: usize>(a: &[u8], b: &[u8]) -> bool {
    a.first_chunk::<N>() == b.first_chunk() && a.last_chunk::<N>() == b.last_chunk()
}

/// The part of a bucket that is of the hash.
const TAG: u64 = 0xffff_ffff;

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
