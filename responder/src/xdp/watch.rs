//! Decides from what was seen whether a queue is stuck. It sees nothing itself: clocks and counters are read by its callers.

use std::time::{Duration, Instant};

/// Frames leave a NIC in microseconds.
pub const LATE: Duration = Duration::from_millis(50);
/// After it was kicked, even a NIC that resets itself has said something by then.
pub const DEAD: Duration = Duration::from_secs(1);

/// Watches the frames that were given to a TX ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TxWatch {
    /// Frames complete, or none are in flight.
    #[default]
    Fine,
    /// Frames are in flight and none has completed since.
    Waiting(Instant),
    /// They were late, and the kernel was told to send them then.
    Kicked(Instant),
    /// That did not help.
    Dead,
}

/// What is to be done about frames that do not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue {
    /// Nothing yet.
    No,
    /// Tell the kernel to send, whatever the ring's flags say.
    Late,
    /// Make the queue anew.
    Dead,
}

impl TxWatch {
    /// Frames are in flight and none has completed since the last look. Each remedy comes up once until there is progress.
    pub fn waiting(&mut self, now: Instant) -> Overdue {
        match *self {
            Self::Fine => *self = Self::Waiting(now),
            Self::Waiting(since) if now - since >= LATE => {
                *self = Self::Kicked(now);
                return Overdue::Late;
            }
            Self::Kicked(since) if now - since >= DEAD => {
                *self = Self::Dead;
                return Overdue::Dead;
            }
            Self::Waiting(_) | Self::Kicked(_) | Self::Dead => {}
        }
        Overdue::No
    }

    /// A frame has completed, none is in flight, or the link is down and nothing can be sent. Returns whether the ring was dead.
    #[inline]
    pub fn progress(&mut self) -> bool {
        std::mem::take(self) == Self::Dead
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CASES 14 and 15: replies that stay in the TX ring until the next query, or for ever.
    #[test]
    fn case_14_15_what_stays_in_the_tx_ring_is_noticed() {
        use Overdue::{Dead, Late, No};
        // Each step: milliseconds, and what it finds; `None` is progress.
        let cases: [&[(u64, Option<Overdue>)]; 6] = [
            &[(0, Some(No)), (49, Some(No)), (50, Some(Late)), (51, Some(No))],
            &[(0, Some(No)), (49, None), (50, Some(No)), (99, Some(No)), (100, Some(Late))],
            // The clock starts anew with the kick.
            &[(0, Some(No)), (70, Some(Late)), (1069, Some(No)), (1070, Some(Dead)), (9000, Some(No))],
            &[(0, Some(No)), (70, Some(Late)), (1069, None), (1070, Some(No)), (1119, Some(No)), (1120, Some(Late))],
            // A worker that was not run for long draws no conclusion beyond the first.
            &[(0, Some(No)), (9000, Some(Late)), (9001, Some(No))],
            &[(0, Some(No)), (50, Some(Late)), (1050, Some(Dead)), (1051, None), (1052, Some(No)), (1102, Some(Late))],
        ];
        let start = Instant::now();
        for case in cases {
            let mut watch = TxWatch::default();
            for (at_ms, expected) in case {
                match expected {
                    Some(expected) => {
                        let found = watch.waiting(start + Duration::from_millis(*at_ms));
                        assert_eq!(found, *expected, "{case:?} at {at_ms}");
                    }
                    None => {
                        watch.progress();
                    }
                }
            }
        }
    }

    #[test]
    fn progress_tells_that_it_was_dead() {
        let start = Instant::now();
        let mut watch = TxWatch::default();
        assert!(!watch.progress());
        for (after, dead) in [(Duration::ZERO, false), (LATE, false), (DEAD, true)] {
            let mut copy = watch;
            assert!(!copy.progress());
            watch.waiting(start + after + if dead { LATE } else { Duration::ZERO });
        }
        assert!(watch.progress());
        assert_eq!(watch, TxWatch::Fine);
    }
}
