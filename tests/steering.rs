//! What the XDP program makes of each kind of frame: the kernel runs it on crafted bytes (BPF_PROG_TEST_RUN) and its counters tell.
//!
//! No socket is bound here, so a frame that is steered finds an empty slot: it is passed and counted as `no_worker`. Every
//! expected verdict stands for its counter going up by one, all others staying, and the frame being passed.
//!
//! RESPONDER_EBPF_OBJECTS names a directory with another object to test in place of the embedded one.

use std::{env, fs, net::IpAddr, os::fd::AsRawFd as _, path::Path, sync::Mutex};

use etherparse::{PacketBuilder, TcpOptionElement, ether_type};
use responder::xdp::steering::{AttachMode, Settings, Steering};
use responder_common::{LOG_RECORDS_PER_SECOND, MAX_PORTS, Verdict, Verdict::*};

const XDP_PASS: u32 = 2;

const OUR_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x01];
const CLIENT_MAC: [u8; 6] = [0x02, 0, 0, 0, 0, 0x02];
const OUR_V4: [u8; 4] = [192, 0, 2, 1];
const CLIENT_V4: [u8; 4] = [198, 51, 100, 7];
const OUR_V6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x01];
const CLIENT_V6: [u8; 16] = [0x20, 0x01, 0x0d, 0xb8, 0, 0x07, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x07];
const CLIENT_PORT: u16 = 40_000;
/// The shortest query there is: a header and the root's question.
const QUERY: &[u8] = b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x01";

/// Offsets in untagged frames.
mod at {
    pub(crate) const SRC_MAC: usize = 6;
    pub(crate) const ETHER_TYPE: usize = 12;
    pub(crate) const IP: usize = 14;
    pub(crate) const V4_TOTAL_LEN: usize = IP + 2;
    pub(crate) const V4_FRAGMENT: usize = IP + 6;
    pub(crate) const V4_PROTOCOL: usize = IP + 9;
    pub(crate) const V4_SRC: usize = IP + 12;
    pub(crate) const V4_DST: usize = IP + 16;
    pub(crate) const V4_UDP: usize = IP + 20;
    pub(crate) const V6_PAYLOAD_LEN: usize = IP + 4;
    pub(crate) const V6_NEXT_HEADER: usize = IP + 6;
    pub(crate) const V6_SRC: usize = IP + 8;
    pub(crate) const V6_DST: usize = IP + 24;
    pub(crate) const V6_UDP: usize = IP + 40;
    /// Within the UDP header.
    pub(crate) const DST_PORT: usize = 2;
    pub(crate) const LEN: usize = 4;
    pub(crate) const CHECKSUM: usize = 6;
}

const TAG_8021Q: u16 = 0x8100;
const TAG_8021AD: u16 = 0x88a8;

fn settings() -> Settings {
    Settings {
        ports: vec![53],
        mac: OUR_MAC,
        vlans: ["7", "100.200"].map(|tag| tag.parse().expect("a VLAN")).to_vec(),
        queues: 1,
        mode: AttachMode::Auto,
        log: false,
    }
}

/// Loads the object under test; needs root.
fn load(settings: &Settings) -> Steering {
    match env::var_os("RESPONDER_EBPF_OBJECTS") {
        Some(objects) => {
            let object = fs::read(Path::new(&objects).join("classify.o")).expect("the object is there");
            Steering::load_object(&object, settings)
        }
        None => Steering::load(settings),
    }
    .expect("the kernel takes the program")
}

fn serving(settings: &Settings) -> Steering {
    let mut steering = load(settings);
    steering.serve(OUR_V4.into(), 32, &settings.ports).expect("an address can be served");
    steering.serve(OUR_V6.into(), 128, &settings.ports).expect("an address can be served");
    steering
}

fn counters(steering: &Steering) -> Vec<u64> {
    steering.verdicts().expect("counters can be read").into_iter().map(|(_, frames)| frames).collect()
}

/// The one counter that the frame moves.
fn verdict(steering: &mut Steering, frame: &[u8]) -> Verdict {
    let before = counters(steering);
    let (action, _) = steering.test_run(frame, 1).expect("the kernel runs the program");
    let after = counters(steering);
    assert_eq!(action, XDP_PASS, "nothing but a socket takes a frame from the kernel");
    assert_eq!(after.iter().sum::<u64>(), before.iter().sum::<u64>() + 1, "one frame, one count");
    Verdict::ALL
        .iter()
        .zip(before)
        .zip(after)
        .find(|((_, before), after)| after > before)
        .map(|((verdict, _), _)| *verdict)
        .expect("a counter moved")
}

