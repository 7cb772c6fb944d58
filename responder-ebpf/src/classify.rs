//! `classify`: decides for each received frame whether the socket of its receive queue gets it, or the kernel.
//!
//! A frame is redirected only if it is a plain UDP datagram to a MAC address, VLAN, IP address and port that are served, with
//! lengths that agree and a source that can be replied to: Ethernet II, up to two VLAN tags (IEEE 802.1Q, 802.1ad), IPv4 without
//! options and not a fragment (RFC 791) or IPv6 without extension headers (RFC 8200), UDP (RFC 768). Everything else, and
//! everything in doubt, is passed to the kernel untouched. Bytes behind the datagram (Ethernet padding) are no fault.
//!
//! It does not look into the payload, verify checksums or drop anything.
//!
//! The order is that of cost: what the frame itself says comes first, the map lookup of its destination last.
//!
//! For the host it compiles too, to a program that does nothing: so the lints read it.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(unsafe_code, reason = "packets, map values and the loader's symbols are reached by raw pointers and names")]

use core::{cell::UnsafeCell, hint::black_box};

use aya_ebpf::{
    Global,
    bindings::xdp_action::{XDP_PASS, XDP_REDIRECT},
    helpers::bpf_ktime_get_ns,
    macros::{map, xdp},
    maps::{HashMap, LpmTrie, PerCpuArray, XskMap, lpm_trie::Key},
    programs::XdpContext,
};
use aya_log_ebpf::{
    info,
    macro_support::{Level, level_enabled},
};
use network_types::{
    eth::{EthHdr, EtherType},
    ip::{IpProto, Ipv4Hdr, Ipv6Hdr},
    udp::UdpHdr,
    vlan::VlanHdr,
};
use responder_common::{LOG_RECORDS_PER_SECOND, MAX_PORTS, Verdict, vlan_key};

/// One slot for each receive queue of the NIC; the loader sizes it.
#[map]
static XSKS: XskMap = XskMap::with_max_entries(1, 0);

#[map]
static SERVED_V4: LpmTrie<u32, u8> = LpmTrie::with_max_entries(65_536, 0);

#[map]
static SERVED_V6: LpmTrie<u128, u8> = LpmTrie::with_max_entries(65_536, 0);

/// One entry for each VLAN; the loader sizes it.
#[map]
static SERVED_VLANS: HashMap<u32, u8> = HashMap::with_max_entries(1, 0);

#[expect(clippy::cast_possible_truncation, reason = "there are about a dozen")]
#[map]
static VERDICTS: PerCpuArray<u64> = PerCpuArray::with_max_entries(Verdict::ALL.len() as u32, 0);

#[map]
static LOG_BUDGET: PerCpuArray<LogBudget> = PerCpuArray::with_max_entries(1, 0);

#[unsafe(no_mangle)]
static PORTS: [Global<u16>; MAX_PORTS] = [const { Global::new(0) }; MAX_PORTS];

/// The MAC address that frames must be sent to, which user space may change: it is in a section that can be written, where a plain static is not.
struct Mac(UnsafeCell<u64>);

// SAFETY: the program only reads it, 8 aligned bytes at once, and user space writes them at once.
unsafe impl Sync for Mac {}

impl Mac {
    #[inline(always)]
    fn load(&self) -> u64 {
        // SAFETY: the cell is a static's; volatile, since user space changes it.
        unsafe { self.0.get().read_volatile() }
    }
}

#[unsafe(no_mangle)]
static MAC: Mac = Mac(UnsafeCell::new(0));

#[xdp]
fn classify(ctx: XdpContext) -> u32 {
    let verdict = match steer(&ctx) {
        Ok(()) => match XSKS.redirect(ctx.rx_queue_index(), u64::from(XDP_PASS)) {
            Ok(_) => Verdict::Redirected,
            Err(_) => Verdict::NoWorker,
        },
        Err(verdict) => verdict,
    };
    count(verdict);
    log(&ctx, verdict);
    if verdict == Verdict::Redirected { XDP_REDIRECT } else { XDP_PASS }
}

/// `Ok` if the frame is for the worker of its receive queue, else why it is not.
#[inline(always)]
fn steer(ctx: &XdpContext) -> Result<(), Verdict> {
    let ethernet: &EthHdr = header(ctx, 0)?;
    // The destination and two bytes of the source: one load instead of six.
    let first: &[u8; 8] = header(ctx, 0)?;
    if u64::from_be_bytes(*first) >> 16 != MAC.load() {
        return Err(Verdict::OtherMac);
    }
    if ethernet.src_addr[0] & 1 != 0 {
        return Err(Verdict::BadSource);
    }
    let (ether_type, offset) = behind_tags(ctx, ethernet.ether_type)?;
    if ether_type == EtherType::Ipv4 as u16 {
        steer_v4(ctx, offset)
    } else if ether_type == EtherType::Ipv6 as u16 {
        steer_v6(ctx, offset)
    } else {
        Err(Verdict::NotIp)
    }
}

