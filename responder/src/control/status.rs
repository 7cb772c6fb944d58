//! The status document: what `responder status --json` prints and the tables are made from. All counts are totals since the start.

mod traffic;
mod workers;

use std::{collections::BTreeMap, fmt::Write as _};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

pub use traffic::Traffic;
pub use workers::{Place, Worker};

use crate::sys::XdpStatistics;

/// A running server.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Status {
    /// Version of the server.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Seconds since it began to serve.
    pub uptime_s: f64,
    /// `xdp` or `socket`.
    pub io: String,
    /// `dns`, `echo` or `sink`.
    pub service: String,
    /// The user that it runs as.
    #[serde(default)]
    pub user: String,
    /// The capabilities that its control thread keeps; its other threads have none.
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Whether system calls are restricted.
    #[serde(default)]
    pub sandbox: bool,
    /// Requests at the control socket that were none.
    #[serde(default)]
    pub control_refused: u64,
    /// It is about to end, and asks to be asked no more.
    pub draining: bool,
    /// The zones served.
    pub zones: Vec<Zone>,
    /// The interfaces with a bypass.
    pub interfaces: Vec<Interface>,
    /// Kernel sockets.
    pub kernel_path: KernelPath,
}

/// A zone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Zone {
    /// Its name.
    pub name: String,
    /// The serial number of its SOA.
    pub serial: u32,
    /// Names that own records.
    pub names: usize,
    /// Records.
    pub records: usize,
}

/// The bypass of one interface.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its driver.
    pub driver: String,
    /// The kernel's release.
    pub kernel: String,
    /// How the XDP program is attached: `native`, `generic`, or `detached`.
    pub xdp_mode: String,
    /// Why the bypass has left the interface, whose queries the kernel path answers meanwhile, and what it waits for.
    pub waits_for: Option<String>,
    /// The NIC takes the tags off packets of VLANs, so that the kernel path alone answers those.
    pub vlan_stripping: bool,
    /// The queues that are served.
    pub queues: Vec<Queue>,
    /// The receive queues that are not, and why.
    pub queues_without_worker: Vec<Unserved>,
    /// What the XDP program decided, in frames.
    pub verdicts: BTreeMap<String, u64>,
    /// Where replies went, as observed.
    pub matrix: Vec<Cell>,
}

/// One queue and its worker.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Queue {
    /// Its number.
    pub queue: u32,
    /// The CPU its worker is pinned to.
    pub cpu: usize,
    /// The worker's thread id.
    pub thread: i32,
    /// `zero-copy` or `copy`; `none` while it has no socket.
    pub mode: String,
    /// Why it is `copy` though zero-copy was asked for.
    pub mode_reason: Option<String>,
    /// Replies that one system call sends in copy mode, at most.
    pub tx_budget: Option<u32>,
    /// `on`, `off`, `no NAPI id` where the driver gives the kernel nothing to poll, or `given up: ` and why.
    pub busy_poll: String,
    /// Frames taken from the RX ring.
    pub received: u64,
    /// Replies put into the TX ring.
    pub answered: u64,
    /// Frames dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Replies over the rate limit that went out empty with TC.
    #[serde(default)]
    pub limited_slipped: u64,
    /// What the kernel dropped or could not do, in frames.
    pub kernel: XdpStatistics,
    /// Batches; `received / batches` is the mean batch size.
    pub batches: u64,
    /// Times the kernel left replies unsent although it was asked to send them.
    pub tx_stalls: u64,
    /// How often its socket was replaced since it was stuck.
    pub reprovisioned: u64,
    /// Why it was replaced the last time.
    pub reprovision_reason: Option<String>,
    /// What its queries and replies were like.
    #[serde(default)]
    pub traffic: Traffic,
}

/// A receive queue that no worker serves.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Unserved {
    /// Its number.
    pub queue: u32,
    /// Why.
    pub reason: String,
}

