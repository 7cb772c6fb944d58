//! The judge of answers: what an authoritative server has to say to a question, by the zone files alone.
//!
//! It shares no code with the server: another parser reads the files, another one the replies, and the lookup here is written for
//! being plainly right, not for speed (RFC 1034 section 4.3.2, RFC 2308, RFC 4592, RFC 6604). Sections are compared as sets.
//!
//! What is left to the server, it does not judge: data of the zone in the authority section of a positive answer, and more data of
//! the zone than the needed glue in the additional section. DNSSEC, ANY, DNAME and transfers it does not know, nor does it ask for.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::PathBuf,
};

use anyhow::{Context as _, ensure};
use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query, ResponseCode},
    rr::{Name, RData, Record, RecordType},
    serialize::txt::Parser,
};

use crate::dig::code;

/// The reply of at most so many bytes that goes to a client that says nothing of EDNS (RFC 1035 section 4.2.1).
const PLAIN_PAYLOAD: usize = 512;
/// The size that our queries with EDNS announce.
pub const EDNS_PAYLOAD: u16 = 1232;
/// Stands between us and a loop of aliases that would leave a name more at each step; real chains are short.
const CHAIN_MAX: usize = 16;

/// What sort of answer a question has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Records of the name asked for.
    Answer,
    /// By way of at least one CNAME.
    Alias,
    /// Made from a wildcard.
    Wildcard,
    /// The name is in a zone that was delegated.
    Referral,
    /// No such name.
    NxDomain,
    /// The name has no such records.
    NoData,
    /// Not in our zones.
    Refused,
}

/// What the reply to a question has to hold.
#[derive(Clone, Debug)]
pub struct Expected {
    /// The sort of answer.
    pub kind: Kind,
    /// The response code.
    pub rcode: ResponseCode,
    /// The flag AA.
    pub authoritative: bool,
    /// All of the answer section.
    pub answers: Vec<Record>,
    /// All of the authority section; `None` where any data of the zone may stand there.
    pub authorities: Option<Vec<Record>>,
    /// What must be in the additional section: addresses without which a referral leads nowhere.
    pub glue: Vec<Record>,
}

/// The zones that a server was given.
#[derive(Debug)]
pub struct Oracle {
    zones: Vec<Zone>,
}

#[derive(Debug)]
struct Zone {
    origin: Name,
    /// Owner -> type -> records. An empty non-terminal has an entry without records (RFC 4592 section 2.2.2).
    names: BTreeMap<Name, BTreeMap<RecordType, Vec<Record>>>,
}

