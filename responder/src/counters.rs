//! What happened to the packets: one closed enum of drop reasons, and one block of counters per worker.
//!
//! A block has a single writer, its worker, which stores plain values once per batch. Readers add the blocks up when asked.
//! Nothing here is shared between two writers, so nothing here is a read-modify-write.

/// Why a packet was dropped without a reply. Each variant is a counter of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DropReason {
    /// The frame is not what the XDP program promises: a header that is cut short, a length that does not fit.
    BadFrame,
    /// The UDP or IPv4 checksum is wrong.
    BadChecksum,
    /// Fewer bytes than a DNS header (RFC 1035 section 4.1.1).
    ShortMessage,
    /// QR is set: answering a response is how two servers loop.
    Response,
    /// Source port 0 cannot be replied to.
    SourcePortZero,
    /// The source is one of our own addresses.
    OwnSource,
    /// The reply does not fit into the room there is.
    NoRoom,
    /// The sink service drops what it counts.
    Sunk,
}

impl DropReason {
    /// Every reason, in the order of its index.
    pub const ALL: [Self; 8] = [
        Self::BadFrame,
        Self::BadChecksum,
        Self::ShortMessage,
        Self::Response,
        Self::SourcePortZero,
        Self::OwnSource,
        Self::NoRoom,
        Self::Sunk,
    ];

    /// The counter's name in `status`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::BadFrame => "bad_frame",
            Self::BadChecksum => "bad_checksum",
            Self::ShortMessage => "short_message",
            Self::Response => "response",
            Self::SourcePortZero => "source_port_zero",
            Self::OwnSource => "own_source",
            Self::NoRoom => "no_room",
            Self::Sunk => "sunk",
        }
    }
}
