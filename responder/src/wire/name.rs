//! Domain names on the wire (RFC 1035 section 3.1): labels of up to 63 bytes, each behind its length, the last one empty; 255 bytes in all.
//!
//! A [`Name`] is a QNAME as it is looked up: a lower-case copy on the stack. Compression pointers (section
//! 4.1.4) have nothing to point to in a question and are refused; [`skip`] takes them, in the records behind it.

/// The longest name, its root label included.
pub const NAME_MAX: usize = 255;
/// The longest label.
pub const LABEL_MAX: usize = 63;
/// More labels than this do not fit into a name: each takes two bytes and the root one.
const LABELS_MAX: usize = 127;
/// Zeros behind a name, so that it can be hashed in whole words of eight bytes.
const PADDING: usize = 8;
/// The two bits that make a length a compression pointer.
const POINTER: u8 = 0xc0;

/// A name in lower case.
#[derive(Clone, Debug)]
pub struct Name {
    bytes: [u8; NAME_MAX + PADDING],
    length: usize,
}

impl Name {
    /// The root's name, to be read into.
    #[inline]
    #[must_use]
    pub fn empty() -> Self {
        Self { bytes: [0; NAME_MAX + PADDING], length: 1 }
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
        // A label that begins behind this, be it the root's, makes the name too long.
        let text = &text[..text.len().min(NAME_MAX)];
        let (mut length, mut bits) = (0, 0);
        loop {
            let label = *text.get(length)?;
            length += 1 + usize::from(label);
            if label == 0 {
                break;
            }
            bits |= label;
        }
        // Lengths above 63 are those with one of the upper two bits, which are pointers or nothing at all.
        if bits & POINTER != 0 {
            return None;
        }
        self.length = length;
        self.bytes[length..length + PADDING].fill(0);
        let (text, bytes) = (&text[..length], &mut self.bytes[..length]);
        if !(lower::<16>(text, bytes) || lower::<8>(text, bytes)) {
            lower::<1>(text, bytes);
        }
        Some(length)
    }

    /// Its bytes on the wire, in lower case.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Where its labels begin: their number, the root not counted, and their offsets, then that of the root.
    #[must_use]
    pub fn labels(&self) -> (usize, [u8; LABELS_MAX + 1]) {
        let mut starts = [0; LABELS_MAX + 1];
        let mut labels = 0;
        let mut at = 0u8;
        while let Some(length @ 1..) = self.bytes.get(usize::from(at)) {
            at += 1 + length;
            labels += 1;
            starts[labels] = at;
        }
        (labels, starts)
    }

    /// What is left of it from the offset of a label.
    #[inline]
    #[must_use]
    pub fn suffix(&self, start: usize) -> &[u8] {
        &self.bytes[start..self.length]
    }

    /// The same, with one to eight zeros behind it to make whole words.
    #[inline]
    #[must_use]
    pub(crate) fn padded(&self, start: usize) -> &[u8] {
        &self.bytes[start..start + (self.length - start) / 8 * 8 + 8]
    }
}

/// Copies `text` to `bytes`, both of one length, in lower case. Lengths of labels are below 64 and stay as they are. `N` bytes go at once, the last
/// `N` of them again where they overlap; `false` if there are not so many.
#[inline]
fn lower<const N: usize>(text: &[u8], bytes: &mut [u8]) -> bool {
    let (Some(last), Some(last_target)) = (text.last_chunk::<N>(), bytes.last_chunk_mut::<N>()) else { return false };
    *last_target = last.map(|byte| byte.to_ascii_lowercase());
    for (target, chunk) in bytes.as_chunks_mut::<N>().0.iter_mut().zip(text.as_chunks::<N>().0) {
        *target = chunk.map(|byte| byte.to_ascii_lowercase());
    }
    true
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
            assert_eq!(Name::parse(bytes, 0).map(|name| name.labels().0), labels, "{what}");
        }
        let too_long = [&b"\x3f"[..], &[b'y'; 63], &longest_text[..192], b"\0"].concat();
        assert_eq!(too_long.len(), 257);
        assert!(Name::parse(&too_long, 0).is_none());
    }

    #[test]
    fn only_letters_change_case() {
        for byte in 0..=255u8 {
            for length in 1..=40 {
                let mut text = [b'Z', byte, b'@', byte, 0xff, byte, b'[', b'A'].repeat(5);
                text.truncate(length);
                let mut got = vec![0; length];
                assert!(lower::<16>(&text, &mut got) || lower::<8>(&text, &mut got) || lower::<1>(&text, &mut got));
                text.make_ascii_lowercase();
                assert_eq!(got, text, "{byte}");
            }
        }
    }

    #[test]
    fn suffixes() {
        let name = Name::parse(b"..\x03wWw\x07Example\x03com\0", 2).unwrap();
        assert_eq!(name.bytes(), b"\x03www\x07example\x03com\0");
        let (labels, starts) = name.labels();
        assert_eq!((labels, &starts[..=labels]), (3, &[0, 4, 12, 16][..]));
        assert_eq!(name.suffix(4), b"\x07example\x03com\0");
        assert_eq!(name.padded(4), b"\x07example\x03com\0\0\0\0");
        assert_eq!(name.padded(9), b"ple\x03com\0\0\0\0\0\0\0\0\0");
        assert_eq!(name.padded(16), [0; 8]);
    }

    #[test]
    fn a_name_is_read_over_another() {
        let mut name = Name::parse(b"\x0asomething-\0", 0).unwrap();
        assert_eq!(name.read(b"\x01A\0rest", 0), Some(3));
        assert_eq!((name.bytes(), name.padded(0)), (&b"\x01a\0"[..], &b"\x01a\0\0\0\0\0\0"[..]));
        assert_eq!(name.labels().0, 1);
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
