//! The kernel path over loopback, with the echo service: what comes back is what was sent, so framing and addressing show.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::mpsc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use responder::{
    cli::Sockets,
    control::status,
    guard::AddressList,
    kernel::{KernelPath, Options, tcp::Limits},
    latest::Latest,
    service::Service,
};

const WITHIN: Duration = Duration::from_secs(5);

type Order = Box<dyn FnOnce(&mut KernelPath) + Send>;

/// A kernel path on a thread with a runtime of its own, which does what it is told until this is dropped.
struct Running {
    orders: Option<tokio::sync::mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    fn start(service: Service, own: &AddressList) -> Self {
        Self::start_with(options(), service, own)
    }

    fn start_with(options: Options, service: Service, own: &AddressList) -> Self {
        let (orders, mut inbox) = tokio::sync::mpsc::unbounded_channel::<Order>();
        let own = own.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let mut path = KernelPath::new(service, Latest::default(), own, options);
                while let Some(order) = inbox.recv().await {
                    order(&mut path);
                }
            });
        });
        Self { orders: Some(orders), thread: Some(thread) }
    }

    fn with<T: Send + 'static>(&self, order: impl FnOnce(&mut KernelPath) -> T + Send + 'static) -> T {
        let (done, result) = mpsc::channel();
        let order: Order = Box::new(move |path| done.send(order(path)).unwrap());
        assert!(self.orders.as_ref().unwrap().send(order).is_ok(), "it has ended");
        result.recv_timeout(WITHIN).unwrap()
    }

    fn add(&self, address: SocketAddr) -> Result<(), String> {
        self.with(move |path| path.add(address).map_err(|error| format!("{error:#}")))
    }

    fn status(&self) -> status::KernelPath {
        self.with(|path| path.status())
    }

    /// Counters are published after the replies of a batch have left: a client can be a moment early.
    fn udp_answers(&self, expected: u64) {
        let deadline = Instant::now() + WITHIN;
        while self.status().udp.answered != expected {
            assert!(Instant::now() < deadline, "{:?}, expected {expected}", self.status().udp);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.orders.take());
        let ended = self.thread.take().unwrap().join();
        assert!(std::thread::panicking() || ended.is_ok());
    }
}

fn options() -> Options {
    let cpus = core_affinity::get_core_ids().unwrap().iter().map(|core| core.id).collect();
    Options { cpus, sockets: Sockets::PerCpu, mtu: 65_536, tcp: Limits::default(), takes_over: false }
}

