//! The link, and what the NIC does to packets.

use super::{Facts, Finding, State, finding, read};
use crate::xdp::{
    socket::mtu_max,
    steering::{MTU_MAX, PROGRAM},
};

/// Fewer packets than this a queue loses in a pause of the worker that nobody can rule out.
const RING_WANTED: u32 = 1024;
/// With fewer than this it loses them in any.
const RING_MIN: u32 = 256;

pub(super) fn link(facts: &Facts) -> Finding {
    let name = &facts.interface;
    let why = "Nothing is served on an interface that is down. `serve` waits 10 s for the carrier.";
    let check = |state, found| finding("link", state, found, "up, with carrier", why);
    match (facts.up, facts.carrier) {
        (false, _) => check(State::Fail, "down").by(format!("ip link set dev {name} up")),
        (true, false) => check(State::Fail, "up, no carrier: look at its cable, or its peer"),
        (true, true) => check(State::Ok, "up, with carrier"),
    }
}

pub(super) fn xdp_program(facts: &Facts) -> Finding {
    let wanted = "none, or the responder's";
    match &facts.xdp {
        None => finding("XDP program", State::Ok, "none", wanted, "There is room for one on each NIC."),
        Some(program) if program.name == PROGRAM => finding(
            "XDP program",
            State::Note,
            format!("id {} ({}, {}), the responder's", program.id, program.name, program.mode.name()),
            wanted,
            "A server runs here. While it does the kernel refuses to take away a channel that one of its sockets is bound to: end it before \
             `ethtool -L` sets fewer.",
        ),
        Some(program) => finding(
            "XDP program",
            State::Fail,
            format!("id {} ({}, {})", program.id, program.name, program.mode.name()),
            wanted,
            "There is room for one on each NIC, and another's is never replaced. End the process that attached it; if none did that still lives, \
             the command removes it.",
        )
        .by(program.removal(&facts.interface)),
    }
}

pub(super) fn mtu(facts: &Facts) -> Finding {
    let (frame, name) = (mtu_max(), &facts.interface);
    let why = format!(
        "A frame holds packets of {frame} bytes. For native XDP most drivers want a packet to fit into a page with what the kernel adds: {MTU_MAX} bytes; \
         some have less."
    );
    let check = |state| finding("MTU", state, facts.mtu.to_string(), format!("at most {MTU_MAX}"), why);
    let command = format!("ip link set dev {name} mtu {MTU_MAX}");
    match facts.mtu {
        mtu if mtu > frame => check(State::Fail).by(command),
        mtu if mtu > MTU_MAX => check(State::Warn).by(command),
        _ => check(State::Ok),
    }
}

pub(super) fn vlan_offload(facts: &Facts) -> Finding {
    const CHECK: &str = "VLAN offload";
    // veth passes tags on as its other end left them.
    let peer = if facts.driver == "veth" { " On veth it takes `txvlan off` at the other end, too." } else { "" };
    let why = format!(
        "The XDP program cannot see a tag that the NIC took off, so that queries to addresses of VLAN devices are left to the kernel path.{peer}"
    );
    let on = match read(CHECK, &facts.strips_vlans, "off", &why) {
        Ok(on) => *on,
        Err(unread) => return unread,
    };
    if !on {
        return finding(CHECK, State::Ok, "off", "off", why);
    }
    // Without tagged queries it does no harm.
    let (state, found) = match facts.vlans.as_slice() {
        [] => (State::Note, "on, no VLAN device".to_owned()),
        vlans => (State::Warn, format!("on, with VLAN {}", super::list(vlans))),
    };
    finding(CHECK, state, found, "off", why).by(format!("ethtool -K {} rxvlan off", facts.interface))
}

pub(super) fn lro(facts: &Facts) -> Finding {
    const CHECK: &str = "LRO";
    let why = "Most drivers refuse native XDP while they merge packets, and generic mode is several times slower.";
    match read(CHECK, &facts.lro, "off", why) {
        Err(unread) => unread,
        Ok(false) => finding(CHECK, State::Ok, "off", "off", why),
        Ok(true) => finding(CHECK, State::Warn, "on", "off", why).by(format!("ethtool -K {} lro off", facts.interface)),
    }
}

pub(super) fn gro(facts: &Facts) -> Finding {
    const CHECK: &str = "GRO";
    let why =
        "It comes behind the XDP program: what the bypass answers is not touched, TCP on the kernel path is merged.";
    match read(CHECK, &facts.gro, "either", why) {
        Err(unread) => unread,
        Ok(on) => {
            let state = if *on { State::Note } else { State::Ok };
            finding(CHECK, state, if *on { "on" } else { "off" }, "either", why)
        }
    }
}

pub(super) fn rings(facts: &Facts) -> Finding {
    const CHECK: &str = "rings";
    let why = "At 1,000,000 queries a second a ring of 256 is full after a quarter of a millisecond, and what comes then is lost.";
    let rings = match read(CHECK, &facts.rings, "1024", why) {
        Ok(rings) => rings,
        Err(unread) => return unread,
    };
    let wanted = [rings.rx_max, rings.tx_max].map(|max| max.min(RING_WANTED));
    let sizes = [(rings.rx, wanted[0]), (rings.tx, wanted[1])];
    let below = |limit: u32| sizes.iter().any(|(size, wanted)| *size < limit.min(*wanted));
    let state = match () {
        () if below(RING_MIN) => State::Warn,
        () if below(RING_WANTED) => State::Note,
        () => State::Ok,
    };
    let found = format!("rx {}, tx {} (at most {} and {})", rings.rx, rings.tx, rings.rx_max, rings.tx_max);
    let check = finding(CHECK, state, found, format!("rx {}, tx {}", wanted[0], wanted[1]), why);
    if state == State::Ok {
        return check;
    }
    let [rx, tx] = [rings.rx.max(wanted[0]), rings.tx.max(wanted[1])];
    check.by(format!("ethtool -G {} rx {rx} tx {tx}", facts.interface))
}

pub(super) fn busy_polling(facts: &Facts) -> Finding {
    const CHECK: &str = "busy polling";
    let why = "With `--busy-poll` a worker polls its queue itself. Both settings together keep the queue's interrupt off meanwhile; one alone \
               delays packets or does nothing. Without `--busy-poll` both are best at 0.";
    let wanted = "both 0, or both set for --busy-poll";
    let (defer, timeout) =
        match (read(CHECK, &facts.defer_hard_irqs, wanted, why), read(CHECK, &facts.gro_flush_timeout_ns, wanted, why))
        {
            (Ok(defer), Ok(timeout)) => (*defer, *timeout),
            (Err(unread), _) | (_, Err(unread)) => return unread,
        };
    let found = format!("napi_defer_hard_irqs {defer}, gro_flush_timeout {timeout} ns");
    if (defer == 0) == (timeout == 0) {
        return finding(CHECK, State::Ok, found, wanted, why);
    }
    let directory = format!("/sys/class/net/{}", facts.interface);
    finding(CHECK, State::Warn, found, wanted, why)
        .by(format!("echo 0 >{directory}/napi_defer_hard_irqs; echo 0 >{directory}/gro_flush_timeout"))
}
