//! The Internet checksum (RFC 1071), as IPv4 headers and UDP carry it.
//!
//! The checksum is the complement of the one's complement sum of a packet's 16-bit words. One's complement addition has three
//! properties that make it cheap:
//!
//! - *Order does not matter*, so a packet is summed in any pieces, as long as each begins at an even offset.
//! - *Width does not matter*: a 64-bit word is four 16-bit words added in parallel whose carries are folded in at the end.
//! - *Byte order does not matter*: swapping the bytes of every word swaps the bytes of the sum. So words are read in the CPU's
//!   own order and the result is written back in the CPU's own order; nothing is ever swapped.
//!
//! A [`Sum`] holds the unfolded total. Each addend is below 2^33, so 2^31 of them fit: more than any packet has.

/// A running one's complement sum, not yet folded, in the CPU's byte order.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Adds bytes that begin at an even offset of the packet. An odd last byte counts as if a zero byte followed.
    #[inline]
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let mut total = self.0;
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            let word = u64::from_ne_bytes(*word);
            total += (word & 0xffff_ffff) + (word >> 32);
        }
        let (pairs, odd) = rest.as_chunks::<2>();
        for pair in pairs {
            total += u64::from(u16::from_ne_bytes(*pair));
        }
        if let [last] = odd {
            total += u64::from(u16::from_ne_bytes([*last, 0]));
        }
        Self(total)
    }

    /// Adds one 16-bit word, given in host order.
    #[inline]
    #[must_use]
    pub fn word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word.to_be()))
    }

    /// The checksum field's two bytes, in network order, for everything that was added.
    #[inline]
    #[must_use]
    pub fn finish(self) -> [u8; 2] {
        (!self.fold()).to_ne_bytes()
    }

    /// Whether what was added, its checksum field included, is intact.
    #[inline]
    #[must_use]
    pub fn is_intact(self) -> bool {
        self.fold() == 0xffff
    }

    /// Folds the carries in until 16 bits are left.
    #[inline]
    fn fold(self) -> u16 {
        let sum = (self.0 & 0xffff_ffff) + (self.0 >> 32);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        let sum = (sum & 0xffff) + (sum >> 16);
        (sum & 0xffff) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, word by word.
    fn plain(bytes: &[u8]) -> [u8; 2] {
        let mut sum = 0u32;
        for pair in bytes.chunks(2) {
            sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
            sum = (sum & 0xffff) + (sum >> 16);
        }
        u16::try_from(!sum & 0xffff).unwrap().to_be_bytes()
    }

    #[test]
    fn an_ipv4_header() {
        // A header whose checksum is 0xb861.
        let header = [
            0x45, 0x00, 0x00, 0x73, 0x00, 0x00, 0x40, 0x00, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0x00, 0x01, 0xc0, 0xa8,
            0x00, 0xc7,
        ];
        assert!(Sum::default().bytes(&header).is_intact());
        let mut cleared = header;
        cleared[10..12].fill(0);
        assert_eq!(Sum::default().bytes(&cleared).finish(), [0xb8, 0x61]);
    }

    #[test]
    fn every_length_agrees_with_the_definition() {
        let bytes: Vec<u8> = (0..1500u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
        for length in 0..bytes.len() {
            assert_eq!(Sum::default().bytes(&bytes[..length]).finish(), plain(&bytes[..length]), "length {length}");
        }
    }

    #[test]
    fn pieces_at_even_offsets_add_up() {
        let bytes: Vec<u8> = (0..=255).collect();
        let whole = Sum::default().bytes(&bytes).finish();
        for cut in (0..bytes.len()).step_by(2) {
            assert_eq!(Sum::default().bytes(&bytes[..cut]).bytes(&bytes[cut..]).finish(), whole, "cut at {cut}");
        }
    }

    #[test]
    fn carries_fold_to_the_end() {
        assert_eq!(Sum::default().bytes(&[0xff; 1500]).finish(), [0, 0]);
        assert_eq!(Sum::default().word(0xffff).word(0x0001).finish(), (!1u16).to_be_bytes());
    }
}
