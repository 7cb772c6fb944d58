//! DNS over TCP (RFC 7766, 9210): each message behind its length in two bytes, many on one connection.
//!
//! Lives on the control thread: what comes by TCP is rare, and one slow client must not hold a worker. An answer is made as soon as its query is
//! there, so none has to overtake another: those of one connection are in the order of the queries, and what was asked in one piece is answered in one.
//!
//! Every wait is bounded, and so are the connections, in all and per client. Where there are as many as may be, a new one has the place of the one
//! that has been idle the longest; of a client that has its share the new one is closed. An idle connection holds no buffer.

use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, HashMap},
    io,
    net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use socket2::{Protocol, SockRef};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use super::{Options, Sharing};
use crate::{
    answer::{Outcome, Transport},
    counters::{Counters, DropReason},
    guard::acl::Action,
    service::{self, Service, State},
    sys,
};

/// A message that has begun must end, and replies must be taken, within this time.
const STEP: Duration = Duration::from_secs(5);
const BACKLOG: i32 = 1024;
/// Connections that may send data with their first packet before they are accepted (RFC 7413).
const FAST_OPEN: u32 = 256;
/// Descriptors for everything else: sockets of addresses and queues, maps, files being read.
const DESCRIPTORS: usize = 512;
/// The largest message that two bytes can announce.
const MESSAGE_MAX: usize = 65_535;
const LENGTH_LEN: usize = 2;
/// Taken from a connection at once: a few pipelined queries.
const READ: usize = 2048;
/// Replies of more bytes are sent before further queries are answered.
const WRITE: usize = 64 * 1024;

/// What bounds connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// RFC 7766 section 6.2.3 asks for seconds; a client that has nothing to say for this long is gone.
    pub idle: Duration,
    /// Connections in all.
    pub connections: usize,
    /// Connections of one client.
    pub per_client: usize,
}

impl Limits {
    /// Has the system allow as many descriptors as connections may take, beside those that the server needs anyhow.
    pub fn allow(&self) -> Result<()> {
        let wanted = (self.connections + DESCRIPTORS) as u64;
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("cannot read the limit of open files")?;
        ensure!(
            wanted <= hard,
            "{} connections ([tcp] connections) take {wanted} open files and the system allows {hard}: raise it (`ulimit -Hn`, LimitNOFILE= of the service) or lower them",
            self.connections
        );
        setrlimit(Resource::RLIMIT_NOFILE, soft.max(wanted), hard).context("cannot raise the limit of open files")
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self { idle: Duration::from_secs(10), connections: 512, per_client: 32 }
    }
}

/// What all connections share; one thread has them all.
pub(super) struct Shared {
    service: RefCell<Service>,
    state: RefCell<State>,
    pub(super) counters: Counters,
    pub(super) accepted: Cell<u64>,
    limits: Limits,
    /// Where a message is answered.
    room: RefCell<Vec<u8>>,
    open: Cell<usize>,
    clients: RefCell<HashMap<IpAddr, usize>>,
    /// Connections that wait for a message, by the time since when; the number tells those of one time apart. Each is told by this that it is to end.
    idle: RefCell<BTreeMap<(Instant, u64), Rc<Notify>>>,
}

impl Shared {
    pub(super) fn new(service: Service, state: State, limits: Limits) -> Self {
        Self {
            service: RefCell::new(service),
            state: RefCell::new(state),
            counters: Counters::default(),
            accepted: Cell::new(0),
            limits,
            room: RefCell::new(vec![0; MESSAGE_MAX]),
            open: Cell::new(0),
            clients: RefCell::default(),
            idle: RefCell::default(),
        }
    }

    /// Looks for what has been replaced. Where nobody asks over TCP, the control thread must, or the old would be held for ever.
    pub(super) fn refresh(&self) {
        self.service.borrow_mut().refresh();
        self.state.borrow_mut().refresh(service::now_s);
    }

    pub(super) fn has_connections(&self) -> bool {
        self.open.get() > 0
    }

    /// Whether the access list lets this client connect. Nothing is read from who gets no answer.
    fn admits(&self, client: IpAddr) -> bool {
        let mut state = self.state.borrow_mut();
        state.refresh(service::now_s);
        state.action(client) != Action::Drop
    }

    /// Answers a message, and puts the reply behind `replies`.
    fn answer(&self, message: &[u8], client: IpAddr, replies: &mut Vec<u8>) -> Result<(), DropReason> {
        if message.is_empty() {
            return Err(DropReason::ShortMessage);
        }
        let mut room = self.room.borrow_mut();
        room[..message.len()].copy_from_slice(message);
        let (service, mut state) = (self.service.borrow(), self.state.borrow_mut());
        match service.serve(&mut state, &mut room, message.len(), client, Transport::Tcp, &self.counters) {
            Outcome::Reply(length) => {
                // The room is no larger than what the prefix can say.
                replies.extend_from_slice(&u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes());
                replies.extend_from_slice(&room[..length]);
                Ok(())
            }
            Outcome::Drop(reason) => Err(reason),
        }
    }

    /// Has the connection end that has been idle the longest, if any is.
    fn evict(&self) -> bool {
        let longest = self.idle.borrow_mut().pop_first();
        longest.inspect(|(_, end)| end.notify_one()).is_some()
    }
}

