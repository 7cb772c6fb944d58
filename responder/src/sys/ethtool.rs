//! A NIC's rings, its hash and its offloads, as ethtool(8) reads and sets them. The system call itself is made in `sys`.

use std::io;

use super::ETHTOOL_GFLAGS;

const ETH_FLAG_LRO: u32 = 1 << 15;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GRINGPARAM: u32 = 0x10;
/// What of a packet decides its queue, by kind of flow: reading and setting it.
const ETHTOOL_GRXFH: u32 = 0x29;
const ETHTOOL_SRXFH: u32 = 0x2a;
/// The words of struct ethtool_rxnfc, of which the hash takes the first four.
const RXNFC_WORDS: usize = 192 / 4;

/// Whether the NIC or its driver makes one large packet of several TCP segments before an XDP program sees them (`ethtool -k`:
/// large-receive-offload).
pub fn merges_in_hardware(interface: &str) -> io::Result<bool> {
    Ok(super::ethtool_value(interface, ETHTOOL_GFLAGS)? & ETH_FLAG_LRO != 0)
}

/// Whether the kernel merges received packets on their way up (`ethtool -k`: generic-receive-offload).
pub fn merges_in_kernel(interface: &str) -> io::Result<bool> {
    Ok(super::ethtool_value(interface, ETHTOOL_GGRO)? != 0)
}

/// The NIC's own rings, in packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// Of each receive queue.
    pub rx: u32,
    /// Of each transmit queue.
    pub tx: u32,
    /// The most that can be set for `rx`.
    pub rx_max: u32,
    /// The most that can be set for `tx`.
    pub tx_max: u32,
}

/// The sizes of the NIC's rings (`ethtool -g`).
pub fn rings(interface: &str) -> io::Result<Rings> {
    // struct ethtool_ringparam: cmd, the maxima of rx, mini, jumbo, tx, and then the sizes in the same order.
    let mut request = [0u32; 9];
    request[0] = ETHTOOL_GRINGPARAM;
    super::ethtool(interface, &mut request)?;
    let [_, rx_max, _, _, tx_max, rx, _, _, tx] = request;
    Ok(Rings { rx, tx, rx_max, tx_max })
}

/// UDP over one IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Over IPv4.
    Udp4,
    /// Over IPv6.
    Udp6,
}

impl Flow {
    /// As `ethtool -N IF rx-flow-hash` calls it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Udp4 => "udp4",
            Self::Udp6 => "udp6",
        }
    }

    /// `UDP_V4_FLOW` and `UDP_V6_FLOW` of linux/ethtool.h.
    const fn number(self) -> u32 {
        match self {
            Self::Udp4 => 2,
            Self::Udp6 => 6,
        }
    }
}

/// What of a packet its queue is computed from: bits `RXH_*` of linux/ethtool.h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HashFields(pub u32);

impl HashFields {
    /// Both addresses.
    pub const ADDRESSES: Self = Self(1 << 4 | 1 << 5);
    /// Both addresses and both ports.
    pub const PORTS: Self = Self(Self::ADDRESSES.0 | 1 << 6 | 1 << 7);

    /// Whether all of `other` is within it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The letters that ethtool(8) takes for it; empty where nothing is hashed.
    #[must_use]
    pub fn letters(self) -> String {
        const LETTERS: [(u32, char); 7] =
            [(1 << 1, 'm'), (1 << 2, 'v'), (1 << 3, 't'), (1 << 4, 's'), (1 << 5, 'd'), (1 << 6, 'f'), (1 << 7, 'n')];
        LETTERS.iter().filter(|(bit, _)| self.0 & bit != 0).map(|(_, letter)| letter).collect()
    }
}

/// What a flow's receive queue is computed from (`ethtool -n IF rx-flow-hash udp4`).
pub fn hash_fields(interface: &str, flow: Flow) -> io::Result<HashFields> {
    let mut request = [0; RXNFC_WORDS];
    request[..2].copy_from_slice(&[ETHTOOL_GRXFH, flow.number()]);
    super::ethtool(interface, &mut request)?;
    // The field has 64 bits, of which some above these are flags.
    let [low, ..] = super::long(&request[2..4]).to_le_bytes();
    Ok(HashFields(low.into()))
}

/// Has a flow's receive queue computed from these fields.
pub fn set_hash_fields(interface: &str, flow: Flow, fields: HashFields) -> io::Result<()> {
    let mut request = [0; RXNFC_WORDS];
    request[..2].copy_from_slice(&[ETHTOOL_SRXFH, flow.number()]);
    request[2..4].copy_from_slice(&super::words(fields.0.into()));
    super::ethtool(interface, &mut request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_fields_have_the_letters_of_ethtool() {
        assert_eq!((HashFields::ADDRESSES.letters(), HashFields::PORTS.letters()), ("sd".into(), "sdfn".into()));
        assert_eq!(HashFields(0).letters(), "");
        assert!(HashFields::PORTS.contains(HashFields::ADDRESSES));
        assert!(!HashFields::ADDRESSES.contains(HashFields::PORTS));
    }
}