fn check_with(steering: &mut Steering, cases: impl IntoIterator<Item = (impl AsRef<str>, Vec<u8>, Verdict)>) {
    for (name, frame, expected) in cases {
        assert_eq!(verdict(steering, &frame), expected, "{}: {frame:02x?}", name.as_ref());
    }
}

fn check(cases: impl IntoIterator<Item = (impl AsRef<str>, Vec<u8>, Verdict)>) {
    check_with(&mut serving(&settings()), cases);
}

/// A query that is ours in every way.
fn v4() -> Vec<u8> {
    frame(|build| {
        PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC)
            .ipv4(CLIENT_V4, OUR_V4, 64)
            .udp(CLIENT_PORT, 53)
            .write(build, QUERY)
    })
}

/// A query that is ours in every way.
fn v6() -> Vec<u8> {
    frame(|build| {
        PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC)
            .ipv6(CLIENT_V6, OUR_V6, 64)
            .udp(CLIENT_PORT, 53)
            .write(build, QUERY)
    })
}

fn frame<E: std::fmt::Debug>(build: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Vec<u8> {
    let mut frame = Vec::new();
    build(&mut frame).expect("a frame that etherparse can build");
    frame
}

/// The frame with these bytes at this offset.
fn with(mut frame: Vec<u8>, offset: usize, bytes: &[u8]) -> Vec<u8> {
    frame[offset..offset + bytes.len()].copy_from_slice(bytes);
    frame
}

/// The frame with these tags, as (EtherType, tag control information), the outer one first.
fn tagged(mut frame: Vec<u8>, tags: &[(u16, u16)]) -> Vec<u8> {
    let tags: Vec<u8> = tags.iter().flat_map(|(tpid, tci)| [tpid.to_be_bytes(), tci.to_be_bytes()]).flatten().collect();
    frame.splice(at::ETHER_TYPE..at::ETHER_TYPE, tags);
    frame
}

fn padded(mut frame: Vec<u8>, padding: usize) -> Vec<u8> {
    frame.resize(frame.len() + padding, 0xff);
    frame
}

#[test]
fn a_plain_query_is_steered() {
    check([("IPv4", v4(), NoWorker), ("IPv6", v6(), NoWorker)]);
}

#[test]
fn what_only_the_worker_can_tell_is_steered() {
    let empty = frame(|build| {
        PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC).ipv4(CLIENT_V4, OUR_V4, 64).udp(CLIENT_PORT, 53).write(build, b"")
    });
    check([
        ("a response", with(v4(), at::V4_UDP + 8 + 2, &[0x81]), NoWorker),
        ("source port 0", with(v4(), at::V4_UDP, &[0, 0]), NoWorker),
        ("our own address as source", with(v4(), at::V4_SRC, &OUR_V4), NoWorker),
        ("a wrong UDP checksum", with(v4(), at::V4_UDP + at::CHECKSUM, &[0xba, 0xad]), NoWorker),
        ("no UDP checksum, which IPv4 allows", with(v4(), at::V4_UDP + at::CHECKSUM, &[0, 0]), NoWorker),
        ("no payload", empty, NoWorker),
    ]);
}

#[test]
fn a_frame_cut_short_at_any_length_passes() {
    let tagged_v4 = tagged(v4(), &[(TAG_8021Q, 7)]);
    let tagged_v6 = tagged(v6(), &[(TAG_8021AD, 100), (TAG_8021Q, 200)]);
    let mut steering = serving(&settings());
    for (name, whole, headers) in [
        ("IPv4", v4(), at::V4_UDP + 8),
        ("IPv6", v6(), at::V6_UDP + 8),
        ("tagged IPv4", tagged_v4, at::V4_UDP + 8 + 4),
        ("double-tagged IPv6", tagged_v6, at::V6_UDP + 8 + 8),
    ] {
        // The kernel does not run programs on less than an Ethernet header.
        check_with(
            &mut steering,
            (14..whole.len()).map(|len| {
                let expected = if len < headers { Truncated } else { BadLength };
                (format!("{name}, {len} bytes"), whole[..len].to_vec(), expected)
            }),
        );
        check_with(&mut steering, [(name, whole, NoWorker)]);
    }
}

