//! What a query's EDNS options and the operator's policy make of an answer.

use super::*;
use crate::{
    answer::policy::{Cookies, Identifier},
    guard::cookie::{self, Secrets},
};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 200));
const NOW_S: u32 = 1_700_000_000;
const NSID: [u8; 4] = [0, 3, 0, 0];

fn identifier(text: &str) -> Option<Identifier> {
    Some(Identifier::new(text.as_bytes()).unwrap())
}

/// The question with an OPT record that has these options.
fn query_with(question: &str, options: &[u8]) -> Vec<u8> {
    let mut message = query_edns(question, 1232);
    let length = u16::try_from(options.len()).unwrap().to_be_bytes();
    let at = message.len() - 2;
    message[at..].copy_from_slice(&length);
    message.extend_from_slice(options);
    message
}

fn cookie_option(content: &[u8]) -> Vec<u8> {
    [&[0, 10, 0, u8::try_from(content.len()).unwrap()], content].concat()
}

/// The reply, and whether the cookie was valid.
fn send_to(zones: &Zones, message: &[u8], policy: &Policy, limits: Limits) -> (Vec<u8>, bool) {
    let mut asked = Asked { policy, client: CLIENT, now_s: NOW_S, ..Asked::plainly(limits) };
    let mut buffer = vec![0xee; 65_535];
    buffer[..message.len()].copy_from_slice(message);
    match respond_to(zones, &mut buffer, message.len(), &mut asked) {
        Outcome::Reply(length) => {
            walk(&buffer[..length]);
            (buffer[..length].to_vec(), asked.noted.has_valid_cookie)
        }
        Outcome::Drop(reason) => panic!("dropped: {reason:?}"),
    }
}

/// The options of a reply's OPT record, as `domain` finds it.
fn options(reply: &[u8]) -> Vec<u8> {
    let message = Message::from_octets(reply).unwrap();
    let last = message.additional().unwrap().last().expect("there is a record").unwrap();
    assert_eq!(last.rtype(), Rtype::OPT, "OPT is the last record");
    let opt = message.opt().expect("there is an OPT record");
    let mut bytes = Vec::new();
    for option in opt.opt().iter::<domain::base::opt::UnknownOptData<_>>() {
        let option = option.unwrap();
        bytes.extend_from_slice(&option.code().to_int().to_be_bytes());
        bytes.extend_from_slice(&u16::try_from(option.as_slice().len()).unwrap().to_be_bytes());
        bytes.extend_from_slice(option.as_slice());
    }
    bytes
}

/// RFC 6891 section 6.1.2: unknown options are ignored. RFC 5001 section 2: NSID for who asks, in any kind of answer.
#[test]
fn options_by_policy() {
    let zones = zone("example.com", "www A 192.0.2.80\nchild NS ns.child\nns.child A 192.0.2.9\n*.w MX 1 www\n");
    let named = Policy { nsid: identifier("ns1.fra"), ..Policy::DEFAULT };
    let nsid_answer = [&[0, 3, 0, 7][..], b"ns1.fra"].concat();
    let unknown = [0xff, 0xf0, 0, 2, 1, 2];
    let padding = [0, 12, 0, 3, 0, 0, 0];
    let cookie = cookie_option(&[1; 7]);
    for question in
        ["www.example.com A", "no.example.com A", "a.child.example.com A", "x.w.example.com MX", "www.example.com MX"]
    {
        for (what, asked, policy, expected) in [
            ("nothing", vec![], &named, vec![]),
            ("NSID", NSID.to_vec(), &named, nsid_answer.clone()),
            ("NSID, not configured", NSID.to_vec(), &Policy::DEFAULT, vec![]),
            ("NSID with content", vec![0, 3, 0, 1, 9], &named, nsid_answer.clone()),
            ("NSID twice", [NSID, NSID].concat(), &named, nsid_answer.clone()),
            ("unknown", unknown.to_vec(), &named, vec![]),
            ("unknown around NSID", [&unknown[..], &NSID, &unknown].concat(), &named, nsid_answer.clone()),
            ("padding (RFC 7830)", padding.to_vec(), &named, vec![]),
            ("a cookie, even a bad one, without cookies", cookie.clone(), &named, vec![]),
        ] {
            for limits in [UDP, TCP] {
                let plain = send(&zones, &query_edns(question, 1232), limits);
                let (reply, _) = send_to(&zones, &query_with(question, &asked), policy, limits);
                assert_eq!(options(&reply), expected, "{what}, {question}");
                assert_eq!(show(&reply), show(&plain), "{what}: the rest is as ever");
            }
        }
    }
}

