//! Slots for items: the n-th item ever seen has slot n - 1.
//!
//! Items come as keyed 128-bit names (`prf::Root::label_keys`), which nobody without the secret can make collide.

use std::cell::Cell;

use hashbrown::HashTable;

use crate::error::{Error, checked_size, no_memory};
use crate::sketches::entries::{ByteKey, Bytes, Keys};
use crate::sketches::hashing::ByteHash;
use crate::sketches::table::Table;
use crate::sketches::views::Views;

/// The slot given to names that are not in a table.
pub const NO_SLOT: i64 = -1;

/// From names to slots, in about 30 bytes an item.
#[derive(Default)]
pub struct SlotTable {
    names: Vec<u128>,
    slots: HashTable<u32>,
}

impl SlotTable {
    /// How many items have a slot.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether no item has a slot.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names in slot order.
    pub fn names(&self) -> &[u128] {
        &self.names
    }

    /// Room for so many more items without moving those that are there.
    pub fn reserve(&mut self, more: usize) -> Result<(), Error> {
        let SlotTable { names, slots } = self;
        let more = checked_size("more", more)?;
        names
            .try_reserve_exact(more.saturating_sub(names.capacity() - names.len()))
            .map_err(|_| no_memory(more))?;
        slots.try_reserve(more, |&slot| names[slot as usize] as u64).map_err(|_| no_memory(more))
    }

    /// The slot of each name, `NO_SLOT` where it has none.
    pub fn find(&self, names: &[u128]) -> Vec<i64> {
        names
            .iter()
            .map(|name| {
                self.slots
                    .find(*name as u64, |&slot| self.names[slot as usize] == *name)
                    .map_or(NO_SLOT, |&slot| i64::from(slot))
            })
            .collect()
    }

    /// The slot of each name; new names get the next free ones in the order in which they come.
    pub fn find_or_add(&mut self, names: &[u128]) -> Vec<i64> {
        let SlotTable { names: known, slots } = self;
        names
            .iter()
            .map(|name| {
                if let Some(&slot) = slots.find(*name as u64, |&slot| known[slot as usize] == *name) {
                    return i64::from(slot);
                }
                let slot = known.len() as u32;
                known.push(*name);
                slots.insert_unique(*name as u64, slot, |&slot| known[slot as usize] as u64);
                i64::from(slot)
            })
            .collect()
    }
}

/// So many texts are remembered at most: 8 MB where they are short.
pub const MOST_TEXTS: usize = 1 << 17;

/// From texts to slots, from tick to tick: what spares the names of labels that were seen before.
///
/// It is a memory of what a `SlotTable` has said, and bounded. A text that is not in it is asked by its name.
pub struct TextSlots {
    keys: Bytes,
    table: Table<Bytes>,
}

