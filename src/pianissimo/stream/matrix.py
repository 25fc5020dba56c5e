"""What can be asked of whom: every kind of query, with every unit, listed or unknown labels, and every stretch of time.

Nothing here knows an answer. A cell is the smallest stream of its kind, and the planner is asked whether it fits: what
it refuses, it refuses before any data, and its words are the reason. docs/choosing.md, `pianissimo plan --matrix` and
the test that runs every cell read the same table.
"""

from collections.abc import Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import cached_property
from itertools import groupby
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pianissimo.budget import Budget
from pianissimo.errors import ParameterError
from pianissimo.queries import KINDS, Query
from pianissimo.stream.stream import Stream
from pianissimo.unit import user

PERIOD, TICKS, CAP = 2, 4, 4
"""Of the smallest streams: how many ticks a period or a window has, and all of it, and how many events of a user count
where the cap is fixed."""

LABELS = ("a", "b", "c")
"""The labels that the smallest streams list."""

EVENT, USER, USER_PERIOD = UNITS = ("event", "user", "user, period")
TOTAL, WINDOW, EACH_PERIOD = TIMES = ("total", "window", "each period")
KNOWN, UNKNOWN, UNKNOWN_RANGE = "known labels", "unknown labels", "unknown range"

YES, FIXED, REFUSED = "yes", "fixed cap", "no"

_GIVEN = {"key": "label", "value": "amount", "where": "amount > 2", "k": 3}
"""What the smallest query of a kind says where it must say something."""

_SMALL = Budget(1, 1e-6)


@dataclass(frozen=True)
class Cell:
    """One question: a kind of query, what is known of its labels, who is hidden, and over which time it counts.

    *Each period* is the total of one period: for a user within a period what begins anew with each, and else what
    `per` and `every` of one period publish at its end.

    >>> Cell(KINDS[0], "", "event", "total").answer
    'yes'
    """

    kind: type[Query]
    labels: str
    """Known or unknown labels, or an unknown range; "" for a kind without, or whose labels nobody ever lists."""

    unit: str
    time: str

    @property
    def question(self) -> str:
        """The kind and what is known of its labels."""
        return f"{self.kind.__name__}, {self.labels}" if self.labels else self.kind.__name__

    def query(self, name: str = "q") -> Query:
        """The smallest query of the cell."""
        own = _fields(self.kind)
        given: dict[str, Any] = {each: _GIVEN[each] for each in own if each in _GIVEN and own[each].default is MISSING}
        given |= {"key": _GIVEN["key"]} if self.labels in (KNOWN, UNKNOWN) else {}
        if "domain" in own:
            given["domain"] = LABELS if self.labels == KNOWN else None
        if "range" in own:
            given["range"] = None if self.labels == UNKNOWN_RANGE else (0, 10)
        begins_anew = self.unit == USER_PERIOD and self.time == EACH_PERIOD
        if self.time != TOTAL and not begins_anew:
            given |= {"per": PERIOD, "every": PERIOD if self.time == EACH_PERIOD else 1}
            # A sketch has no windows, and exact counts are taken where so many labels fit the memory.
            given |= {"expected_keys": 100} if "expected_keys" in own else {}
        return self.kind(name, **given)

    def hidden(self, *, fixed: bool) -> Any:
        """Who is hidden: users by a cap that follows the stream, or by a fixed one."""
        if self.unit == EVENT:
            return EVENT
        given: dict[str, Any] = {"max_events_per_user": CAP} if fixed else {}
        if self.unit == USER_PERIOD:
            given |= {"within": PERIOD, "reset": self.time == EACH_PERIOD}
        return user("user", **given)

    @cached_property
    def refusals(self) -> tuple[str, ...]:
        """Why it is refused with a cap that follows, and with a fixed one, in the planner's words; "" where it is not.

        Events have no cap.
        """
        return tuple(map(self._refusal_of, (False,) if self.unit == EVENT else (False, True)))

    def _refusal_of(self, fixed: bool) -> str:  # noqa: FBT001
        try:
            unit = self.hidden(fixed=fixed)
            Stream("cell", budget=_SMALL, horizon=TICKS, unit=unit, queries=[self.query()]).plan()
        except ParameterError as refusal:
            return str(refusal)
        return ""

    @property
    def refusal(self) -> str:
        """Why it is refused, whatever the cap; "" where it works."""
        return "" if "" in self.refusals else self.refusals[-1]

    @property
    def answer(self) -> str:
        """What stands in the table: that it works, that it does with a fixed cap, or that it is refused."""
        if self.refusal:
            return REFUSED
        return FIXED if self.refusals[0] else YES


def cells() -> list[Cell]:
    """All of them, in the order of the table."""
    asked = [(kind, labels) for kind in KINDS for labels in _labels_of(kind)]
    return [Cell(*question, unit, time) for question in asked for unit in UNITS for time in TIMES]


def matrix_streams(matrix: Sequence[Cell], budget: Budget = _SMALL) -> dict[str, Stream]:
    """All cells that work as a few streams, by names: one for each unit, time and kind of cap."""
    found: dict[str, list[tuple[Any, Query]]] = {}
    for cell in matrix:
        for fixed, refusal in enumerate(cell.refusals):
            if not refusal:
                cap = "" if cell.unit == EVENT else ", fixed cap" if fixed else ", cap that follows"
                query = cell.query(cell.question.lower().replace(", ", "_").replace(" ", "_"))
                found.setdefault(f"{cell.unit}: {cell.time}{cap}", []).append((cell.hidden(fixed=bool(fixed)), query))
    return {
        name: Stream("cells", budget=budget, horizon=TICKS, unit=asked[0][0], queries=[query for _, query in asked])
        for name, asked in found.items()
    }


def _labels_of(kind: type[Query]) -> Sequence[str]:
    own = _fields(kind)
    if "key" not in own:
        return ("", UNKNOWN_RANGE) if "range" in own and own["range"].default is None else ("",)
    if "domain" not in own:
        return ("",)
    return (*(() if own["key"].default is MISSING else ("",)), KNOWN, UNKNOWN)


def _fields(kind: type[Any]) -> dict[str, Field[Any]]:
    return {each.name: each for each in fields(kind)}


def matrix_rows(matrix: Sequence[Cell]) -> tuple[list[list[str]], list[str]]:
    """The rows of the table, each a question and its answers, with the number of a refusal's reason; and the reasons.

    >>> matrix_rows([Cell(KINDS[0], "", "event", "total")])
    ([['Count', 'yes']], [])
    """
    reasons = list(dict.fromkeys(cell.refusal for cell in matrix if cell.refusal))
    rows = []
    for question, row in groupby(matrix, key=lambda cell: cell.question):
        told = (f"{cell.answer} ({reasons.index(cell.refusal) + 1})" if cell.refusal else cell.answer for cell in row)
        rows.append([question, *told])
    return rows, reasons


def matrix_table(matrix: Sequence[Cell]) -> RenderableType:
    """The same for a terminal."""
    table = Table(header_style="dim", box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", no_wrap=True)
    for unit in UNITS:
        for time in TIMES:
            table.add_column(f"{unit}\n{time}")
    rows, reasons = matrix_rows(matrix)
    for row in rows:
        table.add_row(*row)
    return Group(table, *(Text(f"\n({number}) {reason}") for number, reason in enumerate(reasons, 1)))