impl Oracle {
    /// Reads zone files, each given with the zone's name.
    pub fn load(zones: &[(String, PathBuf)]) -> anyhow::Result<Self> {
        let read = |(name, file): &(String, PathBuf)| {
            let text = fs::read_to_string(file)?;
            Zone::parse(name, &text, Some(file.clone()))
        };
        let zones = zones
            .iter()
            .map(|zone| read(zone).with_context(|| format!("reading {} to know the right answers", zone.1.display())))
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { zones })
    }

    /// What the reply to this question has to hold.
    pub fn answer(&self, name: &Name, record_type: RecordType) -> Expected {
        let mut expected = Expected {
            kind: Kind::Answer,
            rcode: ResponseCode::NoError,
            authoritative: true,
            answers: Vec::new(),
            authorities: None,
            glue: Vec::new(),
        };
        let mut target = name.clone();
        let mut asked = BTreeSet::new();
        // Each step is one name; only an alias leads to another.
        while asked.insert(target.clone()) && asked.len() <= CHAIN_MAX {
            let first = asked.len() == 1;
            let Some(zone) = self.zone_of(&target) else {
                if first {
                    expected.kind = Kind::Refused;
                    expected.rcode = ResponseCode::Refused;
                    expected.authoritative = false;
                    expected.authorities = Some(Vec::new());
                }
                return expected;
            };
            if let Some((cut, servers)) = zone.delegation(&target) {
                // AA is about the first name of the answer section (RFC 1034 section 4.1.1).
                expected.authoritative = !first;
                if first {
                    expected.kind = Kind::Referral;
                }
                expected.glue = zone.glue(cut, servers);
                expected.authorities = Some(servers.clone());
                return expected;
            }
            let wildcard = !zone.names.contains_key(&target);
            let Some(types) = zone.names.get(&target).or_else(|| zone.wildcard(&target)) else {
                // The code is about the last name of the chain (RFC 6604 section 3).
                expected.rcode = ResponseCode::NXDomain;
                expected.authorities = Some(zone.negative());
                if first {
                    expected.kind = Kind::NxDomain;
                }
                return expected;
            };
            let owned = |records: &Vec<Record>| -> Vec<Record> {
                records
                    .iter()
                    .map(|record| Record::from_rdata(target.clone(), record.ttl, record.data.clone()))
                    .collect()
            };
            if first && wildcard {
                expected.kind = Kind::Wildcard;
            }
            if let Some(records) = types.get(&record_type) {
                expected.answers.extend(owned(records));
                return expected;
            }
            let Some(alias) = types.get(&RecordType::CNAME) else {
                expected.authorities = Some(zone.negative());
                if first {
                    expected.kind = Kind::NoData;
                }
                return expected;
            };
            expected.answers.extend(owned(alias));
            if expected.kind == Kind::Answer {
                expected.kind = Kind::Alias;
            }
            let RData::CNAME(next) = &alias[0].data else { return expected };
            target = next.0.to_lowercase();
        }
        expected
    }

    /// What is wrong with the reply to `query`, if anything is: one sentence.
    pub fn fault(&self, query: &Message, expected: &Expected, reply: &Message) -> Option<String> {
        let (head, asked) = (&reply.metadata, &query.metadata);
        if head.message_type != MessageType::Response || head.op_code != OpCode::Query || head.id != asked.id {
            return Some("the header is not that of a reply to the query".to_owned());
        }
        // Names are equal whatever their case, but the question must come back as it was asked.
        let same_question = |(a, b): (&Query, &Query)| a == b && a.name.eq_case(&b.name);
        if reply.queries.len() != query.queries.len() || !reply.queries.iter().zip(&query.queries).all(same_question) {
            return Some("the question is not that of the query, byte for byte".to_owned());
        }
        if head.response_code != expected.rcode {
            return Some(format!("the code is {}, not {}", code(head.response_code), code(expected.rcode)));
        }
        if head.authoritative != expected.authoritative {
            return Some(format!("AA is {}", if head.authoritative { "set" } else { "not set" }));
        }
        if head.recursion_desired != asked.recursion_desired || head.recursion_available {
            return Some("RD is not that of the query, or RA is set".to_owned());
        }
        match (&query.edns, &reply.edns) {
            (None, Some(_)) => return Some("there is an OPT record, and there was none in the query".to_owned()),
            (Some(_), None) => return Some("there is no OPT record, and there was one in the query".to_owned()),
            (Some(_), Some(edns)) if edns.version() != 0 => return Some("the EDNS version is not 0".to_owned()),
            _ => (),
        }

        let whole = expected.fits(query);
        if head.truncation == whole {
            return Some(
                if whole { "TC is set, and it fits" } else { "TC is not set, and it does not fit" }.to_owned(),
            );
        }
        if let Some(fault) = difference("answer", &expected.answers, &reply.answers, whole) {
            return Some(fault);
        }
        let fault = match &expected.authorities {
            Some(authorities) => difference("authority", authorities, &reply.authorities, whole),
            None => self.invention("authority", &reply.authorities),
        };
        let missing = || expected.glue.iter().find(|record| whole && !has(&reply.additionals, record));
        fault
            .or_else(|| missing().map(|record| format!("the additional section lacks the glue `{record}`")))
            .or_else(|| self.invention("additional", &reply.additionals))
    }

    fn zone_of(&self, name: &Name) -> Option<&Zone> {
        self.zones.iter().filter(|zone| zone.origin.zone_of(name)).max_by_key(|zone| zone.origin.num_labels())
    }

    /// A record in no zone.
    fn invention(&self, section: &str, records: &[Record]) -> Option<String> {
        let known = |record: &&Record| {
            let sets = self.zones.iter().filter_map(|zone| zone.names.get(&record.name)?.get(&record.record_type()));
            sets.flatten().any(|known| same(known, record))
        };
        let invented = records.iter().find(|record| !known(record))?;
        Some(format!("the {section} section has `{invented}`, which is not in the zones"))
    }

    /// All questions worth asking: each set of records, and around each name what is not there.
    pub fn questions(&self) -> Vec<(Name, RecordType)> {
        let mut questions = BTreeSet::new();
        let mut ask = |name: Name, record_type| {
            questions.insert((name, record_type));
        };
        // A label too long for its place only means a question less.
        let below = |label: &str, name: &Name| name.prepend_label(label).ok();
        for zone in &self.zones {
            for (name, types) in &zone.names {
                for &record_type in types.keys() {
                    ask(name.clone(), record_type);
                }
                for record_type in [RecordType::A, RecordType::AAAA, RecordType::HINFO] {
                    ask(name.clone(), record_type);
                }
                for below in ["no-such-name", "x"].iter().filter_map(|label| below(label, name)) {
                    ask(below.clone(), RecordType::A);
                    ask(below, RecordType::TXT);
                }
                if name.is_wildcard() {
                    let deep = below("some", &name.base_name()).and_then(|some| below("deep", &some));
                    for name in below("any", &name.base_name()).into_iter().chain(deep) {
                        types.keys().for_each(|&record_type| ask(name.clone(), record_type));
                    }
                }
            }
        }
        if let Ok(outside) = Name::from_ascii("www.outside.invalid.") {
            ask(outside, RecordType::A);
        }
        questions.into_iter().collect()
    }
}

