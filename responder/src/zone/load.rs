//! From a master file to records (RFC 1035 section 5): owners, TTLs, classes and directives.
//!
//! Every entry is read, also behind an error, so that all errors come out at once. `$ORIGIN`, `$TTL` (RFC 2308 section 4), `$INCLUDE`, and
//! `$GENERATE` as other servers have it. Numbers of seconds may have units: `1d2h`.

use std::{
    fs,
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    rc::Rc,
    str,
};

use super::{
    LoadErrors, Source,
    rdata::{self, DataError, ScanError, Tokens},
    tokens::{Reader, Token},
};

/// `$INCLUDE` within `$INCLUDE`: deeper than this it is a loop.
const INCLUDE_DEPTH_MAX: usize = 16;
/// Entries that one `$GENERATE` may make.
const GENERATE_MAX: u64 = 65_536;
/// RFC 2181 section 8.
const TTL_MAX: u64 = (1 << 31) - 1;

pub(super) const TYPE_A: u16 = 1;
pub(super) const TYPE_SOA: u16 = 6;
pub(super) const TYPE_AAAA: u16 = 28;

/// What a zone's files say.
#[derive(Debug)]
pub(super) struct Content {
    /// On the wire, in lower case.
    pub(super) apex: Vec<u8>,
    /// The files read; errors name them.
    files: Vec<PathBuf>,
    /// Owners and data.
    arena: Vec<u8>,
    /// Sorted by owner and type; within an RRset as in the file.
    pub(super) records: Vec<Record>,
}

/// A record, by places in the arena.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    owner: u32,
    owner_len: u8,
    data: u32,
    data_len: u16,
    pub(super) rtype: u16,
    pub(super) ttl: u32,
    line: u32,
    file: u16,
}

impl Content {
    pub(super) fn owner(&self, record: &Record) -> &[u8] {
        let start = record.owner as usize;
        &self.arena[start..start + usize::from(record.owner_len)]
    }

    pub(super) fn data(&self, record: &Record) -> &[u8] {
        let start = record.data as usize;
        &self.arena[start..start + usize::from(record.data_len)]
    }

    /// Where a record is: `FILE:LINE`.
    pub(super) fn place(&self, record: &Record) -> String {
        format!("{}:{}", self.files[usize::from(record.file)].display(), record.line)
    }

    /// The zone's own file.
    pub(super) fn file(&self) -> String {
        self.files[0].display().to_string()
    }
}

/// The number of labels of a name on the wire, the root not counted.
pub(super) fn labels(name: &[u8]) -> usize {
    suffixes(name).count() - 1
}

/// A name, its parent, and so on to the root.
pub(super) fn suffixes(name: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(Some(name), |name| {
        let length = usize::from(*name.first()?);
        if length == 0 { None } else { name.get(1 + length..) }
    })
}

/// A name as people write it.
pub(super) fn display(name: &[u8]) -> String {
    let mut text = String::new();
    for suffix in suffixes(name) {
        let length = usize::from(suffix[0]);
        for byte in &suffix[1..=length] {
            match byte {
                b'.' | b'\\' | b'"' | b';' | b'(' | b')' | b'@' | b'$' => text.extend(['\\', char::from(*byte)]),
                0x21..=0x7e => text.push(char::from(*byte)),
                _ => text.push_str(&format!("\\{byte:03}")),
            }
        }
        if length > 0 || text.is_empty() {
            text.push('.');
        }
    }
    text
}

/// Reads a zone's file and what it includes.
pub(super) fn read(source: &Source) -> Result<Content, LoadErrors> {
    let fail = |why: String| LoadErrors(vec![why]);
    let text = fs::read(&source.file)
        .map_err(|error| fail(format!("{}: cannot read zone {}: {error}", source.file.display(), source.name)))?;
    let mut loader = Loader::new(&source.name, source.file.clone(), true)?;
    loader.text(&text, 0);
    loader.finish()
}

/// Reads a zone from text alone.
pub(super) fn read_text(name: &str, text: &[u8]) -> Result<Content, LoadErrors> {
    let mut loader = Loader::new(name, PathBuf::from("text"), false)?;
    loader.text(text, 0);
    loader.finish()
}

