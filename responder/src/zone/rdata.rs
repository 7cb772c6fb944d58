//! Record data from its presentation format to its bytes on the wire.
//!
//! The types themselves are those of the crate `domain`, which read from anything that implements its `Scanner`: here, the tokens of an entry. Types
//! that it has no presentation format for are made of a few kinds of fields and are listed in [`LAYOUTS`]. RFC 3597's generic form is taken
//! for all types, and checked against the type where it is known.

use std::{fmt, str};

use domain::{
    base::{
        CharStr, Name, ParseRecordData, Rtype,
        iana::SecurityAlgorithm,
        rdata::ComposeRecordData,
        scan::{ConvertSymbols, EntrySymbol, Scanner, ScannerError, Symbol},
    },
    dep::octseq::{Parser, str::Str},
    rdata::ZoneRecordData,
    utils::{base16, base64},
};

use super::tokens::{Token, escape, unescape};
use crate::wire::{
    self,
    name::{LABEL_MAX, NAME_MAX},
};

/// A field of record data.
#[derive(Clone, Copy, Debug)]
enum Field {
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
    /// Base 64 to the end.
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
}

/// Types whose data is a row of fields.
const LAYOUTS: &[(&str, u16, &[Field])] = {
    use Field::*;
    &[
        ("AFSDB", 18, &[U16, Name]),
        ("X25", 19, &[Text]),
        ("ISDN", 20, &[Texts]),
        ("RT", 21, &[U16, Name]),
        ("PX", 26, &[U16, Name, Name]),
        ("GPOS", 27, &[Text, Text, Text]),
        ("KX", 36, &[U16, Name]),
        ("CERT", 37, &[Certificate, U16, Algorithm, Base64]),
        ("DHCID", 49, &[Base64]),
        ("SMIMEA", 53, &[U8, U8, U8, Hex]),
        ("TALINK", 58, &[Name, Name]),
        ("CSYNC", 62, &[U32, U16, Types]),
        ("SPF", 99, &[Texts]),
        ("NID", 104, &[U16, Locator]),
        ("L32", 105, &[U16, V4]),
        ("L64", 106, &[U16, Locator]),
        ("LP", 107, &[U16, Name]),
        ("EUI48", 108, &[Dashed(6)]),
        ("EUI64", 109, &[Dashed(8)]),
        ("URI", 256, &[U16, U16, Rest]),
        ("AVC", 258, &[Texts]),
    ]
};

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

/// LOC (RFC 1876) is like no other type.
const LOC: u16 = 29;

/// The type that a token names: a mnemonic or `TYPE12345` (RFC 3597 section 5).
pub(super) fn type_of(token: &[u8]) -> Option<u16> {
    let listed =
        || LAYOUTS.iter().find(|(name, ..)| token.eq_ignore_ascii_case(name.as_bytes())).map(|(_, number, _)| *number);
    let generic = || {
        let (prefix, digits) = token.split_at_checked(4)?;
        let digits = str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        prefix.eq_ignore_ascii_case(b"TYPE").then(|| digits.parse().ok())?
    };
    Rtype::from_mnemonic(token).map(Rtype::to_int).or_else(listed).or_else(generic)
}

/// A type's mnemonic, for messages.
pub(super) fn type_name(rtype: u16) -> String {
    Rtype::from_int(rtype).to_string()
}

/// What is wrong with an entry, and the index of the token where it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DataError {
    pub(super) message: String,
    pub(super) token: usize,
}

/// Reads the data of a record of type `rtype` from the tokens that are left, and appends its bytes to `bytes`.
pub(super) fn read(rtype: u16, tokens: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), DataError> {
    read_into(rtype, tokens, bytes).map_err(|error| DataError { message: error.0, token: tokens.position() })
}

fn read_into(rtype: u16, tokens: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
    let start = bytes.len();
    let layout = LAYOUTS.iter().find(|(_, number, _)| *number == rtype).map(|(.., fields)| *fields);
    if !tokens.is_generic() {
        if let Some(fields) = layout {
            for field in fields {
                tokens.field(*field, bytes)?;
            }
            return tokens.end();
        }
        if rtype == LOC {
            return super::loc::read(tokens, bytes);
        }
    }
    let generic = tokens.is_generic();
    let data = ZoneRecordData::<Vec<u8>, Name<Vec<u8>>>::scan(Rtype::from_int(rtype), tokens)?;
    tokens.end()?;
    let Ok(()) = data.compose_rdata(bytes);
    if generic {
        check(rtype, layout, &bytes[start..])?;
    }
    Ok(())
}

