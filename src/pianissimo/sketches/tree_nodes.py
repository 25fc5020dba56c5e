"""What a tree of sketches over time needs: nodes that begin and end, the open tick, and the noise of its sums.

Ticks 1 .. T by the clock, L = floor(log2 T) + 1 levels. Node (level, j) covers the ticks (j - 1) 2^level + 1 .. j
2^level and is used in prefixes for odd j alone. The first t ticks are the nodes of the ones of t in binary. At each
tick one used node ends, and an element is in at most L of them.

A sketch depends on the order of its stream. It is fed when the tick ends, with all that came in the tick, keys or sets
of keys, sorted. This order is a function of what came alone: leave one element out, and what is left is the same
sequence without it. So neighbors stay neighbors, and all that is known of sketches of neighboring streams holds.
Sorting each batch by itself would not do: where batches are cut may depend on how many events there are, and one event
less would move others from batch to batch and so to other places of the stream. The price is memory for the distinct
keys of one tick.
"""

from collections.abc import ItemsView, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError
from pianissimo.labels import flat_keys
from pianissimo.mechanism import Gathering
from pianissimo.sketches.contents import plain_keys, series_of
from pianissimo.sketches.key_columns import LONGEST_KEY, KeyKind, are_texts, check_key_kind, key_column, sets_of
from pianissimo.sketches.misra_gries import MisraGries


def level_count(horizon: int) -> int:
    """L: how many levels a tree over so many ticks has."""
    return horizon.bit_length()


def ended_level(tick: int) -> int:
    """The level of the used node that ends at a tick."""
    return (tick & -tick).bit_length() - 1


def prefix_nodes(tick: int) -> list[tuple[int, int]]:
    """The nodes (level, j) that cover the ticks 1 .. tick, the longest first."""
    return [(level, tick >> level) for level in reversed(range(tick.bit_length())) if tick >> level & 1]


class NodeSketches:
    """The sketches of all used nodes that are open: secret."""

    def __init__(self, *, k: int, keys: KeyKind, horizon: int) -> None:
        self._k, self._keys, self._horizon = k, keys, horizon
        self._open: dict[int, MisraGries] = {}
        self._begin(0)

    def feed(self, keys: pl.Series) -> None:
        """Count keys in every open node, or in none if one of them is refused."""
        # All sketches have one type of keys; the longest node is the first to be full.
        for level in sorted(self._open, reverse=True):
            self._open[level].update(keys)

    def close(self, tick: int) -> MisraGries:
        """End a tick: the sketch of the node that ends with it; new ones begin."""
        ended = self._open.pop(ended_level(tick))
        self._begin(tick)
        return ended

    def _begin(self, tick: int) -> None:
        for level in range(level_count(self._horizon)):
            span = 1 << level
            # An odd node begins after an even number of its spans, and is of use if it ends in time.
            if tick % (2 * span) == 0 and tick + span <= self._horizon:
                self._open[level] = MisraGries(self._k, keys=self._keys)

    def to_plain(self) -> codec.Plain:
        return [[level, sketch.to_plain()] for level, sketch in sorted(self._open.items())]

    def take_plain(self, content: codec.Plain) -> None:
        self._open = {level: MisraGries(self._k, keys=self._keys) for level, _ in content}
        for level, stored in content:
            self._open[level].take_plain(stored)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Node:
    """What is kept of a node that ended: keys in their order, a value for each, and how many elements there were."""

    keys: pl.Series
    values: NDArray[np.int64]
    total: int


