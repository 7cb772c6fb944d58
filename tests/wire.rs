//! What a running server does with single frames: which it answers, on which path, and what its replies look like.
//!
//! Needs root and RESPONDER.

use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream},
    time::Duration,
};

use etherparse::{NetSlice, SlicedPacket};
use nix::sys::signal::Signal;
use tests::{
    query::{Path, REPLY_WITHIN, SILENCE, ask, checksums_are_right, is_answer, query, socket, tagged},
    raw::RawSocket,
    server::{Server, addresses, count, eventually, ip, lab},
};
use xtask::lab::{Lab, Side};

const TAG: u16 = 0x8100;
const OUTER_TAG: u16 = 0x88a8;

/// Sends a frame from the client and looks for the reply to `path`: the whole frame.
fn exchanged(lab: &Lab, path: &Path, frame: &[u8], time: Duration) -> Option<Vec<u8>> {
    lab.inside(Side::Client, || {
        let raw = RawSocket::open(lab.client.interface);
        raw.send(frame);
        raw.receive_within(time, |frame| path.reply(frame).is_some())
    })
    .expect("the namespace is there")
}

/// Sends a frame that must be answered by the bypass: the whole reply.
fn answered_by_the_bypass(lab: &Lab, server: &Server, path: &Path, frame: &[u8], id: u16) -> Vec<u8> {
    let before = server.bypass_answered();
    let reply = exchanged(lab, path, frame, REPLY_WITHIN).expect("a reply");
    assert!(is_answer(path.reply(&reply).expect("it was found by it"), id), "{reply:02x?}");
    eventually("one more reply of the bypass", || (server.bypass_answered() == before + 1).then_some(()));
    reply
}

/// Sends a frame that must stay without a reply.
fn unanswered(lab: &Lab, path: &Path, frame: &[u8]) {
    let reply = exchanged(lab, path, frame, SILENCE);
    assert!(reply.is_none(), "answered: {reply:02x?}");
}

/// Sends a frame that the bypass must drop, by name.
fn dropped(lab: &Lab, server: &Server, path: &Path, frame: &[u8], reason: &str) {
    let before = server.bypass_dropped(reason);
    unanswered(lab, path, frame);
    assert_eq!(server.bypass_dropped(reason), before + 1, "{reason}");
}

/// Sends a frame that must be passed to the kernel with this verdict, and of which nothing comes back.
fn passed(lab: &Lab, server: &Server, path: &Path, frame: &[u8], verdict: &str) {
    let before = (server.verdict(verdict), server.verdict("redirected"));
    unanswered(lab, path, frame);
    // Other frames that the kernel sends by itself may have got the verdict, too, such as IPv6 multicast.
    assert!(server.verdict(verdict) > before.0, "{verdict}");
    assert_eq!(server.verdict("redirected"), before.1, "{verdict}");
}

#[test]
fn case_05_tagged_queries_of_a_served_vlan_are_answered_with_the_same_tags() {
    let lab = lab(1);
    let server = Server::start(&lab, &["--vlan", "7,8.9"]);
    for (family, path) in [Path::v4(&lab, 40_000), Path::v6(&lab, 40_001)].into_iter().enumerate() {
        for (id, tags) in [(10, &[(TAG, 7)][..]), (11, &[(OUTER_TAG, 8), (TAG, 9)][..])] {
            let frame = tagged(&path.frame(&query(id)), tags);
            let reply = answered_by_the_bypass(&lab, &server, &path, &frame, id);
            let tags_end = 12 + 4 * tags.len();
            assert_eq!(reply[12..tags_end], frame[12..tags_end], "family {family}: the tags come back");
        }
        for tags in [&[(TAG, 6)][..], &[(OUTER_TAG, 8), (TAG, 7)][..], &[(TAG, 8)][..]] {
            let frame = tagged(&path.frame(&query(12)), tags);
            passed(&lab, &server, &path, &frame, "other_vlan");
        }
        // The one who asks without a tag is answered without.
        let reply = answered_by_the_bypass(&lab, &server, &path, &path.frame(&query(13)), 13);
        assert!(reply[12..14] == [0x08, 0x00] || reply[12..14] == [0x86, 0xdd], "{reply:02x?}");
    }
}

