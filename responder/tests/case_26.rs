//! CASES 26: what works on sockets works on the bypass. The same rules and clients on all three paths, one after the other, with one expectation.
//!
//! The bypass is its handler of frames, which is all of it but the NIC; the sockets are real, on loopback.

use std::{
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::mpsc,
    thread,
    time::Duration,
};

use etherparse::{PacketBuilder, SlicedPacket, TransportSlice};
use responder::{
    answer::policy::{AnyPolicy, Cookies, Identifier, Order, Policy},
    cli::Sockets,
    counters::Counters,
    guard::{
        AddressList,
        acl::{Acl, Action},
        cookie::Secrets,
        rrl::Settings,
    },
    kernel::{KernelPath, Options, tcp::Limits},
    latest::Latest,
    service::{Rules, Service, State},
    xdp::worker::Handler,
    zone::{Published, Zones},
};

const ZONE: &[u8] = b"$TTL 60\n@ SOA ns1 host 1 2 3 4 5\n@ NS ns1\nns1 A 192.0.2.1\nwww A 192.0.2.80\nwww A 192.0.2.81\nwww A 192.0.2.82\n";
const MTU: u32 = 1500;
const ALLOWED: Ipv4Addr = Ipv4Addr::new(127, 1, 0, 1);
const REFUSED: Ipv4Addr = Ipv4Addr::new(127, 2, 0, 1);
const DROPPED: Ipv4Addr = Ipv4Addr::new(127, 3, 0, 1);
/// Long enough for a reply over loopback, short enough to wait for what does not come.
const REPLY_WITHIN: Duration = Duration::from_millis(500);

/// One way into the server: a query from an address, and the reply if there is one.
type Way<'a> = &'a mut dyn FnMut(Ipv4Addr, &[u8]) -> Option<Vec<u8>>;

fn ask_bypass(handler: &mut Handler, client: Ipv4Addr, query: &[u8]) -> Option<Vec<u8>> {
    let mut frame = Vec::new();
    let packet = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4(client.octets(), [127, 0, 0, 1], 64).udp(4242, 53);
    packet.write(&mut frame, query).unwrap();
    let length = frame.len();
    frame.resize(2048, 0);
    handler.refresh();
    let length = handler.reply(&mut frame, length, &Counters::default()).ok()?;
    let Some(TransportSlice::Udp(udp)) = SlicedPacket::from_ethernet(&frame[..length]).unwrap().transport else {
        panic!("the reply is UDP");
    };
    Some(udp.payload().to_vec())
}

fn ask_udp(server: SocketAddr, client: Ipv4Addr, query: &[u8]) -> Option<Vec<u8>> {
    let socket = UdpSocket::bind((client, 0)).unwrap();
    socket.set_read_timeout(Some(REPLY_WITHIN)).unwrap();
    socket.send_to(query, server).unwrap();
    let mut reply = vec![0; 65_535];
    let (length, _) = socket.recv_from(&mut reply).ok()?;
    Some(reply[..length].to_vec())
}

fn ask_tcp(server: SocketAddr, client: Ipv4Addr, query: &[u8]) -> Option<Vec<u8>> {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((client, 0)).into()).unwrap();
    socket.connect(&server.into()).unwrap();
    let mut stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(REPLY_WITHIN)).unwrap();
    let length = u16::try_from(query.len()).unwrap().to_be_bytes();
    stream.write_all(&[&length, query].concat()).ok()?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).ok()?;
    let mut reply = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut reply).ok()?;
    Some(reply)
}

/// A query with an OPT record that has these options.
fn query(name: &str, qtype: u8, class: u8, options: &[u8]) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend_from_slice(label.as_bytes());
    }
    let length = u8::try_from(options.len()).unwrap();
    query.extend_from_slice(&[0, 0, qtype, 0, class, 0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, length]);
    query.extend_from_slice(options);
    query
}

/// RCODE, TC and the number of answers.
fn shape(reply: Option<Vec<u8>>) -> Option<(u8, bool, u8)> {
    reply.map(|reply| (reply[3] & 15, reply[2] & 2 != 0, reply[7]))
}

fn acl() -> Acl {
    let entries = [("127.2.0.0/16", Action::Refuse), ("127.3.0.0/16", Action::Drop), ("127.3.9.0/24", Action::Allow)];
    Acl::new(entries.map(|(prefix, action)| (prefix.parse().unwrap(), action)))
}

