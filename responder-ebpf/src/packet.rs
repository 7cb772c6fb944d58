//! How `observe`, `gather` and `reflect` find the UDP header of a frame: Ethernet II, up to two VLAN tags, IPv4 without options or IPv6 without
//! extension headers, UDP. `classify`, which must say what is wrong with a frame, has checks of its own.

use aya_ebpf::programs::XdpContext;
use network_types::{
    eth::{EthHdr, EtherType},
    ip::{IpProto, Ipv4Hdr, Ipv6Hdr},
    vlan::VlanHdr,
};

/// Where the headers of a UDP datagram are in its frame.
#[allow(dead_code, reason = "each of the three programs has its own use of it")]
#[derive(Clone, Copy)]
pub(crate) struct Udp {
    pub(crate) is_v4: bool,
    /// Offset of the IP header: 14, 18 or 22.
    pub(crate) ip: usize,
    /// Offset of the UDP header.
    pub(crate) udp: usize,
}

/// The frame's UDP datagram, if it is one.
#[inline(always)]
pub(crate) fn udp(ctx: &XdpContext) -> Option<Udp> {
    let ethernet: &EthHdr = header(ctx, 0)?;
    let (mut ether_type, mut ip) = (ethernet.ether_type, EthHdr::LEN);
    for _ in 0..2 {
        if ether_type != EtherType::Ieee8021q as u16 && ether_type != EtherType::Ieee8021ad as u16 {
            break;
        }
        ether_type = header::<VlanHdr>(ctx, ip)?.ether_type;
        ip += VlanHdr::LEN;
    }
    if ether_type == EtherType::Ipv4 as u16 {
        /// Version 4, header length 5 words.
        const NO_OPTIONS: u8 = 0x45;
        let header: &Ipv4Hdr = header(ctx, ip)?;
        let is_udp = header.vihl == NO_OPTIONS && header.proto == IpProto::Udp as u8 && header.frag_offset() == 0;
        return is_udp.then_some(Udp { is_v4: true, ip, udp: ip + Ipv4Hdr::LEN });
    }
    if ether_type == EtherType::Ipv6 as u16 {
        let is_udp = header::<Ipv6Hdr>(ctx, ip)?.next_hdr == IpProto::Udp as u8;
        return is_udp.then_some(Udp { is_v4: false, ip, udp: ip + Ipv6Hdr::LEN });
    }
    None
}

/// The header `T` at `offset`, if all of it is in the frame.
#[inline(always)]
pub(crate) fn header<T>(ctx: &XdpContext, offset: usize) -> Option<&T> {
    // SAFETY: the bytes are within the frame, which nobody else touches while the program runs; each `T` is made of integers, for
    // which any bytes are a value, with an alignment of 1 or 2, which is also that of each offset and of the frame's start.
    pointer(ctx, offset).map(|header| unsafe { &*header })
}

/// Where the `T` at `offset` is, if all of it is in the frame. The verifier wants this very pointer to be used.
#[inline(always)]
pub(crate) fn pointer<T>(ctx: &XdpContext, offset: usize) -> Option<*mut T> {
    let start = ctx.data() + offset;
    (start + size_of::<T>() <= ctx.data_end()).then_some(start as *mut T)
}
