//! Users for Python: names, units and sets of names.

use numpy::{IntoPyArray, PyArray1, PyArray2, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;

use super::{contiguous, name_array, names_of, not_contiguous};
use crate::pairs::{self, PairTable, UserRows};
use crate::users::{self, Ids, NameSet, Namer, UserTable, Wanted};

fn key_of(key: &[u8]) -> PyResult<&[u8; 32]> {
    key.try_into().map_err(|_| PyValueError::new_err("a key must have 32 bytes"))
}

fn wanted_of(wanted: &str) -> PyResult<Wanted> {
    match wanted {
        "nothing" => Ok(Wanted::Nothing),
        "before" => Ok(Wanted::Before),
        "slot" => Ok(Wanted::Slot),
        _ => Err(PyValueError::new_err("wanted must be 'nothing', 'before' or 'slot'")),
    }
}

fn texts_of<'a>(text: &'a [u8], lengths: &'a PyReadonlyArray1<'_, u32>) -> PyResult<Ids<'a>> {
    let lengths = lengths.as_slice().map_err(|_| not_contiguous())?;
    if lengths.iter().map(|&length| length as usize).sum::<usize>() != text.len() {
        return Err(PyValueError::new_err("lengths must cut the whole text"));
    }
    Ok(Ids::Texts { text, lengths })
}

fn named<'py>(py: Python<'py>, namer: &Namer, ids: &Ids<'_>) -> Bound<'py, PyArray2<u64>> {
    let all = py.detach(|| {
        let mut all = Vec::with_capacity(ids.len());
        namer.for_each_block(ids, |_, block| all.extend_from_slice(block));
        all
    });
    name_array(py, &all)
}

/// From ids to keyed names.
#[pyclass(frozen, name = "Namer", module = "pianissimo._core")]
struct PyNamer(Namer);

#[pymethods]
impl PyNamer {
    #[new]
    fn new(key: &[u8]) -> PyResult<Self> {
        Ok(PyNamer(Namer::new(key_of(key)?)))
    }

    /// The names of whole numbers, as rows of (low, high).
    fn numbers<'py>(
        &self,
        py: Python<'py>,
        numbers: PyReadonlyArray1<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray2<u64>>> {
        Ok(named(py, &self.0, &Ids::Numbers(contiguous(numbers.as_slice())?)))
    }

    /// The names of texts, which `lengths` cut, as rows of (low, high).
    fn texts<'py>(
        &self,
        py: Python<'py>,
        text: &[u8],
        lengths: PyReadonlyArray1<'py, u32>,
    ) -> PyResult<Bound<'py, PyArray2<u64>>> {
        Ok(named(py, &self.0, &texts_of(text, &lengths)?))
    }
}

/// A set of names.
#[pyclass(name = "NameSet", module = "pianissimo._core")]
#[derive(Default)]
struct PyNameSet(NameSet);

#[pymethods]
impl PyNameSet {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// The slot of each name; new names get the next free ones.
    fn add<'py>(
        &mut self,
        py: Python<'py>,
        names: PyReadonlyArray2<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray1<u32>>> {
        let names = names_of(&names)?;
        Ok(py.detach(|| self.0.add(&names))?.into_pyarray(py))
    }

    /// Whether each name is there for the first time.
    fn add_first<'py>(
        &mut self,
        py: Python<'py>,
        names: PyReadonlyArray2<'py, u64>,
    ) -> PyResult<Bound<'py, PyArray1<bool>>> {
        let names = names_of(&names)?;
        Ok(py.detach(|| self.0.add_first(&names))?.into_pyarray(py))
    }

    /// All names, as rows of (low, high).
    fn names<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray2<u64>> {
        name_array(py, &self.0.names())
    }

    /// Forgets all names.
    fn clear(&mut self) {
        self.0.clear();
    }
}

type StandingArrays<'py> = (Bound<'py, PyArray1<u32>>, Bound<'py, PyArray2<u64>>);

/// The units of every user under one cap.
#[pyclass(name = "UserTable", module = "pianissimo._core")]
struct PyUserTable(UserTable);

impl PyUserTable {
    fn added<'py>(
        &mut self,
        py: Python<'py>,
        ids: &Ids<'_>,
        weights: Option<PyReadonlyArray1<'py, u64>>,
        wanted: &str,
    ) -> PyResult<Option<Bound<'py, PyArray1<u64>>>> {
        let wanted = wanted_of(wanted)?;
        let weights = weights.as_ref().map(|weights| contiguous(weights.as_slice())).transpose()?;
        let rows = py.detach(|| self.0.add(ids, weights, wanted))?;
        Ok((wanted != Wanted::Nothing).then(|| rows.into_pyarray(py)))
    }

    fn standing<'py>(&self, py: Python<'py>, ids: &Ids<'_>, most: u64) -> StandingArrays<'py> {
        let (slots, new) = py.detach(|| self.0.standing(ids, most));
        (slots.into_pyarray(py), name_array(py, &new))
    }
}

