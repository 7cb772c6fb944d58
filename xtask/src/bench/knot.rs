//! Knot's XDP program on kernels that refuse it.
//!
//! The program asks for space for metadata in front of a packet (the helper `bpf_xdp_adjust_meta`) and copes with not getting it, as on drivers that have none. Some
//! kernels, though, do not know the helper, and so refuse the whole program. For these Knot and kxdpgun get a copy of their library in which that one call is the
//! error that such a driver gives. It costs Knot nothing: what it leaves out is work.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, ensure};
use aya::{
    programs::ProgramType,
    sys::{BpfHelper, is_helper_supported},
};

use crate::setup;

/// `call bpf_xdp_adjust_meta`, and `r0 = -EOPNOTSUPP` in its place.
const CALL: [u8; 8] = [0x85, 0, 0, 0, 54, 0, 0, 0];
const REFUSED: [u8; 8] = [0xb7, 0, 0, 0, 0xa1, 0xff, 0xff, 0xff];
const LIBRARY: &str = "libknot.so";

/// What of it reports say.
pub(super) const SAYS: &str =
    "this kernel has no bpf_xdp_adjust_meta: in the XDP program of Knot and kxdpgun the call is the error EOPNOTSUPP";

/// Whether this kernel refuses the program.
pub(super) fn is_refused() -> bool {
    matches!(is_helper_supported(ProgramType::Xdp, BpfHelper::BPF_FUNC_xdp_adjust_meta), Ok(false))
}

/// A directory with the copy, for the dynamic linker, where this kernel needs it.
pub(super) fn library(into: &Path) -> anyhow::Result<Option<PathBuf>> {
    if !is_refused() {
        return Ok(None);
    }
    let linked = setup::output(Command::new("ldd").arg("/usr/sbin/knotd"))?;
    let (name, path) = linked_library(&linked).with_context(|| format!("knotd has no {LIBRARY}:\n{linked}"))?;
    let mut bytes = fs::read(path).with_context(|| format!("reading {path}"))?;
    let patched = without_call(&mut bytes);
    ensure!(
        patched == 1,
        "{path} has {patched} calls of bpf_xdp_adjust_meta, not one: this version of Knot is not known"
    );
    let directory = into.join("knot-library");
    fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    let path = directory.join(name);
    fs::write(&path, bytes).with_context(|| format!("writing {}", path.display()))?;
    Ok(Some(directory))
}

/// From a line of `ldd`: the name that is looked for, and where it was found.
fn linked_library(linked: &str) -> Option<(&str, &str)> {
    let line = linked.lines().find(|line| line.contains(LIBRARY))?;
    let (name, path) = line.split_once(" => ")?;
    Some((name.trim(), path.split_whitespace().next()?))
}

/// Answers the calls, and counts them.
fn without_call(bytes: &mut [u8]) -> usize {
    let places: Vec<usize> =
        bytes.windows(CALL.len()).enumerate().filter(|(_, window)| **window == CALL).map(|(place, _)| place).collect();
    for place in &places {
        bytes[*place..][..CALL.len()].copy_from_slice(&REFUSED);
    }
    places.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_library_is_found() {
        let linked =
            "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibknot.so.13 => /lib/x86_64-linux-gnu/libknot.so.13 (0x00007f4f)\n";
        assert_eq!(linked_library(linked), Some(("libknot.so.13", "/lib/x86_64-linux-gnu/libknot.so.13")));
        assert_eq!(linked_library("\tlibc.so.6 => /lib/libc.so.6 (0x1)\n"), None);
    }

    #[test]
    fn the_call_alone_is_replaced() {
        let other = [0x85, 0, 0, 0, 44, 0, 0, 0];
        let mut bytes = [&[1, 2, 3][..], &CALL, &other].concat();
        assert_eq!(without_call(&mut bytes), 1);
        assert_eq!(bytes, [&[1, 2, 3][..], &REFUSED, &other].concat());
        assert_eq!(without_call(&mut bytes), 0);
    }
}
