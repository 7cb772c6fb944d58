//! Frames as they are: a packet socket that sends any bytes from an interface and sees every frame that arrives there.

use std::{
    os::fd::{AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    ifaddrs::getifaddrs,
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{AddressFamily, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recv, sendto, socket},
};
use std::os::fd::AsFd;

/// A packet socket on one interface of the calling thread's network namespace.
#[derive(Debug)]
pub struct RawSocket {
    socket: OwnedFd,
    interface: LinkAddr,
}

impl RawSocket {
    /// Opens it. Needs CAP_NET_RAW.
    ///
    /// # Panics
    /// When the interface does not exist or the socket cannot be opened: a test cannot go on without.
    #[must_use]
    pub fn open(interface: &str) -> Self {
        let address = getifaddrs()
            .expect("the namespace's interfaces can be listed")
            .filter(|entry| entry.interface_name == interface)
            .find_map(|entry| entry.address?.as_link_addr().copied())
            .unwrap_or_else(|| panic!("no interface {interface} in this namespace"));
        let socket = socket(AddressFamily::Packet, SockType::Raw, SockFlag::empty(), SockProtocol::EthAll)
            .expect("a packet socket needs CAP_NET_RAW");
        Self { socket, interface: address }
    }

    /// The interface's own MAC address.
    #[must_use]
    pub fn mac(&self) -> [u8; 6] {
        self.interface.addr().expect("an Ethernet interface has a MAC address")
    }

    /// Sends one frame.
    ///
    /// # Panics
    /// When the kernel refuses it.
    pub fn send(&self, frame: &[u8]) {
        sendto(self.socket.as_raw_fd(), frame, &self.interface, MsgFlags::empty()).expect("the kernel takes the frame");
    }

    /// The first frame that arrives within a second and that `wanted` recognises, of those not sent from here.
    pub fn receive(&self, mut wanted: impl FnMut(&[u8]) -> bool) -> Option<Vec<u8>> {
        let deadline = Instant::now() + Duration::from_secs(1);
        let mut buffer = vec![0; 65_536];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            if poll(&mut ready, timeout).expect("poll works on a packet socket") == 0 {
                return None;
            }
            let length = recv(self.socket.as_raw_fd(), &mut buffer, MsgFlags::empty()).expect("there is a frame");
            let frame = &buffer[..length];
            if frame.len() >= 14 && frame[6..12] != self.mac() && wanted(frame) {
                return Some(frame.to_vec());
            }
        }
    }
}
