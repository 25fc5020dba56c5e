//! Weights of discrete distributions in fixed point, from whole-number arithmetic alone.
//!
//! A weight w is held as the integer w * 2^BITS. Every multiplication rounds down by less than one unit, and the longest
//! chain here has a few hundred thousand of them, so weights are right to within 2^-340: 200 bits below what a table
//! keeps. The same integers come out on every machine.

use num_bigint::BigUint;
use num_traits::{One, ToPrimitive, Zero};

use crate::error::Error;

/// Bits after the point.
pub const BITS: u64 = 384;

/// Weights below 2^-TAIL_BITS of the largest are left out: together they are far below the last bit of a table.
const TAIL_BITS: u64 = 160;

/// A positive rational.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ratio {
    /// Above the line.
    pub numerator: BigUint,
    /// Below the line.
    pub denominator: BigUint,
}

impl Ratio {
    /// The rational `numerator / denominator`.
    pub fn new(numerator: impl Into<BigUint>, denominator: impl Into<BigUint>) -> Self {
        Ratio { numerator: numerator.into(), denominator: denominator.into() }
    }

    /// The largest whole number that is not above it.
    pub fn floor(&self) -> BigUint {
        &self.numerator / &self.denominator
    }

    /// Whether it is at most a whole number.
    pub fn at_most(&self, limit: u64) -> bool {
        self.numerator <= &self.denominator * limit
    }
}

fn multiply(left: &BigUint, right: &BigUint) -> BigUint {
    (left * right) >> BITS
}

/// exp(-numerator / denominator).
pub fn exp_of_minus(exponent: &Ratio) -> BigUint {
    // exp(-x) = exp(-x / 2^k)^(2^k), with x / 2^k below 2^-8 so that the series is short.
    let halvings = exponent.floor().bits() + 8;
    let reduced = (&exponent.numerator << BITS) / (&exponent.denominator << halvings);
    let (mut plus, mut minus) = (BigUint::one() << BITS, BigUint::zero());
    let mut term = plus.clone();
    let mut index = 1u32;
    while !term.is_zero() {
        term = multiply(&term, &reduced) / index;
        if index % 2 == 1 {
            minus += &term;
        } else {
            plus += &term;
        }
        index += 1;
    }
    let mut power = plus - minus;
    for _ in 0..halvings {
        power = multiply(&power, &power);
    }
    power
}

/// exp(-x^2 / (2 variance)) for x = 0, 1, 2, ..
pub fn gaussian_weights(variance: &Ratio) -> Vec<BigUint> {
    let twice = Ratio::new(variance.denominator.clone(), &variance.numerator * 2u32);
    let mut step = exp_of_minus(&twice);
    let shrink = multiply(&step, &step);
    let floor = BigUint::one() << (BITS - TAIL_BITS);
    let mut weights = Vec::new();
    let mut weight = BigUint::one() << BITS;
    while weight >= floor {
        let next = multiply(&weight, &step);
        weights.push(weight);
        step = multiply(&step, &shrink);
        weight = next;
    }
    weights
}

/// exp(-x step / scale) for x = 0, 1, 2, .., at most `limit` of them.
pub fn geometric_weights(scale: &Ratio, step: u64, limit: usize) -> Vec<BigUint> {
    let ratio = exp_of_minus(&Ratio::new(&scale.denominator * step, scale.numerator.clone()));
    let floor = BigUint::one() << (BITS - TAIL_BITS);
    let mut weights = Vec::new();
    let mut weight = BigUint::one() << BITS;
    while weight >= floor && weights.len() < limit {
        let next = multiply(&weight, &ratio);
        weights.push(weight);
        weight = next;
    }
    weights
}

/// The chance of zero under the discrete Laplace distribution, (1 - q) / (1 + q) with q = exp(-1 / scale), in 127 bits.
pub fn laplace_zero(scale: &Ratio) -> Result<u128, Error> {
    let one = BigUint::one() << BITS;
    let ratio = exp_of_minus(&Ratio::new(scale.denominator.clone(), scale.numerator.clone()));
    to_u128(&(((&one - &ratio) << 127u32) / (&one + &ratio)))
}

/// Masses in units of 2^-128 for values 0, 1, 2, .. and, if `two_sided`, the same for -1, -2, ..
///
/// Each is rounded down and what is left over goes to zero, so that a two-sided distribution stays symmetric.
pub fn masses(weights: &[BigUint], two_sided: bool) -> Result<Vec<(i32, u128)>, Error> {
    let sides = if two_sided { 2u32 } else { 1u32 };
    let rest: BigUint = weights.iter().skip(1).sum();
    let total = &weights[0] + rest * sides;
    let mut result = vec![(0, 0)];
    let mut sum = 0u128;
    for (value, weight) in (1i32..).zip(&weights[1..]) {
        let mass = to_u128(&((weight << 128u32) / &total))?;
        if mass == 0 {
            break;
        }
        result.push((value, mass));
        sum = sum.wrapping_add(mass);
        if two_sided {
            result.push((-value, mass));
            sum = sum.wrapping_add(mass);
        }
    }
    result[0].1 = 0u128.wrapping_sub(sum);
    Ok(result)
}

fn to_u128(number: &BigUint) -> Result<u128, Error> {
    number.to_u128().ok_or_else(|| Error::Parameter("a mass must be below one".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn as_f64(weight: &BigUint) -> f64 {
        (weight >> (BITS - 200)).to_f64().unwrap() / 2f64.powi(200)
    }

    #[test]
    fn the_exponential_agrees_with_the_library_one() {
        for (numerator, denominator) in [(1u32, 1u32), (1, 800), (50, 1), (7, 3), (1, 100_000_000)] {
            let ours = as_f64(&exp_of_minus(&Ratio::new(numerator, denominator)));
            let theirs = (-f64::from(numerator) / f64::from(denominator)).exp();
            assert!((ours / theirs - 1.0).abs() < 1e-14, "{ours} {theirs}");
        }
    }

    #[test]
    fn masses_sum_to_one_and_are_symmetric() {
        let masses = masses(&gaussian_weights(&Ratio::new(9u32, 2u32)), true).unwrap();
        let sum = masses.iter().fold(0u128, |sum, (_, mass)| sum.wrapping_add(*mass));
        assert_eq!(sum, 0);
        for pair in masses[1..].chunks(2) {
            assert_eq!((pair[0].0, pair[0].1), (-pair[1].0, pair[1].1));
        }
    }

    #[test]
    fn the_chance_of_zero_is_that_of_the_two_sided_table() {
        let scale = Ratio::new(5u32, 2u32);
        let table = masses(&geometric_weights(&scale, 1, usize::MAX), true).unwrap();
        let zero = laplace_zero(&scale).unwrap();
        assert!((zero as f64 * 2.0 / table[0].1 as f64 - 1.0).abs() < 1e-15);
    }
}
