//! The parameters of SVCB and HTTPS records (RFC 9460 sections 2.1, 7 and appendix A): `key`, `key=value`, `key="value"`.
//!
//! They are sorted by key; a key given twice, and parameters that contradict each other (section 8, section 7.1.1), are errors. Values of keys
//! without a name here are written as `key65280="bytes"`.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
    str,
};

use domain::{
    base::scan::{ConvertSymbols, EntrySymbol, Scanner, Symbol},
    utils::base64,
};

use super::{ScanError, Tokens, shown};
use crate::zone::tokens::unescape;

const MANDATORY: u16 = 0;
const ALPN: u16 = 1;
const NO_DEFAULT_ALPN: u16 = 2;
const PORT: u16 = 3;
const IPV4HINT: u16 = 4;
const ECH: u16 = 5;
const IPV6HINT: u16 = 6;
const DOHPATH: u16 = 7;
const OHTTP: u16 = 8;
const TLS_SUPPORTED_GROUPS: u16 = 9;

/// Keys by their names: those of RFC 9460, dohpath (RFC 9461), ohttp (RFC 9540) and tls-supported-groups.
const NAMES: [&str; 10] = [
    "mandatory",
    "alpn",
    "no-default-alpn",
    "port",
    "ipv4hint",
    "ech",
    "ipv6hint",
    "dohpath",
    "ohttp",
    "tls-supported-groups",
];

/// Reads parameters to the end of the entry.
pub(super) fn read(tokens: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
    let mut parameters = BTreeMap::new();
    while let Some(token) = tokens.peek() {
        if tokens.is_quoted() {
            return Err(ScanError::unexpected(token, "a key before the quote, as in alpn=\"h2\""));
        }
        tokens.take()?;
        let (name, value) = match token.iter().position(|byte| *byte == b'=') {
            Some(at) => (&token[..at], Some(&token[at + 1..])),
            None => (token, None),
        };
        let key = key(name)?;
        let mut raw = value.map(<[u8]>::to_vec);
        // key="a value with blanks"
        if value.is_some_and(<[u8]>::is_empty) && tokens.is_quoted() && !tokens.has_space() {
            raw = Some(tokens.take()?.to_vec());
        }
        let raw = raw.map(|raw| unescape(&raw).map_err(|error| ScanError::new(format!("{}: {error}", shown(&raw)))));
        let generic = name.len() > 3 && name[..3].eq_ignore_ascii_case(b"key");
        let value = match raw.transpose()? {
            Some(raw) if generic => raw,
            None if generic => Vec::new(),
            raw => encode(key, raw.as_deref())?,
        };
        if parameters.insert(key, value).is_some() {
            return Err(ScanError::new(format!("the key {} is given twice", key_name(key))));
        }
    }
    let start = bytes.len();
    for (key, value) in &parameters {
        let length = u16::try_from(value.len()).map_err(|_| ScanError::new("a value of more than 65535 bytes"))?;
        bytes.extend_from_slice(&key.to_be_bytes());
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(value);
    }
    check(&bytes[start..])
}

/// Whether bytes in the generic form are parameters.
pub(super) fn is_whole(bytes: &[u8]) -> bool {
    check(bytes).is_ok()
}

/// RFC 9460 section 2.1: a key's name, or `key` and its number without zeros in front.
fn key(name: &[u8]) -> Result<u16, ScanError> {
    if let Some(key) = NAMES.iter().position(|known| known.as_bytes() == name) {
        return Ok(u16::try_from(key).unwrap_or(u16::MAX));
    }
    let number = name.strip_prefix(b"key").and_then(|digits| str::from_utf8(digits).ok());
    let number = number.filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
    number
        .filter(|digits| *digits == "0" || !digits.starts_with('0'))
        .and_then(|digits| digits.parse().ok())
        .filter(|number| *number != u16::MAX)
        .ok_or_else(|| {
            ScanError::unexpected(name, format!("a key: {}, or key and a number up to 65534", NAMES.join(", ")))
        })
}

fn key_name(key: u16) -> String {
    NAMES.get(usize::from(key)).map_or_else(|| format!("key{key}"), |name| (*name).to_owned())
}

/// A value from its presentation format, escapes resolved.
fn encode(key: u16, text: Option<&[u8]>) -> Result<Vec<u8>, ScanError> {
    let name = key_name(key);
    if matches!(key, NO_DEFAULT_ALPN | OHTTP) {
        return match text {
            None => Ok(Vec::new()),
            Some(text) => Err(ScanError::unexpected(text, format!("no value for {name}"))),
        };
    }
    let text = text.filter(|text| !text.is_empty());
    let text = text.ok_or_else(|| ScanError::new(format!("{name} without a value: expected {name}=VALUE")))?;
    let mut bytes = Vec::new();
    match key {
        MANDATORY => {
            let mut keys = Vec::new();
            for item in list(text)? {
                keys.push(self::key(&item)?);
            }
            // Section 8: in ascending order on the wire.
            keys.sort_unstable();
            bytes.extend(keys.iter().flat_map(|key| key.to_be_bytes()));
        }
        ALPN => {
            for item in list(text)? {
                let length = u8::try_from(item.len()).ok().filter(|length| *length > 0);
                bytes.push(length.ok_or_else(|| ScanError::unexpected(&item, "a protocol of 1 to 255 bytes"))?);
                bytes.extend_from_slice(&item);
            }
        }
        PORT => bytes.extend_from_slice(&plain::<u16>(text, "a port up to 65535")?.to_be_bytes()),
        IPV4HINT => {
            for item in text.split(|byte| *byte == b',') {
                bytes.extend_from_slice(&plain::<Ipv4Addr>(item, "an IPv4 address such as 192.0.2.1")?.octets());
            }
        }
        IPV6HINT => {
            for item in text.split(|byte| *byte == b',') {
                bytes.extend_from_slice(&plain::<Ipv6Addr>(item, "an IPv6 address such as 2001:db8::1")?.octets());
            }
        }
        TLS_SUPPORTED_GROUPS => {
            for item in text.split(|byte| *byte == b',') {
                bytes.extend_from_slice(&plain::<u16>(item, "a group's number up to 65535")?.to_be_bytes());
            }
        }
        ECH => bytes = base64(text).ok_or_else(|| ScanError::unexpected(text, "Base 64"))?,
        _ => bytes.extend_from_slice(text),
    }
    Ok(bytes)
}

