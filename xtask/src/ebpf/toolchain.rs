//! The compiler and the linker for BPF: finds them, or installs them.
//!
//! A compiler is either rustup's nightly with the component `rust-src`, from which it builds `core` for BPF, or a packaged one that
//! comes with a ready-made `core`. The linker is bpf-linker, built against the LLVM of the compiler's major version: it reads the
//! compiler's bitcode.

use std::{
    collections::BTreeMap,
    env, fmt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};

use super::{TARGET, execute, shown};

/// Exact, because the bytes of the objects depend on it.
const LINKER_VERSION: &str = "0.13.0";

/// Debian's compiler of the day, packaged for building browsers, its `core` for BPF, and its objcopy.
const PACKAGES: [&str; 4] = ["rustc-web", "cargo-web", "libstd-rust-web-dev-bpf", "rust-web-llvm"];

/// Long enough on one slow core.
const LINKER_INSTALL_MAX: Duration = Duration::from_secs(20 * 60);

/// Where the compiler has `core` for BPF from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Core {
    /// Built together with the program.
    Source,
    /// Installed with the compiler.
    ReadyMade,
}

/// A compiler and a linker that fit together.
#[derive(Debug)]
pub(super) struct Toolchain {
    pub(super) core: Core,
    pub(super) sysroot: PathBuf,
    pub(super) linker: PathBuf,
    compiler: Compiler,
}

#[derive(Debug)]
struct Compiler {
    core: Core,
    sysroot: PathBuf,
    rustc: PathBuf,
    /// The first line of `rustc -vV`, without the name.
    version: String,
    host: String,
    llvm: String,
}

impl Toolchain {
    /// The tools on record if they are at hand, else others that are, else installs some.
    pub(super) fn provide(workspace: &Path, recorded: Option<&BTreeMap<String, String>>) -> anyhow::Result<Self> {
        let mut found: Vec<_> = Compiler::all().collect();
        let best = found.iter().position(|compiler| Some(&compiler.versions()) == recorded).unwrap_or(0);
        let compiler = if found.is_empty() { Compiler::install()? } else { found.swap_remove(best) };
        let linker = linker(workspace, compiler.llvm_major())?;
        Ok(Self { core: compiler.core, sysroot: compiler.sysroot.clone(), linker, compiler })
    }

    /// A Cargo that compiles with this compiler.
    pub(super) fn cargo(&self, workspace: &Path) -> Command {
        let mut cargo = Command::new(self.compiler.rustc.with_file_name("cargo"));
        cargo.current_dir(workspace).env("RUSTC", &self.compiler.rustc);
        // Of the Cargo that runs us: another compiler's libraries.
        cargo.env_remove("LD_LIBRARY_PATH");
        if self.core == Core::ReadyMade {
            // aya-ebpf wants inline assembly for BPF, which a stable compiler has but hides. For this build only.
            cargo.env("RUSTC_BOOTSTRAP", "1");
        }
        cargo
    }

    /// The target triple of this machine.
    pub(super) fn host(&self) -> &str {
        &self.compiler.host
    }

    /// What strips the objects.
    pub(super) fn objcopy(&self) -> PathBuf {
        self.compiler.objcopy()
    }

    /// What the bytes of the objects depend on.
    pub(super) fn versions(&self) -> BTreeMap<String, String> {
        self.compiler.versions()
    }
}

impl fmt::Display for Toolchain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rustc {}, LLVM {}, bpf-linker {LINKER_VERSION}", self.compiler.version, self.compiler.llvm)
    }
}

impl Compiler {
    /// Those that can compile for BPF.
    fn all() -> impl Iterator<Item = Self> {
        let nightly = output(Command::new("rustup").args(["which", "rustc", "--toolchain", "nightly"])).ok();
        let rustup = nightly.map(|path| (PathBuf::from(path.trim()), Core::Source));
        let packaged = (PathBuf::from("/usr/bin/rustc"), Core::ReadyMade);
        rustup.into_iter().chain([packaged]).filter_map(|(rustc, core)| Self::probe(rustc, core).ok().flatten())
    }

    /// `None` if it has no `core` for BPF.
    fn probe(rustc: PathBuf, core: Core) -> anyhow::Result<Option<Self>> {
        let sysroot = output(command(&rustc).args(["--print", "sysroot"]))?;
        let sysroot = PathBuf::from(sysroot.trim());
        let core_at = match core {
            Core::Source => Path::new("lib/rustlib/src/rust/library/core").to_owned(),
            Core::ReadyMade => Path::new("lib/rustlib").join(TARGET),
        };
        if !sysroot.join(core_at).is_dir() {
            return Ok(None);
        }
        let verbose = output(command(&rustc).arg("-vV"))?;
        let field = |name: &str| {
            let value = verbose.lines().find_map(|line| line.strip_prefix(name));
            value.map(str::to_owned).with_context(|| format!("`{} -vV` does not say its `{name}`", rustc.display()))
        };
        let compiler = Self {
            version: field("rustc ")?,
            host: field("host: ")?,
            llvm: field("LLVM version: ")?,
            core,
            sysroot,
            rustc,
        };
        // Debian has it in a package of its own.
        Ok(compiler.objcopy().is_file().then_some(compiler))
    }

