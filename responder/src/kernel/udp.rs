//! UDP over kernel sockets: one socket and one pinned thread per address and CPU, the socket chosen by the CPU a packet came in on.
//!
//! One packet per system call: batches are for later, this is the path of what the bypass passes.

use std::{
    io::{IoSlice, IoSliceMut},
    net::{IpAddr, SocketAddr},
    os::fd::AsRawFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result};
use nix::{
    errno::Errno,
    sys::socket::{
        ControlMessage, ControlMessageOwned, MsgFlags, SockaddrStorage, recvmsg, sendmsg, setsockopt,
        sockopt::{Ipv4PacketInfo, Ipv6RecvPacketInfo},
    },
};
use socket2::{Protocol, Socket};

use super::Sharing;
use crate::{
    answer::{Outcome, Transport},
    counters::{Counters, DropReason},
    guard::OwnAddresses,
    service::Service,
};

/// How long a thread waits for a packet before it looks at its stop flag.
const IDLE: Duration = Duration::from_millis(200);
/// The largest UDP payload there is.
const BUFFER: usize = 65_535;
/// Bursts are kept by the kernel meanwhile.
const RECEIVE_BUFFER: usize = 4 << 20;

/// A thread that serves one socket. Dropping it ends it and closes the socket.
pub(super) struct Thread {
    stop: Arc<AtomicBool>,
    counters: Arc<Counters>,
    thread: Option<JoinHandle<()>>,
}

impl Thread {
    /// Binds a socket for `address` that gets the packets received on `cpu`, and serves it there.
    pub(super) fn start(address: SocketAddr, cpu: usize, service: Service, own: OwnAddresses) -> Result<Self> {
        let socket = super::bind(address, Protocol::UDP, Sharing::OwnThreads)?;
        let prepare = || -> anyhow::Result<()> {
            socket.set_read_timeout(Some(IDLE))?;
            // The kernel grants what its limit allows.
            let _ = socket.set_recv_buffer_size(RECEIVE_BUFFER);
            socket.set_cpu_affinity(cpu)?;
            if address.ip().is_unspecified() {
                if address.is_ipv4() {
                    setsockopt(&socket, Ipv4PacketInfo, &true)?;
                } else {
                    setsockopt(&socket, Ipv6RecvPacketInfo, &true)?;
                }
            }
            Ok(())
        };
        prepare().with_context(|| format!("cannot prepare the UDP socket for {address}"))?;
        let stop = Arc::new(AtomicBool::new(false));
        let counters = Arc::new(Counters::default());
        let mut server = Server { socket, address, service, own, counters: Arc::clone(&counters) };
        let thread = thread::Builder::new()
            .name(format!("udp cpu {cpu}"))
            .spawn({
                let stop = Arc::clone(&stop);
                move || {
                    core_affinity::set_for_current(core_affinity::CoreId { id: cpu });
                    server.run(&stop);
                }
            })
            .with_context(|| format!("cannot start a thread for UDP {address}"))?;
        Ok(Self { stop, counters, thread: Some(thread) })
    }

    pub(super) fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            // It ends within IDLE. A panic has been reported by then and must not become an abort here.
            let _ = thread.join();
        }
    }
}

/// What a thread works with.
struct Server {
    socket: Socket,
    address: SocketAddr,
    service: Service,
    own: OwnAddresses,
    counters: Arc<Counters>,
}

impl Server {
    fn run(&mut self, stop: &AtomicBool) {
        let mut buffer = vec![0; BUFFER];
        let mut control = nix::cmsg_space!(libc::in6_pktinfo);
        while !stop.load(Relaxed) {
            self.own.refresh();
            // Errors here are those of single packets (an ICMP answer to an earlier reply) or the idle time-out. None ends the service.
            let Ok(Some((length, source, asked))) = self.receive(&mut buffer, &mut control) else { continue };
            let outcome = match self.own.admit_through_kernel(source.ip(), source.port(), self.address.port()) {
                Ok(()) => self.service.serve(&mut buffer, length, Transport::Udp),
                Err(reason) => Outcome::Drop(reason),
            };
            let sent = match outcome {
                Outcome::Reply(length) => self.send(&buffer[..length], source, asked),
                Outcome::Drop(reason) => Err(reason),
            };
            if let Err(reason) = sent {
                self.counters.dropped_one(reason);
            }
            self.counters.batch(1, u32::from(sent.is_ok()));
        }
    }

    /// One packet: its length, its sender, and on a wildcard socket the address it was sent to.
    fn receive(&self, buffer: &mut [u8], control: &mut [u8]) -> Result<Option<(usize, SocketAddr, Option<Asked>)>, Errno> {
        let mut parts = [IoSliceMut::new(buffer)];
        let wildcard = self.address.ip().is_unspecified();
        let control = wildcard.then_some(control);
        let packet = recvmsg::<SockaddrStorage>(self.socket.as_raw_fd(), &mut parts, control, MsgFlags::empty())?;
        let asked = if wildcard { packet.cmsgs()?.find_map(Asked::from_control) } else { None };
        let source = packet.address.as_ref().and_then(socket_address);
        Ok(source.map(|source| (packet.bytes, source, asked)))
    }

    /// Sends a reply from the address that was asked.
    fn send(&self, reply: &[u8], to: SocketAddr, from: Option<Asked>) -> Result<(), DropReason> {
        let parts = [IoSlice::new(reply)];
        let to = SockaddrStorage::from(to);
        let control: &[ControlMessage<'_>] = match &from {
            None => &[],
            Some(Asked::V4(info)) => &[ControlMessage::Ipv4PacketInfo(info)],
            Some(Asked::V6(info)) => &[ControlMessage::Ipv6PacketInfo(info)],
        };
        // The kernel refuses what it cannot route, or has no memory for.
        sendmsg(self.socket.as_raw_fd(), &parts, control, MsgFlags::empty(), Some(&to)).map(drop).map_err(|_| DropReason::NotSent)
    }
}

/// The address that a packet was sent to, in the form in which the kernel wants it back.
enum Asked {
    V4(libc::in_pktinfo),
    V6(libc::in6_pktinfo),
}

impl Asked {
    fn from_control(message: ControlMessageOwned) -> Option<Self> {
        match message {
            // With index 0 the route decides where the reply leaves, as for any other packet.
            ControlMessageOwned::Ipv4PacketInfo(info) => Some(Self::V4(libc::in_pktinfo { ipi_ifindex: 0, ..info })),
            // A link-local address means nothing without its interface.
            ControlMessageOwned::Ipv6PacketInfo(info) => Some(Self::V6(info)),
            _ => None,
        }
    }
}

fn socket_address(address: &SockaddrStorage) -> Option<SocketAddr> {
    match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
        (Some(v4), _) => Some(SocketAddr::new(IpAddr::V4(v4.ip()), v4.port())),
        (_, Some(v6)) => Some(SocketAddr::V6(std::net::SocketAddrV6::new(v6.ip(), v6.port(), v6.flowinfo(), v6.scope_id()))),
        _ => None,
    }
}