impl TextSlots {
    /// Nothing yet; texts are hashed under 32 random bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        TextSlots { keys: Bytes::new(secret), table: Table::new(MOST_TEXTS) }
    }

    /// The slot of each text, `NO_SLOT` where it is not remembered.
    pub fn find(&self, columns: &[Views<'_>]) -> Vec<i64> {
        let counters = &self.table.rows().counters;
        let mut slots = Vec::with_capacity(columns.iter().map(Views::len).sum());
        for column in columns {
            slots.extend((0..column.len()).map(|place| {
                let key = column.key(place);
                self.table.find(self.keys.hash(key), key).map_or(NO_SLOT, |found| counters[found].over)
            }));
        }
        slots
    }

    /// Remember the slots of texts as long as there is room; texts without a slot are passed over.
    pub fn remember(&mut self, columns: &[Views<'_>], slots: &[i64]) -> Result<(), Error> {
        if columns.iter().map(Views::len).sum::<usize>() != slots.len() {
            return Err(Error::Parameter("slots must be one for each text".into()));
        }
        let texts = columns.iter().flat_map(|column| (0..column.len()).map(|place| column.key(place)));
        for (key, &slot) in texts.zip(slots) {
            if self.table.len() == MOST_TEXTS {
                break;
            }
            if slot > NO_SLOT {
                self.table.find_or_insert(&self.keys, self.keys.hash(key), key, Some(slot));
            }
        }
        Ok(())
    }
}

/// Rows that go through each step of `number_rows` together.
const BLOCK: usize = 256;

/// A table of rows begins with so many cells, and so many are kept for the next one: fresh memory costs more than to
/// clear what is there.
const FIRST_CELLS: usize = 1 << 10;
const KEPT_CELLS: usize = 1 << 16;

thread_local! {
    static CELLS: Cell<Vec<u64>> = const { Cell::new(Vec::new()) };
}

/// The number of each row's text among the different ones, in the order of their first appearance, and the first row of
/// each.
pub fn number_rows(columns: &[Views<'_>], hash: &ByteHash) -> Result<(Vec<u32>, Vec<u32>), Error> {
    let mut numbers = Vec::with_capacity(columns.iter().map(Views::len).sum());
    let first = for_each_row(columns, hash, |number| numbers.push(number))?;
    Ok((numbers, first))
}

/// How many rows have each text, and the first row of each.
pub fn count_rows(columns: &[Views<'_>], hash: &ByteHash) -> Result<(Vec<i64>, Vec<u32>), Error> {
    let mut counts: Vec<i64> = Vec::new();
    let first = for_each_row(columns, hash, |number| match counts.get_mut(number as usize) {
        Some(count) => *count += 1,
        None => counts.push(1),
    })?;
    Ok((counts, first))
}

/// A row by its bytes: most are told apart by eight of them.
struct Ordered<'a> {
    head: u64,
    text: &'a [u8],
    row: u32,
}

/// The first row of each different text, in the order of the texts' bytes, and the numbers of its rows added up.
pub fn add_up_rows(columns: &[Views<'_>], numbers: &[i64]) -> Result<(Vec<u32>, Vec<i64>), Error> {
    let texts = || columns.iter().flat_map(|column| (0..column.len()).map(|place| column.row(place)));
    if columns.iter().map(Views::len).sum::<usize>() != numbers.len() || numbers.len() >= u32::MAX as usize {
        return Err(Error::Parameter("numbers must be one for each text, and fewer than 2^32".into()));
    }
    let whole = texts().next().unwrap_or_default();
    // What all begin with tells nothing.
    let shared = texts().fold(whole.len(), |shared, text| {
        shared.min(whole.iter().zip(text).take_while(|(left, right)| left == right).count())
    });
    let ordered = |(row, text): (usize, _)| Ordered { head: head(text, shared), text, row: row as u32 };
    let mut rows: Vec<Ordered<'_>> = texts().enumerate().map(ordered).collect();
    // Columns that are in order already are merged: this sort finds them.
    rows.sort_by(|left, right| left.head.cmp(&right.head).then_with(|| left.text.cmp(right.text)));
    let (mut first, mut sums): (Vec<u32>, Vec<i64>) = Default::default();
    for same in rows.chunk_by(|left, right| left.head == right.head && left.text == right.text) {
        let sum = same.iter().try_fold(0i64, |sum, each| sum.checked_add(numbers[each.row as usize]));
        sums.push(sum.ok_or_else(|| Error::Parameter("sums of numbers must be below 2^63".into()))?);
        first.push(same[0].row);
    }
    Ok((first, sums))
}

/// Eight bytes of a text after those that all share, as a number in their order; a short text is filled up.
fn head(text: &[u8], shared: usize) -> u64 {
    let rest = &text[shared..];
    let mut head = [0; 8];
    let length = rest.len().min(8);
    head[..length].copy_from_slice(&rest[..length]);
    u64::from_be_bytes(head)
}

/// Tells the number of each row's text, row by row, and gives the first row of each.
///
/// A cell is 0 if it is empty, else 32 bits of the hash above the number plus one; hashes are kept, so that cells grow
/// without the texts. Rows are taken in blocks: all texts first, then all cells, so that the memory works on many misses
/// at once.
fn for_each_row(
    columns: &[Views<'_>],
    hash: &ByteHash,
    mut tell: impl FnMut(u32),
) -> Result<Vec<u32>, Error> {
    let rows: usize = columns.iter().map(Views::len).sum();
    if rows >= u32::MAX as usize {
        return Err(Error::Parameter("a batch must have fewer than 2^32 rows".into()));
    }
    let mut told = 0;
    let (mut first, mut known, mut hashes): (Vec<u32>, Vec<ByteKey<'_>>, Vec<u64>) = Default::default();
    let mut cells = cleared(CELLS.take(), FIRST_CELLS.max(rows.next_power_of_two().min(KEPT_CELLS / 2)));
    let mut block = [0u64; BLOCK];
    for column in columns {
        for start in (0..column.len()).step_by(BLOCK) {
            let end = column.len().min(start + BLOCK);
            let mut touched = 0;
            for (own, place) in block.iter_mut().zip(start..end) {
                *own = column.hash(place, hash);
                touched ^= cells[home(*own, cells.len())];
            }
            std::hint::black_box(touched);
            for (&own, place) in block.iter().zip(start..end) {
                let row = column.key(place);
                let mut cell = home(own, cells.len());
                let number = loop {
                    let found = cells[cell];
                    if found == 0 {
                        cells[cell] = (own << 32) | (first.len() as u64 + 1);
                        first.push(told);
                        known.push(row);
                        hashes.push(own);
                        break first.len() as u32 - 1;
                    }
                    let number = found as u32 - 1;
                    if found >> 32 == own & 0xffff_ffff && Bytes::same(known[number as usize], row) {
                        break number;
                    }
                    cell = (cell + 1) & (cells.len() - 1);
                };
                tell(number);
                told += 1;
                if 2 * first.len() > cells.len() {
                    cells = grown(&hashes, cells);
                }
            }
        }
    }
    if cells.capacity() <= KEPT_CELLS {
        CELLS.set(cells);
    }
    Ok(first)
}

/// So many empty cells, in the memory of others.
fn cleared(mut cells: Vec<u64>, size: usize) -> Vec<u64> {
    cells.clear();
    cells.resize(size, 0);
    cells
}

#[inline]
fn home(hash: u64, cells: usize) -> usize {
    (hash >> 32) as usize & (cells - 1)
}

/// Four times as many cells with the same numbers.
fn grown(hashes: &[u64], cells: Vec<u64>) -> Vec<u64> {
    let size = 4 * cells.len();
    let mut cells = cleared(cells, size);
    for (number, &hash) in hashes.iter().enumerate() {
        let mut cell = home(hash, size);
        while cells[cell] != 0 {
            cell = (cell + 1) & (size - 1);
        }
        cells[cell] = (hash << 32) | (number as u64 + 1);
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_numbered_by_their_first_appearance() {
        let mut views = Vec::new();
        let texts: Vec<String> =
            (0..5000).map(|row| format!("{:0width$}", row % 700, width = 3 + row % 2 * 12)).collect();
        let mut buffer = Vec::new();
        for text in &texts {
            views.extend((text.len() as u32).to_le_bytes());
            if text.len() <= 12 {
                let mut inline = text.as_bytes().to_vec();
                inline.resize(12, 0);
                views.extend(inline);
            } else {
                views.extend(&text.as_bytes()[..4]);
                views.extend(0u32.to_le_bytes());
                views.extend((buffer.len() as u32).to_le_bytes());
                buffer.extend(text.as_bytes());
            }
        }
        let buffers: [&[u8]; 1] = [&buffer];
        let (left, right) = views.split_at(16 * 1234);
        let columns = [left, right].map(|part| Views::new(part, &buffers, true).unwrap());
        let (numbers, first) = number_rows(&columns, &ByteHash::new(&[7; 32])).unwrap();
        let mut expected: Vec<&String> = Vec::new();
        for (row, text) in texts.iter().enumerate() {
            if !expected.contains(&text) {
                assert_eq!(first[expected.len()] as usize, row);
                expected.push(text);
            }
            assert_eq!(expected[numbers[row] as usize], text);
        }
        let (counts, same) = count_rows(&columns, &ByteHash::new(&[8; 32])).unwrap();
        assert_eq!(same, first);
        for (number, &count) in counts.iter().enumerate() {
            assert_eq!(count as usize, numbers.iter().filter(|&&each| each as usize == number).count());
        }
        assert_eq!(first.len(), expected.len());
        assert!(number_rows(&[], &ByteHash::new(&[7; 32])).unwrap().0.is_empty());
    }

    /// The views of texts that are short, or that begin the buffer beside them.
    fn views_of(texts: &[&str]) -> Vec<u8> {
        let mut views = Vec::new();
        for text in texts {
            views.extend((text.len() as u32).to_le_bytes());
            let mut inline = text.as_bytes()[..if text.len() <= 12 { text.len() } else { 4 }].to_vec();
            inline.resize(12, 0);
            views.extend(inline);
        }
        views
    }

    #[test]
    fn numbers_are_added_up_in_the_order_of_the_texts_bytes() {
        let buffers: [&[u8]; 1] = [b"b is a longer one"];
        let (left, right) =
            (views_of(&["b", "b is a longer one", "b\0", "bz"]), views_of(&["bz", "b", "b is"]));
        let columns = [&left, &right].map(|views| Views::new(views, &buffers, true).unwrap());
        let (first, sums) = add_up_rows(&columns, &[1, 2, 3, 4, 50, -60, 70]).unwrap();
        assert_eq!(first, [0, 2, 6, 1, 3]);
        assert_eq!(sums, [-59, 3, 70, 2, 54]);
        assert_eq!(add_up_rows(&columns[..0], &[]).unwrap(), (vec![], vec![]));
        assert!(add_up_rows(&columns, &[1]).is_err());
        assert!(add_up_rows(&columns, &[0, 0, 0, i64::MAX, 1, 0, 0]).is_err());
    }

    #[test]
    fn texts_are_remembered_with_their_slots() {
        let views = views_of(&["a", "", "thirteen long"]);
        let buffers: [&[u8]; 1] = [b"thirteen long"];
        let texts = [Views::new(&views, &buffers, true).unwrap()];
        let mut slots = TextSlots::new(&[7; 32]);
        assert_eq!(slots.find(&texts), [NO_SLOT; 3]);
        slots.remember(&texts, &[5, NO_SLOT, 0]).unwrap();
        assert_eq!(slots.find(&texts), [5, NO_SLOT, 0]);
        slots.remember(&texts, &[4, 3, 2]).unwrap();
        assert_eq!(slots.find(&texts), [5, 3, 0]);
        assert!(slots.remember(&texts, &[1]).is_err());
    }

    #[test]
    fn slots_are_handed_out_in_order_and_kept() {
        let mut table = SlotTable::default();
        assert_eq!(table.find_or_add(&[7, 9, 7, 8]), [0, 1, 0, 2]);
        assert_eq!(table.find_or_add(&[8, 5]), [2, 3]);
        assert_eq!(table.find(&[5, 6]), [3, NO_SLOT]);
        assert_eq!(table.names(), [7, 9, 8, 5]);
    }

    #[test]
    fn names_with_equal_low_halves_are_told_apart() {
        let mut table = SlotTable::default();
        assert_eq!(table.find_or_add(&[1, 1 | (1 << 64)]), [0, 1]);
    }
}
