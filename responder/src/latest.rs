//! A value that the control thread replaces whole, and that workers look at once per batch: one atomic load, nothing written.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};

/// The control thread's side.
#[derive(Debug, Default)]
pub struct Latest<T>(Arc<ArcSwap<T>>);

impl<T> Clone for Latest<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Latest<T> {
    /// A first value.
    pub fn new(value: T) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(value)))
    }

    /// Replaces the value. Workers see the new one with their next batch.
    pub fn set(&self, value: T) {
        self.0.store(Arc::new(value));
    }

    /// A worker's view of it.
    #[must_use]
    pub fn view(&self) -> View<T> {
        View { latest: Cache::new(Arc::clone(&self.0)), seen: self.0.load_full() }
    }
}

/// A worker's side. It sees a replaced value at its next [`refresh`](Self::refresh), and reads the one it has without looking.
#[derive(Debug)]
pub struct View<T> {
    latest: Cache<Arc<ArcSwap<T>>, Arc<T>>,
    seen: Arc<T>,
}

impl<T> Clone for View<T> {
    fn clone(&self) -> Self {
        Self { latest: self.latest.clone(), seen: Arc::clone(&self.seen) }
    }
}

impl<T> View<T> {
    /// Looks whether the value was replaced, and says so.
    #[inline]
    pub fn refresh(&mut self) -> bool {
        let latest = self.latest.load();
        let is_new = !Arc::ptr_eq(latest, &self.seen);
        if is_new {
            self.seen = Arc::clone(latest);
        }
        is_new
    }

    /// The value as last seen.
    #[inline]
    #[must_use]
    pub fn get(&self) -> &T {
        &self.seen
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_value_is_seen_after_a_look() {
        let value = Latest::new(1);
        let mut view = value.view();
        assert!(!view.refresh());
        value.clone().set(2);
        assert_eq!(*view.get(), 1);
        assert!(view.refresh() && !view.refresh());
        assert_eq!(*view.get(), 2);
    }
}
