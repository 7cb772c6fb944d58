//! What the operator may choose about answers. The default is what a server without any configuration does.

use std::fmt;

use crate::guard::cookie::Secrets;

/// The largest UDP payload that is sent unless configured: it fits one unfragmented IPv6 packet on any link.
pub const UDP_PAYLOAD_MAX: u16 = 1232;

/// The choices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// The largest UDP payload that is sent, in bytes; less where the interface's MTU has no room for it.
    pub udp_payload_max: u16,
    /// The server's identifier for who asks for it with NSID (RFC 5001).
    pub nsid: Option<Identifier>,
    /// The answer to `id.server` and `hostname.bind` (RFC 4892), CH TXT.
    pub identity: Option<Identifier>,
    /// The answer to `version.server` and `version.bind`, CH TXT.
    pub version: Option<Identifier>,
    /// DNS cookies (RFC 7873, RFC 9018).
    pub cookies: Cookies,
    /// The answer to QTYPE ANY.
    pub any: AnyPolicy,
    /// The order of the records of an RRset.
    pub rrset_order: Order,
}

impl Policy {
    /// The default.
    pub const DEFAULT: Self = Self {
        udp_payload_max: UDP_PAYLOAD_MAX,
        nsid: None,
        identity: None,
        version: None,
        cookies: Cookies::Off,
        any: AnyPolicy::OneRrset,
        rrset_order: Order::Fixed,
    };
}

impl Default for Policy {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// What a server says of itself: 1 to 128 bytes, so that it goes into any reply beside the longest question, a cookie and an extended error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identifier(Box<[u8]>);

impl Identifier {
    /// The most bytes it may have.
    pub const MAX: usize = 128;

    /// Checks the length.
    pub fn new(bytes: impl Into<Box<[u8]>>) -> Result<Self, IdentifierLength> {
        let bytes = bytes.into();
        if (1..=Self::MAX).contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(IdentifierLength(bytes.len())) }
    }

    /// The bytes, as they go on the wire.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// An identifier has this many bytes, which are none or too many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentifierLength(usize);

impl fmt::Display for IdentifierLength {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "it has {} bytes: expected 1 to {}", self.0, Identifier::MAX)
    }
}

impl std::error::Error for IdentifierLength {}

/// Whether DNS cookies are used.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cookies {
    /// The option is ignored, as unknown ones are.
    #[default]
    Off,
    /// Who sends a cookie gets one, and who sends a valid one is not rate limited.
    On(Secrets),
    /// Also, over UDP, who uses cookies gets BADCOOKIE until the cookie is valid (RFC 7873 section 5.2.3). Who does not is answered.
    Required(Secrets),
}

/// The answer to QTYPE ANY (RFC 8482).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AnyPolicy {
    /// One RRset of the name (section 4.1).
    #[default]
    OneRrset,
    /// A made-up HINFO record (section 4.2), except for an alias.
    Hinfo,
}

/// The order of the records of an RRset.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// As in the zone file.
    #[default]
    Fixed,
    /// Another one first with each query.
    Rotate,
}
