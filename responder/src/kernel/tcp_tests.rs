use tokio::task::LocalSet;

use super::*;
use crate::latest::Latest;

const LIMITS: Limits = Limits { idle: Duration::from_secs(10), connections: 512, per_client: 32 };

fn shared() -> Rc<Shared> {
    Rc::new(Shared::new(Service::Echo, State::new(&Latest::default(), 1, 1500), LIMITS))
}

async fn connected(shared: &Rc<Shared>) -> (TcpStream, Listener) {
    let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = socket.local_addr().unwrap();
    let listener = Listener::new(socket, shared);
    (TcpStream::connect(address).await.unwrap(), listener)
}

fn open(shared: &Shared) -> usize {
    let open = shared.clients.borrow().values().sum();
    assert_eq!(open, shared.open.get());
    open
}

/// Time stands still while the runtime has work and jumps to the next deadline when it has none.
fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    LocalSet::new().block_on(&runtime, test);
}

#[test]
fn a_client_that_says_nothing_more_is_let_go() {
    run(async {
        for (beginning, within) in [(&b""[..], LIMITS.idle), (b"\0", STEP), (b"\0\x10half", STEP)] {
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
    assert_eq!(greedy.len(), LIMITS.per_client, "one network is one client");
    let other = take("2001:db8:0:1::1");
    assert!(other.is_some(), "another network is another");
    greedy.pop();
    greedy.extend(take("2001:db8::1"));
    assert_eq!(greedy.len(), LIMITS.per_client, "what is given back can be taken again");
    drop((greedy, other));
    assert!(shared.clients.borrow().is_empty());
}

#[test]
fn all_clients_together_are_bounded() {
    let shared = shared();
    let places: Vec<Place> = (0..2000u32).filter_map(|n| Place::take(&shared, n.to_be_bytes().into())).collect();
    assert_eq!((places.len(), open(&shared)), (LIMITS.connections, LIMITS.connections));
}

/// The new connection has the place of the one that has been idle the longest; what is at work is left alone.
#[test]
fn when_all_places_are_taken_the_longest_idle_one_is_given_away() {
    run(async {
        let limits = Limits { connections: 3, ..LIMITS };
        let shared = Rc::new(Shared::new(Service::Echo, State::new(&Latest::default(), 1, 1500), limits));
        let (mut first, listener) = connected(&shared).await;
        let address = listener.socket.local_addr().unwrap();
        let mut clients = vec![];
        for _ in 0..2 {
            tokio::time::sleep(Duration::from_secs(1)).await;
            clients.push(TcpStream::connect(address).await.unwrap());
        }
        // The first has been there longest, but is not idle.
        first.write_all(b"\0\x02h").await.unwrap();
        tokio::time::sleep(Duration::from_secs(1)).await;
        let _new = TcpStream::connect(address).await.unwrap();
        assert_eq!(clients[0].read(&mut [0; 16]).await.unwrap(), 0, "it was the longest idle one");
        first.write_all(b"i").await.unwrap();
        let mut reply = [0; 4];
        first.read_exact(&mut reply).await.unwrap();
        assert_eq!(&reply, b"\0\x02hi");
        assert_eq!(open(&shared), 3);
    });
}

/// RFC 7766 section 6.2.1.1: what is asked in one piece is answered, all of it; section 8: a piece can be cut anywhere.
#[test]
fn messages_come_in_any_pieces() {
    // With a clock that runs: one that jumps would not wait for what is on its way.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let shared = shared();
        let (mut client, _listener) = connected(&shared).await;
        let messages: Vec<u8> = (0..100u8).flat_map(|number| [0, 3, number, number, number]).collect();
        for piece in [1, 2, 3, 7, 500] {
            let mut replies = vec![0; messages.len()];
            for bytes in messages.chunks(piece) {
                client.write_all(bytes).await.unwrap();
                client.flush().await.unwrap();
                tokio::task::yield_now().await;
            }
            client.read_exact(&mut replies).await.unwrap();
            assert_eq!(replies, messages, "{piece}");
        }
        assert!(shared.idle.borrow().len() <= 1);
    });
}

#[test]
fn limits_that_the_system_does_not_allow_are_named() {
    let limits = Limits { connections: usize::MAX >> 2, ..LIMITS };
    let error = limits.allow().unwrap_err().to_string();
    assert!(error.contains("LimitNOFILE="), "{error}");
    LIMITS.allow().unwrap();
}
