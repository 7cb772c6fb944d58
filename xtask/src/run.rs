//! `cargo xtask run`: the main job. Serves on a NIC, or in a lab that it builds, asks and measures in.
//!
//! On a NIC it is no more than the build and `responder serve`. What is asked in the lab, and what makes a report good, is the
//! matter of [`ask`].

use std::{
    cell::RefCell,
    fs,
    io::{BufRead as _, BufReader, IsTerminal as _, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitCode, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use clap::Args;
use nix::{
    sched::{CpuSet, sched_setaffinity},
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

use crate::{
    ask,
    lab::{self, Lab, Side},
    setup,
};

/// How long the server has until it is ready. Most of it is for reading zones.
const READY_MAX: Duration = Duration::from_secs(20);

/// How long the server has to end.
const END_MAX: Duration = Duration::from_secs(5);

/// How often the line is renewed that shows what the server does.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// How long to ask before the lab is left to the user.
const FIRST_REPORT_SECONDS: u64 = 5;

/// Lines of the server's output that are kept.
const LINES_MAX: usize = 1000;

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Serve on this interface until Ctrl-C, instead of in a lab (repeat for several).
    #[arg(long, value_name = "IF")]
    iface: Vec<String>,
    /// Serve this zone (repeat for several). Without it the zones in examples/zones are served.
    #[arg(long, value_name = "NAME=FILE")]
    zone: Vec<String>,
    /// In the lab: how many queues the veth pair has (2). With `--iface`: the queues that get a worker, `all` or a list.
    #[arg(long, value_name = "N|all|LIST")]
    queues: Option<String>,
    /// CPU of each queue's worker: `auto` or a list.
    #[arg(long, value_name = "auto|LIST")]
    cpus: Option<String>,
    /// End after so many seconds of asking: 0 if every query was answered right on its own queue and CPU, else 1.
    #[arg(long = "for", value_name = "SECS", conflicts_with = "iface", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// Queries a second.
    #[arg(long, value_name = "N", default_value_t = ask::Plan::RATE, conflicts_with = "iface")]
    rate: u32,
    /// Write the figures to this file, too.
    #[arg(long, value_name = "FILE", conflicts_with = "iface")]
    json: Option<PathBuf>,
    /// More flags for `responder serve`.
    #[arg(last = true, value_name = "SERVE FLAGS")]
    serve: Vec<String>,
    /// Swap the CPUs of the first two workers while they are asked, to see that the matrix is measured.
    #[arg(long, hide = true)]
    cross: bool,
}

/// Builds what is needed and runs.
pub fn run(flags: &Flags, built: bool) -> anyhow::Result<ExitCode> {
    let responder = setup::responder_as_root(built)?;
    if flags.iface.is_empty() { in_lab(flags, &responder) } else { on_nic(flags, &responder) }
}

/// Becomes the server. Signals are the server's then.
fn on_nic(flags: &Flags, responder: &Path) -> anyhow::Result<ExitCode> {
    let mut serve = Command::new(responder);
    serve.arg("serve");
    for interface in &flags.iface {
        serve.arg("--iface").arg(interface);
    }
    add_zones(&mut serve, &zones(&flags.zone)?);
    for (flag, value) in [("--queues", &flags.queues), ("--cpus", &flags.cpus)] {
        if let Some(value) = value {
            serve.arg(flag).arg(value);
        }
    }
    serve.args(&flags.serve);
    println!("{}", setup::shown(&serve));
    Err(serve.exec()).with_context(|| format!("starting {}", responder.display()))
}

fn in_lab(flags: &Flags, responder: &Path) -> anyhow::Result<ExitCode> {
    let stop = lab::stop_on_signals()?;
    let queues = flags.queues.as_deref().unwrap_or("2");
    let queues =
        queues.parse().ok().with_context(|| format!("`--queues {queues}`: the lab needs a number of queues"))?;
    let zones = zones(&flags.zone)?;
    for stale in Lab::remove_stale()? {
        println!("removed the lab {stale}, which a process that was killed has left behind");
    }

    let lab = Lab::up(&lab::Options { queues })?;
    println!("lab: {} and {}, a veth pair with {queues} queues", lab.server.namespace, lab.client.namespace);
    let server = Server::start(&lab, responder, &zones, flags)?;
    let asked = server.ask(&lab, flags, &zones, &stop).and_then(|report| {
        if flags.seconds.is_none() && !stop.load(Ordering::Relaxed) {
            server.stay(&lab, &stop)?;
        }
        server.end()?;
        Ok(report)
    });
    match asked {
        Ok(report) if flags.seconds.is_some() && stop.load(Ordering::Relaxed) => {
            bail!("stopped by a signal before its time; so far {} problems", report.problems().len())
        }
        Ok(report) if report.is_good() => Ok(ExitCode::SUCCESS),
        Ok(_) => Ok(ExitCode::FAILURE),
        Err(error) => {
            eprintln!("the server's output:\n{}", server.lines());
            Err(error)
        }
    }
}

/// The zones by name: those given, or the examples.
pub(crate) fn zones(given: &[String]) -> anyhow::Result<Vec<(String, PathBuf)>> {
    if !given.is_empty() {
        let named = given.iter().map(|zone| {
            let (name, file) =
                zone.split_once('=').with_context(|| format!("`--zone {zone}`: NAME=FILE is expected"))?;
            let file = fs::canonicalize(file).with_context(|| format!("`--zone {zone}`"))?;
            Ok((name.to_owned(), file))
        });
        return named.collect();
    }
    let directory = setup::workspace().join("examples/zones");
    let files = fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut zones = vec![];
    for file in files {
        let path = file?.path();
        if let (Some(name), Some("zone")) =
            (path.file_stem(), path.extension().and_then(|extension| extension.to_str()))
        {
            zones.push((name.to_string_lossy().into_owned(), path));
        }
    }
    zones.sort();
    ensure!(!zones.is_empty(), "no zones in {}", directory.display());
    Ok(zones)
}

fn add_zones(serve: &mut Command, zones: &[(String, PathBuf)]) {
    for (name, file) in zones {
        serve.arg("--zone").arg(format!("{name}={}", file.display()));
    }
}

/// The server in its namespace. Killed when dropped.
struct Server {
    /// Looked at while the server's status is asked for, too.
    child: RefCell<Child>,
    responder: PathBuf,
    control: PathBuf,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts it and waits until it is ready.
    fn start(lab: &Lab, responder: &Path, zones: &[(String, PathBuf)], flags: &Flags) -> anyhow::Result<Self> {
        let control = lab.directory.join("control.sock");
        let mut serve = lab.command(Side::Server, responder);
        serve.args(["serve", "--iface", lab.server.interface]).arg("--control").arg(&control);
        add_zones(&mut serve, zones);
        if let Some(cpus) = &flags.cpus {
            serve.arg("--cpus").arg(cpus);
        }
        serve.args(&flags.serve);
        // A group of its own: Ctrl-C is for us, who end the server after its last figures are read.
        serve.process_group(0).stdin(Stdio::null()).stderr(Stdio::piped());
        let mut child = serve.spawn().with_context(|| format!("starting {}", responder.display()))?;

        let stderr = child.stderr.take().context("the server's output is a pipe")?;
        let lines = Arc::new(Mutex::new(vec![]));
        let (tell, told) = mpsc::channel();
        let kept = Arc::clone(&lines);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                if line.starts_with("ready") {
                    let _ = tell.send(line.clone());
                }
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() < LINES_MAX {
                    kept.push(line);
                }
            }
        });
        let server = Self { child: RefCell::new(child), responder: responder.to_owned(), control, lines };
        match told.recv_timeout(READY_MAX) {
            Ok(line) => println!("{line}"),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the server is not ready after {} s; its output:\n{}", READY_MAX.as_secs(), server.lines())
            }
            Err(RecvTimeoutError::Disconnected) => bail!("the server did not start:\n{}", server.lines()),
        }
        Ok(server)
    }

    /// Asks and shows what came back.
    fn ask(
        &self,
        lab: &Lab,
        flags: &Flags,
        zones: &[(String, PathBuf)],
        stop: &AtomicBool,
    ) -> anyhow::Result<ask::Report> {
        let plan = ask::Plan {
            zones: zones.to_vec(),
            server_v4: lab.server.v4,
            server_v6: lab.server.v6,
            seconds: Some(flags.seconds.unwrap_or(FIRST_REPORT_SECONDS)),
            rate: flags.rate,
            flows: ask::Plan::FLOWS.max(2 * lab.queues as usize),
        };
        let mut to_cross = flags.cross;
        let terminal = std::io::stderr().is_terminal();
        let mut progress = |progress: &ask::Progress| {
            self.check_lives()?;
            if std::mem::take(&mut to_cross) {
                cross(&self.status()?)?;
            }
            progress.show();
            Ok(())
        };
        if terminal {
            eprint!("opening {} flows and learning which queue each takes ...", plan.flows);
        }
        let server = ask::Server { status: &|| self.status(), received: &|| lab.received(), interrupts: None };
        let report = ask::run(lab, &plan, &server, stop, &mut progress);
        if terminal {
            eprint!("\r\x1b[K");
        }
        // That the server is gone explains whatever else went wrong.
        let report = report.map_err(|error| self.check_lives().err().unwrap_or(error))?;

        print!("{}", report.render(std::io::stdout().is_terminal()));
        setup::write_json(flags.json.as_deref(), &report)?;
        Ok(report)
    }

    /// Keeps the lab up until it is to stop, or the server ends.
    fn stay(&self, lab: &Lab, stop: &AtomicBool) -> anyhow::Result<()> {
        println!(
            "\nThe lab stays until Ctrl-C. To ask by hand:\n\n    ip netns exec {} dig @{} www.example.com\n    {} status --control {}\n",
            lab.client.namespace,
            lab.server.v4,
            self.responder.display(),
            self.control.display()
        );
        if !setup::is_on_path("dig") {
            println!("`dig` comes with the package bind9-dnsutils.\n");
        }
        let terminal = std::io::stderr().is_terminal();
        let mut before = None;
        let mut next_line = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            self.check_lives()?;
            if terminal && Instant::now() >= next_line {
                next_line += LINE_EVERY;
                let answered = answered(&self.status()?);
                let new = answered - before.replace(answered).unwrap_or(answered);
                eprint!("\r\x1b[K{answered} queries answered, {new} in the last second");
                let _ = std::io::stderr().flush();
            }
            thread::sleep(Duration::from_millis(100));
        }
        if terminal {
            eprintln!();
        }
        Ok(())
    }

    /// An error once it has ended, which it has to do only when asked.
    fn check_lives(&self) -> anyhow::Result<()> {
        let ended = self.child.borrow_mut().try_wait().context("looking after the server")?;
        ended.map_or(Ok(()), |status| Err(anyhow!("the server has ended by itself: {status}")))
    }

    /// What `responder status` says.
    fn status(&self) -> anyhow::Result<Value> {
        let mut status = Command::new(&self.responder);
        let text = setup::output(status.args(["status", "--json", "--control"]).arg(&self.control))?;
        serde_json::from_str(&text).context("the server's status is no JSON")
    }

    /// Asks the server to end, which it does with 0.
    fn end(&self) -> anyhow::Result<()> {
        kill(Pid::from_raw(i32::try_from(self.child.borrow().id())?), Signal::SIGTERM).context("ending the server")?;
        let asked = Instant::now();
        while asked.elapsed() < END_MAX {
            if let Some(status) = self.child.borrow_mut().try_wait()? {
                ensure!(status.success(), "the server ended with {status}");
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("the server has not ended {} s after SIGTERM", END_MAX.as_secs())
    }

    fn lines(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After its end both do nothing.
        let child = self.child.get_mut();
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// Queries answered so far, on both paths.
fn answered(status: &Value) -> u64 {
    let kernel = ["udp", "tcp"].map(|path| &status["kernel_path"][path]);
    let interfaces = status["interfaces"].as_array().into_iter().flatten();
    let queues = interfaces.filter_map(|interface| interface["queues"].as_array()).flatten();
    queues.chain(kernel).filter_map(|counts| counts["answered"].as_u64()).sum()
}

/// Swaps the CPUs of the first two workers.
fn cross(status: &Value) -> anyhow::Result<()> {
    let queues = &status["interfaces"][0]["queues"];
    let worker = |index: usize| -> anyhow::Result<(Pid, usize)> {
        let field = |name: &str| {
            queues[index][name].as_i64().with_context(|| format!("worker {index} has no `{name}` in the status"))
        };
        Ok((Pid::from_raw(i32::try_from(field("thread")?)?), usize::try_from(field("cpu")?)?))
    };
    let (first, second) = (worker(0)?, worker(1)?);
    for (thread, cpu) in [(first.0, second.1), (second.0, first.1)] {
        let mut cpus = CpuSet::new();
        cpus.set(cpu)?;
        sched_setaffinity(thread, &cpus).with_context(|| format!("moving thread {thread} to CPU {cpu}"))?;
    }
    Ok(())
}
