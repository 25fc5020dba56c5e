//! Plain JSON objects, one a line, into the columns that are wanted of them.
//!
//! A line is *read* here if it is an object of valid JSON (RFC 8259) in which each wanted column is missing or stands
//! once, with a value whose meaning is beyond doubt: short whole numbers, decimals that 64 bits round once, texts without
//! halves of surrogate pairs. All else is *odd* and left to the caller, who has a complete reader. Both agree where this
//! one answers, so that what becomes of a line depends on that line alone, whoever reads it.

use std::ops::Range;

/// What a column takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Texts, whole numbers and booleans, as texts.
    Label,
    /// Numbers.
    Number,
    /// Texts.
    Text,
    /// Texts, and whole numbers as texts.
    TextOrInteger,
}

/// Nesting beyond this is odd.
const DEEPEST: usize = 32;
/// A number with more bytes is odd.
const LONGEST_NUMBER: usize = 40;
/// Whole numbers of so many digits fit in 64 bits, and decimals of as many are rounded once by any sound reader.
const MOST_DIGITS: usize = 17;
const LARGEST_EXPONENT: u32 = 22;

/// More columns than this are not read here.
pub const MOST_COLUMNS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Found<'a> {
    Nothing,
    Plain(&'a [u8]),
    Escaped(&'a [u8]),
    Number(f64),
}

/// The values of one column, in the rows that were read.
#[derive(Default)]
pub struct Column {
    /// The texts, one after the other; empty where the column is of numbers.
    pub bytes: Vec<u8>,
    /// Where each row's text ends.
    pub ends: Vec<u64>,
    /// The numbers, where the column is of them.
    pub numbers: Vec<f64>,
    /// Whether a row has a value.
    pub has: Vec<bool>,
}

/// What became of some lines.
#[derive(Default)]
pub struct Read {
    /// For each wanted column the values of the rows that were read.
    pub columns: Vec<Column>,
    /// Which lines these are, counted from 0.
    pub places: Vec<u64>,
    /// The lines that are left to the caller, and where they stand in the text.
    pub odd: Vec<(u64, Range<usize>)>,
    /// How many lines there are; those that are neither are blank.
    pub lines: u64,
}

/// Reads lines, each by itself.
pub struct LineReader<'n> {
    names: &'n [Vec<u8>],
    kinds: &'n [Kind],
    read: Read,
}

impl<'n> LineReader<'n> {
    /// A reader of so many columns, at most `MOST_COLUMNS`.
    pub fn new(names: &'n [Vec<u8>], kinds: &'n [Kind]) -> Self {
        let columns = kinds.iter().map(|_| Column::default()).collect();
        LineReader { names, kinds, read: Read { columns, ..Read::default() } }
    }

    /// The lines of a text, cut at line feeds; a carriage return at the end of a line is not part of it.
    pub fn block(mut self, text: &[u8]) -> Read {
        // In a text of valid UTF-8 each line is.
        let is_text = std::str::from_utf8(text).is_ok();
        let mut found = [Found::Nothing; MOST_COLUMNS];
        let mut start = 0;
        while start <= text.len() {
            let end = next_line_feed(text, start);
            let last = if end > start && text[end - 1] == b'\r' { end - 1 } else { end };
            self.line(text, start..last, is_text, &mut found);
            start = end + 1;
        }
        self.read
    }

    /// The lines of a text that has been joined of lines of these lengths, which may hold line feeds.
    pub fn joined(mut self, text: &[u8], lengths: &[u32]) -> Read {
        let mut found = [Found::Nothing; MOST_COLUMNS];
        let mut start = 0;
        for &length in lengths {
            let end = text.len().min(start + length as usize);
            self.line(text, start..end, false, &mut found);
            start = end;
        }
        self.read
    }

