//! The differences that the RFCs allow: a small list, reviewed. Each entry says where it applies, as narrowly as can be told, and which
//! sentence allows it. That most servers agree is no reason to be on it.

use super::{compare::Field, data::Data, message::Message, query::Query, servers::Server};

/// A difference between ours and a peer.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// What was asked.
    pub query: &'a Query,
    /// The peer.
    pub peer: Server,
    /// In what the replies differ.
    pub field: Field,
    /// Our reply, if there is one that can be read.
    pub ours: Option<&'a Message>,
    /// The peer's.
    pub theirs: Option<&'a Message>,
    /// The zones.
    pub data: &'a Data,
}

/// An allowed difference.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// A short name.
    pub name: &'static str,
    /// What allows it.
    pub rule: &'static str,
    /// Where it applies.
    pub applies: fn(&Case<'_>) -> bool,
}

/// The list.
pub const ALLOWED: &[Entry] = &[];

/// The entry that allows a difference.
#[must_use]
pub fn find(case: &Case<'_>) -> Option<usize> {
    ALLOWED.iter().position(|entry| (entry.applies)(case))
}
