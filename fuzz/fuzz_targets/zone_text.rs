//! Any text as a zone: it loads or has errors, each with its line, and what has loaded answers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use responder::{
    answer::{Limits, Outcome, Transport, respond},
    zone::Zones,
};

const TEXT_MAX: usize = 64 * 1024;
/// `$GENERATE` makes much of little, and the fuzzer would look for nothing else: it gets one of these, of less than a thousand entries.
const GENERATE: &[u8] = b"$generate";
const GENERATE_TEXT_MAX: usize = 512;

fuzz_target!(|bytes: &[u8]| {
    let generates = bytes.windows(GENERATE.len()).filter(|window| window.eq_ignore_ascii_case(GENERATE)).count();
    let long_numbers = bytes.windows(4).any(|window| window.iter().all(u8::is_ascii_digit));
    if bytes.len() > TEXT_MAX || generates > 1 || generates == 1 && (long_numbers || bytes.len() > GENERATE_TEXT_MAX) {
        return;
    }
    match Zones::from_text("example", bytes) {
        Ok(zones) => {
            for (qtype, limits) in [(6, Transport::Udp), (255, Transport::Tcp)] {
                let mut message = [0; 2048];
                let query = [&[0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0][..], b"\x07example\0\0", &[qtype, 0, 1]].concat();
                message[..query.len()].copy_from_slice(&query);
                let limits = Limits { transport: limits, udp_payload_max: 1232 };
                let outcome = respond(&zones, &mut message, query.len(), limits);
                assert!(matches!(outcome, Outcome::Reply(_)), "a zone that loads has an apex");
            }
        }
        Err(errors) => {
            let errors = errors.to_string();
            assert!(errors.lines().all(|line| line.starts_with("text:") || line.starts_with("and ")), "{errors}");
        }
    }
});
