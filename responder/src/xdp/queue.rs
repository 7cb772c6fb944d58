//! One served queue as the control thread sees it: its socket and worker while they run, and what happens when they have to be replaced.
//!
//! What the queue has counted outlives its socket and its worker. While there is no socket its XSKMAP slot is empty, so that the kernel path
//! answers. Nothing here waits: what cannot be done yet is tried again at the next [`tick`](Queue::tick). A queue leaves the bypass and joins it again
//! with it.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

use super::{
    nic::Counters,
    socket::{Options, Socket, ZeroCopy},
    steering::Steering,
    topology::Placement,
    watch::{Deaf, Look, RxWatch},
    worker::{Handler, Observed, Worker},
};
use crate::{
    control::status::{self, Unserved},
    interface::Interface,
    sys::{self, XdpStatistics},
};

/// How long a queue that is to be bound again is tried for.
const REBIND_WITHIN: Duration = Duration::from_secs(10);
/// A queue that gets stuck again and again is replaced ever more rarely, at last once in this time.
const REPLACE_EVERY_MAX: Duration = Duration::from_secs(64);

/// One queue that is to be served.
#[derive(Debug)]
pub struct Queue {
    /// Its number and CPU.
    pub placement: Placement,
    options: Options,
    handler: Handler,
    observed: Arc<Observed>,
    state: State,
    /// The kernel's counters of the sockets that it had before.
    kernel_before: XdpStatistics,
    /// How often its socket was replaced, and why the last time.
    reprovisioned: u64,
    reprovision_reason: Option<String>,
    replace_after: Option<Instant>,
    /// It received nothing in zero-copy mode, and is bound in copy mode for that.
    deaf: Option<Deaf>,
    /// The control thread has said that busy polling was given up.
    given_up_said: bool,
}

#[derive(Debug)]
enum State {
    Serving(Serving),
    /// There is no socket; binding is tried until then, and this came of it.
    Rebinding(Instant, Option<String>),
    /// It is left to the kernel path, for this reason.
    Abandoned(String),
}

#[derive(Debug)]
struct Serving {
    // Before the descriptor: the queue is free when both are closed.
    worker: Worker,
    fd: OwnedFd,
    zero_copy: bool,
    mode_reason: Option<String>,
    tx_budget: Option<u32>,
    /// Its slot is set.
    steered: bool,
    /// What earlier sockets had received.
    received_before: u64,
    watch: RxWatch,
}

impl Queue {
    /// A queue that has not been joined yet. `cpus` is the number of CPUs that replies may be sent from.
    pub fn new(placement: Placement, options: Options, handler: Handler, cpus: usize) -> Self {
        Self {
            placement,
            options,
            handler,
            observed: Arc::new(Observed::new(cpus)),
            state: State::Abandoned("it has not been bound yet".to_owned()),
            kernel_before: XdpStatistics::default(),
            reprovisioned: 0,
            reprovision_reason: None,
            replace_after: None,
            deaf: None,
            given_up_said: false,
        }
    }

    /// Binds the queue and starts its worker, for the first time or after it has left. Its slot is not set yet.
    pub fn join(
        &mut self,
        interface: &Interface,
        placement: Placement,
        options: Options,
        handler: Handler,
    ) -> Result<()> {
        (self.placement, self.options, self.handler) = (placement, options, handler);
        (self.replace_after, self.deaf, self.given_up_said) = (None, None, false);
        self.observed.forget_socket();
        self.observed.busy_poll_given_up.store(false, Relaxed);
        let socket = Socket::bind(&interface.name, placement.queue, &self.options)?;
        self.state = State::Serving(serve(interface, placement, socket, &self.handler, &self.observed)?);
        Ok(())
    }

    /// Gives up its socket, whose slot must be empty.
    pub fn leave(&mut self, reason: &str) {
        self.keep_kernel_counts();
        self.state = State::Abandoned(reason.to_owned());
    }

