//! The zone that is asked: names with two addresses each, both of which end with the zone's version.

use std::{fmt::Write as _, fs, path::Path};

use anyhow::Context as _;

/// The zone's name.
pub const NAME: &str = "rehearsal.test";

/// Writes the zone with this version of each of its names.
pub fn write(file: &Path, names: u32, version: u8) -> anyhow::Result<()> {
    let mut text = format!("$TTL 60\n@ SOA ns host {version} 7200 900 1209600 300\n@ NS ns\nns A 192.0.2.53\n");
    for name in 0..names {
        writeln!(text, "h{name:07} A 192.0.2.{version}\nh{name:07} A 198.51.100.{version}")?;
    }
    // A server that looks at the file while it is written would see a part of it.
    let beside = file.with_extension("new");
    fs::write(&beside, text)
        .and_then(|()| fs::rename(&beside, file))
        .with_context(|| format!("writing {}", file.display()))
}

/// A query for the addresses of a name.
pub(super) struct Query(Vec<u8>);

impl Query {
    /// Where the digits of the name are.
    const DIGITS: std::ops::Range<usize> = 14..21;

    pub(super) fn new() -> Self {
        let mut query = vec![0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in ["h0000000"].into_iter().chain(NAME.split('.')) {
            query.push(u8::try_from(label.len()).expect("labels are short"));
            query.extend_from_slice(label.as_bytes());
        }
        query.extend_from_slice(&[0, 0, 1, 0, 1]);
        Self(query)
    }

    /// The query with this ID for this name.
    pub(super) fn set(&mut self, id: u16, mut name: u32) -> &[u8] {
        self.0[..2].copy_from_slice(&id.to_be_bytes());
        for digit in self.0[Self::DIGITS].iter_mut().rev() {
            *digit = b'0' + u8::try_from(name % 10).expect("it is a digit");
            name /= 10;
        }
        &self.0
    }
}

/// The version that both addresses of an answer have; `None` if it is no such answer, or has two versions.
pub(super) fn version(reply: &[u8]) -> Option<u8> {
    const RECORD: usize = 16;
    let is_answer = reply.get(2)? & 0x80 != 0 && reply.get(3)? & 15 == 0 && reply.get(6..8)? == [0, 2];
    let at = reply.len().checked_sub(RECORD + 1)?;
    (is_answer && reply[at] == *reply.last()?).then_some(reply[at])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_has_the_name_that_is_in_the_zone() {
        let mut query = Query::new();
        query.set(1, 7_654_321);
        assert_eq!(query.set(0x1234, 42)[..21], *b"\x12\x34\0\0\0\x01\0\0\0\0\0\0\x08h0000042");
        assert!(query.set(1, 0).ends_with(b"\x09rehearsal\x04test\0\0\x01\0\x01"));
    }

    #[test]
    fn an_answer_has_one_version() {
        let answer = |first: u8, second: u8| {
            let record = |last| [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, last];
            let mut reply =
                [Query::new().set(7, 42).to_vec(), record(first).to_vec(), record(second).to_vec()].concat();
            (reply[2], reply[7]) = (0x84, 2);
            reply
        };
        assert_eq!(version(&answer(3, 3)), Some(3));
        assert_eq!(version(&answer(3, 4)), None);
        assert_eq!(version(Query::new().set(7, 42)), None);
        assert_eq!(version(b""), None);
    }
}
