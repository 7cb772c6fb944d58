//! The `responder` command: parse, dispatch, and turn an error into one sentence and an exit status.

use std::process::ExitCode;

use clap::Parser;
use responder::{
    cli::{Cli, Command},
    command::{self, serve::Start},
};

fn main() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(flags) => command::serve::run(&flags, Start::Alone),
        Command::Upgrade(flags) => command::serve::run(&flags, Start::TakeOver),
        Command::Check(flags) => command::check::run(&flags),
        Command::Status(flags) => command::status::run(&flags),
        Command::Top(flags) => command::top::run(&flags),
        Command::Doctor(flags) => command::doctor::run(&flags),
        Command::Drain(flags) => command::drain::run(&flags),
        Command::Flood(flags) => command::flood::run(&flags),
        Command::Health(flags) => command::health::run(&flags),
        Command::Queues(flags) => command::queues::run(&flags),
        Command::Reload(flags) => command::reload::run(&flags),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
