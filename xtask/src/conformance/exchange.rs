//! Queries to a server and its replies back: over UDP with a window of them on their way, over TCP one after the other.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::Context as _;

/// Queries on their way at a time; more would overflow a server's socket.
const WINDOW: usize = 150;
/// Nothing has come for so long: those on their way are not answered, and the next are sent.
const STALLED: Duration = Duration::from_millis(30);
/// Nothing has come for so long: what is missing was not answered, or was lost. The second time is for the lost.
const QUIET: [Duration; 2] = [Duration::from_millis(200), Duration::from_millis(600)];
/// How long a reply over TCP may take.
const TCP_MAX: Duration = Duration::from_secs(2);

/// Where queries come from: an address that is no server's.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 9);

/// Asks over UDP: a reply for each query, or `None`. Every query gets the ID `first_id` + its index, whatever it had.
pub fn udp(server: SocketAddr, queries: &[Vec<u8>], first_id: u16) -> anyhow::Result<Vec<Option<Vec<u8>>>> {
    let socket = UdpSocket::bind((CLIENT, 0)).context("opening a socket")?;
    socket.connect(server).context("connecting a socket")?;
    let mut replies: Vec<Option<Vec<u8>>> = vec![None; queries.len()];
    let id = |index: usize| first_id.wrapping_add(u16::try_from(index).unwrap_or(u16::MAX));
    let mut buffer = vec![0; 65_536];
    for quiet in QUIET {
        let mut waiting: Vec<usize> = (0..queries.len()).filter(|index| replies[*index].is_none()).rev().collect();
        let mut on_the_way = 0usize;
        loop {
            while on_the_way < WINDOW {
                let Some(index) = waiting.pop() else { break };
                let mut query = queries[index].clone();
                for (byte, id) in query.iter_mut().zip(id(index).to_be_bytes()) {
                    *byte = id;
                }
                socket.send(&query).context("sending a query")?;
                on_the_way += 1;
            }
            if on_the_way == 0 {
                break;
            }
            socket.set_read_timeout(Some(if waiting.is_empty() { quiet } else { STALLED }))?;
            let len = match socket.recv(&mut buffer) {
                Ok(len) => len,
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    on_the_way = 0;
                    if waiting.is_empty() {
                        break;
                    }
                    continue;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error).context("receiving a reply"),
            };
            let Some(reply_id) = buffer[..len].first_chunk().map(|id| u16::from_be_bytes(*id)) else { continue };
            if let Some(place) = replies.get_mut(usize::from(reply_id.wrapping_sub(first_id)))
                && place.is_none()
            {
                *place = Some(buffer[..len].to_vec());
                on_the_way = on_the_way.saturating_sub(1);
            }
        }
        if replies.iter().all(Option::is_some) {
            break;
        }
    }
    Ok(replies)
}

/// Asks over TCP (RFC 7766): a reply for each query, or `None`. A connection that the server closes is opened again.
pub fn tcp(server: SocketAddr, queries: &[Vec<u8>]) -> anyhow::Result<Vec<Option<Vec<u8>>>> {
    let mut stream = None;
    let mut replies = Vec::with_capacity(queries.len());
    for query in queries {
        let mut reply = None;
        for _ in 0..2 {
            let open = match &mut stream {
                Some(open) => open,
                None => stream.insert(connect(server)?),
            };
            match ask(open, query) {
                Ok(bytes) => {
                    reply = Some(bytes);
                    break;
                }
                Err(_) => stream = None,
            }
        }
        replies.push(reply);
    }
    Ok(replies)
}

/// Asks for a whole zone (RFC 5936): its messages, until the SOA comes for the second time.
pub fn transfer(
    server: SocketAddr,
    query: &[u8],
    is_last: impl Fn(&[Vec<u8>]) -> bool,
) -> anyhow::Result<Vec<Vec<u8>>> {
    let mut stream = connect(server)?;
    let mut messages = vec![ask(&mut stream, query).context("asking for a zone")?];
    while !is_last(&messages) {
        messages.push(receive(&mut stream).context("reading a zone")?);
    }
    Ok(messages)
}

fn connect(server: SocketAddr) -> anyhow::Result<TcpStream> {
    let started = Instant::now();
    loop {
        match TcpStream::connect_timeout(&server, TCP_MAX) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(TCP_MAX))?;
                return Ok(stream);
            }
            Err(error) if started.elapsed() > TCP_MAX => {
                return Err(error).with_context(|| format!("connecting to {server} over TCP"));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn ask(stream: &mut TcpStream, query: &[u8]) -> std::io::Result<Vec<u8>> {
    let length = u16::try_from(query.len()).unwrap_or(u16::MAX);
    stream.write_all(&[&length.to_be_bytes(), query].concat())?;
    receive(stream)
}

fn receive(stream: &mut TcpStream) -> std::io::Result<Vec<u8>> {
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message)?;
    Ok(message)
}
