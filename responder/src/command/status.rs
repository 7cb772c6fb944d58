//! `responder status`: ask a running server and show what it says.

use std::process::ExitCode;

use anyhow::Result;

use crate::{
    cli,
    control::{self, status::Status},
};

/// Prints tables, or the JSON document as it came.
pub fn run(flags: &cli::Status) -> Result<ExitCode> {
    let text = control::ask(&flags.control)?;
    let status = Status::read(&text)?;
    if flags.json {
        print!("{text}")
    } else {
        print!("{}", status.render())
    }
    Ok(ExitCode::SUCCESS)
}
