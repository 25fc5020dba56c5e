//! The Misra-Gries sketch, with the smallest zero key replaced first.
//!
//! Lebeda and Tetek, "Better Differentially Private Approximate Histograms and Heavy Hitters using the Misra-Gries
//! Sketch", Algorithm 1. Counters hold u = count + D, with D the number of decrements, so that a decrement touches none
//! of them.
//!
//! Replacing the smallest zero key is put off. Between two decrements no key becomes zero, so the keys replaced since the
//! last one are the smallest of those that are zero all the time: to know how many they are says which ones. They are
//! looked up, and the zero keys sorted, only when a zero key comes again, when the memory for replaced keys is used up,
//! or when the sketch is read. A stream of ever new keys sorts nothing.

use std::cmp::Ordering;

use super::entries::Keys;
use super::order::{Order, Ranking};
use super::table::{Found, Table};
use crate::error::Error;

/// How many keys are hashed ahead of their use.
const BLOCK: usize = 64;

/// A counter that is void: below every D.
const VOID: i64 = -1;

/// A Misra-Gries sketch of at most `k` keys.
pub struct MisraGries<K: Keys> {
    /// Counters of stored keys, and of zero keys that were replaced since the last decrement.
    table: Table<K>,
    k: usize,
    /// How many counters the table may hold.
    most: usize,
    decrements: i64,
    total: i64,
    /// How many keys are stored.
    stored: usize,
    /// How many of them have count zero.
    zeros: usize,
    /// How many zero keys were replaced since the last decrement.
    replaced: usize,
    /// The keys that were zero when it was made; empty if it is not made.
    order: Order,
    /// What these keys have in common at their beginning.
    common: usize,
}

impl<K: Keys> MisraGries<K> {
    /// An empty sketch.
    pub fn new(keys: K, k: usize) -> Self {
        MisraGries::of(Table::new(keys, K::most(k)), k, 0, 0)
    }

    fn of(table: Table<K>, k: usize, decrements: i64, total: i64) -> Self {
        let zeros = table.counters().iter().filter(|counter| counter.over == decrements).count();
        MisraGries {
            k,
            most: K::most(k),
            decrements,
            total,
            stored: table.len(),
            zeros,
            replaced: 0,
            order: Order::default(),
            common: 0,
            table,
        }
    }

    /// A sketch in a given state: distinct keys in any order, each with its u.
    pub fn restore<'a>(
        keys: K,
        k: usize,
        counters: impl Iterator<Item = (K::Key<'a>, i64)>,
        decrements: i64,
        total: i64,
    ) -> Result<Self, Error> {
        let table = Table::restore(keys, k, K::most(k), counters, decrements)?;
        Ok(MisraGries::of(table, k, decrements, total))
    }

    /// The number of decrements, D.
    pub fn decrements(&self) -> i64 {
        self.decrements
    }

    /// The number of keys that came.
    pub fn total(&self) -> i64 {
        self.total
    }

    /// The table of u by key, cleared of replaced keys.
    pub fn table(&mut self) -> &Table<K> {
        self.clear_replaced();
        &self.table
    }

    /// How many bytes are held.
    pub fn memory(&self) -> usize {
        self.table.memory() + self.order.memory()
    }

    /// Count a batch of keys, all or, if the total would pass 2^63 - 1, none.
    pub fn update<'a>(&mut self, length: usize, key: impl Fn(usize) -> K::Key<'a>) -> Result<(), Error> {
        let total = i64::try_from(length).ok().and_then(|more| self.total.checked_add(more));
        self.total =
            total.ok_or_else(|| Error::Parameter("a sketch must count at most 2^63 - 1 keys".into()))?;
        for start in (0..length).step_by(BLOCK) {
            let end = length.min(start + BLOCK);
            let block: [_; BLOCK] = std::array::from_fn(|place| {
                let key = key((start + place).min(end - 1));
                (self.table.hash(key), key)
            });
            for (hash, key) in &block[..end - start] {
                self.add(*hash, *key);
            }
        }
        Ok(())
    }

    #[inline]
    fn add(&mut self, hash: u64, key: K::Key<'_>) {
        if self.table.len() == self.most {
            self.clear_replaced();
        }
        let counter = self.has_room().then_some(self.decrements + 1);
        match self.table.find_or_insert(hash, key, counter, self.most) {
            Found::Slot(slot) => {
                let over = self.table.over(slot);
                if *over > self.decrements {
                    *over += 1;
                } else {
                    self.add_to_zero(slot);
                }
            }
            Found::Room => self.take_room(),
            Found::Nothing => self.decrement(),
        }
    }

    /// Whether there is a free counter, or one of a key of count zero.
    #[inline]
    fn has_room(&self) -> bool {
        self.stored < self.k || self.zeros > 0
    }

    /// A new key has taken a free counter, or else that of the smallest zero key.
    #[inline]
    fn take_room(&mut self) {
        if self.stored < self.k {
            self.stored += 1;
        } else {
            self.zeros -= 1;
            self.replaced += 1;
        }
    }

    /// Count a key whose counter is D: it is stored with count zero, or it was and has been replaced since.
    #[inline(never)]
    fn add_to_zero(&mut self, slot: u32) {
        if !self.is_replaced(slot) {
            self.zeros -= 1;
            if !self.order.is_empty() {
                let mark = self.table.mark(slot, self.common);
                self.order.leave(mark, &Zeros { table: &self.table, level: self.decrements });
            }
        } else if self.has_room() {
            self.take_room();
        } else {
            return self.decrement();
        }
        *self.table.over(slot) = self.decrements + 1;
    }

    /// All counts are positive, so every counter of D belongs to a replaced key: gone with the next D.
    fn decrement(&mut self) {
        self.decrements += 1;
        self.table.retain(self.decrements);
        self.zeros = self.table.counters().iter().filter(|counter| counter.over == self.decrements).count();
        self.forget_replaced();
    }

    fn forget_replaced(&mut self) {
        self.order.clear();
        self.replaced = 0;
    }

    /// Whether a key whose counter is D was replaced.
    ///
    /// A key whose counter is no longer D came again before its turn. A replaced key that came again lies before all of
    /// which this is asked later.
    fn is_replaced(&mut self, slot: u32) -> bool {
        if self.replaced == 0 {
            return false;
        }
        self.fill_order();
        let mark = self.table.mark(slot, self.common);
        self.order.is_among(mark, self.replaced, &Zeros { table: &self.table, level: self.decrements })
    }

    fn fill_order(&mut self) {
        if self.order.is_empty() {
            // No key has become zero since the table was last made anew, with `k` keys at the most.
            let slots = self.k.min(self.table.len());
            self.common = self.table.fill(&mut self.order, slots, self.decrements);
        }
    }

    /// Clear the replaced keys away.
    #[inline(never)]
    fn clear_replaced(&mut self) {
        if self.replaced == 0 {
            return;
        }
        self.fill_order();
        let Self { table, order, decrements, .. } = self;
        let first = order.first(self.replaced, &Zeros { table, level: *decrements });
        let slots: Vec<u32> = first.iter().filter_map(|mark| table.slot(*mark)).collect();
        for slot in slots {
            let over = table.over(slot);
            if over == decrements {
                *over = VOID;
            }
        }
        table.retain(self.decrements);
        self.forget_replaced();
    }
}

