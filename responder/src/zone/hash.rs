//! The keyed hash of names, made label by label from the root down, so that all suffixes of a name are hashed in one pass.
//!
//! The text of each label is cut into words of up to 7 bytes. A word's upper bits say how many bytes it has and whether it is the label's last, so
//! that different names are different rows of words. The hash of a row w1 .. wn is the polynomial `k^n + w1 k^(n-1) + .. + wn` at a secret
//! point k, modulo the prime 2^61 - 1: one multiplication for each word, and the hash of a name goes on from that of its parent.
//!
//! Why nobody can make names that collide: two different rows are different polynomials of a degree n of 127 at most, and so have one value at no
//! more than n of the 2^58 points that k is drawn from. What the table uses is the product with a second secret, odd number, its halves folded
//! together: a product alone keeps rows such as host1, host2, host3 as rows of buckets. And should names collide all the same, names are always
//! compared in full, and the table draws new keys where too many of its names stand in a row.

use std::hash::{BuildHasher, RandomState};

use crate::wire::name::Name;

/// The hash of the root's name.
const ROOT: u64 = 1;
/// Bytes in a word.
const WORD: usize = 7;
/// For each number of bytes in a word: the bits of these bytes.
const TEXT: [u64; WORD + 1] = {
    let mut text = [0; WORD + 1];
    let mut bytes = 0;
    while bytes <= WORD {
        text[bytes] = (1 << (8 * bytes)) - 1;
        bytes += 1;
    }
    text
};

/// Two secret numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    /// The polynomial's point, below 2^58, times 8: so the upper half of a product is what stands above 61 bits.
    point: u64,
    /// Odd.
    spread: u64,
}

impl Key {
    /// A key that nobody outside this process knows.
    pub(crate) fn random() -> Self {
        // The standard library's keys come from the system's random numbers; the hashes of different values under such a key make ours.
        let random = RandomState::new();
        Self { point: random.hash_one(0) >> 6 << 3, spread: random.hash_one(1) | 1 }
    }

    /// A key under which all hashes are the same.
    #[cfg(test)]
    pub(crate) fn of_one_value() -> Self {
        Self { point: 0, spread: 0 }
    }

    /// Hashes a name without its first `first` labels and what is above that: `hashes[n]` is the hash of the name without its first `n` labels.
    /// There is room for one more than labels. `BYTES` is the size of the name's room.
    #[inline(always)]
    pub(crate) fn suffixes<const BYTES: usize>(self, name: Name<'_>, first: usize, hashes: &mut [u64]) {
        let Some(bytes) = name.padded().first_chunk::<BYTES>() else { return };
        let (Some(starts), Some(hashes)) = (name.starts().get(first..), hashes.get_mut(first..)) else { return };
        let Some(root) = hashes.get_mut(starts.len()) else { return };
        *root = ROOT;
        let mut hash = ROOT;
        for (label, start) in starts.iter().enumerate().rev() {
            hash = self.label(hash, bytes, *start);
            hashes[label] = hash;
        }
    }

    /// The hash of the asterisk label below the name with this hash.
    #[inline]
    pub(crate) fn wildcard(self, hash: u64) -> u64 {
        self.word(hash, u64::from(b'*') | last(1))
    }

    /// What the table takes its bits from: the upper ones are the best.
    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    pub(crate) fn spread(self, hash: u64) -> u64 {
        let product = u128::from(hash) * u128::from(self.spread);
        product as u64 ^ (product >> 64) as u64
    }

    /// Goes on from the hash of the parent with the label at `start`.
    #[inline(always)]
    fn label<const BYTES: usize>(self, parent: u64, bytes: &[u8; BYTES], start: u8) -> u64 {
        let start = usize::from(start);
        let Some([length, word @ ..]) = bytes.get(start..).and_then(<[u8]>::first_chunk::<9>) else { return parent };
        let (mut length, mut word) = (usize::from(*length), u64::from_le_bytes(*word));
        let mut hash = parent;
        let mut at = start + 1;
        while length > WORD {
            hash = self.word(hash, word & TEXT[WORD]);
            at += WORD;
            length -= WORD;
            word = eight(bytes, at);
        }
        self.word(hash, (word & TEXT[length]) + last(length))
    }

    /// One step of the polynomial. With a hash below 2^62, a point below 2^58 and a word below 2^59 the result is below 2^62, and is not reduced
    /// further: it need not be the least of its class, only always the same.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    fn word(self, hash: u64, word: u64) -> u64 {
        let product = u128::from(hash) * u128::from(self.point);
        (product as u64 >> 3) + (product >> 64) as u64 + word
    }
}

