//! Texts of zones: what they say, and the errors of those that cannot be read.

use std::{env, fs, process};

use super::*;

/// The head of every test's zone: four lines.
const HEAD: &str = "$TTL 3600\n@ SOA ns1 host 1 2 3 4 5\n@ NS ns1\nns1 A 192.0.2.1\n";
const ORIGIN: &str = "example.";

fn load(text: &str) -> Result<load::Content, LoadErrors> {
    load::read_text(ORIGIN, text.as_bytes())
}

/// Records as `owner TTL type data-in-hexadecimal`, without those of the head.
fn records(text: &str) -> Vec<String> {
    let content = load(&format!("{HEAD}{text}")).unwrap_or_else(|errors| panic!("{text:?}: {errors}"));
    shown(&content)
        .into_iter()
        .filter(|record| !["example.", "ns1.example."].iter().any(|owner| record.starts_with(owner)))
        .collect()
}

fn shown(content: &load::Content) -> Vec<String> {
    let show = |record: &load::Record| {
        let data: String = content.data(record).iter().map(|byte| format!("{byte:02x}")).collect();
        let owner = load::display(content.owner(record));
        format!("{owner} {} {} {data}", record.ttl, rdata::type_name(record.rtype))
    };
    content.records.iter().map(show).collect()
}

/// The errors of a text behind the head, as they are shown.
fn errors(text: &str) -> String {
    match Zones::from_text(ORIGIN, format!("{HEAD}{text}").as_bytes()) {
        Ok(_) => "it loads".to_owned(),
        Err(errors) => errors.to_string(),
    }
}

#[test]
fn entries() {
    const A: &str = "a.example. 3600 A 01020304";
    let cases: [(&str, &[&str]); 27] = [
        ("a A 1.2.3.4", &[A]),
        ("a.example. A 1.2.3.4", &[A]),
        ("A.EXAMPLE. a 1.2.3.4", &[A]),
        ("a IN A 1.2.3.4", &[A]),
        ("a 60 IN A 1.2.3.4", &["a.example. 60 A 01020304"]),
        ("a in 1m A 1.2.3.4", &["a.example. 60 A 01020304"]),
        ("a 1W2d3H4m5S A 1.2.3.4", &["a.example. 788645 A 01020304"]),
        ("a 0 A 1.2.3.4", &["a.example. 0 A 01020304"]),
        ("a 2147483647 A 1.2.3.4", &["a.example. 2147483647 A 01020304"]),
        ("a A 1.2.3.4\n  A 1.2.3.5\n\tTXT x", &[A, "a.example. 3600 A 01020305", "a.example. 3600 TXT 0178"]),
        ("a A 1.2.3.4\r\nb A 1.2.3.4\r\n", &[A, "b.example. 3600 A 01020304"]),
        ("a ( A\n 1.2.3.4 ; text ( \" \n ) ; more", &[A]),
        ("a A 1.2.3.4;comment", &[A]),
        ("a A 1.2.3.4\na A 1.2.3.4", &[A]),
        ("$TTL 1d\na A 1.2.3.4", &["a.example. 86400 A 01020304"]),
        (
            "$ORIGIN sub\na A 1.2.3.4\n$ORIGIN example.\n@.x A 1.2.3.4",
            &["\\@.x.example. 3600 A 01020304", "a.sub.example. 3600 A 01020304"],
        ),
        ("$ORIGIN sub.example.\n@ A 1.2.3.4", &["sub.example. 3600 A 01020304"]),
        ("a\\.b A 1.2.3.4", &["a\\.b.example. 3600 A 01020304"]),
        ("\\097 A 1.2.3.4", &[A]),
        ("\\$a A 1.2.3.4", &["\\$a.example. 3600 A 01020304"]),
        ("\\000\\255 A 1.2.3.4", &["\\000\\255.example. 3600 A 01020304"]),
        ("a TXT \"x y\" z \"\" \"q\\\"q\" \\;\\065", &["a.example. 3600 TXT 03782079017a0003712271023b41"]),
        ("a TYPE1 \\# 4 01020304", &[A]),
        ("a CLASS1 A \\# 4 0102 0304", &[A]),
        ("a TYPE65280 \\# 0", &["a.example. 3600 TYPE65280 "]),
        ("a TYPE65280 \\# 3 01 0203", &["a.example. 3600 TYPE65280 010203"]),
        ("type1 A 1.2.3.4", &["type1.example. 3600 A 01020304"]),
    ];
    for (text, expected) in cases {
        assert_eq!(records(text), expected, "{text:?}");
    }
}

