"""How many events hold the label that most events hold."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.queries.common import Column, LargeDomain, Role, Tidy, check_column, check_common, domain_of


@identified("query-max-frequency")
@dataclass(frozen=True, slots=True)
class MaxFrequency:
    """The number of events so far that hold the most frequent label of a domain; which label it is stays untold.

    >>> MaxFrequency("busiest", key="shop", domain=["north", "south"]).every
    1
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    key: str
    """The column of labels: texts."""

    domain: LargeDomain
    """The labels: public."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    kind: ClassVar[str] = "max_frequency"

    def __post_init__(self) -> None:
        check_common(self)
        check_column(key=self.key)
        object.__setattr__(self, "domain", domain_of(self.domain))
        if self.domain is None:
            raise ParameterError("domain must be given, got none: only the counts of listed labels have a largest")
        if Tidy.RANKED in self.tidy:
            raise ParameterError("tidy must be non_negative or monotone for a largest count, got ranked")

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that it needs."""
        return (Column(self.key, Role.LABELS),)
