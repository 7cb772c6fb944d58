//! Which CPU serves which queue.
//!
//! The RX queue decides the CPU: a worker runs where its queue's interrupt is handled, so that a packet stays in one CPU's caches.
//! Where a queue has no interrupt (veth) or its CPU is taken, the worker gets the next free CPU. Two workers share a CPU only
//! when there are more queues than CPUs.
//!
//! What it does not do: move interrupts, or pin threads (the worker pins itself; when its queue's interrupt moves, the control thread moves it).

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Result, ensure};

/// The CPU of one queue's worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The NIC's queue.
    pub queue: u32,
    /// The CPU.
    pub cpu: usize,
    /// Another worker of this interface has the same CPU.
    pub shared: bool,
}

/// Places the workers of `queues`.
///
/// `allowed` are the CPUs this process may run on, `given` the operator's choice in the order of the queues (repeated when it is
/// shorter), `interrupts` the CPU that handles each queue's interrupt, where there is one.
pub fn place(
    queues: &[u32],
    allowed: &[usize],
    given: Option<&[usize]>,
    interrupts: &BTreeMap<u32, usize>,
) -> Result<Vec<Placement>> {
    ensure!(!allowed.is_empty(), "this process may run on no CPU at all");
    let cpus: Vec<usize> = match given {
        Some(given) => {
            check(given, allowed)?;
            given.iter().copied().cycle().take(queues.len()).collect()
        }
        None => automatic(queues, allowed, interrupts),
    };
    Ok(queues
        .iter()
        .zip(&cpus)
        .map(|(&queue, &cpu)| Placement { queue, cpu, shared: cpus.iter().filter(|other| **other == cpu).count() > 1 })
        .collect())
}

/// Checks that this process may run on the CPUs that the operator has given.
pub fn check(given: &[usize], allowed: &[usize]) -> Result<()> {
    for cpu in given {
        ensure!(allowed.contains(cpu), "CPU {cpu} does not exist or is not allowed here: there are {}", list(allowed));
    }
    Ok(())
}

/// The CPUs this process may run on.
#[must_use]
pub fn allowed_cpus() -> Vec<usize> {
    core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect()
}

/// The interrupt's CPU while it has no more than its share of the workers, then whatever has the fewest.
fn automatic(queues: &[u32], allowed: &[usize], interrupts: &BTreeMap<u32, usize>) -> Vec<usize> {
    let share = queues.len().div_ceil(allowed.len().max(1));
    let mut load: BTreeMap<usize, usize> = allowed.iter().map(|cpu| (*cpu, 0)).collect();
    let mut placed: BTreeMap<u32, usize> = BTreeMap::new();
    // First everyone who has an interrupt, so that nobody without one takes its CPU.
    for queue in queues {
        if let Some(cpu) = interrupts.get(queue)
            && let Some(workers) = load.get_mut(cpu).filter(|workers| **workers < share)
        {
            *workers += 1;
            placed.insert(*queue, *cpu);
        }
    }
    // Then the rest, from the last CPU down: CPU 0 does the machine's housekeeping and, on a veth pair, often the sender's work.
    for queue in queues {
        if placed.contains_key(queue) {
            continue;
        }
        let Some((cpu, workers)) = load.iter_mut().rev().min_by_key(|(_, workers)| **workers) else { continue };
        *workers += 1;
        placed.insert(*queue, *cpu);
    }
    queues.iter().map(|queue| placed[queue]).collect()
}

/// The CPU that handles each queue's receive interrupt, as far as the kernel's names for interrupts tell.
#[must_use]
pub fn interrupts(interface: &str) -> BTreeMap<u32, usize> {
    receive_cpus(&queue_interrupts(Path::new("/"), interface))
}

/// The CPU of each queue's receive interrupt, where it is known.
#[must_use]
pub fn receive_cpus(interrupts: &[QueueInterrupt]) -> BTreeMap<u32, usize> {
    let receive = interrupts.iter().filter(|interrupt| interrupt.receives);
    receive.filter_map(|interrupt| Some((interrupt.queue, interrupt.cpu?))).collect()
}

/// An interrupt of one of a NIC's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueInterrupt {
    /// The queue.
    pub queue: u32,
    /// The interrupt's number.
    pub number: u32,
    /// It tells of received packets; others tell only of sent ones.
    pub receives: bool,
    /// The CPU that handles it.
    pub cpu: Option<usize>,
}

