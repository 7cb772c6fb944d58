//! The options that go into a reply's OPT record: NSID (RFC 5001), COOKIE (RFC 7873, RFC 9018) and extended errors (RFC 8914).
//!
//! Read before the answer is written, which goes over them. Unknown options are ignored (RFC 6891 section 6.1.2). There is no padding (RFC 7830): it
//! hides nothing where nothing is encrypted.

use super::{
    Asked, Outcome, Reply, Transport, from_zones,
    policy::{Cookies, Identifier},
};
use crate::{
    guard::cookie::{self, COOKIE_LEN, Presented},
    wire::{
        message::{HEADER_LEN, Query, Rcode, edns_alone},
        name::{AnyRoom, Name},
    },
    zone::Zones,
};

const NSID: u16 = 3;
const COOKIE: u16 = 10;
const EXTENDED_ERROR: u16 = 15;
/// Code and length before an option's content.
const HEAD: usize = 4;
/// An extended error without text.
const EXTENDED_ERROR_LEN: usize = HEAD + 2;
/// All that a reply can have.
const MAX: usize = HEAD + Identifier::MAX + HEAD + COOKIE_LEN + EXTENDED_ERROR_LEN;

/// Answers a query whose OPT record has options, or refuses it if there are no zones for this client.
#[inline(never)]
pub(super) fn with_options(
    zones: Option<&Zones>,
    message: &mut [u8],
    query: Query,
    name: Name<'_>,
    asked: &mut Asked<'_>,
) -> Outcome {
    let options = query.edns.map(|edns| edns.options).unwrap_or_default();
    let (options, error) = Options::answering(asked, options.read(message));
    let reply = Reply::new(message, query, name, asked, options.bytes());
    match (error, zones) {
        (Some(rcode), _) => reply.status(rcode),
        (None, Some(zones)) => from_zones(zones, reply),
        (None, None) => reply.refused(Reason::Prohibited),
    }
}

/// Answers a message that has no question and asks for a server cookie (RFC 7873 section 5.4). `None` if it is none, or we make no cookies.
pub(super) fn cookie_alone(message: &mut [u8], query_len: usize, asked: &mut Asked<'_>) -> Option<Outcome> {
    let edns = edns_alone(message.get(..query_len)?)?;
    let (options, error) = Options::answering(asked, edns.options.read(message));
    if !options.has_cookie() && error.is_none() {
        return None;
    }
    let query = Query { qtype: 0, qclass: 0, question_end: HEADER_LEN, edns: Some(edns) };
    let mut room = AnyRoom::empty();
    // The root's, in place of a QNAME.
    let name = room.read(&[0], 0)?;
    let reply = Reply::new(message, query, name, asked, options.bytes());
    // It is not of use to ask for a cookie with BADCOOKIE: it has just been sent.
    let outcome = reply.status(error.filter(|rcode| *rcode != Rcode::BADCOOKIE).unwrap_or(Rcode::NOERROR));
    // The header was written for a reply with a question.
    message[4..6].fill(0);
    Some(outcome)
}

/// Writes options behind an OPT record without any, which ends at `end`. Returns where they end.
#[inline(never)]
pub(super) fn write(message: &mut [u8], end: usize, options: &[u8]) -> Option<usize> {
    let behind = end + options.len();
    let length = u16::try_from(options.len()).ok()?.to_be_bytes();
    message.get_mut(end..behind)?.copy_from_slice(options);
    message.get_mut(end - 2..end)?.copy_from_slice(&length);
    Some(behind)
}

/// Why an error (RFC 8914 section 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Reason {
    /// The access list refuses this client.
    Prohibited = 18,
    /// The name is in no zone of ours.
    NotAuthoritative = 20,
    /// We do not do this.
    NotSupported = 21,
    /// The name is in a zone of ours that was not loaded.
    InvalidData = 24,
}

/// Options as they are written.
pub(super) struct Options {
    bytes: [u8; MAX],
    length: usize,
    has_cookie: bool,
}

impl Options {
    /// The options that answer those of the query, and no error or the one that is the answer.
    pub(super) fn answering<'m>(
        asked: &mut Asked<'_>,
        options: impl Iterator<Item = (u16, &'m [u8])>,
    ) -> (Self, Option<Rcode>) {
        let mut reply = Self { bytes: [0; MAX], length: 0, has_cookie: false };
        let (mut nsid, mut cookie) = (None, None);
        for (code, content) in options {
            match code {
                NSID => nsid = asked.policy.nsid.as_ref(),
                // RFC 7873 section 5.2: of several cookies the first counts.
                COOKIE => cookie = cookie.or(Some(content)),
                _ => {}
            }
        }
        if let Some(identifier) = nsid {
            reply.push(NSID, identifier.bytes());
        }
        let error = cookie.and_then(|content| reply.cookie(asked, content));
        (reply, error)
    }

    /// The same options, and an extended error if it fits into `room` bytes.
    pub(super) fn with_reason(options: &[u8], reason: Reason, room: usize) -> Self {
        let mut reply = Self { bytes: [0; MAX], length: options.len(), has_cookie: false };
        reply.bytes[..options.len()].copy_from_slice(options);
        if reply.length + EXTENDED_ERROR_LEN <= room {
            reply.push(EXTENDED_ERROR, &(reason as u16).to_be_bytes());
        }
        reply
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }

    /// Whether a cookie is among them.
    pub(super) fn has_cookie(&self) -> bool {
        self.has_cookie
    }

    fn cookie(&mut self, asked: &mut Asked<'_>, content: &[u8]) -> Option<Rcode> {
        let (secrets, is_required) = match &asked.policy.cookies {
            Cookies::Off => return None,
            Cookies::On(secrets) => (secrets, false),
            Cookies::Required(secrets) => (secrets, true),
        };
        let Some(presented) = cookie::read(content, asked.client, asked.now_s, secrets) else {
            return Some(Rcode::FORMERR);
        };
        let (Presented::Valid(client_cookie) | Presented::ClientOnly(client_cookie)) = presented;
        self.push(COOKIE, &cookie::make(client_cookie, asked.client, asked.now_s, secrets));
        self.has_cookie = true;
        asked.noted.has_valid_cookie = matches!(presented, Presented::Valid(_));
        let is_due = is_required && asked.limits.transport == Transport::Udp;
        (is_due && !asked.noted.has_valid_cookie).then_some(Rcode::BADCOOKIE)
    }

    /// Adds an option. All that can be added fits.
    fn push(&mut self, code: u16, content: &[u8]) {
        let length = u16::try_from(content.len()).unwrap_or(0);
        let head = [code.to_be_bytes(), length.to_be_bytes()];
        for part in [head.as_flattened(), content] {
            self.bytes[self.length..self.length + part.len()].copy_from_slice(part);
            self.length += part.len();
        }
    }
}
