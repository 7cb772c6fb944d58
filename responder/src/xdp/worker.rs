//! The worker of one queue: takes batches from its socket, answers each query in the frame it came in, sleeps when idle.
//!
//! A worker owns its socket, its CPU, its counters and its rate limiter. It reads zones, rules, own addresses and its stop flag, which change rarely; it
//! writes nothing that another thread writes. [`Handler::reply`] is the whole life of a query on the bypass, without a NIC.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use super::{
    nic,
    socket::Socket,
    topology::Placement,
    watch::{Overdue, TxWatch},
};
use crate::{
    answer::{Outcome, Transport},
    counters::{Counters, DropReason, add},
    guard::OwnAddresses,
    privilege,
    service::{self, Service, State},
    sys,
    wire::frame::{FrameError, Request},
};

/// How long an idle worker sleeps before it looks at its stop flag and at frames the kernel has not sent.
const IDLE: Duration = Duration::from_millis(100);
/// The same while replies are on their way, so that it is noticed in time when they stay behind.
const IDLE_IN_FLIGHT: Duration = Duration::from_millis(20);
/// How long a worker naps that is idle for a moment, under load. A worker that sleeps in poll(2) is woken by the next frame, at the cost of an interrupt of its
/// CPU, which whoever delivers the frame pays; one that naps costs nothing, and finds a batch.
const NAP: Duration = Duration::from_micros(20);
/// It naps where at least so many frames are to be expected meanwhile, which is 400,000 a second. With fewer, being woken for each batch costs less CPU time
/// than the naps do.
const NAP_FRAMES: u32 = 8;
/// The least time over which that is judged.
const PULSE: Duration = Duration::from_micros(500);
/// How long a worker that is to end goes on with what it has received and what is on its way.
const END_WITHIN: Duration = Duration::from_millis(100);
/// A frame may be on its way into the socket while the XSKMAP slot is cleared.
const LAST_FRAME: Duration = Duration::from_millis(1);

/// Turns frames into replies: the service and what the guard must know.
#[derive(Clone, Debug)]
pub struct Handler {
    service: Service,
    state: State,
    own: OwnAddresses,
    verify_checksums: bool,
    mtu: usize,
}

impl Handler {
    /// A handler for frames from an interface with this MTU.
    #[must_use]
    pub fn new(service: Service, state: State, own: OwnAddresses, verify_checksums: bool, mtu: u32) -> Self {
        Self { service, state, own, verify_checksums, mtu: mtu as usize }
    }

    /// Looks for changed addresses, zones and rules, and at the clock if it is needed; once per batch.
    #[inline]
    pub fn refresh(&mut self) {
        self.own.refresh();
        self.service.refresh();
        self.state.refresh(service::now_s);
    }

    /// Answers the frame in `frame[..length]` in place, with the rest of `frame` as room, and returns the reply's length. What the reply is like
    /// is added to `counters`.
    #[inline]
    pub fn reply(&mut self, frame: &mut [u8], length: usize, counters: &Counters) -> Result<usize, DropReason> {
        let request = Request::parse(&frame[..length], self.verify_checksums).map_err(|error| match error {
            FrameError::Truncated | FrameError::Unsupported => DropReason::BadFrame,
            FrameError::Checksum => DropReason::BadChecksum,
        })?;
        let source = request.source(frame);
        self.own.admit(source, request.source_port(frame))?;
        let payload = request.payload();
        let room = request.payload_room(frame.len(), self.mtu);
        if payload.len() > room {
            return Err(DropReason::NoRoom);
        }
        let message = &mut frame[payload.start..payload.start + room];
        match self.service.serve(&mut self.state, message, payload.len(), source, Transport::Udp, counters) {
            Outcome::Reply(length) => Ok(request.reply_in_place(frame, length)),
            Outcome::Drop(reason) => Err(reason),
        }
    }
}

/// What others may read of a worker while it runs.
#[derive(Debug)]
pub struct Observed {
    /// Packets by fate.
    pub counters: Counters,
    /// Replies by the CPU they were sent from, as the worker found itself on it.
    sent_from: Box<[AtomicU64]>,
    thread: AtomicI32,
    /// Busy polling left replies in the TX ring and was given up.
    pub busy_poll_given_up: AtomicBool,
    /// Replies stay in the TX ring whatever is done.
    pub stuck: AtomicBool,
    /// The driver takes no frames to receive into, as of the last time the worker was idle.
    pub unfilled: AtomicBool,
    /// The driver has to be woken in the way that takes a capability, as of the same time.
    pub wants_nudge: AtomicBool,
}

impl Observed {
    /// Nothing seen yet. `cpus` is the number of CPUs that replies may be sent from.
    #[must_use]
    pub fn new(cpus: usize) -> Self {
        Self {
            counters: Counters::default(),
            sent_from: (0..cpus).map(|_| AtomicU64::new(0)).collect(),
            thread: AtomicI32::new(0),
            busy_poll_given_up: AtomicBool::new(false),
            stuck: AtomicBool::new(false),
            unfilled: AtomicBool::new(false),
            wants_nudge: AtomicBool::new(false),
        }
    }

    /// Forgets what its socket was like, which has gone; what was counted stays.
    pub fn forget_socket(&self) {
        for flag in [&self.stuck, &self.unfilled, &self.wants_nudge] {
            flag.store(false, Relaxed);
        }
    }