#[test]
fn a_byte_order_mark_is_skipped() {
    let content = load(&format!("\u{feff}{}", "example. 60 SOA a b 1 2 3 4 5")).unwrap();
    assert_eq!(shown(&content).len(), 1);
}

/// RFC 2308 section 4, and what RFC 1035 had before it.
#[test]
fn ttls_come_from_the_entry_the_directive_the_entry_before_or_the_soa() {
    let content = load("@ SOA a b 1 2 3 4 77\na A 1.2.3.4\nb 5 A 1.2.3.4\nc A 1.2.3.4\n$TTL 9\nd A 1.2.3.4\ne 5 A 1.2.3.4\nf A 1.2.3.4").unwrap();
    let records = shown(&content);
    let ttls: Vec<&str> = records.iter().map(|record| record.split(' ').nth(1).unwrap()).collect();
    // The owners a to f, then the apex.
    assert_eq!(ttls, ["77", "5", "5", "9", "5", "9", "77"]);
}

#[test]
fn generate() {
    let cases: [(&str, &[&str]); 9] = [
        (
            "$GENERATE 1-3 h$ A 10.0.0.$",
            &["h1.example. 3600 A 0a000001", "h2.example. 3600 A 0a000002", "h3.example. 3600 A 0a000003"],
        ),
        (
            "$generate 1-5/2 h$ 60 IN A 10.0.0.$",
            &["h1.example. 60 A 0a000001", "h3.example. 60 A 0a000003", "h5.example. 60 A 0a000005"],
        ),
        ("$GENERATE 9-9 h${1,4,d} A 10.0.0.${-9}", &["h0010.example. 3600 A 0a000000"]),
        ("$GENERATE 255-255 h${0,4,x} TXT ${0,0,o}", &["h00ff.example. 3600 TXT 03333737"]),
        ("$GENERATE 255-255 h${0,0,X} A 1.2.3.4", &["hff.example. 3600 A 01020304"]),
        ("$GENERATE 7-7 a\\$$ A 1.2.3.4", &["a\\$7.example. 3600 A 01020304"]),
        ("$GENERATE 0-0 $ PTR h-$", &["0.example. 3600 PTR 03682d30076578616d706c6500"]),
        ("$GENERATE 1-1 h MX \"$\" m$", &["h.example. 3600 MX 0001026d31076578616d706c6500"]),
        ("$GENERATE 1-1 h TXT \"a $\"", &["h.example. 3600 TXT 03612031"]),
    ];
    for (text, expected) in cases {
        assert_eq!(records(text), expected, "{text:?}");
    }
}

