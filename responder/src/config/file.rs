//! The configuration file (TOML): read as a whole, and every error in it reported with its line.
//!
//! The document is walked by hand and not by derived code, since that would stop at the first error and could not say which key was meant.

use std::{
    fs,
    ops::Range,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

use super::settings::{self, Settings};
use crate::zone::Source;

/// Reads the file at `path`. Paths in it are relative to its directory.
pub(super) fn read(path: &Path) -> Result<Settings> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read the configuration file {}", path.display()))?;
    let mut problems = Vec::new();
    let settings = parse(&text, path.parent().unwrap_or(Path::new("")), &mut problems);
    if problems.is_empty() {
        return Ok(settings);
    }
    problems.sort_by_key(|(at, _)| *at);
    let lines: Vec<String> = problems
        .iter()
        .map(|(at, message)| {
            let line = 1 + text.bytes().take(*at).filter(|byte| *byte == b'\n').count();
            format!("{}:{line}: {message}", path.display())
        })
        .collect();
    Err(anyhow!("{}", lines.join("\n")))
}

/// Errors, each with its place in the text.
type Problems = Vec<(usize, String)>;

fn parse(text: &str, directory: &Path, problems: &mut Problems) -> Settings {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What follows from a document that is no TOML would not be worth reading.
        problems
            .extend(errors.iter().map(|error| (error.span().map_or(0, |span| span.start), error.message().to_owned())));
        return Settings::default();
    }
    let mut file = Section::new(String::new(), document.into_inner(), problems);
    let settings = Settings {
        interfaces: file.list("interfaces", |name| Ok(name.to_owned())),
        listen: file.list("listen", settings::listen),
        zone_directory: file.text("zone_directory", path).map(|path| directory.join(path)),
        queues: file.text("queues", settings::queues),
        cpus: file.text("cpus", settings::cpus),
        io: file.choice("io"),
        xdp_mode: file.choice("xdp_mode"),
        zero_copy: file.choice("zero_copy"),
        service: file.choice("service"),
        vlans: file.text("vlan", settings::vlans),
        busy_poll_us: file.number("busy_poll", 1..1_000_001),
        verify_checksums: file.choice("verify_checksums"),
        ring_frames: file.number("ring_frames", 1..u32::MAX),
        control: file.text("control", path).map(|path| directory.join(path)),
        log_steering: file.boolean("log_steering"),
        zones: zones(&mut file, directory),
    };
    file.end();
    settings
}

fn path(text: &str) -> Result<PathBuf> {
    if text.is_empty() { Err(anyhow!("expected a path")) } else { Ok(text.into()) }
}

/// `[zones]`: any name, and its file.
fn zones(file: &mut Section<'_, '_>, directory: &Path) -> Option<Vec<Source>> {
    let mut section = file.table("zones")?;
    let names: Vec<String> = section.names();
    let sources = names.into_iter().filter_map(|name| {
        let file = section.text(&name, path)?;
        Some(Source { file: directory.join(file), name })
    });
    Some(sources.collect())
}

/// A table whose keys are taken one after the other. What is left at the end is unknown.
struct Section<'p, 'a> {
    /// What stands before its keys in messages.
    prefix: String,
    table: DeTable<'a>,
    known: Vec<String>,
    problems: &'p mut Problems,
}

impl<'p, 'a> Section<'p, 'a> {
    fn new(prefix: String, table: DeTable<'a>, problems: &'p mut Problems) -> Self {
        Self { prefix, table, known: Vec::new(), problems }
    }

    fn names(&self) -> Vec<String> {
        self.table.keys().map(|key| key.get_ref().to_string()).collect()
    }

    /// Takes the value of `key` and reads it; an error is noted at the value.
    fn take<T>(&mut self, key: &str, read: impl Fn(&DeValue<'a>) -> Result<T>) -> Option<T> {
        self.known.push(key.to_owned());
        let value = self.table.remove(key)?;
        self.note(key, &value, read)
    }

    fn note<T>(
        &mut self,
        key: &str,
        value: &Spanned<DeValue<'a>>,
        read: impl Fn(&DeValue<'a>) -> Result<T>,
    ) -> Option<T> {
        match read(value.get_ref()) {
            Ok(value) => Some(value),
            Err(error) => {
                let message = format!("{}{key} = {}: {error:#}", self.prefix, shown(value.get_ref()));
                self.problems.push((value.span().start, message));
                None
            }
        }
    }

    fn text<T>(&mut self, key: &str, read: impl Fn(&str) -> Result<T>) -> Option<T> {
        self.take(key, |value| read(value.as_str().context("expected a string in quotes")?))
    }

    /// An array of strings.
    fn list<T>(&mut self, key: &str, read: impl Fn(&str) -> Result<T>) -> Option<Vec<T>> {
        self.known.push(key.to_owned());
        let value = self.table.remove(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            return self.note(key, &value, |_| Err(anyhow!("expected an array of strings, as in [\"a\", \"b\"]")));
        };
        let read = |value: &DeValue<'a>| read(value.as_str().context("expected a string in quotes")?);
        // All items are looked at, so that all errors come out.
        let items: Vec<Option<T>> = items.iter().map(|item| self.note(key, item, read)).collect();
        items.into_iter().collect()
    }

    fn boolean(&mut self, key: &str) -> Option<bool> {
        self.take(key, |value| value.as_bool().context("expected true or false"))
    }

    fn number(&mut self, key: &str, range: Range<u32>) -> Option<u32> {
        self.take(key, |value| {
            let number = value.as_integer().and_then(|integer| {
                u32::from_str_radix(integer.as_str(), integer.radix()).ok().filter(|number| range.contains(number))
            });
            number.with_context(|| format!("expected a number from {} to {}", range.start, range.end - 1))
        })
    }

    /// One of a flag's words.
    fn choice<T: ValueEnum>(&mut self, key: &str) -> Option<T> {
        self.text(key, |text| {
            T::from_str(text, false).map_err(|_| {
                let words = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
                let words: Vec<String> = words.map(|word| word.get_name().to_owned()).collect();
                anyhow!("expected {}{}", words.join(", "), did_you_mean(text, &words))
            })
        })
    }

    fn table(&mut self, key: &str) -> Option<Section<'_, 'a>> {
        let table = self.take(key, |value| match value {
            DeValue::Table(table) => Ok(table.clone()),
            _ => Err(anyhow!("expected a table: [{key}]")),
        })?;
        Some(Section::new(format!("{key}."), table, self.problems))
    }

    /// Notes the keys that nothing asked for.
    fn end(self) {
        for key in self.table.keys() {
            let name = key.get_ref();
            let message = format!(
                "unknown key {}{name}: expected one of {}{}",
                self.prefix,
                self.known.join(", "),
                did_you_mean(name, &self.known)
            );
            self.problems.push((key.span().start, message));
        }
    }
}

/// A value as the file has it, where that is short.
fn shown(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("{text:?}"),
        DeValue::Integer(number) => number.to_string(),
        DeValue::Float(number) => number.to_string(),
        DeValue::Boolean(value) => value.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "an array".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}

/// The word that was most likely meant.
fn did_you_mean(word: &str, known: &[String]) -> String {
    let nearest = known.iter().map(|candidate| (distance(word, candidate), candidate)).min();
    match nearest {
        Some((distance, candidate)) if 2 * distance <= 1 + word.len() => format!("; did you mean {candidate}?"),
        _ => String::new(),
    }
}

/// How many letters must be put in, taken out or changed.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let changed = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
