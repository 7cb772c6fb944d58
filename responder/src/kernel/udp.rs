//! UDP over kernel sockets: per address and CPU one socket and one pinned thread that receives, answers and sends in batches.
//!
//! The sockets of an address form a reuseport group. `SO_INCOMING_CPU` makes the kernel pick the one whose CPU took the packet in, so a
//! query stays on its CPU here too. A batch costs two system calls, and nothing is allocated per packet. Idle threads sleep in the kernel
//! until a packet comes or their socket is shut down, and look up now and then.

use std::{
    io::{IoSlice, IoSliceMut},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use core_affinity::CoreId;
use nix::{
    cmsg_space,
    errno::Errno,
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, MultiHeaders, SockaddrStorage, recvmmsg, sendmmsg, sendmsg,
        setsockopt, sockopt,
    },
};
use socket2::{Protocol, Socket};

use super::{Sharing, bind};
use crate::{
    answer::{Outcome, Transport},
    counters::{Counters, DropReason},
    guard::{AddressList, OwnAddresses},
    service::{self, Service, State},
    sys,
};

/// Messages per system call.
const BATCH: usize = 32;
/// Room for any UDP payload. One cache line more than a power of two, so that the messages of a batch do not all fall into the same
/// cache sets. Pages that no message reaches cost nothing.
const ROOM: usize = 65_536 + 64;
/// What the kernel may hold while the thread is busy, in bytes. It takes less where `net.core.rmem_max` says so.
const RECEIVE_BUFFER: usize = 4 << 20;
/// How long an idle thread sleeps before it looks whether its zones were replaced, which it would else hold for ever.
const IDLE: Duration = Duration::from_secs(1);
/// How long a full send buffer may hold up a reply before it is given up.
const SEND_WITHIN: Duration = Duration::from_millis(10);

