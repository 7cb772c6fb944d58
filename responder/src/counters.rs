//! What happened to the packets: one closed enum of drop reasons, and one block of counters per worker.
//!
//! A block has a single writer, its worker, which stores plain values. Readers add the blocks up when asked.
//! Nothing here is shared between two writers, so nothing here is a read-modify-write.

pub mod qtypes;

use std::{
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use crate::wire::message::Rcode;

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

/// The address family of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

impl Family {
    /// Both, in the order of their index.
    pub const ALL: [Self; 2] = [Self::Ipv4, Self::Ipv6];

    /// The family of an address.
    #[inline]
    #[must_use]
    pub const fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::Ipv4 } else { Self::Ipv6 }
    }

    /// The name in `status`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        }
    }
}

/// The largest batches that are told apart: up to 1, 2, 4, ... packets. What is larger has a count of its own.
pub const BATCH_BOUNDS: [u64; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];
/// A power of two above every RCODE, so that an index needs no check.
const RCODES: usize = 32;

/// What one worker has done since it started, in packets unless said otherwise.
///
/// One writer, so that an increment is a plain load and store; alone on its cache lines, so that no other worker's do.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counters {
    received: AtomicU64,
    answered: AtomicU64,
    truncated: AtomicU64,
    slipped: AtomicU64,
    batches: AtomicU64,
    stalls: AtomicU64,
    batch_sizes: [AtomicU64; BATCH_BOUNDS.len() + 1],
    replies: [[AtomicU64; RCODES]; Family::ALL.len()],
    qtypes: [AtomicU64; qtypes::NAMES.len()],
    dropped: [AtomicU64; DropReason::ALL.len()],
}

impl Counters {
    /// A batch was taken: `received` packets came, `answered` of them were given to the kernel as replies.
    #[inline]
    pub fn batch(&self, received: u32, answered: u32) {
        add(&self.batches, 1);
        add(&self.batch_sizes[batch_size(received)], 1);
        add(&self.received, u64::from(received));
        add(&self.answered, u64::from(answered));
    }

    /// A packet was dropped.
    #[inline]
    pub fn dropped_one(&self, reason: DropReason) {
        add(&self.dropped[reason as usize], 1);
    }

    /// A DNS message has a reply. Whether the kernel takes it is another matter.
    #[inline]
    pub fn reply(&self, family: Family, rcode: Rcode, qtype: u16, truncated: bool) {
        add(&self.replies[family as usize][usize::from(rcode.0) % RCODES], 1);
        add(&self.qtypes[qtypes::index(qtype)], 1);
        add(&self.truncated, u64::from(truncated));
    }

    /// A reply over the rate limit was cut short and has TC.
    #[inline]
    pub fn slipped_one(&self) {
        add(&self.slipped, 1);
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

    /// Replies that were made to DNS messages, by the family they went to and their RCODE.
    pub fn replies(&self) -> impl Iterator<Item = (Family, Rcode, u64)> + '_ {
        let of = move |family: Family| {
            move |rcode: Rcode| (family, rcode, self.replies[family as usize][usize::from(rcode.0)].load(Relaxed))
        };
        Family::ALL.into_iter().flat_map(move |family| Rcode::ALL.into_iter().map(of(family)))
    }

    /// The same replies by the QTYPE that was asked for.
    pub fn qtypes(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
        qtypes::NAMES.into_iter().zip(self.qtypes.iter().map(|count| count.load(Relaxed)))
    }

    /// The replies among them that have TC, for whatever reason.
    pub fn truncated(&self) -> u64 {
        self.truncated.load(Relaxed)
    }

    /// Batches by their size: as many counts as [`BATCH_BOUNDS`], and one more for what is larger.
    pub fn batch_sizes(&self) -> impl Iterator<Item = u64> + '_ {
        self.batch_sizes.iter().map(|count| count.load(Relaxed))
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

/// Which of the counts by size a batch belongs to: that of the next power of two.
#[inline]
fn batch_size(packets: u32) -> usize {
    let power = u32::BITS - packets.saturating_sub(1).leading_zeros();
    (power as usize).min(BATCH_BOUNDS.len())
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
    fn a_reply_is_counted_by_family_rcode_and_qtype() {
        let counters = Counters::default();
        for family in Family::ALL {
            for rcode in Rcode::ALL {
                counters.reply(family, rcode, 28, rcode == Rcode::NOERROR);
            }
        }
        let found: Vec<_> = counters.replies().collect();
        assert_eq!(found.len(), 2 * Rcode::ALL.len());
        assert!(found.iter().all(|(_, _, count)| *count == 1), "{found:?}");
        assert_eq!(counters.truncated(), 2);
        let asked: Vec<_> = counters.qtypes().filter(|(_, count)| *count > 0).collect();
        assert_eq!(asked, [("AAAA", 20)]);
    }

    #[test]
    fn a_batch_is_counted_by_the_next_power_of_two() {
        for (packets, expected) in
            [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (64, 6), (65, 7), (256, 8), (257, 9), (u32::MAX, 9)]
        {
            assert_eq!(batch_size(packets), expected, "{packets}");
            let bound = BATCH_BOUNDS.iter().position(|bound| u64::from(packets) <= *bound);
            assert_eq!(bound.unwrap_or(BATCH_BOUNDS.len()), expected, "{packets}");
        }
    }

    #[test]
    fn workers_share_no_cache_line() {
        assert_eq!(align_of::<Counters>(), 128);
        assert_eq!(size_of::<Counters>() % 128, 0);
    }
}
