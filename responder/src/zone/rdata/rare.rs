//! Types that are like no other, and rare: WKS (RFC 1035), A6 (RFC 2874), APL (RFC 3123), HIP (RFC 8005), AMTRELAY (RFC 8777).
//!
//! Each has a `read`, from text to bytes, and an `is`, which says whether bytes in the generic form are such data.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use domain::{
    base::scan::{ConvertSymbols, Symbol},
    utils::{base16, base64},
};

use super::{ScanError, Tokens};
use crate::wire::name::AnyRoom;

/// RFC 1035 section 3.4.2: an address, a protocol, and ports as a bitmap.
pub(super) fn read_wks(tokens: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
    bytes.extend_from_slice(&tokens.parse::<Ipv4Addr>("an IPv4 address such as 192.0.2.1")?.octets());
    bytes.push(match tokens.peek() {
        Some(token) if token.eq_ignore_ascii_case(b"TCP") => tokens.take().map(|_| 6)?,
        Some(token) if token.eq_ignore_ascii_case(b"UDP") => tokens.take().map(|_| 17)?,
        _ => tokens.number("TCP, UDP or the number of a protocol")?,
    });
    let mut map = Vec::new();
    while tokens.peek().is_some() {
        let port = usize::from(tokens.number::<u16>("the number of a port")?);
        if map.len() <= port / 8 {
            map.resize(port / 8 + 1, 0);
        }
        map[port / 8] |= 0x80 >> (port % 8);
    }
    bytes.extend_from_slice(&map);
    Ok(())
}

pub(super) fn is_wks(bytes: &[u8]) -> bool {
    (5..=5 + 8192).contains(&bytes.len())
}

/// RFC 2874 section 3.1: a prefix's length, the rest of the address unless the prefix is all of it, and the prefix's name unless there is no prefix.
pub(super) fn read_a6(tokens: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
    const LENGTH: &str = "the length of a prefix, up to 128";
    let token = tokens.peek().unwrap_or_default();
    let length: u8 = tokens.number(LENGTH)?;
    if length > 128 {
        return Err(ScanError::unexpected(token, LENGTH));
    }
    bytes.push(length);
    if length < 128 {
        let address: Ipv6Addr = tokens.parse("an IPv6 address such as ::1")?;
        let mut octets = address.octets();
        let (whole, bits) = (usize::from(length / 8), length % 8);
        if let Some(octet) = octets.get_mut(whole) {
            *octet &= 0xff >> bits;
        }
        bytes.extend_from_slice(&octets[whole..]);
    }
    if length > 0 {
        bytes.extend_from_slice(&tokens.name()?);
    }
    Ok(())
}

pub(super) fn is_a6(bytes: &[u8]) -> bool {
    let Some((&length @ 0..=128, rest)) = bytes.split_first() else { return false };
    let suffix = 16 - usize::from(length / 8);
    rest.get(suffix..).is_some_and(|name| if length == 0 { name.is_empty() } else { is_name(name) })
}

/// RFC 3123 section 5: `[!]afi:address/prefix`, any number of them.
pub(super) fn read_apl(tokens: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
    while let Some(token) = tokens.peek() {
        tokens.take()?;
        let item = || {
            let text = std::str::from_utf8(token).ok()?;
            let (negated, text) = text.strip_prefix('!').map_or((false, text), |text| (true, text));
            let (family, text) = text.split_once(':')?;
            let (address, prefix) = text.split_once('/')?;
            let prefix: u8 = prefix.parse().ok()?;
            let (family, octets) = match (family, address.parse().ok()?) {
                ("1", IpAddr::V4(address)) if prefix <= 32 => (1, address.octets().to_vec()),
                ("2", IpAddr::V6(address)) if prefix <= 128 => (2, address.octets().to_vec()),
                _ => return None,
            };
            Some((negated, family, prefix, octets))
        };
        let (negated, family, prefix, mut octets) = item()
            .ok_or_else(|| ScanError::unexpected(token, "a prefix such as 1:192.0.2.0/24 or !2:2001:db8::/32"))?;
        // Zeros at the end are left out.
        octets.truncate(octets.iter().rposition(|octet| *octet != 0).map_or(0, |last| last + 1));
        let length = u8::try_from(octets.len()).unwrap_or(u8::MAX);
        bytes.extend_from_slice(&[0, family, prefix, length | if negated { 0x80 } else { 0 }]);
        bytes.extend_from_slice(&octets);
    }
    Ok(())
}