    /// Has its frames steered to it.
    pub fn steer(&mut self, steering: &mut Steering) -> Result<()> {
        if let State::Serving(serving) = &mut self.state {
            steering.set_slot(self.placement.queue, serving.fd.as_raw_fd())?;
            serving.steered = true;
        }
        Ok(())
    }

    /// Asks its worker to end.
    pub fn stop(&self) {
        if let State::Serving(serving) = &self.state {
            serving.worker.stop();
        }
    }

    /// Looks after it, a few times a second.
    pub fn tick(&mut self, interface: &Interface, steering: &mut Steering, carrier: bool, now: Instant) {
        self.say_what_was_given_up(interface);
        if carrier && self.observed.stuck.load(Relaxed) && self.replace_after.is_none_or(|after| now >= after) {
            self.replace(interface, steering, "replies stayed in the TX ring", now);
        }
        if let State::Serving(serving) = &self.state
            && self.observed.wants_nudge.load(Relaxed)
        {
            // It fails without CAP_NET_ADMIN, and then the worker's own wake-ups have to be enough.
            let _ = sys::run_napi(&serving.fd);
        }
        match &mut self.state {
            State::Serving(serving) if !serving.steered && carrier => {
                if let Err(error) = self.steer(steering) {
                    self.abandon(interface, format!("{error:#}"));
                }
            }
            // Binding would fail while the interface is down, and the driver may be resetting itself.
            State::Rebinding(until, _) if !carrier => *until = now + REBIND_WITHIN,
            State::Rebinding(until, error) if now >= *until => {
                let error = error.take().unwrap_or_else(|| "the queue is busy".to_owned());
                self.abandon(
                    interface,
                    format!("it could not be bound again for {} s: {error}", REBIND_WITHIN.as_secs()),
                );
            }
            State::Rebinding(until, _) => {
                let until = *until;
                if let Err(error) = self.rebind(interface) {
                    self.state = State::Rebinding(until, Some(format!("{error:#}")));
                }
            }
            State::Serving(_) | State::Abandoned(_) => {}
        }
    }

    /// Takes socket and worker away; new ones are made as soon as the kernel has let go of the queue.
    fn replace(&mut self, interface: &Interface, steering: &mut Steering, reason: &str, now: Instant) {
        let queue = self.placement.queue;
        tracing::warn!(
            "{} queue {queue}: {reason} (driver {}, Linux {}): its socket is replaced",
            interface.name,
            interface.driver,
            sys::kernel_release()
        );
        self.withdraw(interface, steering);
        self.state = State::Rebinding(now + REBIND_WITHIN, None);
        self.observed.forget_socket();
        self.reprovisioned += 1;
        self.reprovision_reason = Some(reason.to_owned());
        let pause = Duration::from_secs(1 << self.reprovisioned.min(6)).min(REPLACE_EVERY_MAX);
        self.replace_after = Some(now + pause);
    }

    /// Tries once to bind again, if the kernel has let go of the queue, with busy polling only where it has not failed.
    fn rebind(&mut self, interface: &Interface) -> Result<()> {
        if self.observed.busy_poll_given_up.load(Relaxed) {
            self.options.busy_poll_us = None;
        }
        let Some(socket) = Socket::try_bind(&interface.name, self.placement.queue, &self.options)? else {
            return Ok(());
        };
        self.state = State::Serving(serve(interface, self.placement, socket, &self.handler, &self.observed)?);
        tracing::info!("{} queue {}: serving again ({})", interface.name, self.placement.queue, self.mode());
        Ok(())
    }

    /// Has its worker run where its interrupt is handled now.
    pub fn move_to(&mut self, interface: &Interface, placement: Placement) {
        let from = std::mem::replace(&mut self.placement, placement).cpu;
        if from == placement.cpu {
            return;
        }
        let moved = match &self.state {
            State::Serving(_) => sys::run_on(self.observed.thread(), &[placement.cpu]),
            // It will start there.
            State::Rebinding(..) | State::Abandoned(_) => Ok(()),
        };
        let queue = placement.queue;
        match moved {
            Ok(()) => tracing::info!(
                "{} queue {queue}: interrupts moved, its worker goes from CPU {from} to {}",
                interface.name,
                placement.cpu
            ),
            Err(errno) => {
                self.placement.cpu = from;
                tracing::warn!(
                    "{} queue {queue}: its worker cannot move to CPU {}: {}",
                    interface.name,
                    placement.cpu,
                    errno.desc()
                );
            }
        }
    }

