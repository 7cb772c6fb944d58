//! What the process may do: as little as serving takes, and less once it serves.
//!
//! Linux keeps capabilities per thread, so three kinds of threads differ:
//!
//! - From the first moment, while there is one thread ([`begin`]): the user of `--user`, and no capability that start-up does not need. All later threads
//!   inherit this, `no_new_privs` and the system call filter. Files are read by then as a reload will read them: one that the user cannot read is an
//!   error at the start and not weeks later.
//! - A worker and a thread of kernel sockets work with what was opened for them. Each gives up everything before it does anything else
//!   ([`drop_all`]): sending, receiving, the held XDP link and its maps need nothing. So does a reload, but that it reads files ([`drop_all_but_reading`]).
//! - The control thread keeps what it takes to replace what has failed or come back ([`settle`]):
//!
//! | capability | for |
//! | --- | --- |
//! | `NET_BIND_SERVICE` | an address that appears: sockets on port 53 |
//! | `NET_RAW` | a new AF_XDP socket for a queue that is stuck |
//! | `IPC_LOCK` | its UMEM, beyond the memlock limit |
//! | `NET_ADMIN` | only with a zero-copy queue or busy polling: SO_BUSY_POLL, with which a driver is woken that no other call reaches |
//! | `DAC_READ_SEARCH` | only for root without `--user`: to hand it on to reloads |
//! | `BPF` | only before Linux 5.19, where every map update needs it |
//!
//! Attaching the program that was loaded at the start, to an interface that has come back, needs none (`BPF_LINK_CREATE` checks none for XDP). The bounding
//! set is emptied where the process may (CAP_SETPCAP); elsewhere whoever started it has bounded it, and with
//! `no_new_privs` no execve gains anything.
//!
//! The filter lists what is refused, with EPERM, and allows the rest. A list of what is allowed would be stricter, and would end the server with the
//! next C library that prefers another call. The kernel (5.11 and later) finds by one bit per number that a call is allowed whatever its arguments
//! are, and does not run the filter: 15 ns measured for a sendto that takes 105 without, and a worker makes one or two calls per batch of packets, not per packet.
//!
//! It does not chroot and knows no namespaces: `packaging/responder.service` has the service manager do that.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result, anyhow};
use caps::{CapSet, Capability, CapsHashSet};
use nix::{
    errno::Errno,
    unistd::{Gid, Uid, User, chown, getegid, geteuid, getgrouplist, setgid, setgroups, setuid},
};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};

use crate::{
    cli::{Io, Sandbox},
    config::Config,
};

/// What start-up needs with a bypass; without, only the first.
const START: [Capability; 6] = [
    Capability::CAP_NET_BIND_SERVICE,
    Capability::CAP_NET_RAW,
    Capability::CAP_NET_ADMIN,
    Capability::CAP_BPF,
    Capability::CAP_PERFMON,
    Capability::CAP_IPC_LOCK,
];

/// Has root read the files of others, as whoever types `sudo` in a directory of theirs expects.
const READ: Capability = Capability::CAP_DAC_READ_SEARCH;

/// What is left, for `status`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Privileges {
    /// The user's name, or number.
    pub user: String,
    /// The capabilities of the control thread, without `CAP_`, in lower case.
    pub capabilities: Vec<String>,
    /// Whether system calls are restricted.
    pub sandbox: bool,
}

/// Becomes the configured user, gives up what start-up does not need, and restricts system calls. To be called before there is a second thread.
pub fn begin(config: &Config) -> Result<()> {
    let user = config.user.as_deref().map(find).transpose()?;
    let needed = if config.io == Io::Xdp { &START[..] } else { &START[..1] };
    let held = caps::read(None, CapSet::Permitted).context("cannot read this process's capabilities")?;
    let needed = needed.iter().copied().chain(user.is_none().then_some(READ));
    let kept = needed.filter(|capability| held.contains(capability)).collect();
    if held.contains(&Capability::CAP_SETPCAP) {
        for capability in caps::runtime::thread_all_supported() {
            caps::drop(None, CapSet::Bounding, capability)
                .with_context(|| format!("cannot take {capability} from the bounding set"))?;
        }
    }
    let user = user.filter(|user| user.uid != geteuid());
    make_directory(&config.control, user.as_ref())?;
    if let Some(user) = user {
        become_user(&user)?;
    }
    keep(&kept).context("cannot give up capabilities")?;
    nix::sys::prctl::set_no_new_privs().context("cannot set no_new_privs")?;
    if config.sandbox == Sandbox::On {
        let filter = filter().context("cannot make the system call filter: use --sandbox off")?;
        seccompiler::apply_filter(&filter)
            .context("this kernel takes no system call filter (CONFIG_SECCOMP_FILTER): use --sandbox off")?;
    }
    Ok(())
}

/// Gives up all capabilities of the calling thread.
pub fn drop_all() {
    keep_or_say(&CapsHashSet::new());
}

/// Gives up all capabilities of the calling thread but the one that root reads files with, if it is there.
pub fn drop_all_but_reading() {
    let held = caps::read(None, CapSet::Permitted).unwrap_or_default();
    keep_or_say(&held.into_iter().filter(|capability| *capability == READ).collect());
}

fn keep_or_say(capabilities: &CapsHashSet) {
    if let Err(error) = keep(capabilities) {
        tracing::warn!("a thread keeps its capabilities: {error}");
    }
}

