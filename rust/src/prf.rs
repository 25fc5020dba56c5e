//! Keyed cryptographic bits: a pure function of (secret, path, draw, key).
//!
//! A path is a sequence of components. Each is encoded as one tag byte, its length as eight little-endian bytes, and its
//! payload; every component is self-delimiting, so the encoding of a path is injective, and descending in one step or
//! in two gives the same bytes. The path selects an AES-256 key through BLAKE3 in keyed mode; a 128-bit item key is
//! one AES block of plaintext. Distinct keys give distinct blocks, so the advantage over truly random bits is at most
//! q^2 / 2^129 for q keys under one path.

use aes::Aes256;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use zeroize::{Zeroize, ZeroizeOnDrop};

/// How many blocks are encrypted at once: enough to fill the pipeline of the AES unit, few enough for the first cache.
const BATCH: usize = 256;

const ROOT_CONTEXT: &str = "pianissimo 2026-11 noise root v1";
const TAG_TEXT: u8 = b's';
const TAG_INTEGER: u8 = b'i';
const TAG_BYTES: u8 = b'b';
const TAG_DRAW: u8 = b'd';
const TAG_LABEL: u8 = b'l';

/// The root of all noise: 32 secret bytes, wiped when dropped.
#[derive(Zeroize, ZeroizeOnDrop)]
pub struct Root([u8; 32]);

impl Root {
    /// The root that belongs to a secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        Root(blake3::derive_key(ROOT_CONTEXT, secret))
    }

    fn derive(&self, path: &[u8], tag: u8, purpose: &[u8]) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.0);
        hasher.update(path);
        hasher.update(&encode(tag, purpose));
        *hasher.finalize().as_bytes()
    }

    /// The stream of blocks of one draw: `purpose` names the distribution, its parameters and the part of the draw.
    pub fn blocks(&self, path: &[u8], purpose: &[u8]) -> Blocks {
        let mut key = self.derive(path, TAG_DRAW, purpose);
        let cipher = Aes256::new(&Array::from(key));
        key.zeroize();
        Blocks { cipher }
    }

    /// A keyed 128-bit name for each label: `lengths` cut `text` into labels.
    ///
    /// The names are what noise is keyed by, and what tables are hashed by: without the secret nobody can choose labels
    /// that collide.
    pub fn label_keys(&self, path: &[u8], text: &[u8], lengths: &[u32]) -> Vec<u128> {
        let mut key = self.derive(path, TAG_LABEL, b"");
        let mut start = 0;
        let names = lengths
            .iter()
            .map(|&length| {
                let end = start + length as usize;
                let hash = blake3::keyed_hash(&key, &text[start..end]);
                start = end;
                let mut name = [0; 16];
                name.copy_from_slice(&hash.as_bytes()[..16]);
                u128::from_le_bytes(name)
            })
            .collect();
        key.zeroize();
        names
    }
}

/// Random access to the bits of one draw: one 128-bit block for each item key.
pub struct Blocks {
    cipher: Aes256,
}

impl Blocks {
    /// Calls `visit(index, bits)` for each key, in order.
    #[inline]
    pub fn for_each(&self, keys: &Keys<'_>, mut visit: impl FnMut(usize, u128)) {
        let mut buffer = [Array::from([0u8; 16]); BATCH];
        let count = keys.len();
        let mut start = 0;
        while start < count {
            let width = BATCH.min(count - start);
            let batch = &mut buffer[..width];
            keys.write(start, batch);
            self.cipher.encrypt_blocks(batch);
            for (offset, block) in batch.iter().enumerate() {
                visit(start + offset, u128::from_le_bytes(block.0));
            }
            start += width;
        }
    }

    /// The bits of keys that are written as blocks already.
    ///
    /// # Panics
    ///
    /// If there are not as many blocks as keys.
    #[inline]
    pub fn encrypt(&self, plain: &[aes::Block], bits: &mut [aes::Block]) {
        self.cipher.encrypt_blocks_b2b(plain, bits).expect("as many blocks as keys");
    }
}

