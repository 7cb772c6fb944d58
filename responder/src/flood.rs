//! The load generator: asks a server from many flows at a rate or with a window, matches each reply to its query, and says what became of all of them.
//!
//! Its parts: what is asked ([`questions`]) and the frames of it ([`packets`]), who is asked ([`target`]), when ([`pace`]), what is on its way
//! ([`mod@flights`]), what a thread decides ([`asker`]) and counts ([`tally`]); then two ways to send and receive ([`xdp`] with [`gather`], [`sockets`]), the
//! highest rate that gets through ([`peak`]) and what is said of a run ([`report`]).
//!
//! In an open loop a query's latency counts from when it was due. By AF_XDP a reply's time is that at which the XDP program saw it. So neither a server that
//! is slow nor a generator that sleeps makes latencies look shorter or longer than a client would see them; how late the generator was itself is told beside them.

pub mod asker;
pub mod clock;
pub mod flights;
pub mod gather;
pub mod pace;
pub mod packets;
pub mod peak;
pub mod questions;
pub mod report;
pub mod sockets;
pub mod tally;
pub mod target;
pub mod xdp;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use core_affinity::CoreId;

use asker::{Asker, Progress, Shared};
use clock::{Clock, Until};
use flights::Flights;
use pace::Load;
use tally::Tally;

/// IDs of all flows together, at most: 32 MB.
const SLOTS_MAX: usize = 1 << 22;
/// Nobody needs to be told of progress more often.
const TELL_EVERY: Duration = Duration::from_secs(1);
/// What a signal asks for is done within this time.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// The clock of one run must not outgrow its slots.
pub const RUN_MAX: Duration = Duration::from_secs(3600);

/// The low 16 bits: of a count the ID, and the number of a flow, of which there are fewer (`FLOWS_MAX`).
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "this is what it is for")]
fn low_16(number: usize) -> u16 {
    number as u16
}

/// By what it sends and receives.
pub enum Io {
    /// AF_XDP.
    Xdp(Box<xdp::Io>),
    /// Kernel sockets.
    Socket(sockets::Io),
}

/// A generator that is ready: its sockets are open, and its queries are made.
pub struct Flood {
    io: Io,
    shared: Shared,
    threads: usize,
    /// Replies are not looked at.
    deaf: bool,
    /// It is to ask no more.
    stop: Arc<AtomicBool>,
}

/// What one run has done.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What was counted.
    pub tally: Tally,
    /// For how long queries were sent.
    pub asked_for: Duration,
    /// How the load was offered.
    pub load: Load,
    /// Replies that were counted and dropped by the XDP program, where nobody looks at them.
    pub unseen: u64,
}

impl Flood {
    /// A generator with these parts, whose flows are those of `threads` threads.
    #[must_use]
    pub fn new(io: Io, shared: Shared, threads: usize, deaf: bool, stop: Arc<AtomicBool>) -> Self {
        Self { io, shared, threads, deaf, stop }
    }

    /// Whether it was told to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Relaxed)
    }

    /// How many queries can be on their way, each known by its flow and ID.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.shared.flights.iter().map(|flights| self.shared.flows * flights.ids()).sum()
    }

    /// How long a reply may take.
    #[must_use]
    pub fn timeout(&self) -> Duration {
        Duration::from_nanos(self.shared.timeout_ns)
    }

    /// Offers the load for so long, then waits for what is on its way, as long as a reply may take. `tell` hears how much was sent and answered, once a second.
    pub fn run(&mut self, load: Load, asked_for: Duration, tell: &mut dyn FnMut(u64, u64)) -> Result<Outcome> {
        ensure!(asked_for < RUN_MAX, "a run takes less than {} s", RUN_MAX.as_secs());
        let Self { io, shared, threads, deaf, stop } = self;
        shared.flights.iter().for_each(Flights::clear);
        shared.progress.iter_mut().for_each(|progress| *progress = Progress::default());
        let unseen = unseen(io)?;
        let clock = Clock::start();
        let start_ns = clock.now_ns();
        let ask_ns = AtomicU64::new(start_ns + nanoseconds(asked_for));
        let until = Until { ask_ns: &ask_ns, drain_ns: shared.timeout_ns, shared };
        let askers: Vec<_> = (0..*threads)
            .map(|index| (index, part(load, index, *threads)))
            .map(|(index, part)| {
                Asker::new(shared, index, *threads, part, stagger(index, *threads, part, start_ns), *deaf)
            })
            .collect();
        let tallies = thread::scope(|scope| {
            let worker = scope.spawn(|| match io {
                Io::Xdp(io) => io.run(shared, askers, clock, until),
                Io::Socket(io) => io.run(shared, askers, clock, until),
            });
            let mut told = TELL_EVERY;
            while !worker.is_finished() {
                thread::sleep(LOOK_EVERY);
                if stop.load(Relaxed) {
                    ask_ns.fetch_min(clock.now_ns(), Relaxed);
                }
                if Duration::from_nanos(clock.now_ns()) >= told && until.is_asking(clock.now_ns()) {
                    let (sent, answered) = shared.progress();
                    tell(sent, answered);
                    told += TELL_EVERY;
                }
            }
            worker.join().expect("a panic has been reported")
        })?;
        let mut tally = Tally::default();
        tallies.iter().for_each(|one| tally.add(one));
        let asked_for = Duration::from_nanos(ask_ns.into_inner() - start_ns);
        let unseen = self::unseen(io)? - unseen;
        Ok(Outcome { tally, asked_for, load, unseen })
    }
}

