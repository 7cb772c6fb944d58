//! Queries as frames, made once: what changes from one sending to the next is the source port, the DNS ID and with them the UDP checksum.
//!
//! The checksum is the complement of a sum (RFC 1071), so that of the rest of the packet is kept, and two words are added to it.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail};
use etherparse::{PacketBuilder, PacketBuilderStep, UdpHeader, VlanId};

use super::questions::Question;
use crate::wire::checksum::Sum;

const ETHERNET_LEN: usize = 14;
const TAG_LEN: usize = 4;
const IPV4_LEN: usize = 20;
const IPV6_LEN: usize = 40;
const UDP_LEN: usize = 8;
/// Of the UDP header.
const CHECKSUM_AT: usize = 6;
const TTL: u8 = 64;

/// Where frames come from and go to.
#[derive(Clone, Copy, Debug)]
pub struct Path {
    /// Our MAC address.
    pub from_mac: [u8; 6],
    /// That of the target, or of the gateway on the way to it.
    pub to_mac: [u8; 6],
    /// Our address.
    pub from: IpAddr,
    /// Who is asked.
    pub to: SocketAddr,
    /// The id of the VLAN.
    pub vlan: Option<u16>,
}

/// All queries as frames.
#[derive(Debug)]
pub struct Packets {
    bytes: Vec<u8>,
    /// Where each begins in `bytes`, and at last its end.
    starts: Vec<u32>,
    /// The sum of each without port and ID.
    sums: Vec<Sum>,
    /// Offset of the IP header in each.
    ip: usize,
    /// Offset of the UDP header in each.
    udp: usize,
    /// Whether a payload is long enough for an ID, and so has one.
    has_id: bool,
}

impl Packets {
    /// Makes the frames.
    pub fn new(path: &Path, questions: &[Question]) -> Result<Self> {
        let ip = ETHERNET_LEN + if path.vlan.is_some() { TAG_LEN } else { 0 };
        let ip_len = if path.to.is_ipv4() { IPV4_LEN } else { IPV6_LEN };
        let mut packets = Self {
            bytes: Vec::new(),
            starts: vec![0],
            sums: Vec::new(),
            ip,
            udp: ip + ip_len,
            has_id: questions.iter().all(|question| question.message.len() >= 2),
        };
        for question in questions {
            let start = packets.bytes.len();
            let builder = headers(path, question.source.unwrap_or(path.from))?;
            builder.write(&mut packets.bytes, &question.message).context("a query that fits into no packet")?;
            packets.starts.push(u32::try_from(packets.bytes.len()).context("more than 4 GB of queries")?);
            let at = start + packets.udp + CHECKSUM_AT;
            // Port and ID are 0, so that its complement is the sum of everything else.
            let checksum = u16::from_be_bytes([packets.bytes[at], packets.bytes[at + 1]]);
            packets.sums.push(Sum::default().word(!checksum));
        }
        Ok(packets)
    }

    /// Writes the frame of a query to the beginning of `frame`, and returns its length.
    #[inline]
    pub fn write(&self, question: usize, port: u16, id: u16, frame: &mut [u8]) -> usize {
        let bytes = &self.bytes[self.starts[question] as usize..self.starts[question + 1] as usize];
        let frame = &mut frame[..bytes.len()];
        frame.copy_from_slice(bytes);
        let (_, udp) = frame.split_at_mut(self.udp);
        let mut sum = self.sums[question].word(port);
        udp[..2].copy_from_slice(&port.to_be_bytes());
        if self.has_id {
            udp[UDP_LEN..UDP_LEN + 2].copy_from_slice(&id.to_be_bytes());
            sum = sum.word(id);
        }
        let checksum = sum.finish();
        // RFC 768: a computed zero is sent as all ones.
        udp[CHECKSUM_AT..UDP_LEN].copy_from_slice(if checksum == [0, 0] { &[0xff, 0xff] } else { &checksum });
        bytes.len()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.sums.len()
    }

