//! Domain names on the wire (RFC 1035 section 3.1): labels of up to 63 bytes, each behind its length, the last one empty; 255 bytes in all.
//!
//! A [`Name`] is a QNAME as it is looked up: a lower-case copy with the place of every label, on the stack. Compression pointers (section
//! 4.1.4) have nothing to point to in a question and are refused; [`skip`] takes them, in the records behind it.

/// The longest name, its root label included.
pub const NAME_MAX: usize = 255;
/// The longest label.
pub const LABEL_MAX: usize = 63;
/// More labels than this do not fit into a name: each takes two bytes and the root one.
const LABELS_MAX: usize = 127;
/// Names are read eight bytes at a time, so that the last read may reach beyond the end.
const SLACK: usize = 8;
/// The two bits that make a length a compression pointer.
const POINTER: u8 = 0xc0;

/// A name in lower case, with the offsets of its labels.
#[derive(Clone, Debug)]
pub struct Name {
    bytes: [u8; NAME_MAX + 1 + SLACK],
    length: usize,
    offsets: [u8; LABELS_MAX],
    labels: usize,
}

impl Name {
    /// The root's name, to be read into.
    #[inline]
    #[must_use]
    pub fn empty() -> Self {
        Self { bytes: [0; NAME_MAX + 1 + SLACK], length: 1, offsets: [0; LABELS_MAX], labels: 0 }
    }

    /// Reads the uncompressed name that begins at `start`. `None` if it is cut short, too long, or compressed.
    #[must_use]
    pub fn parse(message: &[u8], start: usize) -> Option<Self> {
        let mut name = Self::empty();
        name.read(message, start)?;
        Some(name)
    }

    /// As [`Name::parse`], over the name that was here. Returns the new one's length; after `None` it is of no use.
    #[inline]
    pub fn read(&mut self, message: &[u8], start: usize) -> Option<usize> {
        let text = message.get(start..)?;
        let mut labels = 0;
        let mut at = 0;
        loop {
            let length = *text.get(at)?;
            if length == 0 {
                break;
            }
            if usize::from(length) > LABEL_MAX {
                return None;
            }
            let next = at + 1 + usize::from(length);
            // The root label must fit too.
            if next >= NAME_MAX {
                return None;
            }
            *self.offsets.get_mut(labels)? = u8::try_from(at).ok()?;
            labels += 1;
            at = next;
        }
        let length = at + 1;
        (self.length, self.labels) = (length, labels);
        let (text, bytes) = (text.get(..length)?, self.bytes.get_mut(..length)?);
        for (target, word) in bytes.as_chunks_mut::<8>().0.iter_mut().zip(text.as_chunks::<8>().0) {
            *target = lower(*word);
        }
        // What is left is part of the last eight bytes, some of them done already; a shorter name has no eight.
        match (bytes.last_chunk_mut::<8>(), text.last_chunk::<8>()) {
            (Some(target), Some(word)) => *target = lower(*word),
            _ => bytes.iter_mut().zip(text).for_each(|(target, byte)| *target = byte.to_ascii_lowercase()),
        }
        Some(length)
    }

    /// Its bytes on the wire, in lower case.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// The number of labels, the root not counted.
    #[inline]
    #[must_use]
    pub fn labels(&self) -> usize {
        self.labels
    }

    /// The name without its first `labels` labels.
    #[inline]
    #[must_use]
    pub fn suffix(&self, labels: usize) -> &[u8] {
        let start = if labels >= self.labels { self.length - 1 } else { usize::from(self.offsets[labels]) };
        &self.bytes[start..self.length]
    }

    /// The label at `index`, its length byte first, padded with what follows it to whole words; and how many bytes are the label's.
    #[inline]
    #[must_use]
    pub(crate) fn label(&self, index: usize) -> (&[u8], usize) {
        let start = usize::from(self.offsets[index]);
        let length = usize::from(self.bytes[start]) + 1;
        (&self.bytes[start..start + length.next_multiple_of(8)], length)
    }
}

