//! `observe`: counts DNS replies at the client's end of a veth pair, by the queue and CPU they left the server from.
//!
//! The receive queue of one end of a veth pair is the transmit queue of the other, and the receiving program runs where the
//! transmitting system call does. So what is counted here is where a reply really left, whatever the server says.
//!
//! It passes every frame and checks no more than it needs to find the port: the client's kernel does the rest.
//!
//! For the host it compiles too, to a program that does nothing: so the lints read it.
#![cfg_attr(target_arch = "bpf", no_std, no_main)]
#![expect(unsafe_code, reason = "packets and map values are reached by raw pointers")]

mod packet;

use aya_ebpf::{
    bindings::xdp_action::XDP_PASS,
    helpers::bpf_get_smp_processor_id,
    macros::{map, xdp},
    maps::HashMap,
    programs::XdpContext,
};
use network_types::udp::UdpHdr;
use responder_common::Seen;

const DNS_PORT: u16 = 53;

#[map]
static SEEN: HashMap<Seen, u64> = HashMap::with_max_entries(65_536, 0);

#[xdp]
fn observe(ctx: XdpContext) -> u32 {
    if let Some(port) = client_port(&ctx) {
        // SAFETY: takes nothing and touches nothing.
        let cpu = unsafe { bpf_get_smp_processor_id() };
        count([u32::from(port), ctx.rx_queue_index(), cpu]);
    }
    XDP_PASS
}

/// The port that a DNS reply goes to.
#[inline(always)]
fn client_port(ctx: &XdpContext) -> Option<u16> {
    let found = packet::udp(ctx)?;
    let udp: &UdpHdr = packet::header(ctx, found.udp)?;
    (udp.src_port() == DNS_PORT).then(|| udp.dst_port())
}

#[inline(always)]
fn count(key: Seen) {
    if let Some(counter) = SEEN.get_ptr_mut(key) {
        // SAFETY: the CPU is part of the key, so no other CPU writes here.
        unsafe { *counter += 1 };
    } else {
        // A full map loses the reply; the totals then disagree, and the reader sees it.
        let _ = SEEN.insert(key, 1, 0);
    }
}

#[cfg(not(target_arch = "bpf"))]
fn main() {}

#[cfg(target_arch = "bpf")]
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
