//! Counters of whole numbers in buckets of eight, found without a branch on whether a key is there.
//!
//! In a stream with a heavy tail nobody can tell beforehand whether the next key is stored, and a processor that guesses
//! wrong loses as much time as a search takes. So a search here has one course, whatever it finds: it reads the eight
//! tags of a bucket, one byte of the hash each, as one word; where a tag fits it goes, otherwise where one is missing;
//! and it leaves one counter behind there. Only what is rare has a branch of its own.
//!
//! Nothing is taken out. A counter below the number of decrements is free; the tags follow at each decrement.
//!
//! Keys whose bucket is full lie in a hash table beside the buckets, the spill. A key lies there only while its bucket is
//! full, so a bucket with room tells alone that a key is nowhere. The hash is keyed: whoever chooses keys does not know
//! which of them share a bucket, and two of them do with the probability of two that are drawn at random.

use std::hint::select_unpredictable;

use super::entries::{Integers, Keys};
use super::replacement::Period;
use super::table::{Counter, Table};

/// A bucket has so many counters, the bytes of a word.
const WAYS: usize = 8;
const ONES: u64 = u64::MAX / 0xFF;
const TOPS: u64 = ONES << 7;

/// Below all counters, as no level is below zero.
const FREE: Counter<i64> = Counter { key: 0, over: -1 };

/// The lowest set bit is the highest of the first byte that is zero; none is set if no byte is.
#[inline]
fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word & TOPS
}

/// How many keys are placed ahead of their use.
pub const BLOCK: usize = 64;

/// A key and where it belongs.
#[derive(Clone, Copy, Default)]
pub struct Placed {
    key: i64,
    /// The tag of the key in each byte.
    tags: u64,
    bucket: u32,
}

/// Counters of whole numbers.
pub struct Buckets {
    keys: Integers,
    /// For each bucket the tags of its counters; zero if a counter is free.
    tags: Vec<u64>,
    /// The counters, those of a bucket side by side.
    counters: Vec<Counter<i64>>,
    spill: Table<Integers>,
    /// How many buckets there may be.
    most: usize,
}

impl Buckets {
    /// Buckets that are meant for twice `k` keys at the most: those stored at a decrement, and those that replace them.
    pub fn new(keys: Integers, k: usize) -> Self {
        // Thirteen counters for four of k: 55 bytes for one, with tags. If all keys are new, the mean number that belong
        // to a bucket goes from 2.5 to 4.9 between decrements, and one key in 22 finds its bucket full.
        let most = (13 * k).div_ceil(4 * WAYS);
        let spill = Table::new(k / 8 + WAYS);
        Buckets { keys, tags: vec![0], counters: vec![FREE; WAYS], spill, most }
    }

    /// A bucket by the upper half of a hash and a tag, not zero, by the lowest byte.
    #[inline]
    fn place(&self, key: i64) -> Placed {
        let hash = self.keys.hash(key);
        let tag = hash & 0xFF;
        let bucket = ((hash >> 32) * self.tags.len() as u64) >> 32;
        Placed { key, bucket: bucket as u32, tags: (tag + u64::from(tag == 0)) * ONES }
    }

