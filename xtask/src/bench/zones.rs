//! `cargo xtask bench zones`: whether an answer costs the same in zones of any size, and how fast large zones are ready beside Knot DNS.
//!
//! Instructions are counted by callgrind, per answer, with one name or a million in the zone and with one zone or 100,000. Then zones are loaded
//! natively. Last, a zone of a million addresses is served by `responder` and by Knot in turn: time from the start to the first answer, and resident memory.

use std::{
    fmt::Write as _,
    fs,
    net::UdpSocket,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use super::{ANSWERS, LOOP, build, instructions};
use crate::setup;

const KINDS: [&str; 5] = ["exact", "exact-edns", "nxdomain", "wildcard", "127-labels"];
/// Beside what is needed to build and to count.
const KNOT: &[&str] = &["knot"];
const NAMES: usize = 1_000_000;
const ZONES: usize = 100_000;
/// Rounds of the servers in turn; the least time of each counts.
const ROUNDS: usize = 3;
const READY_WITHIN: Duration = Duration::from_secs(60);
/// `a0.example.com` A.
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x02a0\x07example\x03com\0\0\x01\0\x01";

/// Makes the zones, counts, loads, and compares.
pub fn run() -> anyhow::Result<()> {
    setup::packages(&[setup::BUILD, setup::BENCH, KNOT])?;
    let (bench, responder) = (build()?, setup::build_responder()?);
    let directory = setup::workspace().join("target/bench-zones");
    let sets = Sets::make(&bench, &directory)?;
    println!("{:<12} {:>10} {:>16} {:>16}", "instructions", "small", "1,000,000 names", "100,000 zones");
    for kind in KINDS {
        let none = instructions(&bench, &[LOOP, kind, ANSWERS])?;
        let mut line = format!("{kind:<12}");
        for (list, width) in [(&sets.small, 10), (&sets.names, 16), (&sets.zones, 16)] {
            let all = instructions(&bench, &[kind, ANSWERS, &list.to_string_lossy()])?;
            write!(line, " {:>width$}", all.saturating_sub(none) / 1000)?;
        }
        println!("{line}");
    }
    for list in [&sets.names, &sets.zones] {
        setup::execute(Command::new(&bench).arg("load").arg(list))?;
    }
    servers(&responder, &directory, &sets.file)
}

/// Lists of zones, each with the zone that is asked.
struct Sets {
    small: PathBuf,
    names: PathBuf,
    zones: PathBuf,
    /// The zone of a million names.
    file: PathBuf,
}

impl Sets {
    fn make(bench: &Path, directory: &Path) -> anyhow::Result<Self> {
        let asked = setup::output(Command::new(bench).arg("zone"))?;
        let many = directory.join("zones");
        fs::create_dir_all(&many).with_context(|| format!("making {}", many.display()))?;
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display())).map(|()| path)
        };
        let small = write("small.zone", &asked)?;
        let mut text = asked;
        for index in 0..NAMES {
            writeln!(text, "a{index} A 10.{}.{}.{}", index >> 16, index >> 8 & 255, index & 255)?;
        }
        let file = write("names.zone", &text)?;
        let line = |path: &Path| format!("example.com {}\n", path.display());
        let mut zones = line(&small);
        for index in 0..ZONES {
            let path = many.join(format!("{index}.zone"));
            let text = "$TTL 3600\n@ SOA ns1 host 1 7200 900 1209600 300\n@ NS ns1\nns1 A 192.0.2.1\nwww A 192.0.2.2\n";
            fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
            writeln!(zones, "zone{index}.example {}", path.display())?;
        }
        Ok(Self {
            small: write("small.list", &line(&small))?,
            names: write("names.list", &line(&file))?,
            zones: write("zones.list", &zones)?,
            file,
        })
    }
}

/// Starts each server in turn and prints its best round.
fn servers(responder: &Path, directory: &Path, file: &Path) -> anyhow::Result<()> {
    let knot = directory.join("knot");
    fs::create_dir_all(&knot).with_context(|| format!("making {}", knot.display()))?;
    let mut best = [(f64::INFINITY, 0); 2];
    for _ in 0..ROUNDS {
        for (index, best) in best.iter_mut().enumerate() {
            let port = free_port()?;
            let mut command = if index == 0 {
                let mut command = Command::new(responder);
                command.args(["serve", "--io", "socket", "--listen", &format!("127.0.0.1:{port}"), "--control"]);
                command.arg(directory.join("control")).arg("--zone").arg(format!("example.com={}", file.display()));
                command
            } else {
                let config = knot.join("knot.conf");
                let text = format!(
                    "server:\n  rundir: {0}\n  listen: 127.0.0.1@{port}\ndatabase:\n  storage: {0}\nzone:\n  - domain: example.com\n    \
                     file: {1}\n    zonefile-load: whole\n    journal-content: none\n",
                    knot.display(),
                    file.display()
                );
                fs::write(&config, text).with_context(|| format!("writing {}", config.display()))?;
                let mut command = Command::new("/usr/sbin/knotd");
                command.arg("-c").arg(&config);
                command
            };
            let (seconds, kilobytes) = ready(&mut command, port)?;
            if seconds < best.0 {
                *best = (seconds, kilobytes);
            }
        }
    }
    for (name, (seconds, kilobytes)) in ["responder", "Knot DNS"].iter().zip(best) {
        println!("{name:<10} ready in {seconds:.2} s, {} MB at the peak", kilobytes / 1000);
    }
    let [(ours, our_memory), (theirs, their_memory)] = best;
    println!("ratio      {:.2} of the time, {:.2} of the memory", ours / theirs, ratio(our_memory, their_memory));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "kilobytes of a process")]
fn ratio(one: u64, other: u64) -> f64 {
    one as f64 / other as f64
}

fn free_port() -> anyhow::Result<u16> {
    let socket = UdpSocket::bind("127.0.0.1:0").context("looking for a free port")?;
    Ok(socket.local_addr().context("looking for a free port")?.port())
}

/// A server that ends with this.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Seconds from the start to the first answer, and the most kilobytes that were resident until then.
fn ready(command: &mut Command, port: u16) -> anyhow::Result<(f64, u64)> {
    let start = Instant::now();
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut server = Running(command.spawn().with_context(|| format!("starting `{}`", setup::shown(command)))?);
    let socket = UdpSocket::bind("127.0.0.1:0").context("opening a socket")?;
    socket.connect(("127.0.0.1", port)).context("opening a socket")?;
    socket.set_read_timeout(Some(Duration::from_millis(5)))?;
    let mut reply = [0; 512];
    loop {
        // Refused as long as nobody listens.
        let _ = socket.send(QUERY);
        match socket.recv(&mut reply) {
            // NOERROR and an answer: Knot says SERVFAIL until the zone is there.
            Ok(length) if length > QUERY.len() && reply[3] & 0x0f == 0 && reply[7] > 0 => break,
            _ => thread::sleep(Duration::from_millis(2)),
        }
        ensure!(start.elapsed() < READY_WITHIN, "`{}` gave no answer", setup::shown(command));
        if let Some(status) = server.0.try_wait()? {
            bail!("`{}` has ended: {status}", setup::shown(command));
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let status = fs::read_to_string(format!("/proc/{}/status", server.0.id())).context("reading its memory")?;
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("the kernel gives no VmHWM")?;
    let kilobytes = peak.trim().trim_end_matches(" kB").parse().context("reading VmHWM")?;
    Ok((seconds, kilobytes))
}
