//! Zones made from a seed: random names and depths, wildcards, cuts, empty non-terminals, DNAMEs, CNAMEs within and across zones. They keep the
//! rules that every server holds a zone to, so that all four load them.
//!
//! One more is always the same: `big.test`, with RRsets around the sizes at which answers are cut, which nobody wants to write by hand.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    fs,
    path::Path,
};

use anyhow::Context as _;

use super::{random::Random, servers::ZoneFile};

/// Zones that are made.
const APEXES: [&str; 8] =
    ["g0.test", "sub.g0.test", "a.b.sub.g0.test", "g1.test", "g2.test", "x.g2.test", "g3.gen.test", "g4.test"];
/// Owners that are tried in each; some break a rule and are left out.
const OWNERS: usize = 70;
const LABELS: [&str; 14] =
    ["a", "b", "c", "d", "e", "x", "www", "ns", "_tcp", "*", "*", "long-label-of-some-length", "1", "sub"];

/// Writes the zones into a directory.
pub fn zones(seed: u64, directory: &Path) -> anyhow::Result<Vec<ZoneFile>> {
    let mut random = Random::new(seed);
    let made = APEXES.iter().map(|apex| (*apex, zone(&mut random, apex)));
    let mut zones = Vec::new();
    for (name, text) in made.chain([("big.test", big())]) {
        let path = directory.join(format!("{name}.zone"));
        fs::write(&path, text).with_context(|| format!("writing {}", path.display()))?;
        zones.push(ZoneFile { name: name.to_owned(), path });
    }
    Ok(zones)
}

/// A random zone's text.
fn zone(random: &mut Random, apex: &str) -> String {
    // Owner, relative -> type -> TTL and data.
    let mut names: BTreeMap<String, BTreeMap<&str, (u32, BTreeSet<String>)>> = BTreeMap::new();
    for _ in 0..OWNERS {
        let owner = owner(random);
        let types = names.entry(owner.clone()).or_default();
        let kind = random.below(20);
        // CNAME stands alone (RFC 2181 section 10.1), and servers differ on what a wildcard with NS or DNAME means (RFC 4592 section 4).
        if types.contains_key("CNAME") || (owner.starts_with('*') && kind > 14) {
            continue;
        }
        let (bare, renamed) = (types.is_empty(), types.contains_key("DNAME"));
        let mut add = |name: &str, rtype: &'static str, ttl: usize, data: String| {
            let set = names
                .entry(name.to_owned())
                .or_default()
                .entry(rtype)
                .or_insert_with(|| (u32::try_from(60 * (1 + ttl)).unwrap_or(60), BTreeSet::new()));
            set.1.insert(data);
        };
        let ttl = random.below(5);
        match kind {
            0..=4 => add(&owner, "A", ttl, address(random)),
            5 => add(&owner, "AAAA", ttl, format!("2001:db8::{:x}", random.below(65_536))),
            6 | 7 => add(&owner, "TXT", ttl, format!("\"text {}\"", random.below(100))),
            8 => add(&owner, "MX", ttl, format!("{} {}", random.below(100), target(random, apex))),
            9 => add(&owner, "SRV", ttl, format!("1 {} 5060 {}", random.below(100), target(random, apex))),
            10 => add(&owner, "TYPE65280", ttl, format!("\\# 1 {:02x}", random.byte())),
            11..=14 if bare => add(&owner, "CNAME", ttl, target(random, apex)),
            15 | 16 if bare => add(&owner, "DNAME", ttl, target(random, apex)),
            17.. if !renamed => {
                add(&owner, "NS", ttl, target(random, apex));
                match random.below(4) {
                    0 => {}
                    1 => add(&owner, "DS", ttl, format!("1 13 2 {}", "5a".repeat(32))),
                    _ => {
                        add(&owner, "NS", ttl, format!("ns.{owner}"));
                        add(&format!("ns.{owner}"), "A", ttl, address(random));
                    }
                }
            }
            _ => {}
        }
    }
    let children = APEXES.iter().filter_map(|child| child.strip_suffix(apex)?.strip_suffix('.'));
    keep_rules(&mut names, &children.collect::<Vec<_>>());
    let mut text = format!(
        "; Made from a seed.\n$ORIGIN {apex}.\n@ {} SOA ns0 hostmaster {} 7200 900 1209600 {}\n@ 300 NS ns0\nns0 300 A 192.0.2.1\n",
        60 * (1 + random.below(9)),
        random.below(1000),
        60 * (1 + random.below(9)),
    );
    for (owner, types) in names {
        for (rtype, (ttl, set)) in types {
            for data in set {
                let _ = writeln!(text, "{owner} {ttl} {rtype} {data}");
            }
        }
    }
    text
}