#[test]
fn any_byte_may_have_any_value() {
    let mut steering = serving(&settings());
    for whole in [v4(), v6(), tagged(v4(), &[(TAG_8021Q, 7)]), tagged(v6(), &[(TAG_8021AD, 100), (TAG_8021Q, 200)])] {
        for offset in 0..whole.len() {
            for value in [0x00, 0x01, 0x7f, 0x80, 0xff] {
                // It passes and is counted once; which verdict is for the other tests to say.
                verdict(&mut steering, &with(whole.clone(), offset, &[value]));
            }
        }
    }
}

#[test]
fn case_05_tags_that_are_ours_are_steered_and_others_pass() {
    let v4 = |tags: &[(u16, u16)]| tagged(v4(), tags);
    let v6 = |tags: &[(u16, u16)]| tagged(v6(), tags);
    check([
        ("ours", v4(&[(TAG_8021Q, 7)]), NoWorker),
        ("ours, IPv6", v6(&[(TAG_8021Q, 7)]), NoWorker),
        ("ours, 802.1ad", v4(&[(TAG_8021AD, 7)]), NoWorker),
        ("ours, with priority and drop-eligible", v4(&[(TAG_8021Q, 0xf007)]), NoWorker),
        ("not ours", v4(&[(TAG_8021Q, 8)]), OtherVlan),
        ("not ours, IPv6", v6(&[(TAG_8021Q, 8)]), OtherVlan),
        ("ours in the high byte only", v4(&[(TAG_8021Q, 0x0700)]), OtherVlan),
        ("a priority tag", v4(&[(TAG_8021Q, 0)]), OtherVlan),
        ("a priority tag with priority", v4(&[(TAG_8021Q, 0xe000)]), OtherVlan),
        ("the reserved id", v4(&[(TAG_8021Q, 4095)]), OtherVlan),
        ("QinQ, ours", v4(&[(TAG_8021AD, 100), (TAG_8021Q, 200)]), NoWorker),
        ("QinQ, ours, IPv6", v6(&[(TAG_8021AD, 100), (TAG_8021Q, 200)]), NoWorker),
        ("QinQ, ours, both 802.1Q", v4(&[(TAG_8021Q, 100), (TAG_8021Q, 200)]), NoWorker),
        ("QinQ, the other way round", v4(&[(TAG_8021AD, 200), (TAG_8021Q, 100)]), OtherVlan),
        ("QinQ, the outer one alone", v4(&[(TAG_8021AD, 100)]), OtherVlan),
        ("QinQ, the inner one alone", v4(&[(TAG_8021Q, 200)]), OtherVlan),
        ("QinQ, another inner one", v4(&[(TAG_8021AD, 100), (TAG_8021Q, 201)]), OtherVlan),
        ("QinQ, a single tag that is ours outside", v4(&[(TAG_8021AD, 7), (TAG_8021Q, 1)]), OtherVlan),
        ("QinQ, a single tag that is ours inside", v4(&[(TAG_8021AD, 1), (TAG_8021Q, 7)]), OtherVlan),
        ("QinQ, ours with a priority tag inside", v4(&[(TAG_8021AD, 7), (TAG_8021Q, 0)]), OtherVlan),
        ("QinQ, ours with a priority tag outside", v4(&[(TAG_8021AD, 0), (TAG_8021Q, 7)]), OtherVlan),
        ("three tags", v4(&[(TAG_8021AD, 100), (TAG_8021Q, 200), (TAG_8021Q, 7)]), NotIp),
    ]);
}

#[test]
fn case_05_no_tag_is_ours_unless_it_is_given() {
    let mut steering = serving(&Settings { vlans: vec![], ..settings() });
    check_with(
        &mut steering,
        [
            ("a tag", tagged(v4(), &[(TAG_8021Q, 7)]), OtherVlan),
            ("a priority tag", tagged(v4(), &[(TAG_8021Q, 0)]), OtherVlan),
            ("no tag", v4(), NoWorker),
        ],
    );
}

