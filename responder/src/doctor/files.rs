//! What /proc and /sys say, below a root that is `/` but in tests.

use std::{fs, path::Path};

use super::facts::{Reading, Unread};
use crate::xdp::topology::{self, QueueInterrupt};

/// A file that holds one number.
pub(super) fn number(root: &Path, path: &str) -> Reading<u64> {
    let text = fs::read_to_string(root.join(path))?;
    text.trim().parse().map_err(|_| Unread::Refused(format!("/{path} says {:?}", text.trim())))
}

/// The interrupts of an interface's queues. One that was told to go to a single CPU is taken to be there: it moves when it comes the next time.
pub(super) fn interrupts(root: &Path, interface: &str) -> Vec<QueueInterrupt> {
    let mut interrupts = topology::queue_interrupts(root, interface);
    for interrupt in &mut interrupts {
        let told = root.join(format!("proc/irq/{}/smp_affinity_list", interrupt.number));
        if let [cpu] = list(&fs::read_to_string(told).unwrap_or_default())[..] {
            interrupt.cpu = Some(cpu);
        }
    }
    interrupts
}

/// By transmit queue: the CPUs that send through it. An interface with one queue has nothing to choose.
pub(super) fn xps(root: &Path, interface: &str) -> Reading<Vec<Vec<usize>>> {
    let queues = root.join("sys/class/net").join(interface).join("queues");
    let mut maps = Vec::new();
    loop {
        match fs::read_to_string(queues.join(format!("tx-{}/xps_cpus", maps.len()))) {
            Ok(mask) => maps.push(cpus_of_mask(&mask)),
            Err(error) if maps.is_empty() => return Err(error.into()),
            // Behind the last queue in use there is no file, or one that cannot be read.
            Err(_) => return Ok(maps),
        }
    }
}

/// The CPUs of a mask as the kernel writes it: hexadecimal, in groups of 32 from the highest down, with commas between.
fn cpus_of_mask(mask: &str) -> Vec<usize> {
    let digits = mask.trim().chars().rev().filter_map(|digit| digit.to_digit(16));
    digits
        .enumerate()
        .flat_map(|(at, digit)| (0..4).filter(move |bit| digit >> bit & 1 == 1).map(move |bit| 4 * at + bit))
        .collect()
}

/// The mask of one CPU.
#[must_use]
pub(super) fn mask_of_cpu(cpu: usize) -> String {
    let lower = ",00000000".repeat(cpu / 32);
    format!("{:x}{lower}", 1u32 << (cpu % 32))
}

/// Numbers as the kernel lists them: `0-2,5`.
fn list(text: &str) -> Vec<usize> {
    let ranges = text.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten().collect()
}

/// What stands behind a key in a file of such lines.
fn value(text: &str, key: &str) -> Option<String> {
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()))
}

fn status(root: &Path, key: &str) -> Option<String> {
    value(&fs::read_to_string(root.join("proc/self/status")).ok()?, key)
}

/// The CPUs that this process may run on.
pub(super) fn allowed_cpus(root: &Path) -> Vec<usize> {
    status(root, "Cpus_allowed_list:").map_or_else(Vec::new, |cpus| list(&cpus))
}

/// This process's effective capabilities.
pub(super) fn capabilities(root: &Path) -> u64 {
    status(root, "CapEff:").and_then(|mask| u64::from_str_radix(&mask, 16).ok()).unwrap_or(0)
}

/// How much memory this process may lock, in bytes; `None` without limit.
pub(super) fn memlock(root: &Path) -> Option<u64> {
    let limits = fs::read_to_string(root.join("proc/self/limits")).unwrap_or_default();
    value(&limits, "Max locked memory")?.split_whitespace().next()?.parse().ok()
}

/// The NUMA node of a NIC and its CPUs. What is attached to none, or is alone, has none.
pub(super) fn node(root: &Path, interface: &str) -> Option<(u32, Vec<usize>)> {
    let node = fs::read_to_string(root.join("sys/class/net").join(interface).join("device/numa_node")).ok()?;
    // It is -1 where nobody knows.
    let node = node.trim().parse::<u32>().ok()?;
    let cpus = fs::read_to_string(root.join(format!("sys/devices/system/node/node{node}/cpulist"))).ok()?;
    Some((node, list(&cpus)))
}

