//! Headers, sizes, truncation, and whole replies byte for byte.

use super::*;

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

/// Behind many names, or far from the question, an owner cannot be pointed at and is written again with each record.
#[test]
fn glue_whose_owner_cannot_be_pointed_at() {
    let long = ["l".repeat(60), "l".repeat(60), "l".repeat(60)].join(".");
    let mut text: String = (0..70).map(|n| format!("ref NS n{n}.ref\nn{n}.ref A 192.0.2.1\n")).collect();
    text += &format!("ref NS {long}.ref\n");
    text += &(0..4000).map(|n| format!("{long}.ref A 10.0.{}.{}\n", n / 250, n % 250)).collect::<String>();
    let zones = zone("example.com", &text);
    assert_eq!(show(&send(&zones, &query("a.ref.example.com A"), TCP)).len(), 1 + 71 + 70);
}

/// A chain that ends in a delegation with the largest set of servers.
#[test]
fn a_chain_into_the_largest_delegation() {
    let label = "l".repeat(60);
    let mut text: String =
        (0..12).map(|n| format!("c{n}.{label}.{label} CNAME c{}.{label}.{label}\n", n + 1)).collect();
    text += &format!("c12.{label}.{label} CNAME x.big\n");
    text += &(0..2500).map(|n| format!("big NS s{n}.d.\n")).collect::<String>();
    let zones = zone("example.com", &text);
    let shown = show(&send(&zones, &query(&format!("c0.{label}.{label}.example.com A")), TCP));
    assert_eq!(shown.len(), 1 + 13 + 2500);
}
