//! What there is to know of an interface and its system. All that is asked of the system is asked here.

use std::{io, path::Path};

use anyhow::{Context, Result};

use super::{
    files,
    firewall::{self, Firewall},
    routes::{self, Elsewhere},
};
use crate::{
    interface::Monitor,
    sys::{self, Channels, Flow, HashFields, Rings},
    xdp::{nic, steering::Attached, topology::QueueInterrupt},
};

/// What a driver or the kernel answers, if it does.
pub type Reading<T> = std::result::Result<T, Unread>;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unread {
    /// The driver has no such thing.
    NotOffered,
    /// In the system's words.
    Refused(String),
}

impl From<io::Error> for Unread {
    fn from(error: io::Error) -> Self {
        match error.raw_os_error() {
            Some(libc::EOPNOTSUPP | libc::ENOENT) => Self::NotOffered,
            _ => Self::Refused(error.to_string()),
        }
    }
}

/// All of it, at one moment.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The interface's name.
    pub interface: String,
    /// Its driver, or `""`.
    pub driver: String,
    /// The kernel's release.
    pub kernel: String,
    /// Why it has no queues of its own, with what to give instead.
    pub stacked: Option<String>,
    /// It was set up.
    pub up: bool,
    /// Its link is there.
    pub carrier: bool,
    /// In bytes.
    pub mtu: u32,
    /// The ids of its VLAN devices.
    pub vlans: Vec<u16>,
    /// The XDP program on it.
    pub xdp: Option<Attached>,
    /// Its channels.
    pub channels: Reading<Channels>,
    /// What of UDP packets decides their queue.
    pub hash: Vec<(Flow, Reading<HashFields>)>,
    /// VLAN tags are taken off received packets.
    pub strips_vlans: Reading<bool>,
    /// Packets are merged by the NIC.
    pub lro: Reading<bool>,
    /// Packets are merged by the kernel.
    pub gro: Reading<bool>,
    /// The NIC's rings.
    pub rings: Reading<Rings>,
    /// The interrupts of its queues.
    pub interrupts: Vec<QueueInterrupt>,
    /// The daemon that moves interrupts runs.
    pub irqbalance: bool,
    /// By transmit queue: the CPUs that send through it.
    pub xps: Reading<Vec<Vec<usize>>>,
    /// The CPUs that workers may run on.
    pub cpus: Vec<usize>,
    /// The NUMA node that the NIC is attached to, and its CPUs.
    pub node: Option<(u32, Vec<usize>)>,
    /// How often an interrupt that found no work leaves the queue to a timer.
    pub defer_hard_irqs: Reading<u64>,
    /// That timer, in nanoseconds.
    pub gro_flush_timeout_ns: Reading<u64>,
    /// Memory that this process may lock, in bytes; `None` without limit.
    pub memlock: Option<u64>,
    /// This process's effective capabilities, by bit.
    pub capabilities: u64,
    /// What source addresses the kernel lets in: 0 all, 1 those that it would reach by this interface, 2 those that it would reach at all.
    pub rp_filter: u8,
    /// What the kernel would reach by other interfaces.
    pub elsewhere: Reading<Vec<Elsewhere>>,
    /// Rules that the bypass skips.
    pub firewall: Firewall,
}

impl Facts {
    /// Reads them. /proc and /sys are looked for below `root`; netlink and ethtool have no such place.
    pub fn read(root: &Path, name: &str) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .context("cannot start the runtime that netlink is read on")?;
        let (interface, elsewhere) = runtime.block_on(async {
            let interface = Monitor::open()?.read(name).await?;
            let elsewhere = routes::elsewhere(&interface).await;
            anyhow::Ok((interface, elsewhere))
        })?;
        Ok(Self {
            interface: name.to_owned(),
            driver: interface.driver.clone(),
            kernel: sys::kernel_release(),
            up: interface.up,
            carrier: nic::has_carrier(name),
            mtu: interface.mtu,
            vlans: interface.vlans.clone(),
            xdp: Attached::read(interface.index),
            stacked: interface.stacked,
            channels: sys::channels(name).map_err(Unread::from),
            hash: [Flow::Udp4, Flow::Udp6]
                .map(|flow| (flow, sys::hash_fields(name, flow).map_err(Unread::from)))
                .into(),
            strips_vlans: sys::strips_vlans(name).map_err(Unread::from),
            lro: sys::merges_in_hardware(name).map_err(Unread::from),
            gro: sys::merges_in_kernel(name).map_err(Unread::from),
            rings: sys::rings(name).map_err(Unread::from),
            interrupts: files::interrupts(root, name),
            irqbalance: files::runs(root, "irqbalance"),
            xps: files::xps(root, name),
            cpus: files::allowed_cpus(root),
            node: files::node(root, name),
            defer_hard_irqs: files::number(root, &format!("sys/class/net/{name}/napi_defer_hard_irqs")),
            gro_flush_timeout_ns: files::number(root, &format!("sys/class/net/{name}/gro_flush_timeout")),
            memlock: files::memlock(root),
            capabilities: files::capabilities(root),
            rp_filter: files::rp_filter(root, name),
            elsewhere: elsewhere.map_err(|error| Unread::Refused(format!("{error:#}"))),
            firewall: firewall::read(root),
        })
    }
}
