//! The command line and the configuration file, checked: what the rest of the program reads.
//!
//! Each source becomes `Settings`, where every value is right by itself; together they become one [`Config`].

mod file;
mod rules;
mod section;
mod settings;

use std::{
    collections::BTreeSet,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};

pub use settings::DNS_PORT;
pub(crate) use settings::numbers;
use settings::{Choice, Settings};

use crate::{
    cli::{DEFAULT_CONTROL, Io, LogLevel, Sandbox, Serve, ServiceKind, Sockets, Switch, XdpMode},
    guard::cookie::Secrets,
    kernel::tcp,
    service::Rules,
    xdp::{
        socket::{self, ZeroCopy},
        steering::VlanTag,
    },
    zone::Source,
};

/// Everything `serve` needs to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// Interfaces, each named once.
    pub interfaces: Vec<String>,
    /// Addresses to serve; empty means all addresses of the interfaces, at port 53.
    pub listen: Vec<SocketAddr>,
    /// Zones and their files, those of the zone directory included.
    pub zones: Vec<Source>,
    /// Receive queues with a worker; `None` means all.
    pub queues: Option<Vec<u32>>,
    /// CPUs of the workers; `None` means by interrupt.
    pub cpus: Option<Vec<usize>>,
    /// Which path packets take.
    pub io: Io,
    /// How the threads of the kernel path share an address.
    pub sockets: Sockets,
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
    /// Where metrics are served, if anywhere.
    pub metrics: Option<SocketAddr>,
    /// The user to run as, if another than the one that started it.
    pub user: Option<String>,
    /// Whether system calls are restricted.
    pub sandbox: Sandbox,
    /// Whether files are reloaded when they change.
    pub watch: bool,
    zone_directory: Option<PathBuf>,
    /// What is logged.
    pub log_level: LogLevel,
    /// Whether the XDP program logs.
    pub log_steering: bool,
    /// What bounds TCP.
    pub tcp: tcp::Limits,
    /// Who is answered and how.
    pub rules: Rules,
    /// What was typed, so that the file can be read again.
    flags: Serve,
    /// Makes cookies where the file has no secret.
    secrets: Secrets,
}

impl Config {
    /// Reads the configuration file, if there is one, and checks what can be checked without looking at interfaces.
    pub fn new(flags: &Serve) -> Result<Self> {
        Self::with_secrets(flags, Secrets::random())
    }

    /// The same command line with the file as it is now.
    pub fn read_again(&self) -> Result<Self> {
        Self::with_secrets(&self.flags, self.secrets.clone())
    }

    /// The configuration file.
    #[must_use]
    pub fn file(&self) -> Option<&Path> {
        self.flags.config.as_deref()
    }

    /// The directory whose files are zones.
    #[must_use]
    pub fn zone_directory(&self) -> Option<&Path> {
        self.zone_directory.as_deref()
    }

    /// The settings of `now` that differ from these and that a running server cannot take.
    #[must_use]
    pub fn needs_restart(&self, now: &Self) -> Vec<String> {
        let changed = [
            ("interfaces", self.interfaces != now.interfaces),
            ("queues", self.queues != now.queues),
            ("cpus", self.cpus != now.cpus),
            ("io", self.io != now.io),
            ("sockets", self.sockets != now.sockets),
            ("xdp_mode", self.xdp_mode != now.xdp_mode),
            ("zero_copy", self.zero_copy != now.zero_copy),
            ("service", self.service != now.service),
            ("vlan", self.vlans != now.vlans),
            ("busy_poll", self.busy_poll_us != now.busy_poll_us),
            ("verify_checksums", self.verify_checksums != now.verify_checksums),
            ("ring_frames", self.ring_frames != now.ring_frames),
            ("control", self.control != now.control),
            ("metrics", self.metrics != now.metrics),
            ("user", self.user != now.user),
            ("sandbox", self.sandbox != now.sandbox),
            ("tcp", self.tcp != now.tcp),
            ("watch", self.watch != now.watch),
            ("log_steering", self.log_steering != now.log_steering),
        ];
        changed.iter().filter(|(_, is_changed)| *is_changed).map(|(key, _)| (*key).to_owned()).collect()
    }