/// The EtherType behind at most two VLAN tags, and the offset of what it names. Both are as `ether_type`: in network order.
#[inline(always)]
fn behind_tags(ctx: &XdpContext, ether_type: u16) -> Result<(u16, usize), Verdict> {
    if !is_tag(ether_type) {
        return Ok((ether_type, EthHdr::LEN));
    }
    let outer: &VlanHdr = header(ctx, EthHdr::LEN)?;
    let (key, ether_type, offset) = if is_tag(outer.ether_type) {
        let inner: &VlanHdr = header(ctx, EthHdr::LEN + VlanHdr::LEN)?;
        // A priority tag (id 0) behind another tag: without this its key would be that of the single tag.
        if inner.vid() == 0 {
            return Err(Verdict::OtherVlan);
        }
        (vlan_key(outer.vid(), inner.vid()), inner.ether_type, EthHdr::LEN + 2 * VlanHdr::LEN)
    } else {
        (vlan_key(outer.vid(), 0), outer.ether_type, EthHdr::LEN + VlanHdr::LEN)
    };
    // SAFETY: the value is not read, so that a concurrent removal cannot be seen.
    if unsafe { SERVED_VLANS.get(key) }.is_none() {
        return Err(Verdict::OtherVlan);
    }
    Ok((ether_type, offset))
}

#[inline(always)]
fn is_tag(ether_type: u16) -> bool {
    ether_type == EtherType::Ieee8021q as u16 || ether_type == EtherType::Ieee8021ad as u16
}

#[inline(always)]
fn steer_v4(ctx: &XdpContext, offset: usize) -> Result<(), Verdict> {
    /// Version 4, header length 5 words.
    const NO_OPTIONS: u8 = 0x45;
    /// Of the flags: more fragments follow. Bit 1 is don't-fragment, bit 2 is reserved.
    const MORE_FRAGMENTS: u8 = 1;

    let ip: &Ipv4Hdr = header(ctx, offset)?;
    if ip.vihl != NO_OPTIONS {
        return Err(if ip.version() == 4 && ip.vihl > NO_OPTIONS { Verdict::IpOptions } else { Verdict::BadLength });
    }
    if ip.frag_flags() & MORE_FRAGMENTS != 0 || ip.frag_offset() != 0 {
        return Err(Verdict::Fragment);
    }
    if ip.proto != IpProto::Udp as u8 {
        return Err(Verdict::NotUdp);
    }
    let udp: &UdpHdr = header(ctx, offset + Ipv4Hdr::LEN)?;
    let port = served_port(udp)?;
    let total = usize::from(ip.tot_len());
    if total < Ipv4Hdr::LEN + usize::from(udp.len())
        || usize::from(udp.len()) < UdpHdr::LEN
        || offset + total > frame_len(ctx)
    {
        return Err(Verdict::BadLength);
    }
    if !is_host_v4(ip.src_addr) {
        return Err(Verdict::BadSource);
    }
    let key = V4Key { key: Key::new(32, u32::from_ne_bytes(ip.dst_addr)) };
    if !is_host_v4(ip.dst_addr) {
        return Err(Verdict::OtherAddress);
    }
    served_there(SERVED_V4.get(&key.key), port)
}

#[inline(always)]
fn steer_v6(ctx: &XdpContext, offset: usize) -> Result<(), Verdict> {
    let ip: &Ipv6Hdr = header(ctx, offset)?;
    if ip.version() != 6 {
        return Err(Verdict::BadLength);
    }
    if ip.next_hdr != IpProto::Udp as u8 {
        return Err(if ip.next_hdr == IpProto::Ipv6Frag as u8 { Verdict::Fragment } else { Verdict::NotUdp });
    }
    let udp: &UdpHdr = header(ctx, offset + Ipv6Hdr::LEN)?;
    let port = served_port(udp)?;
    let payload = usize::from(ip.payload_len());
    if payload < usize::from(udp.len())
        || usize::from(udp.len()) < UdpHdr::LEN
        || offset + Ipv6Hdr::LEN + payload > frame_len(ctx)
    {
        return Err(Verdict::BadLength);
    }
    if udp.checksum() == 0 {
        return Err(Verdict::NoChecksum);
    }
    if !is_host_v6(ip.src_addr) {
        return Err(Verdict::BadSource);
    }
    let key = V6Key { _padding: 0, key: Key::new(128, u128::from_ne_bytes(ip.dst_addr)) };
    if !is_host_v6(ip.dst_addr) {
        return Err(Verdict::OtherAddress);
    }
    served_there(SERVED_V6.get(&key.key), port)
}

/// The bit that stands for the destination port in the values of the tries.
#[inline(always)]
fn served_port(udp: &UdpHdr) -> Result<u8, Verdict> {
    let port = udp.dst_port();
    // Unused entries are 0, and nobody serves port 0.
    let index = PORTS.iter().position(|served| port != 0 && served.load() == port);
    index.map(|index| 1 << index).ok_or(Verdict::OtherPort)
}

