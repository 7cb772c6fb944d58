//! The few system calls that no crate wraps safely: what ethtool asks a driver for and tells it, and the socket options of AF_XDP.
//!
//! One of the two unsafe islands of this crate. Everything public here is safe to call with any argument.
#![allow(unsafe_code, reason = "this is the island for system calls")]

mod datagrams;
mod ethtool;

use std::{
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd},
};

use libc::{c_int, c_void};
use nix::{
    sched::{CpuSet, sched_setaffinity},
    sys::socket::{MsgFlags, recv},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};

pub use self::{
    datagrams::Datagrams,
    ethtool::{Flow, HashFields, Rings, hash_fields, merges_in_hardware, merges_in_kernel, rings, set_hash_fields},
};

/// `XDP_MAX_TX_SKB_BUDGET` of linux/if_xdp.h, Linux 6.17 and later.
const XDP_MAX_TX_SKB_BUDGET: c_int = 9;
/// `ETHTOOL_GCHANNELS` and the others are of linux/ethtool.h.
const ETHTOOL_GCHANNELS: u32 = 0x3c;
const ETHTOOL_SCHANNELS: u32 = 0x3d;
const ETHTOOL_GDRVINFO: u32 = 0x03;
/// Flags of features, and the one for removing VLAN tags from received packets.
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETH_FLAG_RXVLAN: u32 = 1 << 8;
/// How many counters the driver has, their names, their values; the number of the set of counters; the length of a name.
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSTATS: u32 = 0x1d;
const ETH_SS_STATS: u32 = 1;
const ETH_GSTRING_WORDS: usize = 32 / 4;

/// How many queues an interface receives on and sends from right now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Receive queues.
    pub rx: u32,
    /// Transmit queues.
    pub tx: u32,
    /// The most pairs of them that the driver can be set to.
    pub max: u32,
    /// A channel is a pair: both counts are set as one (`ethtool -L IF combined N`).
    pub combined: bool,
}

/// Asks the driver for its channel counts. `EOPNOTSUPP` where the driver has no notion of channels: it then has one.
pub fn channels(interface: &str) -> io::Result<Channels> {
    let [_, max_rx, max_tx, _, max_combined, rx, tx, _other, combined] = raw_channels(interface)?;
    let max = max_combined.max(max_rx.min(max_tx));
    Ok(Channels { rx: rx + combined, tx: tx + combined, max, combined: max_combined > 0 })
}

/// struct ethtool_channels: cmd, four maxima, then the counts of rx, tx, other, combined.
fn raw_channels(interface: &str) -> io::Result<[u32; 9]> {
    let mut request = [0; 9];
    request[0] = ETHTOOL_GCHANNELS;
    ethtool(interface, &mut request)?;
    Ok(request)
}

/// Whether the channels may be set: sets them to what they are, which changes nothing and is no call of the driver.
pub fn may_set_channels(interface: &str) -> io::Result<()> {
    let mut request = raw_channels(interface)?;
    request[0] = ETHTOOL_SCHANNELS;
    ethtool(interface, &mut request)
}

/// Has the driver receive on, and send from, so many queues. It refuses fewer while an AF_XDP socket is bound to one that would go (`EINVAL`).
pub fn set_channels(interface: &str, count: u32) -> io::Result<()> {
    let mut request = raw_channels(interface)?;
    request[0] = ETHTOOL_SCHANNELS;
    let [_, _, _, _, max_combined, rx, tx, _, combined] = &mut request;
    if *max_combined > 0 {
        (*rx, *tx, *combined) = (0, 0, count);
    } else {
        (*rx, *tx) = (count, count);
    }
    ethtool(interface, &mut request)
}

/// The driver's name.
pub fn driver(interface: &str) -> io::Result<String> {
    // struct ethtool_drvinfo is 196 bytes: cmd, then the driver's name in 32 bytes, then what we do not read.
    let mut request = [0u32; 49];
    request[0] = ETHTOOL_GDRVINFO;
    ethtool(interface, &mut request)?;
    Ok(text(&request[1..9]))
}

/// Whether the NIC takes VLAN tags off received packets, and tells the kernel of them beside the packet (`ethtool -k`: rx-vlan-offload).
pub fn strips_vlans(interface: &str) -> io::Result<bool> {
    Ok(ethtool_value(interface, ETHTOOL_GFLAGS)? & ETH_FLAG_RXVLAN != 0)
}

