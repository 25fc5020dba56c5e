"""What is drawn, and for what, in runs of many settings: `python -m tests.pin_draws` writes draws.json anew.

Read the difference before you commit it: a digest that changes is another path of noise, another scale, another number
of draws, or noise that is bound to another tick; or, of users and monitors, something else that is counted or stored.
"""

import hashlib
import json
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray
from tests.mechanisms import CASES, EVENT_CASES, USER_CASES
from tests.pin_releases import (
    FEW,
    LABELS,
    ONE,
    SEED,
    TREES_AND_MONITORS,
    batch_of,
    digest,
    matches,
    pairs_of,
    plain,
    table,
)

from pianissimo import codec
from pianissimo.labels import Domain
from pianissimo.mechanism import BySlot, Run, Windowed
from pianissimo.monitors import Alarms, FixedLength, TickCounts, TrendingMonitor
from pianissimo.noise import DoublingPlan, HaarPlan, ToeplitzPlan, TopDownPlan, TreePlan
from pianissimo.noise.keyed import Integers, Keys, Noise, PathPart
from pianissimo.testing import SeededNoise
from pianissimo.unit import EvenPeriods
from pianissimo.users import (
    AboveHead,
    AdaptiveCap,
    CountHead,
    EachPeriod,
    FixedCap,
    HistogramHead,
    LabelSumsHead,
    OctaveCap,
    PeriodCap,
    QuantilesHead,
    SumHead,
    UserDistinct,
    UserStatistics,
    UserSum,
)
from pianissimo.users.user_label_sums import UserLabelSums
from pianissimo.users.user_labels import UserLabels

PINNED = Path(__file__).parent / "draws.json"
TICKS = 6
F = Fraction


class NotedNoise(Noise):
    """The noise of a seed that notes every draw: where it stands, what it is bound to, its law, and for which keys."""

    def __init__(self, notes: set[str], path: tuple[PathPart, ...] = ()) -> None:
        self._notes, self._path = notes, path
        self._inner = SeededNoise(SEED).at(*path)

    def at(self, *path: PathPart) -> Self:
        return type(self)(self._notes, self._path + path)

    def sealed(self, tick: int) -> Self:
        """The same, bound to a tick."""
        return self.at("sealed", tick)

    def _note(self, what: str, keys: Keys) -> None:
        named = hashlib.sha256(np.ascontiguousarray(keys).tobytes()).hexdigest()[:16]
        self._notes.add(f"{self._path} {what} {len(keys)} {named}")

    def draw(self, law: str, parameter: Fraction, keys: Keys, out: Integers) -> None:
        self._note(f"{law} {parameter}", keys)
        self._inner.draw(law, parameter, keys, out)

    def bits(self, keys: Keys) -> NDArray[np.uint64]:
        self._note("bits", keys)
        return self._inner.bits(keys)

    def label_keys(self, text: bytes, lengths: NDArray[np.uint32]) -> Keys:
        return self._inner.label_keys(text, lengths)


def shown(value: Any) -> Iterator[Any]:
    """A release with what is told of the cap, and bars where a user has at most so many units."""
    yield plain(value)
    for each in getattr(value, "values", {"": value}).values() if hasattr(value, "cap") else [value]:
        cut = getattr(each, "cut", None)
        if cut is not None:
            yield plain(cut), [cut.most_missing(most) for most in (None, 2, 5, 40)]
        for name in ("bars", "sums"):
            if hasattr(each, name) and not hasattr(each, "quantile"):
                yield plain([getattr(each, name)(0.9, most_units=most) for most in (None, 2, 40)])


