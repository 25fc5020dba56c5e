"""PipelineDP: counts by partition, public or found, on its local backend."""

from importlib.metadata import version
from typing import Any

import pipeline_dp as p

from benchmarks.peers.work import DELTA, EPSILON

VERSION = version("pipeline-dp")
PRIVACY = "one user"


def _counts(rows: list[tuple[Any, Any]], *, epsilon: float, delta: float, public: list[Any] | None, most: int) -> Any:
    accountant = p.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=delta)
    engine = p.DPEngine(accountant, p.LocalBackend())
    extractors = p.DataExtractors(
        privacy_id_extractor=lambda row: row[0], partition_extractor=lambda row: row[1], value_extractor=lambda _: 1
    )
    params = p.AggregateParams(
        metrics=[p.Metrics.COUNT],
        noise_kind=p.NoiseKind.LAPLACE,
        max_partitions_contributed=most,
        max_contributions_per_partition=1,
    )
    result = engine.aggregate(rows, params, extractors, public_partitions=public)
    accountant.compute_budgets()
    return {key: value.count for key, value in result}


def hours(counts: list[int]) -> list[float]:
    rows = [((hour, number), hour) for hour, count in enumerate(counts) for number in range(count)]
    found = _counts(rows, epsilon=EPSILON, delta=0.0, public=list(range(len(counts))), most=1)
    return [found[hour] for hour in range(len(counts))]


def total(count: int, releases: int, runs: int) -> list[float]:
    rows = [(number, 0) for number in range(count)]
    few = min(runs, 60)
    return [_counts(rows, epsilon=EPSILON / releases, delta=0.0, public=[0], most=1)[0] for _ in range(few)]


def labels(users: list[str], keys: list[str], releases: int) -> dict[str, float]:  # noqa: ARG001
    rows = [(number, key) for number, key in enumerate(keys)]  # a user for each event: one event is hidden
    found: dict[str, float] = _counts(rows, epsilon=EPSILON / releases, delta=DELTA / releases, public=None, most=1)
    return found