/// RFC 7873 section 5.2 and RFC 9018.
#[test]
fn cookies() {
    let zones = zone("example.com", "www A 192.0.2.80\n");
    let secrets = Secrets { current: [7; 16], previous: Some([8; 16]) };
    let old = Secrets { current: [8; 16], previous: None };
    let (on, required) = (Cookies::On(secrets.clone()), Cookies::Required(secrets.clone()));
    let client_cookie = *b"8 bytes!";
    let fresh = cookie_option(&cookie::make(client_cookie, CLIENT, NOW_S, &secrets));
    let valid = cookie_option(&cookie::make(client_cookie, CLIENT, NOW_S - 60, &secrets));
    let valid_of_old_secret = cookie_option(&cookie::make(client_cookie, CLIENT, NOW_S - 60, &old));
    let expired = cookie_option(&cookie::make(client_cookie, CLIENT, NOW_S - 3601, &secrets));
    let of_another = cookie_option(&cookie::make(client_cookie, IpAddr::from([192, 0, 2, 1]), NOW_S, &secrets));
    let alone = cookie_option(&client_cookie);
    let strange = cookie_option(&[client_cookie, [3; 8], [4; 8], [5; 8], [6; 8]].concat());
    let malformed = cookie_option(&[1; 12]);
    let two = [valid.clone(), malformed.clone()].concat();
    let two_reversed = [malformed.clone(), valid.clone()].concat();
    const ANSWER: &str = "NOERROR aa";
    for (what, asked, code_on, code_required, is_valid) in [
        ("a client cookie alone", &alone, ANSWER, "BADCOOKIE", false),
        ("a valid one", &valid, ANSWER, ANSWER, true),
        ("a valid one of the secret before", &valid_of_old_secret, ANSWER, ANSWER, true),
        ("an expired one", &expired, ANSWER, "BADCOOKIE", false),
        ("one of another address", &of_another, ANSWER, "BADCOOKIE", false),
        ("a server cookie of another form", &strange, ANSWER, "BADCOOKIE", false),
        ("the first of two counts", &two, ANSWER, ANSWER, true),
        ("a length that none has", &malformed, "FORMERR", "FORMERR", false),
        ("such a length first", &two_reversed, "FORMERR", "FORMERR", false),
        ("none", &vec![], ANSWER, ANSWER, false),
    ] {
        for (cookies, code, limits) in [
            (&on, code_on, UDP),
            (&on, code_on, TCP),
            (&required, code_required, UDP),
            // RFC 7873 section 5.2.3: the handshake says as much as a cookie.
            (&required, code_on, TCP),
        ] {
            let policy = Policy { cookies: cookies.clone(), ..Policy::DEFAULT };
            let (reply, was_valid) = send_to(&zones, &query_with("www.example.com A", asked), &policy, limits);
            assert_eq!((show(&reply)[0].as_str(), was_valid), (code, is_valid), "{what} {limits:?}");
            let expected = if asked.is_empty() || code == "FORMERR" { &[][..] } else { &fresh };
            assert_eq!(options(&reply), expected, "{what} {limits:?}");
            assert_eq!(reply[5], 1, "{what}: the question comes back");
        }
    }
}

