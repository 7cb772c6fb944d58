//! How a server starts and ends, and what it says when it cannot start: one sentence, exit status 1, and nothing is left of it.
//!
//! Needs root and RESPONDER.

use std::{
    env,
    fs::{self, Permissions},
    net::{SocketAddr, TcpListener, UdpSocket},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{self, Command},
};

use nix::sys::signal::Signal;
use tests::{
    query::{Path, ask, is_answer, query, socket},
    raw::RawSocket,
    server::{Server, ended, eventually, ip, lab, printed, responder, serve, xdp_program},
};
use xtask::{
    lab::{Lab, Side},
    observe::Observer,
};

/// Sockets that something in the server's namespace is bound to.
fn listening(lab: &Lab) -> String {
    printed(lab.command(Side::Server, "ss").args(["-H", "-tuln"]))
}

/// Runs a server that cannot start: its sentence. Whatever was there before is still there, and nothing more.
fn refusal_of(lab: &Lab, command: &mut Command) -> String {
    let before = (listening(lab), xdp_program(lab));
    let output = ended(command);
    let stderr = String::from_utf8(output.stderr).expect("it prints text");
    assert_eq!(output.status.code(), Some(1), "{command:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{:?}", String::from_utf8_lossy(&output.stdout));
    // Before it may stand what was done so far; it comes last, and it is one line.
    let errors = stderr.lines().filter(|line| line.starts_with("error: ")).count();
    let sentence = stderr.lines().next_back().and_then(|line| line.strip_prefix("error: "));
    let sentence = sentence.unwrap_or_else(|| panic!("{command:?}: no error at the end: {stderr}"));
    assert_eq!(errors, 1, "{stderr}");
    assert_eq!((listening(lab), xdp_program(lab)), before, "something is left: {stderr}");
    sentence.to_owned()
}

fn refusal(lab: &Lab, flags: &[&str]) -> String {
    let (mut command, control) = serve(lab, flags);
    let sentence = refusal_of(lab, &mut command);
    assert!(!control.exists(), "{}", control.display());
    sentence
}

#[track_caller]
fn says(sentence: &str, parts: &[&str]) {
    for part in parts {
        assert!(sentence.contains(part), "`{part}` is not in: {sentence}");
    }
}

fn file(lab: &Lab, name: &str, text: &str) -> PathBuf {
    let path = lab.directory.join(name);
    fs::write(&path, text).expect("the lab's directory is there");
    path
}

/// The server answers a query over the bypass.
fn answers(lab: &Lab, server: &Server) {
    let before = server.bypass_answered();
    let reply = lab
        .inside(Side::Client, || ask(&socket(lab.client.v4.into()), (lab.server.v4, 53).into(), &query(1)))
        .expect("the namespace is there")
        .expect("a reply");
    assert!(is_answer(&reply, 1), "{reply:02x?}");
    eventually("a reply of the bypass", || (server.bypass_answered() > before).then_some(()));
}

#[test]
fn case_01_a_killed_server_leaves_nothing_and_restarts_at_once() {
    let lab = lab(2);
    for _ in 0..3 {
        let mut server = Server::start(&lab, &[]);
        assert!(xdp_program(&lab).is_some());
        answers(&lab, &server);
        // Loaded: frames arrive before, while and after it is killed.
        let status = lab
            .inside(Side::Client, || {
                let raw = RawSocket::open(lab.client.interface);
                let frames: Vec<_> = (0..64).map(|port| Path::v4(&lab, 41_000 + port).frame(&query(port))).collect();
                let load = || (0..100).for_each(|_| frames.iter().for_each(|frame| raw.send(frame)));
                load();
                let status = server.end(Signal::SIGKILL);
                load();
                status
            })
            .expect("the namespace is there");
        assert!(!status.success());
        // CASES 8: no filter stays behind. The kernel may take a moment to close what the process had open.
        eventually("an interface without XDP program", || xdp_program(&lab).is_none().then_some(()));
    }
    let server = Server::start(&lab, &[]);
    answers(&lab, &server);
}

#[test]
fn case_08_a_signal_ends_it_with_nothing_left() {
    let lab = lab(2);
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let mut server = Server::start(&lab, &[]);
        assert!(xdp_program(&lab).is_some() && server.control().exists());
        assert!(listening(&lab).contains(":53"));
        let status = server.end(signal);
        assert_eq!(status.code(), Some(0), "{signal}");
        assert!(!server.control().exists(), "{signal}");
        assert_eq!((xdp_program(&lab), listening(&lab)), (None, String::new()), "{signal}");
    }
}

