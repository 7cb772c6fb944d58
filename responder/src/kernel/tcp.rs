//! DNS over TCP (RFC 7766, 9210): each message behind its length in two bytes, many on one connection, answered in the order they came.
//!
//! Lives on the control thread: what comes by TCP is rare, and one slow client must not hold a worker. Every wait is bounded, and so is
//! the number of connections, in all and per client; the connection that is over the limit is closed at once.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result};
use socket2::{Protocol, SockRef};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

use super::Sharing;
use crate::{
    answer::{Outcome, Transport},
    counters::{Counters, DropReason},
    guard::acl::Action,
    service::{self, Service, State},
};

/// RFC 7766 section 6.2.3 asks for seconds; a client that has nothing to say for this long is gone.
const IDLE: Duration = Duration::from_secs(10);
/// A message that has begun must end, and a reply must be taken, within this time.
const STEP: Duration = Duration::from_secs(5);
/// Fewer than the 1024 descriptors that a process has by default.
const CONNECTIONS_MAX: usize = 512;
const CONNECTIONS_PER_CLIENT_MAX: usize = 32;
const BACKLOG: i32 = 1024;
/// The largest message that two bytes can announce.
const MESSAGE_MAX: usize = 65_535;
const LENGTH_LEN: usize = 2;
/// Taken from a connection at once: a few pipelined queries.
const READ: usize = 2048;

/// What all connections share; one thread has them all.
pub(super) struct Shared {
    service: RefCell<Service>,
    state: RefCell<State>,
    pub(super) counters: Counters,
    pub(super) accepted: Cell<u64>,
    clients: RefCell<HashMap<IpAddr, usize>>,
}

impl Shared {
    pub(super) fn new(service: Service, state: State) -> Self {
        Self {
            service: RefCell::new(service),
            state: RefCell::new(state),
            counters: Counters::default(),
            accepted: Cell::new(0),
            clients: RefCell::default(),
        }
    }

    /// Looks for what has been replaced. Where nobody asks over TCP, the control thread must, or the old would be held for ever.
    pub(super) fn refresh(&self) {
        self.service.borrow_mut().refresh();
        self.state.borrow_mut().refresh(service::now_s);
    }

    /// Whether the access list lets this client connect. Nothing is read from who gets no answer.
    fn admits(&self, client: IpAddr) -> bool {
        let mut state = self.state.borrow_mut();
        state.refresh(service::now_s);
        state.action(client) != Action::Drop
    }

    /// Answers a message in place.
    fn answer(&self, message: &mut [u8], length: usize, client: IpAddr) -> Outcome {
        self.refresh();
        let mut state = self.state.borrow_mut();
        self.service.borrow().serve(&mut state, message, length, client, Transport::Tcp, &self.counters)
    }
}

/// A listening socket and the task that accepts from it. Dropping it closes the socket; connections end by themselves.
pub(super) struct Listener {
    socket: Rc<TcpListener>,
    task: JoinHandle<()>,
}

impl Listener {
    /// Listens on an address. Called on a `LocalSet`.
    pub(super) fn start(address: SocketAddr, shared: &Rc<Shared>) -> Result<Self> {
        let socket = super::bind(address, Protocol::TCP, Sharing::Nobody)?;
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
        let Ok((stream, peer)) = listener.accept().await else {
            // The client is gone again, or there are no descriptors left: either way, not a reason to spin.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
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
            let _ = serve(stream, peer.ip(), &place.shared).await;
        });
    }
}

/// One connection's place among those that are allowed.
struct Place {
    shared: Rc<Shared>,
    client: IpAddr,
}

impl Place {
    fn take(shared: &Rc<Shared>, peer: IpAddr) -> Option<Self> {
        // An IPv6 host can have any address of its network.
        let client = match peer {
            IpAddr::V4(_) => peer,
            IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & !u128::from(u64::MAX)).into(),
        };
        let mut clients = shared.clients.borrow_mut();
        let total: usize = clients.values().sum();
        let mine = clients.get(&client).copied().unwrap_or(0);
        if total >= CONNECTIONS_MAX || mine >= CONNECTIONS_PER_CLIENT_MAX {
            return None;
        }
        clients.insert(client, mine + 1);
        Some(Self { shared: Rc::clone(shared), client })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut clients = self.shared.clients.borrow_mut();
        if let Some(count) = clients.get_mut(&self.client) {
            *count -= 1;
            if *count == 0 {
                clients.remove(&self.client);
            }
        }
    }
}

