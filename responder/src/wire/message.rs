//! DNS messages (RFC 1035 section 4.1): what a query says, checked once.
//!
//! ```text
//!   0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15
//! |                      ID                       |   0
//! |QR|   Opcode  |AA|TC|RD|RA| Z|AD|CD|   RCODE   |   2
//! |                    QDCOUNT                    |   4
//! |                    ANCOUNT                    |   6
//! |                    NSCOUNT                    |   8
//! |                    ARCOUNT                    |  10
//! ```
//!
//! Behind the header: exactly one question (RFC 9619), then records that a query may carry, of which only OPT (RFC 6891) is read. Nothing may
//! follow them.

pub use super::rcode::Rcode;

use super::name::{self, Name, Room};

/// The header's length, and so the offset of the question.
pub const HEADER_LEN: usize = 12;
/// The four counts of a header with a question and no records, as one number.
const ONE_QUESTION: u64 = 1 << 48;
/// QTYPE and QCLASS behind the QNAME.
const QUESTION_TAIL: usize = 4;
/// An OPT record without options: root, type, size, extended RCODE, version, flags, length.
pub const OPT_LEN: usize = 11;

const QR: u8 = 0x80;
const OPCODE: u8 = 0x78;
/// The bit of an authoritative answer.
pub const AA: u8 = 0x04;
/// The bit of an answer that is cut short.
pub const TC: u8 = 0x02;
const RD: u8 = 0x01;
const CD: u8 = 0x10;

const TYPE_OPT: u16 = 41;
const TYPE_TSIG: u16 = 250;
const TYPE_SIG: u16 = 24;
/// The DO bit in OPT's flags (RFC 3225).
const DO: u8 = 0x80;

/// What the client's OPT record says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edns {
    /// The largest UDP payload the client takes, in bytes.
    pub payload_max: u16,
    /// DNSSEC records are wanted.
    pub dnssec_ok: bool,
    /// Where its options are.
    pub options: OptionsAt,
}

/// Where in a message the options of its OPT record are. They follow each other without a gap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionsAt {
    start: usize,
    end: usize,
}

impl OptionsAt {
    /// No options.
    pub const NONE: Self = Self { start: 0, end: 0 };

    /// Whether there are none.
    #[inline]
    #[must_use]
    pub const fn is_none(self) -> bool {
        self.end == 0
    }

    /// The options of this message: codes and contents (RFC 6891 section 6.1.2).
    pub fn read(self, message: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
        let mut rest = message.get(self.start..self.end).unwrap_or_default();
        std::iter::from_fn(move || {
            let (&[c1, c0, l1, l0], after) = rest.split_first_chunk()?;
            let (content, after) = after.split_at_checked(usize::from(u16::from_be_bytes([l1, l0])))?;
            rest = after;
            Some((u16::from_be_bytes([c1, c0]), content))
        })
    }
}

/// A query that can be answered.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// The QTYPE.
    pub qtype: u16,
    /// The QCLASS.
    pub qclass: u16,
    /// The offset behind the question.
    pub question_end: usize,
    /// The client's OPT record.
    pub edns: Option<Edns>,
}

/// Why a message gets no answer from a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reject {
    /// Shorter than a header.
    Short,
    /// A response, not a query.
    Response,
    /// An error, to be sent with the question that ends at `question_end`, or without one.
    Error {
        /// The response code.
        rcode: Rcode,
        /// Where the question ends, when it could be read.
        question_end: Option<usize>,
        /// The client's OPT record, to be answered by one of ours.
        edns: Option<Edns>,
    },
}

impl Reject {
    /// The query cannot be read.
    pub const FORMERR: Self = Self::Error { rcode: Rcode::FORMERR, question_end: None, edns: None };
}

impl Query {
    /// Reads a query, and its QNAME into `room`: it is too large to be moved about.
    #[inline]
    pub fn parse<'n, const BYTES: usize, const LABELS: usize>(
        message: &[u8],
        room: &'n mut Room<BYTES, LABELS>,
    ) -> Result<(Self, Name<'n>), Reject> {
        let question = Question::parse(message, room)?;
        let edns = match question.usual_edns() {
            Some(edns) => edns,
            None => records(message, question.end, question.records)?,
        };
        Ok(question.query(edns))
    }

    /// The same for a query that is a question and at most an OPT record of version 0 without options; `None` for all others.
    #[inline(always)]
    pub fn parse_usual<'n, const BYTES: usize, const LABELS: usize>(
        message: &[u8],
        room: &'n mut Room<BYTES, LABELS>,
    ) -> Option<(Self, Name<'n>)> {
        let question = Question::parse(message, room).ok()?;
        let edns = question.usual_edns()?;
        Some(question.query(edns))
    }
}

