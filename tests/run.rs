//! `cargo xtask run` in its lab: what it measures, what makes it fail, and that nothing of it stays, however it ends.
//!
//! Runs the built `xtask` and `responder`. Needs root and two CPUs.

use std::{
    env, fs,
    io::{BufRead as _, BufReader, Read as _},
    path::{Path, PathBuf},
    process::{self, Child, Command, Stdio},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;

/// Runs measure what two CPUs do: one at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The arguments of all runs: `xtask` is built, and so is the responder.
fn run(arguments: &[&str]) -> Command {
    let test = env::current_exe().expect("a test has a path");
    let xtask = test.ancestors().nth(2).expect("in target/debug/deps").join("xtask");
    let mut command = Command::new(xtask);
    command.args(["run", "--built"]).args(arguments).stdin(Stdio::null());
    command
}

struct Ended {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn ended(mut command: Command) -> Ended {
    let output = command.output().expect("`cargo xtask test` has built it");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    Ended { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// A run that goes on until it is ended: its lab is up and its server ready.
struct Running {
    child: Child,
    lab: String,
}

impl Running {
    fn start() -> Self {
        let mut command = run(&["--for", "60"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
        let stdout = child.stdout.as_mut().expect("piped");
        let mut lines = BufReader::new(stdout).lines().map(|line| line.expect("it prints text"));
        let lab = lines.find_map(|line| Some(line.strip_prefix("lab: ")?.split("-srv").next()?.to_owned()));
        assert!(lines.any(|line| line.starts_with("ready")), "the server did not get ready");
        Self { child, lab: lab.expect("the lab is named before the server is ready") }
    }

    fn namespaces(&self) -> [PathBuf; 2] {
        ["srv", "cli"].map(|side| Path::new("/run/netns").join(format!("{}-{side}", self.lab)))
    }

    /// The process of the server: the only one in its namespace.
    fn server(&self) -> Pid {
        let output = Command::new("ip").args(["netns", "pids", &format!("{}-srv", self.lab)]).output().expect("`ip`");
        let pids = String::from_utf8(output.stdout).expect("text");
        Pid::from_raw(pids.trim().parse().expect("one process"))
    }

    fn end(mut self, signal: Signal) -> (Option<i32>, String) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).expect("a process id"));
        kill(pid, signal).expect("it runs");
        self.wait()
    }

    fn wait(&mut self) -> (Option<i32>, String) {
        let mut stderr = String::new();
        self.child.stderr.take().expect("piped").read_to_string(&mut stderr).expect("text");
        (self.child.wait().expect("it ends").code(), stderr)
    }
}

fn lives(process: Pid) -> bool {
    kill(process, None).is_ok()
}

#[test]
fn each_reply_is_right_and_the_matrix_diagonal() {
    let _alone = alone();
    let json = env::temp_dir().join(format!("run-{}.json", process::id()));
    let ended = ended(run(&["--for", "3", "--rate", "25000", "--json", json.to_str().expect("a plain path")]));
    let figures = fs::read_to_string(&json).expect("it was written");
    fs::remove_file(&json).expect("it is ours");
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    for part in ["status: NOERROR", "status: NXDOMAIN", "RX 1", "matrix diagonal"] {
        assert!(ended.stdout.contains(part), "{part}: {}", ended.stdout);
    }

    let figures: Value = serde_json::from_str(&figures).expect("JSON");
    let number = |value: &Value| value.as_f64().expect("a number");
    assert!(number(&figures["right_per_second"]) >= 20_000.0, "{figures}");
    assert!(number(&figures["flows"]) >= 64.0, "{figures}");
    assert_eq!(figures["right"], figures["sent"]);
    for (of, shares) in [("queues", 0.25), ("families", 0.2)] {
        let parts = figures[of].as_array().expect("an array");
        assert!(parts.len() == 2 && parts.iter().all(|part| number(&part["share"]) >= shares), "{figures}");
    }
}

#[test]
fn crossed_workers_are_seen() {
    let _alone = alone();
    let ended = ended(run(&["--for", "3", "--cross"]));
    assert_eq!(ended.code, Some(1), "{}{}", ended.stdout, ended.stderr);
    assert!(ended.stdout.contains("or from another CPU"), "{}", ended.stdout);
    assert!(!ended.stdout.contains("were wrong") && !ended.stdout.contains("not answered"), "{}", ended.stdout);
}

#[test]
fn bad_arguments_are_refused_in_a_sentence() {
    let _alone = alone();
    let zone = env::temp_dir().join(format!("run-{}.zone", process::id()));
    fs::write(&zone, "@ 3600 IN SOA ns h 1 2 3 4 5\n@ 3600 IN NS ns\nns 3600 IN A 192.0.2.300\n").expect("written");
    let broken = format!("example.org={}", zone.display());
    let line_3 = format!("{}:3", zone.display());
    for (arguments, code, part) in [
        (&["--queues", "two"][..], 1, "the lab needs a number of queues"),
        (&["--queues", "0"], 1, "1 to 4096 queues, not 0"),
        (&["--zone", "example.com"], 1, "NAME=FILE is expected"),
        (&["--zone", "example.com=/no/such/file"], 1, "/no/such/file"),
        (&["--zone", &broken], 1, &line_3),
        (&["--cpus", "1000"], 1, "CPU 1000"),
        (&["--iface", "no-such-nic"], 1, "no-such-nic"),
        (&["--for", "0"], 2, "--for"),
        (&["--iface", "lo", "--for", "3"], 2, "cannot be used with"),
        (&["--", "--no-such-flag"], 1, "--no-such-flag"),
    ] {
        let ended = ended(run(arguments));
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}{}", ended.stdout, ended.stderr);
        assert!(ended.stderr.contains(part), "{arguments:?}: {}", ended.stderr);
    }
    fs::remove_file(zone).expect("it is ours");
}

#[test]
fn a_signal_leaves_nothing() {
    let _alone = alone();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        let running = Running::start();
        let (namespaces, server) = (running.namespaces(), running.server());
        assert!(namespaces.iter().all(|namespace| namespace.exists()) && lives(server));
        let (code, stderr) = running.end(signal);
        assert_eq!(code, Some(1), "{signal}: {stderr}");
        assert!(!namespaces.iter().any(|namespace| namespace.exists()), "{signal}");
        assert!(!lives(server), "{signal}");
    }
}

#[test]
fn what_a_sigkill_leaves_goes_with_the_next_run() {
    let _alone = alone();
    let running = Running::start();
    let (namespaces, server) = (running.namespaces(), running.server());
    running.end(Signal::SIGKILL);
    assert!(namespaces.iter().all(|namespace| namespace.exists()) && lives(server));

    let ended = ended(run(&["--for", "1"]));
    assert!(ended.stdout.contains("removed the lab"), "{}", ended.stdout);
    assert_eq!(ended.code, Some(0), "{}{}", ended.stdout, ended.stderr);
    assert!(!namespaces.iter().any(|namespace| namespace.exists()));
    assert!(!lives(server));
}

#[test]
fn a_server_that_dies_ends_the_run() {
    let _alone = alone();
    let mut running = Running::start();
    let namespaces = running.namespaces();
    kill(running.server(), Signal::SIGKILL).expect("it runs");
    let killed = Instant::now();
    let (code, stderr) = running.wait();
    assert_eq!(code, Some(1), "{stderr}");
    assert!(stderr.contains("the server has ended by itself") && stderr.contains("SIGKILL"), "{stderr}");
    assert!(killed.elapsed() < Duration::from_secs(10), "{:?}", killed.elapsed());
    assert!(!namespaces.iter().any(|namespace| namespace.exists()));
}