/// The head has four lines, so the first error is on line 5.
#[test]
fn texts_with_errors() {
    let cases: [(&str, &str); 62] = [
        ("a", "text:5: the entry ends where a type was expected"),
        ("a 60 IN", "text:5: the entry ends where a type was expected"),
        ("a A", "text:5: A: the entry ends where more was expected"),
        ("a A 1.2.3", "text:5: A: expected IPv4 address"),
        ("a A 1.2.3.4 5", "text:5: A: \"5\" is more than was expected"),
        ("a AAAA 1.2.3.4", "text:5: AAAA: expected IPv6 address"),
        ("a AAAA ::1::", "text:5: AAAA: expected IPv6 address"),
        ("a XA 1.2.3.4", "text:5: \"XA\" is no record type: expected a TTL, IN, or a type such as AAAA or TYPE65"),
        (
            "a TYPE65536 \\# 0",
            "text:5: \"TYPE65536\" is no record type: expected a TTL, IN, or a type such as AAAA or TYPE65",
        ),
        ("a CH A 1.2.3.4", "text:5: only class IN is served"),
        ("a CLASS3 A 1.2.3.4", "text:5: only class IN is served"),
        ("a IN IN A 1.2.3.4", "text:5: \"IN\" is no record type: expected a TTL, IN, or a type such as AAAA or TYPE65"),
        ("a 60 60 A 1.2.3.4", "text:5: \"60\" is no record type: expected a TTL, IN, or a type such as AAAA or TYPE65"),
        (
            "a 2147483648 A 1.2.3.4",
            "text:5: \"2147483648\" is no time: expected seconds up to 2147483647, or units as in 1d12h",
        ),
        ("a 1x A 1.2.3.4", "text:5: \"1x\" is no time: expected seconds up to 2147483647, or units as in 1d12h"),
        ("$TTL", "text:5: the entry ends where more was expected"),
        ("$TTL h", "text:5: \"h\" is no time: expected seconds up to 2147483647, or units as in 1d12h"),
        ("$TTL 1 2", "text:5: \"2\" is more than was expected"),
        ("$ORIGIN", "text:5: the entry ends where more was expected"),
        ("$ORIGIN a..b", "text:5: \"a..b\" is no domain name: a label is empty"),
        ("$MAGIC x", "text:5: \"$MAGIC\" is no directive: expected $ORIGIN, $TTL, $INCLUDE or $GENERATE"),
        ("$INCLUDE x", "text:5: $INCLUDE is not taken here"),
        ("a..b A 1.2.3.4", "text:5: \"a..b\" is no domain name: a label is empty"),
        (".a A 1.2.3.4", "text:5: \".a\" is no domain name: a label is empty"),
        ("a\\256 A 1.2.3.4", "text:5: \"a\\\\256\" is no domain name: an escape above \\255"),
        ("\"\" A 1.2.3.4", "text:5: \"\" is no domain name: it is empty"),
        ("a.example.org. A 1.2.3.4", "text:5: a.example.org. is not in zone example."),
        (
            "example.org. A 1.2.3.4\n A 1.2.3.5",
            "text:5: example.org. is not in zone example.\ntext:6: example.org. is not in zone example.",
        ),
        ("a TXT", "text:5: TXT: the entry ends where more was expected"),
        ("a TXT \"x", "text:5: a quoted string without an end: expected \" on the same line"),
        ("a TXT x\\1", "text:5: TXT: an escape of fewer than three digits: expected \\DDD"),
        ("a MX x y", "text:5: MX: expected decimal number"),
        ("a MX 10", "text:5: MX: the entry ends where more was expected"),
        ("a MX 10 x..", "text:5: MX: \"x..\" is no domain name: a label is empty"),
        ("a (\nA\nx )", "text:7: A: expected IPv4 address"),
        ("a ( A 1.2.3.4", "text:5: \"(\" without \")\" until the end of the file"),
        ("a A 1.2.3.4 )", "text:5: \")\" without \"(\""),
        (
            "a A x\nb A y\nc XX\nd A 1.2.3.4",
            "text:5: A: expected IPv4 address\ntext:6: A: expected IPv4 address\ntext:7: \"XX\" is no record type: expected a TTL, IN, or a type such as AAAA or TYPE65",
        ),
        ("a TYPE65280 \\# 2 01", "text:5: TYPE65280: generic data has incorrect length"),
        ("a TYPE65280 \\# 1 0", "text:5: TYPE65280: uneven number of hex digits"),
        ("a TYPE65280 x", "text:5: TYPE65280: unknown record type with concrete data"),
        ("a A \\# 3 010203", "text:5: A: these bytes are no A record"),
        ("a A \\# 5 0102030405", "text:5: A: more bytes than a A record has"),
        ("a MX \\# 4 0000 c000", "text:5: MX: these bytes are no MX record"),
        ("a LOC \\# 1 00", "text:5: LOC: these bytes are no LOC record"),
        ("a AFSDB \\# 3 000101", "text:5: AFSDB: these bytes are no AFSDB record"),
        (
            "a DNSKEY 256 3 8 AQID",
            "text:5: DNSKEY: signed zones cannot be served yet, and without its signatures every validator would take this one for forged",
        ),
        (
            "a NSEC b A",
            "text:5: NSEC: signed zones cannot be served yet, and without its signatures every validator would take this one for forged",
        ),
        (
            "@ DS 1 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "text:5: DS at the apex example.: it belongs to the parent's zone (RFC 4035 section 2.4)",
        ),
        (
            "a NS ns.example.org.\na DNAME b",
            "text:6: DNAME beside the NS records of a.example.: only an apex has both (RFC 6672 section 2.3)",
        ),
        ("a CNAME b\na A 1.2.3.4", "text:5: CNAME beside other records of a.example.: expected it alone"),
        ("a CNAME b\na CNAME c", "text:6: a second CNAME at a.example.: expected one"),
        ("d DNAME x\nd DNAME y", "text:6: a second DNAME at d.example.: expected one"),
        (
            "d DNAME x\nb.d A 1.2.3.4",
            "text:6: b.d.example. lies below the DNAME at text:5: expected nothing there (RFC 6672 section 2.4)",
        ),
        (
            "@ DNAME x.",
            "text:4: ns1.example. lies below the DNAME at text:5: expected nothing there (RFC 6672 section 2.4)",
        ),
        ("a SOA a b 1 2 3 4 5", "text:5: SOA at a.example.: expected it at the apex, example."),
        ("@ SOA a b 2 2 3 4 5", "text:5: a second SOA: expected one"),
        ("* NS x", "text:5: NS at the wildcard *.example.: its meaning is not defined (RFC 4592 section 4)"),
        ("$GENERATE 1-3 x", "text:5: $GENERATE: expected a range, an owner, a type and data"),
        (
            "$GENERATE 3-1 x$ A 1.2.3.$",
            "text:5: $GENERATE: expected a range such as 1-100 or 1-100/2, of at most 65536 numbers",
        ),
        (
            "$GENERATE 0-65536 x$ TXT $",
            "text:5: $GENERATE: expected a range such as 1-100 or 1-100/2, of at most 65536 numbers",
        ),
        ("$GENERATE 254-258 x$ A 1.2.3.$", "text:5: $GENERATE at 256: A: expected IPv4 address"),
    ];
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let found = errors(text);
        if found != expected {
            wrong.push(format!("{text:?}\n  found    {found:?}\n  expected {expected:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn texts_without_an_apex() {
    let cases = [
        ("", "text: zone example. has no SOA record: expected one at its apex"),
        ("a 60 A 1.2.3.4", "text: zone example. has no SOA record: expected one at its apex"),
        ("@ 60 SOA a b 1 2 3 4 5", "text: zone example. has no NS records: expected them at its apex"),
        ("@ NS a", "text:1: no TTL: expected one here, or a $TTL line before"),
        (" 60 A 1.2.3.4", "text:1: an entry without an owner, and none before it"),
    ];
    for (text, expected) in cases {
        assert_eq!(Zones::from_text(ORIGIN, text.as_bytes()).unwrap_err().to_string(), expected, "{text:?}");
    }
    let name = Zones::from_text("a..b", b"").unwrap_err().to_string();
    assert_eq!(name, "text: zone a..b: \"a..b\" is no domain name: a label is empty");
}

#[test]
fn more_errors_than_anyone_reads_are_counted() {
    let shown = errors(&"a A x\n".repeat(30));
    assert_eq!((shown.lines().count(), shown.lines().last()), (21, Some("and 10 more errors")));
}

#[test]
fn oddities_are_warnings() {
    let cases: [(&str, &[&str]); 5] = [
        ("a A 1.2.3.4", &[]),
        ("a 60 A 1.2.3.4\na 70 A 1.2.3.5", &["text:5: the TTLs of this RRset differ: the lowest is served"]),
        ("c NS ns.c", &["text:5: name server ns.c.example. has no address in this zone"]),
        ("c NS ns.c\nns.c A 1.2.3.4", &[]),
        ("c NS ns.d\nd NS ns.example.net.", &[]),
    ];
    for (text, expected) in cases {
        let zones = Zones::from_text(ORIGIN, format!("{HEAD}{text}").as_bytes()).unwrap();
        assert_eq!(zones.summary()[0].warnings, expected, "{text:?}");
    }
}

#[test]
fn what_there_is_to_say_of_a_zone() {
    let zones =
        Zones::from_text("EXAMPLE", format!("{HEAD}a A 1.2.3.4\na AAAA ::1\na A 1.2.3.4\nx.y TXT z").as_bytes())
            .unwrap();
    let summary = Summary { name: "example.".to_owned(), serial: 1, names: 4, records: 6, warnings: vec![] };
    assert_eq!(zones.summary(), [summary]);
}

/// A folder of its own for a test's files, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str, files: &[(&str, &str)]) -> Self {
        let folder = Self(env::temp_dir().join(format!("responder-{}-{test}", process::id())));
        for (name, text) in files {
            let file = folder.0.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    fn source(&self, name: &str, file: &str) -> Source {
        Source { name: name.to_owned(), file: self.0.join(file) }
    }

    /// Errors, with the folder's path taken out.
    fn errors(&self, sources: &[Source]) -> String {
        let errors = Zones::load(sources).unwrap_err().to_string();
        errors.replace(&format!("{}/", self.0.display()), "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone_already = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn include() {
    let main = format!("{HEAD}a A 1.1.1.1\n$INCLUDE sub/one sub\n A 1.1.1.2\nb A 1.1.1.3\n$INCLUDE \"sub/two\"\n");
    let folder = Folder::new(
        "include",
        &[
            ("main", &main),
            ("sub/one", "$ORIGIN x.sub.example.\n@ A 2.2.2.1\n$INCLUDE two\n"),
            ("sub/two", "two A 3.3.3.1\n"),
        ],
    );
    let content = load::read(&folder.source(ORIGIN, "main")).unwrap();
    let mut records = shown(&content);
    records.retain(|record| record.contains(" A ") && !record.starts_with("ns1"));
    assert_eq!(
        records,
        [
            "a.example. 3600 A 01010101",
            "a.example. 3600 A 01010102",
            "b.example. 3600 A 01010103",
            "x.sub.example. 3600 A 02020201",
            "two.x.sub.example. 3600 A 03030301",
            "two.example. 3600 A 03030301",
        ]
    );
}

#[test]
fn files_with_errors() {
    let with = |rest: &str| format!("{HEAD}{rest}\n");
    let files = [
        ("good", with("")),
        ("loop", with("$INCLUDE loop")),
        ("missing", with("$INCLUDE nowhere")),
        ("inner", with("$INCLUDE part\na A x")),
        ("part", "\nb A y\n".to_owned()),
        ("origin", with("$INCLUDE part a..b")),
        ("later", with("$INCLUDE signed")),
        ("signed", "\n\nk NSEC3PARAM 1 0 0 -\n".to_owned()),
    ];
    let files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let folder = Folder::new("errors", &files);
    let one = |file: &str| folder.errors(&[folder.source(ORIGIN, file)]);
    assert_eq!(one("absent"), "absent: cannot read zone example.: No such file or directory (os error 2)");
    assert_eq!(one("."), ".: cannot read zone example.: Is a directory (os error 21)");
    assert_eq!(one("missing"), "missing:5: cannot read nowhere: No such file or directory (os error 2)");
    assert_eq!(one("inner"), "part:2: A: expected IPv4 address\ninner:6: A: expected IPv4 address");
    assert_eq!(one("origin"), "origin:5: \"a..b\" is no domain name: a label is empty");
    assert!(one("later").starts_with("signed:3: NSEC3PARAM: signed zones"), "{}", one("later"));
    assert_eq!(one("loop"), "loop:5: $INCLUDE is 16 files deep: does a file include itself?");
    let twice = [folder.source("example", "good"), folder.source("EXAMPLE.", "good")];
    assert_eq!(folder.errors(&twice), "good: zone EXAMPLE. is given twice");
    let both = [folder.source(ORIGIN, "missing"), folder.source("example.net", "inner")];
    assert_eq!(folder.errors(&both).lines().count(), 3);
    assert!(Zones::load(&[folder.source(ORIGIN, "good")]).is_ok());
}

#[test]
fn a_files_own_name_is_that_of_its_soa() {
    let folder = Folder::new(
        "name",
        &[
            ("a", "$TTL 1\n; x\n$ORIGIN Example.\n@ 60 IN SOA a b 1 2 3 4 5\n"),
            ("b", "a.b. SOA ( a b 1 2 3 4 5 )"),
            ("c", "x A 1.2.3.4\n"),
            ("d", ""),
        ],
    );
    for (file, expected) in [("a", Some("Example.")), ("b", Some("a.b.")), ("c", None), ("d", None), ("absent", None)] {
        assert_eq!(name_in(&folder.0.join(file)).as_deref(), expected, "{file}");
    }
}

#[test]
fn text_that_is_not_utf8_is_taken_by_its_bytes() {
    let text = [HEAD.as_bytes(), b"\xe9 TXT \xff\n"].concat();
    let content = load::read_text(ORIGIN, &text).unwrap();
    assert!(shown(&content).contains(&"\\233.example. 3600 TXT 01ff".to_owned()));
    let text = [HEAD.as_bytes(), b"a A \xff\n"].concat();
    assert_eq!(Zones::from_text(ORIGIN, &text).unwrap_err().to_string(), "text:5: A: expected IPv4 address");
}
