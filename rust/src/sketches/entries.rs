//! What a table stores of a key: a number, or a short text itself, or where a long one lies.

use std::cmp::Ordering;

use super::hashing::{ByteHash, IntegerHash};

/// The keys of one type: how they are hashed, stored, told apart and put in order.
pub trait Keys {
    /// A key as it comes.
    type Key<'a>: Copy;
    /// A key as it is stored.
    type Stored: Copy;

    /// How many keys a sketch of `k` counters may hold, replaced ones that it has not cleared away included.
    fn most(k: usize) -> usize;
    /// The keyed hash of a key.
    fn hash(&self, key: Self::Key<'_>) -> u64;
    /// The hash of a stored key, the same as of the key itself.
    fn hash_stored(&self, stored: Self::Stored) -> u64;
    /// Whether a stored key is this key.
    fn is(&self, stored: Self::Stored, hash: u64, key: Self::Key<'_>) -> bool;
    /// Whether two keys are the same.
    fn same(left: Self::Key<'_>, right: Self::Key<'_>) -> bool;
    /// Store a key behind all that are stored.
    fn keep(&mut self, hash: u64, key: Self::Key<'_>) -> Self::Stored;
    /// Store again those that stay, given in the order in which they were stored, and forget all others.
    fn keep_only<'a>(&mut self, stored: impl Iterator<Item = &'a mut Self::Stored>)
    where
        Self::Stored: 'a;
    /// How many bytes all these stored keys have in common at their beginning.
    fn common(&self, stored: impl Iterator<Item = Self::Stored>) -> usize;
    /// A mark that tells a stored key, and as much of its order as fits in front of a slot of so many bits.
    fn mark(&self, stored: Self::Stored, slot: u32, slot_bits: u32, common: usize) -> u64;
    /// The slot that a mark tells, with a search by key if it does so no other way.
    fn slot(
        &self,
        mark: u64,
        slot_bits: u32,
        find: impl Fn(u64, Self::Key<'_>) -> Option<u32>,
    ) -> Option<u32>;
    /// The order of two keys by their marks, with a look at the stored keys of slots if these say too little.
    fn compare(
        &self,
        left: u64,
        right: u64,
        slot_bits: u32,
        stored: impl Fn(u32) -> Self::Stored,
    ) -> Ordering;
    /// How many bytes are held.
    fn memory(&self) -> usize;
}

const SIGN: u64 = 1 << 63;

/// 64-bit whole numbers, in their natural order.
pub struct Integers {
    hash: IntegerHash,
}

impl Integers {
    /// Keys hashed under 32 random bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        Integers { hash: IntegerHash::new(secret) }
    }
}

impl Keys for Integers {
    type Key<'a> = i64;
    type Stored = i64;

    fn most(k: usize) -> usize {
        // Enough for all counters to be replaced between two decrements.
        2 * k + 1
    }

    #[inline]
    fn hash(&self, key: i64) -> u64 {
        self.hash.hash(key)
    }

    #[inline]
    fn hash_stored(&self, stored: i64) -> u64 {
        self.hash.hash(stored)
    }

    #[inline]
    fn is(&self, stored: i64, _hash: u64, key: i64) -> bool {
        stored == key
    }

    #[inline]
    fn same(left: i64, right: i64) -> bool {
        left == right
    }

    #[inline]
    fn keep(&mut self, _hash: u64, key: i64) -> i64 {
        key
    }

    #[inline]
    fn keep_only<'a>(&mut self, _stored: impl Iterator<Item = &'a mut i64>) {}

    #[inline]
    fn common(&self, _stored: impl Iterator<Item = i64>) -> usize {
        0
    }

    #[inline]
    fn mark(&self, stored: i64, _slot: u32, _slot_bits: u32, _common: usize) -> u64 {
        // The flipped sign makes the unsigned order that of the signed numbers.
        stored as u64 ^ SIGN
    }

    #[inline]
    fn slot(&self, mark: u64, _slot_bits: u32, find: impl Fn(u64, i64) -> Option<u32>) -> Option<u32> {
        let key = (mark ^ SIGN) as i64;
        find(self.hash(key), key)
    }

    #[inline]
    fn compare(&self, left: u64, right: u64, _slot_bits: u32, _stored: impl Fn(u32) -> i64) -> Ordering {
        left.cmp(&right)
    }

    fn memory(&self) -> usize {
        0
    }
}

/// The longest key that lies in its own view.
const SHORT: usize = 12;

/// A byte string as it comes: a view of sixteen bytes as Arrow has them, and all bytes if they are more than twelve.
///
/// The view begins with the length in four bytes. A short key follows, and zeros. Of a long one its first four bytes
/// follow, and then nothing that matters.
#[derive(Clone, Copy)]
pub struct ByteKey<'a> {
    view: u128,
    long: &'a [u8],
}