    fn objcopy(&self) -> PathBuf {
        self.sysroot.join("lib/rustlib").join(&self.host).join("bin/rust-objcopy")
    }

    fn install() -> anyhow::Result<Self> {
        println!("no compiler here can compile for BPF");
        install_packages(&PACKAGES).with_context(|| {
            "a compiler for BPF is needed; where rustup can fetch it, `rustup toolchain install nightly --component rust-src` is enough"
        })?;
        Self::all().next().context("the packages are installed, but their compiler has no `core` for BPF")
    }

    /// With the linker's version, which is always the same.
    fn versions(&self) -> BTreeMap<String, String> {
        let core = match self.core {
            Core::Source => "built from source",
            Core::ReadyMade => "ready-made",
        };
        [("rustc", &*self.version), ("core", core), ("llvm", &*self.llvm), ("bpf-linker", LINKER_VERSION)]
            .map(|(tool, version)| (tool.to_owned(), version.to_owned()))
            .into()
    }

    fn llvm_major(&self) -> &str {
        self.llvm.split('.').next().unwrap_or(&self.llvm)
    }
}

/// bpf-linker from PATH if it is the version we want, else from the workspace's target directory, where it is built if it is not there.
fn linker(workspace: &Path, llvm_major: &str) -> anyhow::Result<PathBuf> {
    let ours = workspace.join("target/tools").join(format!("llvm-{llvm_major}"));
    let path = env::var_os("PATH").unwrap_or_default();
    let candidates =
        env::split_paths(&path).map(|directory| directory.join("bpf-linker")).chain([ours.join("bin/bpf-linker")]);
    let wanted = format!("bpf-linker {LINKER_VERSION}");
    for candidate in candidates.filter(|candidate| candidate.is_file()) {
        if output(command(&candidate).arg("--version")).is_ok_and(|version| version.trim() == wanted) {
            return Ok(candidate);
        }
    }

    let llvm = PathBuf::from(format!("/usr/lib/llvm-{llvm_major}"));
    // What is linked; other packages have llvm-config without it.
    if !llvm.join("lib/libLLVM.so").exists() {
        install_packages(&[&format!("llvm-{llvm_major}-dev")])?;
    }
    println!("building {wanted}, for about a minute");
    let mut install = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    install.args([
        "install",
        "bpf-linker",
        "--version",
        LINKER_VERSION,
        "--locked",
        "--no-default-features",
        "--features",
    ]);
    install.arg(format!("llvm-{llvm_major}")).arg("--root").arg(&ours).env("LLVM_PREFIX", llvm);
    execute_within(&mut install, LINKER_INSTALL_MAX)?;
    Ok(ours.join("bin/bpf-linker"))
}

/// As root with apt: prints the names and installs them. Otherwise: says what to type.
fn install_packages(packages: &[&str]) -> anyhow::Result<()> {
    let command = format!("apt-get install --yes --no-install-recommends {}", packages.join(" "));
    let is_root = output(Command::new("id").arg("-u")).is_ok_and(|uid| uid.trim() == "0");
    let has_apt = output(Command::new("apt-get").arg("--version")).is_ok();
    ensure!(is_root && has_apt, "system packages are missing: run `sudo {command}` (the names are Debian's)");
    println!("installing system packages: {}", packages.join(" "));
    let mut apt = Command::new("sh");
    apt.args(["-c", &command]).env("DEBIAN_FRONTEND", "noninteractive").stdout(Stdio::null());
    if execute(&mut apt).is_err() {
        // The lists may be old, or not there at all.
        execute(Command::new("apt-get").args(["update", "--quiet=2"]))?;
        execute(&mut apt)?;
    }
    Ok(())
}

/// Runs a command with its output shown, and ends it when its time is up.
fn execute_within(command: &mut Command, max: Duration) -> anyhow::Result<()> {
    let mut child = command.spawn().with_context(|| format!("starting {}", command.get_program().display()))?;
    let started = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "`{}` failed: {status}", shown(command));
            return Ok(());
        }
        if started.elapsed() > max {
            child.kill()?;
            child.wait()?;
            bail!("`{}` took more than {} minutes", shown(command), max.as_secs() / 60);
        }
        thread::sleep(Duration::from_millis(100));
    }
}

/// A command of another toolchain than the one that runs us.
fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_remove("LD_LIBRARY_PATH");
    command
}

fn output(command: &mut Command) -> anyhow::Result<String> {
    let output = command
        .stderr(Stdio::null())
        .output()
        .with_context(|| format!("starting {}", command.get_program().display()))?;
    ensure!(output.status.success(), "`{}` failed: {}", shown(command), output.status);
    String::from_utf8(output.stdout).context("its output is not UTF-8")
}
