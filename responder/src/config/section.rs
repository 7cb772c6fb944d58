//! One table of the configuration file: its keys are taken one after the other, and each that is wrong, or that nobody knows, is noted.

use std::ops::Range;

use anyhow::{Context, Result, anyhow};
use clap::ValueEnum;
use toml::{
    Spanned,
    de::{DeTable, DeValue},
};

/// Errors, each with its place in the text.
pub(super) type Problems = Vec<(usize, String)>;

/// A table whose keys are taken one after the other. What is left at the end is unknown.
pub(super) struct Section<'p, 'a> {
    /// What stands before its keys in messages.
    prefix: String,
    /// Where it begins in the text.
    at: usize,
    table: DeTable<'a>,
    known: Vec<String>,
    taken: Vec<String>,
    problems: &'p mut Problems,
}

impl<'p, 'a> Section<'p, 'a> {
    /// The whole document.
    pub(super) fn new(document: DeTable<'a>, problems: &'p mut Problems) -> Self {
        Self { prefix: String::new(), at: 0, table: document, known: Vec::new(), taken: Vec::new(), problems }
    }

    pub(super) fn names(&self) -> Vec<String> {
        self.table.keys().map(|key| key.get_ref().to_string()).collect()
    }

    /// Whether it has, or had before it was taken, this key.
    pub(super) fn had(&self, key: &str) -> bool {
        self.taken.iter().any(|taken| taken == key)
    }

    /// Takes the value of `key` and reads it; an error is noted at the value.
    fn take<T>(&mut self, key: &str, read: impl Fn(&DeValue<'a>) -> Result<T>) -> Option<T> {
        let value = self.remove(key)?;
        self.note(key, &value, read)
    }

    fn remove(&mut self, key: &str) -> Option<Spanned<DeValue<'a>>> {
        self.known.push(key.to_owned());
        let value = self.table.remove(key)?;
        self.taken.push(key.to_owned());
        Some(value)
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
                // A secret is no matter for a log, not even a wrong one.
                let shown = if key == "cookie_secret" { "...".to_owned() } else { shown(value.get_ref()) };
                let message = format!("{}{key} = {shown}: {error:#}", self.prefix);
                self.problems.push((value.span().start, message));
                None
            }
        }
    }

    pub(super) fn text<T>(&mut self, key: &str, read: impl Fn(&str) -> Result<T>) -> Option<T> {
        self.take(key, |value| read(value.as_str().context("expected a string in quotes")?))
    }

    /// An array of strings.
    pub(super) fn list<T>(&mut self, key: &str, read: impl Fn(&str) -> Result<T>) -> Option<Vec<T>> {
        let value = self.remove(key)?;
        let DeValue::Array(items) = value.get_ref() else {
            return self.note(key, &value, |_| Err(anyhow!("expected an array of strings, as in [\"a\", \"b\"]")));
        };
        let read = |value: &DeValue<'a>| read(value.as_str().context("expected a string in quotes")?);
        // All items are looked at, so that all errors come out.
        let items: Vec<Option<T>> = items.iter().map(|item| self.note(key, item, read)).collect();
        items.into_iter().collect()
    }

    pub(super) fn boolean(&mut self, key: &str) -> Option<bool> {
        self.take(key, |value| value.as_bool().context("expected true or false"))
    }

    pub(super) fn number(&mut self, key: &str, range: Range<u32>) -> Option<u32> {
        self.take(key, |value| {
            let number = value.as_integer().and_then(|integer| {
                u32::from_str_radix(integer.as_str(), integer.radix()).ok().filter(|number| range.contains(number))
            });
            number.with_context(|| format!("expected a number from {} to {}", range.start, range.end - 1))
        })
    }

    /// One of a flag's words.
    pub(super) fn choice<T: ValueEnum>(&mut self, key: &str) -> Option<T> {
        let words = T::value_variants().iter().filter_map(|value| Some((value.to_possible_value()?, value.clone())));
        let words: Vec<(String, T)> = words.map(|(word, value)| (word.get_name().to_owned(), value)).collect();
        let words: Vec<(&str, T)> = words.iter().map(|(word, value)| (word.as_str(), value.clone())).collect();
        self.word(key, &words)
    }

    /// One of some words.
    pub(super) fn word<T: Clone>(&mut self, key: &str, words: &[(&str, T)]) -> Option<T> {
        self.text(key, |text| {
            let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| value.clone());
            found.ok_or_else(|| {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                anyhow!("expected {}{}", words.join(", "), did_you_mean(text, &words))
            })
        })
    }

    /// The table `[key]`.
    pub(super) fn table(&mut self, key: &str) -> Option<Section<'_, 'a>> {
        let value = self.remove(key)?;
        self.inner(key, value, &format!("[{key}]"))
    }

    /// The tables `[[key]]`, each read in turn.
    pub(super) fn tables<T>(&mut self, key: &str, read: impl Fn(&mut Section<'_, 'a>) -> Option<T>) -> Vec<T> {
        let Some(value) = self.remove(key) else { return Vec::new() };
        let expected = format!("tables: [[{key}]]");
        let DeValue::Array(items) = value.get_ref() else {
            self.note::<()>(key, &value, |_| Err(anyhow!("expected {expected}")));
            return Vec::new();
        };
        let mut found = Vec::new();
        for item in items.iter() {
            let Some(mut section) = self.inner(key, item.clone(), &expected) else { continue };
            found.extend(read(&mut section));
            section.end();
        }
        found
    }

    fn inner(&mut self, key: &str, value: Spanned<DeValue<'a>>, expected: &str) -> Option<Section<'_, 'a>> {
        let at = value.span().start;
        let prefix = format!("{}{key}.", self.prefix);
        match value.into_inner() {
            DeValue::Table(table) => {
                Some(Section { prefix, at, table, known: Vec::new(), taken: Vec::new(), problems: self.problems })
            }
            other => {
                self.problems.push((at, format!("{}{key} = {}: expected {expected}", self.prefix, shown(&other))));
                None
            }
        }
    }

    /// Notes that something is missing, or that what is there does not go together.
    pub(super) fn fail(&mut self, message: &str) {
        let section = self.prefix.trim_end_matches('.');
        self.problems
            .push((self.at, if section.is_empty() { message.to_owned() } else { format!("{section}: {message}") }));
    }

    /// Notes the keys that nothing asked for.
    pub(super) fn end(self) {
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
fn did_you_mean(word: &str, known: &[impl AsRef<str>]) -> String {
    let nearest =
        known.iter().map(|known| known.as_ref()).map(|candidate| (distance(word, candidate), candidate)).min();
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
