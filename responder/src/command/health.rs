//! `responder health`: whether a server answers, for routing daemons to announce its address or not.
//!
//! It is asked as anybody would ask it: over UDP, at each address that it serves, for the SOA record of a zone. On this machine that is the kernel path. What its
//! bypass does is the matter of `responder status`. An access list that drops queries from this machine's own addresses makes it look dead; one that refuses
//! them does not.

use std::{
    collections::BTreeSet,
    fmt, io,
    net::{SocketAddr, UdpSocket},
    path::Path,
    process::{Command, ExitCode, ExitStatus},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use domain::base::{MessageBuilder, Name, Rtype};

use crate::{
    cli::Health,
    control::{self, status::Status},
    kernel::on_this_machine,
};

/// How often what is known is told again.
const AGAIN: Duration = Duration::from_secs(10);
/// How long a command may take.
const HOOK_WITHIN: Duration = Duration::from_secs(5);
const NOERROR: u8 = 0;
const REFUSED: u8 = 5;

/// Says it once, or watches.
pub fn run(flags: &Health) -> Result<ExitCode> {
    let interval = Duration::from_millis(flags.interval_ms);
    if flags.watch {
        return watch(flags, interval);
    }
    let found = look(&flags.control, interval);
    println!("{found}");
    Ok(if matches!(found, Look::Healthy(_)) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn watch(flags: &Health, interval: Duration) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot watch for signals")?;
    }
    // What was last done about it, and when it is to be done again: the routing daemon may have been started since, or have failed.
    let mut told: Option<(bool, Instant)> = None;
    let mut failures = 0;
    while !stop.load(Relaxed) {
        let found = look(&flags.control, interval);
        failures = if matches!(found, Look::Silent(_)) { failures + 1 } else { 0 };
        let is_healthy = matches!(found, Look::Healthy(_));
        // One answer may be lost, of a server that was healthy.
        let is_sure = failures != 1 || told.is_none_or(|(was_healthy, _)| !was_healthy);
        let is_news = told.is_none_or(|(was_healthy, _)| was_healthy != is_healthy);
        if is_sure && (is_news || told.is_some_and(|(_, again_at)| Instant::now() >= again_at)) {
            if is_news {
                eprintln!("{found}");
            }
            let is_done = run_hook(if is_healthy { flags.up.as_deref() } else { flags.down.as_deref() });
            told = Some((is_healthy, Instant::now() + if is_done { AGAIN } else { interval }));
        }
        thread::sleep(interval);
    }
    // Nobody looks any more.
    run_hook(flags.down.as_deref());
    Ok(ExitCode::SUCCESS)
}

/// Runs a command and returns whether it succeeded. One that hangs must not keep the watch from looking.
fn run_hook(command: Option<&str>) -> bool {
    let Some(command) = command else { return true };
    let run = || -> io::Result<Option<ExitStatus>> {
        let mut child = Command::new("sh").args(["-c", command]).spawn()?;
        let deadline = Instant::now() + HOOK_WITHIN;
        while Instant::now() < deadline {
            if let Some(status) = child.try_wait()? {
                return Ok(Some(status));
            }
            thread::sleep(Duration::from_millis(5));
        }
        child.kill()?;
        child.wait()?;
        Ok(None)
    };
    match run() {
        Ok(Some(status)) if status.success() => return true,
        Ok(Some(status)) => eprintln!("warning: `{command}`: {status}"),
        Ok(None) => eprintln!("warning: `{command}` was ended: it took longer than {} s", HOOK_WITHIN.as_secs()),
        Err(error) => eprintln!("warning: cannot run `{command}`: {error}"),
    }
    false
}

/// What a look at the server shows.
enum Look {
    Healthy(String),
    /// It says itself that it is not to be asked, or is not there.
    Away(String),
    /// There was no answer in time.
    Silent(String),
}

impl fmt::Display for Look {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Healthy(said) => write!(out, "healthy: {said}"),
            Self::Away(why) | Self::Silent(why) => write!(out, "not healthy: {why}"),
        }
    }
}

fn look(control: &Path, within: Duration) -> Look {
    if !control::is_served(control) {
        return Look::Away(format!("no responder listens at {}", control.display()));
    }
    let status = control::ask_within(control, within).and_then(|text| Status::read(&text));
    match status {
        Ok(status) if status.draining => Look::Away("it is draining".to_owned()),
        Ok(status) => ask_all(&status, within).map_or_else(|error| Look::Silent(format!("{error:#}")), Look::Healthy),
        Err(error) => Look::Silent(format!("{error:#}")),
    }
}

/// Asks at each address.
fn ask_all(status: &Status, within: Duration) -> Result<String> {
    let workers = status.kernel_path.udp_workers.iter();
    let addresses: BTreeSet<SocketAddr> =
        workers.filter_map(|worker| worker.address.parse().ok()).map(on_this_machine).collect();
    ensure!(!addresses.is_empty(), "it serves no address");
    let Some(zone) = status.zones.first() else { return Ok(format!("service {}", status.service)) };
    for address in &addresses {
        let rcode = ask(*address, &zone.name, within)?;
        ensure!([NOERROR, REFUSED].contains(&rcode), "{address} answers RCODE {rcode} for {} SOA", zone.name);
    }
    let addresses: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    Ok(format!("answers for {} SOA at {}", zone.name, addresses.join(", ")))
}

/// The RCODE of the answer to a query for a zone's SOA record.
fn ask(address: SocketAddr, zone: &str, within: Duration) -> Result<u8> {
    let any: SocketAddr = if address.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let name: Name<Vec<u8>> = zone.parse().with_context(|| format!("{zone} is no name"))?;
    let mut query = MessageBuilder::new_vec().question();
    query.push((&name, Rtype::SOA)).context("the query does not fit")?;
    let query = query.finish();
    let exchange = || -> std::io::Result<Vec<u8>> {
        let socket = UdpSocket::bind(any)?;
        socket.connect(address)?;
        socket.set_read_timeout(Some(within))?;
        socket.send(&query)?;
        let mut reply = vec![0; 4096];
        let length = socket.recv(&mut reply)?;
        reply.truncate(length);
        Ok(reply)
    };
    let reply = exchange().with_context(|| format!("{address} does not answer"))?;
    match reply.get(..4) {
        Some([first, second, flags, rcode]) if [*first, *second] == query[..2] && flags & 0x80 != 0 => Ok(rcode & 15),
        _ => bail!("{address} answers what was not asked"),
    }
}
