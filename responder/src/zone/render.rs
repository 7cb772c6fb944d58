//! Renders a zone's answers: the bytes that go behind a question, with their compression pointers in place (RFC 1035 section 4.1.4).
//!
//! The question begins at offset 12 of a message, so a name that is asked for is `c0 0c`. An answer is rendered as if its owner were asked; used
//! behind a longer QNAME, its pointers move by the difference, so their places are kept. Only the owner of a wildcard's records stays at 12: it
//! is the QNAME itself.

use std::collections::{HashMap, HashSet};

use super::{
    Summary, Zone,
    check::{Checked, Found, Kind, Owner, TYPE_CNAME, TYPE_DNAME, TYPE_DS, TYPE_MX, TYPE_NS, TYPE_SRV},
    load::{Content, Record, TYPE_A, TYPE_AAAA, TYPE_SOA, display, suffixes},
    table::{ANY_OTHER, Flags, Nodes, Rendered},
};
use crate::wire::{
    message::{Counts, HEADER_LEN, OPT_LEN, Rcode},
    name::NAME_MAX,
};

const TYPE_PTR: u16 = 12;
const TYPE_SVCB: u16 = 64;
const TYPE_HTTPS: u16 = 65;

/// A pointer has 14 bits, and may move by the length of a QNAME.
const POINTER_MAX: usize = 0x3fff - NAME_MAX;
/// Aliases that are followed, so that a loop ends.
const ALIASES_MAX: usize = 16;
/// Additional data beyond this would not fit beside the answer over UDP anyway.
const ADDITIONAL_MAX: usize = 4096;
/// What fits into a message over TCP, beside the header, the longest question and OPT.
const SECTIONS_MAX: usize = 65_535 - HEADER_LEN - (NAME_MAX + 4) - OPT_LEN;
/// Names behind the question that later names may point at. More make an answer little smaller, and the search through them long.
const NAMES_MAX: usize = 64;

/// All zones that are served, by their apexes.
pub(super) type All<'z, 'a> = HashMap<&'a [u8], &'z Checked<'a>>;

/// Renders a zone's names and returns what is kept beside it. `all` are the zones that are served.
pub(super) fn zone(zone: &Checked<'_>, index: u32, all: &All<'_, '_>) -> (Zone, Nodes) {
    let mut nodes = Nodes::with_capacity(zone.node_count());
    let apex = zone.content.apex.as_slice();
    let names = zone.owners().iter().map(|owner| zone.name(owner)).chain(zone.empty.iter().copied());
    let wildcards: HashSet<&[u8]> = names.filter_map(|name| name.strip_prefix(b"\x01*")).collect();
    let below = |name: &[u8]| if wildcards.contains(name) { Flags::WILDCARD } else { Flags::default() };
    for owner in zone.owners() {
        let name = zone.name(owner);
        match owner.kind {
            Kind::Occluded | Kind::Child => {}
            Kind::Cut => nodes.insert(name, Flags::CUT, index, &cut(zone, owner)),
            Kind::Ordinary => {
                let mut answers = ordinary(zone, owner, all);
                let mut flags = below(name);
                if name == apex {
                    flags = flags.with(Flags::APEX);
                }
                if !zone.set(owner, TYPE_DNAME).is_empty() {
                    flags = flags.with(Flags::DNAME);
                }
                if name == apex
                    && let Some(parent) = suffixes(apex).nth(1).and_then(|above| zone_of(above, all))
                {
                    // RFC 4035 section 3.1.4.1: DS is the parent's to answer, even at the name of our own apex.
                    answers.retain(|(rtype, _)| *rtype != TYPE_DS);
                    answers.push((TYPE_DS, delegation_signer(parent, apex)));
                }
                nodes.insert(name, flags, index, &answers);
            }
        }
    }
    for name in &zone.empty {
        nodes.insert(name, below(name), index, &[]);
    }
    let negative = Sections::negative(zone, apex, Rcode::NOERROR);
    let names = zone.owners().len();
    let rendered = Zone {
        apex: apex.to_vec(),
        soa: negative.bytes,
        soa_pointers: negative.pointers,
        summary: Summary {
            name: display(apex),
            serial: serial(zone),
            names,
            records: zone.content.records.len(),
            warnings: zone.warnings.clone(),
        },
    };
    (rendered, nodes)
}

fn serial(zone: &Checked<'_>) -> u32 {
    let soa = soa(zone).map(|record| zone.content.data(record)).unwrap_or_default();
    // Serial, refresh, retry, expire, minimum.
    soa.len().checked_sub(20).and_then(|at| soa[at..].first_chunk::<4>()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn soa<'a>(zone: &Checked<'a>) -> Option<&'a Record> {
    zone.set(zone.owner(&zone.content.apex)?, TYPE_SOA).first()
}

