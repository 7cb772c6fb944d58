//! What one thread has counted, and the sum of all.

use hdrhistogram::Histogram;

use super::questions::Kind;

/// Latencies beyond are counted as this one, in nanoseconds: a minute.
const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// Significant decimal digits of latencies.
const DIGITS: u8 = 3;
/// RCODEs of the header (RFC 1035 section 4.1.1).
const RCODES: usize = 16;

/// Counts of one thread, or of all.
#[derive(Clone, Debug)]
pub struct Tally {
    /// Queries sent, by the index of their kind.
    pub sent: [u64; Kind::ALL.len()],
    /// Of these, answered in time by a reply that fits.
    pub answered: [u64; Kind::ALL.len()],
    /// Answered too late.
    pub late: u64,
    /// Replies to a query that had one.
    pub duplicate: u64,
    /// Replies that are to a query of ours and do not fit it.
    pub wrong: u64,
    /// Frames that are no reply to any query of ours.
    pub stray: u64,
    /// Answers with the TC bit.
    pub truncated: u64,
    /// Answers by RCODE.
    pub rcodes: [u64; RCODES],
    /// Queries that were given up, being too late (`pace`), or that the kernel did not take.
    pub not_sent: u64,
    /// Nanoseconds from when a query was due to when its reply was there.
    pub latency: Histogram<u64>,
    /// Nanoseconds from when a query was due to when it was handed to the kernel: what of the latency is the generator's own.
    pub lag: Histogram<u64>,
}

impl Default for Tally {
    fn default() -> Self {
        let histogram = || Histogram::new_with_max(LATENCY_MAX_NS, DIGITS).expect("these bounds are valid");
        Self {
            sent: [0; Kind::ALL.len()],
            answered: [0; Kind::ALL.len()],
            late: 0,
            duplicate: 0,
            wrong: 0,
            stray: 0,
            truncated: 0,
            rcodes: [0; RCODES],
            not_sent: 0,
            latency: histogram(),
            lag: histogram(),
        }
    }
}

impl Tally {
    /// Adds another thread's.
    pub fn add(&mut self, other: &Self) {
        let pairs = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        pairs(&mut self.sent, &other.sent);
        pairs(&mut self.answered, &other.answered);
        pairs(&mut self.rcodes, &other.rcodes);
        self.late += other.late;
        self.duplicate += other.duplicate;
        self.wrong += other.wrong;
        self.stray += other.stray;
        self.truncated += other.truncated;
        self.not_sent += other.not_sent;
        self.latency.add(&other.latency).expect("all histograms have the same bounds");
        self.lag.add(&other.lag).expect("all histograms have the same bounds");
    }

    /// All queries sent.
    #[must_use]
    pub fn all_sent(&self) -> u64 {
        self.sent.iter().sum()
    }

    /// All queries answered.
    #[must_use]
    pub fn all_answered(&self) -> u64 {
        self.answered.iter().sum()
    }

    /// Whether anything came back, be it wrong.
    #[must_use]
    pub fn heard_any(&self) -> bool {
        self.all_answered() + self.late + self.wrong + self.duplicate > 0
    }

    /// Queries that have had no reply that fits, but for those that need not have one.
    #[must_use]
    pub fn lost(&self) -> u64 {
        let malformed = Kind::Malformed as usize;
        let of = |counts: &[u64; Kind::ALL.len()]| counts.iter().sum::<u64>() - counts[malformed];
        of(&self.sent).saturating_sub(of(&self.answered) + self.late)
    }

    /// What share of the queries that must have an answer has none in time.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "counts of queries")]
    pub fn loss(&self) -> f64 {
        let malformed = Kind::Malformed as usize;
        let expected = self.all_sent() - self.sent[malformed];
        if expected == 0 { 0.0 } else { (self.lost() + self.late) as f64 / expected as f64 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_is_what_is_left() {
        let mut tally = Tally { sent: [100, 50, 30, 0], answered: [90, 45, 1, 0], late: 5, ..Tally::default() };
        // Malformed queries need no answer.
        assert_eq!((tally.all_sent(), tally.all_answered(), tally.lost()), (180, 136, 10));
        assert!((tally.loss() - 0.1).abs() < 1e-9);
        tally.add(&tally.clone());
        assert_eq!((tally.all_sent(), tally.lost(), tally.late), (360, 20, 10));
        assert!(Tally::default().loss().abs() < 1e-9);
    }
}
