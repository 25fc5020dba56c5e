"""What is counted, kept of the past and drawn, in settings that are rare: `python -m tests.pin_counting` pins it.

Sums and means by label in every form, sums on coarse grids, intervals of long pasts, noise of lists that grow, and the
thresholds of unknown labels. Where there is a second way to a number, it is asked for and compared beside it. Read the
difference before you commit it.
"""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import polars as pl
from tests.pin_releases import SEED, digest, run_of
from tests.pin_sketches import tried

from pianissimo.counting import Counter, KnownHistogram, Summer, UnknownHistogram
from pianissimo.counting.counter import grid_steps
from pianissimo.counting.label_sums import LabelSums
from pianissimo.counting.meta import TopList
from pianissimo.counting.unknown import ThresholdRule, _constant_spread, _log_share, _spread_at, threshold_at
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import DoublingPlan, HaarPlan, HaarSkipPlan, SplinePlan, ToeplitzPlan, TopDownPlan, TreePlan
from pianissimo.noise import running as running_module
from pianissimo.noise.recent import Recent
from pianissimo.noise.running import check_answers, evaluate, running_noise, series_keys, wrapped
from pianissimo.testing import SeededNoise

PINNED = Path(__file__).parent / "counting.json"
F = Fraction
LABELS = ["a", "b", "c", "d", "ü"]


def rows(tick: int, *, lists: bool = False) -> pl.Series:
    """Labels with values, some beyond every limit."""
    numbers = [(7 * place * place + 3 * place + tick) % 101 for place in range((9, 60, 0, 25, 80, 3)[tick])]
    values = [number % 23 - 11 for number in numbers]
    keys: list[Any] = [LABELS[number % 11 % 5] for number in numbers]
    if lists:
        keys = [[LABELS[(number + step) % 7 % 5] for step in range(number % 4)] for number in numbers]
    kind = pl.List(pl.String) if lists else pl.String
    return pl.DataFrame({"key": pl.Series(keys, dtype=kind), "value": pl.Series(values, dtype=pl.Int64)}).to_struct()


def loud(horizon: int = 6) -> Any:
    """A plan with little noise."""
    return HaarPlan.calibrated(horizon=horizon, rho=2.0)


def pure(horizon: int = 6) -> Any:
    """The same without a delta."""
    return TreePlan.calibrated(horizon=horizon, epsilon=4.0)


def label_sums() -> dict[str, LabelSums]:
    """Sums, and means, by label: known and unknown, centred and by ends, on grids."""
    domain = Domain(LABELS[:4])
    return {
        "sum": LabelSums(plan=loud(), low=-4, high=6, domain=domain),
        "coarse sum": LabelSums(plan=loud(), low=-6, high=9, coarse=3, domain=domain, max_keys_per_event=2),
        "centred": LabelSums(
            plan=loud(), sum_plan=HaarPlan.calibrated(horizon=6, rho=1.0), low=-3, high=8, domain=domain
        ),
        "coarse, centred": LabelSums(plan=loud(), sum_plan=loud(), low=-4, high=10, coarse=2, domain=domain),
        "by ends": LabelSums(plan=pure(), sum_plan=pure(), low=-4, high=6, domain=domain),
        "coarse, by ends": LabelSums(plan=pure(), sum_plan=pure(), low=-4, high=8, coarse=4, domain=domain),
        "Laplace": LabelSums(plan=pure(), low=-4, high=6, domain=domain),
        "unknown": LabelSums(plan=loud(), sum_plan=loud(), low=-4, high=6, delta=F(1, 10), max_keys_per_event=2),
        "unknown, from six on": LabelSums(
            plan=loud(), sum_plan=loud(), low=0, high=6, coarse=3, delta=F(1, 10), min_count=6
        ),
    }


