//! How packets are spread over queues, and which CPU each queue has: queue i <-> CPU i, so that no packet crosses from one to another.

use std::{collections::BTreeMap, path::PathBuf};

use super::{Facts, Finding, State, Step, finding, list, read};
use crate::{doctor::files::mask_of_cpu, sys::HashFields, xdp::topology};

pub(super) fn channels(facts: &Facts) -> Finding {
    const CHECK: &str = "channels";
    let why = "Each channel is a queue with a worker of its own; more workers than CPUs share them.";
    let cpus = u32::try_from(facts.cpus.len()).unwrap_or(u32::MAX).max(1);
    let channels = match read(CHECK, &facts.channels, "one for each CPU", why) {
        Ok(channels) => *channels,
        Err(unread) => return unread,
    };
    let wanted = channels.max.clamp(1, cpus);
    let found = format!("{} receive, {} transmit (at most {})", channels.rx, channels.tx, channels.max);
    let check = |state, why: &str| finding(CHECK, state, found.clone(), format!("{wanted} of each"), why);
    let name = &facts.interface;
    let command = if channels.combined {
        format!("ethtool -L {name} combined {wanted}")
    } else {
        format!("ethtool -L {name} rx {wanted} tx {wanted}")
    };
    if channels.tx < channels.rx {
        let why = "Replies leave by the transmit queue of the number that their query's receive queue has; a queue without one has no worker.";
        return check(State::Warn, why).by(command);
    }
    if channels.rx <= 1 && cpus > 1 {
        let one = format!("All queries come to one CPU of {cpus}. {why}");
        let check = check(State::Warn, &one);
        return if wanted > 1 { check.by(command) } else { check };
    }
    if channels.rx > cpus {
        let why = format!(
            "{why} While a server runs here the kernel refuses to take away a channel that a socket of it is bound to; `responder queues` has the server let go of it."
        );
        return check(State::Note, &why).by(format!("responder queues {name} {wanted}"));
    }
    let state = if channels.rx < wanted { State::Note } else { State::Ok };
    let check = check(state, why);
    if state == State::Ok { check } else { check.by(command) }
}

pub(super) fn hash(facts: &Facts) -> Finding {
    const CHECK: &str = "RSS of UDP";
    let why =
        "A resolver asks from one address and many ports. Without ports in the hash all its queries take one queue.";
    let wanted = "sdfn: addresses and ports";
    let mut found = Vec::new();
    let mut steps = Vec::new();
    let mut state = State::Ok;
    for (flow, reading) in &facts.hash {
        match read(CHECK, reading, wanted, why) {
            // Says of no field what a driver that cannot tell says of all.
            Ok(HashFields(0)) => found.push(format!("{}: the driver does not say", flow.name())),
            Ok(fields) => {
                found.push(format!("{} {}", flow.name(), fields.letters()));
                if !fields.contains(HashFields::PORTS) {
                    steps.push(Step::Hash {
                        interface: facts.interface.clone(),
                        flow: *flow,
                        fields: HashFields::PORTS,
                    });
                }
            }
            Err(unread) => {
                state = state.max(unread.state);
                found.push(format!("{} {}", flow.name(), unread.found));
            }
        }
    }
    if facts.hash.iter().all(|(_, reading)| reading.is_err()) {
        found.truncate(1);
        found = found.iter().filter_map(|text| Some(text.split_once(' ')?.1.to_owned())).collect();
    }
    if !steps.is_empty() {
        // With one queue there is nothing to spread.
        let several = facts.channels.as_ref().is_ok_and(|channels| channels.rx > 1);
        state = state.max(if several { State::Warn } else { State::Note });
    }
    finding(CHECK, state, found.join(", "), wanted, why).fix(steps)
}

pub(super) fn interrupts(facts: &Facts) -> Finding {
    const CHECK: &str = "interrupts";
    let why = "The CPU that takes a queue's interrupt does the kernel's part of receiving, and its worker runs there.";
    let wanted = "queue i on CPU i";
    if facts.interrupts.is_empty() {
        return finding(CHECK, State::Ok, "none that bear its queues' numbers", wanted, why);
    }
    let found = facts.interrupts.iter().filter(|interrupt| interrupt.receives).map(|interrupt| {
        let cpu = interrupt.cpu.map_or_else(|| "unknown".to_owned(), |cpu| cpu.to_string());
        format!("{} on CPU {cpu}", interrupt.queue)
    });
    let found = format!("queue {}", list(found));
    let Some(fault) = fault_of_interrupts(facts) else {
        return finding(CHECK, State::Ok, found, wanted, why);
    };
    let steps = facts.interrupts.iter().filter_map(|interrupt| {
        Some(Step::Write {
            path: PathBuf::from(format!("proc/irq/{}/smp_affinity_list", interrupt.number)),
            value: cpu_for(facts, interrupt.queue)?.to_string(),
        })
    });
    finding(CHECK, State::Warn, found, wanted, format!("{fault} {why}")).fix(steps)
}

/// What is wrong with the interrupts as they are. Any one-to-one order will do.
fn fault_of_interrupts(facts: &Facts) -> Option<String> {
    let receive = topology::receive_cpus(&facts.interrupts);
    let share = receive.len().div_ceil(facts.cpus.len().max(1));
    for cpu in receive.values() {
        let queues: Vec<u32> = receive.iter().filter(|(_, other)| *other == cpu).map(|(queue, _)| *queue).collect();
        if queues.len() > share {
            return Some(format!("CPU {cpu} takes those of queues {}.", list(queues)));
        }
        if !facts.cpus.contains(cpu) {
            return Some(format!("No worker may run on CPU {cpu}, which takes that of queue {}.", list(queues)));
        }
    }
    let apart = |interrupt: &&topology::QueueInterrupt| {
        !interrupt.receives
            && interrupt.cpu.is_some()
            && receive.get(&interrupt.queue).is_some_and(|cpu| interrupt.cpu != Some(*cpu))
    };
    let apart = facts.interrupts.iter().find(apart)?;
    Some(format!("Queue {} receives on one CPU and has its sent packets reported on another.", apart.queue))
}

