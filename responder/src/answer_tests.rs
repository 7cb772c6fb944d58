//! Questions and the whole replies to them, read back by the crate `domain`.

use std::net::{IpAddr, Ipv4Addr};

use domain::{
    base::{Message, Name as DomainName, Rtype},
    rdata::AllRecordData,
};

use super::{policy::AnyPolicy, *};

#[path = "answer_tests/edns.rs"]
mod edns;
#[path = "answer_tests/finished.rs"]
mod finished;
#[path = "answer_tests/limits.rs"]
mod limits;
#[path = "answer_tests/names.rs"]
mod names;
#[path = "answer_tests/robust.rs"]
mod robust;

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
            (
                "under.example.com A",
                &[
                    "NOERROR aa",
                    "an under.example.com 3600 CNAME x.dname.example.com.",
                    "an dname.example.com 3600 DNAME example.net.",
                    "an x.dname.example.com 3600 CNAME x.example.net.",
                ],
            ),
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

/// RFC 6672 section 3.2: the new name is looked up as if it had been asked, in the case it was asked in, in all our zones.
#[test]
fn dname_is_followed() {
    let zones = zones(&[
        (
            "example.com",
            "d 60 DNAME t\nwww.t A 192.0.2.80\nwww.t MX 1 www.t\n*.w.t A 192.0.2.81\nchild.t NS ns.child.t\nns.child.t A 192.0.2.9\nchild.t DS 1 8 2 00\n\
             second 60 DNAME d\nloop 60 DNAME loop\nalias.t CNAME www.t\nother 60 DNAME example.net.\nlongname.t TXT x\nto CNAME www.second\n",
        ),
        ("example.net", "www A 192.0.2.90\nback CNAME www.d.example.com.\n"),
    ]);
    const D: &str = "an d.example.com 60 DNAME t.example.com.";
    const SECOND: &str = "an second.example.com 60 DNAME d.example.com.";
    const OTHER: &str = "an other.example.com 60 DNAME example.net.";
    check(
        &zones,
        &[
            (
                "wWw.d.example.com A",
                &[
                    "NOERROR aa",
                    D,
                    "an wWw.d.example.com 60 CNAME wWw.t.example.com.",
                    "an wWw.t.example.com 3600 A 192.0.2.80",
                ],
            ),
            (
                "www.d.example.com MX",
                &[
                    "NOERROR aa",
                    D,
                    "an www.d.example.com 60 CNAME www.t.example.com.",
                    "an www.t.example.com 3600 MX 1 www.t.example.com.",
                    "ar www.t.example.com 3600 A 192.0.2.80",
                ],
            ),
            (
                "a.b.w.d.example.com A",
                &[
                    "NOERROR aa",
                    D,
                    "an a.b.w.d.example.com 60 CNAME a.b.w.t.example.com.",
                    "an a.b.w.t.example.com 3600 A 192.0.2.81",
                ],
            ),
            ("no.d.example.com A", &["NXDOMAIN aa", D, "an no.d.example.com 60 CNAME no.t.example.com.", SOA]),
            ("www.d.example.com TXT", &["NOERROR aa", D, "an www.d.example.com 60 CNAME www.t.example.com.", SOA]),
            ("www.d.example.com CNAME", &["NOERROR aa", D, "an www.d.example.com 60 CNAME www.t.example.com."]),
            (
                "x.child.d.example.com A",
                &[
                    "NOERROR aa",
                    D,
                    "an x.child.d.example.com 60 CNAME x.child.t.example.com.",
                    "ns child.t.example.com 3600 NS ns.child.t.example.com.",
                    "ar ns.child.t.example.com 3600 A 192.0.2.9",
                ],
            ),
            (
                "child.d.example.com DS",
                &[
                    "NOERROR aa",
                    D,
                    "an child.d.example.com 60 CNAME child.t.example.com.",
                    "an child.t.example.com 3600 DS 1 8 2 00",
                ],
            ),
            (
                "www.second.example.com A",
                &[
                    "NOERROR aa",
                    SECOND,
                    "an www.second.example.com 60 CNAME www.d.example.com.",
                    D,
                    "an www.d.example.com 60 CNAME www.t.example.com.",
                    "an www.t.example.com 3600 A 192.0.2.80",
                ],
            ),
            (
                "alias.d.example.com A",
                &[
                    "NOERROR aa",
                    D,
                    "an alias.d.example.com 60 CNAME alias.t.example.com.",
                    "an alias.t.example.com 3600 CNAME www.t.example.com.",
                    "an www.t.example.com 3600 A 192.0.2.80",
                ],
            ),
            (
                "www.other.example.com A",
                &[
                    "NOERROR aa",
                    OTHER,
                    "an www.other.example.com 60 CNAME www.example.net.",
                    "an www.example.net 3600 A 192.0.2.90",
                ],
            ),
            (
                "x.loop.example.com A",
                &[
                    "NOERROR aa",
                    "an loop.example.com 60 DNAME loop.example.com.",
                    "an x.loop.example.com 60 CNAME x.loop.example.com.",
                ],
            ),
            // Rendered at load: an alias that leads below a DNAME.
            (
                "to.example.com A",
                &[
                    "NOERROR aa",
                    "an to.example.com 3600 CNAME www.second.example.com.",
                    SECOND,
                    "an www.second.example.com 60 CNAME www.d.example.com.",
                    D,
                    "an www.d.example.com 60 CNAME www.t.example.com.",
                    "an www.t.example.com 3600 A 192.0.2.80",
                ],
            ),
        ],
    );
}

