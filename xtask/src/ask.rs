//! Stands in for the measuring client.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use serde::Serialize;

use crate::lab::Lab;

/// What to ask.
#[derive(Debug)]
pub struct Plan {
    /// Names and files.
    pub zones: Vec<(String, PathBuf)>,
    /// The server's IPv4 address.
    pub server_v4: Ipv4Addr,
    /// The server's IPv6 address.
    pub server_v6: Ipv6Addr,
    /// None: until stop.
    pub seconds: Option<u64>,
    /// Queries a second.
    pub rate: u32,
    /// Flows.
    pub flows: usize,
}

/// How far it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Progress {
    /// Time since the first query.
    pub elapsed: Duration,
    /// Queries sent.
    pub sent: u64,
    /// Queries answered right.
    pub right: u64,
    /// Queries answered wrong.
    pub wrong: u64,
    /// Queries not answered.
    pub lost: u64,
}

/// All figures.
#[derive(Debug, Serialize)]
pub struct Report;

impl Report {
    /// Good?
    #[must_use]
    pub fn is_good(&self) -> bool {
        true
    }

    /// What is not.
    #[must_use]
    pub fn problems(&self) -> Vec<String> {
        vec![]
    }

    /// Text.
    #[must_use]
    pub fn render(&self) -> String {
        "nothing was asked\n".to_owned()
    }
}

/// Asks.
pub fn run(
    _lab: &Lab,
    plan: &Plan,
    status: &mut dyn FnMut() -> anyhow::Result<serde_json::Value>,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(&Progress),
) -> anyhow::Result<Report> {
    let until = plan.seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    while !stop.load(Ordering::Relaxed) && until.is_none_or(|until| Instant::now() < until) {
        thread::sleep(Duration::from_millis(200));
        progress(&Progress::default());
    }
    println!("{}", status()?["version"]);
    Ok(Report)
}
