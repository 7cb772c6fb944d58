//! `responder doctor` on a NIC that has what veth has not: interrupts, a hash, VLAN offload, rings.

use anyhow::{Context as _, ensure};
use serde_json::Value;

use super::{SECONDS, Stage};
use crate::vm::guest::{NIC, Nic};

const UNDO: &str = "/run/undo.sh";
/// igb's least is 80; both drivers take it.
const SMALL_RING: u32 = 128;

/// What doctor says, with its exit status.
struct Report {
    status: i32,
    document: Value,
}

impl Report {
    /// The findings of these checks are in this state, each with a text that has this in it.
    fn says(&self, state: &str, findings: &[(&str, &str)]) -> anyhow::Result<()> {
        for (check, part) in findings {
            let all = self.document["findings"].as_array().context("there are no findings")?;
            let finding = all.iter().find(|finding| finding["check"] == *check);
            let finding = finding.with_context(|| format!("there is no finding `{check}`"))?;
            ensure!(
                finding["state"] == state && finding.to_string().contains(part),
                "{check} is not `{state}` with `{part}`: {finding}"
            );
        }
        Ok(())
    }
}

impl Stage<'_> {
    fn doctor(&self, flags: &str) -> anyhow::Result<Report> {
        let output = self.guest.try_run(&format!("responder doctor {NIC} --json {flags}"))?;
        let document = serde_json::from_str(&output.text);
        Ok(Report {
            status: output.status,
            document: document.with_context(|| format!("doctor prints no JSON: {}", output.text))?,
        })
    }

    fn ethtool(&self, arguments: &str) -> anyhow::Result<()> {
        self.guest.run(&format!("ethtool {arguments}"))?;
        self.guest.wait_for_carrier()
    }
}

/// Plants faults one by one, finds each, mends what is safe, goes back, and mends again.
pub(in crate::vm) fn doctor_finds_and_mends(stage: &Stage<'_>) -> anyhow::Result<String> {
    let (guest, igb) = (stage.guest, stage.guest.options.nic == Nic::Igb);
    let queues = guest.options.queues;
    let before = stage.doctor("")?;
    ensure!(before.status == 0, "the NIC that every other check serves on cannot be served on: {}", before.document);
    before.says("ok", &[("driver", "zero-copy"), ("link", "with carrier"), ("capabilities", "all")])?;
    let mut planted = vec!["interrupts"];

    // Whatever resets the NIC comes first: it may place interrupts anew.
    stage.ethtool(&format!("-L {NIC} combined 1"))?;
    let command = format!("ethtool -L {NIC} combined {queues}");
    stage.doctor("")?.says("warn", &[("channels", &command)])?;
    guest.run(&command)?;
    guest.wait_for_carrier()?;
    planted.push("one channel");

    let rings = guest.run(&format!("ethtool -g {NIC}"))?;
    // virtio can change its rings only where the device lets it reset a queue.
    let small = guest.try_run(&format!("ethtool -G {NIC} rx {SMALL_RING} tx {SMALL_RING}"))?;
    guest.wait_for_carrier()?;
    ensure!(small.status == 0 || !igb, "igb's rings cannot be set: {}", small.text);
    if small.status == 0 {
        stage.doctor("")?.says("warn", &[("rings", &format!("ethtool -G {NIC} rx"))])?;
        let (rx, tx) = ring_sizes(&rings).context("ethtool names no sizes of rings")?;
        stage.ethtool(&format!("-G {NIC} rx {rx} tx {tx}"))?;
        planted.push("small rings");
    }

    if igb {
        stage.ethtool(&format!("-K {NIC} rxvlan on"))?;
        stage.doctor("")?.says("note", &[("VLAN offload", "no VLAN device")]).or_else(|_| {
            // An earlier check may have left its VLAN device.
            stage.doctor("")?.says("warn", &[("VLAN offload", "with VLAN")])
        })?;
        guest.run(&format!(
            "[ -e /sys/class/net/doctor9 ] || /sbin/ip link add link {NIC} name doctor9 type vlan id 9"
        ))?;
        stage.doctor("")?.says("warn", &[("VLAN offload", &format!("ethtool -K {NIC} rxvlan off"))])?;
        let stacked = guest.try_run("responder doctor doctor9 --json")?;
        ensure!(
            stacked.status == 1 && stacked.text.contains(&format!("--iface {NIC}")),
            "of a VLAN device it says: {}",
            stacked.text
        );
        guest.run("/sbin/ip link del doctor9")?;
        stage.ethtool(&format!("-K {NIC} rxvlan off"))?;
        planted.extend(["VLAN offload", "a VLAN device given"]);
        guest.hash_ports(false)?;
        planted.push("RSS on addresses");
    }
    for queue in 0..queues {
        stage.move_interrupts(queue, 0)?;
    }

    let faults: &[(&str, &str)] = if igb {
        &[("interrupts", "CPU 0 takes those of queues 0, 1"), ("RSS of UDP", "udp4 sd, udp6 sd")]
    } else {
        &[("interrupts", "CPU 0 takes those of queues 0, 1")]
    };
    let found = stage.doctor("")?;
    found.says("warn", faults)?;
    ensure!(found.status == 0, "slow is not broken, but the exit status is {}", found.status);

    guest.run(&format!("rm -f {UNDO}"))?;
    let mended = stage.doctor(&format!("--fix --undo-file {UNDO}"))?;
    let refused = &mended.document["fixed"]["refused"];
    ensure!(refused.as_array().is_some_and(Vec::is_empty), "refused: {refused}");
    mended.says("ok", &[("interrupts", "0 on CPU 0, 1 on CPU 1"), ("XPS", "CPU 1 on queue 1")])?;
    if igb {
        mended.says("ok", &[("RSS of UDP", "udp4 sdfn, udp6 sdfn")])?;
    }
    guest.run(&format!("sh {UNDO}"))?;
    stage.doctor("")?.says("warn", faults).context("after the undo script")?;
    ensure!(stage.doctor("--fix")?.status == 0, "it cannot be mended again");

    stage.serve("")?;
    stage.doctor("")?.says("note", &[("XDP program", "the responder's")])?;
    let asked = stage.ask(SECONDS)?;
    Ok(format!("found: {}; mended, undone, mended; {asked}, matrix diagonal", planted.join(", ")))
}

/// The sizes in use, which come behind the largest ones in what `ethtool -g` prints.
fn ring_sizes(text: &str) -> Option<(u32, u32)> {
    let last = |key: &str| text.lines().rev().find_map(|line| line.strip_prefix(key)?.trim().parse().ok());
    Some((last("RX:")?, last("TX:")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sizes_in_use_come_last() {
        let text = "Ring parameters for eth0:\nPre-set maximums:\nRX:\t\t4096\nRX Mini:\tn/a\nTX:\t\t4096\n\
                    Current hardware settings:\nRX:\t\t256\nRX Mini:\tn/a\nTX:\t\t512\n";
        assert_eq!(ring_sizes(text), Some((256, 512)));
        assert_eq!(ring_sizes(""), None);
    }
}
