//! Columns of texts: the numbers of different ones, and slots that last from tick to tick.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::sketches::octets;
use super::{Listed, not_contiguous};
use crate::error::Error;
use crate::labels::{TextSlots, add_up_rows, count_rows, number_rows};
use crate::sketches::hashing::ByteHash;
use crate::sketches::views::Views;

/// Chunks in Arrow's view layout: views, and the buffers that they point into.
pub(super) type Chunks<'py> = Listed<(PyReadonlyArray1<'py, u8>, Listed<PyReadonlyArray1<'py, u8>>)>;

fn secret_of(secret: &[u8]) -> PyResult<&[u8; 32]> {
    secret.try_into().map_err(|_| PyValueError::new_err("a secret must have 32 bytes"))
}

/// What `action` makes of the rows of some chunks, without the interpreter lock.
fn with_views<Made: Send>(
    py: Python<'_>,
    chunks: &Chunks<'_>,
    action: impl FnOnce(&[Views<'_>]) -> Result<Made, Error> + Send,
) -> PyResult<Made> {
    let mut parts = Vec::with_capacity(chunks.0.len());
    for (views, buffers) in &chunks.0 {
        parts.push((octets(views)?, buffers.0.iter().map(octets).collect::<PyResult<Vec<_>>>()?));
    }
    Ok(py.detach(|| {
        let columns = parts.iter().map(|(views, buffers)| Views::new(views, buffers, false));
        action(&columns.collect::<Result<Vec<_>, Error>>()?)
    })?)
}

/// The number of each text of a column among the different ones, as they appear, and the first row of each.
#[pyfunction]
fn number_texts<'py>(
    py: Python<'py>,
    chunks: Chunks<'py>,
    secret: &[u8],
) -> PyResult<(Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<u32>>)> {
    let secret = secret_of(secret)?;
    let (numbers, first) = with_views(py, &chunks, |columns| number_rows(columns, &ByteHash::new(secret)))?;
    Ok((numbers.into_pyarray(py), first.into_pyarray(py)))
}

/// How many rows of a column have each text, as they appear, and the first row of each.
#[pyfunction]
fn count_texts<'py>(
    py: Python<'py>,
    chunks: Chunks<'py>,
    secret: &[u8],
) -> PyResult<(Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<u32>>)> {
    let secret = secret_of(secret)?;
    let (counts, first) = with_views(py, &chunks, |columns| count_rows(columns, &ByteHash::new(secret)))?;
    Ok((counts.into_pyarray(py), first.into_pyarray(py)))
}

/// The first row of each text of a column, in the order of their bytes, and the numbers of its rows added up.
#[pyfunction]
fn add_up_texts<'py>(
    py: Python<'py>,
    chunks: Chunks<'py>,
    numbers: PyReadonlyArray1<'py, i64>,
) -> PyResult<(Bound<'py, PyArray1<u32>>, Bound<'py, PyArray1<i64>>)> {
    let numbers = numbers.as_slice().map_err(|_| not_contiguous())?;
    let (first, sums) = with_views(py, &chunks, |columns| add_up_rows(columns, numbers))?;
    Ok((first.into_pyarray(py), sums.into_pyarray(py)))
}

/// From texts to slots.
#[pyclass(name = "TextSlots", module = "pianissimo._core")]
struct PyTextSlots(TextSlots);

#[pymethods]
impl PyTextSlots {
    #[new]
    fn new(secret: &[u8]) -> PyResult<Self> {
        Ok(PyTextSlots(TextSlots::new(secret_of(secret)?)))
    }

    /// The slot of each text, -1 where it is not remembered.
    fn find<'py>(&self, py: Python<'py>, chunks: Chunks<'py>) -> PyResult<Bound<'py, PyArray1<i64>>> {
        Ok(with_views(py, &chunks, |columns| Ok(self.0.find(columns)))?.into_pyarray(py))
    }

    /// Remember the slots of texts, as long as there is room.
    fn remember<'py>(
        &mut self,
        py: Python<'py>,
        chunks: Chunks<'py>,
        slots: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<()> {
        let slots = slots.as_slice().map_err(|_| not_contiguous())?;
        with_views(py, &chunks, |columns| self.0.remember(columns, slots))
    }
}

/// Adds what is in this file to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyTextSlots>()?;
    module.add_function(wrap_pyfunction!(add_up_texts, module)?)?;
    module.add_function(wrap_pyfunction!(count_texts, module)?)?;
    module.add_function(wrap_pyfunction!(number_texts, module)?)?;
    Ok(())
}