/// The IPv4 packet of a frame in two fragments.
fn fragments(frame: &[u8], identification: u16) -> [Vec<u8>; 2] {
    const IP: usize = 14;
    const HEADER: usize = 20;
    let (headers, data) = frame.split_at(IP + HEADER);
    // Within the UDP payload, and a multiple of eight as it must be.
    let (first, second) = data.split_at(24);
    let fragment = |data: &[u8], offset_and_flags: u16| {
        let mut frame = headers.to_vec();
        let length = u16::try_from(HEADER + data.len()).expect("short");
        frame[IP + 2..IP + 4].copy_from_slice(&length.to_be_bytes());
        frame[IP + 4..IP + 6].copy_from_slice(&identification.to_be_bytes());
        frame[IP + 6..IP + 8].copy_from_slice(&offset_and_flags.to_be_bytes());
        let mut header = etherparse::Ipv4Header::from_slice(&frame[IP..IP + HEADER]).expect("an IPv4 header").0;
        header.header_checksum = header.calc_header_checksum();
        frame.truncate(IP);
        frame.extend(header.to_bytes());
        frame.extend(data);
        frame
    };
    [fragment(first, 0x2000), fragment(second, 3)]
}

#[test]
fn case_06_a_fragmented_query_is_answered_by_the_kernel_path() {
    let lab = lab(1);
    let server = Server::start(&lab, &[]);
    let path = Path::v4(&lab, 40_000);
    let [first, second] = fragments(&path.frame(&query(21)), 0x4321);
    let reply = lab
        .inside(Side::Client, || {
            let raw = RawSocket::open(lab.client.interface);
            raw.send(&first);
            raw.send(&second);
            raw.receive_within(REPLY_WITHIN, |frame| path.reply(frame).is_some())
        })
        .expect("the namespace is there")
        .expect("a reply");
    assert!(is_answer(path.reply(&reply).expect("it was found by it"), 21), "{reply:02x?}");
    assert_eq!((server.verdict("fragment"), server.verdict("redirected")), (2, 0));
    eventually("a reply of the kernel path", || (server.kernel_answered() == 1).then_some(()));
    assert_eq!(server.bypass_answered(), 0);
}

#[test]
fn case_06_a_fragment_of_another_port_arrives_where_it_was_sent() {
    let lab = lab(1);
    let server = Server::start(&lab, &[]);
    let mut path = Path::v4(&lab, 40_000);
    path.to.set_port(5300);
    let there = lab.inside(Side::Server, || socket_at(path.to)).expect("the namespace is there");
    let payload = query(22);
    let [first, second] = fragments(&path.frame(&payload), 0x4322);
    lab.inside(Side::Client, || {
        let raw = RawSocket::open(lab.client.interface);
        raw.send(&first);
        raw.send(&second);
    })
    .expect("the namespace is there");
    let mut buffer = [0; 512];
    let (length, from) = there.recv_from(&mut buffer).expect("both fragments arrive");
    assert_eq!((&buffer[..length], from), (payload.as_slice(), path.from));
    assert_eq!(server.verdict("fragment"), 2);
}

fn socket_at(address: SocketAddr) -> std::net::UdpSocket {
    let socket = std::net::UdpSocket::bind(address).expect("the address is there and free");
    socket.set_read_timeout(Some(REPLY_WITHIN)).expect("not zero");
    socket
}

#[test]
fn case_09_a_query_to_an_address_that_is_not_served_is_not_touched() {
    let lab = lab(1);
    ip(&lab, Side::Server, "addr add 10.78.0.9/24 dev server0");
    ip(&lab, Side::Client, "neigh replace 10.78.0.9 lladdr 02:00:00:00:78:01 dev client0 nud permanent");
    let listen = lab.server.v4.to_string();
    let server = Server::start(&lab, &["--listen", &listen]);
    let mut path = Path::v4(&lab, 40_000);
    answered_by_the_bypass(&lab, &server, &path, &path.frame(&query(30)), 30);

    // One at which another program serves, and one whose traffic only passes through here.
    path.to = "10.78.0.9:53".parse().expect("an address");
    let other = lab.inside(Side::Server, || socket_at(path.to)).expect("the address is free: we do not serve it");
    passed(&lab, &server, &path, &path.frame(&query(31)), "other_address");
    let mut buffer = [0; 512];
    let (length, from) = other.recv_from(&mut buffer).expect("the other program gets it");
    assert_eq!((&buffer[..length], from), (query(31).as_slice(), path.from));

    path.to = "203.0.113.1:53".parse().expect("an address");
    passed(&lab, &server, &path, &path.frame(&query(32)), "other_address");
    let v6 = Path::v6(&lab, 40_001);
    passed(&lab, &server, &v6, &v6.frame(&query(33)), "other_address");
}

