//! The Misra-Gries sketch of whole numbers: the same as that of other keys, in buckets instead of two tables.
//!
//! New keys and old ones lie side by side. A counter at D belongs to a key that has count zero or was replaced, so at a
//! decrement, when no zero key is left, all counters at D are free: D, one higher, tells that without a look at them.

use super::buckets::{BLOCK, Buckets, Placed};
use super::entries::Integers;
use super::replacement::Period;
use super::table::{Counter, Rows};
use crate::error::Error;

/// A Misra-Gries sketch of at most `k` whole numbers.
pub struct IntegerMisraGries {
    buckets: Buckets,
    k: usize,
    decrements: i64,
    total: i64,
    period: Period,
}

impl IntegerMisraGries {
    /// An empty sketch.
    pub fn new(keys: Integers, k: usize) -> Self {
        IntegerMisraGries {
            buckets: Buckets::new(keys, k),
            k,
            decrements: 0,
            total: 0,
            period: Period::new(k, 0),
        }
    }

    /// A sketch in a given state: distinct keys in any order, each with its u.
    pub fn restore(
        keys: Integers,
        k: usize,
        counters: impl Iterator<Item = (i64, i64)>,
        decrements: i64,
        total: i64,
    ) -> Result<Self, Error> {
        let mut buckets = Buckets::new(keys, k);
        let (mut unused, mut zeros) = (k, 0);
        for (key, over) in counters {
            if over < decrements || unused == 0 || buckets.find(key, decrements).is_some() {
                return Err(Error::Parameter(
                    "a sketch must store at most k keys, each once, with a count of at least zero".into(),
                ));
            }
            buckets.store(Counter { key, over }, true);
            unused -= 1;
            zeros += usize::from(over == decrements);
        }
        Ok(IntegerMisraGries { buckets, k, decrements, total, period: Period::new(unused, zeros) })
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
    pub fn stored(&self) -> Rows<Integers> {
        let slots: Vec<_> = self.buckets.slots().collect();
        let zero = slots.iter().map(|counter| counter.over == self.decrements).collect();
        let replaced = self.period.replaced(zero, |zero| {
            let mut sorted: Vec<usize> = (0..slots.len()).filter(|slot| zero[*slot]).collect();
            sorted.sort_unstable_by_key(|slot| slots[*slot].key);
            sorted
        });
        let mut rows = Rows::with_capacity(self.k.min(slots.len()));
        let stored = slots.into_iter().zip(replaced);
        let stored = stored.filter(|(counter, replaced)| counter.over >= self.decrements && !replaced);
        rows.counters.extend(stored.map(|(counter, _)| counter));
        rows
    }

    /// How many bytes are held.
    pub fn memory(&self) -> usize {
        self.buckets.memory() + self.period.memory()
    }

    /// Count a batch of keys, all or, if the total would pass 2^63 - 1, none.
    pub fn update(&mut self, keys: &[i64]) -> Result<(), Error> {
        let total = i64::try_from(keys.len()).ok().and_then(|more| self.total.checked_add(more));
        self.total =
            total.ok_or_else(|| Error::Parameter("a sketch must count at most 2^63 - 1 keys".into()))?;
        let mut placed = [Placed::default(); BLOCK];
        let mut rest = keys;
        while !rest.is_empty() {
            let buckets = self.buckets.size();
            let block = &rest[..rest.len().min(BLOCK)];
            let placed = self.buckets.place_all(block, &mut placed);
            let mut counted = 0;
            while counted < block.len() && self.buckets.size() == buckets {
                counted += self.buckets.count(&placed[counted..], self.decrements, &mut self.period);
                if let Some(key) = block.get(counted) {
                    self.add(*key);
                    counted += 1;
                }
            }
            rest = &rest[counted..];
        }
        Ok(())
    }

    /// Count any key.
    #[inline(never)]
    fn add(&mut self, key: i64) {
        let slot = self.buckets.find(key, self.decrements);
        if let Some(over) = slot.map(|slot| self.buckets.over(slot)).filter(|over| **over > self.decrements) {
            *over += 1;
        } else if self.period.left == 0 {
            self.decrement();
        } else if let Some(slot) = slot {
            *self.buckets.over(slot) += 1;
            self.period.come_again(slot);
        } else {
            let counter = Counter { key, over: self.decrements + 1 };
            self.buckets.store(counter, self.period.none_returned());
            self.period.left -= 1;
        }
    }

    /// Decrement all. No stored key is zero, so every counter of D belongs to a replaced key.
    fn decrement(&mut self) {
        self.decrements += 1;
        self.period.begin(self.buckets.free_below(self.decrements));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Algorithm 1 as it is written down.
    struct Naive {
        k: usize,
        counts: BTreeMap<i64, i64>,
        decrements: i64,
    }

    impl Naive {
        fn new(k: usize) -> Self {
            Naive { k, counts: BTreeMap::new(), decrements: 0 }
        }

        fn update(&mut self, keys: &[i64]) {
            for key in keys {
                self.add(*key);
            }
        }

        fn add(&mut self, key: i64) {
            if let Some(count) = self.counts.get_mut(&key) {
                *count += 1;
            } else if self.counts.len() < self.k {
                self.counts.insert(key, 1);
            } else if let Some(smallest) =
                self.counts.iter().find(|(_, count)| **count == 0).map(|(key, _)| *key)
            {
                self.counts.remove(&smallest);
                self.counts.insert(key, 1);
            } else {
                self.counts.values_mut().for_each(|count| *count -= 1);
                self.decrements += 1;
            }
        }
    }

    /// Numbers in no order, the same ones each time.
    fn scattered(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        }
    }

    fn counts(sketch: &IntegerMisraGries) -> BTreeMap<i64, i64> {
        let rows = sketch.stored();
        let counts: BTreeMap<_, _> =
            rows.counters.iter().map(|counter| (counter.key, counter.over - sketch.decrements())).collect();
        assert_eq!(counts.len(), rows.counters.len());
        counts
    }

    /// Cut a stream at places of its own, and look at every cut.
    fn assert_is_naive(stream: &[i64], k: usize, cut: impl Fn(usize) -> usize) {
        let mut sketch = IntegerMisraGries::new(Integers::new(&[7; 32]), k);
        let mut naive = Naive::new(k);
        let mut rest = stream;
        for number in 0.. {
            let (batch, others) = rest.split_at(cut(number).min(rest.len()));
            rest = others;
            sketch.update(batch).unwrap();
            naive.update(batch);
            assert_eq!((sketch.decrements(), counts(&sketch)), (naive.decrements, naive.counts.clone()));
            if rest.is_empty() {
                break;
            }
        }
        assert_eq!(sketch.total(), stream.len() as i64);
    }

    #[test]
    fn it_is_the_sketch_of_the_definition_on_long_streams() {
        let mut next = scattered(1);
        for k in [1, 2, 3, 5, 8, 13, 40, 100] {
            for spread in [k / 2 + 1, k + 1, 2 * k, 5 * k, 100 * k] {
                let stream: Vec<i64> = (0..20_000)
                    .map(|place| {
                        // Small numbers are more likely, and all of them move.
                        let key = next() % (1 + next() % spread as u64);
                        key as i64 - spread as i64 / 3 + place / 5000 * (k as i64 / 2)
                    })
                    .collect();
                assert_is_naive(&stream, k, |number| 1 + number * 7 % 200);
            }
        }
    }

    #[test]
    fn batches_of_any_length_are_counted_as_one_by_one() {
        let mut next = scattered(2);
        let stream: Vec<i64> = (0..3000).map(|_| (next() % (1 + next() % 90)) as i64).collect();
        for length in [1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK, 3000] {
            for k in [1, 7, 24, 63, 64, 65] {
                assert_is_naive(&stream, k, |_| length);
            }
        }
    }

    #[test]
    fn streams_that_evict_at_every_step_are_counted_as_on_paper() {
        for k in [1, 2, 9, 70] {
            let around = |keys: i64| (0..2000).map(|place| place % keys).collect::<Vec<_>>();
            // One key more than there are counters, in turn, up and down; only new keys; each key twice.
            assert_is_naive(&around(k + 1), k as usize, |_| 37);
            let down: Vec<i64> = around(k + 1).iter().map(|key| -key).collect();
            assert_is_naive(&down, k as usize, |_| 41);
            assert_is_naive(&around(2000), k as usize, |_| 64);
            let twice: Vec<i64> = (0..2000).map(|place| place / 2 % (2 * k + 1)).collect();
            assert_is_naive(&twice, k as usize, |_| 29);
            // Fill, lower all to zero, and let all come again, replaced ones too.
            let again: Vec<i64> = (0..2000)
                .map(|place| [place % (k + 2), place % k, k + place % 3][place as usize / 7 % 3])
                .collect();
            assert_is_naive(&again, k as usize, |_| 11);
        }
    }

    #[test]
    fn buckets_that_overflow_change_nothing() {
        let mut next = scattered(3);
        let stream: Vec<i64> = (0..30_000)
            .map(|place| if place % 3 == 0 { (next() % 99) as i64 } else { next() as i64 })
            .collect();
        let k = 300;
        let mut sketch = IntegerMisraGries::new(Integers::new(&[7; 32]), k);
        sketch.update(&stream[..29_900]).unwrap();
        assert!(sketch.buckets.slots().count() > 8 * sketch.buckets.size(), "no key lies beside the buckets");
        assert_is_naive(&stream, k, |number| 1000 + number);
    }

    #[test]
    fn the_extreme_keys_are_keys_like_others() {
        let ends = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
        let mut next = scattered(4);
        let stream: Vec<i64> = (0..5000).map(|_| ends[next() as usize % ends.len()]).collect();
        for k in 1..8 {
            assert_is_naive(&stream, k, |number| number % 90 + 1);
        }
    }

    #[test]
    fn a_sketch_goes_on_from_where_it_was_restored() {
        let mut next = scattered(5);
        for k in [1, 6, 50, 200] {
            let stream: Vec<i64> = (0..6000).map(|_| (next() % (1 + next() % (3 * k))) as i64).collect();
            let mut naive = Naive::new(k as usize);
            naive.update(&stream[..3000]);
            let stored = naive.counts.iter().map(|(key, count)| (*key, count + naive.decrements));
            let keys = Integers::new(&[9; 32]);
            let mut sketch =
                IntegerMisraGries::restore(keys, k as usize, stored, naive.decrements, 3000).unwrap();
            for batch in stream[3000..].chunks(170) {
                sketch.update(batch).unwrap();
                naive.update(batch);
                assert_eq!((sketch.decrements(), counts(&sketch)), (naive.decrements, naive.counts.clone()));
            }
        }
    }

    #[test]
    fn zero_keys_come_again_while_counters_are_unused() {
        let k = 90;
        let zeros = (0..10).map(|key| (key, 5));
        let mut sketch = IntegerMisraGries::restore(Integers::new(&[7; 32]), k, zeros, 5, 500).unwrap();
        let mut naive = Naive { k, counts: (0..10).map(|key| (key, 0)).collect(), decrements: 5 };
        let few = sketch.buckets.size();
        // After the first zero key no bucket is added before the next decrement, as its slot is kept.
        for batch in [vec![3], (20..95).collect(), vec![4, 200, 201], (300..400).collect(), (0..99).collect()]
        {
            sketch.update(&batch).unwrap();
            naive.update(&batch);
            assert_eq!((sketch.decrements(), counts(&sketch)), (naive.decrements, naive.counts.clone()));
        }
        assert!(sketch.buckets.size() > few);
    }

    #[test]
    fn a_state_that_is_none_is_refused() {
        let restored = |counters: &[(i64, i64)]| {
            IntegerMisraGries::restore(Integers::new(&[7; 32]), 2, counters.iter().copied(), 3, 9).is_ok()
        };
        assert!(restored(&[(1, 3), (2, 4)]));
        assert!(!restored(&[(1, 3), (1, 4)]));
        assert!(!restored(&[(1, 2)]));
        assert!(!restored(&[(1, 3), (2, 3), (3, 3)]));
    }

    #[test]
    fn a_total_beyond_63_bits_is_refused_before_it_wraps() {
        let most = i64::MAX - 1;
        let mut sketch =
            IntegerMisraGries::restore(Integers::new(&[7; 32]), 1, [(1, most)].into_iter(), 0, most).unwrap();
        assert!(sketch.update(&[1, 1]).is_err());
        assert_eq!(counts(&sketch), BTreeMap::from([(1, most)]));
        sketch.update(&[1]).unwrap();
        assert_eq!(counts(&sketch), BTreeMap::from([(1, i64::MAX)]));
    }

    #[test]
    fn memory_is_bounded_when_all_zero_keys_come_again() {
        for k in [100, 1000, 4096] {
            let mut sketch = IntegerMisraGries::new(Integers::new(&[7; 32]), k);
            for turn in 0..20 {
                // All are one, a new key lowers them to zero, all come again.
                let keys: Vec<i64> = (0..k as i64).chain([-1 - turn]).collect();
                sketch.update(&keys).unwrap();
                assert!(sketch.memory() <= 72 * k);
            }
            let flat: Vec<i64> = (0..10 * k as i64).collect();
            sketch.update(&flat).unwrap();
            assert!(sketch.memory() <= 72 * k);
        }
    }
}
