//! What came of asking: all figures, what is wrong with them, and how they are shown.

mod render;

use std::{collections::BTreeMap, time::Duration};

use serde::Serialize;
use serde_json::Value;

use self::render::{grouped, percent};
use super::{
    LOST_AFTER, Plan,
    flow::{Family, Flow},
    variant::Variants,
};
use crate::matrix::{self, Cell};

/// What a good server manages on any machine.
const RATE_MIN: f64 = 20_000.0;
/// With fewer queries the shares say nothing.
const SHARED_MIN: u64 = 1_000;
/// Of an even share, each queue must have so much. The hash of the ports spreads few flows unevenly over many queues.
const FEW_QUEUES: usize = 2;
const QUEUE_SHARE_MIN: f64 = 0.5;
const QUEUE_SHARE_MIN_OF_MANY: f64 = 0.1;
/// Of all, each family must have so much.
const FAMILY_SHARE_MIN: f64 = 0.2;

/// A wrong reply.
#[derive(Clone, Debug, Serialize)]
pub struct Fault {
    /// What is wrong with it.
    pub sentence: String,
    /// The right reply, as dig prints it.
    pub expected: String,
    /// The reply, as dig prints it.
    pub got: String,
}

/// A part of the queries.
#[derive(Clone, Debug, Serialize)]
pub struct Share {
    /// Which part.
    pub of: String,
    /// Queries of it that were answered right.
    pub right: u64,
    /// Their part of all that were answered right, 0 to 1.
    pub share: f64,
    /// As a rate.
    pub per_second: f64,
}

/// All figures of a run.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// How long queries were sent.
    pub seconds: f64,
    /// Queries per second that were to be sent.
    pub planned_per_second: u32,
    /// Flows that queries were sent on.
    pub flows: usize,
    /// Distinct queries.
    pub distinct: usize,
    /// Queries sent.
    pub sent: u64,
    /// Queries answered right.
    pub right: u64,
    /// Queries answered wrong.
    pub wrong: u64,
    /// Queries not answered in time.
    pub lost: u64,
    /// Replies that no query waited for.
    pub unexpected: u64,
    /// Queries sent per second.
    pub sent_per_second: f64,
    /// Queries answered right per second.
    pub right_per_second: f64,
    /// Replies by response code.
    pub codes: BTreeMap<String, u64>,
    /// By RX queue of the server, each that it has.
    pub queues: Vec<Share>,
    /// By IP version.
    pub families: Vec<Share>,
    /// Flows whose RX queue is not known, because the server's driver counts nothing.
    pub flows_without_queue: usize,
    /// The measured matrix.
    pub matrix: Vec<Cell>,
    /// The CPU of each queue's worker, as the server reports it.
    pub worker_cpus: BTreeMap<u32, u32>,
    /// The matrix that the server reports.
    pub reported_matrix: Vec<Cell>,
    /// Whether both say the same, within 1 %.
    pub matrices_agree: bool,
    /// What the server dropped, by reason, on both paths.
    pub dropped: BTreeMap<String, u64>,
    /// What the kernel dropped before the server or behind it.
    pub kernel_dropped: BTreeMap<String, u64>,
    /// What the XDP program decided.
    pub verdicts: BTreeMap<String, u64>,
    /// Queries that the kernel path answered.
    pub kernel_path_answered: u64,
    /// Some right replies, as dig prints them.
    pub examples: Vec<String>,
    /// Some wrong ones.
    pub faults: Vec<Fault>,
}

