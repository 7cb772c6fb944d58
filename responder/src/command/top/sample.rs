//! One look at a running server: its status, and what the kernel says of its CPUs and threads at that moment.
//!
//! The kernel's figures come from `/proc` of this machine (proc_stat(5), and `schedstat` of each thread); where they cannot be read they are missing.

use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::control::{self, status::Status};

/// A look.
#[derive(Clone, Debug)]
pub(super) struct Sample {
    pub(super) at: Instant,
    pub(super) status: Status,
    pub(super) cpus: BTreeMap<usize, CpuTicks>,
    /// Time that each thread has run.
    pub(super) threads: BTreeMap<i32, Duration>,
}

/// What a CPU has done since the machine started, in ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct CpuTicks {
    pub(super) user: u64,
    pub(super) system: u64,
    /// Interrupts, and what the kernel does for the network on their behalf.
    pub(super) softirq: u64,
    pub(super) total: u64,
}

impl Sample {
    /// Asks the server at this control socket, then looks.
    pub(super) fn take(control: &Path) -> Result<Self> {
        let status = Status::read(&control::ask(control)?)?;
        let cpus = parse_cpus(&fs::read_to_string("/proc/stat").unwrap_or_default());
        let threads = status.workers().filter_map(|worker| worker.thread);
        let threads = threads.filter_map(|thread| Some((thread, ran(status.pid, thread)?)));
        let threads = threads.collect();
        Ok(Self { at: Instant::now(), status, cpus, threads })
    }
}

fn ran(process: u32, thread: i32) -> Option<Duration> {
    parse_schedstat(&fs::read_to_string(format!("/proc/{process}/task/{thread}/schedstat")).ok()?)
}

/// Nanoseconds on a CPU, nanoseconds waiting for one, times that it got one.
fn parse_schedstat(text: &str) -> Option<Duration> {
    text.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
}

/// The lines `cpuN user nice system idle iowait irq softirq steal ...`. What follows is counted in `user` and `nice` already.
fn parse_cpus(text: &str) -> BTreeMap<usize, CpuTicks> {
    let line = |line: &str| {
        let mut words = line.strip_prefix("cpu")?.split(' ');
        let cpu = words.next()?.parse().ok()?;
        let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
        let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
        let total = user + nice + system + idle + iowait + irq + softirq + steal;
        Some((cpu, CpuTicks { user: user + nice, system, softirq: irq + softirq, total }))
    };
    text.lines().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_of_each_cpu() {
        let text = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu0 10 1 20 60 2 3 4 0 5 0\ncpu12 1 0 0 0 0 0 0 7\nintr 5\n";
        let expected = BTreeMap::from([
            (0, CpuTicks { user: 11, system: 20, softirq: 7, total: 100 }),
            (12, CpuTicks { user: 1, system: 0, softirq: 0, total: 8 }),
        ]);
        assert_eq!(parse_cpus(text), expected);
        assert_eq!(parse_cpus("cpu0 1 2 3\n"), BTreeMap::new());
    }

    #[test]
    fn time_of_a_thread() {
        assert_eq!(parse_schedstat("1500000000 7 3\n"), Some(Duration::from_millis(1500)));
        assert_eq!(parse_schedstat(""), None);
        let own = crate::sys::thread_id();
        assert!(ran(std::process::id(), own).is_some());
    }
}