class EndedNodes:
    """The nodes that cover all ticks so far, by level: secret where their values are."""

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}

    def put(self, tick: int, node: Node) -> None:
        """Keep the node that ends at a tick; those within the same stretch are not needed any more."""
        level = ended_level(tick)
        self._nodes = {each: kept for each, kept in self._nodes.items() if each > level}
        self._nodes[level] = node

    def items(self) -> ItemsView[int, Node]:
        return self._nodes.items()

    def keys(self) -> pl.Series:
        """All keys of the nodes, each once, in their order."""
        full = [node.keys.alias("key") for node in self._nodes.values() if len(node.keys)]
        return pl.concat(full).unique().sort() if full else next(iter(self._nodes.values())).keys.alias("key")

    def values(self, level: int, keys: pl.Series) -> NDArray[np.int64]:
        """The values of a node for these keys, zero where it has none."""
        node = self._nodes[level]
        known = pl.DataFrame({"key": node.keys, "value": node.values})
        found = keys.alias("key").to_frame().join(known, on="key", how="left", maintain_order="left")
        return found["value"].fill_null(0).to_numpy()

    @property
    def total(self) -> int:
        """How many elements all ticks so far had: secret."""
        return sum(node.total for node in self._nodes.values())

    def to_plain(self) -> codec.Plain:
        return [[level, plain_keys(node.keys), node.values, node.total] for level, node in sorted(self._nodes.items())]

    def take_plain(self, content: codec.Plain) -> None:
        self._nodes = {
            level: Node(series_of(keys), np.asarray(values, dtype=np.int64), total)
            for level, keys, values, total in content
        }


def event_sets(events: pl.Series, max_keys_per_event: int | None) -> pl.Series:
    """The keys of a batch as sets: of each event the first so many distinct ones, or all."""
    if not isinstance(events.dtype, pl.List):
        return events.reshape((-1, 1)).arr.to_list() if len(events) else events.head(0).implode().head(0)
    if max_keys_per_event is None:
        return events
    return events.list.unique(maintain_order=True).list.head(max_keys_per_event)


def gather_keys(keys: pl.Series, kind: KeyKind) -> codec.Plain:
    """Distinct keys in their order, and how often each came."""
    return _counted(checked_keys(keys, kind).to_frame().group_by("key").len("count"))


def add_up_keys(pieces: Sequence[codec.Plain]) -> codec.Plain:
    """The same of several such."""
    rows = pl.concat(
        pl.DataFrame({"key": series_of(keys), "count": counts.astype(np.uint64)}) for keys, counts in pieces
    )
    return _counted(rows.group_by("key").sum())


def _counted(frame: pl.DataFrame) -> codec.Plain:
    ordered = frame.sort("key")
    return [plain_keys(ordered["key"]), codec.narrow(ordered["count"].to_numpy())]


@dataclass(frozen=True, slots=True, kw_only=True)
class FedByTick(Gathering):
    """How a mechanism takes in the keys of events, as a base class."""

    keys: KeyKind = "text"
    """The type of the keys."""

    def __post_init__(self) -> None:
        check_key_kind(self.keys)

    @property
    def _most_keys(self) -> int:
        """How many distinct keys of one event count."""
        return 1

    def gather(self, state: Any, batch: pl.Series) -> codec.Plain:  # noqa: ARG002
        return gather_keys(flat_keys(batch, self._most_keys), self.keys)

    def combine(self, pieces: Sequence[codec.Plain]) -> codec.Plain:
        return add_up_keys(pieces)

    def add(self, state: Any, gathered: codec.Plain) -> None:
        state.tick.add(gathered)


class OpenTick:
    """What was gathered in the open tick, chunk by chunk: secret."""

    def __init__(self) -> None:
        self._chunks: list[codec.Plain] = []

    def add(self, gathered: codec.Plain) -> None:
        if len(gathered[1]):
            self._chunks.append(gathered)

    def _take(self) -> codec.Plain:
        whole, self._chunks = self.to_plain(), []
        return whole

    def _together(self) -> codec.Plain:
        """All chunks as one."""
        raise NotImplementedError

    def to_plain(self) -> codec.Plain:
        return self._together() if len(self._chunks) > 1 else self._chunks[0] if self._chunks else []

    def take_plain(self, content: codec.Plain) -> None:
        self._chunks = [content] if content else []


