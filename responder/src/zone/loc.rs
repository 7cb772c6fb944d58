//! LOC (RFC 1876): a place on earth, the one type whose presentation format is like no other's.

use super::rdata::{ScanError, Tokens};

/// Degrees, minutes and thousandths of a second are counted from here: the equator, the prime meridian.
const ORIGIN: u32 = 1 << 31;
/// The reference altitude is 100 km below sea level, in centimetres.
const BELOW: i64 = 10_000_000;
/// RFC 1876 section 3: 1 m, 10 km, 10 m.
const DEFAULTS: [u8; 3] = [0x12, 0x16, 0x13];

/// Reads `d [m [s]] N|S d [m [s]] E|W altitude[m] [size[m] [horizontal[m] [vertical[m]]]]`.
pub(super) fn read(tokens: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
    let latitude = angle(tokens, 90, "N", "S")?;
    let longitude = angle(tokens, 180, "E", "W")?;
    let altitude = metres(tokens)? + BELOW;
    let altitude = u32::try_from(altitude).map_err(|_| ScanError::new("an altitude out of range"))?;
    let mut precision = DEFAULTS;
    for value in &mut precision {
        if tokens.peek().is_none() {
            break;
        }
        *value = exponent(metres(tokens)?)?;
    }
    tokens.end()?;
    bytes.push(0);
    bytes.extend_from_slice(&precision);
    for word in [latitude, longitude, altitude] {
        bytes.extend_from_slice(&word.to_be_bytes());
    }
    Ok(())
}

fn text<'a>(tokens: &mut Tokens<'a>) -> Result<&'a str, ScanError> {
    std::str::from_utf8(tokens.take()?).map_err(|_| ScanError::new("expected plain ASCII"))
}

/// Degrees, and minutes and seconds if they are there, up to the direction.
fn angle(tokens: &mut Tokens<'_>, degrees_max: u32, plus: &str, minus: &str) -> Result<u32, ScanError> {
    let mut thousandths = 0;
    for (unit, max) in [(3_600_000, degrees_max), (60_000, 59), (1000, 59)] {
        let token = text(tokens)?;
        let sign = if token.eq_ignore_ascii_case(plus) {
            Some(true)
        } else if token.eq_ignore_ascii_case(minus) {
            Some(false)
        } else {
            None
        };
        if let (Some(positive), true) = (sign, unit != 3_600_000) {
            return stored(thousandths, positive, degrees_max);
        }
        let value = decimal(token, if unit == 1000 { 3 } else { 0 });
        let scaled = value.filter(|value| *value < i64::from(max + 1) * if unit == 1000 { 1000 } else { 1 });
        let scaled = scaled.and_then(|value| u32::try_from(value).ok()).ok_or_else(|| {
            ScanError::new(format!("{token:?}: expected degrees, minutes and seconds, then {plus} or {minus}"))
        })?;
        thousandths += if unit == 1000 { scaled } else { scaled * unit };
    }
    match text(tokens)? {
        token if token.eq_ignore_ascii_case(plus) => stored(thousandths, true, degrees_max),
        token if token.eq_ignore_ascii_case(minus) => stored(thousandths, false, degrees_max),
        token => Err(ScanError::new(format!("{token:?}: expected {plus} or {minus}"))),
    }
}

/// An angle as it is stored, if it goes no further than `degrees_max`.
fn stored(thousandths: u32, positive: bool, degrees_max: u32) -> Result<u32, ScanError> {
    if thousandths > degrees_max * 3_600_000 {
        return Err(ScanError::new(format!("an angle of more than {degrees_max} degrees")));
    }
    Ok(if positive { ORIGIN + thousandths } else { ORIGIN - thousandths })
}

/// Whether bytes are data of this type: their number, and the only version there is.
pub(super) fn is_whole(bytes: &[u8]) -> bool {
    bytes.len() == 16 && bytes[0] == 0
}

/// Metres, with or without the unit, in centimetres.
fn metres(tokens: &mut Tokens<'_>) -> Result<i64, ScanError> {
    let token = text(tokens)?;
    let number = token.strip_suffix(['m', 'M']).unwrap_or(token);
    decimal(number, 2).ok_or_else(|| ScanError::new(format!("{token:?}: expected metres such as 10.00m")))
}

/// A decimal number in units of its last allowed digit.
fn decimal(text: &str, digits: usize) -> Option<i64> {
    let (negative, text) = text.strip_prefix('-').map_or((false, text), |text| (true, text));
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(fraction) || fraction.len() > digits || whole.len() > 10 {
        return None;
    }
    let value: i64 = format!("{whole}{fraction:0<digits$}").parse().ok()?;
    Some(if negative { -value } else { value })
}

/// Centimetres as a digit and a power of ten, a half byte each.
fn exponent(centimetres: i64) -> Result<u8, ScanError> {
    let mut mantissa = u64::try_from(centimetres).map_err(|_| ScanError::new("a size below zero"))?;
    let mut power = 0;
    while mantissa > 9 {
        mantissa /= 10;
        power += 1;
    }
    match u8::try_from(mantissa << 4 | power) {
        Ok(byte) if power <= 9 => Ok(byte),
        _ => Err(ScanError::new("a size above 90000000 m")),
    }
}