fn act_as_expected(ask: Way<'_>, rules: &Latest<Rules>, is_tcp: bool) {
    let www = query("www.example.com", 1, 1, b"");
    let whole = Some((0, false, 3));
    rules.set(Rules { acl: acl(), ..Rules::default() });
    assert_eq!(shape(ask(ALLOWED, &www)), whole);
    assert_eq!(shape(ask(Ipv4Addr::new(127, 3, 9, 9), &www)), whole, "the longer prefix");
    let refused = ask(REFUSED, &www).expect("REFUSED is said");
    assert_eq!((refused[3] & 15, refused.last_chunk::<6>()), (5, Some(&[0, 15, 0, 2, 0, 18])), "with the reason");
    assert_eq!(ask(DROPPED, &www), None);
    assert_eq!(ask(DROPPED, b"no message"), None);

    let identifier = |text: &str| Some(Identifier::new(text.as_bytes()).unwrap());
    let policy = Policy {
        nsid: identifier("here"),
        identity: identifier("me"),
        version: identifier("1"),
        any: AnyPolicy::Hinfo,
        ..Policy::default()
    };
    rules.set(Rules { policy, ..Rules::default() });
    let nsid = ask(ALLOWED, &query("www.example.com", 1, 1, &[0, 3, 0, 0])).unwrap();
    assert!(nsid.ends_with(b"\0\x03\0\x04here"));
    assert_eq!(shape(ask(ALLOWED, &query("id.server", 16, 3, b""))), Some((0, false, 1)));
    assert_eq!(shape(ask(ALLOWED, &query("version.bind", 16, 3, b""))), Some((0, false, 1)));
    assert_eq!(shape(ask(ALLOWED, &query("www.example.com", 255, 1, b""))), Some((0, false, 1)));

    let policy = Policy { rrset_order: Order::Rotate, ..Policy::default() };
    rules.set(Rules { policy, ..Rules::default() });
    let orders: std::collections::BTreeSet<_> = (0..20).map(|_| ask(ALLOWED, &www)).collect();
    assert_eq!(orders.len(), 3);

    let policy = Policy { cookies: Cookies::Required(Secrets::random()), ..Policy::default() };
    let rrl = Some(Settings { rate: 1, slip: 0, accounts: 64, ..Settings::default() });
    rules.set(Rules { policy, rrl, ..Rules::default() });
    let cookie = |content: &[u8]| {
        let length = u8::try_from(content.len()).unwrap();
        query("www.example.com", 1, 1, &[&[0, 10, 0, length], content].concat())
    };
    let first = ask(ALLOWED, &cookie(&[9; 8])).expect("a cookie");
    assert_eq!(first[3] & 15, if is_tcp { 0 } else { 23 & 15 }, "BADCOOKIE over UDP");
    let server_cookie = *first.last_chunk::<24>().unwrap();
    for _ in 0..5 {
        assert_eq!(shape(ask(ALLOWED, &cookie(&server_cookie))), whole, "a valid cookie has no limit");
    }
    let replies: Vec<_> = (0..5).map(|_| shape(ask(ALLOWED, &www))).collect();
    let answered = replies.iter().flatten().count();
    // A second may begin between two queries.
    assert!(if is_tcp { answered == 5 } else { (1..5).contains(&answered) }, "{replies:?}");

    let rrl = Some(Settings { rate: 1, slip: 1, exempt: vec!["127.1.7.0/24".parse().unwrap()], ..Settings::default() });
    rules.set(Rules { rrl, ..Rules::default() });
    let replies: Vec<_> = (0..5).map(|_| shape(ask(ALLOWED, &www)).unwrap()).collect();
    let cut_short = replies.iter().filter(|reply| **reply == (0, true, 0)).count();
    assert!(if is_tcp { cut_short == 0 } else { (1..5).contains(&cut_short) }, "{replies:?}");
    for _ in 0..5 {
        assert_eq!(shape(ask(Ipv4Addr::new(127, 1, 7, 7), &www)), whole, "an exempt network");
    }
}

#[test]
fn case_26_rules_act_on_the_bypass_on_udp_sockets_and_on_tcp() {
    let service = Service::Dns(Published::new(Zones::from_text("example.com", ZONE).unwrap()).view());
    let (rules, own) = (Latest::<Rules>::default(), AddressList::default());

    let state = State::new(&rules, 1, MTU);
    let mut handler = Handler::new(service.clone(), state, own.view(), true, MTU);
    act_as_expected(&mut |client, query| ask_bypass(&mut handler, client, query), &rules, false);

    let (ready, is_ready) = mpsc::channel();
    let (end, mut is_end) = tokio::sync::mpsc::unbounded_channel::<()>();
    let server = thread::spawn({
        let rules = rules.clone();
        move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            tokio::task::LocalSet::new().block_on(&runtime, async move {
                let cpu = core_affinity::get_core_ids().unwrap()[0].id;
                let options = Options {
                    cpus: vec![cpu],
                    sockets: Sockets::PerCpu,
                    mtu: MTU,
                    tcp: Limits::default(),
                    takes_over: false,
                };
                let mut path = KernelPath::new(service, rules, own, options);
                let address = free();
                path.add(address).unwrap();
                ready.send(address).unwrap();
                is_end.recv().await;
                let status = path.status();
                assert!(status.udp.dropped["acl_dropped"] >= 2 && status.tcp.dropped["acl_dropped"] >= 2);
                assert!(status.udp.dropped["limited_dropped"] >= 1 && status.udp.limited_slipped >= 1);
                assert_eq!((status.tcp.dropped["limited_dropped"], status.tcp.limited_slipped), (0, 0));
            });
        }
    });
    let address = is_ready.recv().unwrap();
    act_as_expected(&mut |client, query| ask_udp(address, client, query), &rules, false);
    act_as_expected(&mut |client, query| ask_tcp(address, client, query), &rules, true);
    end.send(()).unwrap();
    server.join().unwrap();
}

fn free() -> SocketAddr {
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    loop {
        let address = TcpListener::bind((ip, 0)).unwrap().local_addr().unwrap();
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}
