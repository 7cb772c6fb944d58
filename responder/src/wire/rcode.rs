//! Response codes (RFC 1035 section 4.1.1, RFC 2136 section 2.2, RFC 6891 section 9, RFC 7873 section 8): those that a reply of ours can have.

/// A response code. Those above 15 have their upper bits in the OPT record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Rcode {
    /// No error.
    #[default]
    NoError = 0,
    /// The query cannot be read.
    FormErr = 1,
    /// Loading went wrong, or there is a bug.
    ServFail = 2,
    /// The name does not exist.
    NxDomain = 3,
    /// The opcode is not supported.
    NotImp = 4,
    /// Not ours to answer.
    Refused = 5,
    /// DNAME substitution made too long a name.
    YxDomain = 6,
    /// The query is signed with a key we do not have.
    NotAuth = 9,
    /// An EDNS version we do not know.
    BadVers = 16,
    /// A server cookie is wanted, and there is none that is valid (RFC 7873 section 8).
    BadCookie = 23,
}

impl Rcode {
    /// Every code, in the order of their numbers.
    pub const ALL: [Self; 10] = [
        Self::NoError,
        Self::FormErr,
        Self::ServFail,
        Self::NxDomain,
        Self::NotImp,
        Self::Refused,
        Self::YxDomain,
        Self::NotAuth,
        Self::BadVers,
        Self::BadCookie,
    ];

    /// As IANA's registry writes it, in capitals.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoError => "NOERROR",
            Self::FormErr => "FORMERR",
            Self::ServFail => "SERVFAIL",
            Self::NxDomain => "NXDOMAIN",
            Self::NotImp => "NOTIMP",
            Self::Refused => "REFUSED",
            Self::YxDomain => "YXDOMAIN",
            Self::NotAuth => "NOTAUTH",
            Self::BadVers => "BADVERS",
            Self::BadCookie => "BADCOOKIE",
        }
    }
}
