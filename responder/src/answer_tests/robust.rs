//! Any bytes at all: no panic, and every reply within its bounds.

use super::*;

/// A small generator of numbers that are the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 >> 11).unwrap() % bound
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let zones = zones(&[
        (
            "example.com",
            "www A 192.0.2.80\n*.w MX 10 www\nchild NS ns.child\nns.child A 192.0.2.9\nd DNAME d.example.net.\nc CNAME www\n",
        ),
        ("b.d.example.com", "www A 192.0.2.81\n"),
        ("test", "* A 192.0.2.1\n* TXT wild\n"),
    ]);
    let names = ["www", "x.w", "x.child", "y.d", "c", "no.such", "b.d", "x.b.d", ""];
    let types = ["A", "MX", "ANY", "DS", "CNAME", "AXFR", "OPT", "DNAME", "SOA"];
    let mut numbers = Numbers(0x1234_5678_9abc_def1);
    for round in 0..200_000 {
        let name = format!("{}.example.com", names[numbers.below(names.len())]);
        let name = if numbers.below(8) == 0 { "a.test" } else { name.trim_start_matches('.') };
        let question = format!("{name} {}", types[numbers.below(types.len())]);
        let size = u16::try_from(numbers.below(65_536)).unwrap();
        let mut message = if numbers.below(2) == 0 { query(&question) } else { query_edns(&question, size) };
        for _ in 0..numbers.below(4) {
            let at = numbers.below(message.len());
            message[at] = u8::try_from(numbers.below(256)).unwrap();
        }
        match numbers.below(8) {
            0 => message.truncate(numbers.below(message.len() + 1)),
            1 => message.extend((0..numbers.below(40)).map(|n| u8::try_from(n).unwrap())),
            2 => message = (0..numbers.below(300)).map(|_| u8::try_from(numbers.below(256)).unwrap()).collect(),
            _ => {}
        }
        let limits = Limits {
            transport: if numbers.below(2) == 0 { Transport::Udp } else { Transport::Tcp },
            udp_payload_max: u16::try_from(numbers.below(2000)).unwrap(),
        };
        let mut buffer = message.clone();
        buffer.resize(message.len() + numbers.below(600), 0xaa);
        if let Outcome::Reply(length) = respond(&zones, &mut buffer, message.len(), limits) {
            assert!(length <= buffer.len(), "round {round}");
            if limits.transport == Transport::Udp {
                assert!(length <= usize::from(limits.udp_payload_max.max(512)), "round {round}");
            }
            assert_eq!((buffer[..2] == message[..2], buffer[2] >> 7), (true, 1), "round {round}");
            walk(&buffer[..length]);
        }
    }
}
