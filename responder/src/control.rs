//! The control socket: one request line, one JSON document.
//!
//! A unix socket that only its owner may open. Requests are `status`, `reload` and `reload ZONE`; answers are made by the control thread, so that
//! counters are read only when somebody asks. `drain MS` has the server end in an orderly way, `leave IF` and
//! `join IF` have it give up an interface's queues for a moment. A server that takes over asks the one before it to `make-way` and to `finish`.

pub mod metrics;
pub mod reload;
pub mod status;

use std::{
    fs,
    io::{self, BufRead, BufReader, Write},
    os::unix::{
        fs::{FileTypeExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream as AsyncUnixStream},
    sync::{mpsc, oneshot},
    time::timeout,
};

use reload::Report;
use status::Status;

/// A client that is slower than this is not waited for.
const WITHIN: Duration = Duration::from_secs(5);
/// Large zones take their time.
const RELOAD_WITHIN: Duration = Duration::from_secs(1800);
/// Workers end and connections finish within this.
const DONE_WITHIN: Duration = Duration::from_secs(10);
/// How long another server at the same path is given to end.
const GONE_WITHIN: Duration = Duration::from_secs(1);
/// Clients that may wait to be accepted.
const BACKLOG: i32 = 16;
/// The longest request: a name has up to 1003 characters when each byte of it is escaped.
const REQUEST_MAX: u64 = 1024;
const STATUS: &str = "status";
const RELOAD: &str = "reload";
const LEAVE: &str = "leave";
const JOIN: &str = "join";
const DRAIN: &str = "drain";
const MAKE_WAY: &str = "make-way";
const FINISH: &str = "finish";

/// What is asked, and where the answer goes.
#[derive(Debug)]
pub enum Request {
    /// What the server has done.
    Status(oneshot::Sender<Status>),
    /// To read everything anew, or one zone alone.
    Reload {
        /// That zone.
        zone: Option<String>,
        /// Where the answer goes.
        reply: oneshot::Sender<Report>,
    },
    /// To leave the bypass to another server, and let the kernel path answer.
    MakeWay(oneshot::Sender<()>),
    /// To leave the bypass on an interface for a while, or to join it again; what came of it.
    Bypass {
        /// The interface.
        interface: String,
        /// Whether to join.
        join: bool,
        /// Where the answer goes.
        reply: oneshot::Sender<Result<()>>,
    },
    /// To end when routes have moved elsewhere, after this time.
    Drain {
        /// How long to answer as before.
        wait: Duration,
        /// Told when the sockets are closed.
        reply: oneshot::Sender<()>,
    },
    /// To end, since the other server answers.
    Finish(oneshot::Sender<()>),
}

/// The listening socket. Dropping it removes the file.
#[derive(Debug)]
pub struct Control {
    /// The file that is ours to remove.
    path: Option<PathBuf>,
    sender: mpsc::Sender<Request>,
    requests: mpsc::Receiver<Request>,
    refused: Arc<AtomicU64>,
}

impl Control {
    /// Listens at `path`. A socket file that nobody listens at any more is replaced. Called within a tokio runtime.
    pub fn listen(path: &Path) -> Result<Self> {
        // A server that was killed may take a moment until it is gone.
        let deadline = Instant::now() + GONE_WITHIN;
        while is_listened_at(path) {
            if Instant::now() < deadline {
                thread::sleep(Duration::from_millis(50));
                continue;
            }
            bail!(
                "another responder listens at {}: stop it, or give this one its own with --control PATH",
                path.display()
            );
        }
        Self::open(path, path)
    }

    /// Listens beside the server at `path`, until [`replace_other`](Self::replace_other).
    pub fn listen_beside(path: &Path) -> Result<Self> {
        ensure!(!is_listened_at(&beside(path)), "another responder is about to take over at {}", path.display());
        ensure!(
            is_listened_at(path),
            "no responder answers at {}: there is nothing to take over; `responder serve` starts one",
            path.display()
        );
        Self::open(&beside(path), path)
    }

    fn open(path: &Path, given: &Path) -> Result<Self> {
        let open = || -> io::Result<UnixListener> {
            match fs::symlink_metadata(path) {
                // Nothing but a socket that nobody listens at is ours to remove.
                Ok(found) if !found.file_type().is_socket() => return Err(io::Error::other("it is not a socket")),
                Ok(_) => fs::remove_file(path)?,
                Err(_) => {}
            }
            // Nobody can connect before it listens, and by then it is ours alone.
            let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
            socket.bind(&SockAddr::unix(path)?)?;
            fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            UnixListener::from_std(socket.into())
        };
        let listener = open().with_context(|| {
            format!(
                "cannot listen at {}: the directory must exist and be writable, or give another path with --control",
                given.display()
            )
        })?;
        let (sender, requests) = mpsc::channel(1);
        let refused = Arc::default();
        tokio::spawn(accept(listener, sender.clone(), Arc::clone(&refused)));
        Ok(Self { path: Some(path.to_owned()), sender, requests, refused })
    }

    /// Takes the place of the other server's socket.
    pub fn replace_other(&mut self, path: &Path) -> Result<()> {
        fs::rename(beside(path), path).with_context(|| format!("cannot take the control socket {}", path.display()))?;
        self.path = Some(path.to_owned());
        Ok(())
    }

    /// Leaves the file to the server that has taken its place.
    pub fn forget(&mut self) {
        self.path = None;
    }

    /// Where others put requests that are answered like those from the socket.
    #[must_use]
    pub fn sender(&self) -> mpsc::Sender<Request> {
        self.sender.clone()
    }

    /// Requests that were none: unknown, too long, cut short, or too slow.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Relaxed)
    }

    /// The next request.
    pub async fn request(&mut self) -> Request {
        match self.requests.recv().await {
            Some(request) => request,
            None => std::future::pending().await,
        }
    }
}

