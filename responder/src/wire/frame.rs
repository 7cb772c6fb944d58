//! An Ethernet frame that carries a UDP datagram: parse a request, turn it into its reply in place.
//!
//! What it takes is what the XDP program steers: Ethernet II, up to two VLAN tags (802.1Q, 802.1ad), IPv4 (RFC 791) without
//! options and not a fragment, or IPv6 (RFC 8200) without extension headers, then UDP (RFC 768). The XDP program is not trusted:
//! every length is checked again here. Lengths come from the IP and UDP headers, so Ethernet padding is never read as payload.
//!
//! What it does not do: MAC, address and port filtering (the XDP program did), fragments, options, jumbograms.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    ops::Range,
};

use super::checksum::Sum;

/// Offsets and sizes within each header, in bytes.
mod field {
    use super::Range;

    pub(super) const DST_MAC: Range<usize> = 0..6;
    pub(super) const SRC_MAC: Range<usize> = 6..12;
    pub(super) const ETHERTYPE: usize = 12;
    pub(super) const TAG_LEN: usize = 4;

    pub(super) const IPV4_LEN: usize = 20;
    pub(super) const V4_TOTAL_LEN: usize = 2;
    pub(super) const V4_FRAGMENT: usize = 6;
    pub(super) const V4_PROTOCOL: usize = 9;
    pub(super) const V4_CHECKSUM: Range<usize> = 10..12;
    pub(super) const V4_SRC: Range<usize> = 12..16;
    pub(super) const V4_DST: Range<usize> = 16..20;

    pub(super) const IPV6_LEN: usize = 40;
    pub(super) const V6_PAYLOAD_LEN: usize = 4;
    pub(super) const V6_NEXT_HEADER: usize = 6;
    pub(super) const V6_SRC: Range<usize> = 8..24;
    pub(super) const V6_DST: Range<usize> = 24..40;

    pub(super) const UDP_LEN: usize = 8;
    pub(super) const SRC_PORT: Range<usize> = 0..2;
    pub(super) const DST_PORT: Range<usize> = 2..4;
    pub(super) const LEN: usize = 4;
    pub(super) const CHECKSUM: Range<usize> = 6..8;
}

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_QINQ: u16 = 0x88a8;
const PROTOCOL_UDP: u8 = 17;
/// More-fragments and the fragment offset; don't-fragment is neither.
const V4_IS_FRAGMENT: u16 = 0x3fff;
const REPLY_TTL: u8 = 64;
const V4_DONT_FRAGMENT: [u8; 2] = [0x40, 0x00];

/// Why a frame is not a request that can be answered. None of these comes from the XDP program unless it is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// Shorter than its headers say.
    Truncated,
    /// A protocol, option, extension or fragment that the bypass does not take.
    Unsupported,
    /// The IPv4 header's or the UDP checksum is wrong.
    Checksum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    V4,
    V6,
}

impl Family {
    const fn header_len(self) -> usize {
        match self {
            Self::V4 => field::IPV4_LEN,
            Self::V6 => field::IPV6_LEN,
        }
    }
}

/// A frame whose lengths have all been checked: where its IP header and its UDP payload are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    family: Family,
    /// Offset of the IP header.
    ip: usize,
    /// Length of the UDP payload.
    payload_len: usize,
}

impl Request {
    /// Checks a frame from its first byte to its last. With `verify`, the checksums too: an absent UDP checksum (zero) is fine
    /// on IPv4 and wrong on IPv6 (RFC 8200 section 8.1).
    #[inline]
    pub fn parse(frame: &[u8], verify: bool) -> Result<Self, FrameError> {
        let (ethertype, ip) = network_layer(frame)?;
        let (family, datagram_len) = match ethertype {
            ETHERTYPE_IPV4 => (Family::V4, ipv4(&frame[ip..], verify)?),
            ETHERTYPE_IPV6 => (Family::V6, ipv6(&frame[ip..])?),
            _ => return Err(FrameError::Unsupported),
        };
        let start = ip + family.header_len();
        let datagram = &frame[start..start + datagram_len];
        let udp_len = usize::from(u16_at(datagram, field::LEN).ok_or(FrameError::Truncated)?);
        if udp_len < field::UDP_LEN || udp_len > datagram.len() {
            return Err(FrameError::Truncated);
        }
        let request = Self { family, ip, payload_len: udp_len - field::UDP_LEN };
        if verify && !request.udp_is_intact(frame) {
            return Err(FrameError::Checksum);
        }
        Ok(request)
    }

