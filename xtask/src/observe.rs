//! The observer at the client's end of the lab: by which queue, and from which CPU, replies really left the server.
//!
//! It attaches the XDP program `observe` to the client's interface, natively, so that the program runs where the server's transmit
//! runs. What it has seen is read from its map; nothing the server reports has a part in it. It says nothing about the queue that a
//! query came in on: see [`crate::matrix`].

use std::collections::BTreeMap;

use anyhow::Context as _;
use aya::{
    Ebpf,
    maps::HashMap,
    programs::{Xdp, XdpMode, xdp::XdpLinkId},
};
use responder_common::{Seen, map};

static OBJECT: &[u8] = aya::include_bytes_aligned!("../../responder-ebpf/observe.o");

/// Replies by client port, transmit queue of the server, and CPU: the key is [`Seen`].
pub type Counts = BTreeMap<Seen, u64>;

/// The attached program. It is detached when this is dropped.
pub struct Observer {
    ebpf: Ebpf,
    _link: XdpLinkId,
}

impl Observer {
    /// Attaches the observer to `interface` of the network namespace that the calling thread is in.
    pub fn attach(interface: &str) -> anyhow::Result<Self> {
        let mut ebpf = Ebpf::load(OBJECT).context("loading the observer (it needs CAP_BPF and CAP_NET_ADMIN)")?;
        let program: &mut Xdp =
            ebpf.program_mut("observe").context("the object has no program `observe`")?.try_into()?;
        program.load().context("the kernel does not take the observer")?;
        let link = program
            .attach(interface, XdpMode::Driver)
            .with_context(|| format!("attaching the observer to {interface}, natively"))?;
        Ok(Self { ebpf, _link: link })
    }

    /// All that was seen since it was attached.
    pub fn read(&self) -> anyhow::Result<Counts> {
        let map: HashMap<_, Seen, u64> = self.ebpf.map(map::SEEN).context("the object has no map SEEN")?.try_into()?;
        map.iter().collect::<Result<_, _>>().context("reading what the observer has seen")
    }
}

/// What was counted after `before`.
pub fn since(now: &Counts, before: &Counts) -> Counts {
    let mut counts = now.clone();
    for (key, count) in &mut counts {
        *count = count.saturating_sub(before.get(key).copied().unwrap_or(0));
    }
    counts.retain(|_, count| *count > 0);
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_before_does_not_count() {
        let before = Counts::from([([1, 0, 0], 5), ([2, 1, 1], 1)]);
        let now = Counts::from([([1, 0, 0], 7), ([2, 1, 1], 1), ([3, 1, 1], 4)]);
        assert_eq!(since(&now, &before), Counts::from([([1, 0, 0], 2), ([3, 1, 1], 4)]));
    }
}
