"""How many events."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.queries.common import Column, Tidy, check_common


@identified("query-count")
@dataclass(frozen=True, slots=True)
class Count:
    """The number of events so far.

    >>> Count("purchases").every
    1
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    kind: ClassVar[str] = "count"

    def __post_init__(self) -> None:
        check_common(self)
        if Tidy.RANKED in self.tidy:
            raise ParameterError("tidy must be non_negative or monotone for a count, got ranked")

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that it needs."""
        return ()
