//! What a tick moved, in few bytes: for windows over the past.
//!
//! A tick that moves nearly all of many slots, and one that moves a few of them, have one form. After the number of slots
//! spanned come runs: how many slots are passed over, how many there are and in how many bits each is, then the amounts
//! themselves. A run may hold slots that did not move, where to end it would take more room. Amounts wrap at 64 bits.

use crate::error::Error;

const LONGEST_RUN: u64 = 64;
const WIDTHS: u64 = 65;
const HEAD_BITS: u64 = 24;
const SPAN_BYTES: usize = 4;

/// From how many slots a move on it is quicker to put moves in order than to go through all slots.
const SPARSE: usize = 16;

/// A slot and by how much it moved; small numbers of both signs have few bits.
type Move = (u32, u64);

/// The moves of slots in any order, those of the same slot added up.
pub fn pack(slots: &[i64], amounts: &[i64]) -> Result<Vec<u8>, Error> {
    if slots.len() != amounts.len() || !slots.iter().all(|&slot| (0..i64::from(u32::MAX)).contains(&slot)) {
        return Err(Error::Parameter("moves must be of slots below 2^32 - 1 and have an amount each".into()));
    }
    let moves = added_up(slots, amounts);
    let mut packed = moves.last().map_or(0, |last| last.0 + 1).to_le_bytes().to_vec();
    let (mut rest, mut next) = (&moves[..], 0);
    while !rest.is_empty() {
        let (count, width) = first_run(rest);
        let (run, others) = rest.split_at(count);
        let length = u64::from(run[count - 1].0 - run[0].0) + 1;
        push_number(&mut packed, u64::from(run[0].0 - next));
        push_number(&mut packed, (length - 1) * WIDTHS + width);
        push_amounts(&mut packed, run, width);
        next = run[count - 1].0 + 1;
        rest = others;
    }
    packed.shrink_to_fit();
    Ok(packed)
}

/// totals += what was packed, wrapping.
pub fn add(totals: &mut [i64], packed: &[u8]) -> Result<(), Error> {
    let damaged =
        || Error::Parameter("packed moves must be whole and of slots that there are, got others".into());
    let mut place = SPAN_BYTES;
    let mut slot = 0;
    while place < packed.len() {
        let skip = pop_number(packed, &mut place).ok_or_else(damaged)?;
        let head = pop_number(packed, &mut place).ok_or_else(damaged)?;
        let (length, width) = ((head / WIDTHS).min(LONGEST_RUN - 1) as usize + 1, (head % WIDTHS) as usize);
        let bytes = (length * width).div_ceil(8);
        let first = usize::try_from(skip).ok().and_then(|skip| skip.checked_add(slot)).ok_or_else(damaged)?;
        let end = first.checked_add(length).ok_or_else(damaged)?;
        let own = totals.get_mut(first..end).ok_or_else(damaged)?;
        if packed.len() - place < bytes {
            return Err(damaged());
        }
        let mask = (1u128 << width) - 1;
        for (number, total) in own.iter_mut().enumerate() {
            let bit = number * width;
            let amount = (sixteen(packed, place + bit / 8) >> (bit % 8)) & mask;
            *total = total.wrapping_add(signed(amount as u64));
        }
        (place, slot) = (place + bytes, end);
    }
    Ok(())
}

/// In the order of their slots, each once, without those that moved by nothing.
fn added_up(slots: &[i64], amounts: &[i64]) -> Vec<Move> {
    let pairs = slots.iter().zip(amounts).map(|(&slot, &amount)| (slot as u32, amount));
    if slots.windows(2).all(|pair| pair[0] < pair[1]) {
        return moved(pairs);
    }
    let span = slots.iter().max().map_or(0, |last| *last as usize + 1);
    if span <= slots.len().saturating_mul(SPARSE) {
        let mut totals = vec![0i64; span];
        pairs.for_each(|(slot, amount)| totals[slot as usize] = totals[slot as usize].wrapping_add(amount));
        return moved((0..).zip(totals));
    }
    let mut pairs: Vec<(u32, i64)> = pairs.collect();
    pairs.sort_unstable_by_key(|pair| pair.0);
    pairs.dedup_by(|later, first| {
        let is_same = later.0 == first.0;
        if is_same {
            first.1 = first.1.wrapping_add(later.1);
        }
        is_same
    });
    moved(pairs.into_iter())
}

fn moved(pairs: impl Iterator<Item = (u32, i64)>) -> Vec<Move> {
    pairs.filter(|pair| pair.1 != 0).map(|(slot, amount)| (slot, unsigned(amount))).collect()
}

/// How many of some moves are in the first run, and how many bits each of its amounts has.
fn first_run(moves: &[Move]) -> (usize, u64) {
    let (first, mut before) = (moves[0].0, 1);
    let mut width = bits(moves[0]);
    let (mut tail, mut tail_first, mut tail_width) = (1, first + 1, 0);
    for (number, &one) in moves.iter().enumerate().skip(1) {
        let (own, length) = (bits(one), u64::from(one.0 - first) + 1);
        if length > LONGEST_RUN || length * width.max(own) > before * width + HEAD_BITS + own {
            return (number, width);
        }
        if own >= width {
            (width, tail, tail_first, tail_width) = (own, number + 1, one.0 + 1, 0);
        } else {
            tail_width = tail_width.max(own);
            // What follows the widest amounts has a run of its own where it is narrower by more than that takes.
            if u64::from(one.0 - tail_first + 1) * (width - tail_width) > HEAD_BITS {
                return (tail, width);
            }
        }
        before = length;
    }
    (moves.len(), width)
}

