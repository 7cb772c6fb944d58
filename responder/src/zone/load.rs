//! From a master file to records (RFC 1035 section 5): owners, TTLs, classes and directives.
//!
//! Every entry is read, also behind an error, so that all errors come out at once. `$ORIGIN`, `$TTL` (RFC 2308 section 4), `$INCLUDE`, and
//! `$GENERATE` as other servers have it. Numbers of seconds may have units: `1d2h`.

use std::{
    borrow::Cow,
    collections::HashSet,
    fs,
    net::{Ipv4Addr, Ipv6Addr},
    path::{Path, PathBuf},
    rc::Rc,
    str,
};

use super::{
    LoadErrors, Source, check,
    generate::{self, Generate, Made},
    rdata::{self, DataError, ScanError, Tokens, shown},
    tokens::{Place, Reader, Token},
};

/// `$INCLUDE` within `$INCLUDE`: deeper than this it is a loop.
const INCLUDE_DEPTH_MAX: usize = 16;
/// RFC 2181 section 8.
const TTL_MAX: u64 = (1 << 31) - 1;

pub(super) const TYPE_A: u16 = 1;
pub(super) const TYPE_SOA: u16 = 6;
pub(super) const TYPE_AAAA: u16 = 28;

/// What a zone's files say.
#[derive(Debug, Default)]
pub(super) struct Content {
    /// On the wire, in lower case.
    pub(super) apex: Vec<u8>,
    /// The files read; errors name them.
    pub(super) files: Vec<PathBuf>,
    /// Owners and data.
    arena: Vec<u8>,
    /// Sorted by owner and type; within an RRset as in the file.
    pub(super) records: Vec<Record>,
    /// What is odd about the text and no error.
    pub(super) warnings: Vec<Problem>,
}

/// Something to say of a place in a zone's files. They are sorted by place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Problem {
    file: u16,
    place: Place,
    pub(super) message: String,
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
    /// Of its type; 0 if that is too far to the right to be kept.
    column: u8,
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

    /// Where a record is: `FILE:LINE:COLUMN`.
    pub(super) fn place(&self, record: &Record) -> String {
        self.place_text(record.file, record.place())
    }

    /// Something to say of a record.
    pub(super) fn problem(&self, record: &Record, message: String) -> Problem {
        Problem { file: record.file, place: record.place(), message }
    }

    /// Something to say of the zone as a whole: of the first place in its own file.
    pub(super) fn problem_of_zone(&self, message: String) -> Problem {
        Problem { file: 0, place: Place { line: 1, column: 1 }, message }
    }

    /// A problem as it is shown.
    pub(super) fn text(&self, problem: &Problem) -> String {
        format!("{}: {}", self.place_text(problem.file, problem.place), problem.message)
    }

    fn place_text(&self, file: u16, place: Place) -> String {
        let file = self.files[usize::from(file)].display();
        match place.column {
            0 => format!("{file}:{}", place.line),
            column => format!("{file}:{}:{column}", place.line),
        }
    }
}

impl Record {
    /// Whichever of two records stands first.
    pub(super) fn min_by_place<'r>(&'r self, other: &'r Self) -> &'r Self {
        if (other.file, other.place()) < (self.file, self.place()) { other } else { self }
    }

