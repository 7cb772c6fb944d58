//! What the integration tests share.

pub mod query;
pub mod raw;
pub mod server;