/// Eight bytes at once: A to Z become a to z. Lengths are below 64 and stay as they are.
#[inline]
fn lower(word: [u8; 8]) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    let word = u64::from_ne_bytes(word);
    let low = word & !HIGH;
    // Bit 7 of a byte is set where it is at least 'A', and where it is above 'Z'; no byte's sum carries into the next.
    let at_least_a = low + (0x80 - b'A' as u64) * ONES;
    let above_z = low + (0x7f - b'Z' as u64) * ONES;
    let is_upper = at_least_a & !above_z & !word & HIGH;
    (word | (is_upper >> 2)).to_ne_bytes()
}

/// The offset behind the name at `start`, which may end in a compression pointer. The pointer is not followed.
#[must_use]
pub fn skip(message: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    loop {
        let length = *message.get(at)?;
        match length {
            0 => return Some(at + 1),
            _ if length & POINTER == POINTER => return message.get(at + 1).map(|_| at + 2),
            _ if usize::from(length) > LABEL_MAX => return None,
            _ => at += 1 + usize::from(length),
        }
        if at - start >= NAME_MAX {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let longest = [vec![63; 64], vec![63; 64], vec![63; 64], vec![61; 62], vec![0]].concat();
        let mut longest_text = longest.clone();
        for start in [0, 64, 128, 192] {
            let length = longest_text[start];
            longest_text[start + 1..=start + usize::from(length)].fill(b'x');
        }
        let cases: [(&str, &[u8], Option<usize>); 9] = [
            ("the root", b"\0", Some(0)),
            ("two labels", b"\x03WwW\x03Com\0rest", Some(2)),
            ("nothing", b"", None),
            ("no end", b"\x03www", None),
            ("a label cut short", b"\x03ww", None),
            ("a pointer", b"\x03www\xc0\x0c", None),
            ("a label type that does not exist", b"\x40x\0", None),
            ("255 bytes", &longest_text, Some(4)),
            ("256 bytes", &[&b"\x3e"[..], &[b'y'; 62], &longest_text[..192], b"\0"].concat(), None),
        ];
        for (what, bytes, labels) in cases {
            assert_eq!(Name::parse(bytes, 0).map(|name| name.labels()), labels, "{what}");
        }
        let too_long = [&b"\x3f"[..], &[b'y'; 63], &longest_text[..192], b"\0"].concat();
        assert_eq!(too_long.len(), 257);
        assert!(Name::parse(&too_long, 0).is_none());
    }

    #[test]
    fn only_letters_change_case() {
        for byte in 0..=255u8 {
            let got = lower([byte; 8]);
            assert_eq!(got, [byte.to_ascii_lowercase(); 8], "{byte}");
            let mut mixed = [b'Z', byte, b'@', byte, 0xff, byte, b'[', b'A'];
            let got = lower(mixed);
            mixed.make_ascii_lowercase();
            assert_eq!(got, mixed, "{byte}");
        }
    }

    #[test]
    fn suffixes() {
        let name = Name::parse(b"..\x03wWw\x07Example\x03com\0", 2).unwrap();
        assert_eq!(name.bytes(), b"\x03www\x07example\x03com\0");
        assert_eq!(name.suffix(1), b"\x07example\x03com\0");
        assert_eq!(name.suffix(3), b"\0");
        assert_eq!(name.label(2).1, 4);
        assert_eq!(&name.label(2).0[..4], b"\x03com");
    }

    #[test]
    fn names_that_may_be_compressed_are_skipped() {
        assert_eq!(skip(b"\x03www\xc0\x0c!", 0), Some(6));
        assert_eq!(skip(b"\xc0", 0), None);
        assert_eq!(skip(b"\0", 0), Some(1));
        assert_eq!(skip(b"\x80\0", 0), None);
        assert_eq!(skip(&[1; 600], 0), None);
    }
}
