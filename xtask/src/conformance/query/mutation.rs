//! Packets that no client should send: good ones, changed.

use super::{Edns, packet};
use crate::conformance::{
    message::{self, QR, u16_at},
    random::Random,
};

/// What was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mutation {
    /// Single bits behind the ID.
    Bits,
    /// The end is missing.
    CutShort,
    /// A count says something else.
    Counts,
    /// Another opcode.
    Opcode,
    /// QR, AA, TC, RA or Z set.
    Header,
    /// Another class.
    Class,
    /// Bytes behind the end.
    Trailing,
    /// A second question.
    TwoQuestions,
    /// A record that a query need not carry.
    Record,
}

/// All of them.
pub const MUTATIONS: [Mutation; 9] = [
    Mutation::Bits,
    Mutation::CutShort,
    Mutation::Counts,
    Mutation::Opcode,
    Mutation::Header,
    Mutation::Class,
    Mutation::Trailing,
    Mutation::TwoQuestions,
    Mutation::Record,
];

impl Mutation {
    /// Changes a packet. Not its ID, by which the reply is known.
    pub fn apply(self, random: &mut Random, bytes: &mut Vec<u8>) {
        let set = |bytes: &mut Vec<u8>, at: usize, value: u16| bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        match self {
            Mutation::Bits => {
                for _ in 0..=random.below(4) {
                    let at = 2 + random.below(bytes.len() - 2);
                    bytes[at] ^= 1 << random.below(8);
                }
            }
            Mutation::CutShort => bytes.truncate(2 + random.below(bytes.len() - 2)),
            Mutation::Counts => {
                let at = *random.pick(&[4, 6, 8, 10]);
                let value = *random.pick(&[0, 1, 2, 3, 255, 65_535]);
                set(bytes, at, value);
            }
            Mutation::Opcode => bytes[2] = bytes[2] & 0x87 | (1 + random.byte() % 15) << 3,
            Mutation::Header => {
                let bits = u16_at(bytes, 2).unwrap_or(0) | random.pick(&[QR, message::AA, message::TC, 0x80, 0x40, 3]);
                set(bytes, 2, bits);
            }
            Mutation::Class => {
                let class = *random.pick(&[0, 3, 4, 254, 255, 4242]);
                if let Some(end) = question_end(bytes) {
                    set(bytes, end - 2, class);
                }
                if class == 3 && random.one_in(2) {
                    let name = message::name_from(random.pick::<&str>(&[
                        "version.bind",
                        "id.server",
                        "hostname.bind",
                        "version.server",
                    ]));
                    *bytes = packet(0, &name, message::TXT, Edns::None);
                    let end = bytes.len();
                    set(bytes, end - 2, 3);
                }
            }
            Mutation::Trailing => bytes.extend((0..=random.below(20)).map(|_| random.byte())),
            Mutation::TwoQuestions => {
                if let Some(end) = question_end(bytes) {
                    let question = bytes[12..end].to_vec();
                    bytes.splice(end..end, question);
                    set(bytes, 4, 2);
                }
            }
            Mutation::Record => {
                if let Some(end) = question_end(bytes) {
                    let section = random.below(3);
                    bytes.splice(end..end, *b"\xc0\x0c\0\x01\0\x01\0\0\0\x01\0\x04abcd");
                    let at = 6 + 2 * section;
                    let count = u16_at(bytes, at).unwrap_or(0) + 1;
                    set(bytes, at, count);
                }
            }
        }
    }
}

fn question_end(bytes: &[u8]) -> Option<usize> {
    let mut at = message::HEADER_LEN;
    message::name(bytes, &mut at)?;
    Some(at + 4).filter(|end| *end <= bytes.len())
}
