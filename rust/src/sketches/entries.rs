//! What a table stores of a key: a number, or a short text itself, or where a long one lies.

use std::cmp::Ordering;

use hashbrown::HashTable;

use super::hashing::{ByteHash, IntegerHash};
use super::index::{Index, Narrowest};

/// The keys of one type: how they are hashed, stored, told apart and put in order.
pub trait Keys {
    /// A key as it comes.
    type Key<'a>: Copy;
    /// A key as it is stored.
    type Stored: Copy;
    /// What stored keys have beside them.
    type Arena: Arena;
    /// How slots are found by hash.
    type Index: Index;

    /// The keyed hash of a key.
    fn hash(&self, key: Self::Key<'_>) -> u64;
    /// The hash of a stored key, the same as of the key itself.
    fn hash_stored(&self, stored: Self::Stored) -> u64;
    /// Whether two keys are the same.
    fn same(left: Self::Key<'_>, right: Self::Key<'_>) -> bool;
    /// Whether a stored key is this key.
    fn is(stored: Self::Stored, arena: &Self::Arena, hash: u64, key: Self::Key<'_>) -> bool;
    /// Store a key.
    fn keep(arena: &mut Self::Arena, hash: u64, key: Self::Key<'_>) -> Self::Stored;
    /// Store a key that is stored elsewhere.
    fn keep_stored(arena: &mut Self::Arena, stored: Self::Stored, from: &Self::Arena) -> Self::Stored;
    /// A number that is never larger for a smaller key.
    fn rank(stored: Self::Stored, arena: &Self::Arena) -> u64;
    /// The order of two stored keys.
    fn compare(left: Self::Stored, right: Self::Stored, arena: &Self::Arena) -> Ordering;
}

/// The bytes of keys that do not fit where they are stored.
pub trait Arena: Default {
    /// Forget all.
    fn clear(&mut self);
    /// How many bytes are held.
    fn memory(&self) -> usize;
}

impl Arena for () {
    fn clear(&mut self) {}

    fn memory(&self) -> usize {
        0
    }
}

impl Arena for Vec<u8> {
    fn clear(&mut self) {
        Vec::clear(self);
    }

    fn memory(&self) -> usize {
        self.capacity()
    }
}

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
    type Arena = ();
    type Index = HashTable<u32>;

    #[inline]
    fn hash(&self, key: i64) -> u64 {
        self.hash.hash(key)
    }

    #[inline]
    fn hash_stored(&self, stored: i64) -> u64 {
        self.hash.hash(stored)
    }

    #[inline]
    fn same(left: i64, right: i64) -> bool {
        left == right
    }

    #[inline]
    fn is(stored: i64, _arena: &(), _hash: u64, key: i64) -> bool {
        stored == key
    }

    #[inline]
    fn keep(_arena: &mut (), _hash: u64, key: i64) -> i64 {
        key
    }

    #[inline]
    fn keep_stored(_arena: &mut (), stored: i64, _from: &()) -> i64 {
        stored
    }

    #[inline]
    fn rank(stored: i64, _arena: &()) -> u64 {
        // The flipped sign makes the unsigned order that of the signed numbers.
        stored as u64 ^ (1 << 63)
    }

    #[inline]
    fn compare(left: i64, right: i64, _arena: &()) -> Ordering {
        left.cmp(&right)
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

/// The bytes of a stored key.
#[inline]
pub fn bytes_of<'a>(stored: &'a StoredBytes, arena: &'a [u8]) -> &'a [u8] {
    let length = stored.length();
    if stored.is_short() { &stored.0[4..4 + length] } else { &arena[stored.start()..stored.start() + length] }
}

/// Byte strings of at most 256 bytes, in the order of their bytes.
pub struct Bytes {
    hash: ByteHash,
}

impl Bytes {
    /// Keys hashed under 32 random bytes.
    pub fn new(secret: &[u8; 32]) -> Self {
        Bytes { hash: ByteHash::new(secret) }
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
    type Arena = Vec<u8>;
    type Index = Narrowest;

    #[inline]
    fn hash(&self, key: ByteKey<'_>) -> u64 {
        if key.long.is_empty() { self.hash_view(key.view) } else { doubled(self.hash.hash(key.long)) }
    }

    #[inline]
    fn hash_stored(&self, stored: StoredBytes) -> u64 {
        if stored.is_short() { self.hash_view(stored.view()) } else { doubled((stored.view() >> 64) as u64) }
    }

    #[inline]
    fn same(left: ByteKey<'_>, right: ByteKey<'_>) -> bool {
        left.view == right.view && (left.long.is_empty() || left.long == right.long)
    }

    #[inline]
    fn is(stored: StoredBytes, arena: &Vec<u8>, hash: u64, key: ByteKey<'_>) -> bool {
        if key.long.is_empty() {
            return stored.view() == key.view;
        }
        let expected = StoredBytes::long(key.view, hash, stored.start());
        stored.0 == expected.0 && bytes_of(&stored, arena) == key.long
    }

    #[inline]
    fn keep(arena: &mut Vec<u8>, hash: u64, key: ByteKey<'_>) -> StoredBytes {
        if key.long.is_empty() {
            return StoredBytes(key.view.to_le_bytes());
        }
        let start = arena.len();
        arena.extend_from_slice(key.long);
        StoredBytes::long(key.view, hash, start)
    }

    #[inline]
    fn keep_stored(arena: &mut Vec<u8>, stored: StoredBytes, from: &Vec<u8>) -> StoredBytes {
        if stored.is_short() {
            return stored;
        }
        let start = arena.len();
        arena.extend_from_slice(bytes_of(&stored, from));
        StoredBytes::long(stored.view(), (stored.view() >> 64) as u64, start)
    }

    #[inline]
    fn rank(stored: StoredBytes, arena: &Vec<u8>) -> u64 {
        let bytes = bytes_of(&stored, arena);
        let mut word = [0; 8];
        let length = bytes.len().min(8);
        word[..length].copy_from_slice(&bytes[..length]);
        u64::from_be_bytes(word)
    }

    #[inline]
    fn compare(left: StoredBytes, right: StoredBytes, arena: &Vec<u8>) -> Ordering {
        bytes_of(&left, arena).cmp(bytes_of(&right, arena))
    }
}
