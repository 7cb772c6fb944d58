//! The bypass of one interface: steer frames into one AF_XDP socket per queue, answer each in the frame it came in.
//!
//! Order matters. At start the program is attached with an empty XSKMAP, whose empty slots pass everything to the kernel path, then
//! sockets and workers come up, and only then are the slots set. At the end the slots are cleared first. So at no moment is a
//! frame steered to a queue that nobody serves. The attachment is a link that this process holds: it goes when the process goes.
//!
//! A bypass can leave its interface and join it again, as it does when the interface has gone and come back or has other channels. Meanwhile the kernel
//! path answers, and what was counted stays.

pub mod nic;
pub mod queue;
pub mod socket;
pub mod steering;
pub mod topology;
pub mod watch;
pub mod worker;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::{
    cli::{Switch, XdpMode},
    config::Config,
    control::status::{self, Unserved},
    interface::Interface,
    sys,
};
use queue::Queue;
use socket::Options;
use steering::{AttachMode, Settings, Steering, VlanTag};
use worker::Handler;

/// How often it is looked for queues that receive nothing.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The XDP program writes a few records a second.
const LOG_EVERY: Duration = Duration::from_millis(200);

/// The bypass of one interface. Dropping it takes the queues out of the XSKMAP, then ends the workers, then detaches.
pub struct Bypass {
    /// The interface as it was when it was last looked at.
    pub interface: Interface,
    /// Its served queues.
    pub queues: Vec<Queue>,
    /// Receive queues that have no worker, and why.
    pub unserved: Vec<Unserved>,
    /// The XDP program: once loaded it stays so, since loading another takes capabilities that are given up.
    steering: Steering,
    /// It is attached, or is about to be.
    joined: bool,
    /// The interface's receive queues when it was joined.
    present: u32,
    /// What must happen before it can be joined again.
    waits_for: Option<String>,
    /// VLANs are served beside those of the interface's VLAN devices.
    tagged: bool,
    /// What is steered, as the XDP program has it.
    prefixes: Prefixes,
    next_look: Instant,
    /// Workers follow their interrupts, unless the operator has placed them.
    follow: Option<Follow>,
}

/// What the CPUs of workers were decided from.
struct Follow {
    allowed: Vec<usize>,
    interrupts: BTreeMap<u32, usize>,
}

impl Bypass {
    /// Loads the XDP program, and does nothing to the interface yet. `served` are the addresses whose queries will be steered.
    pub fn load(interface: Interface, config: &Config, served: &[SocketAddr]) -> Result<Self> {
        let mut steering = Steering::load(&settings(&interface, config, served))?;
        if config.log_steering {
            print_log(&mut steering)?;
        }
        Ok(Self {
            interface,
            queues: Vec::new(),
            unserved: Vec::new(),
            steering,
            joined: false,
            present: 0,
            waits_for: None,
            tagged: !config.vlans.is_empty(),
            prefixes: Prefixes::default(),
            next_look: Instant::now(),
            follow: None,
        })
    }

    /// Attaches, binds a socket for each queue, and steers. `handler` makes one handler per worker: it is told whether checksums are to be verified and
    /// how many workers there are. Where something fails, the interface is left again.
    pub fn join(
        &mut self,
        config: &Config,
        served: &[SocketAddr],
        handler: impl Fn(bool, usize) -> Handler,
    ) -> Result<()> {
        let joined = self.try_join(config, served, handler);
        match &joined {
            Ok(()) => self.waits_for = None,
            Err(error) => self.leave(&format!("{error:#}")),
        }
        joined
    }

