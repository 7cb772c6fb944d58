//! Any bytes as a DNS message, over UDP and TCP, by the default policy and by one with all that can be chosen.
//!
//! Asserts that a reply has the query's ID and is a response, keeps to every bound, and that its counts, lengths and pointers come out at its
//! end. The first two bytes choose the bounds.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use responder::{
    answer::{
        Asked, Limits, Outcome, Transport, finished,
        policy::{AnyPolicy, Cookies, Identifier, Policy},
        respond_to,
    },
    guard::cookie::Secrets,
    zone::Zones,
};

static POLICIES: LazyLock<[Policy; 2]> = LazyLock::new(|| {
    let identifier = || Some(Identifier::new(*b"fuzzed").expect("it is short"));
    let rich = Policy {
        nsid: identifier(),
        identity: identifier(),
        version: identifier(),
        cookies: Cookies::Required(Secrets { current: [1; 16], previous: Some([2; 16]) }),
        any: AnyPolicy::Hinfo,
        ..Policy::DEFAULT
    };
    [Policy::DEFAULT, rich]
});

static ZONES: LazyLock<[Zones; 2]> = LazyLock::new(|| {
    let example = include_bytes!("../../examples/zones/example.com.zone");
    // A root with everything in it that the example has not.
    let root = b". 60 SOA a b 1 2 3 4 5\n. 60 NS a\na 60 A 192.0.2.1\n* 60 MX 1 x.*\n* 60 TXT t\nc 60 CNAME x.d\nd 60 DNAME c\n\
        n 60 NS n.n\nn 60 NS a\nn.n 60 AAAA ::1\nl 60 CNAME m\nm 60 CNAME l\n$GENERATE 1-200 big 60 A 10.0.0.$\nbm 60 MX 1 big\n";
    [Zones::from_text("example.com", example), Zones::from_text(".", root)].map(|zones| zones.expect("the zones load"))
});

fuzz_target!(|bytes: &[u8]| {
    let [room, payload, message @ ..] = bytes else { return };
    let ways = [(0, Transport::Udp), (0, Transport::Tcp), (1, Transport::Udp), (1, Transport::Tcp)];
    for (zones, (policy, transport)) in ZONES.iter().flat_map(|zones| ways.map(|way| (zones, way))) {
        let limits = Limits { transport, udp_payload_max: u16::from(*payload) * 32 };
        let mut buffer = message.to_vec();
        buffer.resize(message.len() + usize::from(*room) * 16, 0xaa);
        let mut asked = Asked { policy: &POLICIES[policy], ..Asked::plainly(limits) };
        let Outcome::Reply(length) = respond_to(zones, &mut buffer, message.len(), &mut asked) else { continue };
        assert!(length <= buffer.len());
        if transport == Transport::Udp {
            assert!(length <= usize::from(limits.udp_payload_max.max(512)));
        }
        assert_eq!(buffer[..2], message[..2], "the ID is the query's");
        assert_eq!(buffer[2] & 0xf9, message[2] & 0x79 | 0x80, "a response, with the opcode and RD of the query");
        walk(&buffer[..length]);
        if policy == 1 {
            finished::rotate(&mut buffer[..length], u32::from(*payload) << 24);
            walk(&buffer[..length]);
            let _ = finished::about(&buffer[..length], &asked.noted);
            let length = finished::cut_short(&mut buffer[..length]);
            walk(&buffer[..length]);
        }
    }
});

/// Reads a message as RFC 1035 section 4.1 has it.
fn walk(message: &[u8]) {
    let count = |at: usize| usize::from(message[at]) << 8 | usize::from(message[at + 1]);
    let mut at = 12;
    for _ in 0..count(4) {
        at = name(message, at) + 4;
    }
    for _ in 0..count(6) + count(8) + count(10) {
        at = name(message, at);
        let end = at + 10 + count(at + 8);
        match count(at) {
            2 | 5 | 12 | 39 => assert_eq!(name(message, at + 10), end),
            15 => assert_eq!(name(message, at + 12), end),
            6 => assert_eq!(name(message, name(message, at + 10)) + 20, end),
            _ => {}
        }
        at = end;
    }
    assert_eq!(at, message.len(), "the counts are those of the records");
}

/// The offset behind a name, whose pointers go backwards and end.
fn name(message: &[u8], start: usize) -> usize {
    let (mut at, mut end, mut length) = (start, None, 1);
    loop {
        match message[at] {
            0 => return end.unwrap_or(at + 1),
            high @ 0xc0.. => {
                let target = usize::from(high & 0x3f) << 8 | usize::from(message[at + 1]);
                assert!(target < at && target >= 12, "a pointer at {at} to {target}");
                end = end.or(Some(at + 2));
                at = target;
            }
            label => {
                assert!(label < 64);
                length += 1 + usize::from(label);
                at += 1 + usize::from(label);
            }
        }
        assert!(length <= 255, "a name of more than 255 bytes");
    }
}
