//! Who may be answered.
//!
//! A query whose source is port 0 cannot be replied to. One from the wire whose source is an address of ours is forged: answering it would
//! have us answer ourselves, and two of our sockets could be set to answer each other for ever. Neither is ever answered.
//!
//! On kernel sockets our own addresses are also those of local clients, say a health check on this machine. The kernel lets none of them in
//! from the wire (it calls such a source martian), so there only the loop itself is refused: a source that is one of our sockets.

pub mod acl;
pub mod cookie;
pub mod prefix;
pub mod rrl;
mod siphash;

use std::net::IpAddr;

use crate::{
    counters::DropReason,
    latest::{Latest, View},
};

/// The list that the control thread writes: all addresses of this server.
#[derive(Clone, Debug, Default)]
pub struct AddressList(Latest<Vec<IpAddr>>);

impl AddressList {
    /// Replaces the list.
    pub fn set(&self, addresses: impl IntoIterator<Item = IpAddr>) {
        let mut addresses: Vec<IpAddr> = addresses.into_iter().collect();
        addresses.sort_unstable();
        addresses.dedup();
        self.0.set(addresses);
    }

    /// A worker's view of the list.
    #[must_use]
    pub fn view(&self) -> OwnAddresses {
        OwnAddresses(self.0.view())
    }
}

/// One worker's view of our own addresses. It sees a replaced list at its next [`refresh`](Self::refresh).
#[derive(Clone, Debug)]
pub struct OwnAddresses(View<Vec<IpAddr>>);

impl OwnAddresses {
    /// Looks whether the list was replaced: one atomic load.
    #[inline]
    pub fn refresh(&mut self) {
        self.0.refresh();
    }

    /// Whether the sender of a frame from the wire may be answered, as far as its address and port tell.
    #[inline]
    pub fn admit(&self, source: IpAddr, port: u16) -> Result<(), DropReason> {
        if port == 0 {
            return Err(DropReason::SourcePortZero);
        }
        if self.0.get().binary_search(&source).is_ok() {
            return Err(DropReason::OwnSource);
        }
        Ok(())
    }

    /// The same for a packet that came through the kernel to a socket at `served_port`.
    #[inline]
    pub fn admit_through_kernel(&self, source: IpAddr, port: u16, served_port: u16) -> Result<(), DropReason> {
        match self.admit(source, port) {
            Err(DropReason::OwnSource) if port != served_port => Ok(()),
            admitted => admitted,
        }
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

    #[test]
    fn a_local_client_is_answered_by_kernel_sockets_but_our_own_socket_is_not() {
        let list = AddressList::default();
        let own_address = "192.0.2.53".parse().unwrap();
        list.set([own_address]);
        let own = list.view();
        assert_eq!(own.admit_through_kernel(own_address, 4242, 53), Ok(()));
        assert_eq!(own.admit_through_kernel(own_address, 53, 53), Err(DropReason::OwnSource));
        assert_eq!(own.admit_through_kernel(own_address, 0, 53), Err(DropReason::SourcePortZero));
    }
}
