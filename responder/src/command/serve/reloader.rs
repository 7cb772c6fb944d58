//! Reloads of a running server, one after the other, each on a thread of its own with a low priority: it must not take CPU time from the workers, and
//! the control thread goes on to answer meanwhile.

use std::{
    collections::VecDeque,
    future,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
    time::Instant,
};

use tokio::sync::oneshot;

use crate::{
    cli::{LogLevel, ServiceKind},
    config::Config,
    control::reload::{Report, Zone},
    privilege,
    service::Rules,
    sys,
    zone::{Contents, Zones},
};

/// What is in service, as far as a reload must know it, and the reloads that are asked for.
pub(super) struct Reloader {
    config: Arc<Config>,
    contents: Arc<Contents>,
    zone_directory: Option<PathBuf>,
    waiting: VecDeque<Wanted>,
    running: Option<(Wanted, oneshot::Receiver<Read>)>,
}

/// A reload of all, or of one zone; SIGHUP wants no answer.
struct Wanted {
    zone: Option<String>,
    reply: Option<oneshot::Sender<Report>>,
}

/// What the thread found.
struct Read {
    report: Report,
    zones: Option<(Contents, Zones)>,
    settings: Option<Settings>,
}

/// What a running server takes of the configuration, beside its zones.
pub(super) struct Settings {
    pub(super) rules: Rules,
    pub(super) listen: Vec<SocketAddr>,
    pub(super) log_level: LogLevel,
    zone_directory: Option<PathBuf>,
}

/// What is to be put in service, before the reply is sent.
pub(super) struct Done {
    pub(super) zones: Option<Zones>,
    pub(super) settings: Option<Settings>,
    pub(super) report: Report,
    reply: Option<oneshot::Sender<Report>>,
}

impl Reloader {
    pub(super) fn new(config: &Config, contents: Contents) -> Self {
        Self {
            config: Arc::new(config.clone()),
            contents: Arc::new(contents),
            zone_directory: config.zone_directory().map(Path::to_owned),
            waiting: VecDeque::new(),
            running: None,
        }
    }

    /// The files that each zone in service was read from.
    pub(super) fn files(&self) -> Vec<(String, Vec<PathBuf>)> {
        self.contents.files()
    }

    /// The directory of zones, as of the last reload.
    pub(super) fn zone_directory(&self) -> Option<&Path> {
        self.zone_directory.as_deref()
    }

    /// Begins a reload, now or when those before it are done.
    pub(super) fn want(&mut self, zone: Option<String>, reply: Option<oneshot::Sender<Report>>) {
        self.waiting.push_back(Wanted { zone, reply });
        self.start();
    }

    fn start(&mut self) {
        if self.running.is_some() {
            return;
        }
        let Some(wanted) = self.waiting.pop_front() else { return };
        let (sender, receiver) = oneshot::channel();
        let (config, contents, zone) = (Arc::clone(&self.config), Arc::clone(&self.contents), wanted.zone.clone());
        let work = move || {
            privilege::drop_all_but_reading();
            // Without it the reload takes no longer, and the workers may.
            if let Err(error) = sys::lower_priority() {
                tracing::warn!("the reload runs at the priority of the workers: {error}");
            }
            // A server that has ended wants nothing any more.
            let _ended = sender.send(read(&config, &contents, zone.as_deref()));
        };
        // A thread that cannot be started drops the sender, which is how the receiver learns of it.
        if let Err(error) = thread::Builder::new().name("reload".to_owned()).spawn(work) {
            tracing::warn!("cannot start a thread for the reload: {error}");
        }
        self.running = Some((wanted, receiver));
    }

    /// The end of the reload that runs; never if none does.
    pub(super) async fn done(&mut self) -> Done {
        let Some((_, receiver)) = &mut self.running else { return future::pending().await };
        let read = receiver.await.unwrap_or_else(|_| Read {
            report: Report {
                errors: vec!["the reload could not be done: see the log".to_owned()],
                ..Report::default()
            },
            zones: None,
            settings: None,
        });
        let reply = self.running.take().and_then(|(wanted, _)| wanted.reply);
        let zones = read.zones.map(|(contents, zones)| {
            self.contents = Arc::new(contents);
            zones
        });
        if let Some(settings) = &read.settings {
            self.zone_directory.clone_from(&settings.zone_directory);
        }
        self.start();
        Done { zones, settings: read.settings, report: read.report, reply }
    }
}

impl Done {
    /// Tells the client, if there is one, and the log.
    pub(super) fn tell(self) {
        let is_clean = self.report.is_clean() && self.report.needs_restart.is_empty();
        for line in self.report.render().lines() {
            if is_clean { tracing::info!("reload: {line}") } else { tracing::warn!("reload: {line}") }
        }
        if let Some(reply) = self.reply {
            // A client that has gone needs no answer.
            let _gone = reply.send(self.report);
        }
    }
}

fn read(config: &Config, contents: &Contents, zone: Option<&str>) -> Read {
    let started = Instant::now();
    let now = match config.read_again() {
        Ok(now) => now,
        Err(error) => {
            let report = Report { errors: vec![format!("{error:#}")], ..Report::default() };
            return Read { report, zones: None, settings: None };
        }
    };
    let mut report = Report { needs_restart: config.needs_restart(&now), ..Report::default() };
    let mut zones = None;
    if config.service == ServiceKind::Dns {
        let reloaded = contents.reload(&now.zones, zone);
        report.zones = reloaded.outcomes.into_iter().map(Zone::from).collect();
        zones = reloaded.next;
    }
    report.seconds = started.elapsed().as_secs_f64();
    // Who asks for one zone asks for nothing else.
    let zone_directory = now.zone_directory().map(Path::to_owned);
    let settings = Settings { rules: now.rules, listen: now.listen, log_level: now.log_level, zone_directory };
    Read { report, zones, settings: zone.is_none().then_some(settings) }
}
