//! Attaching the XDP program to interfaces: what is got, what is refused and with which sentence, what is left behind.
//!
//! Each test has a network namespace of its own, which goes with the test's thread. Needs root.

use std::process::Command;

use nix::sched::{CloneFlags, unshare};
use responder::xdp::steering::{AttachMode, Mode, Settings, Steering};

const LOOPBACK: (&str, u32) = ("lo", 1);

fn settings(mode: AttachMode) -> Settings {
    Settings { ports: vec![53], mac: [2, 0, 0, 0, 0, 1], vlans: vec![], queues: 1, mode, log: false }
}

fn attach((name, index): (&str, u32), mode: AttachMode) -> anyhow::Result<Steering> {
    let mut steering = Steering::load(&settings(mode))?;
    steering.attach(name, index, &settings(mode))?;
    Ok(steering)
}

fn refusal(interface: (&str, u32), mode: AttachMode) -> String {
    attach(interface, mode).err().expect("refused").to_string()
}

/// Runs the test where there are only a loopback interface and a veth pair: the index of its end `v0`.
fn with_veth(test: impl FnOnce((&'static str, u32))) {
    // The namespace of this thread alone, and of the commands that it starts.
    unshare(CloneFlags::CLONE_NEWNET).expect("a network namespace can be made: needs root");
    ip("link add name v0 index 10 type veth peer name v1 index 11");
    test(("v0", 10));
}

fn ip(arguments: &str) -> String {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("`ip` is installed");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("`ip` prints text")
}

fn has_program(name: &str) -> bool {
    ip(&format!("link show dev {name}")).contains("prog/xdp")
}

#[test]
fn auto_is_native_where_the_driver_can() {
    with_veth(|veth| {
        let steering = attach(veth, AttachMode::Auto).expect("veth can");
        assert_eq!(steering.mode(), Some(Mode::Native));
        assert_eq!(steering.fallback(), None);
    });
}

#[test]
fn auto_is_generic_where_the_driver_cannot_and_says_so() {
    with_veth(|_| {
        let steering = attach(LOOPBACK, AttachMode::Auto).expect("any interface can do generic mode");
        assert_eq!(steering.mode(), Some(Mode::Generic));
        assert!(steering.fallback().is_some_and(|reason| reason.contains("the driver of lo cannot run XDP programs")));
    });
}

#[test]
fn a_mode_that_is_asked_for_is_got_or_refused() {
    with_veth(|veth| {
        let steering = attach(veth, AttachMode::Generic).expect("any interface can do generic mode");
        assert_eq!(steering.mode(), Some(Mode::Generic));
        assert_eq!(steering.fallback(), None);
        assert_eq!(
            refusal(LOOPBACK, AttachMode::Native),
            "attaching the XDP program to lo: its driver cannot run XDP programs in this mode: use `--xdp-mode generic`"
        );
    });
}

#[test]
fn case_08_nothing_is_left_behind() {
    with_veth(|veth| {
        for mode in [AttachMode::Native, AttachMode::Generic] {
            let steering = attach(veth, mode).expect("veth can do both");
            assert!(has_program("v0"));
            drop(steering);
            assert!(!has_program("v0"));
        }
    });
}

#[test]
fn case_18_the_mtu_that_is_too_large_is_named_with_the_limit() {
    with_veth(|veth| {
        ip("link set dev v0 mtu 9000");
        ip("link set dev v1 mtu 9000");
        let refusal = refusal(veth, AttachMode::Auto);
        assert!(refusal.contains("the MTU is 9000, the limit of most drivers 3498"), "{refusal}");
        ip("link set dev v1 mtu 3498");
        attach(veth, AttachMode::Native).expect("the limit is within what veth takes");
    });
}

#[test]
fn case_19_a_foreign_program_is_named_and_left_alone() {
    for (mode, off) in [(AttachMode::Native, "xdp off"), (AttachMode::Generic, "xdpgeneric off")] {
        with_veth(|veth| {
            let foreign = attach(veth, mode).expect("veth can do both");
            let before = ip("link show dev v0");
            let (_, id) = before.split_once("prog/xdp id ").expect("`ip` names the program");
            let id: String = id.chars().take_while(char::is_ascii_digit).collect();
            for mode in [AttachMode::Auto, AttachMode::Native, AttachMode::Generic] {
                let refusal = refusal(veth, mode);
                assert!(
                    refusal
                        .contains(&format!("it has an XDP program already, id {id} (classify), which is left alone")),
                    "{refusal}"
                );
                assert!(refusal.contains(&format!("`ip link set dev v0 {off}`")), "{refusal}");
            }
            assert_eq!(ip("link show dev v0"), before);
            drop(foreign);
            attach(veth, AttachMode::Auto).expect("the interface is free");
        });
    }
}

#[test]
fn an_interface_that_is_gone_is_refused() {
    with_veth(|_| {
        assert_eq!(refusal(("c", 12), AttachMode::Auto), "attaching the XDP program to c: it is gone");
    });
}
