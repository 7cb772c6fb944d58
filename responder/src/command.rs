//! The commands, one file each.

pub mod check;
pub mod doctor;
pub mod drain;
pub mod flood;
pub mod health;
pub mod queues;
pub mod reload;
pub mod serve;
pub mod status;
pub mod top;

use std::{
    env,
    io::{IsTerminal as _, stdout},
};

/// Whether what is printed may have colours: on a terminal, unless NO_COLOR has any value but none, as no-color.org has it.
fn has_color() -> bool {
    stdout().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}
