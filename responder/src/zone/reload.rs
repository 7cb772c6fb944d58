//! Zones read anew while others are kept (RFC 1034 section 4.3.5 calls it maintenance): what a running server answers from next.
//!
//! A table is built from all zones at once, since an alias may lead from one into another. So what was read is kept: a zone whose file has an error,
//! or that nobody asked to reload, goes into the next table as it was. Where there is only one zone nothing is kept, for then an error means
//! that nothing changes, and a large zone would be in memory twice.
//!
//! A zone that is configured and has never been loaded is unavailable: the table has its apex, so that it is answered as ours and broken, not as unknown.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use super::{
    LoadErrors, Rendered, Source, Summary, Zones, check_all,
    load::{self, Content},
    parallel::{Progress, on_all_cpus},
    render_all,
};

/// What was read of the zones in service.
#[derive(Debug, Default)]
pub struct Contents(Vec<Zone>);

#[derive(Clone, Debug)]
struct Zone {
    source: Source,
    apex: Vec<u8>,
    /// Of what is served; `None` if the zone is unavailable.
    serial: Option<u32>,
    /// What it was read from, the last time that it could be.
    files: Vec<PathBuf>,
    content: Option<Arc<Content>>,
}

/// What came of reloading.
#[derive(Debug)]
pub struct Reloaded {
    /// What is to be served from now on; `None` where everything stays as it was.
    pub next: Option<(Contents, Zones)>,
    /// What there is to say of each zone that was to be reloaded, and of each that is no longer served.
    pub outcomes: Vec<Outcome>,
}

/// What became of a zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// The serial number in service before, if it was served.
    pub before: Option<u32>,
    /// What is in service now of it, if it was loaded.
    pub now: Option<Summary>,
    /// Why it was not loaded.
    pub errors: Vec<String>,
}

/// A zone on its way into the next table.
struct Candidate {
    zone: Zone,
    before: Option<u32>,
    is_fresh: bool,
    errors: Vec<String>,
}

impl Contents {
    /// Loads zones from their files, all of them or none: what a server starts with.
    pub fn load(sources: &[Source]) -> Result<(Self, Zones), LoadErrors> {
        let reloaded = Self::default().reload(sources, None);
        let errors: Vec<String> = reloaded.outcomes.into_iter().flat_map(|outcome| outcome.errors).collect();
        match reloaded.next {
            Some(next) if errors.is_empty() => Ok(next),
            _ => Err(LoadErrors(errors)),
        }
    }

    /// The files that each zone was read from, those included by others among them.
    #[must_use]
    pub fn files(&self) -> Vec<(String, Vec<PathBuf>)> {
        self.0.iter().map(|zone| (zone.source.name.clone(), zone.files.clone())).collect()
    }

    /// Reads all zones of `sources` anew, or `only` one of them.
    #[must_use]
    pub fn reload(&self, sources: &[Source], only: Option<&str>) -> Reloaded {
        let mut outcomes = Vec::new();
        let mut candidates = match only {
            None => self.read_all(sources, &mut outcomes),
            Some(name) => match self.read_one(sources, name) {
                Ok(candidates) => candidates,
                Err(error) => return Reloaded { next: None, outcomes: vec![failed(name, error)] },
            },
        };
        let rendered = self.build(&mut candidates);
        let keeps = rendered.is_some() && candidates.len() > 1;
        if !keeps {
            // What was read is given back before the table needs room.
            let contents = candidates.iter_mut().filter_map(|candidate| candidate.zone.content.as_mut());
            contents.for_each(|content| *content = Arc::default());
        }
        let zones = rendered.map(Rendered::table);
        let summaries = zones.as_ref().map(Zones::summary).unwrap_or_default();
        let mut served = summaries.iter();
        for candidate in &mut candidates {
            // The table has those with content, in this order.
            let summary = candidate.zone.content.as_ref().and_then(|_| served.next());
            candidate.zone.serial = summary.map(|summary| summary.serial).or(candidate.zone.serial);
            let now = summary.filter(|_| candidate.is_fresh).cloned();
            if candidate.is_fresh && now.is_none() {
                let file = candidate.zone.source.file.display();
                candidate.errors.push(format!("{file}: not loaded, since another zone has errors"));
            }
            if candidate.is_fresh || !candidate.errors.is_empty() {
                let (name, errors) = (load::display(&candidate.zone.apex), std::mem::take(&mut candidate.errors));
                outcomes.push(Outcome { name, before: candidate.before, now, errors });
            }
        }
        let next = zones.map(|zones| {
            let all = candidates.into_iter().map(|candidate| candidate.zone);
            let kept = all.map(|zone| Zone { content: zone.content.filter(|_| keeps), ..zone });
            (Self(kept.collect()), zones)
        });
        Reloaded { next, outcomes }
    }

