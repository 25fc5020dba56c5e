"""One codec for every mechanism's state: versioned, checksummed, and strict about what it does not know.

State is plain data: numbers, texts, bytes, numpy arrays, polars text columns, lists and dicts of these. The envelope
is a magic word, the format's version, a MessagePack body and a BLAKE2b checksum. Nothing executable is ever stored.
"""

import hashlib
from typing import Any

import msgpack
import numpy as np
import polars as pl

from pianissimo.errors import StateError

Plain = Any
"""Numbers, texts, bytes, numpy arrays, polars text columns, and lists and dicts of these."""

_MAGIC = b"PIANISSIMO"
_FORMAT = 1
_CHECKSUM_BYTES = 16
_ARRAY = 1
_TEXTS = 2
_BIG_INTEGER = 3
_ARRAY_TYPES = {"<i8", "<i4", "<i2", "<u8", "<u4", "|b1", "|u1", "|i1"}


def encode(kind: str, version: int, content: Plain) -> bytes:
    """The bytes of some plain data, with what it is and in which version."""
    head = _MAGIC + bytes([_FORMAT])
    body = pack(kind, version, content)
    return head + body + _checksum(head + body)


def pack(kind: str, version: int, content: Plain) -> bytes:
    """The same without a checksum, for what is authenticated otherwise."""
    packer = msgpack.Packer(default=_pack, strict_types=True, use_bin_type=True)
    body: bytes = packer.pack({"kind": kind, "version": version, "content": content})
    return body


def decode(kind: str, version: int, stored: bytes) -> Plain:
    """The plain data in `stored`, if it is undamaged and of this kind and version."""
    begin = len(_MAGIC) + 1
    head, body, checksum = stored[:begin], stored[begin:-_CHECKSUM_BYTES], stored[-_CHECKSUM_BYTES:]
    if head[:-1] != _MAGIC or len(stored) < begin + _CHECKSUM_BYTES:
        raise StateError("a stored state must begin with its magic word, got other bytes")
    if head[-1] != _FORMAT:
        raise StateError(
            f"a stored state must be of format {_FORMAT}, got format {head[-1]}; use the version that wrote it"
        )
    if _checksum(head + body) != checksum:
        raise StateError("a stored state must match its checksum, got damaged bytes")
    return unpack(kind, version, body)


def unpack(kind: str, version: int, body: bytes) -> Plain:
    """The plain data that `pack` packed, of this kind and version."""
    try:
        envelope = msgpack.unpackb(body, ext_hook=_unpack, raw=False, strict_map_key=False)
        found = (envelope["kind"], envelope["version"])
        content = envelope["content"]
    except (ValueError, KeyError, TypeError, msgpack.exceptions.UnpackException):
        raise StateError("a stored state must be well formed, got something else") from None
    if found != (kind, version):
        raise StateError(
            f"a stored state must be of kind {kind}, version {version}, got kind {found[0]}, version {found[1]}"
        )
    return content


def narrow(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Whole numbers in the shortest type that is stored and holds them all: for what is many."""
    if not len(array):
        return array.astype(np.int8 if array.dtype.kind == "i" else np.uint8)
    low, high = int(array.min()), int(array.max())
    kinds: list[type[np.integer[Any]]] = [np.int8, np.int16, np.int32, np.int64]
    if low >= 0:
        kinds = [np.uint8, np.uint32, np.uint64] if array.dtype.kind == "u" else [np.uint8, *kinds[1:]]
    fitting = next(kind for kind in kinds if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
    return array.astype(fitting)


def _checksum(payload: bytes) -> bytes:
    return hashlib.blake2b(payload, digest_size=_CHECKSUM_BYTES, person=b"pianissimo-state").digest()


def _pack(value: object) -> object:
    if isinstance(value, np.ndarray):
        little = value.astype(value.dtype.newbyteorder("<"), copy=False)
        if little.dtype.str not in _ARRAY_TYPES:
            raise TypeError(f"arrays of {value.dtype} are not stored")
        fields = [little.dtype.str, list(little.shape), np.ascontiguousarray(little).tobytes()]
        return msgpack.ExtType(_ARRAY, msgpack.packb(fields))
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, pl.Series) and value.dtype == pl.String:
        text, lengths = join_texts(value)
        return msgpack.ExtType(_TEXTS, msgpack.packb([value.name, text, lengths.astype("<u4").tobytes()]))
    if isinstance(value, int):
        return msgpack.ExtType(_BIG_INTEGER, str(value).encode())
    raise TypeError(f"{type(value).__name__} is not plain data")


def _unpack(code: int, payload: bytes) -> object:
    if code == _ARRAY:
        dtype, shape, content = msgpack.unpackb(payload)
        if dtype not in _ARRAY_TYPES:
            raise ValueError("unknown array type")
        return np.frombuffer(bytearray(content), dtype=dtype).reshape(shape)
    if code == _TEXTS:
        name, text, lengths = msgpack.unpackb(payload)
        return split_texts(name, text, np.frombuffer(lengths, dtype="<u4"))
    if code == _BIG_INTEGER:
        return int(payload)
    raise ValueError("unknown extension")


def join_texts(texts: pl.Series) -> tuple[bytes, np.ndarray[Any, np.dtype[np.uint32]]]:
    """One text of all texts, and the length in bytes of each."""
    joined = texts.str.join("").item() if len(texts) else ""
    return joined.encode(), texts.str.len_bytes().to_numpy().astype(np.uint32)


def split_texts(name: str, text: bytes, lengths: np.ndarray[Any, np.dtype[np.uint32]]) -> pl.Series:
    """The texts that `join_texts` joined."""
    ends = np.cumsum(lengths, dtype=np.int64)
    if (int(ends[-1]) if len(ends) else 0) != len(text):
        raise ValueError("lengths must cut the whole text")
    # Views of one text, without an object for each. Refused where a cut is inside a character.
    places = pl.DataFrame({"start": ends - lengths, "length": lengths})
    try:
        return places.select(pl.lit(text).bin.slice("start", "length").cast(pl.String).alias(name)).to_series()
    except pl.exceptions.PolarsError:
        raise ValueError("texts must be valid UTF-8") from None
