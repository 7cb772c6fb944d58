//! Zones that load, and what is said of them all the same.

use crate::zone::Zones;

/// Four lines, of which nothing is to be said.
const HEAD: &str = "$TTL 3600\n@ SOA ns1 host 1 7200 3600 1209600 300\n@ NS ns1\nns1 A 192.0.2.1\n";

fn warnings(text: &str) -> String {
    let zones = Zones::from_text("example", text.as_bytes()).unwrap_or_else(|errors| panic!("{text:?}: {errors}"));
    zones.summary()[0].warnings.join("\n")
}

#[test]
fn records_that_are_doubtful() {
    let alias = |line: &str, what: &str, rule: &str| {
        format!("text:{line}: the {what} c.example. is an alias: expected the name that it leads to ({rule})")
    };
    let cases: Vec<(&str, String)> = vec![
        ("a A 1.2.3.4", String::new()),
        // RFC 2181 section 5.2
        (
            "a 60 A 1.2.3.4\na 70 A 1.2.3.5",
            "text:5:6: the TTLs of this RRset differ: the lowest, 60, is served (RFC 2181 section 5.2)".into(),
        ),
        ("a 1w A 1.2.3.4", String::new()),
        (
            "a 8d A 1.2.3.4",
            "text:5:6: a TTL of more than a week, 691200 s: a mistake would be remembered as long".into(),
        ),
        (
            "b 8d A 1.2.3.4\na 9d A 1.2.3.4",
            "text:5:6: a TTL of more than a week, 691200 s, and so has each of 1 more RRsets: a mistake would be remembered as long".into(),
        ),
        // RFC 2181 section 10.3, RFC 1034 section 3.6.2
        ("c CNAME ns1\na MX 1 c", alias("6:3", "mail exchange", "RFC 2181 section 10.3")),
        ("c CNAME ns1\n@ NS c", alias("6:3", "name server", "RFC 2181 section 10.3")),
        ("c CNAME ns1\na SRV 0 0 1 c", alias("6:3", "service's host", "RFC 2782")),
        ("c CNAME ns1\na CNAME C", alias("6:3", "target", "RFC 1034 section 3.6.2")),
        (
            "*.w CNAME ns1\na MX 1 x.w",
            "text:6:3: the mail exchange x.w.example. is an alias: expected the name that it leads to (RFC 2181 section 10.3)".into(),
        ),
        ("a CNAME ns1\nb CNAME elsewhere.", String::new()),
        ("a CNAME b", "text:5:3: the target b.example. does not exist in this zone".into()),
        ("a CNAME b\nx.b TXT x", String::new()),
        // Addresses
        ("@ NS ns2", "text:5:3: the name server ns2.example. has no address in this zone".into()),
        ("@ NS ns2\nns2 TXT x", "text:5:3: the name server ns2.example. has no address in this zone".into()),
        ("a MX 1 b", "text:5:3: the mail exchange b.example. has no address in this zone".into()),
        ("a MX 0 .\nb SRV 0 0 0 .", String::new()),
        ("a MX 1 b\n*  AAAA ::1", String::new()),
        // Glue: RFC 1034 section 4.2.1
        (
            "c NS ns.c",
            "text:5:3: the name server ns.c.example. has no glue: expected its address here, since it lies below its own delegation (RFC 1034 section 4.2.1)".into(),
        ),
        ("c NS ns.c\nns.c A 1.2.3.4", String::new()),
        ("c NS ns.d\nd NS ns.example.net.", String::new()),
        ("c NS ns1", String::new()),
        ("c NS ns.c\nns.c A 1.2.3.4\nns.c TXT x", "text:7:6: TXT of ns.c.example., below the delegation of c.example.: it is not served".into()),
        // RFC 4592 section 4.2
        (
            "* NS ns1",
            "text:5:3: NS at the wildcard *.example.: expected none (RFC 4592 section 4.2); it delegates nothing and is served as it stands".into(),
        ),
    ];
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let found = warnings(&format!("{HEAD}{text}\n"));
        if found != expected {
            wrong.push(format!("{text:?}\n  found    {found}\n  expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// RFC 1912 section 2.2, RFC 2308 section 5.
#[test]
fn times_of_a_soa_that_are_doubtful() {
    let cases = [
        ("ns1 host 1 1200 600 604800 86400", ""),
        ("ns1 host 1 1199 600 604800 60", "a REFRESH of 1199 s: expected 20 minutes or more (RFC 1912 section 2.2)"),
        (
            "ns1 host 1 1200 1200 604800 60",
            "a RETRY of 1200 s: expected less than REFRESH, 1200 s (RFC 1912 section 2.2)",
        ),
        ("ns1 host 1 1200 600 604799 60", "an EXPIRE of 604799 s: expected a week or more (RFC 1912 section 2.2)"),
        (
            "ns1 host 1 1200 600 604800 86401",
            "a MINIMUM of 86401 s: expected a day at most, for it is the TTL of negative answers (RFC 2308 section 5)",
        ),
        (
            "ns1 host@example.com. 1 1200 600 604800 60",
            "a mailbox with an at sign: expected a dot in its place (RFC 1035 section 3.3.13)",
        ),
    ];
    for (soa, expected) in cases {
        let found = warnings(&format!("$TTL 60\n@ SOA {soa}\n@ NS ns1\nns1 A 192.0.2.1\n"));
        let expected = if expected.is_empty() { String::new() } else { format!("text:2:3: {expected}") };
        assert_eq!(found, expected, "{soa}");
    }
}
