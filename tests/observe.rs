//! What the lab's observer counts: the kernel runs it on crafted frames (BPF_PROG_TEST_RUN), on one CPU and on queue 0.
//!
//! RESPONDER_EBPF_OBJECTS names a directory with another object to test in place of the checked-in one.

use std::{collections::BTreeMap, env, fs, path::Path};

use aya::{
    Ebpf,
    maps::HashMap,
    programs::{TestRun as _, TestRunOptions, Xdp},
};
use etherparse::PacketBuilder;
use responder_common::{Seen, map};

const XDP_PASS: u32 = 2;

fn load() -> Ebpf {
    let objects = env::var_os("RESPONDER_EBPF_OBJECTS").unwrap_or_else(|| "../responder-ebpf".into());
    let object = fs::read(Path::new(&objects).join("observe.o")).expect("the object is there");
    let mut ebpf = Ebpf::load(&object).expect("the kernel takes the maps");
    program(&mut ebpf).load().expect("the kernel takes the program");
    ebpf
}

fn program(ebpf: &mut Ebpf) -> &mut Xdp {
    ebpf.program_mut("observe").expect("the object has it").try_into().expect("it is an XDP program")
}

/// Client port -> replies, whatever the CPU.
fn seen(ebpf: &Ebpf) -> BTreeMap<u32, u64> {
    let map: HashMap<_, Seen, u64> = ebpf.map(map::SEEN).expect("the object has it").try_into().expect("it is a hash");
    let mut seen = BTreeMap::new();
    for entry in map.iter() {
        let ([client_port, queue, _cpu], replies) = entry.expect("the map can be read");
        assert_eq!(queue, 0);
        *seen.entry(client_port).or_default() += replies;
    }
    seen
}

fn v4(source_port: u16, client_port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv4([192, 0, 2, 1], [192, 0, 2, 2], 64);
    builder.udp(source_port, client_port).write(&mut frame, &[]).expect("a frame");
    frame
}

fn v6(source_port: u16, client_port: u16) -> Vec<u8> {
    let mut frame = Vec::new();
    let builder = PacketBuilder::ethernet2([2; 6], [4; 6]).ipv6([0xfd; 16], [0xfc; 16], 64);
    builder.udp(source_port, client_port).write(&mut frame, &[]).expect("a frame");
    frame
}

#[test]
fn replies_are_counted_by_client_port_and_all_frames_pass() {
    let mut ebpf = load();
    let mut tcp = v4(53, 9);
    tcp[14 + 9] = 6;
    let mut arp = v4(53, 9);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let mut frames = vec![
        v4(53, 1000),
        v4(53, 1000),
        v4(53, 1001),
        v6(53, 1000),
        v6(53, 65535),
        v4(54, 9),
        v6(54, 9),
        v4(9, 53),
        tcp,
        arp,
    ];
    // Cut short anywhere, there is no port to be seen.
    frames.extend((14..14 + 20 + 8).map(|len| v4(53, 9)[..len].to_vec()));
    frames.extend((14..14 + 40 + 8).map(|len| v6(53, 9)[..len].to_vec()));
    for frame in frames {
        let options = TestRunOptions { data_in: Some(&frame), ..TestRunOptions::new() };
        let result = program(&mut ebpf).test_run(options).expect("the kernel runs the program");
        assert_eq!(result.return_value, XDP_PASS, "{frame:02x?}");
    }
    assert_eq!(seen(&ebpf), BTreeMap::from([(1000, 3), (1001, 1), (65535, 1)]));
}
