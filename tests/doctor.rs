//! `responder doctor` finds what is planted on a veth pair, says it with the right exit status, and undoes what it mends.
//!
//! veth has no interrupts, rings or hash: those are shown on an emulated NIC (`cargo xtask vm test doctor`). Needs root, RESPONDER and nft.

use std::{fs, process::Command};

use serde_json::Value;
use tests::server::{Server, ended, ip, lab, printed, responder};
use xtask::{
    lab::{Lab, Side},
    observe::Observer,
};

/// What doctor says of an interface of the server's side, and its exit status.
fn examine(lab: &Lab, interface: &str, flags: &[&str]) -> (i32, Value) {
    let mut command = lab.command(Side::Server, responder());
    report(command.args(["doctor", interface, "--json"]).args(flags))
}

fn report(command: &mut Command) -> (i32, Value) {
    let output = ended(command);
    let document = serde_json::from_slice(&output.stdout);
    let document = document.unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().expect("it ends by itself"), document)
}

/// A finding's state, and its text with the command.
fn finding(document: &Value, check: &str) -> (String, String) {
    let findings = document["findings"].as_array().expect("there are findings");
    let finding = findings.iter().find(|finding| finding["check"] == check);
    let finding = finding.unwrap_or_else(|| panic!("no {check} in {document}"));
    let text = |key: &str| finding[key].as_str().unwrap_or_default().to_owned();
    (text("state"), ["found", "wanted", "why", "fix"].map(text).join("; "))
}

