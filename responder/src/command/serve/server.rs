//! Everything that runs in a server, as the control thread has it: bypasses, kernel sockets, and what they share; and what becomes of them when interfaces,
//! addresses or zones change, when another server takes over, and at the end.

use std::{
    collections::BTreeSet,
    future,
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use clap::ValueEnum;
use tokio::sync::oneshot;

use super::{FINISH_WITHIN, Start, meter::Meter, reloader::Settings};
use crate::{
    cli::{Io, ServiceKind},
    config::Config,
    control::status::{self, Status},
    guard::AddressList,
    interface::Interface,
    kernel::{KernelPath, Options},
    latest::Latest,
    log,
    privilege::{self, Privileges},
    service::{Rules, Service, State},
    xdp::{Bypass, nic, topology, worker::Handler},
    zone::{Published, Zones},
};

/// How often a bypass that has left its interface tries to join it again.
const JOIN_EVERY: Duration = Duration::from_millis(500);
/// A server that has asked to take over, and has not by then, has failed.
const TAKE_OVER_WITHIN: Duration = Duration::from_secs(10);
/// No interface has this index.
const GONE: u32 = 0;

/// Everything that runs. Fields are dropped in this order: unsteer first, then the sockets that the passed packets need.
pub(super) struct Server<'a> {
    bypasses: Vec<Bypass>,
    kernel: KernelPath,
    config: &'a Config,
    /// The addresses that the operator has listed.
    listen: Vec<SocketAddr>,
    /// What the service answers from, if it is DNS.
    zones: Option<Published>,
    /// Whether zones that were replaced are still held by a worker that has not looked since.
    holds_replaced: bool,
    rules: Latest<Rules>,
    own: AddressList,
    interfaces: Vec<Interface>,
    service: Service,
    privileges: Privileges,
    /// When it is to end, and who is told.
    draining: Option<(tokio::time::Instant, oneshot::Sender<()>)>,
    /// When bypasses that have left may try to join next.
    join_at: Instant,
    started: Instant,
    /// What a sink says.
    meter: Option<Meter>,
}

impl<'a> Server<'a> {
    /// Opens the kernel path's sockets and loads the XDP programs.
    pub(super) fn start(
        config: &'a Config,
        service: Service,
        zones: Option<Published>,
        interfaces: &[Interface],
        start: Start,
    ) -> Result<Self> {
        let own = AddressList::default();
        own.set(own_addresses(&config.listen, interfaces));
        let allowed = topology::allowed_cpus();
        let cpus = match &config.cpus {
            Some(cpus) => {
                topology::check(cpus, &allowed)?;
                cpus.clone()
            }
            None => allowed,
        };
        let rules = Latest::new(config.rules.clone());
        // Which interface a socket's replies leave by is the kernel's choice.
        let mtu = interfaces.iter().map(|interface| interface.mtu).min().unwrap_or(u32::MAX);
        config.tcp.allow()?;
        let options =
            Options { cpus, sockets: config.sockets, mtu, tcp: config.tcp, takes_over: start == Start::TakeOver };
        let mut kernel = KernelPath::new(service.clone(), rules.clone(), own.clone(), options);
        for address in served(&config.listen, interfaces) {
            kernel.add(address)?;
        }
        let (interfaces, started) = (interfaces.to_vec(), Instant::now());
        let mut server = Self {
            bypasses: Vec::new(),
            kernel,
            config,
            listen: config.listen.clone(),
            zones,
            holds_replaced: false,
            rules,
            own,
            interfaces,
            service,
            privileges: Privileges::default(),
            draining: None,
            join_at: started,
            started,
            meter: (config.service == ServiceKind::Sink).then(Meter::default),
        };
        if config.io == Io::Xdp {
            for interface in server.interfaces.clone() {
                let steered = server.steered(&interface);
                server.bypasses.push(Bypass::load(interface, config, &steered)?);
            }
        }
        Ok(server)
    }

    /// Puts the bypasses to work.
    pub(super) fn join(&mut self) -> Result<()> {
        (0..self.bypasses.len()).try_for_each(|index| self.join_one(index))
    }

    fn join_one(&mut self, index: usize) -> Result<()> {
        let interface = &self.bypasses[index].interface;
        let (steered, handler) = (self.steered(interface), self.handler(interface));
        self.bypasses[index].join(self.config, &steered, handler)
    }

    /// Has the kernel path answer alone, since another server is about to take over. Should it not, the bypasses join again.
    pub(super) fn make_way(&mut self) {
        for bypass in &mut self.bypasses {
            bypass.leave("another server takes over");
        }
        self.join_at = Instant::now() + TAKE_OVER_WITHIN;
    }