/// The owner of the first SOA record in a file: the zone's name, when nobody gives one.
pub(super) fn soa_owner(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let mut reader = Reader::new(&text);
    let mut tokens: Vec<Token> = Vec::new();
    let mut origin = vec![0];
    let mut owner = None;
    while let Some(entry) = reader.entry(&mut tokens) {
        let Ok(blank) = entry else { continue };
        let word = |index: usize| tokens.get(index).map(|token: &Token| &text[token.range.clone()]);
        if word(0)?.eq_ignore_ascii_case(b"$ORIGIN") {
            origin = rdata::name(word(1)?, &origin).ok()?;
            continue;
        }
        if !blank {
            owner = rdata::name(word(0)?, &origin).ok();
        }
        let words = (usize::from(!blank)..tokens.len()).filter_map(word);
        if words.take(3).any(|word| word.eq_ignore_ascii_case(b"SOA")) {
            return owner.map(|owner| display(&owner));
        }
    }
    None
}

struct Loader {
    content: Content,
    errors: Vec<String>,
    may_include: bool,
    origin: Rc<[u8]>,
    /// `$TTL`, else the TTL last stated.
    default_ttl: Option<u32>,
    last_ttl: Option<u32>,
    last_owner: Option<(u32, u8)>,
    file: u16,
}

impl Loader {
    fn new(name: &str, file: PathBuf, may_include: bool) -> Result<Self, LoadErrors> {
        let mut apex = rdata::name(name.as_bytes(), &[0])
            .map_err(|error| LoadErrors(vec![format!("{}: zone {name}: {error}", file.display())]))?;
        apex.make_ascii_lowercase();
        Ok(Self {
            origin: Rc::from(apex.as_slice()),
            content: Content { apex, files: vec![file], arena: Vec::new(), records: Vec::new() },
            errors: Vec::new(),
            may_include,
            default_ttl: None,
            last_ttl: None,
            last_owner: None,
            file: 0,
        })
    }

    fn text(&mut self, text: &[u8], depth: usize) {
        let mut reader = Reader::new(text);
        let mut tokens = Vec::new();
        while let Some(entry) = reader.entry(&mut tokens) {
            match entry {
                Ok(blank) => {
                    if let Err(error) = self.entry(text, &tokens, blank, depth) {
                        // Where the entry ended too early, that is its last line.
                        let line = tokens.get(error.token).or(tokens.last()).map_or(0, |token| token.line);
                        self.error(line, &error.message);
                    }
                }
                Err(error) => self.error(error.line, &error.message),
            }
        }
    }

    fn error(&mut self, line: u32, message: &str) {
        self.errors.push(format!("{}:{line}: {message}", self.content.files[usize::from(self.file)].display()));
    }

    fn entry(&mut self, text: &[u8], tokens: &[Token], blank: bool, depth: usize) -> Result<(), DataError> {
        let first = &tokens[0];
        let word = &text[first.range.clone()];
        if word.first() == Some(&b'$') && !first.quoted && !blank {
            return self.directive(text, tokens, depth);
        }
        let origin = Rc::clone(&self.origin);
        let mut words = Tokens::new(text, tokens, &origin);
        if !blank {
            let owner = words.name().map_err(|error| at(0, error))?;
            self.owner(owner);
        }
        let owner_at = usize::from(!blank);
        let (ttl, rtype, type_at) = self.head(&mut words, owner_at)?;
        let Some((owner, owner_len)) = self.last_owner else {
            return Err(at(0, ScanError("an entry without an owner, and none before it".to_owned())));
        };
        let data = self.content.arena.len();
        if let Err(error) = self.data(rtype, &mut words) {
            self.content.arena.truncate(data);
            return Err(DataError {
                message: format!("{}: {}", rdata::type_name(rtype), error.message),
                token: error.token,
            });
        }
        let data_len = self.content.arena.len() - data;
        let ttl = self
            .ttl(ttl, rtype)
            .ok_or_else(|| at(type_at, ScanError("no TTL: expected one here, or a $TTL line before".to_owned())))?;
        let (Ok(data), Ok(data_len)) = (u32::try_from(data), u16::try_from(data_len)) else {
            return Err(at(type_at, ScanError("the zone is too large: its records have more than 4 GB".to_owned())));
        };
        let name = &self.content.arena[owner as usize..owner as usize + usize::from(owner_len)];
        if !suffixes(name).any(|suffix| suffix == self.content.apex) {
            let message = format!("{} is not in zone {}", display(name), display(&self.content.apex));
            return Err(at(0, ScanError(message)));
        }
        let line = tokens[type_at].line;
        self.content.records.push(Record { owner, owner_len, data, data_len, rtype, ttl, line, file: self.file });
        Ok(())
    }

