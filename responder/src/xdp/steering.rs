//! Steering: loads the XDP program, attaches it to a NIC, and tells it what is served.
//!
//! The program (`responder-ebpf/src/classify.rs`) gives a frame to the AF_XDP socket of its receive queue if all of it is plain
//! and served, and to the kernel otherwise. What may change while it runs are the sockets ([`set_slot`](Steering::set_slot)) and
//! the addresses ([`serve`](Steering::serve)); ports and VLANs are fixed when it is loaded, the MAC address is the
//! interface's that it is attached to. It starts with neither sockets nor addresses, so that it passes everything until it is told otherwise.
//!
//! The attachment is a bpf_link, held by this process alone: when the process ends, however it ends, the NIC is clean. A program
//! that somebody else attached is never replaced.
//!
//! It does not create sockets, read addresses or wait for the carrier, which some drivers drop when a program is attached.

mod attach;
mod vlan;

use std::{io, net::IpAddr, os::fd::AsRawFd, time::Duration};

use anyhow::{Context as _, ensure};
use aya::{
    Ebpf, EbpfLoader,
    maps::{Array, HashMap, LpmTrie, Map, MapData, MapError, PerCpuArray, XskMap, lpm_trie::Key},
    programs::{TestRun as _, TestRunOptions, Xdp, xdp::XdpLinkId},
};
use aya_log::EbpfLogger;
use responder_common::{MAX_PORTS, Verdict, global, mac_key, map};

pub(crate) use self::attach::attach;
pub use self::{
    attach::{AttachMode, Attached, MTU_MAX, Mode},
    vlan::VlanTag,
};

/// Built from `responder-ebpf` by `cargo xtask ebpf`; the build script refuses to embed it once its source has changed.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../responder-ebpf/classify.o");

/// What the program is loaded with.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The UDP ports that are served, at most [`MAX_PORTS`], none of them 0.
    pub ports: Vec<u16>,
    /// The MAC address that frames must be sent to.
    pub mac: [u8; 6],
    /// The VLANs that are served besides untagged frames.
    pub vlans: Vec<VlanTag>,
    /// How many receive queues the NIC has, which is the number of slots for sockets.
    pub queues: u32,
    /// Where in the receive path the program is to run.
    pub mode: AttachMode,
    /// Whether the program logs its verdicts, a few each second. Off, the kernel removes the code that does.
    pub log: bool,
}

/// A loaded XDP program and its maps. Dropping it detaches the program.
pub struct Steering {
    ebpf: Ebpf,
    sockets: XskMap<MapData>,
    served_v4: LpmTrie<MapData, [u8; 4], u8>,
    served_v6: LpmTrie<MapData, [u8; 16], u8>,
    verdicts: PerCpuArray<MapData, u64>,
    ports: [u16; MAX_PORTS],
    mac: Array<MapData, u64>,
    attached: Option<Attachment>,
}

struct Attachment {
    link: XdpLinkId,
    mode: Mode,
    fallback: Option<String>,
}

impl Steering {
    /// Loads the program and attaches it to nothing. All slots are empty and no address is served.
    pub fn load(settings: &Settings) -> anyhow::Result<Self> {
        Self::load_object(OBJECT, settings)
    }

    /// Loads the program from another object than the embedded one, for the test of a freshly built one.
    pub fn load_object(object: &[u8], settings: &Settings) -> anyhow::Result<Self> {
        let ports = port_table(&settings.ports)?;
        let log_level = if settings.log { aya_log::Level::Info as u8 } else { 0 };
        let vlans = u32::try_from(settings.vlans.len()).context("more VLANs than there are")?;

        let mut ebpf = EbpfLoader::new()
            .override_global(global::PORTS, &ports, true)
            .override_global(global::LOG_LEVEL, &log_level, true)
            // The kernel has no maps of size zero.
            .map_max_entries(map::XSKS, settings.queues.max(1))
            .map_max_entries(map::SERVED_VLANS, vlans.max(1))
            .load(object)
            .map_err(|error| load_error(error.into()))?;
        let program: &mut Xdp =
            ebpf.program_mut(PROGRAM).context("the object has no program `classify`")?.try_into()?;
        program.load().map_err(|error| load_error(error.into()))?;

        let mut served_vlans: HashMap<_, u32, u8> = take_map(&mut ebpf, map::SERVED_VLANS)?;
        for tag in &settings.vlans {
            served_vlans
                .insert(tag.key(), PRESENT, 0)
                .with_context(|| format!("telling the XDP program to serve VLAN {tag}"))?;
        }
        let mut mac: Array<_, u64> = take_map(&mut ebpf, map::MAC)?;
        set_mac(&mut mac, settings.mac)?;
        Ok(Self {
            mac,
            sockets: take_map(&mut ebpf, map::XSKS)?,
            served_v4: take_map(&mut ebpf, map::SERVED_V4)?,
            served_v6: take_map(&mut ebpf, map::SERVED_V6)?,
            verdicts: take_map(&mut ebpf, map::VERDICTS)?,
            ports,
            ebpf,
            attached: None,
        })
    }

