//! Splits a master file into entries and their tokens (RFC 1035 section 5.1): parentheses, comments, quotes, escapes.
//!
//! An entry is a line, or several that a parenthesis joins. A token remembers its line and column, so that errors have true positions. An error
//! ends its entry and not the reading. Columns count bytes from 1, a tab like any other.

use std::ops::Range;

/// A line and a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    pub(super) line: u32,
    pub(super) column: u32,
}

/// A token: where it is in the text, without its quotes, escapes still in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Token {
    pub(super) range: Range<usize>,
    pub(super) place: Place,
    pub(super) quoted: bool,
    /// Nothing separates it from the token before, as in `alpn="h2"`.
    pub(super) glued: bool,
}

/// An error and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SyntaxError {
    pub(super) place: Place,
    pub(super) message: String,
}

/// Reads a text entry by entry.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    text: &'a [u8],
    at: usize,
    line: u32,
    /// Where the line begins.
    line_at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        // An editor's byte order mark is no part of the first owner's name.
        let at = if text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        Self { text, at, line: 1, line_at: at }
    }

    /// Reads the next entry that has tokens into `tokens`. Returns whether it begins with a blank, which stands for the last owner; `None` at the
    /// end of the text.
    pub(super) fn entry(&mut self, tokens: &mut Vec<Token>) -> Option<Result<bool, SyntaxError>> {
        loop {
            tokens.clear();
            if self.at >= self.text.len() {
                return None;
            }
            let blank = matches!(self.text[self.at], b' ' | b'\t');
            match self.tokens(tokens) {
                Ok(()) if tokens.is_empty() => {}
                Ok(()) => return Some(Ok(blank)),
                Err(error) => return Some(Err(error)),
            }
        }
    }

    /// The end of the text, if it was reached and the last line has no line feed.
    pub(super) fn cut_short(&self) -> Option<Place> {
        (self.at >= self.text.len() && self.text.last().is_some_and(|byte| *byte != b'\n')).then(|| self.place())
    }

    /// Reads tokens until the entry's last line feed.
    fn tokens(&mut self, tokens: &mut Vec<Token>) -> Result<(), SyntaxError> {
        // The open parenthesis, and where the line behind it begins.
        let mut opened: Option<(Place, usize)> = None;
        let mut glued = false;
        while let Some(&byte) = self.text.get(self.at) {
            match byte {
                b'\n' => {
                    self.feed();
                    glued = false;
                    if opened.is_none() {
                        return Ok(());
                    }
                }
                b' ' | b'\t' | b'\r' => {
                    self.at += 1;
                    glued = false;
                }
                b';' => self.skip_comment(),
                b'(' => {
                    if let Some((first, _)) = opened {
                        let open = format!("{}:{}", first.line, first.column);
                        return Err(self.error(format!("\"(\" while that at {open} is open: expected \")\" first")));
                    }
                    opened = Some((self.place(), self.at));
                    self.at += 1;
                    glued = false;
                }
                b')' => {
                    if opened.take().is_none() {
                        return Err(self.error("\")\" without \"(\""));
                    }
                    self.at += 1;
                    glued = false;
                }
                b'"' => {
                    let place = self.place();
                    self.at += 1;
                    let start = self.at;
                    self.skip_to(|byte| matches!(byte, b'"' | b'\n'));
                    if self.text.get(self.at) != Some(&b'"') {
                        self.skip_line();
                        let message = "a quoted string without an end: expected \" on the same line".to_owned();
                        return Err(SyntaxError { place, message });
                    }
                    tokens.push(Token { range: start..self.at, place, quoted: true, glued });
                    self.at += 1;
                    glued = true;
                }
                _ => {
                    let (start, place) = (self.at, self.place());
                    self.skip_to(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n' | b';' | b'(' | b')' | b'"'));
                    tokens.push(Token { range: start..self.at, place, quoted: false, glued });
                    glued = true;
                }
            }
        }
        match opened {
            Some((place, at)) => {
                // The rest of the file is not lost: reading goes on at the next line that looks like an entry of its own.
                (self.at, self.line) = (at, place.line);
                self.skip_line();
                while self.text.get(self.at).is_some_and(|byte| matches!(byte, b' ' | b'\t' | b';' | b'\r' | b'\n')) {
                    self.skip_line();
                }
                Err(SyntaxError { place, message: "\"(\" without \")\" until the end of the file".to_owned() })
            }
            None => Ok(()),
        }
    }

    /// Goes to the next byte that ends something and is not escaped.
    fn skip_to(&mut self, ends: impl Fn(u8) -> bool) {
        while let Some(&byte) = self.text.get(self.at) {
            if ends(byte) {
                return;
            }
            // A backslash takes the next byte with it, but not the end of the line.
            let escaped = byte == b'\\' && self.text.get(self.at + 1).is_some_and(|next| *next != b'\n');
            self.at += 1 + usize::from(escaped);
        }
    }

    fn skip_comment(&mut self) {
        let rest = &self.text[self.at..];
        self.at += rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
    }

    fn skip_line(&mut self) {
        self.skip_comment();
        if self.at < self.text.len() {
            self.feed();
        }
    }

    /// Steps over a line feed.
    fn feed(&mut self) {
        self.at += 1;
        self.line += 1;
        self.line_at = self.at;
    }

    fn place(&self) -> Place {
        Place { line: self.line, column: u32::try_from(self.at - self.line_at + 1).unwrap_or(u32::MAX) }
    }

    /// An error here, and the end of the line that it is on.
    fn error(&mut self, message: impl Into<String>) -> SyntaxError {
        let place = self.place();
        self.skip_line();
        SyntaxError { place, message: message.into() }
    }
}