    fn line<'a>(
        &mut self,
        text: &'a [u8],
        span: Range<usize>,
        is_text: bool,
        found: &mut [Found<'a>; MOST_COLUMNS],
    ) {
        let bytes = &text[span.clone()];
        let place = self.read.lines;
        self.read.lines += 1;
        found[..self.kinds.len()].fill(Found::Nothing);
        let is_read = (is_text || std::str::from_utf8(bytes).is_ok())
            && Cursor { bytes, place: 0 }.record(self.names, self.kinds, found).is_some();
        if is_read {
            self.read.places.push(place);
            for ((column, kind), value) in self.read.columns.iter_mut().zip(self.kinds).zip(found.iter()) {
                column.push(*kind, *value);
            }
        } else if !bytes.iter().all(|byte| matches!(byte, b' ' | b'\t' | b'\r' | b'\n')) {
            self.read.odd.push((place, span));
        }
    }
}

impl Column {
    fn push(&mut self, kind: Kind, value: Found<'_>) {
        self.has.push(value != Found::Nothing);
        if kind == Kind::Number {
            self.numbers.push(if let Found::Number(number) = value { number } else { 0.0 });
            return;
        }
        match value {
            Found::Plain(text) => self.bytes.extend_from_slice(text),
            Found::Escaped(text) => unescape(text, &mut self.bytes),
            Found::Nothing | Found::Number(_) => {}
        }
        self.ends.push(self.bytes.len() as u64);
    }
}

fn next_line_feed(text: &[u8], start: usize) -> usize {
    let (words, rest) = text[start..].as_chunks::<8>();
    for (number, word) in words.iter().enumerate() {
        let marks = zero_bytes(u64::from_le_bytes(*word) ^ u64::from_le_bytes([b'\n'; 8]));
        if marks != 0 {
            return start + 8 * number + marks.trailing_zeros() as usize / 8;
        }
    }
    let tail = text.len() - rest.len();
    rest.iter().position(|&byte| byte == b'\n').map_or(text.len(), |place| tail + place)
}

/// The high bit of the lowest byte that is 0, and of none below it.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
}

/// The high bit of the lowest byte that ends the plain part of a text: a quote, a backslash, or below 32.
#[inline]
fn special_bytes(word: u64) -> u64 {
    let control = word.wrapping_sub(0x2020_2020_2020_2020) & !word & 0x8080_8080_8080_8080;
    control
        | zero_bytes(word ^ u64::from_le_bytes([b'"'; 8]))
        | zero_bytes(word ^ u64::from_le_bytes([b'\\'; 8]))
}

struct Cursor<'a> {
    bytes: &'a [u8],
    place: usize,
}

struct Numeral<'a> {
    text: &'a [u8],
    digits: usize,
    is_whole: bool,
    is_zero: bool,
    exponent: u32,
}

