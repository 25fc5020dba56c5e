"""What queries about the labels of a column share: their key, what they read, and which labels they leave out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import polars as pl

from pianissimo.errors import ParameterError
from pianissimo.labels import Domain
from pianissimo.queries.shared.asked import Nulls
from pianissimo.queries.shared.columns import Reads, Role, checked_key, event_numbers, fault_of, labels_in
from pianissimo.queries.shared.expected import Candidate
from pianissimo.queries.shared.query import Query


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyQuery(Query):
    """A query about the labels of a column, or of several together."""

    key: str | Sequence[str]
    """The column of labels: texts, whole numbers, booleans or dates, or lists of these where an event may hold several.
    Or several columns, such as ["carrier", "dest"], which a release then has in place of `key`."""

    null_rules: ClassVar[tuple[Nulls, ...]] = ("skip", "refuse", "label")
    answer: ClassVar[str] = "number of events of each {0.keys_told}"

    def __post_init__(self) -> None:
        object.__setattr__(self, "key", checked_key(self.key))
        Query.__post_init__(self)
        check_single(self)

    @property
    def _own_reads(self) -> tuple[Reads, ...]:
        return tuple(Reads(name, Role.LABELS, self._holds_lists) for name in self.key_names)

    @property
    def _holds_lists(self) -> bool:
        return False

    def column(self, frame: pl.DataFrame) -> pl.Series | None:
        labels = labels_in(self.key_names, frame, label_nulls=self.nulls == "label", several=self._holds_lists)
        if self.count_column is None:
            return labels
        both = pl.DataFrame({"key": labels, "events": event_numbers(self.count_column, frame)})
        sound = ~fault_of(labels) & both["events"].is_not_null()
        return both.select(pl.when(sound).then(pl.struct("key", "events")).alias(self.name)).to_series()

    def most_moved(self, mechanism: Any) -> float | None:
        most = getattr(self, "max_keys_per_event", 1)
        return None if most is None else float(most)

    def left_out(self, chosen: Candidate) -> list[str]:
        return labels_left_out(self, chosen)


def labels_left_out(query: Query, chosen: Candidate) -> list[str]:
    """Which labels are not in the answers of a query, in words."""
    most, domain = getattr(query, "max_keys_per_event", 1), getattr(query, "domain", None)
    found = [] if most in (None, 1) else [f"of an event at most {most} labels count"]
    if domain is not None:
        return [*found, f"labels that are not among the {len(domain)} listed are passed over"]
    return found if query.thresholds(chosen.in_period) is None else [*found, "rarer ones stay hidden"]


def not_listed(query: Query, column: pl.Series | None) -> tuple[int, int] | None:
    """How many labels of a column a query does not list, and how many there are; None where none are listed."""
    domain = getattr(query, "domain", None)
    if not isinstance(domain, Domain) or column is None:
        return None
    labels = column.struct.field("key") if column.dtype == pl.Struct else column
    labels = (labels.explode() if isinstance(labels.dtype, pl.List) else labels).drop_nulls()
    return int((~labels.is_in(domain.labels.implode())).sum()), len(labels)


def check_single(query: Query) -> None:
    """Refuse several labels an event where a label is made of several columns."""
    if len(query.key_names) > 1 and getattr(query, "max_keys_per_event", 1) != 1:
        raise ParameterError("max_keys_per_event must be 1 where key is several columns, got another number")
