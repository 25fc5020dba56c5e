"""Noisy node sums: the releases of the ordinary mechanisms, from a state that is C x + z and nothing else."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, cast

import numpy as np
import polars as pl
import pytest

from pianissimo import codec
from pianissimo.counting import Counter, KnownHistogram, NoisyHistogram, NoisyTopList, NoisyTotal, Summer, TopList
from pianissimo.errors import InputError, ParameterError, StateError
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import (
    DoublingPlan,
    HaarPlan,
    HaarSkipPlan,
    KeyedNoise,
    SplinePlan,
    ToeplitzPlan,
    TopDownPlan,
    TreePlan,
)
from pianissimo.noise.noisy_nodes import NodeSums, _weighted, state_bytes
from pianissimo.noise.plan import terms_of
from pianissimo.testing import NoNoise, SeededNoise, check_gathering, check_resuming, check_splitting

HORIZON = 24
PLANS: dict[str, Callable[[int], Any]] = {
    "base-2 tree": lambda horizon: TreePlan.calibrated(horizon=horizon, rho=0.5, base=2),
    "base-5 tree": lambda horizon: TreePlan.calibrated(horizon=horizon, rho=0.5, base=5),
    "no tree": lambda horizon: TreePlan.calibrated(horizon=horizon, rho=0.5, base=horizon + 1),
    "haar": lambda horizon: HaarPlan.calibrated(horizon=horizon, rho=0.5),
    "haar, pure": lambda horizon: HaarPlan.calibrated(horizon=horizon, epsilon=1.0),
    "open haar": lambda horizon: HaarPlan.open(rho=0.5),
    "haar + skipping": lambda horizon: HaarSkipPlan.calibrated(horizon=horizon, rho=0.5),
    "doubling": lambda horizon: DoublingPlan.calibrated(horizon=horizon, rho=0.5),
    "spline": lambda horizon: SplinePlan.calibrated(horizon=horizon, rho=0.5),
    "top-down": lambda horizon: TopDownPlan.calibrated(horizon=horizon, epsilon=1.0),
}
LABELS = ["a", "b", "c", "d"]


@pytest.fixture(params=PLANS)
def plan(request: pytest.FixtureRequest) -> Any:
    return PLANS[request.param](HORIZON)


def batches(seed: int = 1) -> list[list[str]]:
    chance = np.random.default_rng(seed)
    return [list(chance.choice([*LABELS, "elsewhere"], size=int(chance.integers(0, 30)))) for _ in range(HORIZON)]


def test_releases_are_those_of_the_ordinary_mechanisms_with_the_same_draws(plan: Any) -> None:
    known = KnownHistogram(plan=plan, domain=Domain(LABELS))
    pairs: list[tuple[Any, Any, Any]] = [
        (Counter(plan=plan), NoisyTotal(counter=Counter(plan=plan)), len),
        (Summer(plan=plan, low=-3, high=9), NoisyTotal(counter=Summer(plan=plan, low=-3, high=9)), _values),
        (known, NoisyHistogram(histogram=known), pl.Series),
        (TopList(histogram=known, k=2), NoisyTopList(histogram=NoisyHistogram(histogram=known), k=2), pl.Series),
    ]
    for ordinary, noisy, read in pairs:
        noise = KeyedNoise(bytes(range(32)))
        one, other = Run(ordinary, noise), Run(noisy, noise)
        for batch in batches():
            content = batch if read is len else read(batch, dtype=pl.String) if read is pl.Series else read(batch)
            one.update(content)
            for part in (content[:3], content[3:]):
                other.update(part)
            left, right = one.release(), other.release()
            assert left.error == right.error
            assert _plain(left.value) == _plain(right.value)


def _values(batch: list[str]) -> pl.Series:
    return pl.Series([len(label) * 5 - 7 for label in batch], dtype=pl.Int64)


def _plain(value: Any) -> Any:
    return value if isinstance(value, int) else value.to_dict()


def test_a_state_is_the_plans_sums_with_their_noise_and_nothing_else(plan: Any) -> None:
    """Every number in it is (C x + z) of a node, by independent arithmetic, for all ticks so far."""
    noise = SeededNoise(3)
    run = Run(NoisyTotal(counter=Counter(plan=plan)), noise)
    sums: dict[tuple[int, int], int] = {}
    for tick, batch in enumerate(batches(), 1):
        run.update(batch)
        run.release()
        for level, node, weight in plan.influence(tick):
            sums[level, node] = sums.get((level, node), 0) + weight * len(batch)
        content = run.dump()["state"]
        assert set(content) == {"sums"}
        assert set(content["sums"]) == {"tick", "begun", "nodes"}
        assert (content["sums"]["tick"], content["sums"]["begun"]) == (tick, tick)
        assert len(content["sums"]["nodes"]) <= plan.open_nodes
        for level, node, values in content["sums"]["nodes"]:
            draw = np.empty(1, dtype=np.int64)
            plan.noises[level].draw(noise.at(level, node), np.zeros((1, 2), np.uint64), draw)
            assert int(values[0]) == sums.get((level, node), 0) + int(draw[0])


class Shifted:
    """Noise of some nodes, given as whole numbers: the ideal noise, moved at will."""

    def __init__(self, draws: dict[Any, int], path: tuple[Any, ...] = ()) -> None:
        self._draws, self._path = draws, path

    def at(self, *path: Any) -> "Shifted":
        return Shifted(self._draws, self._path + path)

    def gaussian(self, *_: Any, out: Any, **__: Any) -> None:
        out[:] = self._draws.get(self._path, 0)

    laplace = gaussian


def test_an_event_that_came_is_a_shift_of_the_noise_to_whoever_sees_the_state(plan: Any) -> None:
    """The proof as a test: with the event, or without it and the noise moved by its column: equal bytes at all ticks.

    From the event's tick on the states are equal, so that no theft tells more than the noise's law; releases are equal
    at all ticks. A state with the exact total, the twin, differs.
    """
    for event in (1, 6, HORIZON):
        column = {(term.level, term.node): term.weight for term in plan.influence(event)}
        draws: list[Any] = [Shifted({}), Shifted(column)]
        with_it, without = (Run(NoisyTotal(counter=Counter(plan=plan)), each) for each in draws)
        twins = [Run(Counter(plan=plan), each) for each in draws]
        for tick, batch in enumerate(batches(), 1):
            more = [*batch, "x"] if tick == event else batch
            with_it.update(more)
            without.update(batch)
            twins[0].update(more)
            twins[1].update(batch)
            values = {with_it.release().value, without.release().value, *(twin.release().value for twin in twins)}
            assert len(values) == 1
            if tick >= event:
                left, right = (codec.pack("state", 1, run.dump()) for run in (with_it, without))
                assert left == right
                left, right = (codec.pack("state", 1, run.dump()) for run in twins)
                assert left != right


@pytest.mark.parametrize("horizon", [1, 5, 16, 17, 100])
@pytest.mark.parametrize("name", [name for name in PLANS if name != "open haar"])
def test_a_node_is_kept_from_its_first_touch_to_its_last_use(name: str, horizon: int) -> None:
    plan = PLANS[name](horizon)
    first: dict[tuple[int, int], int] = {}
    last: dict[tuple[int, int], int] = {}
    for tick in range(1, horizon + 1):
        used = [(term.level, term.node) for term in terms_of(plan, tick) if term.weight]
        last |= dict.fromkeys(used, tick)
        for node in used + [(term.level, term.node) for term in plan.influence(tick) if term.weight]:
            first.setdefault(node, tick)
    changes = [0] * (horizon + 2)
    for node, begin in first.items():
        end = plan.last_use(*node)
        assert end >= last.get(node, 0), node
        if name != "haar + skipping":
            # Skipping may keep a node that no further release happens to use.
            assert end == last.get(node, 0), node
        if end >= begin:
            assert node in last
            changes[begin] += 1
            changes[end + 1] -= 1
    assert max(np.cumsum(changes)) <= plan.open_nodes


def test_long_horizons_keep_few_nodes() -> None:
    run = Run(NoisyTotal(counter=Counter(plan=HaarPlan.open(rho=0.5))), SeededNoise(1))
    for _ in range(300):
        run.release()
    assert len(run.dump()["state"]["sums"]["nodes"]) <= HaarPlan.open(rho=0.5).open_nodes == 33
    assert state_bytes(HaarPlan.open(rho=0.5), 100) == 33 * 100 * 8


def test_sums_that_need_more_than_64_bits_are_weighed_exactly() -> None:
    chance = np.random.default_rng(4)
    for shift in (0, 5, 32):
        for scale in (2**20, 2**60):
            terms = [(chance.integers(-scale, scale, 9), int(chance.integers(-(2**33), 2**33))) for _ in range(5)]
            terms = [(values, weight if scale < 2**60 else weight >> 20) for values, weight in terms]
            exact = [
                Fraction(sum(int(values[place]) * weight for values, weight in terms), 1 << shift) for place in range(9)
            ]
            if all(abs(each) < 2**62 for each in exact):
                expected = [int((each + Fraction(1, 2)).__floor__()) if shift else int(each) for each in exact]
                assert _weighted(terms, shift, 9).tolist() == expected


def test_a_sum_that_would_leave_its_bounds_is_refused_and_nothing_changes() -> None:
    plan = HaarPlan.calibrated(horizon=8, rho=0.5)
    run = Run(NoisyTotal(counter=Summer(plan=plan, low=0, high=2**50)), SeededNoise(1))
    run.update(pl.Series([5]))
    before = codec.pack("state", 1, run.dump())
    with pytest.raises(InputError, match=r"below 2\^61"):
        run.update(pl.Series([2**50] * 2048))
    assert codec.pack("state", 1, run.dump()) == before


def test_many_events_of_a_long_stream_are_counted_exactly() -> None:
    run = Run(NoisyTotal(counter=Summer(plan=HaarPlan.open(rho=0.5), low=0, high=2**50)), NoNoise())
    for tick in range(1, 12):
        run.update(pl.Series([2**50 - 1] * 7))
        assert run.release().value == tick * 7 * (2**50 - 1)


def test_it_splits_resumes_and_gathers_as_every_mechanism_does(plan: Any) -> None:
    noisy = NoisyHistogram(histogram=KnownHistogram(plan=plan, domain=Domain(LABELS)))
    ticks = [pl.Series(batch, dtype=pl.String) for batch in batches()[:6]]
    check_splitting(noisy, cast(Any, ticks[1]), [1, 2])
    check_resuming(noisy, ticks, 3)
    check_gathering(noisy, ticks, range(3))


def test_what_keeps_exact_counts_is_refused() -> None:
    with pytest.raises(ParameterError, match="plan whose nodes end, got toeplitz"):
        NoisyTotal(counter=Counter(plan=ToeplitzPlan.calibrated(horizon=8, rho=0.5)))
    with pytest.raises(ParameterError, match="no history"):
        NoisyTotal(counter=Counter(plan=HaarPlan.calibrated(horizon=8, rho=0.5), history=3))
    sums = NodeSums(HaarPlan.calibrated(horizon=8, rho=0.5), 2)
    with pytest.raises(StateError, match="series"):
        sums.take_plain({"tick": 0, "begun": 1, "nodes": [[0, 0, np.zeros(3, np.int64)]]})
