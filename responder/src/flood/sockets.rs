//! Sends and receives by kernel sockets: one connected UDP socket for each flow, each thread's own or shared by all.

use std::{net::UdpSocket, os::fd::AsFd, thread, time::Duration};

use anyhow::{Context, Result};
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
};
use socket2::{Domain, Protocol, Socket, Type};

use super::{
    asker::{Asker, Departure, Shared},
    clock::{Clock, Until},
    pin,
    tally::Tally,
};
use crate::sys::Datagrams;

/// Datagrams per system call.
const BATCH: usize = 32;
/// An open loop sleeps at least this long.
const REST_MIN: Duration = Duration::from_micros(20);
/// A closed loop looks at the clock at least this often.
const REST_MAX: Duration = Duration::from_millis(5);
/// What the kernel may hold while a thread does something else, in bytes; it takes less where `net.core.rmem_max` says so.
const BUFFER: usize = 4 << 20;

/// The sockets.
pub struct Io {
    /// Of each thread, or one set for all.
    sets: Vec<Vec<UdpSocket>>,
    cpus: Vec<Option<usize>>,
    deaf: bool,
}

impl Io {
    /// Opens `sets` times `flows` sockets for the threads that are to run on these CPUs.
    pub fn open(shared: &Shared, cpus: Vec<Option<usize>>, deaf: bool) -> Result<Self> {
        let target = shared.target;
        let open = || -> std::io::Result<UdpSocket> {
            let socket = Socket::new(Domain::for_address(target), Type::DGRAM, Some(Protocol::UDP))?;
            socket.set_recv_buffer_size(BUFFER)?;
            socket.set_send_buffer_size(BUFFER)?;
            socket.connect(&target.into())?;
            socket.set_nonblocking(true)?;
            Ok(socket.into())
        };
        let set = || (0..shared.flows).map(|_| open()).collect::<std::io::Result<Vec<_>>>();
        let sets = shared.flights.iter().map(|_| set()).collect::<std::io::Result<_>>();
        Ok(Self { sets: sets.with_context(|| format!("opening sockets to {target}"))?, cpus, deaf })
    }

    /// Runs until it is over; each thread gets its asker.
    pub fn run(
        &mut self,
        shared: &Shared,
        askers: Vec<Asker<'_>>,
        clock: Clock,
        until: Until<'_>,
    ) -> Result<Vec<Tally>> {
        let (sets, deaf) = (&self.sets, self.deaf);
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (index, (asker, cpu)) in askers.into_iter().zip(&self.cpus).enumerate() {
                let group = index.min(sets.len() - 1);
                let thread = thread::Builder::new().name(format!("flood {index}"));
                threads.push(thread.spawn_scoped(scope, move || {
                    pin(*cpu)?;
                    Ok(One { sockets: &sets[group], group, shared, clock, deaf }.run(asker, until))
                })?);
            }
            threads.into_iter().map(|thread| thread.join().expect("a panic has been reported")).collect()
        })
    }
}

struct One<'a> {
    sockets: &'a [UdpSocket],
    group: usize,
    shared: &'a Shared,
    clock: Clock,
    deaf: bool,
}

impl One<'_> {
    fn run(self, mut asker: Asker<'_>, until: Until<'_>) -> Tally {
        let (mut asking, mut hearing) = (Datagrams::new(BATCH), Datagrams::new(BATCH));
        loop {
            let now_ns = self.clock.now_ns();
            if until.is_over(now_ns) {
                return asker.finish();
            }
            let due = if until.is_asking(now_ns) { asker.due(now_ns) } else { 0 };
            let sent = self.send(&mut asker, &mut asking, due.min(BATCH), now_ns);
            let rest = match asker.rest_ns(now_ns) {
                _ if sent < due => Duration::ZERO,
                Some(0) if until.is_asking(now_ns) => Duration::ZERO,
                Some(rest_ns) => Duration::from_nanos(rest_ns).clamp(REST_MIN, REST_MAX),
                None => REST_MAX,
            };
            self.hear(&mut asker, &mut hearing, rest);
            asker.tell();
        }
    }

    /// Sends queries that are due, those of a socket by one system call.
    fn send(&self, asker: &mut Asker<'_>, asking: &mut Datagrams, due: usize, now_ns: u64) -> usize {
        let mut sent = 0;
        let mut departures = [Departure::default(); BATCH];
        while sent < due {
            // Flows take turns by batches, so that a batch has one socket.
            let part = due.div_ceil(self.sockets.len()).min(due - sent);
            let flow = asker.begin_batch();
            asking.begin();
            for departure in &mut departures[..part] {
                *departure = asker.depart_on(flow, now_ns);
                let message = &self.shared.questions[departure.question].message;
                asking.ask(|buffer| {
                    buffer[..message.len()].copy_from_slice(message);
                    if message.len() >= 2 {
                        buffer[..2].copy_from_slice(&departure.id.to_be_bytes());
                    }
                    message.len()
                });
            }
            asking.send(self.sockets[flow].as_fd(), |index| asker.take_back(departures[index]));
            sent += part;
        }
        sent
    }

    /// Waits for replies, no longer than `rest`, and hears all that are there.
    fn hear(&self, asker: &mut Asker<'_>, hearing: &mut Datagrams, rest: Duration) {
        let mut polled: Vec<PollFd<'_>> =
            self.sockets.iter().map(|socket| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
        // A signal ends the wait early.
        let _ = ppoll(&mut polled, Some(TimeSpec::from_duration(rest)), None);
        if self.deaf {
            return;
        }
        let ready = polled.iter().zip(self.sockets).enumerate();
        for (flow, (_, socket)) in ready.filter(|(_, (polled, _))| polled.any() == Some(true)) {
            // An error here is that of an earlier query: the port could not be reached. That query is lost.
            while let Ok(received) = hearing.receive(socket.as_fd()) {
                let at_ns = self.clock.now_ns();
                for index in 0..received {
                    let (_, buffer, length) = hearing.get(index);
                    asker.hear(self.group, flow, &buffer[..length], at_ns, |_| true);
                }
                hearing.clear(received);
                if received < BATCH {
                    break;
                }
            }
        }
    }
}
