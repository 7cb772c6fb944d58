//! Response rate limiting: how often one network gets one kind of answer over UDP, so that nobody is flooded with answers to queries that were sent
//! in their name.
//!
//! Answers that are alike share an account: the client's network, the kind of answer, and the name it is about. That name is what an attacker
//! cannot vary: for a wildcard's answers the wildcard, for names that do not exist the zone, for a referral the delegation, for errors none. An
//! account earns `rate` answers a second and saves no more than those of one second; each answer costs one, sent or not, down to a debt of `window_s`
//! seconds. Answers that the account cannot pay are dropped, except that each `slip`-th goes out empty with TC, for honest clients to ask again over TCP.
//!
//! Each worker has its own table and shares nothing: it gives each account the server's rate divided by the number of workers. Whose queries all reach one
//! worker is thus held to that share, and whose spread over all gets the whole.
//!
//! The table has a fixed size. Accounts are found by a keyed hash, four places each; a fifth takes the place of the one that was idle longest.
//! No allocation, no clock: the time is an argument, in whole seconds.

use std::net::IpAddr;

use super::{
    prefix::{Prefix, PrefixMap, cut},
    siphash::{random_key, siphash_2_4},
};
use crate::wire::name::NAME_MAX;

/// What the operator chooses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Answers of one kind to one network, per second, by the whole server. At least 1.
    pub rate: u32,
    /// For how many seconds' worth of answers a network can be in debt.
    pub window_s: u32,
    /// Of the answers over the limit each n-th is sent empty with TC: 1 all, 0 none.
    pub slip: u32,
    /// The bits of an IPv4 address that make a network.
    pub ipv4_prefix: u8,
    /// The bits of an IPv6 address that make a network.
    pub ipv6_prefix: u8,
    /// Accounts in each worker's table, rounded up to a power of two; 16 bytes each.
    pub accounts: u32,
    /// Networks without a limit.
    pub exempt: Vec<Prefix>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            rate: 200,
            window_s: 15,
            slip: 2,
            ipv4_prefix: 24,
            ipv6_prefix: 56,
            accounts: 1 << 17,
            exempt: Vec::new(),
        }
    }
}

/// Kinds of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Records of the name itself.
    Positive,
    /// The name exists, the type does not.
    NoData,
    /// The name does not exist.
    NxDomain,
    /// Another server's names.
    Referral,
    /// Records made from a wildcard.
    Wildcard,
    /// Any other RCODE.
    Error,
}

/// What becomes of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is sent.
    Send,
    /// It is sent empty, with TC.
    Slip,
    /// It is not sent.
    Drop,
}

/// One worker's accounts.
#[derive(Clone, Debug)]
pub struct Limiter {
    key: [u8; 16],
    sets: Box<[[Account; WAYS]]>,
    exempt: PrefixMap<()>,
    ipv4_prefix: u8,
    ipv6_prefix: u8,
    slip: u32,
    /// What is earned per second and what an answer costs: the rate and the number of workers, so that shares need no fractions.
    earned: i64,
    price: i64,
    /// The most that can be saved and owed.
    saved_max: i64,
    owed_max: i64,
}

const WAYS: usize = 4;

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    /// Bits of the hash; an account with none was never used.
    tag: u32,
    /// When it was last used.
    seen_s: u32,
    balance: i32,
    /// Answers over the limit, counted for `slip`.
    limited: u32,
}

impl Limiter {
    /// A table for one of `workers` workers.
    #[must_use]
    pub fn new(settings: &Settings, workers: usize) -> Self {
        // An account's balance has 32 bits; a limit that they cannot hold is none that matters.
        let bounded = |value: i64| value.min(i64::from(i32::MAX) / 2);
        let rate = bounded(i64::from(settings.rate.max(1)));
        let price = bounded(i64::try_from(workers.max(1)).unwrap_or(i64::MAX));
        let sets = (settings.accounts as usize).div_ceil(WAYS).max(1).next_power_of_two();
        Self {
            key: random_key(),
            sets: vec![[Account::default(); WAYS]; sets].into_boxed_slice(),
            exempt: PrefixMap::new(settings.exempt.iter().map(|prefix| (*prefix, ()))),
            ipv4_prefix: settings.ipv4_prefix,
            ipv6_prefix: settings.ipv6_prefix,
            slip: settings.slip,
            earned: rate,
            price,
            // One second's answers, rounded up to a whole one.
            saved_max: rate + price - 1,
            owed_max: bounded(rate * i64::from(settings.window_s)),
        }
    }

