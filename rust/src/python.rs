//! The only file that knows Python: convert, call without the interpreter lock, map the one error.

// Arguments come from Python by value; tables go to it as nested tuples.
#![allow(clippy::needless_pass_by_value, clippy::type_complexity)]

mod at_rest;
mod json_lines;
mod monitors;
mod sketches;
mod texts;
mod users;

use numpy::ndarray::Array2;
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1,
    PyUntypedArrayMethods,
};
use pyo3::Borrowed;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::{PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::counters;
use crate::error::Error;
use crate::labels::SlotTable;
use crate::moves;
use crate::prf::{self, Keys};
use crate::samplers::{self, Distribution, Narrow, Sampler, Weighted};

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        PyValueError::new_err(error.to_string())
    }
}

/// A list of Python's, which holds as many as it says. Of any other sequence the length is a claim, by which memory would be
/// asked for before the first is looked at.
struct Listed<Each>(Vec<Each>);

impl<'py, Each: FromPyObjectOwned<'py>> FromPyObject<'_, 'py> for Listed<Each> {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let each = object.cast::<PyList>()?.iter().map(|each| each.extract().map_err(Into::into));
        Ok(Listed(each.collect::<PyResult<_>>()?))
    }
}

fn distribution(name: &str, numerator: u128, denominator: u128) -> PyResult<Distribution> {
    match name {
        "gaussian" => Ok(Distribution::Gaussian { numerator, denominator }),
        "laplace" => Ok(Distribution::Laplace { numerator, denominator }),
        _ => Err(PyValueError::new_err("a distribution must be 'gaussian' or 'laplace'")),
    }
}

fn contiguous(slice: Result<&[u64], impl std::fmt::Display>) -> PyResult<&[u64]> {
    slice.map_err(|_| PyTypeError::new_err("an array must be contiguous"))
}

enum KeyArray<'py> {
    Narrow(PyReadonlyArray1<'py, u64>),
    Wide(PyReadonlyArray2<'py, u64>),
}

impl<'py> KeyArray<'py> {
    fn of(keys: &Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(narrow) = keys.extract() {
            return Ok(KeyArray::Narrow(narrow));
        }
        match keys.extract::<PyReadonlyArray2<'py, u64>>() {
            Ok(wide) if wide.shape()[1] == 2 => Ok(KeyArray::Wide(wide)),
            _ => Err(PyTypeError::new_err(
                "keys must be a uint64 array of shape (n,), or (n, 2) for 128-bit keys as (low, high)",
            )),
        }
    }

    fn keys(&self) -> PyResult<Keys<'_>> {
        Ok(match self {
            KeyArray::Narrow(narrow) => Keys::Narrow(contiguous(narrow.as_slice())?),
            KeyArray::Wide(wide) => Keys::Wide(contiguous(wide.as_slice())?),
        })
    }
}

/// The root of all noise of a stream.
#[pyclass(frozen, module = "pianissimo._core")]
struct Root(prf::Root);

#[pymethods]
impl Root {
    #[new]
    fn new(secret: &[u8]) -> PyResult<Self> {
        let secret: &[u8; 32] =
            secret.try_into().map_err(|_| PyValueError::new_err("a secret must have 32 bytes"))?;
        Ok(Root(prf::Root::new(secret)))
    }

