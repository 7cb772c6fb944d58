//! UDP over kernel sockets: per address and CPU one socket and one thread that receives, answers and sends in batches.
//!
//! The sockets of an address form a reuseport group. `SO_INCOMING_CPU` makes the kernel pick the one whose CPU took the packet in. Its thread begins on
//! that CPU and is woken there, so that a query stays on its CPU as long as there is time for both. It may go to another one of these CPUs: where one
//! CPU receives everything, it is busy with that, and a thread pinned to it answers two thirds of what one that may move does. A batch costs two system calls, and nothing is allocated per packet. Idle threads sleep in the kernel
//! until a packet comes or their socket is shut down, and look up now and then.
//!
//! With `--sockets hash` the kernel picks the socket by a hash of the flow instead, and with `--sockets shared` the threads of an address read one socket.
//! Both are there to measure what the first is worth.

use std::{
    net::{Shutdown, SocketAddr},
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use core_affinity::CoreId;
use nix::sys::socket::{setsockopt, sockopt};
use socket2::{Protocol, Socket};

use super::{Options, Sharing, bind, on_this_machine};
use crate::{
    answer::{Outcome, Transport},
    cli::Sockets,
    counters::{Counters, DropReason},
    guard::{AddressList, OwnAddresses},
    privilege,
    service::{self, Service, State},
    sys::{self, Datagrams},
};

/// Messages per system call.
const BATCH: usize = 32;
/// What the kernel may hold while the thread is busy, in bytes. It takes less where `net.core.rmem_max` says so.
const RECEIVE_BUFFER: usize = 4 << 20;
/// How long an idle thread sleeps before it looks whether its zones were replaced, which it would else hold for ever.
const IDLE: Duration = Duration::from_secs(1);
/// How long a thread that is to end goes on with what still comes.
const END_WITHIN: Duration = Duration::from_millis(100);
/// How long a full send buffer may hold up a reply before it is given up.
const SEND_WITHIN: Duration = Duration::from_millis(10);

/// The sockets and threads of one address. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Listener {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    threads: Vec<Thread>,
}

#[derive(Debug)]
struct Thread {
    cpu: usize,
    /// The thread's id.
    id: i32,
    socket: Arc<Socket>,
    counters: Arc<Counters>,
    handle: Option<JoinHandle<()>>,
}

impl Listener {
    /// Binds one socket per CPU, or one for all, then starts the threads.
    pub(super) fn start(
        address: SocketAddr,
        options: &Options,
        service: &Service,
        state: impl Fn() -> State,
        own: &AddressList,
    ) -> Result<Self> {
        options.check_free(address, Protocol::UDP)?;
        let mut listener = Self { address, stop: Arc::default(), threads: Vec::with_capacity(options.cpus.len()) };
        for cpu in options.cpus.iter().copied() {
            let socket = match (options.sockets, listener.threads.first()) {
                (Sockets::Shared, Some(first)) => Arc::clone(&first.socket),
                (Sockets::Shared, None) => Arc::new(open(address)?),
                (Sockets::Hash, _) => Arc::new(open(address)?),
                (Sockets::PerCpu, _) => {
                    let socket = open(address)?;
                    socket.set_cpu_affinity(cpu).with_context(|| format!("cannot tie UDP {address} to CPU {cpu}"))?;
                    Arc::new(socket)
                }
            };
            let counters = Arc::new(Counters::default());
            let worker = Worker {
                socket: Arc::clone(&socket),
                port: address.port(),
                service: service.clone(),
                state: state(),
                own: own.view(),
                counters: Arc::clone(&counters),
                stop: Arc::clone(&listener.stop),
            };
            let (pinned, is_pinned) = mpsc::channel();
            let cpus = options.cpus.clone();
            let handle = thread::Builder::new()
                .name(format!("udp cpu {cpu}"))
                .spawn(move || {
                    privilege::drop_all();
                    // The receiver waits for exactly this message.
                    let is_pinned = core_affinity::set_for_current(CoreId { id: cpu });
                    let _ = pinned.send((is_pinned, sys::thread_id()));
                    // They exist, or their own threads say that they do not.
                    let _ = sys::run_on(0, &cpus);
                    worker.run();
                })
                .with_context(|| format!("cannot start a thread for UDP {address}"))?;
            let (is_pinned, id) = is_pinned.recv()?;
            listener.threads.push(Thread { cpu, id, socket, counters, handle: Some(handle) });
            ensure!(is_pinned, "CPU {cpu} does not exist or is not allowed here");
        }
        Ok(listener)
    }