#[test]
fn case_10_an_address_that_no_interface_has_is_served_when_listed() {
    let lab = lab(1);
    let server = Server::start(&lab, &["--listen", "192.0.2.53", "--listen", "2001:db8::53"]);
    for (mut path, address) in
        [(Path::v4(&lab, 40_000), "192.0.2.53:53"), (Path::v6(&lab, 40_001), "[2001:db8::53]:53")]
    {
        path.to = address.parse().expect("an address");
        answered_by_the_bypass(&lab, &server, &path, &path.frame(&query(40)), 40);
    }
    let path = Path::v4(&lab, 40_002);
    passed(&lab, &server, &path, &path.frame(&query(41)), "other_address");
}

#[test]
fn case_10_addresses_come_and_go() {
    let lab = lab(1);
    let server = Server::start(&lab, &[]);
    for (mut path, address, prefix) in
        [(Path::v4(&lab, 40_000), "10.78.0.9", "24"), (Path::v6(&lab, 40_001), "fd78::9", "64 nodad")]
    {
        path.to.set_ip(address.parse().expect("an address"));
        let frame = path.frame(&query(42));
        passed(&lab, &server, &path, &frame, "other_address");

        ip(&lab, Side::Server, &format!("addr add {address}/{prefix} dev server0"));
        eventually("a reply of the bypass from the new address", || {
            let before = server.bypass_answered();
            let reply = exchanged(&lab, &path, &frame, SILENCE)?;
            assert!(is_answer(path.reply(&reply)?, 42), "{reply:02x?}");
            (server.bypass_answered() == before + 1).then_some(())
        });

        let prefix = prefix.replace(" nodad", "");
        ip(&lab, Side::Server, &format!("addr del {address}/{prefix} dev server0"));
        eventually("silence at the address that has gone", || {
            let before = server.verdict("other_address");
            let reply = exchanged(&lab, &path, &frame, SILENCE);
            (reply.is_none() && server.verdict("other_address") > before).then_some(())
        });
    }
    let path = Path::v4(&lab, 40_002);
    answered_by_the_bypass(&lab, &server, &path, &path.frame(&query(43)), 43);
}

#[test]
fn case_13_padding_is_not_read() {
    let lab = lab(1);
    let server = Server::start(&lab, &[]);
    // The root's question: 17 bytes, which Ethernet pads; it is outside our zones.
    let message = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01";
    for padding in [0, 0xff] {
        let path = Path::v4(&lab, 40_000 + u16::from(padding));
        let mut frame = path.frame(message);
        assert!(frame.len() < 60, "{}", frame.len());
        frame.resize(60, padding);
        let reply = exchanged(&lab, &path, &frame, REPLY_WITHIN).expect("a reply");
        let payload = path.reply(&reply).expect("it was found by it");
        assert_eq!((payload.len(), &payload[..2], payload[3] & 0xf), (message.len(), &message[..2], 5), "REFUSED");
        assert!(checksums_are_right(&reply));
    }
    eventually("two replies of the bypass", || (server.bypass_answered() == 2).then_some(()));
}

#[test]
fn case_21_corrupt_checksums() {
    let lab = lab(1);
    let corrupt = |path: &Path, id| {
        let mut frame = path.frame(&query(id));
        // UDP's lies at the end of its header, which the message follows.
        let at = frame.len() - query(id).len() - 1;
        frame[at] ^= 0x55;
        assert!(!checksums_are_right(&frame));
        frame
    };
    let mut server = Server::start(&lab, &["--verify-checksums", "on"]);
    for path in [Path::v4(&lab, 40_000), Path::v6(&lab, 40_001)] {
        dropped(&lab, &server, &path, &corrupt(&path, 50), "bad_checksum");
        answered_by_the_bypass(&lab, &server, &path, &path.frame(&query(51)), 51);
    }
    assert!(server.end(Signal::SIGTERM).success());

    // On veth a local sender leaves a partial sum, which `auto` must not take for a broken one.
    for flag in ["auto", "off"] {
        let mut server = Server::start(&lab, &["--verify-checksums", flag]);
        for path in [Path::v4(&lab, 40_002), Path::v6(&lab, 40_003)] {
            let reply = answered_by_the_bypass(&lab, &server, &path, &corrupt(&path, 52), 52);
            assert!(checksums_are_right(&reply), "{reply:02x?}");
        }
        assert!(server.end(Signal::SIGTERM).success());
    }
}

