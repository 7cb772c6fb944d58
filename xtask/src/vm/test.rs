//! `cargo xtask vm test`: guests one after the other, each with the checks that its NIC and kernel are there for, and a verdict for each.

use std::{
    io::IsTerminal as _,
    path::PathBuf,
    process::ExitCode,
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use anyhow::ensure;
use clap::Args;
use serde::Serialize;

use super::{
    Bench,
    checks::{self, Stage},
    fetch::NEWEST,
    guest::{Guest, Nic, Options},
};
use crate::setup;

/// Flags of `vm test`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Only checks that have this in their name.
    #[arg(value_name = "FILTER")]
    filter: Option<String>,
    /// Only guests with this NIC.
    #[arg(long, value_enum)]
    nic: Option<Nic>,
    /// Only guests with this kernel.
    #[arg(long, value_name = "VERSION")]
    kernel: Option<String>,
    /// Do all of it so many times.
    #[arg(long, value_name = "N", default_value_t = 1)]
    times: u32,
    /// Write the verdicts to this file, too.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Show the names and run nothing.
    #[arg(long)]
    list: bool,
}

/// What is shown on a guest: that it works, or a sentence that says what does not.
struct Check {
    name: &'static str,
    run: fn(&Stage<'_>) -> anyhow::Result<String>,
}

const fn check(name: &'static str, run: fn(&Stage<'_>) -> anyhow::Result<String>) -> Check {
    Check { name, run }
}

/// A guest and what is shown on it.
struct Group {
    nic: Nic,
    queues: u32,
    kernel: &'static str,
    virtio_iommu: bool,
    checks: &'static [Check],
}

const GROUPS: &[Group] = &[
    Group {
        nic: Nic::Virtio,
        queues: 2,
        kernel: NEWEST,
        virtio_iommu: true,
        checks: &[
            check("zero_copy", checks::zero_copy),
            check("copy", checks::copy),
            check("kernel_traffic_while_idle", checks::kernel_traffic_while_idle),
            check("busy_polling_with_vectors_apart", checks::busy_polling_with_vectors_apart),
            check("busy_polling_in_copy_mode", checks::busy_polling_in_copy_mode),
            check("case_15_link_goes_and_comes_back", checks::link_goes_and_comes_back),
            check("workers_follow_interrupts", checks::workers_follow_interrupts),
            check("doctor_finds_and_mends", checks::doctor_finds_and_mends),
            check("killed_and_restarted", checks::killed_and_restarted),
            check("case_05_vlan", checks::vlan),
            check("case_10_dummy_addresses", checks::dummy_addresses),
            check("case_18_mtu", checks::mtu),
        ],
    },
    Group {
        nic: Nic::Virtio,
        queues: 4,
        kernel: NEWEST,
        virtio_iommu: true,
        checks: &[check("case_03_all_channels_after_attach", checks::all_channels_after_attach)],
    },
    Group {
        nic: Nic::Virtio,
        queues: 2,
        kernel: NEWEST,
        virtio_iommu: false,
        checks: &[check("case_02_zero_copy_refused", checks::zero_copy_refused)],
    },
    Group {
        nic: Nic::Igb,
        queues: 2,
        kernel: NEWEST,
        virtio_iommu: true,
        checks: &[
            check("case_25_carrier_bounces", checks::carrier_bounces),
            check("zero_copy", checks::zero_copy),
            check("copy", checks::copy),
            check("kernel_traffic_while_idle", checks::kernel_traffic_while_idle),
            check("busy_polling_with_vectors_apart", checks::busy_polling_with_vectors_apart),
            check("case_15_link_goes_and_comes_back", checks::link_goes_and_comes_back),
            check("hash_without_ports", checks::hash_without_ports),
            check("doctor_finds_and_mends", checks::doctor_finds_and_mends),
            check("killed_and_restarted", checks::killed_and_restarted),
            check("case_05_vlan_tags_stripped", checks::vlan_tags_stripped),
            check("case_05_vlan", checks::vlan),
            check("case_18_mtu", checks::mtu),
        ],
    },
    Group {
        nic: Nic::Igb,
        queues: 8,
        kernel: NEWEST,
        virtio_iommu: true,
        checks: &[
            check("more_queues_than_cpus", checks::more_queues_than_cpus),
            check("busy_polling_with_paired_vectors", checks::busy_polling_with_paired_vectors),
        ],
    },
    Group {
        nic: Nic::Igb,
        queues: 2,
        kernel: "6.18",
        virtio_iommu: true,
        checks: &[check("a_queue_that_never_receives", checks::a_queue_that_never_receives)],
    },
    Group {
        nic: Nic::Vmxnet3,
        queues: 2,
        kernel: NEWEST,
        virtio_iommu: true,
        checks: &[check("copy", checks::copy), check("case_02_zero_copy_refused", checks::zero_copy_refused)],
    },
    Group {
        nic: Nic::Virtio,
        queues: 2,
        kernel: "6.12",
        virtio_iommu: true,
        checks: &[check("case_02_zero_copy_refused", checks::zero_copy_refused)],
    },
];

