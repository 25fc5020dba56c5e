//! Exact keyed noise and hot loops of Pianissimo.

pub mod alias;
pub mod at_rest;
pub mod counters;
pub mod error;
pub mod fixed_point;
pub mod json_lines;
pub mod labels;
pub mod monitors;
pub mod moves;
pub mod pairs;
pub mod prf;
pub mod samplers;
pub mod sketches;
pub mod users;

#[cfg(feature = "python")]
mod python;
