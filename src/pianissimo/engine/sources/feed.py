"""A source that grows while it is read: what lies between two of its places, and where it ends now.

The place that a tick ends at is asked for as soon as the tick is over by the public clock, and sealed with the tick. No
number of events ends a tick.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import polars as pl


@dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class Records:
    """Some records as they came: secret."""

    place: str
    """Which file or partition they are of: public."""

    rank: tuple[int, ...]
    """Which place comes first where the order of a user's events matters: a function of the place, and not of its name,
    which may change while a tick lasts."""

    numbers: pl.Series
    """Their line numbers or offsets there, as whole numbers."""

    texts: pl.Series
    """One record each: the text of a line or of a message's value; null where it is no UTF-8 or is missing."""

    header: str | None = None
    """The first line of a CSV file, which names the fields of all others; None where records are JSON objects."""


class Feed(Protocol):
    """Where live records come from."""

    def seek(self, position: Any) -> None:
        """Go to a sealed place, or, with None, to the beginning; `SourceError` if it is not what was read before."""

    def end(self) -> Any:
        """Where the source ends now, as plain data; at or after every place that was told before.

        It may be asked for by another thread while records are read.
        """

    def read(self, end: Any) -> Iterator[Records]:
        """The records from where the feed stands up to a place that `end` gave, in pieces of bounded size."""

    @property
    def position(self) -> Any:
        """Where the feed stands: half-open, an entry a file or partition, with what tells that it is the same."""

    def close(self) -> None:
        """Let go of the source."""


@runtime_checkable
class OnceFeed(Protocol):
    """A feed whose records are gone once they were read: nothing brings them back after a restart."""

    @property
    def ended(self) -> bool:
        """Whether nothing will come any more, and `end` has told of all that came."""
