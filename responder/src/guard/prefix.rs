//! Address prefixes (RFC 4632, RFC 4291 section 2.3), and a map from them in which the longest match wins.
//!
//! The map is made once: nested prefixes become ranges that do not overlap, so a look is one binary search for each address family.

use std::{fmt, net::IpAddr, str::FromStr};

/// An address and how many of its leading bits count. The others are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

/// Why some text is no prefix: what was found and what was expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixError(String);

impl fmt::Display for PrefixError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

impl std::error::Error for PrefixError {}

impl FromStr for Prefix {
    type Err = PrefixError;

    /// `192.0.2.0/24`, `2001:db8::/32`, or an address, which stands for itself alone.
    fn from_str(text: &str) -> Result<Self, PrefixError> {
        let (address, length) = text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
        let address: IpAddr = address
            .parse()
            .map_err(|_| PrefixError(format!("`{text}` is not a prefix: expected ADDRESS/LENGTH or ADDRESS")))?;
        let bits = width(address);
        let length = length.map_or(Ok(bits), str::parse).ok().filter(|length| *length <= bits);
        let length = length.ok_or_else(|| PrefixError(format!("`{text}`: expected a length from 0 to {bits}")))?;
        let prefix = Self { address: cut(address, length), length };
        if prefix.address != address {
            return Err(PrefixError(format!("`{text}` has bits set behind its length: did you mean {prefix}?")));
        }
        Ok(prefix)
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}/{}", self.address, self.length)
    }
}

impl Prefix {
    /// One of its addresses: the one of this number, counted round and round.
    #[must_use]
    pub fn nth(self, number: u64) -> IpAddr {
        let (first, last) = self.range();
        let address = first | (u128::from(number) & (last - first));
        match self.address {
            IpAddr::V4(_) => u32::try_from(address).map_or(self.address, |bits| IpAddr::V4(bits.into())),
            IpAddr::V6(_) => IpAddr::V6(address.into()),
        }
    }

    /// The first and the last address, in the bits of the address family.
    fn range(self) -> (u128, u128) {
        let (first, bits) = match self.address {
            IpAddr::V4(ip) => (u128::from(ip.to_bits()), 32),
            IpAddr::V6(ip) => (ip.to_bits(), 128),
        };
        let free = bits - u32::from(self.length);
        (first, first | u128::MAX.checked_shr(128 - free).unwrap_or(0))
    }
}

/// The address with only its first `length` bits.
#[inline]
#[must_use]
pub(super) fn cut(address: IpAddr, length: u8) -> IpAddr {
    let length = u32::from(length);
    match address {
        IpAddr::V4(ip) => IpAddr::V4((ip.to_bits() & !u32::MAX.checked_shr(length).unwrap_or(0)).into()),
        IpAddr::V6(ip) => IpAddr::V6((ip.to_bits() & !u128::MAX.checked_shr(length).unwrap_or(0)).into()),
    }
}

fn width(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// Values by prefix.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrefixMap<T> {
    v4: Box<[(u32, Option<T>)]>,
    v6: Box<[(u128, Option<T>)]>,
}

impl<T> Default for PrefixMap<T> {
    fn default() -> Self {
        Self { v4: Box::default(), v6: Box::default() }
    }
}

impl<T: Copy + PartialEq> PrefixMap<T> {
    /// Makes the map. Of two entries for one prefix the later counts.
    #[must_use]
    pub fn new(entries: impl IntoIterator<Item = (Prefix, T)>) -> Self {
        let (v4, v6): (Vec<_>, Vec<_>) = entries.into_iter().partition(|(prefix, _)| prefix.address.is_ipv4());
        let v4 = flatten(v4).into_iter().filter_map(|(start, value)| Some((u32::try_from(start).ok()?, value)));
        Self { v4: v4.collect(), v6: flatten(v6).into_boxed_slice() }
    }

    /// Whether no address has a value.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// The value of the longest prefix that the address is in.
    #[inline]
    #[must_use]
    pub fn get(&self, address: IpAddr) -> Option<T> {
        match address {
            IpAddr::V4(ip) => at(&self.v4, ip.to_bits()),
            IpAddr::V6(ip) => at(&self.v6, ip.to_bits()),
        }
    }
}

/// The value of the last range that starts at or before an address.
fn at<A: Copy + Ord, T: Copy>(ranges: &[(A, Option<T>)], address: A) -> Option<T> {
    let next = ranges.partition_point(|(start, _)| *start <= address);
    ranges[..next].last()?.1
}

