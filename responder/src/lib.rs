//! An authoritative DNS server that answers from AF_XDP sockets, one per receive queue of a NIC.
//!
//! `ARCHITECTURE.md` at the top of the repository is the map.

pub mod answer;
pub mod cli;
pub mod command;
pub mod config;
pub mod control;
pub mod counters;
pub mod doctor;
pub mod flood;
pub mod guard;
pub mod interface;
pub mod kernel;
pub mod latest;
pub mod log;
pub mod privilege;
pub mod service;
pub mod sys;
pub mod wire;
pub mod xdp;
pub mod zone;
