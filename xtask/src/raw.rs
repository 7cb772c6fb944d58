//! Frames as they are: a packet socket that sends any bytes from an interface and sees every frame that arrives there.

use std::{
    io::IoSliceMut,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::{Duration, Instant},
};

use nix::{
    cmsg_space,
    ifaddrs::getifaddrs,
    libc::{PACKET_AUXDATA, SOL_PACKET, TP_STATUS_VLAN_VALID, setsockopt},
    poll::{PollFd, PollFlags, PollTimeout, poll},
    sys::socket::{
        AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType, recvmsg, sendto,
        socket,
    },
};

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
        report_tags(&socket);
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
    pub fn receive(&self, wanted: impl FnMut(&[u8]) -> bool) -> Option<Vec<u8>> {
        self.receive_within(Duration::from_secs(1), wanted)
    }

    /// The same within a time of the caller's choice.
    pub fn receive_within(&self, time: Duration, mut wanted: impl FnMut(&[u8]) -> bool) -> Option<Vec<u8>> {
        let deadline = Instant::now() + time;
        let mut buffer = vec![0; 65_536];
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
            let mut ready = [PollFd::new(self.socket.as_fd(), PollFlags::POLLIN)];
            if poll(&mut ready, timeout).expect("poll works on a packet socket") == 0 {
                return None;
            }
            let (length, tag) = self.take(&mut buffer);
            let mut frame = buffer[..length].to_vec();
            if let Some(tag) = tag {
                frame.splice(12..12, tag);
            }
            if frame.len() >= 14 && frame[6..12] != self.mac() && wanted(&frame) {
                return Some(frame);
            }
        }
    }

    /// One frame that has arrived, and its outer VLAN tag: the kernel takes it out of the frame and tells it beside.
    fn take(&self, buffer: &mut [u8]) -> (usize, Option<[u8; 4]>) {
        let mut space = cmsg_space!([u32; 5]);
        let mut parts = [IoSliceMut::new(buffer)];
        let message = recvmsg::<()>(self.socket.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::empty())
            .expect("there is a frame");
        let tag = message.cmsgs().expect("there is room for them").find_map(|control| match control {
            ControlMessageOwned::Unknown(control) => tag_of(&control.data_bytes),
            _ => None,
        });
        (message.bytes, tag)
    }
}

/// The tag in a `struct tpacket_auxdata`.
fn tag_of(auxdata: &[u8]) -> Option<[u8; 4]> {
    let status = u32::from_ne_bytes(auxdata.get(..4)?.try_into().ok()?);
    let field = |at: usize| Some(u16::from_ne_bytes(auxdata.get(at..at + 2)?.try_into().ok()?));
    let (control, protocol) = (field(16)?.to_be_bytes(), field(18)?.to_be_bytes());
    (status & TP_STATUS_VLAN_VALID != 0).then_some([protocol[0], protocol[1], control[0], control[1]])
}

/// Has the kernel tell the tags that it takes out of frames.
#[expect(unsafe_code, reason = "nix does not know PACKET_AUXDATA")]
fn report_tags(socket: &OwnedFd) {
    let on: i32 = 1;
    // SAFETY: the option's value is an int, which is read from `on` during the call.
    let result = unsafe { setsockopt(socket.as_raw_fd(), SOL_PACKET, PACKET_AUXDATA, (&raw const on).cast(), 4) };
    assert_eq!(result, 0, "a packet socket can report tags");
}
