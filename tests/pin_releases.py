"""What every mechanism releases under a fixed secret: `python -m tests.pin_releases` writes releases.json anew.

Read the difference before you commit it: a digest that changes is a change of noise, of a threshold, of what is counted
or of what is stored, and a stream that an older version began would not go on as it was.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.mechanisms import CASES, EVENT_CASES, USER_CASES, Case, as_keys_of_users, as_sums, as_users

from pianissimo import codec
from pianissimo.counting import KnownHistogram, Summer
from pianissimo.labels import Domain
from pianissimo.mechanism import Run, Windowed
from pianissimo.monitors import AboveThreshold, Alarms, FixedLength, ThresholdMonitor, TrendingMonitor
from pianissimo.noise import (
    DoublingPlan,
    HaarPlan,
    HaarSkipPlan,
    SplinePlan,
    ToeplitzPlan,
    TopDownPlan,
    TreePlan,
)
from pianissimo.noise.plan import difference_variance
from pianissimo.queries.shared.user_sketch import UserHeavyKeys
from pianissimo.selection import (
    FixedThresholdLaplace,
    LimitedDomain,
    LimitedLaplace,
    OptimalThreshold,
    Peeling,
    StrictDomain,
)
from pianissimo.sketches import (
    Contents,
    CorrelatedHistogram,
    GaussianMisraGries,
    MisraGries,
    PrivacyAwareMisraGries,
    PrivateMisraGries,
    PublishedTree,
    PureHistogram,
    ReducedMisraGries,
    RunningSketch,
    SetTree,
    SketchTree,
    SparseHistogram,
    StandardMisraGries,
    reduce,
)
from pianissimo.testing import SeededNoise

PINNED = Path(__file__).parent / "releases.json"
ONE, FEW, SEED = Fraction(1), Fraction(1, 10), 2210
LABELS = ["a", "b", "c", "d", "e", "ü", "nowhere"]


def events(tick: int) -> list[list[str]]:
    """Of one tick: few at first, then many, some labels often and some once, lists of none to four."""
    count = (3, 40, 0, 25, 60, 9)[tick]
    numbers = [(7 * place * place + 3 * place + tick) % 101 for place in range(count)]
    return [[LABELS[(number // (1 + step)) % 7 % (1 + number % 7)] for step in range(number % 5)] for number in numbers]


def visits(tick: int) -> list[list[str]]:
    """The same of users: some have one event, some so many that a cap is raised for them."""
    count = (30, 400, 0, 190, 320, 9)[tick]
    numbers = [(7 * place * place + 3 * place + tick) % 1009 for place in range(count)]
    return [
        [f"u{number % 137 if number % 3 else number % 5}", *LABELS[: 1 + number % 4], LABELS[number % 7 % 3]]
        for number in numbers
    ]


def table(tick: int, *, by_key: bool) -> pl.DataFrame:
    """The same as a table, a label of each event beside its user and a value."""
    seen = visits(tick)
    found = as_users(seen).with_columns(label=pl.Series([event[-1] for event in seen], dtype=pl.String))
    found = found.with_columns(both=pl.struct(key="label", value="value"))
    return found.with_columns(label=pl.col("both")) if by_key else found


def pairs_of(tick: int) -> pl.DataFrame:
    """The same with their keys, for trends."""
    rows = [(event[0], key) for event in visits(tick) for key in event[1:]]
    return pl.DataFrame(rows, schema={"user": pl.String, "key": pl.String}, orient="row")


def matches(tick: int) -> pl.DataFrame:
    """The same with what they match, for alarms."""
    seen = visits(tick)
    users = pl.Series("user", [event[0] for event in seen], dtype=pl.String)
    numbers = pl.Series([len(each) for each in seen], dtype=pl.Int64)
    return pl.DataFrame({"user": users, "a": numbers > 3, "b": numbers < 6})


def plain(value: Any) -> Any:
    """What is released, as JSON holds it."""
    if isinstance(value, pl.DataFrame):
        return plain(value.to_dict(as_series=False))
    if isinstance(value, np.ndarray | pl.Series):
        return value.tolist() if isinstance(value, np.ndarray) else value.to_list()
    if isinstance(value, float):
        return float(f"{value:.10g}")
    if isinstance(value, dict):
        return [[plain(key), plain(each)] for key, each in value.items()]
    if isinstance(value, list | tuple):
        return [plain(each) for each in value]
    if isinstance(value, int | str) or value is None:
        return value
    if isinstance(value, UserHeavyKeys):
        return plain(value.to_frame(0.9))
    for way in ("to_frame", "to_dict"):
        if hasattr(value, way):
            return plain(getattr(value, way)())
    if is_dataclass(value):
        return [[each.name, plain(getattr(value, each.name))] for each in fields(value)]
    return str(value)


def run_of(mechanism: Any, batch_of: Callable[[int], Any]) -> Iterator[Any]:
    """Every release of a run, what is stored of it, and every window."""
    windowed = isinstance(mechanism, Windowed)
    if windowed and hasattr(mechanism, "history") and not hasattr(mechanism, "inner"):
        mechanism = replace(mechanism, history=6)
    run = Run(mechanism, SeededNoise(SEED))
    for tick in range(6):
        batch = batch_of(tick)
        if tick % 2:
            run.add(run.gather(batch))
        else:
            run.update(batch)
        released = run.release()
        yield released.value, released.error, run.mechanism.error(tick + 1, 0.5)
        yield hashlib.sha256(codec.pack("state", 1, run.dump())).hexdigest()
        yield hashlib.sha256(codec.pack("log", 1, [run.log(), run.checkpoint(), sorted(run.lasting())])).hexdigest()
    if windowed:
        for start in range(6):
            for end in range(start + 1, 7):
                try:
                    window = run.between(start, end)
                    yield start, end, window.value, window.error
                except Exception as error:  # noqa: BLE001
                    yield start, end, type(error).__name__


STREAM = [20] * 90 + [21] * 40 + [22] * 12 + [23] * 7 + [24] * 3 + [25] * 2 + [26, 27, 28, 20, 20, 21]


def contents_of(sketch: Any, stream: Any = STREAM, **fields: Any) -> Contents:
    """What a sketch of the stream holds."""
    sketch.update(pl.Series(stream))
    contents: Contents = sketch.contents()
    return replace(contents, **fields)


def many() -> Contents:
    """Of a sketch of the stream."""
    return contents_of(MisraGries(k=6))


def usual() -> Contents:
    """Of a sketch that another system made."""
    items = {20: 90, 21: 40, 22: 12, 23: 7, 24: 3, 25: 2}
    return StandardMisraGries.from_items(items, k=6, total=168).contents()


def sets() -> Contents:
    """Of users with sets of keys."""
    of_users = [sorted(set(STREAM[place : place + 3])) for place in range(0, 150, 2)]
    return contents_of(PrivacyAwareMisraGries(k=6), of_users)


COUNTS = {"a": 60, "b": 40, "c": 40, "d": 12, "e": 7, "f": 1}

TREES_AND_MONITORS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "sum over haar": (
        Summer(plan=HaarPlan.calibrated(horizon=6, rho=2.0), low=-4, high=6, coarse=2),
        lambda tick: pl.Series([len(event) * 3 - 5 for event in events(tick)], dtype=pl.Int64),
    ),
    "sum over tree": (
        Summer(plan=TreePlan.calibrated(horizon=6, epsilon=2.0), low=0, high=3),
        lambda tick: pl.Series([len(event) - 1 for event in events(tick)], dtype=pl.Int64),
    ),
    "sketch tree": (
        SketchTree.calibrated(horizon=6, rho=9, bad=FEW, k=3, max_keys_per_event=2),
        lambda tick: pl.Series(events(tick) * 5, dtype=pl.List(pl.String)),
    ),
    "set tree": (
        SetTree.calibrated(horizon=6, rho=9, bad=FEW, k=3, max_keys_per_event=2),
        lambda tick: pl.Series(events(tick) * 5, dtype=pl.List(pl.String)),
    ),
    "published tree": (
        PublishedTree.calibrated(horizon=6, epsilon=9, delta=FEW, k=3),
        lambda tick: pl.Series(events(tick) * 5, dtype=pl.List(pl.String)),
    ),
    "published Gaussian tree": (
        PublishedTree.gaussian(horizon=6, rho=9, bad=FEW, k=3),
        lambda tick: pl.Series(events(tick) * 5, dtype=pl.List(pl.String)),
    ),
    "running sketch": (
        RunningSketch.calibrated(horizon=6, rho=9, bad=FEW, k=3),
        lambda tick: pl.Series(events(tick) * 5, dtype=pl.List(pl.String)),
    ),
    "alarms": (Alarms(horizon=6, thresholds=(("a", 9), ("b", 6)), alarms_per_user=2, scale=ONE), matches),
    "alarms by period": (
        Alarms(horizon=6, thresholds=(("a", 9), ("b", 6)), alarms_per_user=1, scale=ONE, period=2),
        matches,
    ),
    "trends": (
        TrendingMonitor(
            horizon=6, threshold=9, alarms_per_user=2, scale=ONE / 2, max_keys_per_user=3, delta_skip=FEW / 100
        ),
        pairs_of,
    ),
    "trends of a domain": (
        TrendingMonitor(
            horizon=6,
            threshold=9,
            alarms_per_user=2,
            scale=ONE / 2,
            max_keys_per_user=3,
            domain=Domain(LABELS[:5]),
        ),
        pairs_of,
    ),
    "trends of a huge domain": (
        TrendingMonitor(
            horizon=6,
            threshold=9,
            alarms_per_user=2,
            scale=ONE / 2,
            max_keys_per_user=3,
            domain=FixedLength("abcde", 1),
        ),
        pairs_of,
    ),
}

ANSWERS: dict[str, Callable[[Any], Any]] = {
    "private sketch": lambda noise: PrivateMisraGries.calibrated(k=6, epsilon=1, delta=1e-2).release(many(), noise),
    "private sketch of users": lambda noise: PrivateMisraGries.calibrated(
        k=6, epsilon=3, delta=1e-2, max_keys_per_user=3
    ).release(replace(many(), max_keys_per_user=3), noise),
    "standard sketch": lambda noise: PrivateMisraGries.calibrated(k=6, epsilon=2, delta=1e-2, standard=True).release(
        usual(), noise
    ),
    "Gaussian sketch": lambda noise: GaussianMisraGries.calibrated(k=6, rho=1, bad=1e-2).release(many(), noise),
    "sparse histogram": lambda noise: SparseHistogram.calibrated(moved=6, epsilon=2, delta=1e-2).release(
        many(), noise, epsilon=2
    ),
    "correlated histogram": lambda noise: CorrelatedHistogram.calibrated(k=6, epsilon=2, delta=1e-2).release(
        many(), noise, epsilon=2
    ),
    "sparse histogram of sets": lambda noise: SparseHistogram.calibrated(moved=6, epsilon=2, delta=1e-2).release(
        sets(), noise, epsilon=2
    ),
    "reduced sketch": lambda noise: ReducedMisraGries.calibrated(k=6, epsilon=5, delta=1e-2, streams=2).release(
        reduce(many(), k=6), noise
    ),
    "pure histogram": lambda noise: PureHistogram.of_sketch(k=6, epsilon=9, universe=range(100)).release(
        reduce(many(), k=6), noise
    ),
    "limited domain": lambda noise: LimitedDomain(k=3, candidates=4, epsilon=ONE, delta=FEW).answer(COUNTS, noise),
    "limited domain, Laplace": lambda noise: LimitedLaplace(k=3, candidates=4, epsilon=ONE, delta=FEW).answer(
        COUNTS, noise
    ),
    "strict domain": lambda noise: StrictDomain(k=3, candidates=4, epsilon=ONE, delta=FEW).answer(COUNTS, noise),
    "optimal threshold": lambda noise: OptimalThreshold(k=2, d_bar=5, epsilon=ONE, delta=FEW).answer(COUNTS, noise),
    "fixed threshold": lambda noise: FixedThresholdLaplace(k=3, epsilon=ONE, delta=FEW).answer(COUNTS, noise),
    "peeling": lambda noise: Peeling(k=3, items=6, epsilon=ONE).answer(COUNTS, noise),
    "above a threshold": lambda noise: crossings(AboveThreshold(threshold=9, epsilon=1), noise),
    "published monitor": lambda _: ThresholdMonitor.calibrated(epsilon=1, delta=1e-3, k=2, threshold=9),
}


PLANS: dict[str, Callable[[], Any]] = {
    "haar": lambda: HaarPlan.calibrated(horizon=70, rho=0.01),
    "haar, epsilon": lambda: HaarPlan.calibrated(horizon=70, epsilon=0.5),
    "haar, skipping": lambda: HaarSkipPlan.calibrated(horizon=70, rho=0.01),
    "haar, open": lambda: HaarPlan.open(rho=0.01),
    "tree": lambda: TreePlan.calibrated(horizon=70, rho=0.01),
    "tree, epsilon": lambda: TreePlan.calibrated(horizon=70, epsilon=0.5),
    "doubling": lambda: DoublingPlan.calibrated(horizon=70, rho=0.01),
    "top-down": lambda: TopDownPlan.calibrated(horizon=70, epsilon=0.5),
    "top-down, open": lambda: TopDownPlan.open(epsilon=0.5),
    "spline": lambda: SplinePlan.calibrated(horizon=70, rho=0.01),
    "toeplitz": lambda: ToeplitzPlan.calibrated(horizon=70, rho=0.01),
}


def of_plan(make: Callable[[], Any]) -> Iterator[Any]:
    """Many releases of three labels over a plan, some windows, and what an event moves and costs.

    Of plans without an end twelve: their weights are large numbers.
    """
    plan = make()
    last = 70 if plan.horizon == 70 else 12
    yield plan.cost, [each.variance for each in plan.noises], plan.horizon, plan.name
    run = Run(KnownHistogram(plan=plan, domain=Domain(["a", "b", "c"]), history=70), SeededNoise(SEED))
    for tick in range(1, last + 1):
        run.update(pl.Series([["a"]] * (tick % 4) + [["b", "c"]], dtype=pl.List(pl.String)))
        yield run.release().value, [tuple(term) for term in plan.influence(tick)]
    for start in (0, 1, 5, 17, 33):
        for end in (12, 18, 65, 70):
            if start < end <= last:
                yield start, end, run.between(start, end).value, difference_variance(plan, start, end)


def crossings(svt: AboveThreshold, noise: Any) -> list[bool]:
    """Which queries are said to be above a threshold, until it ends."""
    state, found = svt.start(), []
    for query in (1, 3, 8, 5, 12, 30):
        found.append(svt.test(state, query, noise))
        if found[-1]:
            break
    return found


def answers(answer: Callable[[Any], Any]) -> list[Any]:
    """Of one kind of release, under some secrets."""
    return [answer(SeededNoise(SEED + number)) for number in range(8)]


def batch_of(case: Case, tick: int) -> Any:
    """The events of one tick as a mechanism takes them."""
    if case not in USER_CASES.values():
        return case.as_batch(events(tick))
    if case.as_batch is as_keys_of_users:
        return case.as_batch(visits(tick))
    return table(tick, by_key=case.as_batch is as_sums)


def of_cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every mechanism and kind of release by its name."""
    for name, case in (CASES | EVENT_CASES | USER_CASES).items():
        yield name, partial(run_of, case.mechanism, partial(batch_of, case))
    for name, make in PLANS.items():
        yield f"many ticks over {name}", partial(of_plan, make)
    for name, (mechanism, batch) in TREES_AND_MONITORS.items():
        yield name, partial(run_of, mechanism, batch)
    for name, answer in ANSWERS.items():
        yield f"{name}, released once", partial(answers, answer)


RELEASES: dict[str, Callable[[], Any]] = dict(of_cases())


def digest(make: Callable[[], Any]) -> str:
    """Of all that is made, as the pinned lists hold it."""
    return hashlib.sha256(json.dumps(plain(list(make())), default=str).encode()).hexdigest()[:32]


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: digest(make) for name, make in RELEASES.items()}, indent=1) + "\n")
