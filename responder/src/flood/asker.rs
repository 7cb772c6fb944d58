//! What one thread of the generator decides, whatever it sends by: which query is next, and what a reply is worth.

use std::{
    collections::VecDeque,
    net::SocketAddr,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
};

use super::{
    flights::{Flights, Landing},
    low_16,
    pace::{Load, Pace},
    questions::{Kind, Question},
    tally::Tally,
};
use crate::{
    counters::add,
    wire::{
        frame::Request,
        message::{HEADER_LEN, TC},
    },
};

/// The lowest source port: those below are for servers. The highest is below those that the kernel gives to sockets by itself.
pub const FIRST_PORT: u16 = 2048;
/// Source ports at most.
pub const FLOWS_MAX: usize = 30_000;
/// The QR bit, in the third byte.
const QR: u8 = 0x80;

/// What threads have in common.
#[derive(Debug)]
pub struct Shared {
    /// What is asked.
    pub questions: Vec<Question>,
    /// Who is asked.
    pub target: SocketAddr,
    /// An echo, not an answer, is expected.
    pub echo: bool,
    /// A reply that takes longer does not count, in nanoseconds.
    pub timeout_ns: u64,
    /// Replies' checksums are verified.
    pub verify: bool,
    /// Queries on their way, for each thread or for all.
    pub flights: Vec<Flights>,
    /// Flows of each of these.
    pub flows: usize,
    /// For whoever looks on, for each thread.
    pub progress: Vec<Progress>,
    /// So many queries of a flow have been sent by the runs before this one, at most: their IDs come again last.
    pub past: AtomicUsize,
}

/// What one thread has done so far.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Progress {
    /// Queries sent.
    pub sent: AtomicU64,
    /// Queries answered, in time or late.
    pub answered: AtomicU64,
}

impl Shared {
    /// Queries sent, and answered, by all threads so far.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        let sum = |read: fn(&Progress) -> &AtomicU64| self.progress.iter().map(|one| read(one).load(Relaxed)).sum();
        (sum(|one| &one.sent), sum(|one| &one.answered))
    }

    /// Whether a reply fits its query.
    fn fits(&self, question: &Question, reply: &[u8]) -> bool {
        let is_reply = if self.echo {
            reply.len() == question.message.len()
        } else {
            reply.len() >= HEADER_LEN && reply[2] & QR != 0
        };
        is_reply && reply.get(question.echoed.clone()) == Some(&question.message[question.echoed.clone()])
    }
}

/// A query that is to leave.
#[derive(Clone, Copy, Debug, Default)]
pub struct Departure {
    /// Its index.
    pub question: usize,
    /// Its flow, of those of this thread.
    pub flow: usize,
    /// Its DNS ID.
    pub id: u16,
}

/// One thread's part.
#[derive(Debug)]
pub struct Asker<'a> {
    shared: &'a Shared,
    /// Its number.
    index: usize,
    /// Its flights.
    flights: &'a Flights,
    load: Load,
    pace: Pace,
    /// How many queries each flow has sent, beginning with and counted in steps of where other threads share it.
    counts: Vec<usize>,
    step: usize,
    /// The next flow and question.
    flow: usize,
    question: usize,
    /// In a closed loop, what is on its way in the order of its sending, and how much of the window is taken. Who hears a reply asks the next one, so
    /// that this can be negative.
    flying: VecDeque<(usize, u16, u64)>,
    taken: i64,
    /// Replies are not looked for.
    deaf: bool,
    /// What it has told of queries sent and answered.
    told: (u64, u64),
    /// What it has counted.
    pub tally: Tally,
}

impl<'a> Asker<'a> {
    /// The thread of this number, which begins at `start_ns`. Its part of the load is given.
    pub fn new(shared: &'a Shared, index: usize, threads: usize, load: Load, start_ns: u64, deaf: bool) -> Self {
        let shares_flows = shared.flights.len() < threads;
        let flights = &shared.flights[index.min(shared.flights.len() - 1)];
        let step = if shares_flows { threads } else { 1 };
        let first = shared.past.load(Relaxed).next_multiple_of(step) + if shares_flows { index } else { 0 };
        let rate = match load {
            Load::Rate(rate) => rate,
            Load::Window(_) => 1.0,
        };
        Self {
            shared,
            index,
            flights,
            load,
            pace: Pace::new(rate, start_ns),
            counts: vec![first; shared.flows],
            step,
            flow: index % shared.flows,
            question: shared.questions.len() * index / threads,
            flying: VecDeque::new(),
            taken: 0,
            deaf,
            told: (0, 0),
            tally: Tally::default(),
        }
    }

    /// How many queries may leave now.
    #[inline]
    pub fn due(&mut self, now_ns: u64) -> usize {
        match self.load {
            Load::Rate(_) => usize::try_from(self.pace.due(now_ns)).unwrap_or(usize::MAX),
            Load::Window(window) => {
                self.give_up(now_ns);
                let free = i64::try_from(window).unwrap_or(i64::MAX) - self.taken;
                usize::try_from(free).unwrap_or(0)
            }
        }
    }

