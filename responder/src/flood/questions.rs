//! What is asked: the queries of a file, or made for a zone, mixed with other kinds in the shares that were asked for.
//!
//! A query file is that of dnsperf and kxdpgun: a name and a type on each line, `;` or `#` before a comment. Kinds take turns as evenly as their shares allow,
//! so that each has its rate at every moment. No two runs differ: what is random comes from a fixed seed.

use std::{net::IpAddr, ops::Range, path::Path, str::FromStr};

use anyhow::{Context, Result, anyhow, ensure};
use domain::base::{Name, ToName, iana::Rtype};
use serde::Serialize;

use crate::{
    guard::prefix::Prefix,
    wire::message::{HEADER_LEN, OPT_LEN},
};

/// Different queries at most: so many numbers has the table of those that are on their way.
pub const QUESTIONS_MAX: usize = 1 << 20;
/// Queries made where a share of them is of a kind that is made up.
const MADE: usize = 1 << 15;
/// The fourth byte of an OPT record's TTL field, from the record's begin: the DO bit is its highest (RFC 3225).
const DO_AT: usize = 7;
const DO: u8 = 0x80;
const CLASS_IN: u16 = 1;
const OPT: u8 = 41;

/// Why a query is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// From the file, or of the zone's own names.
    Plain,
    /// A name that does not exist, below one that is asked for: each another one.
    Random,
    /// No query by RFC 1035. A server may answer FORMERR or nothing.
    Malformed,
    /// As plain ones, from a source within a prefix that is not ours.
    Spoofed,
}

impl Kind {
    /// All, in the order of their index.
    pub const ALL: [Self; 4] = [Self::Plain, Self::Random, Self::Malformed, Self::Spoofed];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Random => "random subdomain",
            Self::Malformed => "malformed",
            Self::Spoofed => "spoofed source",
        }
    }
}

/// One query, with ID 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Why it is asked.
    pub kind: Kind,
    /// The message.
    pub message: Vec<u8>,
    /// What of it must come back at the same place: the question section, or behind the ID everything.
    pub echoed: Range<usize>,
    /// Where the source is another than the interface's own address.
    pub source: Option<IpAddr>,
}

/// What share of all queries is of a kind, from 0 to 1. The rest is plain.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    /// See [`Kind::Random`].
    pub random: f64,
    /// See [`Kind::Malformed`].
    pub malformed: f64,
    /// See [`Kind::Spoofed`].
    pub spoofed: f64,
    /// Of those with EDNS, how many have the DO bit set.
    pub dnssec_ok: f64,
}

/// A name and a type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    qname: Vec<u8>,
    qtype: u16,
}

impl Asked {
    fn new(name: &str, qtype: &str) -> Result<Self> {
        let name: Name<Vec<u8>> =
            Name::from_str(name).map_err(|error| anyhow!("`{name}` is no domain name: {error}"))?;
        let qtype = Rtype::from_str(qtype)
            .map_err(|_| anyhow!("`{qtype}` is no type: expected one like A, MX or TYPE65534"))?;
        Ok(Self { qname: name.to_vec().into_octets(), qtype: qtype.to_int() })
    }
}

/// Reads a query file.
pub fn read(path: &Path) -> Result<Vec<Asked>> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read the queries of {}", path.display()))?;
    parse(&text).with_context(|| path.display().to_string())
}

fn parse(text: &str) -> Result<Vec<Asked>> {
    let mut all = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let line = line.split([';', '#']).next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(name) = words.next() else { continue };
        let asked = match (words.next(), words.next()) {
            (Some(qtype), None) => Asked::new(name, qtype),
            (None, _) => Err(anyhow!("`{name}` without a type: expected `NAME TYPE`")),
            (_, Some(more)) => Err(anyhow!("`{more}` behind the type: expected `NAME TYPE`")),
        };
        all.push(asked.with_context(|| format!("line {number}"))?);
    }
    ensure!(!all.is_empty(), "there is no query in it: expected lines of `NAME TYPE`");
    ensure!(all.len() <= QUESTIONS_MAX, "it has {} queries: at most {QUESTIONS_MAX} can be asked", all.len());
    Ok(all)
}

/// What a zone is likely to have.
pub fn of_zone(zone: &str) -> Result<Vec<Asked>> {
    let www = if zone == "." { "www.".to_owned() } else { format!("www.{zone}") };
    [(zone, "SOA"), (zone, "NS"), (zone, "A"), (zone, "AAAA"), (&www, "A"), (&www, "AAAA")]
        .into_iter()
        .map(|(name, qtype)| Asked::new(name, qtype))
        .collect()
}

/// One payload of `length` bytes that is no DNS, for an echo: counted up, so that a byte in the wrong place is seen.
#[must_use]
pub fn payload(length: usize) -> Vec<Question> {
    let message = (0..length).map(|index| if index < 2 { 0 } else { index.to_le_bytes()[0] }).collect();
    vec![Question { kind: Kind::Plain, message, echoed: length.min(2)..length, source: None }]
}

