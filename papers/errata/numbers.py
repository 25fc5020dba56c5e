"""All numbers of the report (docs/report) that are computed: counterexamples, and our bounds beside the printed ones.

Run `python -m papers.errata.numbers` to write docs/report/numbers.json anew, with the date.
"""

import datetime as dt
import json
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pianissimo as pp
from papers.errata import counterexamples as printed
from pianissimo.monitors import RaceMonitor, ThresholdMonitor
from pianissimo.noise import DoublingPlan, HaarPlan, HaarSkipPlan, SplinePlan, TreePlan
from pianissimo.noise.plan import NoisePlan
from pianissimo.sketches.released_keys import threshold
from pianissimo.users import AdaptiveCap

PATH = Path(__file__).parents[2] / "docs" / "report" / "numbers.json"
PLANS: Mapping[str, Callable[..., NoisePlan]] = {
    "doubling periods": DoublingPlan.calibrated,
    "binary tree": partial(TreePlan.calibrated, base=2),
    "base-r tree, best base": TreePlan.calibrated,
    "Haar": HaarPlan.calibrated,
    "Haar with skipping": HaarSkipPlan.calibrated,
    "spline": SplinePlan.calibrated,
}
POWERS = (8, 12, 16, 20)


def limit(horizon: int) -> float:
    """The least that the largest deviation can be with Gaussian noise at rho = 1/2: certified to 2^12, then a fit."""
    return math.log(horizon) / math.pi + 0.7055 + 0.345 / math.log(horizon)


def deviations() -> list[list[str]]:
    """For each plan the largest standard deviation of a running count at rho = 1/2, by horizon."""
    rows = [["limit", *(f"{limit(2**power):.2f}" for power in POWERS)]]
    for name, make in PLANS.items():
        largest = [make(horizon=2**power, rho=Fraction(1, 2)).variance_profile().max() for power in POWERS]
        rows.append([name, *(f"{math.sqrt(each):.2f}" for each in largest)])
    return rows


def sketch_thresholds() -> list[list[str]]:
    """For each promise the published threshold of a private sketch, and the least one."""
    promises = [(epsilon, delta) for epsilon in (0.1, 0.5, 1.0, 2.0) for delta in (1e-6, 1e-10)]
    return [
        [
            f"{epsilon}",
            f"{delta:g}",
            str(printed.printed_threshold(epsilon, delta)),
            str(threshold(epsilon=epsilon, delta=delta, k=64)),
        ]
        for epsilon, delta in promises
    ]


def monitor_scales() -> list[list[str]]:
    """For k charges at (1, 1e-6): the outer noise of the published monitor, and the noise of a race."""
    rows = []
    for k in (1, 4, 16):
        published = ThresholdMonitor.calibrated(epsilon=1, delta=1e-6, k=k, threshold=10**7).outer_scale
        ours = RaceMonitor.calibrate(epsilon=1, delta=1e-6, k=k)
        rows.append([str(k), f"{float(published):,.0f}", f"{float(ours):.2f}"])
    return rows


def user_thresholds() -> dict[str, int]:
    """The largest threshold over 720 ticks at (1, 1e-9), 16 units a user: users of a label, and events of a label."""
    return {"users": _threshold_of("users"), "events": _threshold_of("events")}


def _threshold_of(count: Literal["events", "users"]) -> int:
    query = pp.Histogram("labels", key="label", count=count)
    unit = pp.user("user", max_events_per_user=16)
    stream = pp.Stream("report", unit=unit, budget=pp.Budget(1, 1e-9), horizon=720, queries=[query])
    told = json.loads(stream.plan().to_json())["queries"][0]
    return int(told["threshold"]["largest"])


def examples() -> dict[str, str]:
    """The counterexamples, as they are printed."""
    low, high = printed.conditioned_constants()
    before, after = printed.merged_by_length()
    claimed, exact = printed.laplace_claim(1.0, 1e-3)
    published, least = printed.standard_thresholds()
    return {
        "laplace_offset_1": f"{printed.laplace_offset_as_printed(1.0):.3f}",
        "laplace_offset_2": f"{printed.laplace_offset_as_printed(2.0):.3f}",
        "laplace_claim": f"{1e3 * claimed:.1f}",
        "laplace_exact": f"{1e3 * exact:.2f}",
        "fixed_domain": f"{printed.fixed_domain_loss(1.0, 0.1):.2f}",
        "fixed_threshold": f"{printed.fixed_threshold_as_printed(1.0, 0.01):.2f}",
        "wrong_sign": f"{printed.wrong_sign_of_the_race(5, 1.0):.2f}",
        "strict_domain": f"{printed.strict_domain_as_printed(3, 1e-3):.2f}",
        "constant_low": f"{low:.5f}",
        "constant_high": f"{high:.5f}",
        "unknown_top": f"{1e3 * printed.unknown_top_as_printed(5, 1e-3):.2f}",
        "redrawn_2": f"{printed.redrawn_noise(1000, 2):.1f}",
        "redrawn_4": f"{printed.redrawn_noise(1000, 4):.1f}",
        "shown_error_printed": f"{printed.shown_count_error(printed=True):.3f}",
        "shown_error": f"{printed.shown_count_error(printed=False):.3f}",
        "series": f"{printed.printed_series():.3f}",
        "series_from_one": f"{printed.budget_series(1):.3f}",
        "series_from_zero": f"{printed.budget_series(0):.3f}",
        "kept": str(printed.kept_after_removal((1, 2, 4, 8, 16, 32, 64, 128), 4, 4)),
        "two_streams": f"{printed.two_streams():.2f}",
        "continuous": f"{printed.continuous_formula():.1f}",
        "private_keys": str(printed.private_keys(oldest=False)),
        "private_keys_by_age": str(printed.private_keys(oldest=True)),
        "standard_printed": f"{published:.1f}",
        "standard": str(least),
        "merged": str(before),
        "merged_less": str(after),
    }


def numbers() -> dict[str, Any]:
    """All of them but the date."""
    return {
        "examples": examples(),
        "deviations": deviations(),
        "sketch_thresholds": sketch_thresholds(),
        "monitor_scales": monitor_scales(),
        "user_thresholds": user_thresholds(),
        "users_above": AdaptiveCap(epsilon=Fraction(1, 5), first=64).users_above(1, 100),
    }


if __name__ == "__main__":
    dated = {"date": dt.datetime.now(dt.UTC).date().isoformat(), **numbers()}
    PATH.write_text(json.dumps(dated, indent=1) + "\n")
