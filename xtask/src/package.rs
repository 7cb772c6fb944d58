//! The Debian package: man pages and completions from the command line's own definition, then cargo-deb, and a test of what came of it.
//!
//! What goes where is in `responder/Cargo.toml`, `[package.metadata.deb]`; unit, configuration and scripts are in `packaging/`. The package is for the release of
//! Debian that it is built on, since it is linked to that release's libraries.

mod installed;
mod unit;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode, Stdio},
};

use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::setup;

/// It is built from source, so that it is pinned: later ones may want a newer compiler.
const CARGO_DEB: &str = "3.8.0";

/// Flags of `package`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Package the debug build: faster made, for tests.
    #[arg(long)]
    debug: bool,
    #[command(subcommand)]
    task: Option<Task>,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Install it in a clean Debian, run it there under its unit's restrictions, ask it, remove it.
    Test,
    /// Become what a service manager makes of a service, and run a command.
    #[command(hide = true)]
    Confined(unit::Confined),
}

/// Builds the package, or does one of the other tasks.
pub fn run(flags: &Flags, built: bool) -> anyhow::Result<ExitCode> {
    match &flags.task {
        None => build(flags.debug)?,
        Some(Task::Test) => {
            if !built {
                setup::packages(&[setup::LAB, setup::PACKAGE])?;
                build(flags.debug)?;
            }
            setup::as_root(&setup::arguments_when_built())?;
            installed::test(&newest()?)?;
        }
        Some(Task::Confined(confined)) => return Err(confined.run()),
    }
    Ok(ExitCode::SUCCESS)
}

/// cargo-deb prints the package's path.
fn build(debug: bool) -> anyhow::Result<()> {
    install_cargo_deb()?;
    documents(&setup::target()?.join("documents"))?;
    let profile = if debug { "dev" } else { "release" };
    let mut deb = setup::cargo();
    deb.args(["deb", "--quiet", "--package", "responder", "--profile", profile, "--output"]);
    setup::execute(deb.arg(directory()?))
}

/// Where packages are built.
fn directory() -> anyhow::Result<PathBuf> {
    let directory = setup::target()?.join("debian");
    fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    Ok(directory)
}

/// The package that was built last.
fn newest() -> anyhow::Result<PathBuf> {
    let directory = directory()?;
    let packages = fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
    let packages = packages.flatten().map(|entry| entry.path());
    let found = packages.filter(|path| path.extension().is_some_and(|extension| extension == "deb"));
    let newest = found.max_by_key(|path| fs::metadata(path).and_then(|data| data.modified()).ok());
    newest.with_context(|| format!("{} has no package: `cargo xtask package` makes it", directory.display()))
}

fn install_cargo_deb() -> anyhow::Result<()> {
    let found = setup::cargo().args(["deb", "--version"]).stderr(Stdio::null()).output().context("starting cargo")?;
    if String::from_utf8_lossy(&found.stdout).trim().ends_with(CARGO_DEB) {
        return Ok(());
    }
    println!("installing cargo-deb {CARGO_DEB}");
    setup::execute(setup::cargo().args(["install", "cargo-deb", "--locked", "--version", CARGO_DEB]))
}

/// Writes man pages and completions anew.
fn documents(directory: &Path) -> anyhow::Result<()> {
    // A page of a command that is no more must not stay.
    if directory.exists() {
        fs::remove_dir_all(directory).with_context(|| format!("emptying {}", directory.display()))?;
    }
    let mut run: Command = setup::cargo();
    run.args(["run", "--quiet", "--package", "responder", "--example", "documents", "--"]);
    setup::execute(run.arg(directory))
}
