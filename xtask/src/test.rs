//! `cargo xtask test`: every test, those that need root and veth included. One that cannot run has failed.

use std::process::ExitCode;

use clap::Args;

use crate::{lab::Lab, setup};

/// Flags of `test`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Passed to `cargo test`: a filter of names, `-p PACKAGE`, or `-- --nocapture`.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Sets up, builds, and tests.
pub fn run(flags: &Flags) -> anyhow::Result<ExitCode> {
    setup::packages(&[setup::BUILD, setup::LAB, setup::TEST])?;
    setup::servers(setup::ROUTING)?;
    let responder = setup::build_responder()?;

    let mut test = setup::cargo();
    test.arg("test");
    if !setup::is_root() {
        anyhow::ensure!(setup::is_on_path("sudo"), "the tests need root, and there is no sudo: run this as root");
        // Builds as this user; only the tests are run as root.
        test.arg("--config")
            .arg(format!("target.'cfg(all())'.runner = ['sudo', '--', 'env', 'RESPONDER={}']", responder.display()));
    } else {
        for stale in Lab::remove_stale()? {
            println!("removed the lab {stale}, which a process that was killed has left behind");
        }
    }
    // The XDP programs compile for BPF only.
    test.args(["--workspace", "--exclude", "responder-ebpf", "--no-fail-fast"])
        .args(&flags.arguments)
        .env("RESPONDER", responder);
    Ok(if test.status()?.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
