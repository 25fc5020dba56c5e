//! Which rows of users are units, where of one label only so many of a user's rows are: pairs in 10 to 20 bytes each.
//!
//! Users and labels have slots of 32 bits, so a pair is one word, exactly, and no two pairs share one. Words lie in shards of cells
//! with linear probing, by a keyed mixture of their bits. A shard that is full grows by itself, so that the whole is
//! never held twice. Rows are taken in blocks, so that the memory works on many misses at once.

use std::collections::HashMap;

use crate::error::{Error, checked_size, filled};
use crate::users::{BLOCK, NEW_USER, Named, Placed, SPENT_USER, UserTable, dealt, heap_bits, in_order};

/// What is told of a row that is no unit.
pub const NO_UNIT: u64 = u64::MAX;

/// Up to so many rows of a user are compared with each other one by one.
const FEW_ROWS: usize = 24;

#[derive(Clone, Default)]
struct PairShard {
    /// 0 is empty, else the pair plus one.
    cells: Vec<u64>,
    /// How many units the pair of each cell has; nothing where one is the most.
    held: Vec<u32>,
    used: usize,
}

/// The units of each pair of a user and a label, up to a limit.
pub struct PairTable {
    shards: Vec<PairShard>,
    seed: [u64; 2],
    limit: u32,
    fresh: Vec<u64>,
}

impl PairTable {
    const SHARD_BITS: u32 = 8;

    /// A table without pairs that lets each have so many units.
    pub fn new(key: &[u8; 32], limit: u32) -> Result<Self, Error> {
        if limit == 0 {
            return Err(Error::Parameter("limit must be at least 1, got 0".into()));
        }
        let word =
            |from: usize| key[from..from + 8].iter().fold(0, |all, &byte| (all << 8) | u64::from(byte));
        Ok(PairTable {
            shards: vec![PairShard::default(); 1 << Self::SHARD_BITS],
            seed: [word(0), word(8) | 1],
            limit,
            fresh: Vec::new(),
        })
    }

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.used).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of all cells.
    pub fn bytes(&self) -> usize {
        self.shards.iter().map(|shard| shard.cells.capacity() * 8 + shard.held.capacity() * 4).sum()
    }

    /// Forgets all pairs.
    pub fn clear(&mut self) {
        self.shards.fill(PairShard::default());
        self.fresh.clear();
    }

    /// The pairs of the units that were taken since this was last asked, as a user's slot above a label's.
    pub fn take_fresh(&mut self) -> Vec<u64> {
        std::mem::take(&mut self.fresh)
    }

    /// Takes units of these pairs again, as `take_fresh` gave them.
    pub fn restore(&mut self, pairs: &[u64]) -> Result<(), Error> {
        for &pair in pairs {
            if !self.take(pair, self.mix(pair)) {
                return Err(Error::Parameter("stored pairs must have units within the limit".into()));
            }
        }
        self.fresh.clear();
        Ok(())
    }

    /// All pairs in order, each as often as it has units, as `restore` takes them.
    pub fn units(&self) -> Vec<u64> {
        let mut found = Vec::with_capacity(self.len());
        for shard in &self.shards {
            for (place, &cell) in shard.cells.iter().enumerate().filter(|(_, cell)| **cell != 0) {
                let count = shard.held.get(place).map_or(1, |&held| held as usize);
                found.extend(std::iter::repeat_n(cell - 1, count));
            }
        }
        found.sort_unstable();
        found
    }

    #[inline]
    fn mix(&self, pair: u64) -> u64 {
        mixed(pair, self.seed)
    }

    /// What lies where a search for a pair begins: it brings the cell near.
    #[inline]
    fn first_cell(&self, mix: u64) -> u64 {
        let shard = &self.shards[(mix >> (64 - Self::SHARD_BITS)) as usize];
        shard.cells.get(shard.home(mix as u32)).copied().unwrap_or(0)
    }

    /// Whether a row of a pair is a unit: it is if the pair has fewer than the limit, and one more then.
    #[inline]
    fn take(&mut self, pair: u64, mix: u64) -> bool {
        let (limit, seed) = (self.limit, self.seed);
        let shard = &mut self.shards[(mix >> (64 - Self::SHARD_BITS)) as usize];
        let (cell, is_new) = shard.find_or_add(pair, mix as u32, limit, seed);
        let is_unit = shard.held.get_mut(cell).map_or(is_new, |held| {
            let is_unit = *held < limit;
            *held += u32::from(is_unit);
            is_unit
        });
        if is_unit {
            self.fresh.push(pair);
        }
        is_unit
    }
}

