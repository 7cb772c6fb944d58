//! Who may be answered.
//!
//! A query whose source is port 0 cannot be replied to, and one whose source is an address of ours would have us answer ourselves: a
//! forged packet could start a loop between two of our sockets. Neither is ever answered, on any path.

use std::{net::IpAddr, sync::Arc};

use arc_swap::{ArcSwap, Cache};

use crate::counters::DropReason;

/// The list that the control thread writes: all addresses of this server.
#[derive(Clone, Debug, Default)]
pub struct AddressList(Arc<ArcSwap<Vec<IpAddr>>>);

impl AddressList {
    /// Replaces the list.
    pub fn set(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let mut addresses: Vec<IpAddr> = addresses.into_iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        self.0.store(Arc::new(addresses));
    }

    /// A worker's view of the list.
    #[must_use]
    pub fn view(&self) -> OwnAddresses {
        OwnAddresses { latest: Cache::new(Arc::clone(&self.0)), seen: self.0.load_full() }
    }
}

/// One worker's view of our own addresses. It sees a replaced list at its next [`refresh`](Self::refresh).
#[derive(Debug)]
pub struct OwnAddresses {
    latest: Cache<Arc<ArcSwap<Vec<IpAddr>>>, Arc<Vec<IpAddr>>>,
    seen: Arc<Vec<IpAddr>>,
}

impl OwnAddresses {
    /// Looks whether the list was replaced: one atomic load.
    #[inline]
    pub fn refresh(&mut self) {
        let latest = self.latest.load();
        if !Arc::ptr_eq(latest, &self.seen) {
            self.seen = Arc::clone(latest);
        }
    }

    /// Whether a sender may be answered, as far as its address and port tell.
    #[inline]
    pub fn admit(&self, source: IpAddr, port: u16) -> Result<(), DropReason> {
        if port == 0 {
            return Err(DropReason::SourcePortZero);
        }
        if self.seen.binary_search(&source).is_ok() {
            return Err(DropReason::OwnSource);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CASES 22: two servers that answer each other's answers.
    #[test]
    fn case_22_own_addresses_and_port_zero_are_not_answered() {
        let list = AddressList::default();
        let mut own = list.view();
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        list.set([address("192.0.2.53"), address("2001:db8::53"), address("192.0.2.53")]);
        assert_eq!(own.admit(address("192.0.2.53"), 53), Ok(()), "not yet seen");
        own.refresh();
        assert_eq!(own.admit(address("192.0.2.53"), 53), Err(DropReason::OwnSource));
        assert_eq!(own.admit(address("2001:db8::53"), 4242), Err(DropReason::OwnSource));
        assert_eq!(own.admit(address("192.0.2.1"), 0), Err(DropReason::SourcePortZero));
        assert_eq!(own.admit(address("192.0.2.1"), 1), Ok(()));
    }
}
