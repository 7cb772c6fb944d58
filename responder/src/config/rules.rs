//! The part of the configuration file that a running server can take anew: what answers are like, who gets them and how often.

use std::{fs, path::Path};

use anyhow::{Context, Result, anyhow, ensure};

use super::{file::path, section::Section};
use crate::{
    answer::policy::{AnyPolicy, Cookies, Identifier, Order, Policy},
    guard::{
        acl::{Acl, Action},
        cookie::Secrets,
        prefix::Prefix,
        rrl,
    },
    service::Rules,
};

/// Reads the keys of answers, `[rate_limit]` and `[[acl]]`.
pub(super) fn read(file: &mut Section<'_, '_>, directory: &Path, secrets: &Secrets) -> Rules {
    let default = Policy::DEFAULT;
    let any = [("rrset", AnyPolicy::OneRrset), ("hinfo", AnyPolicy::Hinfo)];
    let policy = Policy {
        udp_payload_max: file.number("udp_payload_max", 512..65_536).map_or(default.udp_payload_max, narrow),
        nsid: file.text("nsid", identifier),
        identity: file.text("identity", identifier),
        version: file.text("version", identifier),
        any: file.word("any", &any).unwrap_or_default(),
        rrset_order: file
            .word("rrset_order", &[("fixed", Order::Fixed), ("rotate", Order::Rotate)])
            .unwrap_or_default(),
        cookies: cookies(file, directory, secrets),
    };
    let rrl = file.table("rate_limit").map(rate_limit);
    let acl = file.tables("acl", |entry| {
        let prefix = entry.text("prefix", prefix);
        let actions = [("allow", Action::Allow), ("refuse", Action::Refuse), ("drop", Action::Drop)];
        let action = entry.word("action", &actions);
        if !entry.had("prefix") || !entry.had("action") {
            entry.fail("expected a prefix and an action, as in prefix = \"192.0.2.0/24\" and action = \"refuse\"");
        }
        prefix.zip(action)
    });
    Rules { acl: Acl::new(acl), rrl, policy }
}

fn rate_limit(mut section: Section<'_, '_>) -> rrl::Settings {
    let default = rrl::Settings::default();
    let settings = rrl::Settings {
        rate: section.number("responses_per_second", 1..1_000_000_000).unwrap_or(default.rate),
        window_s: section.number("window", 1..3601).unwrap_or(default.window_s),
        slip: section.number("slip", 0..101).unwrap_or(default.slip),
        ipv4_prefix: section.number("ipv4_prefix", 1..33).map_or(default.ipv4_prefix, narrow),
        ipv6_prefix: section.number("ipv6_prefix", 1..129).map_or(default.ipv6_prefix, narrow),
        accounts: section.number("accounts", 1024..(1 << 24) + 1).unwrap_or(default.accounts),
        exempt: section.list("exempt", prefix).unwrap_or_default(),
    };
    section.end();
    settings
}

/// A number that its range has bounded.
fn narrow<T: TryFrom<u32> + Default>(number: u32) -> T {
    T::try_from(number).unwrap_or_default()
}

fn prefix(text: &str) -> Result<Prefix> {
    text.parse().map_err(|error| anyhow!("{error}"))
}

/// Text as it is, or bytes in hexadecimal behind `0x`.
fn identifier(text: &str) -> Result<Identifier> {
    let bytes = match text.strip_prefix("0x") {
        Some(digits) => hex(digits).context("expected pairs of hexadecimal digits behind 0x")?,
        None => text.as_bytes().to_vec(),
    };
    Ok(Identifier::new(bytes)?)
}

fn cookies(file: &mut Section<'_, '_>, directory: &Path, random: &Secrets) -> Cookies {
    let on: fn(Secrets) -> Cookies = Cookies::On;
    let mode =
        file.word("cookies", &[("off", None), ("on", Some(on)), ("required", Some(Cookies::Required))]).flatten();
    let given = file.text("cookie_secret", |text| secret(text).map(|current| Secrets { current, previous: None }));
    let kept = file.text("cookie_secret_file", |text| secrets_in(&directory.join(path(text)?)));
    if file.had("cookie_secret") && file.had("cookie_secret_file") {
        file.fail("cookie_secret and cookie_secret_file: expected one of them");
    }
    mode.map_or(Cookies::Off, |mode| mode(given.or(kept).unwrap_or_else(|| random.clone())))
}

/// RFC 9018 section 4.4: 16 bytes.
fn secret(digits: &str) -> Result<[u8; 16]> {
    hex(digits).and_then(|bytes| bytes.try_into().ok()).context("expected 32 hexadecimal digits")
}

/// A line with the secret, and perhaps one with that before it.
fn secrets_in(file: &Path) -> Result<Secrets> {
    let text = fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    ensure!(
        matches!(lines.len(), 1 | 2),
        "{}: expected a line with the secret, or two: and the one before",
        file.display()
    );
    // What is wrong with a secret is said without it.
    let read = |line: &str| secret(line).with_context(|| format!("{}", file.display()));
    Ok(Secrets { current: read(lines[0])?, previous: lines.get(1).map(|line| read(line)).transpose()? })
}

fn hex(digits: &str) -> Option<Vec<u8>> {
    let (pairs, rest) = digits.as_bytes().as_chunks::<2>();
    let value = |pair: &[u8; 2]| {
        let pair = std::str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|digit| digit.is_ascii_hexdigit()))?;
        u8::from_str_radix(pair, 16).ok()
    };
    if rest.is_empty() { pairs.iter().map(value).collect() } else { None }
}