#[inline]
fn mixed(pair: u64, seed: [u64; 2]) -> u64 {
    let product = u128::from(pair ^ seed[0]) * u128::from(seed[1]);
    let folded = (product >> 64) as u64 ^ product as u64;
    // Once more, so that the bits that choose a shard and those that choose a cell depend on all.
    let product = u128::from(folded ^ seed[1]) * 0x9e37_79b9_7f4a_7c15;
    (product >> 64) as u64 ^ product as u64
}

impl PairShard {
    const LEAST_CELLS: usize = 8;

    #[inline]
    fn home(&self, low: u32) -> usize {
        ((u64::from(low) * self.cells.len() as u64) >> 32) as usize
    }

    /// The cell of a pair, and whether it is new.
    #[inline]
    fn find_or_add(&mut self, pair: u64, low: u32, limit: u32, seed: [u64; 2]) -> (usize, bool) {
        if 5 * (self.used + 1) > 4 * self.cells.len() {
            self.grow(limit, seed);
        }
        let mut place = self.home(low);
        loop {
            let cell = self.cells[place];
            if cell == 0 {
                self.cells[place] = pair + 1;
                self.used += 1;
                return (place, true);
            }
            if cell == pair + 1 {
                return (place, false);
            }
            place = if place + 1 == self.cells.len() { 0 } else { place + 1 };
        }
    }

    /// Four cells of five may be in use, and full cells double: words are short, and moving them is what takes time.
    fn grow(&mut self, limit: u32, seed: [u64; 2]) {
        let size = (2 * self.cells.len()).max(Self::LEAST_CELLS);
        let full = std::mem::replace(&mut self.cells, vec![0; size]);
        let numbers = std::mem::replace(&mut self.held, if limit > 1 { vec![0; size] } else { Vec::new() });
        for (before, cell) in full.into_iter().enumerate().filter(|(_, cell)| *cell != 0) {
            let mut place = self.home(mixed(cell - 1, seed) as u32);
            while self.cells[place] != 0 {
                place = if place + 1 == size { 0 } else { place + 1 };
            }
            self.cells[place] = cell;
            if limit > 1 {
                self.held[place] = numbers[before];
            }
        }
    }
}

/// Rows of users, brought together user after user.
pub struct UserRows<'a> {
    /// Users by their slots.
    pub slots: &'a [u32],
    /// Further users by their names, those who have no slot among them.
    pub names: &'a [u128],
    /// How many rows each has, those with slots first.
    pub counts: &'a [u32],
    /// The slot of each row's label, the rows of the first user first.
    pub labels: &'a [u32],
}

/// For each row how many units its user had before it, `NO_UNIT` where it is none; changes nothing if it fails.
///
/// A row is a unit while its user has fewer than `most`, and its pair, where pairs are given, fewer than their limit:
/// which rows are units depends on the rows of that user alone. Beyond `most` no pair is remembered.
pub fn add_rows(
    users: &mut UserTable,
    mut pairs: Option<&mut PairTable>,
    rows: &UserRows<'_>,
    most: u64,
) -> Result<Vec<u64>, Error> {
    let total: usize = rows.counts.iter().map(|&count| count as usize).sum();
    if rows.counts.len() != rows.slots.len() + rows.names.len() || total != rows.labels.len() {
        return Err(Error::Parameter("rows must be so many as the counts of all users say".into()));
    }
    users.check_slots(rows.slots)?;
    let mut before = Vec::with_capacity(total);
    let (mut words, mut mixes) = ([0u64; BLOCK], [0u64; BLOCK]);
    let mut start = 0;
    let mut block = Vec::with_capacity(BLOCK);
    let mut take = |users: &mut UserTable, place: usize, slot: u32| {
        let end = start + rows.counts[place] as usize;
        for &label in &rows.labels[start..end] {
            block.push((slot, label));
            if block.len() == BLOCK {
                take_block(users, pairs.as_deref_mut(), &block, most, &mut words, &mut mixes, &mut before);
                block.clear();
            }
        }
        start = end;
    };
    for (place, &slot) in rows.slots.iter().enumerate() {
        take(users, place, slot);
    }
    users.for_each_slot(rows.names, |users, place, slot| take(users, rows.slots.len() + place, slot))?;
    take_block(users, pairs, &block, most, &mut words, &mut mixes, &mut before);
    Ok(before)
}