impl Zone {
    fn parse(name: &str, text: &str, file: Option<PathBuf>) -> anyhow::Result<Self> {
        let mut origin = Name::from_ascii(name).with_context(|| format!("`{name}` is no domain name"))?.to_lowercase();
        origin.set_fqdn(true);
        let (_, sets) = Parser::new(text, file, Some(origin.clone())).parse().map_err(|e| anyhow::anyhow!("{e}"))?;
        let mut names = BTreeMap::<Name, BTreeMap<RecordType, Vec<Record>>>::new();
        for set in sets.values() {
            let owner = set.name().to_lowercase();
            ensure!(origin.zone_of(&owner), "{owner} is outside {origin}");
            for labels in origin.num_labels()..owner_labels(&owner) {
                names.entry(owner.trim_to(usize::from(labels))).or_default();
            }
            let records = set.records_without_rrsigs().cloned().collect();
            names.entry(owner).or_default().insert(set.record_type(), records);
        }
        let zone = Self { origin, names };
        ensure!(!zone.negative().is_empty(), "there is no SOA record at {}", zone.origin);
        Ok(zone)
    }

    /// The highest cut at or above `name`, with its NS records.
    fn delegation(&self, name: &Name) -> Option<(Name, &Vec<Record>)> {
        (self.origin.num_labels() + 1..=owner_labels(name)).find_map(|labels| {
            let cut = name.trim_to(usize::from(labels));
            let servers = self.names.get(&cut)?.get(&RecordType::NS)?;
            Some((cut, servers))
        })
    }

    /// The addresses of those servers of a cut that are below it.
    fn glue(&self, cut: Name, servers: &[Record]) -> Vec<Record> {
        let targets = servers.iter().filter_map(|server| match &server.data {
            RData::NS(target) if cut.zone_of(&target.0) => self.names.get(&target.0),
            _ => None,
        });
        let addresses = targets.flat_map(|types| [RecordType::A, RecordType::AAAA].map(|kind| types.get(&kind)));
        addresses.flatten().flatten().cloned().collect()
    }

    /// The records of the wildcard that stands for `name`, which does not exist (RFC 4592 section 3.3.1).
    fn wildcard(&self, name: &Name) -> Option<&BTreeMap<RecordType, Vec<Record>>> {
        let mut encloser = name.base_name();
        while !self.names.contains_key(&encloser) {
            encloser = encloser.base_name();
        }
        self.names.get(&encloser.prepend_label("*").ok()?)
    }

