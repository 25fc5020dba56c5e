//! Lines of JSON for Python: a block in, columns out.

use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::{Listed, not_contiguous};
use crate::json_lines::{Kind, LineReader, MOST_COLUMNS};

type PyColumn<'py> =
    (Bound<'py, PyBytes>, Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<f64>>, Bound<'py, PyArray1<bool>>);

fn kind_of(name: &str) -> PyResult<Kind> {
    match name {
        "label" => Ok(Kind::Label),
        "number" => Ok(Kind::Number),
        "text" => Ok(Kind::Text),
        "text or integer" => Ok(Kind::TextOrInteger),
        _ => Err(PyValueError::new_err("a kind must be 'label', 'number', 'text' or 'text or integer'")),
    }
}

/// Reads the plain records of a text, cut at line feeds or by `lengths`: for each column its texts and where they end, or
/// its numbers, and whether a row has a value; the places of these rows; the other lines as (place, start, end).
#[pyfunction]
#[pyo3(signature = (text, columns, lengths=None))]
#[allow(clippy::type_complexity)]
fn read_json_lines<'py>(
    py: Python<'py>,
    text: &[u8],
    columns: Listed<(String, String)>,
    lengths: Option<PyReadonlyArray1<'py, u32>>,
) -> PyResult<(Vec<PyColumn<'py>>, Bound<'py, PyArray1<u64>>, Vec<(u64, usize, usize)>)> {
    let columns = columns.0;
    if columns.len() > MOST_COLUMNS {
        return Err(PyValueError::new_err("at most 64 columns are read"));
    }
    let names: Vec<Vec<u8>> = columns.iter().map(|(name, _)| name.as_bytes().to_vec()).collect();
    let kinds = columns.iter().map(|(_, kind)| kind_of(kind)).collect::<PyResult<Vec<_>>>()?;
    let lengths = lengths.as_ref().map(|each| each.as_slice().map_err(|_| not_contiguous())).transpose()?;
    if lengths.is_some_and(|each| each.iter().map(|&one| one as usize).sum::<usize>() != text.len()) {
        return Err(PyValueError::new_err("lengths must cut the whole text"));
    }
    let read = py.detach(|| {
        let reader = LineReader::new(&names, &kinds);
        match lengths {
            None => reader.block(text),
            Some(lengths) => reader.joined(text, lengths),
        }
    });
    let found = read
        .columns
        .into_iter()
        .map(|each| {
            (
                PyBytes::new(py, &each.bytes),
                each.ends.into_pyarray(py),
                each.numbers.into_pyarray(py),
                each.has.into_pyarray(py),
            )
        })
        .collect();
    let odd = read.odd.into_iter().map(|(place, span)| (place, span.start, span.end)).collect();
    Ok((found, read.places.into_pyarray(py), odd))
}

/// Adds the function of this file to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(read_json_lines, module)?)
}