/// Whether bytes in the generic form are data of a known type.
fn check(rtype: u16, layout: Option<&[Field]>, bytes: &[u8]) -> Result<(), ScanError> {
    let longer = || ScanError(format!("more bytes than a {} record has", type_name(rtype)));
    let other = || ScanError(format!("these bytes are no {} record", type_name(rtype)));
    if rtype == LOC {
        return if super::loc::is_whole(bytes) { Ok(()) } else { Err(other()) };
    }
    if let Some(fields) = layout {
        let rest = fields.iter().try_fold(bytes, |rest, field| rest.get(field.length_in(rest)?..));
        return if rest.ok_or_else(other)?.is_empty() { Ok(()) } else { Err(longer()) };
    }
    let mut parser = Parser::from_ref(bytes);
    let parsed =
        ZoneRecordData::<&[u8], domain::base::ParsedName<&[u8]>>::parse_rdata(Rtype::from_int(rtype), &mut parser);
    let data = parsed.ok().flatten().ok_or_else(other)?;
    if parser.remaining() > 0 {
        return Err(longer());
    }
    // A name that was compressed comes out longer: it pointed into a message that is not here.
    let mut composed = Vec::with_capacity(bytes.len());
    let Ok(()) = data.compose_rdata(&mut composed);
    if composed == bytes { Ok(()) } else { Err(other()) }
}

impl Field {
    /// How many bytes the field takes at the start of some data; `None` if it is not there.
    fn length_in(self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::U8 | Self::Algorithm => Some(1),
            Self::U16 | Self::Certificate => Some(2),
            Self::U32 | Self::V4 => Some(4),
            Self::Locator => Some(8),
            Self::Dashed(count) => Some(count),
            Self::Name => wire::name::AnyRoom::empty().read(bytes, 0).map(|name| name.bytes().len()),
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
            Self::Rest | Self::Hex | Self::Base64 => Some(bytes.len()),
        }
    }
}

/// An error of the scanner. Its place is the token that was being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScanError(pub(super) String);

impl fmt::Display for ScanError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for ScanError {}

impl ScannerError for ScanError {
    fn custom(message: &'static str) -> Self {
        Self(message.to_owned())
    }

    fn end_of_entry() -> Self {
        Self("the entry ends where more was expected".to_owned())
    }

    fn short_buf() -> Self {
        Self("too much data".to_owned())
    }

    fn trailing_tokens() -> Self {
        Self("more than was expected".to_owned())
    }
}