    /// How long nothing is due, in an open loop.
    #[inline]
    #[must_use]
    pub fn rest_ns(&self, now_ns: u64) -> Option<u64> {
        match self.load {
            Load::Rate(_) => Some(self.pace.next_ns().saturating_sub(now_ns)),
            Load::Window(_) => None,
        }
    }

    /// The next query, which leaves now, on the next flow.
    #[inline]
    pub fn depart(&mut self, now_ns: u64) -> Departure {
        let flow = self.begin_batch();
        self.depart_on(flow, now_ns)
    }

    /// The next flow; the one after that is next then.
    #[inline]
    pub fn begin_batch(&mut self) -> usize {
        let flow = self.free_flow();
        self.flow = if flow + 1 == self.shared.flows { 0 } else { flow + 1 };
        flow
    }

    /// The next query, which leaves now on this flow.
    #[inline]
    pub fn depart_on(&mut self, flow: usize, now_ns: u64) -> Departure {
        let question = self.question;
        self.question = if question + 1 == self.shared.questions.len() { 0 } else { question + 1 };
        let due_ns = match self.load {
            Load::Rate(_) => self.pace.next_ns().min(now_ns),
            Load::Window(_) => now_ns,
        };
        self.pace.sent();
        self.tally.sent[self.shared.questions[question].kind as usize] += 1;
        self.tally.lag.saturating_record(now_ns - due_ns);
        let count = self.counts[flow];
        self.counts[flow] = count.wrapping_add(self.step);
        if self.deaf {
            return Departure { question, flow, id: low_16(count) };
        }
        let id = self.flights.take_off(flow, count, question, due_ns);
        if let Load::Window(_) = self.load {
            self.taken += 1;
            self.flying.push_back((flow, id, due_ns));
        }
        Departure { question, flow, id }
    }

    /// The kernel did not take this query: it was not sent.
    #[cold]
    pub fn take_back(&mut self, departure: Departure) {
        self.tally.sent[self.shared.questions[departure.question].kind as usize] -= 1;
        self.tally.not_sent += 1;
        if !self.deaf {
            self.flights.forget(departure.flow, departure.id);
        }
    }

    /// The next flow, or where flows have one ID only the next one that has no query on its way.
    #[inline]
    fn free_flow(&self) -> usize {
        if self.flights.ids() > 1 {
            return self.flow;
        }
        let flows = self.shared.flows;
        let is_free = |flow: &usize| self.flights.get(*flow, 0).is_none_or(|flight| !flight.is_flying());
        (self.flow..flows).chain(0..self.flow).find(is_free).unwrap_or(self.flow)
    }

    /// Takes out of the window what is not waited for any more.
    fn give_up(&mut self, now_ns: u64) {
        while let Some((flow, id, due_ns)) = self.flying.front().copied() {
            // One whose ID is in use again was lost, too.
            let flight = self.flights.get(flow, id).filter(|flight| flight.due_ns == due_ns);
            let is_lost = match flight {
                Some(flight) if flight.is_flying() && now_ns.saturating_sub(due_ns) <= self.shared.timeout_ns => return,
                Some(flight) => self.flights.give_up(flow, id, flight),
                None => true,
            };
            self.taken -= i64::from(is_lost);
            self.flying.pop_front();
        }
    }

    /// Hears a frame that the XDP program has put the time in front of.
    #[inline]
    pub fn hear_frame(&mut self, data: &[u8], base_ns: u64, now_ns: u64) {
        let Some((stamp, frame)) = data.split_first_chunk::<8>() else { return self.tally.stray += 1 };
        let Ok(request) = Request::parse(frame, self.shared.verify) else { return self.tally.stray += 1 };
        // A link-local target has a scope besides.
        let from = (request.source(frame), request.source_port(frame));
        let flow = usize::from(request.destination_port(frame).wrapping_sub(FIRST_PORT));
        if from != (self.shared.target.ip(), self.shared.target.port())
            || flow >= self.shared.flows * self.shared.flights.len()
        {
            return self.tally.stray += 1;
        }
        let at_ns = u64::from_ne_bytes(*stamp).saturating_sub(base_ns).min(now_ns);
        let (group, flow) = (flow / self.shared.flows, flow % self.shared.flows);
        let to = request.destination(frame);
        self.hear(group, flow, &frame[request.payload()], at_ns, |question| {
            question.source.is_none_or(|source| source == to)
        });
    }

