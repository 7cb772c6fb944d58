//! `responder serve`: bring everything up in order, watch over it, take it down in order.
//!
//! Zones are loaded and interfaces looked at before anything is opened; kernel sockets listen before the XDP program is attached. So
//! nothing is left half-started when something is wrong, and no packet is steered to nobody.

mod meter;
mod reloader;
mod server;
mod supervisor;
mod watcher;

use std::{
    net::SocketAddr,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tokio::{
    signal::unix::{Signal, SignalKind, signal},
    task::LocalSet,
    time::MissedTickBehavior,
};

use reloader::Reloader;
use server::Server;
use supervisor::Supervisor;
use watcher::{Changed, Watcher};

use crate::{
    cli::{Io, Serve, ServiceKind},
    config::Config,
    control::{self, Control, Request, metrics, reload::shown},
    interface::Monitor,
    log, privilege,
    service::Service,
    zone::{Contents, Published},
};

/// How often the queues are looked after, and whether zones that were replaced can be freed.
const TICK: Duration = Duration::from_millis(250);
/// How long TCP connections may go on when the server ends in an orderly way.
const FINISH_WITHIN: Duration = Duration::from_secs(5);

/// How a server begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// There is no other.
    Alone,
    /// Another one serves the same and ends when this one can.
    TakeOver,
}

/// Serves until a signal.
pub fn run(flags: &Serve, start: Start) -> Result<ExitCode> {
    let config = match Config::new(flags) {
        Ok(config) => config,
        // As for what the parser itself refuses.
        Err(error) => {
            eprintln!("error: {error:#}");
            return Ok(ExitCode::from(2));
        }
    };
    log::start(config.log_level);
    privilege::begin(&config)?;
    // As the user who will read it again.
    config.read_again().map_err(privilege::explain)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the control thread's runtime")?;
    let hangup = {
        // Before the zones are loaded, which takes a while and must not be ended by it.
        let _context = runtime.enter();
        signal(SignalKind::hangup()).context("cannot watch for SIGHUP")?
    };
    let (service, zones, contents) = load(&config).map_err(privilege::explain)?;
    let reloader = Reloader::new(&config, contents);
    // TCP's tasks share their state within this one thread.
    LocalSet::new().block_on(&runtime, serve(&config, service, zones, reloader, hangup, start))?;
    Ok(ExitCode::SUCCESS)
}

/// Loads what the service answers from, and says what was loaded.
fn load(config: &Config) -> Result<(Service, Option<Published>, Contents)> {
    match config.service {
        ServiceKind::Echo => return Ok((Service::Echo, None, Contents::default())),
        ServiceKind::Sink => return Ok((Service::Sink, None, Contents::default())),
        ServiceKind::Dns => {}
    }
    let started = Instant::now();
    tracing::info!("loading zones: {}", config.zones.len());
    let (contents, zones) = Contents::load(&config.zones)?;
    let elapsed_s = started.elapsed().as_secs_f64();
    let summary = zones.summary();
    let records: usize = summary.iter().map(|zone| zone.records).sum();
    tracing::info!("loaded {records} records in {elapsed_s:.2} s");
    for warning in summary.iter().flat_map(|zone| shown(&zone.warnings)) {
        tracing::warn!("{warning}");
    }
    let zones = Published::new(zones);
    Ok((Service::Dns(zones.view()), Some(zones), contents))
}

