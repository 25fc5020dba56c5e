//! What each user has given so far: keyed names in, units given before out, in about 36 bytes a user.
//!
//! A user's id is never stored, only a keyed 128-bit name. Whole numbers and texts of at most 15 bytes are one AES block
//! each, so that different ids never share a name; longer texts go through keyed BLAKE3. A text that is the usual way
//! to write a number is that number. Without the key nobody can tell
//! whose name it is, nor choose ids that collide.
//!
//! The table is an index of 8-byte cells (32 bits of the name, 32 bits of the slot) with linear probing, beside the
//! records in the order of first appearance. Ids are taken in blocks: all names first, then all cells, then all
//! records, so that the memory works on many misses at once.

use crate::error::Error;
use crate::prf::{self, Blocks, Keys};

/// Ids that go through each step together.
pub(crate) const BLOCK: usize = 256;

/// The longest text that is one block: a byte is left for its length.
const SHORT_TEXT: usize = 15;

/// The most names a table holds: slots are 32 bits, and one value means that a cell is empty.
pub const MOST_NAMES: usize = u32::MAX as usize - 1;

/// What is told of a user who has no slot.
pub const NEW_USER: u32 = u32::MAX;

/// What is told of a user who has no units left.
pub const SPENT_USER: u32 = u32::MAX - 1;

const NAME_CONTEXT: &str = "pianissimo 2026-11 long names v1";