/// An address whose port is free for UDP and TCP.
fn free(ip: &str) -> SocketAddr {
    let ip: IpAddr = ip.parse().unwrap();
    loop {
        let tcp = TcpListener::bind((ip, 0)).unwrap();
        let address = tcp.local_addr().unwrap();
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

/// An echo service on a free port of `ip`.
fn echo(ip: &str) -> (Running, SocketAddr) {
    let running = Running::start(Service::Echo, &AddressList::default());
    let address = free(ip);
    running.add(address).unwrap();
    (running, address)
}

fn udp_client(server: SocketAddr) -> UdpSocket {
    let any = if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let client = UdpSocket::bind(any).unwrap();
    client.set_read_timeout(Some(WITHIN)).unwrap();
    client.connect(server).unwrap();
    client
}

fn tcp_client(server: SocketAddr) -> TcpStream {
    let client = TcpStream::connect_timeout(&server, WITHIN).unwrap();
    client.set_read_timeout(Some(WITHIN)).unwrap();
    client.set_write_timeout(Some(WITHIN)).unwrap();
    client
}

fn framed(message: &[u8]) -> Vec<u8> {
    [&u16::try_from(message.len()).unwrap().to_be_bytes(), message].concat()
}

/// Reads until the server closes. A connection that is reset has been closed too.
fn until_closed(client: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match client.read_to_end(&mut bytes) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => panic!("{error}"),
        _ => bytes,
    }
}

fn asks_udp(client: &UdpSocket, message: &[u8]) {
    client.send(message).unwrap();
    let mut reply = vec![0; 65_536];
    let length = client.recv(&mut reply).unwrap();
    assert!(reply[..length] == *message, "{length} bytes for {}", message.len());
}

fn is_not_answered(client: &UdpSocket, message: &[u8]) {
    client.send(message).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    assert!(client.recv(&mut [0; 16]).is_err());
}

#[test]
fn udp_echoes_every_size() {
    for ip in ["127.0.0.1", "::1"] {
        let (running, address) = echo(ip);
        let client = udp_client(address);
        for length in [0, 1, 12, 512, 1232, 4096, 65_507] {
            let message: Vec<u8> = (0..=255).cycle().take(length).collect();
            asks_udp(&client, &message);
        }
        running.udp_answers(7);
    }
}

/// More queries than fit into one batch, from many clients at once: each gets its own back.
#[test]
fn udp_batches_do_not_mix_clients() {
    let (running, address) = echo("127.0.0.1");
    let clients: Vec<UdpSocket> = (0..50).map(|_| udp_client(address)).collect();
    for (number, client) in (0u8..).zip(&clients) {
        for sequence in 0..20 {
            client.send(&[number, sequence]).unwrap();
        }
    }
    for (number, client) in (0u8..).zip(&clients) {
        // This thread may have moved to another CPU in between, so that they are from two sockets, in any order.
        let mut sequences: Vec<u8> = (0..20)
            .map(|_| {
                let mut reply = [0; 16];
                assert_eq!(client.recv(&mut reply).unwrap(), 2);
                assert_eq!(reply[0], number);
                reply[1]
            })
            .collect();
        sequences.sort_unstable();
        assert_eq!(sequences, (0..20).collect::<Vec<u8>>());
    }
    running.udp_answers(1000);
}

/// A reply comes from the address that was asked, even where the socket is bound to all: a connected client takes no other.
#[test]
fn udp_on_all_addresses_replies_from_the_one_asked() {
    for (any, asked) in [("0.0.0.0", ["127.0.0.1", "127.1.2.3"]), ("::", ["::1", "::1"])] {
        let (_running, address) = echo(any);
        for ip in asked {
            asks_udp(&udp_client(SocketAddr::new(ip.parse().unwrap(), address.port())), b"where from");
        }
    }
}

/// CASES 22: two servers answering each other. A source that could be a socket of ours is not answered, a local client is.
#[test]
fn case_22_only_local_clients_are_answered_at_own_addresses() {
    let own = AddressList::default();
    let running = Running::start(Service::Echo, &own);
    let address = free("127.0.0.1");
    running.add(address).unwrap();
    own.set(["127.0.0.1", "127.0.0.9"].map(|ip| ip.parse().unwrap()));
    asks_udp(&udp_client(address), b"a local client");
    let looping = UdpSocket::bind(("127.0.0.9", address.port())).unwrap();
    looping.connect(address).unwrap();
    is_not_answered(&looping, b"as if from us");
    assert_eq!(running.status().udp.dropped["own_source"], 1);
}

#[test]
fn the_sink_counts_and_is_silent() {
    let running = Running::start(Service::Sink, &AddressList::default());
    let address = free("127.0.0.1");
    running.add(address).unwrap();
    is_not_answered(&udp_client(address), b"gone");
    assert_eq!(running.status().udp.dropped["sunk"], 1);
}

/// CASES 10: addresses may come and go, and need not be configured anywhere.
#[test]
fn case_10_addresses_come_and_go() {
    let (running, first) = echo("127.0.0.1");
    let second = free("127.0.0.2");
    let elsewhere: SocketAddr = "192.0.2.77:5399".parse().unwrap();
    running.add(second).unwrap();
    running.add(second).expect("twice is once");
    running.add(elsewhere).expect("an address that is not configured");
    asks_udp(&udp_client(second), b"both");

    let start = Instant::now();
    running.with(move |path| path.remove(second));
    assert!(start.elapsed() < Duration::from_secs(1), "it took {:?}", start.elapsed());
    assert!(UdpSocket::bind(second).is_ok(), "the port is free again");
    asks_udp(&udp_client(first), b"one");
    // What was counted at the second stays counted.
    running.udp_answers(2);

    running.add(second).unwrap();
    asks_udp(&udp_client(second), b"again");
    assert_eq!(running.with(|path| path.addresses().count()), 3);
}

#[test]
fn tcp_answers_pipelined_queries_in_order() {
    for ip in ["127.0.0.1", "::1"] {
        let (running, address) = echo(ip);
        let messages: Vec<Vec<u8>> = (1..200u8).map(|n| vec![n; usize::from(n) * 7]).chain([vec![9; 65_535]]).collect();
        let stream: Vec<u8> = messages.iter().flat_map(|message| framed(message)).collect();
        let mut client = tcp_client(address);
        let mut writer = client.try_clone().unwrap();
        let sent = stream.clone();
        let writes = std::thread::spawn(move || {
            // In pieces that end anywhere.
            for piece in sent.chunks(1001) {
                writer.write_all(piece).unwrap();
            }
            writer.shutdown(Shutdown::Write).unwrap();
        });
        let got = until_closed(&mut client);
        writes.join().unwrap();
        assert!(got == stream, "{} bytes for {}", got.len(), stream.len());
        let tcp = running.status().tcp;
        assert_eq!((tcp.connections, tcp.received, tcp.answered), (1, 200, 200));
    }
}

#[test]
fn tcp_ends_quietly() {
    let (running, address) = echo("127.0.0.1");
    let whole = framed(b"whole");
    // What is sent before the client stops sending, and what comes back before the server closes.
    let cases: [(&[u8], &[u8]); 6] = [
        (b"", b""),
        (b"\0", b""),
        (b"\0\x10half", b""),
        (&whole, &whole),
        (&[&whole[..], b"\0\x10half"].concat(), &whole),
        (&[&whole[..], b"\0\0", &whole].concat(), &whole),
    ];
    for (sent, expected) in cases {
        let mut client = tcp_client(address);
        client.write_all(sent).unwrap();
        client.shutdown(Shutdown::Write).unwrap();
        assert_eq!(until_closed(&mut client), expected, "{sent:?}");
    }
    let mut client = tcp_client(address);
    client.write_all(b"\0\0").unwrap();
    assert_eq!(until_closed(&mut client), b"", "a message without bytes, from a client that goes on");
    assert_eq!(running.status().tcp.dropped["short_message"], 2);
}

/// A client that does not read costs a bounded amount of memory, and no other client notices.
#[test]
fn tcp_a_slow_reader_harms_nobody() {
    let (_running, address) = echo("127.0.0.1");
    let mut slow = tcp_client(address);
    slow.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let message = framed(&[7; 65_535]);
    let mut taken = 0;
    while slow.write_all(&message).is_ok() {
        taken += 1;
        assert!(taken < 1000, "64 MiB taken and none of it read back");
    }
    let mut other = tcp_client(address);
    other.write_all(&framed(b"still there?")).unwrap();
    other.shutdown(Shutdown::Write).unwrap();
    assert_eq!(until_closed(&mut other), framed(b"still there?"));
}

#[test]
fn tcp_one_client_gets_its_share_only() {
    let (running, address) = echo("127.0.0.1");
    let mut clients: Vec<TcpStream> = (0..100).map(|_| tcp_client(address)).collect();
    assert_eq!(until_closed(clients.last_mut().unwrap()), b"");
    assert_eq!(running.status().tcp.connections, 32);
    clients[0].write_all(&framed(b"early")).unwrap();
    let mut reply = [0; 7];
    clients[0].read_exact(&mut reply).unwrap();
    assert_eq!(reply, framed(b"early")[..]);
}

#[test]
fn a_port_in_use_is_named_with_the_way_to_find_out_by_whom() {
    let running = Running::start(Service::Echo, &AddressList::default());
    let address = free("127.0.0.1");
    let port = address.port();

    let holder = TcpListener::bind(address).unwrap();
    let error = running.add(address).unwrap_err();
    assert!(error.starts_with(&format!("cannot listen on TCP {address}: ")), "{error}");
    assert!(
        error.ends_with(&format!("another program has this port: `ss -lnpt 'sport = :{port}'` names it")),
        "{error}"
    );
    drop(holder);

    // A program that shares its port would get a part of our queries, and we of its.
    let holder = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).unwrap();
    holder.set_reuse_port(true).unwrap();
    holder.bind(&address.into()).unwrap();
    let error = running.add(address).unwrap_err();
    assert!(error.starts_with(&format!("cannot listen on UDP {address}: ")), "{error}");
    assert!(
        error.ends_with(&format!("another program has this port: `ss -lnpu 'sport = :{port}'` names it")),
        "{error}"
    );
    drop(holder);

    running.add(address).expect("nothing was left half-open");
    asks_udp(&udp_client(address), b"now");
}

