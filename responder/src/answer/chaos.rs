//! What the server says of itself in class CHAOS (RFC 4892), where it is configured to.

use super::policy::{Identifier, Policy};

/// The class.
pub(super) const CLASS: u16 = 3;
const TYPE_TXT: u16 = 16;
const TYPE_ANY: u16 = 255;

/// The text for this name, which is in lower case.
pub(super) fn text<'p>(policy: &'p Policy, name: &[u8], qtype: u16) -> Option<&'p Identifier> {
    if qtype != TYPE_TXT && qtype != TYPE_ANY {
        return None;
    }
    match name {
        b"\x02id\x06server\0" | b"\x08hostname\x04bind\0" => policy.identity.as_ref(),
        b"\x07version\x06server\0" | b"\x07version\x04bind\0" => policy.version.as_ref(),
        _ => None,
    }
}

/// The TXT record in front of its text: the QNAME, and TTL 0, since it is true of this moment (RFC 4892 section 2).
pub(super) fn head(text: &Identifier) -> [u8; 13] {
    // An identifier has at most 128 bytes.
    let length = u8::try_from(text.bytes().len()).unwrap_or(0);
    [0xc0, 12, 0, 16, 0, 3, 0, 0, 0, 0, 0, length + 1, length]
}