    /// Attaches the program to an interface, and detaches it from where it was.
    pub fn attach(&mut self, interface: &str, index: u32, settings: &Settings) -> anyhow::Result<()> {
        self.detach();
        set_mac(&mut self.mac, settings.mac)?;
        let (link, mode, fallback) = attach(self.program(), interface, index, settings.mode)?;
        self.attached = Some(Attachment { link, mode, fallback });
        Ok(())
    }

    /// Detaches the program. Its maps stay as they are.
    pub fn detach(&mut self) {
        if let Some(attached) = self.attached.take() {
            // It is the program's own link, so it can only be that the interface has gone, and the program from there with it.
            let _ = self.program().detach(attached.link);
        }
    }

    /// Where in the receive path the program runs; `None` if it is not attached.
    pub fn mode(&self) -> Option<Mode> {
        self.attached.as_ref().map(|attached| attached.mode)
    }

    /// Why the program runs in generic mode though nobody asked for it, as a sentence for the user.
    pub fn fallback(&self) -> Option<&str> {
        self.attached.as_ref()?.fallback.as_deref()
    }

    /// Gives the frames of a receive queue to the socket, which must be bound to that queue.
    pub fn set_slot(&mut self, queue: u32, socket: impl AsRawFd) -> anyhow::Result<()> {
        let slots = self.sockets.len();
        ensure!(queue < slots, "queue {queue} does not exist: the XDP program was loaded for {slots} queues");
        self.sockets.set(queue, socket, 0).with_context(|| format!("giving the frames of queue {queue} to its socket"))
    }

    /// Gives the frames of a receive queue to the kernel.
    pub fn clear_slot(&mut self, queue: u32) -> anyhow::Result<()> {
        self.sockets.unset(queue).with_context(|| format!("taking the socket of queue {queue} away"))
    }

    /// Gives the frames of all receive queues to the kernel.
    pub fn clear_slots(&mut self) -> anyhow::Result<()> {
        (0..self.sockets.len()).try_for_each(|queue| self.clear_slot(queue))
    }

    /// Serves a destination address, or all that share its first `prefix_len` bits, at these ports and no others. The longest prefix
    /// that an address has decides alone. Addresses that no host can have are passed to the kernel even so.
    pub fn serve(&mut self, address: IpAddr, prefix_len: u8, ports: &[u16]) -> anyhow::Result<()> {
        let bits = self.port_bits(ports)?;
        let prefix_len = u32::from(prefix_len);
        match address {
            IpAddr::V4(address) => self.served_v4.insert(&Key::new(prefix_len, address.octets()), bits, 0),
            IpAddr::V6(address) => self.served_v6.insert(&Key::new(prefix_len, address.octets()), bits, 0),
        }
        .with_context(|| format!("telling the XDP program to serve {address}/{prefix_len}"))
    }

    /// Takes back what [`serve`](Self::serve) did with the same prefix. An address that is not served is no error.
    pub fn unserve(&mut self, address: IpAddr, prefix_len: u8) -> anyhow::Result<()> {
        let prefix_len = u32::from(prefix_len);
        let removed = match address {
            IpAddr::V4(address) => self.served_v4.remove(&Key::new(prefix_len, address.octets())),
            IpAddr::V6(address) => self.served_v6.remove(&Key::new(prefix_len, address.octets())),
        };
        match removed {
            Err(MapError::SyscallError(error)) if error.io_error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other.with_context(|| format!("telling the XDP program not to serve {address}/{prefix_len}")),
        }
    }

    /// How many frames got each verdict since the program was loaded, summed over the CPUs, in the order of [`Verdict::ALL`].
    pub fn verdicts(&self) -> anyhow::Result<Vec<(&'static str, u64)>> {
        Verdict::ALL
            .iter()
            .map(|&verdict| {
                let per_cpu = self.verdicts.get(&(verdict as u32), 0).context("reading the XDP program's counters")?;
                Ok((verdict.name(), per_cpu.iter().sum()))
            })
            .collect()
    }

