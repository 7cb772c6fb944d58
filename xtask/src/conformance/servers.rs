//! The four servers, on the same zones, each on a loopback address of its own in a lab's namespace.
//!
//! What is not an authority's job is off in the peers (rate limits, cookies, recursion, notifications, names of themselves), and the largest UDP payload
//! is ours, so that answers are cut at the same size. NSD and BIND leave the zone's NS records out of positive answers, as Knot does by itself:
//! a thousand optional records would hide one that matters.

use std::{
    fs,
    fs::File,
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::message::{self, Message, SOA};
use crate::lab::{Lab, Side};

/// How many there are.
pub const SERVERS: usize = 4;
/// Where each of them listens.
const PORT: u16 = 5300;
/// How long they have to load the zones.
const READY_MAX: Duration = Duration::from_secs(60);
/// How long they have to end.
const END_MAX: Duration = Duration::from_secs(3);
/// The largest UDP payload, as ours.
const PAYLOAD_MAX: u16 = 1232;

/// A server: ours, then the three it is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Server {
    /// Ours.
    Responder,
    /// NLnet Labs' NSD.
    Nsd,
    /// CZ.NIC's Knot DNS.
    Knot,
    /// ISC's BIND.
    Bind,
}

impl Server {
    /// All of them, ours first.
    pub const ALL: [Self; SERVERS] = [Self::Responder, Self::Nsd, Self::Knot, Self::Bind];
    /// Those that ours is compared with.
    pub const PEERS: [Self; SERVERS - 1] = [Self::Nsd, Self::Knot, Self::Bind];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Responder => "responder",
            Self::Nsd => "NSD",
            Self::Knot => "Knot",
            Self::Bind => "BIND",
        }
    }

    /// Its index in [`Self::ALL`].
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Where it is asked, in the namespace.
    #[must_use]
    pub fn address(self) -> SocketAddr {
        // BIND listens only where an interface has the address, and the loopback has just the first.
        let last = [4, 2, 3, 1][self.index()];
        SocketAddr::from((Ipv4Addr::new(127, 0, 0, last), PORT))
    }
}

/// A zone's name, without the last dot unless it is the root's, and its file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZoneFile {
    /// The zone's name.
    pub name: String,
    /// Its file, with an absolute path.
    pub path: PathBuf,
}

/// The four as they run. Ended when dropped.
#[derive(Debug)]
pub struct Running {
    children: Vec<(Server, Child)>,
    directory: PathBuf,
}

impl Running {
    /// Starts all four and waits until each of them answers for every zone. Their files and output are kept in `directory`.
    pub fn start(lab: &Lab, responder: &Path, zones: &[ZoneFile], directory: &Path) -> anyhow::Result<Self> {
        let mut running = Self { children: Vec::new(), directory: directory.to_owned() };
        for server in Server::ALL {
            let home = directory.join(server.name().to_lowercase());
            fs::create_dir_all(&home).with_context(|| format!("making {}", home.display()))?;
            let mut command = command(server, lab, responder, zones, &home)?;
            let log = File::create(running.log(server)).context("making a file for a server's output")?;
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).current_dir(&home);
            let child = command.spawn().with_context(|| format!("starting {}", server.name()))?;
            running.children.push((server, child));
        }
        lab.inside(Side::Server, || running.wait_ready(zones))??;
        Ok(running)
    }

    /// An error once one of them has ended.
    pub fn check(&mut self) -> anyhow::Result<()> {
        for (server, child) in &mut self.children {
            if let Some(status) = child.try_wait().context("looking after a server")? {
                let log = log(&self.directory, *server);
                bail!("{} has ended by itself: {status}; its output is in {}", server.name(), log.display());
            }
        }
        Ok(())
    }

    fn log(&self, server: Server) -> PathBuf {
        log(&self.directory, server)
    }

    fn wait_ready(&mut self, zones: &[ZoneFile]) -> anyhow::Result<()> {
        let until = Instant::now() + READY_MAX;
        for server in Server::ALL {
            let socket = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 9), 0)).context("opening a socket")?;
            socket.connect(server.address())?;
            socket.set_read_timeout(Some(Duration::from_millis(200)))?;
            for zone in zones {
                while !answers(&socket, &zone.name) {
                    self.check()?;
                    if Instant::now() > until {
                        let log = self.log(server);
                        bail!("{} does not serve {}; its output is in {}", server.name(), zone.name, log.display());
                    }
                    // A refused port answers at once.
                    thread::sleep(Duration::from_millis(20));
                }
            }
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for (_, child) in &self.children {
            if let Ok(pid) = i32::try_from(child.id()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
        }
        let asked = Instant::now();
        for (_, child) in &mut self.children {
            while matches!(child.try_wait(), Ok(None)) && asked.elapsed() < END_MAX {
                thread::sleep(Duration::from_millis(10));
            }
            // After its end both do nothing.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn log(directory: &Path, server: Server) -> PathBuf {
    directory.join(format!("{}.log", server.name().to_lowercase()))
}

/// True once the server answers for the zone with authority.
fn answers(socket: &UdpSocket, zone: &str) -> bool {
    let query =
        [&b"\x12\x34\0\0\0\x01\0\0\0\0\0\0"[..], &message::name_from(zone), &SOA.to_be_bytes(), b"\0\x01"].concat();
    let mut buffer = [0; 4096];
    let reply = socket.send(&query).and_then(|_| socket.recv(&mut buffer));
    reply.is_ok_and(|len| {
        Message::read(&buffer[..len]).is_ok_and(|reply| reply.is(message::AA) && !reply.answer.is_empty())
    })
}

fn command(server: Server, lab: &Lab, responder: &Path, zones: &[ZoneFile], home: &Path) -> anyhow::Result<Command> {
    let path = home.join("server.conf");
    let write = |text: String| fs::write(&path, text).with_context(|| format!("writing {}", path.display()));
    let address = server.address();
    Ok(match server {
        Server::Responder => {
            let mut command = lab.command(Side::Server, responder);
            command.args(["serve", "--io", "socket", "--listen", &address.to_string(), "--control"]);
            command.arg(lab.directory.join("conformance.sock"));
            for zone in zones {
                command.arg("--zone").arg(format!("{}={}", zone.name, zone.path.display()));
            }
            command
        }
        Server::Nsd => {
            write(nsd(Serving::alone(server), zones, home))?;
            let mut command = lab.command(Side::Server, "nsd");
            command.args(["-d", "-c"]).arg(&path);
            command
        }
        Server::Knot => {
            write(knot(Serving::alone(server), zones, home))?;
            let mut command = lab.command(Side::Server, "knotd");
            command.arg("-c").arg(&path);
            command
        }
        Server::Bind => {
            write(bind(Serving::alone(server), zones, home))?;
            let named = own_named(home)?;
            let mut command = lab.command(Side::Server, named);
            command.args(["-g", "-n", "1", "-c"]).arg(&path);
            command
        }
    })
}

/// Debian's AppArmor profile lets the installed file read nothing outside /etc/bind; it goes by the path, so that a copy is free.
pub(crate) fn own_named(home: &Path) -> anyhow::Result<PathBuf> {
    let named = home.join("named");
    fs::copy("/usr/sbin/named", &named).context("copying /usr/sbin/named")?;
    Ok(named)
}

/// How a peer is to serve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Serving<'a> {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its processes or threads.
    pub(crate) workers: usize,
    /// More of its configuration: of NSD's `server:`, of Knot's top level, of BIND's `options`.
    pub(crate) more: &'a str,
}

