//! Questions and the whole replies to them, read back by the crate `domain`.

use domain::{
    base::{Message, Name as DomainName, Rtype},
    rdata::AllRecordData,
};

use super::*;

const UDP: Limits = Limits { transport: Transport::Udp, udp_payload_max: 1232 };
const TCP: Limits = Limits { transport: Transport::Tcp, udp_payload_max: 1232 };

/// The head of every test's zone.
const HEAD: &str = "@ 3600 SOA ns1 host 1 7200 900 1209600 300\n@ 3600 NS ns1\nns1 3600 A 192.0.2.1\n";

fn zone(name: &str, rest: &str) -> Zones {
    zones(&[(name, rest)])
}

fn zones(texts: &[(&str, &str)]) -> Zones {
    let texts: Vec<(&str, String)> =
        texts.iter().map(|(name, rest)| (*name, format!("$TTL 3600\n{HEAD}{rest}"))).collect();
    let texts: Vec<(&str, &str)> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    Zones::from_texts(&texts).unwrap_or_else(|errors| panic!("{errors}"))
}

/// A query with ID 0x1234 and RD, for `NAME TYPE`.
fn query(question: &str) -> Vec<u8> {
    let (name, rtype) = question.split_once(' ').unwrap();
    let name: DomainName<Vec<u8>> = format!("{}.", name.trim_end_matches('.')).parse().unwrap();
    let rtype: Rtype = rtype.parse().unwrap();
    let header = [0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    [&header, name.as_slice(), &rtype.to_int().to_be_bytes(), &[0, 1]].concat()
}

/// The same with an OPT record that takes `payload_max` bytes.
fn query_edns(question: &str, payload_max: u16) -> Vec<u8> {
    let mut message = query(question);
    message[11] = 1;
    message.extend_from_slice(&[0, 0, 41]);
    message.extend_from_slice(&payload_max.to_be_bytes());
    message.extend_from_slice(&[0; 6]);
    message
}

fn send(zones: &Zones, query: &[u8], limits: Limits) -> Vec<u8> {
    let mut message = vec![0xee; 65_535];
    message[..query.len()].copy_from_slice(query);
    match respond(zones, &mut message, query.len(), limits) {
        Outcome::Reply(length) => {
            message.truncate(length);
            walk(&message);
            message
        }
        Outcome::Drop(reason) => panic!("dropped: {reason:?}"),
    }
}

/// `RCODE flags`, then a line for each record, its section in front.
fn show(reply: &[u8]) -> Vec<String> {
    let message = Message::from_octets(reply).unwrap();
    let header = message.header();
    let rcode = message.opt_rcode().to_string();
    let flags = [("aa", header.aa()), ("tc", header.tc())];
    let flags: String = flags.iter().filter(|(_, set)| *set).map(|(flag, _)| format!(" {flag}")).collect();
    let mut lines = vec![format!("{rcode}{flags}")];
    let (_, answer, authority, additional) = message.sections().unwrap();
    for (label, section) in [("an", answer), ("ns", authority), ("ar", additional)] {
        for record in section {
            let record = record.unwrap().into_record::<AllRecordData<_, _>>().unwrap().unwrap();
            let owner = record.owner().to_string();
            let owner = if owner.is_empty() { "." } else { &owner };
            lines.push(match record.data() {
                AllRecordData::Opt(_) => format!("{label} OPT"),
                data => format!("{label} {owner} {} {} {data}", record.ttl().as_secs(), record.rtype()),
            });
        }
    }
    lines
}

/// Reads a message as RFC 1035 section 4.1 has it, without any code of ours: counts, lengths and pointers must come out at its end.
fn walk(message: &[u8]) {
    let count = |at: usize| usize::from(message[at]) << 8 | usize::from(message[at + 1]);
    let mut at = 12;
    for _ in 0..count(4) {
        at = walk_name(message, at) + 4;
    }
    for _ in 0..count(6) + count(8) + count(10) {
        at = walk_name(message, at);
        let end = at + 10 + count(at + 8);
        match count(at) {
            2 | 5 | 12 => assert_eq!(walk_name(message, at + 10), end),
            15 => assert_eq!(walk_name(message, at + 12), end),
            6 => assert_eq!(walk_name(message, walk_name(message, at + 10)) + 20, end),
            _ => {}
        }
        at = end;
    }
    assert_eq!(at, message.len(), "the counts are those of the records");
}

/// The offset behind a name. Pointers go backwards, to names that end.
fn walk_name(message: &[u8], start: usize) -> usize {
    let (mut at, mut end, mut length) = (start, None, 1);
    loop {
        match message[at] {
            0 => return end.unwrap_or(at + 1),
            high @ 0xc0.. => {
                let target = usize::from(high & 0x3f) << 8 | usize::from(message[at + 1]);
                assert!(target < at && target >= 12, "a pointer at {at} to {target}");
                end = end.or(Some(at + 2));
                at = target;
            }
            label => {
                assert!(label < 64);
                length += 1 + usize::from(label);
                at += 1 + usize::from(label);
            }
        }
        assert!(length <= 255, "a name of more than 255 bytes");
    }
}

fn check(zones: &Zones, cases: &[(&str, &[&str])]) {
    for (question, expected) in cases {
        assert_eq!(show(&send(zones, &query(question), UDP)), *expected, "{question}");
        let mut tcp = show(&send(zones, &query_edns(question, 512), TCP));
        assert_eq!(tcp.pop().as_deref(), Some("ar OPT"), "{question}");
        assert_eq!(tcp, *expected, "{question} over TCP");
    }
}

const SOA: &str = "ns example.com 300 SOA ns1.example.com. host.example.com. 1 7200 900 1209600 300";

#[test]
fn names_that_exist() {
    let zones = zone(
        "example.com",
        "www A 192.0.2.80\nwww A 192.0.2.81\nwww AAAA 2001:db8::80\n@ MX 10 mail\nmail A 192.0.2.25\n@ TXT one \"two three\"\n\
         _sip._udp SRV 1 2 5060 www\nptr PTR www\n_x TYPE65280 \\# 3 010203\nent.ty TXT x\n",
    );
    check(
        &zones,
        &[
            (
                "www.example.com A",
                &["NOERROR aa", "an www.example.com 3600 A 192.0.2.80", "an www.example.com 3600 A 192.0.2.81"],
            ),
            ("www.example.com AAAA", &["NOERROR aa", "an www.example.com 3600 AAAA 2001:db8::80"]),
            (
                "example.com MX",
                &["NOERROR aa", "an example.com 3600 MX 10 mail.example.com.", "ar mail.example.com 3600 A 192.0.2.25"],
            ),
            (
                "example.com NS",
                &["NOERROR aa", "an example.com 3600 NS ns1.example.com.", "ar ns1.example.com 3600 A 192.0.2.1"],
            ),
            ("example.com TXT", &["NOERROR aa", "an example.com 3600 TXT \"one\" \"two three\""]),
            ("ptr.example.com PTR", &["NOERROR aa", "an ptr.example.com 3600 PTR www.example.com."]),
            ("_x.example.com TYPE65280", &["NOERROR aa", "an _x.example.com 3600 TYPE65280 \\# 3 01 02 03"]),
            ("www.example.com MX", &["NOERROR aa", SOA]),
            ("ty.example.com A", &["NOERROR aa", SOA]),
            ("x.ty.example.com A", &["NXDOMAIN aa", SOA]),
            ("nothing.example.com A", &["NXDOMAIN aa", SOA]),
            ("a.b.c.example.com A", &["NXDOMAIN aa", SOA]),
            ("example.org A", &["REFUSED"]),
            ("com A", &["REFUSED"]),
            (". NS", &["REFUSED"]),
            ("example.com DS", &["NOERROR aa", SOA]),
            (
                "www.example.com ANY",
                &["NOERROR aa", "an www.example.com 3600 A 192.0.2.80", "an www.example.com 3600 A 192.0.2.81"],
            ),
            ("ty.example.com ANY", &["NOERROR aa", SOA]),
            ("example.com AXFR", &["REFUSED"]),
            ("example.com IXFR", &["REFUSED"]),
        ],
    );
}

#[test]
fn rfc_4592_section_2_2_1() {
    let zones = Zones::from_text(
        "example",
        b"$ORIGIN example.\n\
          example. 3600 IN SOA ns.example.com. host.example. 1 2 3 4 5\n\
          example. 3600 NS ns.example.com.\nexample. 3600 NS ns.example.net.\n\
          *.example. 3600 TXT \"this is a wildcard\"\n*.example. 3600 MX 10 host1.example.\n\
          sub.*.example. 3600 TXT \"this is not a wildcard\"\nhost1.example. 3600 A 192.0.2.1\n\
          _ssh._tcp.host1.example. 3600 SRV 1 2 3 host1\n_ssh._tcp.host2.example. 3600 SRV 1 2 3 host2\n\
          subdel.example. 3600 NS ns.example.com.\nsubdel.example. 3600 NS ns.example.net.\n",
    )
    .unwrap();
    const SOA: &str = "ns example 5 SOA ns.example.com. host.example. 1 2 3 4 5";
    const HOST1: &str = "ar host1.example 3600 A 192.0.2.1";
    const REFERRAL: &[&str] =
        &["NOERROR", "ns subdel.example 3600 NS ns.example.com.", "ns subdel.example 3600 NS ns.example.net."];
    check(
        &zones,
        &[
            ("host3.example MX", &["NOERROR aa", "an host3.example 3600 MX 10 host1.example.", HOST1]),
            ("host3.example A", &["NOERROR aa", SOA]),
            ("foo.bar.example TXT", &["NOERROR aa", "an foo.bar.example 3600 TXT \"this is a wildcard\""]),
            ("host1.example MX", &["NOERROR aa", SOA]),
            ("sub.*.example MX", &["NOERROR aa", SOA]),
            ("_telnet._tcp.host1.example SRV", &["NXDOMAIN aa", SOA]),
            ("host.subdel.example A", REFERRAL),
            ("ghost.*.example MX", &["NXDOMAIN aa", SOA]),
            // The asterisk asked for as itself, and empty non-terminals.
            ("*.example MX", &["NOERROR aa", "an *.example 3600 MX 10 host1.example.", HOST1]),
            ("host2.example A", &["NOERROR aa", SOA]),
            ("_tcp.host2.example MX", &["NOERROR aa", SOA]),
            ("x.host2.example MX", &["NXDOMAIN aa", SOA]),
            ("subdel.example MX", REFERRAL),
        ],
    );
}

#[test]
fn aliases() {
    let zones = zone(
        "example.com",
        "www A 192.0.2.80\nwww MX 1 ns1\none CNAME two\ntwo CNAME www\nloop1 CNAME loop2\nloop2 CNAME loop1\nself CNAME self\n\
         dead CNAME nothing\nout CNAME www.example.net.\ninto CNAME x.child\ncutname CNAME child\nchild NS ns.child\nchild NS ns.example.net.\n\
         child DS 1 8 2 00\nns.child A 192.0.2.53\n*.wild A 192.0.2.99\nonto CNAME a.b.wild\n*.alias CNAME www\nent CNAME e\nx.e TXT x\n\
         dname DNAME example.net.\nunder CNAME x.dname\n",
    );
    const ONE: &str = "an one.example.com 3600 CNAME two.example.com.";
    const TWO: &str = "an two.example.com 3600 CNAME www.example.com.";
    const CHILD: [&str; 3] = [
        "ns child.example.com 3600 NS ns.child.example.com.",
        "ns child.example.com 3600 NS ns.example.net.",
        "ar ns.child.example.com 3600 A 192.0.2.53",
    ];
    const INTO: &str = "an into.example.com 3600 CNAME x.child.example.com.";
    check(
        &zones,
        &[
            ("one.example.com A", &["NOERROR aa", ONE, TWO, "an www.example.com 3600 A 192.0.2.80"]),
            (
                "one.example.com MX",
                &[
                    "NOERROR aa",
                    ONE,
                    TWO,
                    "an www.example.com 3600 MX 1 ns1.example.com.",
                    "ar ns1.example.com 3600 A 192.0.2.1",
                ],
            ),
            ("one.example.com TXT", &["NOERROR aa", ONE, TWO, SOA]),
            ("one.example.com CNAME", &["NOERROR aa", ONE]),
            ("one.example.com ANY", &["NOERROR aa", ONE]),
            (
                "loop1.example.com A",
                &[
                    "NOERROR aa",
                    "an loop1.example.com 3600 CNAME loop2.example.com.",
                    "an loop2.example.com 3600 CNAME loop1.example.com.",
                ],
            ),
            ("self.example.com A", &["NOERROR aa", "an self.example.com 3600 CNAME self.example.com."]),
            ("dead.example.com A", &["NXDOMAIN aa", "an dead.example.com 3600 CNAME nothing.example.com.", SOA]),
            ("out.example.com A", &["NOERROR aa", "an out.example.com 3600 CNAME www.example.net."]),
            ("into.example.com A", &["NOERROR aa", INTO, CHILD[0], CHILD[1], CHILD[2]]),
            (
                "cutname.example.com DS",
                &[
                    "NOERROR aa",
                    "an cutname.example.com 3600 CNAME child.example.com.",
                    "an child.example.com 3600 DS 1 8 2 00",
                ],
            ),
            (
                "onto.example.com A",
                &[
                    "NOERROR aa",
                    "an onto.example.com 3600 CNAME a.b.wild.example.com.",
                    "an a.b.wild.example.com 3600 A 192.0.2.99",
                ],
            ),
            (
                "x.y.alias.example.com A",
                &[
                    "NOERROR aa",
                    "an x.y.alias.example.com 3600 CNAME www.example.com.",
                    "an www.example.com 3600 A 192.0.2.80",
                ],
            ),
            ("x.alias.example.com TXT", &["NOERROR aa", "an x.alias.example.com 3600 CNAME www.example.com.", SOA]),
            ("ent.example.com A", &["NOERROR aa", "an ent.example.com 3600 CNAME e.example.com.", SOA]),
            ("under.example.com A", &["NOERROR aa", "an under.example.com 3600 CNAME x.dname.example.com."]),
        ],
    );
}

#[test]
fn referrals() {
    let zones = zone(
        "example.com",
        "in NS ns.in\nin NS ns.sib\nin NS ns.missing.in\nin NS ns.example.net.\nns.in A 192.0.2.10\nns.in AAAA 2001:db8::10\n\
         sib NS ns.sib\nns.sib A 192.0.2.11\nhidden.sib A 192.0.2.12\nin DS 1 8 2 00\nmix NS NS1.mix\nmix NS ns1.mix\nns1.mix A 192.0.2.13\n",
    );
    const IN: &[&str] = &[
        "NOERROR",
        "ns in.example.com 3600 NS ns.in.example.com.",
        "ns in.example.com 3600 NS ns.sib.example.com.",
        "ns in.example.com 3600 NS ns.missing.in.example.com.",
        "ns in.example.com 3600 NS ns.example.net.",
        "ar ns.in.example.com 3600 A 192.0.2.10",
        "ar ns.in.example.com 3600 AAAA 2001:db8::10",
        "ar ns.sib.example.com 3600 A 192.0.2.11",
    ];
    const SIB: &[&str] =
        &["NOERROR", "ns sib.example.com 3600 NS ns.sib.example.com.", "ar ns.sib.example.com 3600 A 192.0.2.11"];
    let long = ["x".repeat(63), "y".repeat(63), "z".repeat(63), "w".repeat(40)].join(".");
    let longest = format!("{long}.in.example.com A");
    let longest = longest.as_str();
    check(
        &zones,
        &[
            ("in.example.com A", IN),
            ("in.example.com NS", IN),
            ("in.example.com ANY", IN),
            ("a.b.c.d.in.example.com A", IN),
            ("ns.in.example.com A", IN),
            (longest, IN),
            ("sib.example.com A", SIB),
            ("hidden.sib.example.com A", SIB),
            ("in.example.com DS", &["NOERROR aa", "an in.example.com 3600 DS 1 8 2 00"]),
            ("sib.example.com DS", &["NOERROR aa", SOA]),
            ("x.sib.example.com DS", SIB),
        ],
    );
    // Two spellings of one name are one name, with one address.
    let mixed = show(&send(&zones, &query("mix.example.com A"), UDP));
    assert_eq!(mixed.iter().filter(|line| line.starts_with("ar")).count(), 1, "{mixed:?}");
}

/// RFC 1034 section 4.3.2 step 2: the zone nearest to the name answers.
#[test]
fn zones_below_zones() {
    let zones = zones(&[
        (
            "example.com",
            "child NS ns1.child\nns1.child A 192.0.2.9\nchild DS 1 8 2 00\nx.child A 192.0.2.8\ndeep NS ns.deep\n",
        ),
        ("child.example.com", "www A 192.0.2.80\n"),
        ("a.b.example.com", "www A 192.0.2.81\n"),
        ("under.the.deep.example.com", "www A 192.0.2.82\n"),
    ]);
    let soa = |zone: &str| format!("ns {zone} 300 SOA ns1.{zone}. host.{zone}. 1 7200 900 1209600 300");
    let (child, grandchild, under) =
        (soa("child.example.com"), soa("a.b.example.com"), soa("under.the.deep.example.com"));
    const DEEP: &[&str] = &["NOERROR", "ns deep.example.com 3600 NS ns.deep.example.com."];
    check(
        &zones,
        &[
            ("child.example.com DS", &["NOERROR aa", "an child.example.com 3600 DS 1 8 2 00"]),
            (
                "child.example.com NS",
                &[
                    "NOERROR aa",
                    "an child.example.com 3600 NS ns1.child.example.com.",
                    "ar ns1.child.example.com 3600 A 192.0.2.1",
                ],
            ),
            ("x.child.example.com A", &["NXDOMAIN aa", &child]),
            ("child.example.com TXT", &["NOERROR aa", &child]),
            ("www.child.example.com A", &["NOERROR aa", "an www.child.example.com 3600 A 192.0.2.80"]),
            ("www.a.b.example.com A", &["NOERROR aa", "an www.a.b.example.com 3600 A 192.0.2.81"]),
            ("x.a.b.example.com A", &["NXDOMAIN aa", &grandchild]),
            ("a.b.example.com DS", &["NOERROR aa", SOA]),
            ("x.b.example.com A", &["NXDOMAIN aa", SOA]),
            (
                "www.under.the.deep.example.com A",
                &["NOERROR aa", "an www.under.the.deep.example.com 3600 A 192.0.2.82"],
            ),
            ("x.under.the.deep.example.com A", &["NXDOMAIN aa", &under]),
            ("under.the.deep.example.com TXT", &["NOERROR aa", &under]),
            ("the.deep.example.com A", DEEP),
            ("x.y.z.the.deep.example.com A", DEEP),
        ],
    );
}

#[test]
fn the_root_zone() {
    let zones = zone(".", "com NS ns.com\nns.com A 192.0.2.5\n");
    const SOA: &str = "ns . 300 SOA ns1. host. 1 7200 900 1209600 300";
    check(
        &zones,
        &[
            (". NS", &["NOERROR aa", "an . 3600 NS ns1.", "ar ns1 3600 A 192.0.2.1"]),
            (". A", &["NOERROR aa", SOA]),
            (". DS", &["NOERROR aa", SOA]),
            ("nothing A", &["NXDOMAIN aa", SOA]),
            ("a.b.c A", &["NXDOMAIN aa", SOA]),
            ("x.com A", &["NOERROR", "ns com 3600 NS ns.com.", "ar ns.com 3600 A 192.0.2.5"]),
        ],
    );
}

#[test]
fn dname() {
    let long = ["t".repeat(63), "t".repeat(63), "t".repeat(63)].join(".");
    let zones = zone("example.com", &format!("d 60 DNAME example.net.\nlong 60 DNAME {long}.\nroot 60 DNAME .\n"));
    let too_long = format!("{}.long.example.com A", "x".repeat(62));
    let fits = format!("{}.long.example.com A", "x".repeat(61));
    let long_dname = format!("an long.example.com 60 DNAME {long}.");
    let made = format!("an {}.long.example.com 60 CNAME {}.{long}.", "x".repeat(61), "x".repeat(61));
    const D: &str = "an d.example.com 60 DNAME example.net.";
    check(
        &zones,
        &[
            ("d.example.com DNAME", &["NOERROR aa", D]),
            ("d.example.com A", &["NOERROR aa", SOA]),
            ("a.b.d.example.com A", &["NOERROR aa", D, "an a.b.d.example.com 60 CNAME a.b.example.net."]),
            ("a.d.example.com ANY", &["NOERROR aa", D, "an a.d.example.com 60 CNAME a.example.net."]),
            (
                "a.root.example.com A",
                &["NOERROR aa", "an root.example.com 60 DNAME .", "an a.root.example.com 60 CNAME a."],
            ),
            (&too_long, &["YXDOMAIN aa", &long_dname]),
        ],
    );
    // 255 bytes are a name still; the reply is more than 512.
    assert_eq!(show(&send(&zones, &query(&fits), UDP)), ["NOERROR aa tc"]);
    assert_eq!(show(&send(&zones, &query(&fits), TCP)), ["NOERROR aa", &long_dname, &made]);
    // At the root of all names the owner of the record is no pointer.
    let zones = Zones::from_text(".", b". 60 SOA . . 1 2 3 4 5\n. 60 NS a.example.\n. 60 DNAME example.\n").unwrap();
    check(&zones, &[("x.y A", &["NOERROR aa", "an . 60 DNAME example.", "an x.y 60 CNAME x.y.example."])]);
}

/// The header's bits (RFC 1035 section 4.1.1) and what is not a plain question.
#[test]
fn headers_classes_and_opcodes() {
    let zones = zone("example.com", "www A 192.0.2.80\n");
    let base = query_edns("www.example.com A", 1232);
    let plain = query("www.example.com A");
    let question_end = plain.len();
    let with = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut message = base.clone();
        edit(&mut message);
        message
    };
    let tsig = b"\0\0\xfa\0\xff\0\0\0\0\0\0";
    let header = |flags: [u8; 2], counts: [u8; 4]| {
        let [qd, an, ns, ar] = counts;
        [0x12, 0x34, flags[0], flags[1], 0, qd, 0, an, 0, ns, 0, ar]
    };
    let cases: Vec<(&str, Vec<u8>, [u8; 12])> = vec![
        ("RD comes back", base.clone(), header([0x85, 0], [1, 1, 0, 1])),
        ("RD does not come from nowhere", with(&|m| m[2] = 0), header([0x84, 0], [1, 1, 0, 1])),
        (
            "AA, TC, RA, Z, AD and the RCODE of a query mean nothing",
            with(&|m| (m[2], m[3]) = (6, 0xef)),
            header([0x84, 0], [1, 1, 0, 1]),
        ),
        ("CD comes back", with(&|m| m[3] = 0x10), header([0x85, 0x10], [1, 1, 0, 1])),
        ("class CH", with(&|m| m[question_end - 1] = 3), header([0x81, 5], [1, 0, 0, 1])),
        ("class ANY", with(&|m| m[question_end - 1] = 255), header([0x81, 5], [1, 0, 0, 1])),
        ("IQUERY", with(&|m| m[2] = 1 << 3), header([0x88, 4], [0, 0, 0, 0])),
        ("NOTIFY", with(&|m| m[2] = 4 << 3), header([0xa0, 4], [0, 0, 0, 0])),
        ("UPDATE", with(&|m| m[2] = 5 << 3), header([0xa8, 4], [0, 0, 0, 0])),
        ("opcode 15", with(&|m| m[2] = 15 << 3), header([0xf8, 4], [0, 0, 0, 0])),
        ("no question", with(&|m| m[5] = 0), header([0x81, 1], [0, 0, 0, 0])),
        ("two questions", with(&|m| m[5] = 2), header([0x81, 1], [0, 0, 0, 0])),
        (
            "two OPT",
            with(&|m| {
                m[11] = 2;
                m.extend_from_slice(&base[question_end..]);
            }),
            header([0x81, 1], [0, 0, 0, 0]),
        ),
        ("EDNS version 1", with(&|m| m[question_end + 6] = 1), header([0x81, 0], [1, 0, 0, 1])),
        ("bytes behind the end", with(&|m| m.push(0)), header([0x81, 1], [0, 0, 0, 0])),
        ("a record fewer than counted", with(&|m| m[11] = 2), header([0x81, 1], [0, 0, 0, 0])),
        (
            "TSIG",
            with(&|m| {
                m[11] = 2;
                m.extend_from_slice(tsig);
            }),
            header([0x81, 9], [1, 0, 0, 0]),
        ),
        ("QTYPE OPT", with(&|m| m[question_end - 3] = 41), header([0x81, 1], [1, 0, 0, 1])),
        ("QTYPE TSIG", with(&|m| m[question_end - 3] = 250), header([0x81, 1], [1, 0, 0, 1])),
        ("QTYPE 0", with(&|m| m[question_end - 3] = 0), header([0x85, 0], [1, 0, 1, 1])),
        ("a header alone", plain[..12].to_vec(), header([0x81, 1], [0, 0, 0, 0])),
    ];
    for (what, message, expected) in cases {
        for limits in [UDP, TCP] {
            assert_eq!(send(&zones, &message, limits)[..12], expected, "{what}");
        }
    }
    let badvers = send(&zones, &with(&|m| (m[question_end + 6], m[question_end + 7]) = (1, 0x80)), UDP);
    assert_eq!(
        badvers[question_end..],
        *b"\0\0\x29\x04\xd0\x01\0\x80\0\0\0",
        "the upper bits of 16, version 0, DO as it came"
    );
    for (what, message, reason) in [
        ("a response", with(&|m| m[2] |= 0x80), DropReason::Response),
        ("11 bytes", base[..11].to_vec(), DropReason::ShortMessage),
        ("nothing", vec![], DropReason::ShortMessage),
    ] {
        let mut buffer = vec![0; 512];
        buffer[..message.len()].copy_from_slice(&message);
        assert_eq!(respond(&zones, &mut buffer, message.len(), UDP), Outcome::Drop(reason), "{what}");
    }
}