/// What stands above the text in a label's last word, which has so many bytes.
#[inline(always)]
fn last(bytes: usize) -> u64 {
    (bytes as u64) << (8 * WORD)
}

/// The eight bytes at `at`, which is within a name, and so there are eight.
#[inline(always)]
fn eight(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |word| u64::from_le_bytes(*word))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::name::{AnyRoom, LABELS_MAX};

    const PRIME: u64 = (1 << 61) - 1;

    fn hashes(key: Key, name: &[u8]) -> Vec<u64> {
        let mut room = AnyRoom::empty();
        let name = room.read(name, 0).unwrap();
        let mut hashes = [0; LABELS_MAX + 1];
        key.suffixes::<{ AnyRoom::BYTES }>(name, 0, &mut hashes);
        hashes[..=name.starts().len()].to_vec()
    }

    /// The polynomial as it is defined, with numbers of any size.
    fn defined(key: Key, name: &[u8]) -> u64 {
        let mut labels = Vec::new();
        let mut rest = name;
        while let Some((length @ 1.., after)) = rest.split_first() {
            let (label, after) = after.split_at(usize::from(*length));
            labels.push(label);
            rest = after;
        }
        let mut value = 1u128;
        for label in labels.iter().rev() {
            let words = label.chunks(7).count();
            for (index, chunk) in label.chunks(7).enumerate() {
                let text = chunk.iter().rev().fold(0u128, |text, byte| text << 8 | u128::from(*byte));
                let last = if index + 1 == words { chunk.len() as u128 } else { 0 };
                value = (value * u128::from(key.point >> 3) + (text | last << 56)) % u128::from(PRIME);
            }
        }
        u64::try_from(value).unwrap()
    }

    fn names() -> Vec<Vec<u8>> {
        let deepest = [&b"\x01a".repeat(127)[..], b"\0"].concat();
        let label = |length: usize| [&[u8::try_from(length).unwrap()][..], &vec![0xff; length]].concat();
        let longest = [label(63), label(63), label(63), label(61), vec![0]].concat();
        let mut names = vec![vec![0], deepest, longest];
        names.extend((1..=63).map(|length| [label(length), label(64 - length), b"\x03com\0".to_vec()].concat()));
        names
    }

    #[test]
    fn it_is_the_polynomial_and_stays_below_its_bound() {
        let largest = Key { point: ((1 << 58) - 1) << 3, spread: 1 };
        for key in [Key::random(), Key::random(), largest] {
            for name in names() {
                let hash = hashes(key, &name)[0];
                assert!(hash < 1 << 62);
                assert_eq!(hash % PRIME, defined(key, &name), "{name:?}");
            }
        }
    }

    #[test]
    fn the_hash_of_a_suffix_is_that_of_the_whole_name_which_it_is() {
        let key = Key::random();
        for name in names() {
            let of_suffixes = hashes(key, &name);
            let mut room = AnyRoom::empty();
            let starts =
                room.read(&name, 0).unwrap().starts().iter().map(|start| usize::from(*start)).chain([name.len() - 1]);
            for (start, hash) in starts.zip(of_suffixes) {
                assert_eq!(hashes(key, &name[start..])[0], hash, "{:?}", &name[start..]);
            }
        }
    }

    #[test]
    fn a_wildcard_is_hashed_from_its_parent() {
        let key = Key::random();
        for parent in names().iter().filter(|name| name.len() < 254) {
            let wildcard = [b"\x01*", parent.as_slice()].concat();
            assert_eq!(key.wildcard(hashes(key, parent)[0]), hashes(key, &wildcard)[0]);
        }
    }

    /// Where labels end is part of the hash.
    #[test]
    fn names_of_the_same_bytes_differ() {
        let key = Key::random();
        let names: [&[u8]; 6] =
            [b"\x02ab\0", b"\x01a\x01b\0", b"\x01b\x01a\0", b"\x03ab\0\0", b"\x02\0a\0", b"\x01a\0"];
        for (index, name) in names.iter().enumerate() {
            for other in &names[index + 1..] {
                assert_ne!(hashes(key, name)[0], hashes(key, other)[0], "{name:?} {other:?}");
            }
        }
    }

    #[test]
    fn keys_differ() {
        let name = b"\x03www\0";
        assert_ne!(hashes(Key::random(), name), hashes(Key::random(), name));
    }
}