    /// Hears a reply to a flow, which came in at `at_ns`.
    #[inline]
    pub fn hear(
        &mut self,
        group: usize,
        flow: usize,
        reply: &[u8],
        at_ns: u64,
        is_ours: impl FnOnce(&Question) -> bool,
    ) {
        let flights = &self.shared.flights[group];
        // Where there is but one ID, payloads may have none.
        let id = match reply {
            [high, low, ..] if flights.ids() > 1 => u16::from_be_bytes([*high, *low]),
            _ => 0,
        };
        let Some(flight) = flights.get(flow, id) else { return self.tally.stray += 1 };
        let question = &self.shared.questions[flight.question];
        if !self.shared.fits(question, reply) || !is_ours(question) {
            return self.tally.wrong += 1;
        }
        let latency_ns = at_ns.saturating_sub(flight.due_ns);
        match flights.land(flow, id, flight) {
            Landing::Again => return self.tally.duplicate += 1,
            Landing::AfterAll => self.tally.late += 1,
            Landing::First => {
                self.taken -= 1;
                if latency_ns > self.shared.timeout_ns {
                    self.tally.late += 1;
                } else {
                    self.tally.answered[question.kind as usize] += 1;
                    if !self.shared.echo {
                        self.tally.truncated += u64::from(reply[2] & TC != 0);
                        self.tally.rcodes[usize::from(reply[3] & 0x0f)] += 1;
                    }
                }
            }
        }
        if question.kind != Kind::Malformed {
            self.tally.latency.saturating_record(latency_ns);
        }
    }

    /// Says how far it is, once per batch.
    #[inline]
    pub fn tell(&mut self) {
        let progress = &self.shared.progress[self.index];
        let now = (self.tally.all_sent(), self.tally.all_answered() + self.tally.late);
        add(&progress.sent, now.0 - self.told.0);
        add(&progress.answered, now.1 - self.told.1);
        self.told = now;
    }

    /// Ends: what it has counted.
    #[must_use]
    pub fn finish(mut self) -> Tally {
        if let Load::Rate(_) = self.load {
            self.tally.not_sent += self.pace.skipped();
        }
        self.shared.past.fetch_max(self.counts.iter().copied().max().unwrap_or(0), Relaxed);
        self.tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(questions: Vec<Question>, flows: usize, ids: usize) -> Shared {
        Shared {
            questions,
            target: "192.0.2.1:53".parse().unwrap(),
            echo: false,
            timeout_ns: 1000,
            verify: true,
            flights: vec![Flights::new(flows, ids)],
            flows,
            progress: vec![Progress::default()],
            past: AtomicUsize::new(0),
        }
    }

    fn question(kind: Kind, message: &[u8]) -> Question {
        let echoed = if kind == Kind::Malformed { 0..0 } else { HEADER_LEN..message.len() };
        Question { kind, message: message.to_vec(), echoed, source: None }
    }

    fn asker(shared: &Shared) -> Asker<'_> {
        Asker::new(shared, 0, 1, Load::Rate(1e6), 0, false)
    }

    const QUERY: &[u8] = b"\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\x02\0\x01";

    fn reply(id: u16, rcode: u8) -> Vec<u8> {
        let mut reply = QUERY.to_vec();
        reply[..2].copy_from_slice(&id.to_be_bytes());
        (reply[2], reply[3]) = (QR, rcode);
        reply
    }

    /// Some servers answer a message that has no whole header.
    #[test]
    fn a_reply_to_less_than_a_header_is_an_answer() {
        let shared = shared(vec![question(Kind::Malformed, b"\0\0")], 1, 4);
        let mut asker = asker(&shared);
        let id = asker.depart(0).id;
        asker.hear(0, 0, &reply(id, 1)[..HEADER_LEN], 10, |_| true);
        assert_eq!((asker.tally.answered[Kind::Malformed as usize], asker.tally.wrong), (1, 0));
    }

    /// What a slow server answers after a run is not taken for an answer to the next one's queries.
    #[test]
    fn a_reply_of_the_run_before_is_nobodys() {
        let shared = shared(vec![question(Kind::Plain, QUERY)], 1, 8);
        let mut before = asker(&shared);
        let slow = [before.depart(0).id, before.depart(0).id];
        let _ = before.finish();
        shared.flights[0].clear();
        let mut after = asker(&shared);
        let own = after.depart(5).id;
        assert!(!slow.contains(&own));
        slow.iter().for_each(|id| after.hear(0, 0, &reply(*id, 0), 6, |_| true));
        assert_eq!((after.tally.all_answered(), after.tally.stray), (0, 2));
        after.hear(0, 0, &reply(own, 0), 7, |_| true);
        assert_eq!(after.tally.all_answered(), 1);
    }

    /// What the kernel does not take is not said to be sent.
    #[test]
    fn a_query_that_is_taken_back_was_not_sent() {
        let shared = shared(vec![question(Kind::Plain, QUERY)], 1, 8);
        let mut asker = asker(&shared);
        let [refused, sent] = [asker.depart(0), asker.depart(0)];
        asker.take_back(refused);
        asker.tell();
        assert_eq!(shared.progress(), (1, 0));
        asker.hear(0, 0, &reply(refused.id, 0), 5, |_| true);
        asker.hear(0, 0, &reply(sent.id, 0), 5, |_| true);
        let tally = asker.finish();
        assert_eq!((tally.all_sent(), tally.not_sent, tally.all_answered(), tally.stray), (1, 1, 1, 1));
    }
}