#[test]
fn the_question_comes_back_bit_for_bit() {
    let zones = zone(
        "example.com",
        "www A 192.0.2.80\n*.wild CNAME www\nd DNAME example.net.\nchild NS ns.child\nns.child A 192.0.2.9\n",
    );
    for question in [
        "wWw.eXample.COM A",
        "X.wILD.Example.com A",
        "No.Example.com A",
        "Aa.d.eXAMPLE.com A",
        "x.CHILD.example.com MX",
    ] {
        let asked = query(question);
        let reply = send(&zones, &asked, UDP);
        assert_eq!(reply[12..asked.len()], asked[12..], "{question}");
    }
    let reply = show(&send(&zones, &query("Aa.d.example.com A"), UDP));
    assert_eq!(reply[2], "an Aa.d.example.com 3600 CNAME Aa.example.net.");
}

/// EDNS sizes and TC (RFC 6891 section 6.2.3, RFC 2181 section 9).
#[test]
fn sizes() {
    let addresses =
        |owner: &str, count: u32| (0..count).map(|n| format!("{owner} A 192.0.2.{n}\n")).collect::<String>();
    let big = addresses("big", 100);
    let fits_512 = addresses("medium", 29);
    let zones =
        zone("example.com", &format!("{big}{fits_512}mx MX 1 big\nref NS ns.ref\nref NS big\nns.ref A 192.0.2.7\n"));
    let opt = 11;
    // Header and question, then 16 bytes for each address.
    let big_len = 12 + 21 + 100 * 16;
    let cases: [(&str, Option<u16>, Limits, usize, bool); 12] = [
        ("big.example.com A", None, UDP, 33, true),
        ("big.example.com A", None, TCP, big_len, false),
        ("big.example.com A", Some(0), UDP, 33 + opt, true),
        ("big.example.com A", Some(512), UDP, 33 + opt, true),
        ("big.example.com A", Some(1232), UDP, 33 + opt, true),
        ("big.example.com A", Some(4096), UDP, 33 + opt, true),
        ("big.example.com A", Some(4096), Limits { udp_payload_max: 4096, ..UDP }, big_len + opt, false),
        (
            "big.example.com A",
            Some(u16::try_from(big_len + opt).unwrap()),
            Limits { udp_payload_max: 4096, ..UDP },
            big_len + opt,
            false,
        ),
        (
            "big.example.com A",
            Some(u16::try_from(big_len + opt).unwrap() - 1),
            Limits { udp_payload_max: 4096, ..UDP },
            33 + opt,
            true,
        ),
        ("medium.example.com A", None, UDP, 12 + 24 + 29 * 16, false),
        ("medium.example.com A", Some(511), UDP, 12 + 24 + 29 * 16 + opt, false),
        ("medium.example.com A", Some(0), Limits { udp_payload_max: 0, ..UDP }, 12 + 24 + 29 * 16 + opt, false),
    ];
    for (question, size, limits, length, truncated) in cases {
        let message = size.map_or_else(|| query(question), |size| query_edns(question, size));
        let reply = send(&zones, &message, limits);
        let shown = show(&reply);
        assert_eq!((reply.len(), reply[2] & 2 != 0), (length, truncated), "{question} {size:?} {limits:?}");
        assert_eq!(shown.last().unwrap() == "ar OPT", size.is_some(), "{question}");
    }
    // Additional data goes first, without TC; the addresses of servers within the delegated zone do not (RFC 9471 section 3).
    check_udp(&zones, "mx.example.com MX", &["NOERROR aa", "an mx.example.com 3600 MX 1 big.example.com."]);
    check_udp(
        &zones,
        "x.ref.example.com A",
        &[
            "NOERROR",
            "ns ref.example.com 3600 NS ns.ref.example.com.",
            "ns ref.example.com 3600 NS big.example.com.",
            "ar ns.ref.example.com 3600 A 192.0.2.7",
        ],
    );
    assert_eq!(show(&send(&zones, &query("mx.example.com MX"), TCP)).len(), 102);
    assert_eq!(show(&send(&zones, &query("x.ref.example.com A"), TCP)).len(), 104);
}

