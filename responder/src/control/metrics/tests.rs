//! The text of a scrape: its bytes for a small server, and the rules of the format.

use super::*;
use crate::{
    control::status::{Cell, KernelPath, Path, Traffic, UdpWorker, Unserved, Zone},
    counters::{Counters, DropReason, Family},
    sys::XdpStatistics,
    wire::message::Rcode,
};

/// A server with one of everything. Only what has been counted is in its maps.
fn small() -> Status {
    let mut status = full();
    let seen = |counts: &mut BTreeMap<String, u64>| counts.retain(|_, count| *count > 0);
    let only_seen = |dropped: &mut BTreeMap<String, u64>, traffic: &mut Traffic| {
        seen(dropped);
        seen(&mut traffic.qtypes);
        traffic.replies.values_mut().for_each(seen);
    };
    let queue = &mut status.interfaces[0].queues[0];
    only_seen(&mut queue.dropped, &mut queue.traffic);
    let kernel = &mut status.kernel_path;
    only_seen(&mut kernel.tcp.dropped, &mut kernel.tcp.traffic);
    let counts = &mut kernel.udp_workers[0].counts;
    only_seen(&mut counts.dropped, &mut counts.traffic);
    status
}

/// The same with all counts that a server has.
fn full() -> Status {
    let counters = Counters::default();
    counters.reply(Family::Ipv4, Rcode::NOERROR, 1, false);
    counters.reply(Family::Ipv6, Rcode::NXDOMAIN, 28, true);
    counters.batch(3, 2);
    counters.dropped_one(DropReason::LimitedDropped);
    counters.slipped_one();
    let dropped: BTreeMap<String, u64> =
        counters.dropped().map(|(reason, count)| (reason.name().to_owned(), count)).collect();
    let traffic = Traffic::from(&counters);
    let path = Path {
        received: 3,
        answered: 2,
        dropped: dropped.clone(),
        batches: 1,
        traffic: traffic.clone(),
        ..Path::default()
    };
    Status {
        version: "0.1.0".into(),
        uptime_s: 12.5,
        io: "xdp".into(),
        service: "dns".into(),
        zones: vec![Zone { name: "a\\\"b.example.".into(), serial: 2_026_120_101, names: 3, records: 5 }],
        interfaces: vec![Interface {
            name: "eth0".into(),
            queues: vec![Queue {
                queue: 2,
                cpu: 1,
                received: 3,
                answered: 2,
                dropped,
                limited_slipped: 1,
                kernel: XdpStatistics { rx_ring_full: 7, ..XdpStatistics::default() },
                batches: 1,
                traffic,
                ..Queue::default()
            }],
            queues_without_worker: vec![Unserved { queue: 3, reason: "not in --queues".into() }],
            verdicts: BTreeMap::from([("redirected".into(), 3)]),
            matrix: vec![Cell { rx_queue: 2, tx_queue: 2, tx_cpu: 1, frames: 2 }],
            ..Interface::default()
        }],
        kernel_path: KernelPath {
            udp: path.clone(),
            tcp: Path { connections: 4, ..Path::default() },
            udp_workers: vec![UdpWorker { address: "192.0.2.53:53".into(), cpu: 1, thread: 9, counts: path }],
        },
        ..Status::default()
    }
}

#[test]
fn the_text_of_a_small_server() {
    assert_eq!(render(small()), include_str!("small.txt"));
}

/// A family of the text.
#[derive(Debug, Default)]
struct Parsed {
    kind: String,
    has_help: bool,
    samples: Vec<(String, String)>,
}

/// Reads a scrape by the rules of OpenMetrics 1.0.0 and panics where one is broken.
fn parse(text: &str) -> BTreeMap<String, Parsed> {
    let text = text.strip_suffix("# EOF\n").expect("the text ends with # EOF");
    let mut families: BTreeMap<String, Parsed> = BTreeMap::new();
    let mut current = String::new();
    for line in text.lines() {
        if let Some(comment) = line.strip_prefix("# ") {
            let mut words = comment.splitn(3, ' ');
            let [keyword, name, rest] = [(); 3].map(|()| words.next().expect("a keyword, a name and a text"));
            if name != current {
                assert!(!families.contains_key(name), "{name}: the lines of a family are not interleaved");
                current = name.to_owned();
            }
            let family = families.entry(current.clone()).or_default();
            assert!(family.samples.is_empty(), "{line}: metadata stands before samples");
            match keyword {
                "TYPE" => family.kind = rest.to_owned(),
                "HELP" => family.has_help = !rest.is_empty(),
                "UNIT" => assert!(name.ends_with(&format!("_{rest}")), "{line}: the unit is the name's suffix"),
                _ => panic!("{line}: no such keyword"),
            }
            continue;
        }
        let (series, value) = line.rsplit_once(' ').expect("a sample has a value");
        value.parse::<f64>().unwrap_or_else(|_| panic!("{line}: no number"));
        let name = series.split('{').next().unwrap();
        assert!(name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_'), "{line}");
        let suffix = name.strip_prefix(&current).unwrap_or_else(|| panic!("{line}: not of family {current}"));
        let family = families.get_mut(&current).expect("TYPE stands before samples");
        let suffixes: &[&str] = match family.kind.as_str() {
            "counter" => &["_total"],
            "gauge" => &[""],
            "info" => &["_info"],
            "histogram" => &["_bucket", "_sum", "_count"],
            kind => panic!("{line}: TYPE {kind}"),
        };
        assert!(suffixes.contains(&suffix), "{line}: a {} ends in {suffixes:?}", family.kind);
        assert!(labels(series), "{line}: labels");
        family.samples.push((series.to_owned(), value.to_owned()));
    }
    for (name, family) in &families {
        assert!(family.has_help && !family.kind.is_empty() && !family.samples.is_empty(), "{name}: {family:?}");
        if family.kind == "histogram" {
            let of = |suffix: &'static str| {
                family.samples.iter().filter(move |(series, _)| series.contains(suffix)).map(|(_, value)| value)
            };
            assert!(of("_count").eq(of("le=\"+Inf\"")), "{name}: the last bucket has all");
        }
        let mut series: Vec<&str> = family.samples.iter().map(|(series, _)| series.as_str()).collect();
        series.sort_unstable();
        let count = series.len();
        series.dedup();
        assert_eq!(series.len(), count, "{name}: each series once");
    }
    families
}