    /// Writes one draw for each key into `out` (int16, int32 or int64).
    #[allow(clippy::too_many_arguments)]
    fn draw(
        &self,
        py: Python<'_>,
        name: &str,
        path: &[u8],
        numerator: u128,
        denominator: u128,
        keys: &Bound<'_, PyAny>,
        out: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let sampler = Sampler::of(distribution(name, numerator, denominator)?)?;
        let array = KeyArray::of(keys)?;
        let keys = array.keys()?;
        if let Ok(out) = out.extract::<PyReadwriteArray1<'_, i64>>() {
            return self.fill(py, &sampler, path, &keys, i64::MAX, out);
        }
        if let Ok(out) = out.extract::<PyReadwriteArray1<'_, i32>>() {
            return self.fill(py, &sampler, path, &keys, i32::MAX.into(), out);
        }
        if let Ok(out) = out.extract::<PyReadwriteArray1<'_, i16>>() {
            return self.fill(py, &sampler, path, &keys, i16::MAX.into(), out);
        }
        Err(PyTypeError::new_err("out must be a writable array of int16, int32 or int64"))
    }

    /// sums += the weighted sum of the draws of each key; each draw as (name, path, numerator, denominator, weight).
    fn add_draws(
        &self,
        py: Python<'_>,
        draws: Listed<(String, Bound<'_, PyBytes>, u128, u128, i64)>,
        keys: &Bound<'_, PyAny>,
        mut sums: PyReadwriteArray1<'_, i64>,
    ) -> PyResult<()> {
        let mut weighted = Vec::with_capacity(draws.0.len());
        for (name, path, numerator, denominator, weight) in draws.0 {
            let sampler = Sampler::of(distribution(&name, numerator, denominator)?)?;
            weighted.push(Weighted::new(sampler, &self.0, path.as_bytes(), weight));
        }
        let array = KeyArray::of(keys)?;
        let keys = array.keys()?;
        let sums = sums.as_slice_mut().map_err(|_| not_contiguous())?;
        if sums.len() != keys.len() {
            return Err(PyValueError::new_err("sums must have one place for each key"));
        }
        py.detach(|| samplers::add_draws(&weighted, &keys, sums));
        Ok(())
    }

    /// 128 uniform bits for each key, as (low, high) rows.
    fn bits<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        keys: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyArray2<u64>>> {
        let array = KeyArray::of(keys)?;
        let keys = array.keys()?;
        let mut words = Vec::with_capacity(keys.len());
        py.detach(|| {
            self.0.blocks(path, &prf::encode_text("bits")).for_each(&keys, |_, block| words.push(block));
        });
        Ok(name_array(py, &words))
    }

    /// A keyed 128-bit name for each label, as (low, high) rows; `lengths` cut `text` into labels.
    fn label_keys<'py>(
        &self,
        py: Python<'py>,
        path: &[u8],
        text: &[u8],
        lengths: PyReadonlyArray1<'py, u32>,
    ) -> PyResult<Bound<'py, PyArray2<u64>>> {
        let lengths = lengths.as_slice().map_err(|_| not_contiguous())?;
        if lengths.iter().map(|&length| length as usize).sum::<usize>() != text.len() {
            return Err(PyValueError::new_err("lengths must cut the whole text"));
        }
        let names = py.detach(|| self.0.label_keys(path, text, lengths));
        Ok(name_array(py, &names))
    }
}

impl Root {
    fn fill<Value: Narrow + numpy::Element + Send>(
        &self,
        py: Python<'_>,
        sampler: &Sampler,
        path: &[u8],
        keys: &Keys<'_>,
        largest: i64,
        mut out: PyReadwriteArray1<'_, Value>,
    ) -> PyResult<()> {
        let out = out.as_slice_mut().map_err(|_| PyTypeError::new_err("an array must be contiguous"))?;
        if out.len() != keys.len() {
            return Err(PyValueError::new_err("out must have one place for each key"));
        }
        if sampler.bound() > largest {
            return Err(PyOverflowError::new_err(
                "out must have room for the largest draw: use a wider type",
            ));
        }
        py.detach(|| sampler.draw(&self.0, path, keys, out));
        Ok(())
    }
}

fn name_array<'py>(py: Python<'py>, names: &[u128]) -> Bound<'py, PyArray2<u64>> {
    let halves: Vec<u64> = names.iter().flat_map(|name| [*name as u64, (*name >> 64) as u64]).collect();
    Array2::from_shape_vec((names.len(), 2), halves).expect("two halves for each name").into_pyarray(py)
}

fn names_of(array: &PyReadonlyArray2<'_, u64>) -> PyResult<Vec<u128>> {
    if array.shape()[1] != 2 {
        return Err(PyTypeError::new_err("names must be rows of (low, high)"));
    }
    let halves = contiguous(array.as_slice())?;
    Ok(halves.chunks_exact(2).map(|pair| u128::from(pair[0]) | (u128::from(pair[1]) << 64)).collect())
}

