//! What becomes of a server when its interface changes: other channels, other addresses, gone and back again.
//!
//! Needs root and RESPONDER.

use std::{net::Ipv4Addr, thread, time::Duration};

use serde_json::Value;
use tests::{
    query::{ask, is_answer, query, socket},
    server::{Server, ended, eventually, ip, lab, printed, responder},
};
use xtask::lab::{Lab, Side};

/// A change is followed within so long. It is a second for a server that has a CPU.
const WITHIN: Duration = Duration::from_secs(5);

/// Whether a query from a new port to an address of the server is answered, however it comes there.
fn answered(lab: &Lab, address: Ipv4Addr) -> bool {
    let ask = || ask(&socket(lab.client.v4.into()), (address, 53).into(), &query(1));
    lab.inside(Side::Client, ask).expect("the namespace is there").is_some_and(|reply| is_answer(&reply, 1))
}

/// Asks from other ports until all these queues have answered something since `before`.
fn all_answer(lab: &Lab, server: &Server, queues: u64, before: &[u64]) {
    eventually("an answer from each queue", || {
        // While the interface is being joined there may be no answer.
        answered(lab, lab.server.v4);
        let now = by_queue(&server.status());
        let answers = |queue: usize| now.get(queue).copied().unwrap_or(0) > before.get(queue).copied().unwrap_or(0);
        (0..usize::try_from(queues).expect("a few")).all(answers).then_some(())
    });
}

fn by_queue(status: &Value) -> Vec<u64> {
    let queues = status["interfaces"][0]["queues"].as_array().expect("the interface is there");
    queues.iter().map(|queue| queue["answered"].as_u64().expect("it is counted")).collect()
}

fn channels(lab: &Lab, channels: u32) {
    let channels = channels.to_string();
    let (server, client) = ((Side::Server, lab.server.interface), (Side::Client, lab.client.interface));
    // A peer sends from no more queues than this end receives on.
    let order = if channels == "1" { [client, server] } else { [server, client] };
    for (side, interface) in order {
        printed(lab.command(side, "ethtool").args(["-L", interface, "rx", &channels, "tx", &channels]));
    }
}

#[test]
fn more_channels_get_workers() {
    let lab = lab(2);
    channels(&lab, 1);
    let server = Server::start(&lab, &[]);
    all_answer(&lab, &server, 1, &[]);
    channels(&lab, 2);
    all_answer(&lab, &server, 2, &by_queue(&server.status()));
    let status = server.status();
    assert_eq!(by_queue(&status).len(), 2);
    assert!(by_queue(&status)[0] > 1, "what was counted stays: {status}");
    assert_eq!(status["interfaces"][0]["waits_for"], Value::Null);
}

#[test]
fn an_interface_that_goes_and_comes_back_is_served_again() {
    let lab = lab(2);
    let server = Server::start(&lab, &[]);
    all_answer(&lab, &server, 2, &[]);
    let before = by_queue(&server.status());
    ip(&lab, Side::Server, &format!("link del {}", lab.server.interface));
    let waits = eventually("a server that says what it waits for", || {
        server.status()["interfaces"][0]["waits_for"].as_str().map(str::to_owned)
    });
    assert_eq!(waits, "the interface has gone");
    // Nothing spins meanwhile.
    thread::sleep(Duration::from_millis(200));
    lab.connect().expect("the pair can be made again");
    all_answer(&lab, &server, 2, &before);
    let again = server.stderr().lines().filter(|line| line.starts_with("serving again")).count();
    assert_eq!(again, 1, "{}", server.stderr());
}

#[test]
fn addresses_are_served_as_they_come_and_go() {
    let lab = lab(2);
    let server = Server::start(&lab, &[]);
    let added: Ipv4Addr = [10, 78, 0, 77].into();
    let address = format!("{added}/24 dev {}", lab.server.interface);
    for _ in 0..2 {
        let before = server.bypass_answered();
        ip(&lab, Side::Server, &format!("addr add {address}"));
        let start = std::time::Instant::now();
        eventually("an answer over the bypass from the new address", || {
            assert!(start.elapsed() < WITHIN);
            (answered(&lab, added) && server.bypass_answered() > before).then_some(())
        });
        ip(&lab, Side::Server, &format!("addr del {address}"));
        eventually("an address that is not served", || {
            (!printed(lab.command(Side::Server, "ss").args(["-H", "-tuln"])).contains("10.78.0.77")).then_some(())
        });
    }
}

fn queues(lab: &Lab, server: &Server, count: &str) -> std::process::Output {
    let mut command = lab.command(Side::Server, responder());
    ended(command.args(["queues", lab.server.interface, count, "--control"]).arg(server.control()))
}

/// The kernel refuses to take a queue away that a socket is bound to, so the server gives it up for that moment.
#[test]
fn channels_are_set_while_the_server_is_asked() {
    let lab = lab(2);
    let server = Server::start(&lab, &[]);
    all_answer(&lab, &server, 2, &[]);
    // What the client sends from must not be more.
    printed(lab.command(Side::Client, "ethtool").args(["-L", lab.client.interface, "tx", "1"]));
    let refused = ended(lab.command(Side::Server, "ethtool").args(["-L", lab.server.interface, "rx", "1", "tx", "1"]));
    assert!(!refused.status.success(), "else there would be no need for the command");
    for count in ["1", "2", "1"] {
        let before = by_queue(&server.status());
        let output = queues(&lab, &server, count);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        all_answer(&lab, &server, 1, &before);
        let status = server.status();
        assert_eq!(status["interfaces"][0]["waits_for"], Value::Null);
        let unserved = status["interfaces"][0]["queues_without_worker"].as_array().expect("a list").len();
        assert_eq!(unserved, usize::from(count == "1"), "{status}");
    }
    let refused = queues(&lab, &server, "64");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.starts_with("error: server0 has at most 2 channels, not 64"), "{said}");
    all_answer(&lab, &server, 1, &by_queue(&server.status()));
}
