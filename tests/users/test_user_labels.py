"""Unknown labels of users: the vectors of the card, what is accepted, what is shown. Card: units and windows, U1."""

import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.users.replaying import raised_at

from pianissimo import codec
from pianissimo.budget import Budget
from pianissimo.errors import InputError, ParameterError
from pianissimo.labels import Domain
from pianissimo.loss.losses import Booked, Mixed
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, HaarSkipPlan, SplinePlan, TreePlan
from pianissimo.testing import NoNoise, SeededNoise
from pianissimo.users import AdaptiveCap, FixedCap, PeriodCap
from pianissimo.users.accepted_units import AcceptedUnits
from pianissimo.users.user_labels import Appearance, UserLabels
from pianissimo.users.user_table import PairUnits

DELTA = Fraction(5, 10**10)
LEVELS = AdaptiveCap(epsilon=Fraction(1), first=2, fourfold=0, levels=3)
Row = tuple[Any, Any]


def labels_of(cap: Any = 16, *, kind: type[UserLabels] = UserLabels, **given_: Any) -> UserLabels:
    rule = FixedCap(units=cap) if isinstance(cap, int) else cap
    fields: dict[str, Any] = {"plan": HaarPlan, "horizon": 8, "rho": Fraction(100), "delta": DELTA} | given_
    return kind(cap=rule, **fields)


def frame(rows: Sequence[Row]) -> pl.DataFrame:
    users, labels = [row[0] for row in rows], [row[1] for row in rows]
    kind = pl.List(pl.String) if any(isinstance(each, list) for each in labels) else pl.String
    return pl.DataFrame({"user": pl.Series(users, dtype=pl.String), "label": pl.Series(labels, dtype=kind)})


def exact(run: Any) -> dict[str, int]:
    """The exact counts of all labels, shown or not."""
    state = run._state
    pairs = zip(state.index.labels.to_list(), state.counts.tolist(), strict=True)
    return {label: count for label, count in pairs if count}


def counts_of(mechanism: Any, ticks: Sequence[Sequence[Row]], raises: dict[int, int] | None = None) -> list[Any]:
    """Of a run without noise: of each tick the exact counts."""
    with raised_at(raises or {}):
        run: Any = Run(mechanism, NoNoise())
        found = []
        for rows in ticks:
            run.update(frame(rows))
            run.release()
            found.append(exact(run))
    return found


def plainly(ticks: Sequence[Sequence[Row]], caps: Sequence[int], per_label: int | None) -> list[dict[str, int]]:
    """The same, counted again from the beginning at each tick: each user's first units under the cap that holds."""
    found = []
    for last, cap in enumerate(caps, 1):
        held: Counter[Row] = Counter()
        units: Counter[Any] = Counter()
        counts: Counter[str] = Counter()
        for user, label in (row for rows in ticks[:last] for row in rows):
            held[user, label] += 1
            if (per_label is None or held[user, label] <= per_label) and units[user] < cap:
                units[user] += 1
                counts[label] += 1
        found.append(dict(counts))
    return found


VECTORS = [(1, 151.774, 154, 163), (4, 148.774, 154, 163), (16, 144.282, 161, 170)]


@pytest.mark.parametrize(("per_label", "spread", "low", "high"), VECTORS)
def test_thresholds_meet_the_vectors(per_label: int, spread: float, low: int, high: int) -> None:
    class Rounded:
        variance = Fraction(400)
        is_rounded = True

    for min_count, wanted in ((1, low), (10, high)):
        rule = Appearance(releases=100, delta=DELTA, min_count=min_count)
        assert math.isclose(rule.spread(Fraction(400), 16, per_label), spread, abs_tol=5e-4)
        assert rule.threshold(Rounded(), 16, per_label) == wanted  # type: ignore[arg-type]
        # The same, where k = m is written as all.
        assert rule.threshold(Rounded(), per_label, None) == rule.threshold(Rounded(), per_label, 99)  # type: ignore[arg-type]


