//! The bypass of one interface: steer frames into one AF_XDP socket per queue, answer each in the frame it came in.
//!
//! Order matters. At start the program is attached with an empty XSKMAP, whose empty slots pass everything to the kernel path, then
//! sockets and workers come up, and only then are the slots set. At the end the slots are cleared first. So at no moment is a
//! frame steered to a queue that nobody serves. The attachment is a link that this process holds: it goes when the process goes.

pub mod socket;
pub mod steering;
pub mod topology;
pub mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    net::{IpAddr, SocketAddr},
    os::fd::{AsRawFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};

use crate::{
    cli::{Switch, XdpMode},
    config::Config,
    control::status::{self, Unserved},
    interface::Interface,
    sys,
};
use socket::{Options, Socket};
use steering::{AttachMode, Settings, Steering, VlanTag};
use worker::{Handler, Worker};

/// Drivers that reset on attach need up to a few seconds until the link is back.
const CARRIER_WITHIN: Duration = Duration::from_secs(10);
const CARRIER_STEP: Duration = Duration::from_millis(20);
/// The XDP program writes a few records a second.
const LOG_EVERY: Duration = Duration::from_millis(200);

/// One served queue.
#[derive(Debug)]
pub struct Queue {
    /// Its worker.
    pub worker: Worker,
    /// Whether the driver receives straight into the UMEM.
    pub zero_copy: bool,
    /// The socket, for the kernel's counters.
    fd: OwnedFd,
}

impl Queue {
    fn mode(&self) -> &'static str {
        if self.zero_copy { "zero-copy" } else { "copy" }
    }

    fn status(&self) -> status::Queue {
        let observed = self.worker.observed();
        let counters = &observed.counters;
        // It cannot fail on an open AF_XDP socket, which this is.
        let kernel = sys::xdp_statistics(&self.fd).unwrap_or_default();
        status::Queue {
            queue: self.worker.placement.queue,
            cpu: self.worker.placement.cpu,
            thread: observed.thread(),
            mode: self.mode().to_owned(),
            received: counters.received(),
            answered: counters.answered(),
            dropped: counters.dropped().map(|(reason, count)| (reason.name().to_owned(), count)).collect(),
            limited_slipped: counters.limited_slipped(),
            kernel,
            batches: counters.batches(),
            tx_stalls: counters.stalls(),
        }
    }

    /// The kernel gives a socket only frames of the queue it is bound to, and sends what the socket sends on the same queue; the CPU is
    /// where the worker found itself.
    fn matrix(&self) -> impl Iterator<Item = status::Cell> + '_ {
        let queue = self.worker.placement.queue;
        let cell = move |(tx_cpu, frames)| status::Cell { rx_queue: queue, tx_queue: queue, tx_cpu, frames };
        self.worker.observed().sent_from().map(cell)
    }
}

/// The bypass of one interface. Dropping it takes the queues out of the XSKMAP, then ends the workers, then detaches.
pub struct Bypass {
    /// The interface as it was at start.
    pub interface: Interface,
    /// Its served queues.
    pub queues: Vec<Queue>,
    /// Receive queues that have no worker, and why.
    pub unserved: Vec<Unserved>,
    /// The XDP program.
    steering: Steering,
    /// What is steered, as the XDP program has it.
    prefixes: Prefixes,
}

