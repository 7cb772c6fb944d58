//! Any frame to its reply: the worker's whole path without a NIC.
//!
//! Asserts that a reply goes back to where the frame came from, fits, and is a frame that parses with intact checksums.
#![no_main]

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{LazyLock, Mutex},
};

use libfuzzer_sys::fuzz_target;
use responder::{
    answer::policy::{AnyPolicy, Cookies, Order, Policy},
    counters::Counters,
    guard::{AddressList, cookie::Secrets, rrl},
    latest::Latest,
    service::{Rules, Service, State},
    wire::frame::Request,
    xdp::worker::Handler,
    zone::{Published, Source, Zones},
};

const ROOM: usize = 2048 - 256;
const MTU: u32 = 1500;

/// One with all checks and rules, one without.
static HANDLERS: LazyLock<Mutex<[Handler; 2]>> = LazyLock::new(|| {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../examples/zones/example.com.zone").into();
    let zones = Zones::load(&[Source { name: "example.com".into(), file }]).expect("the example zone loads");
    let own = AddressList::default();
    own.set([IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53))]);
    let service = Service::Dns(Published::new(zones).view());
    let policy = Policy {
        cookies: Cookies::On(Secrets::random()),
        any: AnyPolicy::Hinfo,
        rrset_order: Order::Rotate,
        ..Policy::default()
    };
    let rrl = Some(rrl::Settings { rate: u32::MAX, ..rrl::Settings::default() });
    let strict = Rules { policy, rrl, ..Rules::default() };
    let handler = |(verify, rules)| {
        let state = State::new(&Latest::new(rules), 1, MTU);
        Handler::new(service.clone(), state, own.view(), verify, MTU)
    };
    Mutex::new([(true, strict), (false, Rules::default())].map(handler))
});

fuzz_target!(|bytes: &[u8]| {
    let length = bytes.len().min(ROOM);
    let counters = Counters::default();
    for handler in HANDLERS.lock().expect("no panic goes unseen").iter_mut() {
        let mut frame = [0; ROOM];
        frame[..length].copy_from_slice(&bytes[..length]);
        let Ok(reply_length) = handler.reply(&mut frame, length, &counters) else { continue };
        let query = Request::parse(&bytes[..length], false).expect("only a request has a reply");
        let reply = Request::parse(&frame[..reply_length], true).expect("a reply is a frame with intact checksums");
        assert_eq!(reply.payload().end, reply_length);
        assert!(reply_length <= 14 + 8 + MTU as usize);
        assert_eq!((&frame[..6], &frame[6..12]), (&bytes[6..12], &bytes[..6]));
        assert_ne!(query.source(&bytes[..length]), IpAddr::V4(Ipv4Addr::new(192, 0, 2, 53)));
        let (sent, got) = (&bytes[query.payload()], &frame[reply.payload()]);
        assert_eq!(sent[..2], got[..2], "the ID is the query's");
        assert_eq!((sent[2] & 0x80, got[2] & 0x80), (0, 0x80), "a query becomes a response");
    }
});