    /// Where the UDP payload lies in the frame.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> Range<usize> {
        let start = self.udp() + field::UDP_LEN;
        start..start + self.payload_len
    }

    /// The sender's address.
    #[inline]
    #[must_use]
    pub fn source(&self, frame: &[u8]) -> IpAddr {
        self.address(frame, field::V4_SRC, field::V6_SRC)
    }

    /// The receiver's address.
    #[inline]
    #[must_use]
    pub fn destination(&self, frame: &[u8]) -> IpAddr {
        self.address(frame, field::V4_DST, field::V6_DST)
    }

    #[inline]
    fn address(&self, frame: &[u8], v4: Range<usize>, v6: Range<usize>) -> IpAddr {
        let ip = &frame[self.ip..];
        match self.family {
            Family::V4 => {
                let mut octets = [0; 4];
                octets.copy_from_slice(&ip[v4]);
                IpAddr::V4(Ipv4Addr::from(octets))
            }
            Family::V6 => {
                let mut octets = [0; 16];
                octets.copy_from_slice(&ip[v6]);
                IpAddr::V6(Ipv6Addr::from(octets))
            }
        }
    }

    /// The sender's port.
    #[inline]
    #[must_use]
    pub fn source_port(&self, frame: &[u8]) -> u16 {
        self.port(frame, field::SRC_PORT)
    }

    /// The receiver's port.
    #[inline]
    #[must_use]
    pub fn destination_port(&self, frame: &[u8]) -> u16 {
        self.port(frame, field::DST_PORT)
    }

    #[inline]
    fn port(&self, frame: &[u8], field: Range<usize>) -> u16 {
        let at = self.udp() + field.start;
        u16::from_be_bytes([frame[at], frame[at + 1]])
    }

    /// The largest payload a reply can carry when an IP packet may have `mtu` bytes and the frame's buffer ends at `room`.
    #[inline]
    #[must_use]
    pub fn payload_room(&self, room: usize, mtu: usize) -> usize {
        let headers = self.family.header_len() + field::UDP_LEN;
        room.saturating_sub(self.ip + headers).min(mtu.saturating_sub(headers))
    }

    /// Turns the request into the reply that carries the first `payload_len` bytes of the payload area, and returns the length of
    /// the frame. Tags stay as they are; MACs, addresses and ports change places; lengths, TTL and checksums are made anew.
    ///
    /// `frame` is the same buffer that was parsed and `payload_len` at most [`payload_room`](Self::payload_room) of its length.
    #[inline]
    #[expect(
        clippy::cast_possible_truncation,
        reason = "payload_room keeps the datagram below an MTU, which has 16 bits"
    )]
    pub fn reply_in_place(&self, frame: &mut [u8], payload_len: usize) -> usize {
        let (destination, rest) = frame.split_at_mut(field::SRC_MAC.start);
        destination[field::DST_MAC].swap_with_slice(&mut rest[..field::DST_MAC.len()]);

        let udp_len = field::UDP_LEN + payload_len;
        let end = self.udp() + udp_len;
        let (ip, udp) = frame[self.ip..end].split_at_mut(self.family.header_len());

        let addresses = match self.family {
            Family::V4 => reply_ipv4(ip, (field::IPV4_LEN + udp_len) as u16),
            Family::V6 => reply_ipv6(ip, udp_len as u16),
        };

        let (src, dst) = udp[field::SRC_PORT.start..field::DST_PORT.end].split_at_mut(field::SRC_PORT.end);
        src.swap_with_slice(dst);
        udp[field::LEN..field::LEN + 2].copy_from_slice(&(udp_len as u16).to_be_bytes());
        udp[field::CHECKSUM].fill(0);
        let checksum = pseudo_header(addresses, udp_len as u16).bytes(udp).finish();
        // RFC 768: a computed zero is sent as all ones, since zero says that there is none.
        udp[field::CHECKSUM].copy_from_slice(if checksum == [0, 0] { &[0xff, 0xff] } else { &checksum });
        end
    }

    /// Offset of the UDP header.
    #[inline]
    fn udp(&self) -> usize {
        self.ip + self.family.header_len()
    }

    fn udp_is_intact(&self, frame: &[u8]) -> bool {
        let udp = &frame[self.udp()..self.payload().end];
        if udp[field::CHECKSUM] == [0, 0] {
            return self.family == Family::V4;
        }
        let ip = &frame[self.ip..self.udp()];
        let addresses = match self.family {
            Family::V4 => Sum::default().bytes(&ip[field::V4_SRC.start..field::V4_DST.end]),
            Family::V6 => Sum::default().bytes(&ip[field::V6_SRC.start..field::V6_DST.end]),
        };
        u16::try_from(udp.len()).is_ok_and(|len| pseudo_header(addresses, len).bytes(udp).is_intact())
    }
}

