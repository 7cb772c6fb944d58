//! The project's commands: parse, dispatch, and turn an error into one sentence and an exit status.

use std::process::{Command, ExitCode};

use anyhow::Context as _;
use clap::{Parser, Subcommand};
use xtask::{
    bench, conformance, ebpf,
    lab::{Lab, Options, Side},
    package, rehearse, run, setup, test, vm,
};

/// Builds, runs, tests and measures the responder. Each command does its own set-up.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", max_term_width = 100, arg_required_else_help = true)]
struct Cli {
    /// Everything is built already: this is the second start, as root.
    #[arg(long, hide = true, global = true)]
    built: bool,
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Serve on a NIC, or without `--iface` in a lab, where it is asked and measured.
    Run(run::Flags),
    /// Run every test, those that need root included.
    Test(test::Flags),
    /// Reload, upgrade, change addresses, flap the link and kill a server in a lab while it is asked, and say what was lost.
    Rehearse(rehearse::Flags),
    /// Compare every answer with those of NSD, Knot and BIND, on the same zones.
    Conformance(conformance::Flags),
    /// Build the XDP programs from source and refresh the checked-in objects.
    Ebpf {
        /// Change nothing; fail unless objects and source agree.
        #[arg(long)]
        check: bool,
    },
    /// Two namespaces and a veth pair, by hand.
    #[command(subcommand)]
    Lab(LabTask),
    /// Build the Debian package, with man pages and completions.
    Package(package::Flags),
    /// A guest with an emulated multiqueue NIC: zero-copy, interrupts and other kernels without the hardware.
    #[command(subcommand)]
    Vm(vm::Task),
    /// Measure: JSON, Markdown and plots in target/bench; `bench report` makes BENCHMARKS.md of them.
    #[command(
        after_help = "Examples:\n  cargo xtask bench peers\n  cargo xtask bench all --quick\n  cargo xtask bench all && cargo xtask bench report"
    )]
    Bench(bench::Flags),
}

#[derive(Debug, Subcommand)]
enum LabTask {
    /// Build a lab that stays.
    Up {
        /// RX and TX queues of both ends.
        #[arg(long, value_name = "N", default_value_t = 2)]
        queues: u32,
        /// Its name.
        #[arg(long, value_name = "NAME", default_value = "hand")]
        name: String,
    },
    /// Remove it, and end what runs in it.
    Down {
        /// Its name.
        #[arg(long, value_name = "NAME", default_value = "hand")]
        name: String,
    },
    /// Run a command on one side of it.
    Exec {
        /// Its name.
        #[arg(long, value_name = "NAME", default_value = "hand")]
        name: String,
        /// Where: `server` or `client`.
        #[arg(value_parser = ["server", "client"])]
        side: String,
        /// What to run, with its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let result = match cli.task {
        Task::Run(flags) => run::run(&flags, cli.built),
        Task::Test(flags) => test::run(&flags),
        Task::Rehearse(flags) => rehearse::run(&flags, cli.built),
        Task::Conformance(flags) => conformance::run(&flags, cli.built),
        Task::Ebpf { check } => ebpf::run(check).map(|()| ExitCode::SUCCESS),
        Task::Lab(task) => lab(&task, cli.built),
        Task::Package(flags) => package::run(&flags, cli.built),
        Task::Vm(task) => vm::run(&task, cli.built),
        Task::Bench(flags) => bench::run(&flags, cli.built),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn lab(task: &LabTask, built: bool) -> anyhow::Result<ExitCode> {
    if !built {
        setup::packages(&[setup::LAB])?;
    }
    setup::as_root(&setup::arguments_when_built())?;
    match task {
        LabTask::Up { queues, name } => {
            let lab = Lab::by_hand(name, &Options { queues: *queues })?;
            println!("the lab `{name}` is up, {} queues:", lab.queues);
            for (side, end) in [(Side::Server, &lab.server), (Side::Client, &lab.client)] {
                println!("    {side}: {} {} {} in {}", end.interface, end.v4, end.v6, end.namespace);
            }
            println!("`cargo xtask lab exec --name {name} server COMMAND` runs a command there, `lab down` removes it");
        }
        LabTask::Down { name } => Lab::by_hand_down(name)?,
        LabTask::Exec { name, side, command } => {
            let side = if side == "server" { Side::Server } else { Side::Client };
            let (program, arguments) = command.split_first().context("a command is required")?;
            let mut command: Command = Lab::by_hand_found(name)?.command(side, program);
            let status = command.args(arguments).status().with_context(|| format!("starting {program}"))?;
            let code = status.code().and_then(|code| u8::try_from(code).ok());
            return Ok(code.map_or(ExitCode::FAILURE, ExitCode::from));
        }
    }
    Ok(ExitCode::SUCCESS)
}
