//! Inner loops of the counters: sums of node noises over many series at once.
//!
//! Noise is kept as a numerator over a power of two. Sums wrap; the plan has checked beforehand that the final value fits.

/// Whole numbers that node noise is stored as.
pub trait Widen: Copy {
    /// The same number in 64 bits.
    fn widen(self) -> i64;
}

impl Widen for i64 {
    #[inline]
    fn widen(self) -> i64 {
        self
    }
}

impl Widen for i32 {
    #[inline]
    fn widen(self) -> i64 {
        self.into()
    }
}

impl Widen for i16 {
    #[inline]
    fn widen(self) -> i64 {
        self.into()
    }
}

/// sums += weight * values
pub fn add_scaled<Value: Widen>(sums: &mut [i64], weight: i64, values: &[Value]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum = sum.wrapping_add(weight.wrapping_mul(value.widen()));
    }
}

/// counts + floor(numerators / 2^shift + 1/2): the one rounding that commutes with adding whole numbers.
pub fn release(counts: &[i64], numerators: &[i64], shift: u32, out: &mut [i64]) {
    let half = (1i64 << shift) >> 1;
    for ((value, count), numerator) in out.iter_mut().zip(counts).zip(numerators) {
        *value = count.wrapping_add(numerator.wrapping_add(half) >> shift);
    }
}

/// At each u of a grid the product of 1 / (1 + (s u)^2) over some scales s, divided one by one in their order.
pub fn characteristic(scales: &[f64], grid: &[f64]) -> Vec<f64> {
    let mut found = vec![1.0; grid.len()];
    for scale in scales {
        for (value, u) in found.iter_mut().zip(grid) {
            let part = scale * u;
            *value /= 1.0 + part * part;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_is_to_the_nearest_with_halves_up() {
        let mut out = [0; 5];
        release(&[0, 0, 0, 0, 10], &[3, 1, -1, -2, -3], 1, &mut out);
        assert_eq!(out, [2, 1, 0, -1, 9]);
        release(&[5, 5, 5, 5, 5], &[3, 1, -1, -2, -3], 0, &mut out);
        assert_eq!(out, [8, 6, 4, 3, 2]);
    }

    #[test]
    fn scaled_values_are_added() {
        let mut sums = [1, 2];
        add_scaled(&mut sums, -3, &[1i16, -1]);
        assert_eq!(sums, [-2, 5]);
    }
}
