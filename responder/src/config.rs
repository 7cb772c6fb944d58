//! The command line, checked: what the rest of the program reads.

use std::{
    collections::BTreeSet,
    net::{IpAddr, SocketAddr},
    path::PathBuf,
};

use anyhow::{Context, Result, anyhow, bail, ensure};

use crate::{
    cli::{Io, Serve, ServiceKind, Switch, XdpMode},
    xdp::{
        socket::{self, ZeroCopy},
        steering::VlanTag,
    },
    zone::Source,
};

/// Where DNS is asked (RFC 1035 section 4.2).
pub const DNS_PORT: u16 = 53;

/// Everything `serve` needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Interfaces, each named once.
    pub interfaces: Vec<String>,
    /// Addresses to serve; empty means all addresses of the interfaces, at port 53.
    pub listen: Vec<SocketAddr>,
    /// Zones and their files.
    pub zones: Vec<Source>,
    /// Receive queues with a worker; `None` means all.
    pub queues: Option<Vec<u32>>,
    /// CPUs of the workers; `None` means by interrupt.
    pub cpus: Option<Vec<usize>>,
    /// Which path packets take.
    pub io: Io,
    /// How the XDP program is attached.
    pub xdp_mode: XdpMode,
    /// Whether zero-copy is asked for.
    pub zero_copy: ZeroCopy,
    /// What answers.
    pub service: ServiceKind,
    /// VLAN tags whose frames are answered, beside the interface's own VLAN devices.
    pub vlans: Vec<VlanTag>,
    /// Busy polling, microseconds per system call.
    pub busy_poll_us: Option<u32>,
    /// Whether checksums of queries are verified.
    pub verify_checksums: Switch,
    /// Frames per ring.
    pub ring_frames: u32,
    /// The control socket.
    pub control: PathBuf,
    /// Whether the XDP program logs.
    pub log_steering: bool,
}

impl Config {
    /// Checks what can be checked without looking at the machine.
    pub fn new(flags: Serve) -> Result<Self> {
        let mut names = BTreeSet::new();
        for name in &flags.iface {
            ensure!(names.insert(name), "--iface {name} is given twice");
        }
        let listen = flags.listen.iter().map(|text| listen(text)).collect::<Result<Vec<_>>>()?;
        match flags.io {
            Io::Xdp => {
                ensure!(!flags.iface.is_empty(), "--io xdp needs an interface: add --iface IF, or use --io socket")
            }
            Io::Socket => ensure!(
                !flags.iface.is_empty() || !listen.is_empty(),
                "there is nothing to serve on: add --iface IF or --listen ADDR"
            ),
        }
        let zones = flags.zone.iter().map(|text| zone(text)).collect::<Result<Vec<_>>>()?;
        if flags.service == ServiceKind::Dns {
            ensure!(!zones.is_empty(), "there is no zone to serve: add --zone NAME=FILE");
        }
        Ok(Self {
            interfaces: flags.iface,
            listen,
            zones,
            queues: match flags.queues.as_str() {
                "all" => None,
                list => Some(numbers(list).with_context(|| format!("--queues {list}"))?),
            },
            cpus: match flags.cpus.as_str() {
                "auto" => None,
                list => Some(
                    numbers(list)
                        .with_context(|| format!("--cpus {list}"))?
                        .into_iter()
                        .map(|cpu| cpu as usize)
                        .collect(),
                ),
            },
            io: flags.io,
            xdp_mode: flags.xdp_mode,
            zero_copy: flags.zero_copy,
            service: flags.service,
            vlans: match flags.vlan {
                None => Vec::new(),
                Some(list) => vlans(&list).with_context(|| format!("--vlan {list}"))?,
            },
            busy_poll_us: flags.busy_poll,
            verify_checksums: flags.verify_checksums,
            ring_frames: socket::ring_frames(flags.ring_frames),
            control: flags.control,
            log_steering: flags.log_steering,
        })
    }
}