impl Report {
    pub(super) fn new(
        plan: &Plan,
        elapsed: Duration,
        flows: &[Flow],
        variants: Variants,
        matrix: Vec<Cell>,
        queues: u32,
        [before, after]: [&Value; 2],
    ) -> anyhow::Result<Self> {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let sum = |count: &dyn Fn(&Flow) -> u64| flows.iter().map(count).sum::<u64>();
        let right = sum(&|flow| flow.counts.right);
        let sent = sum(&|flow| flow.counts.sent);
        let share = |of: String, member: &dyn Fn(&Flow) -> bool| {
            let part = flows.iter().filter(|flow| member(flow)).map(|flow| flow.counts.right).sum();
            Share { of, right: part, share: float(part) / float(right.max(1)), per_second: float(part) / seconds }
        };
        let reported_matrix = matrix::reported(before, after)?;
        let growth = |pointers: &[&str]| {
            let mut now = numbers(after, pointers);
            let earlier = numbers(before, pointers);
            for (name, count) in &mut now {
                *count = count.saturating_sub(earlier.get(name).copied().unwrap_or(0));
            }
            now
        };
        let mut kernel_dropped = growth(&["/interfaces/*/queues/*/kernel"]);
        // Counts how often there was nothing to send.
        kernel_dropped.remove("tx_ring_empty_descs");
        let answered = |status: &Value| status["kernel_path"]["udp"]["answered"].as_u64().unwrap_or(0);
        Ok(Self {
            seconds,
            planned_per_second: plan.rate,
            flows: flows.len(),
            distinct: variants.len(),
            sent,
            right,
            wrong: sum(&|flow| flow.counts.wrong),
            lost: sum(&|flow| flow.counts.lost),
            unexpected: sum(&|flow| flow.counts.unexpected),
            sent_per_second: float(sent) / seconds,
            right_per_second: float(right) / seconds,
            queues: (0..queues)
                .map(|queue| share(format!("queue {queue}"), &|flow| flow.rx_queue == Some(queue)))
                .collect(),
            families: [(Family::V4, "IPv4"), (Family::V6, "IPv6")]
                .map(|(family, name)| share(name.to_owned(), &|flow| flow.family == family))
                .into(),
            flows_without_queue: flows.iter().filter(|flow| flow.rx_queue.is_none()).count(),
            worker_cpus: matrix::worker_cpus(after),
            matrices_agree: matrix::agree(&matrix, &reported_matrix),
            matrix,
            reported_matrix,
            dropped: growth(&[
                "/interfaces/*/queues/*/dropped",
                "/kernel_path/udp/dropped",
                "/kernel_path/tcp/dropped",
            ]),
            kernel_dropped,
            verdicts: growth(&["/interfaces/*/verdicts"]),
            kernel_path_answered: answered(after).saturating_sub(answered(before)),
            codes: variants.codes,
            examples: variants.examples.into_values().collect(),
            faults: variants.faults,
        })
    }

    /// What is not as it should be, a sentence each; none when all is good.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let mut counted = |count: u64, what: &str| {
            if count > 0 {
                problems.push(format!("{what}: {}", grouped(count)));
            }
        };
        counted(self.wrong, "wrong replies");
        counted(self.lost, &format!("queries without a reply within {} s", LOST_AFTER.as_secs()));
        counted(self.unexpected, "replies that no query waited for");
        counted(
            self.off_diagonal(),
            "replies that left by another queue, or from another CPU, than that of the queue's worker",
        );
        counted(self.kernel_path_answered, "queries answered by the kernel path instead of the bypass");
        counted(
            self.flows_without_queue as u64,
            "flows whose RX queue cannot be told, as the server's driver counted no packets of an XDP program",
        );
        if self.sent == 0 {
            problems.push("nothing was asked".to_owned());
        }
        let seen: u64 = self.matrix.iter().map(|cell| cell.replies).sum();
        let received = self.right + self.wrong;
        if self.flows_without_queue == 0 && seen < received {
            problems.push(format!(
                "the observer saw {} replies, and {} were received",
                grouped(seen),
                grouped(received)
            ));
        }
        if !self.matrices_agree {
            problems.push("the server reports another matrix than the measured one".to_owned());
        }

        if self.right >= SHARED_MIN {
            let of_even = if self.queues.len() <= FEW_QUEUES { QUEUE_SHARE_MIN } else { QUEUE_SHARE_MIN_OF_MANY };
            let share_min = of_even / float(self.queues.len() as u64);
            let small = |shares: &[Share], min: f64| -> Vec<String> {
                let small = shares.iter().filter(|share| share.share < min);
                small
                    .map(|share| {
                        format!("{} had {} of the answers, less than {}", share.of, percent(share.share), percent(min))
                    })
                    .collect()
            };
            if self.flows_without_queue == 0 {
                problems.extend(small(&self.queues, share_min));
            }
            problems.extend(small(&self.families, FAMILY_SHARE_MIN));
        }
        if f64::from(self.planned_per_second) >= RATE_MIN && self.right_per_second < RATE_MIN {
            problems.push(format!(
                "only {:.0} queries were answered per second, less than {RATE_MIN:.0}",
                self.right_per_second
            ));
        }
        problems
    }

    /// Whether there is no problem.
    #[must_use]
    pub fn is_good(&self) -> bool {
        self.problems().is_empty()
    }

    fn off_diagonal(&self) -> u64 {
        self.matrix.iter().filter(|cell| !cell.is_on_diagonal(&self.worker_cpus)).map(|cell| cell.replies).sum()
    }
}

