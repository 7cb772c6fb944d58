//! `responder flood` against servers in a lab: that what it says it sent and got is what they saw, and what it says of targets that cannot be asked.
//!
//! Needs root and RESPONDER.

use std::{
    fs,
    net::UdpSocket,
    process::{Command, Output, Stdio},
    sync::{Arc, atomic::AtomicBool, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::Value;
use tests::server::{Server, count, ended, eventually, lab, printed, responder};
use xtask::lab::{Lab, Side};

/// Slow enough for a debug build on two busy CPUs, with all other tests.
const CALM: [&str; 6] = ["--rate", "2000", "--for", "1", "--timeout-ms", "2000"];

fn flood(lab: &Lab, target: &str, flags: &[&str]) -> Command {
    let mut command = lab.command(Side::Client, responder());
    command.args(["flood", target, "--json", "--i-own-the-target"]).args(flags);
    command
}

/// A run in which something was answered.
fn flooded(lab: &Lab, target: &str, flags: &[&str]) -> Value {
    serde_json::from_str(&printed(&mut flood(lab, target, flags))).expect("it prints JSON")
}

fn refused(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

fn v4(lab: &Lab) -> String {
    lab.server.v4.to_string()
}

#[test]
fn what_is_said_to_be_answered_is_what_the_server_answered() {
    let lab = lab(2);
    let v6 = format!("[{}]:53", lab.server.v6);
    let cases: [(&str, String, &[&str]); 6] = [
        ("XDP over IPv4", v4(&lab), &["--flows", "16"]),
        ("XDP over IPv6", v6.clone(), &["--flows", "16"]),
        ("one queue", v4(&lab), &["--queues", "1"]),
        ("a socket for each thread", v4(&lab), &["--io", "socket", "--threads", "2", "--flows", "4"]),
        ("one socket", v4(&lab), &["--io", "socket", "--threads", "2", "--sockets", "shared"]),
        ("sockets over IPv6", v6, &["--io", "socket"]),
    ];
    for (what, target, flags) in cases {
        let server = Server::start(&lab, &[]);
        let report = flooded(&lab, &target, &[&["--zone", "example.com"], &CALM[..], flags].concat());
        let [sent, answered] = ["sent", "answered"].map(|key| count(&report[key]));
        assert!(sent >= 1000, "{what}: {report}");
        assert_eq!(answered, sent, "{what}: {report}");
        for nothing in ["lost", "late", "wrong", "duplicate", "stray"] {
            assert_eq!(count(&report[nothing]), 0, "{what}: {nothing} in {report}");
        }
        let p50 = report["latency_us"]["p50"].as_f64().expect("there is a latency");
        assert!(p50 > 0.0 && p50 < 2e6, "{what}: {report}");
        eventually(what, || (server.bypass_answered() + server.kernel_answered() == sent).then_some(()));
    }
}

#[test]
fn kinds_and_rcodes_are_told_apart() {
    let lab = lab(1);
    let _server = Server::start(&lab, &[]);
    let file = lab.directory.join("queries.txt");
    fs::write(&file, "example.com SOA\n").expect("the lab has a directory");
    let queries = file.to_str().expect("UTF-8");
    let mix = ["--random", "0.5", "--malformed", "0.25", "--edns", "1232", "--do", "0.5"];
    let report = flooded(&lab, &v4(&lab), &[&["--queries", queries], &CALM[..], &mix].concat());
    let rcodes = &report["rcodes"];
    let sent = count(&report["sent"]);
    let of = |name: &str| {
        let found = rcodes.as_array().expect("a list").iter().find(|pair| pair[0] == name);
        count(&found.unwrap_or_else(|| panic!("no {name} in {report}"))[1])
    };
    // The shares are those of what was prepared, and all of it is sent equally often.
    for (rcode, share) in [("NOERROR", 0.25), ("NXDOMAIN", 0.5)] {
        let seen = of(rcode) as f64 / sent as f64;
        assert!((seen - share).abs() < 0.1, "{rcode}: {seen} in {report}");
    }
    assert_eq!(count(&report["wrong"]), 0, "{report}");
}

/// What was to take a minute is told of the second that it took.
#[test]
fn a_signal_ends_a_run_at_once_and_what_was_sent_is_told() {
    let lab = lab(1);
    let _server = Server::start(&lab, &[]);
    // Nobody answers what is only counted, and nobody must be waited for.
    for more in [&[][..], &["--no-replies"]] {
        let flags = ["--zone", "example.com", "--rate", "2000", "--for", "60"];
        let mut command = flood(&lab, &v4(&lab), &[&flags[..], more].concat());
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
        thread::sleep(Duration::from_secs(2));
        let pid = Pid::from_raw(child.id().try_into().expect("a process id"));
        kill(pid, Signal::SIGINT).expect("it runs");
        let asked = Instant::now();
        let output = child.wait_with_output().expect("it ends");
        assert!(asked.elapsed() < Duration::from_secs(5), "{more:?}: {:?}", asked.elapsed());
        assert!(output.status.success(), "{more:?}: {output:?}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
        let [seconds, rate] = ["seconds", "sent_per_s"].map(|key| report[key].as_f64().expect("a number"));
        assert!(seconds > 0.5 && seconds < 5.0, "{more:?}: {report}");
        assert!((1800.0..2100.0).contains(&rate), "{more:?}: {report}");
    }
}

/// The link goes down while it runs, and with it the route: from then on the kernel takes no query.
#[test]
fn what_the_kernel_does_not_take_is_not_said_to_be_sent() {
    let lab = lab(1);
    let _server = Server::start(&lab, &[]);
    let flags = ["--zone", "example.com", "--io", "socket", "--rate", "2000", "--for", "3"];
    let child = flood(&lab, &v4(&lab), &flags).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let child = child.expect("it starts");
    thread::sleep(Duration::from_millis(1500));
    printed(lab.command(Side::Client, "ip").args(["link", "set", lab.client.interface, "down"]));
    let output = child.wait_with_output().expect("it ends");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let [sent, not_sent, lost] = ["sent", "not_sent", "lost"].map(|key| count(&report[key]));
    assert!(sent > 500 && not_sent > 500, "{report}");
    assert!((5400..=6001).contains(&(sent + not_sent)) && lost < 200, "{report}");
    assert!(String::from_utf8_lossy(&output.stderr).contains("warning: this generator made"), "{output:?}");
}

#[test]
fn a_window_and_a_search_end_with_answers() {
    let lab = lab(1);
    let _server = Server::start(&lab, &[]);
    let report = flooded(&lab, &v4(&lab), &["--zone", "example.com", "--window", "4", "--for", "1"]);
    assert!(count(&report["answered"]) > 100 && count(&report["lost"]) == 0, "{report}");
    let report = flooded(&lab, &v4(&lab), &["--zone", "example.com", "--find-peak", "--for", "0.1"]);
    assert!(report["peak"]["answered_per_s"].as_f64().is_some_and(|rate| rate > 1000.0), "{report}");
    assert!(report["loss"].as_f64().is_some_and(|loss| loss <= 0.01), "{report}");
}

#[test]
fn a_tagged_query_has_a_tagged_reply() {
    let lab = lab(1);
    let server = Server::start(&lab, &["--vlan", "7"]);
    let flags = ["--zone", "example.com", "--vlan", "7"];
    let report = flooded(&lab, &v4(&lab), &[&flags[..], &CALM].concat());
    assert_eq!(count(&report["answered"]), count(&report["sent"]), "{report}");
    assert_eq!(count(&report["answered"]), server.bypass_answered());
}

#[test]
fn a_sink_counts_what_was_sent_and_nothing_is_waited_for() {
    let lab = lab(1);
    let server = Server::start(&lab, &["--service", "sink", "--listen", &format!("{}:53", lab.server.v4)]);
    let report = flooded(&lab, &v4(&lab), &[&["--zone", "example.com", "--no-replies"], &CALM[..]].concat());
    let sent = count(&report["sent"]);
    assert!(sent > 1000 && report["answered"] == 0, "{report}");
    eventually("the sink has it all", || {
        let status = server.status();
        let queues = status["interfaces"][0]["queues"].as_array()?.clone();
        (queues.iter().map(|queue| count(&queue["received"])).sum::<u64>() == sent).then_some(())
    });
}

/// A server that is wrong in four ways: it answers the first of four with another question, the second twice, the third too late, and the fourth not.
#[test]
fn wrong_double_late_and_missing_replies_are_counted_as_such() {
    let lab = lab(1);
    let end = Arc::new(AtomicBool::new(false));
    let server = {
        let address = (lab.server.v4, 53);
        let socket = lab.inside(Side::Server, || UdpSocket::bind(address)).expect("entered").expect("port 53 is free");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("it is a socket");
        let end = Arc::clone(&end);
        thread::spawn(move || {
            let (mut queries, mut message) = (0_u64, [0; 512]);
            while !end.load(Relaxed) {
                let Ok((length, client)) = socket.recv_from(&mut message) else { continue };
                message[2] |= 0x80;
                let reply = |message: &[u8]| socket.send_to(message, client).expect("it can be sent");
                match queries % 4 {
                    0 => {
                        message[13] = b'x';
                        reply(&message[..length]);
                    }
                    1 => {
                        reply(&message[..length]);
                        reply(&message[..length]);
                    }
                    2 => {
                        let (socket, late) =
                            (socket.try_clone().expect("it can be cloned"), message[..length].to_vec());
                        thread::spawn(move || {
                            thread::sleep(Duration::from_millis(400));
                            socket.send_to(&late, client)
                        });
                    }
                    _ => {}
                }
                queries += 1;
            }
            queries
        })
    };
    let mut reports = vec![];
    for io in ["xdp", "socket"] {
        let flags = ["--zone", "example.com", "--io", io, "--rate", "40", "--for", "2", "--timeout-ms", "200"];
        reports.push((io, flooded(&lab, &v4(&lab), &flags)));
    }
    end.store(true, Relaxed);
    let seen = server.join().expect("it ends");
    let mut sent = 0;
    for (io, report) in &reports {
        let all = count(&report["sent"]);
        sent += all;
        for key in ["answered", "wrong", "duplicate"] {
            assert!(count(&report[key]).abs_diff(all / 4) <= 2, "{io}: {key} of {all} in {report}");
        }
        // The last ones are late for the end of the run as well.
        assert!(count(&report["late"]) > all / 8, "{io}: {report}");
        assert!(count(&report["lost"]) >= all / 4, "{io}: {report}");
    }
    assert_eq!(seen, sent);
}

#[test]
fn a_target_elsewhere_needs_consent() {
    let lab = lab(1);
    let mut command = lab.command(Side::Client, responder());
    command.args(["flood", &v4(&lab), "--zone", "example.com"]).args(CALM);
    let said = refused(&ended(&mut command));
    assert!(said.contains("--i-own-the-target"), "{said}");
}

#[test]
fn what_cannot_be_asked_is_said_and_why() {
    let lab = lab(1);
    let files = [("empty", ""), ("broken", "example.com A\nexample.com NOTYPE\n"), ("names", "a..b A\n")];
    let path = |name: &str| lab.directory.join(name).to_str().expect("UTF-8").to_owned();
    for (name, text) in files {
        fs::write(path(name), text).expect("the lab has a directory");
    }
    let [empty, broken, names] = files.map(|(name, _)| path(name));
    let network = v4(&lab);
    let silent = format!("{}.99", network.rsplit_once('.').expect("dots").0);
    let cases: [(&str, &[&str], &[&str]); 12] = [
        (
            "no.such.host.invalid",
            &["--zone", "example.com"],
            &["no.such.host.invalid", "neither an address nor a host"],
        ),
        ("192.0.2.1", &["--zone", "example.com"], &["192.0.2.1", "Network is unreachable", "is there a route"]),
        (&silent, &["--zone", "example.com"], &["no ARP answer", &silent]),
        ("fd78::99", &["--zone", "example.com"], &["no ND answer", "fd78::99"]),
        (&network, &["--queries", &empty], &["empty", "no query in it"]),
        (&network, &["--queries", &broken], &["broken", "line 2", "NOTYPE"]),
        (&network, &["--queries", &names], &["names", "line 1"]),
        (&network, &["--queries", "/nowhere"], &["/nowhere", "No such file"]),
        (&network, &["--zone", "example.com", "--queues", "9"], &["no queue 9"]),
        (&network, &["--zone", "example.com", "--iface", "lo"], &["client0", "lo"]),
        // An IP packet of one byte more than fits.
        (&network, &["--payload", "1473", "--expect", "echo"], &["1501 bytes", "MTU of client0 is 1500"]),
        (&network, &["--zone", "example.com"], &["answers nothing"]),
    ];
    for (target, flags, expected) in cases {
        let said = refused(&ended(&mut flood(&lab, target, &[flags, &CALM].concat())));
        for part in expected {
            assert!(said.contains(part), "{target} {flags:?}: {part:?} is not in {said}");
        }
    }
}

#[test]
fn a_rate_that_cannot_be_made_is_not_claimed() {
    let lab = lab(1);
    let _server = Server::start(&lab, &["--service", "sink", "--listen", &format!("{}:53", lab.server.v4)]);
    let flags = ["--zone", "example.com", "--no-replies", "--rate", "100000000", "--for", "1"];
    let output = ended(&mut flood(&lab, &v4(&lab), &flags));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.contains("of the 100000000/s that were wanted"), "{said}");
    let report: Value = serde_json::from_slice(&output.stdout).expect("it prints JSON");
    let made = report["sent_per_s"].as_f64().expect("a number");
    assert!(made < 50e6, "{report}");
    assert!(
        (made * report["seconds"].as_f64().expect("a number") - count(&report["sent"]) as f64).abs() < 1e5,
        "{report}"
    );
}