impl Outcome {
    /// Queries a second that were sent.
    #[must_use]
    pub fn sent_per_s(&self) -> f64 {
        per_second(self.tally.all_sent(), self.asked_for)
    }

    /// Queries a second that were answered in time.
    #[must_use]
    pub fn answered_per_s(&self) -> f64 {
        per_second(self.tally.all_answered(), self.asked_for)
    }

    /// Whether the generator has sent what it was to send, but for one in fifty.
    #[must_use]
    pub fn is_as_offered(&self) -> bool {
        match self.load {
            Load::Rate(rate) => self.sent_per_s() >= 0.98 * rate,
            Load::Window(_) => true,
        }
    }
}

/// The slots for flows of so many threads: as many IDs as there are, unless that is too much.
#[must_use]
pub fn flights(groups: usize, flows: usize, has_ids: bool) -> Vec<Flights> {
    let ids = if has_ids { (SLOTS_MAX / (groups * flows)).max(1) } else { 1 };
    // A power of two that is not more.
    let ids = 1 << ids.ilog2();
    (0..groups).map(|_| Flights::new(flows, ids)).collect()
}

/// What one of so many threads has to offer of a load.
fn part(load: Load, index: usize, threads: usize) -> Load {
    match load {
        Load::Rate(rate) => Load::Rate(rate / threads as f64),
        Load::Window(window) => Load::Window(window / threads + usize::from(index < window % threads)),
    }
}

/// Threads send in turn, not at once.
fn stagger(index: usize, threads: usize, load: Load, start_ns: u64) -> u64 {
    match load {
        Load::Rate(rate) => start_ns + nanoseconds(Duration::from_secs_f64(index as f64 / threads as f64 / rate)),
        Load::Window(_) => start_ns,
    }
}

fn unseen(io: &Io) -> Result<u64> {
    match io {
        Io::Xdp(io) => io.unseen(),
        Io::Socket(_) => Ok(0),
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

fn per_second(count: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { count as f64 / time.as_secs_f64() }
}

/// Has this thread run on a CPU, if it is told, and sleep no longer than it asks to.
fn pin(cpu: Option<usize>) -> Result<()> {
    // By default the kernel adds up to 50 microseconds to each sleep.
    nix::sys::prctl::set_timerslack(1).context("PR_SET_TIMERSLACK")?;
    if let Some(cpu) = cpu {
        ensure!(core_affinity::set_for_current(CoreId { id: cpu }), "CPU {cpu} does not exist or is not allowed here");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_a_load_between_them_and_no_more() {
        for (window, threads) in [(1, 1), (1, 2), (10, 8), (32, 5), (3, 7)] {
            let parts = (0..threads).map(|index| match part(Load::Window(window), index, threads) {
                Load::Window(window) => window,
                Load::Rate(_) => unreachable!("it is a window"),
            });
            assert_eq!(parts.sum::<usize>(), window, "{threads} threads");
        }
        assert_eq!(part(Load::Rate(10.0), 3, 4), Load::Rate(2.5));
    }
}
