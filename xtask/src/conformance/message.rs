//! DNS messages from the outside, reduced to what can be compared (RFC 1035 section 4.1): sections as sorted records, names in lower case and
//! without compression, also within the data of the types that have names there; OPT apart from the additional records.
//!
//! Reading is strict where a client would be lost, so that a broken reply is a difference of its own; it knows no type but those with
//! names in their data.

mod text;

pub use text::{name_text, rcode_text, type_text};

/// The header's length.
pub const HEADER_LEN: usize = 12;
/// The longest name on the wire (RFC 1035 section 2.3.4).
pub const NAME_MAX: usize = 255;

/// The flag of a reply.
pub const QR: u16 = 0x8000;
/// The opcode's bits.
pub const OPCODE: u16 = 0x7800;
/// The answer is authoritative.
pub const AA: u16 = 0x0400;
/// The reply is cut short.
pub const TC: u16 = 0x0200;
/// Recursion is desired.
pub const RD: u16 = 0x0100;
/// The data is authentic.
pub const AD: u16 = 0x0020;
/// Checking is disabled.
pub const CD: u16 = 0x0010;
/// The DO bit in OPT's flags.
pub const DO: u16 = 0x8000;

/// A type.
pub const A: u16 = 1;
/// A type.
pub const NS: u16 = 2;
/// A type.
pub const CNAME: u16 = 5;
/// A type.
pub const SOA: u16 = 6;
/// A type.
pub const TXT: u16 = 16;
/// A type.
pub const AAAA: u16 = 28;
/// A type.
pub const DNAME: u16 = 39;
/// A type.
pub const OPT: u16 = 41;
/// A type.
pub const DS: u16 = 43;
/// A type.
pub const IXFR: u16 = 251;
/// A type.
pub const AXFR: u16 = 252;
/// A type.
pub const ANY: u16 = 255;

/// A record, ready to be compared: class, TTL and data as they are, names in lower case.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Record {
    /// The owner, on the wire.
    pub owner: Vec<u8>,
    /// The type.
    pub rtype: u16,
    /// The class.
    pub class: u16,
    /// The TTL.
    pub ttl: u32,
    /// The data, names in it written out.
    pub data: Vec<u8>,
}

/// An OPT record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opt {
    /// The payload size offered.
    pub payload: u16,
    /// The EDNS version.
    pub version: u8,
    /// The flags, DO among them.
    pub flags: u16,
    /// The codes of its options.
    pub options: Vec<u16>,
}

/// A message, read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The 16 bits of flags, opcode and RCODE.
    pub bits: u16,
    /// The whole RCODE, with OPT's part.
    pub rcode: u16,
    /// The questions as they stand there, case and all.
    pub question: Vec<u8>,
    /// The answer section, sorted.
    pub answer: Vec<Record>,
    /// The authority section, sorted.
    pub authority: Vec<Record>,
    /// The additional section without OPT, sorted.
    pub additional: Vec<Record>,
    /// The OPT record.
    pub opt: Option<Opt>,
    /// The message's length.
    pub len: usize,
}

impl Message {
    /// Reads a message to its last byte, or says what is wrong with it.
    pub fn read(bytes: &[u8]) -> Result<Self, &'static str> {
        let word = |at: usize| u16_at(bytes, at).ok_or("shorter than a header");
        let bits = word(2)?;
        let counts = [word(4)?, word(6)?, word(8)?, word(10)?];
        let mut at = HEADER_LEN;
        for _ in 0..counts[0] {
            name(bytes, &mut at).ok_or("the question's name is broken")?;
            at += 4;
        }
        let question = bytes.get(HEADER_LEN..at).ok_or("the question is cut short")?.to_vec();
        let mut opt = None;
        let mut sections = [Vec::new(), Vec::new(), Vec::new()];
        for (index, section) in sections.iter_mut().enumerate() {
            for _ in 0..counts[index + 1] {
                let record = record(bytes, &mut at).ok_or("a record is broken")?;
                if record.rtype != OPT {
                    section.push(record);
                    continue;
                }
                if index != 2 || opt.is_some() || record.owner != [0] {
                    return Err("OPT is misplaced");
                }
                opt = Some(read_opt(&record).ok_or("an option is cut short")?);
            }
            section.sort_unstable();
        }
        if at != bytes.len() {
            return Err("bytes behind the end");
        }
        let [answer, authority, additional] = sections;
        let (opt, extended) = opt.map_or((None, 0), |(opt, extended)| (Some(opt), extended));
        let rcode = bits & 0xf | extended << 4;
        Ok(Self { bits, rcode, question, answer, authority, additional, opt, len: bytes.len() })
    }

    /// One of the flags.
    #[must_use]
    pub fn is(&self, bit: u16) -> bool {
        self.bits & bit != 0
    }
}

