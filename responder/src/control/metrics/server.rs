//! The metrics endpoint: HTTP/1.1 (RFC 9112) with one resource, `GET /metrics`, and one answer per connection.
//!
//! Lives on the control thread. A scrape reads the workers' counters as `status` does and costs them nothing. Connections, the size of a request and every
//! wait are bounded. There is no encryption and no authentication: give it an address that only those who may read it can reach.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::{Result, anyhow};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, oneshot},
    time::timeout,
};

use super::{super::Request, CONTENT_TYPE, render};

/// A client that is slower than this, to ask or to read, is not waited for.
const WITHIN: Duration = Duration::from_secs(5);
/// Scrapes at once; the connection beyond is closed.
const CONNECTIONS_MAX: usize = 16;
/// The longest request line with its header fields, in bytes.
const HEAD_MAX: usize = 8192;

/// Listens at `address` and answers scrapes with what the server says to `requests`; returns the address with its port. Called within a tokio runtime.
pub fn listen(address: SocketAddr, requests: mpsc::Sender<Request>) -> Result<SocketAddr> {
    let open = || -> io::Result<(TcpListener, SocketAddr)> {
        let socket = std::net::TcpListener::bind(address)?;
        socket.set_nonblocking(true)?;
        let bound = socket.local_addr()?;
        Ok((TcpListener::from_std(socket)?, bound))
    };
    let (listener, bound) = open().map_err(|error| {
        let remedy = match error.kind() {
            io::ErrorKind::AddrInUse => format!(
                "another program has this port: `ss -lntp 'sport = :{}'` names it, or give another with --metrics",
                address.port()
            ),
            io::ErrorKind::AddrNotAvailable => "give an address of this machine with --metrics".to_owned(),
            _ => "give another address with --metrics".to_owned(),
        };
        anyhow!("cannot serve metrics at {address}: {error}: {remedy}")
    })?;
    tokio::spawn(accept(listener, requests));
    Ok(bound)
}

async fn accept(listener: TcpListener, requests: mpsc::Sender<Request>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // The client is gone again, or there are no descriptors left.
            tokio::time::sleep(Duration::from_millis(10)).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let requests = requests.clone();
        tokio::spawn(async move {
            // An error is the end of this client and of nothing else.
            let _ = serve(stream, &requests).await;
            drop(place);
        });
    }
}

async fn serve(mut stream: TcpStream, requests: &mpsc::Sender<Request>) -> io::Result<()> {
    let mut head = Vec::new();
    let asked = match timeout(WITHIN, read_head(&mut stream, &mut head)).await? {
        Ok(()) => Asked::parse(&head),
        Err(error) if error.kind() == io::ErrorKind::InvalidData => Err(TOO_LARGE),
        Err(error) => return Err(error),
    };
    let reply = match asked {
        Ok(asked) => match scrape(requests).await {
            Some(text) => response("200 OK", CONTENT_TYPE, "", &text, asked == Asked::Get),
            None => refusal(NOT_READY),
        },
        Err(error) => refusal(error),
    };
    timeout(WITHIN, stream.write_all(reply.as_bytes())).await??;
    timeout(WITHIN, stream.shutdown()).await?
}

/// Reads up to the empty line; `InvalidData` if there is none within what is allowed.
async fn read_head(stream: &mut TcpStream, head: &mut Vec<u8>) -> io::Result<()> {
    let mut piece = [0; 1024];
    while !head.windows(4).any(|bytes| bytes == b"\r\n\r\n") {
        let length = stream.read(&mut piece).await?;
        if length == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        head.extend_from_slice(&piece[..length]);
        if head.len() > HEAD_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(())
}

async fn scrape(requests: &mpsc::Sender<Request>) -> Option<String> {
    let (reply, answer) = oneshot::channel();
    timeout(WITHIN, requests.send(Request::Status(reply))).await.ok()?.ok()?;
    Some(render(timeout(WITHIN, answer).await.ok()?.ok()?))
}

/// A request for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Get,
    /// The same without the text (RFC 9110 section 9.3.2).
    Head,
}

