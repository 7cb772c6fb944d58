//! The report as text for a terminal.

use std::fmt::Write as _;

use super::{Report, Share};
use crate::matrix::Cell;

/// A matrix of more ways through the server is shown as a list.
const COLUMNS_MAX: usize = 6;

impl Report {
    /// The report as text for a terminal, with or without colours.
    #[must_use]
    pub fn render(&self, colour: bool) -> String {
        let paint =
            |code: &str, text: &str| if colour { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() };
        let heading = |text: &str| format!("\n{}\n", paint("1", text));
        let mut text = String::new();
        for example in &self.examples {
            text += example;
            text.push('\n');
        }
        for fault in &self.faults {
            text += &paint("31", &format!("wrong: {}\n", fault.sentence));
            let _ = write!(text, "; expected:\n{}; got:\n{}\n", fault.expected, fault.got);
        }

        text += paint(
            "1",
            "Replies by the queue their queries came in on, and the queue and CPU they left from, as measured",
        )
        .as_str();
        text.push('\n');
        text += &self.matrix_table(
            &|cell| {
                let good = cell.is_on_diagonal(&self.worker_cpus);
                if good { "32" } else { "31" }
            },
            colour,
        );
        let agreement = if self.matrices_agree { "the same" } else { "another one" };
        let workers: Vec<_> =
            self.worker_cpus.iter().map(|(queue, cpu)| format!("queue {queue} on CPU {cpu}")).collect();
        let _ = writeln!(text, "workers: {}; `responder status` reports {agreement}", listed(&workers));

        text += &heading("Answered right");
        let _ = writeln!(text, "{:<10} {:>12} {:>11} {:>7}", "", "queries", "per second", "share");
        let all = Share { of: "all".to_owned(), right: self.right, share: 1.0, per_second: self.right_per_second };
        for share in self.queues.iter().chain(&self.families).chain([&all]) {
            let rate = format!("{:.0}", share.per_second);
            let _ =
                writeln!(text, "{:<10} {:>12} {rate:>11} {:>7}", share.of, grouped(share.right), percent(share.share));
        }
        let _ = writeln!(
            text,
            "{} of {} queries ({} distinct ones, {} flows, {:.1} s, {:.0} sent per second); {} wrong, {} lost",
            grouped(self.right),
            grouped(self.sent),
            grouped(self.distinct as u64),
            self.flows,
            self.seconds,
            self.sent_per_second,
            grouped(self.wrong),
            grouped(self.lost)
        );

        text += &heading("Counters");
        for (name, counts) in [
            ("response codes", &self.codes),
            ("XDP verdicts", &self.verdicts),
            ("dropped by the server", &self.dropped),
            ("dropped by the kernel", &self.kernel_dropped),
        ] {
            let shown: Vec<_> = counts
                .iter()
                .filter(|(_, count)| **count > 0)
                .map(|(name, count)| format!("{name} {}", grouped(*count)))
                .collect();
            let _ = writeln!(text, "{name:<22} {}", listed(&shown));
        }
        text.push('\n');

        let problems = self.problems();
        if problems.is_empty() {
            let verdict = format!("all {} queries answered right, matrix diagonal\n", grouped(self.sent));
            return text + &paint("32", &verdict);
        }
        for problem in problems {
            text += &paint("31", &format!("problem: {problem}\n"));
        }
        text
    }

    /// A row for each RX queue and a column for each way out; a list when that would be too wide.
    fn matrix_table(&self, colour_of: &dyn Fn(&Cell) -> &'static str, colour: bool) -> String {
        let paint =
            |cell: &Cell, text: String| if colour { format!("\x1b[{}m{text}\x1b[0m", colour_of(cell)) } else { text };
        let mut ways: Vec<_> = self.matrix.iter().map(|cell| (cell.tx_queue, cell.tx_cpu)).collect();
        ways.sort_unstable();
        ways.dedup();
        let mut text = String::new();
        if ways.len() > COLUMNS_MAX {
            for cell in &self.matrix {
                let line = format!(
                    "RX {:<4} -> TX {:<4} CPU {:<4} {:>14}",
                    cell.rx_queue,
                    cell.tx_queue,
                    cell.tx_cpu,
                    grouped(cell.replies)
                );
                text += &paint(cell, line);
                text.push('\n');
            }
            return text;
        }
        let _ = write!(text, "{:<8}", "");
        for (queue, cpu) in &ways {
            let _ = write!(text, " {:>16}", format!("TX {queue}, CPU {cpu}"));
        }
        text.push('\n');
        for row in 0..self.queues.len() {
            let _ = write!(text, "{:<8}", format!("RX {row}"));
            for way in &ways {
                let cell = self
                    .matrix
                    .iter()
                    .find(|cell| cell.rx_queue as usize == row && (cell.tx_queue, cell.tx_cpu) == *way);
                text += &cell.map_or_else(
                    || format!(" {:>16}", "."),
                    |cell| paint(cell, format!(" {:>16}", grouped(cell.replies))),
                );
            }
            text.push('\n');
        }
        text
    }
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.1} %", share * 100.0)
}

fn listed(parts: &[String]) -> String {
    if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
}

/// A number with commas between thousands.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
