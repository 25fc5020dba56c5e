//! The Misra-Gries sketch, with the smallest zero key replaced first.
//!
//! Lebeda and Tetek, "Better Differentially Private Approximate Histograms and Heavy Hitters using the Misra-Gries
//! Sketch", Algorithm 1. Counters hold u = count + D, with D the number of decrements, so that a decrement touches none
//! of them.
//!
//! Which zero keys were replaced is not looked up until the sketch is read. When a key of counter D comes, it is stored
//! with count zero, or it was and has been replaced since. In both cases its count is one then, and one stored key less
//! has count zero: itself, or the smallest of the others. And if no zero key is left, it is the second case. So how many
//! there are is all that the stream needs; between two decrements no key becomes zero, and at a decrement all zero keys
//! have been replaced. What came is kept for the reader, in its order.
//!
//! Keys that are new since the last decrement have a table of their own, which takes over at the next one, together
//! with what is left of the other.

use super::entries::Keys;
use super::index::Found;
use super::table::{Rows, Table};
use crate::error::Error;

/// How many keys are hashed ahead of their use.
const BLOCK: usize = 64;

/// A key that had count zero at the last decrement came again.
#[derive(Clone, Copy)]
struct Return {
    slot: u32,
    /// How many new keys had replaced one before.
    after: u32,
}

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
    /// How many keys are stored.
    stored: usize,
    /// How many of them have count zero.
    zeros: usize,
    /// How many new keys have replaced a zero key since the last decrement.
    replacing: usize,
    /// The zero keys that came again since, replaced or not, in the order in which they came.
    returned: Vec<Return>,
}

impl<K: Keys> MisraGries<K> {
    /// An empty sketch.
    pub fn new(keys: K, k: usize) -> Self {
        MisraGries {
            keys,
            old: Table::new(k),
            new: Table::new(k),
            k,
            decrements: 0,
            total: 0,
            stored: 0,
            zeros: 0,
            replacing: 0,
            returned: Vec::new(),
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
        let mut sketch = MisraGries::new(keys, k);
        (sketch.decrements, sketch.total) = (decrements, total);
        for (key, over) in counters {
            let hash = sketch.keys.hash(key);
            let fits = over >= decrements && sketch.stored < k;
            if !fits || sketch.old.find_or_insert(&sketch.keys, hash, key, Some(over)) != Found::New {
                return Err(Error::Parameter(
                    "a sketch must store at most k keys, each once, with a count of at least zero".into(),
                ));
            }
            sketch.stored += 1;
            sketch.zeros += usize::from(over == decrements);
        }
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
        let replaced = self.replaced();
        let mut rows = Rows::with_capacity(self.stored);
        let (old, new) = (self.old.rows(), self.new.rows());
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

    /// For each slot of the old table whether its key was replaced and has not come again.
    fn replaced(&self) -> Vec<bool> {
        let old = self.old.rows();
        let mut zero: Vec<bool> =
            old.counters.iter().map(|counter| counter.over == self.decrements).collect();
        for returned in &self.returned {
            zero[returned.slot as usize] = true;
        }
        let mut replaced = vec![false; zero.len()];
        let mut smallest = old.sorted(|slot| zero[slot]).into_iter();
        let mut replace = |zero: &mut [bool], replaced: &mut [bool]| {
            if let Some(slot) = smallest.find(|slot| zero[*slot]) {
                zero[slot] = false;
                replaced[slot] = true;
            }
        };
        let mut replacing = 0;
        for &Return { slot, after } in &self.returned {
            for _ in replacing..after as usize {
                replace(&mut zero, &mut replaced);
            }
            replacing = after as usize;
            let slot = slot as usize;
            if zero[slot] {
                zero[slot] = false;
            } else {
                replace(&mut zero, &mut replaced);
                replaced[slot] = false;
            }
        }
        for _ in replacing..self.replacing {
            replace(&mut zero, &mut replaced);
        }
        replaced
    }

    /// How many bytes are held.
    pub fn memory(&self) -> usize {
        self.old.memory() + self.new.memory() + self.returned.capacity() * size_of::<Return>()
    }

    /// Count a batch of keys, all or, if the total would pass 2^63 - 1, none.
    pub fn update<'a>(&mut self, length: usize, key: impl Fn(usize) -> K::Key<'a>) -> Result<(), Error> {
        let total = i64::try_from(length).ok().and_then(|more| self.total.checked_add(more));
        self.total =
            total.ok_or_else(|| Error::Parameter("a sketch must count at most 2^63 - 1 keys".into()))?;
        let mut hashes = [0; BLOCK];
        for start in (0..length).step_by(BLOCK) {
            let block = start..length.min(start + BLOCK);
            if K::HASHED_AHEAD {
                for (hash, place) in hashes.iter_mut().zip(block.clone()) {
                    *hash = self.keys.hash(key(place));
                }
            }
            for (hash, place) in hashes.iter().zip(block) {
                let key = key(place);
                self.add(if K::HASHED_AHEAD { *hash } else { self.keys.hash(key) }, key);
            }
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
        let counter = (self.stored < self.k || self.zeros > 0).then_some(self.decrements + 1);
        match self.new.find_or_insert(&self.keys, hash, key, counter) {
            Found::Slot(slot) => *self.new.over(slot) += 1,
            Found::New if self.stored < self.k => self.stored += 1,
            Found::New => {
                self.zeros -= 1;
                self.replacing += 1;
            }
            Found::Nothing => self.decrement(),
        }
    }

    /// Count a key whose counter is D.
    #[inline(never)]
    fn add_again(&mut self, slot: usize) {
        if self.zeros == 0 {
            return self.decrement();
        }
        self.zeros -= 1;
        self.returned.push(Return { slot: slot as u32, after: self.replacing as u32 });
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
        self.zeros = self.old.rows().counters.iter().filter(|counter| counter.over == level).count();
        self.replacing = 0;
        self.returned.clear();
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
