"""What is wanted of a stream: the queries a user writes down."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import polars as pl

from pianissimo.checks import check_at_least, check_name, check_positive
from pianissimo.errors import ParameterError
from pianissimo.labels import Domain


@dataclass(frozen=True, slots=True)
class Count:
    """The number of events so far.

    >>> Count("purchases")
    Count(name='purchases', weight=1.0)
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    weight: float = 1.0
    """Its share of the stream's rho, relative to the other queries' weights."""

    def __post_init__(self) -> None:
        check_name(name=self.name)
        check_positive(weight=self.weight)


@dataclass(frozen=True, slots=True)
class Histogram:
    """The number of events so far that hold each label.

    >>> Histogram("regions", key="region", domain=["north", "south"]).domain
    Domain(2 labels, digest c148ba...)
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    key: str
    """The column of labels: texts, or lists of texts where an event holds several."""

    domain: Domain | Sequence[str] | pl.Series | None = None
    """The labels, if they are known and public; without it, labels are shown once they pass a threshold."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count; the others are cut, first come first kept within the event."""

    remember: bool = True
    """Without a domain: once shown, a label is always shown."""

    weight: float = 1.0
    """Its share of the stream's rho, relative to the other queries' weights."""

    def __post_init__(self) -> None:
        check_name(name=self.name)
        check_positive(weight=self.weight)
        check_at_least(1, max_keys_per_event=self.max_keys_per_event)
        if not isinstance(self.key, str) or not self.key:
            raise ParameterError(f"key must be the name of a column, got {self.key!r}")
        if isinstance(self.domain, str):
            raise ParameterError("domain must be a list of texts, got one text")
        if self.domain is not None and not isinstance(self.domain, Domain):
            object.__setattr__(self, "domain", Domain(self.domain))


Query = Count | Histogram