/// RFC 7873 section 5.4: a message without a question may ask for a cookie. Without one it is FORMERR (RFC 9619 section 4).
#[test]
fn a_cookie_alone() {
    let zones = zone("example.com", "");
    let secrets = Secrets::random();
    let alone = |options: &[u8]| {
        let length = u8::try_from(options.len()).unwrap();
        let header = [0x12, 0x34, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        [&header[..], &[0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, length], options].concat()
    };
    let fresh = cookie_option(&cookie::make([1; 8], CLIENT, NOW_S, &secrets));
    for cookies in [Cookies::On(secrets.clone()), Cookies::Required(secrets.clone())] {
        let policy = Policy { cookies, ..Policy::DEFAULT };
        for asked in [cookie_option(&[1; 8]), fresh.clone()] {
            let (reply, _) = send_to(&zones, &alone(&asked), &policy, UDP);
            assert_eq!((show(&reply), &options(&reply)), (vec!["NOERROR".into(), "ar OPT".into()], &fresh));
            assert_eq!(reply[4..12], [0, 0, 0, 0, 0, 0, 0, 1]);
        }
        for asked in [vec![], NSID.to_vec(), cookie_option(&[1; 9])] {
            assert_eq!(show(&send_to(&zones, &alone(&asked), &policy, UDP).0)[0], "FORMERR", "{asked:?}");
        }
        assert_eq!(show(&send_to(&zones, &alone(&fresh), &Policy::DEFAULT, UDP).0), ["FORMERR"]);
    }
}

/// RFC 8914: the reason, for who has EDNS.
#[test]
fn extended_errors() {
    let zones = zone("example.com", "www A 192.0.2.80\n");
    let named = Policy { nsid: identifier("x"), ..Policy::DEFAULT };
    for (question, code) in [("example.org A", 20), (". NS", 20), ("example.com AXFR", 21), ("example.org AXFR", 21)] {
        let reason = [0, 15, 0, 2, 0, code];
        let reply = send(&zones, &query_edns(question, 1232), UDP);
        assert_eq!((show(&reply), options(&reply)), (vec!["REFUSED".into(), "ar OPT".into()], reason.to_vec()));
        let (reply, _) = send_to(&zones, &query_with(question, &NSID), &named, TCP);
        assert_eq!(options(&reply), [&[0, 3, 0, 1, b'x'], &reason[..]].concat(), "{question}");
        assert_eq!(show(&send(&zones, &query(question), UDP)), ["REFUSED"], "without EDNS no reason");
    }
    let mut asked = Asked { client: CLIENT, ..Asked::plainly(UDP) };
    let message = query_edns("www.example.com A", 1232);
    let mut buffer = vec![0; 512];
    buffer[..message.len()].copy_from_slice(&message);
    let Outcome::Reply(length) = refuse(&mut buffer, message.len(), &mut asked) else { panic!("no reply") };
    assert_eq!(show(&buffer[..length]), ["REFUSED", "ar OPT"]);
    assert_eq!(options(&buffer[..length]), [0, 15, 0, 2, 0, 18]);
    // Where there is no room, it goes first.
    let message = query_edns("example.org A", 1232);
    for room in message.len()..message.len() + 6 {
        let mut buffer = vec![0; room];
        buffer[..message.len()].copy_from_slice(&message);
        assert_eq!(respond(&zones, &mut buffer, message.len(), UDP), Outcome::Reply(message.len()));
        assert!(options(&buffer[..message.len()]).is_empty());
    }
}

/// RFC 4892: class CH by configuration, and REFUSED without it.
#[test]
fn class_chaos() {
    let zones = zone("example.com", "www A 192.0.2.80\n");
    let policy = Policy { identity: identifier("ns1.fra"), version: identifier("9"), ..Policy::DEFAULT };
    let chaos = |question: &str, class: u8| {
        let mut message = query(question);
        *message.last_mut().unwrap() = class;
        message
    };
    for (question, text) in [
        ("id.server TXT", Some("ns1.fra")),
        ("HOSTNAME.bind TXT", Some("ns1.fra")),
        ("hostname.bind ANY", Some("ns1.fra")),
        ("version.bind TXT", Some("9")),
        ("version.server TXT", Some("9")),
        ("version.bind A", None),
        ("authors.bind TXT", None),
        ("x.version.bind TXT", None),
        ("www.example.com A", None),
    ] {
        let asked = chaos(question, 3);
        let (reply, _) = send_to(&zones, &asked, &policy, UDP);
        let expected = text.map_or_else(
            || vec!["REFUSED".into()],
            |text| vec!["NOERROR aa".into(), format!("an {} 0 TXT \"{text}\"", question.split(' ').next().unwrap())],
        );
        assert_eq!(show(&reply), expected, "{question}");
        assert_eq!(reply[12..asked.len()], asked[12..], "{question}");
        for (message, policy) in
            [(&asked, &Policy::DEFAULT), (&chaos(question, 4), &policy), (&chaos(question, 255), &policy)]
        {
            assert_eq!(show(&send_to(&zones, message, policy, UDP).0), ["REFUSED"], "{question}");
        }
    }
}

/// RFC 8482 section 4.2: HINFO for a name with data; aliases, referrals and names without data are as ever.
#[test]
fn any_is_hinfo_by_policy() {
    let zones = zone(
        "example.com",
        "www A 192.0.2.80\n*.w MX 1 www\nalias CNAME www\nchild NS ns.child\nns.child A 192.0.2.9\nx.ent TXT t\nd DNAME example.net.\n",
    );
    let policy = Policy { any: AnyPolicy::Hinfo, ..Policy::DEFAULT };
    let hinfo = |owner: &str| vec!["NOERROR aa".to_owned(), format!("an {owner} 3600 HINFO RFC8482 ")];
    for name in ["www.example.com", "a.b.w.example.com", "example.com", "d.example.com"] {
        let got = show(&send_to(&zones, &query(&format!("{name} ANY")), &policy, UDP).0);
        let trimmed: Vec<String> = got.iter().map(|line| line.replace('"', "")).collect();
        assert_eq!(trimmed, hinfo(name), "{name}");
    }
    for name in ["alias", "child", "x.child", "ent", "no", "a.d"] {
        let message = query(&format!("{name}.example.com ANY"));
        assert_eq!(send_to(&zones, &message, &policy, UDP).0, send(&zones, &message, UDP), "{name}");
    }
    let message = query("www.example.com A");
    assert_eq!(send_to(&zones, &message, &policy, UDP).0, send(&zones, &message, UDP));
}

/// The largest of everything: an identifier of full length, a cookie and a reason beside the longest QNAME go into 512 bytes.
#[test]
fn all_options_fit_the_smallest_reply() {
    let zones = zone("example.com", "");
    let policy = Policy {
        nsid: identifier(&"n".repeat(Identifier::MAX)),
        cookies: Cookies::Required(Secrets::random()),
        ..Policy::DEFAULT
    };
    let label = "x".repeat(63);
    let name = [&label[..], &label, &label, &label[..61]].join(".");
    let mut message = query_with(&format!("{name} A"), &[&NSID[..], &cookie_option(&[1; 8])].concat());
    let size_at = 12 + 255 + 4 + 3;
    message[size_at..size_at + 2].fill(0);
    let (reply, _) = send_to(&zones, &message, &policy, Limits { udp_payload_max: 0, ..UDP });
    assert_eq!(show(&reply), ["BADCOOKIE", "ar OPT"]);
    assert_eq!(options(&reply).len(), 4 + 128 + 4 + 24);
    assert!(Identifier::new(*b"").is_err() && Identifier::new([0; 129]).is_err());
}
