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

use super::{
    ANSWERS, Bench, LOOP, Output, instructions, per_answer,
    sheet::{Bound, Shape, Sheet, number},
};
use crate::setup;

const KINDS: [&str; 5] = ["exact", "exact-edns", "nxdomain", "wildcard", "127-labels"];
const NAMES: usize = 1_000_000;
const ZONES: usize = 100_000;
const OURS: &str = "responder";
const PEER: &str = "Knot";
const READY: &str = "at the first answer";
const READY_WITHIN: Duration = Duration::from_secs(60);
/// `a0.example.com` A.
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x02a0\x07example\x03com\0\0\x01\0\x01";

/// Makes the zones, counts, loads, and compares.
pub(super) fn run(bench: &Bench<'_>) -> anyhow::Result<Output> {
    let respond = bench.respond()?;
    let directory = setup::workspace().join("target/bench-zones");
    let (names, zones) = if bench.quick { (NAMES / 100, ZONES / 1000) } else { (NAMES, ZONES) };
    let sets = Sets::make(respond, &directory, names, zones)?;
    let mut counted = Sheet::new("Instructions of an answer", "instructions", Shape::Bars);
    let columns = [
        "a small zone".to_owned(),
        format!("{} names", number(names as f64)),
        format!("{} zones", number(zones as f64)),
    ];
    bench.once(if bench.quick { &KINDS[1..2] } else { &KINDS }, "instructions", |kind| {
        let none = instructions(respond, &[LOOP, kind, ANSWERS])?;
        // Beside each other: what else runs does not change a count.
        let all = thread::scope(|scope| {
            [&sets.small, &sets.names, &sets.zones]
                .map(|list| scope.spawn(move || instructions(respond, &[kind, ANSWERS, &list.to_string_lossy()])))
                .map(|counting| counting.join().expect("a panic has been reported"))
        });
        for (all, column) in all.into_iter().zip(&columns) {
            counted.add(kind, column, per_answer(all?, none)?);
        }
        Ok(())
    })?;
    let mut says = Vec::new();
    for list in [&sets.names, &sets.zones] {
        says.push(setup::output(Command::new(respond).arg("load").arg(list))?.trim().to_owned());
    }
    let (time, memory) = servers(bench, &directory, &sets.file)?;
    for (sheet, bound) in [(&time, 0.5), (&memory, 0.6)] {
        says.extend(sheet.compare(READY, OURS, PEER).map(|ratio| ratio.says(Some(Bound::AtMost(bound)))));
    }
    let words = format!(
        "{} Our time until a zone of {} addresses is served is {}; our memory is {}.",
        KINDS
            .iter()
            .filter_map(|kind| {
                let counts: Option<Vec<String>> =
                    columns.iter().map(|column| counted.median(kind, column).map(number)).collect();
                Some(format!("An answer of the kind {kind} takes {} instructions.", counts?.join(", ")))
            })
            .collect::<Vec<_>>()
            .join(" "),
        number(names as f64),
        time.words(READY, OURS, PEER),
        memory.words(READY, OURS, PEER),
    );
    Ok(Output {
        about: format!(
            "The same instructions in a small zone, in one of {} names, and in the small one among {} others. Then a zone of {} addresses is served by our server and by \
             Knot in turn: time from the start to the first answer, and the most memory that was resident until then.",
            number(names as f64),
            number(zones as f64),
            number(names as f64)
        ),
        sheets: vec![counted, time, memory],
        rivals: vec![(OURS, PEER)],
        words,
        says,
    })
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
    fn make(bench: &Path, directory: &Path, count_of_names: usize, count_of_zones: usize) -> anyhow::Result<Self> {
        let asked = setup::output(Command::new(bench).arg("zone"))?;
        let many = directory.join("zones");
        fs::create_dir_all(&many).with_context(|| format!("making {}", many.display()))?;
        let write = |name: &str, text: &str| {
            let path = directory.join(name);
            fs::write(&path, text).with_context(|| format!("writing {}", path.display())).map(|()| path)
        };
        let small = write("small.zone", &asked)?;
        let mut text = asked;
        for index in 0..count_of_names {
            writeln!(text, "a{index} A 10.{}.{}.{}", index >> 16, index >> 8 & 255, index & 255)?;
        }
        let file = write("names.zone", &text)?;
        let line = |path: &Path| format!("example.com {}\n", path.display());
        let mut zones = line(&small);
        for index in 0..count_of_zones {
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

/// Starts each server in turn: seconds and megabytes.
fn servers(bench: &Bench<'_>, directory: &Path, file: &Path) -> anyhow::Result<(Sheet, Sheet)> {
    let knot = directory.join("knot");
    fs::create_dir_all(&knot).with_context(|| format!("making {}", knot.display()))?;
    let mut time = Sheet::new("Ready", "s", Shape::Bars);
    let mut memory = Sheet::new("Memory", "MB", Shape::Bars);
    bench.rounds(&[OURS, PEER], "ready with a large zone", |name| {
        let port = free_port()?;
        let mut command = if name == OURS {
            let mut command = Command::new(bench.responder);
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
        time.add(name, READY, seconds);
        memory.add(name, READY, kilobytes as f64 / 1000.0);
        Ok(())
    })?;
    Ok((time, memory))
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