/// Where a server listens that is to take over from the one at `path`.
fn beside(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".next");
    name.into()
}

/// Whether somebody listens there, busy or not.
fn is_listened_at(path: &Path) -> bool {
    let connect = || -> io::Result<()> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    match connect() {
        Ok(()) => true,
        // More clients wait than may.
        Err(error) => error.kind() == io::ErrorKind::WouldBlock,
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // Somebody may have removed it already; there is nothing else to do at exit.
        let _ = self.path.as_ref().map(fs::remove_file);
    }
}

async fn accept(listener: UnixListener, requests: mpsc::Sender<Request>, refused: Arc<AtomicU64>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (requests, refused) = (requests.clone(), Arc::clone(&refused));
                tokio::spawn(async move {
                    // An error is the end of this client and of nothing else.
                    if !matches!(serve(stream, requests).await, Ok(true)) {
                        refused.fetch_add(1, Relaxed);
                    }
                });
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
        }
    }
}

/// Answers one request, and returns whether it was one.
async fn serve(stream: AsyncUnixStream, requests: mpsc::Sender<Request>) -> Result<bool> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    timeout(WITHIN, tokio::io::BufReader::new(reader.take(REQUEST_MAX)).read_line(&mut line)).await??;
    if line.is_empty() {
        // Somebody who looks whether anybody listens.
        return Ok(true);
    }
    // A line that is cut short, or cut here, may be the beginning of another request.
    let request = line.strip_suffix('\n').unwrap_or_default();
    let answer = answer(request, &requests).await?;
    let is_known = answer.is_some();
    let mut reply = answer.unwrap_or_else(|| {
        format!("{{\"error\":\"unknown request; known: {STATUS}, {RELOAD}, {RELOAD} ZONE\"}}").into_bytes()
    });
    reply.push(b'\n');
    timeout(WITHIN, writer.write_all(&reply)).await??;
    Ok(is_known)
}