fn check_udp(zones: &Zones, question: &str, expected: &[&str]) {
    assert_eq!(show(&send(zones, &query(question), UDP)), expected, "{question}");
}

/// RFC 9471 section 3: glue that must go along and does not fit is a reason for TC.
#[test]
fn mandatory_glue_that_does_not_fit_sets_tc() {
    let few: String = (0..40).map(|n| format!("few NS ns{n}.few\nns{n}.few A 192.0.2.{n}\n")).collect();
    let many: String = (0..300).map(|n| format!("many NS n{n}.many\nn{n}.many A 192.0.2.{}\n", n % 256)).collect();
    let zones = zone("example.com", &(few + &many));
    for (question, records) in [("x.few.example.com A", 80), ("x.many.example.com A", 600)] {
        assert_eq!(show(&send(&zones, &query(question), UDP)), ["NOERROR tc"]);
        assert_eq!(show(&send(&zones, &query(question), TCP)).len(), 1 + records);
        let large = Limits { udp_payload_max: 4096, ..UDP };
        let shown = show(&send(&zones, &query_edns(question, 4096), large));
        assert_eq!(shown.len(), if records == 80 { 82 } else { 2 }, "{question}");
    }
}

/// The largest RRsets, behind the longest chains: an answer is never more than a message holds.
#[test]
fn chains_and_glue_beside_the_largest_rrset() {
    use std::fmt::Write as _;
    let label = "l".repeat(60);
    let mut text = String::new();
    for n in 0..12 {
        let next = if n == 11 { "huge".to_owned() } else { format!("c{}.{label}{n}.{label}.{label}", n + 1) };
        let owner = if n == 0 { "c0".to_owned() } else { format!("c{n}.{label}{}.{label}.{label}", n - 1) };
        writeln!(text, "{owner} CNAME {next}").unwrap();
    }
    for n in 0..4000 {
        writeln!(text, "huge A 10.0.{}.{}\nhuge2 A 10.0.{}.{}", n / 250, n % 250, n / 250, n % 250).unwrap();
    }
    text += "mx MX 1 huge\nmx MX 2 huge2\nref NS huge.ref\nref NS huge2.ref\n";
    for n in 0..4000 {
        writeln!(text, "huge.ref A 10.0.{}.{}\nhuge2.ref A 10.0.{}.{}", n / 250, n % 250, n / 250, n % 250).unwrap();
    }
    let zones = zone("example.com", &text);
    for question in ["c0.example.com A", "huge.example.com A", "mx.example.com MX", "a.ref.example.com A"] {
        for message in [query(question), query_edns(question, 65_535)] {
            send(&zones, &message, UDP);
            send(&zones, &message, TCP);
        }
    }
    assert_eq!(show(&send(&zones, &query("huge.example.com A"), TCP)).len(), 4001);
}

