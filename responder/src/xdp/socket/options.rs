//! How to make an AF_XDP socket, and what to say when the system refuses it.

use std::io;

use anyhow::anyhow;

use crate::sys;

/// What the kernel keeps free before each packet (`XDP_PACKET_HEADROOM`).
const HEADROOM: u32 = 256;
/// An Ethernet header with two VLAN tags.
const LINK_LEN: u32 = 14 + 2 * 4;

/// Whether to ask the driver to receive straight into the UMEM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum ZeroCopy {
    /// Zero-copy where the driver can, else copy.
    Auto,
    /// Zero-copy or an error.
    On,
    /// Copy.
    Off,
}

impl ZeroCopy {
    /// What is left when the queue stays busy.
    pub(super) fn last_resort(self) -> Self {
        if self == Self::Auto { Self::Off } else { self }
    }
}

/// How to make a socket.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// The interface's MTU: it decides the frame size.
    pub mtu: u32,
    /// Whether to ask for zero-copy.
    pub zero_copy: ZeroCopy,
    /// Size of every ring and number of frames; a power of two.
    pub ring_frames: u32,
    /// Busy-poll this many microseconds per system call.
    pub busy_poll_us: Option<u32>,
}

/// Rounds up to a ring size that the kernel takes and that loses nothing at a million packets a second.
#[must_use]
pub fn ring_frames(wanted: u32) -> u32 {
    wanted.clamp(4096, 1 << 20).next_power_of_two()
}

/// The largest MTU whose packets fit into one frame.
#[must_use]
pub const fn mtu_max() -> u32 {
    4096 - HEADROOM - LINK_LEN
}

pub(super) fn frame_size(mtu: u32) -> Option<u32> {
    [2048, 4096].into_iter().find(|size| mtu + LINK_LEN + HEADROOM <= *size)
}

pub(super) fn errno(error: &anyhow::Error) -> Option<i32> {
    error.chain().find_map(|cause| cause.downcast_ref::<io::Error>()?.raw_os_error())
}

/// Why copy mode is used: the system's own words, without their number.
pub(super) fn refused(error: &anyhow::Error) -> String {
    let answer =
        errno(error).map_or_else(|| format!("{error:#}"), |errno| io::Error::from_raw_os_error(errno).to_string());
    let answer = answer.split(" (os error").next().unwrap_or_default();
    format!("the driver or kernel refused zero-copy: {answer}")
}

/// Says what was attempted, what the system answered and what to do.
pub(super) fn explain(error: anyhow::Error, interface: &str, queue: u32, options: &Options) -> anyhow::Error {
    let remedy = match errno(&error) {
        Some(libc::EBUSY) => {
            "another AF_XDP socket has this queue: stop its owner, or leave the queue out with --queues"
        }
        Some(libc::EOPNOTSUPP | libc::EINVAL) if options.zero_copy == ZeroCopy::On => {
            return anyhow!(
                "cannot open an AF_XDP socket on queue {queue} of {interface}: {error:#}: the driver {} on Linux {} has no zero-copy \
                 here: use --zero-copy auto",
                sys::driver(interface).unwrap_or_else(|_| "(unknown)".to_owned()),
                sys::kernel_release()
            );
        }
        Some(libc::EINVAL) => {
            "the queue may not exist, or the driver cannot give it to AF_XDP: see `ethtool -l` for the channels"
        }
        Some(libc::EPERM) => {
            "it needs CAP_NET_RAW, and CAP_NET_ADMIN for zero-copy: run it as root or give it these capabilities"
        }
        Some(libc::ENOBUFS | libc::ENOMEM) => {
            "too little lockable memory for its frames: raise the memlock limit (LimitMEMLOCK=infinity, `ulimit -l`) or give it CAP_IPC_LOCK"
        }
        Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT) => {
            "this kernel is built without AF_XDP (CONFIG_XDP_SOCKETS): use --io socket"
        }
        _ => return error.context(format!("cannot open an AF_XDP socket on queue {queue} of {interface}")),
    };
    anyhow!("cannot open an AF_XDP socket on queue {queue} of {interface}: {error:#}: {remedy}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CASES 16: a ring size that is no power of two once ended start-up.
    #[test]
    fn case_16_ring_sizes_are_rounded_up() {
        for (wanted, got) in [(0, 4096), (511, 4096), (4096, 4096), (4097, 8192), (5000, 8192), (u32::MAX, 1 << 20)] {
            assert_eq!(ring_frames(wanted), got, "{wanted}");
        }
    }

    /// CASES 2: EOPNOTSUPP with no reason.
    #[test]
    fn case_02_a_refusal_of_zero_copy_names_driver_and_kernel() {
        let answer = || anyhow::Error::new(io::Error::from_raw_os_error(libc::EOPNOTSUPP)).context("bind");
        assert_eq!(refused(&answer()), "the driver or kernel refused zero-copy: Operation not supported");
        assert_eq!(refused(&anyhow!("no rings")), "the driver or kernel refused zero-copy: no rings");
        let options = Options { mtu: 1500, zero_copy: ZeroCopy::On, ring_frames: 4096, busy_poll_us: None };
        let sentence = explain(answer(), "lo", 3, &options).to_string();
        for part in ["queue 3 of lo", "the driver ", &sys::kernel_release(), "use --zero-copy auto"] {
            assert!(sentence.contains(part), "{part}: {sentence}");
        }
    }

    #[test]
    fn frames_are_as_small_as_the_mtu_allows() {
        for (mtu, size) in [
            (1280, Some(2048)),
            (1500, Some(2048)),
            (1770, Some(2048)),
            (1771, Some(4096)),
            (3818, Some(4096)),
            (3819, None),
            (9000, None),
        ] {
            assert_eq!(frame_size(mtu), size, "{mtu}");
        }
        assert_eq!(frame_size(mtu_max()), Some(4096));
    }
}
