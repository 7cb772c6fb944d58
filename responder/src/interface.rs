//! What the kernel says of an interface, by netlink: its link, its VLAN devices, its addresses, and when any of that changes.
//!
//! Changes are not interpreted one by one. A notification means "look again": the interface is read whole and compared, which is right
//! even when notifications were lost.

use std::{
    net::{IpAddr, SocketAddr, SocketAddrV6},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use futures_util::{StreamExt, TryStreamExt};
use rtnetlink::{
    Handle, MulticastGroup, new_multicast_connection,
    packet_route::{
        address::{AddressAttribute, AddressMessage},
        link::{InfoData, InfoKind, InfoVlan, LinkAttribute, LinkFlags, LinkInfo, LinkLayerType, LinkMessage, LinkXdp},
    },
};
use tokio::time::{Instant, timeout, timeout_at};

use crate::{config::DNS_PORT, sys};

/// Changes come in bursts (an address, its route, its flags): one look serves them all.
const SETTLE: Duration = Duration::from_millis(50);
/// Some interface may flap without end; the others are looked at all the same.
const SETTLE_MAX: Duration = Duration::from_secs(1);

/// One interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its index.
    pub index: u32,
    /// Its MAC address; zero where it has none of Ethernet's length.
    pub mac: [u8; 6],
    /// Its MTU in bytes.
    pub mtu: u32,
    /// It was set up; says nothing of the carrier.
    pub up: bool,
    /// Its driver's name, or `""`.
    pub driver: String,
    /// The ids of the VLAN devices on it.
    pub vlans: Vec<u16>,
    /// The indices of itself and of its VLAN devices.
    pub devices: Vec<u32>,
    /// Its addresses and those of its VLAN devices, each with its prefix length.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Of these, the addresses of its VLAN devices.
    pub vlan_addresses: Vec<IpAddr>,
    /// The NIC takes VLAN tags off received packets.
    pub strips_vlans: bool,
    /// The id of an XDP program that is attached to it.
    pub xdp_program: Option<u32>,
    /// Why it cannot have queues of its own, with the remedy.
    pub(crate) stacked: Option<String>,
}

impl Interface {
    /// Whether a bypass can be built on it.
    pub fn check_bypass(&self) -> Result<()> {
        if let Some(why) = &self.stacked {
            bail!("{why}");
        }
        ensure!(self.up, "{0} is down: `ip link set dev {0} up`", self.name);
        Ok(())
    }

    /// Its addresses without their prefixes.
    pub fn ips(&self) -> impl Iterator<Item = IpAddr> + '_ {
        self.addresses.iter().map(|(address, _)| *address)
    }

    /// Its addresses at the DNS port (RFC 1035 section 4.2). A link-local address means nothing without its interface.
    pub fn sockets(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.ips().map(|address| match address {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => SocketAddrV6::new(v6, DNS_PORT, 0, self.index).into(),
            other => SocketAddr::new(other, DNS_PORT),
        })
    }

    /// Picks the interface out of what the kernel has of all links and addresses.
    fn decode(name: &str, links: &[LinkMessage], addresses: &[AddressMessage]) -> Result<Self> {
        let Some(link) = links.iter().find(|link| link_name(link) == name) else {
            let known: Vec<&str> = links.iter().map(link_name).collect();
            bail!("there is no interface {name}: there are {}", known.join(", "));
        };
        let index = link.header.index;
        let mut interface = Self {
            name: name.to_owned(),
            index,
            mac: [0; 6],
            mtu: 0,
            up: link.header.flags.contains(LinkFlags::Up),
            driver: String::new(),
            vlans: Vec::new(),
            devices: vec![index],
            addresses: Vec::new(),
            vlan_addresses: Vec::new(),
            strips_vlans: false,
            xdp_program: None,
            stacked: stacked(link, links),
        };
        for attribute in &link.attributes {
            match attribute {
                LinkAttribute::Address(mac) => interface.mac = mac.as_slice().try_into().unwrap_or_default(),
                LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
                LinkAttribute::Xdp(xdp) => {
                    interface.xdp_program = xdp.iter().find_map(|xdp| match xdp {
                        LinkXdp::ProgId(id) => Some(*id),
                        _ => None,
                    });
                }
                _ => {}
            }
        }
        for device in links.iter().filter(|device| parent(device) == Some(index)) {
            if let Some(id) = vlan_id(device) {
                interface.vlans.push(id);
                interface.devices.push(device.header.index);
            }
        }
        interface.addresses = addresses
            .iter()
            .filter(|address| interface.devices.contains(&address.header.index))
            .filter_map(|address| Some((local(address)?, address.header.prefix_len)))
            .collect();
        interface.addresses.sort_unstable();
        interface.addresses.dedup();
        interface.vlan_addresses = addresses
            .iter()
            .filter(|address| interface.devices[1..].contains(&address.header.index))
            .filter_map(local)
            .collect();
        interface.vlan_addresses.sort_unstable();
        interface.vlan_addresses.dedup();
        Ok(interface)
    }
}

