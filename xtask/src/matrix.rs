//! The matrix: on which RX queue queries came in, by which TX queue and from which CPU their replies left.
//!
//! It is measured, not declared. The TX queue and the CPU are what the observer saw at the client's end. The RX queue of a flow is
//! learned from the counters of the server's driver while the flow asks alone: all packets of a flow take the same queue. What the
//! server itself reports is only compared with it.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use serde::Serialize;
use serde_json::Value;

use crate::observe::Counts;

/// Queries of a flow that asks alone: enough to stand out from what else a network namespace sends.
pub const ALONE: u64 = 8;
/// So often a flow asks alone until one queue stands out.
const TRIES: u32 = 5;

/// How many replies took one way through the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Cell {
    /// The queue on which the queries came in.
    pub rx_queue: u32,
    /// The queue by which the replies left.
    pub tx_queue: u32,
    /// The CPU on which the replies were sent.
    pub tx_cpu: u32,
    /// How many.
    pub replies: u64,
}

/// Packets that each RX queue received, from what `ethtool -S` prints: those that an XDP program saw where the driver counts them (veth,
/// virtio), else all (igb).
pub fn received_by_queue(statistics: &str) -> BTreeMap<u32, u64> {
    let counted = |suffix: &str| -> BTreeMap<u32, u64> {
        let queue = |line: &str| {
            let (name, value) = line.trim().split_once(": ")?;
            let name = name.strip_suffix(suffix)?;
            let queue = name.strip_prefix("rx_queue_").or_else(|| name.strip_prefix("rx"))?;
            Some((queue.parse().ok()?, value.trim().parse().ok()?))
        };
        statistics.lines().filter_map(queue).collect()
    };
    let by_program = counted("_xdp_packets");
    if by_program.is_empty() { counted("_packets") } else { by_program }
}

/// How often each queue's receive interrupt came, by CPU.
pub type Interrupts = BTreeMap<u32, Vec<u64>>;

/// Receive interrupts in the text of /proc/interrupts, of a machine with one NIC.
pub fn receive_interrupts(table: &str) -> Interrupts {
    let mut lines = table.lines();
    let cpus = lines.next().map_or(0, |heading| heading.split_whitespace().count());
    let queue = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let counts: Vec<u64> = words.by_ref().take(cpus).map_while(|word| word.parse().ok()).collect();
        let action = words.last()?;
        // `virtio0-input.0`, `eth0-rx-0`, `eth0-TxRx-0`, `eth0-rxtx-0`
        let at = ["-input.", "-rx-", "-TxRx-", "-rxtx-"].iter().find_map(|role| Some(action.split_once(role)?.1))?;
        Some((at.parse().ok()?, counts))
    };
    lines.filter_map(queue).collect()
}

/// The CPU that handled most of each queue's interrupts between two looks; none where there were none.
pub fn interrupted_cpus(before: &Interrupts, after: &Interrupts) -> BTreeMap<u32, u32> {
    let busiest = |(queue, counts): (&u32, &Vec<u64>)| {
        let earlier = before.get(queue).map_or(&[][..], Vec::as_slice);
        let grown =
            counts.iter().enumerate().map(|(cpu, count)| (count - earlier.get(cpu).unwrap_or(&0).min(count), cpu));
        let (count, cpu) = grown.max()?;
        (count > 0).then_some((*queue, u32::try_from(cpu).ok()?))
    };
    after.iter().filter_map(busiest).collect()
}

/// The same matrix with the CPU that handles each queue's interrupts as the one that sent: for a server in a guest, whose CPUs the
/// observer outside does not see.
pub fn with_cpus(cells: &[Cell], cpus: &BTreeMap<u32, u32>) -> Vec<Cell> {
    let mut sums = BTreeMap::<_, u64>::new();
    for cell in cells {
        // A CPU that nobody can name is on no diagonal.
        let cpu = cpus.get(&cell.tx_queue).copied().unwrap_or(u32::MAX);
        *sums.entry((cell.rx_queue, cell.tx_queue, cpu)).or_default() += cell.replies;
    }
    sums.into_iter()
        .map(|((rx_queue, tx_queue, tx_cpu), replies)| Cell { rx_queue, tx_queue, tx_cpu, replies })
        .collect()
}