/// Replies to queries of one RX queue that left by one TX queue from one CPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cell {
    /// Where the queries came in.
    pub rx_queue: u32,
    /// Where the replies went out.
    pub tx_queue: u32,
    /// The CPU they were sent from.
    pub tx_cpu: usize,
    /// How many.
    pub frames: u64,
}

/// Kernel sockets.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct KernelPath {
    /// UDP sockets.
    pub udp: Path,
    /// TCP sockets.
    pub tcp: Path,
    /// The threads that serve UDP now. Those of addresses that are gone count only in `udp`.
    #[serde(default)]
    pub udp_workers: Vec<UdpWorker>,
}

/// A thread of the kernel path.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct UdpWorker {
    /// The address that it serves.
    pub address: String,
    /// The CPU it is pinned to.
    pub cpu: usize,
    /// Its thread id.
    pub thread: i32,
    /// What it has done.
    pub counts: Path,
}

/// One transport of the kernel path, or one thread of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Path {
    /// Connections accepted; 0 for UDP.
    pub connections: u64,
    /// Messages received.
    pub received: u64,
    /// Messages answered.
    pub answered: u64,
    /// Messages dropped, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Replies over the rate limit that went out empty with TC.
    #[serde(default)]
    pub limited_slipped: u64,
    /// Batches; over TCP each message is one.
    #[serde(default)]
    pub batches: u64,
    /// What the messages and their replies were like.
    #[serde(default)]
    pub traffic: Traffic,
}

impl Status {
    /// Reads the document that the control socket sends.
    pub fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).context("the server's status cannot be read: is it another version of responder?")
    }

    /// The tables that a person reads, at most 100 columns wide.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = self.write(&mut text);
        text
    }

    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(
            out,
            "responder {}, pid {}, up {:.0} s, io {}, service {}",
            self.version, self.pid, self.uptime_s, self.io, self.service
        )?;
        let kept = if self.capabilities.is_empty() { "none".to_owned() } else { self.capabilities.join(" ") };
        let sandbox = if self.sandbox { "on" } else { "off" };
        writeln!(out, "user {}, capabilities kept: {kept}, sandbox {sandbox}", self.user)?;
        if self.draining {
            writeln!(out, "draining: it answers until routes have moved elsewhere, and ends")?;
        }
        for zone in &self.zones {
            writeln!(out, "zone {} serial {}: {} names, {} records", zone.name, zone.serial, zone.names, zone.records)?;
        }
        for interface in &self.interfaces {
            interface.write(out)?;
        }
        writeln!(out, "\nkernel path    received    answered     dropped")?;
        for (name, path) in [("udp", &self.kernel_path.udp), ("tcp", &self.kernel_path.tcp)] {
            let dropped: u64 = path.dropped.values().sum();
            writeln!(
                out,
                "{name:<11} {:>11} {:>11} {dropped:>11}{}",
                path.received,
                path.answered,
                named(&path.dropped, path.limited_slipped)
            )?;
        }
        Ok(())
    }
}

impl Interface {
    fn write(&self, out: &mut String) -> std::fmt::Result {
        writeln!(out, "\n{}: {} driver on Linux {}, XDP {}", self.name, self.driver, self.kernel, self.xdp_mode)?;
        if let Some(reason) = &self.waits_for {
            writeln!(out, "the kernel path answers all queries, since the bypass has left: {reason}")?;
        }
        writeln!(out, "queue  cpu  mode         received    answered     dropped   batch  stalls")?;
        for queue in &self.queues {
            let dropped: u64 = queue.dropped.values().sum();
            let batch = if queue.batches == 0 { 0.0 } else { ratio(queue.received, queue.batches) };
            writeln!(
                out,
                "{:>5} {:>4}  {:<9} {:>11} {:>11} {dropped:>11} {batch:>7.1} {:>7}{}",
                queue.queue,
                queue.cpu,
                queue.mode,
                queue.received,
                queue.answered,
                queue.tx_stalls,
                named(&queue.dropped, queue.limited_slipped)
            )?;
        }
        for unserved in &self.queues_without_worker {
            writeln!(out, "{:>5}    -  no worker: {}", unserved.queue, unserved.reason)?;
        }
        if self.vlan_stripping {
            writeln!(out, "the NIC strips VLAN tags: queries to addresses of VLANs take the kernel path")?;
        }
        self.write_notes(out)?;
        self.write_matrix(out)?;
        self.write_kernel_drops(out)?;
        write!(out, "verdicts of the XDP program:")?;
        let seen: Vec<String> = self
            .verdicts
            .iter()
            .filter(|(_, count)| **count > 0)
            .map(|(name, count)| format!(" {name} {count}"))
            .collect();
        writeln!(out, "{}", if seen.is_empty() { " none yet".to_owned() } else { seen.join(",") })
    }

