//! Keys in their order, sorted no further than asked for; eight bytes a key.

use std::cmp::Ordering;

/// In a segment of at most so many keys the place of one is counted.
const COUNTED: usize = 48;

/// A segment of at most so many keys is sorted at once, if its first ones are asked for.
const SHORT: usize = 16;

/// Marks of keys in segments: all of one come before all of the next.
#[derive(Default)]
pub struct Order {
    marks: Vec<u64>,
    /// The segments that are not yet passed, the next one last.
    segments: Vec<Segment>,
    /// Where the next segment begins.
    start: usize,
    /// How many keys before that have not left.
    passed: usize,
}

#[derive(Clone, Copy)]
struct Segment {
    end: usize,
    /// How many of its keys have left.
    left: usize,
}

/// How keys are ordered by their marks.
pub trait Ranking {
    /// The order of two keys.
    fn compare(&self, left: u64, right: u64) -> Ordering;
    /// Whether a key has left: it may, as long as it is not among the first that were ever asked for.
    fn has_left(&self, mark: u64) -> bool;
}

impl Order {
    /// Take the chosen keys of these, `length` in number.
    pub fn fill(&mut self, length: usize, marks: impl Iterator<Item = (u64, bool)>) {
        self.marks.clear();
        self.marks.reserve_exact(length);
        self.marks.resize(length, 0);
        // Written in any case and kept if chosen: a jump for each key that is not would cost more.
        let mut chosen = 0;
        for (mark, is_chosen) in marks.take(length) {
            self.marks[chosen] = mark;
            chosen += usize::from(is_chosen);
        }
        self.marks.truncate(chosen);
        self.segments.clear();
        self.segments.push(Segment { end: chosen, left: 0 });
        (self.start, self.passed) = (0, 0);
    }

    /// Forget all.
    pub fn clear(&mut self) {
        self.marks.clear();
        self.segments.clear();
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.marks.is_empty()
    }

    /// Whether a key is among the first `count` of those that have not left. `count` never shrinks.
    pub fn is_among(&mut self, mark: u64, count: usize, ranking: &impl Ranking) -> bool {
        loop {
            self.pass(count);
            // A segment behind another begins with its smallest key.
            let passed = |first: &u64| ranking.compare(mark, *first).is_lt();
            if self.start > 0 && self.marks.get(self.start).is_none_or(passed) {
                return true;
            }
            let Some(segment) = self.segments.last() else { return true };
            let beyond = |next: &u64| ranking.compare(*next, mark).is_le();
            if self.passed == count || self.marks.get(segment.end).is_some_and(beyond) {
                return false;
            }
            let marks = &self.marks[self.start..segment.end];
            if marks.len() <= COUNTED {
                let is_before = |other: u64| ranking.compare(other, mark).is_lt();
                let stays = |other: u64| segment.left == 0 || !ranking.has_left(other);
                let before = marks.iter().filter(|other| is_before(**other) & stays(**other)).count();
                return self.passed + before < count;
            }
            self.split(ranking);
        }
    }

    /// A key leaves.
    pub fn leave(&mut self, mark: u64, ranking: &impl Ranking) {
        for segment in self.segments.iter_mut().rev() {
            if self.marks.get(segment.end).is_none_or(|next| ranking.compare(mark, *next).is_lt()) {
                segment.left += 1;
                return;
            }
        }
    }

    /// The first `count` of the keys that have not left, in any order, and some that have.
    pub fn first(&mut self, count: usize, ranking: &impl Ranking) -> &[u64] {
        self.pass(count);
        while self.passed < count && !self.segments.is_empty() {
            self.split(ranking);
            self.pass(count);
        }
        &self.marks[..self.start]
    }

    /// Pass all segments that lie among the first `count`.
    fn pass(&mut self, count: usize) {
        while let Some(segment) = self.segments.last() {
            let staying = segment.end - self.start - segment.left;
            if self.passed + staying > count {
                return;
            }
            self.passed += staying;
            self.start = segment.end;
            self.segments.pop();
        }
    }

    /// Split the next segment in about two halves, or a short one in single keys.
    fn split(&mut self, ranking: &impl Ranking) {
        let Some(Segment { end, left }) = self.segments.pop() else { return };
        let marks = &mut self.marks[self.start..end];
        if marks.len() <= SHORT {
            marks.sort_unstable_by(|left, right| ranking.compare(*left, *right));
            for place in (self.start..end).rev() {
                let left = usize::from(left > 0 && ranking.has_left(self.marks[place]));
                self.segments.push(Segment { end: place + 1, left });
            }
            return;
        }
        let middle = partition(marks, ranking);
        let first = &marks[..middle];
        let left_before =
            if left == 0 { 0 } else { first.iter().filter(|mark| ranking.has_left(**mark)).count() };
        self.segments.push(Segment { end, left: left - left_before });
        self.segments.push(Segment { end: self.start + middle, left: left_before });
    }

    /// How many bytes are held.
    pub fn memory(&self) -> usize {
        self.marks.capacity() * size_of::<u64>() + self.segments.capacity() * size_of::<Segment>()
    }
}

/// Bring marks before a middle one to the front and it behind them; where it is then.
///
/// The middle one of five is in the middle enough, except for marks laid out to defeat it: these are split by selection.
fn partition(marks: &mut [u64], ranking: &impl Ranking) -> usize {
    let length = marks.len();
    let mut sample = [1, 3, 5, 7, 9].map(|tenth| length * tenth / 10);
    sample.sort_unstable_by(|left, right| ranking.compare(marks[*left], marks[*right]));
    marks.swap(sample[2], length - 1);
    let pivot = marks[length - 1];
    let mut middle = 0;
    for place in 0..length {
        let mark = marks[place];
        marks[place] = marks[middle];
        marks[middle] = mark;
        middle += usize::from(ranking.compare(mark, pivot).is_lt());
    }
    // The last step has put the pivot in the middle.
    if middle.min(length - middle) > length / 16 {
        return middle;
    }
    marks.select_nth_unstable_by(length / 2, |left, right| ranking.compare(*left, *right));
    length / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Marks<'a>(&'a [bool]);

    impl Ranking for Marks<'_> {
        fn compare(&self, left: u64, right: u64) -> Ordering {
            left.cmp(&right)
        }

        fn has_left(&self, mark: u64) -> bool {
            self.0[mark as usize]
        }
    }

    #[test]
    fn the_first_ones_are_known_at_every_count_while_others_leave() {
        let mut order = Order::default();
        order.fill(400, (0..400).map(|place| (place / 2 * 77 % 200, place % 2 == 0)));
        let mut naive: Vec<u64> = (0..200).collect();
        let mut left = [false; 200];
        for count in 0..150 {
            for step in 0..3 {
                let mark = (count * 31 + step * 17) as u64 % 200;
                let among = naive[..count].contains(&mark);
                if left[mark as usize] {
                    continue;
                }
                assert_eq!(order.is_among(mark, count, &Marks(&left)), among);
                if !among && count % 4 == 1 && step == 0 {
                    left[mark as usize] = true;
                    order.leave(mark, &Marks(&left));
                    naive.retain(|other| *other != mark);
                }
            }
        }
        let mut first = order.first(150, &Marks(&left)).to_vec();
        first.retain(|mark| !left[*mark as usize]);
        first.sort_unstable();
        assert_eq!(first, naive[..150]);
    }
}
