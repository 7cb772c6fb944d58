//! Queries: every name of the zones with every type, their neighbours, EDNS in all variants, and packets that no client should send.

mod mutation;

use std::{collections::BTreeSet, fmt};

pub use mutation::{MUTATIONS, Mutation};

use super::{
    data::Data,
    message::{self, ANY, AXFR, IXFR, Message, NAME_MAX, OPCODE, QR, labels, u16_at},
    random::Random,
};

/// Types that the zones need not have: DS and the rest of DNSSEC, ANY, those without data, and some that nobody uses.
const MORE_TYPES: [u16; 24] = [
    message::DS,
    ANY,
    message::A,
    message::CNAME,
    message::NS,
    message::SOA,
    message::DNAME,
    0,
    13,
    41,
    46,
    47,
    48,
    50,
    51,
    99,
    128,
    249,
    250,
    IXFR,
    AXFR,
    253,
    254,
    65_280,
];
/// Transfers of zones, which are not compared.
pub const TRANSFERS: [u16; 2] = [AXFR, IXFR];
/// One query of so many is mutated.
const MUTATED_ONE_IN: usize = 10;
/// One of so many goes over TCP.
const TCP_ONE_IN: usize = 16;

/// A query, and what it asks if it is a good one.
#[derive(Clone, Debug)]
pub struct Query {
    /// The packet.
    pub bytes: Vec<u8>,
    /// Over TCP from the start.
    pub tcp: bool,
    /// How it was made.
    pub made: Made,
    /// What it asks, if it can be read as a query with one question.
    pub asked: Option<Asked>,
}

/// What a query asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The name in lower case, on the wire.
    pub name: Vec<u8>,
    /// The type.
    pub qtype: u16,
    /// The class.
    pub qclass: u16,
    /// What OPT says.
    pub edns: Option<message::Opt>,
    /// There is more in it than a query needs: records beside OPT, flags that only replies have.
    pub odd: bool,
}

/// How a query was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Made {
    /// As a client would.
    Good(Edns),
    /// And then changed.
    Mutated(Mutation),
}

/// EDNS in a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Edns {
    /// None.
    None,
    /// This payload size.
    Size(u16),
    /// DO set.
    Dnssec,
    /// An option that nobody knows.
    UnknownOption,
    /// Client subnet, NSID and padding, which may be ignored.
    Options,
    /// Version 1.
    Version1,
    /// Two OPT records.
    Two,
}

const EDNS: [Edns; 10] = [
    Edns::None,
    Edns::Size(1232),
    Edns::Size(512),
    Edns::Size(4096),
    Edns::Size(0),
    Edns::Dnssec,
    Edns::UnknownOption,
    Edns::Options,
    Edns::Version1,
    Edns::Two,
];

/// Makes queries, as many as asked for.
#[derive(Debug)]
pub struct Queries {
    random: Random,
    names: Vec<(Vec<u8>, Vec<u16>)>,
    types: Vec<u16>,
    /// Names times types still to be asked one by one, last first; the rest is chance.
    pairs: Vec<(usize, usize)>,
    left: usize,
    made: usize,
}

impl Queries {
    /// Plans `count` queries on these zones. At most half of them go to every name with every type in turn.
    #[must_use]
    pub fn new(data: &Data, seed: u64, count: usize) -> Self {
        let mut random = Random::new(seed);
        let names: Vec<_> =
            data.names.iter().map(|(name, types)| (name.clone(), types.iter().copied().collect::<Vec<_>>())).collect();
        let mut types: BTreeSet<u16> = data.all_types();
        types.extend(MORE_TYPES);
        let types: Vec<u16> = types.into_iter().collect();
        let all = names.len() * types.len();
        let pairs = (0..all)
            .filter(|_| random.below(all) < count / 2)
            .map(|pair| (pair / types.len(), pair % types.len()))
            .collect();
        Self { random, names, types, pairs, left: count, made: 0 }
    }

    fn good(&mut self) -> Query {
        self.made += 1;
        let (name, qtype, edns) = match self.pairs.pop() {
            Some((name, qtype)) => (self.names[name].0.clone(), self.types[qtype], EDNS[self.made % EDNS.len()]),
            None => {
                let (name, present) = self.random.pick(&self.names).clone();
                let qtype = match self.random.below(4) {
                    0 | 1 if !present.is_empty() => *self.random.pick(&present),
                    2 => *self.random.pick(&[message::A, message::AAAA, message::TXT, message::DS, ANY]),
                    _ => *self.random.pick(&self.types),
                };
                let name = neighbour(&mut self.random, &name, &self.names);
                (name, qtype, *self.random.pick(&EDNS))
            }
        };
        let mut bits = if self.random.one_in(2) { message::RD } else { 0 };
        for bit in [message::AD, message::CD] {
            bits |= if self.random.one_in(8) { bit } else { 0 };
        }
        let bytes = packet(bits, &name, qtype, edns);
        // A transfer is many messages.
        let tcp = self.random.one_in(TCP_ONE_IN) && !TRANSFERS.contains(&qtype);
        Query { asked: asked(&bytes), bytes, tcp, made: Made::Good(edns) }
    }
}