/// The interrupts of an interface's queues, as far as the kernel's names for interrupts tell. /proc and /sys are looked for below `root`.
#[must_use]
pub fn queue_interrupts(root: &Path, interface: &str) -> Vec<QueueInterrupt> {
    let device = root.join("sys/class/net").join(interface).join("device");
    // A virtio NIC's interrupts carry the name of its virtio device, others that of the interface.
    let device_name = fs::read_link(&device).ok().and_then(|path| Some(path.file_name()?.to_str()?.to_owned()));
    let names: Vec<&str> = [Some(interface), device_name.as_deref()].into_iter().flatten().collect();
    let table = fs::read_to_string(root.join("proc/interrupts")).unwrap_or_default();
    let mut found = named_interrupts(&table, &names);
    for interrupt in &mut found {
        let affinity = root.join(format!("proc/irq/{}/effective_affinity_list", interrupt.number));
        let affinity = fs::read_to_string(affinity).unwrap_or_default();
        interrupt.cpu = affinity.trim().split([',', '-']).next().and_then(|first| first.parse().ok());
    }
    found
}

/// Finds the queues' interrupts in the text of /proc/interrupts. Drivers name them `eth0-TxRx-3`, `eth0-rx-3`, `eth0-rxtx-3`,
/// `i40e-eth0-TxRx-3`, `virtio1-input.3`, `mlx5_comp3@pci:0000:01:00.0`: the device, a word that is about receiving, the queue's number.
fn named_interrupts(table: &str, names: &[&str]) -> Vec<QueueInterrupt> {
    let mut found = Vec::new();
    for line in table.lines() {
        let mut words = line.split_whitespace();
        let Some(number) = words.next().and_then(|word| word.strip_suffix(':')?.parse::<u32>().ok()) else {
            continue;
        };
        let Some(action) = words.next_back() else { continue };
        let Some(role) = names.iter().find_map(|name| role(action, name)) else { continue };
        let role = role.to_ascii_lowercase();
        let other = ["event", "config", "mgmnt", "async"].iter().any(|word| role.starts_with(word));
        let transmits_only = role.starts_with("output") || (role.starts_with("tx-") && !role.contains("rx"));
        let digits = role.len() - role.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
        if let (false, Ok(queue)) = (other, role[role.len() - digits..].parse()) {
            found.push(QueueInterrupt { queue, number, receives: !transmits_only, cpu: None });
        }
    }
    found
}

/// What an interrupt is for, if it is the device's: what follows its name, or `comp3` of `mlx5_comp3@pci:DEVICE`.
fn role<'a>(action: &'a str, device: &str) -> Option<&'a str> {
    if let Some((role, bus)) = action.split_once("@pci:") {
        return role.split_once('_').map(|(_driver, role)| role).filter(|_| bus == device);
    }
    let (before, role) = action.split_once(&format!("{device}-"))?;
    (before.is_empty() || before.ends_with('-')).then_some(role)
}