#[test]
fn a_buffer_without_room_is_a_drop() {
    let zones =
        zone("example.com", "www A 192.0.2.80\nchild NS ns.child\nns.child A 192.0.2.9\nd DNAME example.net.\n");
    for question in
        ["www.example.com A", "no.example.com A", "a.child.example.com A", "a.d.example.com A", "www.example.com AXFR"]
    {
        for message in [query(question), query_edns(question, 4096)] {
            for room in message.len()..message.len() + 150 {
                let mut buffer = vec![0; room];
                buffer[..message.len()].copy_from_slice(&message);
                match respond(&zones, &mut buffer, message.len(), TCP) {
                    Outcome::Reply(length) => walk(&buffer[..length]),
                    Outcome::Drop(reason) => assert_eq!(reason, DropReason::NoRoom),
                }
            }
            let mut buffer = message.clone();
            let length = buffer.len();
            assert_eq!(respond(&zones, &mut buffer, length + 1, UDP), Outcome::Drop(DropReason::NoRoom));
        }
    }
}

/// Pointers move with the QNAME: whatever its length, the records behind it read the same.
#[test]
fn pointers_behind_qnames_of_all_lengths() {
    let zones = zone(
        "example.com",
        "*.wild MX 10 mx.wild\n*.wild MX 20 mail\nmx.wild A 192.0.2.1\nmail A 192.0.2.2\n*.alias CNAME x.y.wild\n*.to CNAME gone\n\
         child NS ns.child\nchild NS ns1\nns.child A 192.0.2.3\nd DNAME d.example.net.\n",
    );
    for base in
        ["wild.example.com", "alias.example.com", "to.example.com", "child.example.com", "d.example.com", "example.com"]
    {
        let room = 255 - (base.len() + 2);
        let mut first: Option<Vec<String>> = None;
        for length in 2..=room {
            // Labels of 63 bytes at most, which take `length` bytes together.
            let mut labels = vec![];
            let mut left = length;
            while left > 0 {
                let take = if left > 64 && left < 66 { left - 2 } else { left.min(64) };
                labels.push("q".repeat(take - 1));
                left -= take;
            }
            let prefix = labels.join(".");
            let name = format!("{prefix}.{base}");
            let reply = send(&zones, &query(&format!("{name} MX")), TCP);
            let shown: Vec<String> = show(&reply).iter().map(|line| line.replace(&prefix, "Q")).collect();
            if base == "d.example.com" && shown[0] != "NOERROR aa" {
                assert_eq!(shown, ["YXDOMAIN aa", "an d.example.com 3600 DNAME d.example.net."]);
                continue;
            }
            assert_eq!(first.get_or_insert(shown.clone()), &shown, "{name}");
        }
    }
}

