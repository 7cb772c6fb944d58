//! A guest: QEMU with a multiqueue NIC, whose other end is a tap in a namespace of a lab, where the client is.
//!
//! The processor is emulated, so that no hardware support is needed and rates say nothing about hardware. QEMU is ended by its process id
//! when the guest is dropped, and the namespace goes with the lab.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fmt, fs,
    io::Write as _,
    os::unix::{net::UnixStream, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail, ensure};
use clap::ValueEnum;
use serde_json::Value;

use super::{
    fetch::{self, Flavour, Kernel},
    initrd,
    shell::{Output, Shell},
};
use crate::{
    lab::{Lab, Side},
    matrix,
    setup::output,
};

/// The guest's name for its NIC.
pub(crate) const NIC: &str = "eth0";
/// How long a guest takes to boot at most: seconds on an idle machine.
const UP_MAX: Duration = Duration::from_secs(90);
/// How long the responder takes to be ready at most: zero-copy sockets may have to wait for the link.
const READY_MAX: Duration = Duration::from_secs(30);
/// How long the responder has to end.
const END_MAX: Duration = Duration::from_secs(10);
/// Where the responder's output goes in the guest.
const LOG: &str = "/run/serve.log";
/// Lines of a console that are shown when something went wrong.
const TAIL: usize = 25;
/// Packets that may wait for the guest: its processor is slow and sometimes away.
const TAP_QUEUE_PACKETS: u32 = 16_384;
/// Megabytes of memory: two queues of 4096 frames are 32.
const MEMORY_MB: u32 = 512;
/// Processors of a guest.
pub(crate) const CPUS: u32 = 2;

/// The emulated NICs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Nic {
    /// virtio-net: zero-copy, receive and transmit interrupts apart.
    Virtio,
    /// Intel 82576: zero-copy, VLAN tags stripped in hardware, carrier lost on attach.
    Igb,
    /// VMware's: no zero-copy, all traffic on queue 0.
    Vmxnet3,
}

impl Nic {
    /// The kernel's modules for it.
    const fn drivers(self) -> &'static [&'static str] {
        match self {
            Self::Virtio => &["virtio_pci", "virtio_net"],
            Self::Igb => &["igb"],
            Self::Vmxnet3 => &["vmxnet3"],
        }
    }

    /// On how many of its queues packets can arrive.
    const fn used(self, queues: u32) -> u32 {
        match self {
            Self::Virtio | Self::Igb => queues,
            Self::Vmxnet3 => 1,
        }
    }

    const fn flavour(self) -> Flavour {
        match self {
            Self::Virtio | Self::Vmxnet3 => Flavour::Cloud,
            Self::Igb => Flavour::Full,
        }
    }
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Virtio => "virtio",
            Self::Igb => "igb",
            Self::Vmxnet3 => "vmxnet3",
        })
    }
}

/// What to boot.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The NIC.
    pub(crate) nic: Nic,
    /// Its queues.
    pub(crate) queues: u32,
    /// The kernel's series.
    pub(crate) kernel: String,
    /// Whether a virtio device says that its memory is behind an IOMMU, without which its driver has no zero-copy.
    pub(crate) virtio_iommu: bool,
}

/// A running guest.
#[derive(Debug)]
pub(crate) struct Guest {
    /// The namespace of the client, with a tap as its interface, and the addresses of both sides.
    pub(crate) lab: Lab,
    /// What it was booted with.
    pub(crate) options: Options,
    /// The kernel's release.
    pub(crate) release: String,
    qemu: Child,
    shell: RefCell<Shell>,
}