/// CPUs for a message: `0, 1, 2`.
fn list(cpus: &[usize]) -> String {
    cpus.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(
        queues: &[u32],
        allowed: &[usize],
        given: Option<&[usize]>,
        interrupts: &[(u32, usize)],
    ) -> Vec<(usize, bool)> {
        let interrupts = interrupts.iter().copied().collect();
        place(queues, allowed, given, &interrupts).unwrap().iter().map(|place| (place.cpu, place.shared)).collect()
    }

    #[test]
    fn the_interrupt_decides() {
        assert_eq!(
            cpus(&[0, 1, 2], &[0, 1, 2, 3], None, &[(0, 2), (1, 0), (2, 3)]),
            [(2, false), (0, false), (3, false)]
        );
    }

    #[test]
    fn a_queue_without_interrupt_takes_no_other_queues_cpu() {
        assert_eq!(cpus(&[0, 1], &[0, 1], None, &[(1, 1)]), [(0, false), (1, false)]);
    }

    #[test]
    fn two_interrupts_on_one_cpu_do_not_make_two_workers_share_it() {
        assert_eq!(cpus(&[0, 1], &[0, 1], None, &[(0, 0), (1, 0)]), [(0, false), (1, false)]);
    }

    #[test]
    fn when_an_interrupt_moves_the_others_stay() {
        let before = cpus(&[0, 1, 2], &[0, 1, 2, 3], None, &[(0, 2), (1, 0), (2, 3)]);
        let after = cpus(&[0, 1, 2], &[0, 1, 2, 3], None, &[(0, 1), (1, 0), (2, 3)]);
        assert_eq!((before[0].0, after[0].0, &before[1..]), (2, 1, &after[1..]));
        // Onto a CPU that is taken: there it would share, so it goes where there is room.
        assert_eq!(cpus(&[0, 1], &[0, 1, 2], None, &[(0, 0), (1, 0)]), [(0, false), (2, false)]);
    }

    #[test]
    fn without_interrupts_from_the_last_cpu_down() {
        assert_eq!(cpus(&[0, 1], &[0, 1], None, &[]), [(1, false), (0, false)]);
    }

    #[test]
    fn more_queues_than_cpus_share_and_say_so() {
        assert_eq!(cpus(&[0, 1, 2], &[0, 1], None, &[]), [(1, true), (0, false), (1, true)]);
        assert_eq!(cpus(&[0, 1, 2], &[0, 1], Some(&[1]), &[]), [(1, true), (1, true), (1, true)]);
    }

    #[test]
    fn workers_that_must_share_stay_with_their_interrupts() {
        let interrupts = [(0, 0), (1, 0), (2, 1), (3, 1)];
        assert_eq!(cpus(&[0, 1, 2, 3], &[0, 1], None, &interrupts), [(0, true), (0, true), (1, true), (1, true)]);
        let all_on_one = [(0, 0), (1, 0), (2, 0), (3, 0)];
        assert_eq!(cpus(&[0, 1, 2, 3], &[0, 1], None, &all_on_one), [(0, true), (0, true), (1, true), (1, true)]);
    }

    #[test]
    fn the_operator_decides() {
        assert_eq!(cpus(&[0, 7], &[0, 1, 2], Some(&[2, 0]), &[(0, 1)]), [(2, false), (0, false)]);
    }

    #[test]
    fn a_cpu_that_does_not_exist_is_named() {
        let error = place(&[0], &[0, 1], Some(&[9]), &BTreeMap::new()).unwrap_err().to_string();
        assert_eq!(error, "CPU 9 does not exist or is not allowed here: there are 0, 1");
    }

    #[test]
    fn interrupt_names_of_several_drivers() {
        let table = "           CPU0       CPU1\n\
             24:        123          0  PCI-MSI 49152-edge      virtio1-config\n\
             25:          0          9  PCI-MSI 49153-edge      virtio1-input.0\n\
             26:          0          1  PCI-MSI 49154-edge      virtio1-output.0\n\
             27:          0          9  PCI-MSI 49155-edge      virtio1-input.1\n\
             40:          0          0  PCI-MSI 1-edge      eth0\n\
             41:          0          0  PCI-MSI 1-edge      eth0-TxRx-0\n\
             42:          0          0  PCI-MSI 1-edge      eth0-rx-1\n\
             43:          0          0  PCI-MSI 1-edge      eth0-tx-1\n\
             44:          0          0  PCI-MSI 1-edge      eth01-TxRx-7\n\
             45:          0          0  PCI-MSI 1-edge      ens3-rxtx-0\n\
             46:          0          0  PCI-MSI 1-edge      ens3-rxtx-1\n\
             47:          0          0  PCI-MSI 1-edge      ens3-event-2\n\
             48:          0          0  PCI-MSI 1-edge      i40e-ens4-TxRx-5\n\
             49:          0          0  PCI-MSI 1-edge      ens5-Tx-Rx-0\n\
             50:          0          0  PCI-MSI 1-edge      mlx5_comp3@pci:0000:01:00.0\n\
             51:          0          0  PCI-MSI 1-edge      mlx5_async0@pci:0000:01:00.0\n\
            NMI:          0          0   Non-maskable interrupts\n";
        let receive_interrupts = |table, names: &[&str]| -> Vec<(u32, u32)> {
            let receive = named_interrupts(table, names).into_iter().filter(|interrupt| interrupt.receives);
            receive.map(|interrupt| (interrupt.queue, interrupt.number)).collect()
        };
        assert_eq!(receive_interrupts(table, &["virtio1"]), [(0, 25), (1, 27)]);
        assert_eq!(receive_interrupts(table, &["eth0"]), [(0, 41), (1, 42)]);
        assert_eq!(receive_interrupts(table, &["ens3"]), [(0, 45), (1, 46)]);
        assert_eq!(receive_interrupts(table, &["ens4"]), [(5, 48)]);
        assert_eq!(receive_interrupts(table, &["ens5"]), [(0, 49)]);
        assert_eq!(receive_interrupts(table, &["ens6", "0000:01:00.0"]), [(3, 50)]);
        assert_eq!(receive_interrupts("", &["eth0"]), []);
        let transmit = |names: &[&str]| -> Vec<(u32, u32)> {
            let transmit = named_interrupts(table, names).into_iter().filter(|interrupt| !interrupt.receives);
            transmit.map(|interrupt| (interrupt.queue, interrupt.number)).collect()
        };
        assert_eq!((transmit(&["virtio1"]), transmit(&["eth0"])), (vec![(0, 26)], vec![(1, 43)]));
    }
}