/// The tokens of an entry, taken one after the other.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    text: &'a [u8],
    tokens: &'a [Token],
    next: usize,
    /// What names without a dot at their end are relative to.
    origin: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a [u8], tokens: &'a [Token], origin: &'a [u8]) -> Self {
        Self { text, tokens, next: 0, origin }
    }

    /// The next token as it is written.
    pub(super) fn peek(&self) -> Option<&'a [u8]> {
        Some(&self.text[self.tokens.get(self.next)?.range.clone()])
    }

    /// Whether the next token is quoted: then it is no keyword.
    pub(super) fn is_quoted(&self) -> bool {
        self.tokens.get(self.next).is_some_and(|token| token.quoted)
    }

    pub(super) fn take(&mut self) -> Result<&'a [u8], ScanError> {
        let token = self.peek().ok_or_else(ScanError::end_of_entry)?;
        self.next += 1;
        Ok(token)
    }

    pub(super) fn end(&self) -> Result<(), ScanError> {
        match self.peek() {
            None => Ok(()),
            Some(extra) => Err(ScanError(format!("{:?} is more than was expected", String::from_utf8_lossy(extra)))),
        }
    }

    /// RFC 3597 section 5: `\# length data`.
    fn is_generic(&self) -> bool {
        self.peek() == Some(b"\\#") && !self.is_quoted()
    }

    /// The token to which an error belongs: the one read last, unless the entry ended too early.
    pub(super) fn position(&self) -> usize {
        self.next.saturating_sub(1).min(self.tokens.len().saturating_sub(1))
    }

    /// The next token as a name on the wire, relative to the origin unless it ends in a dot.
    pub(super) fn name(&mut self) -> Result<Vec<u8>, ScanError> {
        let token = self.take()?;
        name(token, self.origin)
    }

    pub(super) fn number<T: str::FromStr>(&mut self, what: &str) -> Result<T, ScanError> {
        let token = self.take()?;
        let number = str::from_utf8(token).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        number
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| ScanError(format!("{:?} is not {what}", String::from_utf8_lossy(token))))
    }

    fn text(&mut self, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
        let text = self.scan_octets()?;
        let length = u8::try_from(text.len()).map_err(|_| ScanError("a string of more than 255 bytes".to_owned()))?;
        bytes.push(length);
        bytes.extend_from_slice(&text);
        Ok(())
    }

    fn field(&mut self, field: Field, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
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
            Field::Base64 => bytes.extend_from_slice(&self.convert_entry(base64::SymbolConverter::new())?),
            Field::Certificate => {
                let named = self
                    .peek()
                    .and_then(|token| CERTIFICATES.iter().find(|(name, _)| token.eq_ignore_ascii_case(name)));
                self.next += usize::from(named.is_some());
                let number = named.map_or_else(|| self.number("a kind of certificate"), |(_, number)| Ok(*number))?;
                bytes.extend_from_slice(&number.to_be_bytes());
            }
            Field::Algorithm => {
                let named = self.peek().and_then(SecurityAlgorithm::from_mnemonic);
                self.next += usize::from(named.is_some());
                bytes.push(named.map_or_else(|| self.number("an algorithm"), |algorithm| Ok(algorithm.to_int()))?);
            }
            Field::Dashed(count) => {
                let token = self.take()?;
                let parts: Vec<&[u8]> = token.split(|byte| *byte == b'-').collect();
                let octets: Option<Vec<u8>> = parts
                    .iter()
                    .map(|part| (part.len() == 2).then(|| hex(part).and_then(|value| u8::try_from(value).ok()))?)
                    .collect();
                let octets = octets.filter(|octets| octets.len() == count);
                bytes.extend(octets.ok_or_else(|| {
                    ScanError(format!("{:?}: expected {count} bytes such as 00-5e", String::from_utf8_lossy(token)))
                })?);
            }
            Field::Locator => {
                let token = self.take()?;
                let groups: Option<Vec<u16>> = token.split(|byte| *byte == b':').map(hex).collect();
                let groups = groups.filter(|groups| groups.len() == 4).ok_or_else(|| {
                    ScanError(format!(
                        "{:?}: expected four groups such as 2001:db8:1:2",
                        String::from_utf8_lossy(token)
                    ))
                })?;
                bytes.extend(groups.iter().flat_map(|group| group.to_be_bytes()));
            }
            Field::V4 => {
                let token = self.take()?;
                let address: Option<std::net::Ipv4Addr> = str::from_utf8(token).ok().and_then(|text| text.parse().ok());
                bytes.extend_from_slice(
                    &address.ok_or_else(|| ScanError("expected an IPv4 address".to_owned()))?.octets(),
                );
            }
            Field::Types => {
                let mut types = std::collections::BTreeSet::new();
                while let Some(token) = self.peek() {
                    self.next += 1;
                    types.insert(
                        type_of(token).ok_or_else(|| {
                            ScanError(format!("{:?} is no record type", String::from_utf8_lossy(token)))
                        })?,
                    );
                }
                type_bitmap(&types, bytes);
            }
        }
        Ok(())
    }
}

fn hex(digits: &[u8]) -> Option<u16> {
    let text = str::from_utf8(digits).ok()?;
    (1..=4).contains(&text.len()).then(|| u16::from_str_radix(text, 16).ok())?.filter(|_| !text.starts_with('+'))
}

