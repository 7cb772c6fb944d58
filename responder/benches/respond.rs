//! What an answer costs: `respond KIND COUNT [LIST]` asks COUNT times, to be run under an instruction counter; `respond time [KIND]` prints the time,
//! `respond threads` how much more two threads answer than one, `respond sharing LAYOUT SECONDS` what two threads answer a second that count in `padded` blocks of
//! their own, in blocks `packed` into one cache line, or in one `shared` block. `respond load LIST` loads zones and prints how long that took, and the memory.
//! A LIST is a file of lines `NAME FILE`; without one the zone is the one that `respond zone` prints.
//!
//! ```text
//! valgrind --tool=callgrind --callgrind-out-file=/dev/null target/release/deps/respond-... exact 1000
//! ```
//!
//! The difference between a run of 1000 and one of 0 is the cost of 1000 answers, and of the loop around them, which `loop KIND COUNT` has alone.

use std::{
    env, fs,
    hint::black_box,
    process::ExitCode,
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use responder::{
    answer::{Limits, Outcome, Transport, respond},
    counters::add,
    zone::{Source, Zones},
};

/// A kind of query.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    /// Labels of one byte in front of the rest of the QNAME.
    labels: usize,
    qname: &'static str,
    qtype: u8,
    edns: bool,
}

const fn kind(name: &'static str, labels: usize, qname: &'static str, qtype: u8, edns: bool) -> Kind {
    Kind { name, labels, qname, qtype, edns }
}

/// The last two are as long as a QNAME can be, and nearly all names above it do not exist.
const KINDS: [Kind; 9] = [
    kind("exact", 0, "www.example.com", 1, false),
    kind("exact-edns", 0, "www.example.com", 1, true),
    kind("nxdomain", 0, "nothing.example.com", 1, false),
    kind("nodata", 0, "www.example.com", 15, false),
    kind("wildcard", 0, "any.wild.example.com", 1, false),
    kind("referral", 0, "www.child.example.com", 1, false),
    kind("cname", 0, "alias.example.com", 1, false),
    kind("long-wildcard", 118, "wild.example.com", 1, true),
    kind("127-labels", 126, "x", 1, true),
];
const ZONE: &str = "$TTL 3600\n@ SOA ns1 host 1 7200 900 1209600 300\n@ NS ns1\nns1 A 192.0.2.1\nwww A 192.0.2.80\n\
    *.wild A 192.0.2.81\nchild NS ns1.child\nns1.child A 192.0.2.82\nalias CNAME www\n";
const LIMITS: Limits = Limits { transport: Transport::Udp, udp_payload_max: 1232 };
const TIMED: u32 = 10_000_000;

fn main() -> ExitCode {
    // Cargo adds `--bench`.
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let zones = Zones::from_text("example.com", zone().as_bytes()).expect("the zone loads");
    match words.as_slice() {
        [] | ["time"] => {
            for kind in KINDS {
                time(&zones, kind);
            }
        }
        ["time", kind] if known(kind).is_some() => known(kind).into_iter().for_each(|kind| time(&zones, kind)),
        ["load", list] => load(list),
        ["zone"] => print!("{}", zone()),
        ["threads"] => threads(&zones),
        ["sharing", layout, seconds] => match (layout_known(layout), seconds.parse()) {
            (Some(layout), Ok(seconds)) => println!("{:.0}", sharing(&zones, layout, Duration::from_secs_f64(seconds))),
            _ => return usage(),
        },
        ["loop", kind, count] => match (known(kind), count.parse()) {
            (Some(kind), Ok(count)) => ask::<false>(&zones, kind, count),
            _ => return usage(),
        },
        [kind, count] => match (known(kind), count.parse()) {
            (Some(kind), Ok(count)) => ask::<true>(&zones, kind, count),
            _ => return usage(),
        },
        [kind, count, list] => match (known(kind), count.parse()) {
            (Some(kind), Ok(count)) => ask::<true>(&listed(list), kind, count),
            _ => return usage(),
        },
        _ => return usage(),
    }
    ExitCode::SUCCESS
}

/// With a name as deep as the longest QNAME, or labels that no name has would be skipped.
fn zone() -> String {
    format!("{ZONE}{}deep A 192.0.2.83\n", "y.".repeat(117))
}

fn listed(list: &str) -> Zones {
    let lines = fs::read_to_string(list).expect("the list can be read");
    let source = |line: &str| {
        let (name, file) = line.split_once(' ').expect("a line has a name and a file");
        Source { name: name.to_owned(), file: file.into() }
    };
    let sources: Vec<Source> = lines.lines().map(source).collect();
    Zones::load(&sources).unwrap_or_else(|errors| panic!("{errors}"))
}

fn load(list: &str) {
    let start = Instant::now();
    let zones = listed(list);
    let elapsed_s = start.elapsed().as_secs_f64();
    let status = fs::read_to_string("/proc/self/status").expect("this is Linux");
    let value = |key: &str| status.lines().find_map(|line| line.strip_prefix(key)).map_or("?", str::trim);
    let summary = zones.summary();
    let records: usize = summary.iter().map(|zone| zone.records).sum();
    println!(
        "{} zones, {records} records: {elapsed_s:.2} s, {} resident, {} at the peak",
        summary.len(),
        value("VmRSS:"),
        value("VmHWM:")
    );
}