/// The same queries, of which an echo is expected.
#[must_use]
pub fn to_echo(mut questions: Vec<Question>) -> Vec<Question> {
    for question in &mut questions {
        question.echoed = question.message.len().min(2)..question.message.len();
    }
    questions
}

/// Makes the queries, in the order in which they are asked. `edns` is the UDP payload size that is told, `prefix` where spoofed sources are.
pub fn mix(asked: &[Asked], shares: Shares, edns: Option<u16>, prefix: Option<Prefix>) -> Result<Vec<Question>> {
    let made = [shares.random, shares.malformed, shares.spoofed];
    let plain = 1.0 - made.iter().sum::<f64>();
    ensure!(plain >= -1e-9, "the shares of random, malformed and spoofed queries are more than 1 together");
    let is_made_up = made.iter().any(|share| *share > 0.0) || (shares.dnssec_ok > 0.0 && shares.dnssec_ok < 1.0);
    let length = if is_made_up { MADE.max(asked.len()).min(QUESTIONS_MAX) } else { asked.len() };
    let (mut random, mut dnssec) = (Random(0x2545_f491_4f6c_dd1d), Turn::default());
    let mut turns = [plain, shares.random, shares.malformed, shares.spoofed].map(Turn::of);
    let mut next = [0; 4];
    let mut questions = Vec::with_capacity(length);
    for _ in 0..length {
        turns.iter_mut().for_each(Turn::grow);
        // The one that is the farthest behind.
        let index =
            (1..turns.len()).fold(0, |most, at| if turns[at].debt > turns[most].debt + 1e-9 { at } else { most });
        turns[index].debt -= 1.0;
        let Asked { qname, qtype } = &asked[next[index] % asked.len()];
        next[index] += 1;
        let dnssec_ok = dnssec.take(shares.dnssec_ok);
        let kind = Kind::ALL[index];
        let message = match kind {
            Kind::Plain | Kind::Spoofed => message(qname, *qtype, edns, dnssec_ok),
            Kind::Random => message(&below(qname, &mut random), *qtype, edns, dnssec_ok),
            Kind::Malformed => malformed(&message(qname, *qtype, edns, dnssec_ok), next[index], &mut random),
        };
        let source = match kind {
            Kind::Spoofed => Some(prefix.context("spoofed sources need a prefix: --spoof-prefix")?.nth(random.next())),
            _ => None,
        };
        // A FORMERR need not have a question.
        let echoed = match kind {
            Kind::Malformed => 0..0,
            _ => HEADER_LEN..message.len() - edns.map_or(0, |_| OPT_LEN),
        };
        questions.push(Question { kind, message, echoed, source });
    }
    Ok(questions)
}

/// A share's turn among others.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    share: f64,
    debt: f64,
}

impl Turn {
    fn of(share: f64) -> Self {
        Self { share, debt: 0.0 }
    }

    fn grow(&mut self) {
        self.debt += self.share;
    }

    /// Whether it is its turn, if it has this share of all turns.
    fn take(&mut self, share: f64) -> bool {
        self.debt += share;
        let is = self.debt >= 1.0 - 1e-9;
        if is {
            self.debt -= 1.0;
        }
        is
    }
}

/// A query by RFC 1035 section 4.1 and RFC 6891 section 6.1.2.
fn message(qname: &[u8], qtype: u16, edns: Option<u16>, dnssec_ok: bool) -> Vec<u8> {
    let mut message = vec![0; HEADER_LEN];
    message[5] = 1;
    message.extend(qname);
    message.extend(qtype.to_be_bytes());
    message.extend(CLASS_IN.to_be_bytes());
    if let Some(payload_max) = edns {
        message[11] = 1;
        let [high, low] = payload_max.to_be_bytes();
        let mut opt: [u8; OPT_LEN] = [0, 0, OPT, high, low, 0, 0, 0, 0, 0, 0];
        opt[DO_AT] = if dnssec_ok { DO } else { 0 };
        message.extend(opt);
    }
    message
}

/// The name with one more label in front, which nobody has, in the place of as many of its first ones as must go for it to stay a name.
fn below(qname: &[u8], random: &mut Random) -> Vec<u8> {
    const LEN: u8 = 12;
    let mut name = vec![LEN];
    let mut bits = random.next();
    for _ in 0..LEN {
        name.push(b'a' + (bits % 26) as u8);
        bits /= 26;
    }
    let mut rest = qname;
    while name.len() + rest.len() > crate::wire::name::NAME_MAX {
        rest = &rest[usize::from(rest[0]) + 1..];
    }
    name.extend(rest);
    name
}

/// One of the ways in which a query can be wrong. The ID stays, so that an answer is known.
fn malformed(query: &[u8], turn: usize, random: &mut Random) -> Vec<u8> {
    let mut message = query.to_vec();
    match turn % 6 {
        // Cut short in the header, and in the question.
        0 => message.truncate(2 + turn / 6 % (HEADER_LEN - 2)),
        1 => message.truncate(HEADER_LEN + 2),
        // A label that is longer than what is left, and one of a kind that there is not (RFC 6891 section 5).
        2 => message[HEADER_LEN] = 63,
        3 => message[HEADER_LEN] = 0x80,
        // A question that points to itself.
        4 => message.splice(HEADER_LEN.., [0xc0, 12, 0, 1, 0, 1]).for_each(drop),
        // Noise, that is not a reply.
        _ => {
            message[2..].fill_with(|| random.next().to_le_bytes()[0]);
            message[2] &= 0x7f;
        }
    }
    message
}

