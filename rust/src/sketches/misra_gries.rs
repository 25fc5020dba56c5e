//! The Misra-Gries sketch, with the smallest zero key replaced first.
//!
//! Lebeda and Tetek, "Better Differentially Private Approximate Histograms and Heavy Hitters using the Misra-Gries
//! Sketch", Algorithm 1. Counters hold u = count + D, with D the number of decrements, so that a decrement touches none
//! of them.
//!
//! Keys that are new since the last decrement have a table of their own, which takes over at the next one, together
//! with what is left of the other.

use super::entries::Keys;
use super::index::Found;
use super::replacement::Period;
use super::table::{Rows, Table};
use crate::error::Error;

/// A Misra-Gries sketch of at most `k` keys.
pub struct MisraGries<K: Keys> {
    keys: K,
    /// The keys stored at the last decrement, those that were replaced since included.
    old: Table<K>,
    /// The keys stored since.
    new: Table<K>,
    k: usize,
    decrements: i64,
    total: i64,
    period: Period,
}

impl<K: Keys> MisraGries<K> {
    /// An empty sketch.
    pub fn new(keys: K, k: usize) -> Self {
        let (old, new) = (Table::new(k), Table::new(k));
        MisraGries { keys, old, new, k, decrements: 0, total: 0, period: Period::new(k, 0) }
    }

    /// A sketch in a given state: distinct keys in any order, each with its u.
    pub fn restore<'a>(
        keys: K,
        k: usize,
        counters: impl Iterator<Item = (K::Key<'a>, i64)>,
        decrements: i64,
        total: i64,
    ) -> Result<Self, Error> {
        let mut sketch = MisraGries::new(keys, k);
        (sketch.decrements, sketch.total) = (decrements, total);
        let mut zeros = 0;
        for (key, over) in counters {
            let hash = sketch.keys.hash(key);
            let fits = over >= decrements && sketch.old.len() < k;
            if !fits || sketch.old.find_or_insert(&sketch.keys, hash, key, Some(over)) != Found::New {
                return Err(Error::Parameter(
                    "a sketch must store at most k keys, each once, with a count of at least zero".into(),
                ));
            }
            zeros += usize::from(over == decrements);
        }
        sketch.period = Period::new(k - sketch.old.len(), zeros);
        Ok(sketch)
    }

    /// The number of decrements, D.
    pub fn decrements(&self) -> i64 {
        self.decrements
    }

    /// The number of keys that came.
    pub fn total(&self) -> i64 {
        self.total
    }

    /// The stored keys, each with its u.
    pub fn stored(&self) -> Rows<K> {
        let (old, new) = (self.old.rows(), self.new.rows());
        let zero = old.counters.iter().map(|counter| counter.over == self.decrements).collect();
        let replaced = self.period.replaced(zero, |zero| old.sorted(|slot| zero[slot]));
        let mut rows = Rows::with_capacity(self.k.min(self.old.len() + self.new.len()));
        for (counter, _) in old.counters.iter().zip(&replaced).filter(|(_, replaced)| !**replaced) {
            let counter = rows.copy(*counter, &old.arena);
            rows.counters.push(counter);
        }
        for counter in &new.counters {
            let counter = rows.copy(*counter, &new.arena);
            rows.counters.push(counter);
        }
        rows
    }

    /// How many bytes are held.
    pub fn memory(&self) -> usize {
        self.old.memory() + self.new.memory() + self.period.memory()
    }

    /// Count a batch of keys, all or, if the total would pass 2^63 - 1, none.
    pub fn update<'a>(&mut self, length: usize, key: impl Fn(usize) -> K::Key<'a>) -> Result<(), Error> {
        let total = i64::try_from(length).ok().and_then(|more| self.total.checked_add(more));
        self.total =
            total.ok_or_else(|| Error::Parameter("a sketch must count at most 2^63 - 1 keys".into()))?;
        for place in 0..length {
            let key = key(place);
            self.add(self.keys.hash(key), key);
        }
        Ok(())
    }

    #[inline]
    fn add(&mut self, hash: u64, key: K::Key<'_>) {
        if let Some(slot) = self.old.find(hash, key) {
            let over = self.old.over(slot);
            if *over > self.decrements {
                *over += 1;
            } else {
                self.add_again(slot);
            }
            return;
        }
        let counter = (self.period.left > 0).then_some(self.decrements + 1);
        match self.new.find_or_insert(&self.keys, hash, key, counter) {
            Found::Slot(slot) => *self.new.over(slot) += 1,
            Found::New => self.period.left -= 1,
            Found::Nothing => self.decrement(),
        }
    }

    /// Count a key whose counter is D.
    #[inline(never)]
    fn add_again(&mut self, slot: usize) {
        if self.period.left == 0 {
            return self.decrement();
        }
        self.period.come_again(slot);
        *self.old.over(slot) += 1;
    }

    /// Decrement all. No stored key is zero, so every counter of D belongs to a replaced key.
    #[inline(never)]
    fn decrement(&mut self) {
        self.decrements += 1;
        let level = self.decrements;
        self.new.take(&self.keys, &self.old, level);
        self.old.clear();
        std::mem::swap(&mut self.old, &mut self.new);
        let counters = self.old.rows().counters.iter();
        self.period.begin(counters.filter(|counter| counter.over == level).count());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketches::entries::{ByteKey, Bytes, Integers, bytes_of};

    fn counts(sketch: &MisraGries<Integers>) -> Vec<(i64, i64)> {
        let (table, down) = (sketch.stored(), sketch.decrements());
        let counter = |slot: usize| table.counters[slot];
        table.sorted(|_| true).iter().map(|slot| (counter(*slot).key, counter(*slot).over - down)).collect()
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
        let table = sketch.stored();
        let stored: Vec<_> = table
            .sorted(|_| true)
            .iter()
            .map(|slot| &table.counters[*slot])
            .map(|counter| (bytes_of(&counter.key, &table.arena).to_vec(), counter.over))
            .collect();
        assert_eq!(stored, [(b"abc".to_vec(), 1), (b"b".to_vec(), 1), (b"y".to_vec(), 2)]);
    }

    #[test]
    fn a_total_beyond_63_bits_is_refused_before_it_wraps() {
        let mut sketch =
            MisraGries::restore(Integers::new(&[7; 32]), 1, [(1, i64::MAX - 1)].into_iter(), 0, i64::MAX - 1)
                .unwrap();
        assert!(sketch.update(2, |_| 1).is_err());
        assert_eq!(counts(&sketch), [(1, i64::MAX - 1)]);
        sketch.update(1, |_| 1).unwrap();
        assert_eq!(counts(&sketch), [(1, i64::MAX)]);
    }
}