/// Ids as they come.
pub enum Ids<'a> {
    /// Whole numbers, as their 64 bits.
    Numbers(&'a [u64]),
    /// Texts: `lengths` cut `text`.
    Texts {
        /// All texts, one after the other.
        text: &'a [u8],
        /// The length of each in bytes.
        lengths: &'a [u32],
    },
    /// Names that were made before.
    Names(&'a [u128]),
}

impl Ids<'_> {
    /// How many ids there are.
    pub fn len(&self) -> usize {
        match self {
            Ids::Numbers(numbers) => numbers.len(),
            Ids::Texts { lengths, .. } => lengths.len(),
            Ids::Names(names) => names.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// From ids to keyed names.
pub struct Namer {
    numbers: Blocks,
    texts: Blocks,
    long: [u8; 32],
}

impl Namer {
    /// The names that belong to a key.
    pub fn new(key: &[u8; 32]) -> Self {
        let root = prf::Root::new(key);
        Namer {
            numbers: root.blocks(b"", &prf::encode_text("numbers")),
            texts: root.blocks(b"", &prf::encode_text("texts")),
            long: blake3::derive_key(NAME_CONTEXT, key),
        }
    }

    /// Calls `visit` with the names of some ids at a time, in order.
    pub fn for_each_block(&self, ids: &Ids<'_>, mut visit: impl FnMut(usize, &[u128])) {
        let mut names = [0u128; BLOCK];
        let mut plain = [0u64; 2 * BLOCK];
        let mut offset = 0;
        for start in (0..ids.len()).step_by(BLOCK) {
            let width = BLOCK.min(ids.len() - start);
            let block = &mut names[..width];
            match ids {
                Ids::Numbers(numbers) => {
                    let keys = Keys::Narrow(&numbers[start..start + width]);
                    self.numbers.for_each(&keys, |place, name| block[place] = name);
                }
                Ids::Texts { text, lengths } => {
                    let lengths = &lengths[start..start + width];
                    self.name_texts(text, offset, lengths, &mut plain[..2 * width], block);
                    offset += lengths.iter().map(|&length| length as usize).sum::<usize>();
                }
                Ids::Names(given) => block.copy_from_slice(&given[start..start + width]),
            }
            visit(start, block);
        }
    }

    fn name_texts(&self, text: &[u8], start: usize, lengths: &[u32], plain: &mut [u64], names: &mut [u128]) {
        let mut place = start;
        for (pair, &length) in plain.chunks_exact_mut(2).zip(lengths) {
            let length = length as usize;
            let mut block = [0u8; 16];
            if length <= SHORT_TEXT {
                block[..length].copy_from_slice(&text[place..place + length]);
                block[SHORT_TEXT] = length as u8;
            }
            let word = u128::from_le_bytes(block);
            (pair[0], pair[1]) = (word as u64, (word >> 64) as u64);
            place += length;
        }
        self.texts.for_each(&Keys::Wide(plain), |place, name| names[place] = name);
        let mut place = start;
        for (name, &length) in names.iter_mut().zip(lengths) {
            let end = place + length as usize;
            if length as usize > SHORT_TEXT {
                let hash = blake3::keyed_hash(&self.long, &text[place..end]);
                let mut low = [0; 16];
                low.copy_from_slice(&hash.as_bytes()[..16]);
                *name = u128::from_le_bytes(low);
            }
            place = end;
        }
        self.name_numbers(text, start, lengths, names);
    }

    /// Texts that are numbers have the names of these: the same id may come as either.
    fn name_numbers(&self, text: &[u8], start: usize, lengths: &[u32], names: &mut [u128]) {
        let (mut numbers, mut places) = ([0u64; BLOCK], [0usize; BLOCK]);
        let (mut count, mut from) = (0, start);
        for (place, &length) in lengths.iter().enumerate() {
            let end = from + length as usize;
            if let Some(number) = number_of(&text[from..end]) {
                (numbers[count], places[count]) = (number as u64, place);
                count += 1;
            }
            from = end;
        }
        self.numbers.for_each(&Keys::Narrow(&numbers[..count]), |index, name| names[places[index]] = name);
    }
}

/// The 64-bit number that a text is the usual way to write.
fn number_of(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let is_usual = match digits {
        [] => false,
        [b'0'] => text.len() == 1,
        [first, ..] => *first != b'0' && digits.len() <= 19 && digits.iter().all(u8::is_ascii_digit),
    };
    if is_usual { std::str::from_utf8(text).ok()?.parse().ok() } else { None }
}

impl Drop for Namer {
    fn drop(&mut self) {
        zeroize::Zeroize::zeroize(&mut self.long);
    }
}

/// Anything that lies in a slot under its name.
pub(crate) trait Named {
    /// Its name.
    fn name(&self) -> u128;
}

impl Named for u128 {
    #[inline]
    fn name(&self) -> u128 {
        *self
    }
}

/// What lies in slots, in pieces that never move: nothing is copied when it grows, and little is left unused.
struct Slots<Record> {
    pieces: Vec<Vec<Record>>,
    count: usize,
}

impl<Record> Default for Slots<Record> {
    fn default() -> Self {
        Slots { pieces: Vec::new(), count: 0 }
    }
}

impl<Record> Slots<Record> {
    const PIECE_BITS: u32 = 12;

    #[inline]
    fn get(&self, slot: u32) -> Option<&Record> {
        self.pieces
            .get((slot >> Self::PIECE_BITS) as usize)
            .and_then(|piece| piece.get((slot & ((1 << Self::PIECE_BITS) - 1)) as usize))
    }

    #[inline]
    fn at(&mut self, slot: u32) -> &mut Record {
        &mut self.pieces[(slot >> Self::PIECE_BITS) as usize][(slot & ((1 << Self::PIECE_BITS) - 1)) as usize]
    }

    fn push(&mut self, record: Record) -> u32 {
        if self.count >> Self::PIECE_BITS == self.pieces.len() {
            // The first piece grows as it needs to, so that few users take little.
            let room = if self.pieces.is_empty() { 0 } else { 1 << Self::PIECE_BITS };
            self.pieces.push(Vec::with_capacity(room));
        }
        let last = self.pieces.len() - 1;
        self.pieces[last].push(record);
        self.count += 1;
        (self.count - 1) as u32
    }

    fn iter(&self) -> impl Iterator<Item = &Record> {
        self.pieces.iter().flatten()
    }

    fn bytes(&self) -> usize {
        self.pieces.iter().map(|piece| piece.capacity() * size_of::<Record>()).sum()
    }
}

/// The cells of a table, in shards by the first bits of the name: 0 is empty, else 32 bits of the name above the slot
/// plus one. A shard that is full grows by itself, so that the whole is never held twice.
struct Index {
    shards: Vec<Shard>,
}

#[derive(Clone, Default)]
struct Shard {
    cells: Vec<u64>,
    used: usize,
}

impl Default for Index {
    fn default() -> Self {
        Index { shards: vec![Shard::default(); 1 << Index::SHARD_BITS] }
    }
}

impl Index {
    const SHARD_BITS: u32 = 8;

    #[inline]
    fn tag(name: u128) -> u64 {
        (name >> (96 - Self::SHARD_BITS)) as u64 & 0xffff_ffff
    }

    #[inline]
    fn shard(&self, name: u128) -> &Shard {
        &self.shards[(name >> (128 - Self::SHARD_BITS)) as usize]
    }

    /// The cell where a search begins, if there are cells.
    #[inline]
    fn first_cell(&self, name: u128) -> u64 {
        let shard = self.shard(name);
        shard.cells.get(shard.home(Self::tag(name))).copied().unwrap_or(0)
    }

    /// The first slot from a cell on whose name may be this one.
    #[inline]
    fn candidate(&self, name: u128) -> Option<u32> {
        let shard = self.shard(name);
        if shard.cells.is_empty() { None } else { shard.candidate(shard.home(Self::tag(name)), name).1 }
    }

    /// The slot that each name of a block may have, `u32::MAX` for none.
    ///
    /// Both passes only load, many cells and then many records at once. What they find is to be checked again, since
    /// the block itself may bring new names.
    fn look_ahead<Record: Named>(&self, names: &[u128], records: &Slots<Record>, slots: &mut [u32; BLOCK]) {
        let mut cells = [0u64; BLOCK];
        for (cell, &name) in cells.iter_mut().zip(names) {
            *cell = self.first_cell(name);
        }
        let mut touched = 0;
        for ((slot, &name), cell) in slots.iter_mut().zip(names).zip(cells) {
            let is_likely = cell != 0 && cell >> 32 == Self::tag(name);
            let likely = if is_likely { Some(cell as u32 - 1) } else { self.candidate(name) };
            *slot = likely.unwrap_or(u32::MAX);
            touched ^= records.get(*slot).map_or(0, Named::name);
        }
        std::hint::black_box(touched);
    }

    /// The slot of a name.
    fn find<Record: Named>(&self, name: u128, records: &Slots<Record>) -> Option<u32> {
        let shard = self.shard(name);
        let mut from = shard.home(Self::tag(name));
        while !shard.cells.is_empty() {
            match shard.candidate(from, name) {
                (_, None) => return None,
                (_, Some(slot)) if records.get(slot).is_some_and(|record| record.name() == name) => {
                    return Some(slot);
                }
                (place, Some(_)) => from = shard.after(place),
            }
        }
        None
    }

    /// The slot of a name, or a new one.
    fn find_or_add<Record: Named>(
        &mut self,
        name: u128,
        records: &mut Slots<Record>,
        make: fn(u128) -> Record,
    ) -> u32 {
        let shard = &mut self.shards[(name >> (128 - Self::SHARD_BITS)) as usize];
        shard.make_room();
        let mut from = shard.home(Self::tag(name));
        loop {
            match shard.candidate(from, name) {
                (place, None) => {
                    let slot = records.push(make(name));
                    shard.cells[place] = (Self::tag(name) << 32) | (u64::from(slot) + 1);
                    shard.used += 1;
                    return slot;
                }
                (_, Some(slot)) if records.get(slot).is_some_and(|record| record.name() == name) => {
                    return slot;
                }
                (place, Some(_)) => from = shard.after(place),
            }
        }
    }

    fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.cells.capacity() * size_of::<u64>()).sum()
    }
}

impl Shard {
    const LEAST_CELLS: usize = 8;

    /// Where a search begins: from the part of the name that a cell holds, so that cells grow without the records.
    #[inline]
    fn home(&self, tag: u64) -> usize {
        ((tag * self.cells.len() as u64) >> 32) as usize
    }

    #[inline]
    fn candidate(&self, mut place: usize, name: u128) -> (usize, Option<u32>) {
        loop {
            let cell = self.cells[place];
            if cell == 0 {
                return (place, None);
            }
            if cell >> 32 == Index::tag(name) {
                return (place, Some(cell as u32 - 1));
            }
            place = self.after(place);
        }
    }

    #[inline]
    fn after(&self, place: usize) -> usize {
        if place + 1 == self.cells.len() { 0 } else { place + 1 }
    }

    /// Room for one more: four cells of five may be in use, and full cells grow by 30 %.
    fn make_room(&mut self) {
        if 5 * (self.used + 1) <= 4 * self.cells.len() {
            return;
        }
        let size = (self.cells.len() * 13 / 10 + 1).max(Self::LEAST_CELLS);
        let full = std::mem::replace(&mut self.cells, vec![0; size]);
        for cell in full.into_iter().filter(|&cell| cell != 0) {
            let mut place = self.home(cell >> 32);
            while self.cells[place] != 0 {
                place = self.after(place);
            }
            self.cells[place] = cell;
        }
    }
}

/// Names that were seen.
#[derive(Default)]
pub struct NameSet {
    index: Index,
    names: Slots<u128>,
}

impl NameSet {
    /// How many names there are.
    pub fn len(&self) -> usize {
        self.names.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The names in the order of their first appearance.
    pub fn names(&self) -> Vec<u128> {
        self.names.iter().copied().collect()
    }

    /// The slot of each name, the next free one where it is new.
    pub fn add(&mut self, names: &[u128]) -> Result<Vec<u32>, Error> {
        let mut slots = Vec::with_capacity(names.len());
        self.visit(names, |slot, _| slots.push(slot))?;
        Ok(slots)
    }

    /// Whether each name is there for the first time.
    pub fn add_first(&mut self, names: &[u128]) -> Result<Vec<bool>, Error> {
        let mut first = Vec::with_capacity(names.len());
        self.visit(names, |_, is_new| first.push(is_new))?;
        Ok(first)
    }

    fn visit(&mut self, names: &[u128], mut told: impl FnMut(u32, bool)) -> Result<(), Error> {
        check_room(self.len(), names.len())?;
        let NameSet { index, names: known } = self;
        let mut slots = [0u32; BLOCK];
        for block in names.chunks(BLOCK) {
            index.look_ahead(block, known, &mut slots);
            for (&name, &likely) in block.iter().zip(&slots) {
                if known.get(likely).is_some_and(|&held| held == name) {
                    told(likely, false);
                    continue;
                }
                let before = known.count;
                let slot = index.find_or_add(name, known, |name| name);
                told(slot, known.count > before);
            }
        }
        Ok(())
    }

    /// Forgets all names.
    pub fn clear(&mut self) {
        *self = NameSet::default();
    }
}

/// Rows by user: the users in the order of their names, and where each one's rows are.
pub struct Groups {
    /// Each name once, in the order of the low halves: an index goes by the high ones, and names that came to it in
    /// their order would crowd its first cells.
    pub names: Vec<u128>,
    /// How many rows each has.
    pub counts: Vec<u32>,
    /// The units of each; they stop growing at 2^64 - 1, as those of a table do.
    pub units: Vec<u64>,
    /// The rows of the first name in the order in which they came, then those of the next.
    pub order: Vec<u32>,
}

/// A row on its way to its user's others; in the order of its fields.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Placed {
    low: u64,
    high: u64,
    /// Which row it is.
    pub(crate) row: u32,
}

impl Named for Placed {
    #[inline]
    fn name(&self) -> u128 {
        u128::from(self.low) | (u128::from(self.high) << 64)
    }
}

/// Brings rows together by the names of their users: what is told of the order between users is that of their names.
///
/// Names are pseudorandom, so some of their bits deal the rows into short heaps of about equal size, each of which is
/// sorted by itself.
pub fn group(names: &[u128], weights: Option<&[u64]>) -> Result<Groups, Error> {
    if weights.is_some_and(|weights| weights.len() != names.len()) {
        return Err(Error::Parameter("weights must be one for each name".into()));
    }
    let placed = in_order(names)?;
    let mut groups = Groups {
        names: Vec::new(),
        counts: Vec::new(),
        units: Vec::new(),
        order: placed.iter().map(|each| each.row).collect(),
    };
    for same in placed.chunk_by(|left, right| left.name() == right.name()) {
        groups.names.push(same[0].name());
        groups.counts.push(same.len() as u32);
        groups.units.push(weights.map_or(same.len() as u64, |weights| {
            same.iter().fold(0u64, |sum, each| sum.saturating_add(weights[each.row as usize]))
        }));
    }
    Ok(groups)
}

/// The rows in the order of their names, those of one name in the order in which they came.
pub(crate) fn in_order(names: &[u128]) -> Result<Vec<Placed>, Error> {
    check_room(0, names.len())?;
    let bits = heap_bits(names.len());
    let placed = names.iter().enumerate().map(|(row, &name)| Placed {
        low: name as u64,
        high: (name >> 64) as u64,
        row: row as u32,
    });
    Ok(dealt(placed, 1 << bits, |each| each.low.checked_shr(64 - bits).unwrap_or(0) as usize))
}

/// How many bits tell so many heaps apart that each has about eight of these items.
pub(crate) fn heap_bits(items: usize) -> u32 {
    (items / 8).checked_ilog2().unwrap_or(0).min(20)
}

/// The items in their order. `heap` grows with them, and deals them into short heaps, each of which is sorted by itself.
pub(crate) fn dealt<Item: Copy + Default + Ord>(
    items: impl Iterator<Item = Item> + Clone,
    heaps: usize,
    heap: impl Fn(&Item) -> usize,
) -> Vec<Item> {
    let mut ends = vec![0usize; heaps + 1];
    for item in items.clone() {
        ends[heap(&item) + 1] += 1;
    }
    for place in 1..ends.len() {
        ends[place] += ends[place - 1];
    }
    let mut next = ends.clone();
    let mut found = vec![Item::default(); ends[heaps]];
    for item in items {
        let place = &mut next[heap(&item)];
        found[*place] = item;
        *place += 1;
    }
    for pair in ends.windows(2) {
        found[pair[0]..pair[1]].sort_unstable();
    }
    found
}

fn check_room(held: usize, more: usize) -> Result<(), Error> {
    if held + more > MOST_NAMES {
        return Err(Error::Parameter("a table must hold fewer than 2^32 names; start a new run".into()));
    }
    Ok(())
}

/// One user: the two halves of the name, and the units given so far.
#[derive(Clone, Copy)]
struct User {
    low: u64,
    high: u64,
    units: u64,
}

impl User {
    fn new(name: u128) -> Self {
        User { low: name as u64, high: (name >> 64) as u64, units: 0 }
    }
}

impl Named for User {
    #[inline]
    fn name(&self) -> u128 {
        u128::from(self.low) | (u128::from(self.high) << 64)
    }
}

/// What is wanted for each row that is added.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Nothing: totals are enough.
    Nothing,
    /// The units that its user had given before it.
    Before,
    /// The slot of its user.
    Slot,
}

