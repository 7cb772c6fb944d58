//! The commands, one file each.

pub mod check;
pub mod doctor;
pub mod reload;
pub mod serve;
pub mod status;
pub mod top;