/// A message whose header and question have been read.
struct Question<'m, 'n> {
    name: Name<'n>,
    /// QTYPE and QCLASS.
    tail: [u8; QUESTION_TAIL],
    /// Its offset in the message.
    end: usize,
    /// What is behind it.
    rest: &'m [u8],
    /// How many records are behind it, 16 bits for each section, the last lowest.
    records: u64,
}

impl<'m, 'n> Question<'m, 'n> {
    #[inline(always)]
    fn parse<const BYTES: usize, const LABELS: usize>(
        message: &'m [u8],
        room: &'n mut Room<BYTES, LABELS>,
    ) -> Result<Self, Reject> {
        let header: &[u8; HEADER_LEN] = message.first_chunk().ok_or(Reject::Short)?;
        let [_, _, flags, _, counts @ ..] = *header;
        if flags & (QR | OPCODE) != 0 {
            let not_implemented = Reject::Error { rcode: Rcode::NOTIMP, question_end: None, edns: None };
            return Err(if flags & QR != 0 { Reject::Response } else { not_implemented });
        }
        let records = u64::from_be_bytes(counts).wrapping_sub(ONE_QUESTION);
        if records >= ONE_QUESTION {
            return Err(Reject::FORMERR);
        }
        let name = room.read(message, HEADER_LEN).ok_or(Reject::FORMERR)?;
        let name_end = HEADER_LEN + name.bytes().len();
        let behind = message.get(name_end..).and_then(<[u8]>::split_first_chunk).ok_or(Reject::FORMERR)?;
        let (tail, rest) = (*behind.0, behind.1);
        Ok(Self { name, tail, end: name_end + QUESTION_TAIL, rest, records })
    }

    /// The client's OPT record where there is no other record and nothing unusual about it.
    #[inline(always)]
    fn usual_edns(&self) -> Option<Option<Edns>> {
        match self.records {
            0 if self.rest.is_empty() => Some(None),
            1 => self.rest.try_into().ok().and_then(lone_opt).map(Some),
            _ => None,
        }
    }

    #[inline(always)]
    fn query(self, edns: Option<Edns>) -> (Query, Name<'n>) {
        let [t1, t0, c1, c0] = self.tail;
        let (qtype, qclass) = (u16::from_be_bytes([t1, t0]), u16::from_be_bytes([c1, c0]));
        (Query { qtype, qclass, question_end: self.end, edns }, self.name)
    }
}

/// The OPT record of a message that is nothing but a header and that record: a client may ask so for a cookie (RFC 7873 section 5.4, RFC 9619 section 4).
#[must_use]
pub fn edns_alone(message: &[u8]) -> Option<Edns> {
    match message.first_chunk::<HEADER_LEN>()? {
        [_, _, flags, _, 0, 0, 0, 0, 0, 0, 0, 1] if flags & (QR | OPCODE) == 0 => {
            records(message, HEADER_LEN, 1).ok()?
        }
        _ => None,
    }
}

/// An OPT record of version 0 without options, which is what most clients send.
#[inline(always)]
fn lone_opt(record: &[u8; OPT_LEN]) -> Option<Edns> {
    let [owner, t1, t0, s1, s0, extended, version, flags, z, l1, l0] = *record;
    // In whole words, with what may have any value masked out.
    let head = u64::from_be_bytes([owner, t1, t0, s1, s0, extended, version, flags]);
    let length = u32::from_be_bytes([flags, z, l1, l0]) & 0xffff;
    if head & 0xffff_ff00_0000_ff00 != u64::from(TYPE_OPT) << 40 || length != 0 {
        return None;
    }
    Some(Edns { payload_max: u16::from_be_bytes([s1, s0]), dnssec_ok: flags & DO != 0, options: OptionsAt::NONE })
}

/// Reads all records behind the question, which must fill the message. `counts` are the header's of the three sections.
fn records(message: &[u8], question_end: usize, counts: u64) -> Result<Option<Edns>, Reject> {
    let [answer, authority, additional] = [counts >> 32, counts >> 16 & 0xffff, counts & 0xffff];
    let others = answer + authority;
    let mut at = question_end;
    let mut edns = None;
    let mut version = 0;
    for index in 0..others + additional {
        let is_root = message.get(at) == Some(&0);
        let fixed = name::skip(message, at).ok_or(Reject::FORMERR)?;
        let Some(&[t1, t0, s1, s0, _, record_version, flags, _, l1, l0]) = message.get(fixed..fixed + 10) else {
            return Err(Reject::FORMERR);
        };
        let rdata_at = fixed + 10;
        at = rdata_at + usize::from(u16::from_be_bytes([l1, l0]));
        let rdata = message.get(rdata_at..at).ok_or(Reject::FORMERR)?;
        match u16::from_be_bytes([t1, t0]) {
            TYPE_OPT => {
                // One, in the additional section, owned by the root (RFC 6891 section 6.1.1).
                if index < others || !is_root || edns.is_some() || !options_are_whole(rdata) {
                    return Err(Reject::FORMERR);
                }
                let options = if rdata_at < at { OptionsAt { start: rdata_at, end: at } } else { OptionsAt::NONE };
                let payload_max = u16::from_be_bytes([s1, s0]);
                edns = Some(Edns { payload_max, dnssec_ok: flags & DO != 0, options });
                version = record_version;
            }
            // We have no keys, so the signature cannot be checked: RFC 8945 section 5.2.1, RFC 2931.
            TYPE_TSIG | TYPE_SIG if index >= others => {
                return Err(Reject::Error { rcode: Rcode::NOTAUTH, question_end: Some(question_end), edns: None });
            }
            _ => {}
        }
    }
    if at != message.len() {
        return Err(Reject::FORMERR);
    }
    if version != 0 {
        return Err(Reject::Error { rcode: Rcode::BADVERS, question_end: Some(question_end), edns });
    }
    Ok(edns)
}