async fn serve(
    config: &Config,
    service: Service,
    zones: Option<Published>,
    mut reloader: Reloader,
    mut hangup: Signal,
    start: Start,
) -> Result<()> {
    let mut monitor = Monitor::open()?;
    let mut interfaces = Vec::with_capacity(config.interfaces.len());
    for name in &config.interfaces {
        let interface = monitor.read(name).await?;
        if config.io == Io::Xdp {
            interface.check_bypass()?;
        }
        interfaces.push(interface);
    }
    let mut control = match start {
        Start::Alone => Control::listen(&config.control)?,
        Start::TakeOver => Control::listen_beside(&config.control)?,
    };
    let mut metrics_at = config.metrics;
    if start == Start::Alone {
        listen_for_metrics(&mut metrics_at, &control)?;
    }
    let mut stop = Signals::new()?;

    let mut server = Server::start(config, service, zones, &interfaces, start)?;
    if start == Start::TakeOver {
        control::ask_to_make_way(&config.control)?;
    }
    server.join()?;
    server.settle()?;
    if start == Start::TakeOver {
        control::ask_to_finish(&config.control)?;
        control.replace_other(&config.control)?;
    }
    let mut tick = tokio::time::interval(TICK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tracing::info!("ready: {}", server.summary());
    let mut watcher = config.watch.then(|| Watcher::new(config, &reloader.files())).transpose()?;
    let mut supervisor = Supervisor::new();
    supervisor.ready(server.zone_count());
    loop {
        tokio::select! {
            signal = stop.received() => {
                tracing::info!("{signal}: stopping");
                supervisor.stopping();
                return Ok(());
            }
            request = control.request() => match request {
                // A client that has gone needs no answer.
                Request::Status(reply) => drop(reply.send(server.status(control.refused()))),
                Request::MakeWay(reply) => {
                    tracing::info!("another server takes over: leaving the bypass");
                    server.make_way();
                    // If it has gone, the bypasses join again.
                    let _ = reply.send(());
                }
                Request::Finish(reply) => {
                    tracing::info!("another server has taken over: stopping");
                    supervisor.stopping();
                    control.forget();
                    return server.end(reply).await;
                }
                Request::Bypass { interface, join, reply } => {
                    // A client that has gone needs no answer.
                    let _ = reply.send(server.leave_or_join(&interface, join));
                }
                Request::Drain { wait, reply } => {
                    tracing::info!("draining: stopping in {:.1} s", wait.as_secs_f64());
                    server.drain(wait, reply);
                }
                Request::Reload { zone, reply } => {
                    supervisor.reloading();
                    reloader.want(zone, Some(reply));
                }
            },
            reply = server.drained() => {
                tracing::info!("drained: stopping");
                supervisor.stopping();
                return server.end(reply).await;
            }
            Some(()) = hangup.recv() => {
                supervisor.reloading();
                reloader.want(None, None);
            }
            mut done = reloader.done() => {
                done.report.not_taken = server.take(done.zones.take(), done.settings.take());
                supervisor.ready(server.zone_count());
                if let Some(watcher) = &mut watcher {
                    watcher.follow(&reloader.files(), reloader.zone_directory());
                }
                done.tell();
            }
            _ = tick.tick() => {
                server.tick();
                supervisor.alive();
                if let Some(changed) = watcher.as_mut().and_then(Watcher::look) {
                    supervisor.reloading();
                    match changed {
                        Changed::All => reloader.want(None, None),
                        Changed::Zone(zone) => reloader.want(Some(zone), None),
                    }
                }
                // The other server may have the port for some seconds more.
                if let Err(error) = listen_for_metrics(&mut metrics_at, &control)
                    && server.uptime() > 2 * FINISH_WITHIN
                {
                    tracing::warn!("{error:#}");
                    metrics_at = None;
                }
            }
            () = monitor.changed() => {
                for name in &config.interfaces {
                    // An interface that has gone took its sockets with it; it may come back, and a look costs nothing.
                    match monitor.read(name).await {
                        Ok(interface) => server.follow(interface),
                        Err(error) => server.lost(name, &error),
                    }
                }
            }
        }
    }
}

/// Serves metrics where they are not served yet.
fn listen_for_metrics(wanted: &mut Option<SocketAddr>, control: &Control) -> Result<()> {
    if let Some(address) = *wanted {
        metrics::listen(address, control.sender())?;
        *wanted = None;
    }
    Ok(())
}

/// The signals that end the server.
struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> Result<Self> {
        let watch = |kind| signal(kind).context("cannot watch for signals");
        Ok(Self { interrupt: watch(SignalKind::interrupt())?, terminate: watch(SignalKind::terminate())? })
    }

    async fn received(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
        }
    }
}
