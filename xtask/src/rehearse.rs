//! `cargo xtask rehearse`: a day of an operator in a minute. While a server is asked at a steady rate, its zone is reloaded, a new one takes over, addresses come
//! and go, the link flaps, and it is killed and started again. Said of each: how many queries were lost, for how long, and how the latency moved.
//!
//! The client is an open loop ([`load`]), and shares the machine with the server: what a busy CPU does to latency is in the figures.

pub mod load;
pub mod zone;

use std::{
    fs::{self, File},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;
use serde::Serialize;

use crate::{
    lab::{self, Lab, Options, Side},
    setup,
};
use load::{BUCKET, Bucket};

/// Before each event, and after it.
const CALM: Duration = Duration::from_secs(2);
/// How long a server has until it is ready.
const READY_WITHIN: Duration = Duration::from_secs(60);
/// How long the link is down.
const DOWN: Duration = Duration::from_millis(200);

/// Flags of `rehearse`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Queries a second.
    #[arg(long, value_name = "N", default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..))]
    rate: u32,
    /// Names in the zone, each with two addresses.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    names: u32,
    /// Write the figures to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What happened around an event.
#[derive(Debug, Serialize)]
struct Figures {
    event: &'static str,
    /// How long it took to do it, in seconds.
    took_s: f64,
    /// Queries sent from two seconds before it to two seconds after it.
    asked: u64,
    lost: u64,
    /// Answers that are none, or of two versions of the zone.
    wrong: u64,
    /// From the first query lost to the last, in milliseconds.
    lost_for_ms: u64,
    /// Median of the 99th percentiles of the tenths of a second before it, in microseconds.
    p99_before_us: u32,
    /// The largest of those since its begin.
    p99_worst_us: u32,
    /// How many milliseconds of those have more than twice what it was before.
    p99_doubled_for_ms: u64,
    /// What it may lose.
    allowed: Allowed,
}

/// What an event may lose.
#[derive(Clone, Copy, Debug, Serialize)]
struct Allowed {
    /// Of a million queries asked.
    lost_per_million: u64,
    /// From the first query lost to the last.
    for_ms: u64,
}

const NOTHING: Allowed = Allowed { lost_per_million: 0, for_ms: 0 };

impl Figures {
    fn is_good(&self) -> bool {
        let Allowed { lost_per_million, for_ms } = self.allowed;
        self.wrong == 0 && self.lost * 1_000_000 <= lost_per_million * self.asked && self.lost_for_ms <= for_ms
    }
}

/// Builds what is needed, and rehearses.
pub fn run(flags: &Flags, built: bool) -> anyhow::Result<ExitCode> {
    let responder = setup::responder_as_root(built)?;
    let figures = rehearse(flags, &responder)?;
    print!("{}", table(&figures));
    setup::write_json(flags.json.as_deref(), &figures)?;
    Ok(if figures.iter().all(Figures::is_good) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn rehearse(flags: &Flags, responder: &Path) -> anyhow::Result<Vec<Figures>> {
    let signalled = lab::stop_on_signals()?;
    let lab = Lab::up(&Options { queues: 2 })?;
    let file = lab.directory.join("rehearsal.zone");
    zone::write(&file, flags.names, 1)?;
    let mut stage = Stage { lab: &lab, responder, file: &file, signalled, servers: Vec::new() };
    stage.start("serve")?;

    let servers: [SocketAddr; 2] = [(lab.server.v4, 53).into(), (lab.server.v6, 53).into()];
    let (start, stop) = (SystemTime::now(), AtomicBool::new(false));
    let (buckets, events) = thread::scope(|scope| -> anyhow::Result<_> {
        let asking =
            scope.spawn(|| lab.inside(Side::Client, || load::ask(&servers, flags.names, flags.rate, start, &stop))?);
        let events = stage.events(flags, start);
        stop.store(true, Relaxed);
        let buckets = asking.join().map_err(|_| anyhow::anyhow!("the asking thread panicked"))??;
        Ok((buckets, events.with_context(|| stage.said())?))
    })?;
    Ok(events.into_iter().map(|event| event.figures(&buckets)).collect())
}

/// When something happened, since the start.
struct Event {
    name: &'static str,
    begin: Duration,
    end: Duration,
    allowed: Allowed,
}

/// The lab, and the servers that were started in it.
struct Stage<'a> {
    lab: &'a Lab,
    responder: &'a Path,
    file: &'a Path,
    /// A signal has come.
    signalled: Arc<AtomicBool>,
    servers: Vec<Child>,
}

impl Stage<'_> {
    fn events(&mut self, flags: &Flags, start: SystemTime) -> anyhow::Result<Vec<Event>> {
        let mut events = Vec::new();
        let mut event = |stage: &mut Self, name, allowed, act: &dyn Fn(&mut Self) -> anyhow::Result<()>| {
            thread::sleep(CALM);
            ensure!(!stage.signalled.load(Relaxed), "stopped by a signal before the event \"{name}\"");
            eprintln!("{name}");
            let begin = start.elapsed()?;
            act(stage)?;
            events.push(Event { name, begin, end: start.elapsed()?, allowed });
            thread::sleep(CALM);
            anyhow::Ok(())
        };
        zone::write(self.file, flags.names, 2)?;
        event(self, "reload", NOTHING, &|stage| stage.control("reload"))?;
        event(self, "upgrade", Allowed { lost_per_million: 1000, for_ms: 300 }, &|stage| {
            stage.start("upgrade")?;
            let mut old = stage.servers.remove(0);
            ensure!(old.wait().context("waiting for the old server")?.success(), "the old server failed");
            Ok(())
        })?;
        event(self, "address added and removed", NOTHING, &|stage| {
            for verb in ["add", "del"] {
                stage.ip(&format!("addr {verb} 10.78.0.99/24 dev {}", stage.lab.server.interface))?;
                thread::sleep(Duration::from_millis(500));
            }
            Ok(())
        })?;
        // What is asked while it is down is lost, and what is asked before the neighbours are known again.
        let down = Allowed { lost_per_million: 1_000_000, for_ms: 1_000 };
        event(self, "link down and up", down, &|stage| stage.flap())?;
        let restart = Allowed { lost_per_million: 1_000_000, for_ms: u64::from(flags.names) / 200 + 1_000 };
        event(self, "kill -9 and restart", restart, &|stage| {
            let mut killed = stage.servers.remove(0);
            killed.kill().and_then(|()| killed.wait()).context("killing the server")?;
            stage.start("serve")
        })?;
        Ok(events)
    }

    /// Starts a server and waits until it is ready.
    fn start(&mut self, verb: &str) -> anyhow::Result<()> {
        let log = self.log(self.servers.len());
        let mut command = self.lab.command(Side::Server, self.responder);
        command.args([verb, "--iface", self.lab.server.interface, "--control"]).arg(self.socket());
        command.arg("--zone").arg(format!("{}={}", zone::NAME, self.file.display()));
        command.stdin(Stdio::null()).stderr(File::create(&log)?);
        self.servers.push(command.spawn().with_context(|| format!("starting {}", self.responder.display()))?);
        let server = self.servers.last_mut().context("one was started just now")?;
        let deadline = Instant::now() + READY_WITHIN;
        while !fs::read_to_string(&log)?.lines().any(|line| line.starts_with("ready")) {
            if let Some(status) = server.try_wait()? {
                bail!("the server ended with {status}");
            }
            ensure!(Instant::now() < deadline, "the server is not ready after {} s", READY_WITHIN.as_secs());
            thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    fn flap(&self) -> anyhow::Result<()> {
        let server = &self.lab.server;
        self.ip(&format!("link set dev {} down", server.interface))?;
        thread::sleep(DOWN);
        self.ip(&format!("link set dev {} up", server.interface))?;
        // They go with the link.
        self.ip(&format!("addr replace {}/64 dev {} nodad", server.v6, server.interface))?;
        self.lab.fix_neighbours(Side::Server)
    }

    fn control(&self, verb: &str) -> anyhow::Result<()> {
        setup::output(Command::new(self.responder).args([verb, "--control"]).arg(self.socket())).map(drop)
    }

    fn ip(&self, arguments: &str) -> anyhow::Result<()> {
        setup::output(self.lab.command(Side::Server, "ip").args(arguments.split(' '))).map(drop)
    }

    fn socket(&self) -> PathBuf {
        self.lab.directory.join("control.sock")
    }

    fn log(&self, number: usize) -> PathBuf {
        self.lab.directory.join(format!("server-{number}.log"))
    }

    /// What the servers have said.
    fn said(&self) -> String {
        (0..2).filter_map(|number| fs::read_to_string(self.log(number)).ok()).collect()
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        for server in &mut self.servers {
            // After its end both do nothing.
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

impl Event {
    fn figures(self, buckets: &[Bucket]) -> Figures {
        let Self { name, begin, end, allowed } = self;
        let index = |at: Duration| usize::try_from(at.as_millis() / BUCKET.as_millis()).unwrap_or(0).min(buckets.len());
        let (from, first, last) = (index(begin.saturating_sub(CALM)), index(begin), index(end + CALM));
        let around = &buckets[from..last];
        let mut before: Vec<u32> = buckets[from..first].iter().filter_map(Bucket::p99_us).collect();
        before.sort_unstable();
        let p99_before_us = before.get(before.len() / 2).copied().unwrap_or(0);
        let since: Vec<u32> = buckets[first..last].iter().filter_map(Bucket::p99_us).collect();
        let doubled = since.iter().filter(|p99| **p99 > 2 * p99_before_us).count();
        let lost = |bucket: &Bucket| bucket.lost() > 0;
        let lost_for = match (around.iter().position(lost), around.iter().rposition(lost)) {
            (Some(first), Some(last)) => last - first + 1,
            _ => 0,
        };
        let ms = |buckets: usize| buckets as u64 * u64::try_from(BUCKET.as_millis()).unwrap_or(0);
        Figures {
            event: name,
            took_s: (end - begin).as_secs_f64(),
            asked: around.iter().map(|bucket| bucket.sent).sum(),
            lost: around.iter().map(Bucket::lost).sum(),
            wrong: around.iter().map(|bucket| bucket.wrong).sum(),
            lost_for_ms: ms(lost_for),
            p99_before_us,
            p99_worst_us: since.iter().copied().max().unwrap_or(0),
            p99_doubled_for_ms: ms(doubled),
            allowed,
        }
    }
}

fn table(figures: &[Figures]) -> String {
    let head = ["event", "took", "asked", "lost", "for", "wrong", "p99 before", "worst", "doubled for", ""];
    let mut rows = vec![head.map(str::to_owned)];
    rows.extend(figures.iter().map(|figures| {
        [
            figures.event.to_owned(),
            format!("{:.2} s", figures.took_s),
            figures.asked.to_string(),
            figures.lost.to_string(),
            format!("{} ms", figures.lost_for_ms),
            figures.wrong.to_string(),
            format!("{} us", figures.p99_before_us),
            format!("{} us", figures.p99_worst_us),
            format!("{} ms", figures.p99_doubled_for_ms),
            if figures.is_good() { "ok".to_owned() } else { "too much".to_owned() },
        ]
    }));
    let widths: Vec<usize> =
        (0..head.len()).map(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0)).collect();
    let line = |row: &[String; 10]| {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column {
            0 | 9 => format!("{cell:<width$}"),
            _ => format!("{cell:>width$}"),
        });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
