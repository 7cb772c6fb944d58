//! What the integration tests share.

pub mod server;

pub use xtask::{query, raw};
