//! The lab: two network namespaces and a veth pair with as many queues as asked for, on which real packets are exchanged.
//!
//! It is no emulated NIC: veth has no zero-copy mode, and a frame's RX queue is the TX queue that its sender chose.
//!
//! A lab goes when it is dropped. Signals that would end the process are turned into a flag ([`stop_on_signals`]) so that it is.
//! After a SIGKILL it stays, and [`Lab::remove_stale`] finds it: the namespaces' names say which process made them.
//! A lab that was made by hand ([`Lab::by_hand`]) has a name instead, and stays until [`Lab::by_hand_down`].

use std::{
    collections::BTreeMap,
    fmt, fs,
    fs::File,
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    panic,
    path::{Path, PathBuf},
    process::{self, Command},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use nix::{
    sched::{CloneFlags, setns},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use crate::{
    matrix,
    setup::{is_root, output},
};

/// Where `ip netns` keeps the names of namespaces.
const NAMESPACES: &str = "/run/netns";

/// Where labs have their directories. Not in /tmp, where others could make them first.
const DIRECTORIES: &str = "/run/rlab";

/// What the names of all namespaces of labs start with.
const PREFIX: &str = "rlab-";

/// How long a process in a lab has to end when asked to.
const END_MAX: Duration = Duration::from_secs(2);

/// The kernel's limit for the queues of a veth.
const QUEUES_MAX: u32 = 4096;

/// Labs of this process so far.
static LABS: AtomicU32 = AtomicU32::new(0);

/// How to build a lab.
#[derive(Clone, Debug)]
pub struct Options {
    /// RX and TX queues of both ends.
    pub queues: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self { queues: 2 }
    }
}

/// One end of the veth pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Where the responder serves.
    Server,
    /// Where the queries come from.
    Client,
}

/// What there is on one side.
#[derive(Clone, Debug)]
pub struct End {
    /// Name of the network namespace.
    pub namespace: String,
    /// Name of the interface.
    pub interface: &'static str,
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Its IPv4 address, of a /24.
    pub v4: Ipv4Addr,
    /// Its IPv6 address, of a /64.
    pub v6: Ipv6Addr,
}

/// Two namespaces and a veth pair, which go when this is dropped.
#[derive(Debug)]
pub struct Lab {
    /// The server's end.
    pub server: End,
    /// The client's end.
    pub client: End,
    /// RX and TX queues of both ends.
    pub queues: u32,
    /// A directory for control sockets and the like, which goes with it.
    pub directory: PathBuf,
    /// Made by hand: stays when this is dropped.
    stays: bool,
}

impl Lab {
    /// Builds a lab that goes when it is dropped. Needs root.
    pub fn up(options: &Options) -> anyhow::Result<Self> {
        let lab = Self::of_this_process(options.queues)?;
        // Dropped on failure: what is there of it goes.
        lab.build().context("building the lab")?;
        Ok(lab)
    }

    /// The client's side alone, with an empty namespace: the server is elsewhere. It goes when it is dropped. Needs root.
    pub fn client_side(queues: u32) -> anyhow::Result<Self> {
        let lab = Self::of_this_process(queues)?;
        ensure!(is_root(), "network namespaces need root: run it with sudo");
        fs::create_dir_all(&lab.directory).with_context(|| format!("making {}", lab.directory.display()))?;
        ip(&format!("netns add {}", lab.client.namespace))?;
        ip(&format!("-n {} link set lo up", lab.client.namespace))?;
        Ok(lab)
    }

    /// Builds a lab that stays until [`Lab::by_hand_down`]. Needs root.
    pub fn by_hand(name: &str, options: &Options) -> anyhow::Result<Self> {
        check_name(name)?;
        let mut lab = Self::named(name, options.queues);
        ensure!(
            !lab.exists(),
            "there is a lab `{name}` already: `cargo xtask lab down --name {name}` removes it, another `--name` makes one more"
        );
        lab.stays = false;
        lab.build().with_context(|| format!("building the lab `{name}`"))?;
        lab.stays = true;
        Ok(lab)
    }