async fn answer(request: &str, requests: &mpsc::Sender<Request>) -> Result<Option<Vec<u8>>> {
    let (command, zone) = request.split_once(' ').map_or((request, None), |(command, zone)| (command, Some(zone)));
    Ok(Some(match (command, zone) {
        (STATUS, None) => {
            let (sender, answer) = oneshot::channel();
            requests.send(Request::Status(sender)).await?;
            serde_json::to_vec(&timeout(WITHIN, answer).await??)?
        }
        (MAKE_WAY | FINISH, None) => {
            let (sender, answer) = oneshot::channel();
            let request = if command == FINISH { Request::Finish(sender) } else { Request::MakeWay(sender) };
            requests.send(request).await?;
            timeout(DONE_WITHIN, answer).await??;
            b"{}".to_vec()
        }
        (DRAIN, Some(wait_ms)) => {
            let Ok(wait_ms) = wait_ms.parse::<u32>() else { return Ok(None) };
            let wait = Duration::from_millis(wait_ms.into());
            let (reply, answer) = oneshot::channel();
            requests.send(Request::Drain { wait, reply }).await?;
            timeout(wait + DONE_WITHIN, answer).await??;
            b"{}".to_vec()
        }
        (LEAVE | JOIN, Some(interface)) => {
            let (reply, answer) = oneshot::channel();
            let (interface, join) = (interface.to_owned(), command == JOIN);
            requests.send(Request::Bypass { interface, join, reply }).await?;
            match timeout(DONE_WITHIN, answer).await?? {
                Ok(()) => b"{}".to_vec(),
                Err(error) => serde_json::to_vec(&serde_json::json!({ "error": format!("{error:#}") }))?,
            }
        }
        (RELOAD, zone) => {
            let (reply, answer) = oneshot::channel();
            requests.send(Request::Reload { zone: zone.map(str::to_owned), reply }).await?;
            serde_json::to_vec(&timeout(RELOAD_WITHIN, answer).await??)?
        }
        _ => return Ok(None),
    }))
}

/// Asks the server at `path` for its status, as the JSON text it sends.
pub fn ask(path: &Path) -> Result<String> {
    ask_within(path, WITHIN)
}

/// The same, from one that has no more time than this.
pub fn ask_within(path: &Path, within: Duration) -> Result<String> {
    exchange(path, STATUS, within)
}

/// Has the server at `path` reload, and waits until it has. The answer is the JSON text it sends.
pub fn ask_reload(path: &Path, zone: Option<&str>) -> Result<String> {
    let request = zone.map_or_else(|| RELOAD.to_owned(), |zone| format!("{RELOAD} {zone}"));
    ensure!(!request.contains('\n') && request.len() < 1024, "{request:?}: expected the name of a zone");
    exchange(path, &request, RELOAD_WITHIN)
}

/// Has the server at `path` end after `wait`, during which it answers and says that it is draining; waits until its sockets are closed.
pub fn ask_to_drain(path: &Path, wait: Duration) -> Result<()> {
    command(path, &format!("{DRAIN} {}", wait.as_millis()), wait + DONE_WITHIN)
}

/// Has the server at `path` leave an interface for a moment, so that its queues can be changed.
pub fn ask_to_leave(path: &Path, interface: &str) -> Result<()> {
    command(path, &format!("{LEAVE} {interface}"), DONE_WITHIN)
}

/// Has the server at `path` join an interface that it has left.
pub fn ask_to_join(path: &Path, interface: &str) -> Result<()> {
    command(path, &format!("{JOIN} {interface}"), DONE_WITHIN)
}

/// Whether a server listens at `path`.
#[must_use]
pub fn is_served(path: &Path) -> bool {
    is_listened_at(path)
}

/// Has the server at `path` leave the bypass.
pub fn ask_to_make_way(path: &Path) -> Result<()> {
    command(path, MAKE_WAY, DONE_WITHIN)
}

/// Has the server at `path` end.
pub fn ask_to_finish(path: &Path) -> Result<()> {
    command(path, FINISH, DONE_WITHIN)
}

fn command(path: &Path, request: &str, within: Duration) -> Result<()> {
    let reply = exchange(path, request, within)?;
    // One from before there was this says that it does not know the request.
    ensure!(reply.trim_end() == "{}", "the responder at {} did not do it: {}", path.display(), reply.trim_end());
    Ok(())
}

