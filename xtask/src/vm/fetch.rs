//! What a guest is made of: kernels, QEMU and busybox, fetched as Debian packages and unpacked below `target/vm`.
//!
//! Nothing is installed and apt's own configuration stays as it is: apt runs with lists and a cache of our own, from the mirror that
//! this machine uses already, and checks the signatures. What is there once is not fetched again; removing `target/vm` gets the
//! newest of everything.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;

use crate::setup::{is_on_path, output, target};

/// A kernel series and the suite of Debian that has it. Of a series the newest package is taken.
///
/// When a series has gone from the mirror: take the one that followed it in the same suite.
const SERIES: &[(&str, &str)] =
    &[(NEWEST, "trixie-backports"), ("6.18", "trixie-backports"), ("6.12", "bookworm-backports"), ("6.1", "bookworm")];

/// The series of guests unless told otherwise.
pub(crate) const NEWEST: &str = "7.3";

/// Free space, in bytes, that unpacking needs.
const SPACE_MIN: u64 = 700 << 20;

/// The kernel series that can be asked for, newest first.
pub(crate) fn series() -> impl Iterator<Item = &'static str> {
    SERIES.iter().map(|(series, _)| *series)
}

/// Which build of a kernel: the small one for virtual machines lacks drivers for hardware.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Flavour {
    /// virtio-net and vmxnet3.
    #[value(name = "cloud-amd64")]
    Cloud,
    /// All drivers.
    #[value(name = "amd64")]
    Full,
}

impl Flavour {
    const fn name(self) -> &'static str {
        match self {
            Self::Cloud => "cloud-amd64",
            Self::Full => "amd64",
        }
    }
}

/// An unpacked kernel.
#[derive(Clone, Debug)]
pub(crate) struct Kernel {
    /// What `uname -r` says in the guest.
    pub(crate) release: String,
    /// The image.
    pub(crate) image: PathBuf,
    /// Its modules, in folders, compressed.
    pub(crate) modules: PathBuf,
}

/// Unpacked programs: QEMU for this side, busybox for the guest.
#[derive(Clone, Debug)]
pub(crate) struct Tools {
    root: PathBuf,
}

impl Tools {
    /// A program of the unpacked packages, or of this machine where its package is installed already.
    fn program(&self, paths: &[&str]) -> anyhow::Result<PathBuf> {
        let unpacked = paths.iter().map(|path| self.root.join(path));
        let installed = paths.iter().map(|path| Path::new("/").join(path));
        let found = unpacked.chain(installed).find(|path| path.is_file());
        found.with_context(|| format!("{} is neither in {} nor installed", paths[0], self.root.display()))
    }

    /// A busybox that needs no library.
    pub(crate) fn busybox(&self) -> anyhow::Result<PathBuf> {
        self.program(&["bin/busybox", "usr/bin/busybox"])
    }

    /// The archiver that makes an initramfs.
    pub(crate) fn cpio(&self) -> anyhow::Result<PathBuf> {
        self.program(&["bin/cpio", "usr/bin/cpio"])
    }

    /// QEMU, told where its firmware, modules and libraries are. For `command` of something that starts it: add this program and its
    /// arguments.
    pub(crate) fn qemu(&self, command: &mut Command) -> anyhow::Result<()> {
        let libraries = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"].map(|path| self.root.join(path));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(&libraries)?);
        command.env("QEMU_MODULE_DIR", libraries[0].join("qemu"));
        command.arg(self.program(&["usr/bin/qemu-system-x86_64"])?);
        for firmware in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.root.join(firmware));
        }
        Ok(())
    }
}

/// The unpacked programs, fetched when they are not there.
pub(crate) fn tools() -> anyhow::Result<Tools> {
    let root = cache()?.join("tools");
    if !is_complete(&root) {
        let apt = Apt::new()?;
        println!("fetching QEMU and busybox");
        // What this machine has installed of their libraries is used from there.
        let wanted = ["qemu-system-x86", "busybox-static", "cpio"];
        let suite = format!("{}-backports", apt.host_suite);
        let mut simulate = apt.command("apt-get");
        simulate.args(["-s", "-y", "-t", &suite, "--no-install-recommends", "install"]).args(wanted);
        let plan = output(&mut simulate).context("asking apt what QEMU needs")?;
        let packages: Vec<String> = plan.lines().filter_map(planned).collect();
        apt.unpack(&packages, &root)?;
        complete(&root)?;
    }
    Ok(Tools { root })
}

/// `Inst NAME (VERSION ...)` as `NAME=VERSION`.
fn planned(line: &str) -> Option<String> {
    let mut words = line.strip_prefix("Inst ")?.split_whitespace();
    let name = words.next()?;
    let version = words.find_map(|word| word.strip_prefix('('))?;
    Some(format!("{name}={version}"))
}