    /// The lab that was made by hand with this name.
    pub fn by_hand_found(name: &str) -> anyhow::Result<Self> {
        check_name(name)?;
        let mut lab = Self::named(name, 0);
        ensure!(lab.exists(), "there is no lab `{name}`: `cargo xtask lab up --name {name}` makes it");
        let path = format!("/sys/class/net/{}/queues", lab.server.interface);
        let queues = output(lab.command(Side::Server, "ls").arg(path))?;
        lab.queues = u32::try_from(queues.lines().filter(|queue| queue.starts_with("rx-")).count())?;
        Ok(lab)
    }

    /// Removes the lab that was made by hand with this name, and ends what runs in it.
    pub fn by_hand_down(name: &str) -> anyhow::Result<()> {
        Self::by_hand_found(name)?.remove()
    }

    /// Removes the labs whose processes are gone, and ends what still runs in them: their names.
    pub fn remove_stale() -> anyhow::Result<Vec<String>> {
        let names = match fs::read_dir(NAMESPACES) {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(vec![]),
            Err(error) => return Err(error).context(format!("reading {NAMESPACES}")),
        };
        let mut stale: Vec<String> = names
            .filter_map(Result::ok)
            .filter_map(|entry| {
                let namespace = entry.file_name().into_string().ok()?;
                let lab = namespace.strip_prefix(PREFIX)?;
                let lab = lab.strip_suffix("-srv").or_else(|| lab.strip_suffix("-cli"))?;
                let owner = Owner::parse(lab)?;
                (!owner.lives()).then(|| lab.to_owned())
            })
            .collect();
        stale.sort();
        stale.dedup();
        for name in &stale {
            Self::named(name, 0).remove().with_context(|| format!("removing the stale lab `{name}`"))?;
        }
        Ok(stale)
    }

    /// One side of it.
    #[must_use]
    pub fn end(&self, side: Side) -> &End {
        match side {
            Side::Server => &self.server,
            Side::Client => &self.client,
        }
    }