/// Has the calling thread, the control thread, keep what replacing and following takes: `polls` if it may have to poll a NIC.
pub fn settle(config: &Config, polls: bool) -> Result<Privileges> {
    let mut wanted = vec![Capability::CAP_NET_BIND_SERVICE, READ];
    if config.io == Io::Xdp {
        wanted.extend([Capability::CAP_NET_RAW, Capability::CAP_IPC_LOCK]);
        wanted.extend(polls.then_some(Capability::CAP_NET_ADMIN));
        wanted.extend(maps_need_bpf().then_some(Capability::CAP_BPF));
    }
    let held = caps::read(None, CapSet::Permitted).context("cannot read this process's capabilities")?;
    wanted.retain(|capability| held.contains(capability));
    keep(&wanted.iter().copied().collect()).context("cannot give up capabilities")?;
    let user = User::from_uid(geteuid()).ok().flatten().map_or_else(|| geteuid().to_string(), |user| user.name);
    let names = wanted.iter().map(|capability| capability.to_string().trim_start_matches("CAP_").to_lowercase());
    Ok(Privileges { user, capabilities: names.collect(), sandbox: config.sandbox == Sandbox::On })
}

/// The user of this name.
pub fn find(name: &str) -> Result<User> {
    let found = User::from_name(name).with_context(|| format!("cannot look for the user {name}"))?;
    found.with_context(|| {
        format!("--user {name}: there is no such user: `useradd --system --no-create-home {name}` makes one")
    })
}

/// What was said about a file that cannot be read, and for whom that is.
#[must_use]
pub fn explain(error: anyhow::Error) -> anyhow::Error {
    if !format!("{error:#}").contains("Permission denied") {
        return error;
    }
    let user = User::from_uid(geteuid()).ok().flatten().map_or_else(|| geteuid().to_string(), |user| user.name);
    error.context(format!(
        "as user {user}, without the capability to read the files of others, as every reload will; let {user} read them"
    ))
}

/// The directory of the control socket is made if it is not there, for a user who could not make it.
fn make_directory(control: &Path, user: Option<&User>) -> Result<()> {
    let Some(directory) = control.parent().filter(|directory| !directory.as_os_str().is_empty() && !directory.exists())
    else {
        return Ok(());
    };
    fs::create_dir(directory)
        .and_then(|()| Ok(chown(directory, user.map(|user| user.uid), user.map(|user| user.gid))?))
        .with_context(|| {
            format!(
                "cannot make {} for the control socket: make it, or give another path with --control",
                directory.display()
            )
        })
}

fn become_user(user: &User) -> Result<()> {
    let change = || -> Result<(), Errno> {
        let name = std::ffi::CString::new(user.name.as_str()).map_err(|_| Errno::EINVAL)?;
        setgroups(&getgrouplist(&name, user.gid)?)?;
        setgid(user.gid)?;
        setuid(user.uid)
    };
    caps::securebits::set_keepcaps(true).context("cannot keep capabilities (PR_SET_KEEPCAPS)")?;
    change().map_err(|error| {
        anyhow!("cannot become user {}: {error}: start it as root, or with CAP_SETUID and CAP_SETGID", user.name)
    })?;
    caps::securebits::set_keepcaps(false).context("cannot end PR_SET_KEEPCAPS")?;
    is(user.uid, user.gid).then_some(()).with_context(|| format!("did not become user {}", user.name))
}

fn is(uid: Uid, gid: Gid) -> bool {
    (geteuid(), getegid()) == (uid, gid)
}

/// Exactly these for the calling thread, and none for what it could start.
fn keep(capabilities: &CapsHashSet) -> Result<(), caps::errors::CapsError> {
    caps::clear(None, CapSet::Ambient)?;
    caps::clear(None, CapSet::Inheritable)?;
    caps::set(None, CapSet::Effective, capabilities)?;
    caps::set(None, CapSet::Permitted, capabilities)
}

/// Linux before 5.19 asks for CAP_BPF at each bpf(2) where unprivileged use is off, later ones only to make maps and load programs.
fn maps_need_bpf() -> bool {
    let release = crate::sys::kernel_release();
    let mut parts = release.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) < (5, 19)
}

/// What a DNS server has no use for: other programs, other processes' memory, the file tree, the kernel itself, the clock, keys, namespaces.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_mknodat,
    libc::SYS_quotactl,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_reboot,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_acct,
    libc::SYS_syslog,
    libc::SYS_personality,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_keyctl,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_userfaultfd,
    libc::SYS_io_uring_setup,
];

fn filter() -> Result<BpfProgram> {
    let rules: BTreeMap<i64, Vec<_>> = REFUSED.iter().map(|number| (*number, Vec::new())).collect();
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, std::env::consts::ARCH.try_into()?)?;
    Ok(filter.try_into()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_that_is_not_there_is_named() {
        let error = format!("{:#}", find("nosuch-user").unwrap_err());
        assert!(error.starts_with("--user nosuch-user: there is no such user"), "{error}");
    }

    #[test]
    fn a_thread_that_gives_up_its_capabilities_has_none() {
        std::thread::spawn(|| {
            drop_all();
            for set in [CapSet::Effective, CapSet::Permitted, CapSet::Inheritable, CapSet::Ambient] {
                assert!(caps::read(None, set).unwrap().is_empty(), "{set:?}");
            }
        })
        .join()
        .unwrap();
    }

    #[test]
    fn refused_calls_are_refused_and_others_are_not() {
        std::thread::spawn(|| {
            seccompiler::apply_filter(&filter().unwrap()).unwrap();
            let error = std::process::Command::new("/bin/true").status().unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPERM));
            assert_eq!(nix::unistd::chroot("/"), Err(Errno::EPERM));
            std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        })
        .join()
        .unwrap();
    }

    #[test]
    fn only_what_cannot_be_read_is_explained() {
        let error = |kind| anyhow::Error::new(std::io::Error::from_raw_os_error(kind)).context("a.zone");
        assert!(format!("{:#}", explain(error(libc::EACCES))).starts_with("as user "));
        assert!(format!("{:#}", explain(error(libc::ENOENT))).starts_with("a.zone: "));
    }
}
