//! Counters by key: the hash table under both sketches.
//!
//! Counters lie in the order in which their keys came, and an index of slots finds them. Nothing is ever taken out: what
//! is to stay moves to another table, and this one is cleared. That costs less than taking keys out one by one, and
//! leaves no traces that slow down later searches.

use super::entries::{Arena, Keys};
use super::index::{Found, Index};

/// A stored key and its counter.
#[derive(Clone, Copy)]
pub struct Counter<Stored> {
    /// The key.
    pub key: Stored,
    /// The count and all decrements so far.
    pub over: i64,
}

/// Counters in the order in which their keys came.
pub struct Rows<K: Keys> {
    /// The counters.
    pub counters: Vec<Counter<K::Stored>>,
    /// What the stored keys have beside them.
    pub arena: K::Arena,
}

impl<K: Keys> Rows<K> {
    /// No rows, with room for so many.
    pub fn with_capacity(rows: usize) -> Self {
        Rows { counters: Vec::with_capacity(rows), arena: K::Arena::default() }
    }

    /// The same key and counter as in a row elsewhere.
    #[inline]
    pub fn copy(&mut self, counter: Counter<K::Stored>, from: &K::Arena) -> Counter<K::Stored> {
        Counter { key: K::keep_stored(&mut self.arena, counter.key, from), over: counter.over }
    }

    /// The slots that `chosen` accepts, in the order of their keys.
    pub fn sorted(&self, chosen: impl Fn(usize) -> bool) -> Vec<usize> {
        let key = |slot: usize| self.counters[slot].key;
        let chosen = (0..self.counters.len()).filter(|slot| chosen(*slot));
        let mut ranked: Vec<_> = chosen.map(|slot| (K::rank(key(slot), &self.arena), slot)).collect();
        ranked.sort_unstable_by(|left, right| {
            left.0.cmp(&right.0).then_with(|| K::compare(key(left.1), key(right.1), &self.arena))
        });
        ranked.into_iter().map(|(_, slot)| slot).collect()
    }
}

/// Counters by key.
pub struct Table<K: Keys> {
    rows: Rows<K>,
    index: K::Index,
    most: usize,
}

impl<K: Keys> Table<K> {
    /// A table that is meant for `most` keys.
    pub fn new(most: usize) -> Self {
        Table { rows: Rows::with_capacity(0), index: K::Index::new(most), most }
    }

    /// How many keys are stored.
    #[inline]
    pub fn len(&self) -> usize {
        self.rows.counters.len()
    }

    /// Whether no key is stored.
    pub fn is_empty(&self) -> bool {
        self.rows.counters.is_empty()
    }

    /// All counters, in the order in which their keys came.
    pub fn rows(&self) -> &Rows<K> {
        &self.rows
    }

    /// The slot of a key, if it is stored.
    #[inline]
    pub fn find(&self, hash: u64, key: K::Key<'_>) -> Option<usize> {
        let Rows { counters, arena } = &self.rows;
        self.index.find(hash, |slot| K::is(counters[slot].key, arena, hash, key))
    }

    /// The slot of a key, if it is stored. If it is not and there is a counter for it, it is stored, behind all others.
    #[inline]
    pub fn find_or_insert(&mut self, keys: &K, hash: u64, key: K::Key<'_>, counter: Option<i64>) -> Found {
        let Rows { counters, arena } = &mut self.rows;
        let found = self.index.find_or_insert(
            hash,
            counter.map(|_| counters.len()),
            |slot| K::is(counters[slot].key, arena, hash, key),
            |slot| keys.hash_stored(counters[slot].key),
        );
        if let (Found::New, Some(over)) = (found, counter) {
            let key = K::keep(arena, hash, key);
            self.push(Counter { key, over });
        }
        found
    }

    #[inline]
    fn push(&mut self, counter: Counter<K::Stored>) {
        let counters = &mut self.rows.counters;
        let length = counters.len();
        if length == counters.capacity() {
            // Twice as much each time, but not beyond what is meant to be needed before it is.
            let more = if length < self.most { length.clamp(1, self.most - length) } else { length };
            counters.reserve_exact(more);
        }
        counters.push(counter);
    }

    /// The counter in a slot.
    #[inline]
    pub fn over(&mut self, slot: usize) -> &mut i64 {
        &mut self.rows.counters[slot].over
    }

    /// Store all counters of another table of at least `least`; no key of these may be stored here.
    pub fn take(&mut self, keys: &K, other: &Table<K>, least: i64) {
        for counter in other.rows.counters.iter().filter(|counter| counter.over >= least) {
            let counter = self.rows.copy(*counter, &other.rows.arena);
            let counters = &self.rows.counters;
            let hash_of = |slot: usize| keys.hash_stored(counters[slot].key);
            self.index.find_or_insert(
                keys.hash_stored(counter.key),
                Some(counters.len()),
                |_| false,
                hash_of,
            );
            self.push(counter);
        }
    }

    /// Forget all, and give back the memory that more keys than meant for have needed.
    pub fn clear(&mut self) {
        if self.len() > 2 * self.most {
            *self = Table::new(self.most);
            return;
        }
        self.rows.counters.clear();
        self.rows.arena.clear();
        self.index.clear();
    }

    /// How many bytes are held.
    pub fn memory(&self) -> usize {
        let Rows { counters, arena } = &self.rows;
        counters.capacity() * size_of::<Counter<K::Stored>>() + arena.memory() + self.index.memory()
    }
}
