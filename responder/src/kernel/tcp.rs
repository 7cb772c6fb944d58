//! DNS over TCP (RFC 7766, 9210): each message behind its length in two bytes, many on one connection, answered in the order they came.
//!
//! Lives on the control thread: what comes by TCP is rare, and one slow client must not hold a worker. Every wait is bounded, and so is
//! the number of connections, in all and per client; the connection that is over the limit is closed at once.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    io,
    net::{IpAddr, SocketAddr},
    rc::Rc,
    time::Duration,
};

use anyhow::{Context, Result};
use socket2::Protocol;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
    time::timeout,
};

use super::Sharing;
use crate::{
    answer::{Outcome, Transport},
    counters::Counters,
    service::Service,
};

/// RFC 7766 section 6.2.3 asks for seconds; a client that has nothing to say for this long is gone.
const IDLE: Duration = Duration::from_secs(10);
/// A message that has begun must end, and a reply must be taken, within this time.
const STEP: Duration = Duration::from_secs(5);
const CONNECTIONS_MAX: usize = 1000;
const CONNECTIONS_PER_CLIENT_MAX: usize = 50;
const BACKLOG: i32 = 1024;
/// The largest message that two bytes can announce.
const MESSAGE_MAX: usize = 65_535;
const LENGTH_LEN: usize = 2;

/// What all connections share; one thread has them all.
pub(super) struct Shared {
    service: Service,
    pub(super) counters: Counters,
    pub(super) accepted: Cell<u64>,
    clients: RefCell<HashMap<IpAddr, usize>>,
}

impl Shared {
    pub(super) fn new(service: Service) -> Self {
        Self {
            service,
            counters: Counters::default(),
            accepted: Cell::new(0),
            clients: RefCell::default(),
        }
    }
}

/// A listening socket. Dropping it closes it; connections end by themselves.
pub(super) struct Listener(JoinHandle<()>);

impl Listener {
    /// Listens on an address. Called on a `LocalSet`.
    pub(super) fn start(address: SocketAddr, shared: &Rc<Shared>) -> Result<Self> {
        let socket = super::bind(address, Protocol::TCP, Sharing::Nobody)?;
        let listen = || -> io::Result<TcpListener> {
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            TcpListener::from_std(socket.into())
        };
        let listener = listen().with_context(|| format!("cannot listen on TCP {address}"))?;
        Ok(Self(tokio::task::spawn_local(accept(listener, Rc::clone(shared)))))
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn accept(listener: TcpListener, shared: Rc<Shared>) {
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            // The client is gone again, or there are no descriptors left: either way, not a reason to spin.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let Some(place) = Place::take(&shared, peer.ip()) else { continue };
        shared.accepted.set(shared.accepted.get() + 1);
        tokio::task::spawn_local(async move {
            // An error is the end of this connection and of nothing else.
            let _ = serve(stream, &place.shared).await;
        });
    }
}

/// One connection's place among those that are allowed.
struct Place {
    shared: Rc<Shared>,
    client: IpAddr,
}

impl Place {
    fn take(shared: &Rc<Shared>, client: IpAddr) -> Option<Self> {
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
async fn serve(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; LENGTH_LEN + MESSAGE_MAX];
    loop {
        let first = timeout(IDLE, stream.read_u8()).await??;
        let length = timeout(STEP, stream.read_u8()).await??;
        let length = usize::from(u16::from_be_bytes([first, length]));
        if length == 0 {
            return Ok(());
        }
        timeout(STEP, stream.read_exact(&mut buffer[LENGTH_LEN..LENGTH_LEN + length])).await??;
        // No guard here: whoever has completed a handshake is where it says, and TCP has no port 0.
        let outcome = shared.service.serve(&mut buffer[LENGTH_LEN..], length, Transport::Tcp);
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