TABLE = [
    # T, m, k, the deviation, the mean threshold and the largest
    (100, 1, 1, 15, 112, 125),
    (100, 16, None, 246, 1854, 2080),
    (100, 16, 4, 123, 928, None),
    (100, 16, 1, 61, 465, 521),
    (100, 64, None, 982, 7587, 8511),
    (100, 64, 4, 246, 1898, None),
    (100, 64, 1, 123, 950, 1066),
    (720, 4, None, 80, 614, 677),
    (720, 4, 1, 40, 308, 340),
    (720, 16, None, 321, 2508, 2765),
    (720, 16, 4, 160, 1255, None),
    (720, 16, 1, 80, 629, 693),
    (720, 64, None, 1283, 10251, 11302),
    (720, 64, 4, 321, 2564, None),
    (720, 64, 1, 160, 1283, 1414),
    (8760, 1, 1, 26, 205, 221),
    (8760, 4, 1, 52, 419, 450),
    (8760, 16, None, 417, 3397, 3664),
    (8760, 16, 4, 209, 1699, None),
    (8760, 16, 1, 104, 851, 917),
    (8760, 64, None, 1669, 13860, 14951),
    (8760, 64, 4, 417, 3467, None),
    (8760, 64, 1, 209, 1734, 1871),
]
"""Of 8,760 ticks also the largest thresholds of totals that run on, beside which card U3 puts those of a day."""


@pytest.mark.parametrize(("horizon", "cap", "per_label", "deviation", "mean", "largest"), TABLE)
def test_thresholds_are_those_of_the_table(
    horizon: int, cap: int, per_label: int | None, deviation: int, mean: float, largest: int | None
) -> None:
    rho, found = Fraction(14407, 10**6), []
    for plan in (HaarPlan, HaarSkipPlan, SplinePlan):
        own = labels_of(cap, per_label=per_label, plan=plan, horizon=horizon, rho=rho)
        made = own.counters[0].plan(1, cap, 0)
        assert made is not None
        profile = made.variance_profile()
        worst = int(np.argmax(profile)) + 1
        # Steps that share no factor with the sizes of a tree's nodes.
        thresholds = [own.threshold(tick) or 0 for tick in range(1, horizon + 1, {100: 1, 720: 7, 8760: 43}[horizon])]
        found.append((float(profile.mean()), float(np.mean(thresholds)), own.threshold(worst) or 0))
    variance, own_mean, own_largest = min(found)
    assert math.isclose(math.sqrt(variance), deviation, rel_tol=1e-3, abs_tol=0.5)
    assert math.isclose(own_mean, mean, rel_tol=0.01)
    assert largest is None or own_largest in (largest - 1, largest, largest + 1)


@pytest.mark.parametrize(("cap", "least"), [(1, 40), (4, 81), (16, 165), (64, 339)])
def test_one_release_in_all_has_the_thresholds_of_the_card(cap: int, least: int) -> None:
    """Users of each label, once a day: one node of noise."""
    once = labels_of(cap, per_label=1, plan=TreePlan, horizon=1, rho=Fraction(14407, 10**6))
    assert once.threshold(1) == least


@pytest.mark.parametrize("plan", [HaarPlan, HaarSkipPlan])
def test_a_cap_that_follows_has_the_noise_of_the_card(plan: Any) -> None:
    """Times that of a fixed cap of the same size: 2.16 at the first level, 3.0, 3.75 and 4.5 behind a prefix."""
    cap = AdaptiveCap(epsilon=Fraction(1, 5), first=16, fourfold=0, levels=15)
    following = labels_of(cap, plan=plan, horizon=720, rho=Budget(Fraction(4, 5), DELTA).rho()).counters[0]
    for level, factor in enumerate((2.16, 3.0, 3.75, 4.5), 1):
        units, since = cap.caps[level - 1], 0 if level == 1 else 1
        fixed = labels_of(units, plan=plan, horizon=720, rho=Budget(1, DELTA).rho()).counters[0].plan(1, units, 0)
        own, prefix = following.plan(level, units, since), following.prefix(level, units, since)
        assert fixed is not None
        assert own is not None
        variance = float(own.variance_profile().mean()) + (0.0 if prefix is None else float(prefix.variance))
        assert math.isclose(math.sqrt(variance / float(fixed.variance_profile().mean())), factor, rel_tol=3e-3)


