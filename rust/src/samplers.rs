//! Discrete Gaussian and discrete Laplace noise from a fixed number of keyed blocks.
//!
//! Small scales are one table. Larger ones are sums of draws from small tables, each from its own block:
//!
//! * *Gaussian.* X = X0 + k X1 with discrete Gaussians of variances v0 and v1, v0 + k^2 v1 = v. The chance of x is
//!   exp(-x^2 / 2v) times a sum over the integers of a Gaussian of variance s^2 = v0 v1 / v with some centre; by Poisson
//!   summation that sum is constant in the centre up to a factor 1 +- 2.01 exp(-2 pi^2 s^2). We keep s^2 > 4.05, so
//!   the factor is 1 +- 2^-114.
//! * *Laplace.* Zero or not, a sign, and one more than a geometric variable, whose digits in any base are independent.
//!   This split is exact.
//!
//! Each table is within (entries + 1) 2^-128 <= 2^-113 of its distribution in total variation, and each of at most four
//! splits of a Gaussian adds 2^-114. A draw uses at most five tables, a Laplace draw one sign as well, so it is within 7 /
//! 2^113 < 2^-110. Nothing here loops or branches on the result.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};

use aes::Block;
use num_bigint::BigUint;
use num_integer::Integer;
use num_traits::{ToPrimitive, Zero};

use crate::alias::Table;
use crate::error::Error;
use crate::fixed_point::{Ratio, gaussian_weights, geometric_weights, laplace_zero, masses};
use crate::prf::{Blocks, Keys, Root, encode_integer, encode_text};

/// Part of every draw's address: another way from bits to values gets another number.
const VERSION: i128 = 1;

/// Variances up to this are one table.
const DIRECT_VARIANCE: u64 = 1 << 16;

/// Laplace scales up to this are one table.
const DIRECT_SCALE: u64 = 92;

/// The largest sigma and the largest Laplace scale.
const LARGEST_SCALE: u64 = 4_000_000_000;

/// The base of the digits of a geometric variable.
const DIGIT_BASE: u64 = 4096;

/// The largest multiplier of a Gaussian part: sqrt(2^18) / 2.05.
const LARGEST_MULTIPLIER: u64 = 249;

/// Keys that go through all parts of a draw before the next ones do, so that sums stay in the first cache.
const CHUNK: usize = 2048;

/// Keys that go through all draws of a weighted sum before the next ones do: keys, bits and sums fit in the first cache.
const SMALL_CHUNK: usize = 512;

/// Samplers kept ready; a stream uses one per level.
const CACHED_SAMPLERS: usize = 256;

/// Which distribution, with an exact parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Distribution {
    /// P(x) ~ exp(-x^2 / (2 variance)).
    Gaussian {
        /// Variance above the line.
        numerator: u128,
        /// Variance below the line.
        denominator: u128,
    },
    /// P(x) ~ exp(-|x| / scale).
    Laplace {
        /// Scale above the line.
        numerator: u128,
        /// Scale below the line.
        denominator: u128,
    },
}

impl Distribution {
    fn name(self) -> &'static str {
        match self {
            Distribution::Gaussian { .. } => "gaussian",
            Distribution::Laplace { .. } => "laplace",
        }
    }

    fn parameter(self) -> (u128, u128) {
        match self {
            Distribution::Gaussian { numerator, denominator }
            | Distribution::Laplace { numerator, denominator } => (numerator, denominator),
        }
    }

    /// The parameter, if there is a sampler for it.
    fn checked(self) -> Result<Ratio, Error> {
        let (numerator, denominator) = self.parameter();
        let parameter = Ratio::new(numerator, denominator);
        let (least, largest, message) = match self {
            Distribution::Gaussian { .. } => (
                100u32,
                LARGEST_SCALE.pow(2),
                "sigma must be between 0.1 and 4e9: rescale the grid of the counts",
            ),
            Distribution::Laplace { .. } => {
                (10, LARGEST_SCALE, "scale must be between 0.1 and 4e9: rescale the grid of the counts")
            }
        };
        if parameter.numerator.clone() * least < parameter.denominator || !parameter.at_most(largest) {
            return Err(Error::Parameter(message.into()));
        }
        Ok(parameter)
    }

    /// No draw is larger in size. Above the bound of the sampler itself, and known without its tables.
    pub fn bound(self) -> Result<i64, Error> {
        let parameter = self.reduced()?.checked()?;
        let whole = parameter.floor() + 1u32;
        // A table ends where a weight is below 2^-129 of the largest: at 13.4 sigma, or 90 scales. The last digit of a
        // geometric variable is at most 45 scales wide, and one such digit is more than the last weight needs.
        let bound = match self {
            Distribution::Gaussian { .. } => (whole.sqrt() + 1u32) * 15u32 + 15u32,
            Distribution::Laplace { .. } => whole * 180u32,
        };
        bound.to_i64().ok_or_else(|| Error::Parameter("a draw must fit in 64 bits".into()))
    }

    fn reduced(self) -> Result<Self, Error> {
        let (numerator, denominator) = self.parameter();
        if numerator == 0 || denominator == 0 || numerator.max(denominator) >> 127 != 0 {
            return Err(Error::Parameter(
                "a scale must be a positive rational of whole numbers below 2^127".into(),
            ));
        }
        let divisor = numerator.gcd(&denominator);
        let (numerator, denominator) = (numerator / divisor, denominator / divisor);
        Ok(match self {
            Distribution::Gaussian { .. } => Distribution::Gaussian { numerator, denominator },
            Distribution::Laplace { .. } => Distribution::Laplace { numerator, denominator },
        })
    }
}

