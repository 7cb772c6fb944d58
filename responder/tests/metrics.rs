//! What a running server tells of itself: metrics over HTTP and `responder top --once`, from the `responder` binary with kernel sockets on loopback.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

const WITHIN: Duration = Duration::from_secs(20);
const ZONE: &str = "$TTL 60\n@ SOA ns host 7 7200 3600 1209600 300\n@ NS ns\nns A 192.0.2.1\nwww A 192.0.2.80\n";

/// A server in a folder of its own; both go with this.
struct Server {
    folder: PathBuf,
    dns: SocketAddr,
    metrics: SocketAddr,
    child: Child,
}

/// An address that was free a moment ago.
fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

fn folder(test: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("responder-metrics-{}-{test}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("zone"), ZONE).unwrap();
    folder
}

fn serve(folder: &std::path::Path, dns: SocketAddr, metrics: SocketAddr) -> Command {
    let mut serve = Command::new(env!("CARGO_BIN_EXE_responder"));
    let zone = format!("x={}", folder.join("zone").display());
    serve.args(["serve", "--io", "socket", "--listen", &dns.to_string(), "--zone", &zone]);
    serve.args(["--metrics", &metrics.to_string(), "--control"]).arg(folder.join("socket")).stderr(Stdio::piped());
    serve
}

impl Server {
    fn start(test: &str) -> Self {
        let (folder, dns, metrics) = (folder(test), free(), free());
        let mut child = serve(&folder, dns, metrics).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let server = Self { folder, dns, metrics, child };
        assert!(log.any(|line| line.starts_with("ready:")), "it has ended");
        server
    }

    fn ask_udp(&self, queries: &[Vec<u8>]) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(self.dns).unwrap();
        socket.set_read_timeout(Some(WITHIN)).unwrap();
        for query in queries {
            socket.send(query).unwrap();
            socket.recv(&mut [0; 512]).unwrap();
        }
    }

    fn ask_tcp(&self, query: &[u8]) {
        let mut stream = TcpStream::connect(self.dns).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        stream.write_all(&[&u16::try_from(query.len()).unwrap().to_be_bytes(), query].concat()).unwrap();
        stream.read_exact(&mut [0; 14]).unwrap();
    }

    fn scrape(&self) -> String {
        let mut stream = TcpStream::connect(self.metrics).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    }

    fn top(&self, more: &[&str]) -> Output {
        let mut top = Command::new(env!("CARGO_BIN_EXE_responder"));
        top.args(["top", "--control"]).arg(self.folder.join("socket")).args(more).output().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ = self.child.wait();
        let _gone_already = fs::remove_dir_all(&self.folder);
    }
}

fn query(name: &[u8], qtype: u8) -> Vec<u8> {
    [b"\x12\x34\0\0\0\x01\0\0\0\0\0\0", name, &[0, qtype, 0, 1]].concat()
}

/// The sum of all samples whose line begins and has in it what is given.
fn sum(scrape: &str, name: &str, labels: &[&str]) -> u64 {
    let is_wanted =
        |line: &&str| line.starts_with(&format!("{name}{{")) && labels.iter().all(|label| line.contains(label));
    scrape.lines().filter(is_wanted).map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
}

#[test]
fn a_scrape_counts_what_was_asked() {
    let server = Server::start("scrape");
    let (www, none, other) = (b"\x03www\x01x\0", b"\x04none\x01x\0", b"\x01y\0");
    server.ask_udp(&[query(www, 1), query(www, 1), query(none, 28), query(other, 15)]);
    server.ask_tcp(&query(www, 1));
    // Counters of a batch are written after its replies have left.
    let deadline = Instant::now() + WITHIN;
    let scrape = loop {
        let scrape = server.scrape();
        if sum(&scrape, "responder_replies_sent_total", &[]) == 5 {
            break scrape;
        }
        assert!(Instant::now() < deadline, "{scrape}");
        thread::sleep(Duration::from_millis(10));
    };
    assert!(
        scrape.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0"),
        "{scrape}"
    );
    assert!(scrape.ends_with("\n# EOF\n"), "{scrape}");
    let cases: [(&str, &[&str], u64); 8] = [
        ("responder_queries_received_total", &["transport=\"udp\""], 4),
        ("responder_queries_received_total", &["transport=\"tcp\""], 1),
        ("responder_answers_total", &["transport=\"udp\"", "family=\"ipv4\"", "rcode=\"NOERROR\""], 2),
        ("responder_answers_total", &["transport=\"tcp\"", "family=\"ipv4\"", "rcode=\"NOERROR\""], 1),
        ("responder_answers_total", &["rcode=\"NXDOMAIN\""], 1),
        ("responder_answers_total", &["rcode=\"REFUSED\""], 1),
        ("responder_answers_by_qtype_total", &["qtype=\"A\""], 3),
        ("responder_zone_serial", &["zone=\"x.\""], 7),
    ];
    for (name, labels, expected) in cases {
        assert_eq!(sum(&scrape, name, labels), expected, "{name} {labels:?} in {scrape}");
    }
}

#[test]
fn top_prints_a_frame_for_scripts() {
    let server = Server::start("top");
    let frame = server.top(&["--once", "--interval-ms", "100"]);
    let text = String::from_utf8(frame.stdout).unwrap();
    assert!(frame.status.success() && text.contains("WORKERS") && text.contains("\ntcp "), "{text}");
    assert!(text.contains(&format!("udp {}", server.dns)) && !text.contains("q quit"), "{text}");

    let rates = server.top(&["--once", "--json", "--interval-ms", "100"]);
    let rates: serde_json::Value = serde_json::from_slice(&rates.stdout).unwrap();
    assert_eq!((&rates["pid"], &rates["workers"][0]["received_per_s"]), (&server.child.id().into(), &0.0.into()));

    let no_terminal = server.top(&[]);
    assert_eq!(no_terminal.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&no_terminal.stderr).contains("--once"), "{no_terminal:?}");
    assert_eq!(server.top(&["--json"]).status.code(), Some(2), "--json is for --once");
}

/// Named at the start, before anything listens.
#[test]
fn a_port_that_is_taken_keeps_the_server_from_starting() {
    let folder = folder("taken");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let output = serve(&folder, free(), taken.local_addr().unwrap()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(error.contains("cannot serve metrics at 127.0.0.1:") && error.contains("--metrics"), "{error}");
    assert!(!error.contains("ready:") && !folder.join("socket").exists(), "{error}");
    fs::remove_dir_all(&folder).unwrap();
}