#[pymethods]
impl PyUserTable {
    #[new]
    fn new(key: &[u8], cap: u64) -> PyResult<Self> {
        Ok(PyUserTable(UserTable::new(key_of(key)?, cap)))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Counts rows of users that have names already; gives for each what is wanted.
    fn add_names<'py>(
        &mut self,
        py: Python<'py>,
        names: PyReadonlyArray2<'py, u64>,
        weights: Option<PyReadonlyArray1<'py, u64>>,
        wanted: &str,
    ) -> PyResult<Option<Bound<'py, PyArray1<u64>>>> {
        let names = names_of(&names)?;
        self.added(py, &Ids::Names(&names), weights, wanted)
    }

    /// How much of each row its user may still give within the cap.
    fn accept<'py>(
        &mut self,
        py: Python<'py>,
        slots: PyReadonlyArray1<'py, u64>,
        weights: Option<PyReadonlyArray1<'py, u64>>,
    ) -> PyResult<Bound<'py, PyArray1<u64>>> {
        let slots = contiguous(slots.as_slice())?;
        let weights = weights.as_ref().map(|weights| contiguous(weights.as_slice())).transpose()?;
        Ok(py.detach(|| self.0.accept(slots, weights))?.into_pyarray(py))
    }

    /// The slot of each number's user, 2^32 - 1 where she has none, 2^32 - 2 where she has `most` units; and the names of
    /// those without a slot.
    fn standing_numbers<'py>(
        &self,
        py: Python<'py>,
        numbers: PyReadonlyArray1<'py, u64>,
        most: u64,
    ) -> PyResult<StandingArrays<'py>> {
        Ok(self.standing(py, &Ids::Numbers(contiguous(numbers.as_slice())?), most))
    }

    /// The same of texts, which `lengths` cut.
    fn standing_texts<'py>(
        &self,
        py: Python<'py>,
        text: &[u8],
        lengths: PyReadonlyArray1<'py, u32>,
        most: u64,
    ) -> PyResult<StandingArrays<'py>> {
        Ok(self.standing(py, &texts_of(text, &lengths)?, most))
    }

    /// The same of names.
    fn standing_names<'py>(
        &self,
        py: Python<'py>,
        names: PyReadonlyArray2<'py, u64>,
        most: u64,
    ) -> PyResult<StandingArrays<'py>> {
        let names = names_of(&names)?;
        Ok(self.standing(py, &Ids::Names(&names), most))
    }

    /// Another cap.
    fn set_cap(&mut self, py: Python<'_>, cap: u64) {
        py.detach(|| self.0.set_cap(cap));
    }

    /// How many users are above the cap.
    fn over(&self) -> u64 {
        self.0.over()
    }

    /// The units within the cap.
    fn kept(&self) -> u128 {
        self.0.kept()
    }

    /// Bytes of all tables.
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Forgets all users.
    fn clear(&mut self) {
        self.0.clear();
    }

    /// Names, units and accepted units in slot order.
    fn content<'py>(
        &self,
        py: Python<'py>,
    ) -> (Bound<'py, PyArray2<u64>>, Bound<'py, PyArray1<u64>>, Bound<'py, PyArray1<u64>>) {
        let (names, units, accepted) = self.0.content();
        (name_array(py, &names), units.into_pyarray(py), accepted.into_pyarray(py))
    }

    /// Takes over what `content` gave.
    fn restore(
        &mut self,
        py: Python<'_>,
        names: PyReadonlyArray2<'_, u64>,
        units: PyReadonlyArray1<'_, u64>,
        accepted: PyReadonlyArray1<'_, u64>,
    ) -> PyResult<()> {
        let names = names_of(&names)?;
        let units = contiguous(units.as_slice())?;
        let accepted =
            accepted.as_slice().map_err(|_| PyTypeError::new_err("an array must be contiguous"))?;
        Ok(py.detach(|| self.0.restore(&names, units, accepted))?)
    }
}

/// The units of each pair of a user and a label.
#[pyclass(name = "PairTable", module = "pianissimo._core")]
struct PyPairTable(PairTable);

#[pymethods]
impl PyPairTable {
    #[new]
    fn new(key: &[u8], limit: u32) -> PyResult<Self> {
        Ok(PyPairTable(PairTable::new(key_of(key)?, limit)?))
    }

    fn __len__(&self) -> usize {
        self.0.len()
    }

    /// Bytes of all cells.
    fn bytes(&self) -> usize {
        self.0.bytes()
    }

