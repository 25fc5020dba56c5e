"""OpenDP: discrete noise; zero-concentrated composition; its Polars interface for labels."""

import math
from importlib.metadata import version
from typing import Any

import opendp.prelude as dp
import polars as pl

from benchmarks.peers.work import DELTA, EPSILON

dp.enable_features("contrib")
VERSION = version("opendp")
PRIVACY = "one event; with a user column one user"
_COUNT = (dp.atom_domain(T="i64"), dp.absolute_distance(T="i64"))


def hours(counts: list[int]) -> list[int]:
    measure = dp.m.make_laplace(*_COUNT, scale=1 / EPSILON)
    return [measure(count) for count in counts]


def _scale(delta: float) -> float:
    """Of one Gaussian that has the whole epsilon."""

    def with_scale(scale: float) -> Any:
        return dp.c.make_fix_delta(dp.c.make_zCDP_to_approxDP(dp.m.make_gaussian(*_COUNT, scale=scale)), delta)

    return float(dp.binary_search_param(with_scale, d_in=1, d_out=(EPSILON, delta), T=float))


def total(count: int, releases: int, runs: int) -> list[int]:
    # zCDP adds up: of equal shares each has the root of their number in its scale.
    measure = dp.m.make_gaussian(*_COUNT, scale=_scale(DELTA) * math.sqrt(releases))
    return [measure(count) for _ in range(runs)]


def labels(users: list[str], keys: list[str], releases: int) -> dict[str, float]:  # noqa: ARG001
    """Once with Laplace noise; of many the first, with half of delta for zCDP and half for labels."""
    many = dp.loss_of(rho=1 / (2 * _scale(DELTA / 2) ** 2) / releases, delta=DELTA / 2 / releases)
    context = dp.Context.compositor(
        data=pl.LazyFrame({"key": keys}),
        privacy_unit=dp.unit_of(contributions=1),
        privacy_loss=dp.loss_of(epsilon=EPSILON, delta=DELTA) if releases == 1 else many,
        split_evenly_over=1,
    )
    table = context.query().group_by("key").agg(dp.len()).release().collect()
    return dict(zip(table["key"].to_list(), table["len"].to_list(), strict=True))


def draws(count: int) -> object:
    space = dp.vector_domain(dp.atom_domain(T="i64")), dp.l2_distance(T="i64")
    return dp.m.make_gaussian(*space, scale=20.0)([0] * count)
