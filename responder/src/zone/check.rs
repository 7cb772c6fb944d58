//! Holds a zone's records against the rules for a zone, and says what kind of name each owner is.
//!
//! Errors are what would make answers wrong: no SOA or NS at the apex, CNAME beside other data (RFC 2181 section 10.1), names below a DNAME (RFC
//! 6672 section 2.4), records that only make sense in a signed zone. What can be served and is doubtful is left to `doubt`.

use std::{
    collections::{BTreeSet, HashSet},
    ops::Range,
};

use super::{
    doubt,
    load::{Content, Problem, Record, TYPE_A, TYPE_AAAA, TYPE_SOA, display, suffixes},
};

pub(super) const TYPE_NS: u16 = 2;
pub(super) const TYPE_CNAME: u16 = 5;
pub(super) const TYPE_MX: u16 = 15;
pub(super) const TYPE_SRV: u16 = 33;
pub(super) const TYPE_DNAME: u16 = 39;
pub(super) const TYPE_DS: u16 = 43;

/// Types that a zone has only when it is signed: RRSIG, NSEC, DNSKEY, NSEC3, NSEC3PARAM.
const SIGNED: [u16; 5] = [46, 47, 48, 50, 51];
/// What fits into a message beside a header, a question and OPT.
const RRSET_MAX: usize = 65_000;
/// The label of a wildcard, on the wire (RFC 4592 section 2.1.1).
pub(super) const WILDCARD: &[u8] = b"\x01*";

/// A zone that can be rendered.
#[derive(Debug)]
pub(super) struct Checked<'a> {
    pub(super) content: &'a Content,
    /// Owners in the order of their bytes.
    names: Vec<Owner>,
    /// Delegations and DNAMEs: names below them are not answered from this zone.
    barriers: HashSet<&'a [u8]>,
    /// Names without records that have names below them (RFC 4592 section 2.2.2).
    pub(super) empty: BTreeSet<&'a [u8]>,
    /// Zones of ours below this one.
    pub(super) children: HashSet<&'a [u8]>,
    pub(super) warnings: Vec<String>,
}

/// A name that owns records, and what it is in this zone.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) records: Range<usize>,
    pub(super) kind: Kind,
}

/// What a name is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Answered from this zone.
    Ordinary,
    /// Delegated to other servers.
    Cut,
    /// The apex of another zone of ours.
    Child,
    /// Below a delegation or another zone of ours: glue at most.
    Occluded,
}

