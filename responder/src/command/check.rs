//! `responder check`: read a zone file, or a configuration and its zones, and say everything that is wrong.

use std::{path::Path, process::ExitCode};

use anyhow::{Context, Result, bail};

use crate::{
    cli,
    config::Config,
    privilege,
    zone::{Source, Zones, name_in},
};

/// Prints what each zone holds, or every error with its place. The exit status is 1 when there is one.
pub fn run(flags: &cli::Check) -> Result<ExitCode> {
    let sources = match (&flags.config, &flags.file) {
        (Some(_), _) => {
            let serve = cli::Serve { config: flags.config.clone(), ..cli::Serve::default() };
            let config = Config::new(&serve)?;
            config.user.as_deref().map(privilege::find).transpose()?;
            config.zones
        }
        (None, Some(file)) => vec![source(file, flags.zone.as_ref())?],
        (None, None) => bail!("say which file: responder check ZONEFILE, or --config FILE"),
    };
    match Zones::load(&sources) {
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
            // All of them: who checks wants to mend.
            for line in errors.lines() {
                eprintln!("{line}");
            }
            Ok(ExitCode::FAILURE)
        }
    }
}

fn source(file: &Path, zone: Option<&String>) -> Result<Source> {
    let name = match zone {
        Some(name) => name.clone(),
        None => name_in(file).with_context(|| {
            format!("{} has no SOA record whose owner could name the zone: say --zone NAME", file.display())
        })?,
    };
    Ok(Source { name, file: file.to_owned() })
}
