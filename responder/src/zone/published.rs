//! The zones in service, and how others take their place while queries are answered.
//!
//! A new set is built beside the old one and published by one atomic store. Each worker has a [`View`], which looks for a new set once per batch:
//! one atomic load. Who lets go of a set last frees it, and a large one takes long; so that this is never a worker, the control thread keeps each
//! replaced set until nobody else has it.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

use super::Zones;

/// What the control thread has: the set in service, and the sets before it that somebody still holds.
#[derive(Debug)]
pub struct Published {
    current: Arc<ArcSwap<Zones>>,
    replaced: Vec<Arc<Zones>>,
}

impl Published {
    /// Puts a first set in service.
    #[must_use]
    pub fn new(zones: Zones) -> Self {
        Self { current: Arc::new(ArcSwap::from_pointee(zones)), replaced: Vec::new() }
    }

    /// Puts another set in the place of the one in service. A view sees it at its next [`refresh`](View::refresh).
    pub fn set(&mut self, zones: Zones) {
        self.replaced.push(self.current.swap(Arc::new(zones)));
    }

    /// Frees the replaced sets that no view holds any more, and returns how many are still held: then this is to be called again a moment later.
    pub fn sweep(&mut self) -> usize {
        // Nobody can come to hold a replaced set anew, so a count of one stays one.
        self.replaced.retain(|zones| Arc::strong_count(zones) > 1);
        self.replaced.len()
    }

    /// The set in service.
    #[must_use]
    pub fn zones(&self) -> Arc<Zones> {
        self.current.load_full()
    }

    /// A view for a worker.
    #[must_use]
    pub fn view(&self) -> View {
        View { latest: Cache::new(Arc::clone(&self.current)), seen: self.zones() }
    }
}

/// The set as one worker sees it. It holds that set until its next refresh.
#[derive(Clone, Debug)]
pub struct View {
    latest: Cache<Arc<ArcSwap<Zones>>, Arc<Zones>>,
    seen: Arc<Zones>,
}

impl View {
    /// Looks whether the set was replaced: one atomic load.
    #[inline]
    pub fn refresh(&mut self) {
        let latest = self.latest.load();
        if !Arc::ptr_eq(latest, &self.seen) {
            self.seen = Arc::clone(latest);
        }
    }

    /// The zones.
    #[inline]
    #[must_use]
    pub fn zones(&self) -> &Zones {
        &self.seen
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn zones(serial: u32) -> Zones {
        Zones::from_text("example", format!("@ 60 SOA a b {serial} 2 3 4 5\n@ 60 NS a\na 60 A 192.0.2.1\n").as_bytes())
            .unwrap()
    }

    fn serial(view: &View) -> u32 {
        view.zones().summary()[0].serial
    }

    #[test]
    fn a_view_sees_a_new_set_when_it_refreshes() {
        let mut published = Published::new(zones(1));
        let mut view = published.view();
        published.set(zones(2));
        assert_eq!((serial(&view), serial(&published.view())), (1, 2));
        view.refresh();
        assert_eq!(serial(&view), 2);
    }

    #[test]
    fn a_replaced_set_is_freed_by_the_sweep_and_not_by_the_last_view() {
        let mut published = Published::new(zones(1));
        let (mut busy, mut idle) = (published.view(), published.view());
        let first = Arc::downgrade(&published.zones());
        published.set(zones(2));
        let second = Arc::downgrade(&published.zones());
        published.set(zones(3));
        busy.refresh();
        assert_eq!(published.sweep(), 1, "nobody ever saw the second, and the idle one has the first");
        assert!(second.upgrade().is_none());
        idle.refresh();
        assert!(first.upgrade().is_some(), "letting go frees nothing");
        assert_eq!(published.sweep(), 0);
        assert!(first.upgrade().is_none());
    }

    #[test]
    fn sets_come_and_go_while_workers_look() {
        let mut published = Published::new(zones(0));
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let mut view = published.view();
                thread::spawn(move || {
                    let mut last = 0;
                    while last < 100 {
                        view.refresh();
                        let now = serial(&view);
                        assert!(now >= last, "a set that was replaced does not come back");
                        last = now;
                    }
                })
            })
            .collect();
        for serial in 1..=100 {
            published.set(zones(serial));
            published.sweep();
        }
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(published.sweep(), 0);
    }
}