    /// What is unusual about queues: one line for all that it is true of.
    fn write_notes(&self, out: &mut String) -> std::fmt::Result {
        let mut notes: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for queue in &self.queues {
            let mode = queue.mode_reason.as_ref().map(|reason| format!("copy mode: {reason}"));
            let usual = ["off", "on", ""].contains(&queue.busy_poll.as_str());
            let busy_poll = (!usual).then(|| format!("busy polling: {}", queue.busy_poll));
            let replaced = &queue.reprovision_reason;
            let replaced =
                replaced.as_ref().map(|reason| format!("socket replaced {}x: {reason}", queue.reprovisioned));
            for note in [mode, busy_poll, replaced].into_iter().flatten() {
                notes.entry(note).or_default().push(queue.queue.to_string());
            }
        }
        notes.iter().try_for_each(|(note, queues)| writeln!(out, "queue {}: {note}", queues.join(", ")))
    }

    /// Rows are RX queues, columns TX queues, each cell says from which CPU.
    fn write_matrix(&self, out: &mut String) -> std::fmt::Result {
        let mut columns: Vec<u32> =
            self.queues.iter().map(|queue| queue.queue).chain(self.matrix.iter().map(|cell| cell.tx_queue)).collect();
        columns.sort_unstable();
        columns.dedup();
        // A wide NIC's matrix is shown by its cells: a hundred columns fit no terminal.
        if columns.len() > 5 {
            writeln!(out, "rx queue -> tx queue: replies from CPU")?;
            for cell in &self.matrix {
                writeln!(
                    out,
                    "{:>8} -> {:<8}: {} from CPU {}",
                    cell.rx_queue, cell.tx_queue, cell.frames, cell.tx_cpu
                )?;
            }
            return Ok(());
        }
        write!(out, "replies     ")?;
        for column in &columns {
            write!(out, " {:>16}", format!("tx {column}"))?;
        }
        writeln!(out)?;
        for queue in &self.queues {
            write!(out, "{:>12}", format!("rx {}", queue.queue))?;
            for column in &columns {
                let cells: Vec<String> = self
                    .matrix
                    .iter()
                    .filter(|cell| cell.rx_queue == queue.queue && cell.tx_queue == *column)
                    .map(|cell| format!("{} cpu{}", cell.frames, cell.tx_cpu))
                    .collect();
                write!(out, " {:>16}", if cells.is_empty() { ".".to_owned() } else { cells.join("+") })?;
            }
            writeln!(out)?;
        }
        Ok(())
    }

    fn write_kernel_drops(&self, out: &mut String) -> std::fmt::Result {
        let sum = |field: fn(&XdpStatistics) -> u64| self.queues.iter().map(|queue| field(&queue.kernel)).sum::<u64>();
        writeln!(
            out,
            "dropped by the kernel: ring full {}, fill ring empty {}, invalid rx {}, invalid tx {}, other {}",
            sum(|kernel| kernel.rx_ring_full),
            sum(|kernel| kernel.rx_fill_ring_empty_descs),
            sum(|kernel| kernel.rx_invalid_descs),
            sum(|kernel| kernel.tx_invalid_descs),
            sum(|kernel| kernel.rx_dropped)
        )
    }
}