/// Where a name leads within a zone.
pub(super) enum Found<'z> {
    Owner(&'z Owner),
    Wildcard(&'z Owner),
    NoData,
    NoName,
    /// Below this delegation.
    Below(&'z Owner),
    /// Out of the zone, or below a DNAME.
    Elsewhere,
}

/// The errors of records that are a part of their zone, since the rest could not be read.
pub(super) fn errors_of_part(content: &Content) -> Vec<Problem> {
    let (_, errors) = Checked::examine(content, HashSet::new());
    errors
}

impl<'a> Checked<'a> {
    /// Checks a zone. `children` are the apexes of zones of ours below it.
    pub(super) fn new(content: &'a Content, children: HashSet<&'a [u8]>) -> Result<Self, Vec<String>> {
        let (mut zone, mut errors) = Self::examine(content, children);
        zone.check_apex(&mut errors);
        if !errors.is_empty() {
            errors.sort();
            return Err(errors.iter().map(|error| content.text(error)).collect());
        }
        zone.find_empty();
        let mut warnings = content.warnings.clone();
        warnings.extend(doubt::find(&zone));
        warnings.sort();
        warnings.dedup();
        zone.warnings = warnings.iter().map(|warning| content.text(warning)).collect();
        Ok(zone)
    }

    /// Sorts names into kinds, and finds the errors that more records would not mend.
    fn examine(content: &'a Content, children: HashSet<&'a [u8]>) -> (Self, Vec<Problem>) {
        let apex = content.apex.as_slice();
        let mut zone = Self {
            content,
            names: Vec::new(),
            barriers: HashSet::new(),
            empty: BTreeSet::new(),
            children,
            warnings: Vec::new(),
        };
        let mut errors = Vec::new();
        let records = &content.records;
        let mut start = 0;
        for owned in records.chunk_by(|a, b| content.owner(a) == content.owner(b)) {
            let owner = content.owner(&owned[0]);
            zone.check_owner(owner, owned, &mut errors);
            let has = |rtype| owned.iter().any(|record| record.rtype == rtype);
            let kind = if zone.children.contains(owner) {
                Kind::Child
            } else if owner != apex && has(TYPE_NS) && !owner.starts_with(WILDCARD) {
                Kind::Cut
            } else {
                Kind::Ordinary
            };
            if kind != Kind::Ordinary || has(TYPE_DNAME) {
                zone.barriers.insert(owner);
            }
            zone.names.push(Owner { records: start..start + owned.len(), kind });
            start += owned.len();
        }
        zone.barriers.extend(zone.children.iter());
        zone.find_occluded(&mut errors);
        (zone, errors)
    }

    /// The rules for one name.
    fn check_owner(&self, owner: &[u8], owned: &[Record], errors: &mut Vec<Problem>) {
        let content = self.content;
        let mut fail = |record: &Record, why: String| errors.push(content.problem(record, why));
        let name = || display(owner);
        for set in owned.chunk_by(|a, b| a.rtype == b.rtype) {
            let first = &set[0];
            if SIGNED.contains(&first.rtype) {
                let rtype = super::rdata::type_name(first.rtype);
                fail(
                    first,
                    format!(
                        "{rtype}: signed zones cannot be served yet, and without its signatures every validator would take this one for forged"
                    ),
                );
            }
            if set.iter().map(|record| 12 + content.data(record).len()).sum::<usize>() > RRSET_MAX {
                fail(first, format!("the RRset of {} does not fit into a message", name()));
            }
            if set.len() > 1 && [TYPE_CNAME, TYPE_DNAME].contains(&first.rtype) {
                fail(&set[1], format!("a second {} at {}: expected one", super::rdata::type_name(first.rtype), name()));
            }
            if set.len() > 1 && first.rtype == TYPE_SOA {
                fail(&set[1], format!("a second SOA: expected one, that at {}", content.place(first)));
            }
            if first.rtype == TYPE_SOA && owner != content.apex {
                fail(first, format!("SOA at {}: expected it at the apex, {}", name(), display(&content.apex)));
            }
            if owner.starts_with(WILDCARD) && first.rtype == TYPE_DNAME {
                fail(
                    first,
                    format!("DNAME at the wildcard {}: its meaning is not defined (RFC 4592 section 4.4)", name()),
                );
            }
        }
        let find = |rtype| owned.iter().find(|record| record.rtype == rtype);
        if let (Some(record), true) = (find(TYPE_DS), owner == content.apex) {
            fail(record, format!("DS at the apex {}: it belongs to the parent's zone (RFC 4035 section 2.4)", name()));
        }
        if let (Some(record), Some(_), true) = (find(TYPE_DNAME), find(TYPE_NS), owner != content.apex) {
            fail(
                record,
                format!("DNAME beside the NS records of {}: only an apex has both (RFC 6672 section 2.3)", name()),
            );
        }
        if let Some(alias) = owned.iter().find(|record| record.rtype == TYPE_CNAME)
            && owned.iter().any(|record| record.rtype != TYPE_CNAME)
        {
            fail(alias, format!("CNAME beside other records of {}: expected it alone (RFC 2181 section 10.1)", name()));
        }
    }

    /// What must be at the apex.
    fn check_apex(&self, errors: &mut Vec<Problem>) {
        let content = self.content;
        let apex = display(&content.apex);
        let owner = self.owner(&content.apex);
        let soa = owner.and_then(|owner| self.set(owner, TYPE_SOA).first());
        if soa.is_none() {
            let message = format!("zone {apex} has no SOA record: expected one at its apex (RFC 1035 section 5.2)");
            errors.push(content.problem_of_zone(message));
        }
        if owner.is_some_and(|owner| self.set(owner, TYPE_NS).is_empty()) {
            let message = format!("zone {apex} has no NS records: expected them at its apex (RFC 1034 section 4.2.1)");
            errors.push(
                soa.map_or_else(
                    || content.problem_of_zone(message.clone()),
                    |soa| content.problem(soa, message.clone()),
                ),
            );
        }
    }

    /// Marks what lies below a delegation, and refuses what lies below a DNAME.
    fn find_occluded(&mut self, errors: &mut Vec<Problem>) {
        if self.barriers.is_empty() {
            return;
        }
        for index in 0..self.names.len() {
            let owner = self.name(&self.names[index]);
            let Some(barrier) = self.barrier(owner) else { continue };
            let dname = self.owner(barrier).map(|owner| self.set(owner, TYPE_DNAME)).and_then(<[Record]>::first);
            if let (Some(dname), false) = (dname, self.children.contains(barrier)) {
                let record = &self.content.records[self.names[index].records.start];
                let message = format!(
                    "{} lies below the DNAME at {}: expected nothing there (RFC 6672 section 2.4)",
                    display(owner),
                    self.content.place(dname)
                );
                errors.push(self.content.problem(record, message));
            }
            self.names[index].kind = Kind::Occluded;
        }
    }

    /// The delegation, DNAME or child zone that a name in this zone lies below: the one nearest to the apex, which may itself be a DNAME.
    pub(super) fn barrier(&self, name: &[u8]) -> Option<&'a [u8]> {
        if self.barriers.is_empty() {
            return None;
        }
        let above = suffixes(name).skip(1).take_while(|suffix| suffix.len() >= self.content.apex.len());
        above.filter_map(|suffix| self.barriers.get(suffix)).last().copied()
    }

    /// The DNAME that a name lies below, with its owner.
    pub(super) fn dname(&self, name: &[u8]) -> Option<(&'a [u8], &'a Record)> {
        let barrier = self.barrier(name)?;
        let owner = self.owner(barrier).filter(|owner| owner.kind == Kind::Ordinary)?;
        Some((barrier, self.set(owner, TYPE_DNAME).first()?))
    }

    fn find_empty(&mut self) {
        let mut empty = BTreeSet::new();
        for owner in self.names.iter().filter(|owner| owner.kind != Kind::Occluded) {
            let name = self.name(owner);
            if name == self.content.apex {
                continue;
            }
            for ancestor in suffixes(name).skip(1) {
                if ancestor == self.content.apex || empty.contains(ancestor) || self.owner(ancestor).is_some() {
                    break;
                }
                empty.insert(ancestor);
            }
        }
        self.empty = empty;
    }

    /// All owners.
    pub(super) fn owners(&self) -> &[Owner] {
        &self.names
    }

    /// How many nodes the zone has in the table at most.
    pub(super) fn node_count(&self) -> usize {
        self.names.len() + self.empty.len() + 1
    }

    pub(super) fn name(&self, owner: &Owner) -> &'a [u8] {
        self.content.owner(&self.content.records[owner.records.start])
    }

    /// The owner with this name, in lower case.
    pub(super) fn owner(&self, name: &[u8]) -> Option<&Owner> {
        let index = self.names.binary_search_by(|owner| self.name(owner).cmp(name)).ok()?;
        Some(&self.names[index])
    }

    /// An owner's RRsets.
    pub(super) fn sets(&self, owner: &Owner) -> impl Iterator<Item = &'a [Record]> + use<'a> {
        self.content.records[owner.records.clone()].chunk_by(|a, b| a.rtype == b.rtype)
    }

    /// One of an owner's RRsets; empty where there is none.
    pub(super) fn set(&self, owner: &Owner, rtype: u16) -> &'a [Record] {
        self.sets(owner).find(|set| set[0].rtype == rtype).unwrap_or_default()
    }

    /// An owner's A and AAAA records.
    pub(super) fn addresses(&self, owner: &Owner) -> Vec<&'a Record> {
        [TYPE_A, TYPE_AAAA].iter().flat_map(|rtype| self.set(owner, *rtype)).collect()
    }

    /// Looks a name up as a query would (RFC 1034 section 4.3.2).
    pub(super) fn find(&self, name: &[u8]) -> Found<'_> {
        if !suffixes(name).any(|suffix| suffix == self.content.apex) {
            return Found::Elsewhere;
        }
        if let Some(barrier) = self.barrier(name) {
            return match self.owner(barrier) {
                Some(owner) if owner.kind == Kind::Cut => Found::Below(owner),
                _ => Found::Elsewhere,
            };
        }
        match self.owner(name) {
            Some(owner) if owner.kind == Kind::Ordinary => return Found::Owner(owner),
            Some(owner) if owner.kind == Kind::Cut => return Found::Below(owner),
            Some(_) => return Found::Elsewhere,
            None => {}
        }
        if self.children.contains(name) {
            return Found::Elsewhere;
        }
        if self.empty.contains(name) {
            return Found::NoData;
        }
        for encloser in suffixes(name).skip(1) {
            if self.owner(encloser).is_some() || self.empty.contains(encloser) {
                let wildcard = [WILDCARD, encloser].concat();
                return match self.owner(&wildcard) {
                    Some(owner) => Found::Wildcard(owner),
                    None if self.empty.contains(wildcard.as_slice()) => Found::NoData,
                    None => Found::NoName,
                };
            }
        }
        Found::NoName
    }
}
