//! Metrics in the OpenMetrics text format (version 1.0.0), made from the status document: whatever is shown here is in `responder status --json` too.
//!
//! Per worker all is told apart by the labels `path` (`bypass` or `kernel`) and `transport`, and by `interface` and `queue` on the bypass or `address` and
//! `cpu` of a UDP thread. Counters never go back while the server runs; those of an address that is no longer served end.

mod server;

use std::{collections::BTreeMap, fmt};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};

pub use server::listen;

use super::status::{Interface, Place, Queue, Status, Worker};
use crate::counters::BATCH_BOUNDS;

/// What the text is, for a client that asks over HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

type Labels = Vec<(&'static str, String)>;

/// The text of a scrape.
#[must_use]
pub fn render(status: Status) -> String {
    let mut registry = Registry::with_prefix("responder");
    registry.register_collector(Box::new(Scrape(status)));
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

/// What tells a worker from the others, and one of its figures from the rest of them.
fn labels(worker: &Worker<'_>, more: &[(&'static str, &str)]) -> Labels {
    let (path, transport) = match worker.place {
        Place::Queue { .. } => ("bypass", "udp"),
        Place::Udp(_) => ("kernel", "udp"),
        Place::Tcp => ("kernel", "tcp"),
    };
    let mut labels = vec![("path", path.to_owned()), ("transport", transport.to_owned())];
    match worker.place {
        Place::Queue { interface, queue } => {
            labels.extend([("interface", interface.to_owned()), ("queue", queue.to_string())]);
        }
        Place::Udp(address) => {
            labels.push(("address", address.to_owned()));
            labels.extend(worker.cpu.map(|cpu| ("cpu", cpu.to_string())));
        }
        Place::Tcp => {}
    }
    labels.extend(more.iter().map(|(key, value)| (*key, (*value).to_owned())));
    labels
}

#[derive(Debug)]
struct Scrape(Status);

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut out = Out(encoder);
        self.server(&mut out)?;
        self.workers(&mut out)?;
        self.bypass(&mut out)
    }
}

impl Scrape {
    fn server(&self, out: &mut Out<'_>) -> fmt::Result {
        let status = &self.0;
        let build = [("version", &status.version), ("io", &status.io), ("service", &status.service)];
        out.0.encode_descriptor("build", "What runs.", None, MetricType::Info)?.encode_info(&build)?;
        let help = "Seconds since the server began to serve.";
        let uptime = out.0.encode_descriptor("uptime", help, Some(&Unit::Seconds), MetricType::Gauge);
        uptime?.encode_gauge(&status.uptime_s)?;
        let zones = |value: fn(&super::status::Zone) -> u64| {
            status.zones.iter().map(move |zone| (vec![("zone", zone.name.clone())], value(zone)))
        };
        out.gauge("zone_serial", "The serial number of a zone's SOA record.", zones(|zone| zone.serial.into()))?;
        out.gauge("zone_names", "Names of a zone that own records.", zones(|zone| zone.names as u64))?;
        out.gauge("zone_records", "Records of a zone.", zones(|zone| zone.records as u64))?;
        let connections = [(Vec::new(), status.kernel_path.tcp.connections)];
        out.counter("tcp_connections_accepted", "TCP connections accepted.", connections.into_iter())
    }

