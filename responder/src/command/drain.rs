//! `responder drain`: has a running server end without a query lost, once routers send none any more.

use std::{process::ExitCode, time::Duration};

use anyhow::Result;

use crate::{cli::Drain, control};

/// Waits until the server has closed its sockets.
pub fn run(flags: &Drain) -> Result<ExitCode> {
    eprintln!("draining for {} s", flags.wait);
    control::ask_to_drain(&flags.control, Duration::from_secs(flags.wait))?;
    eprintln!("drained: the server ends");
    Ok(ExitCode::SUCCESS)
}
