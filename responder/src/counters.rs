//! What happened to the packets: one closed enum of drop reasons, and one block of counters per worker.
//!
//! A block has a single writer, its worker, which stores plain values once per batch. Readers add the blocks up when asked.
//! Nothing here is shared between two writers, so nothing here is a read-modify-write.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Why a packet was dropped without a reply. Each variant is a counter of the same name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
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
    /// The kernel would not take the reply.
    NotSent,
    /// The sink service drops what it counts.
    Sunk,
    /// The access list says so.
    AclDropped,
    /// The client's network has had too many answers of the kind.
    LimitedDropped,
}

impl DropReason {
    /// Every reason, in the order of its index.
    pub const ALL: [Self; 11] = [
        Self::BadFrame,
        Self::BadChecksum,
        Self::ShortMessage,
        Self::Response,
        Self::SourcePortZero,
        Self::OwnSource,
        Self::NoRoom,
        Self::NotSent,
        Self::Sunk,
        Self::AclDropped,
        Self::LimitedDropped,
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
            Self::NotSent => "not_sent",
            Self::Sunk => "sunk",
            Self::AclDropped => "acl_dropped",
            Self::LimitedDropped => "limited_dropped",
        }
    }
}

/// What one worker has done since it started, in packets unless said otherwise.
///
/// One writer, so that an increment is a plain load and store; alone on its cache lines, so that no other worker's do.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    received: AtomicU64,
    answered: AtomicU64,
    dropped: [AtomicU64; DropReason::ALL.len()],
    slipped: AtomicU64,
    batches: AtomicU64,
    stalls: AtomicU64,
}

impl Counters {
    /// A batch was taken: `received` packets came, `answered` of them were given to the kernel as replies.
    #[inline]
    pub fn batch(&self, received: u32, answered: u32) {
        add(&self.batches, 1);
        add(&self.received, u64::from(received));
        add(&self.answered, u64::from(answered));
    }

    /// A packet was dropped.
    #[inline]
    pub fn dropped_one(&self, reason: DropReason) {
        add(&self.dropped[reason as usize], 1);
    }

    /// Replies over the rate limit went out empty with TC.
    #[inline]
    pub fn slipped(&self, count: u32) {
        if count > 0 {
            add(&self.slipped, u64::from(count));
        }
    }

    /// The kernel would not send.
    #[inline]
    pub fn stall(&self) {
        add(&self.stalls, 1);
    }

    /// Packets received.
    pub fn received(&self) -> u64 {
        self.received.load(Relaxed)
    }

    /// Replies given to the kernel.
    pub fn answered(&self) -> u64 {
        self.answered.load(Relaxed)
    }

    /// Packets dropped, by reason.
    pub fn dropped(&self) -> impl Iterator<Item = (DropReason, u64)> + '_ {
        DropReason::ALL.into_iter().map(|reason| (reason, self.dropped[reason as usize].load(Relaxed)))
    }

    /// Replies over the rate limit that went out empty with TC.
    pub fn limited_slipped(&self) -> u64 {
        self.slipped.load(Relaxed)
    }

    /// Batches taken.
    pub fn batches(&self) -> u64 {
        self.batches.load(Relaxed)
    }

    /// Times the kernel left replies unsent although it was asked to send them.
    pub fn stalls(&self) -> u64 {
        self.stalls.load(Relaxed)
    }
}

/// Adds to a counter that only the calling thread writes.
#[inline]
pub fn add(counter: &AtomicU64, amount: u64) {
    counter.store(counter.load(Relaxed) + amount, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_its_own_counter_and_name() {
        let counters = Counters::default();
        for reason in DropReason::ALL {
            counters.dropped_one(reason);
        }
        assert!(counters.dropped().all(|(_, count)| count == 1));
        let names: std::collections::BTreeSet<_> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        assert_eq!(names.len(), DropReason::ALL.len());
    }

    #[test]
    fn workers_share_no_cache_line() {
        assert_eq!(align_of::<Counters>(), 128);
        assert_eq!(size_of::<Counters>() % 128, 0);
    }
}