    /// Gives up an interface's queues for a moment, or takes them again. Should nobody have them taken again, they are so after a while.
    pub(super) fn leave_or_join(&mut self, interface: &str, join: bool) -> Result<()> {
        let index = self.bypasses.iter().position(|bypass| bypass.interface.name == interface);
        let index = index.with_context(|| format!("{interface} has no bypass here"))?;
        if join {
            self.join_one(index)?;
            tracing::info!("serving again: {}", self.bypasses[index].summary());
        } else {
            tracing::info!("{interface}: leaving the bypass, for its queues are to be changed");
            self.bypasses[index].leave("its queues are to be changed");
            self.join_at = Instant::now() + TAKE_OVER_WITHIN;
        }
        Ok(())
    }

    /// Has it end after `wait`.
    pub(super) fn drain(&mut self, wait: Duration, reply: oneshot::Sender<()>) {
        self.draining = Some((tokio::time::Instant::now() + wait, reply));
    }

    /// Returns when it is time to end, if the server is draining.
    pub(super) async fn drained(&mut self) -> oneshot::Sender<()> {
        match &self.draining {
            Some((end_at, _)) => tokio::time::sleep_until(*end_at).await,
            None => future::pending().await,
        }
        self.draining.take().map_or_else(|| oneshot::channel().0, |(_, reply)| reply)
    }

    /// Leaves the bypass and closes the sockets, when all that was received is answered, and gives TCP connections some time to end.
    pub(super) async fn end(&mut self, done: oneshot::Sender<()>) -> Result<()> {
        self.bypasses.clear();
        let addresses: Vec<SocketAddr> = self.kernel.addresses().collect();
        addresses.into_iter().for_each(|address| self.kernel.remove(address));
        // Whoever has asked for it may have gone.
        let _ = done.send(());
        let end_at = Instant::now() + FINISH_WITHIN;
        loop {
            tokio::time::sleep(Duration::from_millis(20)).await;
            if !self.kernel.has_connections() || Instant::now() >= end_at {
                return Ok(());
            }
        }
    }

    /// Makes the handlers of an interface's workers.
    fn handler(&self, interface: &Interface) -> impl Fn(bool, usize) -> Handler + use<> {
        let (service, rules, own, mtu) = (self.service.clone(), self.rules.clone(), self.own.clone(), interface.mtu);
        move |verify, workers| Handler::new(service.clone(), State::new(&rules, workers, mtu), own.view(), verify, mtu)
    }

    /// The addresses whose queries are steered where they come in by this interface.
    fn steered(&self, interface: &Interface) -> Vec<SocketAddr> {
        served(&self.listen, std::slice::from_ref(interface)).collect()
    }

    /// Gives up what start-up needed and serving does not.
    pub(super) fn settle(&mut self) -> Result<()> {
        let polls = self.config.busy_poll_us.is_some() || self.bypasses.iter().any(Bypass::has_zero_copy);
        self.privileges = privilege::settle(self.config, polls)?;
        Ok(())
    }

    /// Puts what was reloaded in service, and returns what could not be.
    pub(super) fn take(&mut self, zones: Option<Zones>, settings: Option<Settings>) -> Vec<String> {
        let mut errors = Vec::new();
        if let (Some(published), Some(zones)) = (&mut self.zones, zones) {
            published.set(zones);
            self.holds_replaced = true;
        }
        if let Some(Settings { rules, listen, log_level, .. }) = settings {
            self.rules.set(rules);
            log::set_level(log_level);
            if listen != self.listen {
                self.listen = listen;
                errors = self.follow_addresses();
            }
        }
        self.kernel.refresh();
        errors
    }

    /// Looks after the queues and bypasses, and frees replaced zones that nobody holds any more.
    pub(super) fn tick(&mut self) {
        for bypass in &mut self.bypasses {
            bypass.tick();
            if bypass.has_other_queues() {
                tracing::info!("{}: its channels have changed, so its queues are bound again", bypass.interface.name);
                bypass.leave("its channels have changed");
            }
        }
        if Instant::now() >= self.join_at {
            self.rejoin();
        }
        log::flush();
        if let Some(mut meter) = self.meter.take() {
            meter.tick(self.started.elapsed(), || self.status(0));
            self.meter = Some(meter);
        }
        if self.holds_replaced {
            self.holds_replaced = self.zones.as_mut().is_some_and(|zones| zones.sweep() > 0);
        }
    }

