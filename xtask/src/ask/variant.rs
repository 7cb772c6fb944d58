//! The queries: each question in several forms, as plain bytes, with what is known of the right replies.
//!
//! The forms differ in the case of letters (RFC 4343: it must not matter, and comes back as sent) and in EDNS.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
};

use anyhow::Context as _;
use hickory_proto::{
    op::{Edns, Message, MessageType, OpCode, Query, ResponseCode},
    rr::{Name, RecordType},
};

use super::report::Fault;
use crate::{
    dig::{self, dig},
    oracle::{EDNS_PAYLOAD, Expected, Kind, Oracle},
};

/// Of more questions only so many are asked, spread over all.
const QUESTIONS_MAX: usize = 5_000;
/// Questions whose wrong replies are kept to be shown.
const FAULTS_SHOWN: usize = 3;
/// Sorts of answers of which one is shown.
const EXAMPLES: [Kind; 5] = [Kind::Answer, Kind::Alias, Kind::Wildcard, Kind::Referral, Kind::NxDomain];
/// Right replies to one query that are known by their bytes: a server may turn the order of records.
const KNOWN_MAX: usize = 8;

/// One query.
#[derive(Debug)]
pub(super) struct Variant {
    /// The message, its ID zero.
    pub(super) bytes: Vec<u8>,
    query: Message,
    expected: Expected,
    /// Replies that were judged right, from behind the ID.
    right: Vec<Vec<u8>>,
    /// A right reply is worth showing.
    is_example: bool,
}

/// All queries, and the replies that are worth showing.
#[derive(Debug)]
pub(super) struct Variants {
    variants: Vec<Variant>,
    /// How many queries were handed out.
    asked: usize,
    random: Random,
    pub(super) codes: BTreeMap<String, u64>,
    pub(super) faults: Vec<Fault>,
    /// The questions of `faults`: one form of each is enough to be shown.
    faulty: BTreeSet<(Name, RecordType)>,
    pub(super) examples: BTreeMap<Kind, String>,
}

impl Variants {
    /// The forms of all questions about the zones.
    pub(super) fn new(oracle: &Oracle) -> anyhow::Result<Self> {
        let mut random = Random(0x9e37_79b9_7f4a_7c15);
        let questions = oracle.questions();
        let step = questions.len().div_ceil(QUESTIONS_MAX).max(1);
        let mut variants = Vec::new();
        for (name, record_type) in questions.iter().step_by(step) {
            let expected = oracle.answer(name, *record_type);
            for name in [name.clone(), random.case(name)?, random.case(name)?] {
                for edns in [false, true] {
                    variants.push(Variant::new(name.clone(), *record_type, edns, expected.clone())?);
                }
            }
        }
        for kind in EXAMPLES {
            if let Some(example) = variants.iter_mut().filter(|v| v.expected.kind == kind).max_by_key(|v| v.worth()) {
                example.is_example = true;
            }
        }
        Ok(Self {
            variants,
            asked: 0,
            random,
            codes: BTreeMap::new(),
            faults: Vec::new(),
            faulty: BTreeSet::new(),
            examples: BTreeMap::new(),
        })
    }

    /// The bytes of a query to be asked outside the run.
    pub(super) fn any(&self) -> &[u8] {
        &self.variants[0].bytes
    }

    /// How many there are.
    pub(super) const fn len(&self) -> usize {
        self.variants.len()
    }

    /// The bytes of a query.
    pub(super) fn bytes(&self, variant: usize) -> &[u8] {
        &self.variants[variant].bytes
    }

    /// Which query comes next: first all in turn, then any.
    pub(super) fn next(&mut self) -> usize {
        let turn = self.asked;
        self.asked += 1;
        if turn < self.variants.len() { turn } else { self.random.below(self.variants.len()) }
    }

