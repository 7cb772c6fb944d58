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
mod published;
mod rdata;
mod reload;
mod render;
pub(crate) mod table;
mod tokens;

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
};

pub use published::{Published, View};
pub use reload::{Contents, Outcome, Reloaded};
use table::{Nodes, Table};

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
        let mut errors = Vec::new();
        let mut contents = Vec::new();
        let mut seen = BTreeSet::new();
        for source in sources {
            match load::read(source) {
                Ok(content) if !seen.insert(content.apex.clone()) => {
                    errors.push(format!("{}: zone {} is given twice", source.file.display(), source.name));
                }
                Ok(content) => contents.push(content),
                Err(found) => errors.extend(found.0),
            }
        }
        if errors.is_empty() { Self::build(contents) } else { Err(LoadErrors(errors)) }
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
        let apexes: BTreeSet<Vec<u8>> = contents.iter().map(|content| content.apex.clone()).collect();
        let mut errors = Vec::new();
        let mut checked = Vec::new();
        for content in &contents {
            match check::Checked::new(content, &apexes) {
                Ok(zone) => checked.push(zone),
                Err(found) => errors.extend(found),
            }
        }
        if errors.is_empty() { Ok(Self::render(&checked)) } else { Err(LoadErrors(errors)) }
    }

    /// The table of zones that keep to the rules.
    fn render(checked: &[check::Checked<'_>]) -> Self {
        let mut nodes = Nodes::with_capacity(checked.iter().map(check::Checked::node_count).sum());
        let mut zones = Vec::with_capacity(checked.len());
        for (index, zone) in checked.iter().enumerate() {
            zones.push(render::zone(zone, u32::try_from(index).unwrap_or(u32::MAX), checked, &mut nodes));
        }
        Self { table: Table::new(nodes), zones }
    }

    /// What there is to say of each zone.
    #[must_use]
    pub fn summary(&self) -> Vec<Summary> {
        self.zones.iter().map(|zone| zone.summary.clone()).collect()
    }
}

/// The zone's name as its file has it: the owner of its SOA record.
#[must_use]
pub fn name_in(file: &Path) -> Option<String> {
    load::soa_owner(file)
}

#[cfg(test)]
#[path = "zone/zone_tests.rs"]
mod tests;