    /// Has bypasses that have left join their interfaces again where that can be.
    fn rejoin(&mut self) {
        for index in 0..self.bypasses.len() {
            let bypass = &self.bypasses[index];
            let (interface, waits_for) = (bypass.interface.clone(), bypass.waits_for().map(str::to_owned));
            let can_join = interface.check_bypass().is_ok() && nic::has_carrier(&interface.name);
            if waits_for.is_none() || !can_join {
                continue;
            }
            self.join_at = Instant::now() + JOIN_EVERY;
            let joined = self.join_one(index);
            let bypass = &self.bypasses[index];
            match joined {
                Ok(()) => tracing::info!("serving again: {}", bypass.summary()),
                Err(_) if waits_for.as_deref() == bypass.waits_for() => {}
                Err(error) => {
                    tracing::warn!("{}: the kernel path answers, and the bypass waits: {error:#}", interface.name)
                }
            }
        }
    }

    /// An interface cannot be read any more, for it has gone; it may come back.
    pub(super) fn lost(&mut self, name: &str, error: &anyhow::Error) {
        let Some(known) = self.interfaces.iter().find(|known| known.name == name && known.index != GONE) else {
            return;
        };
        tracing::warn!("{error:#}; it is served again when it is back");
        self.follow(Interface { index: GONE, up: false, addresses: Vec::new(), ..known.clone() });
    }

    /// Serves what an interface has gained and no longer what it has lost.
    pub(super) fn follow(&mut self, now: Interface) {
        let Some(known) = self.interfaces.iter_mut().find(|known| known.name == now.name) else { return };
        if *known == now {
            return;
        }
        *known = now;
        for error in self.follow_addresses() {
            tracing::warn!("{error}");
        }
    }

    /// Serves the addresses that are to be served now, and no others. Returns what could not be done.
    fn follow_addresses(&mut self) -> Vec<String> {
        let mut errors = Vec::new();
        self.own.set(own_addresses(&self.listen, &self.interfaces));
        let wanted: BTreeSet<SocketAddr> = served(&self.listen, &self.interfaces).collect();
        let gone: Vec<SocketAddr> = self.kernel.addresses().filter(|address| !wanted.contains(address)).collect();
        for address in gone {
            tracing::info!("{address} has gone and is no longer served");
            self.kernel.remove(address);
        }
        for address in &wanted {
            errors.extend(self.kernel.add(*address).err().map(|error| format!("{error:#}")));
        }
        for bypass in &mut self.bypasses {
            let Some(interface) = self.interfaces.iter().find(|interface| interface.name == bypass.interface.name)
            else {
                continue;
            };
            // Its sockets and its program went with it.
            if interface.index != bypass.interface.index {
                bypass.leave(if interface.index == GONE {
                    "the interface has gone"
                } else {
                    "the interface is another one"
                });
            }
            let steered: Vec<SocketAddr> = served(&self.listen, std::slice::from_ref(interface)).collect();
            errors.extend(bypass.follow(interface.clone(), &steered).err().map(|error| format!("{error:#}")));
        }
        errors
    }

    /// One line about what runs: modes and queues of each interface, addresses.
    pub(super) fn summary(&self) -> String {
        let mut parts: Vec<String> = self.bypasses.iter().map(Bypass::summary).collect();
        let addresses: Vec<String> = self.kernel.addresses().map(|address| address.to_string()).collect();
        parts.push(format!("kernel sockets on {}", addresses.join(" ")));
        parts.join("; ")
    }

    /// Since it began to start.
    pub(super) fn uptime(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn zone_count(&self) -> usize {
        self.zones.as_ref().map_or(0, |zones| zones.zones().count())
    }

    pub(super) fn status(&self, control_refused: u64) -> Status {
        let zones = self.zones.as_ref().map(|zones| zones.zones().summary()).unwrap_or_default();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.uptime().as_secs_f64(),
            io: value_name(self.config.io),
            service: value_name(self.config.service),
            user: self.privileges.user.clone(),
            capabilities: self.privileges.capabilities.clone(),
            sandbox: self.privileges.sandbox,
            draining: self.draining.is_some(),
            control_refused,
            zones: zones
                .into_iter()
                .map(|zone| status::Zone {
                    name: zone.name,
                    serial: zone.serial,
                    names: zone.names,
                    records: zone.records,
                })
                .collect(),
            interfaces: self.bypasses.iter().map(Bypass::status).collect(),
            kernel_path: self.kernel.status(),
        }
    }
}

/// What is served: what the operator listed, else every address of the interfaces. A link-local address is served on its own link.
fn served<'a>(listen: &'a [SocketAddr], interfaces: &'a [Interface]) -> impl Iterator<Item = SocketAddr> + 'a {
    let all = if listen.is_empty() { interfaces } else { &[] };
    listen.iter().copied().chain(all.iter().flat_map(Interface::sockets))
}

/// Every address that is ours, served or not.
fn own_addresses<'a>(listen: &'a [SocketAddr], interfaces: &'a [Interface]) -> impl Iterator<Item = IpAddr> + 'a {
    listen.iter().map(SocketAddr::ip).chain(interfaces.iter().flat_map(Interface::ips))
}

/// The flag's value as it is typed.
fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
