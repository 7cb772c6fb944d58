//! One case for what an entry allows, and one for what it does not.

use super::*;
use crate::conformance::{
    message::{SOA, name_from},
    query,
};

fn message(rcode: u16) -> Message {
    Message {
        bits: QR | rcode,
        rcode,
        question: vec![],
        answer: vec![],
        authority: vec![],
        additional: vec![],
        opt: None,
        len: 12,
    }
}

fn asking(qtype: u16) -> Query {
    let bytes =
        [&b"\0\0\0\x10\0\x01\0\0\0\0\0\0"[..], &name_from("a.example"), &qtype.to_be_bytes(), b"\0\x01"].concat();
    Query { asked: query::asked(&bytes), bytes, tcp: false, made: query::Made::Good(query::Edns::None) }
}

fn allowed(query: &Query, peer: Server, field: Field, ours: &Message, theirs: &Message) -> Option<&'static str> {
    let data = Data::default();
    let case = Case { query, peer, field, ours: Some(ours), theirs: Some(theirs), data: &data };
    find(&case).map(|entry| ALLOWED[entry].name)
}

#[test]
fn entries_apply_where_they_say() {
    let good = asking(SOA);
    let mut copied = message(0);
    copied.bits |= CD;
    assert_eq!(allowed(&good, Server::Nsd, Field::Bits, &copied, &message(0)), Some("CD is not copied"));
    assert_eq!(allowed(&good, Server::Nsd, Field::Bits, &message(0), &copied), None, "ours has to copy it");
    let refused = message(5);
    assert_eq!(allowed(&asking(AXFR), Server::Bind, Field::Rcode, &refused, &message(0)), Some("transfer over UDP"));
    assert_eq!(allowed(&good, Server::Bind, Field::Rcode, &refused, &message(0)), None);
}

#[test]
fn a_chain_is_no_loop() {
    let alias =
        |owner: &str, to: &str| Record { owner: name_from(owner), rtype: CNAME, class: 1, ttl: 1, data: name_from(to) };
    let reply = |answer: Vec<Record>| Message { answer, ..message(0) };
    assert!(!is_loop(&reply(vec![alias("a", "b"), alias("b", "c")])));
    assert!(is_loop(&reply(vec![alias("a", "b"), alias("b", "c"), alias("c", "b")])));
    assert!(is_loop(&reply(vec![alias("a", "a")])));
}

#[test]
fn only_one_rrset_answers_any() {
    let mut one = message(0);
    // Not in the zones but for the CNAME, which may be made.
    let record = |rtype| Record { owner: name_from("a.example"), rtype, class: 1, ttl: 1, data: vec![] };
    one.answer.push(record(CNAME));
    let mut two = one.clone();
    two.answer.extend([record(1), record(16)]);
    assert_eq!(allowed(&asking(ANY), Server::Nsd, Field::Answer, &one, &two), Some("ANY gets one RRset"));
    assert_eq!(allowed(&asking(ANY), Server::Nsd, Field::Answer, &two, &one), None);
}

#[test]
fn what_is_broken_may_be_told_in_many_ways() {
    let mut broken = asking(SOA);
    // A byte behind the end.
    broken.bytes.push(0);
    broken.asked = query::asked(&broken.bytes);
    let name = allowed(&broken, Server::Knot, Field::Rcode, &message(1), &message(0));
    assert_eq!(name, Some("which error for what is broken"));
    assert_eq!(allowed(&broken, Server::Knot, Field::Rcode, &message(3), &message(1)), None);
}

#[test]
fn glue_is_not_optional() {
    let mut with = message(0);
    let record = |owner: &str, rtype, data: Vec<u8>| Record { owner: name_from(owner), rtype, class: 1, ttl: 1, data };
    with.authority.push(record("a.example", NS, name_from("ns.a.example")));
    with.additional.push(record("ns.a.example", 1, vec![1, 2, 3, 4]));
    let without = Message { additional: vec![], ..with.clone() };
    let mut data = Data::default();
    data.add(&name_from("example"), with.additional.clone());
    let query = asking(1);
    let case = Case {
        query: &query,
        peer: Server::Nsd,
        field: Field::Additional,
        ours: Some(&without),
        theirs: Some(&with),
        data: &data,
    };
    assert_eq!(find(&case), None);
    let made = Data::default();
    assert!(find(&Case { data: &made, ..case }).is_some(), "no zone has it: it was made from a wildcard");
}

#[test]
fn every_entry_names_its_rule() {
    for entry in ALLOWED {
        assert!(entry.rule.contains("RFC"), "{}", entry.name);
    }
}

#[test]
fn only_the_others_may_send_a_record_twice() {
    let record = Record { owner: name_from("a.example"), rtype: DNAME, class: 1, ttl: 1, data: name_from("example") };
    let once = Message { answer: vec![record.clone()], ..message(0) };
    let twice = Message { answer: vec![record.clone(), record], ..message(0) };
    assert_eq!(allowed(&asking(DNAME), Server::Knot, Field::Answer, &once, &twice), Some("record sent twice"));
    assert_eq!(allowed(&asking(DNAME), Server::Knot, Field::Answer, &twice, &once), None);
}
