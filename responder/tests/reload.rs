//! A running server takes other zones and rules while it is asked: the `responder` binary with kernel sockets on loopback.

use std::{
    fs,
    io::{BufRead, BufReader},
    net::UdpSocket,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use nix::sys::signal::Signal;

const WITHIN: Duration = Duration::from_secs(20);

/// A server with its configuration in a folder of its own; both go with this.
struct Server {
    folder: PathBuf,
    port: u16,
    child: Child,
    log: Arc<Mutex<String>>,
}

impl Server {
    fn start(test: &str) -> Self {
        Self::start_with(test, &[])
    }

    fn start_with(test: &str, flags: &[&str]) -> Self {
        let folder = std::env::temp_dir().join(format!("responder-reload-{}-{test}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        // A port that was free a moment ago.
        let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = |child| Self { folder: folder.clone(), port, child, log: Arc::default() };
        fs::write(folder.join("a.zone"), zone(1)).unwrap();
        fs::write(folder.join("b.zone"), zone(1)).unwrap();
        fs::write(folder.join("conf.toml"), config(port, "")).unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_responder"))
            .args(["serve", "--config"])
            .arg(folder.join("conf.toml"))
            .args(flags)
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = child.stderr.take().unwrap();
        let server = server(child);
        let log = Arc::clone(&server.log);
        thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                *log.lock().unwrap() += &(line + "\n");
            }
        });
        server.wait_for("ready:");
        server
    }

    fn wait_for(&self, text: &str) {
        let deadline = Instant::now() + WITHIN;
        while !self.log.lock().unwrap().contains(text) {
            assert!(Instant::now() < deadline, "no {text:?} in {}", self.log.lock().unwrap());
            thread::sleep(Duration::from_millis(10));
        }
    }

    fn write(&self, file: &str, text: &str) {
        fs::write(self.folder.join(file), text).unwrap();
    }

    fn run(&self, command: &[&str]) -> Output {
        let mut run = Command::new(env!("CARGO_BIN_EXE_responder"));
        run.args(command).arg("--control").arg(self.folder.join("socket")).output().unwrap()
    }

    /// What `responder reload` prints, without the time it took, and whether it says that all is well.
    fn reload(&self, zone: &[&str]) -> (String, bool) {
        let output = self.run(&[&["reload"], zone].concat());
        let text = String::from_utf8(output.stdout).unwrap().replace(&format!("{}/", self.folder.display()), "");
        let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("reloaded in")).collect();
        (lines.join("\n"), output.status.success())
    }

    fn socket(&self) -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(("127.0.0.1", self.port)).unwrap();
        socket.set_read_timeout(Some(WITHIN)).unwrap();
        socket
    }

    /// The versions that an answer for `mx.ZONE MX` shows: the preference, and the last byte of the exchange's address.
    fn versions(&self, socket: &UdpSocket, zone: u8) -> (u16, u8) {
        let query = [b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x02mx\x01", &[zone][..], b"\0\0\x0f\0\x01"].concat();
        socket.send(&query).unwrap();
        let mut reply = [0; 512];
        let length = socket.recv(&mut reply).unwrap();
        assert_eq!(reply[3] & 0x0f, 0, "{:?}", &reply[..length]);
        assert_eq!((reply[7], reply[11]), (1, 1), "an answer and an additional record");
        let preference = query.len() + 12;
        (u16::from_be_bytes([reply[preference], reply[preference + 1]]), reply[length - 1])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ = self.child.wait();
        let _gone_already = fs::remove_dir_all(&self.folder);
    }
}

fn zone(version: u8) -> String {
    format!(
        "$TTL 60\n@ SOA ns.x. host.x. {version} 7200 3600 1209600 300\n@ NS ns.x.\nmx MX {version} host\nhost A 192.0.2.{version}\n"
    )
}

fn config(port: u16, more: &str) -> String {
    format!(
        "io = \"socket\"\nlisten = [\"127.0.0.1:{port}\"]\ncontrol = \"socket\"\n{more}\n[zones]\na = \"a.zone\"\nb = \"b.zone\"\n"
    )
}

#[test]
fn every_answer_is_from_one_version_while_zones_are_reloaded() {
    let server = Server::start("versions");
    let (stop, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let clients: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let socket = server.socket();
                    let mut last = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let (preference, address) = server.versions(&socket, b'a');
                        assert_eq!(preference, u16::from(address), "one answer, two versions");
                        assert!(address >= last, "version {last} was followed by {address}");
                        last = address;
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                    last
                })
            })
            .collect();
        // Whatever happens, the clients must end, or this would wait for them.
        let reloads = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            for version in 2..=9 {
                server.write("a.zone", &zone(version));
                let (text, clean) = server.reload(&[]);
                let expected = format!("zone a.: serial {} -> {version}, 3 names, 4 records", version - 1);
                assert!(clean && text.contains(&expected), "{text}");
            }
            // What is asked after the reload has been confirmed comes from the new version.
            assert_eq!(server.versions(&server.socket(), b'a'), (9, 9));
        }));
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap();
        }
        reloads.unwrap();
    });
    assert!(asked.load(Ordering::Relaxed) > 100, "{asked:?}");
}