/// Asks for the server's interface: the exit status, and of one check the state and a text that has to be there.
#[track_caller]
fn finds(lab: &Lab, check: &str, code: i32, state: &str, says: &[&str]) {
    let (exit, document) = examine(lab, lab.server.interface, &[]);
    let (found, text) = finding(&document, check);
    assert_eq!((exit, found.as_str()), (code, state), "{document:#}");
    for part in says {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

fn xps(lab: &Lab) -> Vec<u64> {
    let path = |queue| format!("/sys/class/net/{}/queues/tx-{queue}/xps_cpus", lab.server.interface);
    let masks = printed(lab.command(Side::Server, "cat").args([path(0), path(1)]));
    masks.lines().map(|mask| u64::from_str_radix(mask, 16).expect("a mask of few CPUs")).collect()
}

fn set_xps(lab: &Lab, masks: [u64; 2]) {
    for (queue, mask) in masks.iter().enumerate() {
        let line = format!("echo {mask:x} >/sys/class/net/{}/queues/tx-{queue}/xps_cpus", lab.server.interface);
        printed(lab.command(Side::Server, "sh").args(["-c", &line]));
    }
}

#[test]
fn a_veth_pair_is_no_fault() {
    let lab = lab(2);
    let (exit, document) = examine(&lab, lab.server.interface, &[]);
    assert_eq!((exit, &document["bypass_works"], &document["driver"]), (0, &true.into(), &"veth".into()));
    for check in ["RSS of UDP", "rings"] {
        let (state, text) = finding(&document, check);
        assert!(state == "ok" && text.starts_with("not offered by the driver"), "{check}: {state}: {text}");
    }
    let findings = document["findings"].as_array().expect("there are findings");
    for finding in findings {
        assert!(finding["state"] != "fail" && finding["state"] != "warn", "{finding}");
        assert!(["found", "wanted", "why"].iter().all(|key| finding[key] != ""), "{finding}");
    }
    // The same for people.
    let table = printed(lab.command(Side::Server, responder()).args(["doctor", lab.server.interface]));
    for finding in findings {
        let check = finding["check"].as_str().expect("a text");
        assert!(table.contains(&format!("  {check} ")), "{check} is not in {table}");
    }
    assert!(!table.contains('\x1b') && table.contains("the bypass can work on server0"), "{table}");
}

#[test]
fn one_channel_is_found_and_the_command_mends_it() {
    let lab = lab(2);
    let command = |line: &str| printed(lab.command(Side::Server, "sh").args(["-c", line]));
    command("ethtool -L server0 rx 1 tx 1");
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        return finds(&lab, "channels", 0, "ok", &[]);
    }
    finds(&lab, "channels", 0, "warn", &["1 receive", "ethtool -L server0 rx 2 tx 2"]);
    command("ethtool -L server0 rx 2 tx 2");
    finds(&lab, "channels", 0, "ok", &["2 receive"]);
}

/// CASES 29: a bond, bridge, VLAN or macvlan is given and nothing works.
#[test]
fn case_29_of_a_stacked_device_the_members_are_named() {
    let lab = lab(1);
    let devices = [
        ("bond9", "link add bond9 type bond"),
        ("server0.9", "link add link server0 name server0.9 type vlan id 9"),
        ("mac9", "link add mac9 link server0 type macvlan"),
        ("bridge9", "link add bridge9 type bridge"),
    ];
    let mut seen = 0;
    for (device, line) in devices {
        let made = ended(lab.command(Side::Server, "ip").args(line.split(' ')));
        if !made.status.success() {
            let said = String::from_utf8_lossy(&made.stderr);
            assert!(said.contains("Unknown device type") || said.contains("not supported"), "{device}: {said}");
            continue;
        }
        seen += 1;
        if device == "bond9" || device == "bridge9" {
            ip(&lab, Side::Server, "link set server0 down");
            ip(&lab, Side::Server, &format!("link set server0 master {device}"));
        }
        let (exit, document) = examine(&lab, device, &[]);
        let (state, text) = finding(&document, "kind");
        assert_eq!((exit, state.as_str()), (1, "fail"), "{document:#}");
        assert!(text.contains("--iface server0"), "{text}");
        ip(&lab, Side::Server, &format!("link del {device}"));
        ip(&lab, Side::Server, "link set server0 up");
    }
    assert!(seen >= 2, "every kernel has bridges and macvlans");
}

/// CASES 19: another XDP program is there already.
#[test]
fn case_19_another_xdp_program_is_in_the_way_and_our_own_is_not() {
    let lab = lab(2);
    lab.inside(Side::Server, || {
        let foreign = Observer::attach(lab.server.interface).expect("the interface is free");
        finds(&lab, "XDP program", 1, "fail", &["id ", "(observe, native)", "ip link set dev server0 xdp off"]);
        drop(foreign);
    })
    .expect("the namespace is there");
    finds(&lab, "XDP program", 0, "ok", &["none"]);
    let server = Server::start(&lab, &[]);
    finds(&lab, "XDP program", 0, "note", &["the responder's", "refuses to take away a channel"]);
    // Which is what the kernel does.
    let fewer = ended(lab.command(Side::Server, "ethtool").args(["-L", "server0", "rx", "1", "tx", "1"]));
    assert!(!fewer.status.success(), "the kernel took a channel from under a socket");
    drop(server);
}

/// CASES 27: firewall rules for port 53 silently stop applying.
#[test]
fn case_27_rules_for_port_53_are_found() {
    let lab = lab(1);
    let nft = |line: &str| printed(lab.command(Side::Server, "nft").arg(line));
    finds(&lab, "firewall", 0, "ok", &["no rules"]);
    nft("add table inet guard");
    nft("add chain inet guard incoming { type filter hook input priority 0; }");
    nft("add rule inet guard incoming tcp dport 53 drop");
    finds(&lab, "firewall", 0, "ok", &["no rules"]);
    nft("add rule inet guard incoming udp dport { 53, 853 } ip saddr 192.0.2.0/24 drop");
    finds(&lab, "firewall", 0, "warn", &["nft inet guard incoming: drop", "[[acl]]", "[rate_limit]"]);
}

/// CASES 28: replies leave by the interface the query came from although routing says otherwise.
#[test]
fn case_28_strict_rp_filter_and_routes_by_another_interface_are_found() {
    let lab = lab(1);
    finds(&lab, "rp_filter", 0, "ok", &["0: off"]);
    finds(&lab, "routes", 0, "ok", &[]);
    lab.inside(Side::Server, || fs::write("/proc/sys/net/ipv4/conf/server0/rp_filter", "1"))
        .expect("the namespace is there")
        .expect("the setting is there");
    finds(&lab, "rp_filter", 0, "note", &["strict", "sysctl -w net.ipv4.conf.server0.rp_filter=2"]);
    for line in [
        "link add other0 type veth peer name other1",
        "link set other0 up",
        "link set other1 up",
        "addr add 10.79.0.1/24 dev other0",
        "route add default via 10.79.0.2",
        "route add 10.78.0.128/25 via 10.79.0.2",
    ] {
        ip(&lab, Side::Server, line);
    }
    finds(&lab, "routes", 0, "note", &["all of IPv4 by other0", "10.78.0.128/25 by other0", "--io socket"]);
    finds(&lab, "rp_filter", 0, "warn", &["strict"]);
}

#[test]
fn a_link_that_is_down_and_an_mtu_that_is_too_large() {
    let lab = lab(1);
    ip(&lab, Side::Server, "link set server0 mtu 9000");
    finds(&lab, "MTU", 1, "fail", &["9000", "ip link set dev server0 mtu 3498"]);
    ip(&lab, Side::Server, "link set server0 mtu 1500");
    ip(&lab, Side::Client, "link set client0 down");
    finds(&lab, "link", 1, "fail", &["no carrier"]);
    ip(&lab, Side::Server, "link set server0 down");
    finds(&lab, "link", 1, "fail", &["down", "ip link set dev server0 up"]);
}

#[test]
fn crossed_xps_is_mended_and_the_script_brings_it_back() {
    let lab = lab(2);
    set_xps(&lab, [2, 1]);
    finds(&lab, "XPS", 0, "warn", &["CPU 1 on queue 0", "echo 1 >/sys/class/net/server0/queues/tx-0/xps_cpus"]);
    assert_eq!(xps(&lab), [2, 1], "looking changes nothing");

    let script = lab.directory.join("undo.sh");
    let script_flag = script.to_str().expect("a path of ASCII");
    let (exit, document) = examine(&lab, "server0", &["--fix", "--undo-file", script_flag]);
    assert_eq!((exit, xps(&lab).as_slice()), (0, [1, 2].as_slice()));
    assert_eq!(finding(&document, "XPS").0, "ok", "it looks again: {document:#}");
    assert_eq!(document["fixed"]["done"].as_array().map(Vec::len), Some(2), "{document:#}");

    // What undoes the first run is not overwritten by a second.
    let mut again = lab.command(Side::Server, responder());
    let again = ended(again.args(["doctor", "server0", "--fix", "--undo-file", script_flag]));
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("undo.sh"), "{again:?}");

    printed(lab.command(Side::Server, "sh").arg(&script));
    assert_eq!(xps(&lab), [2, 1]);

    // Without a file the script is what comes last.
    let mut fix = lab.command(Side::Server, responder());
    let text = printed(fix.args(["doctor", "server0", "--fix"]));
    let (_, script) = text.split_once("#!/bin/sh\n").expect("a script");
    printed(lab.command(Side::Server, "sh").args(["-c", script]));
    assert_eq!(xps(&lab), [2, 1]);
}

