//! All that answers queries, one by one, whichever path it is of.

use std::collections::BTreeMap;

use super::{Path, Queue, Status, Traffic};

/// What a worker serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// A receive queue, on the bypass.
    Queue {
        /// The name of its interface.
        interface: &'a str,
        /// Its number.
        queue: u32,
    },
    /// UDP at an address, through the kernel.
    Udp(&'a str),
    /// TCP at all addresses.
    Tcp,
}

/// What one worker has counted since the start.
#[derive(Clone, Copy, Debug)]
pub struct Worker<'a> {
    /// What it serves.
    pub place: Place<'a>,
    /// The CPU it is pinned to, if it is.
    pub cpu: Option<usize>,
    /// Its thread id.
    pub thread: Option<i32>,
    /// Packets and TCP messages received.
    pub received: u64,
    /// Replies given to the kernel.
    pub answered: u64,
    /// Batches taken.
    pub batches: u64,
    /// What got no reply, by reason.
    pub dropped: &'a BTreeMap<String, u64>,
    /// Replies over the rate limit that went out empty with TC.
    pub limited_slipped: u64,
    /// What the messages and their replies were like.
    pub traffic: &'a Traffic,
}

impl<'a> Worker<'a> {
    fn of_queue(interface: &'a str, queue: &'a Queue) -> Self {
        Self {
            place: Place::Queue { interface, queue: queue.queue },
            cpu: Some(queue.cpu),
            thread: Some(queue.thread),
            received: queue.received,
            answered: queue.answered,
            batches: queue.batches,
            dropped: &queue.dropped,
            limited_slipped: queue.limited_slipped,
            traffic: &queue.traffic,
        }
    }

    fn of_kernel(place: Place<'a>, cpu: Option<usize>, thread: Option<i32>, path: &'a Path) -> Self {
        Self {
            place,
            cpu,
            thread,
            received: path.received,
            answered: path.answered,
            batches: path.batches,
            dropped: &path.dropped,
            limited_slipped: path.limited_slipped,
            traffic: &path.traffic,
        }
    }
}

impl Status {
    /// Queues, then threads of UDP sockets, then TCP.
    pub fn workers(&self) -> impl Iterator<Item = Worker<'_>> {
        let queues = self
            .interfaces
            .iter()
            .flat_map(|interface| interface.queues.iter().map(|queue| Worker::of_queue(&interface.name, queue)));
        let threads = self.kernel_path.udp_workers.iter().map(|worker| {
            Worker::of_kernel(Place::Udp(&worker.address), Some(worker.cpu), Some(worker.thread), &worker.counts)
        });
        // TCP is served by the process's first thread.
        let tcp = Worker::of_kernel(Place::Tcp, None, i32::try_from(self.pid).ok(), &self.kernel_path.tcp);
        queues.chain(threads).chain([tcp])
    }
}