    fn with_secrets(flags: &Serve, secrets: Secrets) -> Result<Self> {
        let file = flags.config.as_deref().map(|file| file::read(file, &secrets)).transpose()?.unwrap_or_default();
        let settings = Settings::from_flags(flags)?.or(file);
        let interfaces = settings.interfaces.unwrap_or_default();
        let listen = settings.listen.unwrap_or_default();
        let io = settings.io.unwrap_or(Io::Xdp);
        let mut names = BTreeSet::new();
        for name in &interfaces {
            ensure!(names.insert(name), "interface {name} is given twice");
        }
        match io {
            Io::Xdp => ensure!(
                !interfaces.is_empty(),
                "--io xdp needs an interface: add --iface IF (or `interfaces` in the file), or use --io socket"
            ),
            Io::Socket => ensure!(
                !interfaces.is_empty() || !listen.is_empty(),
                "there is nothing to serve on: add --iface IF or --listen ADDR (`interfaces` or `listen` in the file)"
            ),
        }
        let service = settings.service.unwrap_or(ServiceKind::Dns);
        let mut zones = settings.zones.unwrap_or_default();
        if let Some(directory) = &settings.zone_directory {
            zones.extend(zones_in(directory)?);
        }
        if service == ServiceKind::Dns {
            ensure!(
                !zones.is_empty(),
                "there is no zone to serve: add --zone NAME=FILE ([zones] or `zone_directory` in the file)"
            );
        }
        Ok(Self {
            interfaces,
            listen,
            zones,
            queues: settings.queues.and_then(Choice::list),
            cpus: settings.cpus.and_then(Choice::list),
            io,
            sockets: settings.sockets.unwrap_or(Sockets::PerCpu),
            xdp_mode: settings.xdp_mode.unwrap_or(XdpMode::Auto),
            zero_copy: settings.zero_copy.unwrap_or(ZeroCopy::Auto),
            service,
            vlans: settings.vlans.unwrap_or_default(),
            busy_poll_us: settings.busy_poll_us,
            verify_checksums: settings.verify_checksums.unwrap_or(Switch::Auto),
            ring_frames: socket::ring_frames(settings.ring_frames.unwrap_or(0)),
            control: settings.control.unwrap_or_else(|| DEFAULT_CONTROL.into()),
            metrics: settings.metrics,
            user: settings.user,
            sandbox: settings.sandbox.unwrap_or(Sandbox::On),
            watch: settings.watch.unwrap_or(false),
            log_level: settings.log_level.unwrap_or(LogLevel::Info),
            log_steering: settings.log_steering.unwrap_or(false),
            tcp: settings.tcp.unwrap_or_default(),
            rules: settings.rules.unwrap_or_default(),
            zone_directory: settings.zone_directory,
            flags: flags.clone(),
            secrets,
        })
    }
}

/// Every file `NAME.zone` in a directory, by name.
fn zones_in(directory: &Path) -> Result<Vec<Source>> {
    let read = || -> std::io::Result<Vec<Source>> {
        let mut zones = Vec::new();
        for entry in fs::read_dir(directory)? {
            let file = entry?.path();
            let name = file.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_suffix(".zone"));
            // An editor's backup or a file half written is no zone.
            if let Some(name) = name.filter(|name| !name.starts_with('.') && !name.is_empty()) {
                zones.push(Source { name: name.to_owned(), file });
            }
        }
        zones.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(zones)
    };
    read().with_context(|| format!("cannot read the zone directory {}", directory.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn config(line: &str) -> Result<Config> {
        let words = ["responder", "serve"].into_iter().chain(line.split_whitespace());
        match Cli::try_parse_from(words)?.command {
            Command::Serve(flags) => Config::new(&flags),
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
    fn flags_win_over_keys_and_a_directory_has_zones() {
        let folder = std::env::temp_dir().join(format!("responder-config-{}", std::process::id()));
        fs::create_dir_all(folder.join("zones")).unwrap();
        for name in ["b.zone", "a.example.zone", "c.zone~", ".zone", ".d.zone", "e"] {
            fs::write(folder.join("zones").join(name), "").unwrap();
        }
        let file = folder.join("r.toml");
        let text = "interfaces = [\"a\"]\nio = \"xdp\"\nqueues = \"1\"\nzone_directory = \"zones\"\n[zones]\nx = \"f\"";
        fs::write(&file, text).unwrap();
        let line = format!("--config {} --io socket --iface b --queues all", file.display());
        let found = config(&line).unwrap();
        assert_eq!(
            (found.interfaces.as_slice(), found.io, found.queues.clone()),
            (&["b".to_owned()][..], Io::Socket, None)
        );
        let zones: Vec<&str> = found.zones.iter().map(|zone| zone.name.as_str()).collect();
        assert_eq!(zones, ["x", "a.example", "b"]);
        assert_eq!(found.zones[1].file, folder.join("zones/a.example.zone"));

        // A later look finds what has changed since, with the same flags.
        fs::write(&file, text.replace("\"a\"", "\"c\"").replace("\"1\"", "\"2\"").replace("xdp", "socket")).unwrap();
        let again = found.read_again().unwrap();
        assert!(found.needs_restart(&again).is_empty(), "{:?}", found.needs_restart(&again));
        let unflagged = config(&format!("--config {}", file.display())).unwrap();
        assert_eq!(found.needs_restart(&unflagged), ["interfaces", "queues"]);
        fs::remove_dir_all(&folder).unwrap();
        assert!(format!("{:#}", config(&line).unwrap_err()).starts_with("cannot read the configuration file"));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let cases = [
            ("--zone a=b", "--io xdp needs an interface"),
            ("--io socket --zone a=b", "nothing to serve on"),
            ("--iface a --iface a --zone a=b", "interface a is given twice"),
            ("--iface a", "no zone to serve"),
            ("--iface a --zone a", "expected NAME=FILE"),
            ("--iface a --zone =b", "expected NAME=FILE"),
            ("--iface a --zone a=b --listen nowhere", "--listen nowhere: expected an IP address"),
            ("--iface a --zone a=b --listen 192.0.2.1:0", "port 0"),
            ("--iface a --zone a=b --listen 224.0.0.1", "multicast"),
            ("--iface a --zone a=b --metrics 127.0.0.1", "--metrics 127.0.0.1: expected an address and a port"),
            ("--iface a --zone a=b --metrics 127.0.0.1:0", "port 0"),
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