/// RFC 2181 section 5: a DNAME that leads to its own owner is in the answer once, also behind an alias.
#[test]
fn no_dname_is_sent_twice() {
    let zones = zone("example.com", "b.x 60 DNAME x\nto CNAME b.b.x\n");
    const DNAME: &str = "an b.x.example.com 60 DNAME x.example.com.";
    const CNAME: &str = "an b.b.x.example.com 60 CNAME b.x.example.com.";
    const TO: &str = "an to.example.com 3600 CNAME b.b.x.example.com.";
    check(
        &zones,
        &[
            ("b.b.x.example.com DNAME", &["NOERROR aa", DNAME, CNAME]),
            ("to.example.com DNAME", &["NOERROR aa", TO, DNAME, CNAME]),
        ],
    );
}

/// RFC 4035 section 3.1.4.1: DS is the parent's also where an alias leads to the child's apex.
#[test]
fn ds_behind_an_alias_is_the_parents() {
    let zones =
        zones(&[("example.com", "to CNAME child\nchild NS ns.child\nchild DS 1 8 2 00\n"), ("child.example.com", "")]);
    const TO: &str = "an to.example.com 3600 CNAME child.example.com.";
    check(&zones, &[("to.example.com DS", &["NOERROR aa", TO, "an child.example.com 3600 DS 1 8 2 00"])]);
}

/// RFC 1034 section 4.3.2 step 3b: where another server's zone lies between two of ours, the upper one refers to it, also for DS of the lower one's apex.
#[test]
fn ds_below_another_servers_zone_is_a_referral() {
    let zones = zones(&[
        ("g0.test", "sub NS ns.sub\nto CNAME a.b.sub\nx DNAME b.sub\n"),
        ("sub.g0.test", "b NS ns.b\nns.b A 192.0.2.9\n"),
        ("a.b.sub.g0.test", "www A 192.0.2.80\n"),
    ]);
    const NS: &str = "ns b.sub.g0.test 3600 NS ns.b.sub.g0.test.";
    const GLUE: &str = "ar ns.b.sub.g0.test 3600 A 192.0.2.9";
    const SOA: &str = "ns a.b.sub.g0.test 300 SOA ns1.a.b.sub.g0.test. host.a.b.sub.g0.test. 1 7200 900 1209600 300";
    const TO: &str = "an to.g0.test 3600 CNAME a.b.sub.g0.test.";
    const DNAME: &str = "an x.g0.test 3600 DNAME b.sub.g0.test.";
    const CNAME: &str = "an a.x.g0.test 3600 CNAME a.b.sub.g0.test.";
    check(
        &zones,
        &[
            ("a.b.sub.g0.test DS", &["NOERROR", NS, GLUE]),
            ("to.g0.test DS", &["NOERROR aa", TO, NS, GLUE]),
            ("a.x.g0.test DS", &["NOERROR aa", DNAME, CNAME, NS, GLUE]),
            ("a.b.sub.g0.test TXT", &["NOERROR aa", SOA]),
            ("c.b.sub.g0.test DS", &["NOERROR", NS, GLUE]),
        ],
    );
}
