//! Who is asked, whether that is allowed, and the way there: interface, source address, and the MAC address of the next hop.

use std::{
    net::{IpAddr, SocketAddr, SocketAddrV6, ToSocketAddrs, UdpSocket},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use futures_util::TryStreamExt;
use rtnetlink::{
    Handle, RouteMessageBuilder, new_connection,
    packet_route::{
        neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourState},
        route::{RouteAddress, RouteAttribute, RouteMessage, RouteType},
    },
};

use crate::{
    config::DNS_PORT,
    interface::{Interface, Monitor, link_name},
};

/// How long an answer of the neighbour is waited for. The kernel asks three times, a second apart.
const NEIGHBOUR_WITHIN: Duration = Duration::from_secs(4);
/// Between two looks for it.
const LOOK: Duration = Duration::from_millis(20);
/// Where a datagram goes that makes the kernel look for the neighbour (RFC 863).
const DISCARD_PORT: u16 = 9;

/// Who is asked, and how the kernel would get there.
#[derive(Clone, Debug)]
pub struct Target {
    /// Address and port.
    pub address: SocketAddr,
    /// Our address.
    pub source: IpAddr,
    /// The interface that packets leave by.
    pub interface: Interface,
    /// Who takes them first: the target or a gateway.
    next_hop: IpAddr,
    /// It is an address of this machine.
    pub is_local: bool,
}

/// The address that a text means: `ADDR`, `ADDR:PORT`, `[V6]:PORT` or a name of these.
pub fn resolve(text: &str) -> Result<SocketAddr> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    if let Ok(ip) = text.trim_matches(['[', ']']).parse() {
        return Ok(SocketAddr::new(ip, DNS_PORT));
    }
    let found = if text.contains(':') { text.to_socket_addrs() } else { (text, DNS_PORT).to_socket_addrs() };
    let found = found.with_context(|| format!("`{text}` is neither an address nor a host that is known here"))?.next();
    found.with_context(|| format!("the host `{text}` has no address"))
}

impl Target {
    /// Finds the way, by a given interface or that which the kernel would take.
    pub fn find(address: SocketAddr, interface: Option<&str>) -> Result<Self> {
        block_on(async {
            let (connection, handle, _) = new_connection().context("cannot open a netlink socket")?;
            tokio::spawn(connection);
            let route = route(&handle, address.ip()).await?;
            let (mut next_hop, mut source, mut index) = (address.ip(), None, None);
            for attribute in &route.attributes {
                match attribute {
                    RouteAttribute::Gateway(gateway) => next_hop = ip(gateway).unwrap_or(next_hop),
                    RouteAttribute::PrefSource(preferred) => source = ip(preferred),
                    RouteAttribute::Oif(oif) => index = Some(*oif),
                    _ => {}
                }
            }
            let index = index.with_context(|| format!("the route to {address} names no interface"))?;
            let links: Vec<_> = handle.link().get().execute().try_collect().await.context("cannot list interfaces")?;
            let by = links.iter().find(|link| link.header.index == index).map(link_name);
            let by = by.with_context(|| format!("the route to {address} leaves by an interface that is not there"))?;
            let is_local = route.header.kind == RouteType::Local;
            if let Some(wanted) = interface {
                ensure!(
                    wanted == by || is_local,
                    "{address} is reached by {by}, not by {wanted}: `ip route get {}` says so",
                    address.ip()
                );
            }
            let interface = Monitor::open()?.read(by).await?;
            let source = source.with_context(|| format!("there is no address to ask {address} from"))?;
            Ok(Self { address, source, interface, next_hop, is_local })
        })
    }

    /// Refuses a target outside this machine unless its owner has agreed.
    pub fn allow(&self, is_owned: bool) -> Result<()> {
        ensure!(
            self.is_local || is_owned,
            "{} is not this machine: say --i-own-the-target if it is yours, or its owner has agreed to be flooded",
            self.address
        );
        Ok(())
    }

