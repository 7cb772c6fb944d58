//! `responder queues`: sets a NIC's channels, also while a server runs on it.
//!
//! It is this command that sets them: the server has given up the capability by then.

use std::{
    io,
    path::Path,
    process::ExitCode,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};

use crate::{
    cli::Queues,
    control::{self, status::Status},
    sys,
};

/// How long the kernel may take to let go of sockets that were closed.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// Sets them. Where the driver refuses, all is as it was.
pub fn run(flags: &Queues) -> Result<ExitCode> {
    let Queues { interface, count, control } = flags;
    let before = sys::channels(interface).with_context(|| format!("cannot read the channels of {interface}"))?;
    ensure!(*count <= before.max, "{interface} has at most {} channels, not {count}", before.max);
    // Before the server makes way.
    sys::may_set_channels(interface).with_context(|| format!("cannot set the channels of {interface}"))?;
    let is_served = control::is_served(control) && has_bypass(control, interface)?;
    if is_served {
        control::ask_to_leave(control, interface)?;
    }
    let set = set(interface, *count).with_context(|| format!("{interface} cannot be given {count} channels"));
    let joined = if is_served { control::ask_to_join(control, interface) } else { Ok(()) };
    match (set, joined) {
        (Ok(()), Ok(())) => {
            let now = sys::channels(interface).with_context(|| format!("cannot read the channels of {interface}"))?;
            println!("{interface}: {} receive queues before, {} now", before.rx, now.rx);
            Ok(ExitCode::SUCCESS)
        }
        (Err(error), Ok(())) | (Ok(()), Err(error)) => Err(error),
        (Err(error), Err(joined)) => bail!("{error:#}; and {joined:#}"),
    }
}

fn set(interface: &str, count: u32) -> io::Result<()> {
    let deadline = Instant::now() + CLOSED_WITHIN;
    loop {
        match sys::set_channels(interface, count) {
            // A socket is still bound to a queue that is to go.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) && Instant::now() < deadline => {
                thread::sleep(Duration::from_millis(10));
            }
            done => return done,
        }
    }
}

/// Whether the server serves the interface by its queues.
fn has_bypass(control: &Path, interface: &str) -> Result<bool> {
    let status = Status::read(&control::ask(control)?)?;
    Ok(status.interfaces.iter().any(|served| served.name == *interface))
}