#[test]
fn case_22_what_could_start_a_loop_is_never_answered() {
    let lab = lab(1);
    let server = Server::start(&lab, &[]);
    for (path, own) in
        [(Path::v4(&lab, 40_000), IpAddr::from(lab.server.v4)), (Path::v6(&lab, 40_001), IpAddr::from(lab.server.v6))]
    {
        let mut response = query(60);
        response[2] |= 0x80;
        dropped(&lab, &server, &path, &path.frame(&response), "response");

        let mut zero = path;
        zero.from.set_port(0);
        dropped(&lab, &server, &zero, &zero.frame(&query(61)), "source_port_zero");

        let mut loops = path;
        loops.from = SocketAddr::new(own, 53);
        dropped(&lab, &server, &loops, &loops.frame(&query(62)), "own_source");

        answered_by_the_bypass(&lab, &server, &path, &path.frame(&query(63)), 63);
    }
}

#[test]
fn case_22_a_response_is_not_answered_on_kernel_sockets() {
    let lab = lab(1);
    let server = Server::start(&lab, &["--io", "socket"]);
    let refused = |name: &str| {
        let status = server.status();
        count(&status["kernel_path"]["udp"]["dropped"][name])
    };
    for (rounds, path) in [(1, Path::v4(&lab, 40_000)), (2, Path::v6(&lab, 40_001))] {
        let mut response = query(64);
        response[2] |= 0x80;
        unanswered(&lab, &path, &path.frame(&response));
        assert_eq!(refused("response"), rounds);

        let mut zero = path;
        zero.from.set_port(0);
        unanswered(&lab, &zero, &zero.frame(&query(65)));

        let reply = exchanged(&lab, &path, &path.frame(&query(66)), REPLY_WITHIN).expect("a reply");
        assert!(is_answer(path.reply(&reply).expect("it was found by it"), 66), "{reply:02x?}");
        eventually("the reply in the status", || (server.kernel_answered() == rounds).then_some(()));
    }
}

#[test]
fn case_24_status_counts_each_query_once() {
    let lab = lab(1);
    let server = Server::start(&lab, &[]);
    const QUERIES: u16 = 25;
    for (client, address) in addresses(&lab) {
        lab.inside(Side::Client, || {
            let socket = socket(client);
            for id in 0..QUERIES {
                let reply = ask(&socket, SocketAddr::new(address, 53), &query(id)).expect("a reply");
                assert!(is_answer(&reply, id), "{reply:02x?}");
            }
        })
        .expect("the namespace is there");
    }
    let all = 2 * u64::from(QUERIES);
    let status = eventually("all replies in the status", || {
        let status = server.status();
        (count(&status["interfaces"][0]["queues"][0]["answered"]) >= all).then_some(status)
    });
    let interface = &status["interfaces"][0];
    assert_eq!(count(&interface["queues"][0]["answered"]), all);
    assert_eq!(count(&interface["queues"][0]["received"]), all);
    assert_eq!(count(&interface["verdicts"]["redirected"]), all);
    let cells = interface["matrix"].as_array().expect("a matrix");
    assert_eq!(cells.iter().map(|cell| count(&cell["frames"])).sum::<u64>(), all);
    assert_eq!(count(&status["kernel_path"]["udp"]["received"]), 0);
}