fn exchange(path: &Path, request: &str, within: Duration) -> Result<String> {
    let mut stream = UnixStream::connect(path).with_context(|| {
        format!("no responder answers at {}: is it running, and was it given another --control path?", path.display())
    })?;
    let mut exchange = || -> io::Result<String> {
        stream.set_read_timeout(Some(within))?;
        stream.write_all(format!("{request}\n").as_bytes())?;
        let mut reply = String::new();
        BufReader::new(&stream).read_line(&mut reply)?;
        Ok(reply)
    };
    exchange().with_context(|| format!("the responder at {} did not answer", path.display()))
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("responder-control-{}-{name}", std::process::id()))
    }

    #[test]
    fn a_status_comes_back() {
        let path = path("status");
        runtime().block_on(async {
            let mut control = Control::listen(&path).unwrap();
            let client = tokio::task::spawn_blocking({
                let path = path.clone();
                move || ask(&path)
            });
            let Request::Status(reply) = control.request().await else { panic!("that is no request for a status") };
            reply.send(Status { pid: 42, ..Status::default() }).unwrap();
            let text = client.await.unwrap().unwrap();
            assert_eq!(serde_json::from_str::<Status>(&text).unwrap().pid, 42);
        });
        assert!(!path.exists(), "the file goes with the server");
        let error = format!("{:#}", ask(&path).unwrap_err());
        assert!(error.starts_with("no responder answers at"), "{error}");
    }

    #[test]
    fn a_reload_is_for_all_zones_or_for_one() {
        let path = path("reload");
        runtime().block_on(async {
            let mut control = Control::listen(&path).unwrap();
            for expected in [None, Some("example.com")] {
                let client = tokio::task::spawn_blocking({
                    let path = path.clone();
                    move || ask_reload(&path, expected)
                });
                let Request::Reload { zone, reply } = control.request().await else { panic!("that is no reload") };
                assert_eq!(zone.as_deref(), expected);
                reply.send(Report { seconds: 1.5, ..Report::default() }).unwrap();
                let report: Report = serde_json::from_str(&client.await.unwrap().unwrap()).unwrap();
                assert_eq!(report.seconds, 1.5);
            }
        });
        assert!(ask_reload(&path, Some("a\nb")).is_err());
    }

    #[test]
    fn a_live_socket_is_refused_and_a_stale_one_replaced() {
        let path = path("live");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        runtime().block_on(async {
            let _control = Control::listen(&path).unwrap();
            let error = Control::listen(&path).unwrap_err().to_string();
            assert!(error.starts_with("another responder listens at"), "{error}");
        });
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let path = path("file");
        fs::write(&path, "precious").unwrap();
        let error = runtime().block_on(async { format!("{:#}", Control::listen(&path).unwrap_err()) });
        assert!(error.ends_with("it is not a socket"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn nonsense_gets_an_error_and_a_long_line_is_cut() {
        let path = path("nonsense");
        runtime().block_on(async {
            let control = Control::listen(&path).unwrap();
            let long = format!("{STATUS}{}\n", " ".repeat(2000));
            for request in
                ["stats\n".to_owned(), long, "status".to_owned(), "\u{0}\n".to_owned(), "drain -1\n".to_owned()]
            {
                let path = path.clone();
                let reply = tokio::task::spawn_blocking(move || {
                    let mut stream = UnixStream::connect(path).unwrap();
                    stream.write_all(request.as_bytes()).unwrap();
                    // Where the line does not end the request does.
                    stream.shutdown(std::net::Shutdown::Write).unwrap();
                    let mut reply = String::new();
                    // The rest of a long line is unread when the server closes, which may be seen as a reset.
                    let _ = stream.read_to_string(&mut reply);
                    reply
                });
                assert!(reply.await.unwrap().starts_with("{\"error\""));
            }
            assert_eq!(control.refused(), 5);
        });
    }
}
