//! An open loop of queries, and what became of each of them, by the time at which it was sent.
//!
//! Queries leave at the planned rate whether replies come or not. A reply's time is that at which the kernel received it, so that the asker's own sleep
//! is not in the latency.

use std::{
    net::{SocketAddr, UdpSocket},
    os::fd::AsRawFd,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, Instant, SystemTime},
};

use anyhow::Context as _;
use nix::{
    cmsg_space,
    sys::{
        socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt},
        time::TimeSpec,
    },
};

use super::zone::{self, Query};

/// What is counted together.
pub const BUCKET: Duration = Duration::from_millis(100);
/// A reply that takes longer does not count.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// Sockets, each with a port of its own, half of them for each address.
const FLOWS: usize = 64;
/// Queries between two looks for replies.
const BATCH: u64 = 32;
const PAUSE: Duration = Duration::from_micros(200);
/// When the asker was held up for longer, what was not sent is given up instead of being sent at once.
const BACKLOG_S: f64 = 0.02;
const RECEIVE_BUFFER: usize = 4 << 20;

/// What became of the queries that were sent in a tenth of a second.
#[derive(Clone, Debug, Default)]
pub struct Bucket {
    /// Queries sent.
    pub sent: u64,
    /// Microseconds from query to reply, of those that were answered.
    pub latencies_us: Vec<u32>,
    /// Replies that are no answer, or of two versions at once.
    pub wrong: u64,
}

impl Bucket {
    /// Queries without a reply in time.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.sent - (self.latencies_us.len() as u64).min(self.sent)
    }

    /// The latency that one in a hundred of the answers exceeds.
    #[must_use]
    pub fn p99_us(&self) -> Option<u32> {
        let mut latencies = self.latencies_us.clone();
        latencies.sort_unstable();
        latencies.get(latencies.len().saturating_sub(1) * 99 / 100).copied()
    }
}

struct Flow {
    socket: UdpSocket,
    next_id: u16,
    /// When the query with this ID was sent, if it has no reply yet.
    sent: Vec<Option<SystemTime>>,
}

/// Asks the servers for names of the zone until `stop`, from the namespace that this is called in. `start` is the begin of the first bucket.
pub fn ask(
    servers: &[SocketAddr],
    names: u32,
    rate: u32,
    start: SystemTime,
    stop: &AtomicBool,
) -> anyhow::Result<Vec<Bucket>> {
    let mut flows = Vec::with_capacity(FLOWS);
    for server in servers.iter().cycle().take(FLOWS) {
        flows.push(Flow::open(*server)?);
    }
    let (mut buckets, mut query) = (Vec::new(), Query::new());
    let (began, mut done, mut turn, mut random) = (Instant::now(), 0_u64, 0, 0x9e37_79b9_u32);
    while !stop.load(Relaxed) {
        let planned = began.elapsed().as_secs_f64() * f64::from(rate);
        // Neither is negative nor large.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of queries")]
        let (planned, backlog) = (planned as u64, (f64::from(rate) * BACKLOG_S) as u64 + 1);
        done = done.max(planned.saturating_sub(backlog));
        let batch = planned.saturating_sub(done).min(BATCH);
        for _ in 0..batch {
            random ^= random << 13;
            random ^= random >> 17;
            random ^= random << 5;
            flows[turn].ask(&mut query, &mut buckets, start, random % names);
            turn = (turn + 1) % flows.len();
        }
        done += batch;
        flows.iter_mut().for_each(|flow| flow.receive(&mut buckets, start));
        if batch < BATCH {
            thread::sleep(PAUSE);
        }
    }
    let end = Instant::now() + LOST_AFTER;
    while Instant::now() < end {
        flows.iter_mut().for_each(|flow| flow.receive(&mut buckets, start));
        thread::sleep(PAUSE);
    }
    Ok(buckets)
}

impl Flow {
    fn open(server: SocketAddr) -> anyhow::Result<Self> {
        let open = || -> std::io::Result<UdpSocket> {
            let socket = UdpSocket::bind(if server.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" })?;
            socket.connect(server)?;
            socket.set_nonblocking(true)?;
            setsockopt(&socket, sockopt::ReceiveTimestampns, &true)?;
            setsockopt(&socket, sockopt::RcvBufForce, &RECEIVE_BUFFER)?;
            Ok(socket)
        };
        let socket = open().with_context(|| format!("opening a socket to {server}"))?;
        Ok(Self { socket, next_id: 0, sent: vec![None; 1 << 16] })
    }

    fn ask(&mut self, query: &mut Query, buckets: &mut Vec<Bucket>, start: SystemTime, name: u32) {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let now = SystemTime::now();
        bucket(buckets, start, now).sent += 1;
        // What cannot be sent, while a link is down, is lost. So is an earlier query with the same ID.
        let is_sent = self.socket.send(query.set(id, name)).is_ok();
        self.sent[usize::from(id)] = is_sent.then_some(now);
    }

    fn receive(&mut self, buckets: &mut Vec<Bucket>, start: SystemTime) {
        let mut room = [0; 512];
        let mut control = cmsg_space!(TimeSpec);
        loop {
            let mut vectors = [std::io::IoSliceMut::new(&mut room)];
            let received = recvmsg::<()>(self.socket.as_raw_fd(), &mut vectors, Some(&mut control), MsgFlags::empty());
            let Ok(received) = received else {
                // Nothing is there. Or the port could not be reached, which is an error once: that query is lost.
                return;
            };
            let at = received.cmsgs().ok().and_then(|mut messages| {
                messages.find_map(|message| match message {
                    ControlMessageOwned::ScmTimestampns(time) => Some(SystemTime::UNIX_EPOCH + Duration::from(time)),
                    _ => None,
                })
            });
            let length = received.bytes;
            let reply = &room[..length];
            let id = reply.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
            let Some(sent) = self.sent[usize::from(id)].take() else { continue };
            let latency = at.and_then(|at| at.duration_since(sent).ok()).unwrap_or_default();
            if latency > LOST_AFTER {
                continue;
            }
            let bucket = bucket(buckets, start, sent);
            bucket.latencies_us.push(u32::try_from(latency.as_micros()).unwrap_or(u32::MAX));
            bucket.wrong += u64::from(zone::version(reply).is_none());
        }
    }
}

fn bucket(buckets: &mut Vec<Bucket>, start: SystemTime, at: SystemTime) -> &mut Bucket {
    let index = at.duration_since(start).unwrap_or_default().as_millis() / BUCKET.as_millis();
    let index = usize::try_from(index).unwrap_or(0);
    if buckets.len() <= index {
        buckets.resize(index + 1, Bucket::default());
    }
    &mut buckets[index]
}
