//! Settings as one source gives them, the command line or the file: each value checked by itself, and absent where the source says nothing.

use std::{
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::{
    cli::{Io, LogLevel, Sandbox, Serve, ServiceKind, Sockets, Switch, XdpMode},
    kernel::tcp,
    service::Rules,
    xdp::{socket::ZeroCopy, steering::VlanTag},
    zone::Source,
};

/// Where DNS is asked (RFC 1035 section 4.2).
pub const DNS_PORT: u16 = 53;

/// What one source says.
#[derive(Clone, Debug, Default)]
pub(super) struct Settings {
    pub(super) interfaces: Option<Vec<String>>,
    pub(super) listen: Option<Vec<SocketAddr>>,
    pub(super) zones: Option<Vec<Source>>,
    pub(super) zone_directory: Option<PathBuf>,
    pub(super) queues: Option<Choice<u32>>,
    pub(super) cpus: Option<Choice<usize>>,
    pub(super) io: Option<Io>,
    pub(super) sockets: Option<Sockets>,
    pub(super) xdp_mode: Option<XdpMode>,
    pub(super) zero_copy: Option<ZeroCopy>,
    pub(super) service: Option<ServiceKind>,
    pub(super) vlans: Option<Vec<VlanTag>>,
    pub(super) busy_poll_us: Option<u32>,
    pub(super) verify_checksums: Option<Switch>,
    pub(super) ring_frames: Option<u32>,
    pub(super) control: Option<PathBuf>,
    pub(super) metrics: Option<SocketAddr>,
    pub(super) user: Option<String>,
    pub(super) sandbox: Option<Sandbox>,
    pub(super) watch: Option<bool>,
    pub(super) log_level: Option<LogLevel>,
    pub(super) log_steering: Option<bool>,
    /// For these there are no flags.
    pub(super) tcp: Option<tcp::Limits>,
    pub(super) rules: Option<Rules>,
}

/// Numbers that were listed, or those that the machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Choice<T> {
    Auto,
    List(Vec<T>),
}

impl<T> Choice<T> {
    pub(super) fn list(self) -> Option<Vec<T>> {
        match self {
            Self::Auto => None,
            Self::List(list) => Some(list),
        }
    }
}

impl Settings {
    /// What the command line says. Errors begin with the flag.
    pub(super) fn from_flags(flags: &Serve) -> Result<Self> {
        fn all<T>(flag: &str, given: &[String], read: impl Fn(&str) -> Result<T>) -> Result<Option<Vec<T>>> {
            let values = given.iter().map(|text| read(text).with_context(|| format!("{flag} {text}")));
            let values = values.collect::<Result<Vec<_>>>()?;
            Ok((!values.is_empty()).then_some(values))
        }
        fn one<T>(flag: &str, given: &Option<String>, read: impl Fn(&str) -> Result<T>) -> Result<Option<T>> {
            given.as_deref().map(|text| read(text).with_context(|| format!("{flag} {text}"))).transpose()
        }
        Ok(Self {
            interfaces: all("--iface", &flags.iface, |name| Ok(name.to_owned()))?,
            listen: all("--listen", &flags.listen, listen)?,
            zones: all("--zone", &flags.zone, zone)?,
            zone_directory: flags.zone_directory.clone(),
            queues: one("--queues", &flags.queues, queues)?,
            cpus: one("--cpus", &flags.cpus, cpus)?,
            io: flags.io,
            sockets: flags.sockets,
            xdp_mode: flags.xdp_mode,
            zero_copy: flags.zero_copy,
            service: flags.service,
            vlans: one("--vlan", &flags.vlan, vlans)?,
            busy_poll_us: flags.busy_poll,
            verify_checksums: flags.verify_checksums,
            ring_frames: flags.ring_frames,
            control: flags.control.clone(),
            metrics: one("--metrics", &flags.metrics, metrics)?,
            user: flags.user.clone(),
            sandbox: flags.sandbox,
            watch: flags.watch.then_some(true),
            log_level: flags.log_level,
            log_steering: flags.log_steering.then_some(true),
            tcp: None,
            rules: None,
        })
    }