impl Guest {
    /// Fetches what is missing, boots, and waits until the guest's NIC is up.
    pub(crate) fn boot(
        options: &Options,
        responder: &Path,
        zones: &[(String, PathBuf)],
        stop: &AtomicBool,
    ) -> anyhow::Result<Self> {
        let tools = fetch::tools()?;
        let kernel = fetch::kernel(&options.kernel, options.nic.flavour())?;
        let lab = Lab::client_side(options.nic.used(options.queues))?;
        make_tap(&lab)?;
        let initrd = lab.directory.join("initrd");
        initrd::build(&initrd, &kernel, &tools, options.nic.drivers(), responder, zones)?;

        let mut command = Command::new("ip");
        command.args(["netns", "exec", &lab.client.namespace]);
        tools.qemu(&mut command)?;
        command.args(machine(&lab, options, &kernel, &initrd));
        // A group of its own: Ctrl-C is for us, who end it by its id.
        command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null());
        let errors = lab.directory.join("qemu.log");
        command.stderr(fs::File::create(&errors).with_context(|| format!("making {}", errors.display()))?);
        let mut qemu = command.spawn().context("starting QEMU")?;
        let shell = match wait_until_up(&lab, &mut qemu, stop) {
            Ok(shell) => RefCell::new(shell),
            Err(error) => {
                // Both fail only when it has ended.
                let _ = qemu.kill();
                let _ = qemu.wait();
                return Err(error);
            }
        };
        let guest = Self { lab, options: options.clone(), release: kernel.release, qemu, shell };
        guest.set_up()?;
        Ok(guest)
    }

    /// Runs a command line in the guest that must go well: what it printed.
    pub(crate) fn run(&self, line: &str) -> anyhow::Result<String> {
        self.shell.borrow_mut().run(line)
    }

    /// Runs a command line in the guest: what it printed, and its status.
    pub(crate) fn try_run(&self, line: &str) -> anyhow::Result<Output> {
        self.shell.borrow_mut().try_run(line)
    }

    /// Tells QEMU's monitor to do something with the machine.
    pub(crate) fn monitor(&self, line: &str) -> anyhow::Result<()> {
        let path = self.lab.directory.join("monitor");
        let mut monitor = UnixStream::connect(&path).with_context(|| format!("connecting to {}", path.display()))?;
        writeln!(monitor, "{line}").context("writing to QEMU's monitor")?;
        // It reads the line before it notices that we have gone.
        thread::sleep(Duration::from_millis(100));
        Ok(())
    }

    /// The root shell's bytes, for a person. No command can be run beside.
    pub(crate) fn terminal(&self) -> anyhow::Result<UnixStream> {
        self.shell.borrow().terminal()
    }

    /// Starts `responder serve` with these further arguments, and waits until it is ready: the line in which it says so.
    pub(crate) fn serve(&self, zones: &[(String, PathBuf)], arguments: &str) -> anyhow::Result<String> {
        self.start(zones, arguments)?;
        let started = Instant::now();
        loop {
            if let Some(ready) = self.log()?.lines().find(|line| line.starts_with("ready")) {
                return Ok(ready.to_owned());
            }
            ensure!(self.serves()?, "the server did not start in the guest:\n{}", self.log()?);
            ensure!(
                started.elapsed() < READY_MAX,
                "the server is not ready in the guest after {} s; its output:\n{}",
                READY_MAX.as_secs(),
                self.log()?
            );
            thread::sleep(Duration::from_millis(100));
        }
    }

    /// Starts `responder serve`, and does not wait.
    pub(crate) fn start(&self, zones: &[(String, PathBuf)], arguments: &str) -> anyhow::Result<()> {
        let zones: String =
            zones.iter().map(|(name, _)| format!(" --zone {name}={}/{name}.zone", initrd::ZONES)).collect();
        self.run(&format!("responder serve --iface {NIC}{zones} {arguments} >{LOG} 2>&1 & echo $! >/run/pid")).map(drop)
    }

    /// Ends the server and waits until it has gone.
    pub(crate) fn end_server(&self) -> anyhow::Result<()> {
        self.run("kill $(cat /run/pid)")?;
        let asked = Instant::now();
        while self.serves()? {
            ensure!(
                asked.elapsed() < END_MAX,
                "the server has not ended {} s after SIGTERM; its output:\n{}",
                END_MAX.as_secs(),
                self.log()?
            );
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Kills the server as a crash would.
    pub(crate) fn kill_server(&self) -> anyhow::Result<()> {
        self.run("kill -9 $(cat /run/pid)").map(drop)
    }

    /// Whether the server's process is there.
    pub(crate) fn serves(&self) -> anyhow::Result<bool> {
        Ok(self.try_run("kill -0 $(cat /run/pid) 2>/dev/null")?.status == 0)
    }

    /// The server's output so far.
    pub(crate) fn log(&self) -> anyhow::Result<String> {
        self.run(&format!("cat {LOG}"))
    }

    /// What `responder status --json` says in the guest.
    pub(crate) fn status(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.run("responder status --json")?).context("the server's status is no JSON")
    }

    /// Packets received on each queue, as the guest's driver counts them.
    pub(crate) fn received(&self) -> anyhow::Result<BTreeMap<u32, u64>> {
        Ok(matrix::received_by_queue(&self.run(&format!("ethtool -S {NIC}"))?))
    }

    /// How often each queue's receive interrupt came, by CPU, as the guest's kernel counts.
    pub(crate) fn interrupts(&self) -> anyhow::Result<matrix::Interrupts> {
        Ok(matrix::receive_interrupts(&self.run("cat /proc/interrupts")?))
    }

    /// The end of the guest's console.
    pub(crate) fn console(&self) -> String {
        console(&self.lab)
    }

    /// As many channels as asked for, and UDP ports in the hash that spreads flows over them.
    fn set_up(&self) -> anyhow::Result<()> {
        let queues = self.options.queues;
        match self.options.nic {
            Nic::Virtio => self.run(&format!("ethtool -L {NIC} combined {queues}"))?,
            Nic::Igb => {
                self.run(&format!("ethtool -L {NIC} combined {queues}"))?;
                self.hash_ports(true)?;
                String::new()
            }
            // It has as many as there are processors.
            Nic::Vmxnet3 => String::new(),
        };
        self.wait_for_carrier()
    }

    /// Whether UDP ports are in the hash that spreads flows over queues, on a NIC that lets one choose.
    pub(crate) fn hash_ports(&self, on: bool) -> anyhow::Result<()> {
        let fields = if on { "sdfn" } else { "sd" };
        for family in ["udp4", "udp6"] {
            self.run(&format!("ethtool -N {NIC} rx-flow-hash {family} {fields}"))?;
        }
        Ok(())
    }

    /// Waits until the NIC has a link.
    pub(crate) fn wait_for_carrier(&self) -> anyhow::Result<()> {
        let wait = format!(
            "for i in $(seq 100); do [ \"$(cat /sys/class/net/{NIC}/carrier)\" = 1 ] && break; sleep 0.1; done; [ \"$(cat /sys/class/net/{NIC}/carrier)\" = 1 ]"
        );
        self.run(&wait).map(drop).context("the guest's NIC has no carrier")
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        // Both fail only when it has ended.
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
    }
}

