"""Neighbors replayed: two streams that differ by one unit go through a whole plan, under one tape of noise.

What is left out is one event, one user with all she does, or her events of one tick where a period is the unit. With
the same noise on both sides two things must hold, whatever the query and whoever is hidden:

* *Noise* is drawn at the same places, from the same laws, for all series that both sides have, as long as both have
  published the same labels and caps: what decides about noise is public. A label of hers alone is a series of its own.
* *Numbers* move by no more than what a unit may add: all numbers of a release together, by as much as one event adds to
  an answer (`Query.most_moved`), times the cap that is published beside them. Of answers that are no sums, such as
  quantiles and means, nothing is said.

Both are stored and taken up again on the way, so that whoever forgets a user in a restart is seen. There is no chance
in it: a sound mechanism is never accused. What law the noise has is what the sampling attacks look at.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from pianissimo.audit.report import AuditReport, Finding
from pianissimo.noise import Noise
from pianissimo.noise.keyed import Integers, Keys, OuterNoise, PathPart
from pianissimo.queries import Query, Role
from pianissimo.stream.batches import columns_read
from pianissimo.stream.live_core import LiveCore
from pianissimo.stream.stream_plan import StreamPlan
from pianissimo.unit import User

REPLAYED_TICKS = 3
"""How many ticks are replayed, where all queries are published at each of them."""

_MOST_TICKS = 12

_ROWS, _USERS, _HERS = 400, 100, 12
"""Of a tick: how many rows others have, how many others there are, and how many rows are of her."""

_HERS_COLUMN = "is hers"

_SEEN = 1e-9
"""What counts as a move at all."""

Place = tuple[tuple[PathPart, ...], str, Fraction]
Places = dict[Place, list[Keys]]
Tables = dict[str, pl.DataFrame]


class TapedNoise(OuterNoise):
    """Passes calls on and writes down where noise was drawn, by which law, and for which series."""

    def __init__(self, inner: Noise, path: tuple[PathPart, ...] = (), places: Places | None = None) -> None:
        super().__init__(inner)
        self.path = path
        self.places: Places = {} if places is None else places

    def at(self, *path: PathPart) -> Self:
        return type(self)(self.inner.at(*path), self.path + path, self.places)

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        self.places.setdefault((self.path, law, parameter), []).append(keys)
        self.inner.draw(law, parameter, keys, out)

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        self.places.setdefault((self.path, "bits", Fraction(0)), []).append(keys)
        return self.inner.bits(keys)


@dataclass(slots=True)
class Moves:
    """What was seen of one query over all pairs."""

    largest: float = 0.0
    """The largest share of what a unit may add that the numbers of a release moved by together."""

    is_compared: bool = False
    """Whether some release showed numbers on both sides."""

    otherwise: int = 0
    """In how many pairs noise was drawn at other places."""


def replay_report(plan: StreamPlan, noise: Noise, *, pairs: int = 4) -> AuditReport:
    """So many pairs of neighbors through a plan, each with its own rows and its own noise."""
    queries = [each.query for each in plan.queries]
    found = {query.name: Moves() for query in queries}
    for number in range(pairs):
        _replay(plan, noise.at("pair", number), number, found)
    otherwise = float(sum(moves.otherwise for moves in found.values()))
    findings = []
    for each in plan.queries:
        about: dict[str, Any] = {
            "pair": f"{each.query.name}: one {plan.protected}",
            "runs": pairs,
            "releases": _ticks(plan),
        }
        if each.query.most_moved(each.mechanism) is None or not found[each.query.name].is_compared:
            # No sum, or nothing of it is shown of so few rows: then where noise is drawn is all there is to see.
            findings.append(_places(otherwise, **about))
            continue
        findings.append(
            Finding(
                measure="move",
                claim=1.0,
                lower_bound=found[each.query.name].largest,
                excess=1 + _SEEN,
                reachable=_SEEN,
                expected=_SEEN,
                statistic="sum over labels",
                **about,
            )
        )
    findings.append(_places(otherwise, pair="all noise", runs=pairs, releases=_ticks(plan)))
    return AuditReport(mechanism=f"stream {plan.name!r}, replayed", confidence=1.0, findings=tuple(findings))


def _places(otherwise: float, **about: Any) -> Finding:
    return Finding(measure="places", claim=0.0, lower_bound=otherwise, statistic="pairs with other places", **about)


def _ticks(plan: StreamPlan) -> int:
    seldom = max(int(each.query.every) for each in plan.queries)
    return min(plan.horizon, max(REPLAYED_TICKS, min(2 * seldom, _MOST_TICKS)))


def _replay(plan: StreamPlan, noise: Noise, number: int, found: dict[str, Moves]) -> None:
    ticks, random = _ticks(plan), np.random.default_rng(number)
    rows = list(_generated(plan, ticks, random, own_first=number % 2 == 1))
    larger, smaller = (_World(plan, noise) for _ in range(2))
    hers = _left_out(plan, ticks, random)
    same, suspects = True, set[bytes]()
    for tick, batch in enumerate(rows, 1):
        one = larger.tick(batch, tick)
        other = smaller.tick(batch.filter(~hers(batch, tick)), tick)
        same = same and _public(one) == _public(other)
        taken = larger.taken(), smaller.taken()
        if same:
            suspects |= _elsewhere(*taken)
        for each in plan.queries:
            most = each.query.most_moved(each.mechanism)
            name = each.query.name
            if most is not None and name in one and name in other:
                found[name].is_compared |= one[name].height > 0 and other[name].height > 0
                found[name].largest = max(found[name].largest, _moved(one[name], other[name]) / most)
        if tick == 1:
            larger.restart()
            smaller.restart()
    if suspects and suspects & larger.series() & smaller.series():
        next(iter(found.values())).otherwise += 1


def _elsewhere(one: Places, other: Places) -> set[bytes]:
    """The series whose noise one side drew at a place where the other did not."""
    found: set[bytes] = set()
    for place in one.keys() | other.keys():
        left, right = one.get(place, []), other.get(place, [])
        if len(left) != len(right) or not all(map(np.array_equal, left, right)):
            found |= _series(left) ^ _series(right)
    return found


def _series(drawn: Sequence[Keys]) -> set[bytes]:
    return {key.tobytes() for keys in drawn for key in keys}


class _World:
    """One of two streams, and where its noise was drawn since it was asked."""

    def __init__(self, plan: StreamPlan, noise: Noise) -> None:
        self._plan, self._noise, self._logs = plan, TapedNoise(noise), list[list[Any]]()
        self._taken: list[Places] = []
        self._core = LiveCore(plan, lambda every: self._noise)  # noqa: ARG005

    def tick(self, batch: pl.DataFrame, tick: int) -> Tables:
        self._core.update(self._core.inputs(batch, tick, drop_bad_rows=False))
        tables = self._core.release(tick)
        self._logs.append(self._core.logs(tick))
        return tables

    def taken(self) -> Places:
        """Where noise was drawn since it was asked last."""
        self._taken.append(dict(self._noise.places))
        self._noise.places.clear()
        return self._taken[-1]

    def series(self) -> set[bytes]:
        """All series whose noise was ever drawn."""
        return {key for places in self._taken for drawn in places.values() for key in _series(drawn)}

    def restart(self) -> None:
        stored = self._core.dump()
        self._core = LiveCore(self._plan, lambda every: self._noise)  # noqa: ARG005
        self._core.load(stored, self._logs)


def _generated(plan: StreamPlan, ticks: int, random: np.random.Generator, *, own_first: bool) -> Iterator[pl.DataFrame]:
    """Rows of others, and among them hers, which are marked: more than a cap lets through.

    Half of hers hold the label that is the most common one, and half labels that nobody else holds.
    """
    user = plan.unit if isinstance(plan.unit, User) else None
    queries = [each.query for each in plan.queries]
    for tick in range(1, ticks + 1):
        is_hers = random.permutation(_ROWS + _HERS) < _HERS
        is_own = is_hers & ((np.cumsum(is_hers) <= _HERS // 2) == own_first)
        columns: dict[str, Any] = {_HERS_COLUMN: is_hers}
        for name, column in columns_read(queries, user).items():
            if column.role is Role.USERS:
                others = random.integers(0, _USERS, len(is_hers)).astype(str).astype(object)
                columns[name] = pl.Series(np.where(is_hers, "she", others).tolist(), dtype=pl.String)
            elif column.role is Role.NUMBERS:
                numbers = _numbers(name, queries)
                # Of rows that stand for many events, hers is one alone: without it, one event is missing.
                own = 1.0 if name in (query.count_column for query in queries) else max(numbers, key=abs)
                columns[name] = np.where(is_hers, own, random.choice(numbers, len(is_hers)))
            else:
                labels = _labels(name, queries)
                values = random.choice([*labels, *labels[:1] * 2], len(is_hers)).astype(object)
                values[is_hers] = labels[0]
                values[is_own] = [f"hers {tick} {place}" for place in range(int(is_own.sum()))]
                columns[name] = pl.Series(values.tolist(), dtype=pl.String)
        if user is not None and user.weight is not None:
            columns[user.weight] = np.ones(len(is_hers), dtype=np.int64)
        yield pl.DataFrame(columns)


def _labels(column: str, queries: Sequence[Query]) -> list[str]:
    """What a column of labels may hold: listed labels, those that conditions name, or any."""
    found: list[str] = []
    for query in queries:
        domain = getattr(query, "domain", None)
        if domain is not None and any(each.name == column for each in query.reads):
            found += domain.labels.head(3).to_list()
        if query.where is not None:
            found += re.findall(r"'([^']*)'", str(query.where))
    return list(dict.fromkeys(found)) or ["a", "b", "c"]


def _numbers(column: str, queries: Sequence[Query]) -> list[float]:
    """What a column of numbers may hold: the ends of ranges, and what conditions name, with both sides of it."""
    found = [0.0, 1.0, 5.0]
    for query in queries:
        ends = getattr(query, "range", None)
        if ends is not None and any(each.name == column for each in query.reads):
            found += [float(end) for end in ends] * 2
        for number in re.findall(r"(?<![\w'])-?\d+(?:\.\d+)?", str(query.where or "")):
            found += [float(number) - 1, float(number), float(number) + 1]
    return found


def _left_out(plan: StreamPlan, ticks: int, random: np.random.Generator) -> Callable[[pl.DataFrame, int], pl.Series]:
    """Which rows of a tick the smaller stream lacks."""
    if isinstance(plan.unit, User):
        last = 1 if plan.unit.within is not None else ticks
        return lambda batch, tick: batch[_HERS_COLUMN] & (tick <= last)
    chosen = int(random.integers(1, ticks + 1))

    def one_event(batch: pl.DataFrame, tick: int) -> pl.Series:
        return batch[_HERS_COLUMN] & (batch[_HERS_COLUMN].cum_sum() == 1) & (tick == chosen)

    return one_event


def _public(tables: Tables) -> dict[str, Any]:
    """The labels and the caps of a release, by which noise may go on."""
    return {
        name: [table[column].to_list() for column in ("key", "cap") if column in table.columns] or table.height
        for name, table in tables.items()
    }


def _moved(one: pl.DataFrame, other: pl.DataFrame) -> float:
    """By how much the numbers of two tables differ together, over the cap, if both have the same."""
    cap = 1
    if "cap" in one.columns and one.height and other.height:
        caps = {*one["cap"].to_list(), *other["cap"].to_list()}
        if len(caps) > 1:
            return 0.0
        cap = caps.pop()
    if "key" in one.columns:
        # Labels of one side alone have passed a threshold there, and not here.
        both = one.filter(pl.col("key").is_not_null()).join(other, on="key", how="inner")
    else:
        both = pl.concat([one, other.rename(lambda name: f"{name}_right")], how="horizontal")
    return float((both["estimate"] - both["estimate_right"]).abs().sum()) / cap
