//! The keyed hash of names: SipHash-1-3 over whole labels, from the last label to the first.
//!
//! Each label is fed as its length byte and its bytes, padded with zeros to words of eight. Going from the right, the state after k labels is
//! the state of the name's last k labels, so the hashes of all suffixes of a name come out of one pass. The key is drawn at random for
//! each table: without it nobody can make names that collide.

use std::hash::{BuildHasher, RandomState};

use crate::wire::name::Name;

/// The state after some labels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State([u64; 4]);

impl State {
    /// A key that nobody outside this process knows.
    pub(crate) fn random() -> Self {
        // The standard library's keys come from the system's random numbers; two hashes of different values under such a key make one.
        let random = RandomState::new();
        Self::keyed(random.hash_one(0), random.hash_one(1))
    }

    const fn keyed(k0: u64, k1: u64) -> Self {
        Self([
            k0 ^ 0x736f_6d65_7073_6575,
            k1 ^ 0x646f_7261_6e64_6f6d,
            k0 ^ 0x6c79_6765_6e65_7261,
            k1 ^ 0x7465_6462_7974_6573,
        ])
    }

    #[inline]
    fn round(&mut self) {
        let [mut v0, mut v1, mut v2, mut v3] = self.0;
        v0 = v0.wrapping_add(v1);
        v1 = v1.rotate_left(13) ^ v0;
        v0 = v0.rotate_left(32);
        v2 = v2.wrapping_add(v3);
        v3 = v3.rotate_left(16) ^ v2;
        v0 = v0.wrapping_add(v3);
        v3 = v3.rotate_left(21) ^ v0;
        v2 = v2.wrapping_add(v1);
        v1 = v1.rotate_left(17) ^ v2;
        v2 = v2.rotate_left(32);
        self.0 = [v0, v1, v2, v3];
    }

    #[inline]
    fn word(&mut self, word: u64) {
        self.0[3] ^= word;
        self.round();
        self.0[0] ^= word;
    }

    /// The state with one more label in front: `padded` begins with the label's length byte and has whole words, of which `length` bytes count.
    #[inline]
    #[must_use]
    pub(crate) fn label(mut self, padded: &[u8], length: usize) -> Self {
        let (words, _) = padded.as_chunks::<8>();
        let mut left = length;
        for word in words {
            let mut word = u64::from_le_bytes(*word);
            if left < 8 {
                word &= (1 << (8 * left)) - 1;
            }
            self.word(word);
            left = left.saturating_sub(8);
        }
        self
    }

    /// The hash of the labels so far.
    #[inline]
    #[must_use]
    pub(crate) fn finish(mut self) -> u64 {
        self.0[2] ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.0[0] ^ self.0[1] ^ self.0[2] ^ self.0[3]
    }

    /// The hash of a whole name.
    #[inline]
    #[must_use]
    pub(crate) fn name(self, name: &Name) -> u64 {
        let mut state = self;
        for index in (0..name.labels()).rev() {
            let (padded, length) = name.label(index);
            state = state.label(padded, length);
        }
        state.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        let mut wire = Vec::new();
        for label in text.split('.').filter(|label| !label.is_empty()) {
            wire.push(u8::try_from(label.len()).unwrap());
            wire.extend_from_slice(label.as_bytes());
        }
        wire.push(0);
        Name::parse(&wire, 0).unwrap()
    }

    /// The last word of RFC-free SipHash-1-3's reference input of 15 bytes, laid out as one label: the rounds are the real ones.
    #[test]
    fn the_rounds_are_those_of_siphash() {
        // SipHash-1-3 of the empty message with key 00..0f is 0xabac0158050fc4dc; its length word is zero.
        let mut state = State::keyed(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        state.word(0);
        assert_eq!(state.finish(), 0xabac_0158_050f_c4dc);
    }

    #[test]
    fn suffixes_come_out_of_one_pass() {
        let key = State::random();
        let whole = name("a.much-longer-label.example.com");
        let mut state = key;
        for (index, suffix) in [(3, "com"), (2, "example.com"), (1, "much-longer-label.example.com")] {
            let (padded, length) = whole.label(index);
            state = state.label(padded, length);
            assert_eq!(state.finish(), key.name(&name(suffix)), "{suffix}");
        }
    }

    #[test]
    fn case_does_not_matter_and_label_boundaries_do() {
        let key = State::random();
        assert_eq!(key.name(&name("WWW.Example")), key.name(&name("www.example")));
        assert_ne!(key.name(&name("ab.c")), key.name(&name("a.bc")));
        assert_ne!(key.name(&name("abcdefg")), key.name(&name("abcdefgh")));
        assert_ne!(State::random().name(&name("www")), State::random().name(&name("www")));
    }
}
