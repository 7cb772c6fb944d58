//! Domain names on the wire (RFC 1035 section 3.1): labels of up to 63 bytes, each behind its length, the last one empty; 255 bytes in all.
//!
//! A [`Name`] is a QNAME as it is looked up: a lower-case copy in a [`Room`] on the stack. Compression pointers (section
//! 4.1.4) have nothing to point to in a question and are refused; [`skip`] takes them, in the records behind it.

/// The longest name, its root label included.
pub const NAME_MAX: usize = 255;
/// The longest label.
pub const LABEL_MAX: usize = 63;
/// More labels than this do not fit into a name: each takes two bytes and the root one.
pub const LABELS_MAX: usize = 127;
/// So many bytes behind a name can be read, so that its labels can be read in whole words. What they are does not matter.
const PADDING: usize = 8;
/// The two bits that make a length a compression pointer.
const POINTER: u8 = 0xc0;

/// Room for a name of fewer than `LABELS` labels in no more than `BYTES - 8` bytes. Less room takes less to clear.
#[derive(Debug)]
pub struct Room<const BYTES: usize, const LABELS: usize> {
    bytes: [u8; BYTES],
    starts: [u8; LABELS],
}

/// Room for every name.
pub type AnyRoom = Room<{ NAME_MAX + PADDING + 1 }, { LABELS_MAX + 1 }>;
/// Room for most names that are asked for.
pub type ShortRoom = Room<72, 8>;

impl<const BYTES: usize, const LABELS: usize> Room<BYTES, LABELS> {
    /// Its bytes.
    pub const BYTES: usize = BYTES;
    /// One more than labels.
    pub const LABELS: usize = LABELS;

    /// Room with nothing in it.
    #[inline(always)]
    #[must_use]
    pub fn empty() -> Self {
        Self { bytes: [0; BYTES], starts: [0; LABELS] }
    }

    /// Reads the uncompressed name that begins at `start`. `None` if it is cut short, compressed, or too long for a name or for this room.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "an offset within 255 bytes")]
    pub fn read(&mut self, message: &[u8], start: usize) -> Option<Name<'_>> {
        let text = message.get(start..)?;
        // A label that begins behind this, be it the root's, makes the name too long.
        let text = &text[..text.len().min(BYTES - PADDING).min(NAME_MAX)];
        let (mut at, mut bits, mut labels) = (0, 0, 0);
        loop {
            let label = *text.get(at)?;
            if label == 0 {
                break;
            }
            *self.starts.get_mut(labels)? = at as u8;
            labels += 1;
            bits |= label;
            at += 1 + usize::from(label);
        }
        // Lengths above 63 are those with one of the upper two bits, which are pointers or nothing at all.
        if bits & POINTER != 0 {
            return None;
        }
        let length = at + 1;
        lower(&text[..length], &mut self.bytes);
        Some(Name {
            padded: &self.bytes,
            length,
            starts: self.starts.get(..labels).filter(|starts| starts.len() < LABELS)?,
        })
    }
}

/// A name in lower case.
#[derive(Clone, Copy, Debug)]
pub struct Name<'a> {
    /// Its bytes and some that do not matter.
    padded: &'a [u8],
    length: usize,
    /// Where its labels begin.
    starts: &'a [u8],
}

impl<'a> Name<'a> {
    /// Its bytes on the wire, in lower case.
    #[inline(always)]
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        &self.padded[..self.length]
    }

    /// The same and what happens to be behind it, eight bytes at least.
    #[inline(always)]
    #[must_use]
    pub(crate) fn padded(self) -> &'a [u8] {
        self.padded
    }

    /// Where its labels begin, the root's not among them.
    #[inline(always)]
    #[must_use]
    pub fn starts(self) -> &'a [u8] {
        self.starts
    }

    /// What is left of it without so many labels.
    #[inline]
    #[must_use]
    pub fn suffix(self, labels: usize) -> &'a [u8] {
        let start = self.starts.get(labels).map_or(self.length - 1, |start| usize::from(*start));
        &self.padded[start..self.length]
    }
}

/// Copies `text` to the start of `bytes`, in lower case, 16 bytes at once, the last 16 wherever they begin. Lengths of labels are below 64 and stay
/// as they are.
#[inline(always)]
fn lower(text: &[u8], bytes: &mut [u8]) {
    let Some(last) = text.last_chunk::<16>() else { return lower_each(text, bytes) };
    for (place, chunk) in bytes.as_chunks_mut::<16>().0.iter_mut().zip(text.as_chunks::<16>().0) {
        lower_each(chunk, place);
    }
    if let Some(place) = bytes.get_mut(text.len() - 16..) {
        lower_each(last, place);
    }
}

#[inline(always)]
fn lower_each(text: &[u8], bytes: &mut [u8]) {
    for (place, byte) in bytes.iter_mut().zip(text) {
        *place = byte.to_ascii_lowercase();
    }
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
            assert_eq!(AnyRoom::empty().read(bytes, 0).map(|name| name.starts().len()), labels, "{what}");
        }
        let too_long = [&b"\x3f"[..], &[b'y'; 63], &longest_text[..192], b"\0"].concat();
        assert_eq!(too_long.len(), 257);
        assert!(AnyRoom::empty().read(&too_long, 0).is_none());
    }

    #[test]
    fn only_letters_change_case() {
        for byte in 0..=255u8 {
            for length in 1..=40 {
                let mut text = [b'Z', byte, b'@', byte, 0xff, byte, b'[', b'A'].repeat(5);
                text.truncate(length);
                let mut got = vec![0; length + PADDING];
                lower(&text, &mut got);
                text.make_ascii_lowercase();
                assert_eq!(got[..length], text, "{byte}");
            }
        }
    }

    #[test]
    fn suffixes() {
        let mut room = ShortRoom::empty();
        let name = room.read(b"..\x03wWw\x07Example\x03com\0", 2).unwrap();
        assert_eq!(name.bytes(), b"\x03www\x07example\x03com\0");
        assert_eq!(name.starts(), [0, 4, 12]);
        assert_eq!(name.suffix(1), b"\x07example\x03com\0");
        assert_eq!((name.suffix(2), name.suffix(3)), (&b"\x03com\0"[..], &b"\0"[..]));
    }

    #[test]
    fn a_name_is_read_over_another() {
        let mut room = AnyRoom::empty();
        assert!(room.read(b"\x0asomething-\0", 0).is_some());
        let name = room.read(b"\x01A\0rest", 0).unwrap();
        assert_eq!((name.bytes(), name.starts()), (&b"\x01a\0"[..], &[0][..]));
    }

    /// Each label takes two bytes at least.
    #[test]
    fn as_many_labels_as_there_can_be() {
        let most = [&b"\x01A".repeat(LABELS_MAX)[..], b"\0"].concat();
        let mut room = AnyRoom::empty();
        let name = room.read(&most, 0).unwrap();
        assert_eq!((name.starts().len(), name.bytes().len()), (127, 255));
        assert_eq!((name.suffix(126), name.suffix(127)), (&b"\x01a\0"[..], &b"\0"[..]));
        assert!(AnyRoom::empty().read(&[&b"\x01a"[..], &most].concat(), 0).is_none());
        let cases = [(7, Some(7)), (8, None)];
        for (labels, read) in cases {
            let name = [&b"\x01A".repeat(labels)[..], b"\0"].concat();
            assert_eq!(ShortRoom::empty().read(&name, 0).map(|name| name.starts().len()), read);
        }
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
