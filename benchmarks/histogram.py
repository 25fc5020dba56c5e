"""A histogram over a million keys in a 2^20-tick Haar plan: time and memory."""

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl

from benchmarks.measure import Row, best_cpu_seconds
from pianissimo.counting import KnownHistogram
from pianissimo.labels import Domain
from pianissimo.mechanism import Run
from pianissimo.noise import HaarPlan, HaarSkipPlan, KeyedNoise, SplinePlan, fresh_secret
from pianissimo.noise.plan import NoisePlan
from pianissimo.noise.running import evaluate

SERIES = 1_000_000
TICKS = 256


def labels() -> pl.Series:
    return pl.select(pl.format("key-{}", pl.int_range(SERIES).cast(pl.String).str.zfill(7))).to_series()


def make_run(plan: NoisePlan, names: pl.Series) -> Run[pl.Series, object, object]:
    histogram = KnownHistogram(plan=plan, domain=Domain(names))
    return Run(histogram, KeyedNoise(fresh_secret()))  # type: ignore[arg-type]


def seconds_a_release(plan: NoisePlan) -> float:
    """Amortised over many ticks in a row."""
    run = make_run(plan, labels())
    run.release()

    def releases() -> None:
        for _ in range(TICKS):
            run.release()

    return best_cpu_seconds(releases, repeats=2) / TICKS


def rows() -> Iterator[Row]:
    ordinary = np.random.default_rng(1)
    normals = best_cpu_seconds(lambda: ordinary.standard_normal(SERIES))
    peer = "numpy drawing 1e6 plain normals"
    plans: list[tuple[NoisePlan, float]] = [
        (HaarPlan.calibrated(horizon=2**20, rho=0.5), 3),
        (HaarSkipPlan.calibrated(horizon=2**20, rho=0.5), 10),
        (SplinePlan.calibrated(horizon=2**20, rho=0.5), 10),
    ]
    for plan, bar in plans:
        yield Row(
            what=f"release of 1e6 keys, tick after tick, {plan.name}",
            peer=peer,
            ours=seconds_a_release(plan) * 1e3,
            theirs=normals * 1e3,
            unit="ms",
            at_most=bar,
        )
    haar = plans[0][0]
    keys = np.stack([np.arange(SERIES, dtype=np.uint64)] * 2, axis=1)
    noise = KeyedNoise(fresh_secret())
    for tick, what in ((699_050, "at a random tick"), (2**19, "at tick 2^19, all of them late")):
        once = best_cpu_seconds(lambda tick=tick: evaluate(haar, noise, tick, keys), repeats=3)  # type: ignore[misc]
        yield Row(
            what=f"release of 1e6 keys {what}", peer=peer, ours=once * 1e3, theirs=normals * 1e3, unit="ms", at_most=40
        )
    yield from jax_row(normals)
    yield Row(
        what="peak memory of 1e6 keys over 2^20 ticks",
        peer="one byte a key",
        ours=peak_bytes_a_key(),
        theirs=1.0,
        unit="B/key",
        at_most=200,
    )


def jax_row(normals: float) -> Iterator[Row]:
    """jax-privacy's correlated noise for the same vector, where it is installed: a comparison, not a bar."""
    if importlib.util.find_spec("jax_privacy") is None:
        return
    import jax
    import jax.numpy as jnp
    from jax_privacy.matrix_factorization import buffered_toeplitz

    blt = buffered_toeplitz.BufferedToeplitz.from_rational_approx_to_sqrt_x(num_buffers=4)
    noise = blt.inverse_as_streaming_matrix()
    state = noise.init_multiply(jnp.zeros(SERIES))
    draw = jax.jit(lambda key, state: noise.multiply_next(jax.random.normal(key, (SERIES,)), state))

    def step() -> None:
        jax.block_until_ready(draw(jax.random.key(0), state))

    ours = best_cpu_seconds(step)
    yield Row(
        what="jax-privacy BLT, 4 buffers, 1e6 values (not exact, not keyed)",
        peer="numpy drawing 1e6 plain normals",
        ours=ours * 1e3,
        theirs=normals * 1e3,
        unit="ms",
        at_most=1e9,
    )


def peak_bytes_a_key() -> float:
    """Of a fresh process, above what it held before the histogram was made."""
    output = subprocess.run([sys.executable, "-m", "benchmarks.histogram"], capture_output=True, check=True, text=True)
    return float(output.stdout)


def memory(field: str) -> int:
    """Bytes of this process: VmRSS now, VmHWM at the peak. A child inherits its parent's ru_maxrss, but not these."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith(f"{field}:"))) * 1024


def measure_memory() -> None:
    """The domain is made, the events of all keys come in batches of 100,000, and 64 ticks are released."""
    evaluate(HaarPlan.calibrated(horizon=2**20, rho=0.5), KeyedNoise(fresh_secret()), 1, np.zeros((1, 2), np.uint64))
    names = labels()
    batches = [names.gather(np.arange(start, start + 100_000)) for start in range(0, SERIES, 100_000)]
    batches[0].to_frame().group_by(pl.all()).len()
    before = memory("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    run = make_run(HaarPlan.calibrated(horizon=2**20, rho=0.5), names)
    for batch in batches:
        run.update(batch)
    for _ in range(64):
        run.release()
    print((memory("VmHWM") - before) / SERIES)


if __name__ == "__main__":
    measure_memory()