/// Nothing beside a CNAME, nothing below a DNAME (RFC 6672 section 2.4), nor below the zones that are served themselves: NSD takes its data
/// for that zone's when it looks at these rules.
fn keep_rules(names: &mut BTreeMap<String, BTreeMap<&str, (u32, BTreeSet<String>)>>, children: &[&str]) {
    names.retain(|owner, _| {
        !children.iter().any(|child| owner.strip_suffix(child).is_some_and(|rest| rest.ends_with('.')))
    });
    for (owner, types) in names.iter_mut() {
        if children.iter().any(|child| child == owner || child.ends_with(&format!(".{owner}"))) {
            types.remove("CNAME");
            types.remove("DNAME");
        }
        if types.len() > 1 {
            types.remove("CNAME");
        }
        if types.contains_key("NS") {
            types.remove("DNAME");
        }
    }
    let with = |names: &BTreeMap<String, BTreeMap<&str, _>>, rtype| -> Vec<String> {
        names.iter().filter(|(_, types)| types.contains_key(rtype)).map(|(owner, _)| format!(".{owner}")).collect()
    };
    let dnames = with(names, "DNAME");
    names.retain(|owner, _| !dnames.iter().any(|above| owner.ends_with(above)));
}

fn owner(random: &mut Random) -> String {
    let labels: Vec<&str> = (0..=random.below(4)).map(|_| *random.pick(&LABELS)).collect();
    labels.join(".")
}

/// A name that something points to: mostly of this zone, at times another's, or nobody's.
fn target(random: &mut Random, apex: &str) -> String {
    match random.below(8) {
        0 => format!("{}.{}.", owner(random), random.pick::<&str>(&APEXES)),
        1 => format!("{}.nosuch.invalid.", owner(random)),
        2 => format!("{apex}."),
        _ => owner(random),
    }
}

fn address(random: &mut Random) -> String {
    format!("192.0.2.{}", random.byte())
}

/// RRsets that just fit and just do not, for 512 bytes, for 1232, and for any datagram; delegations with more glue than fits.
fn big() -> String {
    let mut text = String::from(
        "; Large RRsets.\n$ORIGIN big.test.\n$TTL 300\n@ SOA ns hostmaster 7 7200 900 1209600 300\n@ NS ns\nns A 192.0.2.1\n",
    );
    let mut add = |count: u32, line: &dyn Fn(u32) -> String| {
        for number in 1..=count {
            let _ = writeln!(text, "{}", line(number));
        }
    };
    for count in (27..=31).chain(70..=77).chain([40, 250]) {
        add(count, &|n| format!("a{count} A 10.0.1.{n}"));
    }
    add(200, &|n| format!("mx MX {n} host{n}"));
    add(12, &|n| format!("fewmx MX {n} host{n}"));
    add(200, &|n| format!("host{n} A 10.0.2.{n}"));
    for cut in [8, 9, 10, 13, 30, 60] {
        add(cut, &|n| {
            format!("cut{cut} NS ns{n}.cut{cut}\nns{n}.cut{cut} A 10.0.3.{n}\nns{n}.cut{cut} AAAA 2001:db8::{n}")
        });
    }
    add(60, &|n| format!("out NS ns{n}.elsewhere.invalid."));
    add(60, &|n| format!("beside NS host{n}"));
    add(60, &|n| format!("*.wild A 10.0.4.{n}"));
    for size in [440, 470, 480, 490, 1150, 1170, 1190, 1200, 5000, 60_000] {
        let strings = vec![format!("\"{}\"", "t".repeat(200)); size / 201].join(" ");
        add(1, &|_| format!("txt{size} TXT {strings} \"{}\"", "e".repeat(size % 201)));
    }
    add(1, &|_| {
        "toa28 CNAME a28\ntoa72 CNAME a72\ntobig CNAME a250\ntocut CNAME www.cut60\ndname DNAME big.test.".to_owned()
    });
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_makes_the_same_zones_again() {
        let make = |seed| zone(&mut Random::new(seed), "g.test");
        assert_eq!(make(1), make(1));
        assert_ne!(make(1), make(2));
    }

    /// RFC 2181 section 10.1, RFC 6672 section 2.4.
    #[test]
    fn generated_zones_keep_the_rules() {
        for seed in 0..200 {
            let text = zone(&mut Random::new(seed), "g.test");
            let lines: Vec<Vec<&str>> = text.lines().skip(5).map(|line| line.split(' ').collect()).collect();
            let of = |rtype| lines.iter().filter(move |line| line[2] == rtype).map(|line| line[0]);
            for alias in of("CNAME") {
                assert_eq!(lines.iter().filter(|line| line[0] == alias).count(), 1, "seed {seed}: {alias}");
            }
            for dname in of("DNAME") {
                let below = format!(".{dname}");
                assert!(!lines.iter().any(|line| line[0].ends_with(&below)), "seed {seed}: below {dname}");
            }
        }
    }
}