/// `ADDR`, `ADDR:PORT` or `[ADDR]:PORT`.
fn listen(text: &str) -> Result<SocketAddr> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    let address = bare
        .parse::<IpAddr>()
        .map(|address| SocketAddr::new(address, DNS_PORT))
        .or_else(|_| text.parse::<SocketAddr>())
        .ok()
        .with_context(|| format!("--listen {text}: expected an IP address, or an address and a port as in 192.0.2.53:53 or [2001:db8::53]:53"))?;
    ensure!(address.port() != 0, "--listen {text}: port 0 cannot be asked");
    ensure!(!address.ip().is_multicast(), "--listen {text}: a multicast address cannot be served");
    Ok(address)
}

/// `NAME=FILE`.
fn zone(text: &str) -> Result<Source> {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !file.is_empty() => {
            Ok(Source { name: name.into(), file: file.into() })
        }
        _ => bail!("--zone {text}: expected NAME=FILE, as in example.com=/etc/zones/example.com.zone"),
    }
}

/// A list of numbers and ranges, `0-3,5`, each number once, in the order given.
fn numbers(list: &str) -> Result<Vec<u32>> {
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
fn vlans(list: &str) -> Result<Vec<VlanTag>> {
    list.split(',').map(|item| item.trim().parse().map_err(|error| anyhow!("{error}"))).collect()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn config(line: &str) -> Result<Config> {
        let words = ["responder", "serve"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Serve(flags) => Config::new(flags),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_typed_is_what_is_meant() {
        let config = config(
            "--iface a --iface b --zone example.com=f --listen 192.0.2.1 --listen 192.0.2.2:5353 --listen [2001:db8::1]:54 \
             --listen 2001:db8::2 --queues 0-2,7 --cpus 3,1 --vlan 5,6.7 --ring-frames 511",
        )
        .unwrap();
        let listen: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
        assert_eq!(listen, ["192.0.2.1:53", "192.0.2.2:5353", "[2001:db8::1]:54", "[2001:db8::2]:53"]);
        assert_eq!(config.queues, Some(vec![0, 1, 2, 7]));
        assert_eq!(config.cpus, Some(vec![3, 1]));
        assert_eq!(config.vlans.iter().map(ToString::to_string).collect::<Vec<_>>(), ["5", "6.7"]);
        assert_eq!(config.ring_frames, 4096);
    }

    #[test]
    fn all_queues_by_default() {
        let config = config("--iface a --zone example.com=f").unwrap();
        assert_eq!((config.queues, config.cpus), (None, None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("--zone a=b", "--io xdp needs an interface"),
            ("--io socket --zone a=b", "nothing to serve on"),
            ("--iface a --iface a --zone a=b", "--iface a is given twice"),
            ("--iface a", "no zone to serve"),
            ("--iface a --zone a", "expected NAME=FILE"),
            ("--iface a --zone =b", "expected NAME=FILE"),
            ("--iface a --zone a=b --listen nowhere", "--listen nowhere: expected an IP address"),
            ("--iface a --zone a=b --listen 192.0.2.1:0", "port 0"),
            ("--iface a --zone a=b --listen 224.0.0.1", "multicast"),
            ("--iface a --zone a=b --queues 3-1", "the range is empty"),
            ("--iface a --zone a=b --queues 1,1", "1 is given twice"),
            ("--iface a --zone a=b --queues 0-4294967295", "too long"),
            ("--iface a --zone a=b --cpus x", "expected a number"),
            ("--iface a --zone a=b --vlan 4095", "is not a VLAN"),
            ("--iface a --zone a=b --vlan 0", "is not a VLAN"),
            ("--iface a --zone a=b --vlan 5.", "is not a VLAN"),
        ];
        for (line, expected) in cases {
            let error = format!("{:#}", config(line).unwrap_err());
            assert!(error.contains(expected), "{line}: {error}");
        }
    }
}