    /// A command that runs in the namespace of a side.
    pub fn command(&self, side: Side, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.end(side).namespace]).arg(program);
        command
    }

    /// Runs a closure on a thread in the namespace of a side: what it returns. Sockets that it makes stay in that namespace, and
    /// threads that it starts are in it. A panic goes on here.
    pub fn inside<T: Send>(&self, side: Side, closure: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        let path = Path::new(NAMESPACES).join(&self.end(side).namespace);
        let namespace = File::open(&path).with_context(|| format!("opening {}", path.display()))?;
        let enter = move || -> anyhow::Result<T> {
            setns(namespace, CloneFlags::CLONE_NEWNET)
                .with_context(|| format!("entering the namespace {}", path.display()))?;
            Ok(closure())
        };
        thread::scope(|scope| scope.spawn(enter).join()).unwrap_or_else(|panic| panic::resume_unwind(panic))
    }

    /// Packets received on each of the server's queues, as its driver counts them.
    pub fn received(&self) -> anyhow::Result<BTreeMap<u32, u64>> {
        let statistics = output(self.command(Side::Server, "ethtool").args(["-S", self.server.interface]))?;
        Ok(matrix::received_by_queue(&statistics))
    }

    /// Keeps the kernel of a side from sending on its own through its interface.
    pub(crate) fn quiet(&self, side: Side) -> anyhow::Result<()> {
        self.inside(side, || quiet(self.end(side).interface))?
    }

    fn build(&self) -> anyhow::Result<()> {
        ensure!(is_root(), "network namespaces need root: run it with sudo");
        ensure!(
            (1..=QUEUES_MAX).contains(&self.queues),
            "a veth pair has 1 to {QUEUES_MAX} queues, not {}",
            self.queues
        );
        fs::create_dir_all(&self.directory).with_context(|| format!("making {}", self.directory.display()))?;
        let (server, client) = (&self.server, &self.client);
        for end in [server, client] {
            ip(&format!("netns add {}", end.namespace))?;
            ip(&format!("-n {} link set lo up", end.namespace))?;
        }
        self.connect()
    }

    /// Makes the veth pair, which must not be there. Neighbours are fixed and addresses valid at once, so that the first packet gets through.
    pub fn connect(&self) -> anyhow::Result<()> {
        let (server, client) = (&self.server, &self.client);
        // Queue numbers given here are in use at once. `ethtool -L` would take no more than there are CPUs.
        let queues = format!("numrxqueues {0} numtxqueues {0}", self.queues);
        ip(&format!(
            "-n {} link add {} address {} {queues} type veth peer name {} netns {} address {} {queues}",
            server.namespace,
            server.interface,
            server.mac_text(),
            client.interface,
            client.namespace,
            client.mac_text(),
        ))?;
        for side in [Side::Server, Side::Client] {
            self.quiet(side)?;
        }
        for end in [server, client] {
            let (namespace, interface) = (&end.namespace, end.interface);
            // A local sender leaves the UDP checksum to the device, which has none: the responder would see a partial one.
            output(Command::new("ip").args(["netns", "exec", namespace, "ethtool", "-K", interface, "tx", "off"]))?;
            ip(&format!("-n {namespace} addr add {}/24 dev {interface}", end.v4))?;
            ip(&format!("-n {namespace} addr add {}/64 dev {interface} nodad", end.v6))?;
            ip(&format!("-n {namespace} link set {interface} up"))?;
        }
        [Side::Server, Side::Client].into_iter().try_for_each(|side| self.fix_neighbours(side))
    }

    /// Has a side know the other one's MAC address. It forgets that when its link goes down.
    pub fn fix_neighbours(&self, side: Side) -> anyhow::Result<()> {
        let (end, other) = match side {
            Side::Server => (&self.server, &self.client),
            Side::Client => (&self.client, &self.server),
        };
        for address in [IpAddr::from(other.v4), IpAddr::from(other.v6)] {
            let (namespace, interface, mac) = (&end.namespace, end.interface, other.mac_text());
            ip(&format!("-n {namespace} neigh replace {address} lladdr {mac} dev {interface} nud permanent"))?;
        }
        Ok(())
    }

    /// A lab that goes with this process, not built yet.
    fn of_this_process(queues: u32) -> anyhow::Result<Self> {
        let pid = process::id();
        let start = start_of(pid).context("reading when this process was started")?;
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let mut lab = Self::named(&format!("{pid}-{start}-{number}"), queues);
        lab.stays = false;
        Ok(lab)
    }

    fn named(name: &str, queues: u32) -> Self {
        let end = |side: &str, interface, last: u8| End {
            namespace: format!("{PREFIX}{name}-{side}"),
            interface,
            mac: [2, 0, 0, 0, 0x78, last],
            v4: Ipv4Addr::new(10, 78, 0, last),
            v6: Ipv6Addr::new(0xfd78, 0, 0, 0, 0, 0, 0, last.into()),
        };
        Self {
            server: end("srv", "server0", 1),
            client: end("cli", "client0", 2),
            queues,
            directory: Path::new(DIRECTORIES).join(name),
            stays: true,
        }
    }

    fn exists(&self) -> bool {
        self.ends().iter().any(|end| end.path().exists())
    }

    fn ends(&self) -> [&End; 2] {
        [&self.server, &self.client]
    }

    fn remove(&self) -> anyhow::Result<()> {
        for end in self.ends().into_iter().filter(|end| end.path().exists()) {
            end.end_processes()?;
            // A process that is slow to end would keep the namespace, but need not keep the pair.
            let _ = ip(&format!("-n {} link del {}", end.namespace, end.interface));
            ip(&format!("netns del {}", end.namespace))?;
        }
        match fs::remove_dir_all(&self.directory) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(error).with_context(|| format!("removing {}", self.directory.display()))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        if let Err(error) = self.remove() {
            eprintln!("warning: the lab is not gone: {error:#}");
        }
    }
}

impl End {
    fn path(&self) -> PathBuf {
        Path::new(NAMESPACES).join(&self.namespace)
    }

    /// Its MAC address as text.
    #[must_use]
    pub fn mac_text(&self) -> String {
        self.mac.map(|byte| format!("{byte:02x}")).join(":")
    }

    /// Ends what runs in the namespace: asks first, then kills.
    fn end_processes(&self) -> anyhow::Result<()> {
        let asked = Instant::now();
        let mut signal = Some(Signal::SIGTERM);
        loop {
            let running = self.processes()?;
            if running.is_empty() {
                return Ok(());
            }
            if asked.elapsed() > 2 * END_MAX {
                bail!("processes in {} do not end: {running:?}", self.namespace);
            }
            if asked.elapsed() > END_MAX {
                signal = Some(Signal::SIGKILL);
            }
            if let Some(signal) = signal.take() {
                for pid in running {
                    // It may have ended by itself.
                    let _ = kill(pid, signal);
                }
            }
            thread::sleep(Duration::from_millis(20));
        }
    }

