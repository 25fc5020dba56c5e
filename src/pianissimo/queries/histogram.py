"""How many events hold each label."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.queries.common import Column, LargeDomain, Role, Tidy, check_column, check_common, domain_of


@identified("query-histogram")
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

    domain: LargeDomain | None = None
    """The labels, if they are known and public; without it, labels are shown once they pass a threshold."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count; the others are cut, first come first kept within the event."""

    remember: bool = True
    """Without a domain: once shown, a label is always shown."""

    other: bool = False
    """Without a domain: also an estimate of all labels that are not shown, in a row without key."""

    constant_threshold: bool = False
    """Without a domain: one threshold for all ticks, below the largest of those that change with the tick."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    kind: ClassVar[str] = "histogram"

    def __post_init__(self) -> None:
        check_common(self)
        check_column(key=self.key)
        check_at_least(1, max_keys_per_event=self.max_keys_per_event)
        object.__setattr__(self, "domain", domain_of(self.domain))
        if Tidy.RANKED in self.tidy:
            raise ParameterError("tidy must be non_negative or monotone for a histogram, got ranked")
        if self.domain is not None and (self.other or self.constant_threshold):
            raise ParameterError(
                "other and constant_threshold must stay off where the domain is known, got one of them on"
            )

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that it needs."""
        return (Column(self.key, Role.LABELS, self.max_keys_per_event > 1),)
