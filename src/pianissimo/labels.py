"""Labels of counted things: checked, hashed with a key, and given slots in the order of their first appearance.

An event adds one to each of its distinct labels, at most `max_keys_per_event` of them. The cut looks at that event
only: the first so many in the event's own order. The order of events, and what others hold, make no difference. A row
may stand for many equal events, as a struct of `key` and `events`: it adds what these would.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date, datetime
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import _core, codec
from pianissimo.batch_memo import once_a_batch
from pianissimo.checks import is_utf8
from pianissimo.errors import InputError, ParameterError
from pianissimo.identity import identified
from pianissimo.noise.keyed import KeyedNoise, Keys, Noise
from pianissimo.text_views import count_texts, longest_text, view_chunks

LONGEST_LABEL = 256
"""A label has at most this many bytes."""

_PIECE = 65_536

_FEW = 8
"""Less than one in so many labels of a batch are few."""

MOST_LABELS = 2**32
"""No index holds more labels: slots are 32 bits."""


def shards_of(keys: Keys, shards: int, hashing: Noise | None = None) -> NDArray[np.int64]:
    """The shard of each item key, a number from 0 on, by a public hash."""
    words = (shard_hash() if hashing is None else hashing).bits(keys)[:, 1]
    return (words % np.uint64(shards)).astype(np.int64)


def shard_hash(seed: bytes = bytes(32)) -> Noise:
    """The public hash by which keys have shards."""
    return KeyedNoise(seed).at("shard")


def by_shard(keys: Keys, shards: int) -> list[tuple[int, NDArray[np.int64]]]:
    """The places of some item keys, shard by shard, each in their order; shards without any are left out."""
    numbers = shards_of(keys, shards)
    # Of 16 bits: these are put in order by counting them.
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    counts = np.bincount(numbers)
    found = np.flatnonzero(counts)
    return list(zip(found.tolist(), np.split(order, np.cumsum(counts[found])[:-1]), strict=True)) if len(found) else []


def labels_by_shard(labels: pl.Series, shards: int) -> list[tuple[int, NDArray[np.int64]]]:
    """The same of labels."""
    return by_shard(shard_hash().label_keys(*codec.join_texts(labels)), shards)


def check_label_count(count: int) -> None:
    """Refuse more labels than a promise books draws for, over all shards together."""
    if not count <= MOST_LABELS:
        raise InputError("a query must have at most 2^32 different labels, got more; count by a coarser label")


def label_text(value: object) -> str | None:
    """A label as it is counted: texts, whole numbers, "true" and "false", days as 2026-01-31; None for all else."""
    if isinstance(value, str):
        return value if is_utf8(value) else None
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, int | np.integer):
        return str(int(value))
    return value.isoformat() if isinstance(value, date) and not isinstance(value, datetime) else None


def labels_of(kind: pl.DataType) -> bool:
    """Whether the values of a column of this type are labels, each in one form."""
    return kind in (pl.String, pl.Categorical, pl.Enum, pl.Null, pl.Boolean, pl.Date) or kind.is_integer()


def listed_labels(values: Iterable[object]) -> pl.Series:
    """The labels of a list that is public; refuse what is none."""
    texts = []
    for value in values:
        texts.append(label_text(value))
        if texts[-1] is None:
            kind = "texts beyond UTF-8" if isinstance(value, str) else type(value).__name__
            raise _no_label("nulls" if value is None else kind)
    return pl.Series(texts, dtype=pl.String)


def _no_label(got: str) -> ParameterError:
    way_out = "; write texts, or whole numbers, as the column holds them" if got.lower().startswith("float") else ""
    return ParameterError(f"domain must be texts, whole numbers, booleans or dates without nulls, got {got}{way_out}")


@identified("domain")
class Domain:
    """The labels that a query knows beforehand: public, without repetition, in the order of their bytes.

    >>> Domain(["south", "north", "south"])
    Domain(2 labels, digest c148ba...)
    >>> Domain(["south", "north"]).labels.to_list()
    ['north', 'south']
    """

    def __init__(self, labels: Iterable[str | int | date] | pl.Series) -> None:
        try:
            if not isinstance(labels, pl.Series):
                labels = listed_labels(labels)
        except TypeError:
            raise ParameterError("domain must be texts, got something else") from None
        column = labels.cast(pl.String) if labels_of(labels.dtype) else labels
        if column.dtype != pl.String or column.null_count():
            raise _no_label("nulls" if column.dtype == pl.String else str(column.dtype))
        if len(column) == 0:
            raise ParameterError("domain must have at least one label, got none; leave it out for an unknown domain")
        if any_too_long(column):
            raise ParameterError(f"labels of a domain must have at most {LONGEST_LABEL} bytes, got a longer one")
        ordered = column.sort()
        repeated = ordered == ordered.shift()
        # Made from texts, so that no filtered-out label of the caller's column comes along.
        self.labels: pl.Series = detached(ordered.filter(~repeated.fill_null(value=False)).alias("key"))

    def __len__(self) -> int:
        return len(self.labels)

    @cached_property
    def digest(self) -> str:
        """A short name for exactly these labels."""
        text, lengths = codec.join_texts(self.labels)
        return hashlib.blake2b(lengths.astype("<u4").tobytes() + text, digest_size=16).hexdigest()

    def identity_fields(self) -> dict[str, object]:
        """What `identity.to_plain` stores of it."""
        return {"labels": self.labels.to_list()}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Domain) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Domain({len(self)} labels, digest {self.digest})"


class LabelIndex:
    """Slots for labels. The n-th label ever seen has slot n - 1, and its item key comes from the noise's secret."""

    def __init__(self, noise: Noise) -> None:
        self._noise = noise.at("labels")
        self._table = _core.SlotTable()
        # No output depends on the hash: nobody can choose texts that crowd one place of a table.
        self._texts = _core.TextSlots(secrets.token_bytes(32))
        self._labels = pl.Series("key", [], dtype=pl.String)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def labels(self) -> pl.Series:
        """All labels in slot order."""
        return self._labels

    def keys(self, start: int, end: int) -> Keys:
        """The item keys of the labels from slot `start` up to slot `end`."""
        return self._table.names(start, end)

    def keys_at(self, slots: NDArray[np.int64]) -> Keys:
        """The item keys of the labels of some slots."""
        return self._table.names_at(slots)

    def keys_from(self, start: int) -> Keys:
        """The item keys of the labels from slot `start` on."""
        return self._table.names(start, len(self))

    def slots(self, labels: pl.Series) -> NDArray[np.int64]:
        """The slot of each label, -1 where it has none."""
        return self._found(labels, self._by_name)

    def slots_or_new(self, labels: pl.Series) -> NDArray[np.int64]:
        """The slot of each label; new labels get the next ones."""
        return self._found(labels, self._by_name_or_new)

    def _found(self, labels: pl.Series, by_name: Callable[[pl.Series], NDArray[np.int64]]) -> NDArray[np.int64]:
        """The slot of each label: of those that were seen before by their texts, of others by their names."""
        with view_chunks(labels) as chunks:
            slots = self._texts.find(chunks)
        missing = np.flatnonzero(slots < 0)
        if len(missing):
            others = labels if len(missing) == len(labels) else _some(labels, missing)
            slots[missing] = found = by_name(others)
            with view_chunks(others) as chunks:
                self._texts.remember(chunks, found)
        return slots

    def _by_name(self, labels: pl.Series) -> NDArray[np.int64]:
        return np.concatenate([self._table.find(self._keys(piece)) for piece in _pieces(labels)])

    def _by_name_or_new(self, labels: pl.Series) -> NDArray[np.int64]:
        known = len(self)
        self._table.reserve(len(labels))
        slots = np.concatenate([self._table.find_or_add(self._keys(piece)) for piece in _pieces(labels)])
        if len(self) - known == len(labels):
            self._remember(labels)
        elif len(self) > known:
            places = np.flatnonzero(slots >= known)
            first = places[np.unique(slots[places], return_index=True)[1]]
            self._remember(_some(labels, first))
        return slots

    def _remember(self, labels: pl.Series) -> None:
        self._labels = self._labels.append(labels.alias("key")) if len(self._labels) else labels.alias("key")
        if self._labels.n_chunks() > 64:
            self._labels = self._labels.rechunk()

    def to_plain(self) -> pl.Series:
        return self._labels

    def take_plain(self, content: pl.Series) -> None:
        self.slots_or_new(content)

    def _keys(self, labels: pl.Series) -> Keys:
        return self._noise.label_keys(*codec.join_texts(labels))