/// Whether options follow each other without a gap (RFC 6891 section 6.1.2).
fn options_are_whole(mut options: &[u8]) -> bool {
    while let [_, _, l1, l0, rest @ ..] = options {
        match rest.get(usize::from(u16::from_be_bytes([*l1, *l0]))..) {
            Some(rest) => options = rest,
            None => return false,
        }
    }
    options.is_empty()
}

/// Numbers of records in the three sections behind the question.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Answer section.
    pub answer: u16,
    /// Authority section.
    pub authority: u16,
    /// Additional section, OPT not counted.
    pub additional: u16,
}

/// Turns the query's header into that of its reply: ID, opcode, RD and CD stay (RFC 4035 section 3.1.6), the rest is set or cleared. RA, Z and
/// AD are 0: we do not recurse, and an authority does not claim to have verified. `flags` are [`AA`] and [`TC`].
#[inline(always)]
pub fn write_header(message: &mut [u8], rcode: Rcode, flags: u8, question: bool, counts: Counts) {
    let Some(header) = message.first_chunk_mut::<HEADER_LEN>() else { return };
    let [id1, id0, asked, more, ..] = *header;
    let [an1, an0] = counts.answer.to_be_bytes();
    let [ns1, ns0] = counts.authority.to_be_bytes();
    let [ar1, ar0] = counts.additional.to_be_bytes();
    let flags = asked & (OPCODE | RD) | QR | flags;
    let more = more & CD | rcode.0 & 0x0f;
    *header = [id1, id0, flags, more, 0, u8::from(question), an1, an0, ns1, ns0, ar1, ar0];
}

/// Our OPT record: the payload we take, the RCODE's upper bits, and DO as the client set it (RFC 6891 section 6.1.3, RFC 3225 section 3).
#[inline]
#[must_use]
pub fn opt(payload_max: u16, rcode: Rcode, client: Edns) -> [u8; OPT_LEN] {
    let [s1, s0] = payload_max.to_be_bytes();
    [0, 0, 41, s1, s0, rcode.0 >> 4, 0, if client.dnssec_ok { DO } else { 0 }, 0, 0, 0]
}

#[cfg(test)]
mod tests {
    use super::{super::name::AnyRoom, *};

    /// A query for `www.` A with these counts and these bytes behind the question.
    fn query(counts: [u8; 4], rest: &[u8]) -> Vec<u8> {
        let [qd, an, ns, ar] = counts;
        let header = [0xab, 0xcd, 0x01, 0x00, 0, qd, 0, an, 0, ns, 0, ar];
        [&header, &b"\x03www\0\0\x01\0\x01"[..], rest].concat()
    }

    const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\x80\0\0\0";
    const ERROR_END: usize = 12 + 5 + 4;

    fn error(rcode: Rcode, with_question: bool, edns: Option<Edns>) -> Reject {
        Reject::Error { rcode, question_end: with_question.then_some(ERROR_END), edns }
    }

