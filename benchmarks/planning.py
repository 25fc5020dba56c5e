"""How much CPU it takes to plan many queries over a long horizon, against planning one of them."""

import time
from collections.abc import Iterator

import pianissimo as pp
from benchmarks.measure import Row
from pianissimo.noise.haar import _quiet_positions
from pianissimo.queries.shared import expected

HORIZON, QUERIES = 1_000_000, 20
MOST_SECONDS = 1.5


def stream(queries: int, unit: object) -> pp.Stream:
    """So many counts of one promise."""
    asked = [pp.Count(f"c{number}", where=f"x > {number}") for number in range(queries)]
    return pp.Stream("s", budget=pp.Budget(1.0, 1e-9), horizon=HORIZON, unit=unit, queries=asked)  # type: ignore[arg-type]


def planned(queries: int, unit: object) -> tuple[pp.Stream, float]:
    """A stream and the CPU seconds of its first plan in a process that has planned nothing."""
    expected._release_variances.cache_clear()
    _quiet_positions.cache_clear()
    made = stream(queries, unit)
    start = time.process_time()
    made.plan()
    return made, time.process_time() - start


def rows() -> Iterator[Row]:
    for name, unit in (("events", "event"), ("users", pp.user("u", max_events_per_user=20))):
        planned(1, unit)
        _, one = planned(1, unit)
        many, all_of_them = planned(QUERIES, unit)
        what = f"plan {QUERIES} counts of {name} over {HORIZON:,} ticks, CPU"
        yield Row(what=what, peer="plan one", ours=all_of_them, theirs=one, unit="s", at_most=4.0)
        yield Row(what=what, peer="the bar", ours=all_of_them, theirs=MOST_SECONDS, unit="s", at_most=1.0)
        start = time.process_time()
        many.start()
        took = time.process_time() - start
        yield Row(
            what=f"start them ({name}), CPU", peer="their plan", ours=took, theirs=all_of_them, unit="s", at_most=0.05
        )
