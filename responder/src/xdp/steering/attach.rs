//! Attaches the XDP program to an interface, and says in a sentence why that does not work.

use anyhow::{anyhow, ensure};
use aya::{
    programs::{ProgramError, Xdp, XdpError, XdpMode, loaded_programs, xdp::XdpLinkId},
    util::KernelVersion,
};
use rtnetlink::{
    packet_core::{NLM_F_REQUEST, NetlinkMessage, NetlinkPayload},
    packet_route::{
        RouteNetlinkMessage,
        link::{LinkAttribute, LinkMessage, LinkXdp},
    },
    sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE},
};

/// Where in the receive path the program is to run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachMode {
    /// In the driver, or in generic mode if the driver cannot.
    #[default]
    Auto,
    /// In the driver, or not at all.
    Native,
    /// After the kernel has built a packet of its own: slow, but any driver will do.
    Generic,
}

/// Where in the receive path the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// After the kernel has built a packet of its own.
    Generic,
}

impl Mode {
    /// The mode's name in `status` and on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// Attaches for as long as the program is held: the mode that was got, and why it is generic if nobody asked for that.
pub(crate) fn attach(
    program: &mut Xdp,
    interface: &str,
    index: u32,
    wanted: AttachMode,
) -> anyhow::Result<(XdpLinkId, Mode, Option<String>)> {
    // Before that aya attaches in the old way, which outlives a process that is killed.
    ensure!(
        KernelVersion::current()? >= KernelVersion::new(5, 9, 0),
        "attaching the XDP program to {interface}: this kernel would keep it there after this process; Linux 5.9 or later does not"
    );
    let mode = match wanted {
        AttachMode::Auto | AttachMode::Native => Mode::Native,
        AttachMode::Generic => Mode::Generic,
    };
    match attach_in(program, index, mode) {
        Ok(link) => Ok((link, mode, None)),
        Err(error) if wanted == AttachMode::Auto && errno(&error) == Some(libc::EOPNOTSUPP) => {
            let link = attach_in(program, index, Mode::Generic).map_err(|error| explain(error, interface, index))?;
            let reason = format!(
                "the driver of {interface} cannot run XDP programs, so generic mode is used, which is several times slower"
            );
            Ok((link, Mode::Generic, Some(reason)))
        }
        Err(error) => Err(explain(error, interface, index)),
    }
}

fn attach_in(program: &mut Xdp, index: u32, mode: Mode) -> Result<XdpLinkId, ProgramError> {
    let mode = match mode {
        Mode::Native => XdpMode::Driver,
        Mode::Generic => XdpMode::Skb,
    };
    program.attach_to_if_index(index, mode)
}

fn errno(error: &ProgramError) -> Option<i32> {
    match error {
        ProgramError::SyscallError(error) => error.io_error.raw_os_error(),
        ProgramError::XdpError(XdpError::NetlinkError(error)) => error.raw_os_error(),
        _ => None,
    }
}

/// What the system's answer means, and what to do.
fn explain(error: ProgramError, interface: &str, index: u32) -> anyhow::Error {
    let remedy = match errno(&error) {
        Some(libc::EPERM | libc::EACCES) => {
            "it is not permitted: run as root, or with CAP_BPF and CAP_NET_ADMIN".to_owned()
        }
        Some(libc::EBUSY | libc::EEXIST) => occupied(interface, index),
        Some(libc::EOPNOTSUPP) => {
            "its driver cannot run XDP programs in this mode: use `--xdp-mode generic`".to_owned()
        }
        Some(libc::ENODEV) => "it is gone".to_owned(),
        Some(libc::ENOSPC) => {
            "it has fewer receive queues than the other end has transmit queues: make them equal".to_owned()
        }
        Some(libc::EINVAL | libc::ERANGE) => mtu(interface, index),
        _ => "the kernel refused".to_owned(),
    };
    let answer = anyhow::Error::new(error);
    answer.context(format!("attaching the XDP program to {interface}: {remedy}"))
}

/// A frame, with the kernel's headroom of 256 bytes and its bookkeeping of 320 behind it, must fit into a page of 4096. What is left
/// is less the Ethernet header and two VLAN tags. Drivers may have less: igb's limit is 3046.
pub const MTU_MAX: u32 = 4096 - 256 - 320 - 14 - 2 * 4;
/// What every driver takes.
const MTU_SAFE: u32 = 1500;

fn mtu(interface: &str, index: u32) -> String {
    let mtu = link_attributes(index).ok().and_then(|attributes| {
        attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(mtu),
            _ => None,
        })
    });
    let lower = match mtu {
        Some(mtu) if mtu > MTU_MAX => MTU_MAX,
        _ => MTU_SAFE,
    };
    let mtu = mtu.map_or_else(|| "unknown".to_owned(), |mtu| mtu.to_string());
    format!(
        "its driver refused. The usual cause is an MTU that does not let a frame fit into a page: the MTU is {mtu}, the limit of most \
         drivers {MTU_MAX}; `ip link set dev {interface} mtu {lower}` lowers it (on veth, lower it at the other end)"
    )
}