#[test]
fn case_02_zero_copy_is_got_or_refused_and_auto_says_which() {
    let lab = lab(2);
    let sentence = refusal(&lab, &["--zero-copy", "on"]);
    says(&sentence, &["queue 0 of server0", "driver veth on Linux ", "use --zero-copy auto"]);
    for (flag, reason) in [("auto", Some("veth has no zero-copy")), ("off", None)] {
        let mut server = Server::start(&lab, &["--zero-copy", flag]);
        let status = server.status();
        let queues = status["interfaces"][0]["queues"].as_array().expect("the bypass runs");
        let modes: Vec<_> = queues.iter().map(|queue| queue["mode"].as_str()).collect();
        assert_eq!(modes, [Some("copy"), Some("copy")], "{flag}");
        assert!(queues.iter().all(|queue| queue["mode_reason"].as_str() == reason), "{flag}");
        assert!(!server.stderr().contains("copy mode"), "nobody expects more of veth: {}", server.stderr());
        assert!(server.stderr().contains("(copy)"), "{}", server.stderr());
        assert!(server.end(Signal::SIGTERM).success());
    }
}

#[test]
fn case_18_an_mtu_that_is_too_large_is_named_with_the_limit() {
    let lab = lab(1);
    ip(&lab, Side::Server, "link set dev server0 mtu 9000");
    ip(&lab, Side::Client, "link set dev client0 mtu 9000");
    let sentence = refusal(&lab, &[]);
    says(&sentence, &["MTU of server0 is 9000", "at most ", "`ip link set dev server0 mtu "]);
    // What it advises works, and be it that the driver's own limit is lower and is what comes next.
    let advised = follow(&lab, &sentence);
    if advised > 3498 {
        let sentence = refusal(&lab, &[]);
        says(&sentence, &[&format!("the MTU is {advised}, the limit of most drivers 3498")]);
        follow(&lab, &sentence);
    }
    let server = Server::start(&lab, &[]);
    answers(&lab, &server);
}

/// Sets the MTU that a refusal advises, at both ends.
fn follow(lab: &Lab, sentence: &str) -> u32 {
    let (_, advised) = sentence.rsplit_once("server0 mtu ").expect("it advises something");
    let advised: String = advised.chars().take_while(char::is_ascii_digit).collect();
    ip(lab, Side::Server, &format!("link set dev server0 mtu {advised}"));
    ip(lab, Side::Client, &format!("link set dev client0 mtu {advised}"));
    advised.parse().expect("a number")
}

#[test]
fn case_19_a_foreign_program_is_named_and_left_alone() {
    let lab = lab(1);
    lab.inside(Side::Server, || {
        let foreign = Observer::attach(lab.server.interface).expect("the interface is free");
        let id = xdp_program(&lab).expect("it is attached");
        for mode in ["auto", "native", "generic"] {
            let sentence = refusal(&lab, &["--xdp-mode", mode]);
            says(&sentence, &["server0", &format!("id {id}"), "`ip link set dev server0 xdp off`"]);
        }
        assert_eq!(xdp_program(&lab), Some(id));
        drop(foreign);
    })
    .expect("the namespace is there");
    let server = Server::start(&lab, &[]);
    answers(&lab, &server);
}

#[test]
fn case_20_a_missing_permission_is_named() {
    /// Where an ordinary user can write and run programs.
    struct Directory(PathBuf);
    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
    let lab = lab(1);
    let directory = Directory(env::temp_dir().join(format!("responder-tests-{}", process::id())));
    fs::create_dir(&directory.0).expect("it is ours alone");
    fs::set_permissions(&directory.0, Permissions::from_mode(0o777)).expect("it is ours");
    let binary = directory.0.join("responder");
    fs::copy(responder(), &binary).expect("there is room for it");
    fs::set_permissions(&binary, Permissions::from_mode(0o755)).expect("it is ours");

    let control = directory.0.join("control.sock");
    for (port, parts) in [(53, &["CAP_NET_BIND_SERVICE"][..]), (5353, &["CAP_BPF", "CAP_NET_ADMIN"])] {
        let mut command = lab.command(Side::Server, "setpriv");
        command.args(["--reuid=65534", "--clear-groups", "--inh-caps=-all"]).arg(&binary);
        command.args(["serve", "--iface", lab.server.interface, "--service", "sink"]);
        command.args(["--listen", &format!("{}:{port}", lab.server.v4)]).arg("--control").arg(&control);
        says(&refusal_of(&lab, &mut command), parts);
        assert!(!control.exists());
    }
}

#[test]
fn an_interface_that_does_not_exist() {
    let lab = lab(1);
    let (mut command, _) = serve(&lab, &["--iface", "nowhere0"]);
    says(&refusal_of(&lab, &mut command), &["no interface nowhere0", "lo", "server0"]);
}

#[test]
fn an_interface_that_is_down() {
    let lab = lab(1);
    ip(&lab, Side::Server, "link set dev server0 down");
    says(&refusal(&lab, &[]), &["server0 is down", "`ip link set dev server0 up`"]);
}

#[test]
fn a_queue_that_does_not_exist() {
    says(&refusal(&lab(2), &["--queues", "0,2"]), &["server0 has no receive queue 2", "it has 2"]);
}

