//! Replies that are whole: rotation, which must not change what they say, and cutting short.

use super::*;
use crate::{
    answer::finished::{about, cut_short, rotate},
    guard::rrl::Kind,
};

/// The lines of a reply without regard to their order within a section.
fn sorted(reply: &[u8]) -> Vec<String> {
    let mut lines = show(reply);
    lines[1..].sort();
    lines
}

/// The first record of the answer section that is no alias.
fn first(reply: &[u8]) -> String {
    let lines = show(reply);
    lines.iter().find(|line| line.starts_with("an ") && !line.contains(" CNAME ")).unwrap().clone()
}

/// Names of all kinds: pointers into the set from behind it, within it, and none.
fn zone_of_sets() -> Zones {
    zone(
        "example.com",
        "a A 192.0.2.1\na A 192.0.2.2\na A 192.0.2.3\na AAAA 2001:db8::1\na AAAA 2001:db8::2\n\
         txt TXT one\ntxt TXT \"a longer one\"\ntxt TXT 3\n\
         mx MX 1 m1\nmx MX 2 m2\nmx MX 3 m3\nm1 A 192.0.2.11\nm1 A 192.0.2.12\nm2 AAAA 2001:db8::11\nm3 A 192.0.2.13\n\
         in MX 1 x.deep.label.example.net.\nin MX 2 y.deep.label.example.net.\n\
         ns NS b.ns\nns NS c.ns\nptr PTR p1.example.net.\nptr PTR p2.example.org.\n\
         srv SRV 1 1 1 m1\nsrv SRV 1 1 2 m2\n\
         c CNAME d\nd CNAME a\nonly CNAME c2\nc2 CNAME out.example.net.\ncm CNAME mx\n\
         *.w A 192.0.2.21\n*.w A 192.0.2.22\n*.wm MX 1 m1\n*.wm MX 2 m2\nd2 DNAME example.net.\n",
    )
}

/// Every rotation says the same, and all records of a set come first equally often.
#[test]
fn rotations_decode_to_the_same_set() {
    let zones = zone_of_sets();
    for (question, records) in [
        ("a.example.com A", 3),
        ("a.example.com AAAA", 2),
        ("a.example.com ANY", 3),
        ("txt.example.com TXT", 3),
        ("mx.example.com MX", 3),
        ("ptr.example.com PTR", 2),
        ("srv.example.com SRV", 2),
        ("c.example.com A", 3),
        ("cm.example.com MX", 3),
        ("x.y.w.example.com A", 2),
        ("x.y.wm.example.com MX", 2),
    ] {
        for message in [query(question), query_edns(question, 1232)] {
            let plain = send(&zones, &message, UDP);
            let mut firsts = std::collections::BTreeMap::new();
            for turn in 0..300 {
                let mut reply = plain.clone();
                assert!(rotate(&mut reply, turn), "{question}");
                walk(&reply);
                assert_eq!((sorted(&reply), reply.len()), (sorted(&plain), plain.len()), "{question}, turn {turn}");
                *firsts.entry(first(&reply)).or_insert(0) += 1;
            }
            assert_eq!(firsts.len(), records, "{question}");
            let fair = 300 / records;
            assert!(firsts.values().all(|count| (fair - 3..=fair + 3).contains(count)), "{question}: {firsts:?}");
        }
    }
}

/// What has no set, or one whose records point into each other, stays as it is.
#[test]
fn some_answers_have_one_order() {
    let zones = zone_of_sets();
    for question in [
        "in.example.com MX",
        "only.example.com A",
        "m3.example.com A",
        "no.example.com A",
        "x.ns.example.com A",
        "x.d2.example.com A",
        "example.org A",
    ] {
        let plain = send(&zones, &query(question), UDP);
        for turn in 0..10 {
            let mut reply = plain.clone();
            assert!(!rotate(&mut reply, turn), "{question}");
            assert_eq!(reply, plain);
        }
    }
}

/// None of this is fit for bytes that are no reply of ours, and none of it fails on them.
#[test]
fn any_bytes_are_survived() {
    let zones = zone_of_sets();
    let whole = send(&zones, &query_edns("mx.example.com MX", 1232), UDP);
    let mut state = 1_u32;
    let mut number = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    for _ in 0..100_000 {
        let mut bytes = whole.clone();
        for _ in 0..number() % 6 {
            let at = number() as usize % bytes.len();
            bytes[at] = u8::try_from(number() % 256).unwrap();
        }
        bytes.truncate(number() as usize % (bytes.len() + 1));
        let turn = number();
        let _ = rotate(&mut bytes, turn);
        let _ = about(&bytes, &Noted { name_at: u8::try_from(number() % 256).unwrap(), ..Noted::NONE });
        assert!(cut_short(&mut bytes) <= bytes.len());
    }
}

#[test]
fn a_reply_cut_short_is_question_and_opt() {
    let zones = zone_of_sets();
    for question in ["mx.example.com MX", "no.example.com A", "x.ns.example.com A", "example.org A"] {
        for (message, rest) in [(query(question), &[][..]), (query_edns(question, 1232), &["ar OPT"])] {
            let mut reply = send(&zones, &message, UDP);
            let rcode = show(&reply)[0].clone();
            let length = cut_short(&mut reply);
            walk(&reply[..length]);
            let shown = show(&reply[..length]);
            assert_eq!((&shown[0], &shown[1..] == rest), (&format!("{rcode} tc"), true), "{question}: {shown:?}");
            let question_end = query(question).len();
            assert_eq!(reply[12..question_end], message[12..question_end]);
        }
    }
}

#[test]
fn what_answers_are_about() {
    let zones = zone_of_sets();
    for (question, kind, name) in [
        ("a.example.com A", Kind::Positive, "a.example.com"),
        ("a.example.com MX", Kind::NoData, "a.example.com"),
        ("x.y.w.example.com A", Kind::Wildcard, "w.example.com"),
        ("x.y.w.example.com MX", Kind::NoData, "w.example.com"),
        ("no.such.a.example.com A", Kind::NxDomain, "example.com"),
        ("x.y.ns.example.com A", Kind::Referral, "ns.example.com"),
        ("ns.example.com A", Kind::Referral, "ns.example.com"),
        ("x.y.d2.example.com A", Kind::Positive, "d2.example.com"),
        ("c.example.com A", Kind::Positive, "c.example.com"),
        ("c.example.com TXT", Kind::Positive, "c.example.com"),
        ("example.org A", Kind::Error, ""),
    ] {
        let message = query(question);
        let mut buffer = vec![0; 1232];
        buffer[..message.len()].copy_from_slice(&message);
        let mut asked = Asked::plainly(UDP);
        let Outcome::Reply(length) = respond_to(&zones, &mut buffer, message.len(), &mut asked) else { panic!() };
        let expected: DomainName<Vec<u8>> = format!("{name}.").parse().unwrap();
        let expected = if name.is_empty() { &[][..] } else { expected.as_slice() };
        assert_eq!(about(&buffer[..length], &asked.noted), (kind, expected), "{question}");
    }
}
