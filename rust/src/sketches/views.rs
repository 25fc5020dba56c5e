//! A column of texts or bytes as Arrow lays it out in views: sixteen bytes a row, long rows in buffers beside them.

use super::entries::ByteKey;
use super::hashing::ByteHash;
use crate::error::Error;

/// A key has at most this many bytes.
pub const LONGEST_KEY: usize = 256;

/// A row has so many bytes in the views.
pub const VIEW: usize = 16;
const LONGEST_INLINE: usize = 12;

/// Rows of bytes, read where they lie.
#[derive(Clone, Copy)]
pub struct Views<'a> {
    views: &'a [[u8; VIEW]],
    buffers: &'a [&'a [u8]],
}

fn word(bytes: &[u8]) -> usize {
    u32::from_le_bytes(bytes.try_into().expect("four bytes")) as usize
}

impl<'a> Views<'a> {
    /// The rows, after a look at each: every row must lie inside its buffer, have at most 256 bytes and, if asked, be
    /// valid UTF-8. No message tells a value.
    pub fn new(views: &'a [u8], buffers: &'a [&'a [u8]], texts: bool) -> Result<Self, Error> {
        let (views, rest) = views.as_chunks::<VIEW>();
        if !rest.is_empty() {
            return Err(Error::Parameter("views must have 16 bytes a row".into()));
        }
        let column = Views { views, buffers };
        for view in views {
            let row = column.checked(view).ok_or_else(|| {
                Error::Parameter("keys must have at most 256 bytes, got a longer one".into())
            })?;
            if texts && std::str::from_utf8(row).is_err() {
                return Err(Error::Parameter("texts must be valid UTF-8, got other bytes".into()));
            }
        }
        Ok(column)
    }

    /// For each row of these views whether it is UTF-8; rows outside their buffers are not.
    pub fn are_texts(views: &'a [u8], buffers: &'a [&'a [u8]]) -> Vec<bool> {
        let (views, _) = views.as_chunks::<VIEW>();
        let column = Views { views, buffers };
        views
            .iter()
            .map(|view| column.any(view).is_some_and(|row| std::str::from_utf8(row).is_ok()))
            .collect()
    }

    fn checked(&self, view: &'a [u8; VIEW]) -> Option<&'a [u8]> {
        self.any(view).filter(|row| row.len() <= LONGEST_KEY)
    }

    #[inline]
    fn any(&self, view: &'a [u8; VIEW]) -> Option<&'a [u8]> {
        let length = word(&view[..4]);
        if length <= LONGEST_INLINE {
            return view.get(4..4 + length);
        }
        let start = word(&view[12..]);
        self.buffers.get(word(&view[8..12]))?.get(start..start + length)
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.views.len()
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// The hash of a row.
    #[inline]
    pub fn hash(&self, place: usize, hash: &ByteHash) -> u64 {
        let view = &self.views[place];
        let length = word(&view[..4]);
        if length <= LONGEST_INLINE {
            // Whatever stands behind a short row is no part of it.
            let whole = u128::from_le_bytes(*view) & (u128::MAX >> (8 * (LONGEST_INLINE - length)));
            return hash.hash_pair(whole as u64, (whole >> 64) as u64);
        }
        hash.hash(self.any(view).unwrap_or_default())
    }

    /// The bytes of a row.
    #[inline]
    pub fn row(&self, place: usize) -> &'a [u8] {
        self.any(&self.views[place]).unwrap_or_default()
    }

    /// The key in a row.
    #[inline]
    pub fn key(&self, place: usize) -> ByteKey<'a> {
        let view = &self.views[place];
        let length = word(&view[..4]);
        if length <= LONGEST_INLINE {
            return ByteKey::short(u128::from_le_bytes(*view), length);
        }
        ByteKey::long(self.checked(view).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketches::entries::{Bytes, Keys};

    fn long_view(length: u32, buffer: u32, start: u32) -> Vec<u8> {
        [length.to_le_bytes(), *b"abcd", buffer.to_le_bytes(), start.to_le_bytes()].concat()
    }

    #[test]
    fn rows_lie_in_their_view_or_in_a_buffer() {
        let mut views = b"\x02\0\0\0hi\0\0\0\0\0\0\0\0\0\0".to_vec();
        views.extend(long_view(13, 0, 1));
        let buffers: [&[u8]; 1] = [b".abcdefghijklm."];
        let column = Views::new(&views, &buffers, true).unwrap();
        assert!(Bytes::same(column.key(0), ByteKey::new(b"hi")));
        assert!(Bytes::same(column.key(1), ByteKey::new(b"abcdefghijklm")));
    }

    #[test]
    fn rows_outside_their_buffer_or_too_long_or_not_text_are_refused() {
        let short: [&[u8]; 1] = [b"abcdefghijklm"];
        let long: [&[u8]; 1] = [&[b'x'; 300]];
        assert!(Views::new(&long_view(13, 0, 1), &short, false).is_err());
        assert!(Views::new(&long_view(13, 1, 0), &short, false).is_err());
        assert!(Views::new(&long_view(257, 0, 0), &long, false).is_err());
        assert!(Views::new(&long_view(256, 0, 0), &long, false).is_ok());
        let bad = b"\x01\0\0\0\xff\0\0\0\0\0\0\0\0\0\0\0";
        assert!(Views::new(bad, &short, false).is_ok());
        assert!(Views::new(bad, &short, true).is_err());
        assert!(Views::new(&bad[1..], &short, true).is_err());
    }
}
