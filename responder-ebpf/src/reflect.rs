//! `reflect`: sends each UDP datagram to port 53 back to where it came from, from within the driver (XDP_TX), as it is.
//!
//! It is the limit of what a machine can answer: no copy, no wake-up, no user space, no DNS. MAC addresses, IP addresses and ports change
//! places, which no checksum notices. Everything else is the kernel's.
//!
//! For the host it compiles too, to a program that does nothing: so the lints read it.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(unsafe_code, reason = "packets are reached by raw pointers")]

mod packet;

use aya_ebpf::{
    bindings::xdp_action::{XDP_PASS, XDP_TX},
    macros::xdp,
    programs::XdpContext,
};
use network_types::udp::UdpHdr;

const DNS_PORT: u16 = 53;
const SRC_IN_IPV4: usize = 12;
const SRC_IN_IPV6: usize = 8;

#[xdp]
fn reflect(ctx: XdpContext) -> u32 {
    turn_round(&ctx).map_or(XDP_PASS, |()| XDP_TX)
}

#[inline(always)]
fn turn_round(ctx: &XdpContext) -> Option<()> {
    let found = packet::udp(ctx)?;
    let udp: &UdpHdr = packet::header(ctx, found.udp)?;
    if udp.dst_port() != DNS_PORT {
        return None;
    }
    swap::<[u8; 6]>(ctx, 0)?;
    if found.is_v4 {
        swap::<[u8; 4]>(ctx, found.ip + SRC_IN_IPV4)?;
    } else {
        swap::<[u8; 16]>(ctx, found.ip + SRC_IN_IPV6)?;
    }
    swap::<[u8; 2]>(ctx, found.udp)
}

/// Has two fields that follow each other change places.
#[inline(always)]
fn swap<T: Copy>(ctx: &XdpContext, offset: usize) -> Option<()> {
    let pair = packet::pointer::<[T; 2]>(ctx, offset)?;
    // SAFETY: both are within the frame, and arrays of bytes.
    unsafe {
        let [one, other] = pair.read_unaligned();
        pair.write_unaligned([other, one]);
    }
    Some(())
}

#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
