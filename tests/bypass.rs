//! What a running server does with many packets, many queues, and what happens to it.
//!
//! Needs root and RESPONDER.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;
use tests::{
    query::{Path, REPLY_WITHIN, SILENCE, ask, is_answer, query, socket},
    raw::RawSocket,
    server::{Server, addresses, count, eventually, ip, lab, sum},
};
use xtask::lab::{Lab, Side};

/// Asks once from each of so many ports and both addresses; every one must be answered right.
fn ask_from_many_ports(lab: &Lab, ports: u16) {
    for (client, server) in addresses(lab) {
        lab.inside(Side::Client, || {
            for id in 0..ports {
                let reply = ask(&socket(client), SocketAddr::new(server, 53), &query(id));
                assert!(reply.as_ref().is_some_and(|reply| is_answer(reply, id)), "{id}: {reply:02x?}");
            }
        })
        .expect("the namespace is there");
    }
}

#[test]
fn case_04_queries_on_a_queue_without_worker_are_answered_by_the_kernel_path() {
    const PORTS: u16 = 64;
    let lab = lab(2);
    let server = Server::start(&lab, &["--queues", "0"]);
    ask_from_many_ports(&lab, PORTS);
    let all = 2 * u64::from(PORTS);
    let (bypass, kernel) = eventually("all replies in the status", || {
        let (bypass, kernel) = (server.bypass_answered(), server.kernel_answered());
        (bypass + kernel >= all).then_some((bypass, kernel))
    });
    assert_eq!(bypass + kernel, all);
    assert!(bypass > 0 && kernel > 0, "bypass {bypass}, kernel path {kernel}");
    assert_eq!((server.verdict("redirected"), server.verdict("no_worker")), (bypass, kernel));
    let status = server.status();
    let interface = &status["interfaces"][0];
    let without = &interface["queues_without_worker"];
    assert_eq!(without.as_array().map(Vec::len), Some(1), "{without}");
    assert_eq!(count(&without[0]["queue"]), 1);
    assert!(without[0]["reason"].as_str().is_some_and(|reason| reason.contains("--queues")), "{without}");
}

#[test]
fn case_04_all_queues_have_a_worker_by_default() {
    const PORTS: u16 = 64;
    let lab = lab(4);
    let server = Server::start(&lab, &[]);
    ask_from_many_ports(&lab, PORTS);
    eventually("all replies on the bypass", || (server.bypass_answered() == 2 * u64::from(PORTS)).then_some(()));
    assert_eq!(server.kernel_answered(), 0);
    let status = server.status();
    let queues = status["interfaces"][0]["queues"].as_array().expect("the bypass runs");
    assert_eq!(queues.iter().map(|queue| count(&queue["queue"])).collect::<Vec<_>>(), [0, 1, 2, 3]);
    assert!(queues.iter().all(|queue| count(&queue["answered"]) > 0), "{queues:?}");
}

#[test]
fn case_07_a_queue_number_above_255_works() {
    let lab = lab(300);
    let server = Server::start(&lab, &["--queues", "299"]);
    // The client's kernel chooses the queue by the flow; one of 300 is found soon.
    let mut asked = 0;
    while server.bypass_answered() == 0 {
        assert!(asked < 10_000, "no flow came in on queue 299");
        ask_from_many_ports(&lab, 100);
        asked += 200;
    }
    let status = server.status();
    let queue = &status["interfaces"][0]["queues"][0];
    assert_eq!(count(&queue["queue"]), 299);
    assert_eq!(count(&queue["received"]), count(&queue["answered"]));
    let cell = &status["interfaces"][0]["matrix"][0];
    assert_eq!((count(&cell["rx_queue"]), count(&cell["tx_queue"])), (299, 299));
    assert_eq!(server.bypass_answered() + server.kernel_answered(), asked);
}

#[test]
fn case_11_every_length_comes_back_whole() {
    let lab = lab(1);
    let server = Server::start(&lab, &["--service", "echo"]);
    let mut all = 0;
    for ((client, address), headers) in addresses(&lab).into_iter().zip([28, 48]) {
        let lengths = 1..=1500 - headers;
        all += lengths.clone().count() as u64;
        lab.inside(Side::Client, || {
            let socket = socket(client);
            let bytes: Vec<u8> = (0..1500_u32).map(|number| (number * 7 % 251) as u8).collect();
            for length in lengths {
                let payload = &bytes[..length];
                // The client's kernel takes it only with right lengths and checksums.
                let reply = ask(&socket, SocketAddr::new(address, 53), payload);
                assert_eq!(reply.as_deref(), Some(payload), "{length}");
            }
        })
        .expect("the namespace is there");
    }
    eventually("all replies in the status", || (server.bypass_answered() == all).then_some(()));
}