fn take_block(
    users: &mut UserTable,
    pairs: Option<&mut PairTable>,
    block: &[(u32, u32)],
    most: u64,
    words: &mut [u64; BLOCK],
    mixes: &mut [u64; BLOCK],
    before: &mut Vec<u64>,
) {
    let Some(pairs) = pairs else {
        before.extend(block.iter().map(|&(slot, _)| users.take_unit(slot, most).unwrap_or(NO_UNIT)));
        return;
    };
    let mut touched = 0;
    for ((word, mix), &(slot, label)) in words.iter_mut().zip(mixes.iter_mut()).zip(block) {
        *word = (u64::from(slot) << 32) | u64::from(label);
        *mix = pairs.mix(*word);
        touched ^= pairs.first_cell(*mix) ^ users.units_of(slot);
    }
    std::hint::black_box(touched);
    for (place, &(slot, _)) in block.iter().enumerate() {
        let is_unit = users.units_of(slot) < most && pairs.take(words[place], mixes[place]);
        before.push(if is_unit { users.take_unit(slot, most).unwrap_or(NO_UNIT) } else { NO_UNIT });
    }
}

/// Rows by user, without those that can be no units: of users without units left, more than so many of one label, and more
/// than so many in all.
#[derive(Default)]
pub struct UnitGroups {
    /// Users who have slots, by these, in their order.
    pub slots: Vec<u32>,
    /// Those who have none, by name, in the order that `users::group` has.
    pub names: Vec<u128>,
    /// How many rows of each are left, those with slots first.
    pub counts: Vec<u32>,
    /// The rows that are left, those of the first user in the order in which they came, then those of the next.
    pub order: Vec<u32>,
    /// The different labels of these rows as they appear.
    pub labels: Vec<u32>,
    /// For each row the number of its label among these.
    pub numbers: Vec<u32>,
}

/// Brings rows together by their users, of whom `standing` and `names` tell what `UserTable::standing` does. What is left of a user's rows
/// depends on them and on her units alone. Labels are small numbers: there is a word for each up to the largest.
pub fn group_units(
    standing: &[u32],
    names: &[u128],
    labels: &[u32],
    limit: u32,
    most: u64,
) -> Result<UnitGroups, Error> {
    let new: Vec<u32> =
        (0..).zip(standing).filter(|(_, slot)| **slot == NEW_USER).map(|(row, _)| row).collect();
    if names.len() != new.len() || standing.len() != labels.len() {
        return Err(Error::Parameter("rows must have a label each, and those of new users a name".into()));
    }
    let mut groups = UnitGroups { order: Vec::with_capacity(labels.len()), ..Default::default() };
    let mut many = HashMap::new();
    for same in by_slot(standing).chunk_by(|left, right| left >> 32 == right >> 32) {
        let count = take_rows(same, |&word| word as u32, labels, (limit, most), &mut many, &mut groups.order);
        groups.slots.push((same[0] >> 32) as u32);
        groups.counts.push(count);
    }
    let placed = in_order(names)?;
    for same in placed.chunk_by(|left, right| left.name() == right.name()) {
        let row = |each: &Placed| new[each.row as usize];
        let count = take_rows(same, row, labels, (limit, most), &mut many, &mut groups.order);
        groups.names.push(same[0].name());
        groups.counts.push(count);
    }
    let most = labels.iter().max().map_or(0, |&label| label as usize + 1);
    let mut known = filled(u32::MAX, checked_size("labels", most)?)?;
    for &row in &groups.order {
        let label = labels[row as usize];
        let number = &mut known[label as usize];
        if *number == u32::MAX {
            *number = groups.labels.len() as u32;
            groups.labels.push(label);
        }
        groups.numbers.push(*number);
    }
    Ok(groups)
}

/// The slots of the users who have units left, each above its row, in their order.
fn by_slot(standing: &[u32]) -> Vec<u64> {
    let words = (0u64..).zip(standing).filter(|(_, slot)| **slot < SPENT_USER);
    let words = words.map(|(row, &slot)| (u64::from(slot) << 32) | row);
    let last = words.clone().max().unwrap_or(0) >> 32;
    let bits = (u64::BITS - last.leading_zeros()).saturating_sub(heap_bits(standing.len()));
    dealt(words, (last >> bits) as usize + 1, |word| (word >> 32 >> bits) as usize)
}