/// Xorshift: the same numbers in each run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_file_is_read_or_its_line_named() {
        let read = parse("; a comment\nwww.example.com A\n\n  example.com.\tMX # the mail\n. TYPE257\n").unwrap();
        let plain = |qname: &[u8], qtype| Asked { qname: qname.to_vec(), qtype };
        assert_eq!(
            read,
            [plain(b"\x03www\x07example\x03com\0", 1), plain(b"\x07example\x03com\0", 15), plain(b"\0", 257)]
        );
        for (text, wanted) in [
            ("", "no query in it"),
            ("# nothing\n", "no query in it"),
            ("a.example A\nb.example\n", "line 2: `b.example` without a type"),
            ("a.example NOSUCHTYPE\n", "line 1: `NOSUCHTYPE` is no type"),
            ("a..example A\n", "line 1: `a..example` is no domain name"),
            ("a.example A IN\n", "line 1: `IN` behind the type"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(wanted), "{text:?}: {error}");
        }
    }

    #[test]
    fn shares_are_kept_at_every_moment() {
        let asked = of_zone("example.com").unwrap();
        let shares = Shares { random: 0.5, malformed: 0.25, spoofed: 0.125, dnssec_ok: 0.5 };
        let prefix = "198.51.100.0/24".parse().unwrap();
        let questions = mix(&asked, shares, Some(1232), Some(prefix)).unwrap();
        assert_eq!(questions.len(), MADE);
        for part in questions.chunks(64) {
            let of = |kind| part.iter().filter(|question| question.kind == kind).count();
            assert_eq!(Kind::ALL.map(of), [8, 32, 16, 8]);
        }
        for question in &questions {
            assert_eq!(question.source.is_some(), question.kind == Kind::Spoofed);
            if let Some(source) = question.source {
                let within = crate::guard::prefix::PrefixMap::new([(prefix, ())]).get(source);
                assert!(within.is_some(), "{source}");
            }
        }
        let more = Shares { random: 0.9, malformed: 0.2, ..Shares::default() };
        assert!(mix(&asked, more, None, None).unwrap_err().to_string().contains("more than 1"));
        let nowhere = Shares { spoofed: 0.1, ..Shares::default() };
        assert!(mix(&asked, nowhere, None, None).unwrap_err().to_string().contains("--spoof-prefix"));
    }

    #[test]
    fn a_random_name_is_a_name_however_long_the_one_above_is() {
        let label = |length: u8| [&[length][..], &vec![b'x'; length.into()]].concat();
        // 255 bytes, the most there are, that begin with labels of one byte.
        let long = [vec![[1, b'a'].to_vec(); 7].concat(), vec![label(59); 4].concat(), vec![0]].concat();
        assert_eq!(long.len(), crate::wire::name::NAME_MAX);
        for qname in [&long[..], b"\x07example\0", b"\0"] {
            let name = below(qname, &mut Random(1));
            let (mut at, mut labels) = (0, 0);
            while name[at] != 0 {
                at += usize::from(name[at]) + 1;
                labels += 1;
            }
            assert_eq!(name.len(), at + 1);
            assert!(
                labels > 0
                    && name.len() <= crate::wire::name::NAME_MAX
                    && name.ends_with(&qname[qname.len().saturating_sub(200)..])
            );
        }
    }

    /// What is called well-formed is so for the parser of the server, and what is called malformed is not.
    #[test]
    fn only_malformed_queries_are_malformed() {
        use crate::wire::{message::Query, name::AnyRoom};
        let asked = parse("www.example.com A\nexample.com MX\n").unwrap();
        let shares = Shares { random: 0.3, malformed: 0.4, dnssec_ok: 1.0, ..Shares::default() };
        for question in mix(&asked, shares, Some(1232), None).unwrap() {
            let mut room = AnyRoom::empty();
            let query = Query::parse(&question.message, &mut room);
            if question.kind == Kind::Malformed {
                assert!(question.echoed.is_empty());
                continue;
            }
            assert_eq!(query.map(|(query, _)| query.question_end).ok(), Some(question.echoed.end), "{question:?}");
        }
    }

    #[test]
    fn a_name_that_is_full_changes_its_first_label() {
        let mut long = Vec::new();
        for _ in 0..3 {
            long.push(63);
            long.extend([b'x'; 63]);
        }
        long.push(61);
        long.extend([b'y'; 61]);
        long.push(0);
        assert_eq!(long.len(), 255);
        let name = below(&long, &mut Random(1));
        assert_eq!((name[0], &name[13..]), (12, &long[64..]));
    }

    #[test]
    fn a_payload_is_counted_up_behind_its_id() {
        assert_eq!(payload(1)[0].message, [0]);
        assert_eq!(payload(5)[0].message, [0, 0, 2, 3, 4]);
    }
}