fn occupied(interface: &str, index: u32) -> String {
    let Some(program) = Attached::read(index) else {
        return "another XDP program is in the way, on it or on a device that it is part of".to_owned();
    };
    format!(
        "it has an XDP program already, id {} ({}), which is left alone. End the process that attached it; if none did that \
         still lives, `{}` removes it",
        program.id,
        program.name,
        program.removal(interface)
    )
}

/// The XDP program on an interface, whoever attached it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its number in the kernel.
    pub id: u32,
    /// What its author called it.
    pub name: String,
    /// Where it runs.
    pub mode: Mode,
}

impl Attached {
    /// Asks the kernel for it.
    #[must_use]
    pub fn read(index: u32) -> Option<Self> {
        let (id, mode) = link_attributes(index).ok()?.into_iter().find_map(|attribute| {
            let LinkAttribute::Xdp(xdp) = attribute else { return None };
            xdp.into_iter().find_map(|xdp| match xdp {
                LinkXdp::DrvProgId(id) | LinkXdp::HwProgId(id) => Some((id, Mode::Native)),
                LinkXdp::SkbProgId(id) => Some((id, Mode::Generic)),
                _ => None,
            })
        })?;
        let program = loaded_programs().flatten().find(|program| program.id() == id);
        let name = program.as_ref().and_then(|program| program.name_as_str()).unwrap_or("without a name").to_owned();
        Some(Self { id, name, mode })
    }

    /// The command that takes it off the interface. It has no effect on one that a living process holds.
    #[must_use]
    pub fn removal(&self, interface: &str) -> String {
        let off = match self.mode {
            Mode::Native => "xdp",
            Mode::Generic => "xdpgeneric",
        };
        format!("ip link set dev {interface} {off} off")
    }
}

/// One question, one answer: not worth an event loop.
fn link_attributes(index: u32) -> anyhow::Result<Vec<LinkAttribute>> {
    let mut request = LinkMessage::default();
    request.header.index = index;
    let mut request = NetlinkMessage::from(RouteNetlinkMessage::GetLink(request));
    request.header.flags = NLM_F_REQUEST;
    request.finalize();
    let mut bytes = vec![0; request.buffer_len()];
    request.serialize(&mut bytes);

    let socket = Socket::new(NETLINK_ROUTE)?;
    socket.connect(&SocketAddr::new(0, 0))?;
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    match NetlinkMessage::<RouteNetlinkMessage>::deserialize(&answer)?.payload {
        NetlinkPayload::InnerMessage(RouteNetlinkMessage::NewLink(link)) => Ok(link.attributes),
        other => Err(anyhow!("unexpected answer {other:?}")),
    }
}
