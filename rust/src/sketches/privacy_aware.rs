//! The privacy-aware Misra-Gries sketch: sets of keys, at most one decrement for each.
//!
//! Lebeda and Tetek, Algorithm 4. One set, however large, changes every count by at most one, all in one direction.

use super::entries::Keys;
use super::index::Found;
use super::table::{Rows, Table};
use crate::error::Error;

/// A privacy-aware Misra-Gries sketch of at most `k` keys.
pub struct PrivacyAware<K: Keys> {
    keys: K,
    table: Table<K>,
    /// The table that takes over at the next decrement: empty.
    next: Table<K>,
    k: usize,
    decrements: i64,
    total: i64,
}

impl<K: Keys> PrivacyAware<K> {
    /// An empty sketch.
    pub fn new(keys: K, k: usize) -> Self {
        // For a moment there is a counter for each key of a set too.
        let most = k + k / 8 + 16;
        PrivacyAware { keys, table: Table::new(most), next: Table::new(most), k, decrements: 0, total: 0 }
    }

    /// A sketch in a given state: distinct keys in any order, each with its u.
    pub fn restore<'a>(
        keys: K,
        k: usize,
        counters: impl Iterator<Item = (K::Key<'a>, i64)>,
        decrements: i64,
        total: i64,
    ) -> Result<Self, Error> {
        let mut sketch = PrivacyAware::new(keys, k);
        (sketch.decrements, sketch.total) = (decrements, total);
        for (key, over) in counters {
            let hash = sketch.keys.hash(key);
            let fits = over > decrements && sketch.table.len() < k;
            if !fits || sketch.table.find_or_insert(&sketch.keys, hash, key, Some(over)) != Found::New {
                return Err(Error::Parameter(
                    "a sketch must store at most k keys, each once, with a count above zero".into(),
                ));
            }
        }
        Ok(sketch)
    }

    /// The number of decrements, D.
    pub fn decrements(&self) -> i64 {
        self.decrements
    }

    /// The number of keys of all sets, each counted once in a set.
    pub fn total(&self) -> i64 {
        self.total
    }

    /// The stored keys, each with its u.
    pub fn stored(&self) -> &Rows<K> {
        self.table.rows()
    }

    /// How many bytes are held.
    pub fn memory(&self) -> usize {
        self.table.memory() + self.next.memory()
    }

    /// Count a batch of sets: `ends` cut the keys into sets. All or, if the total could pass 2^63 - 1, nothing.
    pub fn update<'a>(&mut self, ends: &[usize], key: impl Fn(usize) -> K::Key<'a>) -> Result<(), Error> {
        let length = ends.last().copied().unwrap_or_default();
        if i64::try_from(length).ok().and_then(|more| self.total.checked_add(more)).is_none() {
            return Err(Error::Parameter("a sketch must count at most 2^63 - 1 keys".into()));
        }
        let mut set = Vec::new();
        let mut start = 0;
        for &end in ends {
            set.clear();
            set.extend((start..end).map(|place| (self.keys.hash(key(place)), place)));
            remove_repetitions(&mut set, |left, right| K::same(key(left), key(right)));
            self.add(&set, &key);
            start = end;
        }
        Ok(())
    }

    fn add<'a>(&mut self, set: &[(u64, usize)], key: &impl Fn(usize) -> K::Key<'a>) {
        self.total += set.len() as i64;
        let counter = Some(self.decrements + 1);
        for &(hash, place) in set {
            if let Found::Slot(slot) = self.table.find_or_insert(&self.keys, hash, key(place), counter) {
                *self.table.over(slot) += 1;
            }
        }
        if self.table.len() > self.k {
            self.decrements += 1;
            self.next.take(&self.keys, &self.table, self.decrements + 1);
            self.table.clear();
            std::mem::swap(&mut self.table, &mut self.next);
        }
    }
}

/// Keep one of each group of places with the same key.
fn remove_repetitions(set: &mut Vec<(u64, usize)>, same: impl Fn(usize, usize) -> bool) {
    set.sort_unstable();
    let mut kept = 0;
    for next in 0..set.len() {
        let (hash, place) = set[next];
        let known = set[..kept].iter().rev().take_while(|(other, _)| *other == hash);
        if known.into_iter().all(|(_, other)| !same(*other, place)) {
            set[kept] = set[next];
            kept += 1;
        }
    }
    set.truncate(kept);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketches::entries::Integers;

    fn sketch_of(k: usize, sets: &[&[i64]]) -> (Vec<(i64, i64)>, i64, i64) {
        let mut sketch = PrivacyAware::new(Integers::new(&[7; 32]), k);
        let keys = sets.concat();
        let ends: Vec<_> = sets
            .iter()
            .scan(0, |end, set| {
                *end += set.len();
                Some(*end)
            })
            .collect();
        sketch.update(&ends, |place| keys[place]).unwrap();
        let down = sketch.decrements();
        let counter = |slot: usize| sketch.stored().counters[slot];
        let slots = sketch.stored().sorted(|_| true);
        let counts = slots.iter().map(|slot| (counter(*slot).key, counter(*slot).over - down)).collect();
        (counts, down, sketch.total())
    }

    #[test]
    fn one_set_decrements_once() {
        let sets: [&[i64]; 5] = [&[1, 2], &[1, 3], &[1, 4], &[2, 3], &[1, 2, 5]];
        assert_eq!(sketch_of(3, &sets[..3]).0, [(1, 2)]);
        assert_eq!(sketch_of(3, &sets[..4]).0, [(1, 2), (2, 1), (3, 1)]);
        assert_eq!(sketch_of(3, &sets), (vec![(1, 2), (2, 1)], 2, 11));
        let (before, after) = (&sets[..3], &sets[4..]);
        assert_eq!(sketch_of(3, &[before, after].concat()).0, [(1, 3), (2, 1), (5, 1)]);
    }

    #[test]
    fn a_key_counts_once_in_a_set() {
        assert_eq!(sketch_of(3, &[&[2, 1, 2, 2, 1], &[]]), (vec![(1, 1), (2, 1)], 0, 2));
    }
}