impl<'a> Cursor<'a> {
    #[inline]
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.place).copied()
    }

    #[inline]
    fn skip_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.place += 1;
        }
    }

    #[inline]
    fn take(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.place += 1)
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.bytes[self.place..].starts_with(word).then(|| self.place += word.len())
    }

    /// The whole line as a record; None if it is odd.
    fn record(
        mut self,
        names: &[Vec<u8>],
        kinds: &[Kind],
        found: &mut [Found<'a>; MOST_COLUMNS],
    ) -> Option<()> {
        let mut seen = 0u64;
        self.skip_space();
        self.take(b'{')?;
        self.skip_space();
        if self.peek()? == b'}' {
            self.place += 1;
        } else {
            loop {
                self.skip_space();
                let Found::Plain(key) = self.text()? else { return None };
                self.skip_space();
                self.take(b':')?;
                self.skip_space();
                if let Some(column) = names.iter().position(|name| name == key) {
                    if seen & (1 << column) != 0 {
                        return None;
                    }
                    seen |= 1 << column;
                    found[column] = self.value(kinds[column])?;
                } else {
                    self.skip_value(0)?;
                }
                self.skip_space();
                match self.peek()? {
                    b',' => self.place += 1,
                    b'}' => {
                        self.place += 1;
                        break;
                    }
                    _ => return None,
                }
            }
        }
        self.skip_space();
        (self.place == self.bytes.len()).then_some(())
    }

    fn value(&mut self, kind: Kind) -> Option<Found<'a>> {
        let start = self.place;
        match self.peek()? {
            b'n' => self.word(b"null").map(|()| Found::Nothing),
            b'"' if kind != Kind::Number => self.text(),
            b't' if kind == Kind::Label => self.word(b"true").map(|()| Found::Plain(b"true")),
            b'f' if kind == Kind::Label => self.word(b"false").map(|()| Found::Plain(b"false")),
            b'-' | b'0'..=b'9' if kind != Kind::Text => {
                let numeral = self.numeral()?;
                // What stands for minus zero differs between whole numbers and decimals.
                let is_minus_zero = numeral.is_zero && self.bytes[start] == b'-';
                if numeral.digits > MOST_DIGITS || is_minus_zero || numeral.exponent > LARGEST_EXPONENT {
                    return None;
                }
                if kind == Kind::Number {
                    return std::str::from_utf8(numeral.text).ok()?.parse().ok().map(Found::Number);
                }
                numeral.is_whole.then_some(Found::Plain(numeral.text))
            }
            _ => None,
        }
    }

    /// A text in quotes, without them.
    fn text(&mut self) -> Option<Found<'a>> {
        self.take(b'"')?;
        let start = self.place;
        let mut is_plain = true;
        loop {
            while let Some(word) = self.bytes[self.place..].first_chunk::<8>() {
                let marks = special_bytes(u64::from_le_bytes(*word));
                if marks != 0 {
                    self.place += marks.trailing_zeros() as usize / 8;
                    break;
                }
                self.place += 8;
            }
            match self.peek()? {
                b'"' => break,
                b'\\' => {
                    is_plain = false;
                    self.escape()?;
                }
                0..=31 => return None,
                _ => self.place += 1,
            }
        }
        let text = &self.bytes[start..self.place];
        self.place += 1;
        Some(if is_plain { Found::Plain(text) } else { Found::Escaped(text) })
    }

    fn escape(&mut self) -> Option<()> {
        let sign = *self.bytes.get(self.place + 1)?;
        self.place += 2;
        match sign {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let code = code_point(self.bytes.get(self.place..self.place + 4)?)?;
                self.place += 4;
                char::from_u32(code).map(|_| ())
            }
            _ => None,
        }
    }

    fn digits(&mut self) -> Option<usize> {
        let start = self.place;
        while matches!(self.peek(), Some(b'0'..=b'9')) {
            self.place += 1;
        }
        (self.place > start).then_some(self.place - start)
    }

    fn numeral(&mut self) -> Option<Numeral<'a>> {
        let start = self.place;
        if self.peek()? == b'-' {
            self.place += 1;
        }
        let first = self.peek()?;
        let mut digits = self.digits()?;
        if first == b'0' && digits > 1 {
            return None;
        }
        let mut is_whole = true;
        if self.peek() == Some(b'.') {
            self.place += 1;
            is_whole = false;
            digits += self.digits()?;
        }
        let is_zero = !self.bytes[start..self.place].iter().any(|byte| matches!(byte, b'1'..=b'9'));
        let mut exponent = 0;
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.place += 1;
            is_whole = false;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.place += 1;
            }
            let own = self.place;
            self.digits()?;
            exponent = std::str::from_utf8(&self.bytes[own..self.place]).ok()?.parse().unwrap_or(u32::MAX);
        }
        let text = &self.bytes[start..self.place];
        (text.len() <= LONGEST_NUMBER).then_some(Numeral { text, digits, is_whole, is_zero, exponent })
    }

    /// Any value, of which only the form matters.
    fn skip_value(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'"' => self.text().map(|_| ()),
            b'-' | b'0'..=b'9' => self.numeral().map(|_| ()),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            open @ (b'{' | b'[') if depth < DEEPEST => {
                self.place += 1;
                let close = if open == b'{' { b'}' } else { b']' };
                self.skip_space();
                if self.take(close).is_some() {
                    return Some(());
                }
                loop {
                    self.skip_space();
                    if open == b'{' {
                        self.text()?;
                        self.skip_space();
                        self.take(b':')?;
                        self.skip_space();
                    }
                    self.skip_value(depth + 1)?;
                    self.skip_space();
                    if self.take(close).is_some() {
                        return Some(());
                    }
                    self.take(b',')?;
                }
            }
            _ => None,
        }
    }
}

fn code_point(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |code, &digit| Some(16 * code + char::from(digit).to_digit(16)?))
}

