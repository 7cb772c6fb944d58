//! One AF_XDP socket: its UMEM, its four rings and every frame in them. One of the two unsafe islands of this crate.
//!
//! A UMEM frame is at any moment in exactly one place: the fill ring, the RX batch in hand, the TX ring, or the completion ring.
//! `FrameDesc` is Copy, so nothing in its type keeps it out of two rings. What keeps it out is that descriptors never leave this
//! file: [`Socket::exchange`] takes a batch from the RX ring, lends each frame's bytes to the caller once, and itself puts every
//! descriptor of the batch into the TX ring or back into the fill ring before it returns. Every ring has room for every frame,
//! so no `produce` comes up short and nothing is retried.
//!
//! The load generator has a socket of another kind, [`Requester`], whose frames are either for sending or for receiving; its descriptors stay in here, too.
//!
//! What it does not do: decide what a reply is, or attach the XDP program.
#![allow(unsafe_code, reason = "this is the island for rings and UMEM")]

mod idle;
mod options;
mod requester;

use std::{
    io,
    num::NonZeroU32,
    os::fd::{AsRawFd, BorrowedFd, OwnedFd},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use xsk_rs::{
    CompQueue, FillQueue, FrameDesc, RxQueue, TxQueue, Umem,
    config::{BindFlags, FrameSize, Interface, LibxdpFlags, QueueSize, SocketConfig, UmemConfig},
};

use crate::sys;
use options::{errno, explain, frame_size, refused};

pub use options::{Options, ZeroCopy, mtu_max, ring_frames};
pub use requester::Requester;

/// Frames taken from the RX ring at once. Measured: 64 is enough to make the system call cheap, more only grows latency.
const BATCH: usize = 64;
/// Frames that the kernel polls for in one system call when it busy-polls: a batch.
const BUSY_POLL_BUDGET: u32 = 64;
/// What the kernel sends per system call in copy mode unless told otherwise.
pub const DEFAULT_TX_BUDGET: u32 = 32;
/// After a process dies, the kernel takes tens of milliseconds to give its queue back.
const BUSY_FOR: Duration = Duration::from_secs(2);
const BUSY_STEP: Duration = Duration::from_millis(50);

/// A bound AF_XDP socket with all its frames in its fill ring.
#[derive(Debug)]
pub struct Socket {
    umem: Umem,
    rx: RxQueue,
    tx: TxQueue,
    fill: FillQueue,
    completion: CompQueue,
    /// The batch in hand. Outside of `exchange` it holds nothing of meaning.
    batch: [FrameDesc; BATCH],
    /// Frames on their way back to the fill ring. Outside of `exchange` it holds nothing of meaning.
    spare: [FrameDesc; BATCH],
    ring_frames: u32,
    /// Frames given to the TX ring and not yet seen in the completion ring.
    in_flight: u32,
    tx_budget: u32,
    zero_copy: bool,
    /// Why it is copy mode though zero-copy was asked for.
    mode_reason: Option<String>,
    /// Between two sleeps, this long is spent polling the NIC. `None` without busy polling, and once it was given up.
    busy_poll: Option<Duration>,
}

/// What one [`Socket::exchange`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Frames taken from the RX ring.
    pub received: u32,
    /// Of these, frames put into the TX ring.
    pub sent: u32,
    /// Earlier replies that have left since the last exchange.
    pub completed: u32,
    /// The kernel left frames in the TX ring although it was asked to send them.
    pub stalled: bool,
}

impl Socket {
    /// Makes a socket for one queue, fills its fill ring, and retries for a moment while an earlier owner's exit is not through.
    pub fn bind(interface: &str, queue: u32, options: &Options) -> Result<Self> {
        let deadline = Instant::now() + BUSY_FOR;
        while Instant::now() < deadline {
            if let Some(socket) = Self::try_bind(interface, queue, options)? {
                return Ok(socket);
            }
            thread::sleep(BUSY_STEP);
        }
        // Whoever has the queue keeps it, unless it is the driver that calls itself busy when asked for zero-copy.
        let last = Options { zero_copy: options.zero_copy.last_resort(), ..*options };
        match Self::open(interface, queue, &last) {
            Ok(socket) if last.zero_copy != options.zero_copy => {
                Ok(Self { mode_reason: Some(refused(&io::Error::from_raw_os_error(libc::EBUSY).into())), ..socket })
            }
            result => result.map_err(|error| explain(error, interface, queue, options)),
        }
    }

