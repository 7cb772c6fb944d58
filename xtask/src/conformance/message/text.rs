//! Messages as text, much as dig prints them: of what is compared, and so with names in lower case and sections sorted.

use std::fmt::Write as _;

use super::{
    A, AA, AAAA, AD, ANY, AXFR, CD, CNAME, DNAME, DO, DS, IXFR, Message, NS, OPCODE, OPT, Opt, QR, RD, Record, SOA, TC,
    TXT, labels, name_as_is, u16_at,
};

/// Mnemonics, for people.
const TYPES: &[(u16, &str)] = &[
    (A, "A"),
    (NS, "NS"),
    (CNAME, "CNAME"),
    (SOA, "SOA"),
    (12, "PTR"),
    (15, "MX"),
    (TXT, "TXT"),
    (AAAA, "AAAA"),
    (33, "SRV"),
    (35, "NAPTR"),
    (DNAME, "DNAME"),
    (OPT, "OPT"),
    (DS, "DS"),
    (64, "SVCB"),
    (65, "HTTPS"),
    (249, "TKEY"),
    (250, "TSIG"),
    (IXFR, "IXFR"),
    (AXFR, "AXFR"),
    (ANY, "ANY"),
    (257, "CAA"),
];

const RCODES: &[(u16, &str)] = &[
    (0, "NOERROR"),
    (1, "FORMERR"),
    (2, "SERVFAIL"),
    (3, "NXDOMAIN"),
    (4, "NOTIMP"),
    (5, "REFUSED"),
    (6, "YXDOMAIN"),
    (9, "NOTAUTH"),
    (16, "BADVERS"),
];

impl Message {
    /// As dig would print it, more or less.
    #[must_use]
    pub fn text(&self) -> String {
        let flags = [(QR, "qr"), (AA, "aa"), (TC, "tc"), (RD, "rd"), (0x80, "ra"), (0x40, "z"), (AD, "ad"), (CD, "cd")];
        let flags: Vec<&str> = flags.iter().filter(|(bit, _)| self.is(*bit)).map(|(_, name)| *name).collect();
        let mut text = format!(
            ";; opcode {}, {}, flags: {}, {} bytes\n",
            (self.bits & OPCODE) >> 11,
            rcode_text(self.rcode),
            flags.join(" "),
            self.len
        );
        if let Some(Opt { payload, version, flags, options }) = &self.opt {
            let dnssec = if flags & DO != 0 { ", do" } else { "" };
            let _ = writeln!(text, ";; EDNS {version}, {payload} bytes{dnssec}, options {options:?}");
        }
        let _ = writeln!(text, ";; QUESTION {}", question_text(&self.question));
        for (title, section) in
            [("ANSWER", &self.answer), ("AUTHORITY", &self.authority), ("ADDITIONAL", &self.additional)]
        {
            for record in section {
                let _ = writeln!(text, ";; {title:<10} {}", record.text());
            }
        }
        text
    }
}

impl Record {
    /// The record in a line.
    #[must_use]
    pub fn text(&self) -> String {
        let class = if self.class == 1 { "IN".to_owned() } else { format!("CLASS{}", self.class) };
        let owner = name_text(&self.owner);
        format!("{owner} {} {class} {} {}", self.ttl, type_text(self.rtype), self.data_text())
    }

    fn data_text(&self) -> String {
        match (self.rtype, self.data.as_slice()) {
            (A, &[a, b, c, d]) => std::net::Ipv4Addr::new(a, b, c, d).to_string(),
            (AAAA, data) if data.len() == 16 => <[u8; 16]>::try_from(data)
                .map_or_else(|_| String::new(), |data| std::net::Ipv6Addr::from(data).to_string()),
            (NS | CNAME | DNAME | 12, data) => name_text(data),
            (_, data) => {
                let hex: String = data.iter().take(48).map(|byte| format!("{byte:02x}")).collect();
                let more = if data.len() > 48 { "..." } else { "" };
                format!("\\# {} {hex}{more}", data.len())
            }
        }
    }
}

/// A response code's mnemonic.
#[must_use]
pub fn rcode_text(rcode: u16) -> String {
    let known = RCODES.iter().find(|(code, _)| *code == rcode);
    known.map_or_else(|| format!("RCODE{rcode}"), |(_, text)| (*text).to_owned())
}

/// A type's mnemonic.
#[must_use]
pub fn type_text(rtype: u16) -> String {
    let known = TYPES.iter().find(|(code, _)| *code == rtype);
    known.map_or_else(|| format!("TYPE{rtype}"), |(_, text)| (*text).to_owned())
}

/// A name as text (RFC 1035 section 5.1).
#[must_use]
pub fn name_text(name: &[u8]) -> String {
    let mut text = String::new();
    for label in labels(name) {
        for byte in label {
            match byte {
                b'.' | b'\\' | b'"' | b'(' | b')' | b';' | b'@' | b'$' => {
                    text.push('\\');
                    text.push(char::from(*byte));
                }
                0x21..=0x7e => text.push(char::from(*byte)),
                _ => {
                    let _ = write!(text, "\\{byte:03}");
                }
            }
        }
        text.push('.');
    }
    if text.is_empty() { ".".to_owned() } else { text }
}

fn question_text(question: &[u8]) -> String {
    let mut at = 0;
    match (name_as_is(question, &mut at), u16_at(question, at), u16_at(question, at + 2)) {
        (Some(name), Some(qtype), Some(qclass)) => {
            let class = if qclass == 1 { "IN".to_owned() } else { format!("CLASS{qclass}") };
            format!("{} {class} {}", name_text(&name), type_text(qtype))
        }
        _ => "none".to_owned(),
    }
}