    fn place(&self) -> Place {
        Place { line: self.line, column: u32::from(self.column) }
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

/// A zone's name on the wire, in lower case.
pub(super) fn apex(source: &Source) -> Result<Vec<u8>, String> {
    let mut apex = rdata::name(source.name.as_bytes(), &[0])
        .map_err(|error| format!("{}: zone {}: {error}", source.file.display(), source.name))?;
    apex.make_ascii_lowercase();
    Ok(apex)
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
    errors: Vec<Problem>,
    may_include: bool,
    /// The files that are being read, each included by the one before.
    open: Vec<PathBuf>,
    origin: Rc<[u8]>,
    /// `$TTL`, else the TTL last stated.
    default_ttl: Option<u32>,
    last_ttl: Option<u32>,
    last_owner: Option<(u32, u8)>,
    file: u16,
}

impl Loader {
    fn new(name: &str, file: PathBuf, may_include: bool) -> Result<Self, LoadErrors> {
        let source = Source { name: name.to_owned(), file };
        let apex = apex(&source).map_err(|error| LoadErrors(vec![error]))?;
        let file = source.file;
        Ok(Self {
            origin: Rc::from(apex.as_slice()),
            open: fs::canonicalize(&file).into_iter().collect(),
            content: Content { apex, files: vec![file], arena: Vec::new(), records: Vec::new(), warnings: Vec::new() },
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
            let (place, mut message) = match entry {
                Ok(blank) => match self.entry(text, &tokens, blank, depth) {
                    Ok(()) => continue,
                    // Where the entry ended too early, that is at its last token.
                    Err(error) => match tokens.get(error.token).or(tokens.last()) {
                        Some(token) => (token.place, error.message),
                        None => continue,
                    },
                },
                Err(error) => (error.place, error.message),
            };
            if reader.cut_short().is_some() {
                message.push_str(" (the file ends with this line and without a line feed: is it cut short?)");
            }
            self.errors.push(Problem { file: self.file, place, message });
        }
        if let (Some(place), true) = (reader.cut_short(), self.may_include) {
            let message = "the file ends without a line feed: is it cut short?".to_owned();
            self.content.warnings.push(Problem { file: self.file, place, message });
        }
    }

    fn entry(&mut self, text: &[u8], tokens: &[Token], blank: bool, depth: usize) -> Result<(), DataError> {
        let first = &tokens[0];
        let word = &text[first.range.clone()];
        if word.first() == Some(&b'$') && !first.quoted && !blank {
            return self.directive(text, tokens, depth);
        }
        let origin = Rc::clone(&self.origin);
        self.record(text, tokens, blank, &origin)
    }

    fn record(&mut self, text: &[u8], tokens: &[Token], blank: bool, origin: &[u8]) -> Result<(), DataError> {
        let mut words = Tokens::new(text, tokens, origin);
        if !blank {
            let owner = words.name().map_err(|error| at(0, error))?;
            self.owner(owner);
        }
        let owner_at = usize::from(!blank);
        let (ttl, rtype, type_at) = self.head(&mut words, owner_at)?;
        let Some((owner, owner_len)) = self.last_owner else {
            return Err(at(0, ScanError::new("an entry without an owner, and none before it".to_owned())));
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
        let ttl = self.ttl(ttl, rtype).ok_or_else(|| {
            at(type_at, ScanError::new("no TTL: expected one here, or a $TTL line before".to_owned()))
        })?;
        let (Ok(data), Ok(data_len)) = (u32::try_from(data), u16::try_from(data_len)) else {
            return Err(at(
                type_at,
                ScanError::new("the zone is too large: its records have more than 4 GB".to_owned()),
            ));
        };
        let name = &self.content.arena[owner as usize..owner as usize + usize::from(owner_len)];
        if !suffixes(name).any(|suffix| suffix == self.content.apex) {
            let message = format!("{} is not in zone {}", display(name), display(&self.content.apex));
            return Err(at(0, ScanError::new(message)));
        }
        let Place { line, column } = tokens[type_at].place;
        let column = u8::try_from(column).unwrap_or(0);
        self.content.records.push(Record {
            owner,
            owner_len,
            data,
            data_len,
            rtype,
            ttl,
            line,
            column,
            file: self.file,
        });
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
                .map_err(|_| at(index, ScanError::new("the entry ends where a type was expected".to_owned())))?;
            let begins_with_digit = word.first().is_some_and(u8::is_ascii_digit);
            match word {
                _ if begins_with_digit && ttl.is_none() => {
                    ttl = Some(seconds(word).map_err(|error| at(index, error))?);
                }
                _ if [&b"IN"[..], b"CLASS1"].iter().any(|name| word.eq_ignore_ascii_case(name)) && !class => {
                    class = true
                }
                _ if is_other_class(word) => {
                    return Err(at(index, ScanError::unexpected(word, "class IN, the only one that is served")));
                }
                _ => {
                    let rtype = rdata::type_of(word).ok_or_else(|| {
                        let expected = "expected a TTL, the class IN, or a type such as AAAA or TYPE65";
                        at(index, ScanError::new(format!("{} is no record type: {expected}", shown(word))))
                    })?;
                    if rdata::is_meta(rtype) {
                        let message = format!("{} is no type that a zone holds", shown(word));
                        return Err(at(index, ScanError::new(message)));
                    }
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
            _ => Err(ScanError::new(format!(
                "{} is no directive: expected $ORIGIN, $TTL, $INCLUDE or $GENERATE",
                shown(&directive)
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
            return Err(ScanError::new("$INCLUDE is not taken here"));
        }
        if depth >= INCLUDE_DEPTH_MAX {
            let message = format!("$INCLUDE: expected at most {INCLUDE_DEPTH_MAX} files within each other");
            return Err(ScanError::new(message));
        }
        let including = usize::from(self.file);
        let path = self.content.files[including].parent().unwrap_or(Path::new("")).join(&file);
        let read = || Ok((fs::canonicalize(&path)?, fs::read(&path)?));
        let (real, text) = read().map_err(|error: std::io::Error| {
            ScanError::new(format!("$INCLUDE: cannot read {}: {error}", path.display()))
        })?;
        if self.open.contains(&real) {
            return Err(ScanError::new(format!("$INCLUDE: {} includes itself", path.display())));
        }
        let outer = (self.file, std::mem::replace(&mut self.origin, origin), self.last_owner.take());
        self.file = u16::try_from(self.content.files.len()).map_err(|_| ScanError::new("too many files".to_owned()))?;
        self.content.files.push(path);
        self.open.push(real);
        self.text(&text, depth + 1);
        self.open.pop();
        (self.file, self.origin, self.last_owner) = outer;
        Ok(())
    }

    /// The entries of one `$GENERATE`, up to the first that is wrong: the others would be in the same way.
    fn generate(&mut self, text: &[u8], tokens: &[Token]) -> Result<(), DataError> {
        for made in Generate::new(text, tokens)? {
            let Made { number, text, tokens } = made?;
            self.entry(&text, &tokens, false, INCLUDE_DEPTH_MAX).map_err(|error| DataError {
                message: format!("$GENERATE at {number}: {}", error.message),
                token: error.token + generate::BEFORE_OWNER,
            })?;
        }
        Ok(())
    }

    /// Sorts, takes duplicates out, and ends with the content or with all errors.
    fn finish(mut self) -> Result<Content, LoadErrors> {
        let mut records = std::mem::take(&mut self.content.records);
        let content = &self.content;
        records.sort_by(|a, b| content.owner(a).cmp(content.owner(b)).then(a.rtype.cmp(&b.rtype)));
        // RFC 2181 section 5: the same record twice is one record. Most RRsets have one, which is compared with nothing.
        let mut seen: HashSet<Cow<'_, [u8]>> = HashSet::new();
        let mut last: Option<Record> = None;
        records.retain(|record| {
            let data = |record: &Record| rdata::canonical(record.rtype, content.data(record));
            let before = last.replace(*record);
            let before =
                before.filter(|before| before.rtype == record.rtype && content.owner(before) == content.owner(record));
            let Some(before) = before else {
                seen.clear();
                return true;
            };
            if seen.is_empty() {
                seen.insert(data(&before));
            }
            seen.insert(data(record))
        });
        self.content.records = records;
        if self.errors.is_empty() {
            return Ok(self.content);
        }
        // What is wrong with the records that could be read is worth knowing too.
        self.errors.extend(check::errors_of_part(&self.content));
        self.errors.sort();
        Err(LoadErrors(self.errors.iter().map(|error| self.content.text(error)).collect()))
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
    DataError { message: error.message(None), token }
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
        ScanError::new(format!("{} is no time: expected seconds up to {TTL_MAX}, or units as in 1d12h", shown(word)))
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
