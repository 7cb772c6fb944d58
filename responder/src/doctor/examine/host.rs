//! What the system lets a server do, and what of the system the bypass skips.

use super::{Facts, Finding, State, finding, list, read};
use crate::doctor::firewall::Firewall;

/// What a server needs when it starts, with bits of linux/capability.h.
const NEEDED: &[(&str, u32)] =
    &[("CAP_NET_BIND_SERVICE", 10), ("CAP_NET_ADMIN", 12), ("CAP_NET_RAW", 13), ("CAP_PERFMON", 38), ("CAP_BPF", 39)];
const CAP_IPC_LOCK: u32 = 14;
/// The frames of one queue: 4096 of 2048 bytes, or of 4096 where packets are larger than that.
const QUEUE_BYTES: u64 = 4096 * 2048;
/// The largest MTU whose packets fit into the smaller frames.
const SMALL_FRAME_MTU: u32 = 2048 - 256 - 22;
/// Rules that are named; of more there is only the number.
const RULES_SHOWN: usize = 4;

pub(super) fn capabilities(facts: &Facts) -> Finding {
    const CHECK: &str = "capabilities";
    let why = "A server that is started as this process was has the same: it attaches an XDP program, makes AF_XDP sockets and binds to port 53. \
               A systemd unit names them in AmbientCapabilities.";
    let wanted = NEEDED.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ");
    let missing: Vec<&str> = NEEDED.iter().filter(|(_, bit)| !has(facts, *bit)).map(|(name, _)| *name).collect();
    if missing.is_empty() {
        return finding(CHECK, State::Ok, "all", wanted, why);
    }
    finding(CHECK, State::Fail, format!("missing: {}", missing.join(", ")), wanted, why)
}

pub(super) fn memlock(facts: &Facts) -> Finding {
    const CHECK: &str = "memlock";
    let queues = u64::from(facts.channels.as_ref().map_or(1, |channels| channels.rx.max(1)));
    let needed = queues * QUEUE_BYTES * if facts.mtu > SMALL_FRAME_MTU { 2 } else { 1 };
    let wanted = format!("CAP_IPC_LOCK, or more than {} MiB", needed >> 20);
    let why = "The memory that packets are received into is locked. A systemd unit says LimitMEMLOCK=infinity.";
    match facts.memlock {
        _ if has(facts, CAP_IPC_LOCK) => finding(CHECK, State::Ok, "CAP_IPC_LOCK", wanted, why),
        None => finding(CHECK, State::Ok, "unlimited", wanted, why),
        // Other sockets of the same user count, too.
        Some(bytes) if bytes > needed => finding(CHECK, State::Ok, format!("{} MiB", bytes >> 20), wanted, why),
        Some(bytes) => finding(CHECK, State::Fail, format!("{} MiB, no CAP_IPC_LOCK", bytes >> 20), wanted, why)
            .by("ulimit -l unlimited".to_owned()),
    }
}

pub(super) fn firewall(facts: &Facts) -> Finding {
    const CHECK: &str = "firewall";
    let why = "The bypass answers before any rule is asked. The access list ([[acl]]) and [rate_limit] of the server do there what these \
               rules do on the kernel path.";
    let wanted = "no rules for UDP port 53";
    match &facts.firewall {
        Firewall::NotRead(error) => finding(CHECK, State::Note, format!("not looked at: {error}"), wanted, why),
        Firewall::Rules(rules) if rules.is_empty() => {
            finding(CHECK, State::Ok, "no rules for UDP port 53", wanted, why)
        }
        Firewall::Rules(rules) => {
            let mut shown = rules.iter().take(RULES_SHOWN).cloned().collect::<Vec<_>>().join("; ");
            if rules.len() > RULES_SHOWN {
                shown = format!("{shown}; {} more", rules.len() - RULES_SHOWN);
            }
            finding(CHECK, State::Warn, shown, wanted, why)
        }
    }
}

pub(super) fn rp_filter(facts: &Facts) -> Finding {
    const CHECK: &str = "rp_filter";
    let why = "In strict mode the kernel path drops queries of clients that the kernel would reach by another interface; the bypass answers them \
               and does not ask. TCP after a truncated answer fails for such clients.";
    let wanted = "0 or 2";
    match facts.rp_filter {
        1 => {
            // Where it loses queries, not only could.
            let elsewhere = facts.elsewhere.as_ref().is_ok_and(|elsewhere| !elsewhere.is_empty());
            let state = if elsewhere { State::Warn } else { State::Note };
            finding(CHECK, state, "1: strict", wanted, why)
                .by(format!("sysctl -w net.ipv4.conf.{}.rp_filter=2", facts.interface))
        }
        2 => finding(CHECK, State::Ok, "2: loose", wanted, why),
        _ => finding(CHECK, State::Ok, "0: off", wanted, why),
    }
}

pub(super) fn routes(facts: &Facts) -> Finding {
    const CHECK: &str = "routes";
    let why = "The bypass replies by the interface and to the MAC address that the query came from, whatever the routes say. Where that is wrong, \
               `--io socket` follows them.";
    let wanted = "clients are reached by this interface";
    match read(CHECK, &facts.elsewhere, wanted, why) {
        Err(unread) => unread,
        Ok(elsewhere) if elsewhere.is_empty() => {
            finding(CHECK, State::Ok, "none to its clients by another interface", wanted, why)
        }
        Ok(elsewhere) => {
            let routes = list(elsewhere.iter().map(|route| format!("{} by {}", route.destination, route.by)));
            finding(CHECK, State::Note, routes, wanted, why)
        }
    }
}

fn has(facts: &Facts, capability: u32) -> bool {
    facts.capabilities >> capability & 1 == 1
}
