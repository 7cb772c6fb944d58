//! What differs between two replies to the same query.

use std::fmt;

use super::message::{self, Message};

/// In what two replies differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Field {
    /// One answered, the other did not.
    Silence,
    /// One of them cannot be read.
    Broken,
    /// The response code. What follows from it is not told again.
    Rcode,
    /// AA.
    Authority,
    /// TC. What is in the sections of such a reply has no meaning (RFC 2181 section 9) and is compared over TCP.
    Truncation,
    /// The other flags, and the opcode.
    Bits,
    /// The question, bit for bit.
    Question,
    /// Records of the answer section.
    Answer,
    /// Records of the authority section.
    AuthoritySection,
    /// Records of the additional section.
    Additional,
    /// Whether there is OPT, its version and flags.
    Edns,
    /// Ours is longer than what the client takes, whatever the others do.
    TooLong,
}

impl fmt::Display for Field {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Silence => "answered or not",
            Self::Broken => "readable or not",
            Self::Rcode => "RCODE",
            Self::Authority => "AA",
            Self::Truncation => "TC",
            Self::Bits => "header",
            Self::Question => "question",
            Self::Answer => "answer section",
            Self::AuthoritySection => "authority section",
            Self::Additional => "additional section",
            Self::Edns => "OPT",
            Self::TooLong => "longer than the client takes",
        })
    }
}

/// A reply, or none, or one that cannot be read.
pub type Reply = Option<Result<Message, &'static str>>;

/// All differences between two replies.
#[must_use]
pub fn differences(ours: &Reply, theirs: &Reply) -> Vec<Field> {
    let (ours, theirs) = match (ours, theirs) {
        (None, None) => return vec![],
        (Some(Ok(ours)), Some(Ok(theirs))) => (ours, theirs),
        (None, _) | (_, None) => return vec![Field::Silence],
        _ => return vec![Field::Broken],
    };
    if ours.rcode != theirs.rcode {
        return vec![Field::Rcode];
    }
    let truncated = ours.is(message::TC) || theirs.is(message::TC);
    // The RCODE is told above, AA and TC below.
    let bits = |reply: &Message| reply.bits & !(message::AA | message::TC | 0xf);
    let edns = |reply: &Message| reply.opt.as_ref().map(|opt| (opt.version, opt.flags));
    let checks = [
        (Field::Authority, !truncated && ours.is(message::AA) != theirs.is(message::AA)),
        (Field::Truncation, ours.is(message::TC) != theirs.is(message::TC)),
        (Field::Bits, bits(ours) != bits(theirs)),
        (Field::Question, ours.question != theirs.question),
        (Field::Answer, !truncated && ours.answer != theirs.answer),
        (Field::AuthoritySection, !truncated && ours.authority != theirs.authority),
        (Field::Additional, !truncated && ours.additional != theirs.additional),
        (Field::Edns, edns(ours) != edns(theirs)),
    ];
    checks.into_iter().filter(|(_, differ)| *differ).map(|(field, _)| field).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(change: impl FnOnce(&mut Message)) -> Reply {
        let bytes =
            [&b"\0\x07\x84\0\0\x01\0\0\0\0\0\x01\x03www\0\0\x01\0\x01"[..], b"\0\0\x29\x04\xd0\0\0\0\0\0\0"].concat();
        let mut message = Message::read(&bytes).expect("good");
        message.answer.push(message::Record { owner: vec![0], rtype: 1, class: 1, ttl: 1, data: vec![1, 2, 3, 4] });
        change(&mut message);
        Some(Ok(message))
    }

    #[test]
    fn each_difference_has_its_name() {
        let base = reply(|_| {});
        let cases: [(Reply, &[Field]); 10] = [
            (reply(|_| {}), &[]),
            (None, &[Field::Silence]),
            (Some(Err("broken")), &[Field::Broken]),
            (reply(|reply| reply.rcode = 3), &[Field::Rcode]),
            (reply(|reply| reply.bits ^= message::AA), &[Field::Authority]),
            (reply(|reply| reply.bits ^= message::RD), &[Field::Bits]),
            (reply(|reply| reply.question[1] ^= 0x20), &[Field::Question]),
            (reply(|reply| reply.answer[0].ttl = 2), &[Field::Answer]),
            (reply(|reply| reply.opt = None), &[Field::Edns]),
            (reply(|reply| reply.len = 1), &[]),
        ];
        for (other, expected) in cases {
            assert_eq!(differences(&base, &other), expected);
        }
    }

    /// RFC 2181 section 9: what a truncated reply holds is not to be used.
    #[test]
    fn sections_of_a_truncated_reply_are_not_compared() {
        let other = reply(|reply| {
            reply.bits |= message::TC;
            reply.answer.clear();
        });
        assert_eq!(differences(&reply(|_| {}), &other), [Field::Truncation]);
    }
}
