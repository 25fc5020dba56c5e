"""How many different values."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.queries.common import Column, Role, Tidy, check_column, check_common


@identified("query-distinct")
@dataclass(frozen=True, slots=True)
class Distinct:
    """The number of different values that events so far held.

    >>> Distinct("articles", key="article").key
    'article'
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    key: str
    """The column of values: texts or whole numbers."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    kind: ClassVar[str] = "distinct"

    def __post_init__(self) -> None:
        check_common(self)
        check_column(key=self.key)
        if Tidy.RANKED in self.tidy:
            raise ParameterError("tidy must be non_negative or monotone for a number of values, got ranked")

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that it needs."""
        return (Column(self.key, Role.LABELS),)