    /// Tries once: `None` while the queue still belongs to another socket.
    pub fn try_bind(interface: &str, queue: u32, options: &Options) -> Result<Option<Self>> {
        match Self::open(interface, queue, options) {
            Err(error) if errno(&error) == Some(libc::EBUSY) => Ok(None),
            result => result.map(Some).map_err(|error| explain(error, interface, queue, options)),
        }
    }

    fn open(interface: &str, queue: u32, options: &Options) -> Result<Self> {
        let (rings, descs) = Rings::open(interface, queue, options, options.ring_frames)?;
        let Rings { umem, rx, tx, mut fill, completion, zero_copy, tx_budget, mode_reason } = rings;
        // SAFETY: the descriptors are this UMEM's, fresh, and in no other ring.
        let filled = unsafe { fill.produce(&descs) };
        if filled != descs.len() {
            bail!("the fill ring took {filled} of {} frames", descs.len());
        }
        let mut socket = Self {
            umem,
            rx,
            tx,
            fill,
            completion,
            batch: [FrameDesc::default(); BATCH],
            spare: [FrameDesc::default(); BATCH],
            ring_frames: options.ring_frames,
            in_flight: 0,
            tx_budget,
            zero_copy,
            mode_reason,
            busy_poll: None,
        };
        if let Some(microseconds) = options.busy_poll_us {
            sys::prefer_busy_poll(socket.fd(), microseconds, BUSY_POLL_BUDGET).context("SO_PREFER_BUSY_POLL")?;
            socket.busy_poll = Some(Duration::from_micros(microseconds.into()));
        }
        Ok(socket)
    }

    /// Another handle on the same socket, for the XSKMAP and for statistics. The queue is free only when it is closed too.
    pub fn try_clone_fd(&self) -> io::Result<OwnedFd> {
        self.fd().try_clone_to_owned()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        fd(&self.rx)
    }

    /// Whether the driver receives straight into the UMEM.
    #[must_use]
    pub fn is_zero_copy(&self) -> bool {
        self.zero_copy
    }

    /// Why it is in copy mode though zero-copy was asked for: what the system said.
    #[must_use]
    pub fn mode_reason(&self) -> Option<&str> {
        self.mode_reason.as_deref()
    }

    /// Frames that one system call sends in copy mode, at most. In zero-copy mode the driver decides.
    #[must_use]
    pub fn tx_budget(&self) -> Option<u32> {
        (!self.zero_copy).then_some(self.tx_budget)
    }

    /// Frames that the kernel has to send, or has sent without having said so.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Takes a batch, has each frame answered in place, sends the replies, and gives everything else back to the kernel.
    ///
    /// `reply` gets a frame's whole buffer and the length of what arrived in it; it returns the length of the reply that it has
    /// written to the buffer's beginning, or `None` to drop the frame.
    #[inline]
    pub fn exchange(&mut self, mut reply: impl FnMut(&mut [u8], usize) -> Option<usize>) -> Exchange {
        let completed = self.reclaim();
        // SAFETY: the ring and the batch are this socket's; the kernel hands out only descriptors of its UMEM.
        let received = unsafe { self.rx.consume(&mut self.batch) };
        let (mut sent, mut spared) = (0, 0);
        for index in 0..received {
            let mut desc = self.batch[index];
            // SAFETY: the descriptor came out of the RX ring just now, so the frame is in no ring and nobody else has it.
            let mut data = unsafe { self.umem.data_mut(&mut desc) };
            let length = data.contents().len();
            let mut cursor = data.cursor();
            let room = cursor.buf_len();
            cursor.set_pos(room);
            match reply(data.contents_mut(), length) {
                Some(length) => {
                    data.cursor().set_pos(length);
                    self.batch[sent] = desc;
                    sent += 1;
                }
                None => {
                    self.spare[spared] = desc;
                    spared += 1;
                }
            }
        }
        self.refill(spared);
        self.send(sent);
        let stalled = self.kick();
        Exchange { received: count(received), sent: count(sent), completed, stalled }
    }

    /// Moves frames that were sent from the completion ring to the fill ring, and returns their number.
    #[inline]
    fn reclaim(&mut self) -> u32 {
        let before = self.in_flight;
        while self.in_flight > 0 {
            // SAFETY: the ring is this socket's, and what comes out of it is in no other ring.
            let completed = unsafe { self.completion.consume(&mut self.spare) };
            self.in_flight -= count(completed);
            self.refill(completed);
            if completed < BATCH {
                break;
            }
        }
        before - self.in_flight
    }

