//! Decides from what was seen whether a queue is stuck. It sees nothing itself: clocks and counters are read by its callers.

use std::time::{Duration, Instant};

/// Frames leave a NIC in microseconds.
pub const LATE: Duration = Duration::from_millis(50);
/// After it was kicked, even a NIC that resets itself has said something by then.
pub const DEAD: Duration = Duration::from_secs(1);
/// What lies between two looks counts this long at most: whoever looks late may not have run, and then perhaps nobody has.
const STEP_MAX: Duration = Duration::from_millis(25);

/// Watches the frames that were given to a TX ring.
#[derive(Clone, Copy, Debug, Default)]
pub struct TxWatch {
    /// The last look that found frames in flight and none completed.
    last: Option<Instant>,
    /// How long that has been so, or for how long since the kick.
    waited: Duration,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Frames may complete by themselves.
    #[default]
    Patient,
    /// They were late, and the kernel was told to send them.
    Kicked,
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
        let before = self.last.replace(now).unwrap_or(now);
        self.waited += (now - before).min(STEP_MAX);
        let (stage, overdue) = match self.stage {
            Stage::Patient if self.waited >= LATE => (Stage::Kicked, Overdue::Late),
            Stage::Kicked if self.waited >= DEAD => (Stage::Dead, Overdue::Dead),
            _ => return Overdue::No,
        };
        (self.stage, self.waited) = (stage, Duration::ZERO);
        overdue
    }

    /// A frame has completed, none is in flight, or the link is down and nothing can be sent. Returns whether the ring was dead.
    #[inline]
    pub fn progress(&mut self) -> bool {
        self.last.is_some() && std::mem::take(self).stage == Stage::Dead
    }
}

/// Whether a zero-copy driver has no frame to receive into, though the fill ring has some: of the ring's frames the kernel has `taken` some
/// from the fill ring, and these are all with the TX side or in the RX ring.
#[must_use]
pub fn is_unfilled(ring_frames: u32, taken: u32, in_flight: u32, arrived: u32) -> bool {
    taken < ring_frames && taken <= in_flight + arrived
}

/// Looks at a queue that has received nothing, a second apart. All counts are totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Look {
    /// Frames that the queue's socket has received since it was bound.
    pub received: u64,
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

/// With more verdicts than this since the last look, it may be a queue that works and has too much to do that misses packets.
const BUSY: u64 = 1000;
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
            || (grew(|look| look.missed) && now.verdicts.saturating_sub(last.verdicts) <= BUSY)
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
        use Overdue::{Dead, Late};
        // How long it looks and in what steps, when there is progress, and what comes up at which look, in milliseconds.
        type Case<'a> = (u64, u64, Option<u64>, &'a [(u64, Overdue)]);
        let cases: [Case<'_>; 6] = [
            (49, 7, None, &[]),
            (1000, 10, None, &[(50, Late)]),
            (3000, 10, None, &[(50, Late), (1050, Dead)]),
            (200, 10, Some(40), &[(100, Late)]),
            (1200, 10, Some(1040), &[(50, Late), (1100, Late)]),
            (1200, 20, Some(1100), &[(60, Late), (1060, Dead), (1180, Late)]),
        ];
        let start = Instant::now();
        for (until, step, progress, expected) in cases {
            let mut watch = TxWatch::default();
            let mut found = Vec::new();
            for at in (0..=until).step_by(usize::try_from(step).unwrap()) {
                if Some(at) == progress {
                    watch.progress();
                    continue;
                }
                match watch.waiting(start + Duration::from_millis(at)) {
                    Overdue::No => {}
                    overdue => found.push((at, overdue)),
                }
            }
            assert_eq!(found, expected, "{until} {step} {progress:?}");
        }
    }

    #[test]
    fn a_worker_that_did_not_run_blames_nobody() {
        let start = Instant::now();
        let mut watch = TxWatch::default();
        for (at_ms, expected) in [(0, Overdue::No), (9000, Overdue::No), (9024, Overdue::No), (9025, Overdue::Late)] {
            assert_eq!(watch.waiting(start + Duration::from_millis(at_ms)), expected, "{at_ms}");
        }
    }

    #[test]
    fn progress_tells_that_it_was_dead() {
        let start = Instant::now();
        let mut watch = TxWatch::default();
        assert!(!watch.progress());
        let last =
            (0..60).map(|step| watch.waiting(start + step * STEP_MAX)).filter(|found| *found != Overdue::No).last();
        assert_eq!(last, Some(Overdue::Dead));
        assert!(watch.progress());
        assert!(!watch.progress());
    }

    /// A queue that binds and never receives, as on a NIC whose driver wakes the wrong interrupt.
    #[test]
    fn a_queue_that_receives_nothing_is_told_from_one_that_is_asked_nothing() {
        // What grows from one look to the next.
        let step = Look::default();
        let cases = [
            ("nothing happens", step, None),
            ("the driver took no frames", Look { unfilled: true, ..step }, Some(Deaf::Unfilled)),
            ("it missed packets", Look { missed_here: 1, verdicts: 5000, ..step }, Some(Deaf::Missed)),
            ("somebody missed packets", Look { missed: 1, verdicts: 1000, ..step }, Some(Deaf::Missed)),
            ("a busy queue missed packets", Look { missed: 1, verdicts: 1001, ..step }, None),
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
    fn a_driver_that_holds_no_frame_is_told_from_one_that_was_given_none() {
        for (taken, in_flight, arrived, unfilled) in [
            (0, 0, 0, true),
            (256, 0, 0, false),
            (256, 200, 56, true),
            (256, 200, 55, false),
            // Everything is on its way out: the fill ring has nothing to take.
            (4096, 4096, 0, false),
        ] {
            assert_eq!(is_unfilled(4096, taken, in_flight, arrived), unfilled, "{taken} {in_flight} {arrived}");
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