impl Serving<'_> {
    fn alone(server: Server) -> Self {
        Self { address: server.address(), workers: 1, more: "" }
    }
}

pub(crate) fn nsd(serving: Serving<'_>, zones: &[ZoneFile], home: &Path) -> String {
    let home = home.display();
    let Serving { address, workers, more } = serving;
    let mut text = format!(
        "server:
    ip-address: {}@{}
    do-ip6: no
    server-count: {workers}
    reuseport: yes
    username: \"\"
    database: \"\"
    zonesdir: \"{home}\"
    pidfile: \"{home}/nsd.pid\"
    xfrdfile: \"{home}/xfrd.state\"
    zonelistfile: \"{home}/zone.list\"
    xfrdir: \"{home}\"
    ipv4-edns-size: {PAYLOAD_MAX}
    hide-version: yes
    hide-identity: yes
    minimal-responses: yes
    refuse-any: no
    answer-cookie: no
    rrl-ratelimit: 0
    rrl-whitelist-ratelimit: 0
{more}remote-control:
    control-enable: no
",
        address.ip(),
        address.port()
    );
    for zone in zones {
        text += &format!("zone:\n    name: \"{}\"\n    zonefile: \"{}\"\n", zone.name, zone.path.display());
    }
    text
}

pub(crate) fn knot(serving: Serving<'_>, zones: &[ZoneFile], home: &Path) -> String {
    let home = home.display();
    let Serving { address, workers, more } = serving;
    let mut text = format!(
        "server:
    rundir: \"{home}\"
    listen: {}@{}
    identity: \"\"
    version: \"\"
    nsid: \"\"
    udp-workers: {workers}
    tcp-workers: 1
    background-workers: 1
    udp-max-payload: {PAYLOAD_MAX}
    answer-rotation: off
log:
  - target: stderr
    any: info
database:
    storage: \"{home}\"
{more}template:
  - id: default
    zonefile-sync: -1
    journal-content: none
    semantic-checks: off
zone:
",
        address.ip(),
        address.port()
    );
    for zone in zones {
        text += &format!("  - domain: \"{}\"\n    file: \"{}\"\n", zone.name, zone.path.display());
    }
    text
}

/// BIND also hands out the zones whole: its reading of the files is what names and types are taken from.
pub(crate) fn bind(serving: Serving<'_>, zones: &[ZoneFile], home: &Path) -> String {
    let home = home.display();
    let Serving { address, more, .. } = serving;
    let mut text = format!(
        "options {{
    directory \"{home}\";
    pid-file none;
    lock-file none;
    session-keyfile none;
    listen-on port {} {{ {}; }};
    listen-on-v6 {{ none; }};
    recursion no;
    allow-query {{ any; }};
    allow-transfer {{ any; }};
    notify no;
    dnssec-validation no;
    empty-zones-enable no;
    minimal-responses no-auth;
    minimal-any no;
    zero-no-soa-ttl no;
    max-udp-size {PAYLOAD_MAX};
    edns-udp-size {PAYLOAD_MAX};
    answer-cookie no;
    check-names primary ignore;
    check-integrity no;
    max-records-per-type 0;
    max-types-per-name 0;
    rrset-order {{ order none; }};
    version none;
    hostname none;
    server-id none;
    querylog no;
{more}}};
controls {{ }};
logging {{ category default {{ default_stderr; }}; category query-errors {{ null; }}; category client {{ null; }}; category security {{ null; }}; category notify {{ null; }}; category update {{ null; }}; category update-security {{ null; }}; category lame-servers {{ null; }}; }};
",
        address.port(),
        address.ip()
    );
    for zone in zones {
        text += &format!("zone \"{}\" {{ type primary; file \"{}\"; }};\n", zone.name, zone.path.display());
    }
    text
}