    /// Gives the first `frames` of `spare` to the fill ring, and wakes the driver if it waits for it: also when there is nothing to give.
    #[inline]
    fn refill(&mut self, frames: usize) {
        // SAFETY: these frames just came out of the RX batch or the completion ring, and nothing else refers to them.
        let filled = unsafe { self.fill.produce(&self.spare[..frames]) };
        debug_assert_eq!(filled, frames, "a ring holds every frame");
        if self.fill.needs_wakeup() {
            // A driver that found the ring empty waits to be told. The kernel's own packets may depend on it.
            match self.busy_poll {
                Some(_) => self.poll_nic(),
                None => drop(self.rx.poll(0)),
            }
        }
    }

    /// Gives the first `frames` of `batch` to the TX ring.
    #[inline]
    fn send(&mut self, frames: usize) {
        // SAFETY: these frames just came out of the RX ring, and nothing else refers to them.
        let produced = unsafe { self.tx.produce(&self.batch[..frames]) };
        debug_assert_eq!(produced, frames, "a ring holds every frame");
        self.in_flight += count(produced);
    }

    /// Has the kernel send what is in the TX ring, and returns whether something stayed behind.
    ///
    /// In copy mode a system call sends up to a budget and says nothing of the rest, so it is repeated until the ring is empty: as
    /// often as the number of frames in flight takes, never more.
    #[inline]
    fn kick(&mut self) -> bool {
        kick(&mut self.tx, self.in_flight, self.ring_frames, (!self.zero_copy).then_some(self.tx_budget))
    }
}

/// See [`Socket::kick`]; without a budget the socket is in zero-copy mode.
#[inline]
fn kick(tx: &mut TxQueue, in_flight: u32, ring_frames: u32, budget: Option<u32>) -> bool {
    if in_flight == 0 || !tx.needs_wakeup() {
        return false;
    }
    let Some(budget) = budget else { return tx.wakeup().is_err() };
    for _ in 0..=in_flight / budget {
        if tx.nb_free_exact() == ring_frames {
            return false;
        }
        if tx.wakeup().is_err() {
            return true;
        }
    }
    tx.nb_free_exact() != ring_frames
}

/// A UMEM and its four rings, bound to a queue, with no frame in any of them.
struct Rings {
    umem: Umem,
    rx: RxQueue,
    tx: TxQueue,
    fill: FillQueue,
    completion: CompQueue,
    zero_copy: bool,
    tx_budget: u32,
    mode_reason: Option<String>,
}

impl Rings {
    /// Makes them, and `frames` frames, which are yet to be put into a ring.
    fn open(interface: &str, queue: u32, options: &Options, frames: u32) -> Result<(Self, Vec<FrameDesc>)> {
        let size = frame_size(options.mtu).with_context(|| {
            format!(
                "the MTU of {interface} is {}, but a frame holds packets of at most {}: lower the MTU",
                options.mtu,
                mtu_max()
            )
        })?;
        let ring = QueueSize::new(options.ring_frames)?;
        let frames = NonZeroU32::new(frames).context("a UMEM has at least one frame")?;
        let config = UmemConfig::builder()
            .frame_size(FrameSize::new(size)?)
            .fill_queue_size(ring)
            .comp_queue_size(ring)
            .build()?;
        let (umem, descs) = Umem::new(config, frames, false).context("UMEM")?;
        let interface: Interface = interface.parse()?;
        let bind = |mode: BindFlags| -> Result<_> {
            let config = SocketConfig::builder()
                .rx_queue_size(ring)
                .tx_queue_size(ring)
                .libxdp_flags(LibxdpFlags::XSK_LIBXDP_FLAGS_INHIBIT_PROG_LOAD)
                .bind_flags(mode | BindFlags::XDP_USE_NEED_WAKEUP)
                .build();
            // SAFETY: the UMEM is this socket's alone, so the pair of interface and queue is not bound to through it yet.
            Ok(unsafe { xsk_rs::Socket::new(config, &umem, &interface, queue) }?)
        };
        let mut mode_reason = None;
        let (tx, rx, rings) = match options.zero_copy {
            ZeroCopy::On => bind(BindFlags::XDP_ZEROCOPY)?,
            ZeroCopy::Off => bind(BindFlags::XDP_COPY)?,
            // Asked for neither, the kernel would take copy mode in silence. The UMEM stays: giving it back takes the kernel a moment, in
            // which it counts against the memlock limit.
            ZeroCopy::Auto => match bind(BindFlags::XDP_ZEROCOPY) {
                Err(refusal) if errno(&refusal) != Some(libc::EBUSY) => {
                    mode_reason = Some(refused(&refusal));
                    bind(BindFlags::XDP_COPY)?
                }
                result => result?,
            },
        };
        let (fill, completion) = rings.context("the first socket of a UMEM has the fill and completion rings")?;
        let zero_copy = sys::is_zero_copy(fd(&rx)).context("XDP_OPTIONS")?;
        // Kernels before 6.17 do not know the option and keep their budget.
        let has_budget = !zero_copy && sys::set_tx_budget(fd(&rx), options.ring_frames).is_ok();
        let tx_budget = if has_budget { options.ring_frames } else { DEFAULT_TX_BUDGET };
        Ok((Self { umem, rx, tx, fill, completion, zero_copy, tx_budget, mode_reason }, descs))
    }
}