/// The order of keys of count zero.
struct Zeros<'a, K: Keys> {
    table: &'a Table<K>,
    level: i64,
}

impl<K: Keys> Ranking for Zeros<'_, K> {
    #[inline]
    fn compare(&self, left: u64, right: u64) -> Ordering {
        self.table.compare(left, right)
    }

    #[inline]
    fn has_left(&self, mark: u64) -> bool {
        self.table.slot(mark).is_none_or(|slot| self.table.counters()[slot as usize].over != self.level)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketches::entries::{ByteKey, Bytes, Integers};

    fn counts(sketch: &mut MisraGries<Integers>) -> Vec<(i64, i64)> {
        let down = sketch.decrements();
        sketch.table().sorted().iter().map(|counter| (counter.key, counter.over - down)).collect()
    }

    #[test]
    fn the_smallest_zero_key_is_replaced() {
        let mut sketch = MisraGries::new(Integers::new(&[7; 32]), 3);
        let stream = [5i64, 3, 7, 3, 9, 1, 7, 2, 2, 8, 4];
        let after = |sketch: &mut MisraGries<Integers>, keys: &[i64]| {
            sketch.update(keys.len(), |place| keys[place]).unwrap();
            (counts(sketch), sketch.decrements())
        };
        assert_eq!(after(&mut sketch, &stream[..5]), (vec![(3, 1), (5, 0), (7, 0)], 1));
        assert_eq!(after(&mut sketch, &stream[5..6]), (vec![(1, 1), (3, 1), (7, 0)], 1));
        assert_eq!(after(&mut sketch, &stream[6..7]), (vec![(1, 1), (3, 1), (7, 1)], 1));
        assert_eq!(after(&mut sketch, &stream[7..8]), (vec![(1, 0), (3, 0), (7, 0)], 2));
        assert_eq!(after(&mut sketch, &stream[8..]), (vec![(2, 1), (4, 1), (8, 1)], 2));
    }

    #[test]
    fn byte_keys_are_evicted_in_the_order_of_their_bytes() {
        let mut sketch = MisraGries::new(Bytes::new(&[7; 32]), 3);
        let stream: [&[u8]; 5] = [b"b", b"ab", b"abc", b"x", b"y"];
        sketch.update(5, |place| ByteKey::new(stream[place])).unwrap();
        let table = sketch.table();
        let stored: Vec<_> = table
            .sorted()
            .iter()
            .map(|counter| (table.keys().bytes(&counter.key).to_vec(), counter.over))
            .collect();
        assert_eq!(stored, [(b"abc".to_vec(), 1), (b"b".to_vec(), 1), (b"y".to_vec(), 2)]);
    }

    #[test]
    fn a_total_beyond_63_bits_is_refused_before_it_wraps() {
        let mut sketch =
            MisraGries::restore(Integers::new(&[7; 32]), 1, [(1, i64::MAX - 1)].into_iter(), 0, i64::MAX - 1)
                .unwrap();
        assert!(sketch.update(2, |_| 1).is_err());
        assert_eq!(counts(&mut sketch), [(1, i64::MAX - 1)]);
        sketch.update(1, |_| 1).unwrap();
        assert_eq!(counts(&mut sketch), [(1, i64::MAX)]);
    }
}