    /// Where the log records come out, once; `flush` writes those that are there. Its file descriptor is readable when there are.
    pub fn logger<T: log::Log>(&mut self, log: T) -> anyhow::Result<EbpfLogger<T>> {
        EbpfLogger::init_with_logger(&mut self.ebpf, log).context("opening the XDP program's log")
    }

    /// Runs the program `repeat` times on a frame that no NIC received: the XDP action and the time of one run.
    pub fn test_run(&mut self, frame: &[u8], repeat: u32) -> anyhow::Result<(u32, Duration)> {
        let options = TestRunOptions { data_in: Some(frame), repeat, ..TestRunOptions::new() };
        let result = self.program().test_run(options).context("running the XDP program on a test frame")?;
        Ok((result.return_value, result.duration))
    }

    /// The ports as bits, in the order in which the program has them.
    fn port_bits(&self, ports: &[u16]) -> anyhow::Result<u8> {
        ports.iter().try_fold(0, |bits, port| {
            let index = self.ports.iter().position(|served| served == port && *port != 0);
            index
                .map(|index| bits | 1 << index)
                .with_context(|| format!("the XDP program was loaded without port {port}"))
        })
    }

    fn program(&mut self) -> &mut Xdp {
        let program = self.ebpf.program_mut(PROGRAM).expect("checked when the object was loaded");
        program.try_into().expect("checked when the object was loaded")
    }
}

/// The program's name within the object.
pub const PROGRAM: &str = "classify";

/// Maps that are used as sets have a value all the same.
const PRESENT: u8 = 1;

fn set_mac(map: &mut Array<MapData, u64>, mac: [u8; 6]) -> anyhow::Result<()> {
    map.set(0, mac_key(mac), 0).context("telling the XDP program the MAC address of the interface")
}

/// The ports as the program wants them: the unused entries are 0.
fn port_table(served: &[u16]) -> anyhow::Result<[u16; MAX_PORTS]> {
    ensure!(!served.contains(&0), "port 0 cannot be served");
    ensure!(served.len() <= MAX_PORTS, "at most {MAX_PORTS} different ports can be served, not {}", served.len());
    let mut ports = [0; MAX_PORTS];
    ports[..served.len()].copy_from_slice(served);
    Ok(ports)
}

pub(crate) fn take_map<T: TryFrom<Map, Error = MapError>>(ebpf: &mut Ebpf, name: &str) -> anyhow::Result<T> {
    let map = ebpf.take_map(name).with_context(|| format!("the object has no map `{name}`"))?;
    map.try_into().with_context(|| format!("the object's map `{name}` is of another kind"))
}

/// What to say when the kernel does not take the program or its maps.
pub(crate) fn load_error(error: anyhow::Error) -> anyhow::Error {
    match os_error(&error) {
        Some(libc::EPERM) => error.context(
            "loading the XDP program is not permitted: run as root, or with CAP_BPF, CAP_PERFMON and CAP_NET_ADMIN",
        ),
        // Without CAP_PERFMON the verifier allows no arithmetic with the frame's address.
        Some(libc::EACCES) => anyhow::anyhow!(
            "the kernel's verifier refuses the XDP program: {}: run as root or with CAP_PERFMON; if you do, the kernel is too old",
            verdict_of(&format!("{error:#}"))
        ),
        Some(libc::EINVAL) => anyhow::anyhow!(
            "the verifier of Linux {} refuses the XDP program: {}: use --io socket here, and report this line",
            crate::sys::kernel_release(),
            verdict_of(&format!("{error:#}"))
        ),
        _ => error.context("loading the XDP program into the kernel"),
    }
}

/// The sentence with which the verifier ends: behind it are only statistics.
fn verdict_of(output: &str) -> &str {
    let ended = output.split("\nverification time").next().unwrap_or(output);
    ended.lines().last().unwrap_or(ended).trim()
}

/// The system's error number, wherever in the chain of causes it is.
fn os_error(error: &anyhow::Error) -> Option<i32> {
    error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()).and_then(io::Error::raw_os_error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_verifiers_output_its_last_sentence_is_told() {
        let output = "Verifier output: 0: R1=ctx()\n128: (0f) r3 += r4\nmath is not allowed\nverification time 9 usec\nstack depth 32\n";
        assert_eq!(verdict_of(output), "math is not allowed");
        assert_eq!(verdict_of("Invalid argument"), "Invalid argument");
    }
}
