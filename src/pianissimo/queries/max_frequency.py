"""How many events hold the label that most events hold."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.labels import Domain
from pianissimo.mechanism import Release
from pianissimo.queries.columns import KeyQuery, domain_of
from pianissimo.queries.expected import Candidate
from pianissimo.queries.histogram import told_domain
from pianissimo.queries.query import LargeDomain, bars_table
from pianissimo.users import Head, HistogramHead


@identified("query-max-frequency")
@dataclass(frozen=True, slots=True, kw_only=True)
class MaxFrequency(KeyQuery):
    """The number of events so far that hold the most frequent label of a domain; which label it is stays untold.

    >>> MaxFrequency("busiest", key="shop", domain=["north", "south"]).head().series
    2
    """

    domain: LargeDomain
    """The labels: public."""

    kind = "max_frequency"
    called = "a largest count"
    deletable = True

    def _check(self) -> None:
        object.__setattr__(self, "domain", domain_of(self.domain))
        if self.domain is None:
            raise ParameterError("domain must be given, got none: only the counts of listed labels have a largest")

    def head(self, share: Fraction = Fraction(1)) -> Head:
        # The largest of a histogram's noisy counts.
        assert isinstance(self.domain, Domain)  # noqa: S101
        return HistogramHead(name=self.name, domain=self.domain, share=share)

    def user_table(self, release: Release[Any], coverage: float, most_events: int | None) -> pl.DataFrame:
        own = release.value[self.name].largest
        return bars_table([own.estimate], [own.bars(coverage, most_units=most_events)])

    def facts(self, chosen: Candidate) -> dict[str, Any]:
        return {"domain": told_domain(self.domain)}
