//! `cargo xtask ebpf`: builds the XDP programs from source and refreshes the objects that are checked in beside them.
//!
//! With `--check` it changes nothing and proves that objects and source agree: with the compiler that is on record the bytes must
//! be the same; with another one the new object must give the same verdicts on every test frame.
//!
//! The bytes depend on the compiler, but not on where the workspace or Cargo's registry is: all paths that reach the object are cut
//! down to what is below those.

mod toolchain;

use std::{
    collections::BTreeMap,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, bail, ensure};

use self::{
    provenance::{PROGRAMS, RECORD, Record},
    toolchain::{Core, Toolchain},
};

#[path = "../../responder-ebpf/provenance.rs"]
#[allow(dead_code, reason = "shared with the build script of responder, which alone needs to know when to run again")]
mod provenance;

const TARGET: &str = "bpfel-unknown-none";

/// Builds the objects, then replaces those that are checked in, or with `check` compares.
pub fn run(check: bool) -> anyhow::Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("xtask is a member of a workspace")?;
    let source = provenance::source_hash(workspace)?;
    let record = Record::read(workspace);
    if check {
        let record = record.as_ref().map_err(|error| anyhow::anyhow!("{error:#}"))?;
        ensure!(
            record.source == source,
            "the XDP programs' source has changed since their objects were built: run `cargo xtask ebpf`"
        );
    }

    let toolchain = Toolchain::provide(workspace, record.as_ref().ok().map(|record| &record.tools))?;
    println!("building the XDP programs with {toolchain}");
    let built = build(workspace, &toolchain)?;
    let objects = PROGRAMS
        .iter()
        .map(|&program| Ok((program.to_owned(), provenance::file_hash(&built.join(provenance::object(program)))?)))
        .collect::<anyhow::Result<BTreeMap<_, _>>>()?;
    let fresh = Record { source, objects, tools: toolchain.versions() };

    if check { compare(workspace, &record?, &fresh, &built) } else { replace(workspace, &fresh, &built) }
}

/// Builds and strips the objects: the directory under which they are where they would be in the workspace.
fn build(workspace: &Path, toolchain: &Toolchain) -> anyhow::Result<PathBuf> {
    let target = workspace.join("target/ebpf");
    // What is fetched during the build could not be named to the compiler before.
    execute(toolchain.cargo(workspace).args(["fetch", "--locked", "--target", TARGET, "--target", toolchain.host()]))?;

    let mut build = toolchain.cargo(workspace);
    build
        .args([
            "build",
            "--locked",
            "--package",
            "responder-ebpf",
            "--profile",
            "ebpf",
            "--target",
            TARGET,
            "--target-dir",
        ])
        .arg(&target)
        .env("CARGO_ENCODED_RUSTFLAGS", rustflags(workspace, toolchain)?.join("\x1f"));
    if toolchain.core == Core::Source {
        build.arg("-Zbuild-std=core");
    }
    execute(&mut build)?;

    let built = target.join("objects");
    for program in PROGRAMS {
        let object = built.join(provenance::object(program));
        fs::create_dir_all(object.parent().context("objects are in a directory")?)?;
        // Debug information is only there for the linker to make BTF from.
        let linked = target.join(TARGET).join("ebpf").join(program);
        execute(Command::new(toolchain.objcopy()).arg("--strip-debug").arg(linked).arg(object))?;
    }
    Ok(built)
}

fn rustflags(workspace: &Path, toolchain: &Toolchain) -> anyhow::Result<Vec<String>> {
    let mut flags = vec![
        format!("-Clinker={}", toolchain.linker.display()),
        "-Clink-arg=--btf".to_owned(),
        // 32-bit comparisons; the kernel has them since 5.1, before it had AF_XDP links.
        "-Ctarget-cpu=v3".to_owned(),
        // Headers behind the 14 bytes of Ethernet are misaligned. The kernel loads them as they are where the CPU can, which is on x86
        // and arm64; without this the compiler would put each field together from bytes.
        "-Clink-arg=--cpu-features=+allows-misaligned-mem-access".to_owned(),
        // aya-ebpf asks for the architecture of the kernel's registers, which XDP programs never see. Any one does; always the same.
        "--cfg=bpf_target_arch=\"x86_64\"".to_owned(),
    ];
    // The last one that matches counts.
    let mut cut = |path: &Path, to: &str| flags.push(format!("--remap-path-prefix={}={to}", path.display()));
    cut(workspace, ".");
    let cargo_home = env::var_os("CARGO_HOME")
        .map_or_else(|| home().map(|home| home.join(".cargo")), |home| Ok(PathBuf::from(home)))?;
    let registry = cargo_home.join("registry/src");
    for index in fs::read_dir(&registry).with_context(|| format!("reading {}", registry.display()))? {
        cut(&index?.path(), "registry");
    }
    if toolchain.core == Core::Source {
        cut(&toolchain.sysroot.join("lib/rustlib/src/rust"), "rust");
    }
    Ok(flags)
}

fn home() -> anyhow::Result<PathBuf> {
    env::var_os("HOME").map(PathBuf::from).context("neither CARGO_HOME nor HOME is set")
}

fn replace(workspace: &Path, fresh: &Record, built: &Path) -> anyhow::Result<()> {
    for program in PROGRAMS {
        let object = provenance::object(program);
        let bytes = fs::copy(built.join(&object), workspace.join(&object))
            .with_context(|| format!("writing {}", object.display()))?;
        println!("{}: {bytes} bytes", object.display());
    }
    fs::write(workspace.join(RECORD), fresh.to_string()).with_context(|| format!("writing {RECORD}"))?;
    println!("{RECORD} says what they were built from");
    Ok(())
}

fn compare(workspace: &Path, record: &Record, fresh: &Record, built: &Path) -> anyhow::Result<()> {
    for (program, recorded) in &record.objects {
        let object = provenance::object(program);
        ensure!(
            *recorded == provenance::file_hash(&workspace.join(&object))?,
            "{} is not the one that {RECORD} records: run `cargo xtask ebpf`",
            object.display()
        );
    }
    if record.tools == fresh.tools {
        for (program, recorded) in &record.objects {
            ensure!(
                fresh.objects.get(program) == Some(recorded),
                "{} does not come out of its source: the compiler on record makes other bytes of it. Run `cargo xtask ebpf` and look \
                 at what changes",
                provenance::object(program).display()
            );
        }
        println!("the checked-in objects are, byte for byte, what their source compiles to");
        return Ok(());
    }
    println!(
        "the objects on record were built with other tools, so that bytes cannot be compared; comparing verdicts on all test frames"
    );
    let mut tests = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    tests.current_dir(workspace).args(["test", "--package", "tests", "--test", "steering", "--test", "programs"]);
    tests.env("RESPONDER_EBPF_OBJECTS", built.join("responder-ebpf"));
    execute(&mut tests).context("the object built from source does not decide as the tests say (they need root)")?;
    println!("the object built from source gives the same verdict on every test frame");
    Ok(())
}

/// Runs a command with its output shown; its failure is an error.
fn execute(command: &mut Command) -> anyhow::Result<()> {
    let status = command.status().with_context(|| format!("starting {}", command.get_program().display()))?;
    if !status.success() {
        bail!("`{}` failed: {status}", shown(command));
    }
    Ok(())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_written_as_it_is_read() {
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask is a member of a workspace");
        let text = fs::read_to_string(workspace.join(RECORD)).expect("it is checked in");
        assert_eq!(Record::read(workspace).expect("it can be read").to_string(), text);
    }
}
