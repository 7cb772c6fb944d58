//! Answering allocates nothing, whatever is asked and by whatever rules: the allocator counts.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
};

use responder::{
    answer::{
        Limits, Outcome, Transport,
        policy::{AnyPolicy, Cookies, Identifier, Order, Policy},
        respond,
    },
    counters::Counters,
    guard::{acl::Acl, cookie::Secrets, rrl::Settings},
    latest::Latest,
    service::{Rules, Service, State},
    zone::{Published, Zones},
};

struct Counting;

thread_local! {
    /// Of this thread alone: the test harness allocates on others.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

#[allow(unsafe_code, reason = "an allocator is unsafe by its trait; this one counts and hands on to the system's")]
// SAFETY: every call goes to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller keeps the contract of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract of `dealloc`, and the system's allocator made it.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ZONE: &[u8] = b"$TTL 60\n@ SOA ns1 host 1 2 3 4 5\n@ NS ns1\nns1 A 192.0.2.1\nwww AAAA 2001:db8::1\n*.wild MX 1 ns1\nc CNAME www\n\
    d DNAME example.net.\nchild NS ns.child\nns.child A 192.0.2.2\n$GENERATE 1-200 big A 10.0.0.$\n";

fn query(name: &str, qtype: u8) -> Vec<u8> {
    let mut query = vec![0, 1, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
    for label in name.split('.') {
        query.push(u8::try_from(label.len()).unwrap());
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, qtype, 0, 1, 0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
    query
}

fn queries() -> Vec<Vec<u8>> {
    let names = ["www", "no", "a.b.wild", "c", "x.d", "a.child", "child", "big", "ns1"];
    let mut queries: Vec<Vec<u8>> =
        vec![vec![0; 12], vec![0xff; 40], query("example.org", 1), query("example.com", 252)];
    for name in names {
        for qtype in [1, 15, 28, 43, 255] {
            let whole = query(&format!("{name}.example.com"), qtype);
            queries.push(whole[..whole.len() - 3].to_vec());
            // NSID, a cookie, and an option that nobody knows.
            let options = [&[0, 3, 0, 0, 0, 10, 0, 8], &b"8 bytes!"[..], &[0, 99, 0, 1, 7]].concat();
            let length = u8::try_from(options.len()).unwrap();
            queries.push([&whole[..whole.len() - 1], &[length], &options].concat());
            queries.push(whole);
        }
    }
    queries
}

#[test]
fn respond_allocates_nothing() {
    let zones = Zones::from_text("example.com", ZONE).unwrap();
    let mut message = vec![0; 65_535];
    for query in &queries() {
        for transport in [Transport::Udp, Transport::Tcp] {
            message[..query.len()].copy_from_slice(query);
            let before = ALLOCATIONS.get();
            let outcome = respond(&zones, &mut message, query.len(), Limits { transport, udp_payload_max: 1232 });
            assert_eq!(ALLOCATIONS.get(), before, "{outcome:?} for {query:?}");
            assert!(query[0] == 0xff || matches!(outcome, Outcome::Reply(_)));
        }
    }
    assert!(ALLOCATIONS.get() > 0, "the allocator counts");
}

#[test]
fn all_rules_together_allocate_nothing() {
    let service = Service::Dns(Published::new(Zones::from_text("example.com", ZONE).unwrap()).view());
    let policy = Policy {
        nsid: Some(Identifier::new(*b"here").unwrap()),
        cookies: Cookies::On(Secrets::random()),
        any: AnyPolicy::Hinfo,
        rrset_order: Order::Rotate,
        ..Policy::default()
    };
    let acl =
        Acl::new([("192.0.2.0/24", Default::default())].map(|(prefix, action)| (prefix.parse().unwrap(), action)));
    let rrl = Some(Settings { rate: 2, accounts: 64, ..Settings::default() });
    let mut state = State::new(&Latest::new(Rules { acl, rrl, policy }), 1, 1500);
    state.refresh(|| 1);
    let counters = Counters::default();
    let mut message = vec![0; 65_535];
    let before = ALLOCATIONS.get();
    let queries = queries();
    let made = ALLOCATIONS.get() - before;
    for _ in 0..5 {
        for query in &queries {
            for transport in [Transport::Udp, Transport::Tcp] {
                message[..query.len()].copy_from_slice(query);
                service.serve(&mut state, &mut message, query.len(), [192, 0, 2, 1].into(), transport, &counters);
            }
        }
        state.refresh(|| 2);
    }
    assert_eq!(ALLOCATIONS.get() - before, made);
    assert!(counters.limited_slipped() > 0, "the limit was reached");
}
