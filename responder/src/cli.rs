//! The command line, as typed. `config` turns it into checked values; nothing else reads it.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::{guard::prefix::Prefix, xdp::socket::ZeroCopy};

/// Where a running server is asked for its status.
pub const DEFAULT_CONTROL: &str = "/run/responder/responder.sock";

/// An authoritative DNS server that answers from AF_XDP sockets, one per receive queue of a NIC.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 100, arg_required_else_help = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve zones on one or more interfaces until SIGINT or SIGTERM.
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<Serve>),
    /// Serve in the place of the server at --control, which ends: a new version, or other settings, without a query lost.
    #[command(after_help = UPGRADE_NOTES)]
    Upgrade(Box<Serve>),
    /// Read a zone file, or a configuration file and its zones, and report every error with its place; exit 1 if there is one.
    #[command(
        after_help = "Examples:\n  responder check example.com.zone\n  responder check --zone example.com db.example\n  responder check --config responder.toml"
    )]
    Check(Check),
    /// Ask a running server what it has done: per queue and worker, with the RX-queue x TX-queue x TX-CPU matrix.
    #[command(after_help = "Examples:\n  responder status\n  responder status --json | jq '.interfaces[0].matrix'")]
    Status(Status),
    /// Watch a running server: rates per queue and worker, CPU use, response codes, types, drops and the RX x TX matrix.
    #[command(
        after_help = "Examples:\n  responder top\n  responder top --once --interval-ms 5000\n  responder top --once --json | jq '.workers[].received_per_s'\n\nKeys: q quit, p pause, tab section, enter zoom, ? help. Colours are off where NO_COLOR is set."
    )]
    Top(Top),
    /// Have a running server read its zones and its configuration file anew, as SIGHUP does; exit 1 if there is an error in them.
    #[command(after_help = RELOAD_NOTES)]
    Reload(Reload),
    /// Have a running server end when routes have moved elsewhere: it says that it is draining, answers meanwhile, and then closes what it has answered.
    #[command(
        after_help = "Examples:\n  responder drain\n  responder drain --wait 30\n\nExit status: 0 when the server has closed its sockets, 1 when it did not."
    )]
    Drain(Drain),
    /// Say whether a running server answers, once or again and again, for what announces its address to routers.
    #[command(after_help = HEALTH_NOTES)]
    Health(Health),
    /// Set how many channels a NIC has while a server runs on it: the server leaves the bypass for that moment, and the kernel path answers.
    #[command(
        after_help = "Examples:\n  responder queues eth0 4\n\nThe kernel refuses to take a queue away that an AF_XDP socket is bound to, so that `ethtool -L` alone fails while a server runs."
    )]
    Queues(Queues),
    /// Look at a NIC and its system before a server runs there: what was found, what is wanted, why, and the command that brings it about.
    #[command(after_help = DOCTOR_NOTES)]
    Doctor(Doctor),
    /// Ask a server at a rate, with a window or as fast as it can answer, and say what became of every query: answered, lost, late, wrong, and how long it took.
    #[command(after_help = FLOOD_NOTES)]
    Flood(Box<Flood>),
}

const SERVE_EXAMPLES: &str = "\
Examples:
  responder serve --config /etc/responder/responder.toml
  responder serve --iface eth0 --zone example.com=/etc/zones/example.com.zone
  responder serve --iface eth0 --queues 0-3 --cpus 4-7 --zone example.com=db.example
  responder serve --iface eth0 --listen 192.0.2.53 --listen [2001:db8::53]:5353 --zone example.com=db.example
  responder serve --iface eth0 --zone example.com=db.example --metrics 127.0.0.1:9153
  responder serve --iface eth0 --io socket --zone example.com=db.example    (no bypass: kernel sockets alone)

What the bypass skips: nftables, conntrack, rp_filter and routing do not see the packets it answers, and a reply leaves by the
interface and to the MAC address that its query came from.

Exit status: 0 after a signal, 1 when it could not start or had to stop, 2 for a wrong command line.";

const UPGRADE_NOTES: &str = "\
Examples:
  responder upgrade --config /etc/responder/responder.toml

