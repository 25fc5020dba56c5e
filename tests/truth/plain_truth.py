"""What is true of rows, from the words of the documents: plain Python over lists, and nothing of the library.

A truth is a dict from a key to a number, with the key None where there is one number. A row counts where it has what a
query asks for: a finite number, or a label of at most 256 bytes.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import date

from tests.truth.generated_rows import Row

Truth = dict[str | None, float]
Told = Callable[[list[Row]], Truth]


def value_of(row: Row) -> float | None:
    value = row["amount"]
    return None if value is None or not math.isfinite(value) else float(value)


def label_of(row: Row, column: str) -> str | None:
    """A label as it is shown: truth values as true and false, days as 2026-01-31."""
    value = row[column]
    if value is None:
        return None
    text = (
        str(value).lower() if isinstance(value, bool) else value.isoformat() if isinstance(value, date) else str(value)
    )
    return text if len(text.encode()) <= 256 else None


def labels_of(row: Row, most: int | None) -> list[str]:
    """The first so many different labels of a row; none where one of them is none."""
    labels = row["tags"]
    if labels is None or any(label is None or len(label.encode()) > 256 for label in labels):
        return []
    different = list(dict.fromkeys(labels))
    return different if most is None else different[:most]


def is_above(row: Row, limit: float) -> bool:
    value = value_of(row)
    return value is not None and value > limit


def is_large(row: Row) -> bool:
    return is_above(row, 100)


def count(rows: list[Row]) -> Truth:
    return {None: len(rows)}


def large(rows: list[Row]) -> Truth:
    return {None: sum(map(is_large, rows))}


def over_25(rows: list[Row]) -> Truth:
    return {None: sum(is_above(row, 25) for row in rows)}


def total(low: float, high: float, grid: float | None = None) -> Told:
    """The sum of values that are moved into a range, and to the nearest multiple of a grid where there is one."""

    def told(rows: list[Row]) -> Truth:
        values = [min(max(value, low), high) for row in rows if (value := value_of(row)) is not None]
        return {None: math.fsum(values if grid is None else (grid * round(value / grid) for value in values))}

    return told


def each_label(column: str, *, nulls: bool = False) -> Told:
    """How many rows have each label; rows without one under "(null)", where that is asked for."""

    def told(rows: list[Row]) -> Truth:
        labels = ((label_of(row, column)) for row in rows)
        return dict(Counter("(null)" if label is None else label for label in labels if nulls or label is not None))

    return told


def sums_by(column: str, low: float, high: float, *, means: bool = False) -> Told:
    """The sum of each label's values, or their mean, moved into a range; of all rows under None for no column."""

    def told(rows: list[Row]) -> Truth:
        found: dict[str | None, list[float]] = {}
        for row in rows:
            value, label = value_of(row), label_of(row, column) if column else None
            if value is not None and (label is not None or not column):
                found.setdefault(label, []).append(min(max(value, low), high))
        return {label: math.fsum(values) / (len(values) if means else 1) for label, values in found.items()}

    return told


def each_tag(most: int | None) -> Told:
    return lambda rows: dict(Counter(label for row in rows for label in labels_of(row, most)))


def commonest(column: str, domain: Iterable[str]) -> Told:
    known = list(domain)
    return lambda rows: {None: max((each_label(column)(rows).get(label, 0) for label in known), default=0)}


def quantiles(low: float, high: float, parts: Iterable[float], places: Iterable[int]) -> Told:
    """The least value at or below which so large a part of all lies; the k-th largest and smallest; nothing of none."""

    def told(rows: list[Row]) -> Truth:
        values = sorted(min(max(value, low), high) for row in rows if (value := value_of(row)) is not None)
        if not values:
            return {}
        found: Truth = {f"{part:g}": values[max(math.ceil(part * len(values)), 1) - 1] for part in parts}
        for place in places:
            if place <= len(values):
                found |= {f"largest {place}": values[-place], f"smallest {place}": values[place - 1]}
        return found

    return told


def different(column: str) -> Told:
    return lambda rows: {None: len({label_of(row, column) for row in rows} - {None})}


def people(condition: Callable[[Row], bool] = lambda row: True) -> Told:
    return lambda rows: {None: len({row["user"] for row in rows if condition(row)})}


Ranked = list[list[tuple[int, Row]]]
"""Of each tick the units that a cap is about, each with its place among those of its user."""


