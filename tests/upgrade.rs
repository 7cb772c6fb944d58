//! One server takes over from another while both are asked.
//!
//! Needs root and RESPONDER.

use std::{
    net::{TcpStream, UdpSocket},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use nix::sys::signal::Signal;
use tests::{
    query::{ask, is_answer, query, socket},
    server::{Server, ended, eventually, ip, lab, upgrade, xdp_program},
};
use xtask::lab::{Lab, Side};

/// Asks from many ports, one query after the other, until told to stop: how many were asked, and how many got no answer.
fn asking(lab: &Lab, stop: &AtomicBool) -> (u32, u32) {
    let ask = || {
        let sockets: Vec<UdpSocket> = (0..8).map(|_| socket(lab.client.v4.into())).collect();
        let (mut asked, mut lost) = (0, 0);
        while !stop.load(Relaxed) {
            for socket in &sockets {
                asked += 1;
                let reply = ask(socket, (lab.server.v4, 53).into(), &query(1));
                lost += u32::from(!reply.is_some_and(|reply| is_answer(&reply, 1)));
            }
        }
        (asked, lost)
    };
    lab.inside(Side::Client, ask).expect("the namespace is there")
}

#[test]
fn a_server_takes_over_and_the_other_ends() {
    let lab = lab(2);
    let mut first = Server::start(&lab, &[]);
    let stop = AtomicBool::new(false);
    // One that is open meanwhile may end by itself.
    let stream =
        lab.inside(Side::Client, || TcpStream::connect((lab.server.v4, 53)).expect("it listens")).expect("inside");
    let (second, (asked, lost)) = thread::scope(|scope| {
        let asking = scope.spawn(|| asking(&lab, &stop));
        thread::sleep(Duration::from_millis(300));
        let second = Server::take_over(&lab, &first, &[]);
        thread::sleep(Duration::from_millis(300));
        stop.store(true, Relaxed);
        (second, asking.join().expect("it asks"))
    });
    drop(stream);
    assert_eq!(first.ended().code(), Some(0));
    assert!(asked > 100 && lost == 0, "{lost} of {asked} lost");
    let before = second.bypass_answered();
    let reply = lab.inside(Side::Client, || ask(&socket(lab.client.v4.into()), (lab.server.v4, 53).into(), &query(1)));
    assert!(is_answer(&reply.expect("inside").expect("a reply"), 1));
    eventually("an answer of the bypass", || (second.bypass_answered() > before).then_some(()));
    assert_eq!(second.status()["pid"].as_u64().map(|pid| pid != 0), Some(true), "the socket is the second's now");
    // And once more, with the second one's end.
    let mut third = Server::take_over(&lab, &second, &[]);
    assert!(third.status()["interfaces"][0]["waits_for"].is_null());
    assert_eq!(third.end(Signal::SIGTERM).code(), Some(0));
    assert!(!third.control().exists());
}

#[test]
fn where_nobody_serves_there_is_nothing_to_take_over() {
    let lab = lab(2);
    let control = lab.directory.join("nobody.sock");
    let output = ended(&mut upgrade(&lab, &control, &[]));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("there is nothing to take over"), "{stderr}");
    assert!(!control.exists() && xdp_program(&lab).is_none());
}

/// A successor that fails when it is its turn leaves a server that joins the bypass again.
#[test]
fn a_server_whose_successor_fails_goes_on() {
    let lab = lab(2);
    let first = Server::start(&lab, &[]);
    // There are only two queues, which is seen when the interface is joined.
    let output = ended(&mut upgrade(&lab, first.control(), &["--queues", "0-7"]));
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(first.status()["interfaces"][0]["waits_for"].is_string(), "it has made way");
    let reply = lab.inside(Side::Client, || ask(&socket(lab.client.v4.into()), (lab.server.v4, 53).into(), &query(1)));
    assert!(is_answer(&reply.expect("inside").expect("the kernel path answers"), 1));
    eventually("a server that has joined again", || {
        first.status()["interfaces"][0]["waits_for"].is_null().then_some(())
    });
    assert!(ip(&lab, Side::Server, "link show dev server0").contains("xdp"));
}