It takes the flags of `responder serve` and does as that does, beside the server that runs: it reads zones and configuration, opens kernel
sockets, has the other server leave the bypass, joins it, and has the other one end. Between the two bypasses, for some milliseconds, kernel
sockets answer. If something is wrong before that, it ends, and the other server goes on; if it fails later, the other one joins the
bypass again.

Exit status: as of `responder serve`.";

const RELOAD_NOTES: &str = "\
Examples:
  responder reload
  responder reload example.com

A zone with an error is not loaded: the old one stays in service. Queries are answered all the while, each from one version. Of the configuration
file the zones, addresses, the log level, the rules of answers, the rate limit and the access list are taken anew; for the rest the answer says that it
takes `responder upgrade` or a restart.";

const HEALTH_NOTES: &str = "\
Examples:
  responder health
  responder health --watch --up 'birdc enable anycast' --down 'birdc disable anycast'

A server is healthy if it is not draining and answers, over UDP at an address that it serves, for the SOA record of a zone.

Exit status: 0 when it is healthy (with --watch: after a signal), 1 when it is not, 2 for a wrong command line.";

const DOCTOR_NOTES: &str = "\
Examples:
  responder doctor eth0
  responder doctor eth0 --fix --undo-file undo.sh    (`sh undo.sh` goes back)
  responder doctor eth0 --json | jq -r '.findings[] | select(.state != \"ok\") | .fix'

It looks at kernel and driver, link, other XDP programs, MTU, channels, what of UDP packets decides
their queue, interrupts, irqbalance, XPS, the NUMA node, VLAN offload, LRO, GRO, rings, busy
polling, capabilities, memlock, firewall rules for port 53, rp_filter and routes.

--fix sets interrupts and XPS (queue i <-> CPU i) and puts UDP ports into the hash. It does nothing
that may take the link down. Root is needed to mend, and to see the firewall.

Exit status: 0 when the bypass can work, 1 when something is in its way or nothing could be read,
2 for a wrong command line.";

const FLOOD_NOTES: &str = "\
Examples:
  responder flood 192.0.2.53 --i-own-the-target --queries queries.txt --rate 500000
  responder flood 192.0.2.53 --i-own-the-target --zone example.com --find-peak
  responder flood 192.0.2.53 --i-own-the-target --zone example.com --random 0.9 --rate 1e6 --json
  responder flood 127.0.0.1:5300 --io socket --zone example.com --window 32
  responder flood 192.0.2.53 --i-own-the-target --zone example.com --no-replies --rate 3e6    (against `serve --service sink`)

A query file has lines of NAME and TYPE, as those of dnsperf and kxdpgun. With --rate the loop is open: queries leave when they are due,
whatever comes back, and a latency counts from that moment. By AF_XDP (--io xdp) nothing of the kernel's stack is in the way, on this side,
and a reply's time is taken by an XDP program.

Exit status: 0 when queries were answered (with --no-replies: sent), 1 when none was or something failed, 2 for a wrong command line.";

