//! The package in a clean Debian: a minimal system in a directory, and the service in a lab's namespace, as restricted as its unit says.
//!
//! The file tree is read-only but for /run/responder and /tmp, in a mount namespace that ends with the service. No service manager runs: its part is taken by
//! `unit`, dpkg and a socket for sd_notify(3).

use std::{
    env, fs,
    os::unix::net::UnixDatagram,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::unit::Unit;
use crate::{
    lab::{self, Lab, Options, Side},
    setup,
};

const UNIT: &str = "usr/lib/systemd/system/responder.service";
/// What a package of ours must bring.
const FILES: &[&str] = &[
    "usr/bin/responder",
    UNIT,
    "etc/responder/responder.toml",
    "etc/responder/zones/README",
    "usr/share/man/man1/responder.1.gz",
    "usr/share/man/man1/responder-serve.1.gz",
    "usr/share/bash-completion/completions/responder",
    "usr/share/zsh/vendor-completions/_responder",
    "usr/share/fish/vendor_completions.d/responder.fish",
    "usr/share/doc/responder/examples/responder.toml",
];
const WITHIN: Duration = Duration::from_secs(30);

/// Installs the package, serves from it, reloads, removes it.
pub(super) fn test(package: &Path) -> anyhow::Result<()> {
    let root = clean_system()?;
    install(&root, package)?;
    let placeholder = in_root(&root, &["responder", "check", "--config", "/etc/responder/responder.toml"]).output()?;
    let said = String::from_utf8_lossy(&placeholder.stderr).into_owned();
    ensure!(!placeholder.status.success() && said.contains("--io xdp needs an interface"), "the placeholder: {said}");
    println!("as installed: {}", said.trim());
    verify(&root.join(UNIT))?;
    let zones = root.join("etc/responder/zones");
    let zone = setup::workspace().join("examples/zones/example.com.zone");
    fs::copy(zone, zones.join("example.com.zone")).context("copying a zone")?;

    let stop = lab::stop_on_signals()?;
    let lab = Lab::up(&Options { queues: 2 })?;
    let file = root.join("etc/responder/responder.toml");
    let text = fs::read_to_string(&file)?;
    let named = text.replace("# interfaces = [\"eth0\"]", &format!("interfaces = [\"{}\"]", lab.server.interface));
    ensure!(named != text, "{} has no place for an interface", file.display());
    fs::write(&file, named)?;

    let mut service = Service::start(&lab, &root, stop)?;
    let ready = service.hears("READY=1")?;
    println!("the unit's restrictions applied: {}", ready.replace('\n', ", "));
    service.hears("WATCHDOG=1")?;
    service.check_confined()?;
    for transport in ["+notcp", "+tcp"] {
        let server = format!("@{}", lab.server.v4);
        let mut dig = lab.command(Side::Client, "dig");
        let answer = setup::output(dig.args([&server, "www.example.com", "A", "+short", "+tries=1", transport]))?;
        ensure!(answer.contains("192.0.2.80"), "dig {transport}: {answer:?}");
        println!("dig {transport}: {}", answer.trim().replace('\n', " "));
    }
    println!("{}", service.responder(&["status"])?.trim());
    println!("{}", service.responder(&["reload"])?.trim());
    service.hears("RELOADING=1")?;
    service.hears("READY=1")?;
    service.stop()?;
    println!("stopped by SIGTERM, and said so");
    drop(lab);

    setup::execute(in_root(&root, &["dpkg", "--purge", "responder"]).stdout(Stdio::null()))?;
    ensure!(!root.join("usr/bin/responder").exists() && !file.exists(), "something stays after a purge");
    fs::remove_dir_all(zones).context("removing the zone")?;
    println!("removed");
    Ok(())
}

/// A minimal Debian of the release that this is, made once.
fn clean_system() -> anyhow::Result<PathBuf> {
    let root = setup::target()?.join("debian-root");
    if root.join("var/lib/dpkg/status").is_file() && root.join("complete").is_file() {
        return Ok(root);
    }
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.context("/etc/os-release names no release of Debian")?;
    println!("making a minimal Debian {name} in {}", root.display());
    let mut make = Command::new("debootstrap");
    setup::execute(make.args(["--variant=minbase", name]).arg(&root).stdout(Stdio::null()))?;
    fs::write(root.join("complete"), "")?;
    Ok(root)
}

/// The package with what it depends on.
fn install(root: &Path, package: &Path) -> anyhow::Result<()> {
    // A run that was stopped in between has left one.
    let _ = in_root(root, &["dpkg", "--purge", "responder"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    fs::copy(package, root.join("responder.deb")).with_context(|| format!("copying {}", package.display()))?;
    if in_root(root, &["dpkg", "--install", "/responder.deb"])
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .status()?
        .success()
    {
        println!("installed {}", package.display());
    } else {
        // dpkg has said what is missing: its libraries, at the first time.
        let mut apt =
            in_root(root, &["apt-get", "install", "--yes", "--quiet", "--fix-broken", "--no-install-recommends"]);
        setup::execute(apt.env("DEBIAN_FRONTEND", "noninteractive"))?;
    }
    for file in FILES {
        ensure!(root.join(file).is_file(), "the package has no /{file}");
    }
    Ok(())
}

/// systemd's own look at the unit: a setting that it does not know is a warning there and nothing at all here.
fn verify(unit: &Path) -> anyhow::Result<()> {
    let text = fs::read_to_string(unit).with_context(|| format!("reading {}", unit.display()))?;
    let copy = setup::target()?.join("responder.service");
    // The binary is in another root.
    fs::write(&copy, text.replace("/usr/bin/responder", "/bin/true"))?;
    let output = Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&copy).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success() && !said.contains("responder.service"), "systemd-analyze verify: {said}");
    Ok(())
}

fn in_root(root: &Path, command: &[&str]) -> Command {
    let mut run = Command::new("chroot");
    run.arg(root).args(command).env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    run
}

/// The service, run as its unit says.
struct Service {
    child: Child,
    manager: UnixDatagram,
    root: PathBuf,
    /// A signal has come.
    stop: Arc<AtomicBool>,
}

impl Service {
    fn start(lab: &Lab, root: &Path, stop: Arc<AtomicBool>) -> anyhow::Result<Self> {
        let unit = Unit::read(&root.join(UNIT))?;
        ensure!(
            unit.word("ProtectSystem")? == "strict" && unit.word("RuntimeDirectory")? == "responder",
            "the unit's file tree"
        );
        let directory = root.join("run/responder");
        fs::create_dir_all(&directory)?;
        let socket = directory.join("notify");
        let _none_yet = fs::remove_file(&socket);
        let manager = UnixDatagram::bind(&socket).with_context(|| format!("listening at {}", socket.display()))?;
        manager.set_read_timeout(Some(Duration::from_secs(1)))?;
        setup::execute(&mut in_root(root, &["chown", "-R", "responder:responder", "/run/responder"]))?;
        // A bind mount of itself can be made read-only; /run/responder and /tmp are put over it as they are.
        let mounts = "mount --bind \"$0\" \"$0\"; mount --bind \"$0/run/responder\" \"$0/run/responder\"; mount -t tmpfs tmpfs \"$0/tmp\"
            mount -t proc -o hidepid=invisible proc \"$0/proc\"; mount -t sysfs -o ro sysfs \"$0/sys\"; mount -t tmpfs -o ro tmpfs \"$0/home\"
            mount -o remount,bind,ro \"$0\"; exec \"$@\"";
        let mut command = lab.command(Side::Server, "unshare");
        command.args(["--mount", "--propagation", "private", "sh", "-ec", mounts]).arg(root);
        command.arg(env::current_exe()?).args(["package", "confined"]).arg(root.join(UNIT)).arg(root);
        let child = command
            .args(unit.words("ExecStart")?)
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .env("NOTIFY_SOCKET", "/run/responder/notify")
            .env("WATCHDOG_USEC", "2000000")
            .spawn()
            .context("starting the service")?;
        Ok(Self { child, manager, root: root.to_owned(), stop })
    }

    /// Waits for a message that begins like this.
    fn hears(&mut self, expected: &str) -> anyhow::Result<String> {
        let deadline = Instant::now() + WITHIN;
        while Instant::now() < deadline {
            ensure!(!self.stop.load(Relaxed), "stopped by a signal");
            let mut message = [0; 512];
            if let Ok(length) = self.manager.recv(&mut message) {
                let text = String::from_utf8_lossy(&message[..length]).trim().to_owned();
                if text.starts_with(expected) {
                    return Ok(text);
                }
            } else if let Some(status) = self.child.try_wait()? {
                bail!("the service ended before {expected}: {status}");
            }
        }
        bail!("the service did not say {expected}")
    }

    /// The restrictions are there, and with them the server's own.
    fn check_confined(&self) -> anyhow::Result<()> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let field =
            |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
        // NET_BIND_SERVICE, NET_RAW and IPC_LOCK are left of those and NET_ADMIN, PERFMON and BPF; two filters, the unit's and its own.
        let expected = [
            ("CapEff", "0000000000006400"),
            ("CapBnd", "000000c000007400"),
            ("CapAmb", "0000000000000000"),
            ("NoNewPrivs", "1"),
            ("Seccomp_filters", "2"),
        ];
        for (name, value) in expected {
            ensure!(field(name) == Some(value), "{name} of the service is {:?}, expected {value}", field(name));
        }
        let mounts = fs::read_to_string(format!("/proc/{}/mounts", self.child.id()))?;
        let root = mounts
            .lines()
            .filter_map(|line| line.split(' ').nth(1).zip(line.split(' ').nth(3)))
            .rfind(|(at, _)| *at == "/");
        ensure!(
            root.is_some_and(|(_, options)| options.starts_with("ro")),
            "the service's file tree is not read-only: {root:?}"
        );
        Ok(())
    }

    /// A command beside the service, as root.
    fn responder(&self, arguments: &[&str]) -> anyhow::Result<String> {
        setup::output(&mut in_root(&self.root, &[&["responder"], arguments].concat()))
    }

    fn stop(mut self) -> anyhow::Result<()> {
        self.signal(Signal::SIGTERM)?;
        self.hears("STOPPING=1")?;
        let status = self.child.wait()?;
        ensure!(status.success(), "the service ended with {status}");
        Ok(())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.child.id())?), signal)?)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // It has ended already, unless something went wrong.
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