/// QEMU's arguments.
fn machine(lab: &Lab, options: &Options, kernel: &Kernel, initrd: &Path) -> Vec<String> {
    let path = |name: &str| lab.directory.join(name).display().to_string();
    let queues = options.queues;
    let mac = lab.server.mac_text();
    let device = match options.nic {
        Nic::Virtio => {
            let iommu = if options.virtio_iommu { ",disable-legacy=on,iommu_platform=on" } else { "" };
            let vectors = 2 * queues + 2;
            format!("virtio-net-pci,mq=on,vectors={vectors},rx_queue_size=1024,tx_queue_size=256{iommu}")
        }
        Nic::Igb => "igb".to_owned(),
        Nic::Vmxnet3 => "vmxnet3".to_owned(),
    };
    let tap_queues = if lab.queues > 1 { format!(",queues={}", lab.queues) } else { String::new() };
    let mut arguments: Vec<String> = [
        "-accel",
        "tcg,thread=multi",
        "-cpu",
        "max",
        "-machine",
        "q35",
        "-nodefaults",
        "-display",
        "none",
        "-vga",
        "none",
        "-no-reboot",
    ]
    .map(ToOwned::to_owned)
    .into();
    for (flag, value) in [
        ("-smp", CPUS.to_string()),
        ("-m", MEMORY_MB.to_string()),
        ("-netdev", format!("tap,id=n0,ifname={},script=no,downscript=no{tap_queues}", lab.client.interface)),
        ("-device", format!("{device},netdev=n0,id=nic0,mac={mac},romfile=")),
        ("-serial", format!("file:{}", path("console"))),
        ("-chardev", format!("socket,id=c1,path={},server=on,wait=off", path("shell"))),
        ("-serial", "chardev:c1".to_owned()),
        ("-monitor", format!("unix:{},server=on,wait=off", path("monitor"))),
        ("-kernel", kernel.image.display().to_string()),
        ("-initrd", initrd.display().to_string()),
        (
            "-append",
            format!(
                "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=reliable net.ifnames=0 module=nic v4={} v6={}",
                lab.server.v4, lab.server.v6
            ),
        ),
    ] {
        arguments.extend([flag.to_owned(), value]);
    }
    arguments
}