def test_the_first_units_of_each_user_count_in_her_own_order() -> None:
    events = [("ann", "x"), ("bob", "y"), ("ann", "x"), ("ann", "y"), ("bob", "x"), ("ann", "z")]
    assert counts_of(labels_of(2), [events]) == [{"x": 3, "y": 1}]
    assert counts_of(labels_of(2, per_label=1), [events]) == [{"x": 2, "y": 2}]
    assert counts_of(labels_of(4, per_label=2), [[*events, ("ann", "x")]]) == [{"x": 3, "y": 2, "z": 1}]


def test_each_label_of_an_event_is_a_unit_once() -> None:
    events = [("ann", ["x", "y", "x", "z"]), ("bob", ["x", "z"]), ("cid", [])]
    assert counts_of(labels_of(3, max_keys_per_event=2), [events]) == [{"x": 2, "y": 1, "z": 1}]
    assert counts_of(labels_of(2, max_keys_per_event=None, per_label=1), [events]) == [{"x": 2, "y": 1, "z": 1}]


def test_labels_that_are_not_listed_use_up_no_units() -> None:
    known = labels_of(1, domain=Domain(["x", "y"]), delta=None, per_label=1)
    run = Run(known, NoNoise())
    run.update(frame([("ann", "else"), ("ann", "x"), ("ann", "y"), ("bob", "y")]))
    assert run.release().value.to_dict() == {"x": 1, "y": 1}


USERS, LABELS = st.sampled_from("abc"), st.sampled_from(["x", "y", "z"])
ROWS = st.lists(st.tuples(USERS, LABELS), max_size=12)
STREAMS = st.lists(ROWS, min_size=4, max_size=4)
LIMITS = st.sampled_from([1, 2, None])


@settings(max_examples=25)
@given(stream=STREAMS, per_label=LIMITS, raised=st.sampled_from([{}, {1: 1}, {2: 1}, {3: 2}, {2: 1, 4: 1}]))
def test_what_is_accepted_is_what_the_caps_say_whenever_they_are_raised(
    stream: list[list[Row]], per_label: int | None, raised: dict[int, int]
) -> None:
    levels = np.cumsum([raised.get(tick, 0) for tick in range(1, 5)])
    caps = [LEVELS.caps[level] for level in levels]
    assert counts_of(labels_of(LEVELS, per_label=per_label), stream, raised) == plainly(stream, caps, per_label)


def mixed(rows: list[Row], seed: int) -> list[Row]:
    """The rows in another order, that of each user kept."""
    order = list(rows)
    np.random.default_rng(seed).shuffle(order)
    queues = {user: [row for row in rows if row[0] == user] for user in {row[0] for row in rows}}
    return [queues[user].pop(0) for user, _ in order]


@settings(max_examples=20)
@given(stream=STREAMS, per_label=LIMITS, seed=st.integers(0, 99), cut=st.integers(0, 12), by_slot=st.booleans())
def test_the_order_between_users_and_where_batches_are_cut_make_no_difference(
    stream: list[list[Row]], per_label: int | None, seed: int, cut: int, by_slot: bool
) -> None:
    fields: dict[str, Any] = {"per_label": per_label, "by_slot": by_slot}
    assert released(UserLabels, stream, fields) == released(UserLabels, stream, fields, seed, cut)


def released(
    kind: type[UserLabels], stream: list[list[Row]], fields: dict[str, Any], seed: int | None = None, cut: int = 99
) -> list[Any]:
    """Of all ticks, by gathering what is mixed and cut if there is a seed: values and exact counts."""
    run: Any = Run(labels_of(LEVELS, kind=kind, delta=Fraction(1, 3), **fields), SeededNoise(3))
    found = []
    for rows in stream:
        if seed is None:
            run.update(frame(rows))
        else:
            other = mixed(rows, seed)
            assert same(run.gather(frame(other)), run.gather(frame(rows)))
            gathered = [run.gather(frame(piece)) for piece in (other[:cut], other[cut:])]
            assert same(run.combine(gathered), run.gather(frame(rows)))
            for each in gathered:
                run.add(codec.decode("x", 1, codec.encode("x", 1, each)))
        found.append((run.release().value.to_dict(), exact(run)))
    return found


