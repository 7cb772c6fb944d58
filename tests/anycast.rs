//! Two servers of one address behind a router with BGP and equal-cost routes: the setting of `examples/anycast`.
//!
//! Needs root, RESPONDER and BIRD 2.

use std::{
    fs,
    net::SocketAddr,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::{Duration, SystemTime},
};

use nix::sys::signal::{Signal, kill};
use serde_json::Value;
use tests::server::{count, eventually, printed, responder};
use xtask::rehearse::{
    load::{self, Bucket},
    zone,
};

const NAMES: u32 = 1000;
const RATE: u32 = 2000;
const ADDRESSES: [&str; 2] = ["192.0.2.53", "2001:db8:53::53"];

/// A namespace, removed with all that runs in it.
struct Namespace(String);

impl Namespace {
    fn new(name: &str) -> Self {
        let name = format!("responder-anycast-{}-{name}", std::process::id());
        printed(Command::new("ip").args(["netns", "add", &name]));
        let new = Self(name);
        new.ip("link set lo up");
        // Addresses are there at once.
        printed(new.command("sysctl").args(["-qw", "net.ipv6.conf.default.accept_dad=0"]));
        new
    }

    fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0]).arg(program);
        command
    }

    fn ip(&self, arguments: &str) {
        printed(Command::new("ip").args(["-n", &self.0]).args(arguments.split(' ')));
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.0]).status();
    }
}

/// A process that is killed when this is dropped.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().expect("it can be started"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn serve(namespace: &Namespace, folder: &std::path::Path) -> Running {
    let mut serve = namespace.command(responder());
    serve.args(["serve", "--iface", "up0", "--listen", ADDRESSES[0], "--listen", ADDRESSES[1]]);
    serve.arg("--control").arg(folder.join("control"));
    serve.arg("--zone").arg(format!("{}={}", zone::NAME, folder.with_file_name("zone").display()));
    Running::start(&mut serve)
}

/// A machine that serves the address. Fields are dropped in this order.
struct Machine {
    server: Running,
    _watch: Running,
    _bird: Running,
    namespace: Namespace,
    folder: PathBuf,
}

impl Machine {
    /// The n-th, on the router's interface `toN`.
    fn start(router: &Namespace, folder: &std::path::Path, n: u8) -> Self {
        let namespace = Namespace::new(&format!("m{n}"));
        let folder = folder.join(format!("m{n}"));
        fs::create_dir_all(&folder).unwrap();
        router.ip(&format!(
            "link add to{n} numrxqueues 2 numtxqueues 2 type veth peer name up0 netns {} numrxqueues 2 numtxqueues 2",
            namespace.0
        ));
        link(router, &format!("to{n}"), &format!("10.0.{n}.1/24"), &format!("fd00:{n}::1/64"));
        link(&namespace, "up0", &format!("10.0.{n}.2/24"), &format!("fd00:{n}::2/64"));
        namespace.ip(&format!("route add default via 10.0.{n}.1"));
        namespace.ip(&format!("-6 route add default via fd00:{n}::1"));
        for address in ADDRESSES {
            namespace.ip(&format!("addr add {address} dev lo"));
        }
        // The example, with the addresses of this machine.
        let example = include_str!("../examples/anycast/bird.conf");
        let text = example.replace("10.0.1.", &format!("10.0.{n}.")).replace("fd00:1::", &format!("fd00:{n}::"));
        let bird = bird(&namespace, &folder, &text);
        let server = serve(&namespace, &folder);
        let birdc =
            |verb: &str| format!("birdc -s {} {verb} '\"anycast*\"' >/dev/null", folder.join("bird.ctl").display());
        let watch = Running::start(
            namespace
                .command(responder())
                .args(["health", "--watch", "--up", &birdc("enable"), "--down", &birdc("disable"), "--control"])
                .arg(folder.join("control")),
        );
        Self { server, _watch: watch, _bird: bird, namespace, folder }
    }

    /// Queries that its bypass has answered.
    fn answered(&self) -> u64 {
        let text =
            printed(Command::new(responder()).args(["status", "--json", "--control"]).arg(self.folder.join("control")));
        let status: Value = serde_json::from_str(&text).unwrap();
        status["interfaces"][0]["queues"].as_array().unwrap().iter().map(|queue| count(&queue["answered"])).sum()
    }
}

fn link(namespace: &Namespace, interface: &str, v4: &str, v6: &str) {
    printed(namespace.command("ethtool").args(["-K", interface, "tx", "off"]));
    namespace.ip(&format!("addr add {v4} dev {interface}"));
    namespace.ip(&format!("addr add {v6} dev {interface} nodad"));
    namespace.ip(&format!("link set {interface} up"));
}

fn bird(namespace: &Namespace, folder: &std::path::Path, text: &str) -> Running {
    let file = folder.join("bird.conf");
    fs::write(&file, text).unwrap();
    let (socket, pid) = (folder.join("bird.ctl"), folder.join("bird.pid"));
    let bird = Running::start(
        namespace.command("bird").arg("-f").arg("-c").arg(&file).arg("-s").arg(&socket).arg("-P").arg(pid),
    );
    eventually("BIRD's socket", || socket.exists().then_some(()));
    bird
}

