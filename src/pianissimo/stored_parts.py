"""What is stored of a state: its fields as plain data, without caches, and without what is logged tick by tick."""

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any, Protocol, cast, runtime_checkable

from pianissimo import codec
from pianissimo.errors import StateError

TRANSIENT = {"transient": True}
"""Metadata of a state's field that is not stored: a cache that the state's other fields and the noise make anew."""


@runtime_checkable
class Storable(Protocol):
    """A part of a state that is more than plain data in memory but plain data when stored."""

    def to_plain(self) -> codec.Plain:
        """Its content as plain data."""

    def take_plain(self, content: codec.Plain) -> None:
        """Take over a stored content; called on a fresh part."""


@runtime_checkable
class Logged(Protocol):
    """A part of a state that grows by one entry a tick and keeps the last ones: entries are stored once each."""

    @property
    def log_length(self) -> int:
        """How many of its last entries make it whole."""

    def to_plain(self) -> codec.Plain:
        """Its content without the entries."""

    def log(self) -> codec.Plain:
        """The last entry."""

    def take_logged(self, content: codec.Plain, logs: Sequence[codec.Plain]) -> None:
        """Take over a stored content and the last entries, the oldest first; called on a fresh part."""


@runtime_checkable
class Lasting(Logged, Protocol):
    """One that keeps something of a few ticks for longer than its entries: it is stored once as well."""

    def checkpoint(self) -> codec.Plain:
        """What is kept for long of the last entry; None where nothing is. `take_logged` takes it among the entries."""

    def lasting(self) -> set[int]:
        """After how many releases there was something that is still needed."""

    def missing(self) -> set[int]:
        """After how many releases there should be something, and is not."""


@runtime_checkable
class WhollyLogged(Logged, Protocol):
    """One whose entries can be told as one, where it is stored without their help."""

    def whole_log(self) -> codec.Plain:
        """All entries as one, which `take_logged` takes for them; None where there are none."""


def is_shaped(part: object, shape: type) -> bool:
    """Whether something has the shape of a protocol: as `isinstance` tells it, but found out once a class."""
    place = (type(part), shape)
    if place not in _shapes:
        _shapes[place] = all(hasattr(type(part), name) for name in dir(shape) if not name.startswith("_"))
    return _shapes[place]


_shapes: dict[tuple[type, type], bool] = {}


def stored_parts(state: object) -> Iterator[tuple[str, Any]]:
    """The parts that are stored; one that is None is not there, as in states of before there was such a part."""
    kept = (each.name for each in fields(cast(Any, state)) if not each.metadata.get("transient"))
    return ((name, part) for name in kept if (part := getattr(state, name)) is not None)


def plain_parts(state: object) -> dict[str, codec.Plain]:
    """They as plain data, without what is logged tick by tick."""
    parts = stored_parts(state)
    shapes = (Storable, Logged)
    return {name: part.to_plain() if any(is_shaped(part, shape) for shape in shapes) else part for name, part in parts}


def checkpoint_of(parts: dict[str, Logged]) -> codec.Plain:
    """What some parts of a state keep for long of the last tick; None where nothing is."""
    found = {name: cast(Lasting, part).checkpoint() for name, part in parts.items() if is_shaped(part, Lasting)}
    return {name: content for name, content in found.items() if content is not None} or None


def whole_logs_of(parts: dict[str, Logged]) -> dict[str, codec.Plain]:
    """All that some parts of a state have logged, of each as one."""
    found = {
        name: cast(WhollyLogged, part).whole_log() for name, part in parts.items() if is_shaped(part, WhollyLogged)
    }
    return {name: content for name, content in found.items() if content is not None}


def lasting_of(parts: dict[str, Logged]) -> set[int]:
    """Of which ticks they still need it."""
    lasting = (cast(Lasting, part) for part in parts.values() if is_shaped(part, Lasting))
    return set[int]().union(*(part.lasting() for part in lasting))


def missing_of(parts: dict[str, Logged]) -> set[int]:
    """Of which ticks they should have it, and do not."""
    return set[int]().union(*(part.missing() for part in parts.values() if isinstance(part, Lasting)))


def restore(state: object, content: dict[str, codec.Plain], logs: Sequence[codec.Plain]) -> None:
    """Give a fresh state what `plain_parts` gave, and the checkpoints and last logs, the oldest first."""
    parts = dict(stored_parts(state))
    if set(content) != set(parts):
        raise StateError("a stored state must have the fields of this version, got other fields")
    for name, part in parts.items():
        if isinstance(part, Logged):
            part.take_logged(content[name], [log[name] for log in logs if name in log])
        elif isinstance(part, Storable):
            part.take_plain(content[name])
        else:
            setattr(state, name, content[name])
