//! Where benches run: a lab with two queues, a server in it that is one of several, and the load generator.
//!
//! The generator has CPU 1 and queue 0 unless a bench says otherwise, so that the worker of queue 0, which our server and Knot have on CPU 0, has a CPU of its
//! own. On veth the sender's CPU also does the receiving of the other end, up to the XDP program or the socket.

use std::{
    fs::{self, File},
    net::{SocketAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use nix::{
    sys::{
        resource::{UsageWho, getrusage},
        signal::{Signal, kill},
    },
    unistd::Pid,
};
use serde_json::Value;

use super::{cpu, knot as refused, sheet::number};
use crate::{
    conformance::servers::{Serving, ZoneFile, bind, knot, nsd, own_named},
    lab::{Lab, Options, Side},
    reflect::Reflector,
    setup,
};

/// How long a server has until it answers.
const READY_WITHIN: Duration = Duration::from_secs(30);
/// How long it has to end.
const END_WITHIN: Duration = Duration::from_secs(5);
const ZONE: &str = "example.com";
const PORT: u16 = 53;
/// Workers of servers that have sockets: one for each of the lab's CPUs.
const WORKERS: usize = 2;
/// The CPU of each queue's worker of ours: the one that Knot takes by itself, and not the generator's.
const CPUS: &str = "0,1";
/// Answers a second for one network and name, where the rate is limited.
const RATE_LIMIT: u32 = 200;
/// Of what was to be sent this is enough.
const OFFERED: f64 = 0.98;
/// Where spoofed queries come from.
pub const SPOOFED: &str = "198.18.0.0/24";

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Our server, with the bypass.
    Xdp,
    /// Our server, on kernel sockets alone.
    Socket,
    /// The bypass without DNS: payloads go back as they came.
    Echo,
    /// The same on kernel sockets.
    EchoSocket,
    /// Knot DNS in XDP mode.
    KnotXdp,
    /// Knot DNS on sockets.
    KnotSocket,
    /// NSD.
    Nsd,
    /// BIND.
    Bind,
    /// The XDP program that sends each query back from the driver.
    Reflector,
}

impl Subject {
    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Xdp => "responder, XDP",
            Self::Socket => "responder, sockets",
            Self::Echo => "echo, XDP",
            Self::EchoSocket => "echo, sockets",
            Self::KnotXdp => "Knot, XDP",
            Self::KnotSocket => "Knot, sockets",
            Self::Nsd => "NSD",
            Self::Bind => "BIND",
            Self::Reflector => "reflector",
        }
    }

    /// Whether a query comes back as it was, instead of an answer.
    #[must_use]
    pub fn echoes(self) -> bool {
        matches!(self, Self::Echo | Self::EchoSocket | Self::Reflector)
    }
}

/// The lab with what all runs in it need.
pub struct Stage {
    /// The lab.
    pub lab: Lab,
    responder: PathBuf,
    zones: Vec<ZoneFile>,
    queries: PathBuf,
    /// Where Knot's library is, if not where it was installed.
    knot_library: Option<PathBuf>,
    /// Of each server, runs in which it was not asked as much as it was to be.
    shortfalls: Mutex<Vec<Shortfall>>,
}

/// Runs in which the generator could not make the rate.
struct Shortfall {
    subject: Subject,
    runs: usize,
    /// Of the worst, queries a second.
    wanted: f64,
    sent: f64,
}

impl Shortfall {
    fn says(&self) -> String {
        let Self { subject, runs, wanted, sent } = self;
        format!(
            "{}: in {runs} runs the generator sent less than it was to, at the worst {}/s of {}/s",
            subject.name(),
            number(*sent),
            number(*wanted)
        )
    }
}

/// A server that runs. It ends when this is dropped.
pub struct Running<'a> {
    lab: &'a Lab,
    subject: Subject,
    child: Option<Child>,
    _reflector: Option<Reflector>,
}

/// What a run of the generator has done.
pub struct Asked {
    /// Its document.
    pub report: Value,
    /// CPU time of the server for it.
    pub server: Duration,
    /// CPU time of the generator, with the receiving of the server's end.
    pub client: Duration,
    /// Of the generator's time, seconds in user and kernel mode.
    pub client_split: (f64, f64),
    /// Seconds that all CPUs spent in interrupts' work, within the time of whom they came upon; by ticks.
    pub softirq: f64,
    /// CPU time of the kernel's threads for deferred interrupts, which belongs to both.
    pub deferred: Duration,
    /// Switches of the server's threads.
    pub switches: u64,
    /// Of the server's time, seconds in user and kernel mode, by ticks.
    pub split: (f64, f64),
}

