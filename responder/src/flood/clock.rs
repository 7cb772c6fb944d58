//! The time that everything is told in, and how long it goes on.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use nix::time::{ClockId, clock_gettime};

use super::asker::Shared;

/// Nanoseconds of CLOCK_MONOTONIC, which the XDP program reads, too, since a time of ours.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    base_ns: u64,
}

impl Clock {
    /// One that begins now.
    #[must_use]
    pub fn start() -> Self {
        Self { base_ns: monotonic_ns() }
    }

    /// Since it began.
    #[inline]
    #[must_use]
    pub fn now_ns(self) -> u64 {
        monotonic_ns().saturating_sub(self.base_ns)
    }

    /// When it began.
    #[must_use]
    pub fn base_ns(self) -> u64 {
        self.base_ns
    }
}

#[inline]
fn monotonic_ns() -> u64 {
    // It exists on every Linux, and is not negative.
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("CLOCK_MONOTONIC");
    now.tv_sec().cast_unsigned() * 1_000_000_000 + now.tv_nsec().cast_unsigned()
}

/// How long threads go on: they ask until the first time, then hear until all is answered, or until the second.
#[derive(Clone, Copy)]
pub struct Until<'a> {
    /// When to ask no more. It may become earlier.
    pub ask_ns: &'a AtomicU64,
    /// How long to hear after that.
    pub drain_ns: u64,
    /// What has been sent and answered.
    pub shared: &'a Shared,
}

impl Until<'_> {
    /// Whether queries are still sent.
    #[inline]
    #[must_use]
    pub fn is_asking(&self, now_ns: u64) -> bool {
        now_ns < self.ask_ns.load(Relaxed)
    }

    /// Whether there is nothing left to do.
    #[inline]
    #[must_use]
    pub fn is_over(&self, now_ns: u64) -> bool {
        let ask_ns = self.ask_ns.load(Relaxed);
        if now_ns < ask_ns {
            return false;
        }
        now_ns >= ask_ns.saturating_add(self.drain_ns) || {
            let (sent, answered) = self.shared.progress();
            answered >= sent
        }
    }
}
