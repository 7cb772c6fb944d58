//! What messages and their replies were like, as one writer has counted it or several together.

use std::{collections::BTreeMap, ops::AddAssign};

use serde::{Deserialize, Serialize};

use crate::counters::Counters;

/// Replies to DNS messages by what they are, and batches by their size. What the services `echo` and `sink` do is not in it, batches apart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Traffic {
    /// Replies that were made, by `ipv4` or `ipv6` and RCODE. Those that the kernel would not take are among them, and are dropped as `not_sent` too.
    pub replies: BTreeMap<String, BTreeMap<String, u64>>,
    /// The same replies by QTYPE; `other` is what has no name here.
    pub qtypes: BTreeMap<String, u64>,
    /// The replies among them with TC, whether for want of room or by the rate limit.
    pub truncated: u64,
    /// Batches of 1, up to 2, 4, 8, ... 256 messages, and of more.
    pub batch_sizes: Vec<u64>,
}

impl Traffic {
    /// Replies by RCODE, of both families.
    #[must_use]
    pub fn rcodes(&self) -> BTreeMap<&str, u64> {
        let mut rcodes = BTreeMap::new();
        for (rcode, count) in self.replies.values().flatten() {
            *rcodes.entry(rcode.as_str()).or_default() += count;
        }
        rcodes
    }
}

impl From<&Counters> for Traffic {
    fn from(counters: &Counters) -> Self {
        let mut replies: BTreeMap<String, BTreeMap<String, u64>> = BTreeMap::new();
        for (family, rcode, count) in counters.replies() {
            replies.entry(family.name().to_owned()).or_default().insert(rcode.name().to_owned(), count);
        }
        Self {
            replies,
            qtypes: counters.qtypes().map(|(name, count)| (name.to_owned(), count)).collect(),
            truncated: counters.truncated(),
            batch_sizes: counters.batch_sizes().collect(),
        }
    }
}

impl AddAssign<&Self> for Traffic {
    fn add_assign(&mut self, other: &Self) {
        for (family, rcodes) in &other.replies {
            add(self.replies.entry(family.clone()).or_default(), rcodes);
        }
        add(&mut self.qtypes, &other.qtypes);
        self.truncated += other.truncated;
        self.batch_sizes.resize(self.batch_sizes.len().max(other.batch_sizes.len()), 0);
        for (sum, count) in self.batch_sizes.iter_mut().zip(&other.batch_sizes) {
            *sum += count;
        }
    }
}

fn add(to: &mut BTreeMap<String, u64>, counts: &BTreeMap<String, u64>) {
    for (name, count) in counts {
        *to.entry(name.clone()).or_default() += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{counters::Family, wire::message::Rcode};

    #[test]
    fn what_several_have_counted_adds_up() {
        let counters = Counters::default();
        counters.reply(Family::Ipv4, Rcode::NOERROR, 1, true);
        counters.reply(Family::Ipv6, Rcode::NXDOMAIN, 28, false);
        counters.batch(2, 2);
        let one = Traffic::from(&counters);
        let mut both = Traffic::default();
        both += &one;
        both += &one;
        assert_eq!((both.rcodes()["NOERROR"], both.rcodes()["NXDOMAIN"], both.rcodes()["REFUSED"]), (2, 2, 0));
        assert_eq!((both.replies["ipv6"]["NXDOMAIN"], both.qtypes["AAAA"], both.truncated), (2, 2, 2));
        assert_eq!(both.batch_sizes[..3], [0, 2, 0]);
    }

    #[test]
    fn an_older_server_has_counted_nothing_of_it() {
        assert_eq!(serde_json::from_str::<Traffic>("{}").unwrap(), Traffic::default());
    }
}
