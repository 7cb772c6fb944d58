//! Files that change: zones, what they include, the configuration. With `--watch` a change is as good as `responder reload` of what it concerns.
//!
//! Directories are watched (inotify), since an editor puts a new file in the place of the old one. Changes are waited for until there are no more for a
//! second, five seconds at most. The target of a symbolic link is not watched, its name is. A file that is caught half written is an error of that
//! zone, which stays as it was, and the rest of it is the next change.

use std::{
    collections::{BTreeSet, HashMap},
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::config::Config;
use anyhow::{Context, Result};
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, WatchDescriptor};

/// No change for so long is the end of a change.
const QUIET: Duration = Duration::from_secs(1);
/// But no longer than this is waited.
const AT_MOST: Duration = Duration::from_secs(5);

/// What is watched, and what has changed.
pub(super) struct Watcher {
    inotify: Inotify,
    directories: HashMap<WatchDescriptor, PathBuf>,
    /// The configuration file.
    config: Option<PathBuf>,
    zone_directory: Option<PathBuf>,
    /// Files, and the zones that were read from them.
    zones: HashMap<PathBuf, Vec<String>>,
    changed: BTreeSet<PathBuf>,
    since: Option<(Instant, Instant)>,
}

/// What is to be reloaded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changed {
    All,
    Zones(BTreeSet<String>),
}

impl Watcher {
    /// Watches the configuration and the files that zones were read from.
    pub(super) fn new(config: &Config, files: &[(String, Vec<PathBuf>)]) -> Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).context("cannot watch files")?;
        let mut watcher = Self {
            inotify,
            directories: HashMap::new(),
            config: config.file().and_then(place),
            zone_directory: config.zone_directory().and_then(|directory| fs::canonicalize(directory).ok()),
            zones: HashMap::new(),
            changed: BTreeSet::new(),
            since: None,
        };
        let directories: Vec<PathBuf> = watcher.zone_directory.iter().chain(&watcher.config).cloned().collect();
        for path in directories {
            watcher.watch(if path.is_dir() { &path } else { path.parent().unwrap_or(&path) });
        }
        watcher.follow(files);
        Ok(watcher)
    }

    /// Watches the files that zones were read from the last time.
    pub(super) fn follow(&mut self, files: &[(String, Vec<PathBuf>)]) {
        self.zones.clear();
        for (zone, files) in files {
            for file in files.iter().filter_map(|file| place(file)) {
                self.watch(file.parent().unwrap_or(&file));
                self.zones.entry(file).or_default().push(zone.clone());
            }
        }
    }

    fn watch(&mut self, directory: &Path) {
        if self.directories.values().any(|watched| watched == directory) {
            return;
        }
        let flags = AddWatchFlags::IN_CLOSE_WRITE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_ONLYDIR;
        match self.inotify.add_watch(directory, flags) {
            Ok(watch) => drop(self.directories.insert(watch, directory.to_owned())),
            Err(error) => tracing::warn!("cannot watch {}: {}", directory.display(), error.desc()),
        }
    }

    /// What has changed, if that is a moment ago and nothing has since. Asked a few times a second.
    pub(super) fn look(&mut self) -> Option<Changed> {
        while let Ok(events) = self.inotify.read_events() {
            self.note(events.into_iter().filter_map(|event| Some((event.wd, event.name?))));
        }
        let (first, last) = self.since?;
        if Instant::now() < (last + QUIET).min(first + AT_MOST) {
            return None;
        }
        self.since = None;
        let changed = std::mem::take(&mut self.changed);
        Some(self.concerned(&changed))
    }

    fn note(&mut self, events: impl Iterator<Item = (WatchDescriptor, impl AsRef<OsStr>)>) {
        for (watch, name) in events {
            let Some(path) = self.directories.get(&watch).map(|directory| directory.join(name.as_ref())) else {
                continue;
            };
            if self.config.as_ref() == Some(&path) || self.zones.contains_key(&path) || self.is_new_zone(&path) {
                self.changed.insert(path);
                let now = Instant::now();
                self.since = Some((self.since.map_or(now, |(first, _)| first), now));
            }
        }
    }

    /// Whether it is a file of the zone directory that has a zone's name and none of the zones in service.
    fn is_new_zone(&self, path: &Path) -> bool {
        path.parent().is_some_and(|parent| self.zone_directory.as_deref() == Some(parent))
            && path.extension() == Some(OsStr::new("zone"))
    }

    fn concerned(&self, changed: &BTreeSet<PathBuf>) -> Changed {
        let mut zones = BTreeSet::new();
        for path in changed {
            match self.zones.get(path) {
                // One that is no longer there may be a zone that is to go.
                Some(names) if path.exists() || self.zone_directory.as_deref() != path.parent() => {
                    zones.extend(names.iter().cloned());
                }
                _ => return Changed::All,
            }
        }
        Changed::Zones(zones)
    }
}

/// A file by the real path of its directory, as events name it.
fn place(file: &Path) -> Option<PathBuf> {
    let directory = file.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(fs::canonicalize(directory).ok()?.join(file.file_name()?))
}