impl Asked {
    /// A figure of the document; 0 where it has none.
    #[must_use]
    pub fn figure(&self, pointer: &str) -> f64 {
        self.report.pointer(pointer).and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// Queries that were answered.
    #[must_use]
    pub fn answered(&self) -> f64 {
        self.figure("/answered")
    }

    /// Nanoseconds of the server's CPU for an answer.
    #[must_use]
    pub fn server_ns(&self) -> f64 {
        nanoseconds(self.server) / self.answered()
    }
}

/// A duration as a number.
#[must_use]
pub fn nanoseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e9
}

impl Stage {
    /// Builds the lab, the zone that is served and the queries for it.
    pub fn new(responder: &Path) -> anyhow::Result<Self> {
        let lab = Lab::up(&Options::default())?;
        let file = lab.directory.join("example.com.zone");
        let mut zone = format!(
            "$ORIGIN {ZONE}.\n$TTL 3600\n@ SOA ns1 host 1 7200 3600 1209600 300\n@ NS ns1\nns1 A 192.0.2.1\nwww A 192.0.2.80\nwww AAAA 2001:db8::80\n"
        );
        let mut queries = format!("{ZONE} SOA\nwww.{ZONE} A\nwww.{ZONE} AAAA\n");
        for index in 0..1000 {
            zone += &format!("h{index} A 10.0.{}.{}\n", index >> 8, index & 255);
            queries += &format!("h{index}.{ZONE} A\n");
        }
        // Answers of many sizes, from one record.
        for size in DNS_SIZES {
            zone += &format!("t{size} TXT{}\n", text_of(size));
        }
        fs::write(&file, zone).with_context(|| format!("writing {}", file.display()))?;
        let path = lab.directory.join("queries.txt");
        fs::write(&path, queries).with_context(|| format!("writing {}", path.display()))?;
        let zones = vec![ZoneFile { name: ZONE.to_owned(), path: file }];
        let knot_library = refused::library(&lab.directory)?;
        Ok(Self {
            lab,
            responder: responder.to_owned(),
            zones,
            queries: path,
            knot_library,
            shortfalls: Mutex::default(),
        })
    }