/// An answer for each RRset of a name; for an alias, one for each type at its end and one for all others.
fn ordinary(zone: &Checked<'_>, owner: &Owner, all: &All<'_, '_>) -> Vec<(u16, Rendered)> {
    if let Some(alias) = zone.set(owner, TYPE_CNAME).first() {
        return aliased(zone, zone.name(owner), alias, all);
    }
    zone.sets(owner)
        .map(|set| {
            let mut sections = Sections::new(zone.name(owner));
            sections.answer_set(zone, zone.name(owner), set);
            sections.addresses_for(zone, set);
            (set[0].rtype, sections.finish(Rcode::NOERROR, true))
        })
        .collect()
}

/// A step from one name to the next.
enum Step<'z, 'a> {
    /// A CNAME at this name, or the DNAME at one above it.
    Record(&'z Checked<'a>, Vec<u8>, &'a Record),
    /// The CNAME that goes with a DNAME: owner, target, TTL.
    Made(Vec<u8>, Vec<u8>, u32),
}

/// Follows an alias through the zones that are served (RFC 1034 section 3.6.2), also where a name on the way lies below a DNAME (RFC 6672
/// section 3.2).
fn aliased(first: &Checked<'_>, owner: &[u8], alias: &Record, all: &All<'_, '_>) -> Vec<(u16, Rendered)> {
    let mut chain = vec![Step::Record(first, owner.to_vec(), alias)];
    let mut seen: HashSet<Vec<u8>> = HashSet::from([owner.to_vec()]);
    let base = |chain: &[Step<'_, '_>]| {
        let mut sections = Sections::new(owner);
        for step in chain {
            match step {
                Step::Record(zone, name, record) => sections.answer_set(zone, name, std::slice::from_ref(*record)),
                Step::Made(name, target, ttl) => sections.made_alias(name, target, *ttl),
            }
        }
        sections
    };
    let mut answers = vec![(TYPE_CNAME, base(&chain).finish(Rcode::NOERROR, true))];
    let mut target = first.content.data(alias).to_ascii_lowercase();
    loop {
        let stop = |chain: &[Step<'_, '_>], rcode| (ANY_OTHER, base(chain).finish(rcode, true));
        let Some(zone) = zone_of(&target, all) else {
            answers.push(stop(&chain, Rcode::NOERROR));
            return answers;
        };
        // A loop, or a chain without reason: the client gets what there is and may go on by itself.
        let is_too_long = chain.len() >= ALIASES_MAX;
        if let Some((name, dname)) = zone.dname(&target) {
            if is_too_long || !seen.insert(name.to_vec()) {
                answers.push(stop(&chain, Rcode::NOERROR));
                return answers;
            }
            let new = zone.content.data(dname).to_ascii_lowercase();
            let kept = &target[..target.len() - name.len()];
            let made = [kept, &new].concat();
            chain.push(Step::Record(zone, name.to_vec(), dname));
            if made.len() > NAME_MAX {
                answers.push(stop(&chain, Rcode::YXDOMAIN));
                return answers;
            }
            chain.push(Step::Made(target, made.clone(), dname.ttl));
            target = made;
            continue;
        }
        let found = zone.find(&target);
        let end = match &found {
            Found::Owner(end) | Found::Wildcard(end) => Some(*end),
            _ => None,
        };
        if let Some(next) = end.and_then(|end| zone.set(end, TYPE_CNAME).first()) {
            if is_too_long || !seen.insert(target.clone()) {
                answers.push(stop(&chain, Rcode::NOERROR));
                return answers;
            }
            let new = zone.content.data(next).to_ascii_lowercase();
            chain.push(Step::Record(zone, target, next));
            target = new;
            continue;
        }
        let sets: Vec<&[Record]> = end.map(|end| zone.sets(end).collect()).unwrap_or_default();
        for set in sets {
            let mut sections = base(&chain);
            // A DNAME may have been on the way here, and no record is sent twice (RFC 2181 section 5).
            let is_there = set[0].rtype == TYPE_DNAME && seen.contains(&target);
            // What is too large beside the chain the client gets when it asks on.
            if !is_there && sections.fits(zone, &target, set, SECTIONS_MAX) {
                sections.answer_set(zone, &target, set);
                sections.addresses_for(zone, set);
            }
            answers.push((set[0].rtype, sections.finish(Rcode::NOERROR, true)));
        }
        // RFC 4035 section 3.1.4.1: of a delegated name, and of a child's apex, DS is answered on the parent's side.
        let parent = match found {
            Found::Below(cut) if zone.name(cut) == target => Some(zone),
            _ if target == zone.content.apex => suffixes(&target).nth(1).and_then(|above| zone_of(above, all)),
            _ => None,
        };
        if let Some(parent) = parent {
            answers.retain(|(rtype, _)| *rtype != TYPE_DS);
            let set = parent.owner(&target).map(|owner| parent.set(owner, TYPE_DS)).unwrap_or_default();
            let mut sections = base(&chain);
            if let Some(cut) = cut_above(parent, &target) {
                if sections.fits(parent, parent.name(cut), parent.set(cut, TYPE_NS), SECTIONS_MAX) {
                    sections.referral(parent, cut);
                }
            } else if set.is_empty() {
                sections.authority_soa(parent);
            } else if sections.fits(parent, &target, set, SECTIONS_MAX) {
                sections.answer_set(parent, &target, set);
            }
            answers.push((TYPE_DS, sections.finish(Rcode::NOERROR, true)));
        }
        let mut sections = base(&chain);
        let rcode = match found {
            Found::Owner(_) | Found::Wildcard(_) | Found::NoData => {
                sections.authority_soa(zone);
                Rcode::NOERROR
            }
            // RFC 6604 section 3: the code is that of the last name.
            Found::NoName => {
                sections.authority_soa(zone);
                Rcode::NXDOMAIN
            }
            Found::Below(cut) => {
                if sections.fits(zone, zone.name(cut), zone.set(cut, TYPE_NS), SECTIONS_MAX) {
                    sections.referral(zone, cut);
                }
                Rcode::NOERROR
            }
            Found::Elsewhere => Rcode::NOERROR,
        };
        answers.push((ANY_OTHER, sections.finish(rcode, true)));
        return answers;
    }
}

/// The zone of ours that a name is in.
fn zone_of<'z, 'a>(name: &[u8], all: &All<'z, 'a>) -> Option<&'z Checked<'a>> {
    suffixes(name).find_map(|suffix| all.get(suffix).copied())
}

/// A delegation: DS from this side of it, and a referral for everything else.
fn cut(zone: &Checked<'_>, owner: &Owner) -> Vec<(u16, Rendered)> {
    let mut sections = Sections::new(zone.name(owner));
    sections.referral(zone, owner);
    vec![(TYPE_DS, delegation_signer(zone, zone.name(owner))), (ANY_OTHER, sections.finish(Rcode::NOERROR, false))]
}

/// DS as the parent answers it.
fn delegation_signer(parent: &Checked<'_>, name: &[u8]) -> Rendered {
    let mut sections = Sections::new(name);
    if let Some(cut) = cut_above(parent, name) {
        sections.referral(parent, cut);
        return sections.finish(Rcode::NOERROR, false);
    }
    let set = parent.owner(name).map(|owner| parent.set(owner, TYPE_DS)).unwrap_or_default();
    if set.is_empty() {
        return Sections::negative(parent, name, Rcode::NOERROR);
    }
    sections.answer_set(parent, name, set);
    sections.finish(Rcode::NOERROR, true)
}

/// The delegation that a name lies below. With a zone of ours at that name, one of another server's lies between, and the parent can only refer to it
/// (RFC 1034 section 4.3.2 step 3b).
fn cut_above<'z>(parent: &'z Checked<'_>, name: &[u8]) -> Option<&'z Owner> {
    match parent.find(name) {
        Found::Below(cut) if parent.name(cut) != name => Some(cut),
        _ => None,
    }
}

/// The sections behind a question, as they grow.
struct Sections<'q> {
    /// The name that is asked for.
    question: &'q [u8],
    is_wildcard: bool,
    bytes: Vec<u8>,
    pointers: Vec<u16>,
    counts: Counts,
    /// Names that were written and can be pointed at: offset in the message and the name.
    names: Vec<(usize, Vec<u8>)>,
    /// Bytes and additional records that must be sent.
    required: Option<(usize, u16)>,
}