/// An unpacked kernel of this series, fetched when it is not there.
pub(crate) fn kernel(series: &str, flavour: Flavour) -> anyhow::Result<Kernel> {
    let root = cache()?.join(format!("kernel-{series}-{}", flavour.name()));
    if !is_complete(&root) {
        let (_, suite) = SERIES.iter().find(|(name, _)| *name == series).with_context(|| {
            let known: Vec<_> = self::series().collect();
            format!("no kernel series `{series}`: there are {}", known.join(", "))
        })?;
        let apt = Apt::new()?;
        let prefix = format!("linux-image-{series}.");
        let names = output(apt.command("apt-cache").args(["pkgnames", &prefix])).context("looking for kernels")?;
        let version = newest(&names, &prefix, flavour).with_context(|| {
            format!(
                "the mirror has no kernel {series} ({}) in {suite} any more: \
                 replace the series in SERIES of xtask/src/vm/fetch.rs by one that is there",
                flavour.name()
            )
        })?;
        println!("fetching Linux {version}");
        // From 7.2 on the image's package is empty and names these two.
        let parts = ["linux-binary", "linux-modules"].map(|part| format!("{part}-{version}"));
        let known = output(apt.command("apt-cache").args(["pkgnames", &parts[0]]))?;
        let whole = format!("linux-image-{version}");
        if known.lines().any(|name| name == parts[0]) {
            let modules = output(apt.command("apt-cache").args(["pkgnames", &parts[1]]))?;
            let modules = modules.lines().any(|name| name == parts[1]);
            if modules { apt.unpack(&parts, &root)? } else { apt.unpack(&[parts[0].clone(), whole], &root)? }
        } else {
            apt.unpack(&[whole], &root)?;
        }
        complete(&root)?;
    }
    unpacked_kernel(&root)
}

fn unpacked_kernel(root: &Path) -> anyhow::Result<Kernel> {
    let only = |directory: &Path, prefix: &str| -> Option<PathBuf> {
        let mut entries = fs::read_dir(directory).ok()?.filter_map(Result::ok).map(|entry| entry.path());
        entries.find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix)))
    };
    let modules = ["usr/lib/modules", "lib/modules"].iter().find_map(|path| only(&root.join(path), ""));
    let modules = modules.with_context(|| format!("no modules in {}", root.display()))?;
    let release = modules.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let image = only(&root.join("boot"), "vmlinuz").or_else(|| only(&modules, "vmlinuz"));
    let image = image.with_context(|| format!("no kernel image in {}", root.display()))?;
    Ok(Kernel { release, image, modules: modules.join("kernel") })
}

/// The newest version among package names: `linux-image-VERSION-FLAVOUR` with nothing behind it.
fn newest(names: &str, prefix: &str, flavour: Flavour) -> Option<String> {
    let version = |name: &str| -> Option<String> {
        let base = name.strip_suffix(flavour.name())?.strip_suffix('-')?;
        let rest = base.strip_prefix(prefix)?;
        // `-cloud`, `-rt` and the like are other flavours; `6.1.0-50` is a version.
        let plain = rest.split('-').all(|part| part.starts_with(|first: char| first.is_ascii_digit()));
        plain.then(|| name.trim_start_matches("linux-image-").to_owned())
    };
    names.lines().filter_map(version).max_by_key(|version| numbers(version))
}