/// Flags of `serve`.
///
/// What is not given is taken from the configuration file, and what is not there either has the default that the text says.
#[derive(Clone, Debug, Default, Args)]
pub struct Serve {
    /// Read settings from this TOML file. A flag wins over the key of the same meaning. SIGHUP and `responder reload` read it again.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Serve on this interface (repeat for several). A bond, bridge, VLAN or macvlan cannot be given: name its physical members.
    #[arg(long, value_name = "IF")]
    pub iface: Vec<String>,
    /// Serve this address instead of all addresses of the interface (repeat for several). It need not be configured anywhere.
    /// `0.0.0.0` or `::` takes every address, transit traffic included.
    #[arg(long, value_name = "ADDR[:PORT]")]
    pub listen: Vec<String>,
    /// Serve this zone from this master file (repeat for several).
    #[arg(long, value_name = "NAME=FILE")]
    pub zone: Vec<String>,
    /// Serve every file `NAME.zone` in this directory as zone NAME, beside the zones given by name.
    #[arg(long, value_name = "DIR")]
    pub zone_directory: Option<PathBuf>,
    /// Receive queues that get a worker [default: all]. Queries on other queues are answered by the kernel path.
    #[arg(long, value_name = "all|LIST")]
    pub queues: Option<String>,
    /// CPU of each queue's worker, in the order of the queues [default: auto]. `auto` takes the CPU of the queue's interrupt.
    #[arg(long, value_name = "auto|LIST")]
    pub cpus: Option<String>,
    /// `xdp` is the bypass with the kernel path beside it, `socket` the kernel path alone [default: xdp].
    #[arg(long, value_enum)]
    pub io: Option<Io>,
    /// `per-cpu`: each CPU reads a kernel socket of its own, which has what that CPU takes in. To measure what that is worth: `hash` lets a hash of the flow
    /// pick the socket, and with `shared` all read one [default: per-cpu].
    #[arg(long, value_enum)]
    pub sockets: Option<Sockets>,
    /// How the XDP program is attached [default: auto]. `auto` takes the driver's native mode and falls back to generic with a warning.
    #[arg(long, value_enum)]
    pub xdp_mode: Option<XdpMode>,
    /// Zero-copy receive and transmit [default: auto]. `auto` falls back to copy, per queue, and says so.
    #[arg(long, value_enum)]
    pub zero_copy: Option<ZeroCopy>,
    /// What answers: `dns`, `echo` (RFC 862, measures the path alone) or `sink` (count and drop) [default: dns].
    #[arg(long, value_enum)]
    pub service: Option<ServiceKind>,
    /// VLAN ids, beside those of the interface's own VLAN devices, whose tagged queries are answered. OUTER.INNER for two tags.
    #[arg(long, value_name = "LIST")]
    pub vlan: Option<String>,
    /// Let the worker poll the NIC itself for this many microseconds before it sleeps. Given up per queue, with a warning, where replies then
    /// stay in the TX ring.
    #[arg(long, value_name = "US")]
    pub busy_poll: Option<u32>,
    /// Check IPv4 and UDP checksums of queries [default: auto]. `auto` is on, except on veth, where local senders leave partial sums.
    #[arg(long, value_enum)]
    pub verify_checksums: Option<Switch>,
    /// Frames in each queue's rings; rounded up to a power of two of at least 4096 [default: 4096].
    #[arg(long, value_name = "FRAMES")]
    pub ring_frames: Option<u32>,
    /// Unix socket for `responder status` and `responder reload` [default: /run/responder/responder.sock].
    #[arg(long, value_name = "PATH")]
    pub control: Option<PathBuf>,
    /// Serve metrics for Prometheus (OpenMetrics text) at http://ADDR:PORT/metrics. No default: no metrics. Anyone who reaches the address can read them.
    #[arg(long, value_name = "ADDR:PORT")]
    pub metrics: Option<String>,
    /// Run as this user from the beginning, with the capabilities that are needed and no other. Default: the user that started it.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// Have the kernel refuse system calls that a DNS server has no use for, such as execve or mount [default: on].
    #[arg(long, value_enum)]
    pub sandbox: Option<Sandbox>,
    /// Reload what a changed file concerns: the configuration, a zone, a file that it includes, a new file of --zone-directory.
    #[arg(long)]
    pub watch: bool,
    /// The least important lines that are logged [default: info].
    #[arg(long, value_enum)]
    pub log_level: Option<LogLevel>,
    /// Log some of the packets that the XDP program passes to the kernel, a few a second per CPU. Costs nothing when absent.
    #[arg(long)]
    pub log_steering: bool,
}

/// Flags of `check`.
#[derive(Debug, Args)]
pub struct Check {
    /// The master file.
    #[arg(value_name = "ZONEFILE", required_unless_present = "config")]
    pub file: Option<PathBuf>,
    /// Check this configuration file and all zones that it names instead.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["file", "zone"])]
    pub config: Option<PathBuf>,
    /// The zone's name; default: the owner of the file's SOA record.
    #[arg(long, value_name = "NAME")]
    pub zone: Option<String>,
}

/// Flags of `status`.
#[derive(Debug, Args)]
pub struct Status {
    /// Print the JSON document that the tables are made from.
    #[arg(long)]
    pub json: bool,
    /// The server's unix socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,
}

/// Flags of `top`.
#[derive(Debug, Args)]
pub struct Top {
    /// Milliseconds between two samples.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub interval_ms: u64,
    /// Take two samples, print one frame as text, and end.
    #[arg(long)]
    pub once: bool,
    /// Print the rates as a JSON document instead of the frame.
    #[arg(long, requires = "once")]
    pub json: bool,
    /// The server's unix socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,
}

