//! `cargo xtask conformance`: the same zones and the same queries for the responder, NSD, Knot and BIND, and every difference told.
//!
//! What the RFCs leave open is taken out first: order, compression, the case of names other than the question's. What then differs passes only
//! with an entry in [`allowed`], which says what allows it.
//!
//! All of it runs in a namespace of its own. The peers are Debian's packages; what runs of them elsewhere is left alone.

pub mod allowed;
pub mod compare;
pub mod data;
pub mod exchange;
pub mod generate;
pub mod message;
pub mod query;
pub mod random;
pub mod report;
pub mod servers;

use std::{
    fs,
    io::{IsTerminal as _, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use clap::Args;

use self::{
    compare::Reply,
    data::Data,
    message::{HEADER_LEN, Message, QR, TC, u16_at},
    query::{Queries, Query, TRANSFERS},
    report::Report,
    servers::{Running, SERVERS, Server, ZoneFile},
};
use crate::{
    lab::{self, Lab, Side},
    setup,
};

/// Queries that are asked before the replies are compared.
const BATCH: usize = 4000;

/// How often a good query without a reply is asked again, beyond what [`exchange`] does.
const TRIES: usize = 4;

/// Flags of `conformance`.
#[derive(Debug, Args)]
pub struct Flags {
    /// How many queries.
    #[arg(long, value_name = "N", default_value_t = 200_000)]
    queries: usize,
    /// What the generated zones and the queries are made from; the same again with the same number. By default it is the time.
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Zones from this directory, NAME.zone each, instead of the project's own.
    #[arg(long, value_name = "DIR")]
    zones: Option<PathBuf>,
    /// Write the figures and the unexplained differences to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// Sets up, asks and compares: a failure if there is a difference that nothing allows.
pub fn run(flags: &Flags, built: bool) -> anyhow::Result<ExitCode> {
    if !built {
        setup::packages(&[setup::BUILD, setup::LAB])?;
        setup::servers(setup::CONFORMANCE)?;
        setup::build_responder()?;
    }
    let responder = setup::responder()?;
    setup::as_root(&setup::arguments_when_built())?;
    let seed = flags.seed.unwrap_or_else(seed_of_now);
    println!("seed {seed}");

    let directory = setup::workspace().join("target/conformance");
    fresh(&directory)?;
    let zones = zones(flags, seed, &directory)?;
    let stop = lab::stop_on_signals()?;
    for stale in Lab::remove_stale()? {
        println!("removed the lab {stale}, which a process that was killed has left behind");
    }
    let lab = Lab::up(&lab::Options { queues: 1 })?;
    let mut running = Running::start(&lab, &responder, &zones, &directory)?;
    println!("the responder, NSD, Knot and BIND serve {} zones from {}", zones.len(), directory.display());
    let started = Instant::now();
    let report = lab.inside(Side::Server, || ask(&mut running, &zones, seed, flags.queries, &stop))??;
    drop(running);

    print!("{}", report.render(started.elapsed()));
    setup::write_json(flags.json.as_deref(), &report.json(started.elapsed()))?;
    Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks all four and compares, from within the namespace.
fn ask(
    running: &mut Running,
    zones: &[ZoneFile],
    seed: u64,
    count: usize,
    stop: &AtomicBool,
) -> anyhow::Result<Report> {
    let data = Data::transfer(zones)?;
    let mut queries = Queries::new(&data, seed, count);
    let mut report = Report::new(seed);
    let mut first_id = 0;
    let terminal = std::io::stderr().is_terminal();
    loop {
        let batch: Vec<Query> = queries.by_ref().take(BATCH).collect();
        if batch.is_empty() {
            break;
        }
        let (tcp, udp): (Vec<Query>, Vec<Query>) = batch.into_iter().partition(|query| query.tcp);
        let mut again = Vec::new();
        let mut replies = of_all(&udp, |server, packets| exchange::udp(server.address(), packets, first_id))?;
        ask_again(&udp, &mut replies)?;
        // Late replies must not be taken for those of the next batch.
        first_id = first_id.wrapping_add(u16::try_from(BATCH)?);
        for (query, replies) in udp.iter().zip(&replies) {
            report.add(query, replies, &data);
            let is_transfer = query.asked.as_ref().is_some_and(|asked| TRANSFERS.contains(&asked.qtype));
            if !is_transfer && replies.iter().any(|reply| matches!(reply, Some(Ok(reply)) if reply.is(TC))) {
                again.push(Query { tcp: true, ..query.clone() });
            }
        }
        again.extend(tcp);
        let replies = of_all(&again, |server, packets| exchange::tcp(server.address(), packets))?;
        for (query, replies) in again.iter().zip(&replies) {
            report.add(query, replies, &data);
        }
        running.check()?;
        let (done, unexplained) = report.progress();
        if terminal {
            eprint!("\r\x1b[K{done} queries, {unexplained} with unexplained differences");
            let _ = std::io::stderr().flush();
        }
        if stop.load(Ordering::Relaxed) {
            bail!("stopped by a signal after {done} queries, {unexplained} with unexplained differences");
        }
    }
    if terminal {
        eprint!("\r\x1b[K");
    }
    Ok(report)
}

/// On a busy machine packets are lost again and again. No server may leave a good query without a reply, and ours only a response or what
/// has no header.
fn ask_again(queries: &[Query], replies: &mut [[Reply; SERVERS]]) -> anyhow::Result<()> {
    for _ in 0..TRIES {
        let is_missing = |index: &usize| {
            let Query { asked, bytes, .. } = &queries[*index];
            let is_good = asked.as_ref().is_some_and(|asked| asked.qclass == 1 && !asked.odd);
            let is_ours = u16_at(bytes, 2).is_some_and(|bits| bits & QR == 0) && bytes.len() >= HEADER_LEN;
            let ours = &replies[*index][Server::Responder.index()];
            is_good && replies[*index].iter().any(Option::is_none) || is_ours && ours.is_none()
        };
        let missing: Vec<usize> = (0..queries.len()).filter(is_missing).collect();
        if missing.is_empty() {
            break;
        }
        let again: Vec<Query> = missing.iter().map(|index| queries[*index].clone()).collect();
        for (index, new) in
            missing.iter().zip(of_all(&again, |server, packets| exchange::udp(server.address(), packets, 0))?)
        {
            for (reply, new) in replies[*index].iter_mut().zip(new) {
                if reply.is_none() {
                    *reply = new;
                }
            }
        }
    }
    Ok(())
}

/// Asks the four at the same time: for each query its four replies.
fn of_all(
    queries: &[Query],
    exchange: impl Fn(Server, &[Vec<u8>]) -> anyhow::Result<Vec<Option<Vec<u8>>>> + Sync,
) -> anyhow::Result<Vec<[Reply; SERVERS]>> {
    let packets: Vec<Vec<u8>> = queries.iter().map(|query| query.bytes.clone()).collect();
    let (packets, exchange) = (&packets, &exchange);
    let replies = thread::scope(|scope| {
        let asking = Server::ALL.map(|server| {
            let ask = move || -> anyhow::Result<Vec<Reply>> {
                let replies = exchange(server, packets).with_context(|| format!("asking {}", server.name()))?;
                Ok(replies.into_iter().map(|reply| reply.map(|bytes| Message::read(&bytes))).collect())
            };
            scope.spawn(ask)
        });
        asking.map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    });
    let [ours, nsd, knot, bind] = replies;
    let peers = nsd?.into_iter().zip(knot?).zip(bind?);
    Ok(ours?.into_iter().zip(peers).map(|(ours, ((nsd, knot), bind))| [ours, nsd, knot, bind]).collect())
}

/// The zones to serve, in files of their own.
fn zones(flags: &Flags, seed: u64, directory: &Path) -> anyhow::Result<Vec<ZoneFile>> {
    let mut zones = Vec::new();
    match &flags.zones {
        Some(given) => {
            let given = fs::canonicalize(given).with_context(|| format!("`--zones {}`", given.display()))?;
            zones.extend(zones_in(&given)?);
        }
        None => {
            for own in ["examples/zones", "xtask/zones"] {
                zones.extend(zones_in(&setup::workspace().join(own))?);
            }
            zones.extend(generate::zones(seed, directory)?);
        }
    }
    ensure!(!zones.is_empty(), "there are no zones: files named NAME.zone are expected");
    Ok(zones)
}

/// Files named NAME.zone.
fn zones_in(directory: &Path) -> anyhow::Result<Vec<ZoneFile>> {
    let files = fs::read_dir(directory).with_context(|| format!("reading {}", directory.display()))?;
    let mut zones = Vec::new();
    for file in files {
        let path = file?.path();
        if let (Some(stem), Some("zone")) =
            (path.file_stem(), path.extension().and_then(|extension| extension.to_str()))
        {
            zones.push(ZoneFile { name: stem.to_string_lossy().into_owned(), path });
        }
    }
    zones.sort();
    Ok(zones)
}

/// An empty directory.
fn fresh(directory: &Path) -> anyhow::Result<()> {
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))?;
    }
    fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))
}

fn seed_of_now() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    now.as_secs()
}