    fn read_all(&self, sources: &[Source], outcomes: &mut Vec<Outcome>) -> Vec<Candidate> {
        let mut seen = BTreeSet::new();
        let mut wanted = Vec::with_capacity(sources.len());
        for source in sources {
            match load::apex(source) {
                Err(error) => outcomes.push(failed(&source.name, error)),
                Ok(apex) if !seen.insert(apex.clone()) => {
                    let error = format!("{}: zone {} is given twice", source.file.display(), source.name);
                    outcomes.push(failed(&source.name, error));
                }
                Ok(apex) => wanted.push((source, apex)),
            }
        }
        let held: HashMap<&[u8], &Zone> = self.0.iter().map(|zone| (zone.apex.as_slice(), zone)).collect();
        let progress = Progress::new("read", wanted.len());
        let candidates = on_all_cpus(&wanted, |_, (source, apex)| {
            progress.count(read(source, apex, held.get(apex.as_slice()).copied()))
        });
        progress.end();
        for gone in self.0.iter().filter(|zone| !seen.contains(&zone.apex)) {
            let name = load::display(&gone.apex);
            outcomes.push(Outcome { name, before: gone.serial, ..Outcome::default() });
        }
        candidates
    }

    fn read_one(&self, sources: &[Source], name: &str) -> Result<Vec<Candidate>, String> {
        let wanted = load::apex(&Source { name: name.to_owned(), file: name.into() });
        let source = sources.iter().find(|source| wanted.is_ok() && load::apex(source) == wanted);
        let (Ok(apex), Some(source)) = (wanted, source) else {
            return Err(format!("zone {name} is not configured: expected a name as in `responder status`"));
        };
        let mut candidates: Vec<Candidate> = self.0.iter().filter(|zone| zone.apex != apex).map(kept).collect();
        let held = self.0.iter().find(|zone| zone.apex == apex);
        candidates.push(read(source, &apex, held));
        Ok(candidates)
    }

    /// Holds all zones against the rules, puts what was served before in the place of those that break them, and builds the next table; `None` if
    /// there is nothing new, or if what was served before is needed and was not kept.
    fn build(&self, candidates: &mut [Candidate]) -> Option<Rendered> {
        loop {
            let has_all =
                candidates.iter().all(|candidate| candidate.zone.content.is_some() || candidate.before.is_none());
            let held: HashSet<&[u8]> = self.0.iter().map(|zone| zone.apex.as_slice()).collect();
            let wanted: HashSet<&[u8]> = candidates.iter().map(|candidate| candidate.zone.apex.as_slice()).collect();
            let changes = wanted != held || candidates.iter().any(|candidate| candidate.is_fresh);
            if !has_all || !changes {
                return None;
            }
            let (indices, contents): (Vec<usize>, Vec<&Content>) = candidates
                .iter()
                .enumerate()
                .filter_map(|(index, candidate)| Some((index, candidate.zone.content.as_deref()?)))
                .unzip();
            let mut checked = Vec::with_capacity(contents.len());
            let mut broken = Vec::new();
            for (index, zone) in indices.into_iter().zip(check_all(&contents)) {
                match zone {
                    Ok(zone) => checked.push(zone),
                    Err(errors) => broken.push((index, errors)),
                }
            }
            if broken.is_empty() {
                let unavailable = candidates.iter().filter(|candidate| candidate.zone.content.is_none());
                return Some(render_all(&checked, unavailable.map(|candidate| candidate.zone.apex.as_slice())));
            }
            drop(checked);
            // Then all are looked at anew: a zone whose child is not served delegates it after all.
            for (index, errors) in broken {
                let candidate = &mut candidates[index];
                let held = self.0.iter().find(|zone| zone.apex == candidate.zone.apex && candidate.is_fresh);
                candidate.zone.content = held.and_then(|held| held.content.clone());
                candidate.is_fresh = false;
                candidate.errors.extend(errors);
            }
        }
    }
}

/// Reads a zone's file. What is `held` of the zone stays in its place if the file has an error.
fn read(source: &Source, apex: &[u8], held: Option<&Zone>) -> Candidate {
    let before = held.and_then(|zone| zone.serial);
    let (content, errors) = match load::read(source) {
        Ok(content) => (Some(Arc::new(content)), Vec::new()),
        Err(errors) => (held.and_then(|zone| zone.content.clone()), errors.0),
    };
    let files = match (&content, held) {
        (Some(content), _) if errors.is_empty() => content.files.clone(),
        (_, Some(held)) => held.files.clone(),
        _ => vec![source.file.clone()],
    };
    let zone = Zone { source: source.clone(), apex: apex.to_owned(), serial: None, files, content };
    Candidate { zone, before, is_fresh: errors.is_empty(), errors }
}

fn kept(zone: &Zone) -> Candidate {
    Candidate { zone: zone.clone(), before: zone.serial, is_fresh: false, errors: Vec::new() }
}

fn failed(name: &str, error: String) -> Outcome {
    Outcome { name: name.to_owned(), errors: vec![error], ..Outcome::default() }
}

#[cfg(test)]
#[path = "reload_tests.rs"]
mod tests;
