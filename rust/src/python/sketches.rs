//! Sketches for Python: batches in, sorted listings out.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::texts::Chunks;
use super::{Listed, not_contiguous};
use crate::error::Error;
use crate::sketches::entries::{ByteKey, Bytes, Integers};
use crate::sketches::integers::IntegerMisraGries;
use crate::sketches::listing::{KeyColumn, Listing};
use crate::sketches::misra_gries::MisraGries;
use crate::sketches::privacy_aware::PrivacyAware;
use crate::sketches::views::{VIEW, Views};

/// Spans of byte keys are 32 bits: with twice 256 bytes a key this many still fit.
const MOST_COUNTERS: usize = 1 << 22;

enum State {
    Integers(IntegerMisraGries),
    Bytes(MisraGries<Bytes>),
    IntegerSets(PrivacyAware<Integers>),
    ByteSets(PrivacyAware<Bytes>),
}

/// Runs the same words on whichever sketch there is.
macro_rules! each {
    ($state:expr, $sketch:ident => $words:expr) => {
        match $state {
            State::Integers($sketch) => $words,
            State::Bytes($sketch) => $words,
            State::IntegerSets($sketch) => $words,
            State::ByteSets($sketch) => $words,
        }
    };
}

/// A Misra-Gries sketch of keys or of sets of keys.
#[pyclass(module = "pianissimo._core")]
struct Sketch(State);

fn secret_bytes(secret: &[u8]) -> PyResult<&[u8; 32]> {
    secret.try_into().map_err(|_| PyValueError::new_err("a secret must have 32 bytes"))
}

fn wrong_keys() -> PyErr {
    PyTypeError::new_err("a batch must have keys of the sketch's type, in sets if it counts sets")
}

#[pymethods]
impl Sketch {
    /// A sketch in the state of a listing of u = count + decrements; an empty listing for an empty sketch.
    #[new]
    fn new(
        k: usize,
        sets: bool,
        secret: &[u8],
        listing: &KeyListing,
        decrements: i64,
        total: i64,
    ) -> PyResult<Self> {
        let secret = secret_bytes(secret)?;
        if !(1..=MOST_COUNTERS).contains(&k) || decrements < 0 || total < 0 {
            return Err(PyValueError::new_err(format!(
                "k must be from 1 to {MOST_COUNTERS}, decrements and total at least zero"
            )));
        }
        let values = &listing.0.values;
        // Every key moves one count by one, or the decrements: what the total has room for, they have.
        if values.iter().any(|&value| value > total) || decrements > total {
            return Err(PyValueError::new_err("no count, nor the decrements, may be above the total"));
        }
        Ok(Sketch(match &listing.0.keys {
            KeyColumn::Integers(keys) => {
                let counters = keys.iter().copied().zip(values.iter().copied());
                let store = Integers::new(secret);
                if sets {
                    State::IntegerSets(PrivacyAware::restore(store, k, counters, decrements, total)?)
                } else {
                    State::Integers(IntegerMisraGries::restore(store, k, counters, decrements, total)?)
                }
            }
            column @ KeyColumn::Bytes(..) => {
                let counters = values
                    .iter()
                    .enumerate()
                    .map(|(place, value)| (ByteKey::new(column.bytes(place)), *value));
                let store = Bytes::new(secret);
                if sets {
                    State::ByteSets(PrivacyAware::restore(store, k, counters, decrements, total)?)
                } else {
                    State::Bytes(MisraGries::restore(store, k, counters, decrements, total)?)
                }
            }
        }))
    }

    /// Count a batch of whole numbers; `ends` cut it into sets.
    #[pyo3(signature = (values, ends=None))]
    fn update_integers(
        &mut self,
        py: Python<'_>,
        values: PyReadonlyArray1<'_, i64>,
        ends: Option<PyReadonlyArray1<'_, i64>>,
    ) -> PyResult<()> {
        let keys = values.as_slice().map_err(|_| not_contiguous())?;
        match (&mut self.0, ends) {
            (State::Integers(sketch), None) => {
                py.detach(|| sketch.update(keys))?;
            }
            (State::IntegerSets(sketch), Some(ends)) => {
                let ends = checked_ends(&ends, keys.len())?;
                py.detach(|| sketch.update(&ends, |place| keys[place]))?;
            }
            _ => return Err(wrong_keys()),
        }
        Ok(())
    }

    /// Count a batch of texts or bytes: chunks in Arrow's view layout, all looked at before the first is counted.
    #[pyo3(signature = (chunks, texts, ends=None))]
    fn update_views(
        &mut self,
        py: Python<'_>,
        chunks: Chunks<'_>,
        texts: bool,
        ends: Option<PyReadonlyArray1<'_, i64>>,
    ) -> PyResult<()> {
        let mut parts = Vec::with_capacity(chunks.0.len());
        for (views, buffers) in &chunks.0 {
            parts.push((octets(views)?, buffers.0.iter().map(octets).collect::<PyResult<Vec<_>>>()?));
        }
        let columns = || parts.iter().map(|(views, buffers)| Views::new(views, buffers, texts));
        match (&mut self.0, ends) {
            (State::Bytes(sketch), None) => py.detach(|| {
                let columns = columns().collect::<Result<Vec<_>, Error>>()?;
                columns.iter().try_for_each(|keys| sketch.update(keys.len(), |place| keys.key(place)))
            })?,
            (State::ByteSets(sketch), Some(ends)) => {
                let ends = checked_ends(&ends, parts.iter().map(|(views, _)| views.len() / VIEW).sum())?;
                if parts.len() > 1 {
                    return Err(PyValueError::new_err("sets must come in one chunk"));
                }
                py.detach(|| {
                    columns().try_for_each(|keys| {
                        keys.and_then(|keys| sketch.update(&ends, |place| keys.key(place)))
                    })
                })?;
            }
            _ => return Err(wrong_keys()),
        }
        Ok(())
    }