#[test]
fn case_06_fragments_of_any_port_pass() {
    let other_port = |frame| with(frame, at::V4_UDP + at::DST_PORT, &[0x12, 0x34]);
    let v4 = |fragment: u16| with(v4(), at::V4_FRAGMENT, &fragment.to_be_bytes());
    let v6_fragment = with(v6(), at::V6_NEXT_HEADER, &[44]);
    check([
        ("don't fragment", v4(0x4000), NoWorker),
        ("first", v4(0x2000), Fragment),
        ("first, of another port", other_port(v4(0x2000)), Fragment),
        ("middle", v4(0x2001), Fragment),
        ("last", v4(0x0001), Fragment),
        ("last, of another port", other_port(v4(0x0001)), Fragment),
        ("the largest offset", v4(0x1fff), Fragment),
        ("of TCP", with(v4(0x2000), at::V4_PROTOCOL, &[6]), Fragment),
        ("IPv6", v6_fragment, Fragment),
    ]);
}

#[test]
fn case_09_what_is_not_served_passes() {
    check([
        ("another port", with(v4(), at::V4_UDP + at::DST_PORT, &[0, 54]), OtherPort),
        ("our port with its bytes swapped", with(v4(), at::V4_UDP + at::DST_PORT, &[53, 0]), OtherPort),
        ("port 0, the mark of unused entries", with(v4(), at::V4_UDP + at::DST_PORT, &[0, 0]), OtherPort),
        ("another port, IPv6", with(v6(), at::V6_UDP + at::DST_PORT, &[0, 54]), OtherPort),
        ("the next address", with(v4(), at::V4_DST, &[192, 0, 2, 2]), OtherAddress),
        ("another net", with(v4(), at::V4_DST, &[203, 0, 113, 1]), OtherAddress),
        ("the next address, IPv6", with(v6(), at::V6_DST + 15, &[2]), OtherAddress),
        ("another net, IPv6", with(v6(), at::V6_DST, &[0x20, 0x02]), OtherAddress),
    ]);
}

#[test]
fn case_09_nothing_is_served_at_first() {
    check_with(&mut load(&settings()), [("IPv4", v4(), OtherAddress), ("IPv6", v6(), OtherAddress)]);
}

#[test]
fn a_wildcard_serves_all_but_what_no_host_can_have() {
    let mut steering = load(&settings());
    steering.serve(IpAddr::from([0; 4]), 0, &[53]).expect("a wildcard can be served");
    steering.serve(IpAddr::from([0; 16]), 0, &[53]).expect("a wildcard can be served");
    let v4 = |address: [u8; 4]| with(v4(), at::V4_DST, &address);
    let v6 = |start: &[u8]| with(v6(), at::V6_DST, start);
    check_with(
        &mut steering,
        [
            ("any", v4([8, 8, 8, 8]), NoWorker),
            ("the last unicast address", v4([223, 255, 255, 255]), NoWorker),
            ("multicast", v4([224, 0, 0, 1]), OtherAddress),
            ("broadcast", v4([255; 4]), OtherAddress),
            ("unspecified", v4([0; 4]), OtherAddress),
            ("loopback", v4([127, 0, 0, 1]), OtherAddress),
            ("any, IPv6", v6(&[0x2a]), NoWorker),
            ("link-local, IPv6", v6(&[0xfe, 0x80]), NoWorker),
            ("multicast, IPv6", v6(&[0xff, 0x02]), OtherAddress),
            ("unspecified, IPv6", v6(&[0; 16]), OtherAddress),
        ],
    );
}

#[test]
fn a_prefix_serves_what_is_in_it() {
    let mut steering = load(&settings());
    steering.serve("203.0.112.0".parse().expect("an address"), 23, &[53]).expect("a prefix can be served");
    steering.serve("2001:db8:8000::".parse().expect("an address"), 33, &[53]).expect("a prefix can be served");
    check_with(
        &mut steering,
        [
            ("first", with(v4(), at::V4_DST, &[203, 0, 112, 0]), NoWorker),
            ("last", with(v4(), at::V4_DST, &[203, 0, 113, 255]), NoWorker),
            ("before", with(v4(), at::V4_DST, &[203, 0, 111, 255]), OtherAddress),
            ("behind", with(v4(), at::V4_DST, &[203, 0, 114, 0]), OtherAddress),
            ("IPv6, inside", with(v6(), at::V6_DST + 4, &[0xff]), NoWorker),
            ("IPv6, outside", with(v6(), at::V6_DST + 4, &[0x7f]), OtherAddress),
        ],
    );
}

