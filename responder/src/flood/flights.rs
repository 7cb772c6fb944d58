//! Queries that are on their way: for each flow and DNS ID, when the last one was due to be sent and which it was.
//!
//! A query's ID is the next one of its flow, so that a slot is used again only after all other IDs of the flow. Slots lie in the order in which they are
//! used: of the flows in turn, then of the next ID. Any thread may land a query, since replies come in where the NIC puts them. Threads that share flows
//! send with IDs that no other of them has.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::{low_16, questions::QUESTIONS_MAX};

/// A slot is a time in nanoseconds, a question and a state; 0 is none.
const STATE_BITS: u32 = 2;
const QUESTION_BITS: u32 = QUESTIONS_MAX.ilog2();
const STATE: u64 = (1 << STATE_BITS) - 1;
/// Nanoseconds that fit beside them: more than an hour.
pub const TIME_MAX_NS: u64 = 1 << (64 - STATE_BITS - QUESTION_BITS);

const FLYING: u64 = 1;
const LANDED: u64 = 2;
const GIVEN_UP: u64 = 3;

/// The slots of some flows, which belong to one thread, or to all where these share their sockets.
#[derive(Debug)]
pub struct Flights {
    slots: Box<[AtomicU64]>,
    flows: usize,
    /// A power of two.
    ids: usize,
}

/// What a slot has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flight {
    /// When the query was due to be sent.
    pub due_ns: u64,
    /// Which it was.
    pub question: usize,
    word: u64,
}

/// What becomes of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// It is the first one to its query.
    First,
    /// Its query was given up before.
    AfterAll,
    /// There was one before.
    Again,
}

impl Flights {
    /// No flights, for so many flows with so many IDs each, which is made a power of two.
    #[must_use]
    pub fn new(flows: usize, ids: usize) -> Self {
        let ids = ids.clamp(1, 1 << 16).next_power_of_two();
        let slots: Box<[AtomicU64]> = (0..flows * ids).map(|_| AtomicU64::new(0)).collect();
        // Written once, so that no page is missing when it counts.
        slots.iter().for_each(|slot| slot.store(0, Relaxed));
        Self { slots, flows, ids }
    }

    /// How many IDs each flow has.
    #[must_use]
    pub fn ids(&self) -> usize {
        self.ids
    }

    /// A query leaves: with the `count`th of its flow, whose ID is returned. What was in its slot can land no more.
    #[inline]
    pub fn take_off(&self, flow: usize, count: usize, question: usize, due_ns: u64) -> u16 {
        let id = count & (self.ids - 1);
        self.slot(flow, id).store(pack(due_ns, question, FLYING), Relaxed);
        low_16(id)
    }

    /// The query of this flow and ID, if there was one.
    #[inline]
    #[must_use]
    pub fn get(&self, flow: usize, id: u16) -> Option<Flight> {
        if usize::from(id) >= self.ids {
            return None;
        }
        let word = self.slot(flow, id.into()).load(Relaxed);
        (word != 0).then_some(Flight {
            due_ns: word >> (STATE_BITS + QUESTION_BITS),
            question: (word >> STATE_BITS) as usize & (QUESTIONS_MAX - 1),
            word,
        })
    }

    /// Its reply has come.
    #[inline]
    pub fn land(&self, flow: usize, id: u16, flight: Flight) -> Landing {
        let landed = flight.word & !STATE | LANDED;
        let slot = self.slot(flow, id.into());
        match flight.word & STATE {
            // Of two threads that have a reply to the same query one is the first.
            FLYING if slot.compare_exchange(flight.word, landed, Relaxed, Relaxed).is_ok() => Landing::First,
            GIVEN_UP if slot.compare_exchange(flight.word, landed, Relaxed, Relaxed).is_ok() => Landing::AfterAll,
            _ => Landing::Again,
        }
    }

    /// The query is waited for no longer; returns whether it was.
    pub fn give_up(&self, flow: usize, id: u16, flight: Flight) -> bool {
        let given_up = flight.word | GIVEN_UP;
        flight.word & STATE == FLYING
            && self.slot(flow, id.into()).compare_exchange(flight.word, given_up, Relaxed, Relaxed).is_ok()
    }

    /// The query was not sent after all.
    pub fn forget(&self, flow: usize, id: u16) {
        self.slot(flow, id.into()).store(0, Relaxed);
    }

    /// Forgets all, so that what is still to come is nobody's.
    pub fn clear(&self) {
        self.slots.iter().for_each(|slot| slot.store(0, Relaxed));
    }

    #[inline]
    fn slot(&self, flow: usize, id: usize) -> &AtomicU64 {
        &self.slots[id * self.flows + flow]
    }
}

impl Flight {
    /// Whether its reply has not come, and it was not given up.
    #[must_use]
    pub fn is_flying(&self) -> bool {
        self.word & STATE == FLYING
    }
}

#[inline]
fn pack(due_ns: u64, question: usize, state: u64) -> u64 {
    due_ns.min(TIME_MAX_NS - 1) << (STATE_BITS + QUESTION_BITS) | (question as u64) << STATE_BITS | state
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_lands_once() {
        let flights = Flights::new(3, 5);
        assert_eq!(flights.ids(), 8);
        let id = flights.take_off(2, 9, QUESTIONS_MAX - 1, TIME_MAX_NS - 2);
        assert_eq!(id, 1);
        let flight = flights.get(2, 1).unwrap();
        assert_eq!((flight.due_ns, flight.question), (TIME_MAX_NS - 2, QUESTIONS_MAX - 1));
        assert_eq!(flights.land(2, 1, flight), Landing::First);
        // Seen before the other reply landed, and after.
        assert_eq!(flights.land(2, 1, flight), Landing::Again);
        assert_eq!(flights.land(2, 1, flights.get(2, 1).unwrap()), Landing::Again);
    }

    #[test]
    fn one_that_is_given_up_may_still_land() {
        let flights = Flights::new(1, 4);
        flights.take_off(0, 0, 5, 77);
        let flight = flights.get(0, 0).unwrap();
        assert!(flight.is_flying() && flights.give_up(0, 0, flight) && !flights.give_up(0, 0, flight));
        let flight = flights.get(0, 0).unwrap();
        assert!(!flight.is_flying());
        assert_eq!(flights.land(0, 0, flight), Landing::AfterAll);
    }

    #[test]
    fn what_was_never_asked_has_no_flight() {
        let flights = Flights::new(2, 4);
        flights.take_off(0, 1, 0, 0);
        assert_eq!((flights.get(1, 1), flights.get(0, 0), flights.get(0, 4)), (None, None, None));
        assert!(flights.get(0, 1).is_some());
        flights.clear();
        assert_eq!(flights.get(0, 1), None);
    }
}