/// Flags of `reload`.
#[derive(Debug, Args)]
pub struct Reload {
    /// Reload this zone alone and keep the others, and all other settings, as they are.
    #[arg(value_name = "ZONE")]
    pub zone: Option<String>,
    /// Print the JSON document that the lines are made from.
    #[arg(long)]
    pub json: bool,
    /// The server's unix socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,
}

/// Flags of `drain`.
#[derive(Debug, Args)]
pub struct Drain {
    /// Seconds for which it goes on to answer.
    #[arg(long, value_name = "SECS", default_value_t = 5, value_parser = clap::value_parser!(u64).range(0..=3600))]
    pub wait: u64,
    /// The server's unix socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,
}

/// Flags of `health`.
#[derive(Debug, Args)]
pub struct Health {
    /// Look again and again, and run the commands when it changes.
    #[arg(long)]
    pub watch: bool,
    /// Run this by `sh -c` when the server has begun to answer.
    #[arg(long, value_name = "COMMAND", requires = "watch")]
    pub up: Option<String>,
    /// Run this by `sh -c` when it has ceased to, is draining, or the watch ends.
    #[arg(long, value_name = "COMMAND", requires = "watch")]
    pub down: Option<String>,
    /// Milliseconds between two looks, and for which an answer is waited for.
    #[arg(long, value_name = "MS", default_value_t = 200, value_parser = clap::value_parser!(u64).range(10..=60_000))]
    pub interval_ms: u64,
    /// The server's unix socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,
}

/// Flags of `queues`.
#[derive(Debug, Args)]
pub struct Queues {
    /// The interface.
    #[arg(value_name = "IF")]
    pub interface: String,
    /// How many channels it is to have.
    #[arg(value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub count: u32,
    /// The server's unix socket.
    #[arg(long, value_name = "PATH", default_value = DEFAULT_CONTROL)]
    pub control: PathBuf,
}

/// Flags of `doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// The interface.
    #[arg(value_name = "IF")]
    pub interface: String,
    /// Print a JSON document instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Apply what harms nobody, look again, and print what was done and a script that undoes it.
    #[arg(long)]
    pub fix: bool,
    /// Write that script to this file, which must not be there yet, instead.
    #[arg(long, value_name = "FILE", requires = "fix")]
    pub undo_file: Option<PathBuf>,
}