/// The driver's own counters, as `ethtool -S` shows them.
pub fn driver_statistics(interface: &str) -> io::Result<Vec<(String, u64)>> {
    // struct ethtool_sset_info: cmd, reserved, a mask of sets in 64 bits, then one word for each set.
    let mut request = [ETHTOOL_GSSET_INFO, 0, 0, 0, 0];
    request[2..4].copy_from_slice(&words(1 << ETH_SS_STATS));
    ethtool(interface, &mut request)?;
    let (found, counted) = (long(&request[2..4]), request[4]);
    let count = if found == 0 { 0 } else { counted as usize };
    // Should the driver have more counters by the time of the next request, an older kernel writes them all the same.
    let room = 2 * count + 4096;
    // struct ethtool_gstrings: cmd, set, count, the names.
    let mut names = vec![0; 3 + room * ETH_GSTRING_WORDS];
    names[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_STATS, counted]);
    ethtool(interface, &mut names)?;
    // struct ethtool_stats: cmd, count, the values in 64 bits.
    let mut values = vec![0; 2 + room * 2];
    values[..2].copy_from_slice(&[ETHTOOL_GSTATS, counted]);
    ethtool(interface, &mut values)?;
    let names = names[3..].chunks_exact(ETH_GSTRING_WORDS).map(text);
    Ok(names.zip(values[2..].chunks_exact(2).map(long)).take(count).collect())
}

/// Text that ends with a zero byte or with its field.
fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).take_while(|byte| *byte != 0).collect();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}

/// A number of 64 bits out of two words in memory order.
fn long(words: &[u32]) -> u64 {
    let mut bytes = [0; 8];
    bytes.iter_mut().zip(words.iter().flat_map(|word| word.to_ne_bytes())).for_each(|(to, from)| *to = from);
    u64::from_ne_bytes(bytes)
}

fn words(long: u64) -> [u32; 2] {
    let [a, b, c, d, e, f, g, h] = long.to_ne_bytes();
    [u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h])]
}

/// The running kernel's release, as `uname -r` says it.
#[must_use]
pub fn kernel_release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    if release.is_empty() { "(unknown)".to_owned() } else { release.trim().to_owned() }
}

/// Has a thread, 0 for the calling one, run on these CPUs and no others.
pub fn run_on(thread: i32, cpus: &[usize]) -> nix::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().try_for_each(|cpu| set.set(*cpu))?;
    sched_setaffinity(Pid::from_raw(thread), &set)
}

/// Gives the calling thread less of the CPU than the others have when there is not enough for all. Only on Linux is this about one thread.
pub fn lower_priority() -> io::Result<()> {
    const NICE: c_int = 10;
    // SAFETY: it takes no pointers; 0 is the calling thread.
    let result = unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, NICE) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Has the kernel back memory that was not touched yet by huge pages, where it can. Random access to a large table then misses the TLB less, and
/// there are fewer pages to fault in. A kernel that will not is no error: the memory works as before.
pub fn want_huge_pages<T>(memory: &[T]) {
    const PAGE: usize = 4096;
    let bytes = size_of_val(memory);
    let skipped = memory.as_ptr().align_offset(PAGE).saturating_mul(size_of::<T>());
    if bytes < HUGE_PAGE || skipped >= bytes {
        return;
    }
    let start = memory.as_ptr().cast::<u8>().wrapping_add(skipped);
    // SAFETY: `start` and the length are within `memory`, and this advice changes no content of any page.
    let _ = unsafe { libc::madvise(start.cast_mut().cast::<c_void>(), bytes - skipped, libc::MADV_HUGEPAGE) };
}

/// Memory smaller than this has no use for huge pages: their size on most machines.
const HUGE_PAGE: usize = 2 << 20;

/// What the kernel dropped or could not do for one AF_XDP socket (`struct xdp_statistics`), in frames.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct XdpStatistics {
    /// Received, dropped for another reason than those below.
    pub rx_dropped: u64,
    /// Descriptors in the fill ring that name no frame.
    pub rx_invalid_descs: u64,
    /// Descriptors in the TX ring that name no frame.
    pub tx_invalid_descs: u64,
    /// Received, dropped since the RX ring was full.
    pub rx_ring_full: u64,
    /// The fill ring was empty when a frame was wanted.
    pub rx_fill_ring_empty_descs: u64,
    /// The TX ring was empty when the kernel looked: no loss.
    pub tx_ring_empty_descs: u64,
}

impl std::ops::AddAssign for XdpStatistics {
    fn add_assign(&mut self, other: Self) {
        self.rx_dropped += other.rx_dropped;
        self.rx_invalid_descs += other.rx_invalid_descs;
        self.tx_invalid_descs += other.tx_invalid_descs;
        self.rx_ring_full += other.rx_ring_full;
        self.rx_fill_ring_empty_descs += other.rx_fill_ring_empty_descs;
        self.tx_ring_empty_descs += other.tx_ring_empty_descs;
    }
}