/// A listening socket and the task that accepts from it. Dropping it closes the socket; connections end by themselves.
pub(super) struct Listener {
    socket: Rc<TcpListener>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Listens on an address. Called on a `LocalSet`.
    pub(super) fn start(address: SocketAddr, options: &Options, shared: &Rc<Shared>) -> Result<Self> {
        options.check_free(address, Protocol::TCP)?;
        let socket = super::bind(address, Protocol::TCP, Sharing::Ours)?;
        // Where the system does not allow it there is none.
        let _ = sys::set_tcp_fast_open(&socket, FAST_OPEN);
        let listen = || -> io::Result<TcpListener> {
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket.into())
        };
        Ok(Self::new(listen().with_context(|| format!("cannot listen on TCP {address}"))?, shared))
    }

    fn new(socket: TcpListener, shared: &Rc<Shared>) -> Self {
        let socket = Rc::new(socket);
        let task = tokio::task::spawn_local(accept(Rc::clone(&socket), Rc::clone(shared)));
        Self { socket, task }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.task.abort();
        // The task lets go of the socket when the runtime next looks at it. Until then the address must be free to be listened on again.
        let _ = SockRef::from(&*self.socket).shutdown(Shutdown::Both);
    }
}

async fn accept(listener: Rc<TcpListener>, shared: Rc<Shared>) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                // The client is gone again, or there are no descriptors left, of which an idle connection has one: either way, not a reason to spin.
                if matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE)) {
                    shared.evict();
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
        };
        if !shared.admits(peer.ip()) {
            shared.counters.batch(1, 0);
            shared.counters.dropped_one(DropReason::AclDropped);
            continue;
        }
        let Some(place) = Place::take(&shared, peer.ip()) else { continue };
        shared.accepted.set(shared.accepted.get() + 1);
        tokio::task::spawn_local(async move {
            // An error is the end of this connection and of nothing else.
            let _ = serve(stream, peer.ip(), &place).await;
        });
    }
}

/// One connection's place among those that are allowed.
struct Place {
    shared: Rc<Shared>,
    client: IpAddr,
    number: u64,
    end: Rc<Notify>,
}

impl Place {
    fn take(shared: &Rc<Shared>, peer: IpAddr) -> Option<Self> {
        // An IPv6 host can have any address of its network.
        let client = match peer {
            IpAddr::V4(_) => peer,
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        };
        let mut clients = shared.clients.borrow_mut();
        let mine = clients.get(&client).copied().unwrap_or(0);
        let is_full = shared.open.get() >= shared.limits.connections;
        if mine >= shared.limits.per_client || is_full && !shared.evict() {
            return None;
        }
        clients.insert(client, mine + 1);
        shared.open.set(shared.open.get() + 1);
        let number = shared.accepted.get();
        Some(Self { shared: Rc::clone(shared), client, number, end: Rc::default() })
    }

    /// Waits for the next message to begin. False if none does, or if another connection has a better use for the place.
    async fn begins(&self, stream: &TcpStream) -> bool {
        let since = (Instant::now(), self.number);
        self.shared.idle.borrow_mut().insert(since, Rc::clone(&self.end));
        let idle = Idle { shared: &self.shared, since };
        // It is only looked at, so that there need not be room for it yet.
        let mut first = [0];
        let begun = tokio::select! {
            begun = timeout(self.shared.limits.idle, stream.peek(&mut first)) => matches!(begun, Ok(Ok(1))),
            () = self.end.notified() => false,
        };
        drop(idle);
        begun
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shared.open.set(self.shared.open.get() - 1);
        let mut clients = self.shared.clients.borrow_mut();
        if let Some(count) = clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

/// Being one of the idle connections.
struct Idle<'a> {
    shared: &'a Shared,
    since: (Instant, u64),
}

impl Drop for Idle<'_> {
    fn drop(&mut self) {
        self.shared.idle.borrow_mut().remove(&self.since);
    }
}

/// Answers message after message until the client ends, errs or is too slow.
async fn serve(mut stream: TcpStream, client: IpAddr, place: &Place) -> io::Result<()> {
    // Replies are written whole: there is nothing to wait for.
    stream.set_nodelay(true)?;
    while place.begins(&stream).await {
        let (mut received, mut replies) = (Vec::new(), Vec::new());
        let mut end_by = Instant::now() + STEP;
        // Until there is no part of a message left.
        loop {
            received.reserve(READ);
            if timeout_at(end_by, stream.read_buf(&mut received)).await?? == 0 {
                return Ok(());
            }
            let (mut at, mut is_good) = (0, true);
            place.shared.refresh();
            while is_good && let Some(message) = first(&received[at..]) {
                let answered = place.shared.answer(message, client, &mut replies);
                place.shared.counters.batch(1, u32::from(answered.is_ok()));
                if let Err(reason) = answered {
                    place.shared.counters.dropped_one(reason);
                    is_good = false;
                }
                at += LENGTH_LEN + message.len();
                if replies.len() >= WRITE {
                    timeout(STEP, stream.write_all(&replies)).await??;
                    replies.clear();
                }
            }
            if !replies.is_empty() {
                timeout(STEP, stream.write_all(&replies)).await??;
                replies.clear();
            }
            if !is_good {
                return Ok(());
            }
            if at == received.len() {
                break;
            }
            if at > 0 {
                received.drain(..at);
                end_by = Instant::now() + STEP;
            }
        }
    }
    Ok(())
}

/// The first message of what has been received, if all of it is there.
fn first(received: &[u8]) -> Option<&[u8]> {
    let (length, rest) = received.split_first_chunk()?;
    rest.get(..usize::from(u16::from_be_bytes(*length)))
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