/// The units of every user, under one cap: how many users are above it, and how many units are within it.
pub struct UserTable {
    namer: Namer,
    index: Index,
    users: Slots<User>,
    accepted: Vec<u64>,
    cap: u64,
    over: u64,
    kept: u128,
}

impl UserTable {
    /// A table without users; their names belong to the key.
    pub fn new(key: &[u8; 32], cap: u64) -> Self {
        UserTable {
            namer: Namer::new(key),
            index: Index::default(),
            users: Slots::default(),
            accepted: Vec::new(),
            cap,
            over: 0,
            kept: 0,
        }
    }

    /// How many users there are.
    pub fn len(&self) -> usize {
        self.users.count
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many users have given more units than the cap.
    pub fn over(&self) -> u64 {
        self.over
    }

    /// The sum over users of the smaller of their units and the cap.
    pub fn kept(&self) -> u128 {
        self.kept
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> usize {
        self.index.bytes() + self.users.bytes() + self.accepted.capacity() * size_of::<u64>()
    }

    /// Counts rows, each of one unit or of its weight, in order; changes nothing if it fails.
    ///
    /// A user's units stop growing at 2^64 - 1, which is above every cap: whether they exceed a cap stays exact.
    pub fn add(&mut self, ids: &Ids<'_>, weights: Option<&[u64]>, wanted: Wanted) -> Result<Vec<u64>, Error> {
        let count = ids.len();
        if weights.is_some_and(|weights| weights.len() != count) {
            return Err(Error::Parameter("weights must be one for each id".into()));
        }
        check_room(self.len(), count)?;
        let mut out = Vec::with_capacity(if wanted == Wanted::Nothing { 0 } else { count });
        let UserTable { namer, index, users, cap, over, kept, .. } = self;
        let mut slots = [0u32; BLOCK];
        namer.for_each_block(ids, |start, names| {
            index.look_ahead(names, users, &mut slots);
            for (place, &name) in names.iter().enumerate() {
                let likely = slots[place];
                let slot = if users.get(likely).is_some_and(|user| user.name() == name) {
                    likely
                } else {
                    index.find_or_add(name, users, User::new)
                };
                let weight = weights.map_or(1, |weights| weights[start + place]);
                let user = users.at(slot);
                let before = user.units;
                let after = before.saturating_add(weight);
                user.units = after;
                *kept += u128::from(after.min(*cap) - before.min(*cap));
                *over += u64::from(before <= *cap && after > *cap);
                match wanted {
                    Wanted::Nothing => {}
                    Wanted::Before => out.push(before),
                    Wanted::Slot => out.push(u64::from(slot)),
                }
            }
        });
        Ok(out)
    }

    /// Calls `visit` with this table, the place and the slot of each name, in order; new names get slots first.
    pub(crate) fn for_each_slot(
        &mut self,
        names: &[u128],
        mut visit: impl FnMut(&mut UserTable, usize, u32),
    ) -> Result<(), Error> {
        check_room(self.len(), names.len())?;
        let mut slots = [0u32; BLOCK];
        for (number, block) in names.chunks(BLOCK).enumerate() {
            self.index.look_ahead(block, &self.users, &mut slots);
            for (slot, &name) in slots.iter_mut().zip(block) {
                if self.users.get(*slot).is_none_or(|user| user.name() != name) {
                    *slot = self.index.find_or_add(name, &mut self.users, User::new);
                }
            }
            for (place, &slot) in slots[..block.len()].iter().enumerate() {
                visit(self, number * BLOCK + place, slot);
            }
        }
        Ok(())
    }

    /// The slot of each id's user, `NEW_USER` where she has none, `SPENT_USER` where she has `most` units; and the names
    /// of those without a slot, in order.
    pub fn standing(&self, ids: &Ids<'_>, most: u64) -> (Vec<u32>, Vec<u128>) {
        let (mut found, mut new) = (Vec::with_capacity(ids.len()), Vec::new());
        let mut slots = [0u32; BLOCK];
        self.namer.for_each_block(ids, |_, names| {
            self.index.look_ahead(names, &self.users, &mut slots);
            for (&name, &likely) in names.iter().zip(&slots) {
                let is_hers = |slot: &u32| self.users.get(*slot).is_some_and(|user| user.name() == name);
                // Of what is not even likely there is no cell.
                let slot = Some(likely).filter(is_hers).or_else(|| match likely {
                    u32::MAX => None,
                    _ => self.index.find(name, &self.users),
                });
                if slot.is_none() {
                    new.push(name);
                }
                let standing = |slot| if self.units_of(slot) < most { slot } else { SPENT_USER };
                found.push(slot.map_or(NEW_USER, standing));
            }
        });
        (found, new)
    }

    /// Refuses slots that no user has.
    pub(crate) fn check_slots(&self, slots: &[u32]) -> Result<(), Error> {
        if slots.iter().any(|&slot| slot as usize >= self.len()) {
            return Err(Error::Parameter("rows must have the slots of this table".into()));
        }
        Ok(())
    }

    /// The units of the user of a slot.
    #[inline]
    pub(crate) fn units_of(&self, slot: u32) -> u64 {
        self.users.get(slot).map_or(0, |user| user.units)
    }

    /// One more unit of a user who has fewer than `most`: how many she had before.
    #[inline]
    pub(crate) fn take_unit(&mut self, slot: u32, most: u64) -> Option<u64> {
        let user = self.users.at(slot);
        let before = user.units;
        if before >= most {
            return None;
        }
        user.units = before + 1;
        self.kept += u128::from(before < self.cap);
        self.over += u64::from(before == self.cap);
        Some(before)
    }

    /// Another cap: one pass over all users.
    pub fn set_cap(&mut self, cap: u64) {
        self.cap = cap;
        self.over = self.users.iter().map(|user| u64::from(user.units > cap)).sum();
        self.kept = self.users.iter().map(|user| u128::from(user.units.min(cap))).sum();
    }

    /// How much of each row its user may still give within the cap; rows are taken in order and remembered.
    pub fn accept(&mut self, slots: &[u64], weights: Option<&[u64]>) -> Result<Vec<u64>, Error> {
        if weights.is_some_and(|weights| weights.len() != slots.len())
            || slots.iter().any(|&slot| slot >= self.len() as u64)
        {
            return Err(Error::Parameter("rows must have the slots of this table, and a weight each".into()));
        }
        let count = self.len();
        self.accepted.reserve_exact(count.saturating_sub(self.accepted.len()));
        self.accepted.resize(count, 0);
        Ok(slots
            .iter()
            .enumerate()
            .map(|(place, &slot)| {
                let taken = &mut self.accepted[slot as usize];
                let weight = weights.map_or(1, |weights| weights[place]);
                let units = weight.min(self.cap.saturating_sub(*taken));
                *taken += units;
                units
            })
            .collect())
    }

    /// Forgets all users.
    pub fn clear(&mut self) {
        self.index = Index::default();
        self.users = Slots::default();
        self.accepted = Vec::new();
        self.over = 0;
        self.kept = 0;
    }

    /// The names, the units and the accepted units of all users, in slot order.
    pub fn content(&self) -> (Vec<u128>, Vec<u64>, Vec<u64>) {
        (
            self.users.iter().map(Named::name).collect(),
            self.users.iter().map(|user| user.units).collect(),
            self.accepted.clone(),
        )
    }

    /// Takes over what `content` gave.
    pub fn restore(&mut self, names: &[u128], units: &[u64], accepted: &[u64]) -> Result<(), Error> {
        check_room(0, names.len())?;
        if units.len() != names.len() || !(accepted.is_empty() || accepted.len() <= names.len()) {
            return Err(Error::Parameter("a stored table must have units for each name".into()));
        }
        self.clear();
        for (&name, &units) in names.iter().zip(units) {
            let held = self.len();
            let slot = self.index.find_or_add(name, &mut self.users, User::new);
            if slot as usize != held {
                return Err(Error::Parameter("a stored table must hold each name once".into()));
            }
            self.users.at(slot).units = units;
        }
        self.accepted = accepted.to_vec();
        self.set_cap(self.cap);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(cap: u64) -> UserTable {
        UserTable::new(&[7; 32], cap)
    }

    #[test]
    fn units_are_kept_up_to_the_cap() {
        let mut users = table(2);
        users.add(&Ids::Numbers(&[1, 1, 1, 2]), None, Wanted::Nothing).unwrap();
        assert_eq!((users.kept(), users.over(), users.len()), (3, 1, 2));
        users.add(&Ids::Numbers(&[1, 1]), None, Wanted::Nothing).unwrap();
        assert_eq!(users.kept(), 3);
        let before = users.add(&Ids::Numbers(&[2, 2, 2, 2]), None, Wanted::Before).unwrap();
        assert_eq!(before, [1, 2, 3, 4]);
        assert_eq!((users.kept(), users.over()), (4, 2));
        users.set_cap(4);
        assert_eq!((users.kept(), users.over()), (8, 2));
    }

    #[test]
    fn many_users_are_told_apart_and_found_again() {
        let ids: Vec<u64> = (0..100_000).collect();
        let mut users = table(1);
        let first = users.add(&Ids::Numbers(&ids), None, Wanted::Slot).unwrap();
        assert_eq!(first, ids);
        let again = users.add(&Ids::Numbers(&ids), None, Wanted::Slot).unwrap();
        assert_eq!(again, ids);
        assert_eq!((users.kept(), users.over()), (100_000, 100_000));
        assert!(users.bytes() <= 40 * users.len(), "{}", users.bytes() / users.len());
    }

    #[test]
    fn names_of_equal_tags_and_homes_are_told_apart() {
        let names: Vec<u128> = (0..2000).map(|number| (number << 64) | 5).collect();
        let mut users = table(1);
        let slots = users.add(&Ids::Names(&names), None, Wanted::Slot).unwrap();
        assert_eq!(slots, (0..2000).collect::<Vec<u64>>());
        let mut set = NameSet::default();
        assert_eq!(set.add(&names).unwrap(), (0..2000).collect::<Vec<u32>>());
        assert_eq!(set.add(&names[7..9]).unwrap(), [7, 8]);
        assert_eq!(set.add_first(&[5, 6, 6]).unwrap(), [false, true, false]);
    }

    #[test]
    fn rows_are_grouped_by_name_in_their_own_order() {
        let (small, large) = (7u128 << 64, 3u128);
        let groups = group(&[large, small, large, small], Some(&[1, 2, u64::MAX, 4])).unwrap();
        assert_eq!((groups.names, groups.counts), (vec![small, large], vec![2, 2]));
        assert_eq!((groups.units, groups.order), (vec![6, u64::MAX], vec![1, 3, 0, 2]));
        assert!(group(&[], None).unwrap().names.is_empty());
        assert!(group(&[1], Some(&[])).is_err());
    }

    #[test]
    fn names_that_come_grouped_do_not_crowd_an_index() {
        let ids: Vec<u64> = (0..300_000).collect();
        let mut names = Vec::new();
        Namer::new(&[7; 32]).for_each_block(&Ids::Numbers(&ids), |_, block| names.extend_from_slice(block));
        let groups = group(&names, None).unwrap();
        let mut users = table(1);
        users.add(&Ids::Names(&groups.names), None, Wanted::Nothing).unwrap();
        for shard in &users.index.shards {
            let far = shard.cells.iter().enumerate().filter(|(_, cell)| **cell != 0).map(|(place, cell)| {
                (place + shard.cells.len() - shard.home(cell >> 32)) % shard.cells.len()
            });
            assert!(far.sum::<usize>() <= 20 * shard.used);
        }
    }

    #[test]
    fn many_rows_are_grouped_as_by_sorting() {
        let rows: Vec<u128> = (0..50_000u64)
            .map(|row| {
                let word = (row % 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15);
                u128::from(row % 3) << 64 | u128::from(word)
            })
            .collect();
        let groups = group(&rows, None).unwrap();
        let mut expected: Vec<(u128, u32)> = rows.iter().copied().zip(0..).collect();
        expected.sort_unstable_by_key(|(name, row)| (name.rotate_left(64), *row));
        assert_eq!(groups.order, expected.iter().map(|each| each.1).collect::<Vec<_>>());
        expected.dedup_by_key(|each| each.0);
        assert_eq!(groups.names, expected.iter().map(|each| each.0).collect::<Vec<_>>());
        assert_eq!(groups.counts.iter().sum::<u32>(), 50_000);
        assert_eq!(groups.units.iter().sum::<u64>(), 50_000);
    }

    #[test]
    fn short_and_long_texts_and_numbers_are_different_users() {
        let text = b"a\0aaabcdefghijklmno0123456789abcdef";
        let lengths = [1, 2, 2, 14, 16];
        assert_eq!(lengths.iter().sum::<u32>() as usize, text.len());
        let mut users = table(9);
        let slots = users.add(&Ids::Texts { text, lengths: &lengths }, None, Wanted::Slot).unwrap();
        assert_eq!(slots, [0, 1, 2, 3, 4]);
        let again =
            users.add(&Ids::Texts { text: b"aa0123456789abcdef", lengths: &[2, 16] }, None, Wanted::Slot);
        assert_eq!(again.unwrap(), [2, 4]);
        let number = users.add(&Ids::Numbers(&[u64::from(b'a')]), None, Wanted::Slot).unwrap();
        assert_eq!(number, [5]);
    }

    #[test]
    fn accepted_units_are_for_life() {
        let mut users = table(2);
        let slots = users.add(&Ids::Numbers(&[1, 1, 1, 2]), None, Wanted::Slot).unwrap();
        assert_eq!(users.accept(&slots, None).unwrap(), [1, 1, 0, 1]);
        assert_eq!(users.accept(&slots, None).unwrap(), [0, 0, 0, 1]);
        users.set_cap(4);
        assert_eq!(users.accept(&[0, 1], Some(&[9, 1])).unwrap(), [2, 1]);
        assert!(users.accept(&[2], None).is_err());
    }

    #[test]
    fn what_is_stored_comes_back() {
        let mut users = table(2);
        let slots = users.add(&Ids::Numbers(&[5, 6, 5]), Some(&[9, 1, 0]), Wanted::Slot).unwrap();
        users.accept(&slots, None).unwrap();
        let (names, units, accepted) = users.content();
        let mut other = table(2);
        other.restore(&names, &units, &accepted).unwrap();
        assert_eq!(other.content(), users.content());
        assert_eq!((other.kept(), other.over()), (users.kept(), users.over()));
        assert!(other.restore(&[1, 1], &[1, 1], &[]).is_err());
    }

    #[test]
    fn one_users_units_stop_growing_and_stop_nobody_else() {
        let mut users = table(2);
        users.add(&Ids::Numbers(&[5, 5, 6]), Some(&[u64::MAX, u64::MAX, 1]), Wanted::Nothing).unwrap();
        assert_eq!((users.kept(), users.over()), (3, 1));
    }

    #[test]
    fn a_number_and_its_digits_are_one_user() {
        let texts = ["7", "-12", "0", "9223372036854775807", "-9223372036854775808"];
        let numbers = [7i64, -12, 0, i64::MAX, i64::MIN].map(|number| number as u64);
        let lengths = texts.map(|text| text.len() as u32);
        let mut users = table(9);
        let slots = users.add(&Ids::Numbers(&numbers), None, Wanted::Slot).unwrap();
        let text = texts.concat();
        let again = users.add(&Ids::Texts { text: text.as_bytes(), lengths: &lengths }, None, Wanted::Slot);
        assert_eq!(again.unwrap(), slots);
        for other in ["07", "+7", "-0", "7 ", "", "-", "9223372036854775808", "7.0"] {
            assert_eq!(number_of(other.as_bytes()), None, "{other}");
        }
    }
}
