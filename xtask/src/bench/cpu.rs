//! CPU time: of a process with all its threads, exactly; of a CPU by kind, in ticks; and how often threads were switched.

use std::{fs, path::PathBuf, time::Duration};

use anyhow::Context as _;

/// Ticks a second of `/proc`: USER_HZ, the same on all architectures that we know.
const TICKS: f64 = 100.0;

/// A process and those that it has started.
fn family(pid: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // Behind the command's name, which may hold anything, and the state.
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let mut family = vec![pid];
    let mut others: Vec<(u32, u32)> = processes().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    // Children have higher numbers than their parents, but for when numbers begin anew.
    others.sort_unstable();
    for (pid, parent) in others {
        if family.contains(&parent) {
            family.push(pid);
        }
    }
    family
}

fn processes() -> impl Iterator<Item = u32> {
    let all = fs::read_dir("/proc").into_iter().flatten();
    all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

/// The directories of all threads of a process and of those that it has started.
fn threads(pid: u32) -> impl Iterator<Item = PathBuf> {
    let tasks = family(pid).into_iter().filter_map(|pid| fs::read_dir(format!("/proc/{pid}/task")).ok());
    tasks.flatten().filter_map(|thread| Some(thread.ok()?.path()))
}

/// CPU time of a process and of those that it has started, with all their threads, to the nanosecond (`schedstat`). A thread that has ended counts no more.
#[must_use]
pub fn time(pid: u32) -> Duration {
    let of = |thread: PathBuf| {
        // It may have ended meanwhile.
        let text = fs::read_to_string(thread.join("schedstat")).unwrap_or_default();
        text.split_whitespace().next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    Duration::from_nanos(threads(pid).map(of).sum())
}

/// CPU time that the kernel's thread for deferred interrupts of each CPU has taken: what of receiving is on no other thread's account.
pub fn deferred_interrupts() -> Duration {
    let is_softirq =
        |pid: &u32| fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.starts_with("ksoftirqd/"));
    processes().filter(is_softirq).map(time).sum()
}

/// Seconds in user and in kernel mode of the same threads, in ticks: to be read over half a minute or more.
#[must_use]
pub fn split(pid: u32) -> (f64, f64) {
    let of = |thread: PathBuf| -> Option<(f64, f64)> {
        let stat = fs::read_to_string(thread.join("stat")).ok()?;
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    };
    let sum = threads(pid).filter_map(of).fold((0.0, 0.0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
    (sum.0 / TICKS, sum.1 / TICKS)
}

/// Seconds that all CPUs together have spent in soft interrupts, which is where packets are taken in, in ticks.
pub fn softirq() -> anyhow::Result<f64> {
    let path = "/proc/stat";
    let text = fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    softirq_in(&text).with_context(|| format!("{path} has no time of soft interrupts"))
}

/// From the line `cpu  user nice system idle iowait irq softirq steal ...`.
fn softirq_in(text: &str) -> Option<f64> {
    let mut fields = text.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
    Some(fields.nth(6)?.parse::<f64>().ok()? / TICKS)
}

/// How often these threads gave up their CPU, or had to.
#[must_use]
pub fn switches(pid: u32) -> u64 {
    let of = |thread: PathBuf| -> u64 {
        let status = fs::read_to_string(thread.join("status")).unwrap_or_default();
        let lines = status.lines().filter(|line| line.contains("ctxt_switches:"));
        lines.filter_map(|line| line.rsplit(char::is_whitespace).next()?.parse::<u64>().ok()).sum()
    };
    threads(pid).map(of).sum()
}

/// Datagrams that UDP sockets at a port have dropped, as `/proc/net/udp` of the caller's network namespace says.
pub fn socket_drops(port: u16) -> anyhow::Result<u64> {
    let own = "/proc/thread-self/net/udp";
    let text = fs::read_to_string(own).with_context(|| format!("reading {own}"))?;
    Ok(drops_in(&text, port))
}

fn drops_in(table: &str, port: u16) -> u64 {
    let port = format!(":{port:04X}");
    let lines =
        table.lines().skip(1).filter(|line| line.split_whitespace().nth(1).is_some_and(|local| local.ends_with(&port)));
    lines.filter_map(|line| line.split_whitespace().last()?.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_those_of_the_port() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops\n\
             1: 01004E0A:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0000000000000000 12\n\
             2: 01004E0A:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0000000000000000 30\n\
             3: 01004E0A:0036 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0000000000000000 99\n";
        assert_eq!(drops_in(table, 53), 42);
    }

    #[test]
    fn soft_interrupts_are_the_seventh_of_all() {
        let text = "cpu  719556 60660 228281 2774113 7644 5 118537 13302 0 0\ncpu0 1 2 3 4 5 6 7 8 9 10\n";
        assert_eq!(softirq_in(text), Some(1185.37));
        assert_eq!(softirq_in("cpu0 1 2 3 4 5 6 7"), None);
        assert!(softirq().is_ok_and(|seconds| seconds >= 0.0));
    }

    #[test]
    fn this_process_has_used_its_cpu() {
        let pid = std::process::id();
        let before = time(pid);
        let mut sum = 0_u64;
        while time(pid) - before < Duration::from_millis(5) {
            sum = std::hint::black_box(sum + 1);
        }
        assert!(switches(pid) > 0);
    }
}