/// One table of a draw and what its value is multiplied by.
pub struct Part {
    /// The distribution of the value.
    pub table: Table,
    /// What the value counts.
    pub multiplier: i64,
}

/// An exact sampler of one distribution.
pub struct Sampler {
    distribution: Distribution,
    parts: Vec<Part>,
    /// For sums that are magnitudes: the chance of zero in units of 2^-127; else the sum is one less than a magnitude.
    zero: Option<u128>,
}

static SAMPLERS: LazyLock<Mutex<HashMap<Distribution, Arc<Sampler>>>> = LazyLock::new(Mutex::default);

impl Sampler {
    /// The sampler of a distribution, made at most once while it stays in the cache.
    pub fn of(distribution: Distribution) -> Result<Arc<Self>, Error> {
        let distribution = distribution.reduced()?;
        let mut samplers = SAMPLERS.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sampler) = samplers.get(&distribution) {
            return Ok(Arc::clone(sampler));
        }
        let sampler = Arc::new(Sampler::build(distribution)?);
        if samplers.len() >= CACHED_SAMPLERS {
            samplers.clear();
        }
        samplers.insert(distribution, Arc::clone(&sampler));
        Ok(sampler)
    }

    fn build(distribution: Distribution) -> Result<Self, Error> {
        let parameter = distribution.checked()?;
        let (parts, zero) = match distribution {
            Distribution::Gaussian { .. } => (gaussian_parts(&parameter)?, None),
            Distribution::Laplace { .. } => laplace_parts(&parameter)?,
        };
        Ok(Sampler { distribution, parts, zero })
    }

    /// The tables the draw is made of.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The chance of zero in units of 2^-127, where the parts make a magnitude.
    pub fn zero(&self) -> Option<u128> {
        self.zero
    }

    /// No draw is larger in size.
    pub fn bound(&self) -> i64 {
        let sum: i64 = self.parts.iter().map(|part| part.multiplier * part.table.bound()).sum();
        sum + i64::from(self.zero.is_some())
    }

    /// Writes one draw for each key.
    pub fn draw<Value: Narrow>(&self, root: &Root, path: &[u8], keys: &Keys<'_>, out: &mut [Value]) {
        let streams: Vec<Blocks> = (0..self.parts.len()).map(|part| self.blocks(root, path, part)).collect();
        let signs = self.zero.map(|zero| (zero, self.blocks(root, path, self.parts.len())));
        if let ([part], [blocks], None) = (&self.parts[..], &streams[..], &signs) {
            blocks.for_each(keys, |index, bits| out[index] = Value::narrow(part.table.value(bits).into()));
            return;
        }
        let mut sums = [0i64; CHUNK];
        let mut start = 0;
        while start < keys.len() {
            let width = CHUNK.min(keys.len() - start);
            let chunk = keys.slice(start, width);
            let sums = &mut sums[..width];
            sums.fill(0);
            for (part, blocks) in self.parts.iter().zip(&streams) {
                blocks.for_each(&chunk, |index, bits| {
                    sums[index] += part.multiplier * i64::from(part.table.value(bits));
                });
            }
            if let Some((zero, blocks)) = &signs {
                blocks.for_each(&chunk, |index, bits| sums[index] = signed(sums[index], bits, *zero));
            }
            for (value, sum) in out[start..start + width].iter_mut().zip(sums) {
                *value = Value::narrow(*sum);
            }
            start += width;
        }
    }

    fn blocks(&self, root: &Root, path: &[u8], part: usize) -> Blocks {
        let (numerator, denominator) = self.distribution.parameter();
        let mut purpose = encode_text(self.distribution.name());
        for number in [VERSION, numerator as i128, denominator as i128, part as i128] {
            purpose.extend(encode_integer(number));
        }
        root.blocks(path, &purpose)
    }
}