    fn processes(&self) -> anyhow::Result<Vec<Pid>> {
        let pids = ip(&format!("netns pids {}", self.namespace))?;
        let pids = pids.split_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw);
        Ok(pids.filter(|&pid| pid != Pid::this() && !is_zombie(pid)).collect())
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Server => "server",
            Self::Client => "client",
        })
    }
}

/// The process that a lab goes with. Its number alone may be another's by now; with the time of its start it is the only one.
#[derive(Debug, PartialEq, Eq)]
struct Owner {
    pid: u32,
    start: u64,
}

impl Owner {
    /// `None` for the name of a lab that was made by hand.
    fn parse(lab: &str) -> Option<Self> {
        let mut numbers = lab.split('-');
        let owner = Self { pid: numbers.next()?.parse().ok()?, start: numbers.next()?.parse().ok()? };
        let _number: u32 = numbers.next()?.parse().ok()?;
        numbers.next().is_none().then_some(owner)
    }

    fn lives(&self) -> bool {
        start_of(self.pid).is_some_and(|start| start == self.start)
    }
}

/// When a process was started, in clock ticks since the system was; `None` if there is none, or only a zombie of it.
fn start_of(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Behind the command's name, which may hold anything.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start)
}

fn is_zombie(pid: Pid) -> bool {
    u32::try_from(pid.as_raw()).is_ok_and(|pid| start_of(pid).is_none())
}

/// So that no lab made by hand is taken for one that goes with a process.
fn check_name(name: &str) -> anyhow::Result<()> {
    let good = name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.len() <= 32
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-');
    ensure!(good, "`{name}` cannot be a lab's name: at most 32 of a-z, 0-9 and `-`, a letter first");
    Ok(())
}

/// Turns SIGINT, SIGTERM and SIGHUP into a flag, so that whoever looks at it can clean up. Commands that are started are ended by
/// them as ever: a handler, unlike a mask, does not outlive exec.
pub fn stop_on_signals() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGHUP] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("handling signals")?;
    }
    Ok(stop)
}

/// Keeps the kernel from sending on its own through an interface of this thread's namespace. Such a packet, sent from any CPU, takes the
/// replies that are just leaving by its queue along to that CPU on the other end, and the measured matrix is not quite diagonal.
fn quiet(interface: &str) -> anyhow::Result<()> {
    for (setting, value) in [
        // No router is looked for, which would go on for some 12 s.
        ("accept_ra", "0"),
        // The link-local address is taken at once; nobody is asked whether it is free.
        ("accept_dad", "0"),
        // What multicast groups were joined is told within 20 ms instead of 2 s.
        ("mldv2_unsolicited_report_interval", "10"),
    ] {
        let path = format!("/proc/sys/net/ipv6/conf/{interface}/{setting}");
        fs::write(&path, value).with_context(|| format!("writing {value} to {path}"))?;
    }
    Ok(())
}

fn ip(arguments: &str) -> anyhow::Result<String> {
    output(Command::new("ip").args(arguments.split(' ')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_labs_owner_is_in_its_name() {
        assert_eq!(Owner::parse("12-345-0"), Some(Owner { pid: 12, start: 345 }));
        for by_hand in ["hand", "hand-1-2", "", "12", "12-345", "12-345-0-1", "12-x-0"] {
            assert_eq!(Owner::parse(by_hand), None, "{by_hand}");
        }
    }

    #[test]
    fn a_process_is_known_by_its_start() {
        let pid = process::id();
        let start = start_of(pid).expect("this process lives");
        assert!(Owner { pid, start }.lives());
        assert!(!Owner { pid, start: start + 1 }.lives());
    }

    #[test]
    fn names_by_hand_are_checked() {
        for good in ["hand", "a", "two-queues", "q300"] {
            check_name(good).expect(good);
        }
        for bad in ["", "1-2-3", "-a", "../a", "A", "a b", "a/b"] {
            assert!(check_name(bad).is_err(), "{bad}");
        }
    }
}
