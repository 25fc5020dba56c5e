"""`python -m tests.users.prices_page` writes the table of what exact prices are worth into docs/choosing.md."""

import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

from tests.users.test_cards import PUBLISHED

import pianissimo as pp
from pianissimo.noise import HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan
from pianissimo.unit import User
from pianissimo.users import Counters, Sensitivity
from pianissimo.users.caps import discount_of, reach_of

PAGE = Path(__file__).parents[2] / "docs" / "choosing.md"
BEGIN, END = "<!-- prices -->\n", "<!-- end of prices -->"
KINDS = (HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan)
RHO_OF_ONE = Fraction(14407, 10**6)
"""Of epsilon 1 and delta 5e-10."""


class Row(NamedTuple):
    """What is compared, and both numbers."""

    what: str
    before: float
    now: float


def typical(horizon: int, rho: Fraction, cap: int, *, few: bool = True, **sensitivity: Any) -> float:
    """The least typical deviation of all plans, for a user under a cap; toeplitz is for few series alone."""
    own = Sensitivity(total=1, squared=1, **sensitivity)
    found = []
    for kind in KINDS if few and horizon <= 4096 else KINDS[:-1]:
        counters = Counters(
            kind=kind, horizon=horizon, loss=rho, is_pure=False, sensitivity=own, weights=(Fraction(1),)
        )
        plan = counters.plan(1, cap, 0)
        assert plan is not None
        found.append(math.sqrt(plan.variance_profile().mean()))
    return min(found)


def of_values() -> Iterator[Row]:
    """Distinct counts: the price of a move, in place of two or four times that of a unit."""
    for horizon in (100, 720, 8760):
        before, now = (typical(horizon, Fraction(1, 2), 1, moves=True, moves_priced=priced) for priced in (False, True))
        yield Row(
            f"deviation of `Distinct` of events, or of users at a cap of 1, {horizon:,} ticks, rho 1/2", before, now
        )


def of_labels() -> Iterator[Row]:
    """Users of each label: their units are in different series."""
    for cap in (16, 64):
        before, now = (typical(720, RHO_OF_ONE, cap, few=False, most_per_series=most) for most in (None, 1))
        yield Row(f"deviation of users per label, at a cap of {cap} labels, 720 ticks, epsilon 1", before, now)


def of_tests() -> Iterator[Row]:
    """Users above the cap at its first level: noise that is never negative, in place of noise of both signs."""
    scale, failure = float(PUBLISHED.nodes[0].scale), 0.05 * 6 / math.pi**2
    for tests in (1, 100, 1000):
        ends = math.log(1 / failure) + math.log((math.pi * tests) ** 2 / (6 * failure))
        now = discount_of(scale, 6 * failure / (math.pi * tests) ** 2) + reach_of(scale, failure)
        yield Row(
            f"users above the first cap at most, after {tests:,} {'tests' if tests > 1 else 'test'}, epsilon 1/5",
            2 * math.ceil(scale * ends),
            now,
        )


def of_sums() -> Iterator[Row]:
    """Sums of users: a cap of 16 events of up to 500, and one of what a user adds."""
    events = _error(pp.Sum("s", value="v", range=(0, 500)), pp.user("u", max_events_per_user=16))
    for most in (8000, 2000):
        value = _error(pp.Sum("s", value="v", range=(0, 500), max_per_user=most), pp.user("u"))
        yield Row(
            f"half-width of a sum of 0 .. 500: 16 events a user, or `max_per_user={most}`, 24 ticks", events, value
        )


def _error(query: pp.Sum, unit: User) -> float:
    stream = pp.Stream("s", unit=unit, budget=pp.Budget(1.0, 1e-9), horizon=24, queries=[query])
    return stream.plan().queries[0].expected_error.typical


def written() -> str:
    """The table in Markdown."""
    rows = [*of_values(), *of_labels(), *of_tests(), *of_sums()]
    lines = [f"| {row.what} | {_told(row.before)} | {_told(row.now)} | {row.now / row.before:.2f} |" for row in rows]
    return "\n".join(["", "| | before | now | times |", "| --- | --- | --- | --- |", *lines, "", ""])


def _told(number: float) -> str:
    return f"{number:.2f}" if number < 100 and number != int(number) else f"{number:,.0f}"


def on_page() -> str:
    """What stands in the page."""
    return PAGE.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{written()}{END}{rest.partition(END)[2]}", encoding="utf-8")