/// The numbers in a version, for comparing.
fn numbers(version: &str) -> Vec<u32> {
    version.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

fn cache() -> anyhow::Result<PathBuf> {
    Ok(target()?.join("vm"))
}

fn is_complete(root: &Path) -> bool {
    root.join("complete").is_file()
}

fn complete(root: &Path) -> anyhow::Result<()> {
    fs::write(root.join("complete"), "").with_context(|| format!("writing to {}", root.display()))
}

/// apt with lists and a cache of our own.
struct Apt {
    directory: PathBuf,
    host_suite: String,
}

impl Apt {
    fn new() -> anyhow::Result<Self> {
        ensure!(
            is_on_path("apt-get") && is_on_path("dpkg-deb"),
            "the guest is made from Debian's packages: this machine has no apt-get"
        );
        check_space()?;
        let os = fs::read_to_string("/etc/os-release").context("reading /etc/os-release")?;
        let host_suite = os
            .lines()
            .find_map(|line| line.strip_prefix("VERSION_CODENAME="))
            .context("/etc/os-release has no VERSION_CODENAME: the guest's packages need a Debian release")?
            .to_owned();
        let apt = Self { directory: cache()?.join("apt"), host_suite };
        for directory in ["lists/partial", "archives/partial"] {
            let directory = apt.directory.join(directory);
            fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
        }
        apt.configure()?;
        output(apt.command("apt-get").args(["-qq", "update"])).context("getting the mirror's lists")?;
        Ok(apt)
    }

    /// The suites of [`SERIES`], and this machine's own for programs that run here.
    fn configure(&self) -> anyhow::Result<()> {
        let mut suites = vec![self.host_suite.clone(), format!("{}-backports", self.host_suite)];
        suites.extend(SERIES.iter().map(|(_, suite)| (*suite).to_owned()));
        suites.sort();
        suites.dedup();
        let mirror = mirror()?;
        let sources: String = suites
            .iter()
            .map(|suite| {
                format!("deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {suite} main\n")
            })
            .collect();
        let path = |name: &str| self.directory.join(name).display().to_string();
        let configuration = format!(
            "Dir::Etc::SourceList \"{}\";\nDir::Etc::SourceParts \"/dev/null\";\nDir::State::lists \"{}\";\n\
             Dir::Cache \"{}\";\nDir::Cache::archives \"{}\";\nAPT::Sandbox::User \"root\";\n",
            path("sources.list"),
            path("lists"),
            self.directory.display(),
            path("archives"),
        );
        for (name, text) in [("sources.list", sources), ("apt.conf", configuration)] {
            fs::write(self.directory.join(name), text).with_context(|| format!("writing {}", path(name)))?;
        }
        Ok(())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.directory.join("apt.conf")).env("LC_ALL", "C");
        command
    }

    /// Downloads packages and unpacks them below `root`, which is made anew.
    fn unpack(&self, packages: &[String], root: &Path) -> anyhow::Result<()> {
        let downloads = self.directory.join("downloads");
        for directory in [root, &downloads] {
            if directory.exists() {
                fs::remove_dir_all(directory).with_context(|| format!("removing {}", directory.display()))?;
            }
            fs::create_dir_all(directory).with_context(|| format!("making {}", directory.display()))?;
        }
        output(self.command("apt-get").args(["-qq", "download"]).args(packages).current_dir(&downloads))
            .context("downloading packages")?;
        for package in fs::read_dir(&downloads)?.filter_map(Result::ok) {
            output(Command::new("dpkg-deb").arg("-x").arg(package.path()).arg(root))
                .with_context(|| format!("unpacking {}: is the disk full?", package.file_name().display()))?;
        }
        fs::remove_dir_all(&downloads).with_context(|| format!("removing {}", downloads.display()))
    }
}

/// The mirror that most of this machine's packages come from.
fn mirror() -> anyhow::Result<String> {
    let targets =
        output(Command::new("apt-get").args(["indextargets", "--format", "$(SITE)", "Created-By: Packages"]))?;
    let mut sites: Vec<&str> = targets.lines().filter(|site| site.trim_end_matches('/').ends_with("/debian")).collect();
    sites.sort_unstable();
    let most = sites.chunk_by(|a, b| a == b).max_by_key(|same| same.len());
    let site = most.and_then(|same| same.first());
    site.map(ToString::to_string).context("apt knows no mirror of Debian: `apt-get update` once, then again")
}

fn check_space() -> anyhow::Result<()> {
    let directory = cache()?;
    fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let disk =
        nix::sys::statvfs::statvfs(&directory).with_context(|| format!("asking about {}", directory.display()))?;
    let free = disk.blocks_available() * disk.fragment_size();
    if free < SPACE_MIN {
        bail!(
            "{} has {} MB free, and kernels and QEMU need {} MB: make room, or set CARGO_TARGET_DIR",
            directory.display(),
            free >> 20,
            SPACE_MIN >> 20
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_kernel_of_a_series_and_flavour() {
        let names = "linux-image-6.1.0-47-amd64\nlinux-image-6.1.0-50-amd64\nlinux-image-6.1.0-50-amd64-unsigned\n\
                     linux-image-6.1.0-50-cloud-amd64\nlinux-image-6.1.0-51-rt-amd64\nlinux-image-6.1.0-9-amd64\n";
        let newest_of = |flavour| newest(names, "linux-image-6.1.", flavour);
        assert_eq!(newest_of(Flavour::Full).as_deref(), Some("6.1.0-50-amd64"));
        assert_eq!(newest_of(Flavour::Cloud).as_deref(), Some("6.1.0-50-cloud-amd64"));
        let names = "linux-image-6.18.9+deb13-amd64\nlinux-image-6.18.15+deb13-amd64\n";
        assert_eq!(newest(names, "linux-image-6.18.", Flavour::Full).as_deref(), Some("6.18.15+deb13-amd64"));
        assert_eq!(newest(names, "linux-image-6.18.", Flavour::Cloud), None);
    }

    #[test]
    fn what_apt_plans_is_named_with_its_version() {
        assert_eq!(
            planned("Inst cpio (2.13+dfsg-7.1 Debian:12.15/oldstable [amd64])").as_deref(),
            Some("cpio=2.13+dfsg-7.1")
        );
        assert_eq!(
            planned("Inst libc6 [2.36-9] (2.36-9+deb12u9 Debian:12 [amd64]) []").as_deref(),
            Some("libc6=2.36-9+deb12u9")
        );
        assert_eq!(planned("Conf cpio (2.13)"), None);
    }
}
