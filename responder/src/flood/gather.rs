//! The XDP program `gather`, which takes replies off the generator's NIC: loads it, attaches it, gives it the sockets.

use std::os::fd::AsRawFd;

use anyhow::{Context, Result};
use aya::{
    Ebpf, EbpfLoader,
    maps::{MapData, PerCpuArray, XskMap},
    programs::{Xdp, xdp::XdpLinkId},
};
use responder_common::{global, map};

use super::asker::FIRST_PORT;
use crate::{
    interface::Interface,
    xdp::steering::{AttachMode, attach, load_error, take_map},
};

/// Built from `responder-ebpf` by `cargo xtask ebpf`; the build script refuses to embed it once its source has changed.
static OBJECT: &[u8] = aya::include_bytes_aligned!("../../../responder-ebpf/gather.o");

/// The attached program. Dropping it detaches it.
pub struct Gather {
    ebpf: Ebpf,
    sockets: XskMap<MapData>,
    _link: XdpLinkId,
    /// It runs in generic mode, for this reason.
    pub fallback: Option<String>,
}

impl Gather {
    /// Attaches it for replies from `port` to any of `flows` ports. With `count_only` they are counted and dropped.
    pub fn attach(interface: &Interface, port: u16, flows: usize, queues: u32, count_only: bool) -> Result<Self> {
        let flows = u16::try_from(flows).context("more flows than there are ports")?;
        let last = FIRST_PORT + flows.saturating_sub(1);
        let count_only = u8::from(count_only);
        let mut ebpf = EbpfLoader::new()
            .override_global(global::ASKED_PORT, &port, true)
            .override_global(global::FIRST_PORT, &FIRST_PORT, true)
            .override_global(global::LAST_PORT, &last, true)
            .override_global(global::COUNT_ONLY, &count_only, true)
            .map_max_entries(map::XSKS, queues.max(1))
            .load(OBJECT)
            .map_err(|error| load_error(error.into()))?;
        let sockets = take_map(&mut ebpf, map::XSKS)?;
        let program: &mut Xdp = ebpf.program_mut("gather").context("the object has no program `gather`")?.try_into()?;
        program.load().map_err(|error| load_error(error.into()))?;
        let (link, _, fallback) = attach(program, &interface.name, interface.index, AttachMode::Auto)?;
        Ok(Self { ebpf, sockets, _link: link, fallback })
    }

    /// Gives the replies of a receive queue to a socket.
    pub fn set_slot(&mut self, queue: u32, socket: impl AsRawFd) -> Result<()> {
        self.sockets.set(queue, socket, 0).with_context(|| format!("giving the replies of queue {queue} to its socket"))
    }

    /// Replies that were counted and dropped.
    pub fn unseen(&self) -> Result<u64> {
        let map: PerCpuArray<_, u64> =
            self.ebpf.map(map::UNSEEN).context("the object has no map UNSEEN")?.try_into()?;
        Ok(map.get(&0, 0).context("reading what the XDP program has counted")?.iter().sum())
    }
}