/// A netlink connection that reads interfaces and hears of changes.
pub struct Monitor {
    handle: Handle,
    changes: futures_channel::mpsc::UnboundedReceiver<(
        rtnetlink::packet_core::NetlinkMessage<rtnetlink::packet_route::RouteNetlinkMessage>,
        rtnetlink::sys::SocketAddr,
    )>,
    /// News came that nobody has been told of yet; the wait for quiet ends then.
    look_at: Option<Instant>,
}

impl Monitor {
    /// Opens the connection. Called within a tokio runtime, on which the connection lives.
    pub fn open() -> Result<Self> {
        let groups = [MulticastGroup::Link, MulticastGroup::Ipv4Ifaddr, MulticastGroup::Ipv6Ifaddr];
        let (connection, handle, changes) =
            new_multicast_connection(&groups).context("cannot open a netlink socket")?;
        tokio::spawn(connection);
        Ok(Self { handle, changes, look_at: None })
    }

    /// Reads one interface.
    pub async fn read(&self, name: &str) -> Result<Interface> {
        let links: Vec<LinkMessage> =
            self.handle.link().get().execute().try_collect().await.context("cannot list the interfaces")?;
        let addresses: Vec<AddressMessage> =
            self.handle.address().get().execute().try_collect().await.context("cannot list the addresses")?;
        let mut interface = Interface::decode(name, &links, &addresses)?;
        interface.driver = sys::driver(name).unwrap_or_default();
        interface.strips_vlans = sys::strips_vlans(name).unwrap_or(false);
        Ok(interface)
    }

    /// Returns when something has changed on some interface and then been quiet for a moment. A change is not lost when this is cancelled.
    pub async fn changed(&mut self) {
        let look_at = match self.look_at {
            Some(look_at) => look_at,
            None => {
                if self.changes.next().await.is_none() {
                    // The connection has gone; there will be no more news.
                    std::future::pending::<()>().await;
                }
                *self.look_at.insert(Instant::now() + SETTLE_MAX)
            }
        };
        let quiet = async { while let Ok(Some(_)) = timeout(SETTLE, self.changes.next()).await {} };
        // Quiet or not, it is time to look.
        let _ = timeout_at(look_at, quiet).await;
        self.look_at = None;
    }
}

/// Says why an interface has no receive queues of its own, and what to give instead.
fn stacked(link: &LinkMessage, links: &[LinkMessage]) -> Option<String> {
    let name = link_name(link);
    let name_of = |index| links.iter().find(|other| other.header.index == index).map_or("its parent", link_name);
    let kind = kind(link);
    let by_parent = || parent(link).map_or("its parent", name_of);
    let flags = || {
        let physical = physical(link, links, STACK_MAX);
        let flags: Vec<String> = physical.iter().map(|name| format!("--iface {name}")).collect();
        if flags.is_empty() { "it has none now".to_owned() } else { flags.join(" ") }
    };
    Some(match kind {
        Some(InfoKind::Bond | InfoKind::Bridge) => {
            format!("{name} is a {}: it has no receive queues of its own. Serve on its members: {}", kind?, flags())
        }
        Some(InfoKind::Vlan) if physical(link, links, STACK_MAX) == [by_parent()] => {
            format!(
                "{name} is a VLAN of {0}: serve on {0}, which answers the VLANs that are configured on it: --iface {0}",
                by_parent()
            )
        }
        Some(InfoKind::Vlan) => {
            let id = vlan_id(link).map_or_else(String::new, |id| format!(" --vlan {id}"));
            format!(
                "{name} is a VLAN of {}, which has no receive queues of its own either. Serve on {}{id}",
                by_parent(),
                flags()
            )
        }
        Some(InfoKind::MacVlan | InfoKind::MacVtap | InfoKind::IpVlan | InfoKind::IpVtap) => {
            format!(
                "{name} is a {} of {}: it has no receive queues of its own. Serve on {}",
                kind?,
                by_parent(),
                flags()
            )
        }
        _ if link.header.link_layer_type != LinkLayerType::Ether => {
            format!("{name} is not an Ethernet interface: use --io socket for it")
        }
        _ => return None,
    })
}

/// How deep devices are stacked that anyone would look through.
const STACK_MAX: u32 = 8;

