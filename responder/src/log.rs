//! What the server says, on stderr: a line for each event of `tracing`, for people, or for the journal where stderr leads there.
//!
//! A warning that comes again and again must not fill a disk: of one place in the source no more than 50 lines are written in ten seconds, and then how
//! many were left out. Nothing is logged per packet. There are no spans, and no fields beside the message.

use std::{
    collections::HashMap,
    fmt::{self, Write as _},
    io::Write as _,
    os::unix::fs::MetadataExt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use tracing::{
    Event, Level, Metadata, Subscriber,
    callsite::Identifier,
    field::{Field, Visit},
    span,
    subscriber::Interest,
};

use crate::cli::LogLevel;

/// Lines of one place in the source...
const LINES: u32 = 50;
/// ...in this time.
const WINDOW: Duration = Duration::from_secs(10);

/// The least important level that is written.
static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Info as u8);
static SITES: Mutex<Sites> = Mutex::new(Sites(None));

/// Has events written from now on. Called once.
pub fn start(level: LogLevel) {
    set_level(level);
    // A second call, by a test, changes nothing.
    let _ = tracing::subscriber::set_global_default(Lines { for_journal: leads_to_journal() });
}

/// Changes what is written.
pub fn set_level(level: LogLevel) {
    LEVEL.store(level as u8, Relaxed);
}

/// Says what was left out, where the time for it has come.
pub fn flush() {
    let left_out = SITES.lock().unwrap_or_else(PoisonError::into_inner).left_out(Instant::now());
    for (place, lines) in left_out {
        tracing::warn!("{lines} more lines like those of {place} were left out");
    }
}

/// Whether stderr is the journal's: the service manager says which file that is (systemd.exec(5), JOURNAL_STREAM).
fn leads_to_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    std::fs::metadata("/proc/self/fd/2").is_ok_and(|file| stream == format!("{}:{}", file.dev(), file.ino()))
}

struct Lines {
    for_journal: bool,
}

impl Lines {
    fn line(&self, level: Level, message: &str) -> String {
        let prefix = match (self.for_journal, level) {
            // sd-daemon(3).
            (true, Level::ERROR) => "<3>",
            (true, Level::WARN) => "<4>",
            (true, Level::INFO) => "<6>",
            (true, _) => "<7>",
            (false, Level::ERROR) => "error: ",
            (false, Level::WARN) => "warning: ",
            (false, _) => "",
        };
        // Every line of it has the prefix that the journal reads.
        let between = if self.for_journal { format!("\n{prefix}") } else { "\n".to_owned() };
        format!("{prefix}{}\n", message.replace('\n', &between))
    }
}

impl Subscriber for Lines {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // The level may change.
        Interest::sometimes()
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let least = match LEVEL.load(Relaxed) {
            0 => Level::ERROR,
            1 => Level::WARN,
            2 => Level::INFO,
            _ => Level::DEBUG,
        };
        // Of what others log there is nothing that an operator could act on.
        *metadata.level() <= least && metadata.target().starts_with("responder")
    }

    fn event(&self, event: &Event<'_>) {
        let site = event.metadata();
        let place = format!("{}:{}", site.file().unwrap_or("?"), site.line().unwrap_or(0));
        if !SITES.lock().unwrap_or_else(PoisonError::into_inner).admits(site.callsite(), &place, Instant::now()) {
            return;
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        // Written at once, so that lines of two threads do not mix. There is nowhere to say that it failed.
        let _ = std::io::stderr().write_all(self.line(*site.level(), &message.0).as_bytes());
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The message of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.0, "{value:?}");
        }
    }
}

/// What each place has said in its present window.
struct Sites(Option<HashMap<Identifier, Site>>);

struct Site {
    place: String,
    since: Instant,
    lines: u32,
    left_out: u32,
}

impl Sites {
    fn admits(&mut self, site: Identifier, place: &str, now: Instant) -> bool {
        let sites = self.0.get_or_insert_default();
        let site =
            sites.entry(site).or_insert_with(|| Site { place: place.to_owned(), since: now, lines: 0, left_out: 0 });
        if now.duration_since(site.since) >= WINDOW && site.left_out == 0 {
            (site.since, site.lines) = (now, 0);
        }
        if site.lines >= LINES {
            site.left_out += 1;
            return false;
        }
        site.lines += 1;
        true
    }

    /// Places whose window is over, and how many lines each has not written.
    fn left_out(&mut self, now: Instant) -> Vec<(String, u32)> {
        let over = self.0.iter_mut().flat_map(HashMap::values_mut);
        let over = over.filter(|site| site.left_out > 0 && now.duration_since(site.since) >= WINDOW);
        over.map(|site| {
            (site.since, site.lines) = (now, 0);
            (site.place.clone(), std::mem::take(&mut site.left_out))
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_for_people_or_for_the_journal() {
        let cases = [
            (false, Level::INFO, "ready: x\n"),
            (false, Level::WARN, "warning: ready: x\n"),
            (false, Level::ERROR, "error: ready: x\n"),
            (true, Level::INFO, "<6>ready: x\n"),
            (true, Level::WARN, "<4>ready: x\n"),
        ];
        for (for_journal, level, expected) in cases {
            assert_eq!(Lines { for_journal }.line(level, "ready: x"), expected);
        }
        assert_eq!(Lines { for_journal: true }.line(Level::WARN, "a\nb"), "<4>a\n<4>b\n");
    }

    #[test]
    fn what_comes_again_and_again_is_left_out_and_counted() {
        static SITE: tracing::callsite::DefaultCallsite = {
            static META: Metadata<'static> = tracing::metadata! {
                name: "test", target: "responder", level: Level::WARN, fields: &[], callsite: &SITE, kind: tracing::metadata::Kind::EVENT
            };
            tracing::callsite::DefaultCallsite::new(&META)
        };
        let site = || tracing::callsite::Callsite::metadata(&SITE).callsite();
        let (mut sites, start) = (Sites(None), Instant::now());
        let admitted = (0..LINES + 7).filter(|_| sites.admits(site(), "a.rs:1", start)).count();
        assert_eq!(admitted, LINES as usize);
        assert!(sites.left_out(start).is_empty(), "not yet");
        let later = start + WINDOW;
        assert!(!sites.admits(site(), "a.rs:1", later), "first it is said what was left out");
        assert_eq!(sites.left_out(later), [("a.rs:1".to_owned(), 8)]);
        assert!(sites.admits(site(), "a.rs:1", later));
        assert!(sites.left_out(later + WINDOW).is_empty());
    }
}
