"""A public floor of unknown labels: what cannot be shown is not looked at, and no bit of a release changes."""

from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.faults.report import size
from tests.shared_checks import counting_noise, resumed, stored

import pianissimo as pp
from pianissimo import codec
from pianissimo.counting import UnknownHistogram
from pianissimo.counting.reachable import Reachable
from pianissimo.errors import ParameterError
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, SplinePlan, TreePlan
from pianissimo.noise.laws import gaussian_node
from pianissimo.noise.plan import largest_noise
from pianissimo.testing import NoNoise, SeededNoise

PLANS: dict[str, Any] = {
    "tree": TreePlan.calibrated(horizon=8, rho=2.0),
    "haar": HaarPlan.calibrated(horizon=7, rho=2.0),
    "spline": SplinePlan.calibrated(horizon=16, rho=2.0),
}
every_plan = pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS.keys())


def made(plan: Any, **fields: Any) -> UnknownHistogram:
    return UnknownHistogram(plan=plan, delta=Fraction(1, 4), history=8, **fields)


def floor_of(plan: Any) -> int:
    """A floor that noise cannot reach from nothing."""
    return 40 + int(largest_noise(plan) >> plan.shift)


def releases(mechanism: UnknownHistogram, ticks: list[list[int]], noise: Any, restart: int) -> list[Any]:
    """Releases and windows of labels that get so many events at each tick; it is stored and resumed once."""
    run: Any = Run(mechanism, noise)
    found: list[Any] = []
    logs = []
    for tick, counts in enumerate(ticks, 1):
        events = [f"label {place}" for place, count in enumerate(counts) for _ in range(count)]
        run.update(pl.Series(events, dtype=pl.String))
        found.append(run.release().value.to_dict())
        found.append(run.between(max(0, tick - 3), tick).value.to_dict())
        logs.append(codec.unpack("log", 1, codec.pack("log", 1, run.log())))
        if tick == restart:
            run = resumed(mechanism, noise, stored(run), logs)
    return found


def all_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Reachable, "slots", lambda self, counts: None)


def as_the_plain(plan: Any, ticks: list[list[int]], noise: Any, **fields: Any) -> bool:
    """Whether releases are those of a histogram that looks at all labels."""
    mechanism = made(plan, **fields)
    own = releases(mechanism, ticks, noise, restart=len(ticks) // 2)
    with pytest.MonkeyPatch.context() as patch:
        all_looked_at(patch)
        return own == releases(mechanism, ticks, noise, restart=0)


counts = st.lists(st.lists(st.sampled_from([0, 0, 1, 9, 60, 400]), min_size=4, max_size=4), min_size=2, max_size=7)


@every_plan
@settings(max_examples=size(12, 100), deadline=None)
@given(ticks=counts, seed=st.integers(0, 2**32), remember=st.booleans())
def test_it_shows_what_a_histogram_shows_that_looks_at_all_labels(
    plan: Any, ticks: list[list[int]], seed: int, remember: bool
) -> None:
    assert as_the_plain(plan, ticks, SeededNoise(seed), show_from=floor_of(plan), remember=remember)


class Loudest(NoNoise):
    """Every draw is the largest that its sampler can give."""

    def at(self, *_: Any) -> "Loudest":
        return self

    def draw(self, law: str, parameter: Fraction, keys: Any, out: Any) -> None:
        out[:] = gaussian_node(parameter).bound if law == "gaussian" else 0


def near_the_floor(plan: Any) -> list[list[int]]:
    """Labels whose counts are about as far below the floor as noise can ever lift them."""
    least = made(plan, show_from=floor_of(plan))._least_count
    return [[least - 2, least - 1, least, least + 1], *([[0] * 4] * (min(plan.horizon, 8) - 1))]


@every_plan
def test_noise_at_its_largest_lifts_no_label_that_was_left_out(plan: Any) -> None:
    assert as_the_plain(plan, near_the_floor(plan), Loudest(), show_from=floor_of(plan))


def test_a_label_at_the_very_reach_of_noise_is_shown() -> None:
    plan = PLANS["tree"]
    mechanism = made(plan, show_from=floor_of(plan))
    found = releases(mechanism, near_the_floor(plan), Loudest(), restart=0)
    assert {"label 2", "label 3"} <= set(found[-2])
    assert "label 1" not in found[-2]


def test_leaving_out_what_noise_could_lift_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: labels one event closer are left out."""
    plan = PLANS["tree"]
    sound = Reachable.__init__
    monkeypatch.setattr(Reachable, "__init__", lambda self, least: sound(self, least + 1))
    assert not as_the_plain(plan, near_the_floor(plan), Loudest(), show_from=floor_of(plan))


def test_forgetting_that_a_label_moved_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutant: labels that come near the floor after the first release are not seen."""
    plan = PLANS["haar"]
    monkeypatch.setattr(Reachable, "note", lambda self, slots: None)
    ticks = [[1, 1, 1, 1], [2 * floor_of(plan)] * 4, *([[0] * 4] * 3)]
    assert not as_the_plain(plan, ticks, SeededNoise(1), show_from=floor_of(plan))


def test_work_is_for_few_labels() -> None:
    """Of a thousand labels with one event each and one with many, noise is drawn for one."""
    plan = PLANS["haar"]
    drawn: list[int] = []
    run: Any = Run(made(plan, show_from=floor_of(plan)), counting_noise(3, drawn))
    for _ in range(3):
        run.update(pl.Series([f"rare {place}" for place in range(1000)] + ["often"] * 2 * floor_of(plan)))
        assert list(run.release().value.to_dict()) == ["often"]
    assert set(drawn) == {1}


def test_a_floor_below_the_threshold_changes_nothing() -> None:
    plan = PLANS["haar"]
    assert [made(plan, show_from=2).threshold(tick) for tick in (1, 4)] == [made(plan).threshold(t) for t in (1, 4)]
    assert made(plan, show_from=500).threshold(4) == 500
    assert made(plan).guarantee == made(plan, show_from=500).guarantee


@pytest.mark.parametrize("unit", [None, pp.user("who", max_events_per_user=4)], ids=["events", "users"])
def test_a_stream_shows_no_label_below_its_floor(unit: Any) -> None:
    queries = [pp.Histogram("drugs", key="drug", show_from=5000), pp.TopK("top", key="drug", k=2, show_from=5000)]
    given_unit = {} if unit is None else {"unit": unit}
    stream = pp.Stream("floor", budget=pp.Budget(1, 1e-9), horizon=10, queries=queries, **given_unit)
    assert all(each["threshold"] == {"least": 5000, "largest": 5000} for each in stream.plan().to_dict()["queries"])
    drugs = np.repeat(["often", "seldom"], [9000, 3000])
    frame = pl.DataFrame({"drug": drugs, "who": np.arange(len(drugs))})
    release = stream.start().tick(frame)
    assert release["drugs"]["key"].to_list() == release["top"]["key"].to_list() == ["often"]


def test_a_floor_of_listed_labels_is_refused() -> None:
    with pytest.raises(ParameterError, match="show_from must be left out where the domain is known"):
        pp.Histogram("drugs", key="drug", domain=["a"], show_from=10)
