//! Race monitors for Python.

use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::{name_array, names_of, not_contiguous};
use crate::labels::NO_SLOT;
use crate::monitors::{ChargeBook, RaceTable};

/// The chances of race noise, and decisions by them.
#[pyclass(frozen, name = "RaceTable", module = "pianissimo._core")]
struct PyRaceTable(RaceTable);

#[pymethods]
impl PyRaceTable {
    #[new]
    fn new(py: Python<'_>, numerator: u128, denominator: u128) -> PyResult<Self> {
        Ok(PyRaceTable(py.detach(|| RaceTable::new(numerator, denominator))?))
    }

    /// P(Z >= d) in units of 2^-128, as the first d and the entries from it on.
    fn chances(&self) -> (i64, Vec<u128>) {
        (self.0.first(), self.0.chances().to_vec())
    }

    /// Whether weight + Z >= threshold, test by test.
    fn passing<'py>(
        &self,
        py: Python<'py>,
        weights: PyReadonlyArray1<'py, i64>,
        thresholds: PyReadonlyArray1<'py, i64>,
        bits: PyReadonlyArray2<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let weights = weights.as_slice().map_err(|_| not_contiguous())?;
        let thresholds = thresholds.as_slice().map_err(|_| not_contiguous())?;
        let bits = names_of(&bits)?;
        if weights.len() != bits.len() || !(thresholds.len() == 1 || thresholds.len() == bits.len()) {
            return Err(PyValueError::new_err("weights, thresholds and bits must be of one length"));
        }
        let decided: Vec<bool> = py.detach(|| {
            let tests = bits.iter().zip(weights).zip(thresholds.iter().cycle());
            tests
                .map(|((&bits, weight), threshold)| self.0.reaches(bits, threshold.saturating_sub(*weight)))
                .collect()
        });
        Ok(decided.into_pyarray(py))
    }

    /// Z for each row of bits.
    fn values<'py>(
        &self,
        py: Python<'py>,
        bits: PyReadonlyArray2<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray1<i64>>> {
        let bits = names_of(&bits)?;
        let values: Vec<i64> = py.detach(|| bits.iter().map(|&each| self.0.value(each)).collect());
        Ok(values.into_pyarray(py))
    }
}

/// Lifetime charges of users, and the holdings of the open tick.
#[pyclass(name = "ChargeBook", module = "pianissimo._core")]
struct PyChargeBook(ChargeBook);

type Content<'py> = (
    Bound<'py, PyArray2<u64>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray2<u64>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
);

#[pymethods]
impl PyChargeBook {
    #[new]
    fn new(limit: u16, per_tick: u16) -> Self {
        PyChargeBook(ChargeBook::new(limit, per_tick))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Notes which of these users holds which key, row by row.
    fn add(
        &mut self,
        py: Python<'_>,
        users: PyReadonlyArray2<'_, u64>,
        numbers: PyReadonlyArray1<'_, u32>,
        keys: PyReadonlyArray1<'_, i64>,
    ) -> PyResult<()> {
        let users = names_of(&users)?;
        let numbers = numbers.as_slice().map_err(|_| not_contiguous())?;
        let keys = keys.as_slice().map_err(|_| not_contiguous())?;
        let in_range = |&key: &i64| key == NO_SLOT || u32::try_from(key).is_ok();
        if numbers.len() != keys.len() || !keys.iter().all(in_range) {
            return Err(PyValueError::new_err("each user must come with the slot of a key"));
        }
        Ok(py.detach(|| self.0.add(&users, numbers, keys))?)
    }

    /// How many active users hold each key.
    fn weights<'py>(&self, py: Python<'py>, keys: usize) -> PyResult<Bound<'py, PyArray1<i64>>> {
        Ok(py.detach(|| self.0.weights(keys))?.into_pyarray(py))
    }

    /// Charges the holders of reported keys and opens the next tick.
    fn close(&mut self, py: Python<'_>, reported: PyReadonlyArray1<'_, bool>) -> PyResult<()> {
        let reported = reported.as_slice().map_err(|_| not_contiguous())?;
        Ok(py.detach(|| self.0.close(reported))?)
    }

    /// Names and charges of those ever charged; names, and holders and keys, of the open tick.
    fn content<'py>(&self, py: Python<'py>) -> Content<'py> {
        let (charged, counts, users, holdings) = self.0.content();
        let counts: Vec<u32> = counts.iter().map(|&count| count.into()).collect();
        let (holders, keys): (Vec<u32>, Vec<u32>) = holdings.iter().copied().unzip();
        (
            name_array(py, charged),
            counts.into_pyarray(py),
            name_array(py, users),
            holders.into_pyarray(py),
            keys.into_pyarray(py),
        )
    }

    /// Takes over a stored content.
    fn restore(
        &mut self,
        charged: PyReadonlyArray2<'_, u64>,
        counts: PyReadonlyArray1<'_, u32>,
        users: PyReadonlyArray2<'_, u64>,
        holders: PyReadonlyArray1<'_, u32>,
        keys: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<()> {
        let counts = counts.as_slice().map_err(|_| not_contiguous())?;
        let counts: Result<Vec<u16>, _> = counts.iter().map(|&count| u16::try_from(count)).collect();
        let counts = counts.map_err(|_| PyValueError::new_err("charges must be below 2^16"))?;
        let holders = holders.as_slice().map_err(|_| not_contiguous())?;
        let keys = keys.as_slice().map_err(|_| not_contiguous())?;
        if holders.len() != keys.len() {
            return Err(PyValueError::new_err("each holder must come with the slot of a key"));
        }
        let holdings: Vec<(u32, u32)> = holders.iter().copied().zip(keys.iter().copied()).collect();
        Ok(self.0.restore(&names_of(&charged)?, &counts, &names_of(&users)?, &holdings)?)
    }
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PyRaceTable>()?;
    module.add_class::<PyChargeBook>()
}
