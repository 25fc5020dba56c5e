//! Misra-Gries sketches: counters for a stream of keys in bounded memory.

pub mod entries;
pub mod hashing;
pub mod index;
pub mod listing;
pub mod misra_gries;
pub mod privacy_aware;
pub mod table;
pub mod views;
