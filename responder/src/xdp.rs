//! The bypass path: steer frames into one AF_XDP socket per queue, answer each in the frame it came in.

pub mod socket;
pub mod topology;
pub mod worker;
