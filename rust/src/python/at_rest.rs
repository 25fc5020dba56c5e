//! Keys for what is stored, and its encryption.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::at_rest::{self, NONCE_BYTES};

fn of_size<const SIZE: usize>(name: &str, bytes: &[u8]) -> PyResult<[u8; SIZE]> {
    bytes.try_into().map_err(|_| PyValueError::new_err(format!("{name} must have {SIZE} bytes")))
}

/// The key of 32 bytes that follows from a secret for one purpose: HKDF with SHA-256.
#[pyfunction]
fn derived_key<'py>(py: Python<'py>, secret: &[u8], salt: &[u8], purpose: &[u8]) -> Bound<'py, PyBytes> {
    PyBytes::new(py, &at_rest::derived_key(secret, salt, purpose))
}

/// AES-256-GCM with its key.
#[pyclass(frozen, module = "pianissimo._core")]
struct Vault(at_rest::Vault);

#[pymethods]
impl Vault {
    #[new]
    fn new(key: &[u8]) -> PyResult<Self> {
        Ok(Vault(at_rest::Vault::new(&of_size("a key", key)?)))
    }

    /// The content, encrypted for a place.
    fn close<'py>(
        &self,
        py: Python<'py>,
        nonce: &[u8],
        content: &[u8],
        place: &[u8],
    ) -> PyResult<Bound<'py, PyBytes>> {
        let nonce = of_size::<NONCE_BYTES>("a nonce", nonce)?;
        let closed = py.detach(|| self.0.close(&nonce, content, place))?;
        Ok(PyBytes::new(py, &closed))
    }

    /// What was encrypted for a place, or None.
    fn open<'py>(
        &self,
        py: Python<'py>,
        nonce: &[u8],
        content: &[u8],
        place: &[u8],
    ) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let nonce = of_size::<NONCE_BYTES>("a nonce", nonce)?;
        Ok(py.detach(|| self.0.open(&nonce, content, place)).map(|opened| PyBytes::new(py, &opened)))
    }
}

pub(super) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Vault>()?;
    module.add_function(wrap_pyfunction!(derived_key, module)?)
}