impl<'q> Sections<'q> {
    fn new(question: &'q [u8]) -> Self {
        Self {
            question,
            is_wildcard: question.starts_with(b"\x01*"),
            bytes: Vec::with_capacity(64),
            pointers: Vec::new(),
            counts: Counts::default(),
            names: Vec::new(),
            required: None,
        }
    }

    /// The zone's SOA alone.
    fn negative(zone: &Checked<'_>, question: &'q [u8], rcode: Rcode) -> Rendered {
        let mut sections = Self::new(question);
        sections.authority_soa(zone);
        sections.finish(rcode, true)
    }

    fn finish(self, rcode: Rcode, authoritative: bool) -> Rendered {
        let whole = (self.bytes.len(), self.counts.additional);
        let (required, additional) = self.required.unwrap_or(whole);
        // Where more additional records must be sent than a byte counts, all must.
        let (required, required_additional) = u8::try_from(additional).map_or((whole.0, 0), |count| (required, count));
        Rendered {
            rcode,
            authoritative,
            counts: self.counts,
            bytes: self.bytes,
            required,
            required_additional,
            pointers: self.pointers,
        }
    }

    fn answer_set(&mut self, zone: &Checked<'_>, owner: &[u8], set: &[Record]) {
        self.counts.answer += self.set(zone.content, owner, set, lowest_ttl(set));
    }