#[test]
fn a_zone_with_an_error_stays_in_service_and_the_reply_and_the_log_say_so() {
    let server = Server::start("error");
    let socket = server.socket();
    server.write("a.zone", &zone(2).replace("192.0.2.2", "192.0.2"));
    server.write("b.zone", &zone(2));
    let error = "a.zone:5:8: A: \"192.0.2\": expected an IPv4 address such as 192.0.2.1";
    let expected = format!(
        "zone a.: not loaded, serial 1 stays in service\n  {error}\nzone b.: serial 1 -> 2, 3 names, 4 records"
    );
    assert_eq!(server.reload(&[]), (expected, false));
    server.wait_for("reload: zone a.: not loaded, serial 1 stays in service");
    assert_eq!((server.versions(&socket, b'a'), server.versions(&socket, b'b')), ((1, 1), (2, 2)));

    server.write("a.zone", &zone(3));
    server.write("b.zone", "nonsense");
    assert_eq!(server.reload(&["a"]), ("zone a.: serial 1 -> 3, 3 names, 4 records".to_owned(), true));
    assert_eq!((server.versions(&socket, b'a'), server.versions(&socket, b'b')), ((3, 3), (2, 2)));
    let (text, clean) = server.reload(&["c"]);
    assert!(text.contains("zone c is not configured") && !clean, "{text}");
}

#[test]
fn a_server_that_reloads_answers_the_control_socket_and_queries() {
    let server = Server::start("busy");
    server.write("a.zone", &(zone(2) + "$GENERATE 1-50000 h$ A 10.0.0.1\n"));
    thread::scope(|scope| {
        let reload = scope.spawn(|| server.reload(&[]));
        let socket = server.socket();
        let mut meanwhile = 0;
        while !reload.is_finished() {
            let status = server.run(&["status"]);
            assert!(status.status.success(), "{status:?}");
            server.versions(&socket, b'b');
            meanwhile += usize::from(!reload.is_finished());
        }
        let (text, clean) = reload.join().unwrap();
        assert!(clean && text.contains("zone a.: serial 1 -> 2, 50003 names, 50004 records"), "{text}");
        assert!(meanwhile > 0, "the reload took no time");
    });
}

