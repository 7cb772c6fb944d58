//! Zones: master files in, an immutable table of rendered answers out (RFC 1034, 1035 section 5).
//!
//! A zone is loaded whole or not at all: `tokens` splits a file into entries, `rdata` reads their data, `load` makes records of them and
//! follows directives, `check` holds the records against the rules for a zone, `doubt` warns of what keeps to them and is still odd, `render` turns them into sections ready to be copied, and
//! `table` keeps those. Nothing changes afterwards, and nothing of the reading is kept.

mod check;
mod doubt;
mod generate;
mod hash;
mod load;
mod loc;
mod parallel;
mod published;
mod rdata;
mod reload;
mod render;
pub(crate) mod table;
mod tokens;

use std::{
    collections::{HashMap, HashSet},
    fmt, iter,
    path::{Path, PathBuf},
};

use parallel::{Progress, on_all_cpus};
pub use published::{Published, View};
pub use reload::{Contents, Outcome, Reloaded};
use table::{Flags, Nodes, Table};

/// A zone's name and its master file, as the operator gave them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The zone's name.
    pub name: String,
    /// Its master file.
    pub file: PathBuf,
}

/// Loaded zones.
#[derive(Debug)]
pub struct Zones {
    pub(crate) table: Table,
    pub(crate) zones: Vec<Zone>,
}

/// What is kept of a zone besides its names.
#[derive(Debug)]
pub(crate) struct Zone {
    /// The apex, in lower case, on the wire.
    pub(crate) apex: Vec<u8>,
    /// The SOA record of negative answers, as it goes behind a question for the apex.
    pub(crate) soa: Vec<u8>,
    /// Its compression pointers.
    pub(crate) soa_pointers: Vec<u16>,
    summary: Summary,
}

/// What there is to say of a loaded zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Its name.
    pub name: String,
    /// The serial number of its SOA.
    pub serial: u32,
    /// Names that own records.
    pub names: usize,
    /// Records.
    pub records: usize,
    /// What is odd about it and no error.
    pub warnings: Vec<String>,
}

/// What is wrong with the zones: a line for each error, `FILE:LINE:COLUMN: what, and what was expected`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadErrors(Vec<String>);

/// More errors than this are counted and not shown.
const ERRORS_SHOWN: usize = 20;

impl fmt::Display for LoadErrors {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown: Vec<&str> = self.0.iter().take(ERRORS_SHOWN).map(String::as_str).collect();
        out.write_str(&shown.join("\n"))?;
        match self.0.len().saturating_sub(ERRORS_SHOWN) {
            0 => Ok(()),
            more => write!(out, "\nand {more} more errors"),
        }
    }
}

impl std::error::Error for LoadErrors {}

impl LoadErrors {
    /// All of them, one a line.
    #[must_use]
    pub fn lines(&self) -> &[String] {
        &self.0
    }
}

impl Zones {
    /// Loads zones from their files: all of them, or none.
    pub fn load(sources: &[Source]) -> Result<Self, LoadErrors> {
        Contents::load(sources).map(|(_, zones)| zones)
    }

    /// Loads one zone from text: for tests, and for those who have no file. `$INCLUDE` is refused.
    pub fn from_text(name: &str, text: &[u8]) -> Result<Self, LoadErrors> {
        Self::build(vec![load::read_text(name, text)?])
    }

    /// Loads several zones from texts.
    #[cfg(test)]
    pub(crate) fn from_texts(texts: &[(&str, &str)]) -> Result<Self, LoadErrors> {
        let contents = texts.iter().map(|(name, text)| load::read_text(name, text.as_bytes()));
        Self::build(contents.collect::<Result<_, _>>()?)
    }

    fn build(contents: Vec<load::Content>) -> Result<Self, LoadErrors> {
        let contents: Vec<&load::Content> = contents.iter().collect();
        let mut errors = Vec::new();
        let mut zones = Vec::with_capacity(contents.len());
        for zone in check_all(&contents) {
            match zone {
                Ok(zone) => zones.push(zone),
                Err(found) => errors.extend(found),
            }
        }
        if errors.is_empty() { Ok(render_all(&zones, iter::empty()).table()) } else { Err(LoadErrors(errors)) }
    }

    /// How many zones there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.zones.len()
    }

    /// What there is to say of each zone.
    #[must_use]
    pub fn summary(&self) -> Vec<Summary> {
        self.zones.iter().map(|zone| zone.summary.clone()).collect()
    }
}

/// Zones whose names are rendered and not yet in a table.
struct Rendered {
    zones: Vec<Zone>,
    nodes: Nodes,
}

impl Rendered {
    /// Puts the names into a table. It needs room: what was read of the zones is given back before, where it is not kept.
    fn table(self) -> Zones {
        Zones { table: Table::new(self.nodes), zones: self.zones }
    }
}

/// Holds each zone against the rules, in their order.
fn check_all<'c>(contents: &[&'c load::Content]) -> Vec<Result<check::Checked<'c>, Vec<String>>> {
    let children = children(contents);
    let progress = Progress::new("checked", contents.len());
    let checked = on_all_cpus(contents, |_, content| {
        let children = children.get(content.apex.as_slice()).cloned().unwrap_or_default();
        progress.count(check::Checked::new(content, children))
    });
    progress.end();
    checked
}

/// Renders zones that keep to the rules, and in the place of the `unavailable` ones, given by their apexes, that they cannot be answered. Where a served
/// zone is above one it delegates it.
fn render_all<'a>(checked: &[check::Checked<'_>], unavailable: impl Iterator<Item = &'a [u8]>) -> Rendered {
    let all: render::All<'_, '_> = checked.iter().map(|zone| (zone.content.apex.as_slice(), zone)).collect();
    let progress = Progress::new("rendered", checked.len());
    let rendered = on_all_cpus(checked, |index, zone| {
        progress.count(render::zone(zone, u32::try_from(index).unwrap_or(u32::MAX), &all))
    });
    progress.end();
    let mut zones = Vec::with_capacity(checked.len());
    let mut nodes: Option<Nodes> = None;
    for (zone, its) in rendered {
        zones.push(zone);
        match &mut nodes {
            Some(nodes) => nodes.append(its),
            // Of a single zone, which may be large, nothing is copied.
            None => nodes = Some(its),
        }
    }
    let mut nodes = nodes.unwrap_or_default();
    for apex in unavailable {
        if load::suffixes(apex).all(|above| !all.contains_key(above)) {
            nodes.insert(apex, Flags::APEX.with(Flags::CUT), u32::MAX, &[]);
        }
    }
    Rendered { zones, nodes }
}

/// For each zone that has any, the apexes of the other zones below it.
fn children<'c>(contents: &[&'c load::Content]) -> HashMap<&'c [u8], HashSet<&'c [u8]>> {
    let apexes: HashSet<&[u8]> = contents.iter().map(|content| content.apex.as_slice()).collect();
    let mut children: HashMap<&[u8], HashSet<&[u8]>> = HashMap::new();
    for apex in &apexes {
        for above in load::suffixes(apex).skip(1).filter(|above| apexes.contains(above)) {
            if let Some(above) = apexes.get(above) {
                children.entry(above).or_default().insert(apex);
            }
        }
    }
    children
}

/// The zone's name as its file has it: the owner of its SOA record.
#[must_use]
pub fn name_in(file: &Path) -> Option<String> {
    load::soa_owner(file)
}

#[cfg(test)]
#[path = "zone/zone_tests.rs"]
mod tests;
