//! What a service manager hears from the `responder` binary (sd_notify(3)): a socket stands in for it.

use std::{
    fs,
    net::UdpSocket,
    os::unix::net::UnixDatagram,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

const WITHIN: Duration = Duration::from_secs(20);

#[test]
fn a_service_manager_hears_ready_alive_reloading_and_stopping() {
    let folder = std::env::temp_dir().join(format!("responder-supervisor-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let manager = UnixDatagram::bind(folder.join("notify")).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    fs::write(folder.join("a.zone"), "$TTL 60\n@ SOA ns.x. host.x. 1 7200 3600 1209600 300\n@ NS ns.x.\n").unwrap();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = Command::new(env!("CARGO_BIN_EXE_responder"))
        .args(["serve", "--io", "socket", "--listen", &format!("127.0.0.1:{port}")])
        .arg("--control")
        .arg(folder.join("socket"))
        .arg("--zone")
        .arg(format!("a={}", folder.join("a.zone").display()))
        .env("NOTIFY_SOCKET", folder.join("notify"))
        .env("WATCHDOG_USEC", "400000")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hears = |expected: &str| {
        let deadline = Instant::now() + WITHIN;
        let mut heard = Vec::new();
        while Instant::now() < deadline {
            let mut message = [0; 512];
            let Ok(length) = manager.recv(&mut message) else { continue };
            let text = String::from_utf8(message[..length].to_vec()).unwrap();
            if text.starts_with(expected) {
                return text;
            }
            heard.push(text);
        }
        panic!("no {expected} in {heard:?}");
    };
    let signal = |name: &str| {
        assert!(Command::new("kill").args([name, &server.id().to_string()]).status().unwrap().success());
    };
    assert_eq!(hears("READY=1").trim_end(), "READY=1\nSTATUS=serving 1 zones");
    let since = Instant::now();
    for _ in 0..3 {
        hears("WATCHDOG=1");
    }
    // A tick is 250 ms; twice as fast as that would be too often.
    assert!(since.elapsed() > Duration::from_millis(250), "{:?}", since.elapsed());
    signal("-HUP");
    let reloading = hears("RELOADING=1");
    assert!(reloading.contains("\nMONOTONIC_USEC="), "{reloading}");
    hears("READY=1");
    signal("-TERM");
    hears("STOPPING=1");
    assert!(server.wait().unwrap().success());
    fs::remove_dir_all(&folder).unwrap();
}