#[test]
fn case_12_a_computed_checksum_of_zero_is_sent_as_all_ones() {
    let lab = lab(1);
    let server = Server::start(&lab, &["--service", "echo"]);
    for (path, udp) in [(Path::v4(&lab, 40_000), 34), (Path::v6(&lab, 40_001), 54)] {
        let checksum = udp + 6..udp + 8;
        let mut payload = [1, 2, 3, 4, 0, 0];
        // The sum's complement in the payload makes the sum complete.
        let complement = path.frame(&payload)[checksum.clone()].to_vec();
        payload[4..].copy_from_slice(&complement);
        let frame = path.frame(&payload);
        assert_eq!(frame[checksum.clone()], [0xff, 0xff], "the query is the case in point");
        let reply = lab
            .inside(Side::Client, || {
                let raw = RawSocket::open(lab.client.interface);
                raw.send(&frame);
                raw.receive_within(REPLY_WITHIN, |frame| path.reply(frame).is_some())
            })
            .expect("the namespace is there")
            .expect("a reply");
        assert_eq!(path.reply(&reply), Some(&payload[..]));
        assert_eq!(reply[checksum], [0xff, 0xff], "{reply:02x?}");
    }
    eventually("two replies of the bypass", || (server.bypass_answered() == 2).then_some(()));
}

#[test]
fn case_14_a_burst_with_nothing_after_it_is_answered_whole() {
    const SOCKETS: u16 = 10;
    const EACH: u16 = 50;
    let lab = lab(1);
    let server = Server::start(&lab, &[]);
    lab.inside(Side::Client, || {
        // More than one, since one socket's buffer would not hold all replies.
        let sockets: Vec<_> = (0..SOCKETS).map(|_| socket(lab.client.v4.into())).collect();
        for id in 0..EACH {
            for socket in &sockets {
                socket.send_to(&query(id), (lab.server.v4, 53)).expect("the server is a neighbour");
            }
        }
        for socket in &sockets {
            let mut missing: BTreeSet<u16> = (0..EACH).collect();
            let mut buffer = [0; 512];
            while !missing.is_empty() {
                let (length, _) = socket.recv_from(&mut buffer).unwrap_or_else(|_| panic!("no replies: {missing:?}"));
                let id = u16::from_be_bytes([buffer[0], buffer[1]]);
                assert!(is_answer(&buffer[..length], id) && missing.remove(&id), "{id}");
            }
        }
    })
    .expect("the namespace is there");
    let all = u64::from(SOCKETS * EACH);
    eventually("all replies in the status", || (server.bypass_answered() == all).then_some(()));
    assert_eq!(server.kernel_answered(), 0);
}

#[test]
fn case_16_any_ring_size_starts() {
    let lab = lab(1);
    for frames in ["1", "511", "5000"] {
        let mut server = Server::start(&lab, &["--ring-frames", frames]);
        ask_from_many_ports(&lab, 1);
        eventually("two replies of the bypass", || (server.bypass_answered() == 2).then_some(()));
        assert!(server.end(Signal::SIGTERM).success());
    }
}

#[test]
fn case_17_what_the_kernel_drops_is_named() {
    const KINDS: [&str; 3] = ["rx_ring_full", "rx_fill_ring_empty_descs", "rx_dropped"];
    let lab = lab(1);
    let server = Server::start(&lab, &[]);
    let dropped = || {
        let status = server.status();
        KINDS.map(|kind| sum(&status, |queue| &queue["kernel"][kind]))
    };
    assert_eq!(dropped(), [0, 0, 0]);
    server.signal(Signal::SIGSTOP);
    const FLOOD: u64 = 10_000;
    lab.inside(Side::Client, || {
        let raw = RawSocket::open(lab.client.interface);
        let frame = Path::v4(&lab, 40_000).frame(&query(1));
        (0..FLOOD).for_each(|_| raw.send(&frame));
    })
    .expect("the namespace is there");
    server.signal(Signal::SIGCONT);
    eventually("a counter of what the kernel dropped", || (dropped().iter().sum::<u64>() > 0).then_some(()));
    // What the ring held is answered, and the queue works on.
    ask_from_many_ports(&lab, 4);
    let received = sum(&server.status(), |queue| &queue["received"]);
    assert!((4096..FLOOD).contains(&received), "{received}");
    eventually("as many replies as queries", || {
        let status = server.status();
        (sum(&status, |queue| &queue["answered"]) == sum(&status, |queue| &queue["received"])).then_some(())
    });
}

/// Only the half that veth can show: the queues themselves are not taken away from their sockets.
#[test]
fn case_15_a_link_that_goes_down_and_up_is_served_again() {
    let lab = lab(2);
    let server = Server::start(&lab, &[]);
    ask_from_many_ports(&lab, 8);
    ip(&lab, Side::Server, "link set dev server0 down");
    ip(&lab, Side::Server, "link set dev server0 up");
    lab.fix_neighbours(Side::Server).expect("the link is up");
    let before = server.bypass_answered();
    let path = Path::v4(&lab, 40_000);
    let deadline = Instant::now() + Duration::from_secs(5);
    lab.inside(Side::Client, || {
        let raw = RawSocket::open(lab.client.interface);
        loop {
            raw.send(&path.frame(&query(7)));
            if raw.receive_within(SILENCE, |frame| path.reply(frame).is_some()).is_some() {
                break;
            }
            assert!(Instant::now() < deadline, "no reply since the link was down");
            thread::sleep(Duration::from_millis(20));
        }
    })
    .expect("the namespace is there");
    eventually("a reply of the bypass", || (server.bypass_answered() > before).then_some(()));
}