/// From keyed names to slots.
#[pyclass(name = "SlotTable", module = "pianissimo._core")]
#[derive(Default)]
struct PySlotTable(SlotTable);

#[pymethods]
impl PySlotTable {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The slot of each name, -1 where it has none.
    fn find<'py>(
        &self,
        py: Python<'py>,
        names: PyReadonlyArray2<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let names = names_of(&names)?;
        Ok(py.detach(|| self.0.find(&names)).into_pyarray(py))
    }

    /// The slot of each name; new names get the next free ones.
    fn find_or_add<'py>(
        &mut self,
        py: Python<'py>,
        names: PyReadonlyArray2<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let names = names_of(&names)?;
        Ok(py.detach(|| self.0.find_or_add(&names)).into_pyarray(py))
    }

    /// Room for so many more names.
    fn reserve(&mut self, more: usize) -> PyResult<()> {
        Ok(self.0.reserve(more)?)
    }

    /// The names from slot `start` up to slot `end`, as rows of (low, high).
    fn names<'py>(&self, py: Python<'py>, start: usize, end: usize) -> Bound<'py, PyArray2<u64>> {
        name_array(py, self.0.names().get(start..end).unwrap_or_default())
    }

    /// The names of some slots, as rows of (low, high).
    fn names_at<'py>(
        &self,
        py: Python<'py>,
        slots: PyReadonlyArray1<'py, i64>,
    ) -> PyResult<Bound<'py, PyArray2<u64>>> {
        let names = self.0.names();
        let found: Option<Vec<u128>> = slots
            .as_slice()
            .map_err(|_| not_contiguous())?
            .iter()
            .map(|&slot| usize::try_from(slot).ok().and_then(|place| names.get(place).copied()))
            .collect();
        Ok(name_array(py, &found.ok_or_else(|| PyValueError::new_err("slots must be those of names"))?))
    }
}

/// sums += weight * values, wrapping.
#[pyfunction]
fn add_scaled(
    py: Python<'_>,
    mut sums: PyReadwriteArray1<'_, i64>,
    weight: i64,
    values: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let sums = sums.as_slice_mut().map_err(|_| not_contiguous())?;
    if let Ok(values) = values.extract::<PyReadonlyArray1<'_, i64>>() {
        return add_values(py, sums, weight, values.as_slice().map_err(|_| not_contiguous())?);
    }
    if let Ok(values) = values.extract::<PyReadonlyArray1<'_, i32>>() {
        return add_values(py, sums, weight, values.as_slice().map_err(|_| not_contiguous())?);
    }
    if let Ok(values) = values.extract::<PyReadonlyArray1<'_, i16>>() {
        return add_values(py, sums, weight, values.as_slice().map_err(|_| not_contiguous())?);
    }
    Err(PyTypeError::new_err("values must be int16, int32 or int64"))
}

fn add_values<Value: counters::Widen + Sync>(
    py: Python<'_>,
    sums: &mut [i64],
    weight: i64,
    values: &[Value],
) -> PyResult<()> {
    if sums.len() != values.len() {
        return Err(PyValueError::new_err("sums and values must be of one length"));
    }
    py.detach(|| counters::add_scaled(sums, weight, values));
    Ok(())
}

fn not_contiguous() -> PyErr {
    PyTypeError::new_err("an array must be contiguous")
}

/// What a tick moved, in few bytes; the first four are how many slots it spans.
#[pyfunction]
fn pack_moves<'py>(
    py: Python<'py>,
    slots: PyReadonlyArray1<'py, i64>,
    amounts: PyReadonlyArray1<'py, i64>,
) -> PyResult<Bound<'py, PyBytes>> {
    let slots = slots.as_slice().map_err(|_| not_contiguous())?;
    let amounts = amounts.as_slice().map_err(|_| not_contiguous())?;
    Ok(PyBytes::new(py, &py.detach(|| moves::pack(slots, amounts))?))
}

