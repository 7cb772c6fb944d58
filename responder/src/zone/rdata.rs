//! Record data from its presentation format to its bytes on the wire.
//!
//! Many types are those of the crate `domain`, which read from anything that implements its `Scanner`: here, the tokens of an entry (`scan`). The
//! others are rows of `fields` and are listed in [`LAYOUTS`], with those that are like no other in `svcb`, `rare` and `loc`. RFC 3597's
//! generic form is taken for all types, and checked against the type where it is known.

mod fields;
mod rare;
mod scan;
mod svcb;

use std::{borrow::Cow, str};

use domain::{
    base::{Name, ParseRecordData, Rtype, rdata::ComposeRecordData},
    dep::octseq::Parser,
    rdata::ZoneRecordData,
};
use fields::Field;
pub(super) use scan::{ScanError, Tokens, name, shown};

use super::loc;

/// Types whose data is a row of fields.
const LAYOUTS: &[(&str, u16, &[Field])] = {
    use Field::*;
    &[
        ("WKS", 11, &[Own(rare::read_wks, rare::is_wks)]),
        ("AFSDB", 18, &[U16, Name]),
        ("X25", 19, &[Text]),
        ("ISDN", 20, &[Texts]),
        ("RT", 21, &[U16, Name]),
        ("NSAP", 22, &[Dotted]),
        ("NSAP-PTR", 23, &[Name]),
        ("KEY", 25, &[U16, U8, Algorithm, Base64]),
        ("PX", 26, &[U16, Name, Name]),
        ("GPOS", 27, &[Text, Text, Text]),
        ("LOC", 29, &[Own(loc::read, loc::is_whole)]),
        ("EID", 31, &[Hex]),
        ("NIMLOC", 32, &[Hex]),
        ("KX", 36, &[U16, Name]),
        ("CERT", 37, &[Certificate, U16, Algorithm, Base64]),
        ("A6", 38, &[Own(rare::read_a6, rare::is_a6)]),
        ("SINK", 40, &[U8, U8, U8, Base64]),
        ("APL", 42, &[Own(rare::read_apl, rare::is_apl)]),
        ("DHCID", 49, &[Base64]),
        ("SMIMEA", 53, &[U8, U8, U8, Hex]),
        ("HIP", 55, &[Own(rare::read_hip, rare::is_hip)]),
        ("NINFO", 56, &[Texts]),
        ("RKEY", 57, &[U16, U8, Algorithm, Base64]),
        ("TALINK", 58, &[Name, Name]),
        ("CSYNC", 62, &[U32, U16, Types]),
        ("SVCB", 64, &[U16, Name, Own(svcb::read, svcb::is_whole)]),
        ("HTTPS", 65, &[U16, Name, Own(svcb::read, svcb::is_whole)]),
        ("DSYNC", 66, &[Type, Scheme, U16, Name]),
        ("HHIT", 67, &[Base64]),
        ("BRID", 68, &[Base64]),
        ("SPF", 99, &[Texts]),
        ("NID", 104, &[U16, Locator]),
        ("L32", 105, &[U16, V4]),
        ("L64", 106, &[U16, Locator]),
        ("LP", 107, &[U16, Name]),
        ("EUI48", 108, &[Dashed(6)]),
        ("EUI64", 109, &[Dashed(8)]),
        ("URI", 256, &[U16, U16, Rest]),
        ("AVC", 258, &[Texts]),
        ("DOA", 259, &[U32, U32, U8, Text, Base64]),
        ("AMTRELAY", 260, &[U8, Own(rare::read_relay, rare::is_relay)]),
        ("RESINFO", 261, &[Texts]),
        ("WALLET", 262, &[Texts]),
        ("CLA", 263, &[Texts]),
        ("IPN", 264, &[U64]),
        ("TA", 32768, &[U16, Algorithm, U8, Hex]),
        ("DLV", 32769, &[U16, Algorithm, U8, Hex]),
    ]
};

/// Types that stand for something else than data: OPT, NXNAME, and those of questions and of one message (RFC 6895 section 3.1).
pub(super) fn is_meta(rtype: u16) -> bool {
    matches!(rtype, 0 | 41 | 128..=255)
}

/// The type that a token names: a mnemonic or `TYPE12345` (RFC 3597 section 5).
pub(super) fn type_of(token: &[u8]) -> Option<u16> {
    let listed =
        || LAYOUTS.iter().find(|(name, ..)| token.eq_ignore_ascii_case(name.as_bytes())).map(|(_, number, _)| *number);
    let generic = || {
        let (prefix, digits) = token.split_at_checked(4)?;
        let digits = str::from_utf8(digits).ok().filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
        prefix.eq_ignore_ascii_case(b"TYPE").then(|| digits.parse().ok())?
    };
    listed().or_else(|| Rtype::from_mnemonic(token).map(Rtype::to_int)).or_else(generic)
}

/// A type's mnemonic, for messages.
pub(super) fn type_name(rtype: u16) -> String {
    let listed = LAYOUTS.iter().find(|(_, number, _)| *number == rtype);
    listed.map_or_else(|| Rtype::from_int(rtype).to_string(), |(name, ..)| (*name).to_owned())
}

/// What is wrong with an entry, and the index of the token where it shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DataError {
    pub(super) message: String,
    pub(super) token: usize,
}

/// Reads the data of a record of type `rtype` from the tokens that are left, and appends its bytes to `bytes`.
pub(super) fn read(rtype: u16, tokens: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), DataError> {
    read_into(rtype, tokens, bytes)
        .map_err(|error| DataError { message: error.message(tokens.last()), token: tokens.position() })
}

fn read_into(rtype: u16, tokens: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), ScanError> {
    let start = bytes.len();
    let layout = LAYOUTS.iter().find(|(_, number, _)| *number == rtype).map(|(.., fields)| *fields);
    if let (Some(fields), false) = (layout, tokens.is_generic()) {
        for field in fields {
            tokens.field(*field, bytes)?;
        }
        return tokens.end();
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
    let longer = || ScanError::new(format!("more bytes than a {} record has", type_name(rtype)));
    let other = || ScanError::new(format!("these bytes are no {} record", type_name(rtype)));
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

/// The data in the form in which two records are compared: the names in it in lower case, for the types that had names before RFC 3597
/// (RFC 4034 section 6.2, RFC 3597 section 7). Data that is in that form already is not copied.
pub(super) fn canonical(rtype: u16, bytes: &[u8]) -> Cow<'_, [u8]> {
    // Where the names begin; they go on to the end.
    let names = match rtype {
        // NS, MD, MF, CNAME, SOA, MB, MG, MR, PTR, MINFO, RP, DNAME
        2..=9 | 12 | 14 | 17 | 39 => 0,
        // MX, AFSDB, RT, PX, KX
        15 | 18 | 21 | 26 | 36 => 2,
        // SRV
        33 => 6,
        // NAPTR: behind two numbers and three strings.
        35 => (0..3).fold(4, |at, _| at + 1 + bytes.get(at).map_or(0, |length| usize::from(*length))),
        _ => return Cow::Borrowed(bytes),
    };
    let mut bytes = Cow::Borrowed(bytes);
    // A SOA's numbers are behind its names.
    let end = if rtype == 6 { bytes.len().saturating_sub(20) } else { bytes.len() };
    // The bytes that say how long a label is are below 64 and so no letters.
    if bytes.get(names..end).is_some_and(|names| names.iter().any(u8::is_ascii_uppercase)) {
        bytes.to_mut()[names..end].make_ascii_lowercase();
    }
    bytes
}

#[cfg(test)]
#[path = "rdata_tests.rs"]
mod tests;
