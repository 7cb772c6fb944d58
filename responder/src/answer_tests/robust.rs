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

/// Whatever the zone, the query, its EDNS and the policy: a reply is within the client's limit (RFC 6891 section 6.2.3, RFC 1035 section 4.2.1), its
/// question is the query's bit for bit, and its header is what RFC 1035 section 4.1.1 and RFC 4035 sections 3.1.6 and 3.2.1 make of the query's.
/// Also when it was rotated or cut short.
#[test]
fn no_reply_is_longer_than_the_clients_limit() {
    use crate::{
        answer::policy::{Cookies, Identifier},
        guard::cookie::{self, Secrets},
    };
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let secrets = Secrets { current: [3; 16], previous: None };
    for _ in 0..60 {
        let mut text = String::new();
        for n in 0..numbers.below(12) {
            let (owner, sub) = (["a", "b", "*.w", "*.B.w", "e.f.g"][numbers.below(5)], numbers.below(4));
            for m in 0..1 + numbers.below(90) {
                text += &match numbers.below(5) {
                    0 => format!("{owner} TXT \"{}-{m}\"\n", "t".repeat(numbers.below(200))),
                    1 => format!("{owner} MX {n} h{m}\n"),
                    2 => format!("{owner} AAAA 2001:db8::{n}:{m}\n"),
                    3 => format!("cut{sub} NS h{m}.cut{sub}\nh{m}.cut{sub} A 192.0.2.{m}\n"),
                    _ => format!("{owner} A 192.0.{n}.{m}\nh{m} A 192.0.{n}.{m}\n"),
                };
            }
        }
        text += "c CNAME a\nC2 CNAME x.w\nd DNAME e.f.g\n";
        let zones = zone("example.com", &text);
        for _ in 0..200 {
            let names =
                ["a", "B", "x.w", "X.y.b.W", "e.f.g", "f.g", "x.cut1", "cut2", "c", "C2", "aA.d", "No.such", "h3"];
            let rtype = ["A", "MX", "AAAA", "TXT", "NS", "ANY", "SOA", "AXFR", "TYPE65280"][numbers.below(9)];
            let mut message = query(&format!("{}.Example.COM {rtype}", names[numbers.below(names.len())]));
            let question_end = message.len();
            let flags = u8::try_from(numbers.below(256)).unwrap();
            (message[2], message[3]) = (flags & 7, u8::try_from(numbers.below(256)).unwrap());
            let size = numbers.below(8) > 0;
            let size = size.then(|| [0, 512, 600, 1232, 1400, 4096, 65_535, numbers.below(3000)][numbers.below(8)]);
            if let Some(size) = size {
                let mut options = Vec::new();
                for _ in 0..numbers.below(5) {
                    let client = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
                    let content = match numbers.below(4) {
                        0 => cookie::make([9; 8], client, 0, &secrets).to_vec(),
                        1 => vec![9; 8],
                        _ => vec![0; numbers.below(50)],
                    };
                    options.extend([
                        0,
                        [3, 10, 10, 12, 15, 99][numbers.below(6)],
                        0,
                        u8::try_from(content.len()).unwrap(),
                    ]);
                    options.extend(content);
                }
                message[11] = 1;
                message.extend([&[0, 0, 41], &u16::try_from(size).unwrap().to_be_bytes()[..], &[0; 4]].concat());
                message.extend(u16::try_from(options.len()).unwrap().to_be_bytes());
                message.extend(options);
            }
            let identifier = Identifier::new(vec![b'n'; 1 + numbers.below(128)]).unwrap();
            let policy = Policy {
                nsid: (numbers.below(2) == 0).then_some(identifier),
                cookies: match numbers.below(3) {
                    0 => Cookies::Off,
                    1 => Cookies::On(secrets.clone()),
                    _ => Cookies::Required(secrets.clone()),
                },
                any: if numbers.below(2) == 0 { AnyPolicy::Hinfo } else { AnyPolicy::OneRrset },
                ..Policy::DEFAULT
            };
            let udp_payload_max = [512, 1232, 4096][numbers.below(3)];
            let limits = Limits { udp_payload_max, ..UDP };
            let limit = size.map_or(512, |size| size.min(usize::from(udp_payload_max)).max(512));
            let mut reply = vec![0xee; 65_535];
            reply[..message.len()].copy_from_slice(&message);
            let mut asked = Asked { policy: &policy, ..Asked::plainly(limits) };
            let outcome = respond_to(&zones, &mut reply, message.len(), &mut asked);
            let Outcome::Reply(length) = outcome else { panic!("{outcome:?}") };
            let as_sent = |reply: &[u8]| {
                assert!(reply.len() <= limit, "{} > {limit} for {message:?}", reply.len());
                walk(reply);
                assert_eq!(reply[12..question_end], message[12..question_end]);
                // QR; opcode and RD as asked; RA, Z and AD clear; CD as asked.
                assert_eq!((reply[2] & 0xf9, reply[3] & 0xf0), (0x80 | message[2] & 0x79, message[3] & 0x10));
                let is_last = |line: &String| line == "ar OPT";
                let lines = show(reply);
                assert_eq!(
                    lines.iter().position(is_last),
                    size.map(|_| lines.len() - 1),
                    "OPT is last, for who has it"
                );
            };
            let mut reply = reply[..length].to_vec();
            as_sent(&reply);
            crate::answer::finished::rotate(&mut reply, u32::try_from(numbers.below(1000)).unwrap());
            as_sent(&reply);
            let length = crate::answer::finished::cut_short(&mut reply);
            as_sent(&reply[..length]);
        }
    }
}