/// Windows of 256 types, each with as many bytes as it needs.
fn type_bitmap(types: &std::collections::BTreeSet<u16>, bytes: &mut Vec<u8>) {
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

/// A name as it is written, on the wire. `@` is the origin.
pub(super) fn name(token: &[u8], origin: &[u8]) -> Result<Vec<u8>, ScanError> {
    let fail = |why: &str| ScanError(format!("{:?} is no domain name: {why}", String::from_utf8_lossy(token)));
    match token {
        b"@" => return Ok(origin.to_vec()),
        b"." => return Ok(vec![0]),
        b"" => return Err(fail("it is empty")),
        _ => {}
    }
    let mut wire = Vec::with_capacity(token.len() + origin.len() + 1);
    let mut length_at = 0;
    wire.push(0);
    let mut rest = token;
    let mut absolute = false;
    while let [byte, after @ ..] = rest {
        absolute = *byte == b'.';
        let mut value = *byte;
        rest = after;
        if absolute {
            if wire.len() == length_at + 1 {
                return Err(fail("a label is empty"));
            }
            length_at = wire.len();
            wire.push(0);
            continue;
        }
        if value == b'\\' {
            let (escaped, length) = escape(after).map_err(fail)?;
            value = escaped;
            rest = &after[length..];
        }
        wire.push(value);
        let label = wire.len() - length_at - 1;
        wire[length_at] = u8::try_from(label)
            .ok()
            .filter(|_| label <= LABEL_MAX)
            .ok_or_else(|| fail("a label has more than 63 bytes"))?;
    }
    if !absolute {
        wire.extend_from_slice(origin);
    }
    if wire.len() > NAME_MAX { Err(fail("it has more than 255 bytes")) } else { Ok(wire) }
}

/// The symbols of a token, as `domain`'s converters want them.
fn symbols(token: &[u8], mut op: impl FnMut(Symbol) -> Result<(), ScanError>) -> Result<(), ScanError> {
    let mut rest = token;
    while let [byte, after @ ..] = rest {
        if *byte == b'\\' {
            let (value, length) = escape(after).map_err(|error| ScanError(error.to_owned()))?;
            op(if length == 3 { Symbol::DecimalEscape(value) } else { Symbol::SimpleEscape(value) })?;
            rest = &after[length..];
        } else {
            op(Symbol::Char(char::from(*byte)))?;
            rest = after;
        }
    }
    Ok(())
}

impl Scanner for Tokens<'_> {
    type Octets = Vec<u8>;
    type OctetsBuilder = Vec<u8>;
    type Name = Name<Vec<u8>>;
    type Error = ScanError;

    fn has_space(&self) -> bool {
        self.tokens.get(self.next).is_some_and(|token| !token.glued)
    }

    fn continues(&mut self) -> bool {
        self.peek().is_some()
    }

    fn scan_symbols<F>(&mut self, op: F) -> Result<(), ScanError>
    where
        F: FnMut(Symbol) -> Result<(), ScanError>,
    {
        symbols(self.take()?, op)
    }

    fn scan_entry_symbols<F>(&mut self, mut op: F) -> Result<(), ScanError>
    where
        F: FnMut(EntrySymbol) -> Result<(), ScanError>,
    {
        while self.peek().is_some() {
            symbols(self.take()?, |symbol| op(symbol.into()))?;
            op(EntrySymbol::EndOfToken)?;
        }
        Ok(())
    }

    fn convert_token<C: ConvertSymbols<Symbol, ScanError>>(&mut self, mut convert: C) -> Result<Vec<u8>, ScanError> {
        let mut bytes = Vec::new();
        symbols(self.take()?, |symbol| {
            bytes.extend_from_slice(convert.process_symbol(symbol)?.unwrap_or_default());
            Ok(())
        })?;
        bytes.extend_from_slice(convert.process_tail()?.unwrap_or_default());
        Ok(bytes)
    }

    fn convert_entry<C: ConvertSymbols<EntrySymbol, ScanError>>(
        &mut self,
        mut convert: C,
    ) -> Result<Vec<u8>, ScanError> {
        let mut bytes = Vec::new();
        while self.peek().is_some() {
            symbols(self.take()?, |symbol| {
                bytes.extend_from_slice(convert.process_symbol(symbol.into())?.unwrap_or_default());
                Ok(())
            })?;
        }
        bytes.extend_from_slice(convert.process_tail()?.unwrap_or_default());
        Ok(bytes)
    }

    fn scan_octets(&mut self) -> Result<Vec<u8>, ScanError> {
        unescape(self.take()?).map_err(|error| ScanError(error.to_owned()))
    }

    fn scan_svcb_octets(&mut self) -> Result<Vec<u8>, ScanError> {
        let mut octets = self.scan_octets()?;
        // key="value with blanks"
        if self.is_quoted() && !self.has_space() {
            octets.extend(self.scan_octets()?);
        }
        Ok(octets)
    }

    fn scan_ascii_str<F, T>(&mut self, op: F) -> Result<T, ScanError>
    where
        F: FnOnce(&str) -> Result<T, ScanError>,
    {
        let octets = self.scan_octets()?;
        let text = str::from_utf8(&octets).ok().filter(|text| text.is_ascii());
        op(text.ok_or_else(|| ScanError("expected plain ASCII".to_owned()))?)
    }

    fn scan_name(&mut self) -> Result<Self::Name, ScanError> {
        let wire = self.name()?;
        Name::from_octets(wire).map_err(|error| ScanError(error.to_string()))
    }

    fn scan_charstr(&mut self) -> Result<CharStr<Vec<u8>>, ScanError> {
        CharStr::from_octets(self.scan_octets()?).map_err(|_| ScanError("a string of more than 255 bytes".to_owned()))
    }

    fn scan_string(&mut self) -> Result<Str<Vec<u8>>, ScanError> {
        Str::from_utf8(self.scan_octets()?).map_err(|_| ScanError("expected UTF-8".to_owned()))
    }

    fn scan_charstr_entry(&mut self) -> Result<Vec<u8>, ScanError> {
        let mut bytes = Vec::new();
        self.field(Field::Texts, &mut bytes)?;
        Ok(bytes)
    }

    fn scan_opt_unknown_marker(&mut self) -> Result<bool, ScanError> {
        let marked = self.is_generic();
        self.next += usize::from(marked);
        Ok(marked)
    }

    fn octets_builder(&mut self) -> Result<Vec<u8>, ScanError> {
        Ok(Vec::new())
    }
}

#[cfg(test)]
#[path = "rdata_tests.rs"]
mod tests;
