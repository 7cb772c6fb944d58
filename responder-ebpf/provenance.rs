//! What the checked-in objects were built from: the hash of their source, and the record that is kept beside them.
//!
//! Two programs include this file: the build script of `responder`, which refuses to embed an object whose source has changed,
//! and `cargo xtask ebpf`, which builds the objects and writes the record.

use std::{
    collections::BTreeMap,
    fmt, fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use sha2::{Digest as _, Sha256};

/// The programs; each is a binary of `responder-ebpf` and an object `NAME.o` beside it.
pub(crate) const PROGRAMS: [&str; 4] = ["classify", "observe", "gather", "reflect"];

/// Where the record is, from the top of the workspace.
pub(crate) const RECORD: &str = "responder-ebpf/objects.txt";

/// What is compiled into the objects, from the top of the workspace.
const SOURCE: [&str; 4] =
    ["responder-common/Cargo.toml", "responder-common/src", "responder-ebpf/Cargo.toml", "responder-ebpf/src"];

/// The crates that are linked into the objects. Their versions are those of Cargo.lock.
const LINKED: [&str; 8] = [
    "aya-ebpf",
    "aya-ebpf-bindings",
    "aya-ebpf-cty",
    "aya-ebpf-macros",
    "aya-log-common",
    "aya-log-ebpf",
    "aya-log-ebpf-macros",
    "network-types",
];

/// Where the object of a program is, from the top of the workspace.
pub(crate) fn object(program: &str) -> PathBuf {
    Path::new("responder-ebpf").join(program).with_extension("o")
}

/// The files and directories whose change makes another hash.
pub(crate) fn inputs(workspace: &Path) -> impl Iterator<Item = PathBuf> {
    SOURCE.iter().chain(&["Cargo.lock"]).map(|input| workspace.join(input))
}

/// One hash for all that is compiled into the objects: names and contents of files, versions of crates.
pub(crate) fn source_hash(workspace: &Path) -> anyhow::Result<String> {
    let mut files = Vec::new();
    for source in SOURCE {
        collect(workspace, Path::new(source), &mut files)?;
    }
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let content = read(&workspace.join(&file))?;
        hash.update(format!("{}\n{}\n", file.display(), content.len()));
        hash.update(content);
    }
    hash.update(locked_versions(workspace)?);
    Ok(hex(&hash.finalize()))
}

/// The hash of one file.
pub(crate) fn file_hash(file: &Path) -> anyhow::Result<String> {
    Ok(hex(&Sha256::digest(read(file)?)))
}

fn collect(workspace: &Path, path: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    let full = workspace.join(path);
    if !full.is_dir() {
        files.push(path.to_owned());
        return Ok(());
    }
    for entry in fs::read_dir(&full).with_context(|| format!("reading {}", full.display()))? {
        collect(workspace, &path.join(entry?.file_name()), files)?;
    }
    Ok(())
}

/// Name and version of each of the [`LINKED`] crates, one a line.
fn locked_versions(workspace: &Path) -> anyhow::Result<String> {
    let lock = String::from_utf8(read(&workspace.join("Cargo.lock"))?).context("Cargo.lock is not UTF-8")?;
    let mut versions = String::new();
    let mut found = 0;
    for package in lock.split("[[package]]\n").skip(1) {
        let mut lines = package.lines();
        if let (Some(name), Some(version)) = (lines.next(), lines.next())
            && LINKED.iter().any(|linked| name == format!("name = \"{linked}\""))
        {
            versions.push_str(&format!("{name}, {version}\n"));
            found += 1;
        }
    }
    ensure!(found == LINKED.len(), "Cargo.lock should have each of these crates once: {}", LINKED.join(", "));
    Ok(versions)
}

fn read(file: &Path) -> anyhow::Result<Vec<u8>> {
    fs::read(file).with_context(|| format!("reading {}", file.display()))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What the objects were built from and with: `key = value` lines.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// [`source_hash`] of the source.
    pub(crate) source: String,
    /// Program -> [`file_hash`] of its object.
    pub(crate) objects: BTreeMap<String, String>,
    /// Tool -> version.
    pub(crate) tools: BTreeMap<String, String>,
}

impl Record {
    /// Reads the record of the workspace.
    pub(crate) fn read(workspace: &Path) -> anyhow::Result<Self> {
        let path = workspace.join(RECORD);
        let text = String::from_utf8(read(&path)?).with_context(|| format!("{RECORD} is not UTF-8"))?;
        let mut lines: BTreeMap<String, String> = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty())
            .map(|line| line.split_once(" = ").map(|(key, value)| (key.to_owned(), value.to_owned())))
            .collect::<Option<_>>()
            .with_context(|| format!("{RECORD} has a line that is not `key = value`"))?;
        let mut take = |key: &str| lines.remove(key).with_context(|| format!("{RECORD} has no `{key}`"));
        let source = take("source")?;
        let objects = PROGRAMS
            .map(|program| Ok((program.to_owned(), take(program)?)))
            .into_iter()
            .collect::<anyhow::Result<_>>()?;
        Ok(Self { source, objects, tools: lines })
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# What the objects here were built from and with. Written by `cargo xtask ebpf`.")?;
        writeln!(f, "source = {}", self.source)?;
        for (key, value) in self.objects.iter().chain(&self.tools) {
            writeln!(f, "{key} = {value}")?;
        }
        Ok(())
    }
}
