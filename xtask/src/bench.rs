//! `cargo xtask bench respond`: instructions that an answer takes, counted by callgrind. `bench zones` is in [`zones`].
//!
//! Instructions, not time: the same in every run and on every machine of the kind, so that a change of a few is seen.

pub mod plot;
pub mod sheet;
pub mod zones;

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};
use serde_json::{Map, Value};

use crate::setup;

/// The kinds of answers that the bench knows.
const KINDS: [&str; 9] =
    ["exact", "exact-edns", "nxdomain", "nodata", "wildcard", "referral", "cname", "long-wildcard", "127-labels"];

/// Runs of a kind, of which the median counts.
const RUNS: usize = 3;

/// The same loop without an answer in it.
const LOOP: &str = "loop";

/// Answers counted at a time. One more run of the loop alone shows what all the rest takes.
const ANSWERS: &str = "1000";

/// Counts, prints a table, and with a path writes the figures to it.
pub fn respond(json: Option<&Path>) -> anyhow::Result<()> {
    setup::packages(&[setup::BUILD, setup::BENCH])?;
    let bench = build()?;
    let mut figures = Map::new();
    println!("{:<12} {:>12}", "answer", "instructions");
    for kind in KINDS {
        let none = instructions(&bench, &[LOOP, kind, ANSWERS])?;
        // Each run has a hash key of its own, and under one in some dozens a name of the zone is in the way of another.
        let mut all = Vec::new();
        for _ in 0..RUNS {
            all.push(instructions(&bench, &[kind, ANSWERS])?);
        }
        all.sort_unstable();
        let all = all[RUNS / 2];
        ensure!(all >= none, "{kind}: {ANSWERS} answers took fewer instructions than none");
        let each = (all - none) / 1000;
        println!("{kind:<12} {each:>12}");
        figures.insert(kind.to_owned(), each.into());
    }
    let status = Command::new(&bench).arg("threads").status().context("starting the bench")?;
    ensure!(status.success(), "the bench failed: {status}");
    setup::write_json(json, &figures)
}

/// Builds the bench: its executable, as Cargo's messages name it.
fn build() -> anyhow::Result<PathBuf> {
    let mut build = setup::cargo();
    build.args(["bench", "--package", "responder", "--bench", "respond", "--no-run"]);
    build.arg("--message-format=json-render-diagnostics").stderr(Stdio::inherit());
    let output = build.output().context("starting cargo")?;
    ensure!(output.status.success(), "`{}` failed: {}", setup::shown(&build), output.status);
    let messages = String::from_utf8(output.stdout).context("reading Cargo's messages")?;
    executable(&messages).context("Cargo does not name the executable of the bench `respond`")
}

fn executable(messages: &str) -> Option<PathBuf> {
    messages.lines().find_map(|line| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_bench = message["target"]["name"] == "respond" && message["target"]["kind"][0] == "bench";
        message["executable"].as_str().filter(|_| is_bench).map(PathBuf::from)
    })
}

/// Instructions in the loop that asks, whatever is loaded before.
fn instructions(bench: &Path, arguments: &[&str]) -> anyhow::Result<u64> {
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", "--toggle-collect=respond::ask*"]);
    valgrind.arg(bench).args(arguments);
    let output = valgrind.output().context("starting valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`{}` failed:\n{said}", setup::shown(&valgrind));
    collected(&said).with_context(|| format!("callgrind does not say how many instructions it counted:\n{said}"))
}

/// From the line `==1234== Collected : 123456`.
fn collected(said: &str) -> Option<u64> {
    let (_, rest) = said.lines().find_map(|line| line.split_once("Collected : "))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_found() {
        let said = "==7== Events    : Ir\n==7== Collected : 123456\n==7== \n==7== I   refs:      123,456\n";
        assert_eq!(collected(said), Some(123_456));
        assert_eq!(collected("==7== nothing\n"), None);
    }

    #[test]
    fn the_executable_is_found() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"kind":["lib"],"name":"respond"},"executable":null}"#,
            "\n",
            r#"{"reason":"compiler-artifact","target":{"kind":["bench"],"name":"respond"},"executable":"/t/respond-1"}"#,
            "\n",
        );
        assert_eq!(executable(messages), Some(PathBuf::from("/t/respond-1")));
    }
}