/// The bits of a view that a short key of a length uses.
static USED: [u128; SHORT + 1] = {
    let mut used = [0; SHORT + 1];
    let mut length = 0;
    while length <= SHORT {
        used[length] = u128::MAX >> (u128::BITS as usize - 8 * (4 + length));
        length += 1;
    }
    used
};

impl<'a> ByteKey<'a> {
    /// The key in a view, whatever stands behind it there.
    #[inline]
    pub fn short(view: u128, length: usize) -> Self {
        ByteKey { view: view & USED[length], long: &[] }
    }

    /// A key of more than twelve bytes.
    #[inline]
    pub fn long(bytes: &'a [u8]) -> Self {
        let first = bytes.first_chunk().map_or(0, |first| u32::from_le_bytes(*first));
        ByteKey { view: u128::from(first) << 32 | bytes.len() as u128, long: bytes }
    }

    /// The key with these bytes, 256 at the most.
    pub fn new(bytes: &'a [u8]) -> Self {
        if bytes.len() > SHORT {
            return ByteKey::long(bytes);
        }
        let mut view = [0; 16];
        view[..4].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        view[4..4 + bytes.len()].copy_from_slice(bytes);
        ByteKey { view: u128::from_le_bytes(view), long: &[] }
    }
}

/// A stored byte string: its view, which of a long one ends in half of its hash and where it lies.
#[derive(Clone, Copy)]
pub struct StoredBytes([u8; 16]);

impl StoredBytes {
    #[inline]
    fn view(self) -> u128 {
        u128::from_le_bytes(self.0)
    }

    #[inline]
    fn length(self) -> usize {
        self.view() as u32 as usize
    }

    #[inline]
    fn is_short(self) -> bool {
        self.length() <= SHORT
    }

    #[inline]
    fn start(self) -> usize {
        (self.view() >> 96) as usize
    }

    fn long(view: u128, hash: u64, start: usize) -> Self {
        let tail = (start as u128) << 96 | u128::from(hash as u32) << 64;
        StoredBytes((tail | u128::from(view as u64)).to_le_bytes())
    }
}

/// Byte strings of at most 256 bytes, in the order of their bytes.
pub struct Bytes {
    hash: ByteHash,
    /// The long keys, in the order in which they were stored.
    arena: Vec<u8>,
}

impl Bytes {
    /// Keys hashed under 32 random bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        Bytes { hash: ByteHash::new(secret), arena: Vec::new() }
    }

    /// The bytes of a stored key.
    #[inline]
    pub fn bytes<'a>(&'a self, stored: &'a StoredBytes) -> &'a [u8] {
        let length = stored.length();
        if stored.is_short() {
            &stored.0[4..4 + length]
        } else {
            &self.arena[stored.start()..stored.start() + length]
        }
    }

    #[inline]
    fn hash_view(&self, view: u128) -> u64 {
        doubled(self.hash.hash_pair(view as u64, (view >> 64) as u64))
    }
}

/// A table looks at the lowest bits and at the highest seven: half a hash, twice, has enough of both for 2^25 places.
#[inline]
fn doubled(hash: u64) -> u64 {
    hash << 32 | u64::from(hash as u32)
}

impl Keys for Bytes {
    type Key<'a> = ByteKey<'a>;
    type Stored = StoredBytes;

