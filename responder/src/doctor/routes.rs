//! Which clients the kernel would answer by another interface than the one their queries come in on. The bypass always answers by that one.
//!
//! Only the main table is looked at; rules of policy routing are not.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use anyhow::{Context, Result};
use futures_util::TryStreamExt;
use rtnetlink::{
    RouteMessageBuilder, new_connection,
    packet_route::{
        AddressFamily,
        route::{RouteAddress, RouteAttribute, RouteHeader, RouteMessage, RouteType},
    },
};
use serde::Serialize;

use crate::interface::{Interface, link_name};

/// A destination that is reached by another interface.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Elsewhere {
    /// A prefix.
    pub destination: String,
    /// The interface.
    pub by: String,
}

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Route {
    destination: (IpAddr, u8),
    /// The indices of the interfaces that it leaves by.
    by: Vec<u32>,
    metric: u32,
}

/// Reads the routes and picks those that matter for clients of this interface.
pub(super) async fn elsewhere(interface: &Interface) -> Result<Vec<Elsewhere>> {
    let (connection, handle, _) = new_connection().context("cannot open a netlink socket")?;
    tokio::spawn(connection);
    let links: Vec<_> = handle.link().get().execute().try_collect().await.context("cannot list the interfaces")?;
    let names: BTreeMap<u32, &str> = links.iter().map(|link| (link.header.index, link_name(link))).collect();
    let wanted = [RouteMessageBuilder::<Ipv4Addr>::new().build(), RouteMessageBuilder::<Ipv6Addr>::new().build()];
    let mut routes = Vec::new();
    for wanted in wanted {
        let dump: Vec<RouteMessage> =
            handle.route().get(wanted).execute().try_collect().await.context("cannot list the routes")?;
        routes.extend(dump.iter().filter_map(Route::decode));
    }
    let named = |index: &u32| names.get(index).map_or_else(|| format!("interface {index}"), |name| (*name).to_owned());
    let found = pick(&interface.devices, &interface.addresses, &routes).into_iter();
    Ok(found
        .map(|route| Elsewhere {
            destination: match route.destination {
                (address, 0) => format!("all of IPv{}", if address.is_ipv4() { 4 } else { 6 }),
                (address, length) => format!("{address}/{length}"),
            },
            by: route.by.iter().map(named).collect::<Vec<_>>().join(" and "),
        })
        .collect())
}

impl Route {
    fn decode(message: &RouteMessage) -> Option<Self> {
        let mut table = u32::from(message.header.table);
        let family_default: IpAddr = match message.header.address_family {
            AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
            AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
            _ => return None,
        };
        let mut route =
            Self { destination: (family_default, message.header.destination_prefix_length), by: Vec::new(), metric: 0 };
        for attribute in &message.attributes {
            match attribute {
                RouteAttribute::Table(number) => table = *number,
                RouteAttribute::Destination(RouteAddress::Inet(address)) => route.destination.0 = (*address).into(),
                RouteAttribute::Destination(RouteAddress::Inet6(address)) => route.destination.0 = (*address).into(),
                RouteAttribute::Oif(index) => route.by.push(*index),
                RouteAttribute::MultiPath(hops) => route.by.extend(hops.iter().map(|hop| hop.interface_index)),
                RouteAttribute::Priority(metric) => route.metric = *metric,
                _ => {}
            }
        }
        let main = table == u32::from(RouteHeader::RT_TABLE_MAIN) && message.header.kind == RouteType::Unicast;
        (main && !route.by.is_empty()).then_some(route)
    }
}

/// The default routes, and routes into the interface's own networks, that win and leave by none of `own`.
fn pick<'a>(own: &[u32], networks: &[(IpAddr, u8)], routes: &'a [Route]) -> Vec<&'a Route> {
    let ours = |network: &&(IpAddr, u8)| match network.0 {
        IpAddr::V4(address) => !address.is_link_local(),
        IpAddr::V6(address) => !address.is_unicast_link_local(),
    };
    let networks: Vec<&(IpAddr, u8)> = networks.iter().filter(ours).collect();
    let matters = |route: &Route| {
        let (destination, length) = route.destination;
        networks.iter().any(|(address, network)| {
            address.is_ipv4() == destination.is_ipv4()
                && (length == 0 || (length >= *network && prefix(*address, *network) == prefix(destination, *network)))
        })
    };
    let beaten = |route: &Route| {
        routes.iter().any(|other| other.destination == route.destination && other.metric < route.metric)
    };
    routes
        .iter()
        .filter(|route| !route.by.iter().any(|index| own.contains(index)) && matters(route) && !beaten(route))
        .collect()
}

/// The first bits of an address, in the highest place.
fn prefix(address: IpAddr, length: u8) -> u128 {
    let bits = match address {
        IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
        IpAddr::V6(address) => address.to_bits(),
    };
    bits & !u128::MAX.checked_shr(length.into()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CASES 28: replies leave by the interface the query came from although routing says otherwise.
    #[test]
    fn case_28_routes_that_leave_by_another_interface_are_found() {
        let networks: [(IpAddr, u8); 3] = [
            ("192.0.2.1".parse().unwrap(), 24),
            ("2001:db8::1".parse().unwrap(), 64),
            ("fe80::1".parse().unwrap(), 64),
        ];
        // Destination, its length, the interface, the metric.
        type Given = (&'static str, u8, u32, u32);
        let cases: &[(&str, &[Given], &[usize])] = &[
            ("the default route is ours", &[("0.0.0.0", 0, 2, 0)], &[]),
            ("or another's", &[("0.0.0.0", 0, 3, 0), ("192.0.2.0", 24, 2, 0)], &[0]),
            ("ours has the better metric", &[("0.0.0.0", 0, 3, 200), ("0.0.0.0", 0, 2, 100)], &[]),
            ("theirs has", &[("0.0.0.0", 0, 3, 100), ("0.0.0.0", 0, 2, 200)], &[0]),
            ("a VLAN device is ours", &[("0.0.0.0", 0, 7, 0)], &[]),
            ("a part of our network", &[("192.0.2.128", 25, 3, 0)], &[0]),
            ("another network", &[("198.51.100.0", 24, 3, 0)], &[]),
            ("IPv6", &[("::", 0, 3, 0)], &[0]),
            ("link-local networks are on every link", &[("fe80::", 64, 3, 0)], &[]),
        ];
        for (what, routes, expected) in cases {
            let routes: Vec<Route> = routes
                .iter()
                .map(|(destination, length, by, metric)| Route {
                    destination: (destination.parse().unwrap(), *length),
                    by: vec![*by],
                    metric: *metric,
                })
                .collect();
            let expected: Vec<&Route> = expected.iter().map(|at| &routes[*at]).collect();
            assert_eq!(pick(&[2, 7], &networks, &routes), expected, "{what}");
        }
    }

    #[test]
    fn an_interface_without_addresses_of_a_family_has_no_clients_of_it() {
        let v6 = Route { destination: (Ipv6Addr::UNSPECIFIED.into(), 0), by: vec![3], metric: 0 };
        assert!(pick(&[2], &[("192.0.2.1".parse().unwrap(), 24)], &[v6]).is_empty());
    }
}