    /// Books an answer to `client` about `name`, which is lower-cased here, at second `now_s`.
    pub fn book(&mut self, client: IpAddr, kind: Kind, name: &[u8], now_s: u32) -> Verdict {
        if self.exempt.get(client).is_some() {
            return Verdict::Send;
        }
        let hash = self.hash(client, kind, name);
        let (earned, price, saved_max, owed_max) = (self.earned, self.price, self.saved_max, self.owed_max);
        let slip = self.slip;
        let account = self.account(hash, now_s);
        // A clock that was set back earns nothing until it has caught up.
        let elapsed_s = now_s.wrapping_sub(account.seen_s);
        let elapsed_s = if elapsed_s > u32::MAX / 2 { 0 } else { i64::from(elapsed_s) };
        let balance = (i64::from(account.balance) + elapsed_s * earned).min(saved_max) - price;
        account.seen_s = now_s;
        account.balance = i32::try_from(balance.max(-owed_max - price)).unwrap_or(i32::MIN);
        if balance >= 0 {
            return Verdict::Send;
        }
        account.limited = account.limited.wrapping_add(1);
        if slip > 0 && account.limited.is_multiple_of(slip) { Verdict::Slip } else { Verdict::Drop }
    }

    /// The account of a hash, a new one if need be.
    fn account(&mut self, hash: u64, now_s: u32) -> &mut Account {
        let [t3, t2, t1, t0, i3, i2, i1, i0] = hash.to_be_bytes();
        let tag = u32::from_be_bytes([t3, t2, t1, t0]).max(1);
        let index = u32::from_be_bytes([i3, i2, i1, i0]) as usize & (self.sets.len() - 1);
        let set = &mut self.sets[index];
        let known = set.iter().position(|account| account.tag == tag);
        let place = known.unwrap_or_else(|| {
            // Unused ones first, then the longest idle.
            let idle = |account: &Account| if account.tag == 0 { u32::MAX } else { now_s.wrapping_sub(account.seen_s) };
            let place = (0..WAYS).max_by_key(|place| idle(&set[*place])).unwrap_or(0);
            let balance = i32::try_from(self.saved_max).unwrap_or(i32::MAX);
            set[place] = Account { tag, seen_s: now_s, balance, limited: 0 };
            place
        });
        &mut set[place]
    }

