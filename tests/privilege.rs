//! What the threads of a server with a bypass may do, and that it is enough.
//!
//! Needs root and RESPONDER.

use std::{fs, net::SocketAddr};

use clap::Parser as _;
use responder::{
    cli::{self, Cli},
    config::Config,
    privilege,
    xdp::socket::{self, Options, Socket, ZeroCopy},
};
use tests::{
    query::{ask, is_answer, query, socket},
    server::{Server, count, eventually, ip, lab},
};
use xtask::lab::{Lab, Side};

/// NET_BIND_SERVICE, NET_RAW, IPC_LOCK, and since it is root, DAC_READ_SEARCH.
const KEPT: u64 = 1 << 10 | 1 << 13 | 1 << 14 | 1 << 2;

#[test]
fn workers_hold_no_capability_and_an_address_that_appears_is_served() {
    let lab = lab(2);
    let server = Server::start(&lab, &[]);
    check_threads(&server);

    let added = "10.78.0.77";
    ip(&lab, Side::Server, &format!("address add {added}/24 dev {}", lab.server.interface));
    let client = lab.client.v4.into();
    eventually("an answer from the new address", || {
        lab.inside(Side::Client, || {
            let reply = ask(&socket(client), SocketAddr::new(added.parse().expect("an address"), 53), &query(7));
            reply.is_some_and(|reply| is_answer(&reply, 7)).then_some(())
        })
        .expect("the namespace is there")
    });
    // The sockets of the new address have threads of their own.
    check_threads(&server);
}

/// What replaces a queue that is stuck, as the control thread does it.
#[test]
fn what_the_control_thread_keeps_is_enough_for_a_new_socket() {
    let lab = lab(1);
    let line = ["responder", "serve", "--iface", lab.server.interface, "--zone", "a=b"];
    let cli::Command::Serve(flags) = Cli::parse_from(line).command else { panic!("{line:?}") };
    let config = Config::new(&flags).expect("it is right");
    let options =
        Options { mtu: 1500, zero_copy: ZeroCopy::Auto, ring_frames: socket::ring_frames(0), busy_poll_us: None };
    let bind = |lab: &Lab, settle: &(dyn Fn() + Sync)| {
        lab.inside(Side::Server, || {
            settle();
            Socket::try_bind(lab.server.interface, 0, &options).map(|socket| socket.is_some())
        })
        .expect("the namespace is there")
    };
    let control = || assert_eq!(privilege::settle(&config, false).expect("as root").capabilities.len(), 4);
    assert!(bind(&lab, &control).expect("a socket"));
    let error = format!("{:#}", bind(&lab, &privilege::drop_all).expect_err("without capabilities"));
    assert!(error.contains("CAP_NET_RAW"), "{error}");
}

fn check_threads(server: &Server) {
    let pid = count(&server.status()["pid"]);
    let mut names = Vec::new();
    for task in fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten() {
        let text = fs::read_to_string(task.path().join("status")).expect("the thread runs");
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            line.expect("the kernel says it").trim().to_owned()
        };
        let name = field("Name");
        let kept = if name == "responder" { KEPT } else { 0 };
        for (set, expected) in [("CapEff", kept), ("CapPrm", kept), ("CapInh", 0), ("CapAmb", 0), ("CapBnd", 0)] {
            assert_eq!(u64::from_str_radix(&field(set), 16), Ok(expected), "{set} of {name}");
        }
        assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1".to_owned(), "2".to_owned()), "{name}");
        names.push(name);
    }
    assert!(["queue 0", "queue 1"].iter().all(|worker| names.iter().any(|name| name == worker)), "{names:?}");
}