    /// Starts a server, with more flags where it is ours, and waits until it is ready. With `limited` it limits the rate of answers.
    pub fn start(&self, subject: Subject, flags: &[&str], limited: bool) -> anyhow::Result<Running<'_>> {
        let mut running = Running { lab: &self.lab, subject, child: None, _reflector: None };
        if subject == Subject::Reflector {
            let attach = || Reflector::attach(self.lab.server.interface);
            running._reflector = Some(self.lab.inside(Side::Server, attach)??);
            return Ok(running);
        }
        let home = self.lab.directory.join("home");
        fs::create_dir_all(&home).with_context(|| format!("making {}", home.display()))?;
        let log = home.join("log");
        let mut command = self.command(subject, flags, limited, &home)?;
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file).current_dir(&home);
        let child = command.spawn().with_context(|| format!("starting `{}`", setup::shown(&command)))?;
        let child = running.child.insert(child);
        let until = Instant::now() + READY_WITHIN;
        let is_ours = !matches!(subject, Subject::KnotXdp | Subject::KnotSocket | Subject::Nsd | Subject::Bind);
        loop {
            let said = fs::read_to_string(&log).unwrap_or_default();
            let is_ready =
                if is_ours { said.contains("ready: ") } else { self.lab.inside(Side::Client, || self.answers())? };
            if is_ready {
                return Ok(running);
            }
            if let Some(status) = child.try_wait().context("looking after a server")? {
                bail!("{} has ended: {status}\n{said}", subject.name());
            }
            ensure!(Instant::now() < until, "{} does not answer:\n{said}", subject.name());
            thread::sleep(Duration::from_millis(50));
        }
    }

    fn command(&self, subject: Subject, flags: &[&str], limited: bool, home: &Path) -> anyhow::Result<Command> {
        let path = home.join("server.conf");
        let write = |text: String| fs::write(&path, text).with_context(|| format!("writing {}", path.display()));
        let address = SocketAddr::new(self.lab.server.v4.into(), PORT);
        let client = self.lab.client.v4;
        let serving = |more| Serving { address, workers: WORKERS, more };
        Ok(match subject {
            Subject::KnotXdp | Subject::KnotSocket => {
                let mut more = String::new();
                if subject == Subject::KnotXdp {
                    more += &format!("xdp:\n    listen: {}\n", self.lab.server.interface);
                }
                if limited {
                    more += &format!(
                        "mod-rrl:\n  - id: default\n    rate-limit: {RATE_LIMIT}\n    slip: 2\n    whitelist: {client}\n"
                    );
                }
                let mut text = knot(serving(&more), &self.zones, home);
                if limited {
                    text = text.replace(
                        "    semantic-checks: off\n",
                        "    semantic-checks: off\n    global-module: mod-rrl/default\n",
                    );
                }
                write(text)?;
                let mut command = self.knot(Side::Server, "knotd");
                command.arg("-c").arg(&path);
                command
            }
            Subject::Nsd => {
                write(nsd(serving(""), &self.zones, home))?;
                let mut command = self.lab.command(Side::Server, "nsd");
                command.args(["-d", "-c"]).arg(&path);
                command
            }
            Subject::Bind => {
                let more = format!(
                    "    rate-limit {{ responses-per-second {RATE_LIMIT}; slip 2; exempt-clients {{ {client}; }}; }};\n"
                );
                write(bind(serving(if limited { &more } else { "" }), &self.zones, home))?;
                let mut command = self.lab.command(Side::Server, own_named(home)?);
                command.args(["-g", "-n", &WORKERS.to_string(), "-c"]).arg(&path);
                command
            }
            _ => {
                if limited {
                    write(format!(
                        "[rate_limit]\nresponses_per_second = {RATE_LIMIT}\nslip = 2\nexempt = [\"{client}\"]\n"
                    ))?;
                } else {
                    write(String::new())?;
                }
                let mut command = self.lab.command(Side::Server, &self.responder);
                command.args([
                    "serve",
                    "--iface",
                    self.lab.server.interface,
                    "--listen",
                    &address.to_string(),
                    "--control",
                ]);
                command.arg(home.join("control.sock")).arg("--config").arg(&path);
                match subject {
                    Subject::Echo | Subject::EchoSocket => command.args(["--service", "echo"]),
                    _ => command.arg("--zone").arg(format!("{ZONE}={}", self.zones[0].path.display())),
                };
                if matches!(subject, Subject::Socket | Subject::EchoSocket) {
                    command.args(["--io", "socket"]);
                }
                if !flags.contains(&"--cpus") {
                    command.args(["--cpus", CPUS]);
                }
                command.args(flags);
                command
            }
        })
    }

    /// A command for a program of Knot's that loads its XDP program.
    #[must_use]
    pub fn knot(&self, side: Side, program: &str) -> Command {
        let mut command = self.lab.command(side, program);
        command.envs(self.knot_library.iter().map(|library| ("LD_LIBRARY_PATH", library)));
        command
    }

    /// True once a query has an answer.
    fn answers(&self) -> bool {
        const QUERY: &[u8] = b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01";
        let ask = || -> std::io::Result<bool> {
            let socket = UdpSocket::bind("0.0.0.0:0")?;
            socket.set_read_timeout(Some(Duration::from_millis(100)))?;
            socket.connect((self.lab.server.v4, PORT))?;
            socket.send(QUERY)?;
            let mut reply = [0; 512];
            let length = socket.recv(&mut reply)?;
            Ok(length > QUERY.len() && reply[3] & 0x0f == 0 && reply[7] > 0)
        };
        ask().unwrap_or(false)
    }

    /// Asks a server from one queue with the queries of its zone.
    pub fn ask(&self, running: &Running<'_>, arguments: &[&str]) -> anyhow::Result<Asked> {
        let queries = self.queries.to_string_lossy();
        // What veth sends from within XDP arrives on the queue with the number of the CPU.
        let cpu = if running.subject == Subject::Reflector { "0" } else { "1" };
        self.ask_with(running, &[&["--queries", &queries, "--queues", "0", "--cpus", cpu], arguments].concat())
    }

    /// Asks a server with just these flags.
    pub fn ask_with(&self, running: &Running<'_>, arguments: &[&str]) -> anyhow::Result<Asked> {
        let mut flood = self.lab.command(Side::Client, &self.responder);
        flood
            .args(["flood", &format!("{}:{PORT}", self.lab.server.v4), "--i-own-the-target", "--json"])
            .args(arguments);
        if running.subject.echoes() {
            flood.args(["--expect", "echo"]);
        }
        let pid = running.pid();
        let server = || pid.map_or(Duration::ZERO, cpu::time);
        let (before, deferred, client, switches) =
            (server(), cpu::deferred_interrupts(), children(), pid.map_or(0, cpu::switches));
        let (split, softirq) = (pid.map(cpu::split).unwrap_or_default(), cpu::softirq()?);
        let output = flood.stderr(Stdio::piped()).output().context("starting the generator")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "`{}` failed: {}", setup::shown(&flood), said.trim());
        let now = pid.map(cpu::split).unwrap_or_default();
        let [user, system] = children();
        let client_split =
            (user.saturating_sub(client[0]).as_secs_f64(), system.saturating_sub(client[1]).as_secs_f64());
        let report: Value = serde_json::from_slice(&output.stdout).context("reading what the generator says")?;
        // A search is meant to end where no more can be sent.
        if report["peak"].is_null()
            && let (Some(wanted), Some(sent)) = (report["wanted_per_s"].as_f64(), report["sent_per_s"].as_f64())
        {
            self.compare(running.subject, wanted, sent);
        }
        Ok(Asked {
            report,
            server: server().saturating_sub(before),
            client: Duration::from_secs_f64(client_split.0 + client_split.1),
            client_split,
            softirq: cpu::softirq()? - softirq,
            deferred: cpu::deferred_interrupts().saturating_sub(deferred),
            switches: pid.map_or(0, cpu::switches).saturating_sub(switches),
            split: (now.0 - split.0, now.1 - split.1),
        })
    }

    /// Remembers a run in which less was sent than was to be.
    fn compare(&self, subject: Subject, wanted: f64, sent: f64) {
        if sent >= OFFERED * wanted {
            return;
        }
        let mut all = self.shortfalls.lock().unwrap_or_else(PoisonError::into_inner);
        match all.iter_mut().find(|known| known.subject == subject) {
            Some(known) => {
                known.runs += 1;
                if sent / wanted < known.sent / known.wanted {
                    (known.wanted, known.sent) = (wanted, sent);
                }
            }
            None => all.push(Shortfall { subject, runs: 1, wanted, sent }),
        }
    }

    /// What has been remembered of that since the last time.
    pub fn take_shortfalls(&self) -> Vec<String> {
        self.shortfalls.lock().unwrap_or_else(PoisonError::into_inner).drain(..).map(|one| one.says()).collect()
    }

    /// The queries for the zone.
    #[must_use]
    pub fn queries(&self) -> &Path {
        &self.queries
    }
}

