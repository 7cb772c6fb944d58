//! `responder serve`: bring everything up in order, watch over it, take it down in order.
//!
//! Zones are loaded and interfaces looked at before anything is opened; kernel sockets listen before the XDP program is attached. So
//! nothing is left half-started when something is wrong, and no packet is steered to nobody.

use std::{
    net::{IpAddr, SocketAddr},
    process::ExitCode,
    sync::Arc,
    time::Instant,
};

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

use crate::{
    cli::{Io, Serve, ServiceKind},
    config::Config,
    control::{Control, status::Status},
    guard::AddressList,
    interface::{self, AddressChange, Interface},
    kernel::KernelPath,
    service::Service,
    xdp::{Bypass, worker::Handler},
    zone::Zones,
};

/// Serves until a signal.
pub fn run(flags: Serve) -> Result<ExitCode> {
    let config = Config::new(flags)?;
    let service = load(&config)?;
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the control thread's runtime")?
        .block_on(serve(&config, service))?;
    Ok(ExitCode::SUCCESS)
}

/// Loads what the service answers from.
fn load(config: &Config) -> Result<Service> {
    Ok(match config.service {
        ServiceKind::Dns => Service::Dns(Arc::new(Zones::load(&config.zones)?)),
        ServiceKind::Echo => Service::Echo,
        ServiceKind::Sink => Service::Sink,
    })
}