    fn workers(&self, out: &mut Out<'_>) -> fmt::Result {
        let workers: Vec<Worker<'_>> = self.0.workers().collect();
        let each =
            |value: fn(&Worker<'_>) -> u64| workers.iter().map(move |worker| (labels(worker, &[]), value(worker)));
        out.counter("queries_received", "Packets and TCP messages received.", each(|worker| worker.received))?;
        out.counter("replies_sent", "Replies given to the kernel.", each(|worker| worker.answered))?;
        let answers = workers.iter().flat_map(|worker| {
            let of_family = |(family, rcodes): (&'_ String, &'_ BTreeMap<String, u64>)| -> Vec<(Labels, u64)> {
                let sample =
                    |(rcode, count): (&String, &u64)| (labels(worker, &[("family", family), ("rcode", rcode)]), *count);
                rcodes.iter().map(sample).collect()
            };
            worker.traffic.replies.iter().flat_map(of_family)
        });
        out.counter("answers", "DNS answers made, by address family and response code.", answers)?;
        let qtypes = workers.iter().flat_map(|worker| {
            worker.traffic.qtypes.iter().map(|(qtype, count)| (labels(worker, &[("qtype", qtype)]), *count))
        });
        out.counter("answers_by_qtype", "DNS answers made, by the type that was asked for.", qtypes)?;
        let help = "DNS answers made that have TC set, those cut short by the rate limit included.";
        out.counter("answers_truncated", help, each(|worker| worker.traffic.truncated))?;
        let limited = workers.iter().flat_map(|worker| {
            let dropped = worker.dropped.get("limited_dropped").copied().unwrap_or_default();
            [("drop", dropped), ("slip", worker.limited_slipped)]
                .map(|(action, count)| (labels(worker, &[("action", action)]), count))
        });
        out.counter("answers_limited", "DNS answers over the rate limit: not sent, or cut short and sent.", limited)?;
        let dropped = workers.iter().flat_map(|worker| {
            worker.dropped.iter().map(|(reason, count)| (labels(worker, &[("reason", reason)]), *count))
        });
        out.counter("queries_dropped", "Packets and TCP messages that got no reply, by reason.", dropped)?;
        out.batches(&workers)?;
        let of_queues = workers.iter().filter(|worker| matches!(worker.place, Place::Queue { .. }));
        let cpus = of_queues.filter_map(|worker| Some((labels(worker, &[]), worker.cpu? as u64)));
        out.gauge("worker_cpu", "The CPU that a queue's worker is pinned to.", cpus)
    }

    fn bypass(&self, out: &mut Out<'_>) -> fmt::Result {
        fn named(interface: &Interface, more: &[(&'static str, &str)]) -> Labels {
            let more = more.iter().map(|(key, value)| (*key, (*value).to_owned()));
            [("interface", interface.name.clone())].into_iter().chain(more).collect()
        }
        let interfaces = &self.0.interfaces;
        let verdicts = interfaces.iter().flat_map(|interface| {
            interface.verdicts.iter().map(|(verdict, count)| (named(interface, &[("verdict", verdict)]), *count))
        });
        out.counter("xdp_verdicts", "Frames by what the XDP program decided.", verdicts)?;
        let queues =
            || interfaces.iter().flat_map(|interface| interface.queues.iter().map(move |queue| (interface, queue)));
        let kernel = queues().flat_map(|(interface, queue)| {
            let (kernel, number) = (&queue.kernel, queue.queue.to_string());
            [
                ("rx_dropped", kernel.rx_dropped),
                ("rx_invalid_descs", kernel.rx_invalid_descs),
                ("tx_invalid_descs", kernel.tx_invalid_descs),
                ("rx_ring_full", kernel.rx_ring_full),
                ("rx_fill_ring_empty_descs", kernel.rx_fill_ring_empty_descs),
                ("tx_ring_empty_descs", kernel.tx_ring_empty_descs),
            ]
            .map(|(counter, count)| (named(interface, &[("queue", &number), ("counter", counter)]), count))
        });
        out.counter(
            "xdp_statistics",
            "What the kernel counts for an AF_XDP socket (XDP_STATISTICS), in frames.",
            kernel,
        )?;
        let each = |value: fn(&Queue) -> u64| {
            queues()
                .map(move |(interface, queue)| (named(interface, &[("queue", &queue.queue.to_string())]), value(queue)))
        };
        let help = "Times the kernel left replies unsent although it was asked to send them.";
        out.counter("tx_stalls", help, each(|queue| queue.tx_stalls))?;
        out.counter("socket_replacements", "Times a stuck socket was replaced.", each(|queue| queue.reprovisioned))?;
        let matrix = interfaces.iter().flat_map(|interface| {
            interface.matrix.iter().map(|cell| {
                let [rx, tx, cpu] = [cell.rx_queue.to_string(), cell.tx_queue.to_string(), cell.tx_cpu.to_string()];
                (named(interface, &[("rx_queue", &rx), ("tx_queue", &tx), ("tx_cpu", &cpu)]), cell.frames)
            })
        });
        out.counter(
            "matrix_replies",
            "Replies by the queues they came in and left by and the CPU they were sent from.",
            matrix,
        )?;
        let unserved =
            interfaces.iter().map(|interface| (named(interface, &[]), interface.queues_without_worker.len() as u64));
        out.gauge("queues_without_worker", "Receive queues whose queries take the kernel path.", unserved)
    }
}

/// Where the text goes. A family without samples is left out.
struct Out<'a>(DescriptorEncoder<'a>);

impl Out<'_> {
    fn counter(&mut self, name: &str, help: &str, samples: impl Iterator<Item = (Labels, u64)>) -> fmt::Result {
        self.family(name, help, MetricType::Counter, samples, |mut sample, count| {
            sample.encode_counter::<NoLabelSet, u64, f64>(&count, None)
        })
    }

    fn gauge(&mut self, name: &str, help: &str, samples: impl Iterator<Item = (Labels, u64)>) -> fmt::Result {
        self.family(name, help, MetricType::Gauge, samples, |mut sample, value| sample.encode_gauge(&value))
    }

    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        samples: impl Iterator<Item = (Labels, u64)>,
        encode: fn(MetricEncoder<'_>, u64) -> fmt::Result,
    ) -> fmt::Result {
        let mut samples = samples.peekable();
        if samples.peek().is_none() {
            return Ok(());
        }
        let mut family = self.0.encode_descriptor(name, help, None, kind)?;
        samples.try_for_each(|(labels, value)| encode(family.encode_family(&labels)?, value))
    }

    fn batches(&mut self, workers: &[Worker<'_>]) -> fmt::Result {
        // What comes over TCP is taken one by one.
        let mut workers = workers.iter().filter(|worker| worker.place != Place::Tcp).peekable();
        if workers.peek().is_none() {
            return Ok(());
        }
        let unit = Unit::Other("packets".to_owned());
        let help = "Packets taken at once.";
        let mut family = self.0.encode_descriptor("batch", help, Some(&unit), MetricType::Histogram)?;
        for worker in workers {
            #[expect(clippy::cast_precision_loss, reason = "small numbers, and a sum that is a float in the format")]
            let (bounds, sum) = (BATCH_BOUNDS.map(|bound| bound as f64), worker.received as f64);
            let sizes = worker.traffic.batch_sizes.iter().copied().chain(std::iter::repeat(0));
            let buckets: Vec<(f64, u64)> = bounds.into_iter().chain([f64::INFINITY]).zip(sizes).collect();
            // Of the same buckets, since the worker goes on while it is read.
            let count = buckets.iter().map(|(_, count)| count).sum();
            family.encode_family(&labels(worker, &[]))?.encode_histogram::<NoLabelSet>(sum, count, &buckets, None)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "metrics/tests.rs"]
mod tests;