/// The names of the interfaces with receive queues that a device is built on; its own if it is one.
fn physical<'a>(link: &'a LinkMessage, links: &'a [LinkMessage], depth: u32) -> Vec<&'a str> {
    let index = link.header.index;
    let below: Vec<&LinkMessage> = match kind(link) {
        Some(InfoKind::Bond | InfoKind::Bridge) => {
            links.iter().filter(|other| controller(other) == Some(index)).collect()
        }
        Some(InfoKind::Vlan | InfoKind::MacVlan | InfoKind::MacVtap | InfoKind::IpVlan | InfoKind::IpVtap) => {
            let parent = links.iter().find(|other| Some(other.header.index) == parent(link));
            // One in another namespace is out of sight.
            return match (parent, depth) {
                (Some(parent), 1..) => physical(parent, links, depth - 1),
                _ => vec!["its parent"],
            };
        }
        _ => return vec![link_name(link)],
    };
    if depth == 0 { Vec::new() } else { below.iter().flat_map(|link| physical(link, links, depth - 1)).collect() }
}

pub(crate) fn link_name(link: &LinkMessage) -> &str {
    link.attributes
        .iter()
        .find_map(|attribute| if let LinkAttribute::IfName(name) = attribute { Some(name.as_str()) } else { None })
        .unwrap_or("")
}

/// The interface that a VLAN, macvlan or veth is built on (for veth: its peer).
fn parent(link: &LinkMessage) -> Option<u32> {
    link.attributes
        .iter()
        .find_map(|attribute| if let LinkAttribute::Link(index) = attribute { Some(*index) } else { None })
}

/// The bond or bridge that an interface is a member of.
fn controller(link: &LinkMessage) -> Option<u32> {
    link.attributes
        .iter()
        .find_map(|attribute| if let LinkAttribute::Controller(index) = attribute { Some(*index) } else { None })
}

fn info(link: &LinkMessage) -> impl Iterator<Item = &LinkInfo> {
    link.attributes
        .iter()
        .filter_map(|attribute| if let LinkAttribute::LinkInfo(info) = attribute { Some(info) } else { None })
        .flatten()
}

fn kind(link: &LinkMessage) -> Option<&InfoKind> {
    info(link).find_map(|info| if let LinkInfo::Kind(kind) = info { Some(kind) } else { None })
}

fn vlan_id(link: &LinkMessage) -> Option<u16> {
    let data =
        info(link).find_map(|info| if let LinkInfo::Data(InfoData::Vlan(data)) = info { Some(data) } else { None })?;
    data.iter().find_map(|item| if let InfoVlan::Id(id) = item { Some(*id) } else { None })
}

/// The interface's own address: on a point-to-point link `Address` is the peer's.
fn local(address: &AddressMessage) -> Option<IpAddr> {
    let find = |wanted: fn(&AddressAttribute) -> Option<IpAddr>| address.attributes.iter().find_map(wanted);
    find(|attribute| if let AddressAttribute::Local(ip) = attribute { Some(*ip) } else { None })
        .or_else(|| find(|attribute| if let AddressAttribute::Address(ip) = attribute { Some(*ip) } else { None }))
}

#[cfg(test)]
mod tests {
    use rtnetlink::packet_core::{NetlinkHeader, NetlinkMessage, NetlinkPayload};

    use super::*;

    fn link(index: u32, name: &str, kind: Option<InfoKind>, more: Vec<LinkAttribute>) -> LinkMessage {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.link_layer_type = LinkLayerType::Ether;
        link.header.flags = LinkFlags::Up;
        link.attributes.push(LinkAttribute::IfName(name.to_owned()));
        link.attributes.push(LinkAttribute::Mtu(1500));
        link.attributes.push(LinkAttribute::Address(vec![2, 0, 0, 0, 0, 1]));
        let mut info: Vec<LinkInfo> = kind.into_iter().map(LinkInfo::Kind).collect();
        for attribute in more {
            match attribute {
                LinkAttribute::LinkInfo(extra) => info.extend(extra),
                other => link.attributes.push(other),
            }
        }
        link.attributes.push(LinkAttribute::LinkInfo(info));
        link
    }

    fn address(index: u32, ip: &str, prefix: u8) -> AddressMessage {
        let mut address = AddressMessage::default();
        address.header.index = index;
        address.header.prefix_len = prefix;
        address.attributes.push(AddressAttribute::Local(ip.parse().unwrap()));
        address
    }

    fn vlan(id: u16) -> LinkAttribute {
        LinkAttribute::LinkInfo(vec![LinkInfo::Data(InfoData::Vlan(vec![InfoVlan::Id(id)]))])
    }

