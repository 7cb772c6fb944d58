//! Refuses to build with an XDP object that is not what its source says. The object is checked in so that a build needs neither
//! a BPF compiler nor LLVM; this is what keeps the two from drifting apart unseen.

use std::path::Path;

use anyhow::{Context as _, ensure};

#[path = "../responder-ebpf/provenance.rs"]
#[allow(dead_code, reason = "shared with xtask, which writes what is only read here")]
mod provenance;

fn main() {
    if let Err(error) = check() {
        println!("cargo::error={error:#}");
    }
}

fn check() -> anyhow::Result<()> {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("responder is a member of a workspace")?;
    let objects = provenance::PROGRAMS.map(|program| workspace.join(provenance::object(program)));
    for path in provenance::inputs(workspace).chain(objects).chain([workspace.join(provenance::RECORD)]) {
        println!("cargo::rerun-if-changed={}", path.display());
    }

    let record = provenance::Record::read(workspace)?;
    ensure!(
        record.source == provenance::source_hash(workspace)?,
        "the XDP program's source has changed since its object was built: run `cargo xtask ebpf`"
    );
    for (program, hash) in &record.objects {
        ensure!(
            *hash == provenance::file_hash(&workspace.join(provenance::object(program)))?,
            "the object of `{program}` is not the one that {} records: run `cargo xtask ebpf`",
            provenance::RECORD
        );
    }
    Ok(())
}