def same(left: Any, right: Any) -> bool:
    return codec.encode("x", 1, left) == codec.encode("x", 1, right)


class SpentTooSoon(UserLabels):
    """Mutant: a user has no units left when she has as many as the first cap, which may be raised."""

    def gather(self, state: Any, batch: pl.DataFrame) -> Any:
        units = state.units
        with mock.patch.object(units, "_told", self.cap.caps[0]):
            return UserLabels.gather(self, state, batch)


@pytest.mark.parametrize(("kind", "is_right"), [(UserLabels, True), (SpentTooSoon, False)])
def test_what_is_left_out_by_slot_would_not_be_accepted_at_any_cap(kind: type[UserLabels], is_right: bool) -> None:
    stream = [[("ann", "x"), ("ann", "y"), ("bob", "x")], [("ann", "z"), ("bob", "y")], [("ann", "x"), ("cid", "z")]]
    fields = {"per_label": None, "by_slot": True}
    with raised_at({3: 2}):
        plain = released(UserLabels, stream, fields)
        assert (released(kind, stream, fields, seed=1) == plain) is is_right
        assert plain[-1][1] == {"x": 3, "y": 2, "z": 2}


def test_what_is_stored_by_slot_has_no_user_without_units_and_no_label_twice() -> None:
    run: Any = Run(labels_of(2, by_slot=True), NoNoise())
    run.add(run.gather(frame([("ann", "x"), ("ann", "y"), ("bob", "x")])))
    run.release()
    slots, names, counts, known, new, numbers = run.gather(frame([("ann", "z"), ("cid", "w"), ("bob", "x")]))
    assert [part.tolist() for part in (counts, known, numbers)] == [[1, 1], [0], [0, 1]]
    assert (slots.shape, names.shape, new.to_list()) == ((1,), (1, 2), ["w"])
    # What is refused depends on no state: of ann nothing is counted any more.
    for refused in (run.gather, run.update):
        with pytest.raises(InputError, match="256 bytes"):
            refused(frame([("ann", "x" * 257)]))


class PopularFirst(UserLabels):
    """Mutant: of a user's labels those that most rows hold come first."""

    def _rows(self, batch: pl.DataFrame, rows_of: Any) -> Any:
        popular = batch["label"].value_counts(sort=True)["label"].to_list()
        ordered = batch.sort(pl.col("label").replace_strict(popular, range(len(popular))))
        return UserLabels._rows(self, ordered, rows_of)


class SharedLimit(UserLabels):
    """Mutant: a label takes at most three rows of a batch, whoever they are of."""

    def _rows(self, batch: pl.DataFrame, rows_of: Any) -> Any:
        return UserLabels._rows(self, batch.filter(pl.int_range(pl.len()).over("label") < 3), rows_of)


@pytest.mark.parametrize(("broken", "order"), [(PopularFirst, "xyz"), (SharedLimit, "zxy")])
def test_acceptance_that_looks_at_others_is_caught(broken: type[UserLabels], order: str) -> None:
    """Of what a user's rows count as, nothing depends on others: she has the same units with them and without."""
    own = [("ann", label) for label in order]
    others = [("bob", "z"), ("cid", "z"), ("dan", "z"), ("eve", "z")]

    def ann(kind: type[UserLabels]) -> bool:
        with_others = counts_of(labels_of(2, kind=kind), [others + own])[0]
        alone = counts_of(labels_of(2, kind=kind), [own])[0]
        without = counts_of(labels_of(2, kind=kind), [others])[0]
        return bool(with_others == dict(Counter(without) + Counter(alone)))

    assert ann(UserLabels)
    assert not ann(broken)


