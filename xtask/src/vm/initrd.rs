//! The guest's initramfs: busybox, the responder with its libraries, the NIC's modules, the zones, and `init.sh`.

use std::{
    collections::BTreeSet,
    fs,
    io::Write as _,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context as _, ensure};

use super::fetch::{Kernel, Tools};
use crate::setup::output;

/// Where zones are in the guest.
pub(crate) const ZONES: &str = "/zones";
/// Modules that are loaded in every guest, for VLAN devices and addresses of no interface.
const DEVICES: &[&str] = &["8021q", "dummy"];
/// Programs of this machine that the guest has too.
const PROGRAMS: &[&str] = &["/usr/sbin/ethtool", "/usr/sbin/ip"];

/// Packs an initramfs into `archive`. `drivers` are the names of the NIC's modules.
pub(crate) fn build(
    archive: &Path,
    kernel: &Kernel,
    tools: &Tools,
    drivers: &[&str],
    responder: &Path,
    zones: &[(String, PathBuf)],
) -> anyhow::Result<()> {
    let root = archive.with_extension("d");
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))?;
    }
    for directory in ["bin", "sbin", "lib", "lib64", "proc", "sys", "dev", "modules", "zones"] {
        let directory = root.join(directory);
        fs::create_dir_all(&directory).with_context(|| format!("making {}", directory.display()))?;
    }
    let init = root.join("init");
    fs::write(&init, include_str!("init.sh")).context("writing init")?;
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).context("making init executable")?;
    copy(&tools.busybox()?, &root.join("bin/busybox"))?;
    symlink("busybox", root.join("bin/sh")).context("linking sh")?;
    copy(responder, &root.join("bin/responder"))?;
    for program in PROGRAMS.iter().map(Path::new).chain([responder]) {
        for library in libraries(program)? {
            // The loader's path is in the programs; all others are found by LD_LIBRARY_PATH.
            let name = library.file_name().context("a library has a name")?;
            let place = if library.starts_with("/lib64") { "lib64" } else { "lib" };
            copy(&library, &root.join(place).join(name))?;
        }
        if program != responder {
            copy(program, &root.join("sbin").join(program.file_name().context("a program has a name")?))?;
        }
    }
    for (name, file) in zones {
        copy(file, &root.join("zones").join(format!("{name}.zone")))?;
    }
    let mut loaded = Vec::new();
    let found = Modules::find(&kernel.modules)?;
    for module in drivers.iter().chain(DEVICES) {
        found.unpack(module, &root.join("modules"), &mut loaded)?;
    }
    fs::write(root.join("modules/nic"), loaded.join("\n") + "\n").context("writing the list of modules")?;
    pack(&root, archive, tools)?;
    fs::remove_dir_all(&root).with_context(|| format!("removing {}", root.display()))
}

fn copy(from: &Path, to: &Path) -> anyhow::Result<()> {
    fs::copy(from, to).map(drop).with_context(|| format!("copying {} to {}", from.display(), to.display()))
}

/// The libraries that a program loads, the loader among them; none for a static one.
fn libraries(program: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let listing = output(Command::new("ldd").arg(program)).unwrap_or_default();
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from);
    let libraries: BTreeSet<PathBuf> = listing.lines().filter_map(path).collect();
    ensure!(!libraries.is_empty(), "`ldd {}` names no libraries: is it there?", program.display());
    Ok(libraries)
}

/// A kernel's modules by name, as they are in their packages.
struct Modules(Vec<(String, PathBuf)>);

impl Modules {
    fn find(directory: &Path) -> anyhow::Result<Self> {
        let mut found = Vec::new();
        let mut directories = vec![directory.to_owned()];
        while let Some(directory) = directories.pop() {
            let entries = fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))?;
            for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
                let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
                if path.is_dir() {
                    directories.push(path);
                } else if let Some((name, "ko" | "ko.xz")) = name.split_once('.') {
                    found.push((name.replace('-', "_"), path));
                }
            }
        }
        Ok(Self(found))
    }

    /// Unpacks a module and those that it needs, each behind its needs in `loaded`. One that is not there is built in.
    fn unpack(&self, name: &str, to: &Path, loaded: &mut Vec<String>) -> anyhow::Result<()> {
        let name = name.replace('-', "_");
        let Some((_, path)) = self.0.iter().find(|(found, _)| *found == name) else { return Ok(()) };
        if loaded.contains(&name) {
            return Ok(());
        }
        let bytes = if path.extension().is_some_and(|extension| extension == "xz") {
            let xz = Command::new("xz").arg("-dc").arg(path).output().context("starting xz")?;
            ensure!(xz.status.success(), "xz cannot unpack {}", path.display());
            xz.stdout
        } else {
            fs::read(path).with_context(|| format!("reading {}", path.display()))?
        };
        for needed in needs(&bytes) {
            self.unpack(&needed, to, loaded)?;
        }
        fs::write(to.join(format!("{name}.ko")), &bytes).with_context(|| format!("writing the module {name}"))?;
        loaded.push(name);
        Ok(())
    }
}

/// The modules that a module needs, from the `depends=` of its information section.
fn needs(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|window| window == key) else { return Vec::new() };
    let value = module[at + key.len()..].split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(value).split(',').filter(|name| !name.is_empty()).map(ToOwned::to_owned).collect()
}

/// An archive as the kernel unpacks it.
fn pack(root: &Path, archive: &Path, tools: &Tools) -> anyhow::Result<()> {
    let files = output(Command::new("find").arg(".").current_dir(root))?;
    let image = fs::File::create(archive).with_context(|| format!("making {}", archive.display()))?;
    let mut cpio = Command::new(tools.cpio()?)
        .args(["--quiet", "-o", "-H", "newc"])
        .current_dir(root)
        .stdin(Stdio::piped())
        .stdout(image)
        .spawn()
        .context("starting cpio")?;
    let mut names = cpio.stdin.take().context("cpio's input is a pipe")?;
    names.write_all(files.as_bytes()).context("naming files to cpio")?;
    drop(names);
    ensure!(cpio.wait()?.success(), "cpio cannot make {}: is the disk full?", archive.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_names_what_it_needs() {
        let module = b"\x7fELF\0license=GPL\0depends=net_failover,failover\0retpoline=Y\0";
        assert_eq!(needs(module), ["net_failover", "failover"]);
        assert_eq!(needs(b"\x7fELF\0depends=\0name=x\0"), [""; 0]);
        assert_eq!(needs(b"\x7fELF"), [""; 0]);
    }
}