#[test]
fn whole_replies() {
    let zones = zone("example.com", "www A 192.0.2.80\n*.w MX 10 www\nchild NS ns.child\nns.child A 192.0.2.9\n");
    let cases: [(&str, Option<u16>, &[u8]); 4] = [
        (
            "www.example.com A",
            Some(1232),
            b"\x12\x34\x85\x00\0\x01\0\x01\0\0\0\x01\x03www\x07example\x03com\0\0\x01\0\x01\
              \xc0\x0c\0\x01\0\x01\0\0\x0e\x10\0\x04\xc0\0\x02\x50\
              \0\0\x29\x04\xd0\0\0\0\0\0\0",
        ),
        (
            "no.example.com A",
            None,
            b"\x12\x34\x85\x03\0\x01\0\0\0\x01\0\0\x02no\x07example\x03com\0\0\x01\0\x01\
              \xc0\x0f\0\x06\0\x01\0\0\x01\x2c\0\x21\x03ns1\xc0\x0f\x04host\xc0\x0f\
              \0\0\0\x01\0\0\x1c\x20\0\0\x03\x84\0\x12\x75\0\0\0\x01\x2c",
        ),
        (
            "a.b.w.example.com MX",
            None,
            b"\x12\x34\x85\x00\0\x01\0\x01\0\0\0\x01\x01a\x01b\x01w\x07example\x03com\0\0\x0f\0\x01\
              \xc0\x0c\0\x0f\0\x01\0\0\x0e\x10\0\x08\0\x0a\x03www\xc0\x12\
              \xc0\x31\0\x01\0\x01\0\0\x0e\x10\0\x04\xc0\0\x02\x50",
        ),
        (
            "x.child.example.com A",
            None,
            b"\x12\x34\x81\x00\0\x01\0\0\0\x01\0\x01\x01x\x05child\x07example\x03com\0\0\x01\0\x01\
              \xc0\x0e\0\x02\0\x01\0\0\x0e\x10\0\x05\x02ns\xc0\x0e\
              \xc0\x31\0\x01\0\x01\0\0\x0e\x10\0\x04\xc0\0\x02\x09",
        ),
    ];
    for (question, size, expected) in cases {
        let message = size.map_or_else(|| query(question), |size| query_edns(question, size));
        assert_eq!(send(&zones, &message, UDP), expected, "{question}");
    }
}