def test_pairs_are_remembered_over_raises_and_restarts() -> None:
    stream = [[("ann", "x"), ("ann", "y"), ("ann", "z")], [("ann", "x")], [("ann", "z"), ("ann", "x")]]

    def found() -> Any:
        return counts_of(labels_of(LEVELS, per_label=1), stream, {2: 1})[-1]

    assert found() == {"x": 1, "y": 1, "z": 1}

    class Forgetful(PairUnits):
        """Mutant: pairs are forgotten at each tick."""

        def close(self) -> None:
            PairUnits.close(self)
            self.clear()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pianissimo.users.accepted_units.PairUnits", Forgetful)
        assert found() != {"x": 1, "y": 1, "z": 1}


class Loud(NoNoise):
    """Gaussian draws that lift every label over any threshold."""

    def draw(self, law: str, parameter: Fraction, keys: Any, out: Any) -> None:
        out[:] = 10**4 if law == "gaussian" else 0


class AllEligible(UserLabels):
    """Mutant: a label may be shown that left-out rows alone hold."""

    def release(self, state: Any, tick: int, noise: Any) -> Any:
        value = UserLabels.release(self, state, tick, noise)
        state.shown = np.ones(len(state.index), dtype=np.bool_)
        return self._value(state, np.zeros(len(state.index), dtype=np.int64), value.law, value.cut)


def test_labels_of_left_out_rows_alone_are_not_shown_before_a_raise() -> None:
    rows = frame([("ann", "x"), ("ann", "y"), ("ann", "left out")])

    def shown(kind: type[UserLabels]) -> list[set[str]]:
        with raised_at({2: 1}):
            run = Run(labels_of(LEVELS, kind=kind), Loud())
            run.update(rows)
            return [set(run.release().value.labels) for _ in range(2)]

    assert shown(UserLabels) == [{"x", "y"}, {"x", "y", "left out"}]
    assert shown(AllEligible)[0] != {"x", "y"}


def test_a_label_needs_min_count_accepted_units_however_high_its_noise() -> None:
    run = Run(labels_of(5, min_count=3, per_label=1), Loud())
    run.update(frame([("ann", "x"), ("bob", "x"), ("ann", "x"), ("ann", "y"), ("bob", "y"), ("cid", "y")]))
    assert set(run.release().value.labels) == {"y"}


def test_how_many_labels_of_an_event_count_changes_no_price() -> None:
    one, many = labels_of(4, max_keys_per_event=1), labels_of(4, max_keys_per_event=3)
    assert [each.law(1, 4, 0, 5).variance for each in one.counters] == [
        each.law(1, 4, 0, 5).variance for each in many.counters
    ]
    assert one.threshold(5) == many.threshold(5)
    assert one.guarantee == many.guarantee


def test_the_promise_has_the_bad_mass_and_the_caps_epsilon() -> None:
    fixed, following = labels_of(3).guarantee.loss, labels_of(LEVELS).guarantee.loss
    assert isinstance(fixed, Booked)
    assert (fixed.rho, fixed.bad) == (Fraction(100), DELTA)
    assert isinstance(following, Mixed)
    assert (following.pure, following.rho, following.bad) == (LEVELS.loss, Fraction(100), DELTA)
    assert fixed.distance >= Fraction(2**32, 2**110)
    known = labels_of(3, domain=Domain(["x"]), delta=None).guarantee.loss
    assert isinstance(known, Booked)
    assert known.bad == 0


def test_what_cannot_be_promised_is_refused() -> None:
    with pytest.raises(ParameterError, match="must have a delta"):
        labels_of(delta=None)
    with pytest.raises(ParameterError, match="Gaussian noise, got a pure epsilon"):
        labels_of(rho=None, epsilon=Fraction(1), plan=TreePlan)
    with pytest.raises(ParameterError, match="left out where the domain is known"):
        labels_of(domain=Domain(["x"]))
    with pytest.raises(ParameterError, match="below 2\\^32"):
        labels_of(per_label=2**32)
    with pytest.raises(InputError, match="256 bytes"):
        Run(labels_of(), NoNoise()).update(frame([("ann", "x" * 257)]))
    with pytest.raises(InputError, match="null"):
        Run(labels_of(), NoNoise()).update(frame([("ann", None)]))
    assert labels_of(rho=None, epsilon=Fraction(1), plan=TreePlan, domain=Domain(["x"]), delta=None).bad == 0


