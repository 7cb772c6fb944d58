//! Man pages and shell completions of `responder`, from its command line's own definition: `cargo xtask package` runs this. It is no command of the
//! binary, so that what is shipped does not carry the generators.

use std::{env, fs, path::PathBuf};

use anyhow::{Context, Result};
use clap::CommandFactory;
use clap_complete::Shell;
use responder::cli::Cli;

fn main() -> Result<()> {
    let directory = PathBuf::from(env::args_os().nth(1).context("say into which directory")?);
    let (pages, completions) = (directory.join("man"), directory.join("completions"));
    for directory in [&pages, &completions] {
        fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
    }
    let mut command = Cli::command().name("responder");
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut command, "responder", &completions)
            .with_context(|| format!("writing the completions of {shell}"))?;
    }
    // Anew, since completions have added `help` to the other.
    clap_mangen::generate_to(Cli::command().name("responder").disable_help_subcommand(true), &pages)
        .context("writing the man pages")?;
    Ok(())
}
