//! A finite distribution with masses in units of 2^-128, drawn from one 128-bit block.
//!
//! Walker's alias method in whole numbers: 2^m columns of equal mass, each shared by at most two values. The top m bits
//! choose the column, the others are compared with its border: one look-up, one comparison, one selection without a
//! branch, whatever the result. The masses are met exactly.

use crate::error::Error;

#[derive(Clone, Copy)]
struct Column {
    border: u128,
    own: i32,
    other: i32,
}

/// An exact table for one distribution.
pub struct Table {
    columns: Vec<Column>,
    shift: u32,
    mask: u128,
}

impl Table {
    /// The table of the given (value, mass) pairs; the masses sum to 2^128.
    pub fn new(masses: &[(i32, u128)]) -> Result<Self, Error> {
        let sum = masses.iter().fold(0u128, |sum, (_, mass)| sum.wrapping_add(*mass));
        if masses.len() < 2 || sum != 0 {
            return Err(Error::Parameter("masses must be at least two and sum to 2^128".into()));
        }
        let bits = masses.len().next_power_of_two().trailing_zeros();
        let shift = 128 - bits;
        let capacity = 1u128 << shift;
        let mut columns: Vec<Column> =
            masses.iter().map(|&(value, mass)| Column { border: mass, own: value, other: value }).collect();
        columns.resize(1 << bits, Column { border: 0, own: 0, other: 0 });
        let (mut small, mut large): (Vec<usize>, Vec<usize>) =
            (0..columns.len()).partition(|&index| columns[index].border < capacity);
        while let (Some(&poor), Some(&rich)) = (small.last(), large.last()) {
            small.pop();
            columns[poor].other = columns[rich].own;
            columns[rich].border -= capacity - columns[poor].border;
            if columns[rich].border < capacity {
                large.pop();
                small.push(rich);
            }
        }
        Ok(Table { columns, shift, mask: capacity - 1 })
    }

    /// The value that belongs to 128 uniform bits.
    #[inline]
    pub fn value(&self, bits: u128) -> i32 {
        // A table has fewer than 2^64 columns: the upper half of the bits names one.
        let column = &self.columns[((bits >> 64) as u64 >> (self.shift - 64)) as usize];
        let own = -i32::from(bits & self.mask < column.border);
        column.other ^ ((column.own ^ column.other) & own)
    }

    /// The masses the table really has, as (value, mass) pairs with each value once, in order.
    pub fn masses(&self) -> Vec<(i32, u128)> {
        let capacity = self.mask + 1;
        let mut pairs: Vec<(i32, u128)> = self
            .columns
            .iter()
            .flat_map(|column| {
                let own = column.border.min(capacity);
                [(column.own, own), (column.other, capacity - own)]
            })
            .filter(|(_, mass)| *mass > 0)
            .collect();
        pairs.sort_unstable();
        pairs.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = kept.1.wrapping_add(next.1);
            }
            same
        });
        pairs
    }

    /// The largest value in size.
    pub fn bound(&self) -> i64 {
        self.columns.iter().map(|column| i64::from(column.own).abs()).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_table_has_the_masses_it_was_made_from(raw in prop::collection::vec(1u128..u128::MAX >> 9, 1..200)) {
            let mut given: Vec<(i32, u128)> = (1..).zip(raw.iter().copied()).collect();
            let sum = given.iter().fold(0u128, |sum, (_, mass)| sum + mass);
            given.insert(0, (0, 0u128.wrapping_sub(sum)));
            let table = Table::new(&given).unwrap();
            prop_assert_eq!(table.masses(), given);
        }
    }

    #[test]
    fn masses_that_do_not_sum_to_one_are_refused() {
        assert!(Table::new(&[(0, 1), (1, 2)]).is_err());
    }

    #[test]
    fn values_follow_the_bits() {
        let half = 1u128 << 127;
        let table = Table::new(&[(3, half), (5, half)]).unwrap();
        assert_eq!((table.value(0), table.value(u128::MAX)), (3, 5));
        // A border belongs to what is above it: the first column is shared from a quarter of all on.
        let quarter = half >> 1;
        let table = Table::new(&[(3, quarter), (5, half + quarter)]).unwrap();
        assert_eq!((table.value(quarter - 1), table.value(quarter), table.value(half)), (3, 5, 5));
    }
}