/// Whether an address, given what its trie says of it, is served at the port.
#[inline(always)]
fn served_there(ports: Option<&u8>, port: u8) -> Result<(), Verdict> {
    match ports {
        None => Err(Verdict::OtherAddress),
        Some(ports) if ports & port == 0 => Err(Verdict::OtherPort),
        Some(_) => Ok(()),
    }
}

/// Not "this network" (0/8), loopback (127/8), multicast (224/4), reserved or broadcast (240/4): RFC 6890, RFC 5771.
#[inline(always)]
fn is_host_v4(address: [u8; 4]) -> bool {
    !matches!(address[0], 0 | 127 | 224..)
}

/// Not multicast (ff00::/8), IPv4-mapped (::ffff:0:0/96), or in ::/96, where unspecified, loopback and the abandoned
/// IPv4-compatible addresses are: RFC 4291 section 2.5.
#[inline(always)]
fn is_host_v6(address: [u8; 16]) -> bool {
    let address = u128::from_be_bytes(address);
    address >> 120 != 0xff && !matches!(address >> 32, 0 | 0xffff)
}

// The keys of the tries, aligned. The compiler may load the frame's fields as misaligned as they are, and then stores them no better;
// but on the stack the verifier wants every store aligned, so what is stored must be aligned by itself.

#[repr(C, align(8))]
struct V4Key {
    key: Key<u32>,
}

#[repr(C, align(8))]
struct V6Key {
    /// Puts the address, which is behind 32 bits of prefix length, on a multiple of 8.
    _padding: u32,
    key: Key<u128>,
}

/// The header `T` at `offset`, if all of it is in the frame.
///
/// The only way from an offset to the frame's bytes, and the comparison that the verifier wants to see.
#[inline(always)]
fn header<T>(ctx: &XdpContext, offset: usize) -> Result<&T, Verdict> {
    if !holds(ctx, offset + size_of::<T>()) {
        return Err(Verdict::Truncated);
    }
    // SAFETY: the bytes are within the frame, which nobody else touches while the program runs; each `T` is made of integers, for
    // which any bytes are a value, with an alignment of 1 or 2, which is also that of each offset and of the frame's start.
    Ok(unsafe { &*((ctx.data() + offset) as *const T) })
}

/// Whether the frame has at least `len` bytes, a constant: verifiers before Linux 7 lose sight of how large a number is that was read
/// from the frame and turned into host order, and add no such number to a pointer.
#[inline(always)]
fn holds(ctx: &XdpContext, len: usize) -> bool {
    ctx.data() + len <= ctx.data_end()
}

/// The frame's length, for comparing with what its headers say.
#[inline(always)]
fn frame_len(ctx: &XdpContext) -> usize {
    ctx.data_end() - ctx.data()
}

#[inline(always)]
fn count(verdict: Verdict) {
    if let Some(counter) = VERDICTS.get_ptr_mut(verdict as u32) {
        // SAFETY: the map's slot of this CPU, on which no other XDP program runs until this one returns.
        unsafe { *counter += 1 };
    }
}

/// What is left of the log records that one CPU may write in a second.
struct LogBudget {
    second: u64,
    records: u32,
}

/// Logs the verdict, a few times a second. With the log level at 0 the verifier finds all of this dead and deletes it.
#[inline(always)]
fn log(ctx: &XdpContext, verdict: Verdict) {
    const NS_PER_SECOND: u64 = 1_000_000_000;

    if !level_enabled(Level::Info) {
        return;
    }
    let Some(budget) = LOG_BUDGET.get_ptr_mut(0) else { return };
    // SAFETY: the map's slot of this CPU, on which no other XDP program runs until this one returns.
    let budget = unsafe { &mut *budget };
    // SAFETY: takes nothing and touches nothing.
    let second = unsafe { bpf_ktime_get_ns() } / NS_PER_SECOND;
    if budget.second != second {
        *budget = LogBudget { second, records: 0 };
    }
    if budget.records < LOG_RECORDS_PER_SECOND {
        budget.records += 1;
        info!(ctx, "queue {}, {} bytes: {}", ctx.rx_queue_index(), ctx.data_end() - ctx.data(), name(verdict));
    }
}

/// The verdict's name with spaces behind it: a string of variable length would be a loop that the verifier has to follow.
#[inline(always)]
fn name(verdict: Verdict) -> &'static str {
    const LEN: usize = 16;
    static NAMES: [[u8; LEN]; Verdict::ALL.len()] = {
        let mut names = [[b' '; LEN]; Verdict::ALL.len()];
        let mut verdict = 0;
        while verdict < names.len() {
            let name = Verdict::ALL[verdict].name().as_bytes();
            names[verdict].split_at_mut(name.len()).0.copy_from_slice(name);
            verdict += 1;
        }
        names
    };
    // The compiler knows that a verdict is in bounds and may leave the check out; the verifier does not know.
    let index = black_box(verdict as usize);
    // SAFETY: whole names and spaces.
    NAMES.get(index).map_or("", |name| unsafe { core::str::from_utf8_unchecked(name) })
}

#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
