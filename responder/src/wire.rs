//! Bytes in, bytes out: one file per format. No I/O, no clock, no allocation, no unsafe.

pub mod checksum;
pub mod frame;
pub mod message;
pub mod name;
pub mod rcode;