    /// Forgets all pairs.
    fn clear(&mut self) {
        self.0.clear();
    }

    /// The pairs of the units that were taken since this was last asked, as a user's slot above a label's.
    fn take_fresh<'py>(&mut self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        self.0.take_fresh().into_pyarray(py)
    }

    /// All pairs in order, each as often as it has units.
    fn units<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<u64>> {
        py.detach(|| self.0.units()).into_pyarray(py)
    }

    /// Takes units of these pairs again, as `take_fresh` gave them.
    fn restore(&mut self, py: Python<'_>, pairs: PyReadonlyArray1<'_, u64>) -> PyResult<()> {
        let pairs = contiguous(pairs.as_slice())?;
        Ok(py.detach(|| self.0.restore(pairs))?)
    }
}

fn short<'a>(array: &'a PyReadonlyArray1<'_, u32>) -> PyResult<&'a [u32]> {
    array.as_slice().map_err(|_| not_contiguous())
}

type RowArrays<'py> = (
    PyReadonlyArray1<'py, u32>,
    PyReadonlyArray2<'py, u64>,
    PyReadonlyArray1<'py, u32>,
    PyReadonlyArray1<'py, u32>,
);

/// For each row how many units its user had before it, 2^64 - 1 where it is none.
#[pyfunction]
fn add_user_rows<'py>(
    py: Python<'py>,
    users: &Bound<'py, PyUserTable>,
    pairs: Option<&Bound<'py, PyPairTable>>,
    rows: RowArrays<'py>,
    most: u64,
) -> PyResult<Bound<'py, PyArray1<u64>>> {
    let (mut users, mut pairs) = (users.borrow_mut(), pairs.map(|pairs| pairs.borrow_mut()));
    let (slots, names, counts, labels) =
        (short(&rows.0)?, names_of(&rows.1)?, short(&rows.2)?, short(&rows.3)?);
    let (users, pairs) = (&mut users.0, pairs.as_mut().map(|pairs| &mut pairs.0));
    let rows = UserRows { slots, names: &names, counts, labels };
    Ok(py.detach(|| pairs::add_rows(users, pairs, &rows, most))?.into_pyarray(py))
}

type UnitArrays<'py> = (
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray2<u64>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u32>>,
);

/// Rows by their users, of whom `standing` and `names` tell, without those that can be no units: each slot once, each name of a user
/// without a slot, their rows, which they are, the different labels as they appear in them, and for each row the number
/// of its label.
#[pyfunction]
fn group_units<'py>(
    py: Python<'py>,
    standing: PyReadonlyArray1<'py, u32>,
    names: PyReadonlyArray2<'py, u64>,
    labels: PyReadonlyArray1<'py, u32>,
    limit: u32,
    most: u64,
) -> PyResult<UnitArrays<'py>> {
    let (standing, names, labels) = (short(&standing)?, names_of(&names)?, short(&labels)?);
    let groups = py.detach(|| pairs::group_units(standing, &names, labels, limit, most))?;
    Ok((
        groups.slots.into_pyarray(py),
        name_array(py, &groups.names),
        groups.counts.into_pyarray(py),
        groups.order.into_pyarray(py),
        groups.labels.into_pyarray(py),
        groups.numbers.into_pyarray(py),
    ))
}

type GroupArrays<'py> = (
    Bound<'py, PyArray2<u64>>,
    Bound<'py, PyArray1<u32>>,
    Bound<'py, PyArray1<u64>>,
    Bound<'py, PyArray1<u32>>,
);

/// Rows by the names of their users: each name once in order, its rows, its units, and the rows name after name.
#[pyfunction]
#[pyo3(signature = (names, weights=None))]
fn group_names<'py>(
    py: Python<'py>,
    names: PyReadonlyArray2<'py, u64>,
    weights: Option<PyReadonlyArray1<'py, u64>>,
) -> PyResult<GroupArrays<'py>> {
    let names = names_of(&names)?;
    let weights = weights.as_ref().map(|weights| contiguous(weights.as_slice())).transpose()?;
    let groups = py.detach(|| users::group(&names, weights))?;
    Ok((
        name_array(py, &groups.names),
        groups.counts.into_pyarray(py),
        groups.units.into_pyarray(py),
        groups.order.into_pyarray(py),
    ))
}

/// Adds the classes and functions of this file to the module.
pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(group_names, module)?)?;
    module.add_function(wrap_pyfunction!(group_units, module)?)?;
    module.add_function(wrap_pyfunction!(add_user_rows, module)?)?;
    module.add_class::<PyNamer>()?;
    module.add_class::<PyPairTable>()?;
    module.add_class::<PyNameSet>()?;
    module.add_class::<PyUserTable>()
}
