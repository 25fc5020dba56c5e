"""The labels that most events hold."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.queries.common import Column, LargeDomain, Role, Tidy, check_column, check_common, domain_of


@identified("query-top-k")
@dataclass(frozen=True, slots=True)
class TopK:
    """The labels that most events hold so far, with their numbers.

    >>> TopK("top_drugs", key="drug", k=10).k
    10
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    key: str
    """The column of labels: texts, or lists of texts where an event holds several."""

    k: int
    """How many labels are listed."""

    domain: LargeDomain | None = None
    """The labels, if they are known and public."""

    max_keys_per_event: int | None = 1
    """How many distinct labels of one event count; None for any number."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    kind: ClassVar[str] = "top_k"

    def __post_init__(self) -> None:
        check_common(self)
        check_column(key=self.key)
        check_at_least(1, k=self.k)
        if self.max_keys_per_event is not None:
            check_at_least(1, max_keys_per_event=self.max_keys_per_event)
        domain = domain_of(self.domain)
        object.__setattr__(self, "domain", domain)
        if Tidy.RANKED in self.tidy and Tidy.MONOTONE in self.tidy:
            raise ParameterError("tidy must be ranked or monotone for a top list, got both")
        if domain is not None and not self.k <= len(domain):
            raise ParameterError(f"k must be at most the {len(domain)} labels of the domain, got {self.k}")

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that it needs."""
        return (Column(self.key, Role.LABELS, self.max_keys_per_event is None or self.max_keys_per_event > 1),)