    fn hash(&self, client: IpAddr, kind: Kind, name: &[u8]) -> u64 {
        let mut input = [0; 18 + NAME_MAX];
        match client {
            IpAddr::V4(_) => {
                if let IpAddr::V4(network) = cut(client, self.ipv4_prefix) {
                    input[..4].copy_from_slice(&network.octets());
                }
            }
            IpAddr::V6(_) => {
                if let IpAddr::V6(network) = cut(client, self.ipv6_prefix) {
                    input[..16].copy_from_slice(&network.octets());
                }
            }
        }
        input[16] = u8::from(client.is_ipv6());
        input[17] = kind as u8;
        let length = name.len().min(NAME_MAX);
        let place = &mut input[18..18 + length];
        place.copy_from_slice(&name[..length]);
        // Lengths of labels are below any letter.
        place.make_ascii_lowercase();
        siphash_2_4(&self.key, &input[..18 + length])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &[u8] = b"\x03www\x07example\x03com\0";

    fn limiter(workers: usize, change: impl FnOnce(&mut Settings)) -> Limiter {
        let mut settings = Settings { rate: 10, window_s: 5, slip: 0, accounts: 1024, ..Settings::default() };
        change(&mut settings);
        Limiter::new(&settings, workers)
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    /// How many of `count` answers are sent, slipped, dropped.
    fn book(limiter: &mut Limiter, count: u32, client: &str, kind: Kind, name: &[u8], now_s: u32) -> [u32; 3] {
        let mut verdicts = [0; 3];
        for _ in 0..count {
            verdicts[limiter.book(ip(client), kind, name, now_s) as usize] += 1;
        }
        verdicts
    }

    #[test]
    fn the_rate_is_kept_and_a_debt_must_be_paid() {
        let mut limiter = limiter(1, |_| {});
        let mut second = |count, now_s| book(&mut limiter, count, "192.0.2.1", Kind::Positive, NAME, now_s)[0];
        assert_eq!(second(10, 100), 10);
        assert_eq!(second(10, 101), 10, "the rate for ever");
        assert_eq!(second(12, 102), 10, "two too many");
        assert_eq!(second(12, 103), 8, "are paid now");
        assert_eq!(second(1000, 104), 6, "and so on, to the debt of a window");
        assert_eq!(second(1, 109), 0);
        assert_eq!(second(1, 110), 1, "which takes that long to pay");
        assert_eq!(second(1000, 200), 10, "what is saved is one second's");
        assert_eq!(second(10, 150), 0, "a clock set back earns nothing");
    }

    #[test]
    fn slip_sends_each_nth_truncated() {
        for (slip, expected) in [(0, [10, 0, 60]), (1, [10, 60, 0]), (2, [10, 30, 30]), (3, [10, 20, 40])] {
            let mut limiter = limiter(1, |settings| settings.slip = slip);
            assert_eq!(book(&mut limiter, 70, "192.0.2.1", Kind::Error, b"", 1), expected, "slip {slip}");
        }
    }

    /// An account is one network's, for one kind of answer about one name, in any case.
    #[test]
    fn what_shares_an_account() {
        let mut limiter = limiter(1, |_| {});
        let mut sent = |client, kind, name: &[u8]| book(&mut limiter, 10, client, kind, name, 1)[0];
        assert_eq!(sent("192.0.2.1", Kind::Positive, NAME), 10);
        assert_eq!(sent("192.0.2.255", Kind::Positive, b"\x03wWw\x07exAMPLE\x03com\0"), 0);
        assert_eq!(sent("192.0.3.1", Kind::Positive, NAME), 10, "another network");
        assert_eq!(sent("192.0.2.1", Kind::NoData, NAME), 10, "another kind");
        assert_eq!(sent("192.0.2.1", Kind::Positive, &NAME[4..]), 10, "another name");
        assert_eq!(sent("2001:db8:0:ff::1", Kind::Positive, NAME), 10);
        assert_eq!(sent("2001:db8:0:1::2", Kind::Positive, NAME), 0, "a /56");
        assert_eq!(sent("2001:db8:0:100::1", Kind::Positive, NAME), 10);
    }

    #[test]
    fn exempt_networks_have_no_limit() {
        let mut limiter = limiter(1, |settings| settings.exempt = vec!["192.0.2.128/25".parse().unwrap()]);
        assert_eq!(book(&mut limiter, 1000, "192.0.2.200", Kind::Positive, NAME, 1)[0], 1000);
        assert_eq!(book(&mut limiter, 1000, "192.0.2.100", Kind::Positive, NAME, 1)[0], 10);
    }

    /// The limit is the server's: spread over workers, as much is sent as one would send, even when a share is less than an answer a second.
    #[test]
    fn workers_share_the_limit() {
        for workers in [1, 2, 3, 7, 10, 40] {
            let mut limiters: Vec<Limiter> = (0..workers).map(|_| limiter(workers, |_| {})).collect();
            for turn in 0..4000_u32 {
                let limiter = &mut limiters[turn as usize % workers];
                let verdict = limiter.book(ip("192.0.2.1"), Kind::Positive, NAME, 1 + turn / 10);
                assert_eq!(verdict, Verdict::Send, "{workers} workers, query {turn}");
            }
            let mut flood = || book(&mut limiters[0], 4000, "192.0.2.1", Kind::Positive, NAME, 500)[0];
            assert_eq!((flood() as usize, flood()), (10_usize.div_ceil(workers), 0), "{workers} workers");
        }
    }

    /// A full table forgets who was idle longest, and never who is flooding.
    #[test]
    fn a_full_table_keeps_who_is_active() {
        let mut limiter = limiter(1, |settings| settings.accounts = 4);
        assert_eq!(book(&mut limiter, 1000, "192.0.2.1", Kind::Positive, NAME, 1)[0], 10);
        for other in 0..3 {
            book(&mut limiter, 1, &format!("198.51.{other}.1"), Kind::Positive, NAME, 2);
        }
        for now_s in 3..100 {
            assert!(book(&mut limiter, 100, "192.0.2.1", Kind::Positive, NAME, now_s)[0] <= 10);
            book(&mut limiter, 1, &format!("203.0.{now_s}.1"), Kind::Positive, NAME, now_s);
        }
        assert_eq!(size_of::<[Account; WAYS]>(), 64, "a cache line");
    }

    #[test]
    fn extreme_settings_do_not_overflow() {
        let mut limiter = limiter(usize::MAX, |settings| {
            (settings.rate, settings.window_s, settings.accounts) = (u32::MAX, u32::MAX, 0);
        });
        for now_s in [0, u32::MAX, 1, u32::MAX / 2, 0] {
            book(&mut limiter, 100, "192.0.2.1", Kind::Positive, NAME, now_s);
        }
    }
}