/// Adds a text whose escapes were checked.
fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let mut place = 0;
    while place < text.len() {
        if text[place] != b'\\' {
            out.push(text[place]);
            place += 1;
            continue;
        }
        let sign = text[place + 1];
        place += 2;
        match sign {
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'n' => out.push(b'\n'),
            b'r' => out.push(b'\r'),
            b't' => out.push(b'\t'),
            b'u' => {
                let sign = code_point(&text[place..place + 4]).and_then(char::from_u32).unwrap_or_default();
                out.extend_from_slice(sign.encode_utf8(&mut [0; 4]).as_bytes());
                place += 4;
            }
            other => out.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &[u8]) -> Read {
        let names = [b"drug".to_vec(), b"price".to_vec(), b"time".to_vec()];
        LineReader::new(&names, &[Kind::Label, Kind::Number, Kind::Text]).block(text)
    }

    fn texts(column: &Column) -> Vec<Option<String>> {
        let starts = std::iter::once(0).chain(column.ends.iter().copied());
        starts
            .zip(&column.ends)
            .zip(&column.has)
            .map(|((start, &end), &has)| {
                let text = &column.bytes[start as usize..end as usize];
                has.then(|| String::from_utf8(text.to_vec()).unwrap())
            })
            .collect()
    }

    #[test]
    fn plain_records_are_read() {
        let found = read(
            b"{\"drug\":\"a\",\"price\":1.5,\"time\":\"t\"}\r\n\n{ \"price\" : -2 , \"drug\" : 12, \"other\": [1, {\"drug\": \"x\"}] }\n{\"drug\":\"a longer \\\"text\\\" \\u00e9\\n\"}\n{\"drug\":true,\"price\":null}",
        );
        assert_eq!(found.places, [0, 2, 3, 4]);
        assert_eq!(found.lines, 5);
        assert!(found.odd.is_empty());
        let expected = [Some("a"), Some("12"), Some("a longer \"text\" \u{e9}\n"), Some("true")];
        assert_eq!(texts(&found.columns[0]), expected.map(|each| each.map(String::from)));
        assert_eq!(found.columns[1].numbers, [1.5, -2.0, 0.0, 0.0]);
        assert_eq!(found.columns[1].has, [true, true, false, false]);
        assert_eq!(texts(&found.columns[2])[0], Some("t".into()));
    }

    #[test]
    fn whatever_is_in_doubt_is_odd() {
        for line in [
            "{",
            "[]",
            "{}x",
            "{\"drug\":\"a\",\"drug\":\"b\"}",
            "{\"dru\\u0067\":1}",
            "{\"drug\":1.5}",
            "{\"drug\":-0}",
            "{\"drug\":[1]}",
            "{\"drug\":123456789012345678}",
            "{\"price\":01}",
            "{\"price\":-0}",
            "{\"price\":1e23}",
            "{\"price\":\"1\"}",
            "{\"price\":true}",
            "{\"time\":3}",
            "{\"x\":\"\\ud83d\\ude00\"}",
            "{\"x\":\"\u{1}\"}",
            "{\"x\":[1,]}",
            "{\"x\":tru}",
            "{\"x\":1,}",
            "{\"x\":\"\\q\"}",
            "{\"x\" 1}",
        ] {
            let found = read(line.as_bytes());
            assert_eq!(found.odd, [(0, 0..line.len())], "{line}");
            assert!(found.places.is_empty());
        }
        let deep = format!("{{\"x\":{}1{}}}", "[".repeat(33), "]".repeat(33));
        assert_eq!(read(deep.as_bytes()).odd.len(), 1);
        let bad = read(b"{\"x\":1}\n{\"x\":\"\xff\"}\n{\"x\":2}");
        assert_eq!((bad.places, bad.odd), (vec![0, 2], vec![(1, 8..17)]));
    }

    #[test]
    fn joined_lines_may_hold_line_feeds() {
        let names = [b"drug".to_vec()];
        let found =
            LineReader::new(&names, &[Kind::Label]).joined(b"{\n\"drug\":1}{\"drug\":\"b\"}  ", &[11, 12, 2]);
        assert_eq!(found.places, [0, 1]);
        assert_eq!(texts(&found.columns[0]), [Some("1".into()), Some("b".into())]);
    }
}
