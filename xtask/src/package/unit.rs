//! A service's unit, and what a service manager makes of it, by other means: user, capabilities, address families, system calls.
//!
//! It reads what `packaging/responder.service` uses and no more: a test of that unit where there is no service manager. Of the file tree's
//! protection it knows nothing; `installed` does that with mounts.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
};

use crate::setup;

/// The settings of a unit: the values of each key, those of several lines together.
#[derive(Debug)]
pub(super) struct Unit(BTreeMap<String, Vec<String>>);

impl Unit {
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self::parse(&text))
    }

    fn parse(text: &str) -> Self {
        let mut settings: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (key, value) in text.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once('=')) {
            settings.entry(key.to_owned()).or_default().extend(value.split_whitespace().map(str::to_owned));
        }
        Self(settings)
    }

    /// The words of a setting that must be there.
    pub(super) fn words(&self, key: &str) -> anyhow::Result<&[String]> {
        self.0.get(key).map(Vec::as_slice).with_context(|| format!("the unit has no {key}="))
    }

    /// A setting of one word.
    pub(super) fn word(&self, key: &str) -> anyhow::Result<&str> {
        match self.words(key)? {
            [word] => Ok(word),
            words => bail!("{key}={}: expected one word", words.join(" ")),
        }
    }

    /// How setpriv(1) becomes the unit's user, with its capabilities.
    fn setpriv(&self) -> anyhow::Result<Vec<String>> {
        let listed = |key| -> anyhow::Result<String> {
            let names =
                self.words(key)?.iter().map(|name| format!("+{}", name.trim_start_matches("CAP_").to_lowercase()));
            Ok(names.collect::<Vec<_>>().join(","))
        };
        let ambient = listed("AmbientCapabilities")?;
        Ok(vec![
            "setpriv".to_owned(),
            format!("--reuid={}", self.word("User")?),
            format!("--regid={}", self.word("Group")?),
            "--init-groups".to_owned(),
            "--no-new-privs".to_owned(),
            format!("--bounding-set=-all,{}", listed("CapabilityBoundingSet")?),
            format!("--inh-caps=-all,{ambient}"),
            format!("--ambient-caps=-all,{ambient}"),
        ])
    }

    /// What its SystemCallFilter and RestrictAddressFamilies allow; the rest is EPERM, as with the unit's SystemCallErrorNumber. An address family is refused
    /// with EAFNOSUPPORT by a service manager, which makes no difference to a server that needs it.
    fn filter(&self) -> anyhow::Result<BpfProgram> {
        let numbers = numbers()?;
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
        for name in calls(self.words("SystemCallFilter")?)? {
            // Names of other architectures have no number here.
            if let Some(number) = numbers.get(&name) {
                rules.insert(*number, Vec::new());
            }
        }
        let families = self.words("RestrictAddressFamilies")?.iter().map(|name| -> anyhow::Result<SeccompRule> {
            let family = family(name).with_context(|| format!("RestrictAddressFamilies={name} is not known here"))?;
            let condition = SeccompCondition::new(0, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, family)?;
            Ok(SeccompRule::new(vec![condition])?)
        });
        rules.insert(libc::SYS_socket, families.collect::<Result<_, _>>()?);
        let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
        let filter = SeccompFilter::new(rules, refuse, SeccompAction::Allow, std::env::consts::ARCH.try_into()?)?;
        Ok(filter.try_into()?)
    }
}

/// `cargo xtask package confined`.
#[derive(Debug, Args)]
pub(super) struct Confined {
    /// The unit.
    unit: PathBuf,
    /// The root of its file tree.
    root: PathBuf,
    /// What to run.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

impl Confined {
    /// Runs the command; comes back only when that fails.
    pub(super) fn run(&self) -> anyhow::Error {
        let start = || -> anyhow::Result<()> {
            let unit = Unit::read(&self.unit)?;
            let (filter, words) = (unit.filter()?, [unit.setpriv()?, self.command.clone()].concat());
            nix::unistd::chroot(&self.root).with_context(|| format!("chroot to {}", self.root.display()))?;
            nix::unistd::chdir("/")?;
            let (program, arguments) = words.split_first().context("there is a command")?;
            seccompiler::apply_filter(&filter)?;
            Err(Command::new(program).args(arguments).exec()).with_context(|| format!("starting {program}"))
        };
        start().err().unwrap_or_else(|| anyhow!("it came back"))
    }
}

/// The names that a filter's words stand for, as systemd lists them.
fn calls(words: &[String]) -> anyhow::Result<BTreeSet<String>> {
    let mut found = BTreeSet::new();
    for word in words {
        if !word.starts_with('@') {
            found.insert(word.clone());
            continue;
        }
        let text = setup::output(Command::new("systemd-analyze").args(["syscall-filter", word]))?;
        let inside =
            text.lines().filter(|line| line.starts_with(' ')).map(str::trim).filter(|line| !line.starts_with('#'));
        found.extend(calls(&inside.map(str::to_owned).collect::<Vec<_>>())?);
    }
    Ok(found)
}

/// The numbers of system calls, from the C library's headers.
fn numbers() -> anyhow::Result<BTreeMap<String, i64>> {
    let header = match std::env::consts::ARCH {
        "x86_64" => "/usr/include/x86_64-linux-gnu/asm/unistd_64.h",
        "aarch64" => "/usr/include/asm-generic/unistd.h",
        other => bail!("the numbers of system calls are not known on {other}"),
    };
    let text = fs::read_to_string(header).with_context(|| format!("reading {header}: install linux-libc-dev"))?;
    let defined = text.lines().filter_map(|line| {
        let (name, number) = line.strip_prefix("#define __NR_")?.split_once(' ')?;
        Some((name.to_owned(), number.trim().parse().ok()?))
    });
    Ok(defined.collect())
}

fn family(name: &str) -> Option<u64> {
    let family = match name {
        "AF_UNIX" => libc::AF_UNIX,
        "AF_INET" => libc::AF_INET,
        "AF_INET6" => libc::AF_INET6,
        "AF_NETLINK" => libc::AF_NETLINK,
        "AF_XDP" => libc::AF_XDP,
        _ => return None,
    };
    u64::try_from(family).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_unit_gives_the_capabilities_that_the_server_knows_of() {
        let unit = Unit::read(&setup::workspace().join("packaging/responder.service")).unwrap();
        assert_eq!(unit.words("CapabilityBoundingSet").unwrap(), unit.words("AmbientCapabilities").unwrap());
        assert_eq!(unit.word("User").unwrap(), "responder");
        let setpriv = unit.setpriv().unwrap();
        let all = "+net_bind_service,+net_raw,+net_admin,+bpf,+perfmon,+ipc_lock";
        assert!(setpriv.contains(&format!("--bounding-set=-all,{all}")), "{setpriv:?}");
    }

    #[test]
    fn settings_of_several_lines_are_added_and_comments_are_none() {
        let unit = Unit::parse("[Service]\nA=b c\n#A=d\nA=e\nEnvironment=X=1\n");
        assert_eq!(unit.words("A").unwrap(), ["b", "c", "e"]);
        assert_eq!(unit.word("Environment").unwrap(), "X=1");
        assert!(unit.word("A").is_err() && unit.word("B").is_err());
    }
}