    /// Remembers the owner for this entry and for those that begin with a blank.
    fn owner(&mut self, mut owner: Vec<u8>) {
        owner.make_ascii_lowercase();
        let known = self.last_owner.is_some_and(|(start, length)| {
            self.content.arena[start as usize..start as usize + usize::from(length)] == owner
        });
        if !known {
            let start = u32::try_from(self.content.arena.len()).unwrap_or(u32::MAX);
            self.last_owner = u8::try_from(owner.len()).ok().map(|length| (start, length));
            self.content.arena.extend_from_slice(&owner);
        }
    }

    /// TTL and class in either order, each at most once, then the type. Returns the index of the type's token too.
    fn head(&self, words: &mut Tokens<'_>, first: usize) -> Result<(Option<u32>, u16, usize), DataError> {
        let mut ttl = None;
        let mut class = false;
        for index in first.. {
            let word = words
                .take()
                .map_err(|_| at(index, ScanError("the entry ends where a type was expected".to_owned())))?;
            let begins_with_digit = word.first().is_some_and(u8::is_ascii_digit);
            match word {
                _ if begins_with_digit && ttl.is_none() => {
                    ttl = Some(seconds(word).map_err(|error| at(index, error))?);
                }
                _ if [&b"IN"[..], b"CLASS1"].iter().any(|name| word.eq_ignore_ascii_case(name)) && !class => {
                    class = true
                }
                _ if is_other_class(word) => {
                    return Err(at(index, ScanError("only class IN is served".to_owned())));
                }
                _ => {
                    let rtype = rdata::type_of(word).ok_or_else(|| {
                        let word = String::from_utf8_lossy(word);
                        at(
                            index,
                            ScanError(format!(
                                "{word:?} is no record type: expected a TTL, IN, or a type such as AAAA or TYPE65"
                            )),
                        )
                    })?;
                    return Ok((ttl, rtype, index));
                }
            }
        }
        unreachable!("the loop ends with a type or an error")
    }

    /// The record's data. Addresses, of which there are most, need no scanner.
    fn data(&mut self, rtype: u16, words: &mut Tokens<'_>) -> Result<(), DataError> {
        let text = words.peek().and_then(|word| str::from_utf8(word).ok());
        let v4 = text.filter(|_| rtype == TYPE_A).and_then(|text| text.parse::<Ipv4Addr>().ok());
        let v6 = text.filter(|_| rtype == TYPE_AAAA).and_then(|text| text.parse::<Ipv6Addr>().ok());
        match (rtype, v4, v6) {
            (_, Some(address), _) => self.content.arena.extend_from_slice(&address.octets()),
            (_, _, Some(address)) => self.content.arena.extend_from_slice(&address.octets()),
            (TYPE_SOA, ..) => return soa(words, &mut self.content.arena),
            _ => return rdata::read(rtype, words, &mut self.content.arena),
        }
        let _address = words.take();
        words.end().map_err(|error| at(words.position(), error))
    }

    /// RFC 2308 section 4; without any statement a zone's SOA has its own MINIMUM, as in the days before `$TTL`.
    fn ttl(&mut self, stated: Option<u32>, rtype: u16) -> Option<u32> {
        let minimum = || {
            let bytes = self.content.arena.last_chunk::<4>().filter(|_| rtype == TYPE_SOA)?;
            Some(u32::from_be_bytes(*bytes))
        };
        let ttl = stated.or(self.default_ttl).or(self.last_ttl).or_else(minimum);
        self.last_ttl = ttl;
        ttl
    }