/// Answers that the zone has, by their size in bytes.
pub const DNS_SIZES: [usize; 5] = [50, 128, 256, 512, 1232];

/// The data of a TXT record with which an answer has this size: header, a question for `tN.example.com`, and the record.
fn text_of(size: usize) -> String {
    let name = format!("t{size}");
    let without = 12 + (name.len() + 1 + 13) + 4 + 12;
    let mut left = size.saturating_sub(without + 11);
    let mut text = String::new();
    while left > 0 {
        let part = (left - 1).min(255);
        text += &format!(" \"{}\"", "x".repeat(part));
        left -= part + 1;
    }
    if text.is_empty() { " \"\"".to_owned() } else { text }
}

/// CPU time of the children of this process that have ended, in user and in kernel mode.
fn children() -> [Duration; 2] {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_CHILDREN) else { return [Duration::ZERO; 2] };
    let micros = |time: nix::sys::time::TimeVal| {
        Duration::from_secs(time.tv_sec().unsigned_abs()) + Duration::from_micros(time.tv_usec().unsigned_abs())
    };
    [usage.user_time(), usage.system_time()].map(micros)
}

impl Running<'_> {
    /// Its process, if it is one.
    #[must_use]
    pub fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            if let Ok(pid) = i32::try_from(child.id()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
            }
            let until = Instant::now() + END_WITHIN;
            while matches!(child.try_wait(), Ok(None)) && Instant::now() < until {
                thread::sleep(Duration::from_millis(20));
            }
            // After its end both do nothing.
            let _ = child.kill();
            let _ = child.wait();
        }
        if self.subject == Subject::KnotXdp {
            // Knot leaves its program behind.
            let mut off = self.lab.command(Side::Server, "ip");
            let _ = off.args(["link", "set", "dev", self.lab.server.interface, "xdp", "off"]).status();
            thread::sleep(Duration::from_millis(300));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_make_answers_of_their_size() {
        for size in DNS_SIZES {
            let name = format!("t{size}");
            let data: usize = text_of(size).split(" \"").skip(1).map(|part| part.len()).sum();
            // Header, name, type and class, owner as a pointer with type, class, TTL and length, data, OPT.
            let answer = 12 + (name.len() + 1 + 13) + 4 + 12 + data + 11;
            assert!(answer == size || data == 1 && answer > size, "{size}: {answer}");
        }
    }
}
