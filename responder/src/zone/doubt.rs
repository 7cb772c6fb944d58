//! What loads and is still doubtful: names that lead nowhere or to an alias, missing glue, strange times. Warnings, each with its place.
//!
//! A warning never keeps a zone from being served. Only what the zone's own records tell is looked at: names in other zones may be right.

use super::{
    check::{Checked, Found, Kind, Owner, TYPE_CNAME, TYPE_MX, TYPE_NS, TYPE_SRV, WILDCARD},
    load::{Problem, Record, TYPE_A, TYPE_AAAA, TYPE_SOA, display, suffixes},
    rdata::type_name,
};

/// Seconds; RFC 1912 section 2.2 knows no reason for more than a few days.
const WEEK: u32 = 604_800;

/// All warnings about a zone.
pub(super) fn find(zone: &Checked<'_>) -> Vec<Problem> {
    let mut warnings = Vec::new();
    let mut long: Option<(&Record, usize)> = None;
    for owner in zone.owners() {
        for set in zone.sets(owner) {
            let first = &set[0];
            let mut warn = |message: String| warnings.push(zone.content.problem(first, message));
            let ttl = set.iter().map(|record| record.ttl).min().unwrap_or(0);
            if set.iter().any(|record| record.ttl != ttl) {
                warn(format!("the TTLs of this RRset differ: the lowest, {ttl}, is served (RFC 2181 section 5.2)"));
            }
            if ttl > WEEK {
                let count = long.map_or(1, |(_, count)| count + 1);
                let place = long.map_or(first, |(record, _)| record.min_by_place(first));
                long = Some((place, count));
            }
            if first.rtype == TYPE_NS && zone.name(owner).starts_with(WILDCARD) {
                let name = display(zone.name(owner));
                warn(format!(
                    "NS at the wildcard {name}: expected none (RFC 4592 section 4.2); it delegates nothing and is served as it stands"
                ));
            }
            if owner.kind == Kind::Occluded && ![TYPE_A, TYPE_AAAA].contains(&first.rtype) {
                occluded(zone, owner, first, &mut warnings);
            }
            if owner.kind != Kind::Occluded {
                for record in set {
                    warnings.extend(target(zone, owner, record).map(|message| zone.content.problem(record, message)));
                }
            }
            if first.rtype == TYPE_SOA {
                soa(zone, first, &mut warnings);
            }
        }
    }
    if let Some((record, count)) = long {
        let more = match count - 1 {
            0 => String::new(),
            more => format!(", and so has each of {more} more RRsets"),
        };
        let message =
            format!("a TTL of more than a week, {} s{more}: a mistake would be remembered as long", record.ttl);
        warnings.push(zone.content.problem(record, message));
    }
    warnings
}

/// Below a delegation only addresses have a use.
fn occluded(zone: &Checked<'_>, owner: &Owner, first: &Record, warnings: &mut Vec<Problem>) {
    let name = zone.name(owner);
    let Some(cut) = zone.barrier(name) else { return };
    if zone.children.contains(cut) {
        return;
    }
    let (rtype, name, cut) = (type_name(first.rtype), display(name), display(cut));
    warnings.push(
        zone.content.problem(first, format!("{rtype} of {name}, below the delegation of {cut}: it is not served")),
    );
}

/// What is wrong with the name that a record leads to.
fn target(zone: &Checked<'_>, owner: &Owner, record: &Record) -> Option<String> {
    let (skip, what, rule) = match record.rtype {
        TYPE_NS => (0, "name server", "RFC 2181 section 10.3"),
        TYPE_MX => (2, "mail exchange", "RFC 2181 section 10.3"),
        TYPE_SRV => (6, "service's host", "RFC 2782"),
        TYPE_CNAME => (0, "target", "RFC 1034 section 3.6.2"),
        _ => return None,
    };
    let name = zone.content.data(record).get(skip..)?.to_ascii_lowercase();
    // The root says that there is none (RFC 7505, RFC 2782).
    if name == [0] {
        return None;
    }
    let shown = display(&name);
    let alias = format!("the {what} {shown} is an alias: expected the name that it leads to ({rule})");
    let no_address = format!("the {what} {shown} has no address in this zone");
    let is_alias = |found: &Owner| !zone.set(found, TYPE_CNAME).is_empty();
    match zone.find(&name) {
        Found::Owner(found) | Found::Wildcard(found) if is_alias(found) => Some(alias),
        Found::Owner(found) | Found::Wildcard(found) => {
            (record.rtype != TYPE_CNAME && zone.addresses(found).is_empty()).then_some(no_address)
        }
        Found::NoData => (record.rtype != TYPE_CNAME).then_some(no_address),
        Found::NoName if record.rtype == TYPE_CNAME => Some(format!("the target {shown} does not exist in this zone")),
        Found::NoName => Some(no_address),
        Found::Below(cut) if record.rtype == TYPE_NS => {
            let cut = zone.name(cut);
            let own = cut == zone.name(owner) && suffixes(&name).any(|suffix| suffix == cut);
            let glue = zone.owner(&name).is_some_and(|found| !zone.addresses(found).is_empty());
            (own && !glue).then(|| {
                format!("the name server {shown} has no glue: expected its address here, since it lies below its own delegation (RFC 1034 section 4.2.1)")
            })
        }
        Found::Below(_) | Found::Elsewhere => None,
    }
}

/// Times of a SOA that secondaries and resolvers suffer from (RFC 1912 section 2.2).
fn soa(zone: &Checked<'_>, record: &Record, warnings: &mut Vec<Problem>) {
    let data = zone.content.data(record);
    let (words, _) = data[data.len().saturating_sub(20)..].as_chunks::<4>();
    let &[_serial, refresh, retry, expire, minimum] = words else { return };
    let [refresh, retry, expire, minimum] = [refresh, retry, expire, minimum].map(u32::from_be_bytes);
    let mut warn = |message: String| warnings.push(zone.content.problem(record, message));
    if refresh < 1200 {
        warn(format!("a REFRESH of {refresh} s: expected 20 minutes or more (RFC 1912 section 2.2)"));
    }
    if retry >= refresh {
        warn(format!("a RETRY of {retry} s: expected less than REFRESH, {refresh} s (RFC 1912 section 2.2)"));
    }
    if expire < WEEK {
        warn(format!("an EXPIRE of {expire} s: expected a week or more (RFC 1912 section 2.2)"));
    }
    if minimum > 86_400 {
        warn(format!(
            "a MINIMUM of {minimum} s: expected a day at most, for it is the TTL of negative answers (RFC 2308 section 5)"
        ));
    }
    // The mailbox behind the primary's name; its first label is the part before the at sign.
    let mailbox = suffixes(data).nth(super::load::labels(data)).and_then(|root| root.get(1..)).unwrap_or_default();
    let local = mailbox.get(1..1 + usize::from(*mailbox.first().unwrap_or(&0))).unwrap_or_default();
    if local.contains(&b'@') {
        warn("a mailbox with an at sign: expected a dot in its place (RFC 1035 section 3.3.13)".to_owned());
    }
}

#[cfg(test)]
#[path = "doubt_tests.rs"]
mod tests;
