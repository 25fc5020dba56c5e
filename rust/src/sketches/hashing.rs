//! Keyed hashes, so that nobody can choose keys that crowd one place of a table. No output depends on them.
//!
//! Both are multilinear: the high half of `a_0 + a_1 w_1 + a_2 w_2 + ...` modulo 2^128 for a key of 64-bit words `w`,
//! with random 128-bit numbers `a`. For any two keys chosen without knowledge of these, the pair of hashes is uniform
//! over all pairs, whatever pattern the keys have (Lemire and Kaser, "Strongly universal string hashing is fast", The
//! Computer Journal 2014, Theorem 3.1). A fixed mixing of its bits leaves it so, and scatters keys in even steps, which a
//! linear function alone would leave in even steps.

use zeroize::{Zeroize, ZeroizeOnDrop};

const CONTEXT: &str = "pianissimo 2026-11 sketch hashing v1";
const WORD: usize = size_of::<u64>();

/// A key of 256 bytes has so many words, and one more for its length.
const WORDS: usize = super::views::LONGEST_KEY / WORD + 1;

fn numbers<const COUNT: usize>(secret: &[u8; 32]) -> [u128; COUNT] {
    let mut reader = blake3::Hasher::new_derive_key(CONTEXT).update(secret).finalize_xof();
    std::array::from_fn(|_| {
        let mut bytes = [0; 16];
        reader.fill(&mut bytes);
        u128::from_le_bytes(bytes)
    })
}

/// A one-to-one mixing of bits.
#[inline]
fn mixed(sum: u128) -> u64 {
    let word = (sum >> 64) as u64;
    let word = (word ^ word >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word ^ word >> 32
}

/// The hash of 64-bit keys.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct IntegerHash {
    addend: u128,
    factor: u128,
}

impl IntegerHash {
    /// The hash that belongs to 32 random bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        let [addend, factor] = numbers(secret);
        IntegerHash { addend, factor }
    }

    /// The hash of a key.
    #[inline]
    pub fn hash(&self, key: i64) -> u64 {
        mixed(self.factor.wrapping_mul(u128::from(key as u64)).wrapping_add(self.addend))
    }
}

/// The hash of byte strings of at most 256 bytes.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct ByteHash {
    addend: u128,
    of_length: u128,
    of_words: [u128; WORDS],
}

impl ByteHash {
    /// The hash that belongs to 32 random bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        let [addend, of_length] = numbers(secret);
        let [_, _, of_words @ ..]: [u128; WORDS + 2] = numbers(secret);
        ByteHash { addend, of_length, of_words }
    }

    /// The hash of two words; different from those of bytes.
    #[inline]
    pub fn hash_pair(&self, first: u64, second: u64) -> u64 {
        let sum = self.of_words[0].wrapping_mul(u128::from(first)).wrapping_add(self.addend);
        mixed(self.of_words[1].wrapping_mul(u128::from(second)).wrapping_add(sum))
    }

    /// The hash of at least eight bytes. Words are whole ones from the beginning and, if some are left, the last eight
    /// bytes: with the length they tell the key.
    #[inline]
    pub fn hash(&self, key: &[u8]) -> u64 {
        let (words, rest) = key.as_chunks::<WORD>();
        let mut sum = self.addend.wrapping_add(self.of_length.wrapping_mul(key.len() as u128));
        for (word, factor) in words.iter().zip(&self.of_words) {
            sum = sum.wrapping_add(factor.wrapping_mul(u128::from(u64::from_le_bytes(*word))));
        }
        if let (false, Some(last)) = (rest.is_empty(), key.last_chunk()) {
            let last = u128::from(u64::from_le_bytes(*last));
            sum = sum.wrapping_add(self.of_words[WORDS - 1].wrapping_mul(last));
        }
        mixed(sum)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn keys_that_differ_in_a_byte_or_in_length_have_different_hashes() {
        let hash = ByteHash::new(&[7; 32]);
        let mut hashes = HashSet::new();
        for length in 8..=256 {
            let mut key = vec![0; length];
            assert!(hashes.insert(hash.hash(&key)));
            for place in 0..length {
                key[place] = 1;
                assert!(hashes.insert(hash.hash(&key)));
                key[place] = 0;
            }
        }
    }

    #[test]
    fn keys_in_a_pattern_do_not_crowd() {
        // Of 4096 keys in 8192 places, about 3224 places are taken if they fall at random.
        let hash = IntegerHash::new(&[7; 32]);
        for stride in (0..50).map(|shift| 1i64 << shift) {
            let places: HashSet<u64> = (0..4096).map(|step| hash.hash(step * stride) % 8192).collect();
            assert!(places.len() > 3000);
        }
        let hash = ByteHash::new(&[7; 32]);
        for length in [8, 12, 20] {
            let name = |step: u32| format!("{step:0length$}");
            let places: HashSet<u64> =
                (0..4096).map(|step| hash.hash(name(step).as_bytes()) % 8192).collect();
            assert!(places.len() > 3000);
        }
    }

    #[test]
    fn another_secret_gives_another_hash() {
        assert_ne!(ByteHash::new(&[7; 32]).hash_pair(1, 2), ByteHash::new(&[8; 32]).hash_pair(1, 2));
        assert_ne!(IntegerHash::new(&[7; 32]).hash(1), IntegerHash::new(&[8; 32]).hash(1));
    }
}
