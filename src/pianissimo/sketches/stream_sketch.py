"""What both sketches of one stream share: a table of counters, where it comes from, and the bytes it is stored in."""

from typing import ClassVar, Literal, Self

from pianissimo.checks import check_at_least, check_name
from pianissimo.errors import ParameterError, StateError
from pianissimo.sketches.contents import Contents
from pianissimo.sketches.file import StoredSketch, decode_sketch, encode_sketch
from pianissimo.sketches.keys import KeyKind, check_key_kind
from pianissimo.sketches.lineage import Lineage
from pianissimo.sketches.merging import MergedSketch, Part, merge_two
from pianissimo.sketches.table import MOST_COUNTERS, CountTable, KeyListing


class StreamSketch:
    """Counts of the heavy keys of one stream; a subclass counts batches, and releases."""

    sets: ClassVar[bool]
    """Whether one event is a set of keys."""

    stored_as: ClassVar[Literal["misra-gries", "privacy-aware"]]

    def __init__(self, k: int = 256, *, keys: KeyKind | None = None, name: str = "") -> None:
        check_at_least(1, k=k)
        if k > MOST_COUNTERS:
            raise ParameterError(f"k must be at most {MOST_COUNTERS}, got {k}")
        if keys is not None:
            check_key_kind(keys)
        if name:
            check_name(name=name)
        self._table = CountTable(k, sets=self.sets, kind=keys)
        self.lineage = Lineage.new(name)
        """Where the counts come from: names, no data."""

    @property
    def k(self) -> int:
        """The number of counters."""
        return self._table.k

    @property
    def key_kind(self) -> KeyKind | None:
        """The type of the keys; None before the first batch."""
        return self._table.kind

    @property
    def decrements(self) -> int:
        """D, how often all counts went down by one: secret."""
        return self._table.decrements

    @property
    def total(self) -> int:
        """How many keys were counted; of sets, the sizes of all of them together: secret."""
        return self._table.total

    @property
    def memory(self) -> int:
        """How many bytes the counters and keys take."""
        return self._table.memory

    def estimates(self) -> dict[int | str | bytes, int]:
        """The count of each stored key, zeros included, without noise: for trusted eyes only."""
        contents = self.contents()
        return dict(zip(contents.keys.to_list(), (contents.over - contents.decrements).tolist(), strict=True))

    def contents(self) -> Contents:
        """The stored keys in their order with u(x) = c(x) + D: secret, for the code that releases it."""
        return self._table.contents()

    def counts(self) -> KeyListing:
        """The positive counts in the order of their keys: secret."""
        return self._table.counts()

    def merge(self, other: Part) -> MergedSketch:
        """The merge of this sketch with that of another stream of the same kind; both stay as they are."""
        return merge_two(self, other)

    def to_bytes(self) -> bytes:
        """All of it, versioned and checksummed: secret."""
        return encode_sketch(
            StoredSketch(
                kind=self.stored_as,
                sets=self.sets,
                k=self.k,
                key_kind=self.key_kind,
                listing=self._table.listing(),
                decrements=self.decrements,
                total=self.total,
                lineage=self.lineage,
            )
        )

    @classmethod
    def from_bytes(cls, stored: bytes) -> Self:
        """What `to_bytes` wrote."""
        return cls.from_stored(decode_sketch(stored, cls.stored_as))

    @classmethod
    def from_stored(cls, stored: StoredSketch) -> Self:
        """The sketch that a file says."""
        sketch = cls(stored.k)
        if stored.lineage.parents:
            raise StateError("a stored sketch of one stream must have no parents, got some")
        sketch.lineage = stored.lineage
        if stored.key_kind is not None:
            try:
                sketch._table.restore(stored.key_kind, stored.listing, decrements=stored.decrements, total=stored.total)
            except ValueError:
                raise StateError("a stored sketch must be well formed, got something else") from None
        return sketch

    def __repr__(self) -> str:
        return f"{type(self).__name__}(k={self.k}, keys={self.key_kind!r})"