/// The draws of one distribution at one path, and what they count in a sum.
pub struct Weighted {
    sampler: Arc<Sampler>,
    streams: Vec<Blocks>,
    signs: Option<(u128, Blocks)>,
    weight: i64,
}

impl Weighted {
    /// Those that `Sampler::draw` makes, times a weight.
    pub fn new(sampler: Arc<Sampler>, root: &Root, path: &[u8], weight: i64) -> Self {
        let streams = (0..sampler.parts.len()).map(|part| sampler.blocks(root, path, part)).collect();
        let signs = sampler.zero.map(|zero| (zero, sampler.blocks(root, path, sampler.parts.len())));
        Weighted { sampler, streams, signs, weight }
    }

    fn add(&self, plain: &[Block], bits: &mut [Block], sums: &mut [i64]) {
        if let ([part], [blocks], None) = (&self.sampler.parts[..], &self.streams[..], &self.signs) {
            blocks.encrypt(plain, bits);
            for (sum, block) in sums.iter_mut().zip(bits.iter()) {
                let value = part.table.value(u128::from_le_bytes(block.0));
                *sum = sum.wrapping_add(self.weight.wrapping_mul(value.into()));
            }
            return;
        }
        let mut drawn = [0i64; SMALL_CHUNK];
        let drawn = &mut drawn[..plain.len()];
        for (part, blocks) in self.sampler.parts.iter().zip(&self.streams) {
            blocks.encrypt(plain, bits);
            for (value, block) in drawn.iter_mut().zip(bits.iter()) {
                *value += part.multiplier * i64::from(part.table.value(u128::from_le_bytes(block.0)));
            }
        }
        if let Some((zero, blocks)) = &self.signs {
            blocks.encrypt(plain, bits);
            for (value, block) in drawn.iter_mut().zip(bits.iter()) {
                *value = signed(*value, u128::from_le_bytes(block.0), *zero);
            }
        }
        for (sum, value) in sums.iter_mut().zip(drawn) {
            *sum = sum.wrapping_add(self.weight.wrapping_mul(*value));
        }
    }
}

/// sums += for each key the weighted sum of its draws: one pass over the keys, whatever the number of draws.
pub fn add_draws(draws: &[Weighted], keys: &Keys<'_>, sums: &mut [i64]) {
    let mut plain = [Block::default(); SMALL_CHUNK];
    let mut bits = [Block::default(); SMALL_CHUNK];
    let mut start = 0;
    while start < keys.len() {
        let width = SMALL_CHUNK.min(keys.len() - start);
        keys.write(start, &mut plain[..width]);
        for each in draws {
            each.add(&plain[..width], &mut bits[..width], &mut sums[start..start + width]);
        }
        start += width;
    }
}

/// A magnitude less one, with its sign or as zero, from the bits of the sign.
#[inline]
fn signed(less_one: i64, bits: u128, zero: u128) -> i64 {
    i64::from(bits >> 1 >= zero) * (1 - 2 * (bits & 1) as i64) * (less_one + 1)
}

/// Whole numbers that a draw may be stored as; the caller has checked `Sampler::bound`.
pub trait Narrow: Copy {
    /// The same number in this type.
    fn narrow(value: i64) -> Self;
}

impl Narrow for i64 {
    #[inline]
    fn narrow(value: i64) -> Self {
        value
    }
}

impl Narrow for i32 {
    #[inline]
    fn narrow(value: i64) -> Self {
        value as i32
    }
}

impl Narrow for i16 {
    #[inline]
    fn narrow(value: i64) -> Self {
        value as i16
    }
}

