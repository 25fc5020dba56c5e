//! Misra-Gries sketches: counters for a stream of keys in bounded memory.

pub mod buckets;
pub mod entries;
pub mod hashing;
pub mod index;
pub mod integers;
pub mod listing;
pub mod misra_gries;
pub mod privacy_aware;
pub mod replacement;
pub mod table;
pub mod views;