/// A name on the wire from text without escapes.
#[must_use]
pub fn name_from(text: &str) -> Vec<u8> {
    let mut wire = Vec::new();
    for label in text.split('.').filter(|label| !label.is_empty()) {
        wire.push(u8::try_from(label.len()).unwrap_or(63));
        wire.extend_from_slice(label.as_bytes());
    }
    wire.push(0);
    wire
}

/// The labels of a name on the wire, which is whole.
pub fn labels(mut name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (&length, rest) = name.split_first().filter(|(length, _)| **length > 0)?;
        let (label, rest) = rest.split_at_checked(usize::from(length))?;
        name = rest;
        Some(label)
    })
}

/// True where the name is the other one or below it; both in lower case.
#[must_use]
pub fn is_within(name: &[u8], above: &[u8]) -> bool {
    suffixes(name).any(|suffix| suffix == above)
}

/// The name, its parent, and so on to the root.
pub fn suffixes(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut next = Some(name);
    std::iter::from_fn(move || {
        let this = next?;
        next = this.first().filter(|length| **length > 0).and_then(|length| this.get(usize::from(*length) + 1..));
        Some(this)
    })
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|word| u16::from_be_bytes(*word))
}

/// Reads a name, compressed or not, in lower case.
pub(super) fn name(bytes: &[u8], at: &mut usize) -> Option<Vec<u8>> {
    let mut name = name_as_is(bytes, at)?;
    name.make_ascii_lowercase();
    Some(name)
}

fn name_as_is(bytes: &[u8], at: &mut usize) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    let mut place = *at;
    // Pointers lead backwards only, so that this ends.
    let mut before = usize::MAX;
    let mut end = None;
    loop {
        let length = *bytes.get(place)?;
        match length {
            0 => {
                name.push(0);
                *at = end.unwrap_or(place + 1);
                return (name.len() <= NAME_MAX).then_some(name);
            }
            1..=63 => {
                name.extend_from_slice(bytes.get(place..place + 1 + usize::from(length))?);
                place += 1 + usize::from(length);
            }
            0xc0.. => {
                end = end.or(Some(place + 2));
                let target = usize::from(u16_at(bytes, place)? & 0x3fff);
                if target >= before.min(place) {
                    return None;
                }
                (place, before) = (target, target);
            }
            _ => return None,
        }
        if name.len() > NAME_MAX {
            return None;
        }
    }
}

fn record(bytes: &[u8], at: &mut usize) -> Option<Record> {
    let owner = name(bytes, at)?;
    let (rtype, class) = (u16_at(bytes, *at)?, u16_at(bytes, *at + 2)?);
    let ttl = u32::from_be_bytes(*bytes.get(*at + 4..)?.first_chunk()?);
    let start = *at + 10;
    let end = start + usize::from(u16_at(bytes, *at + 8)?);
    *at = end;
    let whole = bytes.get(..end)?;
    // What should be a name and is none is compared as it stands.
    let data = data(whole, start, rtype).unwrap_or_else(|| whole[start..].to_vec());
    Some(Record { owner, rtype, class, ttl, data })
}

/// What stands before the names in a type's data, and how many names there are.
fn names_in(rtype: u16) -> Option<(usize, usize)> {
    match rtype {
        NS | 3 | 4 | CNAME | 7..=9 | 12 | DNAME => Some((0, 1)),
        SOA | 14 | 17 | 58 => Some((0, 2)),
        15 | 18 | 21 | 36 | 64 | 65 | 107 => Some((2, 1)),
        26 => Some((2, 2)),
        33 => Some((6, 1)),
        _ => None,
    }
}

/// Data with its names written out in lower case. `bytes` ends with it.
fn data(bytes: &[u8], start: usize, rtype: u16) -> Option<Vec<u8>> {
    let whole = bytes.get(start..)?;
    // NAPTR has three strings before its name (RFC 3403 section 4.1).
    let shape = match rtype {
        35 => naptr_name(whole).map(|skip| (skip, 1)),
        // IPSECKEY's gateway may be a name (RFC 4025 section 2.5).
        45 if whole.get(1) == Some(&3) => Some((3, 1)),
        _ => names_in(rtype),
    };
    let Some((skip, names)) = shape.filter(|_| !whole.is_empty()) else { return Some(whole.to_vec()) };
    let mut data = whole.get(..skip)?.to_vec();
    let mut at = start + skip;
    for _ in 0..names {
        data.extend_from_slice(&name(bytes, &mut at)?);
    }
    data.extend_from_slice(bytes.get(at..)?);
    Some(data)
}

