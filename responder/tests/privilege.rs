//! What the threads of a running server may do: the `responder` binary on loopback, started as root. Without root there is nothing to give up.

use std::{
    fs,
    io::Read,
    net::UdpSocket,
    os::unix::fs::{PermissionsExt, chown},
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};

use nix::unistd::{User, geteuid};

const WITHIN: Duration = Duration::from_secs(20);
/// A user that every Debian has.
const USER: &str = "nobody";
const NET_BIND_SERVICE: u64 = 1 << 10;
const DAC_READ_SEARCH: u64 = 1 << 2;

/// A server with its configuration in a folder of its own; both go with this.
struct Server {
    folder: PathBuf,
    port: u16,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ = self.child.wait();
        let _gone_already = fs::remove_dir_all(&self.folder);
    }
}

/// A folder with a zone, a configuration and room for a socket, all of it this user's.
fn folder(test: &str, port: u16, user: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("responder-privilege-{}-{test}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.zone"), zone(1)).unwrap();
    let config =
        format!("io = \"socket\"\nlisten = [\"127.0.0.1:{port}\"]\ncontrol = \"socket\"\n[zones]\na = \"a.zone\"\n");
    fs::write(folder.join("conf.toml"), config).unwrap();
    let user = User::from_name(user).unwrap().unwrap();
    for path in [folder.clone(), folder.join("a.zone"), folder.join("conf.toml")] {
        chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).unwrap();
    }
    folder
}

fn zone(version: u8) -> String {
    format!("$TTL 60\n@ SOA ns.x. host.x. {version} 7200 3600 1209600 300\n@ NS ns.x.\n")
}

fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn serve(folder: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_responder"));
    command.args(["serve", "--config"]).arg(folder.join("conf.toml")).args(flags);
    command
}

/// What a server that must not start says.
fn refusal(folder: &Path, flags: &[&str]) -> String {
    let mut child = serve(folder, flags).stderr(Stdio::piped()).spawn().unwrap();
    let deadline = Instant::now() + WITHIN;
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > deadline {
            child.kill().unwrap();
            panic!("it started");
        }
        thread::sleep(Duration::from_millis(10));
    }
    let mut text = String::new();
    child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    text
}

impl Server {
    fn start(test: &str, flags: &[&str]) -> Self {
        let port = free_port();
        let folder = folder(test, port, if flags.contains(&USER) { USER } else { "root" });
        let child = serve(&folder, flags).stderr(Stdio::null()).spawn().unwrap();
        let server = Self { folder, port, child };
        let deadline = Instant::now() + WITHIN;
        while !server.run(&["status"]).status.success() {
            assert!(Instant::now() < deadline, "it does not start");
            thread::sleep(Duration::from_millis(20));
        }
        server
    }

    fn run(&self, command: &[&str]) -> Output {
        let mut run = Command::new(env!("CARGO_BIN_EXE_responder"));
        run.args(command).arg("--control").arg(self.folder.join("socket")).output().unwrap()
    }

    fn status(&self) -> String {
        String::from_utf8(self.run(&["status"]).stdout).unwrap()
    }

    /// What /proc says of each thread.
    fn threads(&self) -> Vec<String> {
        let tasks = format!("/proc/{}/task", self.child.id());
        fs::read_dir(tasks)
            .unwrap()
            .map(|task| fs::read_to_string(task.unwrap().path().join("status")).unwrap())
            .collect()
    }

