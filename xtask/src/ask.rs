//! The measuring client: asks real questions at a steady rate over many flows, and compares every reply with the zones.
//!
//! It is an open loop: queries leave at the planned rate whether replies come or not, in small batches with sleeps between them.
//! It is no load generator for finding limits: it uses plain sockets, a good part of a core at 100,000 queries a second.
//!
//! Half of the flows are IPv4, half IPv6. No two of them have the same port, so that the port alone tells the flow.

mod flow;
mod report;
mod variant;

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{IsTerminal as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::Context as _;
use serde_json::Value;

use self::{flow::Flow, variant::Variants};
pub use self::{
    flow::{Family, LOST_AFTER},
    report::{Fault, Report, Share},
};
use crate::{
    lab::{Lab, Side},
    matrix,
    observe::{self, Observer},
    oracle::Oracle,
};

/// Queries between two looks at the clock. Small beside the 256 slots of a veth queue, on which all of them may end up.
const BATCH: usize = 64;
/// How long to sleep when no query is due.
const PAUSE: Duration = Duration::from_millis(1);
/// When all flows were idle for longer, what was not sent is given up instead of being sent at once.
const BACKLOG: Duration = Duration::from_millis(20);
/// So long the first reply may take: addresses are resolved, and the server may have just started.
const FIRST_REPLY: Duration = Duration::from_secs(5);
/// Flows that are tried for each one that is wanted, so that queues have even shares.
const CANDIDATES: usize = 4;
const DNS_PORT: u16 = 53;

/// What to ask.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The zones the server has: name and file.
    pub zones: Vec<(String, PathBuf)>,
    /// The server's IPv4 address.
    pub server_v4: Ipv4Addr,
    /// The server's IPv6 address.
    pub server_v6: Ipv6Addr,
    /// How long; `None`: until told to stop.
    pub seconds: Option<u64>,
    /// Queries per second.
    pub rate: u32,
    /// Sockets to ask from.
    pub flows: usize,
}

impl Plan {
    /// Queries per second unless told otherwise.
    pub const RATE: u32 = 40_000;
    /// Flows unless told otherwise.
    pub const FLOWS: usize = 64;
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Time since the first query.
    pub elapsed: Duration,
    /// Queries sent.
    pub sent: u64,
    /// Queries answered right.
    pub right: u64,
    /// Queries answered wrong.
    pub wrong: u64,
    /// Queries not answered within [`LOST_AFTER`].
    pub lost: u64,
}

impl Progress {
    /// Renews the line that shows it, on a terminal.
    pub fn show(&self) {
        if std::io::stderr().is_terminal() {
            let Self { elapsed, sent, right, wrong, lost } = self;
            eprint!("\r\x1b[K{} s: {sent} asked, {right} right, {wrong} wrong, {lost} lost", elapsed.as_secs());
            // It is shown a second later anyway.
            let _ = std::io::stderr().flush();
        }
    }
}

/// What the server's machine tells.
pub struct Server<'a> {
    /// What `responder status --json` prints.
    pub status: &'a dyn Fn() -> anyhow::Result<Value>,
    /// Packets received on each queue, as the driver counts them.
    pub received: &'a dyn Fn() -> anyhow::Result<BTreeMap<u32, u64>>,
    /// Receive interrupts, where the observer cannot see the server's CPUs.
    pub interrupts: Option<&'a dyn Fn() -> anyhow::Result<matrix::Interrupts>>,
}

/// Asks until the plan's time is over or `stop` is set, and reports what came of it.
///
/// `progress` is called once a second and can end it with an error.
pub fn run(
    lab: &Lab,
    plan: &Plan,
    server: &Server<'_>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress) -> anyhow::Result<()>,
) -> anyhow::Result<Report> {
    let oracle = Oracle::load(&plan.zones)?;
    let mut variants = Variants::new(&oracle)?;
    let observer = lab.inside(Side::Client, || Observer::attach(lab.client.interface))??;
    let mut flows = open(lab, plan, server, variants.any())?;

    let interrupts = || server.interrupts.map(|interrupts| interrupts()).transpose();
    let status_before = (server.status)()?;
    let interrupts_before = interrupts()?;
    let seen_before = observer.read()?;
    let elapsed = ask(plan, &oracle, &mut variants, &mut flows, stop, progress)?;
    let seen = observe::since(&observer.read()?, &seen_before);
    let interrupts_after = interrupts()?;
    let status_after = (server.status)()?;

    let rx_queues: BTreeMap<u32, u32> =
        flows.iter().filter_map(|flow| Some((u32::from(flow.port), flow.rx_queue?))).collect();
    let mut matrix = matrix::measured(&seen, &rx_queues);
    if let (Some(before), Some(after)) = (interrupts_before, interrupts_after) {
        matrix = matrix::with_cpus(&matrix, &matrix::interrupted_cpus(&before, &after));
    }
    Report::new(plan, elapsed, &flows, variants, matrix, lab.queues, [&status_before, &status_after])
}