/// The sockets and threads of one address. Dropping it ends them.
#[derive(Debug)]
pub(super) struct Listener {
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
    /// Binds one socket per CPU, then starts their threads.
    pub(super) fn start(
        address: SocketAddr,
        cpus: &[usize],
        service: &Service,
        state: impl Fn() -> State,
        own: &AddressList,
    ) -> Result<Self> {
        // Our threads share the port among themselves. Had another program bound it in the same way, it would take a part of our
        // queries and nobody would notice; so first it is bound alone.
        drop(bind(address, Protocol::UDP, Sharing::Nobody)?);
        let mut listener = Self { stop: Arc::default(), threads: Vec::with_capacity(cpus.len()) };
        for cpu in cpus.iter().copied() {
            let socket = Arc::new(open(address, cpu)?);
            let counters = Arc::new(Counters::default());
            let worker = Worker {
                socket: Arc::clone(&socket),
                address,
                service: service.clone(),
                state: state(),
                own: own.view(),
                counters: Arc::clone(&counters),
                stop: Arc::clone(&listener.stop),
            };
            let (pinned, is_pinned) = mpsc::channel();
            let handle = thread::Builder::new()
                .name(format!("udp cpu {cpu}"))
                .spawn(move || {
                    crate::privilege::drop_all();
                    // The receiver waits for exactly this message.
                    let is_pinned = core_affinity::set_for_current(CoreId { id: cpu });
                    let _ = pinned.send((is_pinned, sys::thread_id()));
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

    /// Ends its threads.
    pub(super) fn end(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in &self.threads {
            // It answers ENOTCONN, and wakes the receiver all the same.
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

/// Opens the socket that gets what `cpu` takes in for this address.
fn open(address: SocketAddr, cpu: usize) -> Result<Socket> {
    let socket = bind(address, Protocol::UDP, Sharing::OwnThreads)?;
    let prepare = || -> Result<()> {
        socket.set_cpu_affinity(cpu)?;
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
    address: SocketAddr,
    service: Service,
    state: State,
    own: OwnAddresses,
    counters: Arc<Counters>,
    stop: Arc<AtomicBool>,
}

/// One message of a batch; its bytes are at the same index of the buffers.
struct Message {
    peer: SockaddrStorage,
    /// The address that was asked, known where the socket is bound to all.
    asked: Option<Asked>,
    length: usize,
    reply: bool,
}

/// Between calls nix keeps the lengths that the kernel wrote last. They stay right for one socket, whose senders are all of one family.
type Headers = MultiHeaders<SockaddrStorage>;

impl Worker {
    fn run(mut self) {
        // Bound to all addresses, each reply must name the address that was asked, or the kernel picks one by route.
        let any_address = self.address.ip().is_unspecified();
        let mut buffers = vec![[0; ROOM]; BATCH];
        let mut incoming = Headers::preallocate(BATCH, any_address.then(|| cmsg_space!(libc::in6_pktinfo)));
        let mut outgoing = Headers::preallocate(BATCH, None);
        let mut messages = Vec::with_capacity(BATCH);
        loop {
            messages.clear();
            let received = self.receive(&mut incoming, &mut buffers, &mut messages);
            self.own.refresh();
            self.service.refresh();
            self.state.refresh(service::now_s);
            match received {
                Ok(()) => {}
                Err(Errno::ESHUTDOWN) => return,
                // Idleness, a signal or a lack of memory: none concerns the next query.
                Err(_) => continue,
            }
            for (message, buffer) in messages.iter_mut().zip(&mut buffers) {
                self.answer(message, buffer);
            }
            let answered = if any_address {
                self.send_each(&messages, &buffers)
            } else {
                self.send_all(&mut outgoing, &messages, &buffers)
            };
            self.counters.batch(count(messages.len()), answered);
        }
    }

    /// Waits for a message, then takes what else is there. `ESHUTDOWN` when it is time to end.
    fn receive(
        &self,
        headers: &mut Headers,
        buffers: &mut [[u8; ROOM]],
        messages: &mut Vec<Message>,
    ) -> nix::Result<()> {
        let mut buffers = buffers.iter_mut();
        let mut slices: [[IoSliceMut<'_>; 1]; BATCH] =
            std::array::from_fn(|_| [IoSliceMut::new(buffers.next().map_or(&mut [], |buffer| &mut buffer[..]))]);
        let received = recvmmsg(self.socket.as_raw_fd(), headers, &mut slices, MsgFlags::MSG_WAITFORONE, None)?;
        if self.stop.load(Relaxed) {
            // What a socket yields after its shutdown is not a message and has no sender.
            return Err(Errno::ESHUTDOWN);
        }
        messages.extend(received.map_while(|message| {
            let asked = message.cmsgs().ok().and_then(|mut controls| controls.find_map(Asked::from_control));
            Some(Message { peer: message.address?, asked, length: message.bytes, reply: false })
        }));
        Ok(())
    }

    /// Answers a message in place.
    fn answer(&mut self, message: &mut Message, buffer: &mut [u8]) {
        let (ip, port) = endpoint(&message.peer);
        let outcome = match self.own.admit_through_kernel(ip, port, self.address.port()) {
            Ok(()) => self.service.serve(&mut self.state, buffer, message.length, ip, Transport::Udp, &self.counters),
            Err(reason) => Outcome::Drop(reason),
        };
        match outcome {
            Outcome::Reply(length) => (message.length, message.reply) = (length, true),
            Outcome::Drop(reason) => self.counters.dropped_one(reason),
        }
    }

    /// Sends the replies of a batch in one system call, more where the kernel balks. Returns how many it took.
    fn send_all(&self, headers: &mut Headers, messages: &[Message], buffers: &[[u8; ROOM]]) -> u32 {
        let mut slices = [[IoSlice::new(&[])]; BATCH];
        let mut peers = [None; BATCH];
        let mut replies = 0;
        for (message, buffer) in messages.iter().zip(buffers).filter(|(message, _)| message.reply) {
            slices[replies] = [IoSlice::new(&buffer[..message.length])];
            peers[replies] = Some(message.peer);
            replies += 1;
        }
        let (mut next, mut sent) = (0, 0);
        while next < replies {
            let slices = &slices[next..replies];
            match sendmmsg(self.socket.as_raw_fd(), headers, slices, &peers[next..replies], [], MsgFlags::empty()) {
                Ok(taken) => {
                    let taken = taken.count();
                    next += taken;
                    sent += taken;
                }
                // The first of them cannot be sent, for want of a route for example; the others may.
                Err(_) => {
                    self.counters.dropped_one(DropReason::NotSent);
                    next += 1;
                }
            }
        }
        count(sent)
    }

    /// Sends the replies of a batch one by one, each from the address that was asked. Returns how many the kernel took.
    fn send_each(&self, messages: &[Message], buffers: &[[u8; ROOM]]) -> u32 {
        let mut sent = 0;
        for (message, buffer) in messages.iter().zip(buffers).filter(|(message, _)| message.reply) {
            let bytes = [IoSlice::new(&buffer[..message.length])];
            let control: &[ControlMessage<'_>] = match &message.asked {
                None => &[],
                Some(Asked::V4(info)) => &[ControlMessage::Ipv4PacketInfo(info)],
                Some(Asked::V6(info)) => &[ControlMessage::Ipv6PacketInfo(info)],
            };
            match sendmsg(self.socket.as_raw_fd(), &bytes, control, MsgFlags::empty(), Some(&message.peer)) {
                Ok(_) => sent += 1,
                Err(_) => self.counters.dropped_one(DropReason::NotSent),
            }
        }
        sent
    }
}

/// The address that a packet was sent to, in the form in which the kernel wants it back. Interface 0: replies leave by route, as any packet.
enum Asked {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
}

impl Asked {
    fn from_control(message: ControlMessageOwned) -> Option<Self> {
        match message {
            ControlMessageOwned::Ipv4PacketInfo(info) => Some(Self::V4(libc::in_pktinfo { ipi_ifindex: 0, ..info })),
            ControlMessageOwned::Ipv6PacketInfo(info) => Some(Self::V6(libc::in6_pktinfo { ipi6_ifindex: 0, ..info })),
            _ => None,
        }
    }
}

/// Address and port of a sender. UDP sockets know only these two families; any other is treated as port 0, which is never answered.
fn endpoint(peer: &SockaddrStorage) -> (IpAddr, u16) {
    if let Some(peer) = peer.as_sockaddr_in() {
        (peer.ip().into(), peer.port())
    } else if let Some(peer) = peer.as_sockaddr_in6() {
        (peer.ip().into(), peer.port())
    } else {
        (Ipv4Addr::UNSPECIFIED.into(), 0)
    }
}

#[allow(clippy::cast_possible_truncation, reason = "at most BATCH")]
fn count(messages: usize) -> u32 {
    messages as u32
}
