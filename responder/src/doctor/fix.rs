//! Applies the steps that harm nobody, and remembers how to go back.

use std::{fmt::Write as _, fs, io, path::Path};

use serde::Serialize;

use super::{Finding, Step};
use crate::sys;

/// What came of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Steps that were taken, as commands.
    pub done: Vec<String>,
    /// Steps that the system refused, as commands, each with its answer.
    pub refused: Vec<(String, String)>,
    /// Commands that put back what was there before, the last step first.
    pub undo: Vec<String>,
}

/// Takes the safe steps of all findings. One that is refused does not keep the others from being taken.
#[must_use]
pub fn apply(root: &Path, findings: &[Finding]) -> Outcome {
    let mut outcome = Outcome::default();
    for step in findings.iter().filter(|finding| finding.is_safe()).flat_map(|finding| &finding.fix) {
        match take(root, step) {
            Ok(Some(undo)) => {
                outcome.done.push(step.to_string());
                outcome.undo.insert(0, undo.to_string());
            }
            Ok(None) => {}
            Err(error) => outcome.refused.push((step.to_string(), error.to_string())),
        }
    }
    outcome
}

/// Takes a step: the one that undoes it, or nothing where all is as it should be already.
fn take(root: &Path, step: &Step) -> io::Result<Option<Step>> {
    let undo = match step {
        Step::Command(_) => return Ok(None),
        Step::Write { path, value } => {
            let file = root.join(path);
            let before = fs::read_to_string(&file)?.trim().to_owned();
            if before == *value {
                return Ok(None);
            }
            fs::write(&file, value)?;
            Step::Write { path: path.clone(), value: before }
        }
        Step::Hash { interface, flow, fields } => {
            let before = sys::hash_fields(interface, *flow)?;
            if before == *fields {
                return Ok(None);
            }
            sys::set_hash_fields(interface, *flow, *fields)?;
            Step::Hash { interface: interface.clone(), flow: *flow, fields: before }
        }
    };
    Ok(Some(undo))
}

impl Outcome {
    /// What was done, for people.
    #[must_use]
    pub fn render(&self) -> String {
        let mut text = String::new();
        for done in &self.done {
            let _ = writeln!(text, "done: {done}");
        }
        for (step, error) in &self.refused {
            let _ = writeln!(text, "refused: {step}: {error}");
        }
        if text.is_empty() {
            text.push_str("nothing that --fix could do\n");
        }
        text
    }

    /// A shell script that puts back what was there before.
    #[must_use]
    pub fn script(&self, interface: &str) -> String {
        let mut text = format!("#!/bin/sh\n# Undoes what `responder doctor {interface} --fix` did.\n");
        for line in &self.undo {
            let _ = writeln!(text, "{line}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::doctor::State;

    #[test]
    fn what_is_refused_is_named_and_the_rest_is_done_and_undone() {
        let root = std::env::temp_dir().join(format!("responder-doctor-fix-{}", std::process::id()));
        fs::create_dir_all(root.join("proc/irq/7")).unwrap();
        fs::write(root.join("proc/irq/7/smp_affinity_list"), "0-3\n").unwrap();
        fs::write(root.join("proc/irq/7/already"), "2\n").unwrap();
        let write = |path: &str, value: &str| Step::Write { path: PathBuf::from(path), value: value.to_owned() };
        let with = |fix: Vec<Step>| Finding {
            check: "interrupts",
            state: State::Warn,
            found: String::new(),
            wanted: String::new(),
            why: String::new(),
            fix,
        };
        let findings = [
            with(vec![Step::Command("reboot".to_owned())]),
            with(vec![
                write("proc/irq/8/smp_affinity_list", "1"),
                write("proc/irq/7/already", "2"),
                write("proc/irq/7/smp_affinity_list", "1"),
            ]),
        ];
        let outcome = apply(&root, &findings);
        assert_eq!(outcome.done, ["echo 1 >/proc/irq/7/smp_affinity_list"]);
        assert_eq!(fs::read_to_string(root.join("proc/irq/7/smp_affinity_list")).unwrap(), "1");
        assert_eq!(outcome.refused.len(), 1);
        assert!(outcome.refused[0].0.contains("/proc/irq/8/"), "{outcome:?}");
        let script = outcome.script("eth0");
        assert!(
            script.starts_with("#!/bin/sh\n") && script.ends_with("\necho 0-3 >/proc/irq/7/smp_affinity_list\n"),
            "{script}"
        );
        fs::remove_dir_all(&root).unwrap();
    }
}