    /// The SOA record as negative answers hold it (RFC 2308 section 3).
    fn negative(&self) -> Vec<Record> {
        let records = self.names.get(&self.origin).and_then(|types| types.get(&RecordType::SOA));
        let mut records = records.cloned().unwrap_or_default();
        for record in &mut records {
            if let RData::SOA(soa) = &record.data {
                record.ttl = record.ttl.min(soa.minimum);
            }
        }
        records
    }
}

impl Expected {
    /// A message that holds just this, to be shown and measured.
    pub fn message(&self, query: &Message) -> Message {
        let mut message = Message::response(query.metadata.id, OpCode::Query);
        message.metadata.recursion_desired = query.metadata.recursion_desired;
        message.metadata.authoritative = self.authoritative;
        message.metadata.response_code = self.rcode;
        message.queries.clone_from(&query.queries);
        message.answers.clone_from(&self.answers);
        message.authorities = self.authorities.clone().unwrap_or_default();
        message.additionals.clone_from(&self.glue);
        message.edns = query.edns.as_ref().map(|_| {
            let mut edns = Edns::new();
            edns.set_max_payload(EDNS_PAYLOAD);
            edns
        });
        message
    }

    /// Records in all sections.
    pub fn records(&self) -> usize {
        self.answers.len() + self.authorities.as_ref().map_or(0, Vec::len) + self.glue.len()
    }

    fn fits(&self, query: &Message) -> bool {
        let room = query.edns.as_ref().map_or(PLAIN_PAYLOAD, |edns| usize::from(edns.max_payload()));
        self.message(query).to_vec().is_ok_and(|bytes| bytes.len() <= room)
    }
}

/// The number of labels; the asterisk of a wildcard counts, which it does not in `Name::num_labels`.
fn owner_labels(name: &Name) -> u8 {
    name.num_labels() + u8::from(name.is_wildcard())
}

fn same(a: &Record, b: &Record) -> bool {
    a == b && a.ttl == b.ttl
}

fn has(records: &[Record], record: &Record) -> bool {
    records.iter().any(|other| same(other, record))
}

