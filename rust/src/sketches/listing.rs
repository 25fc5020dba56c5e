//! Keys in their order, each with a number: what leaves a sketch, and what merges.

use std::cmp::Ordering;

use super::entries::{Bytes, Integers, bytes_of};
use super::table::Rows;
use crate::error::Error;

/// Keys in their order.
#[derive(Clone)]
pub enum KeyColumn {
    /// Whole numbers, smallest first.
    Integers(Vec<i64>),
    /// Byte strings one after the other, smallest first, and where each ends.
    Bytes(Vec<u8>, Vec<usize>),
}

impl KeyColumn {
    fn empty_like(other: &KeyColumn, room: usize) -> Self {
        match other {
            KeyColumn::Integers(_) => KeyColumn::Integers(Vec::with_capacity(room)),
            KeyColumn::Bytes(..) => KeyColumn::Bytes(Vec::new(), Vec::with_capacity(room)),
        }
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        match self {
            KeyColumn::Integers(keys) => keys.len(),
            KeyColumn::Bytes(_, ends) => ends.len(),
        }
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn compare(&self, place: usize, other: &KeyColumn, other_place: usize) -> Ordering {
        match (self, other) {
            (KeyColumn::Integers(left), KeyColumn::Integers(right)) => left[place].cmp(&right[other_place]),
            (KeyColumn::Integers(_), KeyColumn::Bytes(..)) => Ordering::Less,
            (KeyColumn::Bytes(..), KeyColumn::Integers(_)) => Ordering::Greater,
            (KeyColumn::Bytes(..), KeyColumn::Bytes(..)) => self.bytes(place).cmp(other.bytes(other_place)),
        }
    }

    /// The bytes of a key; of a number, none.
    pub fn bytes(&self, place: usize) -> &[u8] {
        match self {
            KeyColumn::Integers(_) => &[],
            KeyColumn::Bytes(text, ends) => &text[if place == 0 { 0 } else { ends[place - 1] }..ends[place]],
        }
    }

    fn push(&mut self, from: &KeyColumn, place: usize) {
        match (self, from) {
            (KeyColumn::Integers(keys), KeyColumn::Integers(others)) => keys.push(others[place]),
            (KeyColumn::Bytes(text, ends), others) => {
                text.extend_from_slice(others.bytes(place));
                ends.push(text.len());
            }
            (KeyColumn::Integers(_), KeyColumn::Bytes(..)) => {}
        }
    }
}

/// Keys in their order, each with a number.
#[derive(Clone)]
pub struct Listing {
    /// The keys.
    pub keys: KeyColumn,
    /// Their numbers.
    pub values: Vec<i64>,
}

impl Listing {
    /// The keys of rows of whole numbers.
    pub fn of_integers(rows: &Rows<Integers>) -> Self {
        let counters = rows.sorted(|_| true).into_iter().map(|slot| rows.counters[slot]);
        let (keys, values) = counters.map(|counter| (counter.key, counter.over)).unzip();
        Listing { keys: KeyColumn::Integers(keys), values }
    }

    /// The keys of rows of byte strings.
    pub fn of_bytes(rows: &Rows<Bytes>) -> Self {
        let (mut text, mut ends, mut values) = (Vec::new(), Vec::new(), Vec::new());
        for slot in rows.sorted(|_| true) {
            let counter = rows.counters[slot];
            text.extend_from_slice(bytes_of(&counter.key, &rows.arena));
            ends.push(text.len());
            values.push(counter.over);
        }
        Listing { keys: KeyColumn::Bytes(text, ends), values }
    }

    /// A listing of given columns: one number a key, keys of one type, each once and in their order.
    pub fn new(keys: KeyColumn, values: Vec<i64>) -> Result<Self, Error> {
        let ordered = (1..keys.len()).all(|place| keys.compare(place - 1, &keys, place) == Ordering::Less);
        if keys.len() != values.len() || !ordered {
            return Err(Error::Parameter("keys must be in their order, each once, with one number".into()));
        }
        Ok(Listing { keys, values })
    }

    /// Every number less `down`, and only what is above zero then.
    #[must_use]
    pub fn lowered(&self, down: i64) -> Self {
        let mut keys = KeyColumn::empty_like(&self.keys, self.values.len());
        let mut values = Vec::with_capacity(self.values.len());
        for (place, value) in self.values.iter().enumerate() {
            if *value > down {
                keys.push(&self.keys, place);
                values.push(value - down);
            }
        }
        Listing { keys, values }
    }

    /// The merge of two listings of counts: the sum for each key, less the (k + 1)-th largest sum; what is above zero.
    ///
    /// Agarwal et al., "Mergeable summaries", PODS 2012, Section 3: the error adds up to N / (k + 1) in any tree.
    pub fn merge(&self, other: &Listing, k: usize) -> Result<Self, Error> {
        let sum = self.sum(other)?;
        if sum.values.len() <= k {
            return Ok(sum);
        }
        let mut values = sum.values.clone();
        let (_, down, _) = values.select_nth_unstable_by(k, |left, right| right.cmp(left));
        Ok(sum.lowered(*down))
    }

    fn sum(&self, other: &Listing) -> Result<Self, Error> {
        let room = self.values.len() + other.values.len();
        let mut keys = KeyColumn::empty_like(&self.keys, room);
        let mut values = Vec::with_capacity(room);
        let (mut left, mut right) = (0, 0);
        while left < self.values.len() || right < other.values.len() {
            let order = if left == self.values.len() {
                Ordering::Greater
            } else if right == other.values.len() {
                Ordering::Less
            } else {
                self.keys.compare(left, &other.keys, right)
            };
            let mut value = 0i64;
            if order == Ordering::Greater {
                keys.push(&other.keys, right);
            } else {
                keys.push(&self.keys, left);
                value = self.values[left];
                left += 1;
            }
            if order != Ordering::Less {
                let sum = value.checked_add(other.values[right]);
                value = sum.ok_or_else(|| Error::Parameter("a count must be at most 2^63 - 1".into()))?;
                right += 1;
            }
            values.push(value);
        }
        Ok(Listing { keys, values })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listing(keys: &[i64], values: &[i64]) -> Listing {
        Listing::new(KeyColumn::Integers(keys.to_vec()), values.to_vec()).unwrap()
    }

    #[test]
    fn a_merge_takes_the_next_largest_sum_from_all() {
        let merged = listing(&[1, 2], &[3, 2]).merge(&listing(&[2, 3], &[1, 4]), 2).unwrap();
        let KeyColumn::Integers(keys) = &merged.keys else { panic!("numbers merge to numbers") };
        assert_eq!((keys.as_slice(), merged.values.as_slice()), (&[3][..], &[1][..]));
    }

    #[test]
    fn sums_beyond_63_bits_are_refused() {
        assert!(listing(&[1], &[i64::MAX]).merge(&listing(&[1], &[1]), 2).is_err());
    }

    #[test]
    fn keys_out_of_order_are_refused() {
        assert!(Listing::new(KeyColumn::Integers(vec![2, 1]), vec![1, 1]).is_err());
        assert!(Listing::new(KeyColumn::Bytes(b"ba".to_vec(), vec![1, 2]), vec![1, 1]).is_err());
        assert!(Listing::new(KeyColumn::Bytes(b"ab".to_vec(), vec![1, 2]), vec![1, 1]).is_ok());
    }
}
