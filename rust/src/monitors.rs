//! Race monitors: which tests say TOP, and who is charged for it.
//!
//! A test of weight w at threshold t says TOP iff w + Z >= t, where Z = floor(-scale ln E) and E is exponential of rate
//! one. So P(Z >= d) = 1 - exp(-exp(-d / scale)). With U = 1 - exp(-E) uniform, Z >= d iff U < P(Z >= d), and Z is the
//! largest such d: one table of chances in units of 2^-128, falling in d, gives decisions and values from the same bits.
//!
//! *Distance.* Every chance is rounded down by less than one unit and a few hundred bits finer errors; chances above
//! 1 - 2^-128 count as one and those below 2^-128 as zero. Z is then within (entries + 2) 2^-128 of its law in total
//! variation. There are at most 93.6 scale + 2 entries, so for scales up to `LARGEST_SCALE` a draw is within 2^-110.

use hashbrown::HashTable;
use num_bigint::BigUint;
use num_traits::{One, ToPrimitive, Zero};

use crate::error::{Error, checked_size, filled};
use crate::fixed_point::{BITS, Ratio, exp_of_minus};
use crate::labels::{NO_SLOT, SlotTable};

/// Larger scales are refused: their tables would be long and their draws further than 2^-110 from their law.
pub const LARGEST_SCALE: u64 = 2048;

/// P(Z >= d) in units of 2^-128, for the d where this is neither certain nor impossible.
pub struct RaceTable {
    /// The smallest d that has an entry; below it Z >= d is certain.
    first: i64,
    /// Falling.
    chances: Vec<u128>,
}

impl RaceTable {
    /// The table of a scale.
    pub fn new(numerator: u128, denominator: u128) -> Result<Self, Error> {
        let scale = Ratio::new(numerator, denominator);
        if numerator == 0 || denominator == 0 || !scale.at_most(LARGEST_SCALE) {
            return Err(Error::Parameter(format!("a scale must be above 0 and at most {LARGEST_SCALE}")));
        }
        let one = BigUint::one() << BITS;
        let step = exp_of_minus(&Ratio::new(denominator, numerator));
        if step.is_zero() {
            return Err(Error::Parameter("a scale must not be so small that no noise is left".into()));
        }
        let chance = |rate: &BigUint| {
            ((&one - exp_of_minus(&Ratio::new(rate.clone(), one.clone()))) << 128u32) >> BITS
        };
        let (mut below, mut rate) = (Vec::new(), one.clone());
        loop {
            rate = (&rate << BITS) / &step;
            match chance(&rate).to_u128() {
                // A rate past 2^7 has a chance of one; at tiny scales one step leads there.
                Some(found) if (&rate >> BITS) < BigUint::from(128u32) => below.push(found),
                _ => break,
            }
        }
        let first = -(below.len() as i64);
        let mut chances: Vec<u128> = below.into_iter().rev().collect();
        rate.clone_from(&one);
        loop {
            let found = chance(&rate).to_u128().unwrap_or(u128::MAX);
            if found == 0 {
                break;
            }
            chances.push(found);
            rate = (&rate * &step) >> BITS;
        }
        Ok(RaceTable { first, chances })
    }

    /// The smallest d that has an entry.
    pub fn first(&self) -> i64 {
        self.first
    }

    /// The entries from the first one on.
    pub fn chances(&self) -> &[u128] {
        &self.chances
    }

    /// Whether Z >= `least` for these bits.
    #[inline]
    pub fn reaches(&self, bits: u128, least: i64) -> bool {
        let place = least.saturating_sub(self.first);
        place < 0 || self.chances.get(place as usize).is_some_and(|chance| bits < *chance)
    }

    /// Z for these bits.
    pub fn value(&self, bits: u128) -> i64 {
        self.first - 1 + self.chances.partition_point(|chance| bits < *chance) as i64
    }
}

/// In place of the slot of a user who has not come yet in the rows that are added, who has, and who counts no more.
const UNMET: u32 = u32::MAX;
const MET: u32 = u32::MAX - 1;
const EXHAUSTED: u32 = u32::MAX - 2;

/// A user and a key that she holds in the open tick, by their slots in it.
type Holding = (u32, u32);

/// How often each user was charged in her life, and who holds what in the open tick.
///
/// Users come as keyed 128-bit names. Only those who were ever charged are kept beyond a tick: 18 bytes each, and 5.7
/// to 11.5 for the hash table.
pub struct ChargeBook {
    limit: u16,
    per_tick: u16,
    charged: SlotTable,
    counts: Vec<u16>,
    users: SlotTable,
    held: Vec<u16>,
    holdings: Vec<Holding>,
    pairs: HashTable<u32>,
}