class OpenKeys(OpenTick):
    """The keys of the open tick: secret."""

    def take(self) -> pl.Series:
        """All keys in their order, each as often as it came; the next tick begins."""
        if not self._chunks:
            return pl.Series("key", [], dtype=pl.Null)
        keys, counts = self._take()
        return series_of(keys).gather(np.repeat(np.arange(len(counts)), counts))

    def _together(self) -> codec.Plain:
        return add_up_keys(self._chunks)


def gather_sets(sets: pl.Series, kind: KeyKind) -> codec.Plain:
    """Distinct sets, the short ones first, and how often each came: keys, and for each size the sets and counts."""
    flat, ends, trusted = sets_of(sets)
    keys = checked_keys(flat, kind, trusted=trusted)
    known = keys.unique().sort()
    places = pl.DataFrame({"key": known, "place": np.arange(len(known), dtype=np.uint32)})
    sizes = np.diff(ends, prepend=0)
    rows = keys.to_frame().join(places, on="key", how="left", maintain_order="left").select("place")
    rows = rows.with_columns(set=np.repeat(np.arange(len(sizes), dtype=np.uint32), sizes)).unique().sort("set", "place")
    return [plain_keys(known), _by_size(rows["place"].to_numpy(), np.bincount(rows["set"].to_numpy()))]


def add_up_sets(pieces: Sequence[codec.Plain], kind: KeyKind) -> codec.Plain:
    """The same of several such."""
    filled = [_listed(piece) for piece in pieces if piece[1]]
    return gather_sets(pl.concat(filled), kind) if filled else pieces[0]


def _by_size(places: NDArray[np.uint32], sizes: NDArray[np.int64]) -> codec.Plain:
    found = []
    row_sizes = np.repeat(sizes, sizes)
    for size in np.unique(sizes).tolist():
        table = pl.DataFrame(places[row_sizes == size].reshape(-1, size), schema=[str(place) for place in range(size)])
        names = table.columns
        counted = table.group_by(names).len("count").sort(names)
        flat = counted.select(names).to_numpy().reshape(-1)
        found.append([size, codec.narrow(flat), codec.narrow(counted["count"].to_numpy())])
    return found


class OpenSets(OpenTick):
    """The sets of keys of the open tick: secret."""

    def __init__(self, kind: KeyKind) -> None:
        super().__init__()
        self._kind: KeyKind = kind

    def take(self) -> pl.Series | None:
        """All sets in their order, each as often as it came; None if there are none. The next tick begins."""
        return _listed(self._take()) if self._chunks else None

    def _together(self) -> codec.Plain:
        return add_up_sets(self._chunks, self._kind)


def _listed(gathered: codec.Plain) -> pl.Series:
    plain, by_size = gathered
    keys = series_of(plain)
    return pl.concat(
        keys.gather(np.repeat(places.reshape(-1, size), counts, axis=0).reshape(-1)).reshape((-1, size)).arr.to_list()
        for size, places, counts in by_size
    )


def checked_keys(keys: pl.Series, kind: KeyKind, *, trusted: bool = True) -> pl.Series:
    """The keys as whole numbers, texts or bytes, refused unless all of them can be counted."""
    column = key_column(keys, kind, trusted=trusted)
    if isinstance(column.column, np.ndarray):
        return pl.Series("key", column.column)
    longest = column.column.bin.size().max()
    if isinstance(longest, int) and longest > LONGEST_KEY:
        raise InputError(
            f"keys must have at most {LONGEST_KEY} bytes, got a longer one; split_bad sets such rows aside"
        )
    if column.check_texts and not bool(are_texts(column.column).all()):
        raise InputError("texts must be valid UTF-8, got other bytes; split_bad sets such rows aside")
    return column.column.cast(pl.String if kind == "text" else pl.Binary).alias("key")