impl Iterator for Queries {
    type Item = Query;

    fn next(&mut self) -> Option<Query> {
        self.left = self.left.checked_sub(1)?;
        let mut query = self.good();
        if self.random.one_in(MUTATED_ONE_IN) {
            let mutation = *self.random.pick(&MUTATIONS);
            mutation.apply(&mut self.random, &mut query.bytes);
            query.made = Made::Mutated(mutation);
            query.tcp = false;
            query.asked = asked(&query.bytes);
        }
        Some(query)
    }
}

impl Query {
    /// The largest reply over UDP that the client takes (RFC 1035 section 4.2.1, RFC 6891 section 6.2.3).
    #[must_use]
    pub fn udp_limit(&self) -> usize {
        let edns = Message::read(&self.bytes).ok().and_then(|query| query.opt);
        edns.map_or(512, |edns| usize::from(edns.payload).max(512))
    }
}

impl fmt::Display for Query {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let transport = if self.tcp { "TCP" } else { "UDP" };
        match Message::read(&self.bytes) {
            Ok(message) => {
                let text = message.text();
                let question = text.lines().find_map(|line| line.strip_prefix(";; QUESTION ")).unwrap_or("none");
                write!(out, "{question} ({:?}, {transport})", self.made)?;
                if let Made::Mutated(_) = self.made { write!(out, " {}", hex(&self.bytes)) } else { Ok(()) }
            }
            Err(error) => {
                write!(out, "{} ({:?}, {transport}; {error})", hex(&self.bytes), self.made)
            }
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What a packet asks, if it is a query (RFC 1035 section 4.1, RFC 6891 section 6.1.1, RFC 9619).
#[must_use]
pub fn asked(bytes: &[u8]) -> Option<Asked> {
    let message = Message::read(bytes).ok()?;
    let name_len = message.question.len().checked_sub(4)?;
    let mut name = message.question.get(..name_len)?.to_vec();
    let is_whole = labels(&name).map(|label| label.len() + 1).sum::<usize>() + 1 == name.len();
    if message.bits & (QR | OPCODE) != 0 || u16_at(bytes, 4) != Some(1) || !is_whole {
        return None;
    }
    name.make_ascii_lowercase();
    let (qtype, qclass) = (u16_at(&message.question, name_len)?, u16_at(&message.question, name_len + 2)?);
    let records = [&message.answer, &message.authority, &message.additional];
    let odd = message.bits & !(message::RD | message::AD | message::CD) != 0
        || records.iter().any(|section| !section.is_empty());
    Some(Asked { name, qtype, qclass, edns: message.opt, odd })
}

/// A query's packet.
fn packet(bits: u16, name: &[u8], qtype: u16, edns: Edns) -> Vec<u8> {
    let opt = |size: u16, version: u8, flags: u16, options: &[u8]| {
        let [f1, f0] = flags.to_be_bytes();
        let length = u16::try_from(options.len()).unwrap_or(0).to_be_bytes();
        [&b"\0\0\x29"[..], &size.to_be_bytes(), &[0, version, f1, f0], &length, options].concat()
    };
    let (count, records) = match edns {
        Edns::None => (0, vec![]),
        Edns::Size(size) => (1, opt(size, 0, 0, b"")),
        Edns::Dnssec => (1, opt(1232, 0, message::DO, b"")),
        Edns::UnknownOption => (1, opt(1232, 0, 0, b"\xfd\xe9\0\x04abcd")),
        // Client subnet 192.0.2.0/24, NSID, padding.
        Edns::Options => (1, opt(1232, 0, 0, b"\0\x08\0\x07\0\x01\x18\0\xc0\0\x02\0\x03\0\0\0\x0c\0\x03\0\0\0")),
        Edns::Version1 => (1, opt(1232, 1, 0, b"")),
        Edns::Two => (2, [opt(1232, 0, 0, b""), opt(1232, 0, 0, b"")].concat()),
    };
    let header = [[0, 0], bits.to_be_bytes(), [0, 1], [0, 0], [0, 0], [0, count]].concat();
    [&header, name, &qtype.to_be_bytes(), &[0, 1], &records].concat()
}

/// The name itself, or one near it.
fn neighbour(random: &mut Random, name: &[u8], all: &[(Vec<u8>, Vec<u16>)]) -> Vec<u8> {
    let mut result = match random.below(16) {
        0..=4 => name.to_vec(),
        5 | 6 => child(name, &label(random)),
        7 => child(name, b"*"),
        8 => child(&child(name, &label(random)), &label(random)),
        9 => parent(name).to_vec(),
        10 => child(parent(name), &label(random)),
        11 => {
            let mut changed = name.to_vec();
            let at = random.below(changed.len());
            // Only letters and digits, so that the name stays one.
            if changed[at].is_ascii_alphanumeric() {
                changed[at] = b'a' + random.byte() % 26;
            }
            changed
        }
        // A name below a name below another zone's.
        12 => {
            let first: Vec<u8> = labels(&random.pick(all).0).next().unwrap_or(b"x").to_vec();
            child(name, &first)
        }
        13 => long(random, name),
        14 => child(name, &[random.byte(), random.byte()]),
        _ => message::name_from(random.pick::<&str>(&["outside.test", "test", "com", "", "invalid", "in-addr.arpa"])),
    };
    if random.one_in(3) {
        // Length bytes are no letters: 63 at most.
        for byte in result.iter_mut().filter(|byte| byte.is_ascii_alphabetic()) {
            *byte ^= if random.one_in(2) { 0x20 } else { 0 };
        }
    }
    result
}

/// As long as a name can be, with long labels or with many.
fn long(random: &mut Random, name: &[u8]) -> Vec<u8> {
    let size = *random.pick(&[1, 7, 63]);
    let mut name = name.to_vec();
    while name.len() + 2 <= NAME_MAX {
        let room = NAME_MAX - name.len() - 1;
        name = child(&name, &vec![b'l'; size.min(room)]);
    }
    name
}

fn child(name: &[u8], label: &[u8]) -> Vec<u8> {
    let length = u8::try_from(label.len()).unwrap_or(63);
    let child = [&[length], label, name].concat();
    if child.len() <= NAME_MAX { child } else { name.to_vec() }
}

fn parent(name: &[u8]) -> &[u8] {
    message::suffixes(name).nth(1).unwrap_or(name)
}

fn label(random: &mut Random) -> Vec<u8> {
    random.pick(&[&b"a"[..], b"b", b"www", b"x1", b"_tcp", b"ns1", b"zz", b"nosuch", b"*"]).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data() -> Data {
        let mut data = Data::default();
        let apex = message::name_from("example");
        let record = |owner: &str| message::Record {
            owner: message::name_from(owner),
            rtype: message::A,
            class: 1,
            ttl: 1,
            data: vec![1, 2, 3, 4],
        };
        data.add(&apex, vec![record("example"), record("a.b.example")]);
        data
    }

    #[test]
    fn a_seed_makes_the_same_queries_again() {
        let bytes = |seed| Queries::new(&data(), seed, 500).map(|query| query.bytes).collect::<Vec<_>>();
        assert_eq!(bytes(1), bytes(1));
        assert_ne!(bytes(1), bytes(2));
        assert_eq!(bytes(1).len(), 500);
    }

    #[test]
    fn every_name_is_asked_with_every_type() {
        let data = data();
        let mut left: BTreeSet<(Vec<u8>, u16)> =
            data.names.keys().flat_map(|name| MORE_TYPES.map(|qtype| (name.clone(), qtype))).collect();
        for asked in Queries::new(&data, 3, 5000).filter_map(|query| query.asked) {
            left.remove(&(asked.name, asked.qtype));
        }
        assert_eq!(left, BTreeSet::new());
    }

    /// RFC 1035 section 4.1.2, RFC 6891 section 6.1.1, RFC 9619 section 3.
    #[test]
    fn what_is_a_good_query() {
        let name = message::name_from("Example");
        for edns in EDNS {
            let bytes = packet(message::RD, &name, ANY, edns);
            let asked = asked(&bytes);
            assert_eq!(asked.is_some(), edns != Edns::Two, "{edns:?}");
            if let Some(asked) = asked {
                assert_eq!((asked.name.as_slice(), asked.qtype), (&b"\x07example\0"[..], ANY), "{edns:?}");
            }
        }
        let mut random = Random::new(1);
        for mutation in MUTATIONS.into_iter().filter(|mutation| ![Mutation::Class, Mutation::Bits].contains(mutation)) {
            let mut bytes = packet(0, &name, ANY, Edns::None);
            let good = bytes.clone();
            mutation.apply(&mut random, &mut bytes);
            assert!(bytes == good || asked(&bytes).is_none_or(|asked| asked.odd), "{mutation:?}");
        }
    }

    #[test]
    fn neighbours_are_names() {
        let data = data();
        let names: Vec<_> = data.names.keys().map(|name| (name.clone(), vec![])).collect();
        let mut random = Random::new(5);
        for _ in 0..2000 {
            let near = neighbour(&mut random, &names[1].0, &names);
            assert!(asked(&packet(0, &near, 1, Edns::None)).is_some(), "{near:?}");
        }
    }
}