/// Ranges in order, each from its start to the next one's. Prefixes nest or are apart: a range ends where one within it starts, and goes
/// on behind it.
fn flatten<T: Copy + PartialEq>(mut entries: Vec<(Prefix, T)>) -> Vec<(u128, Option<T>)> {
    // Outer before inner; the sort is stable.
    entries.sort_by_key(|(prefix, _)| (prefix.range().0, prefix.length));
    let mut ranges: Vec<(u128, Option<T>)> = Vec::new();
    let mut open: Vec<(u128, T)> = Vec::new();
    let mut start = |at: u128, value: Option<T>| {
        // A range without addresses.
        if ranges.last().is_some_and(|(last, _)| *last == at) {
            ranges.pop();
        }
        ranges.push((at, value));
    };
    let close = |open: &mut Vec<(u128, T)>, before: Option<u128>, start: &mut dyn FnMut(u128, Option<T>)| {
        while let Some((last, _)) = open.last().copied().filter(|(last, _)| before.is_none_or(|at| *last < at)) {
            open.pop();
            if let Some(behind) = last.checked_add(1) {
                start(behind, open.last().map(|(_, value)| *value));
            }
        }
    };
    for (prefix, value) in entries {
        let (first, last) = prefix.range();
        close(&mut open, Some(first), &mut start);
        start(first, Some(value));
        open.push((last, value));
    }
    close(&mut open, None, &mut start);
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn what_is_a_prefix_and_what_is_not() {
        for text in ["192.0.2.0/24", "0.0.0.0/0", "192.0.2.1/32", "2001:db8::/32", "::/0", "2001:db8::1/128"] {
            assert_eq!(prefix(text).to_string(), text);
        }
        assert_eq!(prefix("192.0.2.1").to_string(), "192.0.2.1/32");
        assert_eq!(prefix("2001:db8::1").to_string(), "2001:db8::1/128");
        for (text, says) in [
            ("192.0.2.1/24", "did you mean 192.0.2.0/24?"),
            ("2001:db8::1/64", "did you mean 2001:db8::/64?"),
            ("192.0.2.0/33", "from 0 to 32"),
            ("::/129", "from 0 to 128"),
            ("192.0.2.0/", "from 0 to 32"),
            ("192.0.2/24", "expected ADDRESS/LENGTH"),
            ("", "expected ADDRESS/LENGTH"),
        ] {
            let error = text.parse::<Prefix>().unwrap_err().to_string();
            assert!(error.contains(says), "{text}: {error}");
        }
    }

    #[test]
    fn the_longest_prefix_wins() {
        let entries = [
            ("10.0.0.0/8", 1),
            ("10.1.0.0/16", 2),
            ("10.1.2.0/24", 3),
            ("10.1.2.3/32", 4),
            ("10.1.255.0/24", 5),
            ("255.255.255.255", 6),
            ("2001:db8::/32", 7),
            ("2001:db8:1::/48", 8),
            ("2001:db8::/48", 9),
        ];
        let map = PrefixMap::new(entries.map(|(text, value)| (prefix(text), value)));
        for (address, value) in [
            ("9.255.255.255", None),
            ("10.0.0.0", Some(1)),
            ("10.1.0.0", Some(2)),
            ("10.1.2.2", Some(3)),
            ("10.1.2.3", Some(4)),
            ("10.1.2.4", Some(3)),
            ("10.1.3.0", Some(2)),
            ("10.1.255.255", Some(5)),
            ("10.2.0.0", Some(1)),
            ("11.0.0.0", None),
            ("255.255.255.254", None),
            ("255.255.255.255", Some(6)),
            ("2001:db8:0:1::", Some(9)),
            ("2001:db8:1::", Some(8)),
            ("2001:db8:2::", Some(7)),
            ("2001:db9::", None),
            ("::10.0.0.1", None),
        ] {
            assert_eq!(map.get(address.parse().unwrap()), value, "{address}");
        }
        assert!(PrefixMap::<u8>::default().is_empty() && !map.is_empty());
    }

    /// Against the definition: of the entries that contain the address, the longest, and of these the last.
    #[test]
    fn as_a_search_through_all_entries_has_it() {
        let mut state = 7_u64;
        let mut number = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..500 {
            let mut address =
                || IpAddr::from([0, 0, u8::try_from(number(4)).unwrap(), u8::try_from(number(256)).unwrap()]);
            let mut entries = Vec::new();
            for value in 0..8 {
                let (ip, length) = (address(), 22 + value * 5 % 11);
                entries.push((Prefix { address: cut(ip, length), length }, value));
            }
            let map = PrefixMap::new(entries.iter().copied());
            for _ in 0..50 {
                let ip = address();
                let matching = entries.iter().filter(|(prefix, _)| cut(ip, prefix.length) == prefix.address);
                let expected = matching.max_by_key(|(prefix, _)| prefix.length).map(|(_, value)| *value);
                assert_eq!(map.get(ip), expected, "{ip} in {entries:?}");
            }
        }
    }
}