#[test]
fn case_10_addresses_come_and_go() {
    let mut steering = serving(&settings());
    for _ in 0..3 {
        check_with(&mut steering, [("served", v4(), NoWorker), ("served, IPv6", v6(), NoWorker)]);
        steering.unserve(OUR_V4.into(), 32).expect("an address can go");
        check_with(&mut steering, [("gone", v4(), OtherAddress), ("still served, IPv6", v6(), NoWorker)]);
        steering.unserve(OUR_V4.into(), 32).expect("an address that is gone can go again");
        steering.unserve(OUR_V6.into(), 128).expect("an address can go");
        check_with(&mut steering, [("gone, IPv6", v6(), OtherAddress)]);
        steering.serve(OUR_V4.into(), 32, &[53]).expect("an address can come back");
        steering.serve(OUR_V6.into(), 128, &[53]).expect("an address can come back");
        steering.serve(OUR_V6.into(), 128, &[53]).expect("an address that is served can be served again");
    }
}

#[test]
fn case_13_padding_is_no_fault() {
    check((0..64).flat_map(|bytes| {
        [
            (format!("IPv4, {bytes} bytes"), padded(v4(), bytes), NoWorker),
            (format!("IPv6, {bytes} bytes"), padded(v6(), bytes), NoWorker),
            (format!("tagged, {bytes} bytes"), padded(tagged(v4(), &[(TAG_8021Q, 7)]), bytes), NoWorker),
        ]
    }));
}

#[test]
fn lengths_that_lie_pass() {
    let payload_len =
        |frame: Vec<u8>, ip_header: usize| u16::try_from(frame.len() - at::IP - ip_header).expect("a short frame");
    let (udp_v4, udp_v6) = (payload_len(v4(), 20), payload_len(v6(), 40));
    let v4_total = |len: u16| with(v4(), at::V4_TOTAL_LEN, &len.to_be_bytes());
    let v4_udp = |len: u16| with(v4(), at::V4_UDP + at::LEN, &len.to_be_bytes());
    let v6_payload = |len: u16| with(v6(), at::V6_PAYLOAD_LEN, &len.to_be_bytes());
    let v6_udp = |len: u16| with(v6(), at::V6_UDP + at::LEN, &len.to_be_bytes());
    check([
        ("IPv4 total length 0", v4_total(0), BadLength),
        ("less than its header", v4_total(19), BadLength),
        ("its header alone", v4_total(20), BadLength),
        ("room for 7 bytes of UDP", v4_total(27), BadLength),
        ("one less than UDP says", v4_total(20 + udp_v4 - 1), BadLength),
        ("one more than the frame", v4_total(20 + udp_v4 + 1), BadLength),
        ("the largest", v4_total(0xffff), BadLength),
        ("UDP length 0", v4_udp(0), BadLength),
        ("UDP length 7", v4_udp(7), BadLength),
        ("UDP length 8", v4_udp(8), NoWorker),
        ("one less than IP says, as the kernel allows", v4_udp(udp_v4 - 1), NoWorker),
        ("one more than IP says", v4_udp(udp_v4 + 1), BadLength),
        ("the largest UDP length", v4_udp(0xffff), BadLength),
        ("IPv6 payload length 0, as of a jumbogram", v6_payload(0), BadLength),
        ("room for 7 bytes of UDP, IPv6", v6_payload(7), BadLength),
        ("one less than UDP says, IPv6", v6_payload(udp_v6 - 1), BadLength),
        ("one more than the frame, IPv6", v6_payload(udp_v6 + 1), BadLength),
        ("the largest, IPv6", v6_payload(0xffff), BadLength),
        ("UDP length 0, IPv6", v6_udp(0), BadLength),
        ("UDP length 7, IPv6", v6_udp(7), BadLength),
        ("UDP length 8, IPv6", v6_udp(8), NoWorker),
        ("one more than IP says, IPv6", v6_udp(udp_v6 + 1), BadLength),
        ("the largest UDP length, IPv6", v6_udp(0xffff), BadLength),
        // Padding must not make up for what IP says is not there.
        ("one more than IP says, with padding", padded(v4_udp(udp_v4 + 1), 20), BadLength),
        ("one more than IP says, with padding, IPv6", padded(v6_udp(udp_v6 + 1), 20), BadLength),
    ]);
}

