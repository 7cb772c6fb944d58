//! The kernel and what is known of drivers.

use super::{Facts, Finding, State, finding};

/// Before it an attached program outlives its process.
const KERNEL_MIN: (u32, u32) = (5, 9);
/// From it on one system call sends all replies in copy mode.
const KERNEL_TX_BUDGET: (u32, u32) = (6, 17);

type Version = (u32, u32);

/// Drivers that run XDP programs natively, by the kernel's name for them: since which kernel they have zero-copy, if they do.
const DRIVERS: &[(&str, Option<Version>)] = &[
    ("bnxt_en", None),
    ("ena", None),
    ("i40e", Some((4, 20))),
    ("ice", Some((5, 5))),
    ("igb", Some((6, 14))),
    ("igc", Some((5, 14))),
    ("ixgbe", Some((4, 20))),
    ("mlx4_en", None),
    ("mlx5_core", Some((5, 3))),
    ("veth", None),
    ("virtio_net", Some((6, 13))),
    ("vmxnet3", None),
];

pub(super) fn kernel(facts: &Facts) -> Finding {
    let why = "Before 5.9 the XDP program would outlive a server that is killed, and port 53 with it. From 6.17 on all replies of a batch \
               are sent by one system call in copy mode, before it 32.";
    let found = format!("Linux {}", facts.kernel);
    let state = match version(&facts.kernel) {
        Some(version) if version < KERNEL_MIN => State::Fail,
        Some(version) if version < KERNEL_TX_BUDGET && !has_zero_copy(facts) => State::Note,
        Some(_) => State::Ok,
        None => State::Note,
    };
    finding("kernel", state, found, "5.9 or later, for copy mode 6.17", why)
}

pub(super) fn driver(facts: &Facts) -> Finding {
    let name = if facts.driver.is_empty() { "no name" } else { &facts.driver };
    let wanted = "native XDP, zero-copy";
    match DRIVERS.iter().find(|(known, _)| *known == facts.driver) {
        None => finding(
            "driver",
            State::Note,
            format!("{name}: not known here"),
            wanted,
            "`serve` tries native mode and then generic mode, zero-copy and then copy, and says what it got. Generic mode is several times slower.",
        ),
        Some((_, None)) => finding(
            "driver",
            State::Note,
            format!("{name}: native XDP, no zero-copy known"),
            wanted,
            "Each packet is copied once on its way in and once on its way out.",
        ),
        Some((_, Some(since))) if !has_zero_copy(facts) => finding(
            "driver",
            State::Note,
            format!("{name}: zero-copy since Linux {}.{}", since.0, since.1),
            wanted,
            "On this kernel each packet is copied once on its way in and once on its way out.",
        ),
        Some(_) => finding(
            "driver",
            State::Ok,
            format!("{name}: native XDP, zero-copy"),
            wanted,
            "Packets are answered in the memory that the NIC wrote them to.",
        ),
    }
}

fn has_zero_copy(facts: &Facts) -> bool {
    let known = DRIVERS.iter().find(|(known, _)| *known == facts.driver);
    known.and_then(|(_, since)| *since).is_some_and(|since| version(&facts.kernel).is_some_and(|now| now >= since))
}

/// The first two numbers of a release such as `6.12.95+deb12-amd64`.
fn version(release: &str) -> Option<Version> {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}