/// The EtherType behind up to two VLAN tags, and the offset of what it announces.
#[inline]
fn network_layer(frame: &[u8]) -> Result<(u16, usize), FrameError> {
    let mut at = field::ETHERTYPE;
    for _ in 0..=2 {
        let ethertype = u16_at(frame, at).ok_or(FrameError::Truncated)?;
        if ethertype != ETHERTYPE_VLAN && ethertype != ETHERTYPE_QINQ {
            return Ok((ethertype, at + 2));
        }
        at += field::TAG_LEN;
    }
    Err(FrameError::Unsupported)
}

/// Checks an IPv4 header and returns the length of what it carries.
#[inline]
fn ipv4(packet: &[u8], verify: bool) -> Result<usize, FrameError> {
    let header: &[u8; field::IPV4_LEN] = packet.first_chunk().ok_or(FrameError::Truncated)?;
    let fragment = u16::from_be_bytes([header[field::V4_FRAGMENT], header[field::V4_FRAGMENT + 1]]);
    if header[0] != 0x45 || fragment & V4_IS_FRAGMENT != 0 || header[field::V4_PROTOCOL] != PROTOCOL_UDP {
        return Err(FrameError::Unsupported);
    }
    if verify && !Sum::default().bytes(header).is_intact() {
        return Err(FrameError::Checksum);
    }
    let total_len = usize::from(u16::from_be_bytes([header[field::V4_TOTAL_LEN], header[field::V4_TOTAL_LEN + 1]]));
    if total_len > packet.len() {
        return Err(FrameError::Truncated);
    }
    total_len.checked_sub(field::IPV4_LEN).ok_or(FrameError::Truncated)
}

/// Checks an IPv6 header and returns the length of what it carries.
#[inline]
fn ipv6(packet: &[u8]) -> Result<usize, FrameError> {
    let header: &[u8; field::IPV6_LEN] = packet.first_chunk().ok_or(FrameError::Truncated)?;
    if header[0] >> 4 != 6 || header[field::V6_NEXT_HEADER] != PROTOCOL_UDP {
        return Err(FrameError::Unsupported);
    }
    let payload_len =
        usize::from(u16::from_be_bytes([header[field::V6_PAYLOAD_LEN], header[field::V6_PAYLOAD_LEN + 1]]));
    if payload_len > packet.len() - field::IPV6_LEN {
        return Err(FrameError::Truncated);
    }
    Ok(payload_len)
}

/// Rewrites an IPv4 header for the reply and returns the sum of its addresses. DSCP, ECN and ID are 0, DF is set.
#[inline]
fn reply_ipv4(ip: &mut [u8], total_len: u16) -> Sum {
    let (src, dst) = ip[field::V4_SRC.start..field::V4_DST.end].split_at_mut(4);
    src.swap_with_slice(dst);
    let addresses = Sum::default().bytes(&ip[field::V4_SRC.start..field::V4_DST.end]);
    let [high, low] = total_len.to_be_bytes();
    let [df, offset] = V4_DONT_FRAGMENT;
    ip[..field::V4_SRC.start].copy_from_slice(&[0x45, 0, high, low, 0, 0, df, offset, REPLY_TTL, PROTOCOL_UDP, 0, 0]);
    let checksum = Sum::default().bytes(ip).finish();
    ip[field::V4_CHECKSUM].copy_from_slice(&checksum);
    addresses
}

/// Rewrites an IPv6 header for the reply and returns the sum of its addresses. Traffic class and flow label are 0.
#[inline]
fn reply_ipv6(ip: &mut [u8], payload_len: u16) -> Sum {
    let (src, dst) = ip[field::V6_SRC.start..field::V6_DST.end].split_at_mut(16);
    src.swap_with_slice(dst);
    let [high, low] = payload_len.to_be_bytes();
    ip[..field::V6_SRC.start].copy_from_slice(&[0x60, 0, 0, 0, high, low, PROTOCOL_UDP, REPLY_TTL]);
    Sum::default().bytes(&ip[field::V6_SRC.start..field::V6_DST.end])
}

/// The pseudo-header of RFC 768 and RFC 8200 section 8.1: addresses, protocol and length. Both sum to the same.
#[inline]
fn pseudo_header(addresses: Sum, udp_len: u16) -> Sum {
    addresses.word(u16::from(PROTOCOL_UDP)).word(udp_len)
}

#[inline]
fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
#[path = "frame_tests.rs"]
mod tests;