#[test]
fn case_30_frames_for_others_are_passed() {
    let lab = lab(1);
    let server = Server::start(&lab, &[]);
    for path in [Path::v4(&lab, 40_000), Path::v6(&lab, 40_001)] {
        let mut other = path;
        other.to_mac = [2, 0, 0, 0, 0x78, 0x77];
        passed(&lab, &server, &other, &other.frame(&query(70)), "other_mac");

        // The kernel may do with a broadcast frame what it likes, but it is not the bypass that answers.
        for group in [[0xff; 6], [0x01, 0, 0x5e, 0, 0, 1], [0x33, 0x33, 0, 0, 0, 1]] {
            let mut everyone = path;
            everyone.to_mac = group;
            let before = (server.verdict("other_mac"), server.verdict("redirected"));
            let _ = exchanged(&lab, &everyone, &everyone.frame(&query(71)), SILENCE);
            assert!(server.verdict("other_mac") > before.0, "{group:?}");
            assert_eq!((server.verdict("redirected"), server.bypass_answered()), (before.1, before.1), "{group:?}");
        }
        answered_by_the_bypass(&lab, &server, &path, &path.frame(&query(72)), 72);
    }
}

#[test]
fn case_12_replies_are_whole_packets_of_their_own() {
    let lab = lab(1);
    let server = Server::start(&lab, &[]);
    for path in [Path::v4(&lab, 40_000), Path::v6(&lab, 40_001)] {
        // The query's TTL is 63.
        let reply = answered_by_the_bypass(&lab, &server, &path, &path.frame(&query(80)), 80);
        assert!(checksums_are_right(&reply), "{reply:02x?}");
        assert_eq!((&reply[..6], &reply[6..12]), (&lab.client.mac[..], &lab.server.mac[..]));
        let packet = SlicedPacket::from_ethernet(&reply).expect("a packet");
        match packet.net.expect("an IP packet") {
            NetSlice::Ipv4(slice) => {
                let header = slice.header();
                assert_eq!((header.ttl(), header.identification()), (64, 0));
                assert!(header.dont_fragment() && !header.more_fragments());
                assert_eq!(14 + usize::from(header.total_len()), reply.len());
            }
            NetSlice::Ipv6(slice) => {
                assert_eq!(slice.header().hop_limit(), 64);
                assert_eq!(14 + 40 + usize::from(slice.header().payload_length()), reply.len());
            }
            NetSlice::Arp(_) => unreachable!("it has a UDP payload"),
        }
    }
}

#[test]
fn a_query_over_tcp_is_answered() {
    let lab = lab(1);
    let server = Server::start(&lab, &[]);
    for (_, address) in addresses(&lab) {
        let reply = lab
            .inside(Side::Client, || {
                let mut stream =
                    TcpStream::connect_timeout(&SocketAddr::new(address, 53), REPLY_WITHIN).expect("it listens");
                stream.set_read_timeout(Some(REPLY_WITHIN)).expect("not zero");
                let message = query(90);
                let length = u16::try_from(message.len()).expect("short").to_be_bytes();
                stream.write_all(&[&length[..], &message].concat()).expect("sent");
                let mut length = [0; 2];
                stream.read_exact(&mut length).expect("a reply");
                let mut reply = vec![0; u16::from_be_bytes(length).into()];
                stream.read_exact(&mut reply).expect("a whole reply");
                reply
            })
            .expect("the namespace is there");
        assert!(is_answer(&reply, 90), "{reply:02x?}");
    }
    eventually("two replies over TCP", || {
        (count(&server.status()["kernel_path"]["tcp"]["answered"]) == 2).then_some(())
    });
    assert!(server.verdict("not_udp") > 0);
    assert_eq!(server.bypass_answered(), 0);
}

#[test]
fn echo_gives_the_payload_back() {
    let lab = lab(1);
    let server = Server::start(&lab, &["--service", "echo"]);
    for path in [Path::v4(&lab, 40_000), Path::v6(&lab, 40_001)] {
        for payload in [&b""[..], b"x", b"hello", &[0xa5; 1400]] {
            let reply = exchanged(&lab, &path, &path.frame(payload), REPLY_WITHIN).expect("a reply");
            assert_eq!(path.reply(&reply), Some(payload));
            assert!(checksums_are_right(&reply), "{reply:02x?}");
        }
    }
    eventually("all replies in the status", || (server.bypass_answered() == 8).then_some(()));
}

#[test]
fn sink_counts_and_answers_nothing() {
    let lab = lab(1);
    let server = Server::start(&lab, &["--service", "sink"]);
    for path in [Path::v4(&lab, 40_000), Path::v6(&lab, 40_001)] {
        dropped(&lab, &server, &path, &path.frame(&query(95)), "sunk");
    }
    assert_eq!((server.bypass_answered(), server.kernel_answered()), (0, 0));
}