fn gaussian_parts(variance: &Ratio) -> Result<Vec<Part>, Error> {
    let mut parts = Vec::new();
    let mut multiplier = 1;
    let mut rest = variance.clone();
    while !rest.at_most(DIRECT_VARIANCE) {
        let (factor, low, high) = split_variance(&rest);
        parts.push(Part { table: Table::new(&masses(&gaussian_weights(&low), true)?)?, multiplier });
        multiplier *= factor as i64;
        rest = high;
    }
    parts.push(Part { table: Table::new(&masses(&gaussian_weights(&rest), true)?)?, multiplier });
    Ok(parts)
}

/// (k, v0, v1) with v0 + k^2 v1 = variance exactly, v0 just above (2.05 k)^2 and v1 a multiple of 1/64.
fn split_variance(variance: &Ratio) -> (u64, Ratio, Ratio) {
    let sigma = variance.floor().sqrt();
    let balanced = (sigma * 20u32 / 41u32).sqrt().to_u64().unwrap_or(LARGEST_MULTIPLIER);
    let factor = balanced.min(LARGEST_MULTIPLIER);
    let square = BigUint::from(factor * factor);
    let (above, below) = (&variance.numerator, &variance.denominator);
    let room = above * 640_000u32 - &square * below * (42_025u32 * 64);
    let high = room / (&square * below * 10_000u32);
    let low = above * 64u32 - &square * below * &high;
    (factor, Ratio::new(low, below * 64u32), Ratio::new(high, 64u32))
}