    fn most(k: usize) -> usize {
        // What a table of a power of two has room for, with at least half as many replaced keys as stored ones.
        let places = (k + k.div_ceil(2)).div_ceil(7) * 8;
        (places.next_power_of_two() / 8 * 7).clamp(k + 1, 2 * k + 1)
    }

    #[inline]
    fn hash(&self, key: ByteKey<'_>) -> u64 {
        if key.long.is_empty() { self.hash_view(key.view) } else { doubled(self.hash.hash(key.long)) }
    }

    #[inline]
    fn hash_stored(&self, stored: StoredBytes) -> u64 {
        if stored.is_short() {
            self.hash_view(stored.view())
        } else {
            doubled((stored.view() >> 64) as u32 as u64)
        }
    }

    #[inline]
    fn is(&self, stored: StoredBytes, hash: u64, key: ByteKey<'_>) -> bool {
        if key.long.is_empty() {
            return stored.view() == key.view;
        }
        let expected = StoredBytes::long(key.view, hash, stored.start());
        stored.0 == expected.0 && self.bytes(&stored) == key.long
    }

    #[inline]
    fn same(left: ByteKey<'_>, right: ByteKey<'_>) -> bool {
        left.view == right.view && left.long == right.long
    }

    #[inline]
    fn keep(&mut self, hash: u64, key: ByteKey<'_>) -> StoredBytes {
        if key.long.is_empty() {
            return StoredBytes(key.view.to_le_bytes());
        }
        let start = self.arena.len();
        self.arena.extend_from_slice(key.long);
        StoredBytes::long(key.view, hash, start)
    }

    fn keep_only<'a>(&mut self, stored: impl Iterator<Item = &'a mut StoredBytes>) {
        if self.arena.is_empty() {
            return;
        }
        let mut end = 0;
        for stored in stored.filter(|stored| !stored.is_short()) {
            let (start, length) = (stored.start(), stored.length());
            self.arena.copy_within(start..start + length, end);
            *stored = StoredBytes::long(stored.view(), (stored.view() >> 64) as u64, end);
            end += length;
        }
        self.arena.truncate(end);
    }

    fn common(&self, mut stored: impl Iterator<Item = StoredBytes>) -> usize {
        let Some(first) = stored.next() else { return 0 };
        let mut common = self.bytes(&first);
        while let (false, Some(other)) = (common.is_empty(), stored.next()) {
            let other = self.bytes(&other);
            if !other.starts_with(common) {
                let agree = common.iter().zip(other).take_while(|(left, right)| left == right).count();
                common = &common[..agree];
            }
        }
        common.len()
    }

    #[inline]
    fn mark(&self, stored: StoredBytes, slot: u32, slot_bits: u32, common: usize) -> u64 {
        let leading = if stored.is_short() {
            ((stored.view() >> 32 >> (8 * common.min(SHORT))) as u64).swap_bytes()
        } else {
            let rest = self.bytes(&stored).get(common..).unwrap_or_default();
            rest.first_chunk().map_or_else(|| leading_word(rest), |word| u64::from_be_bytes(*word))
        };
        leading >> slot_bits << slot_bits | u64::from(slot)
    }

    #[inline]
    fn slot(
        &self,
        mark: u64,
        slot_bits: u32,
        _find: impl Fn(u64, ByteKey<'_>) -> Option<u32>,
    ) -> Option<u32> {
        Some((mark & ((1 << slot_bits) - 1)) as u32)
    }

    #[inline]
    fn compare(
        &self,
        left: u64,
        right: u64,
        slot_bits: u32,
        stored: impl Fn(u32) -> StoredBytes,
    ) -> Ordering {
        (left >> slot_bits).cmp(&(right >> slot_bits)).then_with(|| {
            let at = |mark: u64| stored((mark & ((1 << slot_bits) - 1)) as u32);
            self.bytes(&at(left)).cmp(self.bytes(&at(right)))
        })
    }

    fn memory(&self) -> usize {
        self.arena.capacity()
    }
}

/// The bytes of a short string, in front of zeros.
fn leading_word(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(word)
}
