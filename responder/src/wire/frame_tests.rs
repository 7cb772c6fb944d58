//! Frames in, frames out. The crate `etherparse` builds the requests and judges the replies.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "payloads are made of the low bytes of numbers"
)]

use etherparse::{Ethernet2Slice, Ipv4Slice, PacketBuilder, SlicedPacket, TransportSlice, VlanSlice};

use super::*;

const CLIENT_MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];
const SERVER_MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const CLIENT_V6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
const SERVER_V6: [u8; 16] = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
const ROOM: usize = 2048 - 256;

#[derive(Clone, Copy, Debug)]
enum Tags {
    None,
    One,
    Two,
}

/// A query from the client, as an independent implementation lays it out.
fn request(v4: bool, tags: Tags, payload: &[u8]) -> Vec<u8> {
    let vlan = |id: u16| id.try_into().unwrap();
    let link = PacketBuilder::ethernet2(CLIENT_MAC, SERVER_MAC);
    let mut frame = Vec::new();
    let builder = match (tags, v4) {
        (Tags::None, true) => link.ipv4([192, 0, 2, 1], [192, 0, 2, 53], 17),
        (Tags::None, false) => link.ipv6(CLIENT_V6, SERVER_V6, 17),
        (Tags::One, true) => link.single_vlan(vlan(7)).ipv4([192, 0, 2, 1], [192, 0, 2, 53], 17),
        (Tags::One, false) => link.single_vlan(vlan(7)).ipv6(CLIENT_V6, SERVER_V6, 17),
        (Tags::Two, true) => link.double_vlan(vlan(8), vlan(9)).ipv4([192, 0, 2, 1], [192, 0, 2, 53], 17),
        (Tags::Two, false) => link.double_vlan(vlan(8), vlan(9)).ipv6(CLIENT_V6, SERVER_V6, 17),
    };
    builder.udp(4242, 53).write(&mut frame, payload).unwrap();
    frame
}

/// Replies with `payload` and returns the frame.
fn reply(query: &[u8], payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0xff; ROOM];
    frame[..query.len()].copy_from_slice(query);
    let request = Request::parse(query, true).unwrap();
    let start = request.payload().start;
    assert!(payload.len() <= request.payload_room(ROOM, 1500));
    frame[start..start + payload.len()].copy_from_slice(payload);
    let length = request.reply_in_place(&mut frame, payload.len());
    frame.truncate(length);
    frame
}

/// Every field of a reply, as RFC 791, 8200 and 768 want it, read back by an independent implementation.
fn check_reply(frame: &[u8], v4: bool, tags: Tags, payload: &[u8]) {
    let packet = SlicedPacket::from_ethernet(frame).unwrap();
    let ethernet = Ethernet2Slice::from_slice_without_fcs(frame).unwrap();
    assert_eq!((ethernet.source(), ethernet.destination()), (SERVER_MAC, CLIENT_MAC));
    let ids: Vec<u16> = match packet.vlan() {
        None => vec![],
        Some(VlanSlice::SingleVlan(tag)) => vec![tag.vlan_identifier().value()],
        Some(VlanSlice::DoubleVlan(tags)) => {
            vec![tags.outer.vlan_identifier().value(), tags.inner.vlan_identifier().value()]
        }
    };
    let expected: &[u16] = match tags {
        Tags::None => &[],
        Tags::One => &[7],
        Tags::Two => &[8, 9],
    };
    assert_eq!(ids, expected);

    let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("no UDP in the reply") };
    assert_eq!((udp.source_port(), udp.destination_port()), (53, 4242));
    assert_eq!(usize::from(udp.length()), 8 + payload.len());
    assert_eq!(udp.payload(), payload);
    assert_ne!(udp.checksum(), 0, "zero means that there is no checksum");
    let header = udp.to_header();
    let expected = match packet.net.as_ref().unwrap() {
        etherparse::NetSlice::Ipv4(ip) => {
            assert!(v4);
            let ip: &Ipv4Slice<'_> = ip;
            let header_v4 = ip.header();
            assert_eq!((header_v4.source(), header_v4.destination()), ([192, 0, 2, 53], [192, 0, 2, 1]));
            assert_eq!((header_v4.ttl(), header_v4.identification(), header_v4.dont_fragment()), (64, 0, true));
            assert_eq!((header_v4.dcp().value(), header_v4.ecn().value()), (0, 0));
            assert_eq!(usize::from(header_v4.total_len()), 28 + payload.len());
            assert_eq!(header_v4.header_checksum(), header_v4.to_header().calc_header_checksum());
            header.calc_checksum_ipv4(&header_v4.to_header(), payload).unwrap()
        }
        etherparse::NetSlice::Ipv6(ip) => {
            assert!(!v4);
            let header_v6 = ip.header();
            assert_eq!((header_v6.source(), header_v6.destination()), (SERVER_V6, CLIENT_V6));
            assert_eq!((header_v6.hop_limit(), header_v6.traffic_class(), header_v6.flow_label().value()), (64, 0, 0));
            assert_eq!(usize::from(header_v6.payload_length()), 8 + payload.len());
            header.calc_checksum_ipv6(&header_v6.to_header(), payload).unwrap()
        }
        other => panic!("unexpected network layer {other:?}"),
    };
    assert_eq!(udp.checksum(), expected);
    assert_eq!(frame.len(), packet_len(v4, tags) + payload.len(), "nothing behind the payload");
}