/// Status line, one more header field, and what is wrong.
type Refusal = (&'static str, &'static str, &'static str);

const BAD: Refusal = ("400 Bad Request", "", "expected GET /metrics HTTP/1.1\n");
const NOT_FOUND: Refusal = ("404 Not Found", "", "the metrics are at /metrics\n");
const NOT_ALLOWED: Refusal = ("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "expected GET or HEAD\n");
const TOO_LARGE: Refusal = ("431 Request Header Fields Too Large", "", "the request has more than 8192 bytes\n");
const NOT_READY: Refusal = ("503 Service Unavailable", "", "the server does not answer\n");

impl Asked {
    fn parse(head: &[u8]) -> Result<Self, Refusal> {
        let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
        let words: Vec<&str> = std::str::from_utf8(line).map_err(|_| BAD)?.split(' ').collect();
        let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else { return Err(BAD) };
        let asked = match method {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            _ => return Err(NOT_ALLOWED),
        };
        let path = target.split_once('?').map_or(target, |(path, _)| path);
        if path == "/metrics" { Ok(asked) } else { Err(NOT_FOUND) }
    }
}

fn refusal((status, field, text): Refusal) -> String {
    response(status, "text/plain; charset=utf-8", field, text, true)
}

fn response(status: &str, content_type: &str, field: &str, text: &str, with_text: bool) -> String {
    let length = text.len();
    let body = if with_text { text } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n{field}Connection: close\r\n\r\n{body}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::status::Status;

    /// The replies to these bytes, each sent on a connection of its own to a server that has the status of `pid` 42.
    fn ask(requests: &[Vec<u8>]) -> Vec<String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (sender, mut inbox) = mpsc::channel(1);
            tokio::spawn(async move {
                while let Some(Request::Status(reply)) = inbox.recv().await {
                    reply.send(Status { version: "0.1.0".into(), uptime_s: 1.5, ..Status::default() }).unwrap();
                }
            });
            let address = listen("127.0.0.1:0".parse().unwrap(), sender).unwrap();
            let mut replies = Vec::new();
            for request in requests {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(request).await.unwrap();
                let mut reply = Vec::new();
                // What is unread when the server closes may be seen as a reset.
                let _ = stream.read_to_end(&mut reply).await;
                replies.push(String::from_utf8(reply).unwrap());
            }
            replies
        })
    }

    #[test]
    fn a_scrape_over_loopback() {
        let replies =
            ask(&[b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".to_vec(), b"HEAD /metrics HTTP/1.1\r\n\r\n".to_vec()]);
        let (head, text) = replies[0].split_once("\r\n\r\n").unwrap();
        let length = text.len();
        let expected =
            format!("HTTP/1.1 200 OK\r\nContent-Type: {CONTENT_TYPE}\r\nContent-Length: {length}\r\nConnection: close");
        assert_eq!(head, expected);
        assert!(text.contains("\nresponder_uptime_seconds 1.5\n") && text.ends_with("# EOF\n"), "{text}");
        assert_eq!(replies[1], format!("{expected}\r\n\r\n"), "RFC 9110 section 9.3.2");
    }

    /// RFC 9110 sections 15.5.1, 15.5.5, 15.5.6 and RFC 6585 section 5.
    #[test]
    fn what_is_no_scrape_is_refused() {
        let long = [b"GET /metrics HTTP/1.1\r\nx: ".to_vec(), vec![b'x'; HEAD_MAX]].concat();
        let cases: [(&[u8], &str); 7] = [
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"GET /metrics?name[]=up HTTP/1.0\r\n\r\n", "200"),
            (b"POST /metrics HTTP/1.1\r\n\r\n", "405"),
            (b"GET /metrics\r\n\r\n", "400"),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
            (b"\xff\xfe\r\n\r\n", "400"),
            (&long, "431"),
        ];
        let replies = ask(&cases.map(|(request, _)| request.to_vec()));
        for ((request, expected), reply) in cases.iter().zip(replies) {
            assert_eq!(reply.get(9..12), Some(*expected), "{request:?}: {reply}");
        }
    }

    /// Time stands still while the runtime has work and jumps to the next deadline when it has none.
    #[test]
    fn slow_clients_are_let_go_and_many_are_too_many() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (sender, _inbox) = mpsc::channel(1);
            let address = listen("127.0.0.1:0".parse().unwrap(), sender).unwrap();
            let mut idle = Vec::new();
            for _ in 0..=CONNECTIONS_MAX {
                let mut stream = TcpStream::connect(address).await.unwrap();
                stream.write_all(b"GET /metrics").await.unwrap();
                idle.push(stream);
            }
            let start = tokio::time::Instant::now();
            // A reset, since what it sent is unread, or an end.
            assert!(!matches!(idle[CONNECTIONS_MAX].read(&mut [0; 16]).await, Ok(1..)));
            assert_eq!(start.elapsed().as_secs(), 0, "the last was closed at once");
            assert_eq!(idle[0].read(&mut [0; 16]).await.unwrap(), 0);
            assert_eq!(start.elapsed().as_secs(), WITHIN.as_secs());
        });
    }

    #[test]
    fn a_port_that_is_taken_is_named_with_the_remedy() {
        let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _context = runtime.enter();
        let error = listen(address, mpsc::channel(1).0).unwrap_err().to_string();
        let port = address.port();
        let expected = format!(
            "cannot serve metrics at {address}: Address already in use (os error 98): another program has this port: \
             `ss -lntp 'sport = :{port}'` names it, or give another with --metrics"
        );
        assert_eq!(error, expected);
    }
}
