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
