//! The rules of a server, through its one entrance.

use super::*;
use crate::{
    answer::policy::AnyPolicy,
    guard::{cookie::Secrets, rrl::Settings},
    wire::message::Rcode,
    zone::Published,
};

const ZONE: &[u8] =
    b"$TTL 60\n@ SOA ns1 host 1 2 3 4 5\n@ NS ns1\nns1 A 192.0.2.1\nwww A 192.0.2.80\n*.wild A 192.0.2.81\n\
    child NS ns.child\nns.child A 192.0.2.82\nd DNAME example.net.\nent.x TXT t\n$GENERATE 1-100 big A 10.0.0.$\n";

fn dns() -> Service {
    Service::Dns(Published::new(Zones::from_text("example.com", ZONE).unwrap()).view())
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn query(name: &str, qtype: u8) -> Vec<u8> {
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.').filter(|label| !label.is_empty()) {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, qtype, 0, 1, 0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
    query
}

/// A server with these rules, and one worker of it.
struct Server {
    service: Service,
    rules: Latest<Rules>,
    state: State,
    counters: Counters,
}

impl Server {
    fn new(rules: Rules) -> Self {
        let rules = Latest::new(rules);
        let mut state = State::new(&rules, 1, 1500);
        state.refresh(|| 0);
        Self { service: dns(), state, rules, counters: Counters::default() }
    }

    fn ask(&mut self, query: &[u8], client: &str, transport: Transport) -> Result<Vec<u8>, DropReason> {
        let mut buffer = vec![0; 65_535];
        buffer[..query.len()].copy_from_slice(query);
        match self.service.serve(&mut self.state, &mut buffer, query.len(), ip(client), transport, &self.counters) {
            Outcome::Reply(length) => Ok(buffer[..length].to_vec()),
            Outcome::Drop(reason) => Err(reason),
        }
    }

    /// How many replies are whole, cut short, missing.
    fn flood(&mut self, names: impl Iterator<Item = String>, qtype: u8) -> [usize; 3] {
        let mut counts = [0; 3];
        for name in names {
            match self.ask(&query(&name, qtype), "192.0.2.200", Transport::Udp) {
                Ok(reply) if reply[2] & 2 == 0 => counts[0] += 1,
                Ok(_) => counts[1] += 1,
                Err(reason) => {
                    assert_eq!(reason, DropReason::LimitedDropped);
                    counts[2] += 1;
                }
            }
        }
        counts
    }
}

fn limit(rate: u32, slip: u32) -> Rules {
    Rules { rrl: Some(Settings { rate, slip, accounts: 1024, ..Settings::default() }), ..Rules::default() }
}

fn acl(entries: &[(&str, Action)]) -> Acl {
    Acl::new(entries.iter().map(|(prefix, action)| (prefix.parse().unwrap(), *action)))
}

/// Whatever an attacker varies in the name, answers of a kind share an account; and none shares it with another kind.
#[test]
fn answers_that_are_alike_are_limited_together() {
    let mut server = Server::new(limit(10, 0));
    let many = |suffix: &'static str| (0..50).map(move |n| format!("n{n}.{suffix}"));
    for (what, suffix, qtype) in [
        ("NXDOMAIN of a zone", "example.com", 1),
        ("a wildcard", "wild.example.com", 1),
        ("no data at a wildcard", "wild.example.com", 15),
        ("a referral", "child.example.com", 1),
        ("a DNAME", "d.example.com", 1),
        ("errors", "example.org", 1),
    ] {
        assert_eq!(server.flood(many(suffix), qtype), [10, 0, 40], "{what}");
    }
    for name in ["www.example.com", "ns1.example.com"] {
        let same = |count| std::iter::repeat_n(name.to_owned(), count);
        assert_eq!(server.flood(same(50), 1), [10, 0, 40], "{name}");
        assert_eq!(server.flood(same(50), 15), [10, 0, 40], "no data at {name}");
    }
    // Other errors share the account of REFUSED.
    let mut badvers = query("www.example.com", 1);
    let version_at = badvers.len() - 5;
    badvers[version_at] = 1;
    for message in [badvers, vec![0; 12]] {
        let outcome = server.ask(&message, "192.0.2.200", Transport::Udp);
        assert_eq!(outcome, Err(DropReason::LimitedDropped), "{message:?}");
    }
}

/// A truncated answer, as RFC 2181 section 9 has it: question and OPT stay, and the client asks again over TCP, which has no limit.
#[test]
fn slipped_answers_lead_to_tcp() {
    let mut server = Server::new(limit(10, 2));
    let names = std::iter::repeat_n("www.example.com".to_owned(), 50);
    assert_eq!(server.flood(names, 1), [10, 20, 20]);
    assert_eq!(server.counters.limited_slipped(), 20);
    let mut server = Server::new(limit(1, 1));
    for (name, aa) in [("www.example.com", 4), ("no.example.com", 4), ("x.child.example.com", 0)] {
        let query = query(name, 1);
        server.ask(&query, "192.0.2.200", Transport::Udp).unwrap();
        let slipped = server.ask(&query, "192.0.2.200", Transport::Udp).unwrap();
        assert_eq!(slipped[2], 0x80 | aa | 2 | 1, "{name}: a response with TC, and RD as asked");
        assert_eq!(slipped[4..12], [0, 1, 0, 0, 0, 0, 0, 1]);
        assert_eq!(slipped[12..], query[12..], "{name}: question and OPT");
        let whole = server.ask(&query, "192.0.2.200", Transport::Tcp).unwrap();
        assert!(whole[2] & 2 == 0 && whole.len() > slipped.len());
    }
}

#[test]
fn a_valid_cookie_lifts_the_limit() {
    let mut rules = limit(1, 0);
    rules.policy.cookies = Cookies::On(Secrets::random());
    let mut server = Server::new(rules);
    server.state.refresh(|| 1_700_000_000);
    let with_cookie = |cookie: &[u8]| {
        let mut message = query("www.example.com", 1);
        let length = u8::try_from(cookie.len()).unwrap();
        *message.last_mut().unwrap() = length + 4;
        [&message[..], &[0, 10, 0, length], cookie].concat()
    };
    let first = server.ask(&with_cookie(&[5; 8]), "192.0.2.200", Transport::Udp).unwrap();
    let cookie = *first.last_chunk::<24>().unwrap();
    for _ in 0..100 {
        server.ask(&with_cookie(&cookie), "192.0.2.200", Transport::Udp).unwrap();
        for (cookie, client) in [(&cookie[..8], "192.0.2.200"), (&cookie, "192.0.2.201")] {
            let outcome = server.ask(&with_cookie(cookie), client, Transport::Udp);
            assert_eq!(outcome, Err(DropReason::LimitedDropped));
        }
    }
}

/// New rules act from the next batch on; who was over the limit stays so while the limit is the same.
#[test]
fn rules_are_replaced_while_running() {
    let mut server = Server::new(limit(1, 0));
    let www = query("www.example.com", 1);
    let mut outcomes = |rules: Option<Rules>| {
        if let Some(rules) = rules {
            server.rules.set(rules);
        }
        server.state.refresh(|| 0);
        server.ask(&www, "192.0.2.200", Transport::Udp).map(|reply| reply[3] & 15)
    };
    assert_eq!(outcomes(None), Ok(0));
    assert_eq!(outcomes(None), Err(DropReason::LimitedDropped));
    let refused = acl(&[("192.0.2.0/24", Action::Refuse)]);
    assert_eq!(outcomes(Some(Rules { acl: refused, ..Rules::default() })), Ok(5));
    let dropped = acl(&[("192.0.2.0/24", Action::Drop)]);
    assert_eq!(outcomes(Some(Rules { acl: dropped, ..limit(2, 0) })), Err(DropReason::AclDropped));
    assert_eq!(outcomes(Some(limit(2, 0))), Ok(0));
    let with_any = Policy { any: AnyPolicy::Hinfo, ..Policy::DEFAULT };
    assert_eq!(outcomes(Some(Rules { policy: with_any, ..limit(2, 0) })), Ok(0));
    assert_eq!(outcomes(None), Err(DropReason::LimitedDropped), "the account was kept");
}

/// Other services have no way to refuse.
#[test]
fn the_access_list_is_for_all_services() {
    let rules = Rules { acl: acl(&[("192.0.2.1", Action::Refuse), ("192.0.2.2", Action::Drop)]), ..Rules::default() };
    for (service, allowed) in [(Service::Echo, Outcome::Reply(12)), (Service::Sink, Outcome::Drop(DropReason::Sunk))] {
        let mut server = Server { service, ..Server::new(rules.clone()) };
        for (client, expected) in [
            ("192.0.2.1", Outcome::Drop(DropReason::AclDropped)),
            ("192.0.2.2", Outcome::Drop(DropReason::AclDropped)),
            ("192.0.2.3", allowed),
        ] {
            let outcome =
                server.service.serve(&mut server.state, &mut [0; 12], 12, ip(client), Transport::Udp, &server.counters);
            assert_eq!(outcome, expected, "{client}");
        }
    }
}

/// RFC 6891 section 6.2.5: no reply is larger, nor do we say that we take more, than what fits the interface's MTU.
#[test]
fn payload_sizes_fit_the_mtu() {
    let big = {
        let mut message = query("big.example.com", 1);
        let size_at = message.len() - 8;
        message[size_at..size_at + 2].copy_from_slice(&[0xff, 0xff]);
        message
    };
    for (mtu, configured, said) in
        [(1500, 1232, 1232), (1500, 4096, 1452), (1280, 4096, 1232), (9000, 4096, 4096), (0, 4096, 512), (1500, 0, 512)]
    {
        let policy = Policy { udp_payload_max: configured, ..Policy::DEFAULT };
        let rules = Latest::new(Rules { policy, ..Rules::default() });
        let mut state = State::new(&rules, 1, mtu);
        let mut buffer = vec![0; 65_535];
        buffer[..big.len()].copy_from_slice(&big);
        let outcome =
            dns().serve(&mut state, &mut buffer, big.len(), ip("192.0.2.1"), Transport::Udp, &Counters::default());
        let Outcome::Reply(length) = outcome else { panic!("{outcome:?}") };
        assert!(length <= usize::from(said), "MTU {mtu}");
        let size_at = length - 8;
        assert_eq!(u16::from_be_bytes([buffer[size_at], buffer[size_at + 1]]), said, "MTU {mtu}");
    }
}

/// RFC 1035 section 4.1.1, RFC 6891 section 9, RFC 7873 section 8: an RCODE above 15 is counted as itself and not by its lower bits.
#[test]
fn replies_are_counted_by_what_they_are() {
    let policy = Policy { cookies: Cookies::Required(Secrets::random()), ..Policy::default() };
    let mut server = Server::new(Rules { acl: acl(&[("192.0.2.66/32", Action::Refuse)]), policy, ..Rules::default() });
    let mut badvers = query("www.example.com", 1);
    let version_at = badvers.len() - 5;
    badvers[version_at] = 1;
    let mut with_cookie = query("www.example.com", 1);
    let length_at = with_cookie.len() - 1;
    with_cookie[length_at] = 12;
    with_cookie.extend(b"\0\x0a\0\x08clients!");
    for (message, client, transport) in [
        (query("www.example.com", 1), "192.0.2.1", Transport::Udp),
        (query("www.example.com", 28), "2001:db8::1", Transport::Tcp),
        (query("no.example.com", 1), "2001:db8::1", Transport::Udp),
        (query("www.example.com", 1), "192.0.2.66", Transport::Udp),
        (query("x.d.example.com", 1), "192.0.2.1", Transport::Udp),
        (badvers, "192.0.2.1", Transport::Udp),
        (with_cookie, "192.0.2.1", Transport::Udp),
        (vec![0; 12], "192.0.2.1", Transport::Udp),
    ] {
        server.ask(&message, client, transport).unwrap();
    }
    // As many addresses as do not fit.
    let mut plain = query("www.example.com", 1);
    plain.truncate(plain.len() - 11);
    plain[11] = 0;
    let big = [&plain[..12], b"\x03big", &plain[16..]].concat();
    assert_eq!(server.ask(&big, "192.0.2.1", Transport::Udp).unwrap()[2] & TC, TC);
    let found: Vec<_> = server.counters.replies().filter(|(_, _, count)| *count > 0).collect();
    let expected = [
        (Family::Ipv4, Rcode::NOERROR, 3),
        (Family::Ipv4, Rcode::FORMERR, 1),
        (Family::Ipv4, Rcode::REFUSED, 1),
        (Family::Ipv4, Rcode::BADVERS, 1),
        (Family::Ipv4, Rcode::BADCOOKIE, 1),
        (Family::Ipv6, Rcode::NOERROR, 1),
        (Family::Ipv6, Rcode::NXDOMAIN, 1),
    ];
    assert_eq!(found, expected);
    let qtypes: Vec<_> = server.counters.qtypes().filter(|(_, count)| *count > 0).collect();
    assert_eq!(qtypes, [("A", 6), ("AAAA", 1), ("other", 2)]);
    assert_eq!(server.counters.truncated(), 1);
}