#[test]
fn a_cpu_that_does_not_exist_is_named() {
    let running =
        Running::start_with(Options { cpus: vec![0, 1023], ..options() }, Service::Sink, &AddressList::default());
    let error = running.add(free("127.0.0.1")).unwrap_err();
    assert_eq!(error, "CPU 1023 does not exist or is not allowed here");
}

#[test]
fn sockets_can_be_shared_by_all_threads() {
    let shared = Options { sockets: Sockets::Shared, ..options() };
    let cpus = shared.cpus.len();
    let running = Running::start_with(shared, Service::Echo, &AddressList::default());
    let address = free("127.0.0.1");
    running.add(address).unwrap();
    for number in 0..100u8 {
        asks_udp(&udp_client(address), &[number; 20]);
    }
    running.udp_answers(100);
    assert_eq!(running.status().udp_workers.len(), cpus);
    running.with(move |path| path.remove(address));
    UdpSocket::bind(address).expect("the port is free again");
}

/// The kernel gives each new query to the one or the other while both are there; what the first has got it answers before it goes.
#[test]
fn a_server_takes_over_and_no_query_is_lost() {
    let address = free("127.0.0.1");
    for wildcard in [false, true] {
        let listen = if wildcard { SocketAddr::from(([0, 0, 0, 0], address.port())) } else { address };
        let first = Running::start(Service::Echo, &AddressList::default());
        first.add(listen).unwrap();
        assert!(first.add(listen).is_ok());
        let refused = Running::start(Service::Echo, &AddressList::default()).add(listen).unwrap_err();
        assert!(refused.contains("another program has this port"), "{refused}");
        let clients: Vec<UdpSocket> = (0..16).map(|_| udp_client(address)).collect();
        for round in 0..10 {
            let second =
                Running::start_with(Options { takes_over: true, ..options() }, Service::Echo, &AddressList::default());
            if round > 0 {
                second.add(listen).unwrap();
            }
            // They wait in the sockets of whoever got them while the others end.
            for client in &clients {
                client.send(b"query").unwrap();
            }
            if round > 0 {
                second.with(move |path| path.remove(listen));
            }
            for client in &clients {
                let mut reply = [0; 16];
                assert_eq!(client.recv(&mut reply).unwrap(), 5, "round {round}, wildcard {wildcard}");
            }
            let mut stream = tcp_client(address);
            stream.write_all(&framed(b"query")).unwrap();
            let mut reply = [0; 7];
            stream.read_exact(&mut reply).unwrap();
        }
    }
}

