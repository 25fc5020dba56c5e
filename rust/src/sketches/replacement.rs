//! Which zero keys were replaced, told from what came since the last decrement.
//!
//! Which these are is not looked up until the sketch is read. When a key of counter D comes, it is stored with count
//! zero, or it was and has been replaced since. In both cases its count is one then, and one stored key less has count
//! zero: itself, or the smallest of the others. And if no zero key is left, it is the second case. So how many there are
//! is all that the stream needs; between two decrements no key becomes zero, and at a decrement all zero keys have been
//! replaced. What came is kept for the reader, in its order.

/// A key that had count zero at the last decrement came again.
#[derive(Clone, Copy)]
struct Return {
    slot: u32,
    /// How many new keys had replaced one before.
    after: u32,
}

/// What came since the last decrement, as far as it matters which keys were replaced.
pub struct Period {
    /// How many more keys can get a counter or, with count zero, come again before the next decrement: one for each
    /// counter that no key has yet, and for each stored key of count zero.
    pub left: usize,
    /// How many these were at first.
    first: usize,
    /// How many counters no key had then.
    unused: usize,
    /// The zero keys that came again, replaced or not, in the order in which they came.
    returned: Vec<Return>,
}

impl Period {
    /// Nothing has come, and so many counters belong to no key or to one of count zero.
    pub fn new(unused: usize, zeros: usize) -> Self {
        Period { left: unused + zeros, first: unused + zeros, unused, returned: Vec::new() }
    }

    /// Begin again, with all counters in use.
    pub fn begin(&mut self, zeros: usize) {
        (self.left, self.first, self.unused) = (zeros, zeros, 0);
        self.returned.clear();
    }

    /// How many new keys have replaced a zero key. Before that, they take what is unused.
    fn replacing(&self) -> usize {
        (self.first - self.left - self.returned.len()).saturating_sub(self.unused)
    }

    /// The key in a slot, which had count zero, has come again.
    #[cold]
    #[inline(never)]
    pub fn come_again(&mut self, slot: usize) {
        let length = self.returned.len();
        if length == self.returned.capacity() {
            // Twice as much each time, but never more than can come.
            self.returned.reserve_exact(length.clamp(1, self.first - length));
        }
        self.returned.push(Return { slot: slot as u32, after: self.replacing() as u32 });
        self.left -= 1;
    }

    /// Whether no key has come again.
    pub fn none_returned(&self) -> bool {
        self.returned.is_empty()
    }

    /// For each slot whether its key was replaced and has not come again. `zero` tells which counters are D now, and
    /// `sorted` puts the slots of those that were D at first in the order of their keys.
    pub fn replaced(&self, mut zero: Vec<bool>, sorted: impl FnOnce(&[bool]) -> Vec<usize>) -> Vec<bool> {
        for returned in &self.returned {
            zero[returned.slot as usize] = true;
        }
        let mut smallest = sorted(&zero).into_iter();
        let mut replaced = vec![false; zero.len()];
        let mut replace = |zero: &mut [bool], replaced: &mut [bool]| {
            if let Some(slot) = smallest.find(|slot| zero[*slot]) {
                zero[slot] = false;
                replaced[slot] = true;
            }
        };
        let mut replacing = 0;
        for &Return { slot, after } in &self.returned {
            for _ in replacing..after as usize {
                replace(&mut zero, &mut replaced);
            }
            replacing = after as usize;
            let slot = slot as usize;
            if zero[slot] {
                zero[slot] = false;
            } else {
                replace(&mut zero, &mut replaced);
                replaced[slot] = false;
            }
        }
        for _ in replacing..self.replacing() {
            replace(&mut zero, &mut replaced);
        }
        replaced
    }

    /// How many bytes are held.
    pub fn memory(&self) -> usize {
        self.returned.capacity() * size_of::<Return>()
    }
}