/// Sums, by name, of the counters in all objects that the pointers lead to; `*` is each element of an array.
fn numbers<'a>(status: &'a Value, pointers: &[&str]) -> BTreeMap<String, u64> {
    let mut sums = BTreeMap::new();
    for pointer in pointers {
        let mut found = vec![status];
        for step in pointer.split('/').skip(1) {
            let next = |value: &'a Value| -> Vec<&'a Value> {
                match value {
                    Value::Array(elements) if step == "*" => elements.iter().collect(),
                    value => value.get(step).into_iter().collect(),
                }
            };
            found = found.into_iter().flat_map(next).collect();
        }
        for (name, value) in found.into_iter().filter_map(Value::as_object).flatten() {
            *sums.entry(name.clone()).or_default() += value.as_u64().unwrap_or(0);
        }
    }
    sums
}

/// Exact as long as a counter is below 2^53.
#[expect(clippy::cast_precision_loss, reason = "counters of a run are far below 2^53")]
fn float(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn good() -> Report {
        let share = |of: &str| Share { of: of.to_owned(), right: 100_000, share: 0.5, per_second: 20_000.0 };
        let cell = |queue| Cell { rx_queue: queue, tx_queue: queue, tx_cpu: queue, replies: 100_000 };
        Report {
            seconds: 5.0,
            planned_per_second: 40_000,
            flows: 64,
            distinct: 600,
            sent: 200_000,
            right: 200_000,
            wrong: 0,
            lost: 0,
            unexpected: 0,
            sent_per_second: 40_000.0,
            right_per_second: 40_000.0,
            codes: BTreeMap::new(),
            queues: vec![share("queue 0"), share("queue 1")],
            families: vec![share("IPv4"), share("IPv6")],
            flows_without_queue: 0,
            matrix: vec![cell(0), cell(1)],
            worker_cpus: BTreeMap::from([(0, 0), (1, 1)]),
            reported_matrix: vec![cell(0), cell(1)],
            matrices_agree: true,
            dropped: BTreeMap::new(),
            kernel_dropped: BTreeMap::new(),
            verdicts: BTreeMap::new(),
            kernel_path_answered: 0,
            examples: Vec::new(),
            faults: Vec::new(),
        }
    }

    #[test]
    fn each_problem_is_told() {
        assert_eq!(good().problems(), [""; 0]);
        assert!(good().render(false).ends_with("all 200,000 queries answered right, matrix diagonal\n"));

        let check = |part: &str, spoil: &dyn Fn(&mut Report)| {
            let mut report = good();
            spoil(&mut report);
            let problems = report.problems();
            assert!(problems.len() == 1 && problems[0].contains(part), "{part}: {problems:?}");
            assert!(!report.is_good());
            assert!(report.render(true).contains(&problems[0]));
        };
        check("wrong", &|report| (report.right, report.wrong) = (199_999, 1));
        check("within 1 s", &|report| report.lost = 1);
        check("no query waited", &|report| report.unexpected = 1);
        check("another queue", &|report| report.matrix[0].tx_queue = 1);
        check("another CPU", &|report| report.matrix[0].tx_cpu = 1);
        check("kernel path", &|report| report.kernel_path_answered = 1);
        check("cannot be told", &|report| report.flows_without_queue = 1);
        check("observer", &|report| report.matrix[0].replies -= 1);
        check("another matrix", &|report| report.matrices_agree = false);
        check("queue 1 had 24.0 %", &|report| report.queues[1].share = 0.24);
        check("IPv6 had 19.0 %", &|report| report.families[1].share = 0.19);
        check("per second", &|report| report.right_per_second = 19_000.0);
    }

    #[test]
    fn a_slow_plan_may_be_slow() {
        let report = Report { planned_per_second: 100, right_per_second: 100.0, ..good() };
        assert!(report.is_good());
    }

    #[test]
    fn counters_are_summed_by_name() {
        let status = json!({"interfaces": [{"queues": [{"dropped": {"a": 1, "b": 2}}, {"dropped": {"a": 3}}]}], "udp": {"dropped": {"a": 4}}});
        let sums = numbers(&status, &["/interfaces/*/queues/*/dropped", "/udp/dropped", "/not/there"]);
        assert_eq!(sums, BTreeMap::from([("a".to_owned(), 8), ("b".to_owned(), 2)]));
        assert_eq!([0, 999, 1_000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