    fn try_join(
        &mut self,
        config: &Config,
        served: &[SocketAddr],
        handler: impl Fn(bool, usize) -> Handler,
    ) -> Result<()> {
        let interface = &self.interface;
        let name = interface.name.as_str();
        ensure!(
            interface.mtu <= socket::mtu_max(),
            "the MTU of {name} is {}, but a frame holds packets of at most {}: `ip link set dev {name} mtu {}`",
            interface.mtu,
            socket::mtu_max(),
            socket::mtu_max()
        );
        let settings = settings(interface, config, served);
        let steering = &mut self.steering;
        self.joined = true;
        steering.attach(name, interface.index, &settings)?;
        if let Some(fallback) = steering.fallback() {
            tracing::warn!("{fallback}");
        }
        if strips(interface, self.tagged) {
            warn_of_stripping(interface);
        }
        self.prefixes.become_these(Prefixes::new(served, kernel_only(interface)), steering)?;
        nic::wait_for_carrier(name)?;

        // Attaching can change the channels, so they are counted afterwards.
        self.present = nic::receive_queues(name);
        let (served_queues, unserved) = choose(name, self.present, config.queues.as_deref())?;
        self.unserved = unserved;
        let allowed = topology::allowed_cpus();
        let interrupts = topology::interrupts(name);
        let placements = topology::place(&served_queues, &allowed, config.cpus.as_deref(), &interrupts)?;
        if placements.iter().any(|placement| placement.shared) {
            tracing::warn!("{name}: {} queues share {} CPUs", placements.len(), allowed.len());
        }

        let options = Options {
            mtu: interface.mtu,
            zero_copy: config.zero_copy,
            ring_frames: config.ring_frames,
            // Polling for no time is not polling.
            busy_poll_us: config.busy_poll_us.filter(|us| *us > 0),
        };
        let verify = match config.verify_checksums {
            Switch::On => true,
            Switch::Off => false,
            // Local senders leave partial sums on veth, which only hardware would complete.
            Switch::Auto => interface.driver != "veth",
        };
        let cpus = allowed.iter().max().map_or(1, |last| last + 1);
        let workers = placements.len();
        for placement in placements {
            let handler = handler(verify, workers);
            let known = self.queues.iter().position(|queue| queue.placement.queue == placement.queue);
            let index = known.unwrap_or_else(|| {
                self.queues.push(Queue::new(placement, options, handler.clone(), cpus));
                self.queues.len() - 1
            });
            self.queues[index].join(interface, placement, options, handler)?;
        }
        for queue in self.queues.iter_mut().filter(|queue| !served_queues.contains(&queue.placement.queue)) {
            queue.leave("the interface has no such queue now");
        }
        // Nobody expects zero-copy of veth.
        if interface.driver != "veth" {
            warn_of_copy_mode(interface, &self.queues);
        }
        // Binding with zero-copy has some drivers reset as attaching does.
        nic::wait_for_carrier(name)?;
        self.follow = config.cpus.is_none().then_some(Follow { allowed, interrupts });
        self.next_look = Instant::now();
        for queue in &mut self.queues {
            queue.steer(steering)?;
        }
        Ok(())
    }

    /// Takes the queues out of the XSKMAP, then ends the workers, then detaches. What was counted stays.
    pub fn leave(&mut self, waits_for: &str) {
        self.waits_for = Some(waits_for.to_owned());
        if !std::mem::take(&mut self.joined) {
            return;
        }
        if let Err(error) = self.steering.clear_slots() {
            tracing::warn!("{}: {error:#}", self.interface.name);
        }
        // The workers end now, all at once, and the program after them.
        self.queues.iter().for_each(Queue::stop);
        for queue in &mut self.queues {
            queue.leave(waits_for);
        }
        self.steering.detach();
    }

    /// Whether it has left, and what it waits for.
    #[must_use]
    pub fn waits_for(&self) -> Option<&str> {
        self.waits_for.as_deref()
    }

    /// Whether the interface has other channels than when it was joined.
    #[must_use]
    pub fn has_other_queues(&self) -> bool {
        let present = || nic::receive_queues_now(&self.interface.name);
        self.joined && present().is_some_and(|present| present != self.present)
    }

    /// Steers exactly these addresses from now on, for the interface as it is now.
    pub fn follow(&mut self, interface: Interface, served: &[SocketAddr]) -> Result<()> {
        let before = std::mem::replace(&mut self.interface, interface);
        if strips(&self.interface, self.tagged) && !strips(&before, self.tagged) {
            warn_of_stripping(&self.interface);
        }
        if !self.joined {
            return Ok(());
        }
        self.prefixes.become_these(Prefixes::new(served, kernel_only(&self.interface)), &mut self.steering)
    }

