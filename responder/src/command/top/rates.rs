//! What happened between two samples, per second. Pure: the samples are all it knows.

use std::collections::BTreeMap;

use serde::Serialize;

use super::sample::Sample;
use crate::control::status::{self, Cell, Place, Status, Traffic};

/// Between two samples of one server.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Rates {
    pub(super) version: String,
    pub(super) pid: u32,
    pub(super) io: String,
    pub(super) service: String,
    pub(super) uptime_s: f64,
    pub(super) zones: usize,
    /// Seconds between the samples.
    pub(super) interval_s: f64,
    /// Queues, then threads of kernel sockets, then TCP.
    pub(super) workers: Vec<Worker>,
    pub(super) matrix: Vec<Flow>,
    /// Of all workers together, each per second.
    pub(super) rcodes: BTreeMap<String, f64>,
    pub(super) qtypes: BTreeMap<String, f64>,
    pub(super) dropped: BTreeMap<String, f64>,
    /// Verdicts of the XDP programs.
    pub(super) verdicts: BTreeMap<String, f64>,
    /// What the kernel dropped at AF_XDP sockets.
    pub(super) kernel_dropped: BTreeMap<String, f64>,
    pub(super) truncated_per_s: f64,
    pub(super) limited_slipped_per_s: f64,
}

/// A queue and its worker, a thread of a kernel socket, or TCP.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Worker {
    pub(super) name: String,
    pub(super) cpu: Option<usize>,
    pub(super) received_per_s: f64,
    pub(super) answered_per_s: f64,
    pub(super) dropped_per_s: f64,
    /// Mean size; none if there was no batch.
    pub(super) batch: Option<f64>,
    /// What its CPU did, whoever ran there.
    pub(super) cpu_use: Option<CpuUse>,
    /// The share of the time in which its thread ran.
    pub(super) thread_percent: Option<f64>,
}

/// Percent of a CPU's time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct CpuUse {
    pub(super) user_percent: f64,
    pub(super) system_percent: f64,
    /// Interrupts included.
    pub(super) softirq_percent: f64,
}

/// Replies by the queues that they came in and left by.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Flow {
    pub(super) interface: String,
    pub(super) rx_queue: u32,
    pub(super) tx_queue: u32,
    pub(super) tx_cpu: usize,
    pub(super) replies_per_s: f64,
}

type Counts = BTreeMap<String, u64>;

fn add<'a>(to: &mut Counts, counts: impl Iterator<Item = (&'a str, u64)>) {
    for (name, count) in counts {
        *to.entry(name.to_owned()).or_default() += count;
    }
}

fn named(counts: &Counts) -> impl Iterator<Item = (&str, u64)> {
    counts.iter().map(|(name, count)| (name.as_str(), *count))
}

/// Sums over workers and interfaces.
#[derive(Default)]
struct Sums {
    traffic: Traffic,
    rcodes: Counts,
    dropped: Counts,
    verdicts: Counts,
    kernel_dropped: Counts,
    slipped: u64,
}

impl Sums {
    fn of(status: &Status) -> Self {
        let mut sums = Self::default();
        for worker in status.workers() {
            sums.traffic += worker.traffic;
            add(&mut sums.dropped, named(worker.dropped));
            sums.slipped += worker.limited_slipped;
        }
        let rcodes = sums.traffic.rcodes().into_iter();
        sums.rcodes = rcodes.map(|(name, count)| (name.to_owned(), count)).collect();
        for interface in &status.interfaces {
            add(&mut sums.verdicts, named(&interface.verdicts));
            for queue in &interface.queues {
                let kernel = &queue.kernel;
                let counts = [
                    ("rx_ring_full", kernel.rx_ring_full),
                    ("rx_fill_ring_empty", kernel.rx_fill_ring_empty_descs),
                    ("rx_dropped", kernel.rx_dropped),
                    ("rx_invalid", kernel.rx_invalid_descs),
                    ("tx_invalid", kernel.tx_invalid_descs),
                ];
                add(&mut sums.kernel_dropped, counts.into_iter());
            }
        }
        sums
    }
}

