//! `$GENERATE first-last[/step] owner [ttl] [class] type data`: entries with a number in them, as other servers have it.
//!
//! In owner and data `$` is the number, and `${offset,width,base}` the number with an offset added, at least so wide, in a base: `d`, `o`, `x`, `X`, or
//! `n` and `N`, which are hexadecimal digits from the last to the first with dots between them, as names below ip6.arpa have them. `\$` and
//! `$$` are a dollar sign.

use std::str;

use super::{
    rdata::{DataError, shown},
    tokens::Token,
};

/// Entries that one `$GENERATE` may make.
const ENTRIES_MAX: u64 = 65_536;
/// The directive and the range.
pub(super) const BEFORE_OWNER: usize = 2;

/// The entries, one for each number.
pub(super) struct Generate<'a> {
    text: &'a [u8],
    tokens: &'a [Token],
    number: u64,
    last: u64,
    step: u64,
}

/// An entry: its number, and its text and tokens from the owner on.
pub(super) struct Made {
    pub(super) number: u64,
    pub(super) text: Vec<u8>,
    pub(super) tokens: Vec<Token>,
}

impl<'a> Generate<'a> {
    pub(super) fn new(text: &'a [u8], tokens: &'a [Token]) -> Result<Self, DataError> {
        let word = tokens.get(1).map(|token| &text[token.range.clone()]);
        let (number, last, step) = word.and_then(range).ok_or_else(|| DataError {
            message: format!("$GENERATE: expected a range such as 1-100 or 1-100/2, of at most {ENTRIES_MAX} numbers"),
            token: 1,
        })?;
        if tokens.len() < BEFORE_OWNER + 3 {
            let message = "$GENERATE: expected a range, an owner, a type and data".to_owned();
            return Err(DataError { message, token: 0 });
        }
        Ok(Self { text, tokens, number, last, step })
    }
}

impl Iterator for Generate<'_> {
    type Item = Result<Made, DataError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.number > self.last {
            return None;
        }
        let number = self.number;
        self.number += self.step;
        let mut made = Made { number, text: Vec::new(), tokens: Vec::with_capacity(self.tokens.len()) };
        for (index, token) in self.tokens.iter().enumerate().skip(BEFORE_OWNER) {
            let start = made.text.len();
            if let Err(why) = substitute(&self.text[token.range.clone()], number, &mut made.text) {
                return Some(Err(DataError { message: format!("$GENERATE: {why}"), token: index }));
            }
            made.tokens.push(Token { range: start..made.text.len(), ..token.clone() });
        }
        Some(Ok(made))
    }
}

/// `first-last` or `first-last/step`.
fn range(word: &[u8]) -> Option<(u64, u64, u64)> {
    let word = str::from_utf8(word).ok()?;
    let (range, step) = word.split_once('/').unwrap_or((word, "1"));
    let (first, last) = range.split_once('-')?;
    let (first, last, step): (u32, u32, u32) = (first.parse().ok()?, last.parse().ok()?, step.parse().ok()?);
    let (first, last, step) = (u64::from(first), u64::from(last), u64::from(step));
    (first <= last && step > 0 && (last - first) / step < ENTRIES_MAX).then_some((first, last, step))
}

/// Puts the number in: `$`, or `${offset,width,base}`; `\$` is a dollar sign, and so is `$$`.
fn substitute(word: &[u8], number: u64, made: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = word;
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, after) {
            (b'\\' | b'$', [b'$', after @ ..]) => {
                made.push(b'$');
                rest = after;
            }
            (b'\\', [next, after @ ..]) => {
                made.extend_from_slice(&[b'\\', *next]);
                rest = after;
            }
            (b'$', [b'{', inside @ ..]) => {
                let end = inside.iter().position(|byte| *byte == b'}').ok_or("\"${\" without \"}\"")?;
                made.extend_from_slice(modified(&inside[..end], number)?.as_bytes());
                rest = &inside[end + 1..];
            }
            (b'$', _) => made.extend_from_slice(number.to_string().as_bytes()),
            _ => made.push(*byte),
        }
    }
    Ok(())
}

/// The number with an offset added, at least `width` wide, in decimal, octal or hexadecimal; `n` and `N` are hexadecimal digits from the last to the
/// first with dots between them, as names below ip6.arpa have them.
fn modified(modifier: &[u8], number: u64) -> Result<String, String> {
    let text = str::from_utf8(modifier).unwrap_or_default();
    let fail = || format!("{}: expected offset,width,base as in ${{0,3,d}}", shown(modifier));
    let mut parts = text.split(',');
    let offset: i32 = parts.next().unwrap_or_default().parse().map_err(|_| fail())?;
    let width: usize = parts.next().unwrap_or("0").parse().ok().filter(|width| *width <= 63).ok_or_else(fail)?;
    let base = parts.next().unwrap_or("d");
    let value = number.checked_add_signed(i64::from(offset)).ok_or_else(fail)?;
    match (base, parts.next()) {
        ("d", None) => Ok(format!("{value:0width$}")),
        ("o", None) => Ok(format!("{value:0width$o}")),
        ("x", None) => Ok(format!("{value:0width$x}")),
        ("X", None) => Ok(format!("{value:0width$X}")),
        ("n", None) => Ok(nibbles(&format!("{value:x}"), width)),
        ("N", None) => Ok(nibbles(&format!("{value:X}"), width)),
        _ => Err(fail()),
    }
}

/// Digits in reverse with dots between them. Digits and dots count towards the width alike, so that an even one ends in a dot.
fn nibbles(digits: &str, width: usize) -> String {
    let mut text = String::new();
    for digit in digits.chars().rev() {
        text.push(digit);
        text.push('.');
    }
    text.pop();
    while text.len() < width {
        text.push(if text.ends_with('.') { '0' } else { '.' });
    }
    text
}