fn packet_len(v4: bool, tags: Tags) -> usize {
    let tags = match tags {
        Tags::None => 0,
        Tags::One => 4,
        Tags::Two => 8,
    };
    14 + tags + if v4 { 20 } else { 40 } + 8
}

/// CASES 11: some reply lengths once got a wrong IPv4 total length. Every DNS length is tried.
#[test]
fn case_11_every_reply_length_is_right() {
    for tags in [Tags::None, Tags::One, Tags::Two] {
        for v4 in [true, false] {
            let query = request(v4, tags, b"a query of some length");
            for length in 12..=1500 - if v4 { 28 } else { 48 } {
                let payload: Vec<u8> = (0..length).map(|i| (i * 7 + length) as u8).collect();
                check_reply(&reply(&query, &payload), v4, tags, &payload);
            }
        }
    }
}

/// CASES 12: a checksum that computes to zero is sent as 0xffff, on both families.
#[test]
fn case_12_a_computed_zero_checksum_is_sent_as_ones() {
    for v4 in [true, false] {
        let query = request(v4, Tags::None, &[0; 12]);
        // With this word the rest sums to 0xffff, whose complement is zero.
        let zero_at = (0..=u16::MAX)
            .find(|word| {
                let frame = reply(&query, &word.to_be_bytes());
                let udp = packet_len(v4, Tags::None) - 8;
                frame[udp + 6..udp + 8] == [0xff, 0xff]
            })
            .expect("one of all words makes the sum zero");
        let frame = reply(&query, &zero_at.to_be_bytes());
        Request::parse(&frame, true).expect("the receiver finds the checksum intact");
    }
}

/// CASES 13: a short query is padded to the Ethernet minimum; the padding is not DNS.
#[test]
fn case_13_padding_is_not_payload() {
    for v4 in [true, false] {
        let query = request(v4, Tags::None, b"short");
        let mut padded = query.clone();
        padded.resize(query.len() + 30, 0xaa);
        let parsed = Request::parse(&padded, true).unwrap();
        assert_eq!(&padded[parsed.payload()], b"short");
        check_reply(&reply(&padded, b"short reply"), v4, Tags::None, b"short reply");
    }
}

#[test]
fn every_truncation_is_an_error() {
    for tags in [Tags::None, Tags::One, Tags::Two] {
        for v4 in [true, false] {
            let query = request(v4, tags, b"payload");
            for length in 0..query.len() {
                assert_eq!(
                    Request::parse(&query[..length], true),
                    Err(FrameError::Truncated),
                    "{tags:?} {v4} {length}"
                );
            }
        }
    }
}

