//! Counters by key: the hash table under both sketches.
//!
//! Counters lie in the order in which their keys came, and an index of 32-bit slots finds them. Nothing is ever taken out
//! of the index: it is made anew when enough counters have become void. That costs less than taking each out, leaves no
//! traces that slow down later searches, and keeps a counter in forty bytes or so.

use std::cmp::Ordering;

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use super::entries::Keys;
use super::order::Order;
use crate::error::Error;

/// A stored key and its counter.
#[derive(Clone, Copy)]
pub struct Counter<Stored> {
    /// The key.
    pub key: Stored,
    /// The count and all decrements so far.
    pub over: i64,
}

/// Counters by key.
pub struct Table<K: Keys> {
    keys: K,
    counters: Vec<Counter<K::Stored>>,
    index: HashTable<u32>,
    slot_bits: u32,
}

/// What came of a search.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// The key is stored here.
    Slot(u32),
    /// The key was not stored, and is now.
    Room,
    /// The key is not stored, and there was no counter for it.
    Nothing,
}

impl<K: Keys> Table<K> {
    /// A table without keys, for `most` at the most while they are put in order.
    pub fn new(keys: K, most: usize) -> Self {
        let slot_bits = usize::BITS - most.leading_zeros();
        Table { keys, counters: Vec::new(), index: HashTable::new(), slot_bits }
    }

    /// A table of distinct keys, each with a counter of at least `least`.
    pub fn restore<'a>(
        keys: K,
        k: usize,
        most: usize,
        counters: impl Iterator<Item = (K::Key<'a>, i64)>,
        least: i64,
    ) -> Result<Self, Error> {
        let mut table = Table::new(keys, most);
        for (key, over) in counters {
            let hash = table.hash(key);
            let fits = over >= least && table.len() < k;
            if !fits || table.find_or_insert(hash, key, Some(over), most) != Found::Room {
                return Err(Error::Parameter(
                    "a sketch must store at most k keys, each once, with a count that can be".into(),
                ));
            }
        }
        Ok(table)
    }

    /// How many keys are stored, void ones included.
    #[inline]
    pub fn len(&self) -> usize {
        self.counters.len()
    }

    /// Whether no key is stored.
    pub fn is_empty(&self) -> bool {
        self.counters.is_empty()
    }

    /// The keys' type.
    pub fn keys(&self) -> &K {
        &self.keys
    }

    /// All counters, in the order in which their keys came.
    pub fn counters(&self) -> &[Counter<K::Stored>] {
        &self.counters
    }

    /// The keyed hash of a key.
    #[inline]
    pub fn hash(&self, key: K::Key<'_>) -> u64 {
        self.keys.hash(key)
    }

    /// The slot of a key, if it is stored.
    #[inline]
    pub fn find(&self, hash: u64, key: K::Key<'_>) -> Option<u32> {
        self.index.find(hash, |&slot| self.keys.is(self.counters[slot as usize].key, hash, key)).copied()
    }

    /// The slot of a key, if it is stored. If it is not and there is a counter for it, it is stored, behind all others.
    #[inline]
    pub fn find_or_insert(&mut self, hash: u64, key: K::Key<'_>, counter: Option<i64>, most: usize) -> Found {
        let Table { keys, counters, index, .. } = self;
        let entry = index.entry(
            hash,
            |&slot| keys.is(counters[slot as usize].key, hash, key),
            |&slot| keys.hash_stored(counters[slot as usize].key),
        );
        match entry {
            Entry::Occupied(entry) => Found::Slot(*entry.get()),
            Entry::Vacant(entry) => {
                let Some(over) = counter else { return Found::Nothing };
                entry.insert(counters.len() as u32);
                if counters.len() == counters.capacity() {
                    // Twice as much each time, but not beyond what will be needed.
                    counters.reserve_exact(
                        counters.len().clamp(1, most.max(counters.len() + 1) - counters.len()),
                    );
                }
                counters.push(Counter { key: keys.keep(hash, key), over });
                Found::Room
            }
        }
    }

    /// The counter in a slot.
    #[inline]
    pub fn over(&mut self, slot: u32) -> &mut i64 {
        &mut self.counters[slot as usize].over
    }

    /// Keep only counters of at least `least`. Slots change.
    pub fn retain(&mut self, least: i64) {
        let Table { keys, counters, index, .. } = self;
        // Moved in any case and kept if large enough: a jump for each counter that is not would cost more.
        let mut kept = 0;
        for slot in 0..counters.len() {
            counters[kept] = counters[slot];
            kept += usize::from(counters[slot].over >= least);
        }
        if kept == counters.len() {
            return;
        }
        counters.truncate(kept);
        keys.keep_only(counters.iter_mut().map(|counter| &mut counter.key));
        index.clear();
        for (slot, counter) in counters.iter().enumerate() {
            let hasher = |&slot: &u32| keys.hash_stored(counters[slot as usize].key);
            index.insert_unique(keys.hash_stored(counter.key), slot as u32, hasher);
        }
    }

    /// Give back what a moment of more than `most` keys needed.
    pub fn shrink(&mut self, most: usize) {
        let Table { keys, counters, index, .. } = self;
        if counters.capacity() > 2 * most {
            counters.shrink_to(most);
            index.shrink_to(most, |&slot| keys.hash_stored(counters[slot as usize].key));
        }
    }

    /// Put the keys of the first slots whose counter is `over` in their order; what they have in common comes back.
    pub fn fill(&self, order: &mut Order, slots: usize, over: i64) -> usize {
        let counters = &self.counters[..slots];
        let chosen = counters.iter().filter(|counter| counter.over == over);
        let common = self.keys.common(chosen.map(|counter| counter.key));
        let marks = counters.iter().zip(0..).map(|(counter, slot)| {
            (self.keys.mark(counter.key, slot, self.slot_bits, common), counter.over == over)
        });
        order.fill(slots, marks);
        common
    }

    /// The mark of the key in a slot, in an order of keys with so much in common.
    #[inline]
    pub fn mark(&self, slot: u32, common: usize) -> u64 {
        self.keys.mark(self.counters[slot as usize].key, slot, self.slot_bits, common)
    }

    /// The slot that a mark tells.
    #[inline]
    pub fn slot(&self, mark: u64) -> Option<u32> {
        self.keys.slot(mark, self.slot_bits, |hash, key| self.find(hash, key))
    }

    /// The order of two keys by their marks.
    #[inline]
    pub fn compare(&self, left: u64, right: u64) -> Ordering {
        self.keys.compare(left, right, self.slot_bits, |slot| self.counters[slot as usize].key)
    }

    /// All counters in the order of their keys.
    pub fn sorted(&self) -> Vec<Counter<K::Stored>> {
        let slots = || self.counters.iter().zip(0..);
        let common = self.keys.common(slots().map(|(counter, _)| counter.key));
        let mut marks: Vec<u64> = slots().map(|(_, slot)| self.mark(slot, common)).collect();
        marks.sort_unstable_by(|left, right| self.compare(*left, *right));
        marks.iter().filter_map(|mark| self.slot(*mark)).map(|slot| self.counters[slot as usize]).collect()
    }

    /// How many bytes are held.
    pub fn memory(&self) -> usize {
        self.counters.capacity() * size_of::<Counter<K::Stored>>()
            + self.index.allocation_size()
            + self.keys.memory()
    }
}
