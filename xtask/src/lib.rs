//! The project's tools as a library, so that the integration tests build the same lab.

pub mod ask;
pub mod bench;
pub mod conformance;
pub mod dig;
pub mod ebpf;
pub mod lab;
pub mod matrix;
pub mod observe;
pub mod oracle;
pub mod package;
pub mod query;
pub mod raw;
pub mod reflect;
pub mod rehearse;
pub mod run;
pub mod setup;
pub mod test;
pub mod vm;
