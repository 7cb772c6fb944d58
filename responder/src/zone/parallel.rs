//! Work on many zones at once while they are loaded, and what is said meanwhile when that takes long.

use std::{
    io::{self, IsTerminal as _, Write as _},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

/// Does `work` for each item and its index, on as many threads as there are CPUs to run on. The results are in the items' order.
pub(super) fn on_all_cpus<'i, T: Sync, R: Send>(items: &'i [T], work: impl Fn(usize, &'i T) -> R + Sync) -> Vec<R> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(items.len());
    if threads <= 1 {
        return items.iter().enumerate().map(|(index, item)| work(index, item)).collect();
    }
    let next = AtomicUsize::new(0);
    let take = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Relaxed);
            let Some(item) = items.get(index) else { return done };
            done.push((index, work(index, item)));
        }
    };
    let mut done: Vec<(usize, R)> = thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(take)).collect();
        // A panic goes on here.
        workers
            .into_iter()
            .flat_map(|worker| worker.join().unwrap_or_else(|why| std::panic::resume_unwind(why)))
            .collect()
    });
    done.sort_unstable_by_key(|(index, _)| *index);
    done.into_iter().map(|(_, result)| result).collect()
}

/// After this long there is something to say.
const FIRST: Duration = Duration::from_secs(1);
/// On a terminal a line is renewed this often; elsewhere each line stays, and so there are fewer.
const TERMINAL: Duration = Duration::from_millis(200);
const ELSEWHERE: Duration = Duration::from_secs(3);

/// Says on standard error how far a step has come, once it has taken a second.
pub(super) struct Progress {
    what: &'static str,
    total: usize,
    done: AtomicUsize,
    next: Mutex<Instant>,
    is_terminal: bool,
}

impl Progress {
    /// `what` is what is done to each of `total` zones.
    pub(super) fn new(what: &'static str, total: usize) -> Self {
        let is_terminal = io::stderr().is_terminal();
        Self { what, total, done: AtomicUsize::new(0), next: Mutex::new(Instant::now() + FIRST), is_terminal }
    }

    /// Counts one zone that is done, and hands on what came of it.
    pub(super) fn count<R>(&self, result: R) -> R {
        let done = self.done.fetch_add(1, Relaxed) + 1;
        // Another thread that is about to speak says the same.
        if let Ok(mut next) = self.next.try_lock()
            && Instant::now() >= *next
        {
            *next = Instant::now() + if self.is_terminal { TERMINAL } else { ELSEWHERE };
            self.say(&format!("{} {done} of {} zones", self.what, self.total));
        }
        result
    }

    /// Takes the line back from a terminal.
    pub(super) fn end(&self) {
        if self.is_terminal && self.total > 0 {
            self.say("");
        }
    }

    fn say(&self, text: &str) {
        let (before, after) = if self.is_terminal { ("\r\x1b[K", "") } else { ("", "\n") };
        // Where nobody can be told, the zones are loaded all the same.
        let _ = write!(io::stderr(), "{before}{text}{after}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items() {
        for count in [0, 1, 2, 1000] {
            let items: Vec<usize> = (0..count).collect();
            let results = on_all_cpus(&items, |index, item| (index, item * 2));
            assert_eq!(results, items.iter().map(|item| (*item, item * 2)).collect::<Vec<_>>());
        }
    }
}
