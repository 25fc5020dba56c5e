"""What is refused, and what is just not: `python -m tests.pin_refusals` writes refusals.json anew.

Limits of caps, heads and monitors, numbers beside them, and batches that cannot be counted. Read the difference before
you commit it: what was refused for a promise's sake may now be let in.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from tests.pin_draws import DOMAIN, MONITORS, TICKS, USERS, budget, pure
from tests.pin_releases import plain

from pianissimo import codec
from pianissimo.cells import DEEPEST
from pianissimo.errors import PianissimoError
from pianissimo.labels import Domain
from pianissimo.ledger import Charge, LastEntry, open_shared
from pianissimo.mechanism import Run
from pianissimo.monitors import AboveThreshold, FixedLength, RaceMonitor, ThresholdMonitor, TickCounts, TrendingMonitor
from pianissimo.monitors.above_threshold import UserCharges
from pianissimo.monitors.race_monitor import clock_delta, lone_threshold, margin_of_detection, quiet_threshold
from pianissimo.noise import HaarPlan, TreePlan
from pianissimo.noise.keyed import Integers, Keys
from pianissimo.noise.laws import gaussian_node
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.unit import EvenPeriods
from pianissimo.users import (
    AdaptiveCap,
    CountHead,
    EachPeriod,
    FixedCap,
    LabelSumsHead,
    OctaveCap,
    PeriodCap,
    QuantilesHead,
    SumHead,
    UserStatistics,
)
from pianissimo.users.caps import Course, CutOff
from pianissimo.users.counters import Counters, Law, Sensitivity
from pianissimo.users.heads import AnyHead
from pianissimo.users.user_label_sums import UserLabelSums
from pianissimo.users.user_labels import Appearance, UserLabels

PINNED = Path(__file__).parent / "refusals.json"
F = Fraction
TEXT = "x"


def outcome(make: Callable[[], Any]) -> Any:
    """What is made, or how it is refused."""
    try:
        return told(make())
    except PianissimoError as error:
        return type(error).__name__, re.findall(r"\d+", str(error))  # without its words
    except Exception as error:  # noqa: BLE001
        return type(error).__name__


def told(made: Any) -> Any:
    """Of what is made its promise, or itself."""
    if hasattr(made, "guarantee"):
        return str(made.guarantee), made.error(1, 0.9)
    if isinstance(made, Counters):
        return made.draws((4, 8)), [str(made.prefix(start, 4, 1)) for start in range(1, len(made.weights) + 1)]
    if isinstance(made, AnyHead):
        return str(made), str(made.sensitivity), made.cells, made.series
    return plain(made)


def each_of(make: Callable[..., Any], first: dict[str, Any], /, **others: Any) -> Iterator[Any]:
    """Of what is made with some parameters, each in turn in other ways."""
    yield outcome(partial(make, **first))
    for name, values in others.items():
        for value in values:
            yield name, str(value), outcome(partial(make, **(first | {name: value})))


def of_caps() -> Iterator[Any]:
    """Caps at and beyond their limits."""
    large = (2**40 - 1, 2**40, 2**40 + 1, 2**41)
    firm: dict[str, Any] = {"epsilon": F(1, 2)}
    yield from each_of(
        AdaptiveCap, firm, first=(0, 1, *large), levels=(0, 1, 2, 24, 25, 26, 40, 41, 42), fourfold=(-1, 0)
    )
    for first, levels, fourfold in product((1, 2, 2**38), (2, 3, 39, 40, 41, 42), (0, 1)):
        yield outcome(partial(AdaptiveCap, epsilon=F(20), first=first, levels=levels, fourfold=fourfold))
    yield from each_of(AdaptiveCap, firm, early_probability=(F(0), F(1)), failure_probability=(F(0), F(1)))
    yield from each_of(FixedCap, {"units": 3}, units=(0, *large))
    yield from each_of(PeriodCap, {"units": 3, "ticks": 2}, units=(0, *large), ticks=(0, 1))
    yield from each_of(OctaveCap, firm, first=(0, *large), levels=(0, 1, 40, 41, 42))
    octaves = OctaveCap(epsilon=F(1), first=1, levels=4)
    for units in ([0, 1, 2, 3, 4, 5, 8, 9, 100], [0, 0], [1], [2**40]):
        yield octaves.buckets(np.array(units, dtype=np.uint64))
    target = octaves.target
    for above in (target - 1, target, target + 1):
        yield octaves.chosen(np.array([5, 0, 0, above])), octaves.chosen(np.array([0, above, 1, 0]))
    for cut in (CutOff(3, 4), CutOff(3, None), CutOff(3, 4, 2), CutOff(3, 4, 2, is_raised=True)):
        yield [cut.most_missing(most) for most in (None, 2, 3, 4, 5, 50)]
    course = Course(AdaptiveCap(epsilon=F(1), levels=3), 9)
    for content in product((0, 1, 3, 4), (-1, 0), (0, 1, 2, 4), (-1, 0, 5)):
        yield outcome(partial(course.take_plain, list(content))), course.to_plain()


def of_heads() -> Iterator[Any]:
    """Heads and what they are part of."""
    for name in ("", "user", "weight", "a\nb", "n"):
        yield outcome(partial(CountHead, name=name))
    ends: dict[str, Any] = {
        "low": (-6, 3, 4, 5, -(2**40), -(2**40) - 2),
        "high": (0, 5, 2, 2**40, 2**40 + 2, 2**41),
        "coarse": (0, 1, 4),
    }
    yield from each_of(SumHead, {"name": "v", "low": 2, "high": 4, "coarse": 2}, **ends)
    known: dict[str, Any] = {"name": "v", "domain": DOMAIN, "low": 2, "high": 4, "coarse": 2}
    for means in (False, True):
        yield from each_of(LabelSumsHead, known | {"means": means}, **ends)
    for share in (F(0), F(-1), F(1)):
        yield outcome(partial(CountHead, share=share))
    place: dict[str, Any] = {"name": "q", "low": 0.0, "high": 4.0, "depth": 2}
    yield from each_of(
        QuantilesHead,
        place,
        low=(None, 4.0, 5.0),
        high=(None, 0.0),
        depth=(0, 1, 10, 11, 30),
        quantiles=((F(0),), (F(1),)),
        largest=((0,), (1,)),
        smallest=((0,), (1,)),
        failure_probability=(F(0), F(1)),
    )
    yield outcome(partial(QuantilesHead, name="q"))
    for depth in (DEEPEST - 1, DEEPEST, DEEPEST + 1):
        yield outcome(partial(QuantilesHead, name="q", low=None, high=None, depth=depth))
    for heads in ((), (CountHead(), CountHead()), (CountHead(), CountHead(name="m"))):
        yield outcome(partial(UserStatistics, **budget(heads=heads)))


def of_mechanisms() -> Iterator[Any]:
    """Mechanisms of users."""
    yield from each_of(
        UserStatistics,
        budget(),
        rho=(None, F(0), F(-1), 1.0, F(10**9), F(1, 10**30), *(F(6, 5) ** power for power in range(60))),
        epsilon=(F(1),),
        horizon=(0, 1, 2),
        history=(-1, 0),
        cap=(FixedCap(units=2**40), FixedCap(units=1)),
        plan=(int, TreePlan),
    )
    yield from each_of(
        UserLabels,
        budget(delta=F(1, 10)),
        delta=(None, F(0), F(1), 0.1, F(1, 10**20)),
        per_label=(0, 1, 2**32 - 1, 2**32),
        max_keys_per_event=(0, 1, None),
        min_count=(0, 1, 2),
        show_from=(0, 1, 2),
        other=(F(-1), F(0), F(1, 2), F(1), 0.5),
        domain=(DOMAIN,),
    )
    yield from each_of(
        UserLabels, budget(domain=DOMAIN), min_count=(2,), show_from=(2,), other=(F(1, 2),), delta=(F(1, 9),)
    )
    yield outcome(partial(UserLabels, **pure(delta=F(1, 10))))
    sums: dict[str, Any] = {"low": 0, "high": 4, "coarse": 2, "delta": F(1, 10)}
    yield from each_of(
        UserLabelSums,
        budget(**sums),
        low=(1, 2, 4, 6),
        high=(0, 1, 3),
        coarse=(0, 1, 3, 4),
        delta=(None, F(0), F(1), 0.1),
        min_count=(0, 2),
        max_keys_per_event=(0, 2),
        domain=(DOMAIN,),
    )
    yield outcome(partial(UserLabelSums, **pure(**sums)))
    yield from each_of(
        UserLabelSums, budget(**(sums | {"delta": None, "domain": DOMAIN})), min_count=(2,), delta=(F(1, 9),)
    )
    for name in ("label sums", "labels with the rest", "label sums, listed", "labels by slot", "labels, periods"):
        for tick, start, since in product((1, 2, 6), (1, 2, 3), (0, 1, 2)):
            if since <= tick:
                yield outcome(partial(USERS[name][0].threshold, tick, start=start, since=since))
    for variance, cap, most in product((F(1, 4), F(400)), (1, 16), (1, 2, 9, None)):
        for rule in (Appearance(releases=9, delta=F(1, 10**6)), Appearance(releases=1, delta=F(1, 2), min_count=3)):
            yield (
                rule.threshold(Law(None, 0, gaussian_node(variance)), cap, most),
                rule.spread(variance, cap, most or cap),
            )
    inner = UserStatistics(**budget(cap=FixedCap(units=4), horizon=2))
    yield from each_of(
        EachPeriod,
        {"inner": inner, "periods": EvenPeriods(2), "horizon": 9},
        horizon=(0, 1, 2),
        after=(-1, 0, 3),
        periods=(EvenPeriods(3), EvenPeriods(1)),
        follow=(
            OctaveCap(epsilon=F(1), first=4, levels=3),
            OctaveCap(epsilon=F(1), first=5, levels=2),
            OctaveCap(epsilon=F(1), first=2, levels=4),
        ),
    )
    firm: dict[str, Any] = {
        "kind": HaarPlan,
        "horizon": 4,
        "loss": F(1),
        "is_pure": False,
        "sensitivity": Sensitivity(total=1, squared=1),
    }
    yield from each_of(
        Counters,
        firm | {"weights": (F(1, 2), F(1, 2))},
        kind=(int, TreePlan),
        weights=((F(1, 2), F(2, 3)), (F(1),)),
        series=(0, 1),
        horizon=(0, 1),
    )
    each = USERS["each period of a sum"][0]
    for owner, asked in ((each, "__nothing__"), (each, "counters"), (object.__new__(EachPeriod), "counters")):
        yield outcome(partial(_length, owner, asked))
    for mechanism, batch in USERS.values():
        if not isinstance(mechanism, EachPeriod):
            run = Run(replace(mechanism, history=0), SeededNoise(2))
            run.update(batch(0))
            run.release()
            yield outcome(partial(run.between, 0, 1))
    for is_pure, moves, priced in product((False, True), repeat=3):
        moved = Sensitivity(total=1, squared=1, moves=moves, moves_priced=priced)
        for kind in (HaarPlan, Costly, Dear, Other):
            own: Any = Counters(**(firm | {"kind": kind, "is_pure": is_pure, "sensitivity": moved, "weights": (F(1),)}))
            yield kind.__name__, outcome(partial(_cost, own))


class Costly(HaarPlan):
    """A plan that costs more than it was asked for: by one in ten."""

    times = F(11, 10)

    @classmethod
    def calibrated(cls, *, horizon: int, **loss: Any) -> Any:
        return HaarPlan.calibrated(horizon=horizon, **{name: cls.times * each for name, each in loss.items()})


class Dear(Costly):
    """The same, by so much that a move alone could be paid."""

    times = F(19, 10)


class Other(HaarPlan):
    """A plan with the other kind of noise."""

    @classmethod
    def calibrated(cls, *, horizon: int, **loss: Any) -> Any:
        other = {"rho": "epsilon", "epsilon": "rho"}
        return HaarPlan.calibrated(horizon=horizon, **{other[name]: each / 100 for name, each in loss.items()})


def _cost(counters: Counters) -> Any:
    plan = counters.plan(1, 3, 0)
    return None if plan is None else plan.cost


def _length(owner: Any, name: str) -> int:
    return len(getattr(owner, name))


class LevelNoise(NoNoise):
    """The same number in every place."""

    def __init__(self, level: int) -> None:
        self._level = level

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        out[:] = self._level


def of_ties() -> Iterator[Any]:
    """Which labels are shown of those that one, two, three and more units hold, where noise is the same everywhere."""
    held = [(f"u{number} {unit}", f"l{number:03}", 1) for number in range(1, 90) for unit in range(number)]
    batch = pl.DataFrame(held, schema=["user", "label", "value"], orient="row")
    for level, least in product((0, 3, 30, 900), (1, 4)):
        own = budget(cap=FixedCap(units=2), min_count=least, delta=F(1, 10), history=0, plan=TreePlan)
        chosen: list[Any] = [
            UserLabels(**own),
            UserLabels(**own, per_label=1),
            *(UserLabelSums(low=low, high=1, **own) for low in (0, -1, -2)),
        ]
        for mechanism in chosen:
            run = Run(mechanism, LevelNoise(level))
            run.update(batch)
            yield run.release().value
    for threshold in (1, 20):
        keys = batch["label"]
        for level, domain in product((-1, 0, 3), (None, Domain(keys.unique().to_list()))):
            delta = F(1, 10) if domain is None else F(0)
            counts = TickCounts(horizon=2, scale=F(1, 2), threshold=max(threshold, 3), delta=delta, domain=domain)
            counted = Run(counts, LevelNoise(level))
            counted.update(keys)
            yield counted.release().value


COLUMNS: dict[str, list[Any]] = {
    "user": [
        pl.Series([1, 2, 1]),
        pl.Series([1.0] * 3),
        pl.Series(["a", None, "b"]),
        pl.Series(["a", "b", "a"], dtype=pl.Categorical),
        pl.Series(["a" * 5000, "b", "b"]),
    ],
    "label": [
        pl.Series([1, 2, 1]),
        pl.Series(["a", None, "b"]),
        pl.Series([["a", "b", "a"], [], ["c"]]),
        pl.Series([["a", None], ["b"], ["c"]]),
        pl.Series([[1], [2], [3]]),
        pl.Series(["a", "b", "a"], dtype=pl.Categorical),
        pl.Series(["a" * 5000, "b", "b"]),
        pl.Series(["elsewhere", "b", "b"]),
    ],
    "value": [
        pl.Series([1.0, 2.0, 3.0]),
        pl.Series([1, None, 3]),
        pl.Series([-1, 0, 5]),
        pl.Series([2**62, 2**63, 3], dtype=pl.UInt64),
        pl.Series([2**62 + 5, 2**61, 3]),
    ],
    "length": [pl.Series([float("nan"), 1.0, 2.0]), pl.Series([None, 1.0, 9.0]), pl.Series(["a", "b", "c"])],
    "weight": [pl.Series([1, -1, 0]), pl.Series([1, None, -1]), pl.Series([1.0, -1.0, 1.0]), pl.Series([1, -1, -1])],
    "both": [pl.Series([1, 2, 3]), pl.Series([{"key": "a", "value": 3}, None, {"key": "b", "value": -9}])],
    "a": [pl.Series([1, 0, 1]), pl.Series([True, None, False]), pl.Series([False, False, True])],
    "key": [
        pl.Series([1, 2, 3]),
        pl.Series(["a", None, "b"]),
        pl.Series(["a", "b", "b"], dtype=pl.Categorical),
        pl.Series(["a" * 5000, "b", "b"]),
        pl.Series(["ab", "a", "zz"]),
    ],
}


COUNTED = (
    "all heads, signed",
    "coarse sum with coins",
    "sum over Toeplitz",
    "distinct",
    "labels with the rest",
    "labels by slot",
    "labels by slot, listed",
    "label sums",
    "label sums, listed",
    "alarms, replaced",
    "trends, replaced",
    "trends, periods",
    "trends of a huge domain, periods",
    "counts of a tick, listed",
    "counts of a tick, unknown",
)


def of_batches(name: str) -> Iterator[Any]:
    """Batches of which one column is another, each of three rows."""
    mechanism = (USERS | MONITORS)[name][0]
    good = pl.DataFrame(
        {
            "user": ["a", "b", "a"],
            "label": ["a", "b", "c"],
            "key": ["ab", "bb", "c"],
            "value": [1, 2, 3],
            "length": [1.0, 2.0, 3.0],
            "plus": [1, 0, 3],
            "weight": [1, 1, -1],
            "a": [True, True, False],
            "b": [False, True, True],
        }
    )
    good = good.with_columns(pl.struct(key="label", value="value").alias(own) for own in ("both", "means", "zero"))
    changed = [good.with_columns(column.alias(own)) for own, columns in COLUMNS.items() for column in columns]
    batches: list[Any] = [good, good.head(0), *(good.drop(own) for own in COLUMNS), *changed]
    if name.startswith("counts of a tick"):
        batches = [good["label"], *COLUMNS["label"], *COLUMNS["key"]]
    for batch in batches:
        yield outcome(partial(_counted, Run(mechanism, SeededNoise(1)), batch))


def _counted(run: Run[Any, Any, Any], batch: Any) -> Any:
    """What is gathered of a batch, and what is released."""
    gathered = run.gather(batch)
    run.add(gathered)
    run.update(batch)
    return hashlib.sha256(codec.pack("gathered", 1, gathered)).hexdigest(), run.release().value


def of_monitors() -> Iterator[Any]:
    """Monitors that are asked one by one."""
    firm: dict[str, Any] = {"k": 2, "b": F(3), "threshold": 20}
    yield from each_of(
        RaceMonitor,
        firm,
        k=(0, 1, 2**15 - 1, 2**15),
        b=(F(0), 0.5, float("inf"), F(1, 100)),
        threshold=(True, 1.5, -3, 2**61 - 1, 2**61),
        together=(0, 2, 2**15 - 2, 2**15 - 1),
        grid=(0, 2, 2**20, 2**20 + 1),
    )
    yield outcome(partial(RaceMonitor, **firm, together=2, grid=2))
    yield outcome(partial(RaceMonitor, k=2, b=F(1), threshold=2**51, grid=2**10))
    for calibrated in (ThresholdMonitor.calibrated, ThresholdMonitor.calibrated_in_epochs):
        for epsilon, delta, k in product((0, 0.1, 1.0, 50.0), (0, 1e-6, 0.4), (0, 1, 2, 40, 3000, 2**15)):
            yield outcome(partial(calibrated, epsilon=epsilon, delta=delta, k=k, threshold=9))
    yield outcome(partial(ThresholdMonitor.calibrated, epsilon=1.0, delta=1e-6, k=3, threshold=9, replacement=True))
    for k, e, d in product((1, 40, 400), (0.01, 0.1, 2.0), (1e-6, 0.1)):
        yield outcome(lambda k=k, e=e, d=d: _published(ThresholdMonitor(k=k, threshold=9, e=e, d=d)))  # type: ignore[misc]
    yield from _tested()
    for epsilon, delta, draws in product((1, 299, 300, 301), (1e-9, 0.5), (1, 10**6, 10**25)):
        yield outcome(partial(clock_delta, epsilon, delta, draws))
    for scale, tests, chance in product((F(1), F(40), F(1, 7)), (0, 1, 2, 10**6, 2**130), (F(1, 10), F(9, 10))):
        yield [outcome(partial(each, scale, tests, chance)) for each in (quiet_threshold, margin_of_detection)]
        yield outcome(partial(lone_threshold, scale, tests, 3, chance))
    for alphabet, length in product(("", "a", "ab", "aa", "aü"), (0, 1, 2, 128, 129, 2048, 4096)):
        yield outcome(lambda alphabet=alphabet, length=length: FixedLength(alphabet, length).size)  # type: ignore[misc]
    words = FixedLength("abü", 2)
    yield [words.label(number) for number in range(words.size)]
    yield words.contains(pl.Series(["aa", "a", "aaa", "üb", "x", "a\n", ""]))
    of_keys: dict[str, Any] = {"horizon": TICKS, "scale": F(1), "threshold": 20}
    yield from each_of(
        TickCounts,
        of_keys | {"delta": F(1, 10)},
        delta=(F(0), F(1), F(1, 10**8), F(1, 10**9), 0.1),
        domain=(DOMAIN,),
        threshold=(0, 1, 2, 3, 4),
        horizon=(0, 1),
        max_keys_per_event=(0, 7),
    )
    for threshold in range(1, 8):
        yield outcome(partial(TickCounts, **(of_keys | {"delta": F(1, 50), "threshold": threshold})))
    for keys in (1, 4, 5, 9):
        yield outcome(lambda keys=keys: TickCounts(**of_keys, domain=DOMAIN, max_keys_per_event=keys).guarantee.loss)  # type: ignore[misc]
    users: dict[str, Any] = {"horizon": TICKS, "scale": F(1), "threshold": 20, "alarms_per_user": 2}
    yield from each_of(
        TrendingMonitor,
        users | {"delta_skip": F(1, 10)},
        delta_skip=(F(0), F(1), F(1, 10**6), F(1, 10**7), F(1, 10**8), 0.1),
        domain=(DOMAIN, FixedLength("ab", 3)),
        period=(0, 1, 2, 9),
        threshold=(1, 4, 5, 6, 7),
        max_keys_per_user=(0, 2, 30),
        replacement=(True,),
    )
    yield from each_of(
        TrendingMonitor,
        users | {"domain": FixedLength("abcdefgh", 20)},
        threshold=(30, 33, 34, 35, 36, 37, 38, 50),
        domain=(Domain(["a"]),),
        delta_skip=(F(1, 9),),
    )
    for name in MONITORS:
        mechanism = MONITORS[name][0]
        yield str(mechanism.guarantee.loss), outcome(lambda mechanism=mechanism: mechanism.guarantee.loss.distance)  # type: ignore[misc]


def _published(monitor: ThresholdMonitor) -> Any:
    return monitor.epsilon, monitor.delta, monitor.epochs, monitor.in_epochs(0.01), monitor.cap, monitor.outer_scale


def _tested() -> Iterator[Any]:
    """Tests one after the other, with the charges of their users, and from stored charges."""
    noise = SeededNoise(3)
    crowd = [pl.Series(range(size)) for size in (5, 30, 60, 60, 61, 90)]
    for k in (1, 2):
        race, published = RaceMonitor(k=k, b=F(3), threshold=40), ThresholdMonitor(k=k, threshold=60, e=0.5, d=0.3)
        graded = replace(race, threshold=20, grid=10)
        for monitor in (race, published):
            charges = monitor.start(noise)
            yield [outcome(partial(monitor.test, charges, users, noise)) for users in crowd], len(charges)
            other = monitor.start(noise)
            other.take_plain(charges.to_plain())
            yield outcome(partial(monitor.test, other, crowd[-1], noise)), other.sizes.most_exhausted(3)
        charges = graded.start(noise)
        for users in crowd:
            values = pl.Series([(number % 7 - 1) / 5 for number in range(len(users))])
            yield outcome(partial(graded.test_values, charges, users, values, noise))
        twice = pl.Series(["a", "a", "b", "c"])
        yield outcome(partial(graded.test_values, charges, twice, pl.Series([0.5, 1.0, 0.0, 2.0]), noise)), len(charges)
        for values in (
            pl.Series([0.5]),
            pl.Series(["x"] * 4),
            pl.Series([0.5, None, 0.5, 1.0]),
            pl.Series([0.5, float("nan"), 0, 1]),
        ):
            yield outcome(partial(graded.test_values, charges, twice, values, noise))
        yield (
            outcome(partial(graded.test, charges, twice, noise)),
            outcome(partial(race.test_values, charges, twice, twice, noise)),
        )
        yield outcome(partial(race.test_values, race.start(noise), twice, pl.Series([1.0] * 4), noise))
        foreign = UserCharges(noise, limit=3, per_tick=1)
        yield (
            outcome(partial(race.test, foreign, twice, noise)),
            outcome(partial(published.test, foreign, twice, noise)),
        )
        for tests in (-1, 0, 1, "x", None):
            fresh = race.start(noise)
            yield outcome(partial(fresh.take_plain, [tests, *fresh.to_plain()[1:]]))
    limits: tuple[Any, ...] = (-3, 0, 9, 2**62, 1.5)
    for epsilon, threshold in product((0, 0.5, 1), limits):
        yield outcome(partial(AboveThreshold, threshold=threshold, epsilon=epsilon))
    for monotone in (False, True):
        svt = AboveThreshold(threshold=9, epsilon=1, monotone=monotone)
        yield str(svt.loss), [outcome(partial(svt.error, 0.9))] if hasattr(svt, "error") else []
        for seed in range(6):
            state = svt.start()
            asked = [outcome(partial(svt.test, state, query, SeededNoise(seed))) for query in (-2, 3, 8, 9, 10, 30, 5)]
            yield asked


def of_charges() -> Iterator[Any]:
    """What a ledger counts in."""
    largest = 2**62 - 1
    yield from each_of(Charge, {}, steps=(-1, largest, largest + 1, True, 1.0), calls=(-1,), rho_units=(largest + 1,))
    for rounded in (Charge.rounded_up, Charge.rounded_down):
        yield from each_of(
            rounded,
            {},
            rho=(0, F(1, 2**40), F(3, 2**41), 0.1, -1, float("inf"), float("nan"), True, "x"),
            bad=(F(1, 2**61), -1, 1),
        )
    some = [
        Charge(),
        Charge(steps=3),
        Charge(rho_units=2**36 + 1, bad_units=2**30 + 1),
        Charge(rho_units=2**36, bad_units=2**31),
    ]
    for one in some:
        yield one.to_dict(), one.rounded(), one.rho, one.bad, one.delta
        for delta in (None, F(0), one.bad, 2 * one.bad, F(1, 10**6)):
            yield outcome(partial(one.epsilon, delta))
        for other in some:
            yield outcome(partial(one.__add__, other)), outcome(partial(one.__sub__, other)), one.fits(other)
    for text in ("", "3", "3:", f"3:{'a' * 64}", f"x:{'a' * 64}", f"3:{'a' * 63}", f"3:{'g' * 64}", f"³:{'a' * 64}"):
        yield outcome(partial(LastEntry.parse, text))
    # A key is asked for before anything is connected to.
    yield outcome(partial(open_shared, "postgresql://127.0.0.1:1/none?ledger=shop"))


ASKED: dict[str, Callable[[], Iterator[Any]]] = {
    "caps": of_caps,
    "heads": of_heads,
    "mechanisms of users": of_mechanisms,
    "ties": of_ties,
    **{f"batches of {name}": partial(of_batches, name) for name in COUNTED},
    "monitors": of_monitors,
    "charges": of_charges,
}


def digests(name: str) -> list[str]:
    """Of all answers so far, at every twentieth one and at the end: the first that differs tells about where."""
    whole, found = hashlib.sha256(), []
    for number, answer in enumerate(ASKED[name]()):
        whole.update(json.dumps(plain(answer)).encode())
        if number % 20 == 0:
            found.append(whole.hexdigest()[:8])
    return [*found, whole.hexdigest()[:8]]


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: digests(name) for name in ASKED}, indent=1) + "\n")