def pieces_of(batch: Any) -> list[Any]:
    """A batch in two parts."""
    return [batch[: len(batch) // 3], batch[len(batch) // 3 :]]


def stored(run: Run[Any, Any, Any]) -> bytes:
    """All that is stored of a run."""
    return codec.pack(
        "state", 1, [run.dump(), run.log(), run.checkpoint(), sorted(run.lasting()), sorted(run.missing())]
    )


def run_of(mechanism: Any, batch_at: Callable[[int], Any]) -> Iterator[Any]:
    """What is drawn up to every tick of a run, released and stored, in batches, in parts and from its stored state."""
    notes: set[str] = set()
    run, logs, lasting = Run(mechanism, NotedNoise(notes)), [], {}
    guarantee = mechanism.guarantee
    yield str(guarantee.loss), str(guarantee.unit), str(guarantee.neighbors), guarantee.horizon
    for tick in range(TICKS):
        parts = pieces_of(batch_at(tick))
        if tick % 2:
            whole = run.combine([run.gather(part) for part in parts])
            yield hashlib.sha256(codec.pack("gathered", 1, whole)).hexdigest()
            run.add(whole)
        else:
            for part in parts:
                run.update(part)
        if isinstance(mechanism, BySlot) and tick == 1:
            elsewhere = Run(mechanism.by_name(), NotedNoise(notes))
            if hasattr(mechanism, "stand_at"):
                elsewhere.stand_at(tick + 1)
            by_name = elsewhere.gather(parts[0])
            yield hashlib.sha256(codec.pack("gathered", 1, run.from_elsewhere(by_name))).hexdigest()
        released = run.release()
        yield list(shown(released.value)), released.error, hashlib.sha256(stored(run)).hexdigest()
        logs.append(run.log())
        lasting[tick + 1] = run.checkpoint()
        yield sorted(notes)
        if tick in (1, 2, 3):
            needed = [lasting[each] for each in sorted(run.lasting()) if lasting[each] is not None]
            kept = logs[max(0, len(logs) - run.log_length) :]
            resumed = Run(mechanism, NotedNoise(notes))
            resumed.load(run.dump(), [*needed, *kept])
            run = resumed
    if isinstance(mechanism, Windowed) and getattr(mechanism, "history", False):
        for start in range(TICKS):
            for end in range(start + 1, TICKS + 1):
                try:
                    window = run.between(start, end)
                    yield start, end, list(shown(window.value)), window.error, sorted(notes)
                except Exception as error:  # noqa: BLE001
                    yield start, end, type(error).__name__


DOMAIN = Domain(LABELS[:4])
HEADS = (
    CountHead(),
    AboveHead(),
    HistogramHead(name="label", domain=DOMAIN, share=F(2)),
    SumHead(name="value", low=-4, high=6, coarse=2),
    LabelSumsHead(name="both", domain=DOMAIN, low=-2, high=4, coarse=2),
    LabelSumsHead(name="means", domain=DOMAIN, low=-2, high=4, coarse=2, means=True),
    SumHead(name="plus", low=0, high=4),
    LabelSumsHead(name="zero", domain=DOMAIN, low=0, high=4),
    QuantilesHead(
        name="length", low=0.0, high=4.0, depth=2, quantiles=(F(1, 2), F(9, 10)), largest=(2,), smallest=(1,)
    ),
)
SMALLER = AdaptiveCap(epsilon=F(20), first=1, fourfold=1, levels=4, early_probability=F(1, 4))
NOISY = AdaptiveCap(epsilon=F(1, 2), first=1, fourfold=1, levels=5, early_probability=F(9, 10))
PERIOD = PeriodCap(units=3, ticks=2)


def rows(tick: int, *, signed: bool = False) -> pl.DataFrame:
    """Of users with all columns, with values below and above what is counted."""
    found = table(tick, by_key=False).with_columns(value=pl.col("value") * 3 - 9, plus=pl.col("length") - 2)
    found = found.with_columns(both=pl.struct(key="label", value="value"), means=pl.struct(key="label", value="value"))
    found = found.with_columns(zero=pl.struct(key="label", value="plus"))
    return found.with_columns(weight=pl.col("length") % 2 * 2 - 1) if signed else found


def positive(tick: int) -> pl.DataFrame:
    """The same with values that a sum takes."""
    return rows(tick).with_columns(value=pl.col("length") * 5 - 2)


def spread(tick: int) -> pl.DataFrame:
    """The same with many different values, and most rows at once."""
    found = rows((tick + 1) % TICKS)
    return found.with_columns(value=pl.int_range(pl.len()) * 7 % 97 + tick)


def slowly(tick: int) -> pl.DataFrame:
    """The same, more of them at each tick, so that a cap is raised again and again."""
    return spread(0).head((5, 60, 20, 120, 250, 400)[tick]).with_columns(value=pl.col("value") + 97 * tick)


def at_once(tick: int) -> pl.DataFrame:
    """The same with values that a sum takes, and most rows at once."""
    return positive((tick + 1) % TICKS)


def lists(tick: int) -> pl.DataFrame:
    """The same with lists of labels."""
    return rows(tick).with_columns(label=pl.concat_list("label", "user", pl.lit("a")))


def budget(**given: Any) -> dict[str, Any]:
    """Of six ticks over Gaussian noise."""
    return {"cap": SMALLER, "plan": HaarPlan, "horizon": TICKS, "rho": F(9), "history": TICKS, **given}


def pure(**given: Any) -> dict[str, Any]:
    """The same over Laplace noise."""
    return budget(**{"rho": None, "epsilon": F(9), "plan": TreePlan, **given})


def periods_of(inner: Any, **given: Any) -> EachPeriod:
    """Another mechanism begun anew with each period."""
    return EachPeriod(**{"inner": inner, "periods": EvenPeriods(3), "horizon": TICKS, **given})


FOLLOWED = FixedCap(units=8)
FOLLOW = OctaveCap(epsilon=F(4), first=2, levels=4)
UNKNOWN: dict[str, Any] = {"delta": FEW}
USERS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "all heads, signed": (UserStatistics(**budget(heads=HEADS, signed=True)), partial(rows, signed=True)),
    "all heads, pure": (UserStatistics(**pure(heads=HEADS)), rows),
    "all heads, periods": (UserStatistics(**budget(heads=HEADS, cap=PERIOD, plan=DoublingPlan)), rows),
    "count and who is above, periods": (UserStatistics(**pure(heads=HEADS[:2], cap=PERIOD, history=2)), rows),
    "count over Toeplitz": (UserStatistics(**budget(plan=ToeplitzPlan)), rows),
    "count over top-down": (UserStatistics(**pure(plan=TopDownPlan)), slowly),
    "coarse sum with coins": (UserSum(**budget(coarse=3, coins=True)), positive),
    "coarse sum, periods": (UserSum(**pure(coarse=5, cap=PERIOD)), positive),
    "coarse sum, at once": (UserSum(**budget(coarse=5)), at_once),
    "count, at once": (UserStatistics(**budget(heads=HEADS[:2])), at_once),
    "labels, at once": (UserLabels(**budget(by_slot=True), **UNKNOWN), at_once),
    "label sums, at once": (UserLabelSums(low=0, high=6, **budget(), **UNKNOWN), at_once),
    "labels that come, slowly": (
        UserLabels(**budget(), **UNKNOWN),
        lambda tick: slowly(tick).with_columns(label=pl.col("user")),
    ),
    "count under a noisy cap": (UserStatistics(**budget(cap=NOISY)), rows),
    "sum under a noisy cap": (UserSum(**budget(cap=NOISY, coarse=7)), slowly),
    "labels under a noisy cap": (UserLabels(**budget(cap=NOISY), **UNKNOWN), rows),
    "distinct values under a noisy cap": (UserDistinct(**pure(cap=NOISY)), spread),
    "sum over Toeplitz": (UserSum(**budget(plan=ToeplitzPlan, history=3)), slowly),
    "distinct": (UserDistinct(**budget()), spread),
    "distinct, moves priced": (UserDistinct(**budget(moves_priced=True)), slowly),
    "distinct, pure moves": (UserDistinct(**pure(moves_priced=True)), slowly),
    "distinct over Toeplitz": (UserDistinct(**budget(plan=ToeplitzPlan)), slowly),
    "distinct, pure": (UserDistinct(**pure()), slowly),
    "distinct, periods": (UserDistinct(**budget(cap=PERIOD, plan=TreePlan)), spread),
    "labels with the rest": (UserLabels(**budget(other=F(1, 5), remember=False, show_from=3), **UNKNOWN), rows),
    "labels by slot": (UserLabels(**budget(by_slot=True, per_label=2, max_keys_per_event=2), **UNKNOWN), slowly),
    "labels by slot, listed": (UserLabels(**pure(by_slot=True, domain=DOMAIN)), rows),
    "labels, listed, many keys": (UserLabels(**budget(domain=DOMAIN, max_keys_per_event=None, per_label=1)), lists),
    "labels, periods": (UserLabels(**budget(cap=PERIOD, per_label=2, min_count=2), **UNKNOWN), rows),
    "label sums": (UserLabelSums(low=-4, high=8, coarse=4, **budget(), **UNKNOWN), rows),
    "label sums of lists": (
        UserLabelSums(low=0, high=5, **budget(max_keys_per_event=2, min_count=3, plan=ToeplitzPlan), **UNKNOWN),
        lists,
    ),
    "label sums, listed": (UserLabelSums(low=0, high=6, coarse=3, domain=DOMAIN, **pure()), slowly),
    "label sums, periods": (UserLabelSums(low=0, high=6, **budget(cap=PERIOD), **UNKNOWN), rows),
    "each period of a sum": (
        periods_of(UserSum(**budget(cap=FOLLOWED, coarse=2)), follow=FOLLOW, after=1),
        positive,
    ),
    "each period of distinct values": (
        periods_of(UserDistinct(**pure(cap=FOLLOWED)), follow=FOLLOW, periods=EvenPeriods(2)),
        rows,
    ),
    "each period of labels": (
        periods_of(UserLabels(**budget(cap=FOLLOWED, by_slot=True), **UNKNOWN), follow=FOLLOW),
        rows,
    ),
    "each period of a count under a noisy cap": (
        periods_of(
            UserStatistics(**budget(cap=FOLLOWED, plan=ToeplitzPlan)),
            follow=OctaveCap(epsilon=F(1, 20), first=2, levels=4),
            periods=EvenPeriods(2),
        ),
        rows,
    ),
    "each period of label sums": (periods_of(UserLabelSums(low=0, high=6, **budget(cap=PERIOD), **UNKNOWN)), rows),
    "each period of all heads": (
        periods_of(UserStatistics(**pure(cap=FOLLOWED, heads=HEADS)), follow=FOLLOW, after=5),
        rows,
    ),
}
WATCHED: dict[str, Any] = {"horizon": TICKS, "alarms_per_user": 2, "tells_exhausted": True}
MONITORS: dict[str, tuple[Any, Callable[[int], Any]]] = {
    "alarms, replaced": (
        Alarms(thresholds=(("b", 4), ("a", 9)), scale=ONE / 2, replacement=True, **WATCHED),
        matches,
    ),
    "alarms, periods": (Alarms(thresholds=(("a", 3),), scale=ONE, period=2, **WATCHED), matches),
    "trends, replaced": (
        TrendingMonitor(
            threshold=12, scale=ONE / 2, delta_skip=FEW / 100, max_keys_per_user=2, replacement=True, **WATCHED
        ),
        pairs_of,
    ),
    "trends, periods": (
        TrendingMonitor(threshold=6, scale=ONE / 2, domain=DOMAIN, max_keys_per_user=1, period=2, **WATCHED),
        pairs_of,
    ),
    "trends of a huge domain, periods": (
        TrendingMonitor(threshold=3, scale=ONE, domain=FixedLength("abc", 2), max_keys_per_user=2, period=4, **WATCHED),
        lambda tick: pairs_of(tick).with_columns(key=pl.col("key") + "b"),
    ),
    "counts of a tick, listed": (
        TickCounts(horizon=TICKS, scale=ONE, threshold=2, domain=DOMAIN, max_keys_per_event=9),
        lambda tick: lists(tick)["label"],
    ),
    "counts of a tick, unknown": (
        TickCounts(horizon=TICKS, scale=ONE, threshold=3, delta=FEW, max_keys_per_event=2),
        lambda tick: lists(tick)["label"],
    ),
}


def only_drawn(mechanism: Any, batch_at: Callable[[int], Any]) -> Iterator[Any]:
    """What a run draws whose releases are pinned elsewhere."""
    notes: set[str] = set()
    run = Run(mechanism, NotedNoise(notes))
    for tick in range(TICKS):
        run.update(batch_at(tick))
        run.release()
        yield sorted(notes)


def of_cases() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every run by its name."""
    for name, case in (CASES | EVENT_CASES | USER_CASES).items():
        yield name, partial(only_drawn, case.mechanism, partial(batch_of, case))
    for name, (mechanism, batch_at) in TREES_AND_MONITORS.items():
        yield name, partial(only_drawn, mechanism, batch_at)
    for name, (mechanism, batch_at) in (USERS | MONITORS).items():
        yield f"{name}, in full", partial(run_of, mechanism, batch_at)


DRAWS: dict[str, Callable[[], Any]] = dict(of_cases())


if __name__ == "__main__":
    PINNED.write_text(json.dumps({name: digest(make) for name, make in DRAWS.items()}, indent=1) + "\n")
