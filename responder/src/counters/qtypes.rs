//! The QTYPEs that are counted by name. All others share one count.

/// The names, in the order of their counts. The last is for everything else, a message without a question that can be read included.
pub const NAMES: [&str; 18] = [
    "A", "NS", "CNAME", "SOA", "PTR", "MX", "TXT", "AAAA", "SRV", "NAPTR", "DS", "RRSIG", "DNSKEY", "SVCB", "HTTPS",
    "ANY", "CAA", "other",
];

/// Their numbers, in the same order.
const CODES: [u16; NAMES.len() - 1] = [1, 2, 5, 6, 12, 15, 16, 28, 33, 35, 43, 46, 48, 64, 65, 255, 257];
const OTHER: usize = NAMES.len() - 1;

/// For each number up to the largest that has a name, the place of its count.
static PLACES: [u8; 258] = places();

/// The place of a QTYPE's count.
#[inline]
#[must_use]
pub fn index(qtype: u16) -> usize {
    PLACES.get(usize::from(qtype)).map_or(OTHER, |place| usize::from(*place)).min(OTHER)
}

#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 256 names")]
const fn places() -> [u8; 258] {
    let mut places = [OTHER as u8; 258];
    let mut place = 0;
    while place < CODES.len() {
        places[CODES[place] as usize] = place as u8;
        place += 1;
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_common_qtype_has_its_count_and_the_rest_share_one() {
        for (code, name) in
            [(1, "A"), (28, "AAAA"), (255, "ANY"), (257, "CAA"), (0, "other"), (256, "other"), (u16::MAX, "other")]
        {
            assert_eq!(NAMES[index(code)], name, "{code}");
        }
        let named = (0..=u16::MAX).filter(|code| index(*code) != OTHER).count();
        assert_eq!(named, CODES.len());
    }
}
