//! What the clients that people use show: `dig` and `kdig`, which we did not write, over IPv4 and IPv6, UDP and TCP.
//!
//! Needs root and RESPONDER.

use tests::server::{Server, eventually, lab, printed};
use xtask::lab::{Lab, Side};

/// Question, status, whether AA is set, and lines that must be there, blanks as one.
type Case<'a> = (&'a str, &'a str, bool, &'a [&'a str]);

const CASES: [Case<'_>; 9] = [
    (
        "www.example.com A",
        "NOERROR",
        true,
        &["www.example.com. 300 IN A 192.0.2.80", "www.example.com. 300 IN A 192.0.2.81"],
    ),
    ("www.example.com AAAA", "NOERROR", true, &["www.example.com. 300 IN AAAA 2001:db8::80"]),
    (
        "example.com MX",
        "NOERROR",
        true,
        &["example.com. 3600 IN MX 10 mail.example.com.", "mail.example.com. 3600 IN A 192.0.2.25"],
    ),
    ("example.com TXT", "NOERROR", true, &["example.com. 3600 IN TXT \"v=spf1 mx -all\""]),
    ("anything.dyn.example.com A", "NOERROR", true, &["anything.dyn.example.com. 60 IN A 192.0.2.100"]),
    (
        "ftp.example.com A",
        "NOERROR",
        true,
        &["ftp.example.com. 3600 IN CNAME files.example.com.", "www.example.com. 300 IN A 192.0.2.80"],
    ),
    (
        "nothing.example.com A",
        "NXDOMAIN",
        true,
        &["example.com. 300 IN SOA ns1.example.com. hostmaster.example.com. 1 7200 900 1209600 300"],
    ),
    (
        "mail.example.com TXT",
        "NOERROR",
        true,
        &["example.com. 300 IN SOA ns1.example.com. hostmaster.example.com. 1 7200 900 1209600 300"],
    ),
    (
        "www.child.example.com A",
        "NOERROR",
        false,
        &["child.example.com. 3600 IN NS ns1.child.example.com.", "ns1.child.example.com. 3600 IN A 192.0.2.53"],
    ),
];

/// Asks every question with `program` and these flags.
fn check(lab: &Lab, program: &str, flags: &[&str]) {
    for (question, status, authoritative, lines) in CASES {
        for server in [lab.server.v4.to_string(), lab.server.v6.to_string()] {
            let mut command = lab.command(Side::Client, program);
            command.arg(format!("@{server}")).args(flags).args(question.split(' '));
            let shown = printed(&mut command);
            let plain: Vec<String> =
                shown.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
            assert!(shown.contains(&format!("status: {status}")), "{program} {question}: {shown}");
            let flags =
                plain.iter().find(|line| line.to_lowercase().starts_with(";; flags:")).expect("flags are shown");
            assert_eq!(
                flags.split([' ', ';']).any(|flag| flag == "aa"),
                authoritative,
                "{program} {question}: {shown}"
            );
            for line in lines {
                assert!(plain.iter().any(|shown| shown == line), "{program} {question}: no line {line}: {shown}");
            }
        }
    }
}

#[test]
fn dig_and_kdig_see_what_the_zone_says_and_the_bypass_says_it() {
    let lab = lab(2);
    let server = Server::start(&lab, &[]);
    check(&lab, "dig", &["+tries=1", "+time=2"]);
    check(&lab, "kdig", &["+retry=0", "+time=2"]);
    // Two programs, two families.
    let asked = 4 * CASES.len() as u64;
    eventually("all replies in the status", || (server.bypass_answered() == asked).then_some(()));
    assert_eq!(server.kernel_answered(), 0, "the bypass answered, not the kernel path");
}

#[test]
fn over_tcp_they_see_the_same() {
    let lab = lab(2);
    let server = Server::start(&lab, &[]);
    check(&lab, "dig", &["+tcp", "+tries=1", "+time=2"]);
    check(&lab, "kdig", &["+tcp", "+retry=0", "+time=2"]);
    assert_eq!(server.bypass_answered(), 0, "TCP is the kernel path's");
}
