//! Findings as a table for people and as JSON for scripts.

use std::fmt::Write as _;

use serde::Serialize;

use super::{Finding, State, facts::Facts, fix::Outcome};

/// Width of what is explained below a line.
const WIDTH: usize = 100;
const INDENT: &str = "                      ";

/// A table: one line for each finding, and below those that are not as wanted what is wanted, why, and the command. `colour` is for terminals.
#[must_use]
pub fn table(facts: &Facts, findings: &[Finding], colour: bool) -> String {
    let driver = if facts.driver.is_empty() { "no driver" } else { &facts.driver };
    let mut text = format!("{}: {driver} on Linux {}\n\n", facts.interface, facts.kernel);
    for finding in findings {
        let state = format!("{:<4}", finding.state.name());
        let state = if colour { format!("\x1b[{}m{state}\x1b[0m", code(finding.state)) } else { state };
        let _ = writeln!(text, "  {state}  {:<13} {}", finding.check, finding.found);
        if finding.state == State::Ok {
            continue;
        }
        paragraph(&mut text, &format!("wanted: {}", finding.wanted));
        paragraph(&mut text, &finding.why);
        if let Some(command) = finding.command() {
            if finding.is_safe() {
                paragraph(&mut text, "--fix does:");
            }
            let _ = writeln!(text, "{INDENT}$ {command}");
        }
    }
    let count = |state| findings.iter().filter(|finding| finding.state == state).count();
    let verdict = if works(findings) { "can" } else { "cannot" };
    let _ = writeln!(
        text,
        "\n{} as wanted, {} to know, {} to mend, {} in the way: the bypass {verdict} work on {}",
        count(State::Ok),
        count(State::Note),
        count(State::Warn),
        count(State::Fail),
        facts.interface
    );
    text
}

/// Whether nothing is in the bypass's way.
#[must_use]
pub fn works(findings: &[Finding]) -> bool {
    findings.iter().all(|finding| finding.state != State::Fail)
}

const fn code(state: State) -> u32 {
    match state {
        State::Ok => 32,
        State::Note => 36,
        State::Warn => 33,
        State::Fail => 31,
    }
}

/// Words in lines, indented.
fn paragraph(text: &mut String, words: &str) {
    let mut line = String::new();
    for word in words.split_whitespace() {
        if !line.is_empty() && INDENT.len() + line.len() + 1 + word.len() > WIDTH {
            let _ = writeln!(text, "{INDENT}{line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(text, "{INDENT}{line}");
}

/// The document that `--json` prints.
#[derive(Serialize)]
struct Document<'a> {
    interface: &'a str,
    driver: &'a str,
    kernel: &'a str,
    bypass_works: bool,
    findings: Vec<Item<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fixed: Option<&'a Outcome>,
}

#[derive(Serialize)]
struct Item<'a> {
    check: &'a str,
    state: State,
    found: &'a str,
    wanted: &'a str,
    why: &'a str,
    fix: Option<String>,
    safe: bool,
}

/// All of it for scripts: every finding with what it wants and why, and what was fixed, if that was asked for.
pub fn json(facts: &Facts, findings: &[Finding], fixed: Option<&Outcome>) -> serde_json::Result<String> {
    let items = findings.iter().map(|finding| Item {
        check: finding.check,
        state: finding.state,
        found: &finding.found,
        wanted: &finding.wanted,
        why: &finding.why,
        fix: finding.command(),
        safe: finding.is_safe(),
    });
    serde_json::to_string_pretty(&Document {
        interface: &facts.interface,
        driver: &facts.driver,
        kernel: &facts.kernel,
        bypass_works: works(findings),
        findings: items.collect(),
        fixed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Step;

    #[test]
    fn long_words_are_wrapped_and_none_is_lost() {
        let words = "one two three ".repeat(40);
        let mut text = String::new();
        paragraph(&mut text, &words);
        assert!(text.lines().all(|line| line.len() <= WIDTH && line.starts_with(INDENT)), "{text}");
        assert!(text.split_whitespace().eq(words.split_whitespace()));
    }

    #[test]
    fn one_failure_is_enough() {
        let with = |state| Finding {
            check: "MTU",
            state,
            found: String::new(),
            wanted: String::new(),
            why: String::new(),
            fix: vec![Step::Command("x".to_owned())],
        };
        assert!(works(&[with(State::Ok), with(State::Note), with(State::Warn)]));
        assert!(!works(&[with(State::Ok), with(State::Fail)]));
    }
}