class VisibleLabels(NamedTuple):
    """The labels that are shown, in the order of their bytes."""

    slots: NDArray[np.int64]
    labels: pl.Series
    places: NDArray[np.int64]
    """The slots once more, in order."""


def visible_labels(index: LabelIndex, places: NDArray[np.int64], before: VisibleLabels | None) -> VisibleLabels:
    """The labels of these slots, which are in order; as before, if it holds."""
    if before is not None and np.array_equal(before.places, places):
        return before
    labels = index.labels.gather(places)
    order = labels.arg_sort().to_numpy()
    return VisibleLabels(places[order], detached(labels.gather(order)), places)


def detached(labels: pl.Series) -> pl.Series:
    """The same labels in memory of their own.

    A column that was gathered, filtered or sliced shares the bytes of all labels it was taken from, and whoever stores
    or sends it in binary form may send these along. No column of labels leaves without this.
    """
    return pl.Series(labels.name, labels.to_list(), dtype=pl.String)


def _some(labels: pl.Series, places: NDArray[np.int64]) -> pl.Series:
    """The labels at some places; a few of them do not keep the texts of all others."""
    found = labels.gather(places)
    return detached(found) if len(places) * _FEW < len(labels) else found


def _pieces(labels: pl.Series) -> Iterator[pl.Series]:
    """The labels some at a time, so that their texts and names are never held twice for all."""
    return (labels.slice(start, _PIECE) for start in range(0, len(labels), _PIECE))


