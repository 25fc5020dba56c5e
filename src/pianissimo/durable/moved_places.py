"""Where sources were read to, stored by what changed: a tick stores what moved, and not every file ever followed.

A place is plain data; dicts in it are compared key by key. Short ones are stored whole. Of a long one a tick stores how
it differs from the place of an earlier tick, its base, which is stored whole in that tick's seal and in the witness.
Differences are all from the base, so that two rows tell a place; once one is about as long as the root of the whole
allows, the next tick is a base again. So n files of which one moves at a time cost a tick about the root of n.
"""

from collections.abc import Callable
from math import isqrt
from typing import Any

from pianissimo import codec
from pianissimo.errors import DamageError, ParameterError

_MOVED = b"\0"
"""How the bytes of a difference begin; those of a whole place begin as MessagePack does."""

_SHORT = 1024
_A_FILE = 256
"""About twice the bytes of what is stored of one file."""

Bases = Callable[[int], bytes | None]
"""The bytes of the place of a tick of the same life; None if they are not known."""


def packed_place(place: Any) -> bytes:
    """A whole place as it is stored."""
    try:
        return b"" if place is None else codec.pack("positions", 1, place)
    except (TypeError, ValueError, OverflowError):
        raise ParameterError(
            "position must be plain data (numbers, texts, and lists and dicts of these), got something else"
        ) from None


def shortened(whole: bytes, place: Any, tick: int, base: Any) -> bytes:
    """The shorter one: a place as it is, or how it differs from that of an earlier tick."""
    if len(whole) <= _SHORT:
        return whole
    moved = _MOVED + codec.pack("moved positions", 1, [tick, _difference(base, place)])
    return moved if len(moved) <= max(_SHORT, isqrt(_A_FILE * len(whole))) else whole


def base_of(stored: bytes) -> int | None:
    """The tick that a stored place differs from; None if it is stored whole."""
    return int(_told(stored)[0]) if stored.startswith(_MOVED) else None


def whole_place(stored: bytes, bases: Bases) -> bytes:
    """A stored place as a whole one."""
    if not stored.startswith(_MOVED):
        return stored
    tick, difference = _told(stored)
    base = bases(tick)
    if base is None or base.startswith(_MOVED):
        raise DamageError(f"where tick {tick} was read to must be known, got nothing; restore a backup")
    return packed_place(_changed(unpacked_place(base), difference))


def unpacked_place(whole: bytes) -> Any:
    """The plain data of a whole place; None if there is none."""
    return codec.unpack("positions", 1, whole) if whole else None


def _told(stored: bytes) -> Any:
    return codec.unpack("moved positions", 1, stored.removeprefix(_MOVED))


def _difference(before: Any, now: Any) -> Any:
    """What `_changed` needs: in brackets the value itself; or what each key has now, and which keys are gone."""
    if not (isinstance(before, dict) and isinstance(now, dict)):
        return [now]
    moved = {key: value for key, value in now.items() if key not in before or before[key] != value}
    changed = {key: _difference(before.get(key), value) for key, value in moved.items()}
    return {"changed": changed, "gone": [key for key in before if key not in now]}


def _changed(before: Any, difference: Any) -> Any:
    if isinstance(difference, list):
        return difference[0]
    kept = {key: value for key, value in before.items() if key not in difference["gone"]}
    return kept | {key: _changed(kept.get(key), each) for key, each in difference["changed"].items()}
