//! What a command needs before it can start: Debian packages, root, and the built responder.
//!
//! Packages are installed only as root, and named first; anyone else is told what to type. On other systems than Debian's family
//! nothing is installed and nothing looked for: whoever compiles there sees what is missing.

use std::{
    env,
    ffi::{OsStr, OsString},
    fs,
    io::IsTerminal as _,
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, bail, ensure};
use serde::Serialize;

/// For building the responder: xsk-rs compiles libxdp and libbpf, which are C.
pub const BUILD: &[&str] = &["clang", "libclang-dev", "libelf-dev", "zlib1g-dev", "m4"];

/// For the lab.
pub const LAB: &[&str] = &["iproute2", "ethtool"];

/// For the tests, which ask with other people's clients too.
pub const TEST: &[&str] = &["knot-dnsutils", "bind9-dnsutils", "nftables"];

/// The routing daemon of the test with anycast; it is not started as a service.
pub const ROUTING: &[&str] = &["bird2"];

/// For counting instructions.
pub const BENCH: &[&str] = &["valgrind"];

/// Load generators that we did not write.
pub const CLIENTS: &[&str] = &["knot-dnsutils", "dnsperf"];

/// For guests: what unpacks modules. QEMU and kernels are fetched, not installed.
pub const VM: &[&str] = &["xz-utils"];

/// For a clean system to install the package in, and what lists the system calls of a unit's filter.
pub const PACKAGE: &[&str] = &["debootstrap", "systemd", "bind9-dnsutils", "linux-libc-dev"];

/// Servers that ours is compared with. To be installed by [`servers`].
pub const CONFORMANCE: &[&str] = &["nsd", "knot", "bind9"];

/// Debian starts no daemon while this says no.
const POLICY: &str = "/usr/sbin/policy-rc.d";

/// The root of the workspace.
#[must_use]
pub fn workspace() -> &'static Path {
    let member = Path::new(env!("CARGO_MANIFEST_DIR"));
    member.parent().unwrap_or(member)
}

/// Cargo as it runs us, in the workspace.
#[must_use]
pub fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace());
    cargo
}

/// True for root.
#[must_use]
pub fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

/// Installs what is missing of these Debian packages, or says how.
pub fn packages(sets: &[&[&'static str]]) -> anyhow::Result<()> {
    let wanted = sets.concat();
    let Some(missing) = missing(&wanted)? else {
        println!(
            "this is no Debian system, so that packages are not looked for; needed is what Debian calls {}",
            wanted.join(" ")
        );
        return Ok(());
    };
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if !is_root() || !is_on_path("apt-get") {
        bail!(
            "packages are missing. Install them with\n\n    sudo apt-get install --yes --no-install-recommends {names}\n"
        );
    }
    println!("installing the packages {names}");
    if !available(&missing)? {
        execute(apt().arg("update"))?;
    }
    if execute(apt().args(["install", "--yes", "--no-install-recommends"]).args(&missing)).is_err() {
        // Most often the lists are older than what the mirror still has.
        execute(apt().arg("update"))?;
        execute(apt().args(["install", "--yes", "--no-install-recommends"]).args(&missing))?;
    }
    Ok(())
}

/// As [`packages`], for servers: none of them is started, now or when the system starts. What is installed already stays as it is.
pub fn servers(wanted: &[&'static str]) -> anyhow::Result<()> {
    let new = missing(wanted)?.unwrap_or_default();
    if new.is_empty() || !is_root() {
        return packages(&[wanted]);
    }
    // Whoever has a policy of their own keeps it.
    let ours = !Path::new(POLICY).exists();
    if ours {
        fs::write(POLICY, "#!/bin/sh\nexit 101\n").with_context(|| format!("writing {POLICY}"))?;
        fs::set_permissions(POLICY, fs::Permissions::from_mode(0o755)).with_context(|| format!("writing {POLICY}"))?;
    }
    let installed = packages(&[wanted]);
    if ours {
        fs::remove_file(POLICY).with_context(|| format!("removing {POLICY}"))?;
    }
    installed?;
    for package in new {
        let unit = if package == "bind9" { "named" } else { package };
        // Where there is no systemd nothing starts by itself.
        let mut disable = Command::new("systemctl");
        let _ = disable.args(["--quiet", "disable", unit]).stderr(Stdio::null()).status();
    }
    Ok(())
}

/// Goes on as root: in this process if it is, else in one of the same executable through sudo, of which this is the end. The
/// arguments must say that nothing is to be built again.
pub fn as_root(arguments: &[OsString]) -> anyhow::Result<()> {
    if is_root() {
        return Ok(());
    }
    let program = env::current_exe().context("finding this executable")?;
    if !is_on_path("sudo") {
        let words: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
        bail!(
            "this needs root, and there is no sudo. Everything is built; as root, type\n\n    {} {}\n",
            program.display(),
            words.join(" ")
        );
    }
    println!("going on as root, through sudo");
    Err(Command::new("sudo").arg("--").arg(program).args(arguments).exec()).context("starting sudo")
}

/// The arguments of this process for its second start, as root: what is built is not built again.
#[must_use]
pub fn arguments_when_built() -> Vec<OsString> {
    let mut arguments: Vec<OsString> = env::args_os().skip(1).filter(|argument| argument != "--built").collect();
    // In front of what may be a command of its own.
    arguments.insert(1.min(arguments.len()), "--built".into());
    arguments
}

/// Builds the responder as released: its path.
pub fn build_responder() -> anyhow::Result<PathBuf> {
    execute(cargo().args(["build", "--release", "--package", "responder"]))?;
    responder()
}

/// Where everything is built.
pub fn target() -> anyhow::Result<PathBuf> {
    // A target directory from the environment or a configuration file is where we are, too: target/debug/xtask.
    Ok(match env::var_os("CARGO_TARGET_DIR") {
        Some(target) => workspace().join(target),
        None => target_of(&env::current_exe().context("finding this executable")?),
    })
}

/// The responder as built before.
pub fn responder() -> anyhow::Result<PathBuf> {
    let path = target()?.join("release/responder");
    ensure!(path.is_file(), "{} is not there: `cargo build --release` makes it", path.display());
    Ok(path)
}

/// Builds what runs in a lab, unless `built`, and goes on as root: the responder.
pub fn responder_as_root(built: bool) -> anyhow::Result<PathBuf> {
    if !built {
        packages(&[BUILD, LAB])?;
        build_responder()?;
    }
    let responder = responder()?;
    as_root(&arguments_when_built())?;
    Ok(responder)
}

/// Runs a command with its output shown; its failure is an error.
pub fn execute(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("starting {}", command.get_program().display()))?;
    ensure!(status.success(), "`{}` failed: {status}", shown(command));
    Ok(())
}

/// A command's output; its failure is an error with what it said.
pub fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command.output().with_context(|| format!("starting `{}`", shown(command)))?;
    ensure!(output.status.success(), "`{}` failed: {}", shown(command), String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).with_context(|| format!("what `{}` prints", shown(command)))
}

/// Writes figures to the file that `--json` names, if it does.
pub fn write_json(path: Option<&Path>, figures: &impl Serialize) -> anyhow::Result<()> {
    let Some(path) = path else { return Ok(()) };
    let text = serde_json::to_string_pretty(figures)?;
    fs::write(path, text + "\n").with_context(|| format!("writing {}", path.display()))
}

/// A command as it would be typed.
#[must_use]
pub fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

/// True where a program of this name can be started.
#[must_use]
pub fn is_on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    // Where root's programs are, which need not be on another user's path.
    let more = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    env::split_paths(&path).chain(more).any(|directory| directory.join(program).is_file())
}

