//! What the XDP program and its user-space side must agree on: the names of maps and globals, the layout of keys, the verdicts.
//!
//! It holds no types that cross the border as bytes: keys and values are integers and byte arrays, so neither side needs an
//! unsafe promise about layout.
#![no_std]

/// The names of the maps, as the XDP programs declare them.
pub mod map {
    /// XSKMAP: receive queue -> AF_XDP socket. An empty slot passes the frame to the kernel.
    pub const XSKS: &str = "XSKS";
    /// LPM trie, `[u8; 4]` in network order -> the ports that are served there, bit i for [`PORTS`](crate::global::PORTS)`[i]`: IPv4 destinations.
    pub const SERVED_V4: &str = "SERVED_V4";
    /// LPM trie, `[u8; 16]` in network order -> the same for IPv6 destinations.
    pub const SERVED_V6: &str = "SERVED_V6";
    /// Hash, [`vlan_key`](crate::vlan_key) -> nothing of interest: the VLANs that are served.
    pub const SERVED_VLANS: &str = "SERVED_VLANS";
    /// Per-CPU array, [`Verdict`](crate::Verdict) -> frames.
    pub const VERDICTS: &str = "VERDICTS";
    /// The section of globals that may change, which is one: a `u64`, [`mac_key`](crate::mac_key), the MAC address that frames must be sent to.
    pub const MAC: &str = ".bss";
    /// Hash of the `observe` program, [`Seen`](crate::Seen) -> replies.
    pub const SEEN: &str = "SEEN";
    /// Per-CPU array of the `gather` program with one entry: replies that were counted and dropped.
    pub const UNSEEN: &str = "UNSEEN";
}

/// The names of the read-only globals that are set while the program is loaded, each with its type.
pub mod global {
    /// `[u16; MAX_PORTS]`, host order: the UDP ports that are served; 0 marks an unused entry.
    pub const PORTS: &str = "PORTS";
    /// `u8`: the level of aya-log. 0 lets the verifier delete all logging.
    pub const LOG_LEVEL: &str = "AYA_LOG_LEVEL";
    /// `u16`, of `gather`: the UDP port that is asked, from which replies come.
    pub const ASKED_PORT: &str = "ASKED_PORT";
    /// `u16`, of `gather`: the first of the ports that are asked from.
    pub const FIRST_PORT: &str = "FIRST_PORT";
    /// `u16`, of `gather`: the last of them.
    pub const LAST_PORT: &str = "LAST_PORT";
    /// `u8`, of `gather`: 1 where replies are counted and dropped instead of given to a socket.
    pub const COUNT_ONLY: &str = "COUNT_ONLY";
}

/// How many UDP ports can be served: the bits of a byte.
pub const MAX_PORTS: usize = 8;

/// Log records a second and CPU when logging is on.
pub const LOG_RECORDS_PER_SECOND: u32 = 5;

/// A MAC address as the program compares it: its six bytes as the low 48 bits of a big-endian number.
pub const fn mac_key(mac: [u8; 6]) -> u64 {
    let [a, b, c, d, e, f] = mac;
    u64::from_be_bytes([0, 0, a, b, c, d, e, f])
}

/// The tags of a frame as one number: the outer VLAN id in the high half, the inner one, or 0 for a single tag, in the low half.
pub const fn vlan_key(outer: u16, inner: u16) -> u32 {
    // `u32::from` is not const.
    ((outer as u32) << 16) | inner as u32
}

/// A key of [`map::SEEN`]: who was answered (`client_port`), on which receive queue of the client, on which CPU.
///
/// On veth that is the server's transmit queue, and the CPU that transmitted.
pub type Seen = [u32; 3];

macro_rules! verdicts {
    ($($(#[doc = $doc:literal])* $variant:ident => $name:literal,)*) => {
        /// What the XDP program decided about a frame. Each variant is a counter of the same name.
        ///
        /// All but [`Redirected`](Self::Redirected) give the frame to the kernel.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Verdict {
            $($(#[doc = $doc])* $variant,)*
        }

        impl Verdict {
            /// Every verdict, in the order of its index.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];

            /// The counter's name in `status`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        }
    };
}

verdicts! {
    /// Given to the socket of its receive queue.
    Redirected => "redirected",
    /// Ours in every way, but its receive queue has no socket.
    NoWorker => "no_worker",
    /// Cut short within a header.
    Truncated => "truncated",
    /// Sent to another MAC address, or to a group.
    OtherMac => "other_mac",
    /// Tagged with a VLAN that is not served, or priority-tagged (VLAN id 0).
    OtherVlan => "other_vlan",
    /// Neither IPv4 nor IPv6.
    NotIp => "not_ip",
    /// Neither UDP nor a fragment; IPv6 extension headers count here.
    NotUdp => "not_udp",
    /// A fragment, first or later, of whatever it is.
    Fragment => "fragment",
    /// IPv4 with options.
    IpOptions => "ip_options",
    /// A length in the IP or UDP header that does not fit into what is around it.
    BadLength => "bad_length",
    /// A UDP port that is not served.
    OtherPort => "other_port",
    /// A destination address that is not served.
    OtherAddress => "other_address",
    /// A source that no reply may go to: unspecified, loopback, multicast, broadcast, IPv4-mapped, or a group MAC address.
    BadSource => "bad_source",
    /// UDP over IPv6 without a checksum (RFC 8200 section 8.1).
    NoChecksum => "no_checksum",
}
