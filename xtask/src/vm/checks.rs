//! What is shown on guests. Each check starts the server as it needs it; whoever runs the checks ends it.

mod addresses;
mod doctor;

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, anyhow, bail, ensure};
use serde_json::Value;

pub(super) use self::{
    addresses::{dummy_addresses, vlan, vlan_tags_stripped},
    doctor::doctor_finds_and_mends,
};
use super::{
    Bench, fetch,
    guest::{CPUS, Guest, NIC, Nic},
};
use crate::{
    ask::Report,
    lab::Side,
    query::{self, is_answer, query},
    setup::output,
};

/// Queries a second, and for how long, where no more is to be shown than that all are answered.
const RATE: u32 = 5_000;
const SECONDS: u64 = 3;
/// A queue that receives nothing has to be found within this time.
const DEAF_WITHIN: Duration = Duration::from_secs(5);
/// Busy polling that leaves replies behind has to be given up within this time; one round trip of an emulated NIC comes to it.
const STUCK_WITHIN: Duration = Duration::from_millis(200);

/// A guest, and what all guests share.
pub(super) struct Stage<'a> {
    pub(super) bench: &'a Bench,
    pub(super) guest: &'a Guest,
}

/// What the server has answered, by path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Answered {
    bypass: u64,
    kernel_path: u64,
}

impl Stage<'_> {
    fn serve(&self, arguments: &str) -> anyhow::Result<()> {
        self.guest.serve(&self.bench.zones, arguments).map(drop)
    }

    /// What the server says when it does not start.
    fn refused(&self, arguments: &str) -> anyhow::Result<String> {
        self.guest.start(&self.bench.zones, arguments)?;
        let started = Instant::now();
        while self.guest.serves()? {
            if started.elapsed() > Duration::from_secs(15) || self.guest.log()?.contains("ready") {
                bail!("the server started with {arguments}, which it had to refuse");
            }
            thread::sleep(Duration::from_millis(100));
        }
        self.guest.log()
    }

    /// Asks for a while; everything must be right, whatever the queues' shares.
    fn ask(&self, seconds: u64) -> anyhow::Result<String> {
        let report = self.report(seconds)?;
        let problems = report.problems();
        ensure!(problems.is_empty(), "{}", problems.join("; "));
        Ok(format!("{} of {} answered", report.right, report.sent))
    }

    fn report(&self, seconds: u64) -> anyhow::Result<Report> {
        self.bench.ask(self.guest, seconds, RATE)
    }

    /// The status' object for each queue.
    fn queues(&self) -> anyhow::Result<Vec<Value>> {
        let status = self.guest.status()?;
        status["interfaces"][0]["queues"].as_array().cloned().context("the status has no queues")
    }

    /// A text of each queue's status.
    fn texts(&self, field: &str) -> anyhow::Result<Vec<String>> {
        Ok(self.queues()?.iter().map(|queue| queue[field].as_str().unwrap_or_default().to_owned()).collect())
    }

    fn modes_are(&self, mode: &str) -> anyhow::Result<()> {
        let modes = self.texts("mode")?;
        let queues = usize::try_from(self.guest.options.queues)?;
        ensure!(
            modes.len() == queues && modes.iter().all(|got| got == mode),
            "the queues' modes are {modes:?}, not {mode}"
        );
        Ok(())
    }

    fn answered(&self) -> anyhow::Result<Answered> {
        let status = self.guest.status()?;
        let queues = status["interfaces"][0]["queues"].as_array().into_iter().flatten();
        Ok(Answered {
            bypass: queues.filter_map(|queue| queue["answered"].as_u64()).sum(),
            kernel_path: status["kernel_path"]["udp"]["answered"].as_u64().unwrap_or(0),
        })
    }

    /// Asks once from a port of its own: the round trip.
    fn ask_once(&self, server: IpAddr) -> anyhow::Result<Duration> {
        let client = if server.is_ipv4() { self.guest.lab.client.v4.into() } else { self.guest.lab.client.v6.into() };
        let asked = Instant::now();
        let reply = self
            .guest
            .lab
            .inside(Side::Client, || query::ask(&query::socket(client), SocketAddr::new(server, 53), &query(4242)))?;
        ensure!(reply.is_some_and(|reply| is_answer(&reply, 4242)), "{server} does not answer");
        Ok(asked.elapsed())
    }

    /// Has a processor handle all interrupts of a queue.
    fn move_interrupts(&self, queue: u32, cpu: u32) -> anyhow::Result<()> {
        let lines = format!("grep -E -- '(put\\.|x-){queue}$' /proc/interrupts | cut -d: -f1");
        self.guest
            .run(&format!("for irq in $({lines}); do echo {cpu} >/proc/irq/$irq/smp_affinity_list; done"))
            .map(drop)
    }

    /// What the kernel needs the NIC for: ARP and neighbour discovery, ping, and a TCP connection that carries a file.
    fn kernel_traffic(&self) -> anyhow::Result<()> {
        kernel_traffic(self.guest)
    }

    /// A line of the server's output that has all of these in it.
    fn warned(&self, parts: &[&str]) -> anyhow::Result<String> {
        let log = self.guest.log()?;
        let line = log.lines().find(|line| line.starts_with("warning") && parts.iter().all(|part| line.contains(part)));
        line.map(ToOwned::to_owned).with_context(|| format!("no warning names {parts:?}"))
    }
}