#[test]
fn what_the_bypass_does_not_take() {
    let v4 = request(true, Tags::None, b"payload");
    let v6 = request(false, Tags::None, b"payload");
    let three_tags = {
        let mut frame = request(true, Tags::Two, b"payload");
        frame.splice(12..12, [0x88, 0xa8, 0, 1]);
        frame
    };
    type Case<'a> = (&'a str, &'a [u8], &'a [(usize, u8)], FrameError);
    let cases: [Case<'_>; 11] = [
        ("ARP", &v4, &[(12, 0x08), (13, 0x06)], FrameError::Unsupported),
        ("IPv4 options", &v4, &[(14, 0x46)], FrameError::Unsupported),
        ("a first fragment", &v4, &[(20, 0x20)], FrameError::Unsupported),
        ("a later fragment", &v4, &[(21, 0x01)], FrameError::Unsupported),
        ("IPv4 TCP", &v4, &[(23, 6)], FrameError::Unsupported),
        ("IPv4 total length below the header", &v4, &[(16, 0), (17, 19)], FrameError::Truncated),
        ("a UDP length below 8", &v4, &[(38, 0), (39, 7)], FrameError::Truncated),
        ("a UDP length beyond the datagram", &v4, &[(38, 1), (39, 0)], FrameError::Truncated),
        ("an IPv6 extension header", &v6, &[(20, 0)], FrameError::Unsupported),
        ("an IPv6 length beyond the frame", &v6, &[(18, 1)], FrameError::Truncated),
        ("three tags", &three_tags, &[], FrameError::Unsupported),
    ];
    for (name, frame, edits, error) in cases {
        let mut frame = frame.to_vec();
        for (at, byte) in edits {
            frame[*at] = *byte;
        }
        assert_eq!(Request::parse(&frame, false), Err(error), "{name}");
    }
}

/// CASES 21: a corrupt checksum is noticed, wherever the flipped bit is, and only when asked to look.
#[test]
fn case_21_corrupt_checksums_are_noticed() {
    for v4 in [true, false] {
        let query = request(v4, Tags::None, b"payload");
        let request = Request::parse(&query, true).unwrap();
        let ip = 14;
        // Every byte that a checksum covers and whose change keeps the lengths and the protocol. IPv6's hop limit, at ip + 7, is not covered.
        for at in ip + 8..query.len() {
            let protocol = v4 && at == ip + 9;
            let length = (request.payload().start - 4..request.payload().start - 2).contains(&at);
            if protocol || length {
                continue;
            }
            let mut corrupt = query.clone();
            corrupt[at] ^= 0x10;
            assert_eq!(Request::parse(&corrupt, true), Err(FrameError::Checksum), "IPv4 {v4}, byte {at}");
            assert!(Request::parse(&corrupt, false).is_ok(), "IPv4 {v4}, byte {at}");
        }
    }
}

#[test]
fn an_absent_udp_checksum_is_fine_on_ipv4_only() {
    for (v4, expected) in [(true, true), (false, false)] {
        let mut query = request(v4, Tags::None, b"payload");
        let udp = packet_len(v4, Tags::None) - 8;
        query[udp + 6..udp + 8].fill(0);
        assert_eq!(Request::parse(&query, true).is_ok(), expected);
    }
}

#[test]
fn who_asked() {
    let v4 = request(true, Tags::One, b"payload");
    let parsed = Request::parse(&v4, true).unwrap();
    assert_eq!((parsed.source(&v4), parsed.source_port(&v4)), (IpAddr::from([192, 0, 2, 1]), 4242));
    let v6 = request(false, Tags::Two, b"payload");
    let parsed = Request::parse(&v6, true).unwrap();
    assert_eq!((parsed.source(&v6), parsed.source_port(&v6)), (IpAddr::from(CLIENT_V6), 4242));
}

#[test]
fn room_is_bounded_by_buffer_and_mtu() {
    let v4 = request(true, Tags::One, b"payload");
    let v6 = request(false, Tags::None, b"payload");
    let (v4, v6) = (Request::parse(&v4, true).unwrap(), Request::parse(&v6, true).unwrap());
    assert_eq!(v4.payload_room(1792, 1500), 1472);
    assert_eq!(v6.payload_room(1792, 1500), 1452);
    assert_eq!(v4.payload_room(100, 1500), 100 - 18 - 28);
    assert_eq!(v6.payload_room(10, 10), 0);
}
