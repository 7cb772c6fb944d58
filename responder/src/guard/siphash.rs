//! SipHash-2-4, the keyed hash of DNS cookies (RFC 9018 section 4.4) and of the rate limiter's table.

/// The hash of `bytes` under a key of 128 bits.
pub(super) fn siphash_2_4(key: &[u8; 16], bytes: &[u8]) -> u64 {
    let [k0, k1] = [0, 8].map(|at| u64::from_le_bytes(std::array::from_fn(|index| key[at + index])));
    let mut state = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        absorb(&mut state, u64::from_le_bytes(*word));
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    absorb(&mut state, u64::from_le_bytes(last) | (bytes.len() as u64) << 56);
    state[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut state);
    }
    state[0] ^ state[1] ^ state[2] ^ state[3]
}

fn absorb(state: &mut [u64; 4], word: u64) {
    state[3] ^= word;
    round(state);
    round(state);
    state[0] ^= word;
}

fn round(state: &mut [u64; 4]) {
    let [v0, v1, v2, v3] = state;
    *v0 = v0.wrapping_add(*v1);
    *v1 = v1.rotate_left(13) ^ *v0;
    *v0 = v0.rotate_left(32);
    *v2 = v2.wrapping_add(*v3);
    *v3 = v3.rotate_left(16) ^ *v2;
    *v0 = v0.wrapping_add(*v3);
    *v3 = v3.rotate_left(21) ^ *v0;
    *v2 = v2.wrapping_add(*v1);
    *v1 = v1.rotate_left(17) ^ *v2;
    *v2 = v2.rotate_left(32);
}

/// 128 bits that nobody outside this process knows. The standard library's keys come from the system's random numbers; hashes of different
/// values under such keys make one.
pub(super) fn random_key() -> [u8; 16] {
    use std::hash::{BuildHasher, RandomState};
    let mut key = [0; 16];
    for (index, half) in key.chunks_mut(8).enumerate() {
        half.copy_from_slice(&RandomState::new().hash_one(index).to_le_bytes());
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the reference, for the key 00..0f and the messages of 0, 1, 8 and 15 bytes that count up.
    #[test]
    fn the_references_values() {
        let key = std::array::from_fn(|index| u8::try_from(index).unwrap());
        for (length, expected) in [
            (0, 0x726f_db47_dd0e_0e31),
            (1, 0x74f8_39c5_93dc_67fd),
            (8, 0x93f5_f579_9a93_2462),
            (15, 0xa129_ca61_49be_45e5),
        ] {
            let message: Vec<u8> = (0..length).collect();
            assert_eq!(siphash_2_4(&key, &message), expected, "{length} bytes");
        }
    }

    #[test]
    fn random_keys_differ() {
        assert_ne!(random_key(), random_key());
    }
}