/// So large that its packets go round a ring.
const FILE_BYTES: usize = 8 << 20;

fn kernel_traffic(guest: &Guest) -> anyhow::Result<()> {
    let busybox = fetch::tools()?.busybox()?;
    let lab = &guest.lab;
    let in_client = |program: &str, arguments: &[&str]| {
        let mut command: Command = lab.command(Side::Client, program);
        output(command.args(arguments))
    };
    for address in [IpAddr::from(lab.server.v4), IpAddr::from(lab.server.v6)] {
        let address = address.to_string();
        // Forgotten, so that it is asked for again.
        in_client("ip", &["neigh", "flush", "to", &address])?;
        in_client(&busybox.to_string_lossy(), &["ping", "-c", "3", "-i", "0.1", "-W", "3", &address])
            .with_context(|| format!("ping {address}"))?;
    }
    let received = lab.inside(Side::Client, || -> anyhow::Result<usize> {
        let server = SocketAddr::new(lab.server.v4.into(), 80);
        let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(5)).context("connecting over TCP")?;
        stream.set_read_timeout(Some(Duration::from_secs(10)))?;
        stream.write_all(b"GET /file HTTP/1.0\r\n\r\n")?;
        let mut reply = Vec::new();
        stream.read_to_end(&mut reply).context("receiving a file over TCP")?;
        Ok(reply.len())
    })??;
    ensure!(received > FILE_BYTES, "only {received} bytes of a file came over TCP");
    Ok(())
}

/// Has the guest offer a file over TCP.
fn offer_file(guest: &Guest) -> anyhow::Result<()> {
    let megabytes = FILE_BYTES >> 20;
    guest
        .run(&format!(
            "[ -e /www/file ] || {{ mkdir /www; dd if=/dev/zero of=/www/file bs=1M count={megabytes}; httpd -p 80 -h /www; }}"
        ))
        .map(drop)
}

/// Queries and the kernel's own traffic, before, at the same time and after.
fn all_traffic(stage: &Stage<'_>, arguments: &str, mode: &str) -> anyhow::Result<String> {
    let guest = stage.guest;
    offer_file(guest)?;
    stage.kernel_traffic().context("before the server started")?;
    stage.serve(arguments)?;
    stage.modes_are(mode)?;
    let before = stage.ask(SECONDS)?;
    under_load(guest, || stage.kernel_traffic().context("while queries came in"))?;
    stage.ask(1)?;
    guest.end_server()?;
    guest.wait_for_carrier()?;
    stage.kernel_traffic().context("after the server ended")?;
    Ok(format!("{mode} on every queue, {before}; ping, ARP, ND and TCP before, during and after"))
}

/// Does something while queries come in from many ports, whose replies nobody looks at.
fn under_load<T>(guest: &Guest, work: impl FnOnce() -> anyhow::Result<T>) -> anyhow::Result<T> {
    let lab = &guest.lab;
    let ended = AtomicBool::new(false);
    let send = || {
        let sockets: Vec<_> = (0..16).map(|_| query::socket(lab.client.v4.into())).collect();
        let server = SocketAddr::new(lab.server.v4.into(), 53);
        while !ended.load(Ordering::Relaxed) {
            for socket in &sockets {
                // Refused while the server is away.
                let _ = socket.send_to(&query(1), server);
            }
            thread::sleep(Duration::from_millis(8));
        }
    };
    thread::scope(|scope| {
        let load = scope.spawn(|| lab.inside(Side::Client, send));
        let result = work();
        ended.store(true, Ordering::Relaxed);
        load.join().map_err(|_| anyhow!("sending queries has panicked"))??;
        result
    })
}

