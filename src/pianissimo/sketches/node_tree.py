"""Which sketches a tree of time needs: nodes that end, nodes that begin, and what is kept of those that ended.

Ticks 1 .. T by the clock, L = floor(log2 T) + 1 levels. Node (level, j) covers the ticks (j - 1) 2^level + 1 .. j
2^level and is used in prefixes for odd j alone. The first t ticks are the nodes of the ones of t in binary. At each
tick one used node ends, and an element is in at most L of them.
"""

from collections.abc import ItemsView
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo import codec
from pianissimo.errors import InputError
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.keys import KeyKind
from pianissimo.sketches.misra_gries import MisraGries
from pianissimo.sketches.open_tick import plain_keys, series_of


def level_count(horizon: int) -> int:
    """L: how many levels a tree over so many ticks has.

    >>> level_count(7), level_count(8)
    (3, 4)
    """
    return horizon.bit_length()


def ended_level(tick: int) -> int:
    """The level of the used node that ends at a tick.

    >>> [ended_level(tick) for tick in range(1, 9)]
    [0, 1, 0, 2, 0, 1, 0, 3]
    """
    return (tick & -tick).bit_length() - 1


def prefix_nodes(tick: int) -> list[tuple[int, int]]:
    """The nodes (level, j) that cover the ticks 1 .. tick, the longest first.

    >>> prefix_nodes(6)
    [(2, 1), (1, 3)]
    """
    return [(level, tick >> level) for level in reversed(range(tick.bit_length())) if tick >> level & 1]


def rounded_up_root(value: Fraction | float) -> int:
    """A whole number that is not below the root of a value.

    >>> rounded_up_root(10.0)
    4
    """
    return int(np.ceil(np.sqrt(float(value)) * (1 + 1e-9)))


class NodeSketches:
    """The sketches of all used nodes that are open: secret.

    >>> nodes = NodeSketches(k=2, keys="int64", horizon=4)
    >>> nodes.feed(pl.Series([1, 1]))
    >>> [nodes.close(1).total, nodes.close(2).total]
    [2, 2]
    """

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
        """Its content as plain data."""
        return [[level, sketch_to_plain(sketch)] for level, sketch in sorted(self._open.items())]

    def take_plain(self, content: codec.Plain) -> None:
        """Take over a stored content."""
        self._open = {level: sketch_from_plain(stored, self._k, self._keys) for level, stored in content}


def sketch_to_plain(sketch: MisraGries) -> codec.Plain:
    """What a sketch counted, and not which sketch it was: the same for the same keys."""
    contents = sketch.contents()
    return [plain_keys(contents.keys), contents.over, contents.decrements, contents.total]


def sketch_from_plain(content: codec.Plain, k: int, keys: KeyKind) -> MisraGries:
    """A sketch that counted the same."""
    stored, over, decrements, total = content
    return MisraGries.from_contents(Contents(series_of(stored), over, decrements, total), k, keys=keys)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Node:
    """What is kept of a node that ended: keys in their order, a value for each, and how many elements there were."""

    keys: pl.Series
    values: NDArray[np.int64]
    total: int


class EndedNodes:
    """The nodes that cover all ticks so far, by level: secret where their values are.

    >>> nodes = EndedNodes()
    >>> for tick in (1, 2, 3):
    ...     nodes.put(tick, Node(pl.Series([tick]), np.array([1]), 1))
    >>> nodes.keys().to_list()
    [2, 3]
    """

    def __init__(self) -> None:
        self._nodes: dict[int, Node] = {}

    def put(self, tick: int, node: Node) -> None:
        """Keep the node that ends at a tick; those within the same stretch are not needed any more."""
        level = ended_level(tick)
        self._nodes = {each: kept for each, kept in self._nodes.items() if each > level}
        self._nodes[level] = node

    def items(self) -> ItemsView[int, Node]:
        """The nodes by their levels."""
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
        """Its content as plain data."""
        return [[level, plain_keys(node.keys), node.values, node.total] for level, node in sorted(self._nodes.items())]

    def take_plain(self, content: codec.Plain) -> None:
        """Take over a stored content."""
        self._nodes = {
            level: Node(series_of(keys), np.asarray(values, dtype=np.int64), total)
            for level, keys, values, total in content
        }


def event_keys(events: pl.Series, max_keys_per_event: int) -> pl.Series:
    """The keys of a batch in its order: of each event the first so many distinct ones.

    >>> event_keys(pl.Series([["a", "b", "a"], ["c"]]), 2).to_list()
    ['a', 'b', 'c']
    """
    if not isinstance(events.dtype, pl.List):
        if events.null_count():
            raise InputError("keys must not be null, got nulls; drop or fill them")
        return events
    whole = events.list.drop_nulls()
    if events.null_count() or bool((whole.list.len() != events.list.len()).any()):
        raise InputError("keys must not be null, got nulls; drop or fill them")
    bounded = whole.list.unique(maintain_order=True).list.head(max_keys_per_event)
    return bounded.list.explode(empty_as_null=False, keep_nulls=False)


def event_sets(events: pl.Series, max_keys_per_event: int | None) -> pl.Series:
    """The keys of a batch as sets: of each event the first so many distinct ones, or all.

    >>> event_sets(pl.Series([["a", "b", "a", "c"], []]), 2).to_list()
    [['a', 'b'], []]
    >>> event_sets(pl.Series(["a", "b"]), None).to_list()
    [['a'], ['b']]
    """
    if not isinstance(events.dtype, pl.List):
        return events.reshape((-1, 1)).arr.to_list() if len(events) else events.head(0).implode().head(0)
    if max_keys_per_event is None:
        return events
    return events.list.unique(maintain_order=True).list.head(max_keys_per_event)
