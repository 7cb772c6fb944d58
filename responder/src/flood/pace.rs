//! When queries are due. An open loop has them due at a rate, whatever comes back; a closed loop has so many on their way at any time.
//!
//! A query's latency counts from when it was due, so that a generator that was held up does not hide what a client would have waited.

use std::time::Duration;

/// A generator that is behind by more has been stopped by something. What it has missed is not sent afterwards, and counted.
const BEHIND_MAX: Duration = Duration::from_millis(50);

/// How a load is offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Load {
    /// Queries a second.
    Rate(f64),
    /// Queries on their way at a time.
    Window(usize),
}

/// The open loop of one thread. Times are in nanoseconds, of any clock.
#[derive(Clone, Debug)]
pub struct Pace {
    interval_ns: f64,
    start_ns: u64,
    /// Queries that were due and have been sent, or given up.
    done: u64,
    /// Of these, given up.
    skipped: u64,
}

impl Pace {
    /// Begins at `start_ns` with a query each `interval_ns`.
    #[must_use]
    pub fn new(rate: f64, start_ns: u64) -> Self {
        Self { interval_ns: 1e9 / rate, start_ns, done: 0, skipped: 0 }
    }

    /// How many queries are due and not sent. It gives up those that are too late.
    #[inline]
    pub fn due(&mut self, now_ns: u64) -> u64 {
        let planned = self.planned(now_ns);
        let behind = planned.saturating_sub(self.done);
        if behind as f64 * self.interval_ns > BEHIND_MAX.as_nanos() as f64 && behind > 1 {
            self.skipped += behind - 1;
            self.done += behind - 1;
            return 1;
        }
        behind
    }

    /// When the next query is, or was, due.
    #[inline]
    #[must_use]
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time within an hour of nanoseconds")]
    pub fn next_ns(&self) -> u64 {
        self.start_ns + (self.done as f64 * self.interval_ns) as u64
    }

    /// One was sent.
    #[inline]
    pub fn sent(&mut self) {
        self.done += 1;
    }

    /// Queries that were due and never sent.
    #[must_use]
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of queries")]
    fn planned(&self, now_ns: u64) -> u64 {
        match now_ns.checked_sub(self.start_ns) {
            Some(elapsed) => (elapsed as f64 / self.interval_ns) as u64 + 1,
            None => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_due_by_the_clock() {
        let mut pace = Pace::new(1e6, 5_000);
        assert_eq!((pace.due(0), pace.next_ns()), (0, 5_000));
        assert_eq!(pace.due(5_000), 1);
        pace.sent();
        assert_eq!((pace.due(5_999), pace.next_ns()), (0, 6_000));
        assert_eq!(pace.due(15_500), 10);
        (0..10).for_each(|_| pace.sent());
        assert_eq!((pace.next_ns(), pace.skipped()), (16_000, 0));
    }

    /// One that slept does not offer afterwards, all at once, what it has missed; and says so.
    #[test]
    fn what_was_missed_for_long_is_not_made_up_for() {
        let mut pace = Pace::new(1000.0, 0);
        assert_eq!(pace.due(1_000_000_000), 1);
        assert_eq!((pace.skipped(), pace.next_ns()), (1000, 1_000_000_000));
        // A rate that is slower than that is on time.
        let mut slow = Pace::new(1.0, 0);
        slow.sent();
        assert_eq!((slow.due(1_000_000_001), slow.skipped()), (1, 0));
    }
}
