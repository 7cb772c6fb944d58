//! The reflector at the server's end of the lab: the XDP program `reflect`, which sends each query back from within the driver. It is what answering can cost at
//! the least, and so the limit that servers are held against.

use anyhow::Context as _;
use aya::{
    Ebpf,
    programs::{Xdp, XdpMode, xdp::XdpLinkId},
};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../responder-ebpf/reflect.o");

/// The attached program. It is detached when this is dropped.
pub struct Reflector {
    _ebpf: Ebpf,
    _link: XdpLinkId,
}

impl Reflector {
    /// Attaches it to `interface` of the network namespace that the calling thread is in.
    pub fn attach(interface: &str) -> anyhow::Result<Self> {
        let mut ebpf = Ebpf::load(OBJECT).context("loading the reflector (it needs CAP_BPF and CAP_NET_ADMIN)")?;
        let program: &mut Xdp =
            ebpf.program_mut("reflect").context("the object has no program `reflect`")?.try_into()?;
        program.load().context("the kernel does not take the reflector")?;
        let link = program
            .attach(interface, XdpMode::Driver)
            .with_context(|| format!("attaching the reflector to {interface}, natively"))?;
        Ok(Self { _ebpf: ebpf, _link: link })
    }
}
