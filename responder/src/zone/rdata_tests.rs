//! Every record type from its presentation format to its bytes; the expected bytes are worked out from each type's RFC.

use super::*;
use crate::zone::tokens::Reader;

/// The data of `TYPE DATA` with the origin `o.`, in hexadecimal; or the error.
fn data(text: &str) -> String {
    let mut tokens = Vec::new();
    assert_eq!(Reader::new(text.as_bytes()).entry(&mut tokens), Some(Ok(false)));
    let mut words = Tokens::new(text.as_bytes(), &tokens, b"\x01o\0");
    let rtype = type_of(words.take().unwrap()).unwrap_or_else(|| panic!("{text}: no such type"));
    let mut bytes = Vec::new();
    match read(rtype, &mut words, &mut bytes) {
        Ok(()) => bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        Err(error) => error.message,
    }
}

fn check_all(cases: &[(&str, &str)]) {
    let mut wrong = Vec::new();
    for (text, expected) in cases {
        let (found, expected) = (data(text), expected.replace(' ', ""));
        if found.replace(' ', "") != expected {
            wrong.push(format!("{text}\n  found    {found}\n  expected {expected}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_type() {
    check_all(&[
        // RFC 1035, RFC 3596
        ("A 192.0.2.1", "c0000201"),
        ("AAAA 2001:db8::1", "20010db8000000000000000000000001"),
        ("AAAA ::ffff:192.0.2.1", "00000000000000000000ffffc0000201"),
        ("NS a", "0161 016f 00"),
        ("CNAME a.b.", "0161 0162 00"),
        ("PTR @", "016f 00"),
        ("MX 10 a.", "000a 0161 00"),
        ("HINFO PC \"a b\"", "025043 03612062"),
        ("MINFO a. b.", "016100 016200"),
        ("MB a.", "016100"),
        ("MG a.", "016100"),
        ("MR a.", "016100"),
        ("MD a.", "016100"),
        ("MF a.", "016100"),
        ("TXT a \"b c\" \"\"", "0161 03622063 00"),
        // RFC 1183, 1348 and 1712
        ("RP a. b.", "016100 016200"),
        ("AFSDB 1 a.", "0001 016100"),
        ("X25 311061700956", "0c 333131303631373030393536"),
        ("ISDN 150862028003217 004", "0f 313530383632303238303033323137 03 303034"),
        ("RT 10 a.", "000a 016100"),
        ("PX 10 a. b.", "000a 016100 016200"),
        ("GPOS -32.6882 116.8652 10.0", "08 2d33322e36383832 08 3131362e38363532 04 31302e30"),
        // RFC 2782, 3403, 2230
        ("SRV 0 5 5060 a.", "0000 0005 13c4 016100"),
        ("NAPTR 100 50 \"s\" \"z3950+N2L\" \"\" a.", "0064 0032 0173 09 7a333935302b4e324c 00 016100"),
        ("KX 1 a.", "0001 016100"),
        // RFC 4398, 4701
        ("CERT 1 2 8 AQID", "0001 0002 08 010203"),
        ("CERT PKIX 2 RSASHA256 AQ ID", "0001 0002 08 010203"),
        ("DHCID AQID BA==", "01020304"),
        ("DNAME a.", "016100"),
        // RFC 4034, 4255, 6698, 8162
        (
            "DS 60485 5 1 2BB183AF5F22588179A53B0A 98631FAD1A292118",
            "ec45 05 01 2bb183af5f22588179a53b0a98631fad1a292118",
        ),
        ("CDS 0 0 0 00", "0000 00 00 00"),
        ("CDNSKEY 257 3 8 AQID", "0101 03 08 010203"),
        ("SSHFP 2 1 0102", "02 01 0102"),
        ("TLSA 3 1 1 01 02", "03 01 01 0102"),
        ("SMIMEA 3 1 1 01 02", "03 01 01 0102"),
        ("OPENPGPKEY AQID", "010203"),
        ("IPSECKEY \\# 3 0a0000", "0a0000"),
        ("IPSECKEY 10 1 2 192.0.2.38 AQID", "0a 01 02 c0000226 010203"),
        ("IPSECKEY 10 0 2 . AQID", "0a 00 02 010203"),
        ("IPSECKEY 10 3 2 g.example. AQID", "0a 03 02 0167 076578616d706c65 00 010203"),
        // RFC 7477, 4408, 6742, 7043
        ("CSYNC 66 3 A NS AAAA", "00000042 0003 00 04 60000008"),
        ("CSYNC 1 0", "00000001 0000"),
        ("CSYNC 1 0 CAA TYPE1", "00000001 0000 0001 40 0101 40"),
        // RFC 1035 section 3.4.2, 1706, 2535, 2874, 3123, 8005
        ("WKS 10.0.0.1 TCP 25 0 7", "0a000001 06 81000040"),
        ("NSAP 0x47.0005.80.005a00.0000.0001.e133.ffffff000161.00", "47000580005a0000000001e133ffffff00016100"),
        ("NSAP-PTR a.", "016100"),
        ("KEY 256 3 RSASHA1 AQID", "0100 03 05 010203"),
        ("EID 01 02", "0102"),
        ("NIMLOC 0102", "0102"),
        ("A6 0 2001:db8::1", "00 20010db8000000000000000000000001"),
        ("A6 64 ::1 a.", "40 0000000000000001 016100"),
        ("A6 61 2001:db8:1:f::1 a.", "3d 07 0000000000000001 016100"),
        ("A6 128 a.", "80 016100"),
        ("SINK 64 0 0 AQID", "40 00 00 010203"),
        ("APL 1:192.168.32.0/21 !1:192.168.38.0/28", "0001 15 03 c0a820 0001 1c 83 c0a826"),
        ("APL 1:224.0.0.0/4 2:FF00:0:0:0:0:0:0:0/8", "0001 04 01 e0 0002 08 01 ff"),
        ("APL 1:0.0.0.0/0", "0001 00 00"),
        ("APL", ""),
        ("HIP 2 200100107B1A74DF AQID rvs.", "08 02 0003 200100107b1a74df 010203 0372767300"),
        ("HIP 2 20010010 AQID", "04 02 0003 20010010 010203"),
        ("NINFO a b", "0161 0162"),
        ("RKEY 0 0 8 AQID", "0000 00 08 010203"),
        // RFC 8777, 9606, 9859, 9886, 4431
        ("AMTRELAY 10 0 1 203.0.113.15", "0a 01 cb00710f"),
        ("AMTRELAY 10 0 2 2001:db8::15", "0a 02 20010db8000000000000000000000015"),
        ("AMTRELAY 128 1 3 r.example.", "80 83 0172 076578616d706c65 00"),
        ("AMTRELAY 10 0 0 .", "0a 00"),
        ("RESINFO qnamemin exterr=15-17", "08 716e616d656d696e 0c 6578746572723d31352d3137"),
        ("DSYNC CDS NOTIFY 5359 a.", "003b 01 14ef 016100"),
        ("DSYNC CSYNC 7 53 a.", "003e 07 0035 016100"),
        ("HHIT AQID", "010203"),
        ("BRID AQID", "010203"),
        ("DOA 0 1 2 \"\" -", "00000000 00000001 02 00"),
        ("DOA 1 2 1 \"text/plain\" AQID", "00000001 00000002 01 0a 746578742f706c61696e 010203"),
        ("WALLET ETH 0x1", "03 455448 03 307831"),
        ("CLA TIERED", "06 544945524544"),
        ("IPN 977000", "00000000000ee868"),
        ("TA 60485 5 1 2BB1", "ec45 05 01 2bb1"),
        ("DLV 60485 RSASHA1 1 2BB1", "ec45 05 01 2bb1"),
        ("SPF v=spf1 -all", "06 763d73706631 04 2d616c6c"),
        ("NID 10 0014:4fff:ff20:ee64", "000a 00144fffff20ee64"),
        ("L32 10 10.1.2.0", "000a 0a010200"),
        ("L64 10 2001:0DB8:1140:1000", "000a 20010db811401000"),
        ("L64 10 2001:db8:1:2", "000a 20010db800010002"),
        ("LP 10 a.", "000a 016100"),
        ("EUI48 00-00-5e-00-53-2a", "00005e00532a"),
        ("EUI64 00-00-5e-ef-10-00-00-2a", "00005eef1000002a"),
        // RFC 7553, 8659
        ("URI 10 1 \"ftp://a\"", "000a 0001 6674703a2f2f61"),
        ("CAA 0 issue \"ca.example\"", "00 05 6973737565 63612e6578616d706c65"),
        ("CAA 128 tbs Unknown", "80 03 746273 556e6b6e6f776e"),
        ("ZONEMD 1 1 1 0102", "00000001 01 01 0102"),
        ("TALINK a. b.", "016100 016200"),
        ("AVC a b", "0161 0162"),
        // RFC 9460, with examples of its appendix D.
        ("HTTPS 0 a.", "0000 016100"),
        ("HTTPS 1 .", "0001 00"),
        ("SVCB 16 foo.example.com. port=53", "0010 03666f6f076578616d706c6503636f6d00 0003 0002 0035"),
        ("SVCB 1 foo.example.com. key667=hello", "0001 03666f6f076578616d706c6503636f6d00 029b 0005 68656c6c6f"),
        ("SVCB 1 a. key667=\"hello\\210qoo\"", "0001 016100 029b 0009 68656c6c6fd2716f6f"),
        (
            "SVCB 1 a. ipv6hint=\"2001:db8::1,2001:db8::53:1\"",
            "0001 016100 0006 0020 20010db8000000000000000000000001 20010db8000000000000000000530001",
        ),
        (
            "SVCB 16 a. mandatory=alpn,ipv4hint alpn=h2,h3-19 ipv4hint=192.0.2.1",
            "0010 016100 0000 0004 0001 0004 0001 0009 02 6832 05 68332d3139 0004 0004 c0000201",
        ),
        ("HTTPS 1 . alpn=\"h2,h3\" no-default-alpn", "0001 00 0001 0006 02 6832 02 6833 0002 0000"),
        ("HTTPS 1 . alpn=h2 port=8443 ech=AQID", "0001 00 0001 0003 026832 0003 0002 20fb 0005 0003 010203"),
        ("SVCB 1 a. key97=\"x\" key9=\"ab\"", "0001 016100 0009 0002 6162 0061 0001 78"),
        ("SVCB 1 a. tls-supported-groups=29,23", "0001 016100 0009 0004 001d 0017"),
        ("SVCB 1 a. dohpath=/dns-query{?dns}", "0001 016100 0007 0010 2f646e732d71756572797b3f646e737d"),
        ("SVCB 1 a. ohttp alpn=h2", "0001 016100 0001 0003 026832 0008 0000"),
        ("SVCB 1 a. key65280", "0001 016100 ff00 0000"),
        // RFC 9460 appendix D.2, figures 8 to 10: order of keys, escapes in lists.
        (
            "SVCB 16 foo.example.org. alpn=h2,h3-19 mandatory=ipv4hint,alpn ipv4hint=192.0.2.1",
            "0010 03666f6f 076578616d706c65 036f7267 00 0000 0004 0001 0004 0001 0009 026832 0568332d3139 0004 0004 c0000201",
        ),
        (
            "SVCB 16 foo.example.org. alpn=\"f\\\\\\\\oo\\\\,bar,h2\"",
            "0010 03666f6f 076578616d706c65 036f7267 00 0001 000c 08 665c6f6f2c626172 02 6832",
        ),
        (
            "SVCB 16 foo.example.org. alpn=f\\\\\\092oo\\092,bar,h2",
            "0010 03666f6f 076578616d706c65 036f7267 00 0001 000c 08 665c6f6f2c626172 02 6832",
        ),
        // RFC 1876
        ("LOC 42 21 54 N 71 06 18 W -24m 30m", "00 33 16 13 89172dd0 70be15f0 00988d20"),
        ("LOC 0 N 0 E 0", "00 12 16 13 80000000 80000000 00989680"),
        ("LOC 90 0 0.000 S 180 0 0 E 42849672.95 90000000m 0m 1", "00 99 00 12 6cb02700 a69fb200 ffffffff"),
        // RFC 3597
        ("TYPE65280 \\# 4 0102 0304", "01020304"),
        ("MX \\# 5 000a 016100", "000a 016100"),
        ("URI \\# 5 000a 0001 78", "000a 0001 78"),
    ]);
}

#[test]
fn data_that_is_wrong() {
    check_all(&[
        ("EUI48 00-00-5e-00-53", "\"00-00-5e-00-53\": expected 6 bytes such as 00-5e"),
        ("EUI48 00-00-5e-00-53-+a", "\"00-00-5e-00-53-+a\": expected 6 bytes such as 00-5e"),
        ("NID 1 1:2:3", "\"1:2:3\": expected four groups such as 2001:db8:1:2"),
        ("NID 1 1:2:3:12345", "\"1:2:3:12345\": expected four groups such as 2001:db8:1:2"),
        ("L32 1 1.2.3", "\"1.2.3\": expected an IPv4 address such as 192.0.2.1"),
        ("AFSDB 65536 a.", "\"65536\": expected a number up to 65535"),
        ("AFSDB -1 a.", "\"-1\": expected a number up to 65535"),
        ("CSYNC 1 0 NOPE", "\"NOPE\" is no record type"),
        ("LOC 91 N 0 E 0", "\"91\": expected degrees, minutes and seconds, then N or S"),
        ("LOC 1 60 N 0 E 0", "\"60\": expected degrees, minutes and seconds, then N or S"),
        ("LOC 90 1 N 0 E 0", "an angle of more than 90 degrees"),
        ("LOC 1 N 1 X 0", "\"X\": expected degrees, minutes and seconds, then E or W"),
        ("LOC 1 2 3.0004 N 1 E 0", "\"3.0004\": expected degrees, minutes and seconds, then N or S"),
        ("LOC 0 N 0 E -100000.01", "an altitude out of range"),
        ("LOC 0 N 0 E 0 100000000", "a size above 90000000 m"),
        ("LOC 0 N 0 E 0 -1", "a size below zero"),
        ("LOC 0 N 0 E 0 1 1 1 1", "\"1\" is more than was expected"),
        ("TXT \\# 2 05 61", "these bytes are no TXT record"),
        ("X25 \\# 2 05 61", "these bytes are no X25 record"),
        ("L32 \\# 7 000a 0a010200 00", "more bytes than a L32 record has"),
    ]);
    check_all(&[
        ("AMTRELAY 10 2 1 1.2.3.4", "\"2\": expected 0, or 1 where discovery is optional"),
        ("AMTRELAY 10 0 4 x", "\"4\": expected the kind of relay, 0 to 3"),
        ("APL 3:1.2.3.4/1", "\"3:1.2.3.4/1\": expected a prefix such as 1:192.0.2.0/24 or !2:2001:db8::/32"),
        ("APL 1:1.2.3.4/33", "\"1:1.2.3.4/33\": expected a prefix such as 1:192.0.2.0/24 or !2:2001:db8::/32"),
        ("A6 129 ::1", "\"129\": expected the length of a prefix, up to 128"),
        ("NSAP 4700", "\"4700\": expected 0x and pairs of hexadecimal digits"),
        ("NSAP 0x470", "\"0x470\": expected 0x and pairs of hexadecimal digits"),
        ("WKS 1.2.3.4 TCP smtp", "\"smtp\": expected the number of a port"),
        ("HIP \\# 4 04020003", "these bytes are no HIP record"),
        ("APL \\# 4 00010804", "these bytes are no APL record"),
        ("UINFO x", "this type is written in the generic form alone: expected \\# LENGTH HEX (RFC 3597 section 5)"),
        // RFC 9460 appendix D.3: failure cases.
        ("SVCB 1 a. key123=abc key123=def", "the key key123 is given twice"),
        ("SVCB 1 a. alpn=h2 key1=h3", "the key alpn is given twice"),
        ("SVCB 1 a. mandatory", "mandatory without a value: expected mandatory=VALUE"),
        ("SVCB 1 a. alpn", "alpn without a value: expected alpn=VALUE"),
        ("SVCB 1 a. port=", "port without a value: expected port=VALUE"),
        ("SVCB 1 a. ipv4hint", "ipv4hint without a value: expected ipv4hint=VALUE"),
        ("SVCB 1 a. no-default-alpn=abc", "\"abc\": expected no value for no-default-alpn"),
        ("SVCB 1 a. mandatory=key123", "mandatory names key123, which is not there (RFC 9460 section 8)"),
        ("SVCB 1 a. mandatory=mandatory", "mandatory names itself (RFC 9460 section 8)"),
        ("SVCB 1 a. mandatory=key123,key123 key123=abc", "mandatory names a key twice (RFC 9460 section 8)"),
        ("SVCB 1 a. no-default-alpn", "no-default-alpn without alpn (RFC 9460 section 7.1.1)"),
        ("SVCB 1 a. port=65536", "\"65536\": expected a port up to 65535"),
        ("SVCB 1 a. ipv6hint=::1,", "\"\": expected an IPv6 address such as 2001:db8::1"),
        ("SVCB 1 a. ech=!", "\"!\": expected Base 64"),
        ("SVCB 1 a. alpn=h2,", "\"\": expected a protocol of 1 to 255 bytes"),
        ("SVCB 1 a. \"alpn=h2\"", "\"alpn=h2\": expected a key before the quote, as in alpn=\"h2\""),
        ("SVCB 1 a. key1=\"\"", "the value of alpn is none that this key may have (RFC 9460 section 7)"),
        ("SVCB \\# 11 0001 00 0003 0004 00350035", "these bytes are no SVCB record"),
        (
            "SVCB 1 a. key01=x",
            "\"key01\": expected a key: mandatory, alpn, no-default-alpn, port, ipv4hint, ech, ipv6hint, dohpath, ohttp, tls-supported-groups, or key and a number up to 65534",
        ),
    ]);
    let long = "x".repeat(256);
    assert_eq!(data(&format!("TXT {long}")), "a string of more than 255 bytes");
    assert_eq!(data(&format!("X25 {long}")), "a string of more than 255 bytes");
}
