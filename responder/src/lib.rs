//! An authoritative DNS server that answers from AF_XDP sockets, one per receive queue of a NIC.
//!
//! `ARCHITECTURE.md` at the top of the repository is the map.

pub mod answer;
pub mod counters;
pub mod wire;
pub mod xdp;
pub mod zone;
