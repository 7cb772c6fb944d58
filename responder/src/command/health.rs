//! `responder health`: whether a server answers, for routing daemons to announce its address or not.
//!
//! It is asked as anybody would ask it: over UDP, at an address that it serves, for the SOA record of a zone. On this machine that is the kernel path. What its
//! bypass does is the matter of `responder status`.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    path::Path,
    process::{Command, ExitCode},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use domain::base::{MessageBuilder, Name, Rtype};

use crate::{
    cli::Health,
    control::{self, status::Status},
};

/// Says it once, or watches.
pub fn run(flags: &Health) -> Result<ExitCode> {
    let interval = Duration::from_millis(flags.interval_ms);
    if flags.watch {
        return watch(flags, interval);
    }
    match look(&flags.control, interval) {
        Ok(said) => {
            println!("healthy: {said}");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            println!("not healthy: {error:#}");
            Ok(ExitCode::FAILURE)
        }
    }
}

fn watch(flags: &Health, interval: Duration) -> Result<ExitCode> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&stop)).context("cannot watch for signals")?;
    }
    let mut was_healthy = None;
    while !stop.load(Relaxed) {
        let found = look(&flags.control, interval);
        if was_healthy != Some(found.is_ok()) {
            was_healthy = Some(found.is_ok());
            match found {
                Ok(said) => {
                    eprintln!("healthy: {said}");
                    run_hook(flags.up.as_deref());
                }
                Err(error) => {
                    eprintln!("not healthy: {error:#}");
                    run_hook(flags.down.as_deref());
                }
            }
        }
        thread::sleep(interval);
    }
    // Nobody looks any more.
    run_hook(flags.down.as_deref());
    Ok(ExitCode::SUCCESS)
}

fn run_hook(command: Option<&str>) {
    let Some(command) = command else { return };
    match Command::new("sh").args(["-c", command]).status() {
        Ok(status) if status.success() => {}
        Ok(status) => eprintln!("warning: `{command}`: {status}"),
        Err(error) => eprintln!("warning: cannot run `{command}`: {error}"),
    }
}

/// What shows that the server is healthy, or why it is not.
fn look(control: &Path, within: Duration) -> Result<String> {
    let status: Status =
        serde_json::from_str(&control::ask(control)?).context("the server's status is of another version")?;
    ensure!(!status.draining, "it is draining");
    let served = status.kernel_path.udp_workers.first().context("it serves no address")?;
    let address = local(served.address.parse().with_context(|| format!("{} is no address", served.address))?);
    let Some(zone) = status.zones.first() else {
        return Ok(format!("{} serves no zone that could be asked for", status.service));
    };
    let rcode = ask(address, &zone.name, within)?;
    ensure!(rcode == 0, "{address} answers RCODE {rcode} for {} SOA", zone.name);
    Ok(format!("{address} answers for {} SOA", zone.name))
}

/// Where a server that listens there can be asked on this machine.
fn local(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
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
