//! DNS cookies (RFC 7873) in the form that all servers of an address can share (RFC 9018): a client that sends back what we once sent to its
//! address is not somebody else.
//!
//! ```text
//! |       client cookie (8)       | version 1 | reserved (3) | timestamp (4) |   hash (8)   |
//! ```
//!
//! The hash is SipHash-2-4, under a secret, of all that is before it and of the client's address. Nothing is remembered per client. The
//! time is an argument, in seconds since 1970, and need not be more exact than that.

use std::{fmt, net::IpAddr};

use super::siphash::{random_key, siphash_2_4};

/// The option's length with only a client cookie.
pub const CLIENT_LEN: usize = 8;
/// The length of a client cookie with a server cookie of ours.
pub const COOKIE_LEN: usize = 24;
/// What a server cookie may be long, in bytes (RFC 7873 section 4).
const SERVER_LENGTHS: std::ops::RangeInclusive<usize> = 8..=32;
const VERSION: u8 = 1;
/// Older cookies are no longer taken, and neither are those of a clock that is ahead by more (RFC 9018 section 4.3).
const AGE_MAX_S: u32 = 3600;
const AHEAD_MAX_S: u32 = 300;

/// The secret that cookies are made with, and the one before it, whose cookies are still taken while clients learn new ones (RFC 9018 section 5).
#[derive(Clone, PartialEq, Eq)]
pub struct Secrets {
    /// Makes cookies.
    pub current: [u8; 16],
    /// Its cookies are taken too.
    pub previous: Option<[u8; 16]>,
}

impl fmt::Debug for Secrets {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Secrets")
    }
}

impl Secrets {
    /// A secret of this process alone, for a server that shares its address with no other.
    #[must_use]
    pub fn random() -> Self {
        Self { current: random_key(), previous: None }
    }
}

/// What a COOKIE option is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presented {
    /// A client cookie, and a server cookie that we made for this client not long ago.
    Valid([u8; CLIENT_LEN]),
    /// A client cookie, alone or with a server cookie that is not valid.
    ClientOnly([u8; CLIENT_LEN]),
}

/// Reads the content of a COOKIE option. `None` for a length that none can have, which is FORMERR (RFC 7873 section 5.2.2).
#[must_use]
pub fn read(option: &[u8], client: IpAddr, now_s: u32, secrets: &Secrets) -> Option<Presented> {
    let (client_cookie, server_cookie) = option.split_first_chunk::<CLIENT_LEN>()?;
    if !server_cookie.is_empty() && !SERVER_LENGTHS.contains(&server_cookie.len()) {
        return None;
    }
    let is_valid = option.try_into().is_ok_and(|whole| is_valid(whole, client, now_s, secrets));
    Some(if is_valid { Presented::Valid(*client_cookie) } else { Presented::ClientOnly(*client_cookie) })
}

/// The client cookie with a server cookie made now.
#[must_use]
pub fn make(client_cookie: [u8; CLIENT_LEN], client: IpAddr, now_s: u32, secrets: &Secrets) -> [u8; COOKIE_LEN] {
    let mut cookie = [0; COOKIE_LEN];
    cookie[..8].copy_from_slice(&client_cookie);
    cookie[8] = VERSION;
    cookie[12..16].copy_from_slice(&now_s.to_be_bytes());
    let hash = hash(&cookie, client, &secrets.current);
    cookie[16..].copy_from_slice(&hash);
    cookie
}

fn is_valid(cookie: &[u8; COOKIE_LEN], client: IpAddr, now_s: u32, secrets: &Secrets) -> bool {
    let &[_, _, _, _, _, _, _, _, version, _, _, _, t3, t2, t1, t0, ref hash_given @ ..] = cookie;
    // Serial number arithmetic (RFC 1982).
    let age_s = now_s.wrapping_sub(u32::from_be_bytes([t3, t2, t1, t0]));
    let is_fresh = age_s <= AGE_MAX_S || age_s.wrapping_neg() <= AHEAD_MAX_S;
    let made_with = |secret: &[u8; 16]| {
        // Compared as one number: how much of it is right shows in no timing.
        u64::from_le_bytes(hash(cookie, client, secret)) == u64::from_le_bytes(*hash_given)
    };
    version == VERSION && is_fresh && (made_with(&secrets.current) || secrets.previous.as_ref().is_some_and(made_with))
}