fn mix((user, key): Holding) -> u64 {
    // Both are slots, which no outsider chooses; an odd multiplier spreads them over all bits.
    let whole = (u64::from(user) << 32 | u64::from(key)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    whole ^ (whole >> 32)
}

impl ChargeBook {
    /// A book in which users with `limit` charges are inactive, and count with their first `per_tick` keys of a tick.
    pub fn new(limit: u16, per_tick: u16) -> Self {
        ChargeBook {
            limit,
            per_tick,
            charged: SlotTable::default(),
            counts: Vec::new(),
            users: SlotTable::default(),
            held: Vec::new(),
            holdings: Vec::new(),
            pairs: HashTable::new(),
        }
    }

    /// How many users were ever charged.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    /// Whether nobody was ever charged.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// Notes the keys that users hold, in the order in which they come; keys without a slot are nobody's.
    ///
    /// Each row's user is told by her number among `names`, so that a name is looked up once and not row by row.
    pub fn add(&mut self, names: &[u128], numbers: &[u32], keys: &[i64]) -> Result<(), Error> {
        if numbers.iter().any(|&number| number as usize >= names.len()) {
            return Err(Error::Parameter("each row must have the number of a user, got one beyond".into()));
        }
        let mut users = self.open_slots(names);
        let mut comers = Vec::new();
        for (&number, &key) in numbers.iter().zip(keys) {
            let user = &mut users[number as usize];
            if key != NO_SLOT && *user == UNMET {
                *user = MET;
                comers.push(number);
            }
        }
        // In the order in which they come, as if every row were looked up.
        let their_names: Vec<u128> = comers.iter().map(|&number| names[number as usize]).collect();
        for (number, slot) in comers.into_iter().zip(self.users.find_or_add(&their_names)) {
            users[number as usize] = slot as u32;
        }
        self.held.resize(self.users.len(), 0);
        for (&number, &key) in numbers.iter().zip(keys) {
            let user = users[number as usize];
            if key != NO_SLOT && user != EXHAUSTED {
                self.hold(user, key as u32);
            }
        }
        Ok(())
    }

    /// For each name whether she may hold something.
    fn open_slots(&self, names: &[u128]) -> Vec<u32> {
        if self.counts.is_empty() {
            return vec![UNMET; names.len()];
        }
        let is_active = |slot: i64| slot == NO_SLOT || self.counts[slot as usize] < self.limit;
        self.charged
            .find(names)
            .into_iter()
            .map(|slot| if is_active(slot) { UNMET } else { EXHAUSTED })
            .collect()
    }

    fn hold(&mut self, user: u32, key: u32) {
        let held = self.held[user as usize];
        if held >= self.per_tick {
            return;
        }
        let pair = (user, key);
        if self.per_tick > 1 {
            let ChargeBook { pairs, holdings, .. } = self;
            if pairs.find(mix(pair), |&place| holdings[place as usize] == pair).is_some() {
                return;
            }
            pairs.insert_unique(mix(pair), holdings.len() as u32, |&place| mix(holdings[place as usize]));
        }
        self.held[user as usize] = held + 1;
        self.holdings.push(pair);
    }

    /// How many active users hold each of the first `keys` keys.
    pub fn weights(&self, keys: usize) -> Result<Vec<i64>, Error> {
        let mut weights = filled(0i64, checked_size("keys", keys)?)?;
        for &(_, key) in &self.holdings {
            *weights.get_mut(key as usize).ok_or_else(unknown_key)? += 1;
        }
        Ok(weights)
    }

    /// Charges every holder of every reported key once for each, and opens the next tick.
    pub fn close(&mut self, reported: &[bool]) -> Result<(), Error> {
        if self.holdings.iter().any(|&(_, key)| key as usize >= reported.len()) {
            return Err(unknown_key());
        }
        let mut due = vec![0u16; self.users.len()];
        for &(user, key) in &self.holdings {
            due[user as usize] += u16::from(reported[key as usize]);
        }
        let owing = due.iter().zip(self.users.names()).filter(|(amount, _)| **amount > 0);
        let (amounts, names): (Vec<u16>, Vec<u128>) = owing.unzip();
        self.charge(&names, &amounts)?;
        self.users = SlotTable::default();
        self.held = Vec::new();
        self.holdings = Vec::new();
        self.pairs = HashTable::new();
        Ok(())
    }

    fn charge(&mut self, names: &[u128], amounts: &[u16]) -> Result<(), Error> {
        let new = self.charged.find(names).iter().filter(|slot| **slot == NO_SLOT).count();
        // Exactly: a vector that doubles would take twice the memory that a user may cost.
        self.charged.reserve(new)?;
        self.counts.reserve_exact(new);
        for (slot, &amount) in self.charged.find_or_add(names).into_iter().zip(amounts) {
            if slot as usize == self.counts.len() {
                self.counts.push(0);
            }
            let count = &mut self.counts[slot as usize];
            *count = count.saturating_add(amount);
        }
        Ok(())
    }

    /// Those who were ever charged, with how often; and the open tick's users and holdings.
    pub fn content(&self) -> (&[u128], &[u16], &[u128], &[Holding]) {
        (self.charged.names(), &self.counts, self.users.names(), &self.holdings)
    }

    /// Takes over a stored content; only a fresh book does.
    pub fn restore(
        &mut self,
        charged: &[u128],
        counts: &[u16],
        users: &[u128],
        holdings: &[Holding],
    ) -> Result<(), Error> {
        let fresh = self.is_empty() && self.users.is_empty();
        if !fresh || charged.len() != counts.len() || counts.contains(&0) {
            return Err(malformed());
        }
        self.charge(charged, counts)?;
        self.users.find_or_add(users);
        self.held = vec![0; self.users.len()];
        for &(user, key) in holdings {
            if user as usize >= self.held.len() {
                return Err(malformed());
            }
            self.hold(user, key);
        }
        let whole = self.counts.len() == counts.len() && self.users.len() == users.len();
        if whole && self.holdings.len() == holdings.len() { Ok(()) } else { Err(malformed()) }
    }
}

fn unknown_key() -> Error {
    Error::Parameter("every key of a tick must have its place, got a key beyond".into())
}

fn malformed() -> Error {
    Error::Parameter("a stored book of charges must be well formed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chance(table: &RaceTable, least: i64) -> f64 {
        table.chances()[(least - table.first()) as usize] as f64 / 2f64.powi(128)
    }

    #[test]
    fn chances_are_those_of_the_gumbel_law() {
        for scale in [1u32, 2, 10, 25] {
            let table = RaceTable::new(scale.into(), 1).unwrap();
            for least in [-2i64, -1, 0, 1, 2, 7, 30] {
                let ideal = -(-(-(least as f64) / f64::from(scale)).exp()).exp_m1();
                assert!((chance(&table, least) / ideal - 1.0).abs() < 1e-13, "{scale} {least}");
            }
        }
    }

    #[test]
    fn chances_fall_and_span_all_of_128_bits() {
        let table = RaceTable::new(21, 2).unwrap();
        assert!(table.chances().is_sorted_by(|left, right| left >= right));
        assert!(*table.chances().last().unwrap() >= 1);
        assert!(table.chances()[0] > u128::MAX - (1 << 80));
        assert!(table.chances().len() as f64 <= 93.6 * 10.5 + 2.0);
    }

    #[test]
    fn a_value_is_the_largest_that_is_reached() {
        let table = RaceTable::new(7, 3).unwrap();
        for bits in [0, 1, 1 << 60, 1 << 120, 1 << 127, u128::MAX - 1, u128::MAX] {
            let value = table.value(bits);
            assert!(table.reaches(bits, value) && !table.reaches(bits, value + 1));
        }
        assert!(table.reaches(u128::MAX, i64::MIN) && !table.reaches(0, i64::MAX));
    }

    #[test]
    fn scales_that_are_too_large_or_small_are_refused() {
        assert!(RaceTable::new(2049, 1).is_err());
        assert!(RaceTable::new(0, 1).is_err());
        assert!(RaceTable::new(1, 1 << 100).is_err());
        assert!(RaceTable::new(1, 100).unwrap().chances().len() == 1);
    }

    #[test]
    fn a_user_counts_once_a_key_with_her_first_keys_until_she_is_exhausted() {
        let mut book = ChargeBook::new(2, 2);
        book.add(&[8, 7], &[1, 1, 1, 0, 1], &[0, 0, 1, 0, 2]).unwrap();
        assert_eq!(book.content().2, [7, 8]);
        assert_eq!(book.weights(3).unwrap(), [2, 1, 0]);
        book.close(&[true, false, true]).unwrap();
        assert_eq!(book.content().1, [1, 1]);
        book.add(&[7, 9], &[0, 1], &[0, NO_SLOT]).unwrap();
        book.close(&[true]).unwrap();
        book.add(&[7, 8, 9], &[0, 1, 2], &[0, 0, 0]).unwrap();
        assert_eq!(book.weights(1).unwrap(), [2]);
    }

    #[test]
    fn a_book_is_stored_and_restored() {
        let mut book = ChargeBook::new(1, 3);
        book.add(&[1, 2, 3], &[0, 1, 2], &[0, 0, 1]).unwrap();
        book.close(&[true, false]).unwrap();
        book.add(&[1, 3, 4], &[0, 1, 1, 2], &[0, 0, 1, 1]).unwrap();
        let (charged, counts, users, holdings) = book.content();
        let mut again = ChargeBook::new(1, 3);
        again.restore(charged, counts, users, holdings).unwrap();
        assert_eq!(again.content(), book.content());
        assert_eq!(again.weights(2).unwrap(), [1, 2]);
        assert!(again.restore(&[], &[], &[], &[]).is_err());
        assert!(ChargeBook::new(1, 1).restore(&[5, 5], &[1, 1], &[], &[]).is_err());
        assert!(ChargeBook::new(1, 1).restore(&[], &[], &[5], &[(1, 0)]).is_err());
    }

    #[test]
    fn a_key_beyond_those_reported_on_is_refused_and_charges_nobody() {
        let mut book = ChargeBook::new(1, 1);
        book.add(&[1], &[0], &[5]).unwrap();
        assert!(book.add(&[1], &[1], &[0]).is_err());
        assert!(book.weights(5).is_err() && book.close(&[true; 5]).is_err());
        assert!(book.is_empty());
    }
}