pub(super) fn zero_copy(stage: &Stage<'_>) -> anyhow::Result<String> {
    all_traffic(stage, "--zero-copy on", "zero-copy")
}

pub(super) fn copy(stage: &Stage<'_>) -> anyhow::Result<String> {
    all_traffic(stage, "--zero-copy off", "copy")
}

/// The driver takes the kernel's packets from the server's memory: a fill ring that nobody wakes ends ping and ssh, too.
pub(super) fn kernel_traffic_while_idle(stage: &Stage<'_>) -> anyhow::Result<String> {
    offer_file(stage.guest)?;
    for arguments in ["--zero-copy on", "--zero-copy on --busy-poll 50"] {
        stage.serve(arguments)?;
        thread::sleep(Duration::from_secs(2));
        for _ in 0..3 {
            stage.kernel_traffic().with_context(|| format!("idle with {arguments}"))?;
        }
        stage.guest.end_server()?;
        stage.guest.wait_for_carrier()?;
    }
    Ok("three files of 8 MB, ping, ARP and ND with no query at all, with and without busy polling".to_owned())
}

/// Where a reply's interrupt is not that of its query, the kernel may not send while the queue is polled. No reply may be late for that,
/// let alone lost: either the fill ring, which has the driver woken, takes the replies along, or busy polling is given up.
pub(super) fn busy_polling_with_vectors_apart(stage: &Stage<'_>) -> anyhow::Result<String> {
    stage.serve("--zero-copy on --busy-poll 50")?;
    let lab = &stage.guest.lab;
    let mut longest = Duration::ZERO;
    for _ in 0..8 {
        longest = longest.max(stage.ask_once(lab.server.v4.into())?).max(stage.ask_once(lab.server.v6.into())?);
    }
    ensure!(longest < STUCK_WITHIN, "a reply took {} ms", longest.as_millis());
    let asked = stage.ask(SECONDS)?;
    let given_up = stage.texts("busy_poll")?.iter().filter(|state| state.starts_with("given up")).count();
    let log = stage.guest.log()?;
    let warnings = log.lines().filter(|line| line.contains("busy polling is given up")).count();
    ensure!(warnings == given_up, "{warnings} warnings for {given_up} queues");
    Ok(format!("given up on {given_up} queues, the longest reply took {} ms, {asked}", longest.as_millis()))
}

pub(super) fn busy_polling_in_copy_mode(stage: &Stage<'_>) -> anyhow::Result<String> {
    busy_polling_works(stage, "--zero-copy off --busy-poll 50")
}

pub(super) fn busy_polling_with_paired_vectors(stage: &Stage<'_>) -> anyhow::Result<String> {
    busy_polling_works(stage, "--zero-copy on --busy-poll 50")
}

fn busy_polling_works(stage: &Stage<'_>, arguments: &str) -> anyhow::Result<String> {
    stage.serve(arguments)?;
    let asked = stage.ask(SECONDS)?;
    let states = stage.texts("busy_poll")?;
    ensure!(states.iter().all(|state| state == "on"), "busy polling is {states:?}");
    Ok(format!("on for each queue, {asked}"))
}

/// CASES 15: a link that goes down and comes back, with replies in the ring.
pub(super) fn link_goes_and_comes_back(stage: &Stage<'_>) -> anyhow::Result<String> {
    stage.serve("--zero-copy on")?;
    let guest = stage.guest;
    under_load(guest, || {
        (0..3).try_for_each(|_| {
            guest.monitor("set_link nic0 off")?;
            thread::sleep(Duration::from_millis(1500));
            guest.monitor("set_link nic0 on")?;
            thread::sleep(Duration::from_millis(1500));
            Ok(())
        })
    })?;
    guest.wait_for_carrier()?;
    // The driver itself may still be setting up its rings.
    thread::sleep(Duration::from_secs(1));
    let asked = stage.ask(SECONDS)?;
    let replaced: u64 = stage.queues()?.iter().filter_map(|queue| queue["reprovisioned"].as_u64()).sum();
    Ok(format!("after three bounces under load {asked}; {replaced} sockets replaced"))
}