/// Appends the rows of one user that can be units, and tells how many these are.
fn take_rows<Each>(
    same: &[Each],
    row: impl Fn(&Each) -> u32,
    labels: &[u32],
    (limit, most): (u32, u64),
    many: &mut HashMap<u32, u32>,
    order: &mut Vec<u32>,
) -> u32 {
    let start = order.len();
    many.clear();
    for each in same {
        let (row, own) = (row(each), &order[start..]);
        if own.len() as u64 >= most {
            break;
        }
        let label = labels[row as usize];
        let held = if limit as usize >= same.len() {
            0
        } else if same.len() <= FEW_ROWS {
            own.iter().filter(|&&row| labels[row as usize] == label).count() as u32
        } else {
            let held = many.entry(label).or_insert(0u32);
            let before = *held;
            *held = held.saturating_add(1);
            before
        };
        if held < limit {
            order.push(row);
        }
    }
    (order.len() - start) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::users::Ids;

    fn rows<'a>(names: &'a [u128], counts: &'a [u32], labels: &'a [u32]) -> UserRows<'a> {
        UserRows { slots: &[], names, counts, labels }
    }

    fn tables(limit: u32) -> (UserTable, PairTable) {
        (UserTable::new(&[7; 32], 2), PairTable::new(&[7; 32], limit).unwrap())
    }

    #[test]
    fn a_pair_has_as_many_units_as_the_limit_for_life() {
        let (mut users, mut pairs) = tables(1);
        let first =
            add_rows(&mut users, Some(&mut pairs), &rows(&[5, 6], &[3, 1], &[1, 1, 2, 1]), 9).unwrap();
        assert_eq!(first, [0, NO_UNIT, 1, 0]);
        let again = add_rows(&mut users, Some(&mut pairs), &rows(&[5], &[3], &[2, 3, 1]), 9).unwrap();
        assert_eq!(again, [NO_UNIT, 2, NO_UNIT]);
        assert_eq!((pairs.len(), users.over(), users.kept()), (4, 1, 3));
        let (mut users, mut pairs) = tables(2);
        let told = add_rows(&mut users, Some(&mut pairs), &rows(&[5], &[5], &[1, 1, 1, 2, 1]), 9).unwrap();
        assert_eq!(told, [0, 1, NO_UNIT, 2, NO_UNIT]);
    }

    #[test]
    fn beyond_the_most_nothing_is_a_unit_and_no_pair_is_remembered() {
        let (mut users, mut pairs) = tables(1);
        let told = add_rows(&mut users, Some(&mut pairs), &rows(&[5], &[3], &[1, 2, 3]), 2).unwrap();
        assert_eq!((told, pairs.len()), (vec![0, 1, NO_UNIT], 2));
        let events = add_rows(&mut users, None, &rows(&[6], &[3], &[1, 1, 1]), 2).unwrap();
        assert_eq!(events, [0, 1, NO_UNIT]);
        assert!(add_rows(&mut users, None, &rows(&[6], &[2], &[1]), 2).is_err());
    }

    #[test]
    fn many_pairs_are_told_apart_found_again_and_stored() {
        let names: Vec<u128> =
            (1..=20_000u128).map(|name| name.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c) << 9).collect();
        let counts = vec![10u32; names.len()];
        let labels: Vec<u32> = (0..200_000).map(|row| row % 97).collect();
        let (mut users, mut pairs) = tables(3);
        let given = rows(&names, &counts, &labels);
        for time in 0..4u64 {
            let told = add_rows(&mut users, Some(&mut pairs), &given, 1 << 40).unwrap();
            assert_eq!(
                told.iter().filter(|&&each| each == NO_UNIT).count(),
                if time == 3 { 200_000 } else { 0 }
            );
        }
        let stored = pairs.take_fresh();
        assert_eq!((stored.len(), pairs.take_fresh().len()), (600_000, 0));
        let mut other = PairTable::new(&[8; 32], 3).unwrap();
        other.restore(&stored).unwrap();
        assert_eq!((other.len(), other.take_fresh().len()), (pairs.len(), 0));
        let again = add_rows(&mut users, Some(&mut other), &given, 1 << 40).unwrap();
        assert!(again.iter().all(|&each| each == NO_UNIT));
        assert!(other.restore(&stored[..1]).is_err());
        assert!(PairTable::new(&[8; 32], 0).is_err());
    }

    #[test]
    fn one_unit_a_pair_takes_at_most_20_bytes() {
        let (mut users, mut pairs) = tables(1);
        let names: Vec<u128> = (1..=50_000u128).map(|name| name << 70).collect();
        let labels: Vec<u32> = (0..500_000).collect();
        add_rows(&mut users, Some(&mut pairs), &rows(&names, &vec![10; 50_000], &labels), 1 << 40).unwrap();
        assert!(pairs.bytes() <= 20 * pairs.len(), "{}", pairs.bytes() as f64 / pairs.len() as f64);
    }

    #[test]
    fn rows_that_can_be_no_units_are_left_out_of_groups() {
        let (small, large) = (7u128 << 64, 3u128);
        let names = [large, small, large, small, large, large];
        let groups = group_units(&[NEW_USER; 6], &names, &[4, 4, 4, 5, 6, 7], 1, 2).unwrap();
        assert_eq!((groups.names, groups.counts), (vec![small, large], vec![2, 2]));
        assert_eq!((groups.order, groups.labels), (vec![1, 3, 0, 4], vec![4, 5, 6]));
        assert_eq!(groups.numbers, [0, 1, 0, 2]);
        let many = group_units(
            &[NEW_USER; 100],
            &[1; 100],
            &(0..100).map(|row| row % 30).collect::<Vec<_>>(),
            2,
            50,
        )
        .unwrap();
        assert_eq!(many.order, (0..50).collect::<Vec<u32>>());
        let some = group_units(&[NEW_USER; 100], &[1; 100], &[3; 100], 2, 50).unwrap();
        assert_eq!(some.order, [0, 1]);
        assert!(group_units(&[NEW_USER], &[1], &[], 1, 1).is_err());
        assert!(group_units(&[], &[1], &[1], 1, 1).is_err());
    }

    #[test]
    fn users_who_have_slots_come_first_and_those_without_units_not_at_all() {
        let standing = [9, NEW_USER, SPENT_USER, 2, 9, NEW_USER, 9];
        let groups = group_units(&standing, &[8, 7], &[0, 5, 1, 2, 3, 5, 0], 1, 9).unwrap();
        assert_eq!((groups.slots, groups.names, groups.counts), (vec![2, 9], vec![7, 8], vec![1, 2, 1, 1]));
        assert_eq!((groups.order, groups.labels), (vec![3, 0, 4, 5, 1], vec![2, 0, 3, 5]));
        let many: Vec<u32> = (0..5000).map(|row| row * 7919 % 3001).collect();
        let order = group_units(&many, &[], &vec![0; 5000], u32::MAX, 9).unwrap().order;
        let keys: Vec<_> = order.iter().map(|&row| (many[row as usize], row)).collect();
        assert!(keys.is_sorted() && keys.len() == 5000);
    }

    #[test]
    fn a_user_is_the_same_by_her_slot_and_by_her_name() {
        let (mut users, mut pairs) = tables(1);
        add_rows(&mut users, Some(&mut pairs), &rows(&[5, 6], &[1, 2], &[1, 1, 2]), 3).unwrap();
        let (standing, new) = users.standing(&Ids::Names(&[6, 7, 5]), 2);
        assert_eq!((standing, new), (vec![SPENT_USER, NEW_USER, 0], vec![7]));
        let more =
            UserRows { slots: &[1, 0], names: &[7, 5], counts: &[1, 2, 1, 1], labels: &[2, 1, 3, 1, 4] };
        let told = add_rows(&mut users, Some(&mut pairs), &more, 3).unwrap();
        assert_eq!(told, [NO_UNIT, NO_UNIT, 1, 0, 2]);
        let strange = UserRows { slots: &[3], names: &[], counts: &[1], labels: &[1] };
        assert!(add_rows(&mut users, None, &strange, 3).is_err());
        let held = users.len();
        let ids: Vec<u128> =
            (1..=30_000u128).map(|id| id.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c) << 9 | 5).collect();
        users.for_each_slot(&ids, |_, _, _| {}).unwrap();
        let (standing, new) = users.standing(&Ids::Names(&ids), 1);
        assert!(new.is_empty() && standing.into_iter().eq((held as u32..).take(30_000)));
    }
}