/// How one check went.
#[derive(Serialize)]
struct Verdict {
    guest: String,
    check: &'static str,
    passed: bool,
    seconds: f64,
    what: String,
}

impl Flags {
    fn groups(&self) -> impl Iterator<Item = (&'static Group, Vec<&'static Check>)> {
        let wanted = |check: &&Check| self.filter.as_deref().is_none_or(|filter| check.name.contains(filter));
        GROUPS
            .iter()
            .filter(|group| self.nic.is_none_or(|nic| nic == group.nic))
            .filter(|group| self.kernel.as_deref().is_none_or(|kernel| kernel == group.kernel))
            .map(move |group| (group, group.checks.iter().filter(wanted).collect::<Vec<_>>()))
            .filter(|(_, checks)| !checks.is_empty())
    }
}

impl Bench {
    pub(super) fn test(&self, flags: &Flags) -> anyhow::Result<ExitCode> {
        let mut verdicts = Vec::new();
        let started = Instant::now();
        for (group, checks) in (0..flags.times).flat_map(|_| flags.groups()) {
            if flags.list {
                checks.iter().for_each(|check| println!("{}, Linux {}: {}", group.nic, group.kernel, check.name));
                continue;
            }
            self.group(group, &checks, &mut verdicts)?;
        }
        if flags.list {
            return Ok(ExitCode::SUCCESS);
        }
        ensure!(!verdicts.is_empty(), "no check has such a name: `cargo xtask vm test --list` shows all");
        setup::write_json(flags.json.as_deref(), &verdicts)?;
        let failed = verdicts.iter().filter(|verdict| !verdict.passed).count();
        println!("\n{} passed, {failed} failed ({:.0} s)", verdicts.len() - failed, started.elapsed().as_secs_f64());
        Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// Boots a guest and makes the checks on it. A guest that does not come up fails them all.
    fn group(&self, group: &Group, checks: &[&Check], verdicts: &mut Vec<Verdict>) -> anyhow::Result<()> {
        let options = Options {
            nic: group.nic,
            queues: group.queues,
            kernel: group.kernel.to_owned(),
            virtio_iommu: group.virtio_iommu,
        };
        let started = Instant::now();
        let without = if group.virtio_iommu { "" } else { ", no IOMMU" };
        let title = format!("{}, {} queues{without}, Linux {}", group.nic, group.queues, group.kernel);
        println!("{title}");
        let mut guest = Guest::boot(&options, &self.responder, &self.zones, &self.stop);
        for check in checks {
            ensure!(!self.stop.load(Ordering::Relaxed), "stopped by a signal");
            let (seconds, result) = match &guest {
                Ok(guest) => self.check(guest, check),
                Err(error) => (started.elapsed(), Err(anyhow::anyhow!("{error:#}"))),
            };
            let passed = result.is_ok();
            let what = result.unwrap_or_else(|error| format!("{error:#}"));
            let verdict =
                Verdict { guest: title.clone(), check: check.name, passed, seconds: seconds.as_secs_f64(), what };
            verdict.print();
            verdicts.push(verdict);
            if !passed && guest.is_ok() {
                // What a failed check has left behind must not fail the next one.
                drop(guest);
                guest = Guest::boot(&options, &self.responder, &self.zones, &self.stop);
            }
        }
        Ok(())
    }

    fn check(&self, guest: &Guest, check: &Check) -> (Duration, anyhow::Result<String>) {
        let started = Instant::now();
        let result = (check.run)(&Stage { bench: self, guest }).and_then(|what| {
            if guest.serves()? {
                guest.end_server()?;
            }
            Ok(what)
        });
        let result = result.map_err(|error| {
            let log = guest.log().unwrap_or_default();
            error
                .context(format!("the server's output:\n{log}\nthe guest's console:\n{}\nwhat failed", guest.console()))
        });
        (started.elapsed(), result)
    }
}

impl Verdict {
    fn print(&self) {
        let (code, word) = if self.passed { (32, "ok") } else { (31, "FAILED") };
        let word = if std::io::stdout().is_terminal() {
            format!("\x1b[{code}m{word:<6}\x1b[0m")
        } else {
            format!("{word:<6}")
        };
        println!("  {word} {:<34} {:>5.1} s  {}", self.check, self.seconds, self.what);
    }
}