impl Bypass {
    /// Brings the bypass up. `served` are the addresses whose queries are steered, `handler` makes one handler per worker; it is
    /// told whether checksums are to be verified and how many workers there will be.
    pub fn start(
        interface: Interface,
        config: &Config,
        served: &[SocketAddr],
        handler: impl Fn(bool, usize) -> Handler,
    ) -> Result<Self> {
        let name = interface.name.as_str();
        ensure!(
            interface.mtu <= socket::mtu_max(),
            "the MTU of {name} is {}, but a frame holds packets of at most {}: `ip link set dev {name} mtu {}`",
            interface.mtu,
            socket::mtu_max(),
            socket::mtu_max()
        );
        let mut steering = Steering::attach(name, interface.index, &settings(&interface, config, served))?;
        if let Some(fallback) = steering.fallback() {
            eprintln!("warning: {fallback}");
        }
        let prefixes = Prefixes::new(served);
        for ((address, length), ports) in &prefixes.0 {
            steering.serve(*address, *length, ports)?;
        }
        if config.log_steering {
            print_log(&mut steering)?;
        }
        wait_for_carrier(name)?;

        // Attaching can change the channels, so they are counted afterwards.
        let present = receive_queues(name);
        let (served_queues, unserved) = choose(name, present, config.queues.as_deref())?;
        let allowed = topology::allowed_cpus();
        let placements =
            topology::place(&served_queues, &allowed, config.cpus.as_deref(), &topology::interrupts(name))?;
        if placements.iter().any(|placement| placement.shared) {
            eprintln!("warning: {name}: {} queues share {} CPUs", placements.len(), allowed.len());
        }

        let options = Options {
            mtu: interface.mtu,
            zero_copy: config.zero_copy,
            ring_frames: config.ring_frames,
            busy_poll_us: config.busy_poll_us,
        };
        let verify = match config.verify_checksums {
            Switch::On => true,
            Switch::Off => false,
            // Local senders leave partial sums on veth, which only hardware would complete.
            Switch::Auto => interface.driver != "veth",
        };
        let cpus = allowed.iter().max().map_or(1, |last| last + 1);
        let workers = placements.len();
        let mut queues = Vec::with_capacity(workers);
        for placement in placements {
            let socket = Socket::bind(name, placement.queue, &options)?;
            if config.busy_poll_us.is_some() && !socket.has_napi() {
                eprintln!(
                    "warning: {name} queue {}: busy polling has no effect, the driver gives no NAPI id",
                    placement.queue
                );
            }
            let zero_copy = socket.is_zero_copy();
            let fd = socket.try_clone_fd().context("cannot duplicate an AF_XDP socket")?;
            let worker = Worker::start(placement, socket, handler(verify, workers), cpus)?;
            queues.push(Queue { worker, zero_copy, fd });
        }
        let mut bypass = Self { interface, queues, unserved, steering, prefixes };
        for queue in &bypass.queues {
            bypass.steering.set_slot(queue.worker.placement.queue, queue.fd.as_raw_fd())?;
        }
        Ok(bypass)
    }

    /// Steers exactly these addresses from now on.
    pub fn steer(&mut self, served: &[SocketAddr]) -> Result<()> {
        let wanted = Prefixes::new(served);
        for (address, length) in self.prefixes.0.keys().filter(|prefix| !wanted.0.contains_key(prefix)) {
            self.steering.unserve(*address, *length)?;
        }
        for ((address, length), ports) in &wanted.0 {
            self.steering.serve(*address, *length, ports)?;
        }
        self.prefixes = wanted;
        Ok(())
    }

    /// One line: `eth0 (native): queue 0 on CPU 1 (copy), ...`.
    #[must_use]
    pub fn summary(&self) -> String {
        let queues: Vec<String> = self
            .queues
            .iter()
            .map(|queue| {
                format!(
                    "queue {} on CPU {} ({})",
                    queue.worker.placement.queue,
                    queue.worker.placement.cpu,
                    queue.mode()
                )
            })
            .collect();
        format!("{} (XDP {}): {}", self.interface.name, self.mode(), queues.join(", "))
    }

    /// What it has done.
    #[must_use]
    pub fn status(&self) -> status::Interface {
        status::Interface {
            name: self.interface.name.clone(),
            index: self.interface.index,
            driver: self.interface.driver.clone(),
            xdp_mode: self.mode().to_owned(),
            queues: self.queues.iter().map(Queue::status).collect(),
            queues_without_worker: self.unserved.clone(),
            verdicts: self
                .steering
                .verdicts()
                .unwrap_or_default()
                .into_iter()
                .map(|(name, count)| (name.to_owned(), count))
                .collect(),
            matrix: self.queues.iter().flat_map(Queue::matrix).collect(),
        }
    }

    fn mode(&self) -> &'static str {
        self.steering.mode().map_or("detached", steering::Mode::name)
    }
}

impl Drop for Bypass {
    fn drop(&mut self) {
        if let Err(error) = self.steering.clear_slots() {
            eprintln!("warning: {}: {error:#}", self.interface.name);
        }
        // The workers end now, all at once, and the program after them.
        for queue in &self.queues {
            queue.worker.stop();
        }
        self.queues.clear();
    }
}

fn settings(interface: &Interface, config: &Config, served: &[SocketAddr]) -> Settings {
    let ports: BTreeSet<u16> = served.iter().map(SocketAddr::port).collect();
    Settings {
        ports: ports.into_iter().collect(),
        mac: interface.mac,
        vlans: interface
            .vlans
            .iter()
            .filter_map(|id| VlanTag::new(*id, None))
            .chain(config.vlans.iter().copied())
            .collect(),
        queues: receive_queues_max(&interface.name),
        mode: match config.xdp_mode {
            XdpMode::Auto => AttachMode::Auto,
            XdpMode::Native => AttachMode::Native,
            XdpMode::Generic => AttachMode::Generic,
        },
        log: config.log_steering,
    }
}

/// Prints what the XDP program logs, from now until the control thread ends.
fn print_log(steering: &mut Steering) -> Result<()> {
    let mut logger = steering.logger(StderrLog)?;
    tokio::task::spawn_local(async move {
        loop {
            tokio::time::sleep(LOG_EVERY).await;
            logger.flush();
        }
    });
    Ok(())
}

