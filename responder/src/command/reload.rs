//! `responder reload`: have a running server read its zones and its configuration anew, and say what came of it.

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::{
    cli,
    control::{self, reload::Report},
};

/// Prints what became of each zone. The exit status is 1 when something was not loaded.
pub fn run(flags: &cli::Reload) -> Result<ExitCode> {
    let text = control::ask_reload(&flags.control, flags.zone.as_deref())?;
    let report: Report = serde_json::from_str(&text)
        .context("the server's answer cannot be read: is it another version of responder, or was it stopped?")?;
    print!("{}", if flags.json { text } else { report.render() });
    Ok(if report.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