/// Flags of `flood`.
#[derive(Clone, Debug, Args)]
pub struct Flood {
    /// Who is asked: ADDR, ADDR:PORT (IPv6 in brackets) or a host.
    #[arg(value_name = "TARGET")]
    pub target: String,
    /// Ask what this file says: a name and a type on each line.
    #[arg(long, value_name = "FILE", group = "what")]
    pub queries: Option<PathBuf>,
    /// Ask for what this zone is likely to have: SOA, NS and addresses.
    #[arg(long, value_name = "NAME", group = "what")]
    pub zone: Option<String>,
    /// Send payloads of so many bytes that are no DNS. With --expect echo.
    #[arg(long, value_name = "BYTES", group = "what", value_parser = clap::value_parser!(u16).range(1..=9000))]
    pub payload: Option<u16>,
    /// Share of queries for names that do not exist, each another one, below those asked for: 0 to 1.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub random: f64,
    /// Share of queries that are malformed.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    pub malformed: f64,
    /// Share of queries whose source is an address of --spoof-prefix.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, requires = "spoof_prefix")]
    pub spoofed: f64,
    /// Where the sources of spoofed queries are.
    #[arg(long, value_name = "PREFIX")]
    pub spoof_prefix: Option<Prefix>,
    /// UDP payload size in the OPT record of queries; 0 for none.
    #[arg(long, value_name = "BYTES", default_value_t = 1232)]
    pub edns: u16,
    /// Share of queries with the DO bit.
    #[arg(long = "do", value_name = "SHARE", default_value_t = 0.0)]
    pub dnssec_ok: f64,
    /// What comes back: a DNS answer with the same question, or the same bytes.
    #[arg(long, value_enum, default_value_t = Expect::Dns)]
    pub expect: Expect,
    /// Queries a second, sent whether replies come or not.
    #[arg(long, value_name = "QPS", group = "load")]
    pub rate: Option<f64>,
    /// Queries on their way at a time, of all threads together: a reply makes the next one leave.
    #[arg(long, value_name = "N", group = "load", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub window: Option<u32>,
    /// Search for the highest rate at which no more than --max-loss is lost.
    #[arg(long, group = "load", conflicts_with = "no_replies")]
    pub find_peak: bool,
    /// The loss that is allowed at the peak.
    #[arg(long, value_name = "SHARE", default_value_t = 0.01)]
    pub max_loss: f64,
    /// A search ends when a good rate and one that is too high differ by no more than this share.
    #[arg(long, value_name = "SHARE", default_value_t = 0.04)]
    pub peak_within: f64,
    /// Seconds for which queries are sent; of a search, each trial [default: 10, or 1].
    #[arg(long = "for", value_name = "SECS")]
    pub seconds: Option<f64>,
    /// A reply that takes longer does not count [default: 1000, in a search 100].
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=60_000))]
    pub timeout_ms: Option<u64>,
    /// Look for no replies: by AF_XDP they are counted and dropped before they reach the kernel.
    #[arg(long)]
    pub no_replies: bool,
    /// What queries are sent by.
    #[arg(long, value_enum, default_value_t = Io::Xdp)]
    pub io: Io,
    /// The interface; that of the route to the target if it is not given.
    #[arg(long, value_name = "IF")]
    pub iface: Option<String>,
    /// Queues of the interface that queries are sent from, each by a thread of its own. Replies are heard on all.
    #[arg(long, value_name = "all|LIST", default_value = "all")]
    pub queues: String,
    /// CPU of each thread; without it the scheduler decides.
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Threads, with --io socket.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=512))]
    pub threads: u16,
    /// Whether each thread has sockets of its own, with --io socket.
    #[arg(long, value_enum, default_value_t = ClientSockets::PerThread)]
    pub sockets: ClientSockets,
    /// Source ports, of all threads together. Source addresses are those of --spoof-prefix, if there is one.
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=30_000))]
    pub flows: u16,
    /// Tag queries with this VLAN id.
    #[arg(long, value_name = "ID", value_parser = clap::value_parser!(u16).range(1..=4094))]
    pub vlan: Option<u16>,
    /// Zero-copy transmit and receive.
    #[arg(long, value_enum, default_value_t = ZeroCopy::Auto)]
    pub zero_copy: ZeroCopy,
    /// Check IPv4 and UDP checksums of replies. `auto` is on, except on veth, where local senders leave partial sums.
    #[arg(long, value_enum, default_value_t = Switch::Auto)]
    pub verify_checksums: Switch,
    /// The target is mine, or its owner has agreed. Needed unless it is this machine.
    #[arg(long)]
    pub i_own_the_target: bool,
    /// Print a JSON document instead of the table.
    #[arg(long)]
    pub json: bool,
}

/// What a load generator expects back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Expect {
    /// A DNS answer.
    Dns,
    /// The query itself.
    Echo,
}

/// How the threads of a load generator use kernel sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClientSockets {
    /// Each thread has its own.
    PerThread,
    /// All threads have the same.
    Shared,
}

/// Which path packets take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Io {
    /// AF_XDP, with the kernel path for everything that it passes.
    Xdp,
    /// Kernel sockets alone.
    Socket,
}

/// What is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// What has failed.
    Error,
    /// And what is wrong, or not as it should be.
    Warn,
    /// And what happens.
    Info,
    /// And what is of use when something is looked for.
    Debug,
}

/// How the threads of the kernel path share an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sockets {
    /// One socket per thread, which gets what its CPU takes in.
    PerCpu,
    /// One socket per thread, which gets what a hash of addresses and ports gives it.
    Hash,
    /// One socket for all threads.
    Shared,
}

/// How the XDP program is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum XdpMode {
    /// Native, else generic.
    Auto,
    /// In the driver.
    Native,
    /// In the kernel's generic receive path.
    Generic,
}

/// What answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ServiceKind {
    /// Authoritative DNS.
    Dns,
    /// The payload goes back as it came.
    Echo,
    /// Nothing goes back.
    Sink,
}

/// Whether system calls are restricted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sandbox {
    /// They are.
    On,
    /// They are not.
    Off,
}

/// On, off, or as fits the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    /// As fits the interface.
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}