/// Where the XDP program's log records go.
struct StderrLog;

impl log::Log for StderrLog {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("xdp: {}", record.args());
    }

    fn flush(&self) {}
}

/// Address prefixes, each with the ports at which it is served.
#[derive(Debug)]
struct Prefixes(BTreeMap<(IpAddr, u8), Vec<u16>>);

impl Prefixes {
    /// A wildcard address stands for all addresses of its family. The longest prefix decides alone, so one that lies within the
    /// wildcard is served at the wildcard's ports too.
    fn new(served: &[SocketAddr]) -> Self {
        let mut prefixes: BTreeMap<(IpAddr, u8), Vec<u16>> = BTreeMap::new();
        for address in served {
            let length = match address.ip() {
                ip if ip.is_unspecified() => 0,
                IpAddr::V4(_) => 32,
                IpAddr::V6(_) => 128,
            };
            let within = |other: &&SocketAddr| {
                other.ip() == address.ip() || (other.ip().is_unspecified() && other.is_ipv4() == address.is_ipv4())
            };
            let ports: BTreeSet<u16> = served.iter().filter(within).map(SocketAddr::port).collect();
            prefixes.insert((address.ip(), length), ports.into_iter().collect());
        }
        Self(prefixes)
    }
}

/// The number of receive queues in use. A driver without channels has one.
fn receive_queues(interface: &str) -> u32 {
    sys::channels(interface).map_or(1, |channels| channels.rx.max(1))
}

/// The number of receive queues there can ever be, in use or not.
fn receive_queues_max(interface: &str) -> u32 {
    let present = fs::read_dir(format!("/sys/class/net/{interface}/queues")).map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count()
    });
    u32::try_from(present).unwrap_or(u32::MAX).max(receive_queues(interface))
}

/// Splits the receive queues into those that get a worker and those that do not, with the reason.
fn choose(interface: &str, present: u32, wanted: Option<&[u32]>) -> Result<(Vec<u32>, Vec<Unserved>)> {
    let Some(wanted) = wanted else { return Ok(((0..present).collect(), Vec::new())) };
    for queue in wanted {
        ensure!(
            *queue < present,
            "{interface} has no receive queue {queue}: it has {present}, numbered from 0 (see `ethtool -l {interface}`)"
        );
    }
    let unserved = (0..present)
        .filter(|queue| !wanted.contains(queue))
        .map(|queue| Unserved {
            queue,
            reason: "not in --queues: its queries are answered by the kernel path".to_owned(),
        })
        .collect();
    Ok((wanted.to_vec(), unserved))
}

/// Waits until the link is up again after attaching.
fn wait_for_carrier(interface: &str) -> Result<()> {
    let path = format!("/sys/class/net/{interface}/carrier");
    let deadline = Instant::now() + CARRIER_WITHIN;
    while fs::read_to_string(&path).is_ok_and(|carrier| carrier.trim() != "1") {
        ensure!(
            Instant::now() < deadline,
            "{interface} has had no carrier for {} s: is its cable (or its peer) up?",
            CARRIER_WITHIN.as_secs()
        );
        thread::sleep(CARRIER_STEP);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CASES 4: a server that sits on one queue sees only some of the traffic.
    #[test]
    fn case_04_all_queues_by_default_and_the_rest_is_named() {
        let (served, unserved) = choose("eth0", 3, None).unwrap();
        assert_eq!((served.as_slice(), unserved.len()), ([0, 1, 2].as_slice(), 0));
        let (served, unserved) = choose("eth0", 3, Some(&[1])).unwrap();
        assert_eq!(served, [1]);
        assert_eq!(unserved.iter().map(|unserved| unserved.queue).collect::<Vec<_>>(), [0, 2]);
    }

    #[test]
    fn each_address_has_its_own_ports() {
        let served: Vec<SocketAddr> =
            ["192.0.2.1:53", "192.0.2.1:5353", "192.0.2.2:54", "[2001:db8::1]:53", "0.0.0.0:55"]
                .map(|text| text.parse().unwrap())
                .into();
        let prefixes: Vec<String> = Prefixes::new(&served)
            .0
            .iter()
            .map(|((address, length), ports)| format!("{address}/{length} {ports:?}"))
            .collect();
        assert_eq!(
            prefixes,
            ["0.0.0.0/0 [55]", "192.0.2.1/32 [53, 55, 5353]", "192.0.2.2/32 [54, 55]", "2001:db8::1/128 [53]"]
        );
    }

    #[test]
    fn a_queue_that_does_not_exist_is_named() {
        let error = choose("eth0", 2, Some(&[0, 5])).unwrap_err().to_string();
        assert!(error.starts_with("eth0 has no receive queue 5: it has 2"), "{error}");
    }
}