#[test]
fn other_protocols_pass() {
    let tcp = |builder: etherparse::PacketBuilderStep<etherparse::IpHeaders>| {
        let builder = builder
            .tcp(CLIENT_PORT, 53, 1, 1024)
            .syn()
            .options(&[TcpOptionElement::MaximumSegmentSize(1460)])
            .expect("few options");
        frame(|build| builder.write(build, b""))
    };
    let ethernet = || PacketBuilder::ethernet2(CLIENT_MAC, OUR_MAC);
    let ether_type = |ether_type: u16| with(v4(), at::ETHER_TYPE, &ether_type.to_be_bytes());
    check([
        ("TCP", tcp(ethernet().ipv4(CLIENT_V4, OUR_V4, 64)), NotUdp),
        ("TCP, IPv6", tcp(ethernet().ipv6(CLIENT_V6, OUR_V6, 64)), NotUdp),
        (
            "ICMP",
            frame(|build| ethernet().ipv4(CLIENT_V4, OUR_V4, 64).icmpv4_echo_request(1, 1).write(build, QUERY)),
            NotUdp,
        ),
        (
            "ICMPv6",
            frame(|build| ethernet().ipv6(CLIENT_V6, OUR_V6, 64).icmpv6_echo_request(1, 1).write(build, QUERY)),
            NotUdp,
        ),
        ("UDP-Lite", with(v4(), at::V4_PROTOCOL, &[136]), NotUdp),
        ("ARP", ether_type(ether_type::ARP.0), NotIp),
        ("LLDP", ether_type(0x88cc), NotIp),
        ("an 802.3 length", ether_type(46), NotIp),
        ("IPv4's type with its bytes swapped", ether_type(0x0008), NotIp),
    ]);
}

#[test]
fn ip_options_and_versions_pass() {
    let vihl = |value: u8| with(v4(), at::IP, &[value]);
    // Four no-operations between the header and the datagram, and a total length to match.
    let mut options = with(v4(), at::IP, &[0x46]);
    options.splice(at::V4_UDP..at::V4_UDP, [1; 4]);
    let total = u16::try_from(options.len() - at::IP).expect("a short frame");
    let options = with(options, at::V4_TOTAL_LEN, &total.to_be_bytes());
    check([
        ("options", options, IpOptions),
        ("as many options as there can be", vihl(0x4f), IpOptions),
        ("a header length of 4 words", vihl(0x44), BadLength),
        ("a header length of 0", vihl(0x40), BadLength),
        ("version 6 in a frame of IPv4", vihl(0x65), BadLength),
        ("version 5", vihl(0x55), BadLength),
        ("version 0", vihl(0x05), BadLength),
        ("version 4 in a frame of IPv6", with(v6(), at::IP, &[0x45]), BadLength),
        ("version 7 in a frame of IPv6", with(v6(), at::IP, &[0x70]), BadLength),
        ("traffic class and flow label", with(v6(), at::IP, &[0x6f, 0xff, 0xff, 0xff]), NoWorker),
    ]);
}

#[test]
fn ipv6_extension_headers_pass() {
    // Hop-by-hop, routing, ESP, AH, no next header, destination options, mobility, HIP, shim6, experiments.
    check([0, 43, 50, 51, 59, 60, 135, 139, 140, 253, 254].map(|next_header| {
        (format!("next header {next_header}"), with(v6(), at::V6_NEXT_HEADER, &[next_header]), NotUdp)
    }));
    // A real one: eight bytes of padding options in front of the datagram, which are a UDP header to who looks at a fixed place.
    let mut options = with(v6(), at::V6_NEXT_HEADER, &[60]);
    options.splice(at::V6_UDP..at::V6_UDP, [17, 0, 1, 4, 0, 0, 0, 0]);
    let payload = u16::try_from(options.len() - at::V6_UDP).expect("a short frame");
    check([("destination options", with(options, at::V6_PAYLOAD_LEN, &payload.to_be_bytes()), NotUdp)]);
}

#[test]
fn case_12_ipv6_without_a_udp_checksum_passes() {
    check([
        ("zero", with(v6(), at::V6_UDP + at::CHECKSUM, &[0, 0]), NoChecksum),
        ("a zero that was computed", with(v6(), at::V6_UDP + at::CHECKSUM, &[0xff, 0xff]), NoWorker),
        ("half a zero", with(v6(), at::V6_UDP + at::CHECKSUM, &[0, 1]), NoWorker),
    ]);
}

