//! Response codes (RFC 1035 section 4.1.1, RFC 2136 section 2.2, RFC 6891 section 9, RFC 7873 section 8): those that a reply of ours can have.

/// A response code. Those above 15 have their upper bits in the OPT record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rcode(pub u8);

impl Rcode {
    /// No error.
    pub const NOERROR: Self = Self(0);
    /// The query cannot be read.
    pub const FORMERR: Self = Self(1);
    /// Loading went wrong, or there is a bug.
    pub const SERVFAIL: Self = Self(2);
    /// The name does not exist.
    pub const NXDOMAIN: Self = Self(3);
    /// The opcode is not supported.
    pub const NOTIMP: Self = Self(4);
    /// Not ours to answer.
    pub const REFUSED: Self = Self(5);
    /// DNAME substitution made too long a name.
    pub const YXDOMAIN: Self = Self(6);
    /// The query is signed with a key we do not have.
    pub const NOTAUTH: Self = Self(9);
    /// An EDNS version we do not know. Its upper bits are in the OPT record.
    pub const BADVERS: Self = Self(16);
    /// A server cookie is wanted, and there is none that is valid (RFC 7873 section 8).
    pub const BADCOOKIE: Self = Self(23);

    /// Every code that a reply of ours can have, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::NOERROR,
        Self::FORMERR,
        Self::SERVFAIL,
        Self::NXDOMAIN,
        Self::NOTIMP,
        Self::REFUSED,
        Self::YXDOMAIN,
        Self::NOTAUTH,
        Self::BADVERS,
        Self::BADCOOKIE,
    ];

    /// As IANA's registry writes it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NOERROR => "NOERROR",
            Self::FORMERR => "FORMERR",
            Self::SERVFAIL => "SERVFAIL",
            Self::NXDOMAIN => "NXDOMAIN",
            Self::NOTIMP => "NOTIMP",
            Self::REFUSED => "REFUSED",
            Self::YXDOMAIN => "YXDOMAIN",
            Self::NOTAUTH => "NOTAUTH",
            Self::BADVERS => "BADVERS",
            Self::BADCOOKIE => "BADCOOKIE",
            _ => "other",
        }
    }
}