@once_a_batch
def any_too_long(labels: pl.Series) -> bool:
    """Whether a label has more than 256 bytes."""
    return longest_text(labels) > LONGEST_LABEL


def flat_keys(events: pl.Series, most: int | None, *, called: str = "keys") -> pl.Series:
    """The keys of a batch in its order: of each event, one key or a list, the first so many distinct ones, or all."""
    has_nulls = events.null_count() > 0
    if isinstance(events.dtype, pl.List):
        whole = events.list.drop_nulls()
        has_nulls |= bool((whole.list.len() != events.list.len()).any())
        distinct = whole.list.unique(maintain_order=True)
        bounded = distinct if most is None else distinct.list.head(most)
        events = bounded.list.explode(empty_as_null=False, keep_nulls=False)
    if has_nulls:
        raise InputError(f"{called} must not be null, got nulls; drop or fill them")
    return events


@once_a_batch
def count_labels(events: pl.Series, max_keys_per_event: int | None) -> tuple[pl.Series, NDArray[np.int64]]:
    """The labels of a batch and how many events hold each; an event is a text or a list of texts; None cuts nothing.

    >>> rows = pl.DataFrame({"key": ["north", "south", "north"], "events": [5, 0, 2]}).to_struct()
    >>> [each.tolist() if hasattr(each, "tolist") else each.to_list() for each in count_labels(rows, 1)]
    [['north'], [7]]
    """
    if isinstance(events.dtype, pl.Struct):
        counted = _already_counted(events, max_keys_per_event)
        labels, counts = counted["key"], counted["count"].to_numpy().astype(np.int64)
        _check_lengths(labels)
    else:
        flat = _flat_labels(events, max_keys_per_event)
        _check_lengths(flat)
        labels, counts = count_texts(flat.alias("key"))
    # Several mechanisms may be given the same.
    counts.flags.writeable = False
    return labels, counts


def _check_lengths(labels: pl.Series) -> None:
    if any_too_long(labels):
        raise InputError(f"labels must have at most {LONGEST_LABEL} bytes, got a longer one")


def _flat_labels(events: pl.Series, most: int | None) -> pl.Series:
    if events.dtype not in (pl.String, pl.List(pl.String)):
        raise InputError(f"labels must be texts or lists of texts, got {events.dtype}")
    return flat_keys(events, most, called="labels")


def _already_counted(rows: pl.Series, most: int | None) -> pl.DataFrame:
    """The same of rows that each stand for so many equal events; a label of no event is not there."""
    if rows.null_count():
        raise InputError("rows must have labels and a number of events, got nulls; drop them")
    keys, times = rows.struct.field("key"), rows.struct.field("events")
    labels = _flat_labels(keys, most).alias("key").to_frame()
    if isinstance(keys.dtype, pl.List):
        distinct = keys.list.n_unique()
        held = distinct if most is None else distinct.clip(upper_bound=most)
        times = pl.Series(np.repeat(times.to_numpy(), held.to_numpy()))
    held_by = labels.with_columns(times.alias("events")).filter(pl.col("events") > 0)
    return held_by.group_by("key").agg(pl.col("events").sum().alias("count"))


def count_known(
    events: pl.Series, index: LabelIndex, max_keys_per_event: int | None
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The slots of the labels of a batch that have one, in order, and how many events hold each."""
    labels, counts = count_labels(events, max_keys_per_event)
    slots = index.slots(labels)
    order = np.argsort(slots)[(slots < 0).sum() :]
    return slots[order], counts[order]


def numbered_labels(pieces: Sequence[pl.Series]) -> tuple[pl.Series, list[NDArray[np.int64]]]:
    """The different labels of several columns in the order of their bytes, and for each column their places there."""
    labels = detached(pl.concat(pieces).unique().sort())
    places = pl.DataFrame({"key": labels, "place": np.arange(len(labels))})
    found = [pl.DataFrame({"key": each}).join(places, on="key", how="left", maintain_order="left") for each in pieces]
    return labels, [each["place"].to_numpy() for each in found]


def add_up_slots(pieces: Sequence[Sequence[NDArray[np.int64]]]) -> list[NDArray[np.int64]]:
    """Slots in order with a count for each, of several such."""
    slots, places = np.unique(np.concatenate([piece[0] for piece in pieces]), return_inverse=True)
    counts = np.zeros(len(slots), dtype=np.int64)
    np.add.at(counts, places, np.concatenate([piece[1] for piece in pieces]))
    return [slots, counts]


def add_counts(counts: NDArray[np.int64], slots: NDArray[np.int64], more: NDArray[np.int64]) -> None:
    """Add `more` at distinct `slots`."""
    counts[slots] += more
