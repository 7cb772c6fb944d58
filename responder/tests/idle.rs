//! Ten thousand clients that connect and say nothing: the `responder` binary on loopback, in a process of its own, so that its memory can be measured.

use std::{
    fs,
    io::{Read, Write},
    net::{SocketAddr, TcpStream, UdpSocket},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use responder::kernel::tcp::Limits;

const WITHIN: Duration = Duration::from_secs(20);
const CLIENTS: u16 = 10_000;
const PLACES: usize = 2000;

/// Killed when dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    fn resident_kib(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }
}

/// Sends a query, which is echoed, behind its length.
fn asks(stream: &mut TcpStream) {
    stream.set_read_timeout(Some(WITHIN)).unwrap();
    stream.write_all(b"\0\x05query").unwrap();
    let mut reply = [0; 7];
    stream.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"\0\x05query");
}

/// Each has its place until another has more use for it: memory is bounded by places, not by clients.
#[test]
fn ten_thousand_idle_connections_take_little_and_others_are_served() {
    Limits { connections: usize::from(CLIENTS), ..Limits::default() }.allow().unwrap();
    let folder = std::env::temp_dir().join(format!("responder-idle-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let port = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = format!(
        "io = \"socket\"\nservice = \"echo\"\nlisten = [\"127.0.0.1:{port}\"]\ncontrol = \"socket\"\n[tcp]\nconnections = {PLACES}\n"
    );
    fs::write(folder.join("conf.toml"), config).unwrap();
    let mut serve = Command::new(env!("CARGO_BIN_EXE_responder"));
    serve.args(["serve", "--config"]).arg(folder.join("conf.toml")).stderr(Stdio::null());
    let server = Server(serve.spawn().unwrap());
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let deadline = Instant::now() + WITHIN;
    let mut first = loop {
        match TcpStream::connect(address) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    };
    asks(&mut first);
    let before = server.resident_kib();
    let clients: Vec<TcpStream> = (0..CLIENTS)
        .map(|number| {
            let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
            // One client has few connections.
            let [high, low] = (number / 8).to_be_bytes();
            socket.bind(&SocketAddr::from(([127, 1, high, low], 0)).into()).unwrap();
            socket.connect(&address.into()).unwrap();
            socket.into()
        })
        .collect();
    asks(&mut TcpStream::connect(address).unwrap());
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(WITHIN)).unwrap();
    udp.send_to(b"and you?", address).unwrap();
    assert_eq!(udp.recv(&mut [0; 16]).unwrap(), 8);
    let taken = server.resident_kib().saturating_sub(before);
    assert!(taken < 16_384, "{taken} KiB for {PLACES} places");
    drop(clients);
    fs::remove_dir_all(&folder).unwrap();
}