def itself(row: Row) -> list[Row]:
    return [row]


def labelled(row: Row) -> list[Row]:
    """An event counts towards the cap if it has a label."""
    return [] if label_of(row, "place") is None else [row]


def labelled_value(row: Row) -> list[Row]:
    """An event counts towards the cap if it has a label and a value."""
    return [] if value_of(row) is None else labelled(row)


def tags_of(most: int | None) -> Callable[[Row], list[Row]]:
    """Each label of an event counts towards the cap."""
    return lambda row: [row | {"tags": [label]} for label in labels_of(row, most)]


def in_order(units: Callable[[Row], list[Row]]) -> Callable[[list[list[Row]], int | None], Ranked]:
    """The units of each user in their order, in all or in each period of so many ticks."""

    def ranked(rows_by_tick: list[list[Row]], period: int | None) -> Ranked:
        seen: Counter[tuple[str, int]] = Counter()
        found: Ranked = []
        for tick, rows in enumerate(rows_by_tick):
            found.append([])
            for row in rows:
                whose = (row["user"], 0 if period is None else tick // period)
                for unit in units(row):
                    seen[whose] += 1
                    found[-1].append((seen[whose], unit))
        return found

    return ranked


def by_label(
    column: str, *, once: bool, domain: Sequence[str] | None = None
) -> Callable[[list[list[Row]], int | None], Ranked]:
    """Rows by the place of their label among the different ones of their user; of each label the first row alone."""

    def ranked(rows_by_tick: list[list[Row]], period: int | None) -> Ranked:
        held: defaultdict[tuple[str, int], dict[str, int]] = defaultdict(dict)
        found: Ranked = []
        for tick, rows in enumerate(rows_by_tick):
            found.append([])
            for row in rows:
                label = label_of(row, column)
                if label is None or (domain is not None and label not in domain):
                    continue
                mine = held[row["user"], 0 if period is None else tick // period]
                if label not in mine or not once:
                    found[-1].append((mine.setdefault(label, len(mine) + 1), row))
        return found

    return ranked


def spent(rows_by_tick: list[list[Row]], cap: float, low: float, high: float, period: int | None) -> float:
    """The sum of values where a user adds so much at most, in all or in each period."""
    sums: defaultdict[tuple[str, int], float] = defaultdict(float)
    for tick, rows in enumerate(rows_by_tick):
        for row in rows:
            value = value_of(row)
            if value is not None:
                sums[row["user"], 0 if period is None else tick // period] += min(max(value, low), high)
    return math.fsum(min(each, cap) for each in sums.values())


def taken_back(told: Told) -> Told:
    """Of rows that happen and rows that take back: the difference."""

    def difference(rows: list[Row]) -> Truth:
        more, less = (told([row for row in rows if row["change"] == sign]) for sign in (1, -1))
        return {key: more.get(key, 0) - less.get(key, 0) for key in {*more, *less}}

    return difference


def copies(column: str | None) -> Told:
    """How many events rows stand for, in all or of each label."""

    def told(rows: list[Row]) -> Truth:
        found: Truth = {} if column else {None: 0}
        for row in rows:
            label = label_of(row, column) if column else None
            if row["copies"] is not None and (label is not None or column is None):
                found[label] = found.get(label, 0) + row["copies"]
        return found

    return told


def above(rows_by_tick: list[list[Row]], cap: int, period: int | None) -> int:
    """How many users, or pairs of a user and a period, have more rows than that."""
    numbers = Counter(
        (row["user"], 0 if period is None else tick // period) for tick, rows in enumerate(rows_by_tick) for row in rows
    )
    return sum(number > cap for number in numbers.values())


def holders_of(rows: list[Row], held: Callable[[Row], str | None]) -> dict[str, set[str]]:
    """For each key the users who hold it in a tick, each for her first key."""
    keys: dict[str, str] = {}
    for row in rows:
        key = held(row)
        if key is not None:
            keys.setdefault(row["user"], key)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for user, key in keys.items():
        found[key].add(user)
    return found


class Charges:
    """Who still counts for what is watched: each report takes a charge from those who were counted in it."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._used: Counter[str] = Counter()

    @property
    def exhausted(self) -> set[str]:
        return {user for user, used in self._used.items() if used >= self._most}

    def report(self, users: Iterable[str]) -> None:
        self._used.update(users)

    def begin_anew(self) -> None:
        self._used.clear()
