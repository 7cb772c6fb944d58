//! Texts of zones: what they say, and the errors of those that cannot be read.

use std::{env, fs, process};

use super::*;

/// The head of every test's zone: four lines.
const HEAD: &str = "$TTL 3600\n@ SOA ns1 host 1 7200 3600 1209600 300\n@ NS ns1\nns1 A 192.0.2.1\n";
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
    match Zones::from_text(ORIGIN, format!("{HEAD}{text}\n").as_bytes()) {
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
    let cases: [(&str, &[&str]); 13] = [
        ("$GENERATE 7-7 a$$$ A 1.2.3.4", &["a\\$7.example. 3600 A 01020304"]),
        ("$GENERATE 291-291 ${0,0,n} A 1.2.3.4", &["3.2.1.example. 3600 A 01020304"]),
        ("$GENERATE 10-10 ${1,7,n}.x A 1.2.3.4", &["b.0.0.0.x.example. 3600 A 01020304"]),
        ("$GENERATE 10-10 ${0,2,N}x A 1.2.3.4", &["a.x.example. 3600 A 01020304"]),
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

/// RFC 1035 section 2.3.4.
#[test]
fn labels_and_names_that_are_too_long() {
    let label = "x".repeat(64);
    let found = errors(&format!("{label} A 1.2.3.4"));
    let shown = "x".repeat(60);
    assert_eq!(found, format!("text:5:1: \"{shown}...\" is no domain name: a label has more than 63 bytes"));
    let name = format!("{}.", "x".repeat(49)).repeat(5);
    let found = errors(&format!("a MX 10 {name}example."));
    let shown = &name[..60];
    assert_eq!(found, format!("text:5:9: MX: \"{shown}...\" is no domain name: it has more than 255 bytes"));
    assert_eq!(errors(&format!("{} A 1.2.3.4", "x".repeat(63))), "it loads");
}

/// A text that ends within an entry, as a copy does that was cut off.
#[test]
fn a_text_that_is_cut_short_says_so() {
    let text = format!("{HEAD}a A 192.0.2");
    let found = Zones::from_text(ORIGIN, text.as_bytes()).unwrap_err().to_string();
    let expected = "text:5:5: A: \"192.0.2\": expected an IPv4 address such as 192.0.2.1 \
                    (the file ends with this line and without a line feed: is it cut short?)";
    assert_eq!(found, expected);
    let folder = Folder::new("cut", &[("zone", &format!("{HEAD}a A 192.0.2.1"))]);
    let warnings = Zones::load(&[folder.source(ORIGIN, "zone")]).unwrap().summary()[0].warnings.clone();
    let file = folder.0.join("zone");
    assert_eq!(warnings, [format!("{}:5:14: the file ends without a line feed: is it cut short?", file.display())]);
}

/// RFC 2181 section 5; names within data are compared as RFC 4034 section 6.2 has it.
#[test]
fn the_same_record_twice_is_one() {
    let cases = [
        ("a MX 1 Mail\na MX 1 mAIL\nA mx 1 mail", 1),
        ("a NAPTR 1 1 \"S\" \"x\" \"\" A.b.\na NAPTR 1 1 \"S\" \"x\" \"\" a.B.", 1),
        ("a NAPTR 1 1 \"S\" \"x\" \"\" a.b.\na NAPTR 1 1 \"s\" \"x\" \"\" a.b.", 2),
        ("a SRV 1 1 1 X\na SRV 1 1 1 x", 1),
        ("a TXT x\na TXT X", 2),
        ("a LP 1 x.\na LP 1 X.", 2),
        ("a A 1.2.3.4\na 60 A 1.2.3.4", 1),
    ];
    for (text, expected) in cases {
        assert_eq!(records(text).len(), expected, "{text:?}");
    }
}

/// The head has four lines, so the first error is on line 5.
#[test]
fn texts_with_errors() {
    let cases: [(&str, &str); 77] = [
        ("a", "text:5:1: the entry ends where a type was expected"),
        ("a 60 IN", "text:5:6: the entry ends where a type was expected"),
        ("a A", "text:5:3: A: the entry ends where more was expected"),
        ("a A 1.2.3", "text:5:5: A: \"1.2.3\": expected an IPv4 address such as 192.0.2.1"),
        ("a A 1.2.3.4 5", "text:5:5: A: \"5\" is more than was expected"),
        ("a AAAA 1.2.3.4", "text:5:8: AAAA: \"1.2.3.4\": expected an IPv6 address such as 2001:db8::1"),
        ("a AAAA ::1::", "text:5:8: AAAA: \"::1::\": expected an IPv6 address such as 2001:db8::1"),
        (
            "a XA 1.2.3.4",
            "text:5:3: \"XA\" is no record type: expected a TTL, the class IN, or a type such as AAAA or TYPE65",
        ),
        (
            "a TYPE65536 \\# 0",
            "text:5:3: \"TYPE65536\" is no record type: expected a TTL, the class IN, or a type such as AAAA or TYPE65",
        ),
        ("a CH A 1.2.3.4", "text:5:3: \"CH\": expected class IN, the only one that is served"),
        ("a CLASS3 A 1.2.3.4", "text:5:3: \"CLASS3\": expected class IN, the only one that is served"),
        (
            "a IN IN A 1.2.3.4",
            "text:5:6: \"IN\" is no record type: expected a TTL, the class IN, or a type such as AAAA or TYPE65",
        ),
        (
            "a 60 60 A 1.2.3.4",
            "text:5:6: \"60\" is no record type: expected a TTL, the class IN, or a type such as AAAA or TYPE65",
        ),
        (
            "a 2147483648 A 1.2.3.4",
            "text:5:3: \"2147483648\" is no time: expected seconds up to 2147483647, or units as in 1d12h",
        ),
        ("a 1x A 1.2.3.4", "text:5:3: \"1x\" is no time: expected seconds up to 2147483647, or units as in 1d12h"),
        ("$TTL", "text:5:1: the entry ends where more was expected"),
        ("$TTL h", "text:5:6: \"h\" is no time: expected seconds up to 2147483647, or units as in 1d12h"),
        ("$TTL 1 2", "text:5:6: \"2\" is more than was expected"),
        ("$ORIGIN", "text:5:1: the entry ends where more was expected"),
        ("$ORIGIN a..b", "text:5:9: \"a..b\" is no domain name: a label is empty"),
        ("$MAGIC x", "text:5:1: \"$MAGIC\" is no directive: expected $ORIGIN, $TTL, $INCLUDE or $GENERATE"),
        ("$INCLUDE x", "text:5:10: $INCLUDE is not taken here"),
        ("a..b A 1.2.3.4", "text:5:1: \"a..b\" is no domain name: a label is empty"),
        (".a A 1.2.3.4", "text:5:1: \".a\" is no domain name: a label is empty"),
        ("a\\256 A 1.2.3.4", "text:5:1: \"a\\256\" is no domain name: an escape above \\255"),
        ("\"\" A 1.2.3.4", "text:5:1: \"\" is no domain name: it is empty"),
        ("a.example.org. A 1.2.3.4", "text:5:1: a.example.org. is not in zone example."),
        (
            "example.org. A 1.2.3.4\n A 1.2.3.5",
            "text:5:1: example.org. is not in zone example.\ntext:6:2: example.org. is not in zone example.",
        ),
        ("a TXT", "text:5:3: TXT: the entry ends where more was expected"),
        ("a TXT \"x", "text:5:7: a quoted string without an end: expected \" on the same line"),
        ("a TXT x\\1", "text:5:7: TXT: \"x\\1\": an escape of fewer than three digits: expected \\DDD"),
        ("a MX x y", "text:5:6: MX: \"x\": expected a number"),
        ("a MX 10", "text:5:6: MX: the entry ends where more was expected"),
        ("a MX 10 x..", "text:5:9: MX: \"x..\" is no domain name: a label is empty"),
        ("a (\nA\nx )", "text:7:1: A: \"x\": expected an IPv4 address such as 192.0.2.1"),
        ("a ( A 1.2.3.4", "text:5:3: \"(\" without \")\" until the end of the file"),
        ("a A 1.2.3.4 )", "text:5:13: \")\" without \"(\""),
        (
            "a A x\nb A y\nc XX\nd A 1.2.3.4",
            "text:5:5: A: \"x\": expected an IPv4 address such as 192.0.2.1\ntext:6:5: A: \"y\": expected an IPv4 address such as 192.0.2.1\ntext:7:3: \"XX\" is no record type: expected a TTL, the class IN, or a type such as AAAA or TYPE65",
        ),
        ("a TYPE65280 \\# 2 01", "text:5:18: TYPE65280: \"01\": expected as many bytes as the number before them says"),
        ("a TYPE65280 \\# 1 0", "text:5:18: TYPE65280: \"0\": expected an even number of hexadecimal digits"),
        (
            "a TYPE65280 x",
            "text:5:3: TYPE65280: this type is written in the generic form alone: expected \\# LENGTH HEX (RFC 3597 section 5)",
        ),
        ("a A \\# 3 010203", "text:5:10: A: these bytes are no A record"),
        ("a A \\# 5 0102030405", "text:5:10: A: more bytes than a A record has"),
        ("a MX \\# 4 0000 c000", "text:5:16: MX: these bytes are no MX record"),
        ("a LOC \\# 1 00", "text:5:12: LOC: these bytes are no LOC record"),
        ("a AFSDB \\# 3 000101", "text:5:14: AFSDB: these bytes are no AFSDB record"),
        (
            "a DNSKEY 256 3 8 AQID",
            "text:5:3: DNSKEY: signed zones cannot be served yet, and without its signatures every validator would take this one for forged",
        ),
        (
            "a NSEC b A",
            "text:5:3: NSEC: signed zones cannot be served yet, and without its signatures every validator would take this one for forged",
        ),
        (
            "@ DS 1 13 2 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
            "text:5:3: DS at the apex example.: it belongs to the parent's zone (RFC 4035 section 2.4)",
        ),
        (
            "a NS ns.example.org.\na DNAME b",
            "text:6:3: DNAME beside the NS records of a.example.: only an apex has both (RFC 6672 section 2.3)",
        ),
        (
            "a CNAME b\na A 1.2.3.4",
            "text:5:3: CNAME beside other records of a.example.: expected it alone (RFC 2181 section 10.1)",
        ),
        ("a CNAME b\na CNAME c", "text:6:3: a second CNAME at a.example.: expected one"),
        ("d DNAME x\nd DNAME y", "text:6:3: a second DNAME at d.example.: expected one"),
        (
            "d DNAME x\nb.d A 1.2.3.4",
            "text:6:5: b.d.example. lies below the DNAME at text:5:3: expected nothing there (RFC 6672 section 2.4)",
        ),
        (
            "@ DNAME x.",
            "text:4:5: ns1.example. lies below the DNAME at text:5:3: expected nothing there (RFC 6672 section 2.4)",
        ),
        ("a SOA a b 1 2 3 4 5", "text:5:3: SOA at a.example.: expected it at the apex, example."),
        ("@ SOA a b 2 2 3 4 5", "text:5:3: a second SOA: expected one, that at text:2:3"),
        // Kinds that the table above does not have.
        ("a A \\# 4 0102030", "text:5:10: A: \"0102030\": expected an even number of hexadecimal digits"),
        ("a OPENPGPKEY AQ!D", "text:5:14: OPENPGPKEY: \"AQ!D\": expected Base 64"),
        ("a OPENPGPKEY AQID A", "text:5:19: OPENPGPKEY: \"A\": expected Base 64, and it ends too early"),
        ("a CERT 1 2 8 AQID=", "text:5:14: CERT: \"AQID=\": expected Base 64"),
        ("a TXT \"x\" y\\999", "text:5:11: TXT: \"y\\999\": an escape above \\255"),
        ("a TXT x\\", "text:5:7: TXT: \"x\\\": a backslash at the end"),
        ("a ANY \\# 0", "text:5:3: \"ANY\" is no type that a zone holds"),
        ("a TYPE41 \\# 0", "text:5:3: \"TYPE41\" is no type that a zone holds"),
        (
            "a ( A 1.2.3.4\n  more\nb A x",
            "text:5:3: \"(\" without \")\" until the end of the file\ntext:7:5: A: \"x\": expected an IPv4 address such as 192.0.2.1",
        ),
        ("a TXT ( (", "text:5:9: \"(\" while that at 5:7 is open: expected \")\" first"),
        // Errors of entries and of the zone come out together.
        (
            "a CNAME b\na A x\na MX 1 b",
            "text:5:3: CNAME beside other records of a.example.: expected it alone (RFC 2181 section 10.1)\ntext:6:5: A: \"x\": expected an IPv4 address such as 192.0.2.1",
        ),
        ("@ SOA NS1 HOST 1 2h 1h 2w 5m\n@ SOA a b 2 2 3 4 5", "text:6:3: a second SOA: expected one, that at text:2:3"),
        (
            "$GENERATE 1-2 x${0,64} A 1.2.3.4",
            "text:5:15: $GENERATE: \"0,64\": expected offset,width,base as in ${0,3,d}",
        ),
        (
            "$GENERATE 1-2 x${0,1,q} A 1.2.3.4",
            "text:5:15: $GENERATE: \"0,1,q\": expected offset,width,base as in ${0,3,d}",
        ),
        ("* DNAME x", "text:5:3: DNAME at the wildcard *.example.: its meaning is not defined (RFC 4592 section 4.4)"),
        ("a 60 CH TXT x", "text:5:6: \"CH\": expected class IN, the only one that is served"),
        ("$GENERATE 1-3 x", "text:5:1: $GENERATE: expected a range, an owner, a type and data"),
        (
            "$GENERATE 3-1 x$ A 1.2.3.$",
            "text:5:11: $GENERATE: expected a range such as 1-100 or 1-100/2, of at most 65536 numbers",
        ),
        (
            "$GENERATE 0-65536 x$ TXT $",
            "text:5:11: $GENERATE: expected a range such as 1-100 or 1-100/2, of at most 65536 numbers",
        ),
        (
            "$GENERATE 254-258 x$ A 1.2.3.$",
            "text:5:24: $GENERATE at 256: A: \"1.2.3.256\": expected an IPv4 address such as 192.0.2.1",
        ),
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
        ("", "text:1:1: zone example. has no SOA record: expected one at its apex (RFC 1035 section 5.2)"),
        (
            "a 60 A 1.2.3.4",
            "text:1:1: zone example. has no SOA record: expected one at its apex (RFC 1035 section 5.2)",
        ),
        (
            "@ 60 SOA a b 1 2 3 4 5",
            "text:1:6: zone example. has no NS records: expected them at its apex (RFC 1034 section 4.2.1)",
        ),
        ("@ NS a", "text:1:3: no TTL: expected one here, or a $TTL line before"),
        (" 60 A 1.2.3.4", "text:1:2: an entry without an owner, and none before it"),
    ];
    for (text, expected) in cases {
        assert_eq!(
            Zones::from_text(ORIGIN, format!("{text}\n").as_bytes()).unwrap_err().to_string(),
            expected,
            "{text:?}"
        );
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
fn what_there_is_to_say_of_a_zone() {
    let zones =
        Zones::from_text("EXAMPLE", format!("{HEAD}a A 1.2.3.4\na AAAA ::1\na A 1.2.3.4\nx.y TXT z").as_bytes())
            .unwrap();
    let summary = Summary { name: "example.".to_owned(), serial: 1, names: 4, records: 6, warnings: vec![] };
    assert_eq!(zones.summary(), [summary]);
}

/// A folder of its own for a test's files, gone with it.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(test: &str, files: &[(&str, &str)]) -> Self {
        let folder = Self(env::temp_dir().join(format!("responder-{}-{test}", process::id())));
        for (name, text) in files {
            let file = folder.0.join(name);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        }
        folder
    }

    pub(super) fn source(&self, name: &str, file: &str) -> Source {
        Source { name: name.to_owned(), file: self.0.join(file) }
    }

    pub(super) fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join(file), text).unwrap();
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
        ("there", with("$INCLUDE back")),
        ("back", "$INCLUDE ./there\n".to_owned()),
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
    assert_eq!(one("missing"), "missing:5:10: $INCLUDE: cannot read nowhere: No such file or directory (os error 2)");
    assert_eq!(
        one("inner"),
        "inner:6:5: A: \"x\": expected an IPv4 address such as 192.0.2.1\n\
         part:2:5: A: \"y\": expected an IPv4 address such as 192.0.2.1"
    );
    assert_eq!(one("origin"), "origin:5:15: \"a..b\" is no domain name: a label is empty");
    assert!(one("later").starts_with("signed:3:3: NSEC3PARAM: signed zones"), "{}", one("later"));
    assert_eq!(one("loop"), "loop:5:10: $INCLUDE: loop includes itself");
    assert_eq!(one("there"), "back:1:10: $INCLUDE: ./there includes itself");
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
    let error = Zones::from_text(ORIGIN, &text).unwrap_err().to_string();
    assert_eq!(error, "text:5:5: A: \"\u{fffd}\": expected an IPv4 address such as 192.0.2.1");
}