    /// The MAC address of who takes the packets first, which the kernel is made to ask for.
    pub fn mac(&self) -> Result<[u8; 6]> {
        block_on(async {
            let (connection, handle, _) = new_connection().context("cannot open a netlink socket")?;
            tokio::spawn(connection);
            let until = Instant::now() + NEIGHBOUR_WITHIN;
            let nudge = UdpSocket::bind(SocketAddr::new(self.source, 0))
                .with_context(|| format!("opening a socket at {}", self.source))?;
            // Whether it is taken does not matter; that it is sent does.
            let to = match self.next_hop {
                IpAddr::V4(hop) => SocketAddr::new(hop.into(), DISCARD_PORT),
                // A link-local address is one of an interface.
                IpAddr::V6(hop) => SocketAddrV6::new(hop, DISCARD_PORT, 0, self.interface.index).into(),
            };
            let _ = nudge.send_to(&[], to);
            loop {
                if let Some(mac) = self.neighbour(&handle).await? {
                    return Ok(mac);
                }
                if Instant::now() >= until {
                    let protocol = if self.next_hop.is_ipv4() { "ARP" } else { "ND" };
                    bail!(
                        "no {protocol} answer from {} on {} within {} s, so that no packet can be sent to {}: is it up and in this network? \
                         `ip neigh show dev {}` has what the kernel knows",
                        self.next_hop,
                        self.interface.name,
                        NEIGHBOUR_WITHIN.as_secs(),
                        self.address,
                        self.interface.name
                    );
                }
                tokio::time::sleep(LOOK).await;
            }
        })
    }

    async fn neighbour(&self, handle: &Handle) -> Result<Option<[u8; 6]>> {
        let mut all = handle.neighbours().get().execute();
        while let Some(entry) = all.try_next().await.context("cannot list the neighbours")? {
            if entry.header.ifindex != self.interface.index
                || matches!(entry.header.state, NeighbourState::Failed | NeighbourState::Incomplete)
            {
                continue;
            }
            let (mut is_it, mut mac) = (false, None);
            for attribute in &entry.attributes {
                match attribute {
                    NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => is_it = self.next_hop == *ip,
                    NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => is_it = self.next_hop == *ip,
                    NeighbourAttribute::LinkLocalAddress(address) => mac = address.as_slice().try_into().ok(),
                    _ => {}
                }
            }
            if let (true, Some(mac)) = (is_it, mac) {
                return Ok(Some(mac));
            }
        }
        Ok(None)
    }
}

/// The route that the kernel would take.
async fn route(handle: &Handle, to: IpAddr) -> Result<RouteMessage> {
    let wanted = match to {
        IpAddr::V4(to) => RouteMessageBuilder::<std::net::Ipv4Addr>::new().destination_prefix(to, 32).build(),
        IpAddr::V6(to) => RouteMessageBuilder::<std::net::Ipv6Addr>::new().destination_prefix(to, 128).build(),
    };
    let found: Result<Vec<RouteMessage>, _> = handle.route().get(wanted).execute().try_collect().await;
    let found = found.map_err(|error| anyhow::anyhow!("{to} cannot be reached: {error}: is there a route to it?"))?;
    found.into_iter().next().with_context(|| format!("{to} cannot be reached: the kernel has no route to it"))
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some((*ip).into()),
        RouteAddress::Inet6(ip) => Some((*ip).into()),
        _ => None,
    }
}

fn block_on<T>(future: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(future)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_an_address_or_a_known_host() {
        for (text, wanted) in [
            ("192.0.2.1", "192.0.2.1:53"),
            ("192.0.2.1:5300", "192.0.2.1:5300"),
            ("2001:db8::1", "[2001:db8::1]:53"),
            ("[2001:db8::1]", "[2001:db8::1]:53"),
            ("[2001:db8::1]:5300", "[2001:db8::1]:5300"),
        ] {
            assert_eq!(resolve(text).unwrap().to_string(), wanted);
        }
        assert_eq!(resolve("localhost:7").unwrap().port(), 7);
        for unknown in ["no.such.host.invalid", "", "192.0.2.1:x"] {
            assert!(format!("{:#}", resolve(unknown).unwrap_err()).contains(unknown));
        }
    }

    #[test]
    fn only_this_machine_may_be_flooded_unasked() {
        let local = Target::find("127.0.0.1:53".parse().unwrap(), None).unwrap();
        assert!(local.is_local);
        local.allow(false).unwrap();
        let foreign = Target { is_local: false, ..local };
        foreign.allow(true).unwrap();
        assert!(foreign.allow(false).unwrap_err().to_string().contains("--i-own-the-target"));
    }
}
