//! What is in the zones, as one of the peers reads them: taken from it by zone transfer, so that no parser of ours has a say.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::{Context as _, ensure};

use super::{
    exchange,
    message::{self, A, AAAA, AXFR, Message, NS, Record, SOA, is_within, suffixes},
    servers::{Server, ZoneFile},
};

/// All zones.
#[derive(Debug, Default)]
pub struct Data {
    /// Their apexes.
    pub apexes: BTreeSet<Vec<u8>>,
    /// Every name with records, and every name above one in its zone, with the types it has.
    pub names: BTreeMap<Vec<u8>, BTreeSet<u16>>,
    /// Every record, also those below zone cuts.
    records: HashSet<Record>,
    /// A and AAAA records by owner.
    addresses: BTreeMap<Vec<u8>, Vec<Record>>,
    /// Names with the apex of the zone that has them.
    owners: Vec<(Vec<u8>, Vec<u8>)>,
    /// Names that a zone has although they are another's.
    hidden: BTreeSet<Vec<u8>>,
}

impl Data {
    /// Asks for all zones, from within the namespace.
    pub fn transfer(zones: &[ZoneFile]) -> anyhow::Result<Self> {
        let mut data = Self::default();
        for zone in zones {
            let apex = message::name_from(&zone.name.to_ascii_lowercase());
            let records = records(&apex).with_context(|| format!("transferring {}", zone.name))?;
            data.add(&apex, records);
        }
        data.find_hidden();
        Ok(data)
    }

    /// Adds a zone.
    pub fn add(&mut self, apex: &[u8], records: Vec<Record>) {
        self.apexes.insert(apex.to_vec());
        for record in records {
            for above in suffixes(&record.owner).take_while(|name| name.len() >= apex.len()) {
                self.names.entry(above.to_vec()).or_default();
            }
            self.names.entry(record.owner.clone()).or_default().insert(record.rtype);
            self.owners.push((record.owner.clone(), apex.to_vec()));
            if [A, AAAA].contains(&record.rtype) {
                self.addresses.entry(record.owner.clone()).or_default().push(record.clone());
            }
            self.records.insert(record);
        }
    }

    fn find_hidden(&mut self) {
        let owners = std::mem::take(&mut self.owners);
        let hidden = owners.into_iter().filter(|(name, apex)| self.zone_of(name) != Some(apex.as_slice()));
        self.hidden = hidden.map(|(name, _)| name).collect();
    }

    /// True where the name, or one above it, is in a zone although a nearer zone of ours hides it.
    #[must_use]
    pub fn has_hidden_above(&self, name: &[u8]) -> bool {
        suffixes(name).any(|name| self.hidden.contains(name))
    }

    /// True for a record as it stands in a zone.
    #[must_use]
    pub fn has(&self, record: &Record) -> bool {
        self.records.contains(record)
    }

    /// The apex of the nearest zone that a name is in (RFC 1034 section 4.3.2 step 2).
    #[must_use]
    pub fn zone_of<'a>(&self, name: &'a [u8]) -> Option<&'a [u8]> {
        suffixes(name).find(|name| self.apexes.contains(*name))
    }

    /// The addresses that the zones have for a name.
    #[must_use]
    pub fn addresses(&self, name: &[u8]) -> Vec<&Record> {
        self.addresses.get(name).into_iter().flatten().collect()
    }

    /// True for a record that a wildcard right below one of the names above makes.
    #[must_use]
    pub fn has_by_wildcard(&self, record: &Record) -> bool {
        suffixes(&record.owner).skip(1).any(|above| {
            let owner = [b"\x01*", above].concat();
            self.records.contains(&Record { owner, ..record.clone() })
        })
    }

    /// True for glue that a referral cannot do without: the address of a name server that lies within the zone it serves.
    #[must_use]
    pub fn is_needed_glue(reply: &Message, record: &Record) -> bool {
        let mut servers = reply.authority.iter().filter(|server| server.rtype == NS);
        servers.any(|server| server.data == record.owner && is_within(&record.owner, &server.owner))
    }

    /// All types that occur.
    #[must_use]
    pub fn all_types(&self) -> BTreeSet<u16> {
        self.names.values().flatten().copied().collect()
    }
}

/// The records of a zone; the SOA frames them (RFC 5936 section 2.2).
fn records(apex: &[u8]) -> anyhow::Result<Vec<Record>> {
    let query = [&b"\0\x07\0\0\0\x01\0\0\0\0\0\0"[..], apex, &AXFR.to_be_bytes(), b"\0\x01"].concat();
    let is_last = |messages: &[Vec<u8>]| {
        let records = messages.iter().filter_map(|bytes| Message::read(bytes).ok());
        let soa = |message: &Message| message.answer.iter().filter(|record| record.rtype == SOA).count();
        let mut rcodes = messages.iter().map(|bytes| bytes.get(3).copied().unwrap_or(1) & 0xf);
        records.map(|message| soa(&message)).sum::<usize>() >= 2 || rcodes.any(|rcode| rcode != 0)
    };
    let messages = exchange::transfer(Server::Bind.address(), &query, is_last)?;
    let mut records = Vec::new();
    for bytes in messages {
        let message = Message::read(&bytes).map_err(anyhow::Error::msg)?;
        ensure!(message.rcode == 0, "it is refused: {}", message::rcode_text(message.rcode));
        records.extend(message.answer);
    }
    records.sort_unstable();
    records.dedup();
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(owner: &str, rtype: u16, data: &[u8]) -> Record {
        Record { owner: message::name_from(owner), rtype, class: 1, ttl: 60, data: data.to_vec() }
    }

    #[test]
    fn names_above_are_there() {
        let mut data = Data::default();
        let apex = message::name_from("example");
        let records = vec![
            record("example", NS, b"\x01n\0"),
            record("a.b.example", 1, b"abcd"),
            record("cut.example", NS, b"\x01n\x03cut\x07example\0"),
            record("n.cut.example", 1, b"abcd"),
        ];
        data.add(&apex, records.clone());
        assert_eq!(data.names.len(), 5, "an empty non-terminal is a name");
        assert!(data.has(&records[1]));
        assert_eq!(data.addresses(&records[3].owner), [&records[3]]);
        assert_eq!(data.zone_of(&message::name_from("x.example")), Some(apex.as_slice()));
        assert_eq!(data.zone_of(&message::name_from("com")), None);
    }
}