    /// These settings, and where they say nothing, those.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            interfaces: self.interfaces.or(other.interfaces),
            listen: self.listen.or(other.listen),
            zones: self.zones.or(other.zones),
            zone_directory: self.zone_directory.or(other.zone_directory),
            queues: self.queues.or(other.queues),
            cpus: self.cpus.or(other.cpus),
            io: self.io.or(other.io),
            sockets: self.sockets.or(other.sockets),
            xdp_mode: self.xdp_mode.or(other.xdp_mode),
            zero_copy: self.zero_copy.or(other.zero_copy),
            service: self.service.or(other.service),
            vlans: self.vlans.or(other.vlans),
            busy_poll_us: self.busy_poll_us.or(other.busy_poll_us),
            verify_checksums: self.verify_checksums.or(other.verify_checksums),
            ring_frames: self.ring_frames.or(other.ring_frames),
            control: self.control.or(other.control),
            metrics: self.metrics.or(other.metrics),
            user: self.user.or(other.user),
            sandbox: self.sandbox.or(other.sandbox),
            watch: self.watch.or(other.watch),
            log_level: self.log_level.or(other.log_level),
            log_steering: self.log_steering.or(other.log_steering),
            tcp: self.tcp.or(other.tcp),
            rules: self.rules.or(other.rules),
        }
    }
}

/// `ADDR`, `ADDR:PORT` or `[ADDR]:PORT`.
pub(super) fn listen(text: &str) -> Result<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare
        .parse::<IpAddr>()
        .map(|address| SocketAddr::new(address, DNS_PORT))
        .or_else(|_| text.parse::<SocketAddr>())
        .ok()
        .context("expected an IP address, or an address and a port as in 192.0.2.53:53 or [2001:db8::53]:53")?;
    ensure!(address.port() != 0, "port 0 cannot be asked");
    ensure!(!address.ip().is_multicast(), "a multicast address cannot be served");
    Ok(address)
}

/// `ADDR:PORT` or `[ADDR]:PORT`.
pub(super) fn metrics(text: &str) -> Result<SocketAddr> {
    let address: SocketAddr =
        text.parse().ok().context("expected an address and a port, as in 127.0.0.1:9153 or [::1]:9153")?;
    ensure!(address.port() != 0, "port 0 cannot be asked");
    Ok(address)
}

/// `NAME=FILE`.
fn zone(text: &str) -> Result<Source> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok(Source { name: name.into(), file: file.into() })
        }
        _ => bail!("expected NAME=FILE, as in example.com=/etc/zones/example.com.zone"),
    }
}

/// `all` or a list.
pub(super) fn queues(text: &str) -> Result<Choice<u32>> {
    if text == "all" { Ok(Choice::Auto) } else { numbers(text).map(Choice::List) }
}

/// `auto` or a list.
pub(super) fn cpus(text: &str) -> Result<Choice<usize>> {
    if text == "auto" {
        return Ok(Choice::Auto);
    }
    Ok(Choice::List(numbers(text)?.into_iter().map(|cpu| cpu as usize).collect()))
}

/// A list of numbers and ranges, `0-3,5`, each number once, in the order given.
pub(crate) fn numbers(list: &str) -> Result<Vec<u32>> {
    let mut result = Vec::new();
    for item in list.split(',') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        let number = |text: &str| {
            text.trim()
                .parse::<u32>()
                .ok()
                .with_context(|| format!("{item:?}: expected a number or a range such as 0-3"))
        };
        let (first, last) = (number(first)?, number(last)?);
        ensure!(first <= last, "{item:?}: the range is empty");
        ensure!(last - first < 65_536, "{item:?}: the range is too long");
        for value in first..=last {
            ensure!(!result.contains(&value), "{value} is given twice");
            result.push(value);
        }
    }
    Ok(result)
}

/// A list of `ID` or `OUTER.INNER`.
pub(super) fn vlans(list: &str) -> Result<Vec<VlanTag>> {
    list.split(',').map(|item| item.trim().parse().map_err(|error| anyhow!("{error}"))).collect()
}