    /// Its threads: CPU, thread id and counters.
    pub(super) fn threads(&self) -> impl Iterator<Item = (usize, i32, &Counters)> {
        self.threads.iter().map(|thread| (thread.cpu, thread.id, &*thread.counters))
    }

    /// Ends its threads, when they have answered what their sockets have received.
    pub(super) fn end(&mut self) {
        for thread in &self.threads {
            // A connected socket gets nothing from others: what comes from now on goes to the sockets of another server, if there are any. Should it
            // fail, more may come, and the thread ends in the midst of it.
            let _ = thread.socket.connect(&on_this_machine(self.address).into());
        }
        self.stop.store(true, Relaxed);
        for thread in &self.threads {
            // Behind what it has received it yields an end.
            let _ = thread.socket.shutdown(Shutdown::Read);
        }
        for thread in &mut self.threads {
            if let Some(handle) = thread.handle.take() {
                // A panic has been reported by then and must not become an abort here.
                let _ = handle.join();
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end();
    }
}

fn open(address: SocketAddr) -> Result<Socket> {
    let socket = bind(address, Protocol::UDP, Sharing::Ours)?;
    let prepare = || -> Result<()> {
        socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
        sys::ignore_path_mtu(&socket, address.is_ipv6())?;
        socket.set_read_timeout(Some(IDLE))?;
        socket.set_write_timeout(Some(SEND_WITHIN))?;
        match address {
            SocketAddr::V4(v4) if v4.ip().is_unspecified() => setsockopt(&socket, sockopt::Ipv4PacketInfo, &true)?,
            SocketAddr::V6(v6) if v6.ip().is_unspecified() => setsockopt(&socket, sockopt::Ipv6RecvPacketInfo, &true)?,
            _ => {}
        }
        Ok(())
    };
    prepare().with_context(|| format!("cannot prepare the socket for UDP {address}"))?;
    Ok(socket)
}

/// What one thread works with.
struct Worker {
    socket: Arc<Socket>,
    port: u16,
    service: Service,
    state: State,
    own: OwnAddresses,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
}

impl Worker {
    fn run(mut self) {
        let mut datagrams = Datagrams::new(BATCH);
        let mut end_at = None;
        loop {
            let received = datagrams.receive(self.socket.as_fd());
            self.own.refresh();
            self.service.refresh();
            self.state.refresh(service::now_s);
            // Idleness, a signal or a lack of memory: none concerns the next query.
            let Ok(received) = received else { continue };
            let (mut messages, mut is_end) = (0, false);
            for index in 0..received {
                let (Some(peer), buffer, length) = datagrams.get(index) else {
                    is_end = true;
                    break;
                };
                messages += 1;
                match self.answer(peer, buffer, length) {
                    Outcome::Reply(length) => datagrams.reply(index, length),
                    Outcome::Drop(reason) => self.counters.dropped_one(reason),
                }
            }
            let sent = datagrams.send(self.socket.as_fd(), |_| self.counters.dropped_one(DropReason::NotSent));
            self.counters.batch(messages, sent);
            if is_end {
                return;
            }
            if self.stop.load(Relaxed) && Instant::now() >= *end_at.get_or_insert_with(|| Instant::now() + END_WITHIN) {
                return;
            }
            datagrams.clear(received);
        }
    }

    /// Answers a message in place.
    fn answer(&mut self, peer: SocketAddr, buffer: &mut [u8], length: usize) -> Outcome {
        let ip = peer.ip();
        match self.own.admit_through_kernel(ip, peer.port(), self.port) {
            Ok(()) => self.service.serve(&mut self.state, buffer, length, ip, Transport::Udp, &self.counters),
            Err(reason) => Outcome::Drop(reason),
        }
    }
}
