//! The one error type of the core.

use std::fmt;

/// What can go wrong in the core. No variant carries data of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// A parameter that cannot be: what must hold, and what came.
    Parameter(String),
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Parameter(message) => formatter.write_str(message),
        }
    }
}

impl std::error::Error for Error {}

/// The most slots, keys or labels that a number from outside may ask for: 2^28.
pub const MOST_SLOTS: usize = 1 << 28;

/// A size that came from outside, before anything of that size is allocated: an allocation that fails ends the process.
pub fn checked_size(name: &str, size: usize) -> Result<usize, Error> {
    if size <= MOST_SLOTS {
        return Ok(size);
    }
    Err(Error::Parameter(format!("{name} must be at most {MOST_SLOTS}, got {size}")))
}

/// So many places in memory, each with one value; an error where the memory is not there.
pub fn filled<Value: Clone>(value: Value, size: usize) -> Result<Vec<Value>, Error> {
    let mut places = Vec::new();
    places.try_reserve_exact(size).map_err(|_| no_memory(size))?;
    places.resize(size, value);
    Ok(places)
}

/// Word the error for memory that is not there.
pub fn no_memory(size: usize) -> Error {
    Error::Parameter(format!("there must be memory for {size} places, got less"))
}