    /// Frames received since the start.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.observed.counters.received()
    }

    /// Whether it has to be found out why it has received nothing.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        let State::Serving(serving) = &self.state else { return false };
        let watched = serving.steered && (serving.zero_copy || self.deaf.is_some());
        watched && (self.received() == serving.received_before || self.observed.unfilled.load(Relaxed))
    }

    /// Whether its driver receives straight into its UMEM.
    pub fn is_zero_copy(&self) -> bool {
        matches!(&self.state, State::Serving(serving) if serving.zero_copy)
    }

    /// Looks, a second after the last time, whether it should have received something.
    pub fn look(
        &mut self,
        interface: &Interface,
        steering: &mut Steering,
        counters: &Counters,
        verdicts: u64,
        now: Instant,
    ) {
        let (queue, received) = (self.placement.queue, self.received());
        let State::Serving(serving) = &mut self.state else { return };
        let look = Look {
            received: received - serving.received_before,
            packets: counters.packets,
            packets_here: counters.packets_of(queue),
            missed: counters.missed(),
            missed_here: counters.missed_by(queue),
            verdicts,
            unfilled: self.observed.unfilled.load(Relaxed),
        };
        let Some(deaf) = serving.watch.look(look) else { return };
        if serving.zero_copy {
            self.deaf = Some(deaf);
            self.options.zero_copy = ZeroCopy::Off;
            self.replace(
                interface,
                steering,
                &format!("in zero-copy mode {}, so copy mode is used", deaf.reason()),
                now,
            );
        } else {
            self.withdraw(interface, steering);
            self.abandon(interface, format!("in copy mode, too, {}", deaf.reason()));
        }
    }

    /// Forgets earlier looks: they say nothing once the link was down.
    pub fn forget(&mut self) {
        if let State::Serving(serving) = &mut self.state {
            serving.watch = RxWatch::default();
        }
    }

    /// Has its frames go to the kernel path, and keeps what the kernel has counted for its socket, which is to go.
    fn withdraw(&mut self, interface: &Interface, steering: &mut Steering) {
        if let Err(error) = steering.clear_slot(self.placement.queue) {
            tracing::warn!("{}: {error:#}", interface.name);
        }
        self.keep_kernel_counts();
    }

    fn keep_kernel_counts(&mut self) {
        if let State::Serving(serving) = &self.state {
            self.kernel_before += serving.kernel();
        }
    }

    fn abandon(&mut self, interface: &Interface, reason: String) {
        tracing::warn!(
            "{} queue {}: {reason}; the kernel path answers its queries",
            interface.name,
            self.placement.queue
        );
        self.state = State::Abandoned(reason);
    }

    fn say_what_was_given_up(&mut self, interface: &Interface) {
        if !self.given_up_said && self.observed.busy_poll_given_up.load(Relaxed) {
            self.given_up_said = true;
            tracing::warn!(
                "{} queue {}: replies stayed in the TX ring, so busy polling is given up here (driver {}, Linux {})",
                interface.name,
                self.placement.queue,
                interface.driver,
                sys::kernel_release()
            );
        }
    }

    /// Why no worker serves it, if so.
    #[must_use]
    pub fn unserved(&self) -> Option<Unserved> {
        let reason = match &self.state {
            State::Serving(_) => return None,
            State::Rebinding(..) => "its socket is being replaced".to_owned(),
            State::Abandoned(reason) => reason.clone(),
        };
        Some(Unserved { queue: self.placement.queue, reason: format!("{reason}: the kernel path answers its queries") })
    }

    /// `zero-copy`, `copy`, or `none` while it has no socket.
    #[must_use]
    pub fn mode(&self) -> &'static str {
        match &self.state {
            State::Serving(serving) if serving.zero_copy => "zero-copy",
            State::Serving(_) => "copy",
            State::Rebinding(..) | State::Abandoned(_) => "none",
        }
    }

    /// Why it is in copy mode though zero-copy was asked for.
    #[must_use]
    pub fn mode_reason(&self) -> Option<&str> {
        match &self.state {
            State::Serving(serving) => serving.mode_reason.as_deref().or(self.deaf.map(Deaf::reason)),
            State::Rebinding(..) | State::Abandoned(_) => None,
        }
    }

    /// Replies that one system call sends in copy mode, at most.
    #[must_use]
    pub fn tx_budget(&self) -> Option<u32> {
        match &self.state {
            State::Serving(serving) => serving.tx_budget,
            State::Rebinding(..) | State::Abandoned(_) => None,
        }
    }

    fn busy_poll(&self) -> &'static str {
        if self.observed.busy_poll_given_up.load(Relaxed) {
            return "given up: replies stayed in the TX ring";
        }
        match (&self.options.busy_poll_us, &self.state) {
            // In copy mode and on older kernels a socket learns of its NAPI instance with its first frame.
            (Some(_), State::Serving(serving)) if sys::incoming_napi_id(&serving.fd).unwrap_or(0) == 0 => "no NAPI id",
            (Some(_), State::Serving(_)) => "on",
            _ => "off",
        }
    }

    /// What it has done since the start.
    #[must_use]
    pub fn status(&self) -> status::Queue {
        let counters = &self.observed.counters;
        let mut kernel = self.kernel_before;
        if let State::Serving(serving) = &self.state {
            kernel += serving.kernel();
        }
        status::Queue {
            queue: self.placement.queue,
            cpu: self.placement.cpu,
            thread: self.observed.thread(),
            mode: self.mode().to_owned(),
            mode_reason: self.mode_reason().map(str::to_owned),
            tx_budget: self.tx_budget(),
            busy_poll: self.busy_poll().to_owned(),
            received: counters.received(),
            answered: counters.answered(),
            dropped: counters.dropped().map(|(reason, count)| (reason.name().to_owned(), count)).collect(),
            limited_slipped: counters.limited_slipped(),
            kernel,
            batches: counters.batches(),
            tx_stalls: counters.stalls(),
            reprovisioned: self.reprovisioned,
            reprovision_reason: self.reprovision_reason.clone(),
            traffic: counters.into(),
        }
    }

    /// The kernel gives a socket only frames of the queue it is bound to, and sends what the socket sends on the same queue; the CPU is
    /// where the worker found itself.
    pub fn matrix(&self) -> impl Iterator<Item = status::Cell> + '_ {
        let queue = self.placement.queue;
        let cell = move |(tx_cpu, frames)| status::Cell { rx_queue: queue, tx_queue: queue, tx_cpu, frames };
        self.observed.sent_from().map(cell)
    }
}

impl Serving {
    fn kernel(&self) -> XdpStatistics {
        // It cannot fail on an open AF_XDP socket, which this is.
        sys::xdp_statistics(&self.fd).unwrap_or_default()
    }
}

fn serve(
    interface: &Interface,
    placement: Placement,
    socket: Socket,
    handler: &Handler,
    observed: &Arc<Observed>,
) -> Result<Serving> {
    let zero_copy = socket.is_zero_copy();
    let mode_reason = socket.mode_reason().map(|reason| match interface.driver.as_str() {
        "veth" => "veth has no zero-copy".to_owned(),
        _ => reason.to_owned(),
    });
    let tx_budget = socket.tx_budget();
    let fd = socket.try_clone_fd().context("cannot duplicate an AF_XDP socket")?;
    let worker = Worker::start(&interface.name, placement, socket, handler.clone(), observed)?;
    Ok(Serving {
        worker,
        fd,
        zero_copy,
        mode_reason,
        tx_budget,
        steered: false,
        received_before: observed.counters.received(),
        watch: RxWatch::default(),
    })
}