/// Answers message after message until the client ends, errs or is too slow.
async fn serve(stream: TcpStream, client: IpAddr, shared: &Shared) -> io::Result<()> {
    // A reply is written whole: there is nothing to wait for.
    stream.set_nodelay(true)?;
    let mut stream = BufReader::with_capacity(READ, stream);
    let mut buffer = vec![0; LENGTH_LEN + MESSAGE_MAX];
    loop {
        let first = timeout(IDLE, stream.read_u8()).await??;
        let length = timeout(STEP, stream.read_u8()).await??;
        let length = usize::from(u16::from_be_bytes([first, length]));
        if length == 0 {
            shared.counters.batch(1, 0);
            shared.counters.dropped_one(DropReason::ShortMessage);
            return Ok(());
        }
        timeout(STEP, stream.read_exact(&mut buffer[LENGTH_LEN..LENGTH_LEN + length])).await??;
        // Own addresses are not looked for here: whoever has completed a handshake is where it says, and TCP has no port 0.
        let outcome = shared.answer(&mut buffer[LENGTH_LEN..], length, client);
        match outcome {
            Outcome::Reply(length) => {
                let prefix = u16::try_from(length).map_err(io::Error::other)?.to_be_bytes();
                buffer[..LENGTH_LEN].copy_from_slice(&prefix);
                shared.counters.batch(1, 1);
                timeout(STEP, stream.write_all(&buffer[..LENGTH_LEN + length])).await??;
            }
            Outcome::Drop(reason) => {
                shared.counters.batch(1, 0);
                shared.counters.dropped_one(reason);
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::{task::LocalSet, time::Instant};

    use super::*;
    use crate::latest::Latest;

    fn shared() -> Rc<Shared> {
        Rc::new(Shared::new(Service::Echo, State::new(&Latest::default(), 1, 1500)))
    }

    async fn connected(shared: &Rc<Shared>) -> (TcpStream, Listener) {
        let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        let listener = Listener::new(socket, shared);
        (TcpStream::connect(address).await.unwrap(), listener)
    }

    fn open(shared: &Shared) -> usize {
        shared.clients.borrow().values().sum()
    }

    /// Time stands still while the runtime has work and jumps to the next deadline when it has none.
    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        LocalSet::new().block_on(&runtime, test);
    }

    #[test]
    fn a_client_that_says_nothing_more_is_let_go() {
        run(async {
            for (beginning, within) in [(&b""[..], IDLE), (b"\0", STEP), (b"\0\x10half", STEP)] {
                let shared = shared();
                let (mut client, _listener) = connected(&shared).await;
                client.write_all(beginning).await.unwrap();
                let start = Instant::now();
                assert_eq!(client.read(&mut [0; 16]).await.unwrap(), 0, "{beginning:?}");
                assert_eq!(start.elapsed().as_secs(), within.as_secs(), "{beginning:?}");
                assert_eq!(open(&shared), 0);
            }
        });
    }

    #[test]
    fn a_client_that_never_reads_is_let_go() {
        run(async {
            let shared = shared();
            let (mut client, _listener) = connected(&shared).await;
            let message = vec![0xff; LENGTH_LEN + MESSAGE_MAX];
            let mut taken = 0;
            while client.write_all(&message).await.is_ok() {
                taken += 1;
                assert!(taken < 1000, "64 MiB taken and none of it read back");
            }
            assert_eq!(open(&shared), 0);
        });
    }

    #[test]
    fn one_client_cannot_take_all_places() {
        let shared = shared();
        let take = |address: &str| Place::take(&shared, address.parse().unwrap());
        let mut greedy: Vec<Place> = (0..100).filter_map(|host| take(&format!("2001:db8::{host}"))).collect();
        assert_eq!(greedy.len(), CONNECTIONS_PER_CLIENT_MAX, "one network is one client");
        let other = take("2001:db8:0:1::1");
        assert!(other.is_some(), "another network is another");
        greedy.pop();
        greedy.extend(take("2001:db8::1"));
        assert_eq!(greedy.len(), CONNECTIONS_PER_CLIENT_MAX, "what is given back can be taken again");
        drop((greedy, other));
        assert!(shared.clients.borrow().is_empty());
    }

    #[test]
    fn all_clients_together_are_bounded() {
        let shared = shared();
        let places: Vec<Place> = (0..2000u32).filter_map(|n| Place::take(&shared, n.to_be_bytes().into())).collect();
        assert_eq!((places.len(), open(&shared)), (CONNECTIONS_MAX, CONNECTIONS_MAX));
    }
}
