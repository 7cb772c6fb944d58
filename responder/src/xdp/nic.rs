//! What the kernel says of a NIC under /sys and by ethtool: its carrier, its queues, what it received and what it missed.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, ensure};

use crate::sys;

/// Drivers that reset on attach or on binding need up to a few seconds until the link is back.
const CARRIER_WITHIN: Duration = Duration::from_secs(10);
const CARRIER_STEP: Duration = Duration::from_millis(20);

/// Whether the link is up. An interface that says nothing of it is taken to have one, one that is down has none.
#[must_use]
pub fn has_carrier(interface: &str) -> bool {
    match fs::read_to_string(path(interface, "carrier")) {
        Ok(carrier) => carrier.trim() == "1",
        // What the kernel answers of an interface that is down.
        Err(error) => error.raw_os_error() != Some(libc::EINVAL),
    }
}

/// Waits until the link is up again after attaching or binding.
pub fn wait_for_carrier(interface: &str) -> Result<()> {
    let deadline = Instant::now() + CARRIER_WITHIN;
    while !has_carrier(interface) {
        ensure!(
            Instant::now() < deadline,
            "{interface} has had no carrier for {} s: is its cable (or its peer) up?",
            CARRIER_WITHIN.as_secs()
        );
        thread::sleep(CARRIER_STEP);
    }
    Ok(())
}

/// The number of receive queues in use. A driver without channels has one.
#[must_use]
pub fn receive_queues(interface: &str) -> u32 {
    receive_queues_now(interface).unwrap_or(1)
}

/// The same, if the driver tells; not where the interface has just gone.
#[must_use]
pub fn receive_queues_now(interface: &str) -> Option<u32> {
    Some(sys::channels(interface).ok()?.rx.max(1))
}

/// The number of receive queues there can ever be, in use or not.
#[must_use]
pub fn receive_queues_max(interface: &str) -> u32 {
    let present = fs::read_dir(path(interface, "queues")).map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count()
    });
    let possible = sys::channels(interface).map_or(1, |channels| channels.max);
    u32::try_from(present).unwrap_or(u32::MAX).max(receive_queues(interface)).max(possible)
}

/// What a NIC has counted.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    /// Packets received.
    pub packets: u64,
    /// Packets for which there was no room, as far as the kernel has a common name for that.
    errors: u64,
    /// The driver's own counters, by name.
    named: Vec<(String, u64)>,
}

impl Counters {
    /// Reads them.
    #[must_use]
    pub fn read(interface: &str) -> Self {
        let read = |name: &str| -> u64 {
            let text = fs::read_to_string(path(interface, "statistics").join(name)).unwrap_or_default();
            text.trim().parse().unwrap_or(0)
        };
        Self {
            packets: read("rx_packets"),
            // Not rx_dropped: it counts packets that were received, of protocols that nobody speaks here.
            errors: read("rx_missed_errors") + read("rx_fifo_errors") + read("rx_over_errors"),
            named: sys::driver_statistics(interface).unwrap_or_default(),
        }
    }

    /// Packets missed by some queue, nobody says which.
    #[must_use]
    pub fn missed(&self) -> u64 {
        self.errors + self.sum(|name| is_miss(name) && number(name).is_none())
    }

    /// Packets that this queue missed, where the driver counts them by queue.
    #[must_use]
    pub fn missed_by(&self, queue: u32) -> u64 {
        self.sum(|name| is_miss(name) && number(name) == Some(queue))
    }

    /// Packets that this queue received, where the driver counts them by queue.
    #[must_use]
    pub fn packets_of(&self, queue: u32) -> u64 {
        self.sum(|name| name.contains("rx") && name.ends_with("packets") && number(name) == Some(queue))
    }

    fn sum(&self, wanted: impl Fn(&str) -> bool) -> u64 {
        let wanted = self.named.iter().filter(|(name, _)| wanted(&name.to_ascii_lowercase()));
        wanted.fold(0, |sum, (_, count)| sum.wrapping_add(*count))
    }
}

/// Whether a driver's counter, in lower case, is of packets that came and found no buffer. Drivers agree on no name, but on the words.
/// What an XDP program dropped is no miss.
fn is_miss(name: &str) -> bool {
    let words = [
        "miss",
        "no_buf",
        "nobuf",
        "no buf",
        "no_desc",
        "nodesc",
        "no_dma",
        "out_of_buf",
        "oob",
        "alloc_fail",
        "alloc fail",
        "drops",
        "dropped",
        "discard",
        "fifo_err",
        "over_err",
        "overflow",
        "overrun",
    ];
    name.contains("rx") && !name.contains("xdp") && words.iter().any(|word| name.contains(word))
}

/// The first number in the name of a counter, which is that of its queue: `rx_queue_3_drops`, `rx3_drops`, `rx-3.missed`.
fn number(name: &str) -> Option<u32> {
    let digits = name.trim_start_matches(|letter: char| !letter.is_ascii_digit());
    digits.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}

fn path(interface: &str, file: &str) -> std::path::PathBuf {
    Path::new("/sys/class/net").join(interface).join(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misses_are_found_whatever_the_driver_calls_them() {
        let named = [
            ("rx_packets", 1),
            ("rx_no_buffer_count", 2),
            ("rx_missed_errors", 4),
            ("tx_dropped", 8),
            ("rx_queue_0_drops", 16),
            ("rx_queue_1_drops", 32),
            ("rx_queue_1_xdp_drops", 64),
            ("rx_queue_1_packets", 128),
            ("rx_queue_10_packets", 256),
            ("rx1_xdp_packets", 512),
            ("pkts rx OOB", 1024),
            ("rx_queue_1_alloc_failed", 2048),
        ];
        let named = named.map(|(name, count)| (name.to_owned(), count)).into();
        let counters = Counters { packets: 0, errors: 1 << 20, named };
        assert_eq!(counters.missed(), (1 << 20) + 2 + 4 + 1024);
        assert_eq!((counters.missed_by(0), counters.missed_by(1), counters.missed_by(2)), (16, 32 + 2048, 0));
        assert_eq!((counters.packets_of(1), counters.packets_of(10)), (128 + 512, 256));
    }

    #[test]
    fn an_interface_that_is_not_there_has_counted_nothing() {
        assert_eq!(Counters::read("nosuchif0").missed(), 0);
        assert!(has_carrier("lo"));
        assert_eq!(receive_queues_max("nosuchif0"), 1);
    }
}
