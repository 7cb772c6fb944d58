//! `gather`: takes the replies to the load generator's queries off its NIC, each with the time at which it came in.
//!
//! A frame that comes from the port that is asked, and goes to one of the ports that are asked from, is given to the AF_XDP socket of its receive
//! queue, behind eight bytes with the time (CLOCK_MONOTONIC, nanoseconds, in the CPU's byte order): so the generator may sleep until its next query is
//! due and still know when the reply was there. Where nobody wants to see the replies they are counted here and dropped.
//!
//! Everything else is the kernel's. Whether a reply is right, or from the right address, is for the generator to see.
//!
//! For the host it compiles too, to a program that does nothing: so the lints read it.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(
    unsafe_code,
    reason = "packets and map values are reached by raw pointers, and the loader's symbols by names"
)]

mod packet;

use aya_ebpf::{
    Global,
    bindings::xdp_action::{XDP_DROP, XDP_PASS},
    helpers::{bpf_ktime_get_ns, bpf_xdp_adjust_head},
    macros::{map, xdp},
    maps::{PerCpuArray, XskMap},
    programs::XdpContext,
};
use network_types::udp::UdpHdr;

/// One slot for each receive queue of the NIC; the loader sizes it.
#[map]
static XSKS: XskMap = XskMap::with_max_entries(1, 0);

/// Replies that were dropped.
#[map]
static UNSEEN: PerCpuArray<u64> = PerCpuArray::with_max_entries(1, 0);

/// The port that is asked, and the first and last port that are asked from.
#[unsafe(no_mangle)]
static ASKED_PORT: Global<u16> = Global::new(0);
#[unsafe(no_mangle)]
static FIRST_PORT: Global<u16> = Global::new(0);
#[unsafe(no_mangle)]
static LAST_PORT: Global<u16> = Global::new(0);

/// 1 where replies are only counted.
#[unsafe(no_mangle)]
static COUNT_ONLY: Global<u8> = Global::new(0);

/// Bytes of a time.
const TIME_LEN: i32 = 8;

#[xdp]
fn gather(ctx: XdpContext) -> u32 {
    if !is_reply(&ctx) {
        return XDP_PASS;
    }
    if COUNT_ONLY.load() != 0 {
        if let Some(counter) = UNSEEN.get_ptr_mut(0) {
            // SAFETY: the map's slot of this CPU, on which no other XDP program runs until this one returns.
            unsafe { *counter += 1 };
        }
        return XDP_DROP;
    }
    stamp(&ctx);
    XSKS.redirect(ctx.rx_queue_index(), u64::from(XDP_PASS)).unwrap_or(XDP_PASS)
}

#[inline(always)]
fn is_reply(ctx: &XdpContext) -> bool {
    let Some(found) = packet::udp(ctx) else { return false };
    let Some(udp) = packet::header::<UdpHdr>(ctx, found.udp) else { return false };
    udp.src_port() == ASKED_PORT.load() && (FIRST_PORT.load()..=LAST_PORT.load()).contains(&udp.dst_port())
}

/// Puts the time in front of the frame. Where the driver leaves no room for that there is none, and the generator sees a frame that is no reply.
#[inline(always)]
fn stamp(ctx: &XdpContext) {
    // SAFETY: the context is the one that this program was called with.
    if unsafe { bpf_xdp_adjust_head(ctx.ctx, -TIME_LEN) } != 0 {
        return;
    }
    // SAFETY: takes nothing and touches nothing.
    let now_ns = unsafe { bpf_ktime_get_ns() };
    if let Some(start) = packet::pointer::<u64>(ctx, 0) {
        // SAFETY: these bytes are within the frame.
        unsafe { start.write_unaligned(now_ns) };
    }
}

#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
