//! Sends and receives by AF_XDP: one thread for each queue that is sent from, which hears what comes in on that queue. Where replies come in is not the
//! generator's choice, but that of the NIC or of the server; so all other queues are heard, too, by these threads in turn.

use std::{net::SocketAddr, os::fd::AsRawFd, thread, time::Duration};

use anyhow::{Context, Result, ensure};

use super::{
    asker::{Asker, FIRST_PORT, Shared},
    clock::{Clock, Until},
    gather::Gather,
    low_16,
    packets::Packets,
    pin,
    tally::Tally,
};
use crate::{
    interface::Interface,
    xdp::{
        nic,
        socket::{Options, Requester, ZeroCopy, mtu_max, ring_frames},
    },
};

/// An open loop sleeps at least this long: what is due meanwhile is sent at once. Shorter sleeps cost more than they are worth.
const REST_MIN: Duration = Duration::from_micros(20);
/// A closed loop looks at the clock at least this often.
const REST_MAX: Duration = Duration::from_millis(5);
/// The time that the XDP program puts in front of a frame.
const STAMP_LEN: u32 = 8;

/// The sockets, and the program that gives them replies.
pub struct Io {
    gather: Gather,
    /// Of each thread: the one that it sends by, and others that it only hears.
    requesters: Vec<Vec<Requester>>,
    packets: Packets,
    cpus: Vec<Option<usize>>,
    deaf: bool,
}

/// How to open it.
pub struct Settings<'a> {
    /// The interface.
    pub interface: &'a Interface,
    /// Its queues that are sent from.
    pub queues: &'a [u32],
    /// The CPU of each queue's thread, or where the scheduler likes.
    pub cpus: Vec<Option<usize>>,
    /// Zero-copy or not.
    pub zero_copy: ZeroCopy,
    /// Replies are counted and dropped.
    pub deaf: bool,
}

impl Io {
    /// Attaches the program and binds the queues.
    pub fn open(settings: Settings<'_>, target: SocketAddr, flows: usize, packets: Packets) -> Result<Self> {
        let Settings { interface, queues, cpus, zero_copy, deaf } = settings;
        interface.check_bypass()?;
        let there = nic::receive_queues(&interface.name);
        if let Some(queue) = queues.iter().find(|queue| **queue >= there) {
            anyhow::bail!("{} has no queue {queue}: it has {there}, counted from 0", interface.name);
        }
        let (longest, mtu, name) = (packets.longest_ip(), interface.mtu, &interface.name);
        ensure!(longest <= mtu as usize, "a query is an IP packet of {longest} bytes, but the MTU of {name} is {mtu}");
        let mtu_max = mtu_max() - STAMP_LEN;
        ensure!(
            mtu <= mtu_max,
            "the MTU of {name} is {mtu}, but a frame holds packets of at most {mtu_max} with the time in front of them: lower the MTU"
        );
        let mut gather = Gather::attach(interface, target.port(), flows * queues.len(), there, deaf)?;
        nic::wait_for_carrier(&interface.name)?;
        let options = Options { mtu: mtu + STAMP_LEN, zero_copy, ring_frames: ring_frames(0), busy_poll_us: None };
        let mut requesters: Vec<Vec<Requester>> = queues.iter().map(|_| Vec::new()).collect();
        let others = (0..there).filter(|queue| !queues.contains(queue));
        for (queue, thread) in queues.iter().copied().chain(others).zip((0..queues.len()).cycle()) {
            let requester = Requester::bind(&interface.name, queue, &options)?;
            gather.set_slot(queue, requester.try_clone_fd()?.as_raw_fd())?;
            requesters[thread].push(requester);
        }
        nic::wait_for_carrier(&interface.name)?;
        Ok(Self { gather, requesters, packets, cpus, deaf })
    }

    /// `zero-copy` or `copy`, and why the program runs where it is slow.
    #[must_use]
    pub fn mode(&self) -> (&'static str, Option<&str>) {
        let zero_copy = self.requesters.iter().flatten().all(Requester::is_zero_copy);
        (if zero_copy { "zero-copy" } else { "copy" }, self.gather.fallback.as_deref())
    }

    /// Replies that were counted and dropped so far.
    pub fn unseen(&self) -> Result<u64> {
        self.gather.unseen()
    }

    /// Runs until it is over; each thread gets its asker.
    pub fn run(
        &mut self,
        shared: &Shared,
        askers: Vec<Asker<'_>>,
        clock: Clock,
        until: Until<'_>,
    ) -> Result<Vec<Tally>> {
        let (packets, deaf) = (&self.packets, self.deaf);
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for (index, ((requesters, asker), cpu)) in
                self.requesters.iter_mut().zip(askers).zip(&self.cpus).enumerate()
            {
                let first = FIRST_PORT + u16::try_from(index * shared.flows).context("more flows than ports")?;
                let one = One { requesters, packets, clock, first, deaf };
                let thread = thread::Builder::new().name(format!("flood {index}"));
                threads.push(thread.spawn_scoped(scope, move || {
                    pin(*cpu)?;
                    Ok(one.run(asker, until))
                })?);
            }
            threads.into_iter().map(|thread| thread.join().expect("a panic has been reported")).collect()
        })
    }
}

struct One<'a> {
    requesters: &'a mut [Requester],
    packets: &'a Packets,
    clock: Clock,
    /// The port of its first flow.
    first: u16,
    deaf: bool,
}

impl One<'_> {
    fn run(self, mut asker: Asker<'_>, until: Until<'_>) -> Tally {
        let Self { requesters, packets, clock, first, deaf } = self;
        loop {
            let now_ns = clock.now_ns();
            if until.is_over(now_ns) {
                return asker.finish();
            }
            let due = if until.is_asking(now_ns) { asker.due(now_ns) } else { 0 };
            let sent = if due == 0 {
                0
            } else {
                requesters[0].send(due, |frame| {
                    let departure = asker.depart(now_ns);
                    let port = first + low_16(departure.flow);
                    packets.write(departure.question, port, departure.id, frame)
                })
            };
            let mut received = 0;
            if !deaf {
                let now_ns = clock.now_ns();
                for requester in &mut *requesters {
                    received += requester.receive(|data| asker.hear_frame(data, clock.base_ns(), now_ns));
                }
            }
            asker.tell();
            if sent < due || received > 0 && asker.rest_ns(now_ns).is_none() {
                continue;
            }
            match asker.rest_ns(now_ns) {
                Some(0) if until.is_asking(now_ns) => {}
                Some(rest_ns) => {
                    let rest = Duration::from_nanos(rest_ns).clamp(REST_MIN, REST_MAX);
                    Requester::wait(requesters, rest, false);
                }
                None => Requester::wait(requesters, REST_MAX, !deaf),
            }
        }
    }
}