/// Appendix A.1: items with commas between them; `\,` is a comma within an item and `\\` a backslash.
fn list(text: &[u8]) -> Result<Vec<Vec<u8>>, ScanError> {
    let mut items = vec![Vec::new()];
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, after) {
            (b',', _) => items.push(Vec::new()),
            (b'\\', [next @ (b',' | b'\\'), after @ ..]) => {
                items.last_mut().expect("there is always one").push(*next);
                rest = after;
            }
            (b'\\', _) => {
                return Err(ScanError::unexpected(text, "\\, or \\\\ where an item has a comma or a backslash"));
            }
            _ => items.last_mut().expect("there is always one").push(*byte),
        }
    }
    Ok(items)
}

/// What the standard library reads; numbers without a sign.
fn plain<T: str::FromStr>(text: &[u8], expected: &str) -> Result<T, ScanError> {
    let value = str::from_utf8(text).ok().filter(|text| !text.starts_with('+')).and_then(|text| text.parse().ok());
    value.ok_or_else(|| ScanError::unexpected(text, expected))
}

fn base64(text: &[u8]) -> Option<Vec<u8>> {
    let mut convert = base64::SymbolConverter::new();
    let mut bytes = Vec::new();
    for byte in text {
        let symbol = EntrySymbol::Symbol(Symbol::Char(char::from(*byte)));
        let made: Result<Option<&[u8]>, ScanError> = convert.process_symbol(symbol);
        bytes.extend_from_slice(made.ok()?.unwrap_or_default());
    }
    let made: Result<Option<&[u8]>, ScanError> =
        <base64::SymbolConverter as ConvertSymbols<EntrySymbol, _>>::process_tail(&mut convert);
    bytes.extend_from_slice(made.ok()?.unwrap_or_default());
    Some(bytes)
}

/// Holds parameters on the wire against the rules for each and for all.
fn check(bytes: &[u8]) -> Result<(), ScanError> {
    let fail = |message: String| Err(ScanError::new(message));
    let mut keys = Vec::new();
    let mut mandatory = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let [k1, k2, l1, l2, after @ ..] = rest else { return fail("a parameter that is cut short".to_owned()) };
        let key = u16::from_be_bytes([*k1, *k2]);
        let Some((value, after)) = after.split_at_checked(usize::from(u16::from_be_bytes([*l1, *l2]))) else {
            return fail("a parameter that is cut short".to_owned());
        };
        if keys.last().is_some_and(|last| *last >= key) {
            return fail("keys that are not in ascending order".to_owned());
        }
        if !is_value(key, value) {
            return fail(format!("the value of {} is none that this key may have (RFC 9460 section 7)", key_name(key)));
        }
        if key == MANDATORY {
            mandatory = value.as_chunks::<2>().0.iter().map(|key| u16::from_be_bytes(*key)).collect();
        }
        keys.push(key);
        rest = after;
    }
    if mandatory.windows(2).any(|pair| pair[0] >= pair[1]) {
        return fail("mandatory names a key twice (RFC 9460 section 8)".to_owned());
    }
    if let Some(missing) = mandatory.iter().find(|key| **key == MANDATORY || !keys.contains(key)) {
        let name = key_name(*missing);
        return fail(match *missing {
            MANDATORY => "mandatory names itself (RFC 9460 section 8)".to_owned(),
            _ => format!("mandatory names {name}, which is not there (RFC 9460 section 8)"),
        });
    }
    if keys.contains(&NO_DEFAULT_ALPN) && !keys.contains(&ALPN) {
        return fail("no-default-alpn without alpn (RFC 9460 section 7.1.1)".to_owned());
    }
    Ok(())
}

/// Whether a key may have this value.
fn is_value(key: u16, value: &[u8]) -> bool {
    let some_of = |size: usize| !value.is_empty() && value.len().is_multiple_of(size);
    match key {
        MANDATORY | TLS_SUPPORTED_GROUPS => some_of(2),
        ALPN => {
            let mut rest = value;
            while let [length @ 1..=u8::MAX, after @ ..] = rest {
                match after.get(usize::from(*length)..) {
                    Some(after) => rest = after,
                    None => return false,
                }
            }
            rest.is_empty() && !value.is_empty()
        }
        NO_DEFAULT_ALPN | OHTTP => value.is_empty(),
        PORT => value.len() == 2,
        IPV4HINT => some_of(4),
        IPV6HINT => some_of(16),
        ECH => !value.is_empty(),
        DOHPATH => str::from_utf8(value).is_ok(),
        u16::MAX => false,
        _ => true,
    }
}
