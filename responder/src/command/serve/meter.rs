//! What a sink prints: each second the packets that each queue and each kernel socket has received in it.

use std::{collections::BTreeMap, time::Duration};

use crate::control::status::Status;

const EVERY: Duration = Duration::from_secs(1);

/// What was received until the last line.
#[derive(Debug, Default)]
pub(super) struct Meter {
    told: Duration,
    before: BTreeMap<String, u64>,
}

impl Meter {
    /// Prints a line if it is time, `uptime` after the start.
    pub(super) fn tick(&mut self, uptime: Duration, status: impl FnOnce() -> Status) {
        let elapsed = uptime.saturating_sub(self.told);
        if elapsed >= EVERY {
            self.told = uptime;
            if let Some(line) = self.line(uptime, elapsed, received(&status())) {
                println!("{line}");
            }
        }
    }

    /// `None` where nothing has come.
    fn line(&mut self, uptime: Duration, elapsed: Duration, now: BTreeMap<String, u64>) -> Option<String> {
        let rate = |count: u64| count as f64 / elapsed.as_secs_f64();
        let since = |(name, count): (&String, &u64)| (name.clone(), count - self.before.get(name).unwrap_or(&0));
        let new: Vec<(String, u64)> = now.iter().map(since).filter(|(_, count)| *count > 0).collect();
        self.before = now;
        let all: u64 = new.iter().map(|(_, count)| count).sum();
        let mut line = format!("{:>6.0} s {:>12.0}/s", uptime.as_secs_f64(), rate(all));
        for (name, count) in &new {
            line += &format!("  {name} {:.0}", rate(*count));
        }
        (all > 0).then_some(line)
    }
}

fn received(status: &Status) -> BTreeMap<String, u64> {
    let queues = status.interfaces.iter().flat_map(|interface| {
        interface.queues.iter().map(|queue| (format!("{} queue {}", interface.name, queue.queue), queue.received))
    });
    let sockets = status.kernel_path.udp_workers.iter();
    let sockets = sockets.map(|worker| (format!("{} cpu {}", worker.address, worker.cpu), worker.counts.received));
    queues.chain(sockets).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_what_came_since_the_last() {
        let mut meter = Meter::default();
        let counts = |a, b| BTreeMap::from([("eth0 queue 0".to_owned(), a), ("eth0 queue 1".to_owned(), b)]);
        let mut line = |uptime, elapsed, now| {
            meter.line(Duration::from_secs(uptime), Duration::from_secs(elapsed), now).unwrap_or_default()
        };
        assert_eq!(line(1, 1, counts(0, 0)), "");
        assert_eq!(line(2, 1, counts(700, 0)), "     2 s          700/s  eth0 queue 0 700");
        assert_eq!(line(4, 2, counts(900, 50)), "     4 s          125/s  eth0 queue 0 100  eth0 queue 1 25");
        assert_eq!(line(5, 1, counts(900, 50)), "");
    }
}
