//! The keyed hash of names: SipHash-1-3. The key is drawn at random for each table: without it nobody can make names that collide.

use std::hash::{BuildHasher, RandomState};

/// The state of a hash; before the first word, its key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key([u64; 4]);

impl Key {
    /// A key that nobody outside this process knows.
    pub(crate) fn random() -> Self {
        // The standard library's keys come from the system's random numbers; two hashes of different values under such a key make one.
        let random = RandomState::new();
        Self::new(random.hash_one(0), random.hash_one(1))
    }

    const fn new(k0: u64, k1: u64) -> Self {
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

    /// The hash of a name of `length` bytes, padded with zeros to whole words, one byte of padding at least.
    #[inline]
    #[must_use]
    pub(crate) fn hash(mut self, padded: &[u8], length: usize) -> u64 {
        let Some((last, whole)) = padded.as_chunks::<8>().0.split_last() else { return 0 };
        for word in whole {
            self.word(u64::from_le_bytes(*word));
        }
        self.word(u64::from_le_bytes(*last) | (length as u64) << 56);
        self.0[2] ^= 0xff;
        self.round();
        self.round();
        self.round();
        self.0[0] ^ self.0[1] ^ self.0[2] ^ self.0[3]
    }
}

#[cfg(test)]
mod tests {
    use std::hash::{DefaultHasher, Hasher};

    use super::*;

    /// The standard library's hasher is the same function with a key of zeros.
    #[test]
    fn it_is_siphash_1_3() {
        for length in 0..=255 {
            let name: Vec<u8> = (1..=255).take(length).collect();
            let mut padded = name.clone();
            padded.resize(length / 8 * 8 + 8, 0);
            let mut expected = DefaultHasher::new();
            expected.write(&name);
            assert_eq!(Key::new(0, 0).hash(&padded, length), expected.finish(), "{length} bytes");
        }
        // The reference's value for no bytes, with the key 00..0f.
        let key = Key::new(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);
        assert_eq!(key.hash(&[0; 8], 0), 0xabac_0158_050f_c4dc);
    }

    #[test]
    fn keys_differ() {
        assert_ne!(Key::random().hash(&[0; 8], 1), Key::random().hash(&[0; 8], 1));
    }
}
