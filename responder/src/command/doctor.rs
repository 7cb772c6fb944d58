//! `responder doctor`: look at a NIC and its system, say what is not as it should be, and mend what can be mended without harm.

use std::{fs::OpenOptions, io::Write as _, path::Path, process::ExitCode};

use anyhow::{Context, Result};

use crate::{
    cli,
    doctor::{examine::examine, facts::Facts, fix, render},
};

/// Prints what was found, and what was done about it. The exit status is 1 if the bypass cannot work.
pub fn run(flags: &cli::Doctor) -> Result<ExitCode> {
    let root = Path::new("/");
    let mut facts = Facts::read(root, &flags.interface)?;
    let mut findings = examine(&facts);
    let mut outcome = None;
    if flags.fix {
        // Opened first: what cannot be undone is not to be done.
        let undo_file = match &flags.undo_file {
            Some(path) => {
                // What an earlier run has written is worth more than what this one would.
                let file = OpenOptions::new().write(true).create_new(true).open(path);
                Some(file.with_context(|| format!("cannot make {} for the undo script", path.display()))?)
            }
            None => None,
        };
        let done = fix::apply(root, &findings);
        if let Some(mut file) = undo_file {
            let script = done.script(&flags.interface);
            // It is needed all the same.
            file.write_all(script.as_bytes())
                .with_context(|| format!("cannot write the undo script, which is\n{script}"))?;
        }
        facts = Facts::read(root, &flags.interface)?;
        findings = examine(&facts);
        outcome = Some(done);
    }
    if flags.json {
        println!("{}", render::json(&facts, &findings, outcome.as_ref())?);
    } else {
        print!("{}", render::table(&facts, &findings, super::has_color()));
        if let Some(done) = &outcome {
            print!("\n{}", done.render());
            if flags.undo_file.is_none() && !done.undo.is_empty() {
                print!("\n{}", done.script(&flags.interface));
            }
        }
    }
    Ok(if render::works(&findings) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
