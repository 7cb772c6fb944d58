//! What a socket does when there is nothing to do: wait, keep the driver awake, and busy-poll.
//!
//! A zero-copy driver takes the memory for the kernel's own packets from the fill ring as well: asleep, it would lose ping and ssh, not only DNS.
//! So every wait here ends in poll(2) or recvfrom(2) on the socket, both of which wake it. No frame is touched.

use std::{
    os::fd::AsRawFd,
    thread,
    time::{Duration, Instant},
};

use nix::sys::socket::{MsgFlags, recv};

use super::{super::watch, Socket};
use crate::sys;

/// Between two rounds of busy polling while replies are on their way.
const NAP: Duration = Duration::from_micros(100);

impl Socket {
    /// Sleeps until a frame arrives or the time is over, and wakes a driver that waits for the fill or the TX ring.
    ///
    /// With busy polling the NIC is polled first. poll(2) does not do that for an AF_XDP socket, recvfrom(2) does (`xsk_recvmsg` runs the
    /// queue's NAPI once).
    pub fn wait(&mut self, timeout: Duration) {
        let busy_poll = self.busy_poll.unwrap_or_default().min(timeout);
        if !busy_poll.is_zero() {
            let until = Instant::now() + busy_poll;
            loop {
                self.poll_nic();
                if self.rx.nb_avail_exact() > 0 {
                    return;
                }
                if Instant::now() >= until {
                    break;
                }
            }
            if self.in_flight > 0 {
                // poll(2) would wake the driver, and so hide that busy polling does not serve the TX ring here.
                thread::sleep(NAP);
                return;
            }
        }
        let timeout_ms = i32::try_from((timeout - busy_poll).as_millis()).unwrap_or(i32::MAX);
        // A failed poll is a socket whose device has gone; the worker's next look at its stop flag is all that can be done.
        let arrived = self.rx.poll(timeout_ms);
        if self.busy_poll.is_some() && !matches!(arrived, Ok(true)) && self.is_asleep() {
            self.poll_nic();
        }
    }

    /// Whether poll(2) has not woken a driver that should look at the fill ring, and only running its NAPI is left. Some drivers' wake-up
    /// reaches the TX queue's interrupt alone, so that a NIC whose RX queue has an interrupt of its own would never begin to receive. Without busy
    /// polling that takes a capability, which the control thread has and a worker has not.
    pub fn wants_nudge(&mut self) -> bool {
        self.busy_poll.is_none() && self.is_asleep()
    }

    fn is_asleep(&mut self) -> bool {
        self.zero_copy && (self.fill.needs_wakeup() || self.is_unfilled())
    }

    /// Whether the driver has no frame to receive into, though the fill ring has some. In copy mode it needs none.
    pub fn is_unfilled(&mut self) -> bool {
        let (taken, arrived) = (self.fill.nb_free_exact(), self.rx.nb_avail_exact());
        self.zero_copy && watch::is_unfilled(self.ring_frames, taken, self.in_flight, arrived)
    }

    /// Ends busy polling, and returns whether it was on. From then on interrupts drive the queue.
    ///
    /// With SO_PREFER_BUSY_POLL the kernel leaves the driver alone when a zero-copy socket asks to send (`xsk_no_wakeup`), and counts on
    /// the RX queue's NAPI. A NIC whose TX queue has an interrupt, and so a NAPI, of its own then sends nothing.
    pub fn give_up_busy_poll(&mut self) -> bool {
        let was_on = self.busy_poll.take().is_some();
        if was_on {
            // It cannot fail: both options were set before, and anybody may lower them.
            let _ = sys::stop_busy_poll(self.fd());
        }
        was_on
    }

    /// Has the kernel send what is in the TX ring, whatever the ring's flags say.
    pub fn push(&mut self) {
        // What was late is looked at again; there is nothing else to do about an error.
        let _ = self.tx.wakeup();
        let _ = self.rx.poll(0);
    }

    /// Runs the queue's NAPI once from here, if SO_BUSY_POLL is on.
    pub(super) fn poll_nic(&self) {
        // Nothing is read: an AF_XDP socket's frames are in its ring.
        let _ = recv(self.rx.fd().as_raw_fd(), &mut [], MsgFlags::MSG_DONTWAIT);
    }
}