/// The RX queue that a flow takes: `ask` lets it ask [`ALONE`] queries, `read` reads the counters.
///
/// `None` when no queue counts: there is no XDP program, or the driver has no such counters.
pub fn learn(
    mut ask: impl FnMut() -> anyhow::Result<()>,
    mut read: impl FnMut() -> anyhow::Result<BTreeMap<u32, u64>>,
) -> anyhow::Result<Option<u32>> {
    for _ in 0..TRIES {
        let before = read()?;
        ask()?;
        let after = read()?;
        let grown =
            |(queue, count): (&u32, &u64)| (*queue, count.saturating_sub(before.get(queue).copied().unwrap_or(0)));
        let grown: Vec<(u32, u64)> = after.iter().map(grown).filter(|(_, count)| *count > 0).collect();
        if grown.is_empty() {
            return Ok(None);
        }
        let mut full = grown.iter().filter(|(_, count)| *count >= ALONE);
        if let (Some((queue, _)), None) = (full.next(), full.next()) {
            return Ok(Some(*queue));
        }
    }
    bail!("something else sends to the server: which RX queue a flow takes cannot be told")
}

/// The measured matrix. Replies to ports that are not in `rx_queues` were not ours.
pub fn measured(seen: &Counts, rx_queues: &BTreeMap<u32, u32>) -> Vec<Cell> {
    let mut cells = BTreeMap::<_, u64>::new();
    for (&[port, tx_queue, tx_cpu], replies) in seen {
        if let Some(&rx_queue) = rx_queues.get(&port) {
            *cells.entry((rx_queue, tx_queue, tx_cpu)).or_default() += replies;
        }
    }
    let cell = |((rx_queue, tx_queue, tx_cpu), replies)| Cell { rx_queue, tx_queue, tx_cpu, replies };
    cells.into_iter().map(cell).collect()
}

/// The matrix that the server reports, of its first interface: what came between two answers to `responder status --json`.
pub fn reported(before: &Value, after: &Value) -> anyhow::Result<Vec<Cell>> {
    let earlier = cells_of(before)?;
    let mut cells = cells_of(after)?;
    for cell in &mut cells {
        let way = |other: &&Cell| {
            (other.rx_queue, other.tx_queue, other.tx_cpu) == (cell.rx_queue, cell.tx_queue, cell.tx_cpu)
        };
        cell.replies = cell.replies.saturating_sub(earlier.iter().find(way).map_or(0, |cell| cell.replies));
    }
    cells.retain(|cell| cell.replies > 0);
    cells.sort();
    Ok(cells)
}

fn cells_of(status: &Value) -> anyhow::Result<Vec<Cell>> {
    let Some(cells) = status["interfaces"][0]["matrix"].as_array() else { return Ok(Vec::new()) };
    let cell = |cell: &Value| {
        let number = |name: &str| u32::try_from(cell[name].as_u64()?).ok();
        Some(Cell {
            rx_queue: number("rx_queue")?,
            tx_queue: number("tx_queue")?,
            tx_cpu: number("tx_cpu")?,
            replies: cell["frames"].as_u64()?,
        })
    };
    cells.iter().map(|value| cell(value).with_context(|| format!("a cell of the status' matrix is {value}"))).collect()
}

/// The CPU of each queue's worker, as the server reports it.
pub fn worker_cpus(status: &Value) -> BTreeMap<u32, u32> {
    let queues = status["interfaces"][0]["queues"].as_array().map_or(&[][..], Vec::as_slice);
    let number = |value: &Value| u32::try_from(value.as_u64()?).ok();
    queues.iter().filter_map(|queue| Some((number(&queue["queue"])?, number(&queue["cpu"])?))).collect()
}

impl Cell {
    /// Whether the replies left by the queue that the queries came in on, from the CPU of that queue's worker.
    pub fn is_on_diagonal(&self, worker_cpus: &BTreeMap<u32, u32>) -> bool {
        self.rx_queue == self.tx_queue && worker_cpus.get(&self.rx_queue) == Some(&self.tx_cpu)
    }
}