/// Whether what follows the name is nothing, or `{key="value",...}` with quotes, backslashes and newlines escaped.
fn labels(series: &str) -> bool {
    let Some((_, rest)) = series.split_once('{') else { return true };
    let Some(mut rest) = rest.strip_suffix('}') else { return false };
    loop {
        let Some((key, behind)) = rest.split_once("=\"") else { return false };
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_') {
            return false;
        }
        let mut escaped = false;
        let end = behind.bytes().position(|byte| {
            let ends = byte == b'"' && !escaped;
            escaped = byte == b'\\' && !escaped;
            ends
        });
        let Some(end) = end else { return false };
        match behind[end + 1..].strip_prefix(',') {
            Some(more) => rest = more,
            None => return behind.len() == end + 1,
        }
    }
}

#[test]
fn the_text_follows_the_rules_of_the_format() {
    for status in [Status::default(), small(), full()] {
        let families = parse(&render(status));
        assert!(families["responder_build"].kind == "info" && families["responder_uptime_seconds"].kind == "gauge");
    }
    let families = parse(&render(full()));
    let batches = &families["responder_batch_packets"].samples;
    let of_queue: Vec<_> = batches.iter().filter(|(series, _)| series.contains("queue=\"2\"")).collect();
    let buckets: Vec<u64> = of_queue
        .iter()
        .filter(|(series, _)| series.contains("_bucket{"))
        .map(|(_, value)| value.parse().unwrap())
        .collect();
    assert_eq!(buckets, [0, 0, 1, 1, 1, 1, 1, 1, 1, 1], "buckets are cumulative");
    assert!(of_queue.iter().any(|(series, value)| series.contains("le=\"+Inf\"") && value == "1"), "{of_queue:?}");
}

/// Zero is exported as well: a rate needs the value before the first event.
#[test]
fn every_reason_rcode_and_qtype_is_there_from_the_start() {
    let families = parse(&render(full()));
    let queues =
        |name: &str| families[name].samples.iter().filter(|(series, _)| series.contains("path=\"bypass\"")).count();
    assert_eq!(queues("responder_queries_dropped"), DropReason::ALL.len());
    assert_eq!(queues("responder_answers"), 2 * Rcode::ALL.len());
    assert_eq!(queues("responder_answers_by_qtype"), crate::counters::qtypes::NAMES.len());
}

/// Every name in the dashboard's expressions is one that a scrape has.
#[test]
fn the_dashboard_asks_for_what_there_is() {
    let text = include_str!("../../../../examples/grafana-dashboard.json");
    let dashboard: serde_json::Value = serde_json::from_str(text).unwrap();
    let mut expressions = Vec::new();
    strings("expr", &dashboard, &mut expressions);
    assert!(expressions.len() >= 7, "{expressions:?}");
    let scrape = render(full());
    let known: std::collections::BTreeSet<&str> = scrape
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split(['{', ' ']).next().unwrap())
        .collect();
    let mut seen = 0;
    for expression in expressions {
        let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("responder_")) {
            assert!(known.contains(name), "{name} in {expression:?}");
            seen += 1;
        }
    }
    assert!(seen >= 7, "{seen}");
}

/// All strings under this key, however deep.
fn strings<'a>(key: &str, value: &'a serde_json::Value, found: &mut Vec<&'a str>) {
    match value {
        serde_json::Value::Object(map) => {
            found.extend(map.get(key).and_then(|value| value.as_str()));
            map.values().for_each(|value| strings(key, value, found));
        }
        serde_json::Value::Array(items) => items.iter().for_each(|value| strings(key, value, found)),
        _ => {}
    }
}
