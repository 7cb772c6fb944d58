//! The `responder` command.
fn main() {}