    /// Looks after the queues, a few times a second.
    pub fn tick(&mut self) {
        if !self.joined {
            return;
        }
        let (now, carrier) = (Instant::now(), nic::has_carrier(&self.interface.name));
        for queue in &mut self.queues {
            queue.tick(&self.interface, &mut self.steering, carrier, now);
        }
        if now >= self.next_look {
            self.next_look = now + LOOK_EVERY;
            self.follow_interrupts();
            if carrier { self.look(now) } else { self.queues.iter_mut().for_each(Queue::forget) }
        }
    }

    /// Moves the workers whose queues' interrupts are handled elsewhere now.
    fn follow_interrupts(&mut self) {
        let Some(follow) = &mut self.follow else { return };
        let interrupts = topology::interrupts(&self.interface.name);
        // A driver that is just resetting itself has fewer.
        if interrupts.len() < follow.interrupts.len() || interrupts == follow.interrupts {
            return;
        }
        follow.interrupts = interrupts;
        let queues: Vec<u32> = self.queues.iter().map(|queue| queue.placement.queue).collect();
        let Ok(placements) = topology::place(&queues, &follow.allowed, None, &follow.interrupts) else { return };
        for (queue, placement) in self.queues.iter_mut().zip(placements) {
            queue.move_to(&self.interface, placement);
        }
    }

    /// Finds queues that receive nothing though they should. Where each has received something, nothing is read for it.
    fn look(&mut self, now: Instant) {
        if !self.queues.iter().any(Queue::is_silent) {
            return;
        }
        let counters = nic::Counters::read(&self.interface.name);
        let verdicts = self.steering.verdicts().unwrap_or_default().iter().map(|(_, count)| count).sum();
        for queue in self.queues.iter_mut().filter(|queue| queue.is_silent()) {
            queue.look(&self.interface, &mut self.steering, &counters, verdicts, now);
        }
    }

    /// Whether a driver receives straight into a queue's UMEM.
    pub fn has_zero_copy(&self) -> bool {
        self.queues.iter().any(Queue::is_zero_copy)
    }

    /// One line: `eth0 (native): queue 0 on CPU 1 (copy), ...`.
    #[must_use]
    pub fn summary(&self) -> String {
        let queues: Vec<String> = self
            .queues
            .iter()
            .map(|queue| format!("queue {} on CPU {} ({})", queue.placement.queue, queue.placement.cpu, queue.mode()))
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
            kernel: sys::kernel_release(),
            xdp_mode: self.mode().to_owned(),
            vlan_stripping: strips(&self.interface, self.tagged),
            queues: self.queues.iter().map(Queue::status).collect(),
            queues_without_worker: self
                .unserved
                .iter()
                .cloned()
                .chain(self.queues.iter().filter_map(Queue::unserved))
                .collect(),
            waits_for: self.waits_for.clone(),
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
        self.leave("the server ends");
    }
}

/// One line for each reason, naming the queues.
fn warn_of_copy_mode(interface: &Interface, queues: &[Queue]) {
    let mut reasons: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for queue in queues {
        if let Some(reason) = queue.mode_reason() {
            reasons.entry(reason).or_default().push(queue.placement.queue.to_string());
        }
    }
    for (reason, queues) in reasons {
        tracing::warn!(
            "{} queue {}: copy mode: {reason} (driver {}, Linux {})",
            interface.name,
            queues.join(", "),
            interface.driver,
            sys::kernel_release()
        );
    }
    if queues.iter().any(|queue| queue.tx_budget() == Some(socket::DEFAULT_TX_BUDGET)) {
        tracing::warn!(
            "{}: in copy mode Linux {} sends {} replies in a system call; 6.17 and later send all",
            interface.name,
            sys::kernel_release(),
            socket::DEFAULT_TX_BUDGET
        );
    }
}

/// Whether packets of VLANs that are served lose their tags before the XDP program sees them.
fn strips(interface: &Interface, tagged: bool) -> bool {
    interface.strips_vlans && (tagged || !interface.vlans.is_empty())
}