fn target_of(executable: &Path) -> PathBuf {
    let profile = executable.parent().filter(|profile| profile.ends_with("debug") || profile.ends_with("release"));
    profile.and_then(Path::parent).map_or_else(|| workspace().join("target"), Path::to_owned)
}

/// `None` where there is no dpkg.
fn missing(wanted: &[&'static str]) -> anyhow::Result<Option<Vec<&'static str>>> {
    if !is_on_path("dpkg-query") {
        return Ok(None);
    }
    let mut query = Command::new("dpkg-query");
    query.args(["-W", "-f=${binary:Package} ${db:Status-Status}\\n"]).args(wanted);
    // It fails when it does not know one, but prints the others.
    let output = query.output().context("starting dpkg-query")?;
    Ok(Some(not_installed(wanted, &String::from_utf8_lossy(&output.stdout))))
}

fn not_installed(wanted: &[&'static str], listing: &str) -> Vec<&'static str> {
    let installed: Vec<&str> = listing
        .lines()
        .filter_map(|line| line.strip_suffix(" installed"))
        // Libraries are listed with their architecture.
        .map(|package| package.split(':').next().unwrap_or(package))
        .collect();
    wanted.iter().copied().filter(|package| !installed.contains(package)).collect()
}

/// True if apt's lists name all of them.
fn available(packages: &[&str]) -> anyhow::Result<bool> {
    let mut show = Command::new("apt-cache");
    show.args(["show", "--no-all-versions"]).args(packages).stdout(Stdio::null()).stderr(Stdio::null());
    Ok(show.status().context("starting apt-cache")?.success())
}

fn apt() -> Command {
    let mut apt = Command::new("apt-get");
    apt.env("DEBIAN_FRONTEND", "noninteractive");
    if !std::io::stdout().is_terminal() {
        apt.arg("--quiet");
    }
    apt
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_are_installed_or_missing() {
        let listing = "clang installed\nlibelf-dev:amd64 installed\nm4 config-files\n";
        assert_eq!(not_installed(&["clang", "libelf-dev", "m4", "ethtool"], listing), ["m4", "ethtool"]);
    }

    #[test]
    fn the_target_directory_is_where_the_executable_is() {
        assert_eq!(target_of(Path::new("/t/debug/xtask")), Path::new("/t"));
        assert_eq!(target_of(Path::new("/usr/bin/xtask")), workspace().join("target"));
    }
}
