//! `cargo xtask vm`: the bypass on a NIC that has interrupts, offloads and zero-copy, which veth has not, on several kernels.
//!
//! A guest is booted with the responder in it, and asked from a namespace on this side, as the lab is. Its processor and its NIC are
//! emulated: rates compare ways through the code with each other and say nothing about hardware.

mod checks;
mod fetch;
mod guest;
mod initrd;
mod kernels;
mod shell;
mod test;

use std::{
    io::{ErrorKind, IsTerminal as _, Read as _, Write as _},
    path::PathBuf,
    process::ExitCode,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use anyhow::{Context as _, bail};
use clap::{Args, Subcommand, ValueEnum};

use self::guest::{Guest, Nic, Options};
use crate::{
    ask,
    lab::{self, Lab},
    run::zones,
    setup,
};

/// Queries a second unless told otherwise: what an emulated processor can answer while it shares two real ones with the client.
const RATE: u32 = 10_000;
/// Sockets to ask from. Each has its queue learned through the guest's serial port.
const FLOWS: usize = 24;
const SECONDS: u64 = 10;

/// What to do with a guest.
#[derive(Debug, Subcommand)]
pub enum Task {
    /// Serve the example zones in a guest and ask from this side: figures, matrix and exit status as `cargo xtask run --for`.
    #[command(
        after_help = "Examples:\n  cargo xtask vm run\n  cargo xtask vm run --nic igb --zero-copy on --for 30\n  \
                            cargo xtask vm run --kernel 6.12 -- --ring-frames 8192"
    )]
    Run(RunFlags),
    /// Everything that needs interrupts, zero-copy, offloads or an older kernel, with a verdict each.
    #[command(after_help = "Examples:\n  cargo xtask vm test\n  cargo xtask vm test --nic igb vlan\n  \
                            cargo xtask vm test zero_copy --times 20")]
    Test(test::Flags),
    /// What the bypass has on each kernel, as the table in the README.
    Matrix(kernels::Flags),
    /// A root shell in a guest with the server running, on this terminal, until `exit` twice or Ctrl-C.
    Shell(MachineFlags),
}

/// Which guest.
#[derive(Clone, Debug, Args)]
pub struct MachineFlags {
    /// The NIC that is emulated.
    #[arg(long, value_enum, default_value_t = Nic::Virtio)]
    nic: Nic,
    /// Its queues.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=8))]
    queues: u32,
    /// Series of the guest's kernel, from Debian's packages.
    #[arg(long, value_name = "VERSION", default_value = fetch::NEWEST)]
    kernel: String,
    /// Leave out the device option without which virtio-net has no zero-copy.
    #[arg(long)]
    no_iommu: bool,
}

/// Flags of `vm run`.
#[derive(Debug, Args)]
pub struct RunFlags {
    #[command(flatten)]
    machine: MachineFlags,
    /// As for `responder serve`.
    #[arg(long, value_enum, default_value_t = ZeroCopy::Auto)]
    zero_copy: ZeroCopy,
    /// As for `responder serve`.
    #[arg(long, value_name = "US")]
    busy_poll: Option<u32>,
    /// How long to ask.
    #[arg(long = "for", value_name = "SECS", default_value_t = SECONDS, value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// Queries a second.
    #[arg(long, value_name = "N", default_value_t = RATE)]
    rate: u32,
    /// Write the figures to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// More flags for `responder serve`.
    #[arg(last = true, value_name = "SERVE FLAGS")]
    serve: Vec<String>,
}

/// `--zero-copy` of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ZeroCopy {
    /// Where the kernel gives it.
    Auto,
    /// Or an error.
    On,
    /// Copy.
    Off,
}

impl ZeroCopy {
    const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::On => "on",
            Self::Off => "off",
        }
    }
}

/// Builds what is needed and runs the task.
pub fn run(task: &Task, built: bool) -> anyhow::Result<ExitCode> {
    if !built {
        setup::packages(&[setup::BUILD, setup::LAB, setup::VM])?;
        setup::build_responder()?;
    }
    setup::as_root(&setup::arguments_when_built())?;
    let bench = Bench::new()?;
    match task {
        Task::Run(flags) => bench.run(flags),
        Task::Test(flags) => bench.test(flags),
        Task::Matrix(flags) => bench.kernels(flags),
        Task::Shell(flags) => bench.shell(flags),
    }
}

