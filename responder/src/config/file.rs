//! The configuration file (TOML): read as a whole, and every error in it reported with its line.
//!
//! The document is walked by hand and not by derived code, since that would stop at the first error and could not say which key was meant.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, anyhow};
use toml::de::DeTable;

use super::{
    rules,
    section::{Problems, Section},
    settings::{self, Settings},
};
use crate::{guard::cookie::Secrets, kernel::tcp::Limits, zone::Source};

/// Reads the file at `path`. Paths in it are relative to its directory. Cookies are made with `secrets` where the file has none.
pub(super) fn read(path: &Path, secrets: &Secrets) -> Result<Settings> {
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read the configuration file {}", path.display()))?;
    let mut problems = Vec::new();
    let settings = parse(&text, path.parent().unwrap_or(Path::new("")), secrets, &mut problems);
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

fn parse(text: &str, directory: &Path, secrets: &Secrets, problems: &mut Problems) -> Settings {
    let (document, errors) = DeTable::parse_recoverable(text);
    if !errors.is_empty() {
        // What follows from a document that is no TOML would not be worth reading.
        problems
            .extend(errors.iter().map(|error| (error.span().map_or(0, |span| span.start), error.message().to_owned())));
        return Settings::default();
    }
    let mut file = Section::new(document.into_inner(), problems);
    let settings = Settings {
        interfaces: file.list("interfaces", |name| Ok(name.to_owned())),
        listen: file.list("listen", settings::listen),
        zone_directory: file.text("zone_directory", path).map(|path| directory.join(path)),
        queues: file.text("queues", settings::queues),
        cpus: file.text("cpus", settings::cpus),
        io: file.choice("io"),
        sockets: file.choice("sockets"),
        xdp_mode: file.choice("xdp_mode"),
        zero_copy: file.choice("zero_copy"),
        service: file.choice("service"),
        vlans: file.text("vlan", settings::vlans),
        busy_poll_us: file.number("busy_poll", 1..1_000_001),
        verify_checksums: file.choice("verify_checksums"),
        ring_frames: file.number("ring_frames", 1..u32::MAX),
        control: file.text("control", path).map(|path| directory.join(path)),
        metrics: file.text("metrics", settings::metrics),
        user: file.text("user", |name| Ok(name.to_owned())),
        sandbox: file.choice("sandbox"),
        watch: file.boolean("watch"),
        log_level: file.choice("log_level"),
        log_steering: file.boolean("log_steering"),
        zones: zones(&mut file, directory),
        tcp: file.table("tcp").map(tcp),
        rules: Some(rules::read(&mut file, directory, secrets)),
    };
    file.end();
    settings
}

/// Any path.
pub(super) fn path(text: &str) -> Result<PathBuf> {
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

/// `[tcp]`.
fn tcp(mut section: Section<'_, '_>) -> Limits {
    let default = Limits::default();
    let count = |number: Option<u32>, default| number.map_or(default, |number| number as usize);
    let limits = Limits {
        idle: section.number("idle_timeout", 1..3601).map_or(default.idle, |s| Duration::from_secs(s.into())),
        connections: count(section.number("connections", 1..1_000_001), default.connections),
        per_client: count(section.number("connections_per_client", 1..1_000_001), default.per_client),
    };
    section.end();
    limits
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
