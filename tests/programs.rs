//! What the smaller XDP programs make of each kind of frame: the lab's observer, the reflector of the benches, and `gather`, which takes the load
//! generator's replies in. The kernel runs them on crafted frames (BPF_PROG_TEST_RUN), on one CPU and on queue 0. `classify` has `steering.rs`.
//!
//! RESPONDER_EBPF_OBJECTS names a directory with other objects to test in place of the checked-in ones.

use std::{collections::BTreeMap, env, fs, path::Path};

use aya::{
    Ebpf, EbpfLoader,
    maps::{HashMap, PerCpuArray},
    programs::{TestRun as _, TestRunOptions, Xdp},
};
use etherparse::{EtherType, PacketBuilder, VlanId};
use nix::time::{ClockId, clock_gettime};
use responder_common::{Seen, global, map};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;

/// Where the IP header of an untagged frame is.
const IP: usize = 14;
const TAG_8021AD: EtherType = EtherType::PROVIDER_BRIDGING;

/// The program `name` of the object of the same name.
fn load(name: &str, loader: &mut EbpfLoader<'_>) -> Ebpf {
    let objects = env::var_os("RESPONDER_EBPF_OBJECTS").unwrap_or_else(|| "../responder-ebpf".into());
    let object = fs::read(Path::new(&objects).join(name).with_extension("o")).expect("the object is there");
    let mut ebpf = loader.load(&object).expect("the kernel takes the maps");
    program(&mut ebpf).load().expect("the kernel takes the program");
    ebpf
}

/// The only one of the object.
fn program(ebpf: &mut Ebpf) -> &mut Xdp {
    let (_, program) = ebpf.programs_mut().next().expect("the object has one");
    program.try_into().expect("it is an XDP program")
}

/// What the program returns for a frame, and what it makes of it.
fn run(ebpf: &mut Ebpf, frame: &[u8]) -> (u32, Vec<u8>) {
    let mut out = vec![0; frame.len() + 64];
    let options = TestRunOptions { data_in: Some(frame), data_out: Some(&mut out), ..TestRunOptions::new() };
    let result = program(ebpf).test_run(options).expect("the kernel runs the program");
    out.truncate(result.data_size_out as usize);
    (result.return_value, out)
}

fn v4(source_port: u16, port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
    builder.udp(source_port, port).write(&mut frame, b"payload").expect("a frame");
    frame
}

fn v6(source_port: u16, port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([0xfd; 16], [0xfc; 16], 64);
    builder.udp(source_port, port).write(&mut frame, b"payload").expect("a frame");
    frame
}

/// The frame behind one tag more.
fn tagged(frame: &[u8], ether_type: EtherType, id: u16) -> Vec<u8> {
    let id = VlanId::try_new(id).expect("12 bits").value().to_be_bytes();
    [&frame[..12], &ether_type.0.to_be_bytes(), &id, &frame[12..]].concat()
}