/// The CPU for a queue: the i-th of the NIC's node if that has enough, else the i-th of all.
fn cpu_for(facts: &Facts, queue: u32) -> Option<usize> {
    let queues = facts.channels.as_ref().map_or(1, |channels| channels.rx.max(1));
    let local = |node: &(u32, Vec<usize>)| -> Vec<usize> {
        facts.cpus.iter().copied().filter(|cpu| node.1.contains(cpu)).collect()
    };
    let local =
        facts.node.as_ref().map(local).filter(|local| u32::try_from(local.len()).is_ok_and(|cpus| cpus >= queues));
    let cpus = local.as_ref().unwrap_or(&facts.cpus);
    cpus.get(usize::try_from(queue).ok()?.checked_rem(cpus.len())?).copied()
}

pub(super) fn irqbalance(facts: &Facts) -> Finding {
    const CHECK: &str = "irqbalance";
    let why = "It moves interrupts, and workers after them, whenever it sees fit, and undoes what was set by hand.";
    match (facts.irqbalance, facts.interrupts.is_empty()) {
        (false, _) => finding(CHECK, State::Ok, "not running", "not running", why),
        (true, true) => finding(CHECK, State::Note, "running", "not running", why),
        (true, false) => finding(CHECK, State::Warn, "running", "not running", why)
            .by("systemctl disable --now irqbalance".to_owned()),
    }
}

pub(super) fn xps(facts: &Facts) -> Finding {
    const CHECK: &str = "XPS";
    let why =
        "Replies of the kernel path leave by the queue that their CPU is given here. The bypass needs no such map.";
    let wanted = "CPU i on queue i";
    let maps = match read(CHECK, &facts.xps, wanted, why) {
        Ok(maps) => maps,
        // The kernel has no maps for an interface with one queue.
        Err(unread) if unread.state == State::Ok => {
            return finding(CHECK, State::Ok, "one queue: nothing to choose", "nothing", why);
        }
        Err(unread) => return unread,
    };
    // Where the interrupts are well placed the maps follow them, else both go where they should be.
    let placed =
        if fault_of_interrupts(facts).is_none() { topology::receive_cpus(&facts.interrupts) } else { BTreeMap::new() };
    let wanted_cpus: Vec<Option<usize>> =
        (0u32..).zip(maps).map(|(queue, _)| placed.get(&queue).copied().or_else(|| cpu_for(facts, queue))).collect();
    let unset = maps.iter().all(Vec::is_empty);
    let crossed = maps.len() <= facts.cpus.len()
        && maps
            .iter()
            .enumerate()
            .any(|(queue, map)| maps[queue + 1..].iter().any(|other| other.iter().any(|cpu| map.contains(cpu))));
    let astray = maps.iter().zip(&wanted_cpus).any(|(map, cpu)| cpu.is_some_and(|cpu| !map.contains(&cpu)));
    let found = if unset {
        "not set".to_owned()
    } else {
        let maps = maps.iter().enumerate().map(|(queue, map)| match map.as_slice() {
            [] => format!("queue {queue} has none"),
            map => format!("CPU {} on queue {queue}", list(map)),
        });
        maps.collect::<Vec<_>>().join("; ")
    };
    let state = match () {
        () if unset => State::Note,
        () if crossed || astray => State::Warn,
        () => return finding(CHECK, State::Ok, found, wanted, why),
    };
    let steps = wanted_cpus.iter().enumerate().filter_map(|(queue, cpu)| {
        Some(Step::Write {
            path: PathBuf::from(format!("sys/class/net/{}/queues/tx-{queue}/xps_cpus", facts.interface)),
            value: mask_of_cpu((*cpu)?),
        })
    });
    finding(CHECK, state, found, wanted, why).fix(steps)
}

pub(super) fn numa_node(facts: &Facts) -> Finding {
    const CHECK: &str = "NUMA node";
    let why = "A CPU of another node reads each packet across the link between nodes.";
    let wanted = "workers on the NIC's node";
    let Some((node, local)) = &facts.node else {
        return finding(CHECK, State::Ok, "the NIC is at none", wanted, why);
    };
    let queues: Vec<u32> = (0..facts.channels.as_ref().map_or(1, |channels| channels.rx.max(1))).collect();
    let placements =
        topology::place(&queues, &facts.cpus, None, &topology::receive_cpus(&facts.interrupts)).unwrap_or_default();
    let far: Vec<usize> = placements.iter().map(|placement| placement.cpu).filter(|cpu| !local.contains(cpu)).collect();
    if far.is_empty() {
        return finding(CHECK, State::Ok, format!("node {node}, as the workers"), wanted, why);
    }
    let found = format!("node {node} (CPU {}), workers on CPU {} are not", list(local), list(far));
    let near: Vec<String> = local.iter().filter(|cpu| facts.cpus.contains(cpu)).map(ToString::to_string).collect();
    let place = if near.is_empty() { String::new() } else { format!(" `--cpus {}` places them.", near.join(",")) };
    finding(CHECK, State::Warn, found, wanted, format!("{why}{place}"))
}
