//! What is done with a message once it is parsed out of its packet: the same on the bypass, on UDP sockets and on TCP.
//!
//! Every path calls [`Service::serve`] with its worker's [`State`]: first the access list, then the answer, then the order of its records, and over
//! UDP the rate limit.

use std::{net::IpAddr, time::SystemTime};

use crate::{
    answer::{
        Asked, Limits, Noted, Outcome, Transport, finished,
        policy::{Cookies, Order, Policy},
        refuse, respond_with,
    },
    counters::{Counters, DropReason, Family},
    guard::{
        acl::{Acl, Action},
        rrl::{self, Limiter, Verdict},
    },
    latest::{Latest, View},
    wire::message::{Rcode, TC},
    zone::{self, Zones},
};

/// IPv6 and UDP headers, the larger ones: the same limit for both families keeps it simple.
const HEADERS_LEN: u32 = 40 + 8;
/// Every client takes this much (RFC 1035 section 4.2.1).
const UDP_PAYLOAD_MIN: u16 = 512;

/// What the operator chooses about who is answered and how. A running server takes another one whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Who is served.
    pub acl: Acl,
    /// How often one network gets one kind of answer; without it, as often as it asks.
    pub rrl: Option<rrl::Settings>,
    /// What answers are like.
    pub policy: Policy,
}

/// What answers: each worker has its own.
#[derive(Clone, Debug)]
pub enum Service {
    /// Authoritative DNS over these zones.
    Dns(zone::View),
    /// RFC 862: the payload goes back as it came. Measures the path without DNS.
    Echo,
    /// Nothing goes back. Measures receiving.
    Sink,
}

impl Service {
    /// Looks for zones that have been replaced; once per batch.
    #[inline]
    pub fn refresh(&mut self) {
        if let Self::Dns(zones) = self {
            zones.refresh();
        }
    }

    /// Answers the message in `message[..length]`, which came from `client`, in place; the rest of `message` is room for the reply. What the
    /// reply is like is added to the worker's `counters`; what is dropped is for the caller to count.
    #[inline]
    pub fn serve(
        &self,
        state: &mut State,
        message: &mut [u8],
        length: usize,
        client: IpAddr,
        transport: Transport,
        counters: &Counters,
    ) -> Outcome {
        match (state.rules.get().acl.action(client), self) {
            (Action::Allow, Self::Dns(view)) => {
                state.answer(Some(view.zones()), message, length, client, transport, counters)
            }
            (Action::Refuse, Self::Dns(_)) => state.answer(None, message, length, client, transport, counters),
            (Action::Allow, Self::Echo) => Outcome::Reply(length),
            (Action::Allow, Self::Sink) => Outcome::Drop(DropReason::Sunk),
            (Action::Drop | Action::Refuse, _) => Outcome::Drop(DropReason::AclDropped),
        }
    }
}

/// What one worker keeps from query to query: its view of the rules, its rate limiter, the time. Nothing of it is shared.
///
/// The limiter's table is made by the worker itself, at its first look at the rules: one that waits to be given to a worker has none.
#[derive(Clone, Debug)]
pub struct State {
    rules: View<Rules>,
    /// How many workers share the rate limit.
    workers: usize,
    /// What fits the MTU, in bytes of UDP payload.
    payload_max: u16,
    /// The less of that and the policy's.
    udp_payload_max: u16,
    limiter: Option<(rrl::Settings, Limiter)>,
    /// Whether replies are looked at again once they are whole.
    finishes: bool,
    needs_time: bool,
    now_s: u32,
    turn: u32,
}

impl State {
    /// The state of one of `workers` workers, behind an interface with this MTU.
    #[must_use]
    pub fn new(rules: &Latest<Rules>, workers: usize, mtu: u32) -> Self {
        let payload_max = u16::try_from(mtu.saturating_sub(HEADERS_LEN)).unwrap_or(u16::MAX).max(UDP_PAYLOAD_MIN);
        let mut state = Self {
            rules: rules.view(),
            workers,
            payload_max,
            udp_payload_max: payload_max,
            limiter: None,
            finishes: false,
            needs_time: false,
            now_s: 0,
            turn: 0,
        };
        state.adopt();
        state
    }

