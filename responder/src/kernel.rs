//! The kernel path: UDP and TCP sockets that answer whatever the XDP program passes, with the same service and guard as the bypass.
//!
//! It is also the whole server with `--io socket`: the portable mode, and the honest baseline for measurements.
//!
//! Sockets are bound per address, so that a reply leaves from the address that was asked; on a wildcard address the kernel says for
//! each packet which one that was. Sockets come and go as addresses do.

pub mod tcp;
mod udp;

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    rc::Rc,
};

use anyhow::{Result, anyhow};
use socket2::{Domain, Protocol, Socket, Type};

use crate::{
    cli::Sockets,
    control::status,
    counters::Counters,
    guard::AddressList,
    latest::Latest,
    service::{Rules, Service, State},
};

/// All sockets of the kernel path. Dropping it closes them and ends their threads.
pub struct KernelPath {
    service: Service,
    rules: Latest<Rules>,
    own: AddressList,
    options: Options,
    listening: BTreeMap<SocketAddr, Listening>,
    /// What UDP counted at addresses that are no longer served: a total never goes back.
    udp_past: status::Path,
    tcp: Rc<tcp::Shared>,
}

/// How sockets are made.
#[derive(Clone, Debug)]
pub struct Options {
    /// Each address gets one UDP thread for each of these.
    pub cpus: Vec<usize>,
    /// Whether each of the threads has a socket of its own.
    pub sockets: Sockets,
    /// No UDP reply is larger than fits this.
    pub mtu: u32,
    /// What bounds TCP.
    pub tcp: tcp::Limits,
    /// Sockets are bound beside those of another server, which is to end.
    pub takes_over: bool,
}

impl Options {
    /// Our sockets share their port among themselves. Had another program bound it in the same way, it would take a part of our queries and nobody
    /// would notice; so first it is bound alone.
    fn check_free(&self, address: SocketAddr, protocol: Protocol) -> Result<()> {
        if self.takes_over { Ok(()) } else { bind(address, protocol, Sharing::Nobody).map(drop) }
    }
}

/// What serves one address.
struct Listening {
    udp: udp::Listener,
    _tcp: tcp::Listener,
}

impl KernelPath {
    /// A path with no sockets yet.
    #[must_use]
    pub fn new(service: Service, rules: Latest<Rules>, own: AddressList, options: Options) -> Self {
        let state = State::new(&rules, 1, options.mtu);
        let tcp = Rc::new(tcp::Shared::new(service.clone(), state, options.tcp));
        Self { service, rules, own, options, listening: BTreeMap::new(), udp_past: status::Path::default(), tcp }
    }

    /// Looks for what has been replaced, for TCP and for sockets that are yet to come; those that are there do so by themselves.
    pub fn refresh(&mut self) {
        self.service.refresh();
        self.tcp.refresh();
    }

    /// Serves an address; one that is served already stays as it is. Called on a `LocalSet`.
    pub fn add(&mut self, address: SocketAddr) -> Result<()> {
        if self.listening.contains_key(&address) {
            return Ok(());
        }
        let tcp = tcp::Listener::start(address, &self.options, &self.tcp)?;
        let state = || State::new(&self.rules, self.options.cpus.len(), self.options.mtu);
        let udp = udp::Listener::start(address, &self.options, &self.service, state, &self.own)?;
        self.listening.insert(address, Listening { udp, _tcp: tcp });
        Ok(())
    }

    /// Stops serving an address.
    pub fn remove(&mut self, address: SocketAddr) {
        if let Some(mut listening) = self.listening.remove(&address) {
            listening.udp.end();
            listening.udp.threads().for_each(|(_, _, counters)| add(&mut self.udp_past, counters));
        }
    }

    /// The addresses being served.
    pub fn addresses(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.listening.keys().copied()
    }

    /// Whether a client is connected over TCP.
    #[must_use]
    pub fn has_connections(&self) -> bool {
        self.tcp.has_connections()
    }

    /// What its sockets have done.
    #[must_use]
    pub fn status(&self) -> status::KernelPath {
        let mut udp = self.udp_past.clone();
        let mut udp_workers = Vec::new();
        for (address, listening) in &self.listening {
            for (cpu, thread, counters) in listening.udp.threads() {
                add(&mut udp, counters);
                let mut counts = status::Path::default();
                add(&mut counts, counters);
                udp_workers.push(status::UdpWorker { address: address.to_string(), cpu, thread, counts });
            }
        }
        let mut tcp = status::Path { connections: self.tcp.accepted.get(), ..status::Path::default() };
        add(&mut tcp, &self.tcp.counters);
        status::KernelPath { udp, tcp, udp_workers }
    }
}

/// Adds what one writer has counted.
fn add(path: &mut status::Path, counters: &Counters) {
    path.received += counters.received();
    path.answered += counters.answered();
    path.limited_slipped += counters.limited_slipped();
    path.batches += counters.batches();
    path.traffic += &counters.into();
    for (reason, count) in counters.dropped() {
        *path.dropped.entry(reason.name().to_owned()).or_default() += count;
    }
}

/// Where a socket with this address is reached from this machine.
#[must_use]
pub fn on_this_machine(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

/// Whether a socket's address can be bound more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    /// Nobody else may have it. For TCP, connections that an earlier process left behind do not count.
    Nobody,
    /// Each of our threads binds it, and a server that takes over from us, and the kernel chooses between them.
    Ours,
}

/// Makes a socket that may be bound before its address exists, and says what to do when it cannot be bound.
fn bind(address: SocketAddr, protocol: Protocol, sharing: Sharing) -> Result<Socket> {
    let is_tcp = protocol == Protocol::TCP;
    let open = || -> io::Result<Socket> {
        let kind = if is_tcp { Type::STREAM } else { Type::DGRAM };
        let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
            socket.set_freebind_v6(true)?;
        } else {
            socket.set_freebind_v4(true)?;
        }
        socket.set_reuse_address(is_tcp)?;
        socket.set_reuse_port(sharing == Sharing::Ours)?;
        socket.bind(&address.into())?;
        Ok(socket)
    };
    open().map_err(|error| {
        let (name, flag) = if is_tcp { ("TCP", 't') } else { ("UDP", 'u') };
        let remedy = match error.raw_os_error() {
            Some(libc::EADDRINUSE) => {
                format!(": another program has this port: `ss -lnp{flag} 'sport = :{}'` names it", address.port())
            }
            Some(libc::EACCES) => {
                ": ports below 1024 need CAP_NET_BIND_SERVICE: run it as root or give it this capability".to_owned()
            }
            _ => String::new(),
        };
        anyhow!("cannot listen on {name} {address}: {error}{remedy}")
    })
}
