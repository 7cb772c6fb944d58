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

/// Looks at a queue that has received nothing, a second apart. All counts are totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Frames that the queue's socket has received since it was bound.
    pub received: u64,
    /// Frames that the sockets of the interface's other queues have received.
    pub others: u64,
    /// Packets that the NIC says it received: on any queue, and on this one.
    pub packets: u64,
    /// See above.
    pub packets_here: u64,
    /// Packets that found no buffer: on any queue, and on this one.
    pub missed: u64,
    /// See above.
    pub missed_here: u64,
    /// Verdicts of the XDP program on frames of any queue.
    pub verdicts: u64,
    /// The driver has taken no frame from the fill ring, though there are some.
    pub unfilled: bool,
}

/// What shows that a queue receives nothing though it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deaf {
    /// The driver takes no frames to receive into.
    Unfilled,
    /// The NIC misses packets.
    Missed,
    /// The NIC receives, and the XDP program sees nothing.
    Unseen,
}

impl Deaf {
    /// As part of a sentence.
    #[must_use]
    pub fn reason(self) -> &'static str {
        match self {
            Self::Unfilled => "it receives nothing: the driver takes no frames to receive into",
            Self::Missed => "it receives nothing while the NIC misses packets",
            Self::Unseen => "it receives nothing: packets arrive, the XDP program sees none",
        }
    }
}

/// More frames than this within a look, and it may be another queue that misses packets.
const OTHERS_MAX: u64 = 1000;
/// As often must a look find the same, one after the other.
const LOOKS: u32 = 2;

/// Watches a queue that has been bound and has received nothing yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct RxWatch {
    /// Verdicts at the first look.
    verdicts: u64,
    last: Option<Look>,
    found: Option<(Deaf, u32)>,
}

impl RxWatch {
    /// One more look. `Some` when it is certain that the queue receives nothing.
    pub fn look(&mut self, now: Look) -> Option<Deaf> {
        let Some(last) = self.last.replace(now) else {
            self.verdicts = now.verdicts;
            return None;
        };
        let grew = |field: fn(&Look) -> u64| field(&now) > field(&last);
        let deaf = if now.unfilled && last.unfilled {
            Some(Deaf::Unfilled)
        } else if now.received > 0 || grew(|look| look.packets_here) {
            None
        } else if grew(|look| look.missed_here)
            || (grew(|look| look.missed) && now.others.saturating_sub(last.others) <= OTHERS_MAX)
        {
            Some(Deaf::Missed)
        } else if grew(|look| look.packets) && now.verdicts == self.verdicts {
            Some(Deaf::Unseen)
        } else {
            None
        };
        self.found = deaf.map(|deaf| match self.found {
            Some((before, looks)) if before == deaf => (deaf, looks + 1),
            _ => (deaf, 1),
        });
        self.found.filter(|(_, looks)| *looks >= LOOKS).map(|(deaf, _)| deaf)
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

    /// A queue that binds and never receives, as on a NIC whose driver wakes the wrong interrupt.
    #[test]
    fn a_queue_that_receives_nothing_is_told_from_one_that_is_asked_nothing() {
        // What grows from one look to the next.
        let step = Look::default();
        let cases = [
            ("nothing happens", step, None),
            ("the driver took no frames", Look { unfilled: true, ..step }, Some(Deaf::Unfilled)),
            ("it missed packets", Look { missed_here: 1, others: 5000, ..step }, Some(Deaf::Missed)),
            ("somebody missed packets", Look { missed: 1, others: 1000, ..step }, Some(Deaf::Missed)),
            ("a busy queue missed packets", Look { missed: 1, others: 1001, ..step }, None),
            ("the kernel's own packets come in", Look { missed: 1, packets_here: 1, packets: 1, ..step }, None),
            ("it receives", Look { received: 1, missed: 9, packets: 9, ..step }, None),
            ("packets that the program does not see", Look { packets: 1, ..step }, Some(Deaf::Unseen)),
            ("packets that the program sees", Look { packets: 9, verdicts: 1, ..step }, None),
        ];
        for (name, step, expected) in cases {
            let mut watch = RxWatch::default();
            let found: Vec<Option<Deaf>> = (1..=4)
                .map(|n| {
                    watch.look(Look {
                        received: n * step.received,
                        others: n * step.others,
                        packets: n * step.packets,
                        packets_here: n * step.packets_here,
                        missed: n * step.missed,
                        missed_here: n * step.missed_here,
                        verdicts: n * step.verdicts,
                        unfilled: step.unfilled,
                    })
                })
                .collect();
            assert_eq!(found, [None, None, expected, expected], "{name}");
        }
    }

    #[test]
    fn what_was_found_once_is_not_certain() {
        let mut watch = RxWatch::default();
        for missed in [0, 1, 1, 2, 2, 3] {
            assert_eq!(watch.look(Look { missed, ..Look::default() }), None, "{missed}");
        }
        assert_eq!(watch.look(Look { missed: 4, ..Look::default() }), Some(Deaf::Missed));
    }
}
