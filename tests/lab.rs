//! The lab itself: it has what was asked for, packets get across, and nothing of it stays.
//!
//! Needs root.

use std::{
    fs,
    net::{IpAddr, SocketAddr, UdpSocket},
    path::Path,
    process::{self, Child, Command, Stdio},
    thread,
    time::Duration,
};

use xtask::lab::{Lab, Options, Side};

fn lab(queues: u32) -> Lab {
    Lab::up(&Options { queues }).expect("a lab can be built: needs root")
}

fn exists(namespace: &str) -> bool {
    Path::new("/run/netns").join(namespace).exists()
}

fn printed(command: &mut Command) -> String {
    let output = command.output().expect("it can be started");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("it prints text")
}

/// A process that is in the namespace, and not only on its way there.
fn sleeper(namespace: &str) -> Child {
    let sleeper = Command::new("ip").args(["netns", "exec", namespace, "sleep", "60"]).stdin(Stdio::null()).spawn();
    let sleeper = sleeper.expect("it can be started");
    while !printed(Command::new("ip").args(["netns", "pids", namespace])).contains(&sleeper.id().to_string()) {
        thread::sleep(Duration::from_millis(5));
    }
    sleeper
}

#[test]
fn it_comes_and_goes() {
    let lab = lab(2);
    let namespaces = [lab.server.namespace.clone(), lab.client.namespace.clone()];
    let directory = lab.directory.clone();
    assert!(namespaces.iter().all(|namespace| exists(namespace)));
    assert!(directory.is_dir());
    let mut sleeper = sleeper(&namespaces[0]);

    drop(lab);
    assert!(!namespaces.iter().any(|namespace| exists(namespace)));
    assert!(!directory.exists());
    let status = sleeper.wait().expect("it is our child");
    assert!(!status.success(), "what ran in the lab was ended: {status}");
}

#[test]
fn it_has_the_queues_that_were_asked_for() {
    // More than there are CPUs, and more than a byte can number.
    for queues in [1, 2, 8, 300] {
        let lab = lab(queues);
        for side in [Side::Server, Side::Client] {
            let directory = format!("/sys/class/net/{}/queues", lab.end(side).interface);
            let listing = printed(lab.command(side, "ls").arg(directory));
            for kind in ["rx-", "tx-"] {
                let count = listing.lines().filter(|queue| queue.starts_with(kind)).count();
                assert_eq!(count, usize::try_from(queues).expect("small"), "{kind}* of the {side}");
            }
        }
    }
    for queues in [0, 5000] {
        let refusal = Lab::up(&Options { queues }).expect_err("refused");
        assert!(format!("{refusal:#}").contains("1 to 4096 queues"), "{refusal:#}");
    }
}

#[test]
fn packets_get_across_at_once_with_whole_checksums() {
    let lab = lab(2);
    for (server, client) in
        [(IpAddr::from(lab.server.v4), IpAddr::from(lab.client.v4)), (lab.server.v6.into(), lab.client.v6.into())]
    {
        let bind = |address| UdpSocket::bind(SocketAddr::new(address, 53)).expect("the address is there and free");
        let there = lab.inside(Side::Server, || bind(server)).expect("the namespace is there");
        let here = lab.inside(Side::Client, || bind(client)).expect("the namespace is there");
        there.set_read_timeout(Some(Duration::from_secs(2))).expect("not zero");
        here.send_to(b"hello", (server, 53)).expect("the server is a neighbour");
        let mut buffer = [0; 16];
        assert_eq!(there.recv_from(&mut buffer).expect("arrived"), (5, SocketAddr::new(client, 53)));
    }
    for side in [Side::Server, Side::Client] {
        let features = printed(lab.command(side, "ethtool").arg("-k").arg(lab.end(side).interface));
        assert!(features.contains("tx-checksumming: off"), "{features}");
    }
}

#[test]
fn a_panic_inside_is_a_panic_outside() {
    let lab = lab(1);
    let namespace = lab.client.namespace.clone();
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let _lab = lab;
        _lab.inside(Side::Client, || panic!("inside")).expect("the namespace is there");
    }));
    assert!(result.is_err());
    assert!(!exists(&namespace));
}

#[test]
fn a_stale_lab_is_removed_and_no_other() {
    let ours = lab(1);
    let by_hand = format!("test-{}", process::id());
    drop(Lab::by_hand(&by_hand, &Options { queues: 3 }).expect("a lab can be built"));
    assert_eq!(Lab::by_hand_found(&by_hand).expect("it stays").queues, 3);
    let refusal = Lab::by_hand(&by_hand, &Options::default()).expect_err("it is there");
    assert!(refusal.to_string().contains("already"), "{refusal}");

    // A process number that may well be in use, but not by a process that was started with the system's first tick.
    let name = format!("{}-0-0", process::id());
    let stale = [format!("rlab-{name}-srv"), format!("rlab-{name}-cli")];
    for namespace in &stale {
        printed(Command::new("ip").args(["netns", "add", namespace]));
    }
    let mut left = sleeper(&stale[0]);
    fs::create_dir_all(format!("/run/rlab/{name}")).expect("root can");

    let removed = Lab::remove_stale().expect("it can be removed");
    assert!(removed.contains(&name), "{removed:?}");
    assert!(!stale.iter().any(|namespace| exists(namespace)));
    assert!(!Path::new("/run/rlab").join(&name).exists());
    assert!(!left.wait().expect("it is our child").success());

    assert!(exists(&ours.server.namespace) && exists(&ours.client.namespace));
    Lab::by_hand_down(&by_hand).expect("it was there until now");
    assert!(Lab::by_hand_found(&by_hand).is_err());
}