/// Reads the kernel's counters of an AF_XDP socket.
pub fn xdp_statistics(socket: impl AsFd) -> io::Result<XdpStatistics> {
    get_option(socket.as_fd(), libc::SOL_XDP, libc::XDP_STATISTICS)
}

/// Whether the kernel bound this AF_XDP socket in zero-copy mode.
pub fn is_zero_copy(socket: impl AsFd) -> io::Result<bool> {
    let flags: u32 = get_option(socket.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS)?;
    Ok(flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
}

/// Lets one system call send up to `frames` frames in copy mode, where the kernel's default is 32.
pub fn set_tx_budget(socket: impl AsFd, frames: u32) -> io::Result<()> {
    set_option(socket.as_fd(), libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &frames)
}

/// Makes the kernel poll the queue from the worker's own system calls, `microseconds` long and `budget` frames at most,
/// and keep its interrupt off meanwhile.
pub fn prefer_busy_poll(socket: impl AsFd, microseconds: u32, budget: u32) -> io::Result<()> {
    let socket = socket.as_fd();
    set_option(socket, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, &1u32)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &microseconds)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL_BUDGET, &budget)
}

/// Runs the NAPI of an AF_XDP socket's queue once, from here and beside its interrupt: SO_BUSY_POLL has recvfrom(2) do that (`xsk_recvmsg`). Raising
/// it takes CAP_NET_ADMIN. Nothing is read, since such a socket's frames are in its ring.
pub fn run_napi(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &1)?;
    // There is never anything to read, which it says.
    let _ = recv(socket.as_raw_fd(), &mut [], MsgFlags::MSG_DONTWAIT);
    set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &0)
}

/// Takes back what [`prefer_busy_poll`] did.
pub fn stop_busy_poll(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    set_option(socket, libc::SOL_SOCKET, libc::SO_PREFER_BUSY_POLL, &0)?;
    set_option(socket, libc::SOL_SOCKET, libc::SO_BUSY_POLL, &0)
}

/// The NAPI instance that serves this socket's queue; 0 where there is none to poll.
pub fn incoming_napi_id(socket: impl AsFd) -> io::Result<u32> {
    get_option(socket.as_fd(), libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID)
}

/// The CPU that the calling thread is on at this moment.
#[inline]
#[must_use]
pub fn current_cpu() -> usize {
    // SAFETY: takes no argument and touches no memory of ours. It reads the thread's own restartable-sequence area, no system call.
    let cpu = unsafe { libc::sched_getcpu() };
    usize::try_from(cpu).unwrap_or(0)
}

/// The calling thread's id, as `ps` and `taskset` know it.
#[must_use]
pub fn thread_id() -> i32 {
    // SAFETY: takes no argument and cannot fail.
    unsafe { libc::gettid() }
}

/// Has a UDP socket send datagrams whole up to the interface's MTU and forget what path MTU discovery says, so that forged ICMP messages
/// cannot make it fragment its replies.
pub fn ignore_path_mtu(socket: impl AsFd, ipv6: bool) -> io::Result<()> {
    let (level, name, omit) = if ipv6 {
        (libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_OMIT)
    } else {
        (libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_OMIT)
    };
    set_option(socket.as_fd(), level, name, &omit.cast_unsigned())
}

/// Lets so many clients send data with the packet that opens a TCP connection (RFC 7413), where the system has that on for servers.
pub fn set_tcp_fast_open(socket: impl AsFd, waiting: u32) -> io::Result<()> {
    set_option(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_FASTOPEN, &waiting)
}

/// Types that any bytes the kernel writes are a value of.
trait Plain: Copy + Default {
    const LEN: libc::socklen_t;
}
impl Plain for u32 {
    const LEN: libc::socklen_t = 4;
}
impl Plain for XdpStatistics {
    const LEN: libc::socklen_t = 6 * 8;
}

fn get_option<T: Plain>(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<T> {
    const { assert!(size_of::<T>() == T::LEN as usize) };
    let mut value = T::default();
    let mut length = T::LEN;
    // SAFETY: `value` is writable for `length` bytes, and `Plain` says that whatever is written there is a T.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), level, name, (&raw mut value).cast::<c_void>(), &raw mut length)
    };
    if result == 0 { Ok(value) } else { Err(io::Error::last_os_error()) }
}

