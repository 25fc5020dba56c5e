"""Draw docs/images/error_by_sketch_size.png: the error of a released sketch by its size, three ways, at equal privacy.

    python docs/figures/draw_error_by_sketch_size.py [FILE]

It needs matplotlib, which `pip install pianissimo[plot]` brings. The data are made up and the noise is fixed, so that
the picture is the same each time.

* *Chan et al. 2012* add noise for the whole l1 sensitivity of a sketch, k; a threshold hides up to k keys of count one.
* *Lebeda and Tetek* add noise of scale 1 / epsilon, and show keys from 1 + 2 ln(3 / delta) / epsilon on.
* *Ours* is the same noise with the exact least threshold (`pianissimo.sketches.threshold`).
"""

import math
import sys
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from numpy.typing import NDArray

from pianissimo.noise import KeyedNoise, Noise, Secret
from pianissimo.sketches import MisraGries, PrivateMisraGries, threshold
from pianissimo.sketches.released_keys import item_keys

EPSILON, DELTA = 1, 1e-8
EVENTS, KEYS = 10**6, 10**5
FAILURE = 0.05
POWERS = range(4, 17)
MEASURED = range(4, 17, 2)
_INK, _SOFT = "#222222", "#5f5f5f"
COLORS = {"Chan et al. 2012": "#D55E00", "Lebeda and Tetek": "#56B4E9", "ours": "#009E73"}


@dataclass(frozen=True)
class Way:
    """How a sketch of k counters is released."""

    k: int
    scale: Fraction
    """Of the noise on each number."""

    threshold: int
    shared: bool
    """Whether one more draw stands on all counts."""

    @property
    def added(self) -> float:
        """By how much a released count may be below that of the sketch, all keys at once with a chance of 95 %."""
        draws = self.k + 1 if self.shared else self.k
        decay = math.exp(-1 / self.scale)
        reach = math.ceil(math.log(2 * draws / ((1 + decay) * FAILURE)) * self.scale) - 1
        return self.threshold - 1 + (2 if self.shared else 1) * reach


def ways(k: int) -> dict[str, Way]:
    """The three, all (EPSILON, DELTA)-private."""
    scale = Fraction(k, EPSILON)
    decay = math.exp(-1 / scale)
    # 1 - (1 - G(threshold - 1))^k at most delta, G the tail of one draw.
    each = -math.expm1(math.log1p(-DELTA) / k)
    chan = 1 + math.ceil(-math.log(each * (1 + decay)) * scale)
    paper = math.ceil(1 + 2 * math.log(3 / DELTA) / EPSILON)
    exact = threshold(epsilon=EPSILON, delta=DELTA, k=k)
    return {
        "Chan et al. 2012": Way(k, scale, chan, shared=False),
        "Lebeda and Tetek": Way(k, Fraction(1, EPSILON), paper, shared=True),
        "ours": Way(k, Fraction(1, EPSILON), exact, shared=True),
    }


def measured(way: Way, sketch: MisraGries, truth: NDArray[np.int64], noise: Noise) -> int:
    """The largest error of one release, over all keys, shown or not."""
    contents = sketch.contents()
    estimates = np.zeros(KEYS, dtype=np.int64)
    if way.shared:
        released = PrivateMisraGries(k=way.k, epsilon=1 / way.scale, threshold=way.threshold).release(contents, noise)
        estimates[released.keys.to_numpy()] = released.under
    else:
        counts = contents.over - contents.decrements
        noisy = counts + noise.laplace(way.scale, item_keys(contents.keys, noise))
        shown = (counts > 0) & (noisy >= way.threshold)
        estimates[contents.keys.to_numpy()[shown]] = noisy[shown]
    return int(np.abs(estimates - truth).max())


def stream() -> NDArray[np.int64]:
    """Keys whose frequency falls with their rank."""
    chances = 1 / np.arange(1, KEYS + 1) ** 1.1
    limits = np.cumsum(chances / chances.sum())
    return np.searchsorted(limits, np.random.default_rng(1).random(EVENTS)).clip(max=KEYS - 1).astype(np.int64)


def draw(path: Path) -> None:
    """Both panels, into a PNG file."""
    sizes = [2**power for power in POWERS]
    found = {k: ways(k) for k in sizes}
    with rc_context({"font.size": 9, "text.color": _INK, "axes.edgecolor": "#b8b8b8", "axes.labelcolor": _SOFT}):
        figure = Figure(figsize=(10.0, 4.8), dpi=140)
        FigureCanvasAgg(figure)
        whole, added = figure.subplots(1, 2, sharex=True)
        figure.subplots_adjust(left=0.06, right=0.79, top=0.80, bottom=0.12, wspace=0.17)
        sketch_alone = [EVENTS / (k + 1) for k in sizes]
        whole.plot(sizes, sketch_alone, "--", color=_INK, linewidth=1.4)
        whole.text(2**12.9, 24, "sketch\nwithout noise", color=_INK, fontweight="bold", ha="right")
        for (name, color), height in zip(COLORS.items(), (8e5, 85, 44), strict=True):
            noise = [found[k][name].added for k in sizes]
            added.plot(sizes, noise, color=color, linewidth=1.8)
            # No error is larger than all events.
            whole.plot(sizes, np.minimum(np.add(sketch_alone, noise), EVENTS), color=color, linewidth=1.8)
            told = f"{name}: {found[1024][name].added:,.0f}"
            added.text(1.03, height, told, color=color, fontweight="bold", transform=added.get_yaxis_transform())
        added.text(1.03, 1.6e6, "at k = 1024", color=_SOFT, transform=added.get_yaxis_transform())
        _add_measured(whole)
        _finish(whole, "for all keys at once, at most (dots: one run)", (20, 1.2e6))
        _finish(added, "what privacy adds to the error of the sketch", (20, 1.2e6))
        title = f"Error of a released sketch of {EVENTS:,} events, at equal privacy (epsilon = 1, delta = 1e-8)"
        figure.text(0.03, 0.93, title, fontsize=11, fontweight="bold")
        figure.savefig(path)


def _add_measured(axes: Axes) -> None:
    keys = stream()
    truth = np.bincount(keys, minlength=KEYS)
    for power in MEASURED:
        sketch = MisraGries(k=2**power)
        sketch.update(keys)
        for name, way in ways(2**power).items():
            noise = KeyedNoise(Secret(bytes(32))).at("picture", name, power)
            off = measured(way, sketch, truth, noise)
            axes.plot(
                2**power, off, "o", color=COLORS[name], markersize=4.5, markeredgecolor="white", zorder=3, clip_on=False
            )


def _finish(axes: Axes, title: str, limits: tuple[float, float]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_xlim(2 ** POWERS[0], 2 ** POWERS[-1])
    axes.set_ylim(*limits)
    axes.set_xlabel("counters of the sketch: k")
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#ececec", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.set_title(title, loc="left", fontsize=9.5, color=_SOFT, pad=8)


if __name__ == "__main__":
    draw(
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent.parent / "images" / "error_by_sketch_size.png"
    )