fn changed(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

/// Frames that are no UDP datagram whose ports a program could see, though they would be with these ports.
fn others(source_port: u16, port: u16) -> Vec<Vec<u8>> {
    let [v4, v6] = [v4(source_port, port), v6(source_port, port)];
    let mut frames = vec![
        changed(v4.clone(), IP + 9, &[6]),
        changed(v4.clone(), IP, &[0x46]),
        changed(v4.clone(), IP + 6, &[0, 1]),
        changed(v4.clone(), 12, &[0x08, 0x06]),
        changed(v6.clone(), IP + 6, &[0]),
        tagged(&tagged(&tagged(&v4, EtherType::VLAN_TAGGED_FRAME, 7), TAG_8021AD, 8), TAG_8021AD, 9),
    ];
    // Cut short anywhere, there is no port to be seen. The kernel tests with no less than an Ethernet header.
    frames.extend((IP..IP + 20 + 8).map(|length| v4[..length].to_vec()));
    frames.extend((IP..IP + 40 + 8).map(|length| v6[..length].to_vec()));
    frames
}

/// The same datagram over IPv4 and IPv6, then both with a tag, then both with two.
fn same(source_port: u16, port: u16) -> Vec<Vec<u8>> {
    let plain = [v4(source_port, port), v6(source_port, port)];
    let one = plain.clone().map(|frame| tagged(&frame, EtherType::VLAN_TAGGED_FRAME, 7));
    let two = one.clone().map(|frame| tagged(&frame, TAG_8021AD, 8));
    [plain, one, two].concat()
}

#[test]
fn the_observer_counts_replies_by_client_port_and_all_frames_pass() {
    let mut ebpf = load("observe", &mut EbpfLoader::new());
    let frames = [
        vec![v4(53, 1000), v4(53, 1000), v4(53, 1001), v6(53, 1000), v6(53, 65535)],
        same(53, 2000),
        vec![v4(54, 9), v6(54, 9), v4(9, 53)],
        others(53, 9),
    ];
    for frame in frames.concat() {
        assert_eq!(run(&mut ebpf, &frame), (XDP_PASS, frame.clone()), "{frame:02x?}");
    }
    let map: HashMap<_, Seen, u64> = ebpf.map(map::SEEN).expect("the object has it").try_into().expect("it is a hash");
    let mut seen = BTreeMap::new();
    for entry in map.iter() {
        let ([client_port, queue, _cpu], replies) = entry.expect("the map can be read");
        assert_eq!(queue, 0);
        *seen.entry(client_port).or_insert(0) += replies;
    }
    assert_eq!(seen, BTreeMap::from([(1000, 3), (1001, 1), (2000, 6), (65535, 1)]));
}

/// What comes back is the query with both ends of each layer changed over, and nothing else: no checksum notices that.
#[test]
fn the_reflector_sends_queries_back_and_passes_the_rest_as_it_was() {
    let mut ebpf = load("reflect", &mut EbpfLoader::new());
    for (index, query) in same(1000, 53).into_iter().enumerate() {
        let ip = IP + 4 * (index / 2);
        let (addresses, length, ports) = [(ip + 12, 4, ip + 20), (ip + 8, 16, ip + 40)][index % 2];
        let mut back = query.clone();
        for (at, length) in [(0, 6), (addresses, length), (ports, 2)] {
            back[at..at + 2 * length].rotate_left(length);
        }
        let (action, frame) = run(&mut ebpf, &query);
        assert_eq!(action, XDP_TX, "{query:02x?}");
        assert_eq!(frame, back, "{query:02x?}");
    }
    for frame in [same(53, 1000), same(1000, 54), others(1000, 53)].concat() {
        assert_eq!(run(&mut ebpf, &frame), (XDP_PASS, frame.clone()), "{frame:02x?}");
    }
}

/// `gather` for replies from port 5300 to the ports 1000 to 1002.
fn gather(count_only: u8) -> Ebpf {
    let mut loader = EbpfLoader::new();
    let [asked, first, last] = [5300_u16, 1000, 1002];
    loader
        .override_global(global::ASKED_PORT, &asked, true)
        .override_global(global::FIRST_PORT, &first, true)
        .override_global(global::LAST_PORT, &last, true)
        .override_global(global::COUNT_ONLY, &count_only, true);
    load("gather", &mut loader)
}

/// Frames that are no reply to what this generator has asked.
fn strangers() -> Vec<Vec<u8>> {
    [same(5300, 999), same(5300, 1003), same(53, 1000), same(1000, 5300), others(5300, 1000)].concat()
}

/// No socket is bound here, so that what would be given to one is passed, with its time in front.
#[test]
fn a_gathered_reply_has_the_time_in_front_of_it() {
    let mut ebpf = gather(0);
    let now = || clock_gettime(ClockId::CLOCK_MONOTONIC).expect("there is a clock");
    let nanoseconds = |time: nix::sys::time::TimeSpec| {
        u64::try_from(time.tv_sec() * 1_000_000_000 + time.tv_nsec()).expect("it is after the start of the machine")
    };
    for reply in [same(5300, 1000), same(5300, 1001), same(5300, 1002)].concat() {
        let before = nanoseconds(now());
        let (action, frame) = run(&mut ebpf, &reply);
        let after = nanoseconds(now());
        let (stamp, rest) = frame.split_first_chunk::<8>().expect("there is a frame");
        assert_eq!((action, rest), (XDP_PASS, &reply[..]));
        assert!((before..=after).contains(&u64::from_ne_bytes(*stamp)), "{reply:02x?}");
    }
    for frame in strangers() {
        assert_eq!(run(&mut ebpf, &frame), (XDP_PASS, frame.clone()), "{frame:02x?}");
    }
}

#[test]
fn replies_that_nobody_wants_are_counted_and_dropped_and_nothing_else_is() {
    let mut ebpf = gather(1);
    let replies = [same(5300, 1000), same(5300, 1002)].concat();
    for reply in &replies {
        assert_eq!(run(&mut ebpf, reply), (XDP_DROP, reply.clone()));
    }
    for frame in strangers() {
        assert_eq!(run(&mut ebpf, &frame).0, XDP_PASS, "{frame:02x?}");
    }
    let unseen: PerCpuArray<_, u64> =
        ebpf.map(map::UNSEEN).expect("the object has it").try_into().expect("it is an array");
    let counted: u64 = unseen.get(&0, 0).expect("the map can be read").iter().sum();
    assert_eq!(counted, replies.len() as u64);
}