def of_label_sums(mechanism: LabelSums, *, lists: bool) -> Iterator[Any]:
    """All that it releases, and what is made of it."""
    yield from run_of(mechanism, partial(rows, lists=lists))
    run = Run(replace(mechanism, history=6), SeededNoise(SEED))
    yield mechanism.guarantee, mechanism.ends, mechanism.centre, mechanism.magnitude
    for keys in (1, 2, 3, 255, 256, 257):
        yield replace(mechanism, max_keys_per_event=keys, delta=mechanism.delta / 1000).guarantee
    for tick in range(6):
        run.update(rows(tick, lists=lists))
        released = run.release().value
        for value in (released, run.between(tick // 2, tick + 1).value):
            yield mechanism.sums(value), tried(lambda value=value: mechanism.means(value, 0.9))  # type: ignore[misc]
        yield [mechanism.between_error(start, tick + 1, 0.9) for start in (0, tick // 2)]


def refused() -> Iterator[Any]:
    """What is no sum by label, no sum, no top list."""
    every, domain = label_sums(), Domain(LABELS)
    other = [
        *(
            {"low": 6},
            {"low": 7},
            {"coarse": 4},
            {"coarse": 0},
            {"plan": pure()},
            {"sum_plan": pure()},
            {"sum_plan": None},
        ),
        *({"delta": F(0)}, {"domain": None}, {"domain": domain}, {"min_count": 0}, {"max_keys_per_event": 0}),
        {"sum_plan": HaarPlan.calibrated(horizon=6, rho=1.5)},
        {"sum_plan": TreePlan.calibrated(horizon=6, epsilon=3.0)},
    ]
    for (name, mechanism), fields in product(every.items(), other):
        yield name, tried(lambda of=mechanism, fields=fields: replace(of, **fields).guarantee)  # type: ignore[misc]
    batches = [
        pl.DataFrame({"key": keys, "value": values}).to_struct()
        for keys, values in (
            (["a"], [0.5]),
            (["a", None], [1, 2]),
            (["a", "b"], [1, None]),
            (["a"], [None]),
            ([["a", "a", None], []], [1, 2]),
            (["x" * 256], [1]),
            (["x" * 257], [1]),
            (["x" * 5000], [1]),
            (["a"], [2**40]),
        )
    ]
    for mechanism, batch in product(every.values(), batches):
        yield tried(lambda of=mechanism, batch=batch: of.gather(of.start(SeededNoise(SEED)), batch))  # type: ignore[misc]
    for low, high, coarse in product((-6, 0, 3), (-6, 0, 3, 9), (0, 1, 3, 4)):
        yield tried(partial(sums_of, low=low, high=high, coarse=coarse))
    for k in range(7):
        yield tried(lambda k=k: TopList(histogram=KnownHistogram(plan=loud(), domain=domain), k=k))  # type: ignore[misc]


def sums_of(**fields: int) -> Any:
    """What a sum makes of values, and of what are none."""
    summer = Summer(plan=loud(), **fields)
    given = [list(range(-9, 14)), [], [1, None], [0.5], [2**40, -(2**40)], ["a"]]
    state = summer.start(SeededNoise(SEED))
    found = [tried(lambda each=each: summer.gather(state, pl.Series(each))) for each in given]  # type: ignore[misc]
    return [summer.magnitude, summer.guarantee, found]


def on_grids() -> Iterator[Any]:
    """Real values as steps, and totals as 64 bits hold them."""
    values = pl.Series([0.0, 0.05, -0.05, 0.15, 1e300, -1e300, 7.0, -7.3])
    for grid in (F(1, 10), F(1), F(3), F(1, 1000)):
        yield grid_steps(values, grid)
    for power in (0, 10, 61, 62, 63, 64, 65):
        yield [(wrapped(sign * 2**power + more)) for sign in (1, -1) for more in (-1, 0, 1)]
        for sign, more in product((1, -1), (-1, 0, 1)):
            number = sign * 2 ** min(power, 62) + more
            yield tried(lambda number=number: check_answers(np.array([0, number])))  # type: ignore[misc]
    yield tried(lambda: check_answers(np.array([], dtype=np.int64)))


def past(limit: int) -> Iterator[Any]:
    """Every interval of a long past: what moved, or a refusal; and the same of what was stored of it."""
    recent, truth = Recent(limit), np.zeros((1, 3), dtype=np.int64)
    checkpoints: dict[int, Any] = {}
    logs: list[Any] = []
    for tick in range(1, 70):
        moved = np.array([tick % 5, tick * tick % 7, tick % 3])
        recent.add(np.flatnonzero(moved), moved[np.flatnonzero(moved)])
        recent.add(np.array([1]), np.array([tick]))
        recent.close()
        truth = np.concatenate([truth, truth[-1:] + moved + [0, tick, 0]])
        logs = [*logs, recent.log()][-max(1, limit) :]
        if recent.checkpoint() is not None:
            checkpoints[tick] = recent.checkpoint()
        checkpoints = {each: own for each, own in checkpoints.items() if each in recent.lasting()}
        if tick in (1, 2, 7, 16, 33, 48, 69):
            taken = Recent(limit)
            taken.take_logged(recent.to_plain(), [*checkpoints.values(), *logs])
            yield tick, sorted(recent.lasting()), sorted(recent.missing()), sorted(taken.missing())
            for start, end in product(range(tick + 1), range(tick + 2)):
                found = [tried(partial(of.between, start, end, size=3)) for of in (recent, taken)]
                right = start < end <= tick and (truth[end] - truth[start]).tolist()
                yield [each == right or each for each in found]
            yield [tried(lambda end=end: refusal(recent, 1, end)) for end in (3, 5, tick)]  # type: ignore[misc]
            if checkpoints and limit:
                lost = Recent(limit)
                lost.take_logged(recent.to_plain(), [*list(checkpoints.values())[1::2], *logs])
                yield [tried(partial(lost.between, start, tick, size=3)) for start in range(0, tick, 3)]
                yield sorted(lost.missing())
            yield tried(partial(Recent(limit).take_logged, recent.to_plain(), logs[1:]))


def refusal(recent: Recent, start: int, end: int) -> str:
    """The words of a refusal: which ticks are kept is public."""
    try:
        recent.between(start, end, size=3)
    except Exception as error:  # noqa: BLE001
        return str(error)
    return "none"


PLANS: dict[str, Callable[[], Any]] = {
    "haar": partial(HaarPlan.calibrated, horizon=40, rho=0.01),
    "haar, epsilon": partial(HaarPlan.calibrated, horizon=40, epsilon=0.5),
    "haar, skipping": partial(HaarSkipPlan.calibrated, horizon=40, rho=0.01),
    "tree": partial(TreePlan.calibrated, horizon=40, rho=0.01),
    "doubling": partial(DoublingPlan.calibrated, horizon=40, rho=0.01),
    "top-down": partial(TopDownPlan.calibrated, horizon=40, epsilon=0.5),
    "spline": partial(SplinePlan.calibrated, horizon=40, rho=0.01),
    "toeplitz": partial(ToeplitzPlan.calibrated, horizon=40, rho=0.01),
}


def grown(make: Callable[[], Any]) -> Iterator[Any]:
    """The noise of a list that grows, step by step and in leaps, beside the same from nothing."""
    plan, noise, others = make(), SeededNoise(SEED), SeededNoise(SEED + 1)
    with patch.object(running_module, "_CHUNK", 3):
        running = running_noise(plan)
        for tick, count in (
            (1, 2),
            (2, 2),
            (3, 7),
            (4, 7),
            (5, 9),
            (9, 9),
            (10, 20),
            (11, 20),
            (3, 4),
            (4, 4),
            (40, 21),
        ):
            found = running.at(noise, tick, count, series_keys)
            yield found.tolist(), bool((found == evaluate(plan, noise, tick, series_keys(0, count))).all())
            for start, slots in product((1, 2), (None, np.array([1, 0]), np.array([0]), np.arange(count)[::-1])):
                keys = series_keys(0, count) if slots is None else series_keys(0, count)[slots]
                since = running.since(noise, start, tick, keys, slots)
                yield since.tolist(), bool((since == evaluate(plan, noise, tick, keys, since=start)).all())
            yield running.since(others, 1, tick, series_keys(0, 2)).tolist()
            yield running.since(noise, 1, min(tick + 1, 40), series_keys(0, 2)).tolist()
            yield running.since(noise, 1, tick, series_keys(0, count + 2)).tolist()
        yield running.at(others, 7, 3, series_keys).tolist()


def thresholds() -> Iterator[Any]:
    """From where on labels are shown, before it is rounded."""
    for (name, make), delta in product(PLANS.items(), (F(1, 1000), F(3, 100), F(1, 10**9))):
        plan = make()
        yield (
            name,
            _log_share(plan.horizon, delta),
            [_spread_at(plan, tick, delta, plan.horizon) for tick in (1, 2, 13, 40)],
        )
        yield tried(lambda plan=plan, delta=delta: _constant_spread(plan, delta))  # type: ignore[misc]
        for cut in ThresholdRule:
            yield [tried(partial(threshold_at, plan, tick, delta, cut)) for tick in (1, 40)]
            histogram = partial(UnknownHistogram, plan=plan, delta=delta, cut=cut)
            for keys in (1, 3, 255, 256, 257):
                yield tried(lambda make=histogram, keys=keys: make(max_keys_per_event=keys).guarantee)  # type: ignore[misc]
    with patch("pianissimo.counting.unknown._LONGEST_SUM", 3):
        yield tried(lambda: _constant_spread(loud(4), F(1, 7)))
    yield Counter(plan=loud()).guarantee


WAYS: dict[str, Callable[[], Any]] = {
    **{
        f"label sums, {name}{' of lists' if lists else ''}": partial(of_label_sums, mechanism, lists=lists)
        for name, mechanism in label_sums().items()
        for lists in (False, True)
    },
    "refused": refused,
    "grids": on_grids,
    **{f"the past of {limit} ticks": partial(past, limit) for limit in (0, 1, 3, 8, 24)},
    **{f"noise over {name}": partial(grown, make) for name, make in PLANS.items()},
    "thresholds": thresholds,
}


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: digest(make) for name, make in WAYS.items()}, indent=1) + "\n")