pub(super) fn workers_follow_interrupts(stage: &Stage<'_>) -> anyhow::Result<String> {
    stage.serve("--zero-copy on")?;
    let cpus = |stage: &Stage<'_>| -> anyhow::Result<Vec<u64>> {
        Ok(stage.queues()?.iter().filter_map(|queue| queue["cpu"].as_u64()).collect())
    };
    let before = cpus(stage)?;
    stage.ask(SECONDS)?;
    // All of a queue's interrupts, so that its replies go with its queries.
    for (queue, cpu) in before.iter().rev().enumerate() {
        stage.move_interrupts(u32::try_from(queue)?, u32::try_from(*cpu)?)?;
    }
    let moved = Instant::now();
    let wanted: Vec<u64> = before.iter().rev().copied().collect();
    // The kernel moves an interrupt when it comes the next time.
    under_load(stage.guest, || {
        while cpus(stage)? != wanted {
            ensure!(
                moved.elapsed() < Duration::from_secs(5),
                "5 s after the interrupts moved, workers are on {:?}",
                cpus(stage)?
            );
            thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    })?;
    let took = moved.elapsed();
    let asked = stage.ask(SECONDS)?;
    Ok(format!("from CPUs {before:?} to {wanted:?} in {:.1} s, {asked}, matrix diagonal", took.as_secs_f64()))
}

/// A crash and a restart at once, again and again.
pub(super) fn killed_and_restarted(stage: &Stage<'_>) -> anyhow::Result<String> {
    const TIMES: usize = 10;
    let guest = stage.guest;
    stage.serve("--zero-copy on")?;
    under_load(guest, || {
        (1..=TIMES).try_for_each(|time| {
            guest.kill_server()?;
            stage.serve("--zero-copy on").with_context(|| format!("restart {time}"))
        })
    })?;
    stage.modes_are("zero-copy")?;
    let asked = stage.ask(SECONDS)?;
    guest.kill_server()?;
    thread::sleep(Duration::from_secs(1));
    let link = guest.run(&format!("/sbin/ip link show {NIC}"))?;
    ensure!(!link.contains("xdp"), "after a kill an XDP program is left: {link}");
    Ok(format!("{TIMES} times, zero-copy each time, then {asked}; nothing is left on the NIC"))
}

/// CASES 25: a NIC whose carrier goes when a program is attached and when a queue is bound.
pub(super) fn carrier_bounces(stage: &Stage<'_>) -> anyhow::Result<String> {
    let ups = |stage: &Stage<'_>| -> anyhow::Result<usize> {
        Ok(stage.guest.run("dmesg")?.lines().filter(|line| line.contains("Link is Up")).count())
    };
    let before = ups(stage)?;
    stage.serve("--zero-copy on")?;
    let bounces = ups(stage)? - before;
    ensure!(bounces > 0, "the carrier has not bounced, which this is to show");
    let asked = stage.ask(SECONDS)?;
    ensure!(ups(stage)? - before == bounces, "the carrier went again after the server said that it is ready");
    Ok(format!("the link came up {bounces} times until the server was ready, {asked}"))
}

/// CASES 3: the number of channels may be less than that of processors, or change on attach.
pub(super) fn all_channels_after_attach(stage: &Stage<'_>) -> anyhow::Result<String> {
    // With fewer processors than channels the driver leaves all interrupts where they happen to be.
    for queue in 0..stage.guest.options.queues {
        stage.move_interrupts(queue, queue % CPUS)?;
    }
    stage.serve("")?;
    let channels = stage.guest.run(&format!("ethtool -l {NIC}"))?;
    let combined = channels.lines().rev().find_map(|line| line.strip_prefix("Combined:")?.trim().parse::<usize>().ok());
    let combined = combined.context("ethtool names no channels")?;
    let workers = stage.queues()?.len();
    ensure!(workers == combined, "{workers} workers for {combined} channels");
    let asked = stage.ask(SECONDS)?;
    Ok(format!("{combined} channels, {CPUS} processors, {workers} workers, {asked}"))
}

pub(super) fn more_queues_than_cpus(stage: &Stage<'_>) -> anyhow::Result<String> {
    stage.serve("--zero-copy on")?;
    stage.modes_are("zero-copy")?;
    stage.warned(&["8 queues share 2 CPUs"])?;
    let asked = stage.ask(SECONDS)?;
    Ok(format!("8 workers on {CPUS} processors, {asked}, matrix diagonal"))
}

