"""A rate is a count divided by the ticks so far, with a count's promise."""

import math
from typing import Any

import pytest

import pianissimo as pp
from pianissimo.stream import Live, StreamPlan
from pianissimo.testing import NoNoise, SeededNoise


def planned(*queries: Any, **changes: Any) -> StreamPlan:
    fields: dict[str, Any] = {"budget": pp.Budget(1.0, 1e-9), "horizon": 64, **changes}
    return pp.Stream("s", queries=queries or (pp.Rate("r"),), **fields).plan()


def test_without_noise_it_is_the_average() -> None:
    live = Live(planned(), NoNoise())
    assert [live.tick([{}] * events)["r"]["estimate"].item() for events in (6, 0, 3)] == [6.0, 3.0, 3.0]


def test_every_counts_ticks_and_not_releases() -> None:
    live = Live(planned(pp.Rate("r", every=2)), NoNoise())
    tables = [live.tick([{}] * 5) for _ in range(4)]
    assert ["r" in each for each in tables] == [False, True, False, True]
    assert [each["r"]["estimate"].item() for each in tables if "r" in each] == [5.0, 5.0]


def test_its_bars_are_those_of_a_count_divided() -> None:
    rate = planned()
    assert rate.price.epsilon <= 1.0
    live = Live(rate, SeededNoise(1))
    for tick in range(1, 9):
        table = live.tick([{}] * 100)["r"]
        assert table.columns == ["estimate", "low", "high"]
        half = math.floor(rate.queries[0].mechanism.error(tick, 0.95)) / tick
        assert table["high"].item() - table["estimate"].item() == pytest.approx(half)


def test_the_error_that_is_expected_is_that_of_the_bars() -> None:
    plan = planned()
    halves = [plan.queries[0].mechanism.error(tick, 0.95) / tick for tick in range(1, 65)]
    expected = plan.queries[0].expected_error
    assert expected.largest == pytest.approx(max(halves), rel=0.15)
    assert expected.typical == pytest.approx(math.sqrt(sum(half**2 for half in halves) / 64), rel=0.15)


def test_it_has_no_windows_and_is_not_asked_of_users() -> None:
    live = Live(planned(pp.Rate("r"), pp.Count("n")), NoNoise())
    live.tick([{}] * 5)
    assert list(live.window(1)) == ["n"]
    with pytest.raises(pp.ParameterError, match="must be asked of single events"):
        planned(unit=pp.user("who"))