pub(super) fn is_apl(mut bytes: &[u8]) -> bool {
    while let [_, _, _, length, rest @ ..] = bytes {
        match rest.get(usize::from(length & 0x7f)..) {
            Some(rest) => bytes = rest,
            None => return false,
        }
    }
    bytes.is_empty()
}

/// RFC 8005 section 6: an algorithm, a host identity tag in hexadecimal, a public key in Base 64, and the names of rendezvous servers.
pub(super) fn read_hip(tokens: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
    let algorithm: u8 = tokens.number("an algorithm, up to 255")?;
    let tag = converted(tokens, base16::SymbolConverter::new())?;
    let key = converted(tokens, base64::SymbolConverter::new())?;
    let tag_len = u8::try_from(tag.len()).map_err(|_| ScanError::new("a host identity tag of more than 255 bytes"))?;
    let key_len = u16::try_from(key.len()).map_err(|_| ScanError::new("a public key of more than 65535 bytes"))?;
    bytes.extend_from_slice(&[tag_len, algorithm]);
    bytes.extend_from_slice(&key_len.to_be_bytes());
    bytes.extend_from_slice(&tag);
    bytes.extend_from_slice(&key);
    while tokens.peek().is_some() {
        bytes.extend_from_slice(&tokens.name()?);
    }
    Ok(())
}

/// One token.
fn converted(tokens: &mut Tokens<'_>, convert: impl ConvertSymbols<Symbol, ScanError>) -> Result<Vec<u8>, ScanError> {
    domain::base::scan::Scanner::convert_token(tokens, convert)
}

pub(super) fn is_hip(bytes: &[u8]) -> bool {
    let [tag_len, _algorithm, high, low, rest @ ..] = bytes else { return false };
    let fixed = usize::from(*tag_len) + usize::from(u16::from_be_bytes([*high, *low]));
    let Some(mut names) = rest.get(fixed..) else { return false };
    while !names.is_empty() {
        let Some(length) = AnyRoom::empty().read(names, 0).map(|name| name.bytes().len()) else { return false };
        names = &names[length..];
    }
    true
}

/// RFC 8777 section 4.3, behind the precedence: whether discovery is optional, the kind of relay, the relay.
pub(super) fn read_relay(tokens: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
    let token = tokens.take()?;
    let optional = match token {
        b"0" => 0,
        b"1" => 0x80,
        _ => return Err(ScanError::unexpected(token, "0, or 1 where discovery is optional")),
    };
    let kind = tokens.take()?;
    let (kind, relay) = match kind {
        b"0" => match tokens.take()? {
            b"." => (0, Vec::new()),
            other => return Err(ScanError::unexpected(other, "a dot, which stands for no relay")),
        },
        b"1" => (1, tokens.parse::<Ipv4Addr>("an IPv4 address such as 192.0.2.1")?.octets().to_vec()),
        b"2" => (2, tokens.parse::<Ipv6Addr>("an IPv6 address such as 2001:db8::1")?.octets().to_vec()),
        b"3" => (3, tokens.name()?),
        _ => return Err(ScanError::unexpected(kind, "the kind of relay, 0 to 3")),
    };
    bytes.push(optional | kind);
    bytes.extend_from_slice(&relay);
    Ok(())
}

pub(super) fn is_relay(bytes: &[u8]) -> bool {
    let Some((kind, relay)) = bytes.split_first() else { return false };
    match kind & 0x7f {
        0 => relay.is_empty(),
        1 => relay.len() == 4,
        2 => relay.len() == 16,
        3 => is_name(relay),
        // Kinds to come.
        _ => true,
    }
}

/// Whether all of the bytes are one name that is not compressed.
fn is_name(bytes: &[u8]) -> bool {
    AnyRoom::empty().read(bytes, 0).is_some_and(|name| name.bytes().len() == bytes.len() && !name.bytes().is_empty())
}