/// CASES 2: zero-copy refused with no reason, or silently replaced.
pub(super) fn zero_copy_refused(stage: &Stage<'_>) -> anyhow::Result<String> {
    let driver = match stage.guest.options.nic {
        Nic::Virtio => "virtio_net",
        Nic::Igb => "igb",
        Nic::Vmxnet3 => "vmxnet3",
    };
    let error = stage.refused("--zero-copy on")?;
    let sentence = error.lines().find(|line| line.starts_with("error")).context("no error is said")?;
    ensure!(
        sentence.contains("zero-copy") && sentence.contains(driver) && sentence.contains(&stage.guest.release),
        "the error names neither driver nor kernel: {sentence}"
    );
    stage.serve("--zero-copy auto")?;
    stage.modes_are("copy")?;
    let reasons = stage.texts("mode_reason")?;
    ensure!(reasons.iter().all(|reason| !reason.is_empty()), "no reason for copy mode: {reasons:?}");
    stage.warned(&["zero-copy", driver, &stage.guest.release])?;
    let asked = stage.ask(SECONDS)?;
    Ok(format!("`on` is an error, `auto` copies: {}; {asked}", reasons[0]))
}

pub(super) fn hash_without_ports(stage: &Stage<'_>) -> anyhow::Result<String> {
    stage.guest.hash_ports(false)?;
    stage.serve("--zero-copy on")?;
    let report = stage.report(SECONDS)?;
    // All flows of a family take one queue then, which is no fault of the server.
    let problems: Vec<String> = report.problems().into_iter().filter(|problem| !problem.contains(" had ")).collect();
    ensure!(problems.is_empty(), "{}", problems.join("; "));
    let used = report.queues.iter().filter(|share| share.right > 0).count();
    stage.guest.hash_ports(true)?;
    let asked = stage.ask(SECONDS)?;
    Ok(format!("flows on {used} queues without ports in the hash, diagonal; with them {asked}"))
}

/// Seen on igb with two queues and Linux 6.18: a queue binds with zero-copy and never receives.
pub(super) fn a_queue_that_never_receives(stage: &Stage<'_>) -> anyhow::Result<String> {
    stage.serve("")?;
    let asked = Instant::now();
    let served = under_load(stage.guest, || {
        while asked.elapsed() < 3 * DEAF_WITHIN {
            if stage.queues()?.iter().all(|queue| queue["received"].as_u64() > Some(0) && queue["mode"] != "none") {
                return Ok(Some(asked.elapsed()));
            }
            thread::sleep(Duration::from_millis(200));
        }
        Ok(None)
    })?;
    let served = served.context("queues that receive nothing were not found")?;
    let modes = stage.texts("mode")?;
    if modes.iter().any(|mode| mode != "zero-copy") {
        stage.warned(&["igb", &stage.guest.release])?;
    }
    ensure!(served < DEAF_WITHIN + Duration::from_secs(1), "it took {:.1} s", served.as_secs_f64());
    let answered = stage.ask(SECONDS)?;
    Ok(format!("every queue receives after {:.1} s, modes {modes:?}; then {answered}", served.as_secs_f64()))
}

/// CASES 18: the largest MTU that fits, and one more.
pub(super) fn mtu(stage: &Stage<'_>) -> anyhow::Result<String> {
    let guest = stage.guest;
    let lab = &guest.lab;
    let set = |mtu: u32| -> anyhow::Result<()> {
        output(lab.command(Side::Client, "ip").args(["link", "set", lab.client.interface, "mtu", &mtu.to_string()]))?;
        guest.run(&format!("/sbin/ip link set {NIC} mtu {mtu}"))?;
        guest.wait_for_carrier()
    };
    let largest = match guest.options.nic {
        Nic::Virtio => 3_506,
        Nic::Igb => 3_046,
        Nic::Vmxnet3 => 3_000,
    };
    set(largest)?;
    stage.serve("--zero-copy on")?;
    let asked = stage.ask(SECONDS)?;
    guest.end_server()?;
    guest.wait_for_carrier()?;
    set(largest + 1)?;
    let error = stage.refused("--zero-copy on")?;
    set(1500)?;
    let sentence = error.lines().find(|line| line.starts_with("error")).context("no error is said")?;
    ensure!(
        sentence.contains("MTU") && sentence.contains(&(largest + 1).to_string()),
        "the error does not name the MTU: {sentence}"
    );
    Ok(format!("with an MTU of {largest} {asked}; one more: {sentence}"))
}