    #[test]
    fn what_can_be_answered() {
        let edns = Edns { payload_max: 1232, dnssec_ok: true, options: OptionsAt::NONE };
        let option_at = ERROR_END + 11;
        let with_option = Edns { options: OptionsAt { start: option_at, end: option_at + 12 }, ..edns };
        let cookie = b"\0\0\x29\x04\xd0\0\0\x80\0\0\x0c\0\x0a\0\x0812345678";
        let cases: [(&str, Vec<u8>, Option<Edns>); 5] = [
            ("plain", query([1, 0, 0, 0], b""), None),
            ("EDNS", query([1, 0, 0, 1], OPT), Some(edns)),
            ("EDNS with an option", query([1, 0, 0, 1], cookie), Some(with_option)),
            (
                "another additional record",
                query([1, 0, 0, 1], b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04\x01\x02\x03\x04"),
                None,
            ),
            (
                "an authority record, then OPT",
                query([1, 0, 1, 1], &[b"\0\0\x02\0\x01\0\0\0\0\0\x01\0", OPT].concat()),
                Some(edns),
            ),
        ];
        for (what, message, edns) in cases {
            let mut room = AnyRoom::empty();
            let parsed = Query::parse(&message, &mut room);
            let (query, name) = parsed.unwrap_or_else(|reject| panic!("{what}: {reject:?}"));
            assert_eq!((name.bytes(), query.qtype, query.qclass), (&b"\x03www\0"[..], 1, 1), "{what}");
            assert_eq!((query.question_end, query.edns), (ERROR_END, edns), "{what}");
        }
    }

    #[test]
    fn what_cannot() {
        let mut response = query([1, 0, 0, 0], b"");
        response[2] |= 0x80;
        let mut notify = query([1, 0, 0, 0], b"");
        notify[2] = 4 << 3;
        let version_1 = b"\0\0\x29\x04\xd0\0\x01\0\0\0\0";
        let cases: [(&str, Vec<u8>, Reject); 14] = [
            ("nothing", vec![], Reject::Short),
            ("11 bytes", vec![0; 11], Reject::Short),
            ("a response", response, Reject::Response),
            ("NOTIFY", notify, error(Rcode::NOTIMP, false, None)),
            ("no question", query([0, 0, 0, 0], b""), Reject::FORMERR),
            ("two questions", query([2, 0, 0, 0], b"\x03www\0\0\x01\0\x01"), Reject::FORMERR),
            ("a question cut short", query([1, 0, 0, 0], b"")[..20].to_vec(), Reject::FORMERR),
            ("bytes behind the end", query([1, 0, 0, 0], b"\0"), Reject::FORMERR),
            ("a record too few", query([1, 0, 0, 1], b""), Reject::FORMERR),
            ("two OPT", query([1, 0, 0, 2], &[OPT, OPT].concat()), Reject::FORMERR),
            ("OPT in the answer section", query([1, 1, 0, 0], OPT), Reject::FORMERR),
            ("OPT with an owner", query([1, 0, 0, 1], b"\xc0\x0c\0\x29\x04\xd0\0\0\0\0\0\0"), Reject::FORMERR),
            (
                "an option cut short",
                query([1, 0, 0, 1], b"\0\0\x29\x04\xd0\0\0\0\0\0\x05\0\x0a\0\x02x"),
                Reject::FORMERR,
            ),
            (
                "EDNS version 1",
                query([1, 0, 0, 1], version_1),
                error(
                    Rcode::BADVERS,
                    true,
                    Some(Edns { payload_max: 1232, dnssec_ok: false, options: OptionsAt::NONE }),
                ),
            ),
        ];
        for (what, message, expected) in cases {
            assert_eq!(Query::parse(&message, &mut AnyRoom::empty()).unwrap_err(), expected, "{what}");
        }
        let signed = query([1, 0, 0, 1], b"\0\0\xfa\0\xff\0\0\0\0\0\0");
        assert_eq!(Query::parse(&signed, &mut AnyRoom::empty()).unwrap_err(), error(Rcode::NOTAUTH, true, None));
    }

    /// RFC 1035 section 4.1.1 and RFC 4035 section 3.1.6, with every bit of the query set.
    #[test]
    fn the_replys_header() {
        let mut message = [0xff; HEADER_LEN];
        let counts = Counts { answer: 0x102, authority: 0x304, additional: 0x506 };
        write_header(&mut message, Rcode::NXDOMAIN, AA, true, counts);
        assert_eq!(message, [0xff, 0xff, 0xfd, 0x13, 0, 1, 1, 2, 3, 4, 5, 6]);
        let mut message = [0; HEADER_LEN];
        write_header(&mut message, Rcode::REFUSED, TC, false, Counts::default());
        assert_eq!(message, [0, 0, 0x82, 0x05, 0, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn options_one_by_one() {
        let message = query([1, 0, 0, 1], b"\0\0\x29\x04\xd0\0\0\0\0\0\x0b\0\x03\0\0\xff\xff\0\x03abc");
        let edns = Query::parse(&message, &mut AnyRoom::empty()).unwrap().0.edns.unwrap();
        assert_eq!(edns.options.read(&message).collect::<Vec<_>>(), [(3, &b""[..]), (0xffff, b"abc")]);
        assert!(OptionsAt::NONE.read(&message).next().is_none());
    }

    #[test]
    fn our_opt_record() {
        let client = Edns { payload_max: 512, dnssec_ok: true, options: OptionsAt::NONE };
        assert_eq!(opt(1232, Rcode::NOERROR, client), *OPT);
        assert_eq!(opt(1232, Rcode::BADVERS, client)[5], 1);
    }
}