#[test]
fn what_a_process_without_capabilities_may_not_do_is_named() {
    let lab = lab(2);
    set_xps(&lab, [2, 1]);
    let mut command = lab.command(Side::Server, "setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(responder());
    let (exit, document) = report(command.args(["doctor", "server0", "--json", "--fix"]));
    assert_eq!((exit, xps(&lab).as_slice()), (1, [2, 1].as_slice()));
    let (state, text) = finding(&document, "capabilities");
    assert!(state == "fail" && text.contains("CAP_BPF") && text.contains("CAP_NET_ADMIN"), "{text}");
    let (state, text) = finding(&document, "firewall");
    assert!(state == "note" && text.contains("not looked at"), "{text}");
    let refused = document["fixed"]["refused"].as_array().expect("a list");
    assert_eq!(refused.len(), 2, "one that is refused does not end it: {document:#}");
    assert!(refused[0][0].as_str().is_some_and(|step| step.contains("tx-0/xps_cpus")), "{document:#}");
}

#[test]
fn wrong_command_lines_and_interfaces_that_do_not_exist() {
    let lab = lab(1);
    let run = |arguments: &[&str]| {
        let output = ended(lab.command(Side::Server, responder()).arg("doctor").args(arguments));
        (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for arguments in [&[][..], &["server0", "lo"], &["server0", "--undo-file", "x"], &["server0", "--mend"]] {
        assert_eq!(run(arguments).0, Some(2), "{arguments:?}");
    }
    let (code, said) = run(&["nowhere0"]);
    assert!(code == Some(1) && said.contains("no interface nowhere0: there are lo, server0"), "{said}");
    assert_eq!(run(&["lo"]).0, Some(1));
}
