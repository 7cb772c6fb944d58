//! The fields that record data is made of: each read from text, and measured in data that came in the generic form (RFC 3597).

use std::{collections::BTreeSet, net::Ipv4Addr, str};

use domain::{
    base::{iana::SecurityAlgorithm, scan::Scanner},
    utils::{base16, base64},
};

use super::{ScanError, Tokens, shown, type_of};
use crate::wire::name::AnyRoom;

/// A field of record data.
#[derive(Clone, Copy, Debug)]
pub(super) enum Field {
    U8,
    U16,
    U32,
    /// A domain name.
    Name,
    /// A character string (RFC 1035 section 3.3): at most 255 bytes behind their number.
    Text,
    /// The same, once or more, to the end.
    Texts,
    /// Bytes without a number, quoted, to the end.
    Rest,
    /// Hexadecimal digits to the end.
    Hex,
    /// Base 64 to the end; `-` is nothing at all.
    Base64,
    /// So many bytes in hexadecimal with a dash between them (RFC 7043).
    Dashed(usize),
    /// 64 bits as four groups of hexadecimal digits (RFC 6742).
    Locator,
    /// An IPv4 address.
    V4,
    /// A kind of certificate (RFC 4398 section 2.1).
    Certificate,
    /// A DNSSEC algorithm, by its number or mnemonic.
    Algorithm,
    /// Names of types, as a bitmap (RFC 4034 section 4.1.2), to the end.
    Types,
    /// The name of a type.
    Type,
    /// A scheme of RFC 9859 section 2.1, by its number or mnemonic.
    Scheme,
    U64,
    /// Hexadecimal digits behind `0x`, with dots anywhere between them (RFC 1706 section 5).
    Dotted,
    /// Data of the record's own kind, to the end: how it is read, and whether bytes are such data.
    Own(fn(&mut Tokens<'_>, &mut Vec<u8>) -> Result<(), ScanError>, fn(&[u8]) -> bool),
}

/// RFC 4398 section 2.1.
const CERTIFICATES: [(&[u8], u16); 10] = [
    (b"PKIX", 1),
    (b"SPKI", 2),
    (b"PGP", 3),
    (b"IPKIX", 4),
    (b"ISPKI", 5),
    (b"IPGP", 6),
    (b"ACPKIX", 7),
    (b"IACPKIX", 8),
    (b"URI", 253),
    (b"OID", 254),
];

impl Field {
    /// How many bytes the field takes at the start of some data; `None` if it is not there.
    pub(super) fn length_in(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::U8 | Self::Algorithm | Self::Scheme => Some(1),
            Self::U16 | Self::Certificate | Self::Type => Some(2),
            Self::U32 | Self::V4 => Some(4),
            Self::Locator | Self::U64 => Some(8),
            Self::Dashed(count) => Some(count),
            Self::Name => AnyRoom::empty().read(bytes, 0).map(|name| name.bytes().len()),
            Self::Text => Some(1 + usize::from(*bytes.first()?)),
            Self::Texts => {
                let mut length = 1 + usize::from(*bytes.first()?);
                while let Some(next) = bytes.get(length) {
                    length += 1 + usize::from(*next);
                }
                Some(length)
            }
            Self::Types => {
                let mut length = 0;
                while let Some([_window, octets @ 1..=32, ..]) = bytes.get(length..) {
                    length += 2 + usize::from(*octets);
                }
                Some(length)
            }
            Self::Rest | Self::Hex | Self::Base64 | Self::Dotted => Some(bytes.len()),
            Self::Own(_, is_whole) => is_whole(bytes).then_some(bytes.len()),
        }
    }
}

impl Tokens<'_> {
    /// A character string.
    fn text(&mut self, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
        let text = self.scan_octets()?;
        let length = u8::try_from(text.len()).map_err(|_| ScanError::new("a string of more than 255 bytes"))?;
        bytes.push(length);
        bytes.extend_from_slice(&text);
        Ok(())
    }