/// totals += what was packed, wrapping.
#[pyfunction]
fn add_moves(py: Python<'_>, mut totals: PyReadwriteArray1<'_, i64>, packed: &[u8]) -> PyResult<()> {
    let totals = totals.as_slice_mut().map_err(|_| not_contiguous())?;
    Ok(py.detach(|| moves::add(totals, packed))?)
}

/// counts + floor(numerators / 2^shift + 1/2)
#[pyfunction]
fn release<'py>(
    py: Python<'py>,
    counts: PyReadonlyArray1<'py, i64>,
    numerators: PyReadonlyArray1<'py, i64>,
    shift: u32,
) -> PyResult<Bound<'py, PyArray1<i64>>> {
    let counts = counts.as_slice().map_err(|_| not_contiguous())?;
    let numerators = numerators.as_slice().map_err(|_| not_contiguous())?;
    if counts.len() != numerators.len() || shift > 62 {
        return Err(PyValueError::new_err(
            "counts and numerators must be of one length, and shift at most 62",
        ));
    }
    let mut out = vec![0; counts.len()];
    py.detach(|| counters::release(counts, numerators, shift, &mut out));
    Ok(out.into_pyarray(py))
}

/// At each place of a grid the product of 1 / (1 + (s u)^2) over some scales s.
#[pyfunction]
fn characteristic<'py>(
    py: Python<'py>,
    scales: PyReadonlyArray1<'py, f64>,
    grid: PyReadonlyArray1<'py, f64>,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let scales = scales.as_slice().map_err(|_| not_contiguous())?;
    let grid = grid.as_slice().map_err(|_| not_contiguous())?;
    Ok(py.detach(|| counters::characteristic(scales, grid)).into_pyarray(py))
}

/// One path component, encoded: a text.
#[pyfunction]
fn encode_text<'py>(py: Python<'py>, text: &str) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &prf::encode_text(text))
}

/// One path component, encoded: a whole number.
#[pyfunction]
fn encode_integer(py: Python<'_>, number: i128) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &prf::encode_integer(number))
}

/// One path component, encoded: bytes.
#[pyfunction]
fn encode_bytes<'py>(py: Python<'py>, bytes: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &prf::encode_bytes(bytes))
}

type Masses = Vec<(i32, u128)>;

/// The tables a draw is made of, as (multiplier, [(value, mass in 2^-128)]), and the chance of zero in 2^-127.
#[pyfunction]
fn sampler_tables(
    name: &str,
    numerator: u128,
    denominator: u128,
) -> PyResult<(Vec<(i64, Masses)>, Option<u128>)> {
    let sampler = Sampler::of(distribution(name, numerator, denominator)?)?;
    let parts = sampler.parts().iter().map(|part| (part.multiplier, part.table.masses())).collect();
    Ok((parts, sampler.zero()))
}

/// The size no draw exceeds.
#[pyfunction]
fn sampler_bound(name: &str, numerator: u128, denominator: u128) -> PyResult<i64> {
    Ok(distribution(name, numerator, denominator)?.bound()?)
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Root>()?;
    module.add_class::<PySlotTable>()?;
    at_rest::register(module)?;
    json_lines::register(module)?;
    monitors::register(module)?;
    sketches::register(module)?;
    texts::register(module)?;
    users::register(module)?;
    module.add_function(wrap_pyfunction!(add_scaled, module)?)?;
    module.add_function(wrap_pyfunction!(characteristic, module)?)?;
    module.add_function(wrap_pyfunction!(add_moves, module)?)?;
    module.add_function(wrap_pyfunction!(pack_moves, module)?)?;
    module.add_function(wrap_pyfunction!(release, module)?)?;
    module.add_function(wrap_pyfunction!(encode_text, module)?)?;
    module.add_function(wrap_pyfunction!(encode_integer, module)?)?;
    module.add_function(wrap_pyfunction!(encode_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(sampler_tables, module)?)?;
    module.add_function(wrap_pyfunction!(sampler_bound, module)?)?;
    Ok(())
}