    fn directive(&mut self, text: &[u8], tokens: &[Token], depth: usize) -> Result<(), DataError> {
        let origin = Rc::clone(&self.origin);
        let mut words = Tokens::new(text, tokens, &origin);
        let directive = words.take().map_err(|error| at(0, error))?.to_ascii_uppercase();
        let result = match directive.as_slice() {
            b"$ORIGIN" => words.name().and_then(|origin| {
                words.end()?;
                self.origin = origin.into();
                Ok(())
            }),
            b"$TTL" => words.take().and_then(seconds).and_then(|ttl| {
                words.end()?;
                self.default_ttl = Some(ttl);
                Ok(())
            }),
            b"$INCLUDE" => self.include(&mut words, depth),
            b"$GENERATE" => return self.generate(text, tokens),
            _ => Err(ScanError(format!(
                "{:?} is no directive: expected $ORIGIN, $TTL, $INCLUDE or $GENERATE",
                String::from_utf8_lossy(&directive)
            ))),
        };
        result.map_err(|error| at(words.position(), error))
    }

    /// `$INCLUDE file [origin]`: the file's own `$ORIGIN` and owner end with it (RFC 1035 section 5.1).
    fn include(&mut self, words: &mut Tokens<'_>, depth: usize) -> Result<(), ScanError> {
        let file = String::from_utf8_lossy(words.take()?).into_owned();
        let origin = if words.peek().is_some() { words.name()?.into() } else { Rc::clone(&self.origin) };
        words.end()?;
        if !self.may_include {
            return Err(ScanError("$INCLUDE is not taken here".to_owned()));
        }
        if depth >= INCLUDE_DEPTH_MAX {
            return Err(ScanError(format!("$INCLUDE is {INCLUDE_DEPTH_MAX} files deep: does a file include itself?")));
        }
        let including = usize::from(self.file);
        let path = self.content.files[including].parent().unwrap_or(Path::new("")).join(&file);
        let text = fs::read(&path).map_err(|error| ScanError(format!("cannot read {}: {error}", path.display())))?;
        let outer = (self.file, std::mem::replace(&mut self.origin, origin), self.last_owner.take());
        self.file = u16::try_from(self.content.files.len()).map_err(|_| ScanError("too many files".to_owned()))?;
        self.content.files.push(path);
        self.text(&text, depth + 1);
        (self.file, self.origin, self.last_owner) = outer;
        Ok(())
    }

    /// `$GENERATE first-last[/step] owner [ttl] [class] type data`, with `$` for the number in owner and data.
    fn generate(&mut self, text: &[u8], tokens: &[Token]) -> Result<(), DataError> {
        let word = |index: usize| tokens.get(index).map(|token| &text[token.range.clone()]);
        let (first, last, step) = word(1).and_then(range).ok_or_else(|| {
            at(
                1,
                ScanError(format!(
                    "$GENERATE: expected a range such as 1-100 or 1-100/2, of at most {GENERATE_MAX} numbers"
                )),
            )
        })?;
        if tokens.len() < 5 {
            return Err(at(0, ScanError("$GENERATE: expected a range, an owner, a type and data".to_owned())));
        }
        let line = tokens[0].line;
        let mut made = Vec::new();
        let mut number = first;
        while number <= last {
            made.clear();
            let mut places = Vec::with_capacity(tokens.len() - 2);
            for (index, token) in tokens.iter().enumerate().skip(2) {
                let start = made.len();
                substitute(&text[token.range.clone()], number, &mut made)
                    .map_err(|error| at(index, ScanError(format!("$GENERATE: {error}"))))?;
                places.push(Token { range: start..made.len(), line, quoted: token.quoted, glued: token.glued });
            }
            self.entry(&made, &places, false, INCLUDE_DEPTH_MAX).map_err(|error| DataError {
                message: format!("$GENERATE at {number}: {}", error.message),
                token: 0,
            })?;
            number += step;
        }
        Ok(())
    }

    /// Sorts, takes duplicates out, and ends with the content or with all errors.
    fn finish(mut self) -> Result<Content, LoadErrors> {
        if !self.errors.is_empty() {
            return Err(LoadErrors(self.errors));
        }
        let mut records = std::mem::take(&mut self.content.records);
        let content = &self.content;
        records.sort_by(|a, b| content.owner(a).cmp(content.owner(b)).then(a.rtype.cmp(&b.rtype)));
        // RFC 2181 section 5: the same record twice is one record.
        let mut first: Option<Record> = None;
        let mut seen = std::collections::HashSet::new();
        records.retain(|record| {
            let set =
                first.filter(|first| first.rtype == record.rtype && content.owner(first) == content.owner(record));
            let Some(first_of_set) = set else {
                first = Some(*record);
                seen.clear();
                return true;
            };
            seen.insert(content.data(&first_of_set));
            seen.insert(content.data(record))
        });
        self.content.records = records;
        Ok(self.content)
    }
}