/// Which socket gets a query is decided by the CPU that received it, as on the bypass by the queue; also when another server has taken over. On loopback
/// the CPU that sends receives.
#[test]
fn each_cpu_has_its_socket_before_and_after_another_server_takes_over() {
    const QUERIES: u64 = 50;
    let address = free("127.0.0.1");
    let cpus = options().cpus;
    let is_diagonal = |running: &Running| {
        for cpu in &cpus {
            let before = running.status();
            let cpu = *cpu;
            std::thread::spawn(move || {
                assert!(core_affinity::set_for_current(core_affinity::CoreId { id: cpu }));
                (0..QUERIES).for_each(|_| asks_udp(&udp_client(address), b"where am I?"));
            })
            .join()
            .unwrap();
            running.udp_answers(before.udp.answered + QUERIES);
            for (now, before) in running.status().udp_workers.iter().zip(&before.udp_workers) {
                let expected = if now.cpu == cpu { QUERIES } else { 0 };
                assert_eq!(now.counts.received - before.counts.received, expected, "CPU {cpu}, socket of {}", now.cpu);
            }
        }
    };
    let mut first = Running::start(Service::Echo, &AddressList::default());
    first.add(address).unwrap();
    is_diagonal(&first);
    for _ in 0..3 {
        let second =
            Running::start_with(Options { takes_over: true, ..options() }, Service::Echo, &AddressList::default());
        second.add(address).unwrap();
        first.with(move |path| path.remove(address));
        is_diagonal(&second);
        first = second;
    }
}