impl Rates {
    /// None where there is nothing to compare: another process answers, or no time has passed.
    pub(super) fn between(before: &Sample, now: &Sample) -> Option<Self> {
        let interval_s = now.at.saturating_duration_since(before.at).as_secs_f64();
        if before.status.pid != now.status.pid || interval_s <= 0.0 {
            return None;
        }
        let rate = |before: u64, now: u64| float(now.saturating_sub(before)) / interval_s;
        let rates = |before: &Counts, now: &Counts| -> BTreeMap<String, f64> {
            let rate_of =
                |(name, count): (&String, &u64)| (name.clone(), rate(before.get(name).copied().unwrap_or(0), *count));
            now.iter().map(rate_of).collect()
        };
        let (sums_before, sums) = (Sums::of(&before.status), Sums::of(&now.status));
        let then: Vec<status::Worker<'_>> = before.status.workers().collect();
        let worker = |worker: status::Worker<'_>| {
            // A worker that was not there had counted nothing.
            let last = then.iter().find(|last| (last.place, last.cpu) == (worker.place, worker.cpu));
            let since = |count: fn(&status::Worker<'_>) -> u64| (last.map_or(0, count), count(&worker));
            let (received_before, received) = since(|counted| counted.received);
            let (batches_before, batches) = since(|counted| counted.batches);
            let (answered_before, answered) = since(|counted| counted.answered);
            let (dropped_before, dropped) = since(|counted| counted.dropped.values().sum());
            let taken = batches.saturating_sub(batches_before);
            let ran = worker.thread.and_then(|thread| {
                Some(now.threads.get(&thread)?.saturating_sub(*before.threads.get(&thread)?).as_secs_f64())
            });
            Worker {
                name: match worker.place {
                    Place::Queue { interface, queue } => format!("{interface} queue {queue}"),
                    Place::Udp(address) => format!("udp {address}"),
                    Place::Tcp => "tcp".to_owned(),
                },
                cpu: worker.cpu,
                received_per_s: rate(received_before, received),
                answered_per_s: rate(answered_before, answered),
                dropped_per_s: rate(dropped_before, dropped),
                batch: (taken > 0).then(|| float(received.saturating_sub(received_before)) / float(taken)),
                cpu_use: worker.cpu.and_then(|cpu| cpu_use(before, now, cpu)),
                thread_percent: ran.map(|ran| 100.0 * ran / interval_s),
            }
        };
        let matrix = now.status.interfaces.iter().flat_map(|interface| {
            let last = before.status.interfaces.iter().find(|last| last.name == interface.name);
            let last = last.map(|last| last.matrix.as_slice()).unwrap_or_default();
            interface.matrix.iter().map(move |cell| Flow {
                interface: interface.name.clone(),
                rx_queue: cell.rx_queue,
                tx_queue: cell.tx_queue,
                tx_cpu: cell.tx_cpu,
                replies_per_s: rate(frames(last, cell), cell.frames),
            })
        });
        let status = &now.status;
        Some(Self {
            version: status.version.clone(),
            pid: status.pid,
            io: status.io.clone(),
            service: status.service.clone(),
            uptime_s: status.uptime_s,
            zones: status.zones.len(),
            interval_s,
            workers: status.workers().map(worker).collect(),
            matrix: matrix.collect(),
            rcodes: rates(&sums_before.rcodes, &sums.rcodes),
            qtypes: rates(&sums_before.traffic.qtypes, &sums.traffic.qtypes),
            dropped: rates(&sums_before.dropped, &sums.dropped),
            verdicts: rates(&sums_before.verdicts, &sums.verdicts),
            kernel_dropped: rates(&sums_before.kernel_dropped, &sums.kernel_dropped),
            truncated_per_s: rate(sums_before.traffic.truncated, sums.traffic.truncated),
            limited_slipped_per_s: rate(sums_before.slipped, sums.slipped),
        })
    }
}

/// How many frames had taken the same way.
fn frames(cells: &[Cell], cell: &Cell) -> u64 {
    let way = |cell: &Cell| (cell.rx_queue, cell.tx_queue, cell.tx_cpu);
    cells.iter().find(|last| way(last) == way(cell)).map_or(0, |last| last.frames)
}

fn cpu_use(before: &Sample, now: &Sample, cpu: usize) -> Option<CpuUse> {
    let (before, now) = (before.cpus.get(&cpu)?, now.cpus.get(&cpu)?);
    let total = now.total.saturating_sub(before.total);
    let percent = |before: u64, now: u64| 100.0 * float(now.saturating_sub(before)) / float(total);
    (total > 0).then(|| CpuUse {
        user_percent: percent(before.user, now.user),
        system_percent: percent(before.system, now.system),
        softirq_percent: percent(before.softirq, now.softirq),
    })
}