/// The file descriptor of a socket, by one of its rings.
fn fd(rx: &RxQueue) -> BorrowedFd<'_> {
    // SAFETY: the descriptor stays open for as long as the ring, which outlives the borrow.
    unsafe { BorrowedFd::borrow_raw(rx.fd().as_raw_fd()) }
}

/// Frames are counted in 32 bits, as rings are.
#[expect(clippy::cast_possible_truncation, reason = "a batch has at most BATCH frames")]
fn count(frames: usize) -> u32 {
    frames as u32
}

#[cfg(test)]
mod tests {
    use std::ffi::c_void;

    /// CASES 23: ring indices are 32 bits and wrap after 2^32 frames, which at a million a second is an hour and twelve minutes.
    ///
    /// A TX ring laid out as the kernel's, its indices about to wrap, is filled and drained many times over.
    #[test]
    fn case_23_ring_indices_wrap() {
        use libxdp_sys::{
            xdp_desc, xsk_ring_cons, xsk_ring_cons__peek, xsk_ring_cons__release, xsk_ring_cons__rx_desc,
            xsk_ring_prod, xsk_ring_prod__reserve, xsk_ring_prod__submit, xsk_ring_prod__tx_desc,
        };
        const SIZE: u32 = 8;
        let start = u32::MAX - 20;
        let (mut producer, mut consumer, mut flags) = (start, start, 0u32);
        let mut descs = [xdp_desc { addr: 0, len: 0, options: 0 }; SIZE as usize];
        let ring = descs.as_mut_ptr().cast::<c_void>();
        // A producer keeps the consumer's index one ring ahead, so that free space is a subtraction.
        let mut tx = xsk_ring_prod {
            cached_prod: start,
            cached_cons: start.wrapping_add(SIZE),
            mask: SIZE - 1,
            size: SIZE,
            producer: &raw mut producer,
            consumer: &raw mut consumer,
            ring,
            flags: &raw mut flags,
        };
        let mut rx = xsk_ring_cons {
            cached_prod: start,
            cached_cons: start,
            mask: SIZE - 1,
            size: SIZE,
            producer: &raw mut producer,
            consumer: &raw mut consumer,
            ring,
            flags: &raw mut flags,
        };
        let mut next = 0u64;
        for batch in (1..=SIZE).cycle().take(100) {
            let mut index = 0;
            // SAFETY: both rings point to the locals above, which outlive them, and only this thread uses them; each index is one
            // that the ring gave out, and is masked to the ring's size.
            unsafe {
                assert_eq!(xsk_ring_prod__reserve(&raw mut tx, batch, &raw mut index), batch);
                for offset in 0..batch {
                    (*xsk_ring_prod__tx_desc(&raw mut tx, index.wrapping_add(offset))).addr = next + u64::from(offset);
                }
                xsk_ring_prod__submit(&raw mut tx, batch);
                assert_eq!(
                    xsk_ring_cons__peek(&raw mut rx, SIZE, &raw mut index),
                    batch,
                    "all that was put in comes out"
                );
                for offset in 0..batch {
                    assert_eq!(
                        (*xsk_ring_cons__rx_desc(&raw const rx, index.wrapping_add(offset))).addr,
                        next + u64::from(offset)
                    );
                }
                xsk_ring_cons__release(&raw mut rx, batch);
            }
            next += u64::from(batch);
        }
        assert!(producer < start && producer == consumer, "the indices have wrapped: {producer}");
    }
}