def test_the_rest_is_a_total_of_its_own_less_what_is_shown() -> None:
    mechanism = labels_of(3, other=Fraction(1, 4))
    assert [each.law(1, 3, 0, 1).plan is not None for each in mechanism.counters] == [True, True]
    run = Run(mechanism, NoNoise())
    run.update(frame([(str(user), label) for user in range(400) for label in ("x", "y", f"own {user}")]))
    value = run.release().value
    assert value.to_dict() == {"x": 400, "y": 400}
    assert value.rest is not None
    assert value.rest.estimate == 400


def test_a_run_goes_on_from_what_is_stored() -> None:
    stream = [[("ann", "x"), ("bob", "x"), ("ann", "y")], [("ann", "x"), ("cid", "y")], [("bob", "x"), ("ann", "z")]]
    for per_label in (1, 2, None):
        mechanism = labels_of(LEVELS, per_label=per_label, history=4, delta=Fraction(1, 3), rho=Fraction(10**4))
        with raised_at({2: 1}):
            whole: Any = Run(mechanism, SeededNoise(5))
            again: Any = Run(mechanism, SeededNoise(5))
            logs: list[Any] = []
            for rows in stream:
                for run in (whole, again):
                    run.update(frame(rows))
                first, second = (run.release().value for run in (whole, again))
                assert first.to_dict() == second.to_dict()
                logs.append(codec.decode("x", 1, codec.encode("x", 1, again.log())))
                stored = codec.decode("x", 1, codec.encode("x", 1, again.dump()))
                again = Run(mechanism, SeededNoise(5))
                again.load(stored, logs)
                assert exact(again) == exact(whole)
            assert whole.between(0, 3).value.to_dict() == again.between(0, 3).value.to_dict()


def test_a_new_period_begins_with_all_units() -> None:
    cap = PeriodCap(units=1, ticks=2)
    stream = [[("ann", "x")], [("ann", "y")], [("ann", "x")], [("ann", "z")]]
    assert counts_of(labels_of(cap, per_label=1), stream)[-1] == {"x": 2}


def test_windows_count_what_was_accepted_under_the_cap_that_held_when_a_tick_began() -> None:
    stream = [[("ann", "x")] * 3, [("ann", "x"), ("bob", "x")], [("bob", "y")] * 2 + [("bob", "x")]]
    with raised_at({2: 1}):
        run: Any = Run(labels_of(LEVELS, history=8), Loud())
        for rows in stream:
            run.update(frame(rows))
            run.release()
    state = run._state
    labels = state.index.labels.to_list()

    def moved(start: int, end: int) -> dict[str, int]:
        moves = state.segments.window(start, end, size=len(labels)).moves.tolist()
        return {label: move for label, move in zip(labels, moves, strict=True) if move}

    # Ann's third is let in by the raise, and is in no window; bob is within the new cap of 4.
    assert [moved(0, 1), moved(1, 2), moved(2, 3)] == [{"x": 2}, {"x": 1}, {"y": 2, "x": 1}]
    assert exact(run) == {"x": 6, "y": 2}
    assert run.between(1, 3).value.cut.most_missing(None) is None


def test_no_more_is_missing_on_a_label_than_each_user_above_the_cap_may_have() -> None:
    run = Run(labels_of(LEVELS, per_label=1), Loud())
    run.update(frame([("ann", "x")]))
    value = run.release().value
    above = LEVELS.users_above(1, 8)
    assert value.cut.most_missing(None) == above
    assert value.bars(0.9)[0].high - value.estimates[0] == value.law.half_width(0.9) + (above or 0)
    assert Run(labels_of(3, per_label=1), Loud()).release().value.cut.most_missing(None) is None


def test_nothing_is_told_by_what_is_printed() -> None:
    run: Any = Run(labels_of(), NoNoise())
    run.update(frame([("ann", "secret")]))
    for part in (run, run._state, run._state.units, run._state.pairs, AcceptedUnits):
        assert "secret" not in repr(part)
        assert "ann" not in repr(part).replace("annotations", "")
