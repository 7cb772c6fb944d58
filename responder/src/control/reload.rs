//! What came of a reload: the document that the control socket sends, and its lines for people.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use crate::zone::{Outcome, Summary};

/// What a reload did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How long it took.
    pub seconds: f64,
    /// Why nothing was done: what is wrong with the configuration file.
    pub errors: Vec<String>,
    /// What was read and could not be put in service, such as an address that another program has.
    #[serde(default)]
    pub not_taken: Vec<String>,
    /// What has changed in the configuration file and is not taken before `responder upgrade` or a restart.
    pub needs_restart: Vec<String>,
    /// The zones that were to be loaded, and those that are no longer served.
    pub zones: Vec<Zone>,
}

/// What became of a zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Zone {
    /// Its name.
    pub name: String,
    /// Its serial number before, if it was served.
    pub old_serial: Option<u32>,
    /// What was loaded.
    pub loaded: Option<Loaded>,
    /// Why it was not loaded: the old one, if there is one, stays in service.
    pub errors: Vec<String>,
    /// What is doubtful about it.
    pub warnings: Vec<String>,
}

/// What is served of a zone.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Loaded {
    /// Its serial number.
    pub serial: u32,
    /// Names that own records.
    pub names: usize,
    /// Records.
    pub records: usize,
}

/// More of a zone's warnings are counted and not shown.
const WARNINGS_SHOWN: usize = 10;

impl Report {
    /// Whether everything was loaded.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.errors.is_empty() && self.not_taken.is_empty() && self.zones.iter().all(|zone| zone.errors.is_empty())
    }

    /// Lines for people.
    #[must_use]
    pub fn render(&self) -> String {
        let mut lines: Vec<String> = self.errors.clone();
        lines.extend(self.zones.iter().map(Zone::render));
        lines.extend(self.not_taken.iter().cloned());
        if !self.needs_restart.is_empty() {
            lines.push(format!(
                "changed, and not taken before `responder upgrade` or a restart: {}",
                self.needs_restart.join(", ")
            ));
        }
        lines.push(if self.errors.is_empty() {
            format!("reloaded in {:.2} s", self.seconds)
        } else {
            "nothing was reloaded".to_owned()
        });
        lines.join("\n") + "\n"
    }
}

impl Zone {
    fn render(&self) -> String {
        let mut text = format!("zone {}: ", self.name);
        // Writing to a string cannot fail.
        let _ = match (&self.loaded, self.old_serial) {
            (Some(now), Some(before)) => {
                write!(text, "serial {before} -> {}, {} names, {} records", now.serial, now.names, now.records)
            }
            (Some(now), None) => {
                write!(text, "new, serial {}, {} names, {} records", now.serial, now.names, now.records)
            }
            (None, Some(before)) if self.errors.is_empty() => write!(text, "serial {before}, no longer served"),
            (None, Some(before)) => write!(text, "not loaded, serial {before} stays in service"),
            (None, None) => write!(text, "not loaded, and not served"),
        };
        for error in &self.errors {
            text.push_str("\n  ");
            text.push_str(error);
        }
        for warning in shown(&self.warnings) {
            text.push_str("\n  warning: ");
            text.push_str(&warning);
        }
        text
    }
}

/// As many warnings as anybody reads, and the number of the others.
#[must_use]
pub fn shown(warnings: &[String]) -> Vec<String> {
    let mut shown: Vec<String> = warnings.iter().take(WARNINGS_SHOWN).cloned().collect();
    if let more @ 1.. = warnings.len().saturating_sub(WARNINGS_SHOWN) {
        shown.push(format!("and {more} more, which `responder check` shows"));
    }
    shown
}

impl From<Outcome> for Zone {
    fn from(outcome: Outcome) -> Self {
        let Outcome { name, before, now, errors } = outcome;
        let Some(Summary { serial, names, records, mut warnings, .. }) = now else {
            return Self { name, old_serial: before, errors, ..Self::default() };
        };
        // RFC 1982: the new one comes before the old one.
        if before.is_some_and(|before| serial.wrapping_sub(before) > u32::MAX / 2) {
            warnings.push("the serial number went back: secondaries would not follow (RFC 1982)".to_owned());
        }
        Self { name, old_serial: before, loaded: Some(Loaded { serial, names, records }), errors, warnings }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(before: Option<u32>, now: Option<u32>, error: &str) -> Zone {
        let summary =
            |serial| Summary { name: "e.".into(), serial, names: 2, records: 3, warnings: vec!["odd".to_owned()] };
        let errors = if error.is_empty() { Vec::new() } else { vec![error.to_owned()] };
        Outcome { name: "e.".into(), before, now: now.map(summary), errors }.into()
    }

    #[test]
    fn lines_for_each_outcome() {
        let cases = [
            (outcome(Some(1), Some(2), ""), "zone e.: serial 1 -> 2, 2 names, 3 records\n  warning: odd"),
            (outcome(None, Some(2), ""), "zone e.: new, serial 2, 2 names, 3 records\n  warning: odd"),
            (outcome(Some(1), None, ""), "zone e.: serial 1, no longer served"),
            (outcome(Some(1), None, "e:1:1: x"), "zone e.: not loaded, serial 1 stays in service\n  e:1:1: x"),
            (outcome(None, None, "e:1:1: x"), "zone e.: not loaded, and not served\n  e:1:1: x"),
            (
                outcome(Some(2), Some(1), ""),
                "zone e.: serial 2 -> 1, 2 names, 3 records\n  warning: odd\n  warning: the serial number went back: secondaries would not follow (RFC 1982)",
            ),
        ];
        for (zone, expected) in cases {
            let is_clean = zone.errors.is_empty();
            let report = Report { seconds: 0.5, zones: vec![zone], ..Report::default() };
            assert_eq!(report.render(), format!("{expected}\nreloaded in 0.50 s\n"));
            assert_eq!(report.is_clean(), is_clean);
        }
        let report = Report { errors: vec!["f:1: x".into()], ..Report::default() };
        assert_eq!((report.render().as_str(), report.is_clean()), ("f:1: x\nnothing was reloaded\n", false));
        assert_eq!(shown(&vec![String::new(); 12]).len(), 11);
    }
}
