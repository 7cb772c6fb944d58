//! What the kernel says of a NIC under /sys and by ethtool: its carrier, its queues.

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
    sys::channels(interface).map_or(1, |channels| channels.rx.max(1))
}

/// The number of receive queues there can ever be, in use or not.
#[must_use]
pub fn receive_queues_max(interface: &str) -> u32 {
    let present = fs::read_dir(path(interface, "queues")).map_or(0, |entries| {
        entries.flatten().filter(|entry| entry.file_name().to_string_lossy().starts_with("rx-")).count()
    });
    u32::try_from(present).unwrap_or(u32::MAX).max(receive_queues(interface))
}

fn path(interface: &str, file: &str) -> std::path::PathBuf {
    Path::new("/sys/class/net").join(interface).join(file)
}