fn router_conf() -> String {
    let session = |n: u8| {
        format!(
            "protocol bgp m{n}v4 {{ local 10.0.{n}.1 as 65000; neighbor 10.0.{n}.2 as 65053; hold time 3; connect delay time 1; \
             ipv4 {{ import all; export none; }}; }}\n\
             protocol bgp m{n}v6 {{ local fd00:{n}::1 as 65000; neighbor fd00:{n}::2 as 65053; hold time 3; connect delay time 1; \
             ipv6 {{ import all; export none; }}; }}\n"
        )
    };
    format!(
        "router id 10.0.0.1;\nprotocol device {{ }}\nprotocol kernel {{ merge paths on; ipv4 {{ export all; }}; }}\n\
         protocol kernel {{ merge paths on; ipv6 {{ export all; }}; }}\n{}{}",
        session(1),
        session(2)
    )
}

/// How many next hops the router has for each of the addresses.
fn paths(router: &Namespace) -> [usize; 2] {
    ADDRESSES.map(|address| {
        let family = if address.contains(':') { "-6" } else { "-4" };
        let routes = printed(router.command("ip").args([family, "route", "show", address]));
        routes.matches(" dev to").count()
    })
}

fn lost(buckets: &[Bucket], from: Duration, to: Duration) -> Vec<usize> {
    let index = |at: Duration| usize::try_from(at.as_millis() / load::BUCKET.as_millis()).unwrap();
    let range = index(from)..index(to).min(buckets.len());
    range.filter(|index| buckets[*index].lost() > 0 || buckets[*index].wrong > 0).collect()
}

#[test]
fn draining_a_machine_loses_nothing_and_a_dead_one_is_left_within_a_second() {
    let folder = std::env::temp_dir().join(format!("responder-anycast-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    zone::write(&folder.join("zone"), NAMES, 1).unwrap();
    let (router, client) = (Namespace::new("router"), Namespace::new("client"));
    for setting in [
        "ipv4.ip_forward",
        "ipv6.conf.all.forwarding",
        "ipv4.fib_multipath_hash_policy",
        "ipv6.fib_multipath_hash_policy",
    ] {
        printed(router.command("sysctl").args(["-qw", &format!("net.{setting}=1")]));
    }
    router.ip(&format!("link add clients type veth peer name eth0 netns {}", client.0));
    link(&router, "clients", "10.0.0.1/24", "fd00::1/64");
    link(&client, "eth0", "10.0.0.2/24", "fd00::2/64");
    client.ip("route add default via 10.0.0.1");
    client.ip("-6 route add default via fd00::1");
    let _bird = bird(&router, &folder, &router_conf());
    let start = || [1, 2].map(|n| Machine::start(&router, &folder, n));
    let [first, mut second] = start();
    eventually("two paths to each address", || (paths(&router) == [2, 2]).then_some(()));

    let (began, stop) = (SystemTime::now(), AtomicBool::new(false));
    let since = || began.elapsed().unwrap();
    let servers: Vec<SocketAddr> = ADDRESSES.map(|address| SocketAddr::new(address.parse().unwrap(), 53)).to_vec();
    let (buckets, drained, killed, ended) = thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let namespace = fs::File::open(format!("/run/netns/{}", client.0)).unwrap();
            nix::sched::setns(namespace, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            load::ask(&servers, NAMES, RATE, began, &stop).unwrap()
        });
        thread::sleep(Duration::from_secs(1));
        assert!(first.answered() > 0 && second.answered() > 0, "the bypass of each answers");
        let drained = since();
        printed(
            Command::new(responder()).args(["drain", "--wait", "2", "--control"]).arg(second.folder.join("control")),
        );
        assert_eq!(paths(&router), [1, 1]);
        assert!(second.server.0.wait().unwrap().success());
        // It comes back, and has its share again.
        second.server = serve(&second.namespace, &second.folder);
        eventually("two paths again", || (paths(&router) == [2, 2]).then_some(()));
        eventually("its share", || (second.answered() > 100).then_some(()));
        let killed = since();
        let pid = nix::unistd::Pid::from_raw(i32::try_from(second.server.0.id()).unwrap());
        kill(pid, Signal::SIGKILL).unwrap();
        eventually("one path", || (paths(&router) == [1, 1]).then_some(()));
        thread::sleep(Duration::from_secs(2));
        let ended = since();
        stop.store(true, Relaxed);
        (asking.join().unwrap(), drained, killed, ended)
    });
    let asked: u64 = buckets.iter().map(|bucket| bucket.sent).sum();
    let after_kill = lost(&buckets, killed, ended);
    let span_ms = after_kill.last().zip(after_kill.first()).map_or(0, |(last, first)| (last - first + 1) * 100);
    let number: u64 = after_kill.iter().map(|index| buckets[*index].lost()).sum();
    println!(
        "{asked} asked; lost by the drain: {:?}; by the kill: {number}, within {span_ms} ms",
        lost(&buckets, drained, killed)
    );
    assert_eq!(lost(&buckets, Duration::ZERO, killed - load::BUCKET), [0; 0], "nothing is lost by draining");
    assert!(number > 0, "a killed server loses something, or it was not asked");
    assert!(span_ms <= 1000, "{span_ms} ms");
    drop((first, second));
    fs::remove_dir_all(&folder).unwrap();
}