/// Opens flows until each of the server's queues has its share of both families, and lets each ask alone to see which queue that is.
///
/// The kernel spreads flows over queues by a hash of their ports, so that some more than needed are opened. The sockets are made in
/// the client's namespace, and stay there whichever thread uses them.
fn open(lab: &Lab, plan: &Plan, from: &Server<'_>, query: &[u8]) -> anyhow::Result<Vec<Flow>> {
    let servers: [IpAddr; 2] = [plan.server_v4.into(), plan.server_v6.into()];
    let share = plan.flows.div_ceil(servers.len() * lab.queues as usize);
    let (mut flows, mut spare) = (Vec::new(), Vec::new());
    let mut ports = BTreeSet::new();
    let mut shares = BTreeMap::new();
    for server in servers.into_iter().cycle().take(plan.flows * CANDIDATES) {
        if flows.len() >= plan.flows {
            break;
        }
        let mut flow = lab.inside(Side::Client, || Flow::open(SocketAddr::new(server, DNS_PORT), &mut ports))??;
        if flows.len() + spare.len() < servers.len() {
            // Of each family the first one.
            flow.ask_alone(query, 1, FIRST_REPLY)?;
        }
        flow.rx_queue = matrix::learn(|| flow.ask_alone(query, matrix::ALONE, LOST_AFTER), from.received)
            .with_context(|| format!("learning the RX queue of the flow from port {}", flow.port))?;
        let taken: &mut usize = shares.entry((flow.family, flow.rx_queue)).or_default();
        if flow.rx_queue.is_none() || *taken < share {
            *taken += 1;
            flows.push(flow);
        } else {
            spare.push(flow);
        }
    }
    // Where a queue gets no more flows, others have them.
    let missing = plan.flows.saturating_sub(flows.len());
    flows.extend(spare.into_iter().take(missing));
    Ok(flows)
}

/// The run itself: how long queries were sent.
fn ask(
    plan: &Plan,
    oracle: &Oracle,
    variants: &mut Variants,
    flows: &mut [Flow],
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress) -> anyhow::Result<()>,
) -> anyhow::Result<Duration> {
    for flow in &mut *flows {
        flow.forget()?;
    }
    let start = Instant::now();
    let end = plan.seconds.map(|seconds| start + Duration::from_secs(seconds));
    let backlog_max = u64::from(plan.rate) * as_millis(BACKLOG) / 1000 + 1;
    // Due are the queries of the time passed, less those given up.
    let (mut sent, mut given_up) = (0_u64, 0_u64);
    let mut next_progress = start + Duration::from_secs(1);
    let mut turn = 0;

    let elapsed = loop {
        let now = Instant::now();
        if stop.load(Ordering::Relaxed) || end.is_some_and(|end| now >= end) {
            break now - start;
        }
        let planned = as_micros(now - start) * u64::from(plan.rate) / 1_000_000;
        let mut due = planned.saturating_sub(sent + given_up);
        if due > backlog_max {
            given_up += due - backlog_max;
            due = backlog_max;
        }
        let batch = due.min(BATCH as u64);
        for _ in 0..batch {
            flows[turn].send(variants.next(), variants, now)?;
            turn = (turn + 1) % flows.len();
        }
        sent += batch;
        for flow in &mut *flows {
            flow.receive(oracle, variants, now)?;
        }
        if now >= next_progress {
            next_progress += Duration::from_secs(1);
            progress(&sum(flows, now - start))?;
        }
        if batch == due {
            thread::sleep(PAUSE);
        }
    };

    let drained = Instant::now() + LOST_AFTER;
    while Instant::now() < drained && flows.iter().any(Flow::is_waiting) {
        thread::sleep(PAUSE);
        let now = Instant::now();
        for flow in &mut *flows {
            flow.receive(oracle, variants, now)?;
        }
    }
    for flow in &mut *flows {
        flow.give_up();
    }
    // Whoever counts after sending has done so by then.
    thread::sleep(Duration::from_millis(100));
    Ok(elapsed)
}

fn sum(flows: &[Flow], elapsed: Duration) -> Progress {
    let mut sum = Progress { elapsed, ..Progress::default() };
    for flow in flows {
        sum.sent += flow.counts.sent;
        sum.right += flow.counts.right;
        sum.wrong += flow.counts.wrong;
        sum.lost += flow.counts.lost;
    }
    sum
}

fn as_micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn as_millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