    /// Where keys belong, as long as there are as many buckets.
    pub fn place_all<'a>(&self, keys: &[i64], placed: &'a mut [Placed; BLOCK]) -> &'a [Placed] {
        for (&key, place) in keys.iter().zip(&mut *placed) {
            *place = self.place(key);
        }
        &placed[..keys.len()]
    }

    /// Count keys up to the first that needs a closer look. How many these are.
    #[inline(never)]
    pub fn count(&mut self, placed: &[Placed], level: i64, period: &mut Period) -> usize {
        let mut left = period.left;
        // No decrement comes before one key more than are left.
        let placed = &placed[..placed.len().min(left)];
        let mut done = placed.len();
        for (number, &Placed { key, tags: wanted, bucket }) in placed.iter().enumerate() {
            let tags = &mut self.tags[bucket as usize];
            let fitting = zero_bytes(*tags ^ wanted);
            let choice = select_unpredictable(fitting != 0, fitting, zero_bytes(*tags));
            if choice == 0 {
                done = number;
                break;
            }
            let bit = choice.trailing_zeros();
            // All ones if the key may be there, zero if the counter is free: arithmetic instead of a condition, which
            // the compiler would make a branch of.
            let there = (fitting >> bit & 1).wrapping_neg() as i64;
            let slot = bucket as usize * WAYS + bit as usize / 8;
            let counter = &mut self.counters[slot];
            if (counter.key ^ key) & there != 0 {
                done = number;
                break;
            }
            if counter.over == level {
                period.left = left;
                period.come_again(slot);
                left -= 1;
            }
            *counter = Counter { key, over: level + 1 + ((counter.over - level) & there) };
            *tags |= wanted & 0xFF << (bit & 0x38);
            left -= (there + 1) as usize;
        }
        period.left = left;
        done
    }

    /// The slot of a key with a counter of at least `level`.
    pub fn find(&self, key: i64, level: i64) -> Option<usize> {
        let bucket = self.place(key).bucket as usize;
        let slots = bucket * WAYS..(bucket + 1) * WAYS;
        let mut ways = self.counters[slots.clone()].iter();
        if let Some(way) = ways.position(|counter| counter.key == key && counter.over >= level) {
            return Some(slots.start + way);
        }
        let row = self.spill.find(self.keys.hash(key), key)?;
        Some(self.counters.len() + row)
    }

    /// The counter in a slot.
    pub fn over(&mut self, slot: usize) -> &mut i64 {
        let spilled = self.counters.len();
        if slot < spilled { &mut self.counters[slot].over } else { self.spill.over(slot - spilled) }
    }

    /// Store a key that is not stored. If buckets may be added, other keys may get other slots, and places be wrong then.
    pub fn store(&mut self, counter: Counter<i64>, may_grow: bool) {
        while !self.put(counter) {
            if may_grow && self.tags.len() < self.most && self.spill.is_empty() {
                self.grow();
            } else {
                let hash = self.keys.hash(counter.key);
                self.spill.find_or_insert(&self.keys, hash, counter.key, Some(counter.over));
                return;
            }
        }
    }

    /// Store a key in its bucket if that has room.
    fn put(&mut self, counter: Counter<i64>) -> bool {
        let place = self.place(counter.key);
        let bucket = place.bucket as usize;
        let free = zero_bytes(self.tags[bucket]);
        if free == 0 {
            return false;
        }
        let way = free.trailing_zeros() as usize / 8;
        self.tags[bucket] |= place.tags & 0xFF << (way * 8);
        self.counters[bucket * WAYS + way] = counter;
        true
    }

    #[cold]
    fn grow(&mut self) {
        let length = self.most.min(4 * self.tags.len());
        let tags = std::mem::replace(&mut self.tags, vec![0; length]);
        let counters = std::mem::replace(&mut self.counters, vec![FREE; WAYS * length]);
        let tags = tags.into_iter().flat_map(u64::to_le_bytes);
        for (_, counter) in tags.zip(counters).filter(|(tag, _)| *tag != 0) {
            self.store(counter, true);
        }
    }

    /// Free all counters below `level`. How many are at it. Keys may get other slots, and places be wrong then.
    pub fn free_below(&mut self, level: i64) -> usize {
        let (mut below, mut up_to) = ([0; 2], [0; 2]);
        let (buckets, _) = self.counters.as_chunks::<WAYS>();
        for (tags, counters) in self.tags.iter_mut().zip(buckets) {
            // A one in each byte whose counter is below. Signs of differences, two at a time, are what the compiler
            // makes vectors of; conditions are not.
            let mut freed = [0; 2];
            let (pairs, _) = counters.as_chunks::<2>();
            for (number, pair) in pairs.iter().enumerate() {
                for side in 0..2 {
                    let above = pair[side].over.wrapping_sub(level);
                    let sign = above as u64 >> 63;
                    freed[side] |= sign << (16 * number);
                    below[side] += sign;
                    up_to[side] += above.wrapping_sub(1) as u64 >> 63;
                }
            }
            *tags &= !((freed[0] | freed[1] << 8) * 0xFF);
        }
        let mut at_level = (up_to[0] + up_to[1] - below[0] - below[1]) as usize;
        if !self.spill.is_empty() {
            let spilled = self.spill.rows().counters.clone();
            self.spill.clear();
            for counter in spilled.into_iter().filter(|counter| counter.over >= level) {
                at_level += usize::from(counter.over == level);
                self.store(counter, true);
            }
        }
        at_level
    }

    /// All slots with their counters; those below all levels are free.
    pub fn slots(&self) -> impl Iterator<Item = Counter<i64>> {
        self.counters.iter().chain(&self.spill.rows().counters).copied()
    }

    /// How many buckets there are.
    pub fn size(&self) -> usize {
        self.tags.len()
    }

    /// How many bytes are held.
    pub fn memory(&self) -> usize {
        self.tags.capacity() * size_of::<u64>()
            + self.counters.capacity() * size_of::<Counter<i64>>()
            + self.spill.memory()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEVEL: i64 = 3;

    fn one_bucket() -> Buckets {
        Buckets::new(Integers::new(&[7; 32]), 4)
    }

    fn fill(buckets: &mut Buckets, keys: std::ops::Range<i64>, may_grow: bool) {
        for key in keys {
            buckets.store(Counter { key, over: LEVEL + key % 3 }, may_grow);
        }
    }

    fn over(buckets: &mut Buckets, key: i64, level: i64) -> Option<i64> {
        buckets.find(key, level).map(|slot| *buckets.over(slot))
    }

    #[test]
    fn the_first_zero_byte_is_found_whatever_the_others_are() {
        for place in 0..8 {
            for other in [0x01, 0x7F, 0x80, 0xFF] {
                let mut bytes = [other; 8];
                assert_eq!(zero_bytes(u64::from_le_bytes(bytes)), 0);
                bytes[place] = 0;
                assert_eq!(zero_bytes(u64::from_le_bytes(bytes)).trailing_zeros() as usize, 8 * place + 7);
                bytes[7] = 0;
                assert_eq!(zero_bytes(u64::from_le_bytes(bytes)).trailing_zeros() as usize, 8 * place + 7);
            }
        }
    }

    #[test]
    fn keys_beyond_a_full_bucket_are_found_and_come_back_when_it_has_room() {
        let mut buckets = one_bucket();
        fill(&mut buckets, 0..30, false);
        assert_eq!((buckets.size(), buckets.spill.len()), (1, 22));
        for key in 0..30 {
            assert_eq!(over(&mut buckets, key, LEVEL), Some(LEVEL + key % 3));
        }
        assert_eq!(over(&mut buckets, 30, LEVEL), None);
        // A third each is below the next level, at it and above it.
        assert_eq!(buckets.free_below(LEVEL + 1), 10);
        assert_eq!((buckets.size(), buckets.spill.len()), (2, 4));
        for key in 0..30 {
            let expected = Some(LEVEL + key % 3).filter(|over| *over > LEVEL);
            assert_eq!(over(&mut buckets, key, LEVEL + 1), expected);
        }
        assert_eq!(buckets.free_below(LEVEL + 2), 10);
        assert!(buckets.spill.is_empty());
        assert_eq!(buckets.free_below(LEVEL + 3), 0);
        assert_eq!(buckets.tags, [0, 0]);
    }

    #[test]
    fn keys_are_found_after_buckets_were_added() {
        let mut buckets = Buckets::new(Integers::new(&[7; 32]), 1000);
        fill(&mut buckets, -900..900, true);
        assert_eq!(buckets.size(), buckets.most);
        for key in -900..900 {
            assert_eq!(over(&mut buckets, key, LEVEL - 2), Some(LEVEL + key % 3));
        }
    }

    #[test]
    fn what_was_freed_stays_so_when_buckets_are_added() {
        let mut buckets = Buckets::new(Integers::new(&[7; 32]), 40);
        fill(&mut buckets, 0..8, true);
        assert_eq!((buckets.size(), buckets.free_below(LEVEL + 1)), (1, 3));
        fill(&mut buckets, 100..103, true);
        buckets.grow();
        for key in 0..8 {
            let expected = Some(LEVEL + key % 3).filter(|over| *over > LEVEL);
            assert_eq!(over(&mut buckets, key, 0), expected);
        }
    }

    #[test]
    fn one_key_is_counted_like_another_that_shares_its_tag() {
        let mut buckets = one_bucket();
        let tag = buckets.place(0).tags;
        let twin = (1..10_000).find(|key| buckets.place(*key).tags == tag).unwrap();
        let mut period = Period::new(4, 0);
        let mut placed = [Placed::default(); BLOCK];
        let placed = buckets.place_all(&[0, 0, twin, 0], &mut placed);
        // The second key with the tag needs a closer look, as does whatever comes when nothing is left.
        assert_eq!(buckets.count(placed, LEVEL, &mut period), 2);
        assert_eq!((over(&mut buckets, 0, LEVEL), period.left), (Some(LEVEL + 2), 3));
        assert_eq!(over(&mut buckets, twin, LEVEL), None);
        period.left = 0;
        assert_eq!(buckets.count(placed, LEVEL, &mut period), 0);
    }
}
