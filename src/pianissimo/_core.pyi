from typing import Any, final

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Root",
    "SlotTable",
    "add_scaled",
    "encode_bytes",
    "encode_integer",
    "encode_text",
    "release",
    "sampler_bound",
    "sampler_tables",
]

_Integers = NDArray[np.signedinteger[Any]]

@final
class Root:
    def __new__(cls, secret: bytes) -> Root: ...
    def draw(
        self,
        name: str,
        path: bytes,
        numerator: int,
        denominator: int,
        keys: NDArray[np.uint64],
        out: _Integers,
    ) -> None: ...
    def bits(self, path: bytes, keys: NDArray[np.uint64]) -> NDArray[np.uint64]: ...
    def label_keys(self, path: bytes, text: bytes, lengths: NDArray[np.uint32]) -> NDArray[np.uint64]: ...

@final
class SlotTable:
    def __new__(cls) -> SlotTable: ...
    def __len__(self) -> int: ...
    def find(self, names: NDArray[np.uint64]) -> NDArray[np.int64]: ...
    def find_or_add(self, names: NDArray[np.uint64]) -> NDArray[np.int64]: ...
    def names(self, start: int) -> NDArray[np.uint64]: ...

def add_scaled(sums: NDArray[np.int64], weight: int, values: _Integers) -> None: ...
def encode_bytes(bytes: bytes) -> bytes: ...  # noqa: A002
def encode_integer(number: int) -> bytes: ...
def encode_text(text: str) -> bytes: ...
def release(counts: NDArray[np.int64], numerators: NDArray[np.int64], shift: int) -> NDArray[np.int64]: ...
def sampler_bound(name: str, numerator: int, denominator: int) -> int: ...
def sampler_tables(
    name: str, numerator: int, denominator: int
) -> tuple[list[tuple[int, list[tuple[int, int]]]], int | None]: ...
