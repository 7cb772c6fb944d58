//! `responder check`: read a zone file and say everything that is wrong with it.

use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::{
    cli,
    zone::{Source, Zones, name_in},
};

/// Prints what the zone holds, or every error with its place. The exit status is 1 when there is one.
pub fn run(flags: &cli::Check) -> Result<ExitCode> {
    let name = match &flags.zone {
        Some(name) => name.clone(),
        None => name_in(&flags.file).with_context(|| {
            format!("{} has no SOA record whose owner could name the zone: say --zone NAME", flags.file.display())
        })?,
    };
    match Zones::load(&[Source { name, file: flags.file.clone() }]) {
        Ok(zones) => {
            for zone in zones.summary() {
                for warning in &zone.warnings {
                    eprintln!("warning: {warning}");
                }
                println!(
                    "zone {} serial {}: {} names, {} records: fine",
                    zone.name, zone.serial, zone.names, zone.records
                );
            }
            Ok(ExitCode::SUCCESS)
        }
        Err(errors) => {
            eprintln!("{errors}");
            Ok(ExitCode::FAILURE)
        }
    }
}