/// What all guests share.
struct Bench {
    responder: PathBuf,
    zones: Vec<(String, PathBuf)>,
    stop: std::sync::Arc<AtomicBool>,
}

impl Bench {
    fn new() -> anyhow::Result<Self> {
        let stop = lab::stop_on_signals()?;
        for stale in Lab::remove_stale()? {
            println!("removed the lab {stale}, which a process that was killed has left behind");
        }
        Ok(Self { responder: setup::responder()?, zones: zones(&[])?, stop })
    }

    fn boot(&self, flags: &MachineFlags) -> anyhow::Result<Guest> {
        let options = Options {
            nic: flags.nic,
            queues: flags.queues,
            kernel: flags.kernel.clone(),
            virtio_iommu: !flags.no_iommu,
        };
        Guest::boot(&options, &self.responder, &self.zones, &self.stop)
    }

    /// Asks a guest that serves: what came of it.
    fn ask(&self, guest: &Guest, seconds: u64, rate: u32) -> anyhow::Result<ask::Report> {
        let plan = ask::Plan {
            zones: self.zones.clone(),
            server_v4: guest.lab.server.v4,
            server_v6: guest.lab.server.v6,
            seconds: Some(seconds),
            rate,
            flows: FLOWS,
        };
        let server = ask::Server {
            status: &|| guest.status(),
            received: &|| guest.received(),
            interrupts: Some(&|| guest.interrupts()),
        };
        let terminal = std::io::stderr().is_terminal();
        let mut progress = |progress: &ask::Progress| {
            progress.show();
            Ok(())
        };
        let report = ask::run(&guest.lab, &plan, &server, &self.stop, &mut progress);
        if terminal {
            eprint!("\r\x1b[K");
        }
        report
    }

    fn run(&self, flags: &RunFlags) -> anyhow::Result<ExitCode> {
        let guest = self.boot(&flags.machine)?;
        println!(
            "guest: Linux {}, {} with {} queues, its other end in {}",
            guest.release, guest.options.nic, guest.options.queues, guest.lab.client.namespace
        );
        let mut arguments = format!("--zero-copy {}", flags.zero_copy.name());
        if let Some(microseconds) = flags.busy_poll {
            arguments += &format!(" --busy-poll {microseconds}");
        }
        for argument in &flags.serve {
            arguments += &format!(" '{argument}'");
        }
        println!("{}", guest.serve(&self.zones, &arguments)?);
        let report = self.ask(&guest, flags.seconds, flags.rate).inspect_err(|_| {
            eprintln!(
                "the server's output:\n{}\nthe guest's console:\n{}",
                guest.log().unwrap_or_default(),
                guest.console()
            );
        })?;
        print!("{}", report.render(std::io::stdout().is_terminal()));
        for line in guest.log()?.lines().filter(|line| line.starts_with("warning")) {
            println!("{line}");
        }
        setup::write_json(flags.json.as_deref(), &report)?;
        guest.end_server()?;
        if self.stop.load(Ordering::Relaxed) {
            bail!("stopped by a signal before its time; so far {} problems", report.problems().len());
        }
        Ok(if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The guest's shell on this terminal.
    fn shell(&self, flags: &MachineFlags) -> anyhow::Result<ExitCode> {
        let guest = self.boot(flags)?;
        println!("{}", guest.serve(&self.zones, "")?);
        println!(
            "the server runs in the guest, its output in /run/serve.log. To ask it from another terminal:\n\n    \
             ip netns exec {} dig @{} www.example.com\n",
            guest.lab.client.namespace, guest.lab.server.v4
        );
        let mut from = guest.terminal()?;
        let mut to = from.try_clone()?;
        to.write_all(b"stty -F /dev/ttyS1 sane; exec sh -i </dev/ttyS1 >/dev/ttyS1 2>&1\n")?;
        thread::spawn(move || std::io::copy(&mut std::io::stdin(), &mut to));
        let mut buffer = [0; 4096];
        while !self.stop.load(Ordering::Relaxed) {
            match from.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => {
                    std::io::stdout().write_all(&buffer[..length])?;
                    std::io::stdout().flush()?;
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                Err(error) => return Err(error).context("reading from the guest's shell"),
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}