    /// The CPUs that replies were sent from, with their number.
    pub fn sent_from(&self) -> impl Iterator<Item = (usize, u64)> + '_ {
        self.sent_from.iter().map(|count| count.load(Relaxed)).enumerate().filter(|(_, count)| *count > 0)
    }

    /// The thread's id.
    pub fn thread(&self) -> i32 {
        self.thread.load(Relaxed)
    }

    #[inline]
    fn sent(&self, cpu: usize, count: u32) {
        // A CPU that appeared after start-up has no counter of its own.
        if let Some(counter) = self.sent_from.get(cpu).or(self.sent_from.last()) {
            add(counter, u64::from(count));
        }
    }
}

/// A running worker. Dropping it stops and joins the thread, which gives the queue back.
#[derive(Debug)]
pub struct Worker {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    /// Starts a thread on the placement's CPU that serves `socket`, a queue of `interface`, and writes what it does to `observed`.
    pub fn start(
        interface: &str,
        placement: Placement,
        socket: Socket,
        handler: Handler,
        observed: &Arc<Observed>,
    ) -> Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (pinned, is_pinned) = std::sync::mpsc::channel();
        let thread = thread::Builder::new()
            .name(format!("queue {}", placement.queue))
            .spawn({
                let (observed, stop, interface) = (Arc::clone(observed), Arc::clone(&stop), interface.to_owned());
                move || {
                    privilege::drop_all();
                    // Or the kernel makes a nap 50 microseconds longer. It cannot fail.
                    let _ = nix::sys::prctl::set_timerslack(1);
                    observed.thread.store(sys::thread_id(), Relaxed);
                    // The receiver waits for exactly this message.
                    let _ = pinned.send(core_affinity::set_for_current(core_affinity::CoreId { id: placement.cpu }));
                    run(&interface, socket, handler, &observed, &stop);
                }
            })
            .with_context(|| format!("cannot start the worker of queue {}", placement.queue))?;
        let worker = Self { stop, thread: Some(thread) };
        let pinned =
            is_pinned.recv().with_context(|| format!("the worker of queue {} ended at once", placement.queue))?;
        ensure!(pinned, "cannot pin the worker of queue {} to CPU {}", placement.queue, placement.cpu);
        Ok(worker)
    }

    /// Asks the thread to end, which it does within a moment. Dropping the worker waits for it.
    pub fn stop(&self) {
        self.stop.store(true, Relaxed);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.stop();
        if let Some(thread) = self.thread.take() {
            // It ends within IDLE and END_WITHIN. A panic has been reported by then and must not become an abort here.
            let _ = thread.join();
        }
    }
}

/// The worker's loop: one batch, one look at the flag, sleep when there was nothing. It ends when all that it has received is answered and sent, so that a
/// queue whose slot is cleared first loses nothing.
fn run(interface: &str, mut socket: Socket, mut handler: Handler, observed: &Observed, stop: &AtomicBool) {
    let mut watch = TxWatch::default();
    let mut pulse = Pulse::start();
    let mut end_at = None;
    loop {
        if stop.load(Relaxed) {
            let end_at = end_at.get_or_insert_with(|| {
                thread::sleep(LAST_FRAME);
                Instant::now() + END_WITHIN
            });
            if Instant::now() >= *end_at {
                return;
            }
        }
        handler.refresh();
        let exchange = socket.exchange(|frame, length| {
            let counters = &observed.counters;
            handler.reply(frame, length, counters).inspect_err(|reason| counters.dropped_one(*reason)).ok()
        });
        if exchange.stalled {
            observed.counters.stall();
        }
        if socket.in_flight() > 0 && exchange.completed == 0 {
            overdue(interface, &mut socket, &mut watch, observed);
        } else if watch.progress() {
            observed.stuck.store(false, Relaxed);
        }
        if exchange.received == 0 {
            if end_at.is_some() && socket.in_flight() == 0 {
                return;
            }
            if pulse.is_fast() {
                thread::sleep(NAP);
                continue;
            }
            socket.wait(match end_at {
                Some(_) => LAST_FRAME,
                None if socket.in_flight() > 0 => IDLE_IN_FLIGHT,
                None => IDLE,
            });
            observed.unfilled.store(socket.is_unfilled(), Relaxed);
            observed.wants_nudge.store(socket.wants_nudge(), Relaxed);
            continue;
        }
        pulse.frames += exchange.received;
        observed.counters.batch(exchange.received, exchange.sent);
        observed.sent(sys::current_cpu(), exchange.sent);
    }
}

/// How fast frames come in, as of the last moments of idleness: the clock is read only when there is time.
struct Pulse {
    since: Instant,
    frames: u32,
    fast: bool,
}

impl Pulse {
    fn start() -> Self {
        Self { since: Instant::now(), frames: 0, fast: false }
    }

    /// Whether enough frames to be worth it will come during a nap, if they go on coming as they did. A burst is not enough.
    fn is_fast(&mut self) -> bool {
        let now = Instant::now();
        let elapsed = now - self.since;
        if elapsed >= PULSE {
            let fast = NAP.saturating_mul(self.frames) >= NAP_FRAMES * elapsed;
            *self = Self { since: now, frames: 0, fast };
        }
        self.fast
    }
}

/// Replies are in flight and none has left since the last batch: usual for a moment, wrong for longer.
fn overdue(interface: &str, socket: &mut Socket, watch: &mut TxWatch, observed: &Observed) {
    match watch.waiting(Instant::now()) {
        Overdue::No => {}
        // Without a link a NIC may keep what it has.
        Overdue::Late | Overdue::Dead if !nic::has_carrier(interface) => {
            watch.progress();
        }
        Overdue::Late => {
            if socket.give_up_busy_poll() {
                observed.busy_poll_given_up.store(true, Relaxed);
            }
            socket.push();
        }
        Overdue::Dead => observed.stuck.store(true, Relaxed),
    }
}