fn warn_of_stripping(interface: &Interface) {
    let name = &interface.name;
    // veth passes tags on as it got them.
    let peer = if interface.driver == "veth" { " (and `txvlan off` at its other end)" } else { "" };
    tracing::warn!(
        "{name} takes VLAN tags off received packets, so that the bypass cannot answer with them: queries to addresses of its VLAN \
         devices take the kernel path; `ethtool -K {name} rxvlan off`{peer} gives them to the bypass"
    );
}

/// The addresses that are never steered: without its tag a query to a VLAN's address would be answered untagged.
fn kernel_only(interface: &Interface) -> &[IpAddr] {
    if interface.strips_vlans { &interface.vlan_addresses } else { &[] }
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
        queues: nic::receive_queues_max(&interface.name),
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
        tracing::info!("xdp: {}", record.args());
    }

    fn flush(&self) {}
}

/// Address prefixes, each with the ports at which it is served. Without ports it goes to the kernel, whatever contains it.
#[derive(Debug, Default)]
struct Prefixes(BTreeMap<(IpAddr, u8), Vec<u16>>);

impl Prefixes {
    /// A wildcard address stands for all addresses of its family. The longest prefix decides alone, so one that lies within the
    /// wildcard is served at the wildcard's ports too, unless it is one for the kernel only.
    fn new(served: &[SocketAddr], kernel_only: &[IpAddr]) -> Self {
        let mut prefixes: BTreeMap<(IpAddr, u8), Vec<u16>> = BTreeMap::new();
        for address in served {
            let within = |other: &&SocketAddr| {
                other.ip() == address.ip() || (other.ip().is_unspecified() && other.is_ipv4() == address.is_ipv4())
            };
            let ports: BTreeSet<u16> = served.iter().filter(within).map(SocketAddr::port).collect();
            prefixes.insert((address.ip(), length(address.ip())), ports.into_iter().collect());
        }
        prefixes.extend(kernel_only.iter().map(|address| ((*address, length(*address)), Vec::new())));
        Self(prefixes)
    }

    /// Has the XDP program serve `wanted` and no longer what it served before.
    fn become_these(&mut self, wanted: Self, steering: &mut Steering) -> Result<()> {
        for (address, length) in self.0.keys().filter(|prefix| !wanted.0.contains_key(prefix)) {
            steering.unserve(*address, *length)?;
        }
        for ((address, length), ports) in &wanted.0 {
            steering.serve(*address, *length, ports)?;
        }
        *self = wanted;
        Ok(())
    }
}

/// The length of an address's prefix: all of it, or nothing of a wildcard.
fn length(address: IpAddr) -> u8 {
    match address {
        ip if ip.is_unspecified() => 0,
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
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
        let prefixes: Vec<String> = Prefixes::new(&served, &[])
            .0
            .iter()
            .map(|((address, length), ports)| format!("{address}/{length} {ports:?}"))
            .collect();
        assert_eq!(
            prefixes,
            ["0.0.0.0/0 [55]", "192.0.2.1/32 [53, 55, 5353]", "192.0.2.2/32 [54, 55]", "2001:db8::1/128 [53]"]
        );
    }

    /// CASES 5: with its tag gone a query would be answered untagged.
    #[test]
    fn case_05_addresses_of_stripped_vlans_are_not_steered_even_within_a_wildcard() {
        let served: Vec<SocketAddr> =
            ["192.0.2.1:53", "192.0.2.2:53", "0.0.0.0:53"].map(|text| text.parse().unwrap()).into();
        let vlans = ["192.0.2.2", "192.0.2.3"].map(|text| text.parse().unwrap());
        let prefixes: Vec<String> = Prefixes::new(&served, &vlans)
            .0
            .iter()
            .map(|((address, length), ports)| format!("{address}/{length} {ports:?}"))
            .collect();
        assert_eq!(prefixes, ["0.0.0.0/0 [53]", "192.0.2.1/32 [53]", "192.0.2.2/32 []", "192.0.2.3/32 []"]);
    }

    #[test]
    fn a_queue_that_does_not_exist_is_named() {
        let error = choose("eth0", 2, Some(&[0, 5])).unwrap_err().to_string();
        assert!(error.starts_with("eth0 has no receive queue 5: it has 2"), "{error}");
    }
}