    /// A CNAME that is in no zone.
    fn made_alias(&mut self, owner: &[u8], target: &[u8], ttl: u32) {
        self.owner(owner);
        self.bytes.extend_from_slice(&TYPE_CNAME.to_be_bytes());
        self.bytes.extend_from_slice(&[0, 1]);
        self.bytes.extend_from_slice(&ttl.to_be_bytes());
        self.with_length(|sections| sections.name(target));
        self.counts.answer += 1;
    }

    /// Everything so far must be sent; what follows may be left out.
    fn close_answer(&mut self) {
        self.required.get_or_insert((self.bytes.len(), self.counts.additional));
    }

    /// RFC 2308 section 3: the TTL is the lesser of the SOA's own and its MINIMUM.
    fn authority_soa(&mut self, zone: &Checked<'_>) {
        let Some(soa) = soa(zone) else { return };
        let minimum = zone.content.data(soa).last_chunk::<4>().map_or(0, |bytes| u32::from_be_bytes(*bytes));
        let apex = zone.content.apex.as_slice();
        self.counts.authority += self.set(zone.content, apex, std::slice::from_ref(soa), soa.ttl.min(minimum));
    }

    /// The NS records of a delegation, and glue. Addresses of servers within the delegated zone must go along (RFC 9471 section 3); those of servers
    /// elsewhere in this zone are a help.
    fn referral(&mut self, zone: &Checked<'_>, cut: &Owner) {
        let name = zone.name(cut);
        let servers = zone.set(cut, TYPE_NS);
        self.counts.authority += self.set(zone.content, name, servers, lowest_ttl(servers));
        let mut seen = HashSet::new();
        let targets = servers.iter().map(|record| zone.content.data(record).to_ascii_lowercase());
        let targets = targets.filter(|target| seen.insert(target.clone()));
        let (below, beside): (Vec<_>, Vec<_>) =
            targets.partition(|target| suffixes(target).any(|suffix| suffix == name));
        for target in &below {
            self.glue(zone, target, SECTIONS_MAX);
        }
        self.close_answer();
        for target in &beside {
            self.glue(zone, target, ADDITIONAL_MAX);
        }
    }

    /// Addresses of the hosts that an RRset names, as far as this zone has them.
    fn addresses_for(&mut self, zone: &Checked<'_>, set: &[Record]) {
        self.close_answer();
        let skip = match set[0].rtype {
            TYPE_NS => 0,
            TYPE_MX | TYPE_SVCB | TYPE_HTTPS => 2,
            TYPE_SRV => 6,
            _ => return,
        };
        let mut seen = HashSet::new();
        for record in set {
            let target =
                zone.content.data(record).get(skip..).map(uncompressed).unwrap_or_default().to_ascii_lowercase();
            if self.bytes.len() < ADDITIONAL_MAX
                && seen.insert(target.clone())
                && let Found::Owner(_) = zone.find(&target)
            {
                self.glue(zone, &target, ADDITIONAL_MAX);
            }
        }
    }

    /// A host's addresses, each RRset whole (RFC 2181 section 5) and only while there is room.
    fn glue(&mut self, zone: &Checked<'_>, target: &[u8], room: usize) {
        let Some(owner) = zone.owner(target) else { return };
        for set in [TYPE_A, TYPE_AAAA].map(|rtype| zone.set(owner, rtype)) {
            if self.fits(zone, target, set, room) {
                self.counts.additional += self.set(zone.content, target, set, lowest_ttl(set));
            }
        }
    }