#[test]
fn a_cpu_that_does_not_exist() {
    let lab = lab(2);
    for io in ["xdp", "socket"] {
        says(&refusal(&lab, &["--cpus", "0,4000", "--io", io]), &["CPU 4000 does not exist"]);
    }
}

#[test]
fn a_zone_file_with_an_error() {
    let lab = lab(1);
    let soa = "@ 3600 IN SOA ns.bad.example. host.bad.example. 1 2 3 4 5\n@ 3600 IN NS ns.bad.example.\n";
    let bad = file(&lab, "bad.zone", &format!("{soa}ns 3600 IN A 192.0.2.1\nwww 3600 IN A 192.0.2.256\n"));
    let sentence = refusal(&lab, &["--zone", &format!("bad.example={}", bad.display())]);
    says(&sentence, &[&format!("{}:4", bad.display())]);

    let missing = lab.directory.join("missing.zone");
    let sentence = refusal(&lab, &["--zone", &format!("bad.example={}", missing.display())]);
    says(&sentence, &[&missing.display().to_string(), "No such file"]);
}

#[test]
fn a_zone_that_is_given_twice() {
    let lab = lab(1);
    let again = tests::server::zone("example.com");
    says(&refusal(&lab, &[&again[0], &again[1]]), &["zone example.com", "given twice"]);
}

#[test]
fn a_signed_zone_is_refused_with_the_reason() {
    let lab = lab(1);
    let text = "@ 3600 IN SOA ns.signed.example. host.signed.example. 1 2 3 4 5\n\
                @ 3600 IN NS ns.signed.example.\n\
                ns 3600 IN A 192.0.2.1\n\
                @ 3600 IN DNSKEY 257 3 13 mdsswUyr3DPW132mOi8V9xESWE8jTo0dxCjjnopKl+GqJxpVXckHAeF+KkxLbxILfDLUT0rAK9iUzy1L53eKGQ==\n";
    let signed = file(&lab, "signed.zone", text);
    let sentence = refusal(&lab, &["--zone", &format!("signed.example={}", signed.display())]);
    says(&sentence, &[&signed.display().to_string(), "DNSKEY", "sign"]);
}

#[test]
fn a_port_that_is_in_use() {
    let lab = lab(1);
    for address in [SocketAddr::from((lab.server.v4, 53)), SocketAddr::from((lab.server.v6, 53))] {
        let udp = lab.inside(Side::Server, || UdpSocket::bind(address)).expect("the namespace is there");
        let udp = udp.expect("the port is free");
        says(&refusal(&lab, &[]), &[&format!("UDP {address}"), "in use"]);
        drop(udp);
        let tcp = lab.inside(Side::Server, || TcpListener::bind(address)).expect("the namespace is there");
        let tcp = tcp.expect("the port is free");
        says(&refusal(&lab, &[]), &[&format!("TCP {address}"), "in use"]);
        drop(tcp);
    }
    let server = Server::start(&lab, &[]);
    answers(&lab, &server);
}

#[test]
fn a_control_socket_that_is_in_use() {
    let lab = lab(1);
    let first = Server::start(&lab, &[]);
    let path = first.control().display().to_string();
    let mut command = lab.command(Side::Server, responder());
    command.args(["serve", "--iface", lab.server.interface]).args(tests::server::zone("example.com"));
    command.args(["--control", &path]);
    says(&refusal_of(&lab, &mut command), &[&path, "another responder listens"]);
    answers(&lab, &first);

    // A file that is no socket is nobody's to remove.
    let other = file(&lab, "precious", "text");
    let mut command = lab.command(Side::Server, responder());
    command.args(["serve", "--io", "socket", "--listen", "127.0.0.1:5353"]).args(tests::server::zone("example.com"));
    command.arg("--control").arg(&other);
    says(&refusal_of(&lab, &mut command), &["precious", "not a socket"]);
    assert_eq!(fs::read_to_string(&other).expect("it is still there"), "text");
}

#[test]
fn a_wrong_command_line_is_exit_status_2() {
    let lab = lab(1);
    let wrong: [&[&str]; 8] = [
        &["--frobnicate"],
        &["--io", "pigeon"],
        &["--zero-copy"],
        &["--queues", "3-1"],
        &["--cpus", "x"],
        &["--listen", "nowhere"],
        &["--vlan", "4095"],
        &["--zone", "example.org"],
    ];
    for flags in wrong {
        let (mut command, control) = serve(&lab, flags);
        let output = ended(&mut command);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{flags:?}: {stderr}");
        assert!(stderr.starts_with("error: ") && stderr.contains(flags[0]), "{stderr}");
        assert!(!control.exists() && xdp_program(&lab).is_none());
    }
}

#[test]
fn status_without_a_server_says_so() {
    let nowhere = "/run/responder-tests-nowhere.sock";
    let output = ended(Command::new(responder()).args(["status", "--control", nowhere]));
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.starts_with(&format!("error: no responder answers at {nowhere}")), "{stderr}");
}
