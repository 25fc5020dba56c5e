//! Misra-Gries sketches: counters for a stream of keys in bounded memory.

pub mod entries;
pub mod hashing;
pub mod listing;
pub mod misra_gries;
pub mod order;
pub mod privacy_aware;
pub mod table;
pub mod views;
