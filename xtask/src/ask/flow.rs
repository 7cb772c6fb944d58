//! One flow: a connected socket with a port of its own, and the queries on it that wait for their replies.

use std::{
    collections::{BTreeSet, VecDeque},
    io::{self, ErrorKind},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde::Serialize;

use super::variant::Variants;
use crate::oracle::Oracle;

/// A reply that takes longer does not count.
pub const LOST_AFTER: Duration = Duration::from_secs(1);
/// More than any reply: what is longer must not look like a whole one.
const REPLY_MAX: usize = 4096;
/// Queries that can wait on a flow: IDs must stay distinct.
const WAITING_MAX: usize = 1 << 15;

/// The IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Family {
    /// IPv4.
    #[serde(rename = "IPv4")]
    V4,
    /// IPv6.
    #[serde(rename = "IPv6")]
    V6,
}

#[derive(Debug)]
pub(super) struct Flow {
    socket: UdpSocket,
    pub(super) family: Family,
    pub(super) port: u16,
    /// The server's queue that its queries come in on, when that is known.
    pub(super) rx_queue: Option<u32>,
    pub(super) counts: Counts,
    /// Oldest first; IDs are consecutive, the next query gets `next_id`.
    waiting: VecDeque<Waiting>,
    next_id: u16,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    pub(super) sent: u64,
    pub(super) right: u64,
    pub(super) wrong: u64,
    pub(super) lost: u64,
    /// Replies to no query that waits: a second one, one too late, one with a foreign ID.
    pub(super) unexpected: u64,
}

#[derive(Debug)]
struct Waiting {
    variant: usize,
    sent: Instant,
    answered: bool,
}

impl Flow {
    /// Opens a flow to `server` from a port that is not in `ports`, in the network namespace of the calling thread.
    pub(super) fn open(server: SocketAddr, ports: &mut BTreeSet<u16>) -> anyhow::Result<Self> {
        let (family, any): (_, IpAddr) = match server {
            SocketAddr::V4(_) => (Family::V4, Ipv4Addr::UNSPECIFIED.into()),
            SocketAddr::V6(_) => (Family::V6, Ipv6Addr::UNSPECIFIED.into()),
        };
        let (socket, port) = loop {
            let socket = UdpSocket::bind((any, 0)).context("opening a socket to ask from")?;
            let port = socket.local_addr()?.port();
            if ports.insert(port) {
                break (socket, port);
            }
        };
        socket.connect(server).with_context(|| format!("connecting to {server}"))?;
        socket.set_nonblocking(true)?;
        let (counts, waiting) = (Counts::default(), VecDeque::new());
        Ok(Self { socket, family, port, rx_queue: None, counts, waiting, next_id: port })
    }

    /// Sends a query so many times, one after the other, and waits for each reply, which is not judged.
    pub(super) fn ask_alone(&self, query: &[u8], times: u64, patience: Duration) -> anyhow::Result<()> {
        let mut reply = [0; REPLY_MAX];
        for _ in 0..times {
            let end = Instant::now() + patience;
            let mut resend = Instant::now();
            loop {
                let now = Instant::now();
                if now >= end {
                    bail!("no reply over {:?} within {patience:?}: is the server serving that address?", self.family);
                }
                if now >= resend {
                    resend = now + Duration::from_millis(200);
                    ignore_refusal(self.socket.send(query))?;
                }
                if ignore_refusal(self.socket.recv(&mut reply))?.is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
        Ok(())
    }

    /// Throws away what has come: replies to what was asked twice.
    pub(super) fn forget(&mut self) -> anyhow::Result<()> {
        while ignore_refusal(self.socket.recv(&mut [0; REPLY_MAX]))?.is_some() {}
        Ok(())
    }

    /// Sends a query of the run.
    pub(super) fn send(&mut self, variant: usize, variants: &Variants, now: Instant) -> anyhow::Result<()> {
        if self.waiting.len() == WAITING_MAX {
            self.drop_oldest();
        }
        let mut query = [0; 512];
        let bytes = variants.bytes(variant);
        let query = &mut query[..bytes.len()];
        query.copy_from_slice(bytes);
        query[..2].copy_from_slice(&self.next_id.to_be_bytes());
        // What the kernel does not take now is lost, as it would be further on.
        ignore_refusal(self.socket.send(query))?;
        self.waiting.push_back(Waiting { variant, sent: now, answered: false });
        self.next_id = self.next_id.wrapping_add(1);
        self.counts.sent += 1;
        Ok(())
    }

    /// Takes all replies that are there, and gives up the queries that have waited too long.
    pub(super) fn receive(&mut self, oracle: &Oracle, variants: &mut Variants, now: Instant) -> anyhow::Result<()> {
        let mut reply = [0; REPLY_MAX];
        while let Some(len) = ignore_refusal(self.socket.recv(&mut reply))? {
            self.take(&reply[..len], oracle, variants);
        }
        while self.waiting.front().is_some_and(|query| query.answered || now.duration_since(query.sent) > LOST_AFTER) {
            self.drop_oldest();
        }
        Ok(())
    }

    fn take(&mut self, reply: &[u8], oracle: &Oracle, variants: &mut Variants) {
        let waiting = reply.first_chunk().and_then(|&id| {
            let id = u16::from_be_bytes(id);
            // The newest is one before `next_id`.
            let age = usize::from(self.next_id.wrapping_sub(id));
            Some((id, self.waiting.len().checked_sub(age).filter(|_| age > 0)?))
        });
        let query = waiting.and_then(|(id, index)| Some((id, self.waiting.get_mut(index)?)));
        let Some((id, query)) = query.filter(|(_, query)| !query.answered) else {
            self.counts.unexpected += 1;
            return;
        };
        query.answered = true;
        if variants.judge(oracle, query.variant, id, reply) {
            self.counts.right += 1;
        } else {
            self.counts.wrong += 1;
        }
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.iter().any(|query| !query.answered)
    }

    /// Counts all that still waits as lost.
    pub(super) fn give_up(&mut self) {
        while !self.waiting.is_empty() {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        if self.waiting.pop_front().is_some_and(|query| !query.answered) {
            self.counts.lost += 1;
        }
    }
}

/// `None` when there is nothing to receive or no room to send, or when an ICMP error tells that nobody listens.
fn ignore_refusal(result: io::Result<usize>) -> anyhow::Result<Option<usize>> {
    match result {
        Ok(len) => Ok(Some(len)),
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::WouldBlock
                    | ErrorKind::Interrupted
                    | ErrorKind::ConnectionRefused
                    | ErrorKind::HostUnreachable
                    | ErrorKind::NetworkUnreachable
            ) || error.raw_os_error() == Some(nix::libc::ENOBUFS) =>
        {
            Ok(None)
        }
        Err(error) => Err(error).context("asking"),
    }
}