fn set_option(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: &u32) -> io::Result<()> {
    let length = u32::LEN;
    // SAFETY: `value` is readable for `length` bytes and outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), level, name, std::ptr::from_ref(value).cast::<c_void>(), length)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What the driver answers to a command that asks for one number.
fn ethtool_value(interface: &str, command: u32) -> io::Result<u32> {
    // struct ethtool_value: cmd, the number.
    let mut request = [command, 0];
    ethtool(interface, &mut request)?;
    Ok(request[1])
}

/// One `SIOCETHTOOL` request. All of ethtool's fixed requests are made of 32-bit words and begin with the command.
fn ethtool(interface: &str, request: &mut [u32]) -> io::Result<()> {
    // Any socket will do; this one needs neither an address nor a loopback interface that is up.
    let socket = std::os::unix::net::UnixDatagram::unbound()?;
    // SAFETY: an ifreq is plain bytes, for which zero is a value.
    let mut ifreq: libc::ifreq = unsafe { std::mem::zeroed() };
    let name = interface.as_bytes();
    if name.is_empty() || name.len() >= ifreq.ifr_name.len() || name.contains(&0) {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in ifreq.ifr_name.iter_mut().zip(name) {
        *to = from.cast_signed();
    }
    ifreq.ifr_ifru.ifru_data = request.as_mut_ptr().cast();
    // SAFETY: the name ends with a zero byte, since ifreq was zeroed and the name is shorter than its field; the data pointer is to a
    // buffer of the size that the kernel writes for this command, which the callers above take from linux/ethtool.h, with room to spare
    // where the driver decides how much that is.
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut ifreq) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_moved_by_its_id() {
        use nix::sched::sched_getaffinity;
        let all = sched_getaffinity(Pid::from_raw(0)).unwrap();
        let cpu = (0..CpuSet::count()).rfind(|cpu| all.is_set(*cpu).unwrap()).unwrap();
        run_on(thread_id(), &[cpu]).unwrap();
        let now = sched_getaffinity(Pid::from_raw(0)).unwrap();
        assert!((0..CpuSet::count()).all(|other| now.is_set(other).unwrap() == (other == cpu)));
        assert!(run_on(thread_id(), &[CpuSet::count()]).is_err());
    }

    #[test]
    fn a_name_that_no_interface_can_have_is_an_error() {
        for name in ["", "a-name-that-is-too-long", "nul\0inside", "nosuchif0"] {
            assert!(channels(name).is_err(), "{name:?}");
            assert!(driver(name).is_err(), "{name:?}");
            assert!(strips_vlans(name).is_err(), "{name:?}");
            assert!(driver_statistics(name).is_err(), "{name:?}");
            assert!(rings(name).is_err(), "{name:?}");
            assert!(hash_fields(name, Flow::Udp4).is_err(), "{name:?}");
            assert!(set_hash_fields(name, Flow::Udp6, HashFields::PORTS).is_err(), "{name:?}");
        }
    }

    #[test]
    fn what_the_kernel_counted_for_an_earlier_socket_is_added() {
        let counted = |base| XdpStatistics {
            rx_dropped: base,
            rx_invalid_descs: base + 1,
            tx_invalid_descs: base + 2,
            rx_ring_full: base + 3,
            rx_fill_ring_empty_descs: base + 4,
            tx_ring_empty_descs: base + 5,
        };
        let mut sum = counted(10);
        sum += counted(100);
        let XdpStatistics { rx_dropped, rx_invalid_descs, tx_invalid_descs, rx_ring_full, .. } = sum;
        assert_eq!([rx_dropped, rx_invalid_descs, tx_invalid_descs, rx_ring_full], [110, 112, 114, 116]);
        assert_eq!([sum.rx_fill_ring_empty_descs, sum.tx_ring_empty_descs], [118, 120]);
    }

    #[test]
    fn words_are_in_memory_order() {
        assert_eq!(long(&words(0x0123_4567_89ab_cdef)), 0x0123_4567_89ab_cdef);
        let name = [u32::from_ne_bytes(*b"  rx"), u32::from_ne_bytes(*b"0\0xx")];
        assert_eq!(text(&name), "rx0");
    }

    #[test]
    fn an_option_of_another_family_is_an_error() {
        let socket = std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap();
        assert!(xdp_statistics(&socket).is_err());
        assert!(set_tx_budget(&socket, 64).is_err());
    }

    #[test]
    fn this_thread_has_a_cpu_and_an_id() {
        assert!(current_cpu() < 4096);
        assert!(thread_id() > 0);
    }
}
