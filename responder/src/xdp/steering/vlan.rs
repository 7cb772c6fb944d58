//! A frame's VLAN tags: one id, or an outer and an inner one (QinQ).

use std::{fmt, str::FromStr};

use responder_common::vlan_key;

/// The VLAN ids of a frame. None is 0 (a priority tag, IEEE 802.1Q section 6.9) or 4095 (reserved).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VlanTag {
    outer: u16,
    inner: Option<u16>,
}

impl VlanTag {
    /// One tag, or two; `None` if an id is not one of a VLAN.
    pub fn new(outer: u16, inner: Option<u16>) -> Option<Self> {
        let is_vlan = |id: u16| (1..=4094).contains(&id);
        (is_vlan(outer) && inner.is_none_or(is_vlan)).then_some(Self { outer, inner })
    }

    pub(super) fn key(self) -> u32 {
        vlan_key(self.outer, self.inner.unwrap_or(0))
    }
}

/// `ID` or `OUTER.INNER`.
impl FromStr for VlanTag {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parse = || {
            let (outer, inner) = match text.split_once('.') {
                Some((outer, inner)) => (outer, Some(inner.parse().ok()?)),
                None => (text, None),
            };
            Self::new(outer.parse().ok()?, inner)
        };
        parse().ok_or_else(|| format!("`{text}` is not a VLAN: expected ID or OUTER.INNER, each id from 1 to 4094"))
    }
}

impl fmt::Display for VlanTag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner {
            None => write!(f, "{}", self.outer),
            Some(inner) => write!(f, "{}.{inner}", self.outer),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::VlanTag;

    #[test]
    fn text_round_trips() {
        for text in ["1", "4094", "7.8", "100.1"] {
            assert_eq!(text.parse::<VlanTag>().expect(text).to_string(), text);
        }
    }

    #[test]
    fn what_is_not_a_vlan_is_refused() {
        for text in ["", "0", "4095", "65536", "1.0", "0.1", "1.", ".1", "1.2.3", "a", "-1"] {
            assert!(text.parse::<VlanTag>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_inner_tag_is_part_of_the_key() {
        let key = |text: &str| text.parse::<VlanTag>().expect(text).key();
        assert_ne!(key("7"), key("7.7"));
        assert_ne!(key("7.8"), key("8.7"));
    }
}