/// The stricter of the interface's setting and that of all interfaces, as the kernel takes it.
pub(super) fn rp_filter(root: &Path, interface: &str) -> u8 {
    let read = |name: &str| number(root, &format!("proc/sys/net/ipv4/conf/{name}/rp_filter")).unwrap_or(0);
    // The kernel takes the larger number, and 2 is the more lenient one.
    u8::try_from(read("all").max(read(interface))).unwrap_or(0)
}

/// Whether a process of this name runs.
pub(super) fn runs(root: &Path, name: &str) -> bool {
    let processes = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    processes
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(|first: char| first.is_ascii_digit()))
        .any(|entry| fs::read_to_string(entry.path().join("comm")).is_ok_and(|comm| comm.trim() == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that stands for the root, with these files; it goes with the test.
    struct Root(std::path::PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("responder-doctor-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn a_made_up_system_is_read() {
        let root = Root::new(
            "system",
            &[
                ("proc/self/status", "Name:\tx\nCapEff:\t0000000000003000\nCpus_allowed_list:\t0-2,5\n"),
                ("proc/self/limits", "Max locked memory         8388608              8388608              bytes\n"),
                ("proc/77/comm", "irqbalance\n"),
                (
                    "proc/interrupts",
                    "  CPU0 CPU1\n 41: 1 2 PCI-MSI 1-edge eth0-rx-0\n 42: 1 2 PCI-MSI 2-edge eth0-tx-0\n",
                ),
                ("proc/irq/41/smp_affinity_list", "1\n"),
                ("proc/irq/41/effective_affinity_list", "0\n"),
                ("proc/irq/42/smp_affinity_list", "0-1\n"),
                ("proc/irq/42/effective_affinity_list", "0\n"),
                ("proc/sys/net/ipv4/conf/all/rp_filter", "0\n"),
                ("proc/sys/net/ipv4/conf/eth0/rp_filter", "1\n"),
                ("sys/class/net/eth0/queues/tx-0/xps_cpus", "00000001\n"),
                ("sys/class/net/eth0/queues/tx-1/xps_cpus", "2,80000000\n"),
                ("sys/class/net/eth0/napi_defer_hard_irqs", "2\n"),
                ("sys/class/net/eth0/device/numa_node", "1\n"),
                ("sys/devices/system/node/node1/cpulist", "2-3\n"),
            ],
        );
        let root = &root.0;
        assert_eq!((allowed_cpus(root), capabilities(root), memlock(root)), (vec![0, 1, 2, 5], 0x3000, Some(8 << 20)));
        assert_eq!((runs(root, "irqbalance"), runs(root, "irq"), rp_filter(root, "eth0")), (true, false, 1));
        let interrupts: Vec<_> = interrupts(root, "eth0")
            .iter()
            .map(|found| (found.queue, found.number, found.receives, found.cpu))
            .collect();
        assert_eq!(interrupts, [(0, 41, true, Some(1)), (0, 42, false, Some(0))]);
        assert_eq!(xps(root, "eth0"), Ok(vec![vec![0], vec![31, 33]]));
        assert_eq!(number(root, "sys/class/net/eth0/napi_defer_hard_irqs"), Ok(2));
        assert_eq!(node(root, "eth0"), Some((1, vec![2, 3])));
    }

    #[test]
    fn what_is_not_there_is_not_offered() {
        let root = Root::new("empty", &[("proc/self/limits", "Max locked memory  unlimited unlimited bytes\n")]);
        let root = &root.0;
        assert_eq!((xps(root, "eth0"), number(root, "x")), (Err(Unread::NotOffered), Err(Unread::NotOffered)));
        assert_eq!((memlock(root), capabilities(root), node(root, "eth0")), (None, 0, None));
    }

    #[test]
    fn masks_go_both_ways() {
        for cpu in [0, 1, 31, 32, 63, 64, 300] {
            assert_eq!(cpus_of_mask(&mask_of_cpu(cpu)), [cpu]);
        }
        assert_eq!(mask_of_cpu(33), "2,00000000");
    }
}