fn laplace_parts(scale: &Ratio) -> Result<(Vec<Part>, Option<u128>), Error> {
    if scale.at_most(DIRECT_SCALE) {
        let table = Table::new(&masses(&geometric_weights(scale, 1, usize::MAX), true)?)?;
        return Ok((vec![Part { table, multiplier: 1 }], None));
    }
    let mut parts = Vec::new();
    let mut step = 1u64;
    while !scale.at_most(DIRECT_SCALE * step) {
        let digit = geometric_weights(scale, step, DIGIT_BASE as usize);
        parts.push(Part { table: Table::new(&masses(&digit, false)?)?, multiplier: step as i64 });
        step *= DIGIT_BASE;
    }
    let top = geometric_weights(scale, step, usize::MAX);
    if top.len() > 1 && !top[1].is_zero() {
        parts.push(Part { table: Table::new(&masses(&top, false)?)?, multiplier: step as i64 });
    }
    Ok((parts, Some(laplace_zero(scale)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gaussian(numerator: u128, denominator: u128) -> Arc<Sampler> {
        Sampler::of(Distribution::Gaussian { numerator, denominator }).unwrap()
    }

    fn draws(sampler: &Sampler, count: u64) -> Vec<i64> {
        let keys: Vec<u64> = (0..count).collect();
        let mut out = vec![0i64; keys.len()];
        sampler.draw(&Root::new(&[3; 32]), b"path", &Keys::Narrow(&keys), &mut out);
        out
    }

    fn variance(values: &[i64]) -> f64 {
        values.iter().map(|&value| (value as f64).powi(2)).sum::<f64>() / values.len() as f64
    }

    #[test]
    fn below_the_chance_of_zero_it_is_zero_and_above_it_one_more_with_a_sign() {
        // The last bit is the sign; the others are compared with the chance.
        let drawn: Vec<i64> = (8..12).map(|bits| signed(6, bits, 5)).collect();
        assert_eq!(drawn, [0, 0, 7, -7]);
    }

    #[test]
    fn large_variances_are_split_exactly_and_smoothly() {
        for (numerator, denominator) in [
            (65_537u128, 1u128),
            (40_000_001, 64),
            (10u128.pow(10), 1),
            (10u128.pow(14), 1),
            (16 * 10u128.pow(18), 1),
        ] {
            let mut rest = Ratio::new(numerator, denominator);
            while !rest.at_most(DIRECT_VARIANCE) {
                let (factor, low, high) = split_variance(&rest);
                let square = BigUint::from(factor * factor);
                let sum = Ratio::new(
                    &low.numerator * &high.denominator + &square * &high.numerator * &low.denominator,
                    &low.denominator * &high.denominator,
                );
                assert_eq!(&sum.numerator * &rest.denominator, &rest.numerator * &sum.denominator);
                let (v0, v1) = (as_f64(&low), as_f64(&high));
                assert!(v0 * v1 / as_f64(&rest) > 4.05);
                assert!(v0 <= 2f64.powi(18) * 1.01);
                rest = high;
            }
            assert!(gaussian(numerator, denominator).parts().len() <= 5);
        }
    }

    fn as_f64(ratio: &Ratio) -> f64 {
        ratio.numerator.to_f64().unwrap() / ratio.denominator.to_f64().unwrap()
    }

    #[test]
    fn sampled_variances_are_those_asked_for() {
        // Relative deviation of a sampled variance: sqrt(2 / n) = 0.32 % (Gaussian), sqrt(5 / n) = 0.5 % (Laplace);
        // the limit is at least 6 of them for the seed used.
        for sigma in [1u128, 2, 20, 200, 1000, 100_000, 10_000_000, 4_000_000_000] {
            let square = sigma * sigma;
            let ratio = variance(&draws(&gaussian(square, 1), 200_000)) / square as f64;
            assert!((ratio - 1.0).abs() < 0.02, "sigma {sigma}: {ratio}");
        }
        for scale in [2u128, 20, 200, 100_000, 10_000_000, 4_000_000_000] {
            let sampler = Sampler::of(Distribution::Laplace { numerator: scale, denominator: 1 }).unwrap();
            let q = (-1.0 / scale as f64).exp();
            let ratio = variance(&draws(&sampler, 200_000)) * (1.0 - q).powi(2) / (2.0 * q);
            assert!((ratio - 1.0).abs() < 0.03, "scale {scale}: {ratio}");
        }
    }

    #[test]
    fn a_weighted_sum_is_that_of_its_draws() {
        let root = Root::new(&[3; 32]);
        let keys: Vec<u64> = (0..1300).collect();
        let laws = [
            Distribution::Gaussian { numerator: 7, denominator: 2 },
            Distribution::Gaussian { numerator: 1 << 40, denominator: 3 },
            Distribution::Laplace { numerator: 9, denominator: 8 },
            Distribution::Laplace { numerator: 5000, denominator: 1 },
        ];
        let (mut expected, mut sums) = (vec![5i64; keys.len()], vec![5i64; keys.len()]);
        let mut draws = Vec::new();
        for (place, (law, weight)) in laws.into_iter().zip([3i64, -1, -70_000, 1 << 40]).enumerate() {
            let (sampler, path) = (Sampler::of(law).unwrap(), [place as u8]);
            let mut values = vec![0i64; keys.len()];
            sampler.draw(&root, &path, &Keys::Narrow(&keys), &mut values);
            for (sum, value) in expected.iter_mut().zip(values) {
                *sum = sum.wrapping_add(weight.wrapping_mul(value));
            }
            draws.push(Weighted::new(sampler, &root, &path, weight));
        }
        add_draws(&draws, &Keys::Narrow(&keys), &mut sums);
        assert_eq!(sums, expected);
    }

    #[test]
    fn equal_rationals_are_one_distribution() {
        assert!(Arc::ptr_eq(&gaussian(8, 2), &gaussian(4, 1)));
    }

    #[test]
    fn scales_out_of_range_are_refused() {
        for (numerator, denominator) in [(0u128, 1u128), (1, 101), (16 * 10u128.pow(18) + 1, 1), (1, 0)] {
            assert!(Sampler::of(Distribution::Gaussian { numerator, denominator }).is_err());
        }
    }

    #[test]
    fn the_bound_without_tables_is_above_that_of_the_tables() {
        for scale in [
            1u128,
            2,
            7,
            50,
            91,
            92,
            93,
            94,
            120,
            400,
            4_000,
            94_208,
            376_832,
            376_833,
            400_000,
            4_000_000_000,
        ] {
            for distribution in [
                Distribution::Laplace { numerator: scale, denominator: 1 },
                Distribution::Laplace { numerator: scale, denominator: 10 },
                Distribution::Gaussian { numerator: scale, denominator: 1 },
                Distribution::Gaussian { numerator: scale * scale, denominator: 1 },
                Distribution::Gaussian { numerator: scale, denominator: 100 },
            ] {
                let bound = distribution.bound().unwrap();
                assert!(Sampler::of(distribution).unwrap().bound() <= bound, "{distribution:?}");
            }
        }
    }

    #[test]
    fn no_draw_is_beyond_the_bound() {
        for sigma in [1u128, 30, 500, 70_000, 10_000_000, 4_000_000_000] {
            let sampler = gaussian(sigma * sigma, 1);
            assert!(sampler.bound() <= 15 * sigma as i64 + 15, "{sigma}: {}", sampler.bound());
            assert!(draws(&sampler, 10_000).iter().all(|value| value.abs() <= sampler.bound()));
        }
    }
}
