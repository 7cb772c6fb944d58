//! A server in a lab: started, asked for its status, ended.
//!
//! The environment variable RESPONDER names the binary; `cargo xtask test` sets it.

use std::{
    env,
    io::{BufRead as _, BufReader},
    net::IpAddr,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use xtask::lab::{Lab, Options, Side};

/// How long anything that is waited for may take. Generous: tests share few CPUs.
pub const PATIENCE: Duration = Duration::from_secs(20);

static CONTROLS: AtomicU32 = AtomicU32::new(0);

/// A lab with so many queues.
///
/// # Panics
/// When it cannot be built.
#[must_use]
pub fn lab(queues: u32) -> Lab {
    Lab::up(&Options { queues }).expect("a lab can be built: needs root")
}

/// The binary under test.
///
/// # Panics
/// When RESPONDER does not name it.
#[must_use]
pub fn responder() -> PathBuf {
    let path = env::var_os("RESPONDER")
        .map(PathBuf::from)
        .expect("RESPONDER names no binary: run `cargo xtask test`, or set it to the path of a built `responder`");
    assert!(path.is_file(), "RESPONDER={}: there is no such file", path.display());
    path
}

/// `--zone` and its value for one of the example zones.
#[must_use]
pub fn zone(name: &str) -> [String; 2] {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/zones");
    ["--zone".to_owned(), format!("{name}={}", examples.join(format!("{name}.zone")).display())]
}

/// `responder serve` on the server's interface, with example.com, a control socket of its own and these flags.
#[must_use]
pub fn serve(lab: &Lab, flags: &[&str]) -> (Command, PathBuf) {
    let control = lab.directory.join(format!("control-{}.sock", CONTROLS.fetch_add(1, Ordering::Relaxed)));
    (command(lab, "serve", &control, flags), control)
}

/// `responder upgrade` in the place of the server at this control socket, with the same and these flags.
#[must_use]
pub fn upgrade(lab: &Lab, control: &Path, flags: &[&str]) -> Command {
    command(lab, "upgrade", control, flags)
}

fn command(lab: &Lab, verb: &str, control: &Path, flags: &[&str]) -> Command {
    let mut command = lab.command(Side::Server, responder());
    command.args([verb, "--iface", lab.server.interface]).args(zone("example.com"));
    command.arg("--control").arg(control).args(flags);
    command
}

/// Runs a command that is expected to end by itself.
///
/// # Panics
/// When it has not ended in time.
pub fn ended(command: &mut Command) -> Output {
    let mut child =
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it can be started");
    let deadline = Instant::now() + PATIENCE;
    while child.try_wait().expect("it is our child").is_none() {
        if Instant::now() > deadline {
            let _ = child.kill();
            let output = child.wait_with_output().expect("it is our child");
            panic!("{command:?} does not end: {}", String::from_utf8_lossy(&output.stderr));
        }
        thread::sleep(Duration::from_millis(5));
    }
    child.wait_with_output().expect("it is our child")
}

/// Runs a command that must succeed: what it printed.
///
/// # Panics
/// When it fails.
pub fn printed(command: &mut Command) -> String {
    let output = ended(command);
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// Runs `ip` in a side's namespace.
pub fn ip(lab: &Lab, side: Side, arguments: &str) -> String {
    printed(lab.command(side, "ip").args(arguments.split(' ')))
}

/// The id of the XDP program on the server's interface.
///
/// # Panics
/// When `ip` prints something else than expected.
#[must_use]
pub fn xdp_program(lab: &Lab) -> Option<u64> {
    let text = ip(lab, Side::Server, &format!("-j link show dev {}", lab.server.interface));
    let links: Value = serde_json::from_str(&text).expect("ip prints JSON");
    let id = &links[0]["xdp"]["prog"]["id"];
    assert!(links[0]["ifname"].is_string(), "{text}");
    (!links[0]["xdp"].is_null()).then(|| id.as_u64().expect("a program has an id"))
}

/// Asks again and again until there is something: what it is.
///
/// # Panics
/// When there is nothing for too long.
pub fn eventually<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = ask() {
            return found;
        }
        assert!(Instant::now() < deadline, "never seen: {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A server that is ready. Killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    control: PathBuf,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Starts `responder serve` with these further flags, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    #[must_use]
    pub fn start(lab: &Lab, flags: &[&str]) -> Self {
        let (command, control) = serve(lab, flags);
        Self::ready(command, control)
    }

    /// Starts `responder upgrade` in the place of another server, and waits until it is ready.
    ///
    /// # Panics
    /// When it does not become ready.
    #[must_use]
    pub fn take_over(lab: &Lab, from: &Self, flags: &[&str]) -> Self {
        Self::ready(upgrade(lab, from.control(), flags), from.control.clone())
    }

    fn ready(mut command: Command, control: PathBuf) -> Self {
        let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the server can be started");
        let stderr = child.stderr.take().expect("it is a pipe");
        let lines = Arc::new(Mutex::new(vec![]));
        let kept = Arc::clone(&lines);
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let ready = line.starts_with("ready");
                kept.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                if ready {
                    let _ = tell.send(());
                }
            }
        });
        let server = Self { child, control, lines };
        assert!(told.recv_timeout(PATIENCE).is_ok(), "{command:?} is not ready:\n{}", server.stderr());
        server
    }

    /// What it has written to stderr.
    #[must_use]
    pub fn stderr(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// Its control socket.
    #[must_use]
    pub fn control(&self) -> &Path {
        &self.control
    }

    /// What `responder status --json` prints.
    ///
    /// # Panics
    /// When the server does not answer.
    #[must_use]
    pub fn status(&self) -> Value {
        let text = printed(Command::new(responder()).args(["status", "--json", "--control"]).arg(&self.control));
        serde_json::from_str(&text).expect("the status is JSON")
    }

    /// Replies of the bypass.
    #[must_use]
    pub fn bypass_answered(&self) -> u64 {
        sum(&self.status(), |queue| &queue["answered"])
    }

    /// Frames the bypass dropped for this reason.
    #[must_use]
    pub fn bypass_dropped(&self, reason: &str) -> u64 {
        sum(&self.status(), |queue| &queue["dropped"][reason])
    }

    /// Replies of the kernel path over UDP.
    #[must_use]
    pub fn kernel_answered(&self) -> u64 {
        count(&self.status()["kernel_path"]["udp"]["answered"])
    }

    /// Frames the XDP program gave this verdict.
    #[must_use]
    pub fn verdict(&self, name: &str) -> u64 {
        count(&self.status()["interfaces"][0]["verdicts"][name])
    }

    /// Sends it a signal.
    ///
    /// # Panics
    /// When it is gone.
    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).expect("a process id");
        kill(Pid::from_raw(pid), signal).expect("the server runs");
    }

    /// Sends it a signal and waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    pub fn end(&mut self, signal: Signal) -> ExitStatus {
        self.signal(signal);
        self.ended()
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    pub fn ended(&mut self) -> ExitStatus {
        eventually("the end of the server", || self.child.try_wait().expect("it is our child"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // After its end both do nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if thread::panicking() {
            eprintln!("the server's output:\n{}", self.stderr());
        }
    }
}

/// A counter of the status.
///
/// # Panics
/// When it is not there: a test that looks for a counter that does not exist could not fail.
#[must_use]
pub fn count(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no such counter in the status: {value}"))
}

/// A counter of all queues of the first interface.
pub fn sum(status: &Value, counter: impl Fn(&Value) -> &Value) -> u64 {
    let queues = status["interfaces"][0]["queues"].as_array().expect("the bypass runs");
    queues.iter().map(|queue| count(counter(queue))).sum()
}

/// The server's address of the same family as `like`.
#[must_use]
pub fn addresses(lab: &Lab) -> [(IpAddr, IpAddr); 2] {
    [(lab.client.v4.into(), lab.server.v4.into()), (lab.client.v6.into(), lab.server.v6.into())]
}