    /// All stored keys in their order, with u = count + decrements.
    fn listing(&self, py: Python<'_>) -> KeyListing {
        py.detach(|| {
            KeyListing(match &self.0 {
                State::Integers(sketch) => Listing::of_integers(&sketch.stored()),
                State::Bytes(sketch) => Listing::of_bytes(&sketch.stored()),
                State::IntegerSets(sketch) => Listing::of_integers(sketch.stored()),
                State::ByteSets(sketch) => Listing::of_bytes(sketch.stored()),
            })
        })
    }

    /// How often all counts were lowered by one.
    #[getter]
    fn decrements(&self) -> i64 {
        each!(&self.0, sketch => sketch.decrements())
    }

    /// How many keys were counted.
    #[getter]
    fn total(&self) -> i64 {
        each!(&self.0, sketch => sketch.total())
    }

    /// How many bytes are held.
    #[getter]
    fn memory(&self) -> usize {
        each!(&self.0, sketch => sketch.memory())
    }
}

pub(super) fn octets<'a>(array: &'a PyReadonlyArray1<'_, u8>) -> PyResult<&'a [u8]> {
    array.as_slice().map_err(|_| not_contiguous())
}

/// Where each set ends, if these cut all of `length` keys.
fn checked_ends(ends: &PyReadonlyArray1<'_, i64>, length: usize) -> PyResult<Vec<usize>> {
    let ends = ends.as_slice().map_err(|_| not_contiguous())?;
    let whole = ends.last().copied().unwrap_or_default() == length as i64;
    if !whole || ends.first().is_some_and(|first| *first < 0) || !ends.is_sorted() {
        return Err(PyValueError::new_err("ends must cut all keys into sets, in their order"));
    }
    Ok(ends.iter().map(|end| *end as usize).collect())
}

/// Keys in their order, each with a number.
#[pyclass(frozen, module = "pianissimo._core")]
struct KeyListing(Listing);

#[pymethods]
impl KeyListing {
    /// A listing of whole numbers, smallest first.
    #[staticmethod]
    fn of_integers(keys: PyReadonlyArray1<'_, i64>, values: PyReadonlyArray1<'_, i64>) -> PyResult<Self> {
        let keys = keys.as_slice().map_err(|_| not_contiguous())?.to_vec();
        let values = values.as_slice().map_err(|_| not_contiguous())?.to_vec();
        Ok(KeyListing(Listing::new(KeyColumn::Integers(keys), values)?))
    }

    /// A listing of byte strings, smallest first; `lengths` cut `text` into them.
    #[staticmethod]
    fn of_bytes(
        text: &[u8],
        lengths: PyReadonlyArray1<'_, u32>,
        values: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<Self> {
        let lengths = lengths.as_slice().map_err(|_| not_contiguous())?;
        let ends: Vec<usize> = lengths
            .iter()
            .scan(0usize, |end, length| {
                *end += *length as usize;
                Some(*end)
            })
            .collect();
        if ends.last().copied().unwrap_or_default() != text.len() {
            return Err(PyValueError::new_err("lengths must cut the whole text"));
        }
        let values = values.as_slice().map_err(|_| not_contiguous())?.to_vec();
        Ok(KeyListing(Listing::new(KeyColumn::Bytes(text.to_vec(), ends), values)?))
    }

    fn __len__(&self) -> usize {
        self.0.values.len()
    }

    /// The keys, if they are whole numbers.
    fn integers<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        match &self.0.keys {
            KeyColumn::Integers(keys) => Ok(keys.clone().into_pyarray(py)),
            KeyColumn::Bytes(..) => Err(PyTypeError::new_err("keys must be whole numbers")),
        }
    }

    /// The keys one after the other and the length of each, if they are byte strings.
    fn bytes<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyArray1<u32>>)> {
        match &self.0.keys {
            KeyColumn::Integers(_) => Err(PyTypeError::new_err("keys must be byte strings")),
            KeyColumn::Bytes(text, ends) => {
                let lengths: Vec<u32> =
                    (0..ends.len()).map(|place| self.0.keys.bytes(place).len() as u32).collect();
                Ok((PyBytes::new(py, text), lengths.into_pyarray(py)))
            }
        }
    }

    /// The numbers, in the order of the keys.
    fn values<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<i64>> {
        self.0.values.clone().into_pyarray(py)
    }

    /// Every number less `down`, and only what is above zero then.
    fn lowered(&self, py: Python<'_>, down: i64) -> Self {
        KeyListing(py.detach(|| self.0.lowered(down)))
    }

    /// Sums by key, less the (k + 1)-th largest; what is above zero.
    fn merge(&self, py: Python<'_>, other: &Self, k: usize) -> PyResult<Self> {
        let merged: Result<Listing, Error> = py.detach(|| self.0.merge(&other.0, k));
        Ok(KeyListing(merged?))
    }
}

/// For each row of a chunk in Arrow's view layout whether it is UTF-8.
#[pyfunction]
fn are_texts<'py>(
    py: Python<'py>,
    views: PyReadonlyArray1<'py, u8>,
    buffers: Listed<PyReadonlyArray1<'py, u8>>,
) -> PyResult<Bound<'py, PyArray1<bool>>> {
    let views = octets(&views)?;
    let buffers = buffers.0.iter().map(octets).collect::<PyResult<Vec<_>>>()?;
    Ok(py.detach(|| Views::are_texts(views, &buffers)).into_pyarray(py))
}

/// Adds the classes of this file to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sketch>()?;
    module.add_class::<KeyListing>()?;
    module.add_function(wrap_pyfunction!(are_texts, module)?)?;
    Ok(())
}