/// A section that is not `expected`: `whole`, or as far as there was room.
fn difference(section: &str, expected: &[Record], got: &[Record], whole: bool) -> Option<String> {
    if let Some(record) = got.iter().find(|record| !has(expected, record)) {
        return Some(format!("the {section} section has `{record}`, which does not belong there"));
    }
    if let Some(record) = expected.iter().find(|record| whole && !has(got, record)) {
        return Some(format!("the {section} section lacks `{record}`"));
    }
    (got.len() > expected.len()).then(|| format!("the {section} section has a record twice"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZONE: &str = "\
$ORIGIN example.com.
$TTL 3600
@ IN SOA ns1 hostmaster 1 7200 3600 1209600 300
@ IN NS ns1
ns1 IN A 192.0.2.1
www IN A 192.0.2.2
alias IN CNAME www
far IN CNAME www.elsewhere.example.
gone IN CNAME nothing
into IN CNAME host.sub
loop IN CNAME pool
pool IN CNAME loop
*.wild IN A 192.0.2.3
there.wild IN TXT here
a.deep IN TXT deep
sub IN NS ns.sub
sub IN NS ns.elsewhere.example.
ns.sub IN A 192.0.2.4
";

    fn name(name: &str) -> Name {
        Name::from_ascii(name).expect("a name")
    }

    fn oracle() -> Oracle {
        Oracle {
            zones: vec![
                Zone::parse("example.com", ZONE, None).expect("a zone"),
                Zone::parse("elsewhere.example", "@ 60 IN SOA ns m 1 2 3 4 5\nwww 60 IN A 192.0.2.9\n", None)
                    .expect("a zone"),
            ],
        }
    }

    /// The numbers are the records in the answer and authority section and of glue.
    fn check(question: &str, kind: Kind, rcode: ResponseCode, aa: bool, records: [usize; 3]) {
        let expected = oracle().answer(&name(question), RecordType::A);
        let authorities = expected.authorities.as_ref().map_or(0, Vec::len);
        let got = [expected.answers.len(), authorities, expected.glue.len()];
        assert_eq!(
            (expected.kind, expected.rcode, expected.authoritative, got),
            (kind, rcode, aa, records),
            "{question}"
        );
    }

    #[test]
    fn the_zone_says_what_is_right() {
        use ResponseCode::{NXDomain, NoError, Refused};
        check("www.example.com.", Kind::Answer, NoError, true, [1, 0, 0]);
        check("WWW.Example.com.", Kind::Answer, NoError, true, [1, 0, 0]);
        check("example.com.", Kind::NoData, NoError, true, [0, 1, 0]);
        check("deep.example.com.", Kind::NoData, NoError, true, [0, 1, 0]);
        check("nothing.example.com.", Kind::NxDomain, NXDomain, true, [0, 1, 0]);
        check("x.www.example.com.", Kind::NxDomain, NXDomain, true, [0, 1, 0]);
        check("alias.example.com.", Kind::Alias, NoError, true, [2, 0, 0]);
        check("far.example.com.", Kind::Alias, NoError, true, [2, 0, 0]);
        check("gone.example.com.", Kind::Alias, NXDomain, true, [1, 1, 0]);
        check("into.example.com.", Kind::Alias, NoError, true, [1, 2, 1]);
        check("loop.example.com.", Kind::Alias, NoError, true, [2, 0, 0]);
        check("any.wild.example.com.", Kind::Wildcard, NoError, true, [1, 0, 0]);
        check("any.at.wild.example.com.", Kind::Wildcard, NoError, true, [1, 0, 0]);
        check("*.wild.example.com.", Kind::Answer, NoError, true, [1, 0, 0]);
        check("wild.example.com.", Kind::NoData, NoError, true, [0, 1, 0]);
        // The closest encloser is the name that exists, and below it there is no wildcard.
        check("x.there.wild.example.com.", Kind::NxDomain, NXDomain, true, [0, 1, 0]);
        check("sub.example.com.", Kind::Referral, NoError, false, [0, 2, 1]);
        check("ns.sub.example.com.", Kind::Referral, NoError, false, [0, 2, 1]);
        check("x.y.sub.example.com.", Kind::Referral, NoError, false, [0, 2, 1]);
        check("example.net.", Kind::Refused, Refused, false, [0, 0, 0]);
    }

    #[test]
    fn each_fault_is_told() {
        let oracle = oracle();
        let mut query = Message::new(7, MessageType::Query, OpCode::Query);
        query.add_query(Query::query(name("wWw.example.com."), RecordType::A));
        query.set_edns(Edns::new());
        let expected = oracle.answer(&name("www.example.com."), RecordType::A);
        let right = expected.message(&query);
        assert_eq!(oracle.fault(&query, &expected, &right), None);

        let check = |part: &str, spoil: &dyn Fn(&mut Message)| {
            let mut reply = right.clone();
            spoil(&mut reply);
            let fault = oracle.fault(&query, &expected, &reply).expect("a fault");
            assert!(fault.contains(part), "{part}: {fault}");
        };
        check("header", &|reply| reply.metadata.id = 8);
        check("question", &|reply| reply.queries[0].name = name("www.example.com."));
        check("SERVFAIL", &|reply| reply.metadata.response_code = ResponseCode::ServFail);
        check("AA", &|reply| reply.metadata.authoritative = false);
        check("RA", &|reply| reply.metadata.recursion_available = true);
        check("OPT", &|reply| reply.edns = None);
        check("TC", &|reply| reply.metadata.truncation = true);
        check("lacks", &|reply| reply.answers.clear());
        check("twice", &|reply| reply.answers.push(reply.answers[0].clone()));
        check("does not belong", &|reply| reply.answers[0].ttl += 1);
        let foreign = Record::from_rdata(name("x."), 1, right.answers[0].data.clone());
        check("not in the zones", &|reply| reply.additionals.push(foreign.clone()));
        check("not in the zones", &|reply| reply.authorities.push(foreign.clone()));
    }

    #[test]
    fn what_is_not_there_is_asked_for_too() {
        let oracle = oracle();
        let kinds: BTreeSet<_> =
            oracle.questions().iter().map(|(name, kind)| oracle.answer(name, *kind).kind).collect();
        assert_eq!(kinds.len(), 7, "{kinds:?}");
    }
}