/// Item keys: whole numbers of up to 128 bits. A 64-bit key is the 128-bit key of the same value.
pub enum Keys<'a> {
    /// 64-bit keys.
    Narrow(&'a [u64]),
    /// 128-bit keys as (low, high) pairs, one after the other.
    Wide(&'a [u64]),
}

impl Keys<'_> {
    /// How many keys there are.
    pub fn len(&self) -> usize {
        match self {
            Keys::Narrow(keys) => keys.len(),
            Keys::Wide(keys) => keys.len() / 2,
        }
    }

    /// `count` keys from `start` on.
    pub fn slice(&self, start: usize, count: usize) -> Keys<'_> {
        match self {
            Keys::Narrow(keys) => Keys::Narrow(&keys[start..start + count]),
            Keys::Wide(keys) => Keys::Wide(&keys[2 * start..2 * (start + count)]),
        }
    }

    /// Whether there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The keys from `start` on, as blocks.
    #[inline]
    pub fn write(&self, start: usize, batch: &mut [aes::Block]) {
        match self {
            Keys::Narrow(keys) => {
                for (block, key) in batch.iter_mut().zip(&keys[start..]) {
                    block.0 = u128::from(*key).to_le_bytes();
                }
            }
            Keys::Wide(keys) => {
                for (block, pair) in batch.iter_mut().zip(keys[2 * start..].chunks_exact(2)) {
                    let key = u128::from(pair[0]) | (u128::from(pair[1]) << 64);
                    block.0 = key.to_le_bytes();
                }
            }
        }
    }
}

fn encode(tag: u8, payload: &[u8]) -> Vec<u8> {
    let mut encoded = Vec::with_capacity(9 + payload.len());
    encoded.push(tag);
    encoded.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    encoded.extend_from_slice(payload);
    encoded
}

/// One path component that is a text.
pub fn encode_text(text: &str) -> Vec<u8> {
    encode(TAG_TEXT, text.as_bytes())
}

/// One path component that is a whole number.
pub fn encode_integer(number: i128) -> Vec<u8> {
    encode(TAG_INTEGER, &number.to_le_bytes())
}

/// One path component that is a string of bytes.
pub fn encode_bytes(bytes: &[u8]) -> Vec<u8> {
    encode(TAG_BYTES, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bits(root: &Root, path: &[u8], purpose: &[u8], key: u64) -> u128 {
        let mut seen = 0;
        root.blocks(path, purpose).for_each(&Keys::Narrow(&[key]), |_, block| seen = block);
        seen
    }

    #[test]
    fn components_are_tagged_and_length_prefixed() {
        assert_eq!(encode_text("ab"), b"s\x02\0\0\0\0\0\0\0ab");
        assert_eq!(encode_bytes(b"ab"), b"b\x02\0\0\0\0\0\0\0ab");
        let mut minus_one = b"i\x10\0\0\0\0\0\0\0".to_vec();
        minus_one.extend([0xff; 16]);
        assert_eq!(encode_integer(-1), minus_one);
    }

    #[test]
    fn every_part_of_the_address_matters() {
        let root = Root::new(&[7; 32]);
        let path = encode_text("a");
        let here = bits(&root, &path, b"p", 1);
        assert_eq!(here, bits(&Root::new(&[7; 32]), &path, b"p", 1));
        assert_ne!(here, bits(&Root::new(&[8; 32]), &path, b"p", 1));
        assert_ne!(here, bits(&root, &encode_text("b"), b"p", 1));
        assert_ne!(here, bits(&root, &path, b"q", 1));
        assert_ne!(here, bits(&root, &path, b"p", 2));
    }

    #[test]
    fn a_narrow_key_is_the_wide_key_of_the_same_value() {
        let root = Root::new(&[1; 32]);
        let blocks = root.blocks(b"", b"");
        let keys: Vec<u64> = (0..1000u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect();
        let pairs: Vec<u64> = keys.iter().flat_map(|&key| [key, 0]).collect();
        let mut narrow = Vec::new();
        let mut wide = Vec::new();
        blocks.for_each(&Keys::Narrow(&keys), |_, block| narrow.push(block));
        blocks.for_each(&Keys::Wide(&pairs), |_, block| wide.push(block));
        assert_eq!(narrow, wide);
    }

    #[test]
    fn labels_are_cut_by_length() {
        let root = Root::new(&[1; 32]);
        let apart = root.label_keys(b"", b"abc", &[1, 2]);
        assert_eq!(apart[0], root.label_keys(b"", b"a", &[1])[0]);
        assert_eq!(apart[1], root.label_keys(b"", b"bc", &[2])[0]);
        assert_ne!(apart[0], apart[1]);
    }
}
