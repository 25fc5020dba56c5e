//! Slots for items: the n-th item ever seen has slot n - 1.
//!
//! Items come as keyed 128-bit names (`prf::Root::label_keys`), which nobody without the secret can make collide.

use hashbrown::HashTable;

/// The slot given to names that are not in a table.
pub const NO_SLOT: i64 = -1;

/// From names to slots, in about 30 bytes an item.
#[derive(Default)]
pub struct SlotTable {
    names: Vec<u128>,
    slots: HashTable<u32>,
}

impl SlotTable {
    /// How many items have a slot.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Whether no item has a slot.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// The names in slot order.
    pub fn names(&self) -> &[u128] {
        &self.names
    }

    /// Room for so many more items without moving those that are there.
    pub fn reserve(&mut self, more: usize) {
        let SlotTable { names, slots } = self;
        names.reserve_exact(more.saturating_sub(names.capacity() - names.len()));
        slots.reserve(more, |&slot| names[slot as usize] as u64);
    }

    /// The slot of each name, `NO_SLOT` where it has none.
    pub fn find(&self, names: &[u128]) -> Vec<i64> {
        names
            .iter()
            .map(|name| {
                self.slots
                    .find(*name as u64, |&slot| self.names[slot as usize] == *name)
                    .map_or(NO_SLOT, |&slot| i64::from(slot))
            })
            .collect()
    }

    /// The slot of each name; new names get the next free ones in the order in which they come.
    pub fn find_or_add(&mut self, names: &[u128]) -> Vec<i64> {
        let SlotTable { names: known, slots } = self;
        names
            .iter()
            .map(|name| {
                if let Some(&slot) = slots.find(*name as u64, |&slot| known[slot as usize] == *name) {
                    return i64::from(slot);
                }
                let slot = known.len() as u32;
                known.push(*name);
                slots.insert_unique(*name as u64, slot, |&slot| known[slot as usize] as u64);
                i64::from(slot)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_handed_out_in_order_and_kept() {
        let mut table = SlotTable::default();
        assert_eq!(table.find_or_add(&[7, 9, 7, 8]), [0, 1, 0, 2]);
        assert_eq!(table.find_or_add(&[8, 5]), [2, 3]);
        assert_eq!(table.find(&[5, 6]), [3, NO_SLOT]);
        assert_eq!(table.names(), [7, 9, 8, 5]);
    }

    #[test]
    fn names_with_equal_low_halves_are_told_apart() {
        let mut table = SlotTable::default();
        assert_eq!(table.find_or_add(&[1, 1 | (1 << 64)]), [0, 1]);
    }
}
