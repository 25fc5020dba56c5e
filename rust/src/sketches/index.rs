//! From hashes to slots.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// What came of a search.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Found {
    /// It is in this slot.
    Slot(usize),
    /// It was nowhere, and is in the new slot now.
    New,
    /// It is nowhere, and there was no new slot.
    Nothing,
}

/// Slots by the hash of what lies there.
pub trait Index {
    /// An index for slots below `most`, which it may go beyond.
    fn new(most: usize) -> Self;
    /// The slot with this hash that `is` accepts.
    fn find(&self, hash: u64, is: impl Fn(usize) -> bool) -> Option<usize>;
    /// The slot with this hash that `is` accepts; if there is none, a new one takes its place, if there is one.
    fn find_or_insert(
        &mut self,
        hash: u64,
        new: Option<usize>,
        is: impl Fn(usize) -> bool,
        hash_of: impl Fn(usize) -> u64,
    ) -> Found;
    /// Forget all.
    fn clear(&mut self);
    /// How many bytes are held.
    fn memory(&self) -> usize;
}

/// A slot in two bytes or in four.
pub trait Slot: Copy {
    /// The slot as it is stored.
    fn of(slot: usize) -> Self;
    /// The slot.
    fn get(self) -> usize;
}

impl Slot for u16 {
    #[inline]
    fn of(slot: usize) -> Self {
        slot as u16
    }

    #[inline]
    fn get(self) -> usize {
        self.into()
    }
}

impl Slot for u32 {
    #[inline]
    fn of(slot: usize) -> Self {
        slot as u32
    }

    #[inline]
    fn get(self) -> usize {
        self as usize
    }
}

impl<S: Slot> Index for HashTable<S> {
    fn new(_most: usize) -> Self {
        HashTable::new()
    }

    #[inline]
    fn find(&self, hash: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        HashTable::find(self, hash, |slot| is(slot.get())).map(|slot| slot.get())
    }

    #[inline]
    fn find_or_insert(
        &mut self,
        hash: u64,
        new: Option<usize>,
        is: impl Fn(usize) -> bool,
        hash_of: impl Fn(usize) -> u64,
    ) -> Found {
        match self.entry(hash, |slot| is(slot.get()), |slot| hash_of(slot.get())) {
            Entry::Occupied(entry) => Found::Slot(entry.get().get()),
            Entry::Vacant(entry) => {
                let Some(slot) = new else { return Found::Nothing };
                entry.insert(S::of(slot));
                Found::New
            }
        }
    }

    fn clear(&mut self) {
        HashTable::clear(self);
    }

    fn memory(&self) -> usize {
        self.allocation_size()
    }
}

/// Slots of two bytes as long as that is enough, of four from then on.
pub enum Narrowest {
    /// Slots of two bytes.
    Narrow(HashTable<u16>),
    /// Slots of four bytes.
    Wide(HashTable<u32>),
}

impl Narrowest {
    /// So many slots need two bytes each.
    pub const NARROW: usize = u16::MAX as usize;

    /// Take slots of four bytes, with all that are there.
    #[cold]
    #[inline(never)]
    fn widen(&mut self, hash_of: &impl Fn(usize) -> u64) {
        if matches!(self, Self::Narrow(_)) {
            let mut wide = HashTable::with_capacity(2 * Self::NARROW);
            for slot in 0..=Self::NARROW {
                wide.insert_unique(hash_of(slot), slot as u32, |slot: &u32| hash_of(slot.get()));
            }
            *self = Self::Wide(wide);
        }
    }
}

impl Index for Narrowest {
    fn new(most: usize) -> Self {
        if most <= Self::NARROW { Self::Narrow(HashTable::new()) } else { Self::Wide(HashTable::new()) }
    }

    #[inline]
    fn find(&self, hash: u64, is: impl Fn(usize) -> bool) -> Option<usize> {
        match self {
            Self::Narrow(slots) => Index::find(slots, hash, is),
            Self::Wide(slots) => Index::find(slots, hash, is),
        }
    }

    #[inline]
    fn find_or_insert(
        &mut self,
        hash: u64,
        new: Option<usize>,
        is: impl Fn(usize) -> bool,
        hash_of: impl Fn(usize) -> u64,
    ) -> Found {
        if new == Some(Self::NARROW + 1) {
            self.widen(&hash_of);
        }
        match self {
            Self::Narrow(slots) => slots.find_or_insert(hash, new, is, hash_of),
            Self::Wide(slots) => slots.find_or_insert(hash, new, is, hash_of),
        }
    }

    fn clear(&mut self) {
        match self {
            Self::Narrow(slots) => slots.clear(),
            Self::Wide(slots) => slots.clear(),
        }
    }

    fn memory(&self) -> usize {
        match self {
            Self::Narrow(slots) => slots.memory(),
            Self::Wide(slots) => slots.memory(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_goes_beyond_what_two_bytes_hold() {
        let hash = |slot: usize| (slot as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let mut index = Narrowest::new(8);
        for slot in 0..70_000 {
            assert!(index.find_or_insert(hash(slot), Some(slot), |other| other == slot, hash) == Found::New);
        }
        assert!((0..70_000).all(|slot| index.find(hash(slot), |other| other == slot) == Some(slot)));
        assert!(index.find_or_insert(hash(70_000), None, |_| false, hash) == Found::Nothing);
    }
}