    /// Whether `reply` is a right one to the query that was sent with `id`. What it says is counted.
    pub(super) fn judge(&mut self, oracle: &Oracle, variant: usize, id: u16, reply: &[u8]) -> bool {
        let variant = &mut self.variants[variant];
        // The same bytes were judged before, and have the same code.
        if reply.get(2..).is_some_and(|reply| variant.right.iter().any(|right| right == reply)) {
            count(&mut self.codes, variant.expected.rcode);
            return true;
        }
        variant.query.metadata.id = id;
        let decoded = Message::from_vec(reply);
        let fault = match &decoded {
            Ok(message) => {
                count(&mut self.codes, message.metadata.response_code);
                oracle.fault(&variant.query, &variant.expected, message)
            }
            Err(error) => Some(format!("it cannot be decoded: {error}")),
        };
        let got = match &decoded {
            Ok(message) => dig(message),
            Err(_) => format!("{reply:02x?}\n"),
        };
        let Some(sentence) = fault else {
            if variant.right.len() < KNOWN_MAX {
                variant.right.push(reply[2..].to_vec());
            }
            if variant.is_example {
                self.examples.insert(variant.expected.kind, got);
            }
            return true;
        };
        if self.faults.len() < FAULTS_SHOWN && self.faulty.insert(variant.question()) {
            let expected = dig(&variant.expected.message(&variant.query));
            self.faults.push(Fault { sentence, expected, got });
        }
        false
    }
}

fn count(codes: &mut BTreeMap<String, u64>, code: ResponseCode) {
    let name = dig::code(code);
    // No allocation for the names that are there.
    if let Some(count) = codes.get_mut(name.as_ref()) {
        *count += 1;
    } else {
        codes.insert(name.into_owned(), 1);
    }
}

impl Variant {
    fn new(name: Name, record_type: RecordType, edns: bool, expected: Expected) -> anyhow::Result<Self> {
        let mut query = Message::new(0, MessageType::Query, OpCode::Query);
        query.add_query(Query::query(name, record_type));
        if edns {
            let mut edns = Edns::new();
            edns.set_max_payload(EDNS_PAYLOAD);
            query.set_edns(edns);
        }
        let bytes = query.to_vec().with_context(|| format!("encoding a query for {record_type}"))?;
        Ok(Self { bytes, query, expected, right: Vec::new(), is_example: false })
    }

    /// How well it shows what a server can do: as typed by hand, a question for an address that has a rich answer and a short name.
    fn worth(&self) -> (bool, usize, Reverse<usize>) {
        let (name, record_type) = self.question();
        let as_typed = self.query.edns.is_none() && name.eq_case(&name.to_lowercase());
        (as_typed && record_type == RecordType::A, self.expected.records(), Reverse(name.len()))
    }

    fn question(&self) -> (Name, RecordType) {
        let question = &self.query.queries[0];
        (question.name.clone(), question.query_type)
    }
}

/// Numbers without a pattern that matters here (xorshift64), the same in each run.
#[derive(Debug)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        // The remainder is below a usize.
        usize::try_from(self.next() % end as u64).unwrap_or(0)
    }

    /// The name with the case of each letter left to chance.
    fn case(&mut self, name: &Name) -> anyhow::Result<Name> {
        let mut label = |label: &[u8]| -> Vec<u8> {
            let letter = |byte: &u8| {
                if self.next() & 0x100 == 0 { byte.to_ascii_lowercase() } else { byte.to_ascii_uppercase() }
            };
            label.iter().map(letter).collect()
        };
        let labels: Vec<Vec<u8>> = name.iter().map(&mut label).collect();
        let mut name = Name::from_labels(labels.iter().map(Vec::as_slice)).context("a name in another case")?;
        name.set_fqdn(true);
        Ok(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_case_changes_and_nothing_else() {
        let name = Name::from_ascii("www.some-long-name.example.com.").expect("a name");
        let mixed = Random(1).case(&name).expect("a name");
        assert_eq!(mixed, name);
        assert!(!mixed.eq_case(&name));
    }
}