/// Rounds of one thread and two in turn, so that a busy moment meets both; the best of each counts.
const ROUNDS: usize = 5;

fn threads(zones: &Zones) {
    let kind = KINDS[1];
    let each = TIMED / 5;
    let seconds = |threads: usize| {
        let start = Instant::now();
        thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(|| ask::<true>(zones, kind, each)))));
        start.elapsed().as_secs_f64()
    };
    let rounds: Vec<[f64; 2]> = (0..ROUNDS).map(|_| [seconds(1), seconds(2)]).collect();
    let best = |index: usize| rounds.iter().map(|round| round[index]).fold(f64::INFINITY, f64::min);
    println!("two threads answer {:.2} times what one does", 2.0 * best(0) / best(1));
}

/// What a worker counts of each query: received, answered, its RCODE, its type.
type Counted = [AtomicU64; 4];

/// On cache lines of its own; two, since CPUs fetch pairs.
#[derive(Default)]
#[repr(align(128))]
struct Padded(Counted);

/// Both threads' on one cache line.
#[derive(Default)]
#[repr(align(64))]
struct Packed([Counted; 2]);

#[derive(Clone, Copy)]
enum Layout {
    Padded,
    Packed,
    Shared,
}

fn layout_known(name: &str) -> Option<Layout> {
    [("padded", Layout::Padded), ("packed", Layout::Packed), ("shared", Layout::Shared)]
        .into_iter()
        .find_map(|(known, layout)| (known == name).then_some(layout))
}

/// Answers a second of two threads that count each of theirs in this way.
fn sharing(zones: &Zones, layout: Layout, length: Duration) -> f64 {
    /// Between two looks at the flag.
    const PART: u32 = 10_000;
    let (padded, packed, shared) = (<[Padded; 2]>::default(), Packed::default(), Padded::default());
    let (stop, parts) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = Instant::now();
    thread::scope(|scope| {
        for (padded, packed) in padded.iter().zip(&packed.0) {
            let counted = match layout {
                Layout::Padded => &padded.0,
                Layout::Packed => packed,
                Layout::Shared => &shared.0,
            };
            let (stop, parts) = (&stop, &parts);
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    match layout {
                        Layout::Padded | Layout::Packed => ask_and::<true>(zones, KINDS[1], PART, || {
                            counted.iter().for_each(|counter| add(counter, 1));
                        }),
                        Layout::Shared => ask_and::<true>(zones, KINDS[1], PART, || {
                            for counter in counted {
                                counter.fetch_add(1, Relaxed);
                            }
                        }),
                    }
                    parts.fetch_add(1, Relaxed);
                }
            });
        }
        thread::sleep(length);
        stop.store(true, Relaxed);
    });
    parts.load(Relaxed) as f64 * f64::from(PART) / start.elapsed().as_secs_f64()
}

fn usage() -> ExitCode {
    let kinds: Vec<&str> = KINDS.iter().map(|kind| kind.name).collect();
    eprintln!(
        "usage: respond KIND COUNT [LIST] | loop KIND COUNT | [time [KIND]] | threads | sharing padded|packed|shared SECONDS | zone | load LIST, with KIND \
         one of: {}",
        kinds.join(" ")
    );
    ExitCode::from(2)
}

fn known(kind: &str) -> Option<Kind> {
    KINDS.into_iter().find(|known| known.name == kind)
}

fn time(zones: &Zones, kind: Kind) {
    let start = Instant::now();
    ask::<true>(zones, kind, TIMED);
    println!("{:14} {:6.1} ns", kind.name, start.elapsed().as_secs_f64() * 1e9 / f64::from(TIMED));
}

/// Asks, or without `ANSWER` does all but that. Instructions are counted in here alone where loading takes more.
#[inline(never)]
fn ask<const ANSWER: bool>(zones: &Zones, kind: Kind, count: u32) {
    ask_and::<ANSWER>(zones, kind, count, || ());
}

/// The same, and does something more after each.
#[inline(always)]
fn ask_and<const ANSWER: bool>(zones: &Zones, kind: Kind, count: u32, after: impl Fn()) {
    let Kind { labels, qname, qtype, edns, .. } = kind;
    let mut query = vec![0x12, 0x34, 1, 0, 0, 1, 0, 0, 0, 0, 0, u8::from(edns)];
    query.extend_from_slice(&b"\x01x".repeat(labels));
    for label in qname.split('.') {
        query.push(u8::try_from(label.len()).expect("labels are short"));
        query.extend_from_slice(label.as_bytes());
    }
    query.extend_from_slice(&[0, 0, qtype, 0, 1]);
    if edns {
        query.extend_from_slice(&[0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
    }
    let mut message = [0; 2048];
    message[..query.len()].copy_from_slice(&query);
    let head: [u8; 10] = query[2..12].try_into().expect("a query is longer");
    for _ in 0..count {
        // As good as new: a reply changes no more than the header and what is behind the query, whose OPT record it may overwrite.
        message[2..12].copy_from_slice(&head);
        if edns {
            let question_end = query.len() - 11;
            message[question_end..query.len()].copy_from_slice(&query[question_end..]);
        }
        let (zones, message) = (black_box(zones), black_box(&mut message));
        let outcome = if ANSWER { respond(zones, message, query.len(), LIMITS) } else { Outcome::Reply(query.len()) };
        assert!(matches!(black_box(outcome), Outcome::Reply(_)));
        after();
    }
}