    #[test]
    fn an_interface_with_its_vlans_and_addresses() {
        let links = [
            link(1, "lo", None, vec![]),
            link(2, "eth0", None, vec![LinkAttribute::Xdp(vec![LinkXdp::ProgId(77)])]),
            link(3, "eth0.5", Some(InfoKind::Vlan), vec![LinkAttribute::Link(2), vlan(5)]),
            link(4, "mac0", Some(InfoKind::MacVlan), vec![LinkAttribute::Link(2)]),
        ];
        let addresses = [
            address(2, "192.0.2.1", 24),
            address(2, "fe80::1", 64),
            address(3, "198.51.100.1", 24),
            address(4, "203.0.113.1", 24),
        ];
        let eth0 = Interface::decode("eth0", &links, &addresses).unwrap();
        assert_eq!((eth0.index, eth0.mtu, eth0.mac), (2, 1500, [2, 0, 0, 0, 0, 1]));
        assert_eq!((eth0.vlans.as_slice(), eth0.xdp_program), ([5].as_slice(), Some(77)));
        let got: Vec<String> = eth0.addresses.iter().map(|(ip, prefix)| format!("{ip}/{prefix}")).collect();
        assert_eq!(got, ["192.0.2.1/24", "198.51.100.1/24", "fe80::1/64"]);
        assert_eq!(eth0.vlan_addresses, ["198.51.100.1".parse::<IpAddr>().unwrap()]);
        eth0.check_bypass().unwrap();
    }

    /// CASES 29: a bond, bridge, VLAN or macvlan is given and nothing works.
    #[test]
    fn case_29_stacked_devices_name_what_to_serve_on() {
        let links = [
            link(2, "eth0", None, vec![LinkAttribute::Controller(5)]),
            link(3, "eth1", None, vec![LinkAttribute::Controller(5)]),
            link(4, "eth2", None, vec![]),
            link(5, "bond0", Some(InfoKind::Bond), vec![LinkAttribute::Controller(10)]),
            link(6, "br0", Some(InfoKind::Bridge), vec![]),
            link(7, "bond0.9", Some(InfoKind::Vlan), vec![LinkAttribute::Link(5), vlan(9)]),
            link(8, "mac0", Some(InfoKind::MacVlan), vec![LinkAttribute::Link(3)]),
            link(9, "eth2.4", Some(InfoKind::Vlan), vec![LinkAttribute::Link(4), vlan(4)]),
            link(10, "br1", Some(InfoKind::Bridge), vec![]),
        ];
        let cases = [
            (
                "bond0",
                "bond0 is a bond: it has no receive queues of its own. Serve on its members: --iface eth0 --iface eth1",
            ),
            ("br0", "br0 is a bridge: it has no receive queues of its own. Serve on its members: it has none now"),
            (
                "bond0.9",
                "bond0.9 is a VLAN of bond0, which has no receive queues of its own either. Serve on --iface eth0 --iface eth1 --vlan 9",
            ),
            (
                "eth2.4",
                "eth2.4 is a VLAN of eth2: serve on eth2, which answers the VLANs that are configured on it: --iface eth2",
            ),
            (
                "br1",
                "br1 is a bridge: it has no receive queues of its own. Serve on its members: --iface eth0 --iface eth1",
            ),
            ("mac0", "mac0 is a macvlan of eth1: it has no receive queues of its own. Serve on --iface eth1"),
        ];
        for (name, expected) in cases {
            let error = Interface::decode(name, &links, &[]).unwrap().check_bypass().unwrap_err();
            assert_eq!(error.to_string(), expected);
        }
    }

    /// The one who waits also waits for other things, and then drops this wait half-way.
    #[test]
    fn a_change_is_not_lost_when_the_wait_for_quiet_is_cut_short() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        runtime.block_on(async {
            let (news, changes) = futures_channel::mpsc::unbounded();
            let mut monitor = Monitor { changes, ..Monitor::open().unwrap() };
            let message = NetlinkMessage::new(NetlinkHeader::default(), NetlinkPayload::Noop);
            news.unbounded_send((message, rtnetlink::sys::SocketAddr::new(0, 0))).unwrap();
            assert!(timeout(SETTLE / 2, monitor.changed()).await.is_err(), "not quiet yet");
            assert!(timeout(SETTLE * 2, monitor.changed()).await.is_ok(), "lost");
            assert!(timeout(SETTLE * 2, monitor.changed()).await.is_err(), "told twice");
        });
    }

    #[test]
    fn an_interface_that_is_down_or_absent() {
        let mut down = link(2, "eth0", None, vec![]);
        down.header.flags = LinkFlags::empty();
        let links = [link(1, "lo", None, vec![]), down];
        let error = Interface::decode("eth0", &links, &[]).unwrap().check_bypass().unwrap_err().to_string();
        assert_eq!(error, "eth0 is down: `ip link set dev eth0 up`");
        let error = Interface::decode("eth9", &links, &[]).unwrap_err().to_string();
        assert_eq!(error, "there is no interface eth9: there are lo, eth0");
    }
}