fn bits(one: Move) -> u64 {
    u64::from(64 - one.1.leading_zeros())
}

fn unsigned(amount: i64) -> u64 {
    ((amount << 1) ^ (amount >> 63)) as u64
}

fn signed(amount: u64) -> i64 {
    (amount >> 1) as i64 ^ -((amount & 1) as i64)
}

fn push_number(packed: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        packed.push(number as u8 | 0x80);
        number >>= 7;
    }
    packed.push(number as u8);
}

fn pop_number(packed: &[u8], place: &mut usize) -> Option<u64> {
    let mut number = 0;
    for shift in (0..35).step_by(7) {
        let byte = *packed.get(*place)?;
        *place += 1;
        number |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(number);
        }
    }
    None
}

fn push_amounts(packed: &mut Vec<u8>, run: &[Move], width: u64) {
    let (mut held, mut bit) = (0u64, 0);
    let mut next = run[0].0;
    for &(slot, amount) in run {
        // Slots between that did not move.
        let passed = bit + u64::from(slot - next) * width;
        for _ in bit / 64..passed / 64 {
            packed.extend_from_slice(&held.to_le_bytes());
            held = 0;
        }
        let place = passed % 64;
        held |= amount << place;
        if place + width >= 64 {
            packed.extend_from_slice(&held.to_le_bytes());
            held = if place == 0 { 0 } else { amount >> (64 - place) };
        }
        (bit, next) = (passed + width, slot + 1);
    }
    packed.extend_from_slice(&held.to_le_bytes()[..((bit % 64) as usize).div_ceil(8)]);
}

/// Sixteen bytes from a place on, zeros behind the end.
#[inline]
fn sixteen(packed: &[u8], place: usize) -> u128 {
    let rest = packed.get(place..).unwrap_or_default();
    if let Some(bytes) = rest.first_chunk::<16>() {
        return u128::from_le_bytes(*bytes);
    }
    let mut bytes = [0; 16];
    bytes[..rest.len()].copy_from_slice(rest);
    u128::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn unpacked(packed: &[u8]) -> Vec<i64> {
        let span = u32::from_le_bytes(packed[..SPAN_BYTES].try_into().unwrap());
        let mut totals = vec![0; span as usize];
        add(&mut totals, packed).unwrap();
        totals
    }

    #[test]
    fn few_moves_of_many_slots_take_few_bytes() {
        let packed = pack(&[70_000, 5], &[1, -1]).unwrap();
        assert_eq!(packed.len(), SPAN_BYTES + 3 + 5);
        let totals = unpacked(&packed);
        assert_eq!((totals[5], totals[70_000], totals.iter().sum::<i64>()), (-1, 1, 0));
    }

    #[test]
    fn moves_of_all_slots_take_less_than_half_a_byte_each() {
        let slots: Vec<i64> = (0..10_000).collect();
        let amounts: Vec<i64> = slots.iter().map(|slot| slot % 4).collect();
        let packed = pack(&slots, &amounts).unwrap();
        assert!(packed.len() < 5_000, "{}", packed.len());
        assert_eq!(unpacked(&packed)[..], amounts[..]);
    }

    #[test]
    fn one_large_amount_widens_few_others() {
        let slots: Vec<i64> = (0..10_000).collect();
        let amounts: Vec<i64> = slots.iter().map(|slot| if slot % 100 == 50 { 1 << 30 } else { 1 }).collect();
        let packed = pack(&slots, &amounts).unwrap();
        assert!(packed.len() < 6_000, "{}", packed.len());
        assert_eq!(unpacked(&packed), amounts);
    }

    #[test]
    fn damaged_bytes_are_refused() {
        let packed = pack(&[0, 1, 2], &[1 << 40, i64::MIN, i64::MAX]).unwrap();
        assert!(add(&mut [0; 2], &packed).is_err());
        assert!(add(&mut [0; 3], &packed[..packed.len() - 1]).is_err());
        assert!(add(&mut [0; 3], &[0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(add(&mut [0; 3], &[]).is_ok());
        assert!(pack(&[-1], &[1]).is_err() && pack(&[0], &[]).is_err());
    }

    proptest! {
        #[test]
        fn what_is_packed_is_added(
            moves in prop::collection::vec((0i64..300, prop_oneof![-3i64..3, any::<i64>()]), 0..400)
        ) {
            let (slots, amounts): (Vec<i64>, Vec<i64>) = moves.iter().copied().unzip();
            let mut totals = vec![0i64; 300];
            for (slot, amount) in moves {
                totals[slot as usize] = totals[slot as usize].wrapping_add(amount);
            }
            let mut found = vec![0; 300];
            add(&mut found, &pack(&slots, &amounts).unwrap()).unwrap();
            prop_assert_eq!(found, totals);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..100)) {
            let _ = add(&mut [0; 50], &bytes);
        }
    }
}