/// Waits for the line that `init` writes last, and connects to the shell.
fn wait_until_up(lab: &Lab, qemu: &mut Child, stop: &AtomicBool) -> anyhow::Result<Shell> {
    let started = Instant::now();
    loop {
        let text = fs::read_to_string(lab.directory.join("console")).unwrap_or_default();
        if text.lines().any(|line| line.starts_with("guest ") && line.trim_end().ends_with(" is up")) {
            return Shell::connect(&lab.directory.join("shell"));
        }
        if let Some(status) = qemu.try_wait().context("looking after QEMU")? {
            let said = fs::read_to_string(lab.directory.join("qemu.log")).unwrap_or_default();
            bail!("QEMU has ended ({status}): {}\nthe guest's console:\n{}", said.trim(), console(lab));
        }
        ensure!(!stop.load(Ordering::Relaxed), "stopped by a signal while the guest booted");
        ensure!(
            started.elapsed() < UP_MAX,
            "the guest is not up after {} s; the end of its console:\n{}",
            UP_MAX.as_secs(),
            console(lab)
        );
        thread::sleep(Duration::from_millis(50));
    }
}

fn console(lab: &Lab) -> String {
    let bytes = fs::read(lab.directory.join("console")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).replace('\r', "");
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL)..].join("\n")
}

/// Makes the tap in the client's namespace: the NIC's other end.
fn make_tap(lab: &Lab) -> anyhow::Result<()> {
    let (namespace, interface) = (&lab.client.namespace, lab.client.interface);
    let several = if lab.queues > 1 { " multi_queue" } else { "" };
    let ip = |line: String| output(Command::new("ip").args(["-n", namespace]).args(line.split(' '))).map(drop);
    ip(format!("tuntap add dev {interface} mode tap vnet_hdr{several}"))
        .context("making a tap: it needs /dev/net/tun and CAP_NET_ADMIN")?;
    lab.quiet(Side::Client)?;
    // On a wire a checksum is whole. A tap would leave it to the guest's driver.
    output(lab.command(Side::Client, "ethtool").args(["-K", interface, "tx", "off"]))?;
    ip(format!("link set {interface} address {} txqueuelen {TAP_QUEUE_PACKETS}", lab.client.mac_text()))?;
    ip(format!("addr add {}/24 dev {interface}", lab.client.v4))?;
    ip(format!("addr add {}/64 dev {interface} nodad", lab.client.v6))?;
    ip(format!("link set {interface} up"))
}