    /// Whether an RRset fits into what is left of `room`, its owner written once if it can be pointed at then.
    fn fits(&self, zone: &Checked<'_>, owner: &[u8], set: &[Record], room: usize) -> bool {
        let pointed_at = self.known(owner).is_some() || self.can_be_pointed_at(self.offset());
        let (once, each) = if pointed_at { (owner.len(), 2) } else { (0, owner.len()) };
        let size: usize = set.iter().map(|record| each + 10 + zone.content.data(record).len()).sum();
        self.bytes.len() + once + size <= room
    }

    /// Writes records of one owner and type, and returns their number.
    fn set(&mut self, content: &Content, owner: &[u8], set: &[Record], ttl: u32) -> u16 {
        for record in set {
            self.owner(owner);
            self.bytes.extend_from_slice(&record.rtype.to_be_bytes());
            self.bytes.extend_from_slice(&[0, 1]);
            self.bytes.extend_from_slice(&ttl.to_be_bytes());
            self.with_length(|sections| sections.data(record.rtype, content.data(record)));
        }
        u16::try_from(set.len()).unwrap_or(u16::MAX)
    }

    /// Writes record data behind its length.
    fn with_length(&mut self, data: impl FnOnce(&mut Self)) {
        let length_at = self.bytes.len();
        self.bytes.extend_from_slice(&[0, 0]);
        data(self);
        let length = u16::try_from(self.bytes.len() - length_at - 2).unwrap_or(u16::MAX);
        self.bytes[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
    }

    fn owner(&mut self, name: &[u8]) {
        if name == self.question && self.is_wildcard {
            self.bytes.extend_from_slice(&[0xc0, 12]);
        } else {
            self.name(name);
        }
    }

    /// Record data; names are compressed in the types of RFC 1035 alone (RFC 3597 section 4).
    fn data(&mut self, rtype: u16, data: &[u8]) {
        match rtype {
            TYPE_NS | TYPE_CNAME | TYPE_PTR => self.name(data),
            TYPE_MX => {
                self.bytes.extend_from_slice(&data[..2]);
                self.name(&data[2..]);
            }
            TYPE_SOA => {
                let server = uncompressed(data);
                let mailbox = uncompressed(&data[server.len()..]);
                self.name(server);
                self.name(mailbox);
                self.bytes.extend_from_slice(&data[server.len() + mailbox.len()..]);
            }
            _ => self.bytes.extend_from_slice(data),
        }
    }

    /// Writes a name, the longest known suffix of it as a pointer.
    fn name(&mut self, name: &[u8]) {
        let start = self.offset();
        for suffix in suffixes(name) {
            let before = name.len() - suffix.len();
            if suffix.len() == 1 {
                self.bytes.extend_from_slice(name);
                break;
            }
            if let Some(offset) = self.known(suffix) {
                self.bytes.extend_from_slice(&name[..before]);
                if let Ok(place) = u16::try_from(self.bytes.len()) {
                    self.pointers.push(place);
                }
                let pointer = 0xc000 | u16::try_from(offset).unwrap_or(0);
                self.bytes.extend_from_slice(&pointer.to_be_bytes());
                if before == 0 {
                    return;
                }
                break;
            }
        }
        if self.can_be_pointed_at(start) && name.len() > 1 {
            self.names.push((start, name.to_vec()));
        }
    }

    /// Where in the message the next byte goes.
    fn offset(&self) -> usize {
        HEADER_LEN + self.question.len() + 4 + self.bytes.len()
    }

    fn can_be_pointed_at(&self, offset: usize) -> bool {
        offset < POINTER_MAX && self.names.len() < NAMES_MAX
    }

    /// The offset at which a name can be read: in the question, or in a name written before.
    fn known(&self, name: &[u8]) -> Option<usize> {
        let within = |whole: &[u8]| {
            suffixes(whole).find(|suffix| suffix.eq_ignore_ascii_case(name)).map(|suffix| whole.len() - suffix.len())
        };
        // The first label of a wildcard is not in the question: the QNAME has other labels there.
        let asked = within(self.question).filter(|at| !(self.is_wildcard && *at == 0)).map(|at| HEADER_LEN + at);
        asked.or_else(|| {
            self.names
                .iter()
                .find_map(|(start, written)| Some(start + within(written)?))
                .filter(|offset| *offset < POINTER_MAX)
        })
    }
}

/// RFC 2181 section 5.2.
fn lowest_ttl(set: &[Record]) -> u32 {
    set.iter().map(|record| record.ttl).min().unwrap_or(0)
}

/// The name at the start of some bytes that have it uncompressed.
fn uncompressed(bytes: &[u8]) -> &[u8] {
    let rest = suffixes(bytes).last().map_or(0, <[u8]>::len);
    // The last suffix is what begins with the root label.
    &bytes[..bytes.len() - rest + usize::from(rest > 0)]
}