    /// Looks for new rules and, if they need it, at the clock, which gives seconds since 1970. Once per batch.
    #[inline]
    pub fn refresh(&mut self, clock: impl FnOnce() -> u32) {
        if self.rules.refresh() {
            self.adopt();
        }
        if self.needs_time {
            self.now_s = clock();
            self.make_limiter();
        }
    }

    /// What this client gets; for those who want to know before there is a message.
    #[must_use]
    pub fn action(&self, client: IpAddr) -> Action {
        self.rules.get().acl.action(client)
    }

    /// Begins to work by new rules. Accounts are kept where the limit stays the same.
    #[cold]
    fn adopt(&mut self) {
        let rules = self.rules.get();
        self.udp_payload_max = rules.policy.udp_payload_max.clamp(UDP_PAYLOAD_MIN, self.payload_max);
        self.finishes = rules.policy.rrset_order == Order::Rotate || rules.rrl.is_some();
        self.needs_time = rules.rrl.is_some() || rules.policy.cookies != Cookies::Off;
        self.limiter.take_if(|(settings, _)| Some(&*settings) != rules.rrl.as_ref());
    }

    fn make_limiter(&mut self) {
        if self.limiter.is_none()
            && let Some(settings) = &self.rules.get().rrl
        {
            self.limiter = Some((settings.clone(), Limiter::new(settings, self.workers)));
        }
    }

    /// Answers from the zones, or without them says that this client is refused.
    #[inline]
    fn answer(
        &mut self,
        zones: Option<&Zones>,
        message: &mut [u8],
        length: usize,
        client: IpAddr,
        transport: Transport,
        counters: &Counters,
    ) -> Outcome {
        let limits = Limits { transport, udp_payload_max: self.udp_payload_max };
        let policy = &self.rules.get().policy;
        let now_s = self.now_s;
        let ask = || Asked { limits, policy, client, now_s, noted: Noted::NONE };
        let (mut asked, mut usual) = (None, (0, Rcode::NOERROR));
        let outcome = match zones {
            Some(zones) => {
                let note = |qtype, rcode| usual = (qtype, rcode);
                respond_with(zones, message, length, limits, || asked.insert(ask()), note)
            }
            None => refuse(message, length, asked.insert(ask())),
        };
        let noted = match asked {
            Some(asked) => asked.noted,
            None => Noted { qtype: usual.0, rcode: usual.1, ..Noted::NONE },
        };
        let outcome = match outcome {
            Outcome::Reply(length) if self.finishes => {
                self.finish(&mut message[..length], client, transport, noted, counters)
            }
            outcome => outcome,
        };
        if let (Outcome::Reply(_), Some(flags)) = (outcome, message.get(2)) {
            counters.reply(Family::of(client), noted.rcode, noted.qtype, flags & TC != 0);
        }
        outcome
    }

    /// What only some rules ask for.
    #[inline(never)]
    fn finish(
        &mut self,
        message: &mut [u8],
        client: IpAddr,
        transport: Transport,
        noted: Noted,
        counters: &Counters,
    ) -> Outcome {
        if self.rules.get().policy.rrset_order == Order::Rotate && finished::rotate(message, self.turn) {
            self.turn = self.turn.wrapping_add(1);
        }
        // Who completed a handshake, or sent back our cookie, is where it says.
        let is_limited = transport == Transport::Udp && !noted.has_valid_cookie;
        let Some((_, limiter)) = self.limiter.as_mut().filter(|_| is_limited) else {
            return Outcome::Reply(message.len());
        };
        let (kind, name) = finished::about(message, &noted);
        match limiter.book(client, kind, name, self.now_s) {
            Verdict::Send => Outcome::Reply(message.len()),
            Verdict::Drop => Outcome::Drop(DropReason::LimitedDropped),
            Verdict::Slip => {
                counters.slipped_one();
                Outcome::Reply(finished::cut_short(message))
            }
        }
    }
}

/// The clock for [`State::refresh`].
#[must_use]
pub fn now_s() -> u32 {
    let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    // The lower bits are what cookies have of it, and after them what differences are made of.
    u32::try_from(since_1970.as_secs() & u64::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
#[path = "service_tests.rs"]
mod tests;