/// Whether two matrices say the same, each cell within 1 % or the few frames that may be on their way.
pub fn agree(one: &[Cell], other: &[Cell]) -> bool {
    let mut pairs = BTreeMap::<_, [u64; 2]>::new();
    for (side, cells) in [one, other].into_iter().enumerate() {
        for cell in cells {
            pairs.entry((cell.rx_queue, cell.tx_queue, cell.tx_cpu)).or_default()[side] += cell.replies;
        }
    }
    pairs.values().all(|&[a, b]| a.abs_diff(b) <= (a.max(b) / 100).max(ALONE))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const fn cell(rx_queue: u32, tx_queue: u32, tx_cpu: u32, replies: u64) -> Cell {
        Cell { rx_queue, tx_queue, tx_cpu, replies }
    }

    #[test]
    fn the_driver_counts_per_queue() {
        let text = "NIC statistics:\n     peer_ifindex: 2\n     rx_queue_0_xdp_packets: 12\n     rx_queue_0_xdp_bytes: 99\n     rx_queue_10_xdp_packets: 3\n";
        assert_eq!(received_by_queue(text), BTreeMap::from([(0, 12), (10, 3)]));
        let virtio = "     rx0_packets: 20\n     rx0_xdp_packets: 12\n     rx1_xdp_packets: 3\n     tx0_packets: 9\n";
        assert_eq!(received_by_queue(virtio), BTreeMap::from([(0, 12), (1, 3)]));
        let igb =
            "     rx_packets: 9\n     rx_queue_0_packets: 7\n     rx_queue_1_packets: 2\n     tx_queue_0_packets: 5\n";
        assert_eq!(received_by_queue(igb), BTreeMap::from([(0, 7), (1, 2)]));
    }

    #[test]
    fn interrupts_tell_the_cpu_of_a_queue() {
        let table = |a: u64, b: u64| {
            format!(
                "           CPU0       CPU1\n 24:          1          0  PCI-MSI 0-edge      virtio0-config\n \
                 25:        {a}          5  PCI-MSI 1-edge      virtio0-input.0\n \
                 26:        9          9  PCI-MSI 2-edge      virtio0-output.0\n \
                 27:          3        {b}  PCI-MSI 3-edge      virtio0-input.1\nNMI:          0          0   Non-maskable\n"
            )
        };
        let (before, after) = (receive_interrupts(&table(10, 10)), receive_interrupts(&table(30, 11)));
        assert_eq!(before, BTreeMap::from([(0, vec![10, 5]), (1, vec![3, 10])]));
        assert_eq!(interrupted_cpus(&before, &after), BTreeMap::from([(0, 0), (1, 1)]));
        assert_eq!(interrupted_cpus(&after, &after), BTreeMap::new());
        let cells = [cell(0, 0, 1, 5), cell(0, 0, 0, 2), cell(1, 1, 0, 3)];
        assert_eq!(with_cpus(&cells, &BTreeMap::from([(0, 0)])), [cell(0, 0, 0, 7), cell(1, 1, u32::MAX, 3)]);
    }

    #[test]
    fn a_flow_alone_shows_its_queue() {
        let check = |readings: &[[u64; 2]], queue| {
            let mut readings = readings.iter().map(|&[a, b]| BTreeMap::from([(0, a), (1, b)]));
            let learned = learn(|| Ok(()), || readings.next().context("no more readings"));
            assert_eq!(learned.ok(), queue);
        };
        check(&[[5, 5], [5, 5 + ALONE]], Some(Some(1)));
        check(&[[5, 5], [6, 5 + ALONE]], Some(Some(1)));
        check(&[[5, 5], [5, 5]], Some(None));
        check(&[[0, 0], [ALONE, ALONE], [ALONE, ALONE], [2 * ALONE, ALONE]], Some(Some(0)));
        check(&[[0, 0], [ALONE, ALONE]], None);
    }

    #[test]
    fn what_was_seen_and_what_is_known_of_the_flows_make_the_matrix() {
        let seen = Counts::from([([7, 0, 0], 3), ([8, 0, 0], 4), ([9, 1, 0], 5), ([99, 1, 1], 6)]);
        let cells = measured(&seen, &BTreeMap::from([(7, 0), (8, 0), (9, 1)]));
        assert_eq!(cells, [cell(0, 0, 0, 7), cell(1, 1, 0, 5)]);
        let cpus = BTreeMap::from([(0, 0), (1, 1)]);
        assert_eq!(cells.iter().map(|cell| cell.is_on_diagonal(&cpus)).collect::<Vec<_>>(), [true, false]);
        assert!(!cell(0, 1, 0, 1).is_on_diagonal(&cpus));
    }

    #[test]
    fn the_server_reports_what_came_since() {
        let status = |frames: u64| {
            json!({"interfaces": [{
                "queues": [{"queue": 0, "cpu": 1}],
                "matrix": [{"rx_queue": 0, "tx_queue": 0, "tx_cpu": 1, "frames": frames}],
            }]})
        };
        let cells = reported(&status(10), &status(1010)).expect("a matrix");
        assert_eq!(cells, [cell(0, 0, 1, 1000)]);
        assert_eq!(worker_cpus(&status(0)), BTreeMap::from([(0, 1)]));
        assert!(agree(&cells, &[cell(0, 0, 1, 1010)]));
        assert!(!agree(&cells, &[cell(0, 0, 1, 1020)]));
        assert!(!agree(&cells, &[cell(0, 0, 1, 1000), cell(1, 0, 1, 20)]));
        assert_eq!(reported(&json!({}), &json!({})).expect("none"), []);
    }
}