/// A small generator of numbers that are the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let zones = zones(&[
        (
            "example.com",
            "www A 192.0.2.80\n*.w MX 10 www\nchild NS ns.child\nns.child A 192.0.2.9\nd DNAME d.example.net.\nc CNAME www\n",
        ),
        ("b.d.example.com", "www A 192.0.2.81\n"),
        ("test", "* A 192.0.2.1\n* TXT wild\n"),
    ]);
    let names = ["www", "x.w", "x.child", "y.d", "c", "no.such", "b.d", "x.b.d", ""];
    let types = ["A", "MX", "ANY", "DS", "CNAME", "AXFR", "OPT", "DNAME", "SOA"];
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    for round in 0..200_000 {
        let name = format!("{}.example.com", names[numbers.below(names.len())]);
        let name = if numbers.below(8) == 0 { "a.test" } else { name.trim_start_matches('.') };
        let question = format!("{name} {}", types[numbers.below(types.len())]);
        let size = u16::try_from(numbers.below(65_536)).unwrap();
        let mut message = if numbers.below(2) == 0 { query(&question) } else { query_edns(&question, size) };
        for _ in 0..numbers.below(4) {
            let at = numbers.below(message.len());
            message[at] = u8::try_from(numbers.below(256)).unwrap();
        }
        match numbers.below(8) {
            0 => message.truncate(numbers.below(message.len() + 1)),
            1 => message.extend((0..numbers.below(40)).map(|n| u8::try_from(n).unwrap())),
            2 => message = (0..numbers.below(300)).map(|_| u8::try_from(numbers.below(256)).unwrap()).collect(),
            _ => {}
        }
        let limits = Limits {
            transport: if numbers.below(2) == 0 { Transport::Udp } else { Transport::Tcp },
            udp_payload_max: u16::try_from(numbers.below(2000)).unwrap(),
        };
        let mut buffer = message.clone();
        buffer.resize(message.len() + numbers.below(600), 0xaa);
        if let Outcome::Reply(length) = respond(&zones, &mut buffer, message.len(), limits) {
            assert!(length <= buffer.len(), "round {round}");
            if limits.transport == Transport::Udp {
                assert!(length <= usize::from(limits.udp_payload_max.max(512)), "round {round}");
            }
            assert_eq!((buffer[..2] == message[..2], buffer[2] >> 7), (true, 1), "round {round}");
            walk(&buffer[..length]);
        }
    }
}