fn naptr_name(data: &[u8]) -> Option<usize> {
    (0..3).try_fold(4, |at: usize, _| Some(at + 1 + usize::from(*data.get(at)?)))
}

/// An OPT record (RFC 6891 section 6.1), and the RCODE's upper bits.
fn read_opt(record: &Record) -> Option<(Opt, u16)> {
    let mut options = Vec::new();
    let mut rest = record.data.as_slice();
    while !rest.is_empty() {
        options.push(u16_at(rest, 0)?);
        rest = rest.get(4 + usize::from(u16_at(rest, 2)?)..)?;
    }
    let [extended, version, f1, f0] = record.ttl.to_be_bytes();
    let flags = u16::from_be_bytes([f1, f0]);
    Some((Opt { payload: record.class, version, flags, options }, u16::from(extended)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reply with a question for `wWw.` and these counts and records.
    fn reply(counts: [u8; 3], records: &[u8]) -> Vec<u8> {
        let [an, ns, ar] = counts;
        [&[0, 7, 0x84, 0, 0, 1, 0, an, 0, ns, 0, ar][..], b"\x03wWw\0\0\x01\0\x01", records].concat()
    }

    #[test]
    fn order_case_and_compression_are_no_difference() {
        let first = reply(
            [2, 0, 0],
            b"\xc0\x0c\0\x02\0\x01\0\0\0\x09\0\x04\x01a\xc0\x0c\xc0\x0c\0\x02\0\x01\0\0\0\x09\0\x02\xc0\x0c",
        );
        let second = reply(
            [2, 0, 0],
            b"\x03WWW\0\0\x02\0\x01\0\0\0\x09\0\x05\x03WWW\0\x03www\0\0\x02\0\x01\0\0\0\x09\0\x07\x01A\x03www\0",
        );
        let (first, second) = (Message::read(&first).expect("good"), Message::read(&second).expect("good"));
        assert_eq!(first.answer, second.answer);
        assert_eq!(first.question, b"\x03wWw\0\0\x01\0\x01", "the question's case is kept");
        assert_eq!(first.answer[0].data, b"\x01a\x03www\0");
    }

    #[test]
    fn ttl_and_data_are_a_difference() {
        let base = reply([1, 0, 0], b"\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04\x01\x02\x03\x04");
        for at in [27, 36] {
            let mut other = base.clone();
            other[at] ^= 1;
            let read = |bytes: &[u8]| Message::read(bytes).expect("good").answer;
            assert_ne!(read(&base), read(&other), "byte {at}");
        }
    }

    /// RFC 6891 section 6.1.3: the upper bits of the RCODE, the version and the flags.
    #[test]
    fn opt_stands_apart() {
        let message = reply([0, 0, 1], b"\0\0\x29\x04\xd0\x01\0\x80\0\0\x04\0\x0f\0\0");
        let message = Message::read(&message).expect("good");
        assert_eq!((message.rcode, message.additional.len()), (16, 0));
        assert_eq!(message.opt, Some(Opt { payload: 1232, version: 0, flags: DO, options: vec![15] }));
    }

    #[test]
    fn broken_replies_are_found() {
        let pointer_to_itself = reply([1, 0, 0], b"\xc0\x15\0\x01\0\x01\0\0\0\x09\0\0");
        let cases = [
            ("short", vec![0; 11]),
            ("a record too few", reply([1, 0, 0], b"")),
            ("bytes behind the end", reply([0, 0, 0], b"\0")),
            ("OPT in the answer section", reply([1, 0, 0], b"\0\0\x29\x04\xd0\0\0\0\0\0\0")),
            ("a pointer to itself", pointer_to_itself),
        ];
        for (what, bytes) in cases {
            assert!(Message::read(&bytes).is_err(), "{what}");
        }
    }

    #[test]
    fn names() {
        let name = name_from("a.b.example.");
        assert_eq!(name, b"\x01a\x01b\x07example\0");
        assert_eq!(name_text(&name), "a.b.example.");
        assert!(is_within(&name, b"\x07example\0") && is_within(&name, &name) && is_within(&name, b"\0"));
        assert!(!is_within(b"\x07example\0", &name));
        assert_eq!(suffixes(&name).count(), 4);
    }
}