/// Over client cookie, version, reserved bytes, timestamp and address (RFC 9018 section 4.4).
fn hash(cookie: &[u8; COOKIE_LEN], client: IpAddr, secret: &[u8; 16]) -> [u8; 8] {
    let mut input = [0; 32];
    input[..16].copy_from_slice(&cookie[..16]);
    let length = match client {
        IpAddr::V4(ip) => {
            input[16..20].copy_from_slice(&ip.octets());
            20
        }
        IpAddr::V6(ip) => {
            input[16..].copy_from_slice(&ip.octets());
            32
        }
    };
    siphash_2_4(secret, &input[..length]).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex<const N: usize>(text: &str) -> [u8; N] {
        let bytes = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
        let bytes: Vec<u8> = bytes.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect();
        bytes.try_into().unwrap()
    }

    fn secrets(current: &str, previous: Option<&str>) -> Secrets {
        Secrets { current: hex(current), previous: previous.map(hex) }
    }

    const SECRET: &str = "e5e973e5a6b2a43f48e7dc849e37bfcf";

    /// RFC 9018 appendix A.1: a new cookie.
    #[test]
    fn rfc_9018_appendix_a_1() {
        let (secrets, client) = (secrets(SECRET, None), "198.51.100.100".parse().unwrap());
        let asked: [u8; 8] = hex("2464c4abcf10c957");
        assert_eq!(read(&asked, client, 1_559_731_985, &secrets), Some(Presented::ClientOnly(asked)));
        let expected = hex("2464c4abcf10c957010000005cf79f111f8130c3eee29480");
        assert_eq!(make(asked, client, 1_559_731_985, &secrets), expected);
    }

    /// RFC 9018 appendices A.2 to A.4: cookies that are renewed, the second an old one with reserved bits set, the last after a change of secrets.
    #[test]
    fn rfc_9018_appendices_a_2_to_a_4() {
        let rolled = secrets("445536bcd2513298075a5d379663c962", Some("dd3bdf9344b678b185a6f5cb60fca715"));
        for (address, now_s, secrets, sent, returned) in [
            (
                "198.51.100.100",
                1_559_734_385,
                secrets(SECRET, None),
                "2464c4abcf10c957010000005cf79f111f8130c3eee29480",
                "2464c4abcf10c957010000005cf7a871d4a564a1442aca77",
            ),
            (
                "203.0.113.203",
                1_559_734_700,
                secrets(SECRET, None),
                "fc93fc62807ddb8601abcdef5cf78f71a314227b6679ebf5",
                "fc93fc62807ddb86010000005cf7a9acf73a7810aca2381e",
            ),
            (
                "2001:db8:220:1:59de:d0f4:8769:82b8",
                1_559_741_961,
                rolled,
                "22681ab97d52c298010000005cf7c57926556bd0934c72f8",
                "22681ab97d52c298010000005cf7c609a6bb79d16625507a",
            ),
        ] {
            let client = address.parse().unwrap();
            let sent: [u8; COOKIE_LEN] = hex(sent);
            let client_cookie = *sent.first_chunk().unwrap();
            let made_s = u32::from_be_bytes(sent[12..16].try_into().unwrap());
            assert_eq!(read(&sent, client, made_s, &secrets), Some(Presented::Valid(client_cookie)), "{address}");
            let is_valid = read(&sent, client, now_s, &secrets) == Some(Presented::Valid(client_cookie));
            assert_eq!(is_valid, now_s - made_s <= 3600, "{address}");
            assert_eq!(make(client_cookie, client, now_s, &secrets), hex(returned), "{address}");
        }
    }

    #[test]
    fn what_is_not_valid() {
        let (secrets, others, client) = (Secrets::random(), Secrets::random(), "192.0.2.1".parse().unwrap());
        let now_s = 100;
        let good = make([7; 8], client, now_s, &secrets);
        let is_valid = |cookie: &[u8], client, now_s, secrets| {
            matches!(read(cookie, client, now_s, secrets), Some(Presented::Valid(_)))
        };
        assert!(is_valid(&good, client, now_s, &secrets));
        for bit in 0..COOKIE_LEN * 8 {
            let mut cookie = good;
            cookie[bit / 8] ^= 1 << (bit % 8);
            assert!(!is_valid(&cookie, client, now_s, &secrets), "bit {bit}");
        }
        assert!(!is_valid(&good, "192.0.2.2".parse().unwrap(), now_s, &secrets));
        assert!(!is_valid(&good, "2001:db8::1".parse().unwrap(), now_s, &secrets));
        assert!(!is_valid(&good, client, now_s, &others));
        // RFC 9018 section 4.3: an hour back, five minutes ahead, whatever the clock's upper bits.
        for made_s in [0_u32, 5000, u32::MAX - 10, u32::MAX] {
            let cookie = make([7; 8], client, made_s, &secrets);
            for (later_s, valid) in [(0, true), (3600, true), (3601, false), (1 << 31, false)] {
                assert_eq!(is_valid(&cookie, client, made_s.wrapping_add(later_s), &secrets), valid, "{later_s}");
            }
            for (earlier_s, valid) in [(300, true), (301, false)] {
                assert_eq!(is_valid(&cookie, client, made_s.wrapping_sub(earlier_s), &secrets), valid, "{earlier_s}");
            }
        }
    }

    /// RFC 7873 section 5.2.2.
    #[test]
    fn lengths_that_no_cookie_has() {
        let client = "192.0.2.1".parse().unwrap();
        for length in 0..=64 {
            let is_well_formed = length == 8 || (16..=40).contains(&length);
            assert_eq!(read(&vec![1; length], client, 0, &Secrets::random()).is_some(), is_well_formed, "{length}");
        }
    }
}