/// The reasons that were seen, and what the rate limit has cut short: ` (response 3, limited_slipped 2)`.
fn named(dropped: &BTreeMap<String, u64>, slipped: u64) -> String {
    let counts = dropped.iter().map(|(name, count)| (name.as_str(), *count)).chain([("limited_slipped", slipped)]);
    let seen: Vec<String> =
        counts.filter(|(_, count)| *count > 0).map(|(name, count)| format!("{name} {count}")).collect();
    if seen.is_empty() { String::new() } else { format!("  ({})", seen.join(", ")) }
}

#[expect(clippy::cast_precision_loss, reason = "shown with one decimal")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_person_reads() {
        let queue = |queue: u32, cpu, answered| Queue {
            queue,
            cpu,
            thread: 7,
            mode: "copy".into(),
            mode_reason: Some("the driver or kernel refused zero-copy: Operation not supported".into()),
            tx_budget: Some(4096),
            busy_poll: if queue == 0 { "given up: replies stayed in the TX ring" } else { "off" }.into(),
            received: answered + 2,
            answered,
            dropped: BTreeMap::from([("bad_frame".into(), 0), ("response".into(), 2)]),
            limited_slipped: u64::from(queue),
            kernel: XdpStatistics { rx_ring_full: 1, ..XdpStatistics::default() },
            batches: 10,
            tx_stalls: 0,
            reprovisioned: u64::from(queue),
            reprovision_reason: (queue == 1).then(|| "replies stayed in the TX ring".into()),
            traffic: Traffic::default(),
        };
        let status = Status {
            version: "0.1.0".into(),
            draining: false,
            control_refused: 0,
            pid: 42,
            uptime_s: 12.3,
            io: "xdp".into(),
            service: "dns".into(),
            user: "responder".into(),
            capabilities: vec!["net_bind_service".into(), "net_raw".into()],
            sandbox: true,
            zones: vec![Zone { name: "example.com.".into(), serial: 7, names: 3, records: 5 }],
            interfaces: vec![Interface {
                name: "eth0".into(),
                index: 2,
                driver: "veth".into(),
                kernel: "6.18.5".into(),
                xdp_mode: "native".into(),
                waits_for: None,
                vlan_stripping: true,
                queues: vec![queue(0, 1, 100), queue(1, 0, 200)],
                queues_without_worker: vec![Unserved { queue: 2, reason: "not in --queues".into() }],
                verdicts: BTreeMap::from([("redirected".into(), 304), ("not_ip".into(), 2), ("fragment".into(), 0)]),
                matrix: vec![
                    Cell { rx_queue: 0, tx_queue: 0, tx_cpu: 1, frames: 100 },
                    Cell { rx_queue: 1, tx_queue: 1, tx_cpu: 0, frames: 200 },
                ],
            }],
            kernel_path: KernelPath {
                udp: Path { received: 4, answered: 4, ..Path::default() },
                tcp: Path::default(),
                udp_workers: Vec::new(),
            },
        };
        let expected = "\
responder 0.1.0, pid 42, up 12 s, io xdp, service dns
user responder, capabilities kept: net_bind_service net_raw, sandbox on
zone example.com. serial 7: 3 names, 5 records

eth0: veth driver on Linux 6.18.5, XDP native
queue  cpu  mode         received    answered     dropped   batch  stalls
    0    1  copy              102         100           2    10.2       0  (response 2)
    1    0  copy              202         200           2    20.2       0  (response 2, limited_slipped 1)
    2    -  no worker: not in --queues
the NIC strips VLAN tags: queries to addresses of VLANs take the kernel path
queue 0: busy polling: given up: replies stayed in the TX ring
queue 0, 1: copy mode: the driver or kernel refused zero-copy: Operation not supported
queue 1: socket replaced 1x: replies stayed in the TX ring
replies                  tx 0             tx 1
        rx 0         100 cpu1                .
        rx 1                .         200 cpu0
dropped by the kernel: ring full 2, fill ring empty 0, invalid rx 0, invalid tx 0, other 0
verdicts of the XDP program: not_ip 2, redirected 304

kernel path    received    answered     dropped
udp                   4           4           0
tcp                   0           0           0
";
        assert_eq!(status.render(), expected);
    }
}
