"""The labels that most events hold, in small memory."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.identity import identified
from pianissimo.queries.common import Column, Role, Tidy, check_column, check_common


@identified("query-heavy-hitters")
@dataclass(frozen=True, slots=True)
class HeavyHitters:
    """The labels that many events so far hold, with their numbers, in bounded memory; nobody needs to know the labels.

    Counts of a sketch are too low by at most n / (k + 1) after n labels; `low` and `high` allow for it.

    >>> HeavyHitters("pages", key="page", k=4096).max_keys_per_event
    1
    """

    name: str
    """What the release is called."""

    _: KW_ONLY

    key: str
    """The column of labels: texts, or lists of texts where an event holds several."""

    k: int = 1024
    """How many counters a sketch has."""

    max_keys_per_event: int = 1
    """How many distinct labels of one event count; the others are cut, first come first kept within the event."""

    expected_events: int | None = None
    """How many events all ticks together may have, as far as is known without the data; for the error to expect."""

    expected_keys: int | None = None
    """How many different labels there may be, as far as is known without the data; exact counts need it."""

    memory: int = 2**26
    """How many bytes the query may take."""

    weight: float = 1.0
    """Its share of the stream's budget, relative to the other queries' weights."""

    every: int = 1
    """Published at every so many-th tick."""

    tidy: Sequence[Tidy | str] = ()
    """What is done to a copy of the estimates."""

    kind: ClassVar[str] = "heavy_hitters"

    def __post_init__(self) -> None:
        check_common(self)
        check_column(key=self.key)
        check_at_least(1, k=self.k, max_keys_per_event=self.max_keys_per_event, memory=self.memory)
        for name in ("expected_events", "expected_keys"):
            if getattr(self, name) is not None:
                check_at_least(1, **{name: getattr(self, name)})
        if Tidy.RANKED in self.tidy:
            raise ParameterError("tidy must be non_negative or monotone for heavy hitters, got ranked")

    @property
    def reads(self) -> tuple[Column, ...]:
        """The columns that it needs."""
        return (Column(self.key, Role.LABELS, self.max_keys_per_event > 1),)