    /// Reads a field and appends its bytes.
    pub(super) fn field(&mut self, field: Field, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
        match field {
            Field::U8 => bytes.push(self.number("a number up to 255")?),
            Field::U16 => bytes.extend_from_slice(&self.number::<u16>("a number up to 65535")?.to_be_bytes()),
            Field::U32 => bytes.extend_from_slice(&self.number::<u32>("a number up to 4294967295")?.to_be_bytes()),
            Field::Name => bytes.extend_from_slice(&self.name()?),
            Field::Text => self.text(bytes)?,
            Field::Texts => {
                self.text(bytes)?;
                while self.peek().is_some() {
                    self.text(bytes)?;
                }
            }
            Field::Rest => bytes.extend_from_slice(&self.scan_octets()?),
            Field::Hex => bytes.extend_from_slice(&self.convert_entry(base16::SymbolConverter::new())?),
            Field::Base64 if self.peek() == Some(b"-") => self.take().map(|_| ())?,
            Field::Base64 => bytes.extend_from_slice(&self.convert_entry(base64::SymbolConverter::new())?),
            Field::Certificate => {
                let named = self
                    .peek()
                    .and_then(|token| CERTIFICATES.iter().find(|(name, _)| token.eq_ignore_ascii_case(name)));
                let number = match named {
                    Some((_, number)) => self.take().map(|_| *number)?,
                    None => self.number("a kind of certificate such as PKIX or 1")?,
                };
                bytes.extend_from_slice(&number.to_be_bytes());
            }
            Field::Algorithm => {
                let named = self.peek().and_then(SecurityAlgorithm::from_mnemonic);
                bytes.push(match named {
                    Some(algorithm) => self.take().map(|_| algorithm.to_int())?,
                    None => self.number("an algorithm such as ECDSAP256SHA256 or 13")?,
                });
            }
            Field::Dashed(count) => {
                let token = self.take()?;
                let parts: Vec<&[u8]> = token.split(|byte| *byte == b'-').collect();
                let octets: Option<Vec<u8>> = parts
                    .iter()
                    .map(|part| (part.len() == 2).then(|| hex(part).and_then(|value| u8::try_from(value).ok()))?)
                    .collect();
                let octets = octets.filter(|octets| octets.len() == count);
                bytes.extend(
                    octets.ok_or_else(|| ScanError::unexpected(token, format!("{count} bytes such as 00-5e")))?,
                );
            }
            Field::Locator => {
                let token = self.take()?;
                let groups: Option<Vec<u16>> = token.split(|byte| *byte == b':').map(hex).collect();
                let groups = groups
                    .filter(|groups| groups.len() == 4)
                    .ok_or_else(|| ScanError::unexpected(token, "four groups such as 2001:db8:1:2"))?;
                bytes.extend(groups.iter().flat_map(|group| group.to_be_bytes()));
            }
            Field::V4 => {
                bytes.extend_from_slice(&self.parse::<Ipv4Addr>("an IPv4 address such as 192.0.2.1")?.octets());
            }
            Field::Types => {
                let mut types = BTreeSet::new();
                while self.peek().is_some() {
                    types.insert(self.rtype()?);
                }
                type_bitmap(&types, bytes);
            }
            Field::Type => bytes.extend_from_slice(&self.rtype()?.to_be_bytes()),
            Field::Scheme => {
                let named = self.peek().is_some_and(|token| token.eq_ignore_ascii_case(b"NOTIFY"));
                bytes.push(if named { self.take().map(|_| 1)? } else { self.number("NOTIFY or a number up to 255")? });
            }
            Field::U64 => bytes.extend_from_slice(&self.number::<u64>("a number of 64 bits")?.to_be_bytes()),
            Field::Dotted => {
                let token = self.take()?;
                let fail = || ScanError::unexpected(token, "0x and pairs of hexadecimal digits");
                let digits: Vec<u8> = match token {
                    [b'0', b'x' | b'X', digits @ ..] => digits.iter().copied().filter(|byte| *byte != b'.').collect(),
                    _ => return Err(fail()),
                };
                let (pairs, rest) = digits.as_chunks::<2>();
                let octets = pairs.iter().map(|pair| hex(pair).and_then(|value| u8::try_from(value).ok()));
                let octets: Option<Vec<u8>> = octets.collect();
                bytes.extend(octets.filter(|octets| rest.is_empty() && !octets.is_empty()).ok_or_else(fail)?);
            }
            Field::Own(read, _) => read(self, bytes)?,
        }
        Ok(())
    }

    fn rtype(&mut self) -> Result<u16, ScanError> {
        let token = self.take()?;
        type_of(token).ok_or_else(|| ScanError::new(format!("{} is no record type", shown(token))))
    }
}

fn hex(digits: &[u8]) -> Option<u16> {
    let text = str::from_utf8(digits).ok()?;
    (1..=4).contains(&text.len()).then(|| u16::from_str_radix(text, 16).ok())?.filter(|_| !text.starts_with('+'))
}

/// Windows of 256 types, each with as many bytes as it needs.
fn type_bitmap(types: &BTreeSet<u16>, bytes: &mut Vec<u8>) {
    for window in 0..=u8::MAX {
        let mut map = [0u8; 32];
        let mut length = 0u8;
        for rtype in types.iter().filter(|rtype| rtype.to_be_bytes()[0] == window) {
            let [_, low] = rtype.to_be_bytes();
            map[usize::from(low / 8)] |= 0x80 >> (low % 8);
            length = low / 8 + 1;
        }
        if length > 0 {
            bytes.extend_from_slice(&[window, length]);
            bytes.extend_from_slice(&map[..usize::from(length)]);
        }
    }
}
