//! The tokens of an entry as a `Scanner`, from which `domain`'s record data types and ours read.

use std::{borrow::Cow, fmt, str};

use domain::{
    base::{
        CharStr, Name,
        scan::{ConvertSymbols, EntrySymbol, Scanner, ScannerError, Symbol},
    },
    dep::octseq::str::Str,
};

use super::fields::Field;
use crate::{
    wire::name::{LABEL_MAX, NAME_MAX},
    zone::tokens::{Token, escape, unescape},
};

/// An error of the scanner. Its place is the token that was being read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::zone) struct ScanError {
    message: Cow<'static, str>,
    /// It says what was expected and not what was found.
    bare: bool,
}

impl ScanError {
    pub(in crate::zone) fn new(message: impl Into<Cow<'static, str>>) -> Self {
        Self { message: message.into(), bare: false }
    }

    /// What was found, and what was expected.
    pub(in crate::zone) fn unexpected(found: &[u8], expected: impl fmt::Display) -> Self {
        Self::new(format!("{}: expected {expected}", shown(found)))
    }

    /// The message, which names the last token read if it does not say what was found.
    pub(in crate::zone) fn message(self, found: Option<&[u8]>) -> String {
        match found {
            Some(found) if self.bare => format!("{}: {}", shown(found), self.message),
            _ => self.message.into_owned(),
        }
    }
}

/// A token in a message: as it is written, but not longer than a line has room for.
pub(in crate::zone) fn shown(token: &[u8]) -> String {
    const CHARACTERS_MAX: usize = 60;
    let text = String::from_utf8_lossy(token);
    let mut shown = String::from("\"");
    for character in text.chars().take(CHARACTERS_MAX) {
        match character {
            _ if character.is_control() => shown.extend(character.escape_default()),
            _ => shown.push(character),
        }
    }
    shown.push_str(if text.chars().nth(CHARACTERS_MAX).is_some() { "...\"" } else { "\"" });
    shown
}

impl fmt::Display for ScanError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.message)
    }
}

impl std::error::Error for ScanError {}

impl ScannerError for ScanError {
    /// What `domain` has to say, in the words of the other messages.
    fn custom(message: &'static str) -> Self {
        let message = match message {
            "expected IPv4 address" => "expected an IPv4 address such as 192.0.2.1",
            "expected IPv6 address" => "expected an IPv6 address such as 2001:db8::1",
            "expected decimal number" => "expected a number",
            "decimal number overflow" => "expected a smaller number",
            "illegal Base 64 data" => "expected Base 64",
            "incomplete Base 64 data" => "expected Base 64, and it ends too early",
            "trailing Base 64 data" => "expected Base 64, and it goes on behind its end",
            "uneven number of hex digits" => "expected an even number of hexadecimal digits",
            "expected hex digits" => "expected hexadecimal digits",
            "generic data has incorrect length" => "expected as many bytes as the number before them says",
            "unknown record type with concrete data" => {
                "this type is written in the generic form alone: expected \\# LENGTH HEX (RFC 3597 section 5)"
            }
            other => other,
        };
        Self { message: message.into(), bare: !message.starts_with("this type") }
    }

    fn end_of_entry() -> Self {
        Self::new("the entry ends where more was expected")
    }

    fn short_buf() -> Self {
        Self::new("too much data")
    }

    fn trailing_tokens() -> Self {
        Self::new("more than was expected")
    }
}

/// The tokens of an entry, taken one after the other.
#[derive(Debug)]
pub(in crate::zone) struct Tokens<'a> {
    text: &'a [u8],
    tokens: &'a [Token],
    next: usize,
    /// What names without a dot at their end are relative to.
    origin: &'a [u8],
}

impl<'a> Tokens<'a> {
    pub(in crate::zone) fn new(text: &'a [u8], tokens: &'a [Token], origin: &'a [u8]) -> Self {
        Self { text, tokens, next: 0, origin }
    }

    /// The next token as it is written.
    pub(in crate::zone) fn peek(&self) -> Option<&'a [u8]> {
        Some(&self.text[self.tokens.get(self.next)?.range.clone()])
    }

    /// Whether the next token is quoted: then it is no keyword.
    pub(in crate::zone) fn is_quoted(&self) -> bool {
        self.tokens.get(self.next).is_some_and(|token| token.quoted)
    }

    pub(in crate::zone) fn take(&mut self) -> Result<&'a [u8], ScanError> {
        let token = self.peek().ok_or_else(ScanError::end_of_entry)?;
        self.next += 1;
        Ok(token)
    }

    pub(in crate::zone) fn end(&self) -> Result<(), ScanError> {
        match self.peek() {
            None => Ok(()),
            Some(extra) => Err(ScanError::new(format!("{} is more than was expected", shown(extra)))),
        }
    }

    /// RFC 3597 section 5: `\# length data`.
    pub(in crate::zone) fn is_generic(&self) -> bool {
        self.peek() == Some(b"\\#") && !self.is_quoted()
    }

    /// The token read last.
    pub(in crate::zone) fn last(&self) -> Option<&'a [u8]> {
        Some(&self.text[self.tokens.get(self.next.checked_sub(1)?)?.range.clone()])
    }

    /// The token to which an error belongs: the one read last, unless the entry ended too early.
    pub(in crate::zone) fn position(&self) -> usize {
        self.next.saturating_sub(1).min(self.tokens.len().saturating_sub(1))
    }

    /// The next token as a name on the wire, relative to the origin unless it ends in a dot.
    pub(in crate::zone) fn name(&mut self) -> Result<Vec<u8>, ScanError> {
        let token = self.take()?;
        name(token, self.origin)
    }

    /// A number in plain digits; `expected` says which.
    pub(in crate::zone) fn number<T: str::FromStr>(&mut self, expected: &str) -> Result<T, ScanError> {
        let token = self.take()?;
        let number = str::from_utf8(token).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        number.and_then(|text| text.parse().ok()).ok_or_else(|| ScanError::unexpected(token, expected))
    }

    /// Anything that the standard library reads.
    pub(in crate::zone) fn parse<T: str::FromStr>(&mut self, expected: &str) -> Result<T, ScanError> {
        let token = self.take()?;
        let value = str::from_utf8(token).ok().and_then(|text| text.parse().ok());
        value.ok_or_else(|| ScanError::unexpected(token, expected))
    }
}

/// A name as it is written, on the wire. `@` is the origin.
pub(in crate::zone) fn name(token: &[u8], origin: &[u8]) -> Result<Vec<u8>, ScanError> {
    let fail = |why: &str| ScanError::new(format!("{} is no domain name: {why}", shown(token)));
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
            let (value, length) =
                escape(after).map_err(|error| ScanError::new(format!("{}: {error}", shown(token))))?;
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
        let token = self.take()?;
        unescape(token).map_err(|error| ScanError::new(format!("{}: {error}", shown(token))))
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
        op(text.ok_or_else(|| ScanError::new("expected plain ASCII"))?)
    }

    fn scan_name(&mut self) -> Result<Self::Name, ScanError> {
        let wire = self.name()?;
        Name::from_octets(wire).map_err(|error| ScanError::new(error.to_string()))
    }

    fn scan_charstr(&mut self) -> Result<CharStr<Vec<u8>>, ScanError> {
        CharStr::from_octets(self.scan_octets()?).map_err(|_| ScanError::new("a string of more than 255 bytes"))
    }

    fn scan_string(&mut self) -> Result<Str<Vec<u8>>, ScanError> {
        Str::from_utf8(self.scan_octets()?).map_err(|_| ScanError::new("expected UTF-8"))
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
