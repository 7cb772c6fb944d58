//! The load generator's AF_XDP socket: sends what it likes, when it likes, and receives what comes.
//!
//! Half of its frames are for sending: each is in `free`, in the TX ring or in the completion ring. The other half are for receiving: each is in the
//! fill ring, in the RX ring or in the batch in hand. None ever changes sides, and every ring holds all frames of its side.

use std::{
    io,
    os::fd::OwnedFd,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use nix::{
    poll::{PollFd, PollFlags, ppoll},
    sys::time::TimeSpec,
};
use xsk_rs::{CompQueue, FillQueue, FrameDesc, RxQueue, TxQueue, Umem};

use super::{BUSY_FOR, BUSY_STEP, Options, Rings, count, errno, explain, fd, kick};

/// Frames that are sent, or received, at once. A system call sends more cheaply the more it sends; a veth's ring holds 256.
pub(super) const BATCH: usize = 128;

/// A bound socket with its frames for receiving in its fill ring.
#[derive(Debug)]
pub struct Requester {
    umem: Umem,
    rx: RxQueue,
    tx: TxQueue,
    fill: FillQueue,
    completion: CompQueue,
    /// Frames for sending that are not on their way.
    free: Vec<FrameDesc>,
    /// The batch in hand. Outside of a call it holds nothing of meaning.
    batch: [FrameDesc; BATCH],
    ring_frames: u32,
    /// Frames given to the TX ring and not yet seen in the completion ring.
    in_flight: u32,
    /// What one system call sends in copy mode; `None` in zero-copy mode.
    tx_budget: Option<u32>,
}

impl Requester {
    /// Makes a socket for one queue, and retries for a moment while an earlier owner's exit is not through.
    pub fn bind(interface: &str, queue: u32, options: &Options) -> Result<Self> {
        let until = Instant::now() + BUSY_FOR;
        loop {
            match Self::open(interface, queue, options) {
                Err(error) if errno(&error) == Some(libc::EBUSY) && Instant::now() < until => thread::sleep(BUSY_STEP),
                result => return result.map_err(|error| explain(error, interface, queue, options)),
            }
        }
    }

    fn open(interface: &str, queue: u32, options: &Options) -> Result<Self> {
        let (rings, mut descs) = Rings::open(interface, queue, options, 2 * options.ring_frames)?;
        let Rings { umem, rx, tx, mut fill, completion, zero_copy, tx_budget, .. } = rings;
        let free = descs.split_off(descs.len() / 2);
        // SAFETY: the descriptors are this UMEM's, fresh, and in no other ring; those in `free` are others.
        let filled = unsafe { fill.produce(&descs) };
        if filled != descs.len() {
            bail!("the fill ring took {filled} of {} frames", descs.len());
        }
        Ok(Self {
            umem,
            rx,
            tx,
            fill,
            completion,
            free,
            batch: [FrameDesc::default(); BATCH],
            ring_frames: options.ring_frames,
            in_flight: 0,
            tx_budget: (!zero_copy).then_some(tx_budget),
        })
    }

    /// Another handle on the same socket, for the XSKMAP. The queue is free only when it is closed too.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        fd(&self.rx).try_clone_to_owned()
    }

    /// Whether the driver sends straight from the UMEM.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.tx_budget.is_none()
    }

    /// Has up to `wanted` frames written and sent, at most a batch. `write` gets a frame's buffer and returns the length of what it has written to the
    /// buffer's beginning. Returns how many there were: fewer than wanted where the kernel has not sent the earlier ones yet.
    #[inline]
    pub fn send(&mut self, wanted: usize, mut write: impl FnMut(&mut [u8]) -> usize) -> usize {
        self.reclaim();
        let frames = wanted.min(BATCH).min(self.free.len());
        for (slot, mut desc) in self.batch.iter_mut().zip(self.free.drain(self.free.len() - frames..)) {
            // SAFETY: the descriptor was in `free`, so the frame is in no ring and nobody else has it.
            let mut data = unsafe { self.umem.data_mut(&mut desc) };
            let room = data.cursor().buf_len();
            data.cursor().set_pos(room);
            let length = write(data.contents_mut());
            data.cursor().set_pos(length);
            *slot = desc;
        }
        // SAFETY: these frames just came out of `free`, and nothing else refers to them.
        let produced = unsafe { self.tx.produce(&self.batch[..frames]) };
        debug_assert_eq!(produced, frames, "a ring holds every frame");
        self.in_flight += count(produced);
        // What stays behind is asked for again with the next batch.
        kick(&mut self.tx, self.in_flight, self.ring_frames, self.tx_budget);
        frames
    }

    /// Lends what was received to `each`, frame by frame, and gives the frames back to the kernel. Returns how many there were, at most a batch.
    #[inline]
    pub fn receive(&mut self, mut each: impl FnMut(&[u8])) -> usize {
        // SAFETY: the ring and the batch are this socket's; the kernel hands out only descriptors of its UMEM.
        let received = unsafe { self.rx.consume(&mut self.batch) };
        for desc in &self.batch[..received] {
            // SAFETY: the descriptor came out of the RX ring just now, so the frame is in no ring and nobody else has it.
            each(unsafe { self.umem.data(desc) }.contents());
        }
        // SAFETY: these frames just came out of the RX ring, and nothing else refers to them.
        let filled = unsafe { self.fill.produce(&self.batch[..received]) };
        debug_assert_eq!(filled, received, "a ring holds every frame");
        if self.fill.needs_wakeup() {
            let _ = self.rx.poll(0);
        }
        received
    }

    /// Sleeps until the time is over or, if that is asked for, a frame arrives at one of them.
    pub fn wait(all: &mut [Self], timeout: Duration, for_frame: bool) {
        // In zero-copy mode the driver is asked again to send what is left.
        for one in all.iter_mut() {
            kick(&mut one.tx, one.in_flight, one.ring_frames, one.tx_budget);
        }
        let events = if for_frame { PollFlags::POLLIN } else { PollFlags::empty() };
        let mut polled: Vec<PollFd<'_>> = all.iter().map(|one| PollFd::new(fd(&one.rx), events)).collect();
        // A signal or an error ends the wait early, and then there is nothing to receive.
        let _ = ppoll(&mut polled, Some(TimeSpec::from_duration(timeout)), None);
    }

    /// Moves frames that were sent from the completion ring back to `free`.
    #[inline]
    fn reclaim(&mut self) {
        while self.in_flight > 0 {
            // SAFETY: the ring is this socket's, and what comes out of it is in no other ring.
            let completed = unsafe { self.completion.consume(&mut self.batch) };
            self.in_flight -= count(completed);
            self.free.extend_from_slice(&self.batch[..completed]);
            if completed < BATCH {
                break;
            }
        }
    }
}
