//! Which addresses are answered on the bypass: those of VLAN devices, with the tags that queries came with, and those of no NIC at all.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use anyhow::ensure;

use super::Stage;
use crate::{
    lab::Side,
    query::{Path, SILENCE, is_answer, query, tagged},
    raw::RawSocket,
    setup::output,
    vm::guest::{NIC, Nic},
};

/// A VLAN that the guest has, and one that it has not.
const OURS: u16 = 7;
const FOREIGN: u16 = 9;
const TAG: u16 = 0x8100;
/// VLAN devices of the guest, and frames on this side: there is no VLAN device here.
struct Vlan<'a> {
    stage: &'a Stage<'a>,
    v4: Path,
    v6: Path,
}

impl<'a> Vlan<'a> {
    fn new(stage: &'a Stage<'a>) -> anyhow::Result<Self> {
        let lab = &stage.guest.lab;
        let mac = lab.client.mac_text();
        // The neighbours are fixed: nobody answers ARP in a VLAN here.
        stage.guest.run(&format!(
            "if ! [ -e /sys/class/net/vlan{OURS} ]; then \
                /sbin/ip link add link {NIC} name vlan{OURS} type vlan id {OURS}; \
                /sbin/ip addr add 10.78.{OURS}.1/24 dev vlan{OURS}; \
                /sbin/ip addr add fd78:{OURS}::1/64 dev vlan{OURS} nodad; \
                /sbin/ip link set vlan{OURS} up; \
                /sbin/ip neigh add 10.78.{OURS}.2 lladdr {mac} dev vlan{OURS} nud permanent; \
                /sbin/ip neigh add fd78:{OURS}::2 lladdr {mac} dev vlan{OURS} nud permanent; fi"
        ))?;
        let path = |client: &str, server: &str| -> anyhow::Result<Path> {
            Ok(Path {
                from_mac: lab.client.mac,
                to_mac: lab.server.mac,
                from: SocketAddr::new(client.parse()?, 4000),
                to: SocketAddr::new(server.parse()?, 53),
            })
        };
        let v4 = path(&format!("10.78.{OURS}.2"), &format!("10.78.{OURS}.1"))?;
        let v6 = path(&format!("fd78:{OURS}::2"), &format!("fd78:{OURS}::1"))?;
        Ok(Self { stage, v4, v6 })
    }

    /// Asks in a VLAN: the reply's VLAN, if there is one.
    fn ask(&self, path: &Path, id: u16, patience: Duration) -> anyhow::Result<Option<u16>> {
        let lab = &self.stage.guest.lab;
        let frame = tagged(&path.frame(&query(77)), &[(TAG, id)]);
        lab.inside(Side::Client, || {
            let socket = RawSocket::open(lab.client.interface);
            socket.send(&frame);
            let reply = socket
                .receive_within(patience, |frame| path.reply(frame).is_some_and(|message| is_answer(message, 77)));
            reply.map(|frame| {
                if frame[12..14] == TAG.to_be_bytes() { u16::from_be_bytes([frame[14], frame[15]]) & 0xfff } else { 0 }
            })
        })
    }

    /// A served VLAN is answered with its tag, by the path that is expected; another one is not touched.
    fn show(&self, on_bypass: bool) -> anyhow::Result<()> {
        for path in [&self.v4, &self.v6] {
            let before = self.stage.answered()?;
            let id = self.ask(path, OURS, Duration::from_secs(3))?;
            ensure!(id == Some(OURS), "a query from {} in VLAN {OURS} was answered in {id:?}", path.from);
            let after = self.stage.answered()?;
            let (bypass, kernel) = (after.bypass - before.bypass, after.kernel_path - before.kernel_path);
            ensure!(
                (bypass, kernel) == if on_bypass { (1, 0) } else { (0, 1) },
                "from {}: {bypass} answers on the bypass, {kernel} on the kernel path",
                path.from
            );
            let id = self.ask(path, FOREIGN, SILENCE)?;
            ensure!(id.is_none(), "a query in VLAN {FOREIGN}, which nobody serves, was answered in {id:?}");
            ensure!(self.stage.answered()? == after, "a query in VLAN {FOREIGN} was taken");
        }
        Ok(())
    }
}

pub(in crate::vm) fn vlan(stage: &Stage<'_>) -> anyhow::Result<String> {
    let vlan = Vlan::new(stage)?;
    if stage.guest.options.nic == Nic::Igb {
        stage.guest.run(&format!("ethtool -K {NIC} rxvlan off"))?;
        stage.guest.wait_for_carrier()?;
    }
    stage.serve("")?;
    vlan.show(true)?;
    let asked = stage.ask(1)?;
    Ok(format!("VLAN {OURS} answered on the bypass with its tag, VLAN {FOREIGN} not touched; untagged {asked}"))
}

/// A NIC that takes tags off: what came with a tag must not be answered without.
pub(in crate::vm) fn vlan_tags_stripped(stage: &Stage<'_>) -> anyhow::Result<String> {
    let vlan = Vlan::new(stage)?;
    stage.guest.run(&format!("ethtool -K {NIC} rxvlan on"))?;
    stage.guest.wait_for_carrier()?;
    stage.serve("")?;
    stage.warned(&["rxvlan off"])?;
    vlan.show(false)?;
    let asked = stage.ask(1)?;
    Ok(format!("VLAN {OURS} answered by the kernel path with its tag, and a warning with the remedy; untagged {asked}"))
}

/// CASES 10: addresses of no interface that packets come in on.
pub(in crate::vm) fn dummy_addresses(stage: &Stage<'_>) -> anyhow::Result<String> {
    let (v4, v6) = ("192.0.2.53", "2001:db8::53");
    stage.guest.run(&format!(
        "[ -e /sys/class/net/dummy0 ] || /sbin/ip link add dummy0 type dummy; /sbin/ip link set dummy0 up; \
         /sbin/ip addr add {v4}/32 dev dummy0; /sbin/ip addr add {v6}/128 dev dummy0"
    ))?;
    let lab = &stage.guest.lab;
    for (address, gateway) in [(v4, IpAddr::from(lab.server.v4)), (v6, IpAddr::from(lab.server.v6))] {
        output(lab.command(Side::Client, "ip").args(["route", "replace", address, "via", &gateway.to_string()]))?;
    }
    stage.serve(&format!("--listen {v4} --listen [{v6}]"))?;
    let before = stage.answered()?;
    for address in [v4, v6] {
        for _ in 0..10 {
            stage.ask_once(address.parse()?)?;
        }
    }
    let after = stage.answered()?;
    ensure!(
        after.bypass - before.bypass == 20 && after.kernel_path == before.kernel_path,
        "20 queries: {before:?}, then {after:?}"
    );
    Ok(format!("{v4} and {v6} answered on the bypass"))
}
