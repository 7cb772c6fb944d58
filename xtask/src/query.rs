//! Queries as messages and as frames, and what may be said of a reply.

use std::{
    net::{IpAddr, SocketAddr, UdpSocket},
    time::Duration,
};

use crate::lab::Lab;
use etherparse::{NetSlice, PacketBuilder, SlicedPacket, TransportSlice};

/// How long a reply may take.
pub const REPLY_WITHIN: Duration = Duration::from_secs(3);

/// How long to look for a reply that must not come.
pub const SILENCE: Duration = Duration::from_millis(300);

/// A query for the A records of www.example.com.
#[must_use]
pub fn query(id: u16) -> Vec<u8> {
    let mut message = id.to_be_bytes().to_vec();
    message.extend(b"\x01\x00\0\x01\0\0\0\0\0\0\x03www\x07example\x03com\0\0\x01\0\x01");
    message
}

/// Whether this is the right reply to [`query`] with this id: both addresses of www.example.com.
#[must_use]
pub fn is_answer(reply: &[u8], id: u16) -> bool {
    let holds = |address: [u8; 4]| reply.windows(4).any(|bytes| bytes == address);
    reply.len() > 12
        && reply[..2] == id.to_be_bytes()
        && reply[2] == 0x85
        && reply[3] == 0
        && reply[6..8] == [0, 2]
        && holds([192, 0, 2, 80])
        && holds([192, 0, 2, 81])
}

/// A UDP socket at the client, to be made inside its namespace.
///
/// # Panics
/// When the address is not there.
#[must_use]
pub fn socket(address: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind(SocketAddr::new(address, 0)).expect("the client has this address");
    socket.set_read_timeout(Some(REPLY_WITHIN)).expect("not zero");
    socket
}

/// Asks from a socket: the reply.
#[must_use]
pub fn ask(socket: &UdpSocket, server: SocketAddr, message: &[u8]) -> Option<Vec<u8>> {
    // An ICMP error to an earlier query, say while the server was away, is reported on the next call.
    let _ = socket.take_error();
    socket.send_to(message, server).ok()?;
    let mut buffer = vec![0; 4096];
    let (length, from) = socket.recv_from(&mut buffer).ok()?;
    buffer.truncate(length);
    (from == server).then_some(buffer)
}

/// Where a frame comes from and goes to.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// The sender's MAC address.
    pub from_mac: [u8; 6],
    /// The receiver's MAC address.
    pub to_mac: [u8; 6],
    /// The sender.
    pub from: SocketAddr,
    /// The receiver.
    pub to: SocketAddr,
}

impl Path {
    /// From a port of the client to port 53 of the server, over IPv4.
    #[must_use]
    pub fn v4(lab: &Lab, port: u16) -> Self {
        Self::new(lab, port, lab.client.v4.into(), lab.server.v4.into())
    }

    /// The same over IPv6.
    #[must_use]
    pub fn v6(lab: &Lab, port: u16) -> Self {
        Self::new(lab, port, lab.client.v6.into(), lab.server.v6.into())
    }

    fn new(lab: &Lab, port: u16, client: IpAddr, server: IpAddr) -> Self {
        Self {
            from_mac: lab.client.mac,
            to_mac: lab.server.mac,
            from: SocketAddr::new(client, port),
            to: SocketAddr::new(server, 53),
        }
    }

    /// A frame with this payload and right checksums.
    ///
    /// # Panics
    /// When the addresses are of two families.
    #[must_use]
    pub fn frame(&self, payload: &[u8]) -> Vec<u8> {
        let ethernet = PacketBuilder::ethernet2(self.from_mac, self.to_mac);
        let ip = match (self.from.ip(), self.to.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), 63),
            (IpAddr::V6(from), IpAddr::V6(to)) => ethernet.ipv6(from.octets(), to.octets(), 63),
            _ => panic!("two families: {self:?}"),
        };
        let udp = ip.udp(self.from.port(), self.to.port());
        let mut frame = Vec::with_capacity(udp.size(payload.len()));
        udp.write(&mut frame, payload).expect("it fits");
        frame
    }

    /// The payload of a frame that goes the other way, tagged or not.
    #[must_use]
    pub fn reply<'a>(&self, frame: &'a [u8]) -> Option<&'a [u8]> {
        let packet = SlicedPacket::from_ethernet(frame).ok()?;
        let (from, to): (IpAddr, IpAddr) = match packet.net.as_ref()? {
            NetSlice::Ipv4(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            NetSlice::Ipv6(ip) => (ip.header().source_addr().into(), ip.header().destination_addr().into()),
            NetSlice::Arp(_) => return None,
        };
        let Some(TransportSlice::Udp(udp)) = &packet.transport else { return None };
        let (from, to) = (SocketAddr::new(from, udp.source_port()), SocketAddr::new(to, udp.destination_port()));
        ((from, to) == (self.to, self.from)).then(|| udp.payload())
    }
}

/// The frame with these tags, outermost first: EtherType and VLAN id.
#[must_use]
pub fn tagged(frame: &[u8], tags: &[(u16, u16)]) -> Vec<u8> {
    let (macs, rest) = frame.split_at(12);
    let mut tagged = macs.to_vec();
    for (ether_type, id) in tags {
        tagged.extend(ether_type.to_be_bytes());
        tagged.extend(id.to_be_bytes());
    }
    tagged.extend(rest);
    tagged
}

/// Whether the UDP checksum of a frame is there and right, and so is the IPv4 header's.
#[must_use]
pub fn checksums_are_right(frame: &[u8]) -> bool {
    let Ok(packet) = SlicedPacket::from_ethernet(frame) else { return false };
    let Some(TransportSlice::Udp(udp)) = &packet.transport else { return false };
    let header = udp.to_header();
    let expected = match packet.net.as_ref() {
        Some(NetSlice::Ipv4(ip)) => {
            let ip = ip.header().to_header();
            (ip.header_checksum == ip.calc_header_checksum())
                .then(|| header.calc_checksum_ipv4(&ip, udp.payload()).ok())
                .flatten()
        }
        Some(NetSlice::Ipv6(ip)) => header.calc_checksum_ipv6(&ip.header().to_header(), udp.payload()).ok(),
        _ => None,
    };
    header.checksum != 0 && expected == Some(header.checksum)
}
