//! Files that change: zones, what they include, the configuration. With `--watch` a change is as good as `responder reload` of what it concerns.
//!
//! Directories are watched (inotify), since an editor puts a new file in the place of the old one. Changes are waited for until there are no more for a
//! second, five seconds at most. The target of a symbolic link is not watched, its name is. A file that is caught half written is an error of that
//! zone, which stays as it was, and the rest of it is the next change. Where several zones have changed, all are read: their table is built once. A
//! directory that is removed is no longer watched, also when there is a new one of its name, before the next reload.

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
    /// Something was missed, or a directory has gone.
    is_uncertain: bool,
    since: Option<(Instant, Instant)>,
}

/// What is to be reloaded.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Changed {
    All,
    Zone(String),
}

impl Watcher {
    /// Watches the configuration and the files that zones were read from.
    pub(super) fn new(config: &Config, files: &[(String, Vec<PathBuf>)]) -> Result<Self> {
        let inotify = Inotify::init(InitFlags::IN_NONBLOCK | InitFlags::IN_CLOEXEC).context("cannot watch files")?;
        let mut watcher = Self {
            inotify,
            directories: HashMap::new(),
            config: config.file().and_then(place),
            zone_directory: None,
            zones: HashMap::new(),
            changed: BTreeSet::new(),
            is_uncertain: false,
            since: None,
        };
        watcher.follow(files, config.zone_directory());
        Ok(watcher)
    }

    /// Watches the files that zones were read from the last time, and the directory of zones.
    pub(super) fn follow(&mut self, files: &[(String, Vec<PathBuf>)], zone_directory: Option<&Path>) {
        self.zones.clear();
        self.zone_directory = zone_directory.and_then(|directory| fs::canonicalize(directory).ok());
        let config = self.config.as_deref().and_then(Path::parent);
        for directory in
            self.zone_directory.as_deref().into_iter().chain(config).map(Path::to_owned).collect::<Vec<_>>()
        {
            self.watch(&directory);
        }
        // There may be as many files as zones, and most are in one directory.
        let mut directories: HashMap<&Path, Option<PathBuf>> = HashMap::new();
        for (zone, files) in files {
            for file in files {
                let (Some(parent), Some(name)) = (file.parent(), file.file_name()) else { continue };
                let directory = directories.entry(parent).or_insert_with(|| {
                    let directory = real(parent)?;
                    self.watch(&directory);
                    Some(directory)
                });
                if let Some(directory) = directory {
                    self.zones.entry(directory.join(name)).or_default().push(zone.clone());
                }
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
            | AddWatchFlags::IN_DELETE_SELF
            | AddWatchFlags::IN_MOVE_SELF
            | AddWatchFlags::IN_ONLYDIR;
        match self.inotify.add_watch(directory, flags) {
            Ok(watch) => drop(self.directories.insert(watch, directory.to_owned())),
            Err(error) => tracing::warn!("cannot watch {}: {}", directory.display(), error.desc()),
        }
    }

    /// What has changed, if that is a moment ago and nothing has since. Asked a few times a second.
    pub(super) fn look(&mut self) -> Option<Changed> {
        while let Ok(events) = self.inotify.read_events() {
            for event in events {
                match event.name {
                    Some(name) => self.note(event.wd, &name),
                    // The queue was full, or it is about the directory itself.
                    None => {
                        self.directories.remove(&event.wd);
                        self.is_uncertain = true;
                        self.touch();
                    }
                }
            }
        }
        let (first, last) = self.since?;
        if Instant::now() < (last + QUIET).min(first + AT_MOST) {
            return None;
        }
        self.since = None;
        let changed = std::mem::take(&mut self.changed);
        if std::mem::take(&mut self.is_uncertain) { Some(Changed::All) } else { self.concerned(&changed) }
    }

    fn note(&mut self, watch: WatchDescriptor, name: &OsStr) {
        let Some(path) = self.directories.get(&watch).map(|directory| directory.join(name)) else { return };
        if self.config.as_ref() == Some(&path) || self.zones.contains_key(&path) || self.is_new_zone(&path) {
            self.changed.insert(path);
            self.touch();
        }
    }

    fn touch(&mut self) {
        let now = Instant::now();
        self.since = Some((self.since.map_or(now, |(first, _)| first), now));
    }

    /// Whether it is a file of the zone directory that has a zone's name and none of the zones in service.
    fn is_new_zone(&self, path: &Path) -> bool {
        path.parent().is_some_and(|parent| self.zone_directory.as_deref() == Some(parent))
            && path.extension() == Some(OsStr::new("zone"))
    }

    fn concerned(&self, changed: &BTreeSet<PathBuf>) -> Option<Changed> {
        let mut zones = BTreeSet::new();
        for path in changed {
            match self.zones.get(path) {
                // One that is no longer there may be a zone that is to go.
                Some(names) if path.exists() || self.zone_directory.as_deref() != path.parent() => zones.extend(names),
                _ => return Some(Changed::All),
            }
        }
        let first = zones.pop_first()?;
        Some(if zones.is_empty() { Changed::Zone(first.clone()) } else { Changed::All })
    }
}

/// A file by the real path of its directory, as events name it.
fn place(file: &Path) -> Option<PathBuf> {
    Some(real(file.parent()?)?.join(file.file_name()?))
}

/// The real path of a directory, which is this one where it has no name.
fn real(directory: &Path) -> Option<PathBuf> {
    fs::canonicalize(if directory.as_os_str().is_empty() { Path::new(".") } else { directory }).ok()
}