/// The bytes that a token stands for: `\DDD` and `\X` resolved (RFC 1035 section 5.1).
pub(super) fn unescape(text: &[u8]) -> Result<Vec<u8>, &'static str> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text;
    while let [byte, after @ ..] = rest {
        if *byte != b'\\' {
            bytes.push(*byte);
            rest = after;
            continue;
        }
        let (value, length) = escape(after)?;
        bytes.push(value);
        rest = &after[length..];
    }
    Ok(bytes)
}

/// The byte that an escape stands for, and the length of what follows the backslash.
pub(super) fn escape(after: &[u8]) -> Result<(u8, usize), &'static str> {
    match after {
        [a, b, c, ..] if [a, b, c].iter().all(|digit| digit.is_ascii_digit()) => {
            let value = [a, b, c].iter().fold(0u16, |value, digit| value * 10 + u16::from(**digit - b'0'));
            u8::try_from(value).map(|value| (value, 3)).map_err(|_| "an escape above \\255")
        }
        [digit, ..] if digit.is_ascii_digit() => Err("an escape of fewer than three digits: expected \\DDD"),
        [byte, ..] => Ok((*byte, 1)),
        [] => Err("a backslash at the end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Entries as their tokens, `_` in front of those that begin with a blank; errors as `line: message`.
    fn read(text: &str) -> Vec<String> {
        let mut reader = Reader::new(text.as_bytes());
        let mut tokens = Vec::new();
        let mut entries = Vec::new();
        while let Some(entry) = reader.entry(&mut tokens) {
            entries.push(match entry {
                Ok(blank) => {
                    let words: Vec<String> = tokens
                        .iter()
                        .map(|token| {
                            let word = &text[token.range.clone()];
                            let quote = if token.quoted { "\"" } else { "" };
                            let glue = if token.glued { "+" } else { "" };
                            format!("{glue}{quote}{word}{quote}@{}.{}", token.place.line, token.place.column)
                        })
                        .collect();
                    format!("{}{}", if blank { "_ " } else { "" }, words.join(" "))
                }
                Err(error) => format!("{}.{}: {}", error.place.line, error.place.column, error.message),
            });
        }
        entries
    }

    #[test]
    fn entries_and_tokens() {
        let cases: [(&str, &[&str]); 12] = [
            ("", &[]),
            ("a b\n\n ; nothing\n\tc\n", &["a@1.1 b@1.3", "_ c@4.2"]),
            ("\u{feff}a b", &["a@1.1 b@1.3"]),
            ("a ( b ; comment )\n c\n) d\r\ne", &["a@1.1 b@1.5 c@2.2 d@3.3", "e@4.1"]),
            ("a \"b ; (c\" d", &["a@1.1 \"b ; (c\"@1.3 d@1.12"]),
            ("k=\"v w\" \"\"", &["k=@1.1 +\"v w\"@1.3 \"\"@1.9"]),
            ("a\\ b \\\"c \"d\\\"e\"", &["a\\ b@1.1 \\\"c@1.6 \"d\\\"e\"@1.10"]),
            ("a )\nb", &["1.3: \")\" without \"(\"", "b@2.1"]),
            ("a ( ( b\nc", &["1.5: \"(\" while that at 1:3 is open: expected \")\" first", "c@2.1"]),
            ("a \"b\nc", &["1.3: a quoted string without an end: expected \" on the same line", "c@2.1"]),
            ("a\n b (\nc\n", &["a@1.1", "2.4: \"(\" without \")\" until the end of the file", "c@3.1"]),
            ("b ( 1\n  2 ; x\n\n\nc d", &["1.3: \"(\" without \")\" until the end of the file", "c@5.1 d@5.3"]),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), expected, "{text:?}");
        }
    }

    #[test]
    fn escapes() {
        let cases: [(&str, Result<&[u8], &str>); 7] = [
            ("plain", Ok(b"plain")),
            ("\\065\\.\\\\", Ok(b"A.\\")),
            ("\\255", Ok(b"\xff")),
            ("\\256", Err("an escape above \\255")),
            ("\\1x", Err("an escape of fewer than three digits: expected \\DDD")),
            ("x\\", Err("a backslash at the end")),
            ("", Ok(b"")),
        ];
        for (text, expected) in cases {
            assert_eq!(unescape(text.as_bytes()), expected.map(<[u8]>::to_vec), "{text}");
        }
    }
}
