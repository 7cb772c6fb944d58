use super::*;
use crate::{
    doctor::{firewall::Firewall, routes::Elsewhere},
    sys::{Channels, Flow, HashFields, Rings},
    xdp::{
        steering::{Attached, Mode},
        topology::QueueInterrupt,
    },
};

/// A machine where all is well: igb with four channels and four CPUs.
fn healthy() -> Facts {
    let interrupt = |number: u32, receives| QueueInterrupt {
        queue: number % 10,
        number,
        receives,
        cpu: usize::try_from(number % 10).ok(),
    };
    Facts {
        interface: "eth0".to_owned(),
        driver: "igb".to_owned(),
        kernel: "6.18.5-amd64".to_owned(),
        stacked: None,
        up: true,
        carrier: true,
        mtu: 1500,
        vlans: vec![],
        xdp: None,
        channels: Ok(Channels { rx: 4, tx: 4, max: 8, combined: true }),
        hash: [Flow::Udp4, Flow::Udp6].map(|flow| (flow, Ok(HashFields::PORTS))).into(),
        strips_vlans: Ok(false),
        lro: Ok(false),
        gro: Ok(false),
        rings: Ok(Rings { rx: 1024, tx: 1024, rx_max: 4096, tx_max: 4096 }),
        interrupts: (40..44)
            .map(|number| interrupt(number, true))
            .chain((50..54).map(|number| interrupt(number, false)))
            .collect(),
        irqbalance: false,
        xps: Ok((0..4).map(|cpu| vec![cpu]).collect()),
        cpus: vec![0, 1, 2, 3],
        node: Some((0, vec![0, 1, 2, 3])),
        defer_hard_irqs: Ok(0),
        gro_flush_timeout_ns: Ok(0),
        memlock: Some(8 << 20),
        capabilities: u64::MAX,
        rp_filter: 2,
        elsewhere: Ok(vec![]),
        firewall: Firewall::Rules(vec![]),
    }
}

/// The finding of a check, where something has been planted.
fn found(check: &str, plant: impl FnOnce(&mut Facts)) -> Finding {
    let mut facts = healthy();
    plant(&mut facts);
    let found = examine(&facts).into_iter().find(|finding| finding.check == check);
    found.unwrap_or_else(|| panic!("there is no check {check}"))
}

