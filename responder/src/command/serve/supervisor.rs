//! What a service manager is told by sd_notify(3): ready, reloading, stopping, and that the control thread is alive.
//!
//! The messages go to the socket in NOTIFY_SOCKET; where there is none, nothing is sent. The watchdog looks after the control thread alone: queues and workers are looked
//! after by it (`xdp/watch`).

use std::time::{Duration, Instant};

use sd_notify::NotifyState;

/// The service manager, if there is one.
pub(super) struct Supervisor {
    /// How often it wants to hear that the server is alive.
    every: Option<Duration>,
    next: Instant,
}

impl Supervisor {
    /// Reads what it wants from the environment (WATCHDOG_USEC, WATCHDOG_PID).
    pub(super) fn new() -> Self {
        // Half of the time would do; a tick may be late.
        Self { every: sd_notify::watchdog_enabled().map(|within| within / 4), next: Instant::now() }
    }

    /// The server answers, from this many zones.
    pub(super) fn ready(&self, zones: usize) {
        tell(&[NotifyState::Ready, NotifyState::Status(&format!("serving {zones} zones"))]);
    }

    /// It reads its zones anew, and answers meanwhile.
    pub(super) fn reloading(&self) {
        // Since version 253 systemd wants the time with it.
        if let Ok(now) = NotifyState::monotonic_usec_now() {
            tell(&[NotifyState::Reloading, now, NotifyState::Status("reloading, and serving meanwhile")]);
        }
    }

    /// It ends.
    pub(super) fn stopping(&self) {
        tell(&[NotifyState::Stopping]);
    }

    /// The control thread has come round again.
    pub(super) fn alive(&mut self) {
        let Some(every) = self.every else { return };
        let now = Instant::now();
        if now >= self.next {
            self.next = now + every;
            tell(&[NotifyState::Watchdog]);
        }
    }
}

/// A service manager that does not listen is none of the server's business: it will say so itself.
fn tell(states: &[NotifyState<'_>]) {
    let _ = sd_notify::notify(states);
}