    fn check_threads(&self, uid: u32, kept: u64, sandbox: bool) {
        let mut workers = 0;
        for text in self.threads() {
            let field = |name: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
                line.unwrap_or_else(|| panic!("no {name}")).trim()
            };
            let name = field("Name");
            workers += usize::from(name.starts_with("udp"));
            let kept = if name == "responder" { kept } else { 0 };
            let sets = ["CapEff", "CapPrm", "CapInh", "CapAmb", "CapBnd"]
                .map(|set| u64::from_str_radix(field(set), 16).unwrap());
            assert_eq!(sets, [kept, kept, 0, 0, 0], "{name}");
            assert_eq!(field("Uid"), vec![uid.to_string(); 4].join("\t"), "{name}");
            assert_eq!((field("NoNewPrivs"), field("Seccomp")), ("1", if sandbox { "2" } else { "0" }));
        }
        assert!(workers > 0);
    }

    fn asks(&self) {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(WITHIN)).unwrap();
        socket.send_to(b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x01a\0\0\x06\0\x01", ("127.0.0.1", self.port)).unwrap();
        let mut reply = [0; 512];
        let length = socket.recv(&mut reply).unwrap();
        assert!(length > 30 && reply[3] & 0x0f == 0, "{:?}", &reply[..length]);
    }
}

#[test]
fn root_keeps_two_capabilities_in_one_thread() {
    if !geteuid().is_root() {
        return;
    }
    let server = Server::start("root", &[]);
    server.check_threads(0, NET_BIND_SERVICE | DAC_READ_SEARCH, true);
    server.asks();
    assert!(
        server.status().contains("\nuser root, capabilities kept: net_bind_service dac_read_search, sandbox on\n"),
        "{}",
        server.status()
    );
    // A file in somebody's home.
    let user = User::from_name(USER).unwrap().unwrap();
    let file = server.folder.join("a.zone");
    fs::write(&file, zone(2)).unwrap();
    chown(&file, Some(user.uid.as_raw()), None).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let reload = server.run(&["reload"]);
    assert!(reload.status.success() && String::from_utf8_lossy(&reload.stdout).contains("serial 1 -> 2"), "{reload:?}");
}

#[test]
fn a_server_that_has_become_another_user_answers_and_reloads() {
    if !geteuid().is_root() {
        return;
    }
    let server = Server::start("user", &["--user", USER, "--sandbox", "off"]);
    let user = User::from_name(USER).unwrap().unwrap();
    server.check_threads(user.uid.as_raw(), NET_BIND_SERVICE, false);
    server.asks();
    assert!(
        server.status().contains("\nuser nobody, capabilities kept: net_bind_service, sandbox off\n"),
        "{}",
        server.status()
    );
    fs::write(server.folder.join("a.zone"), zone(2)).unwrap();
    let reload = server.run(&["reload"]);
    assert!(reload.status.success() && String::from_utf8_lossy(&reload.stdout).contains("serial 1 -> 2"), "{reload:?}");
    server.check_threads(user.uid.as_raw(), NET_BIND_SERVICE, false);
    let socket = fs::metadata(server.folder.join("socket")).unwrap();
    assert_eq!(socket.permissions().mode() & 0o777, 0o600);
}

#[test]
fn what_a_reload_could_not_read_is_an_error_at_the_start() {
    if !geteuid().is_root() {
        return;
    }
    let folder = folder("unreadable", free_port(), USER);
    assert!(refusal(&folder, &["--user", "nosuch-user"]).contains("--user nosuch-user: there is no such user"));
    // From now on root's, and for nobody else to read.
    let close = |name: &str, mode: u32| {
        chown(folder.join(name), Some(0), None).unwrap();
        fs::set_permissions(folder.join(name), fs::Permissions::from_mode(mode)).unwrap();
    };
    for file in ["a.zone", "conf.toml"] {
        close(file, 0o600);
        let text = refusal(&folder, &["--user", USER]);
        assert!(text.contains(file) && text.contains("Permission denied"), "{text}");
        assert!(text.contains(&format!("as user {USER}")), "{text}");
        close(file, 0o644);
    }
    // The directory is root's, so that there is no place for the control socket.
    close("", 0o755);
    let text = refusal(&folder, &["--user", USER]);
    assert!(text.contains("cannot listen at") && text.contains("directory must exist and be writable"), "{text}");
    fs::remove_dir_all(&folder).unwrap();
}