type Case = (&'static str, fn(&mut Facts), State, &'static str, Option<&'static str>);

/// Plants each fault: how bad it is, what is said of it, and the command.
fn check(cases: &[Case]) {
    for (name, plant, state, says, command) in cases {
        let finding = found(name, plant);
        assert_eq!(finding.state, *state, "{finding:?}");
        assert!(format!("{} {}", finding.found, finding.why).contains(says), "`{says}` is not in {finding:?}");
        assert_eq!(finding.command().as_deref(), *command, "{finding:?}");
        assert!(!finding.wanted.is_empty() && !finding.why.is_empty(), "{finding:?}");
    }
}

#[test]
fn where_all_is_well_nothing_is_to_be_done() {
    for finding in examine(&healthy()) {
        assert_eq!((finding.state, finding.fix.len()), (State::Ok, 0), "{finding:?}");
        assert!(!finding.why.is_empty(), "{finding:?}");
    }
}

#[test]
fn what_makes_a_bypass_impossible() {
    check(&[
        ("kernel", |facts| facts.kernel = "5.8.18".to_owned(), State::Fail, "Linux 5.8.18", None),
        ("link", |facts| facts.up = false, State::Fail, "down", Some("ip link set dev eth0 up")),
        ("link", |facts| facts.carrier = false, State::Fail, "no carrier", None),
        ("MTU", |facts| facts.mtu = 9000, State::Fail, "9000", Some("ip link set dev eth0 mtu 3498")),
        ("MTU", |facts| facts.mtu = 3600, State::Warn, "3600", Some("ip link set dev eth0 mtu 3498")),
        ("capabilities", |facts| facts.capabilities &= !(1 << 39), State::Fail, "missing: CAP_BPF", None),
        ("memlock", |facts| facts.capabilities &= !(1 << 14), State::Fail, "8 MiB", Some("ulimit -l unlimited")),
    ]);
}

/// CASES 19: another XDP program is there already.
#[test]
fn case_19_another_xdp_program_is_in_the_way_and_our_own_is_not() {
    let program = |name: &str| Some(Attached { id: 7, name: name.to_owned(), mode: Mode::Generic });
    let finding = found("XDP program", |facts| facts.xdp = program("filter"));
    assert_eq!((finding.state, finding.found.as_str()), (State::Fail, "id 7 (filter, generic)"));
    assert_eq!(finding.command().unwrap(), "ip link set dev eth0 xdpgeneric off");
    let finding = found("XDP program", |facts| facts.xdp = program("classify"));
    assert_eq!((finding.state, finding.command()), (State::Note, None));
    assert!(finding.why.contains("refuses to take away a channel"), "{finding:?}");
}

/// CASES 29: a bond, bridge, VLAN or macvlan is given.
#[test]
fn case_29_of_a_stacked_device_only_its_members_are_told() {
    let mut facts = healthy();
    facts.stacked = Some("bond0 is a bond: Serve on its members: --iface eth0 --iface eth1".to_owned());
    let findings = examine(&facts);
    assert_eq!((findings.len(), findings[0].state), (1, State::Fail));
    assert!(findings[0].why.contains("--iface eth0 --iface eth1"), "{findings:?}");
}

#[test]
fn a_memlock_limit_is_enough_or_not() {
    let without_lock = |memlock| {
        move |facts: &mut Facts| {
            facts.capabilities &= !(1 << 14);
            facts.memlock = memlock;
        }
    };
    assert_eq!(found("memlock", without_lock(None)).state, State::Ok);
    assert_eq!(found("memlock", without_lock(Some(33 << 20))).state, State::Ok);
    assert_eq!(found("memlock", without_lock(Some(32 << 20))).state, State::Fail);
    // Larger packets need larger frames.
    let large = found("memlock", |facts| {
        without_lock(Some(33 << 20))(facts);
        facts.mtu = 2000;
    });
    assert_eq!(large.state, State::Fail);
}

#[test]
fn drivers_are_known_for_what_they_can() {
    check(&[
        ("driver", |facts| facts.kernel = "6.12.1".to_owned(), State::Note, "zero-copy since Linux 6.14", None),
        ("driver", |facts| facts.driver = "veth".to_owned(), State::Note, "no zero-copy", None),
        ("driver", |facts| facts.driver = "r8169".to_owned(), State::Note, "r8169: not known here", None),
        ("kernel", |facts| facts.kernel = "6.12.1".to_owned(), State::Note, "by one system call", None),
    ]);
    // With zero-copy the limit of copy mode is none.
    let finding = found("kernel", |facts| {
        facts.kernel = "6.12.1".to_owned();
        facts.driver = "ice".to_owned();
    });
    assert_eq!(finding.state, State::Ok);
}

#[test]
fn channels_of_which_there_are_too_few_or_too_many() {
    fn set(facts: &mut Facts, rx: u32, tx: u32, max: u32, combined: bool) {
        facts.channels = Ok(Channels { rx, tx, max, combined });
    }
    check(&[
        ("channels", |f| set(f, 1, 1, 8, true), State::Warn, "one CPU of 4", Some("ethtool -L eth0 combined 4")),
        ("channels", |f| set(f, 1, 1, 2, false), State::Warn, "one CPU of 4", Some("ethtool -L eth0 rx 2 tx 2")),
        ("channels", |f| set(f, 1, 1, 1, true), State::Warn, "one CPU of 4", None),
        ("channels", |f| set(f, 2, 2, 8, true), State::Note, "2 receive", Some("ethtool -L eth0 combined 4")),
        ("channels", |f| set(f, 4, 2, 4, false), State::Warn, "has no worker", Some("ethtool -L eth0 rx 4 tx 4")),
        (
            "channels",
            |f| set(f, 8, 8, 8, true),
            State::Note,
            "`responder queues` has the server let go",
            Some("responder queues eth0 4"),
        ),
        ("channels", |f| f.channels = Err(Unread::NotOffered), State::Ok, "not offered by the driver", None),
    ]);
}

#[test]
fn a_hash_of_addresses_alone_puts_a_resolver_on_one_queue() {
    fn addresses(facts: &mut Facts) {
        facts.hash[1].1 = Ok(HashFields::ADDRESSES);
    }
    check(&[
        ("RSS of UDP", addresses, State::Warn, "udp4 sdfn, udp6 sd", Some("ethtool -N eth0 rx-flow-hash udp6 sdfn")),
        (
            "RSS of UDP",
            |facts| facts.hash.iter_mut().for_each(|(_, fields)| *fields = Err(Unread::NotOffered)),
            State::Ok,
            "not offered by the driver",
            None,
        ),
        ("RSS of UDP", |facts| facts.hash[0].1 = Ok(HashFields(0)), State::Ok, "udp4: the driver does not say", None),
        (
            "RSS of UDP",
            |facts| facts.hash[0].1 = Err(Unread::Refused("no".to_owned())),
            State::Note,
            "udp4 cannot be read: no",
            None,
        ),
    ]);
    assert!(found("RSS of UDP", addresses).is_safe());
    let one_queue = found("RSS of UDP", |facts| {
        addresses(facts);
        facts.channels = Ok(Channels { rx: 1, tx: 1, max: 1, combined: true });
    });
    assert_eq!(one_queue.state, State::Note);
}

#[test]
fn interrupts_belong_on_cpus_of_their_own() {
    let finding = found("interrupts", |facts| {
        facts.interrupts.iter_mut().for_each(|interrupt| interrupt.cpu = Some(0));
    });
    assert_eq!((finding.state, finding.is_safe()), (State::Warn, true));
    assert!(finding.why.starts_with("CPU 0 takes those of queues 0, 1, 2, 3."), "{finding:?}");
    assert_eq!(finding.fix.len(), 8, "those of sending go along: {finding:?}");
    assert_eq!(finding.fix[5].to_string(), "echo 1 >/proc/irq/51/smp_affinity_list");

    // Another order is as good.
    let crossed = |facts: &mut Facts| {
        facts.interrupts.iter_mut().for_each(|interrupt| interrupt.cpu = interrupt.cpu.map(|cpu| 3 - cpu));
    };
    assert_eq!(found("interrupts", crossed).state, State::Ok);
    // But the maps have to follow it.
    let finding = found("XPS", crossed);
    assert_eq!(
        (finding.state, finding.fix[0].to_string()),
        (State::Warn, "echo 8 >/sys/class/net/eth0/queues/tx-0/xps_cpus".to_owned())
    );

    let apart = found("interrupts", |facts| facts.interrupts[6].cpu = Some(1));
    assert!(apart.state == State::Warn && apart.why.starts_with("Queue 2 receives on one CPU"), "{apart:?}");
    let outside = found("interrupts", |facts| facts.interrupts[3].cpu = Some(9));
    assert!(outside.state == State::Warn && outside.why.starts_with("No worker may run on CPU 9"), "{outside:?}");
    let none = found("interrupts", |facts| facts.interrupts.clear());
    assert_eq!((none.state, none.fix.len()), (State::Ok, 0));
}

#[test]
fn more_queues_than_cpus_share_them_evenly() {
    let plant = |facts: &mut Facts| {
        facts.cpus = vec![0, 1];
        facts.interrupts.iter_mut().for_each(|interrupt| interrupt.cpu = interrupt.cpu.map(|cpu| cpu % 2));
        facts.xps = Ok(vec![vec![0], vec![1], vec![0], vec![1]]);
    };
    assert_eq!(found("interrupts", plant).state, State::Ok);
    assert_eq!(found("XPS", plant).state, State::Ok);
    let finding = found("interrupts", |facts| {
        plant(facts);
        facts.interrupts[0].cpu = Some(1);
    });
    let steps: Vec<String> = finding.fix.iter().take(4).map(ToString::to_string).collect();
    assert_eq!(
        steps,
        [(40, 0), (41, 1), (42, 0), (43, 1)].map(|(irq, cpu)| format!("echo {cpu} >/proc/irq/{irq}/smp_affinity_list"))
    );
}

#[test]
fn maps_of_transmit_queues() {
    let all = "echo 1 >/sys/class/net/eth0/queues/tx-0/xps_cpus; echo 2 >/sys/class/net/eth0/queues/tx-1/xps_cpus";
    check(&[
        ("XPS", |facts| facts.xps = Ok(vec![vec![], vec![]]), State::Note, "not set", Some(all)),
        ("XPS", |facts| facts.xps = Ok(vec![vec![0, 1], vec![0, 1]]), State::Warn, "CPU 0, 1 on queue 0", Some(all)),
        ("XPS", |facts| facts.xps = Ok(vec![vec![1], vec![0]]), State::Warn, "CPU 1 on queue 0", Some(all)),
        ("XPS", |facts| facts.xps = Ok(vec![vec![0], vec![]]), State::Warn, "queue 1 has none", Some(all)),
        ("XPS", |facts| facts.xps = Ok(vec![vec![0, 2], vec![1, 3]]), State::Ok, "CPU 0, 2 on queue 0", None),
        ("XPS", |facts| facts.xps = Err(Unread::NotOffered), State::Ok, "one queue", None),
    ]);
    assert!(found("XPS", |facts| facts.xps = Ok(vec![vec![], vec![]])).is_safe());
}

#[test]
fn the_nics_node_has_the_workers() {
    let finding = found("NUMA node", |facts| facts.node = Some((1, vec![2, 3])));
    assert_eq!(
        (finding.state, finding.found.as_str()),
        (State::Warn, "node 1 (CPU 2, 3), workers on CPU 0, 1 are not")
    );
    assert!(finding.why.contains("`--cpus 2,3`"), "{finding:?}");
    // Interrupts go to the node's CPUs where there are enough of them.
    let finding = found("interrupts", |facts| {
        facts.channels = Ok(Channels { rx: 2, tx: 2, max: 2, combined: true });
        facts.interrupts.retain(|interrupt| interrupt.queue < 2);
        facts.interrupts.iter_mut().for_each(|interrupt| interrupt.cpu = Some(0));
        facts.node = Some((1, vec![2, 3]));
    });
    assert_eq!(finding.fix[1].to_string(), "echo 3 >/proc/irq/41/smp_affinity_list");
}

#[test]
fn what_the_nic_does_to_packets() {
    const TIMERS: &str =
        "echo 0 >/sys/class/net/eth0/napi_defer_hard_irqs; echo 0 >/sys/class/net/eth0/gro_flush_timeout";
    fn rings(facts: &mut Facts, size: u32, max: u32) {
        facts.rings = Ok(Rings { rx: size, tx: size, rx_max: max, tx_max: max });
    }
    fn vlan(facts: &mut Facts) {
        facts.strips_vlans = Ok(true);
        facts.vlans = vec![7];
    }
    check(&[
        ("VLAN offload", vlan, State::Warn, "on, with VLAN 7", Some("ethtool -K eth0 rxvlan off")),
        ("VLAN offload", |f| f.strips_vlans = Ok(true), State::Note, "on, no VLAN", Some("ethtool -K eth0 rxvlan off")),
        ("LRO", |f| f.lro = Ok(true), State::Warn, "on", Some("ethtool -K eth0 lro off")),
        ("GRO", |f| f.gro = Ok(true), State::Note, "on", None),
        ("rings", |f| rings(f, 80, 4096), State::Warn, "rx 80, tx 80", Some("ethtool -G eth0 rx 1024 tx 1024")),
        ("rings", |f| rings(f, 256, 4096), State::Note, "rx 256", Some("ethtool -G eth0 rx 1024 tx 1024")),
        ("rings", |f| rings(f, 128, 128), State::Ok, "rx 128", None),
        ("rings", |f| f.rings = Err(Unread::NotOffered), State::Ok, "not offered by the driver", None),
        ("busy polling", |f| f.defer_hard_irqs = Ok(2), State::Warn, "napi_defer_hard_irqs 2", Some(TIMERS)),
        ("irqbalance", |f| f.irqbalance = true, State::Warn, "running", Some("systemctl disable --now irqbalance")),
    ]);
    let both =
        found("busy polling", |facts| (facts.defer_hard_irqs, facts.gro_flush_timeout_ns) = (Ok(2), Ok(200_000)));
    assert_eq!(both.state, State::Ok);
    // One ring is larger than wanted: it stays.
    let mixed = found("rings", |facts| facts.rings = Ok(Rings { rx: 64, tx: 2048, rx_max: 4096, tx_max: 4096 }));
    assert_eq!(mixed.command().unwrap(), "ethtool -G eth0 rx 1024 tx 2048");
}

/// CASES 27 and 28: what the bypass does not ask.
#[test]
fn case_27_and_28_what_the_bypass_skips_is_said() {
    fn elsewhere(facts: &mut Facts) {
        facts.elsewhere = Ok(vec![Elsewhere { destination: "all of IPv4".to_owned(), by: "eth1".to_owned() }]);
    }
    fn rules(facts: &mut Facts) {
        facts.firewall = Firewall::Rules((1..=6).map(|rule| format!("rule {rule}")).collect());
    }
    const LOOSE: Option<&str> = Some("sysctl -w net.ipv4.conf.eth0.rp_filter=2");
    check(&[
        ("firewall", rules, State::Warn, "rule 4; 2 more", None),
        ("firewall", rules, State::Warn, "[[acl]]", None),
        (
            "firewall",
            |facts| facts.firewall = Firewall::NotRead("nft is not installed".to_owned()),
            State::Note,
            "not looked at: nft is not installed",
            None,
        ),
        ("rp_filter", |facts| facts.rp_filter = 1, State::Note, "strict", LOOSE),
        ("routes", elsewhere, State::Note, "all of IPv4 by eth1", None),
    ]);
    let both = found("rp_filter", |facts| {
        facts.rp_filter = 1;
        elsewhere(facts);
    });
    assert_eq!(both.state, State::Warn);
}
