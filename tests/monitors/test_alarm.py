"""Alarms on predicates: who counts, who is charged, what is refused."""

from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest
from tests.monitors.calibrating import alarms as planned_alarms
from tests.shared_checks import check_life_cycle, check_resuming, check_splitting

from pianissimo.errors import InputError, ParameterError
from pianissimo.loss.composition import price
from pianissimo.loss.losses import Race
from pianissimo.mechanism import Run
from pianissimo.monitors import Alarms
from pianissimo.testing import NoNoise

TWO = (("fever", 50), ("cough", 80))


def alarms(**fields: Any) -> Alarms:
    ready: dict[str, Any] = {"horizon": 6, "thresholds": TWO, "alarms_per_user": 2, "scale": Fraction(10)}
    return Alarms(**(ready | fields))


def events(users: Any, fever: Any, cough: Any) -> pl.DataFrame:
    fever, cough = (np.broadcast_to(each, len(users)) for each in (fever, cough))
    return pl.DataFrame({"user": users, "fever": fever, "cough": cough})


def test_without_noise_an_alarm_rings_above_its_threshold_and_tells_the_number_of_users() -> None:
    run = Run(alarms(), NoNoise())
    run.update(events(range(70), True, True))
    assert run.release().value.to_dict() == {"fever": 70}
    run.update(events(range(100, 190), False, True))
    assert run.release().value.to_dict() == {"cough": 90}


def test_a_user_counts_once_however_many_of_her_events_match() -> None:
    run = Run(alarms(), NoNoise())
    run.update(events([user for user in range(30) for _ in range(5)], True, False))
    assert run.release().value.to_dict() == {}


def test_charges_are_shared_by_the_alarms() -> None:
    run = Run(alarms(), NoNoise())
    run.update(events(range(90), True, True))
    assert run.release().value.to_dict() == {"cough": 90, "fever": 90}
    run.update(events(range(90), True, True))
    assert run.release().value.to_dict() == {}


def test_a_user_who_matched_no_alarm_that_rang_is_not_charged() -> None:
    run = Run(alarms(alarms_per_user=1), NoNoise())
    run.update(events(range(60), True, False))
    assert run.release().value.to_dict() == {"fever": 60}
    run.update(events(range(100), False, True))
    assert run.release().value.to_dict() == {}
    run.update(events(range(60, 160), False, True))
    assert run.release().value.to_dict() == {"cough": 100}


def test_the_loss_counts_the_overshoot_of_a_tick() -> None:
    loss = alarms().guarantee.loss
    assert isinstance(loss, Race)
    assert (loss.charges, loss.scale, loss.distance) == (3, Fraction(10), Fraction(12, 2**110))


def test_one_monitor_for_all_alarms_needs_less_noise_than_one_each() -> None:
    thresholds = {f"alarm-{place}": 1000 for place in range(5)}
    shared = planned_alarms(thresholds, horizon=100, alarms_per_user=4)
    each = [Race(4, shared.scale)] * 5
    assert price([shared.guarantee.loss], 1e-6).epsilon <= 1 < price(each, 1e-6).epsilon


@pytest.mark.parametrize("within", [None, 1])
def test_calibrated_alarms_are_within_their_budget(within: int | None) -> None:
    found = planned_alarms({"fever": 400}, horizon=1000, alarms_per_user=3, within=within)
    assert (found.replacement, found.period) == (False, within)
    assert 0.99 < price([found.guarantee.loss], 1e-6).epsilon <= 1


def test_a_threshold_below_the_minimum_is_refused_and_the_minimum_is_named() -> None:
    with pytest.raises(ParameterError, match="'fever' must have a threshold of at least 143, got 142"):
        planned_alarms({"cough": 200, "fever": 142}, horizon=1000, alarms_per_user=1)
    found = planned_alarms({"cough": 200, "fever": 143}, horizon=1000, alarms_per_user=1)
    assert found.detectable("cough") - found.detectable("fever") == 57


def test_shared_checks_of_mechanisms_hold() -> None:
    generator = np.random.default_rng(3)
    ticks = [events(generator.integers(0, 150, 200), *(generator.random((2, 200)) < 0.6)) for _ in range(4)]
    check_resuming(alarms(), ticks, 2)
    check_splitting(alarms(), ticks[0], [17, 90])  # type: ignore[arg-type]
    check_life_cycle(alarms(), ticks[0])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "batch",
    [
        pl.DataFrame({"user": [1], "fever": [True]}),
        pl.DataFrame({"fever": [True], "cough": [True]}),
        pl.DataFrame({"user": [1], "fever": [1], "cough": [True]}),
        pl.DataFrame({"user": [1], "fever": [None], "cough": [True]}, schema_overrides={"fever": pl.Boolean}),
        pl.DataFrame({"user": [0.5], "fever": [True], "cough": [True]}),
    ],
)
def test_a_batch_that_cannot_be_counted_is_refused(batch: pl.DataFrame) -> None:
    run = Run(alarms(), NoNoise())
    with pytest.raises(InputError):
        run.update(batch)


@pytest.mark.parametrize(
    "fields",
    [
        {"thresholds": ()},
        {"thresholds": (("a", 50), ("a", 60))},
        {"thresholds": (("user", 50),)},
        {"thresholds": (("no name", 50),)},
        {"thresholds": (("a", 50.5),)},
        {"scale": 10.0},
        {"alarms_per_user": 0},
        {"horizon": 0},
    ],
)
def test_what_cannot_be_alarms_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ParameterError):
        alarms(**fields)