#[expect(clippy::cast_precision_loss, reason = "differences that are shown with three digits")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
pub(super) mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::{
        command::top::sample::CpuTicks,
        control::status::{Interface, KernelPath, Path, Queue, UdpWorker},
        sys::XdpStatistics,
    };

    fn counts(pairs: &[(&str, u64)]) -> Counts {
        pairs.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    /// A server that has run for `seconds` under a steady load.
    pub(in crate::command::top) fn sample(start: Instant, seconds: u64) -> Sample {
        let n = seconds;
        let traffic = |scale: u64| Traffic {
            replies: BTreeMap::from([
                ("ipv4".to_owned(), counts(&[("NOERROR", 600 * scale), ("NXDOMAIN", 100 * scale)])),
                ("ipv6".to_owned(), counts(&[("NOERROR", 300 * scale), ("REFUSED", 0)])),
            ]),
            qtypes: counts(&[("A", 700 * scale), ("AAAA", 299 * scale), ("other", scale)]),
            truncated: 2 * scale,
            batch_sizes: Vec::new(),
        };
        let queue = |queue: u32, cpu: usize, scale: u64| Queue {
            queue,
            cpu,
            thread: 100 + i32::try_from(queue).unwrap(),
            received: 1010 * scale,
            answered: 1000 * scale,
            batches: 100 * scale,
            limited_slipped: scale,
            dropped: counts(&[("response", 10 * scale), ("bad_frame", 0)]),
            kernel: XdpStatistics { rx_ring_full: 5 * scale, ..XdpStatistics::default() },
            traffic: traffic(scale),
            ..Queue::default()
        };
        let cell = |queue, tx_queue, cpu, frames| Cell { rx_queue: queue, tx_queue, tx_cpu: cpu, frames };
        let udp = Path {
            received: 20 * n,
            answered: 20 * n,
            batches: 20 * n,
            traffic: Traffic::default(),
            ..Path::default()
        };
        let status = Status {
            version: "0.1.0".into(),
            pid: 42,
            uptime_s: 3725.0,
            io: "xdp".into(),
            service: "dns".into(),
            interfaces: vec![Interface {
                name: "eth0".into(),
                queues: vec![queue(0, 1, 100 * n), queue(1, 0, n)],
                verdicts: counts(&[("redirected", 102_010 * n), ("not_udp", 3 * n), ("fragment", 0)]),
                matrix: vec![cell(0, 0, 1, 100_000 * n), cell(1, 1, 0, 990 * n), cell(1, 0, 0, 10 * n)],
                ..Interface::default()
            }],
            kernel_path: KernelPath {
                udp_workers: vec![UdpWorker { address: "192.0.2.53:53".into(), cpu: 0, thread: 110, counts: udp }],
                ..KernelPath::default()
            },
            ..Status::default()
        };
        let ticks = |user, system, softirq| CpuTicks {
            user: user * n,
            system: system * n,
            softirq: softirq * n,
            total: 100 * n,
        };
        let thread = |percent: u64| Duration::from_millis(10 * percent * n);
        Sample {
            at: start + Duration::from_secs(seconds),
            status,
            cpus: BTreeMap::from([(0, ticks(3, 1, 0)), (1, ticks(40, 25, 30))]),
            threads: BTreeMap::from([(100, thread(64)), (101, thread(2)), (110, thread(1)), (42, thread(0))]),
        }
    }

    #[test]
    fn rates_are_differences_by_the_time_between() {
        let start = Instant::now();
        let rates = Rates::between(&sample(start, 10), &sample(start, 12)).unwrap();
        assert_eq!((rates.interval_s, rates.pid, rates.workers.len()), (2.0, 42, 4));
        let expected = Worker {
            name: "eth0 queue 0".into(),
            cpu: Some(1),
            received_per_s: 101_000.0,
            answered_per_s: 100_000.0,
            dropped_per_s: 1000.0,
            batch: Some(10.1),
            cpu_use: Some(CpuUse { user_percent: 40.0, system_percent: 25.0, softirq_percent: 30.0 }),
            thread_percent: Some(64.0),
        };
        assert_eq!(rates.workers[0], expected);
        let udp = &rates.workers[2];
        assert_eq!((udp.name.as_str(), udp.received_per_s, udp.batch), ("udp 192.0.2.53:53", 20.0, Some(1.0)));
        let tcp = &rates.workers[3];
        assert_eq!((tcp.name.as_str(), tcp.batch, tcp.cpu_use, tcp.thread_percent), ("tcp", None, None, Some(0.0)));
        assert_eq!((rates.rcodes["NOERROR"], rates.rcodes["REFUSED"]), (101.0 * 900.0, 0.0));
        assert_eq!((rates.qtypes["A"], rates.dropped["response"]), (101.0 * 700.0, 1010.0));
        assert_eq!((rates.verdicts["not_udp"], rates.kernel_dropped["rx_ring_full"]), (3.0, 505.0));
        assert_eq!((rates.truncated_per_s, rates.limited_slipped_per_s), (202.0, 101.0));
        let flows: Vec<_> =
            rates.matrix.iter().map(|flow| (flow.rx_queue, flow.tx_queue, flow.replies_per_s)).collect();
        assert_eq!(flows, [(0, 0, 100_000.0), (1, 1, 990.0), (1, 0, 10.0)]);
    }

    #[test]
    fn what_cannot_be_compared_is_not() {
        let start = Instant::now();
        let (before, mut now) = (sample(start, 10), sample(start, 11));
        assert_eq!(Rates::between(&before, &before), None, "no time has passed");
        assert_eq!(Rates::between(&now, &before), None, "nor backwards");
        now.status.interfaces[0].queues[0].thread = 999;
        now.cpus.clear();
        now.status.kernel_path.udp_workers[0].address = "192.0.2.54:53".into();
        let rates = Rates::between(&before, &now).unwrap();
        assert_eq!((rates.workers[0].thread_percent, rates.workers[0].cpu_use), (None, None));
        assert_eq!(rates.workers[2].received_per_s, 220.0, "a worker that is new has counted all of it since");
        now.status.pid = 43;
        assert_eq!(Rates::between(&before, &now), None, "another process");
    }
}