#[test]
fn sighup_reloads_zones_and_rules() {
    let server = Server::start("sighup");
    let socket = server.socket();
    let more = "interfaces = [\"lo\"]\nidentity = \"me\"\n[[acl]]\nprefix = \"127.0.0.0/8\"\naction = \"refuse\"";
    server.write("a.zone", &zone(2));
    server.write("conf.toml", &config(server.port, more));
    let pid = server.child.id().to_string();
    assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    server.wait_for("reload: reloaded in");
    server.wait_for("changed, and not taken before `responder upgrade` or a restart: interfaces");
    server.wait_for("reload: zone a.: serial 1 -> 2");
    socket.send(b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x02mx\x01a\0\0\x0f\0\x01").unwrap();
    let mut reply = [0; 512];
    socket.recv(&mut reply).unwrap();
    assert_eq!(reply[3] & 0x0f, 5, "REFUSED");

    server.write("conf.toml", "io = \"scoket\"\n");
    let (text, clean) = server.reload(&[]);
    assert_eq!(
        (text.as_str(), clean),
        ("conf.toml:1: io = \"scoket\": expected xdp, socket; did you mean socket?\nnothing was reloaded", false)
    );
    let status = server.run(&["status"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("serial 2"), "{status:?}");
}

#[test]
fn a_server_does_not_start_with_an_error_and_check_says_all_of_them() {
    let folder = std::env::temp_dir().join(format!("responder-reload-{}-start", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let config = folder.join("conf.toml");
    fs::write(&config, self::config(5399, "")).unwrap();
    fs::write(folder.join("a.zone"), zone(1) + &"x A 1\n".repeat(30)).unwrap();
    fs::write(folder.join("b.zone"), zone(1) + "y A 1\n").unwrap();
    let run = |command: &str| {
        let output =
            Command::new(env!("CARGO_BIN_EXE_responder")).arg(command).arg("--config").arg(&config).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, text) = run("serve");
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("a.zone:6:5: A: \"1\"") && text.ends_with("and 11 more errors\n"), "{text}");
    let (code, text) = run("check");
    assert_eq!((code, text.lines().count()), (Some(1), 31), "{text}");
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_draining_server_answers_is_not_healthy_and_ends() {
    let mut server = Server::start("drain");
    let healthy = || String::from_utf8(server.run(&["health"]).stdout).unwrap();
    assert!(healthy().starts_with("healthy: answers for a. SOA at 127.0.0.1:"), "{}", healthy());
    let draining = thread::scope(|scope| {
        let draining = scope.spawn(|| server.run(&["drain", "--wait", "1"]));
        server.wait_for("draining: stopping in 1.0 s");
        assert_eq!(healthy(), "not healthy: it is draining\n");
        let socket = server.socket();
        assert_eq!(server.versions(&socket, b'a'), (1, 1), "it answers all the same");
        draining.join().unwrap()
    });
    assert!(draining.status.success(), "{draining:?}");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
    assert!(
        String::from_utf8(server.run(&["health"]).stdout).unwrap().starts_with("not healthy: no responder listens at")
    );
}

/// What a routing daemon is told follows the server.
#[test]
fn a_watch_runs_its_commands_when_health_changes() {
    let mut server = Server::start("watch");
    let said = server.folder.join("said");
    let mut watch = Command::new(env!("CARGO_BIN_EXE_responder"))
        .args(["health", "--watch", "--interval-ms", "100"])
        .args(["--up", &format!("echo up >> {}", said.display())])
        .args(["--down", &format!("echo down >> {}", said.display())])
        .arg("--control")
        .arg(server.folder.join("socket"))
        .spawn()
        .unwrap();
    let wait_for = |expected: &str| {
        let deadline = Instant::now() + WITHIN;
        while fs::read_to_string(&said).unwrap_or_default() != expected {
            assert!(Instant::now() < deadline, "{expected:?}, but {:?}", fs::read_to_string(&said));
            thread::sleep(Duration::from_millis(10));
        }
    };
    let signal = |child: &Child, signal| {
        let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
        nix::sys::signal::kill(pid, signal).unwrap();
    };
    wait_for("up\n");
    // One that hangs takes connections and answers nothing.
    signal(&server.child, Signal::SIGSTOP);
    wait_for("up\ndown\n");
    signal(&server.child, Signal::SIGCONT);
    wait_for("up\ndown\nup\n");
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    wait_for("up\ndown\nup\ndown\n");
    signal(&watch, Signal::SIGTERM);
    assert!(watch.wait().unwrap().success());
    wait_for("up\ndown\nup\ndown\ndown\n");
}

#[test]
fn addresses_and_the_log_level_are_reloaded() {
    let server = Server::start("listen");
    let other = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let held = UdpSocket::bind("127.0.0.1:0").unwrap();
    let held_port = held.local_addr().unwrap().port();
    let text = config(server.port, "log_level = \"warn\"")
        .replace("listen = [", &format!("listen = [\"127.0.0.1:{other}\", \"127.0.0.1:{held_port}\", "));
    server.write("conf.toml", &text);
    let (said, is_clean) = server.reload(&[]);
    assert!(!is_clean && said.contains(&format!("cannot listen on UDP 127.0.0.1:{held_port}")), "{said}");
    assert!(!said.contains("restart"), "{said}");
    for port in [other, server.port] {
        let socket = server.socket();
        socket.connect(("127.0.0.1", port)).unwrap();
        assert_eq!(server.versions(&socket, b'a'), (1, 1));
    }
    let logged = server.log.lock().unwrap().len();
    server.write("conf.toml", &config(server.port, "log_level = \"warn\""));
    assert!(server.reload(&[]).1);
    UdpSocket::bind(("127.0.0.1", other)).expect("it is no longer served");
    assert_eq!(server.log.lock().unwrap().len(), logged, "what happens is no warning");
}

#[test]
fn what_changes_is_reloaded_and_nothing_else() {
    let server = Server::start_with("watch-files", &["--watch"]);
    let socket = server.socket();
    let eventually = |zone: u8, version: (u16, u8)| {
        let deadline = Instant::now() + WITHIN;
        while server.versions(&socket, zone) != version {
            assert!(Instant::now() < deadline, "{}", server.log.lock().unwrap());
            thread::sleep(Duration::from_millis(20));
        }
    };
    // Another file in its place, as editors do it; with an included one.
    server.write("records", "mx MX 2 host\nhost A 192.0.2.2\n");
    server.write("new", "$TTL 60\n@ SOA ns.x. host.x. 2 7200 3600 1209600 300\n@ NS ns.x.\n$INCLUDE records\n");
    fs::rename(server.folder.join("new"), server.folder.join("a.zone")).unwrap();
    eventually(b'a', (2, 2));
    assert!(!server.log.lock().unwrap().contains("zone b."), "nobody has touched it");
    server.write("records", "mx MX 3 host\nhost A 192.0.2.3\n");
    eventually(b'a', (3, 3));
    // Half written.
    server.write("b.zone", "$TTL 60\n@ SOA ns.x. host.x. 2 7200");
    server.wait_for("zone b.: not loaded, serial 1 stays in service");
    server.write("b.zone", &zone(2));
    eventually(b'b', (2, 2));
    // Two at once.
    server.write("a.zone", &zone(7));
    server.write("b.zone", &zone(7));
    eventually(b'a', (7, 7));
    eventually(b'b', (7, 7));
    // The configuration: what is commented out is no longer served.
    server.write("conf.toml", &config(server.port, "").replace("b = ", "# b = "));
    server.wait_for("zone b.: serial 7, no longer served");
}