#[test]
fn sources_that_cannot_be_replied_to_pass() {
    let v4 = |address: [u8; 4]| with(v4(), at::V4_SRC, &address);
    let v6 = |address: &str| {
        let IpAddr::V6(address) = address.parse().expect("an address") else { panic!("{address} is not IPv6") };
        with(v6(), at::V6_SRC, &address.octets())
    };
    check([
        ("unspecified", v4([0; 4]), BadSource),
        ("this network", v4([0, 1, 2, 3]), BadSource),
        ("loopback", v4([127, 0, 0, 1]), BadSource),
        ("the last of loopback", v4([127, 255, 255, 255]), BadSource),
        ("multicast", v4([224, 0, 0, 1]), BadSource),
        ("the last of multicast", v4([239, 255, 255, 255]), BadSource),
        ("reserved", v4([240, 0, 0, 1]), BadSource),
        ("broadcast", v4([255; 4]), BadSource),
        ("the first there is", v4([1, 0, 0, 0]), NoWorker),
        ("before loopback", v4([126, 255, 255, 255]), NoWorker),
        ("behind loopback", v4([128, 0, 0, 0]), NoWorker),
        ("before multicast", v4([223, 255, 255, 255]), NoWorker),
        ("private", v4([10, 0, 0, 1]), NoWorker),
        ("IPv6 unspecified", v6("::"), BadSource),
        ("IPv6 loopback", v6("::1"), BadSource),
        ("IPv4-compatible", v6("::192.0.2.1"), BadSource),
        ("IPv4-mapped", v6("::ffff:198.51.100.7"), BadSource),
        ("IPv6 multicast", v6("ff02::1"), BadSource),
        ("the last of IPv6 multicast", v6("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), BadSource),
        ("link-local", v6("fe80::1"), NoWorker),
        ("unique local", v6("fd00::1"), NoWorker),
        ("translated (RFC 6052)", v6("64:ff9b::c633:6407"), NoWorker),
        ("almost IPv4-mapped", v6("::1:ffff:0:0"), NoWorker),
        ("almost loopback", v6("1::1"), NoWorker),
    ]);
}

#[test]
fn case_30_frames_for_or_from_other_macs_pass() {
    let to = |mac: [u8; 6]| with(v4(), 0, &mac);
    let from = |mac: [u8; 6]| with(v4(), at::SRC_MAC, &mac);
    let one_off = (0..6).map(|byte| {
        let mut mac = OUR_MAC;
        mac[byte] ^= 0x80;
        (format!("byte {byte} is not ours"), to(mac), OtherMac)
    });
    check(one_off);
    check([
        ("broadcast", to([0xff; 6]), OtherMac),
        ("IPv4 multicast", to([0x01, 0x00, 0x5e, 0, 0, 1]), OtherMac),
        ("IPv6 multicast", with(v6(), 0, &[0x33, 0x33, 0, 0, 0, 1]), OtherMac),
        ("our address as a group", to([0x03, 0, 0, 0, 0, 0x01]), OtherMac),
        ("zero", to([0; 6]), OtherMac),
        ("from broadcast", from([0xff; 6]), BadSource),
        ("from a group", from([0x01, 0, 0, 0, 0, 0x02]), BadSource),
        ("from a universal address", from([0xfc, 0xff, 0xff, 0xff, 0xff, 0xff]), NoWorker),
    ]);
}

#[test]
fn as_many_ports_as_there_may_be_are_served() {
    let ports: Vec<u16> = (1000..).step_by(257).take(MAX_PORTS).collect();
    let mut steering = serving(&Settings { ports: ports.clone(), ..settings() });
    for port in ports {
        let to = |port: u16| with(v4(), at::V4_UDP + at::DST_PORT, &port.to_be_bytes());
        check_with(
            &mut steering,
            [
                (format!("{port}"), to(port), NoWorker),
                (format!("{port} + 1"), to(port + 1), OtherPort),
                ("0".to_owned(), to(0), OtherPort),
            ],
        );
    }
}

/// Another server may have the same port at an address of its own.
#[test]
fn case_09_each_address_has_its_own_ports() {
    let mut steering = load(&Settings { ports: vec![53, 5353], ..settings() });
    steering.serve(OUR_V4.into(), 32, &[5353]).expect("an address can be served");
    steering.serve(OUR_V6.into(), 128, &[53, 5353]).expect("an address can be served");
    let to = |frame: Vec<u8>, udp: usize, port: u16| with(frame, udp + at::DST_PORT, &port.to_be_bytes());
    check_with(
        &mut steering,
        [
            ("IPv4 53", to(v4(), at::V4_UDP, 53), OtherPort),
            ("IPv4 5353", to(v4(), at::V4_UDP, 5353), NoWorker),
            ("IPv6 53", to(v6(), at::V6_UDP, 53), NoWorker),
            ("IPv6 5353", to(v6(), at::V6_UDP, 5353), NoWorker),
        ],
    );
    let refused = steering.serve(OUR_V4.into(), 32, &[54]).expect_err("refused").to_string();
    assert_eq!(refused, "the XDP program was loaded without port 54");
}

#[test]
fn settings_that_make_no_sense_are_refused_with_a_sentence() {
    let refusal = |settings: Settings| Steering::load(&settings).err().expect("refused").to_string();
    assert_eq!(refusal(Settings { ports: vec![53, 0], ..settings() }), "port 0 cannot be served");
    assert_eq!(
        refusal(Settings { ports: vec![53; MAX_PORTS + 1], ..settings() }),
        "at most 8 different ports can be served, not 9"
    );
}

#[test]
fn case_07_there_are_slots_for_all_queues_and_no_more() {
    let mut steering = load(&Settings { queues: 300, ..settings() });
    let not_a_socket = fs::File::open("/dev/null").expect("it is there");
    let error = steering.set_slot(300, not_a_socket.as_raw_fd()).expect_err("there is no such queue");
    assert_eq!(error.to_string(), "queue 300 does not exist: the XDP program was loaded for 300 queues");
    let error = steering.set_slot(299, not_a_socket.as_raw_fd()).expect_err("a file is not a socket");
    assert_eq!(error.to_string(), "giving the frames of queue 299 to its socket");
    steering.clear_slots().expect("empty slots can be cleared");
}

/// Keeps the records.
struct Records(Mutex<Vec<String>>);

impl log::Log for Records {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        self.0.lock().expect("no test panics with the lock").push(record.args().to_string().trim_end().to_owned());
    }

    fn flush(&self) {}
}

#[test]
fn the_log_names_verdicts_and_is_bounded() {
    let records = Records(Mutex::default());
    let mut steering = serving(&Settings { log: true, ..settings() });
    let mut logger = steering.logger(&records).expect("there is a log");
    check_with(
        &mut steering,
        [("a query", v4(), NoWorker), ("another port", with(v4(), at::V4_UDP + at::DST_PORT, &[0, 54]), OtherPort)],
    );
    logger.flush();
    let first = records.0.lock().expect("no test panics with the lock").clone();
    assert_eq!(first, ["queue 0, 59 bytes: no_worker", "queue 0, 59 bytes: other_port"]);

    let (_, per_run) = steering.test_run(&v4(), 100_000).expect("the kernel runs the program");
    logger.flush();
    let logged = records.0.lock().expect("no test panics with the lock").len();
    // The runs may begin late in one second and end early in the next.
    assert!(logged <= 2 * LOG_RECORDS_PER_SECOND as usize, "{logged} records of 100,002 frames, {per_run:?} each");
}

#[test]
fn the_log_is_empty_when_it_is_off() {
    let records = Records(Mutex::default());
    let mut steering = serving(&settings());
    let mut logger = steering.logger(&records).expect("there is a log");
    steering.test_run(&v4(), 1000).expect("the kernel runs the program");
    logger.flush();
    assert_eq!(*records.0.lock().expect("no test panics with the lock"), Vec::<String>::new());
}

#[test]
#[ignore = "a measurement: run it alone, with --nocapture"]
fn cost() {
    let mut steering = serving(&settings());
    for (name, frame) in [
        ("other MAC", with(v4(), 0, &[0; 6])),
        ("IPv4", v4()),
        ("IPv6", v6()),
        ("tagged IPv4", tagged(v4(), &[(TAG_8021Q, 7)])),
        ("other port", with(v4(), at::V4_UDP + at::DST_PORT, &[0, 54])),
    ] {
        let best = (0..20).map(|_| steering.test_run(&frame, 1_000_000).expect("the kernel runs the program").1).min();
        println!("{name}: {best:?} a frame");
    }
}