    /// The length of the longest IP packet.
    #[must_use]
    pub fn longest_ip(&self) -> usize {
        let longest = self.starts.windows(2).map(|pair| (pair[1] - pair[0]) as usize).max().unwrap_or(0);
        longest.saturating_sub(self.ip)
    }
}

fn headers(path: &Path, from: IpAddr) -> Result<PacketBuilderStep<UdpHeader>> {
    let ethernet = PacketBuilder::ethernet2(path.from_mac, path.to_mac);
    let port = path.to.port();
    let vlan = path.vlan.map(VlanId::try_new).transpose().context("a VLAN id")?;
    Ok(match (from, path.to.ip(), vlan) {
        (IpAddr::V4(from), IpAddr::V4(to), None) => ethernet.ipv4(from.octets(), to.octets(), TTL).udp(0, port),
        (IpAddr::V4(from), IpAddr::V4(to), Some(id)) => {
            ethernet.single_vlan(id).ipv4(from.octets(), to.octets(), TTL).udp(0, port)
        }
        (IpAddr::V6(from), IpAddr::V6(to), None) => ethernet.ipv6(from.octets(), to.octets(), TTL).udp(0, port),
        (IpAddr::V6(from), IpAddr::V6(to), Some(id)) => {
            ethernet.single_vlan(id).ipv6(from.octets(), to.octets(), TTL).udp(0, port)
        }
        (from, to, _) => bail!("a query from {from} cannot go to {to}: one is IPv4, the other IPv6"),
    })
}

#[cfg(test)]
mod tests {
    use super::{super::questions::Kind, *};
    use crate::wire::frame::Request;

    /// The server's own parser, which verifies checksums, takes each frame, whatever port and ID are put in.
    #[test]
    fn every_port_and_id_has_its_checksum() {
        let question =
            |message: &[u8]| Question { kind: Kind::Plain, message: message.to_vec(), echoed: 0..0, source: None };
        let questions = [question(b"\0\0query"), question(b"\0\0another one.."), question(&[0, 0])];
        for (from, to) in [("192.0.2.1", "192.0.2.53:53"), ("2001:db8::1", "[2001:db8::53]:5353")] {
            for vlan in [None, Some(7)] {
                let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
                let path = Path { from_mac: [2; 6], to_mac: [4; 6], from, to, vlan };
                let packets = Packets::new(&path, &questions).unwrap();
                assert_eq!(packets.len(), 3);
                for (index, expected) in questions.iter().enumerate() {
                    for (port, id) in [(1024, 0), (65535, 65535), (0x1234, 0xfedc), (2048, 1)] {
                        let mut frame = [0xff; 2048];
                        let length = packets.write(index, port, id, &mut frame);
                        assert!(length - packets.ip <= packets.longest_ip());
                        let request = Request::parse(&frame[..length], true).unwrap();
                        assert_eq!((request.source(&frame), request.source_port(&frame)), (from, port));
                        assert_eq!(
                            (request.destination(&frame), request.destination_port(&frame)),
                            (to.ip(), to.port())
                        );
                        let payload = &frame[request.payload()];
                        assert_eq!((&payload[..2], &payload[2..]), (&id.to_be_bytes()[..], &expected.message[2..]));
                    }
                }
            }
        }
    }

    #[test]
    fn a_payload_of_one_byte_has_no_id() {
        let (from, to) = ("192.0.2.1".parse().unwrap(), "192.0.2.53:7".parse().unwrap());
        let path = Path { from_mac: [2; 6], to_mac: [4; 6], from, to, vlan: None };
        let packets = Packets::new(&path, &super::super::questions::payload(1)).unwrap();
        let mut frame = [0xff; 64];
        let length = packets.write(0, 4096, 77, &mut frame);
        let request = Request::parse(&frame[..length], true).unwrap();
        assert_eq!(frame[request.payload()], [0]);
    }
}