/// A class that is not ours, by its mnemonic or as RFC 3597 section 5 writes any class.
fn is_other_class(word: &[u8]) -> bool {
    let generic = word.split_at_checked(5).is_some_and(|(prefix, digits)| {
        prefix.eq_ignore_ascii_case(b"CLASS") && digits != b"1" && digits.iter().all(u8::is_ascii_digit)
    });
    generic || [&b"CH"[..], b"HS", b"CS"].iter().any(|other| word.eq_ignore_ascii_case(other))
}

fn at(token: usize, error: ScanError) -> DataError {
    DataError { message: error.0, token }
}

/// SOA (RFC 1035 section 3.3.13), whose times may have units.
fn soa(words: &mut Tokens<'_>, bytes: &mut Vec<u8>) -> Result<(), DataError> {
    if words.peek() == Some(b"\\#") {
        return rdata::read(TYPE_SOA, words, bytes);
    }
    let mut fields = || -> Result<(), ScanError> {
        for _ in 0..2 {
            bytes.extend_from_slice(&words.name()?);
        }
        bytes.extend_from_slice(&words.number::<u32>("a serial number")?.to_be_bytes());
        for _ in 0..4 {
            bytes.extend_from_slice(&seconds(words.take()?)?.to_be_bytes());
        }
        words.end()
    };
    fields().map_err(|error| at(words.position(), error))
}

/// Seconds, as a number or with units: `3600`, `1h`, `1w2d3h4m5s`.
fn seconds(word: &[u8]) -> Result<u32, ScanError> {
    let fail = || {
        ScanError(format!(
            "{:?} is no time: expected seconds up to {TTL_MAX}, or units as in 1d12h",
            String::from_utf8_lossy(word)
        ))
    };
    let mut total = 0u64;
    let mut number: Option<u64> = None;
    for byte in word {
        if byte.is_ascii_digit() {
            let digit = u64::from(byte - b'0');
            number = Some(
                number.unwrap_or(0).checked_mul(10).and_then(|number| number.checked_add(digit)).ok_or_else(fail)?,
            );
            continue;
        }
        let unit = match byte.to_ascii_lowercase() {
            b's' => 1,
            b'm' => 60,
            b'h' => 3600,
            b'd' => 86_400,
            b'w' => 604_800,
            _ => return Err(fail()),
        };
        let part = number.take().and_then(|number| number.checked_mul(unit)).ok_or_else(fail)?;
        total = total.checked_add(part).ok_or_else(fail)?;
    }
    if word.is_empty() {
        return Err(fail());
    }
    total = total.checked_add(number.unwrap_or(0)).ok_or_else(fail)?;
    u32::try_from(total).ok().filter(|_| total <= TTL_MAX).ok_or_else(fail)
}

/// `first-last` or `first-last/step`.
fn range(word: &[u8]) -> Option<(u64, u64, u64)> {
    let word = str::from_utf8(word).ok()?;
    let (range, step) = word.split_once('/').unwrap_or((word, "1"));
    let (first, last) = range.split_once('-')?;
    let (first, last, step): (u32, u32, u32) = (first.parse().ok()?, last.parse().ok()?, step.parse().ok()?);
    let (first, last, step) = (u64::from(first), u64::from(last), u64::from(step));
    (first <= last && step > 0 && (last - first) / step < GENERATE_MAX).then_some((first, last, step))
}

/// Puts the number in: `$`, or `${offset,width,base}`; `\$` is a dollar sign.
fn substitute(word: &[u8], number: u64, made: &mut Vec<u8>) -> Result<(), String> {
    let mut rest = word;
    while let [byte, after @ ..] = rest {
        rest = after;
        match (byte, after) {
            (b'\\', [b'$', after @ ..]) => {
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

/// The number with an offset added, at least `width` wide, in decimal, octal or hexadecimal.
fn modified(modifier: &[u8], number: u64) -> Result<String, String> {
    let text = str::from_utf8(modifier).unwrap_or_default();
    let fail = || format!("{:?}: expected offset,width,base as in ${{0,3,d}}", String::from_utf8_lossy(modifier));
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
        _ => Err(fail()),
    }
}
