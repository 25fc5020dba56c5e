"""What a parameter object is: a slug, a version and its fields. Never its `repr`, and never the name of its class.

A stream that runs for a year is opened by many versions of this library. What it was begun with (queries, mechanisms,
noise plans) is stored as plain data. Each kind is named by a slug, which stays when a class is renamed or moved. A
field is left out where it has its default, so a later version may add fields whose default keeps the old behaviour,
and the digest of what was stored before stays the same. Where the meaning of a field or a default changes, the kind
gets the next version and an `upgrade` from the versions before. `tests/identities.json` pins all kinds.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from fractions import Fraction
from typing import Any, TypeVar, cast

import numpy as np

from pianissimo.errors import ParameterError, StateError

Kind = TypeVar("Kind", bound=type)
Plain = Any
"""What JSON can hold: None, booleans, whole numbers, floating-point numbers, texts, and lists and dicts of these."""

Upgrade = Callable[[int, dict[str, Any]], dict[str, Any]]
"""From an older version and its fields to the fields of the present one."""

_DIGEST_BYTES = 16
_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class _Identity:
    slug: str
    version: int
    kind: type
    upgrade: Upgrade | None

    @property
    def text(self) -> str:
        return f"{self.slug}/{self.version}"


_BY_SLUG: dict[str, _Identity] = {}
_BY_KIND: dict[type, _Identity] = {}


def identified(slug: str, version: int = 1, *, upgrade: Upgrade | None = None) -> Callable[[Kind], Kind]:
    """Give a dataclass, or an enumeration, its lasting name."""

    def register(kind: Kind) -> Kind:
        known = _BY_SLUG.get(slug)
        if known is not None and (known.kind.__module__, known.kind.__qualname__) != (
            kind.__module__,
            kind.__qualname__,
        ):
            raise ParameterError(f"a slug must name one kind, got {slug!r} for two")
        _BY_SLUG[slug] = _BY_KIND[kind] = _Identity(slug, version, kind, upgrade)
        return kind

    return register


def to_plain(value: object) -> Plain:
    """A parameter object as plain data that name its kinds by slugs."""
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return to_plain(value.item())
    if isinstance(value, Fraction):
        return {"fraction": str(value)}
    if isinstance(value, timedelta):
        return {"microseconds": value // _MICROSECOND}
    if isinstance(value, datetime):
        return {"moment": value.isoformat()}
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    if isinstance(value, tuple | list):
        return {"tuple": [to_plain(each) for each in value]}
    if isinstance(value, type):
        return {"kind": _identity_of(value).text}
    identity = _identity_of(type(value))
    if isinstance(value, Enum):
        return {"is": identity.text, "value": value.value}
    own = getattr(value, "identity_fields", None)
    content = own() if own is not None else _changed_fields(value)
    return {"is": identity.text} | {name: to_plain(each) for name, each in content.items()}


def from_plain(plain: Plain) -> Any:
    """The object that `to_plain` wrote down, also by an earlier version."""
    if not isinstance(plain, dict):
        return plain
    try:
        if "is" in plain:
            return _made(plain)
        ((name, content),) = plain.items()
        return _READERS[name](content)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise StateError(
            "what is stored of a stream must be of kinds that this version knows, got others; "
            "open it with the version that wrote it, or a later one"
        ) from None


def digest(value: object) -> bytes:
    """A short name for all that an object is."""
    return digest_of_plain(to_plain(value))


def digest_of_plain(plain: Plain) -> bytes:
    """The same, of what is stored."""
    text = json.dumps(plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES, person=b"pianissimo-ident").digest()


def _identity_of(kind: type) -> _Identity:
    identity = _BY_KIND.get(kind)
    if identity is None:
        raise ParameterError(f"what is stored must have an identity, got a {kind.__name__} without; see identity.py")
    return identity


def _own_fields(kind: type) -> list[Field[Any]]:
    return [each for each in fields(cast(Any, kind)) if each.init] if is_dataclass(kind) else []


def _changed_fields(value: object) -> dict[str, object]:
    found = {each.name: (each, getattr(value, each.name)) for each in _own_fields(type(value))}
    return {name: content for name, (field, content) in found.items() if not _is_default(field, content)}


def _is_default(field: Field[Any], content: object) -> bool:
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    if default is MISSING or type(default) is not type(content):
        return False
    return default is content or bool(default == content)


def _made(plain: dict[str, Plain]) -> Any:
    slug, _, version = plain["is"].rpartition("/")
    identity = _BY_SLUG[slug]
    content = {name: from_plain(each) for name, each in plain.items() if name != "is"}
    if int(version) != identity.version:
        if not (identity.upgrade is not None and int(version) < identity.version):
            raise KeyError(slug)
        content = identity.upgrade(int(version), content)
    if issubclass(identity.kind, Enum):
        return identity.kind(content["value"])
    return identity.kind(**content)


_READERS: dict[str, Callable[[Any], Any]] = {
    "fraction": Fraction,
    "microseconds": lambda content: content * _MICROSECOND,
    "moment": datetime.fromisoformat,
    "bytes": bytes.fromhex,
    "tuple": lambda content: tuple(from_plain(each) for each in content),
    "kind": lambda content: _BY_SLUG[content.rpartition("/")[0]].kind,
}
