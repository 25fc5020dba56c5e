"""One-shot selections against all small neighboring histograms, exactly: no sampling, no confidence.

For every pair of histograms that one user tells apart (few labels, small counts) the chance of each answer is worked
out in closed form: peeling by its weights exp(epsilon count), thresholds with discrete noise by sums over the lattice.
The hockey-stick divergence sum max(0, P - e^epsilon Q), both ways, is the least delta at that epsilon, and an audit
reports its largest quotient by the delta that the mechanism claims: at most 1 where the promise holds.

Domains, offsets and claims are asked of the mechanisms themselves, so a change there is seen here. The mutants are the
algorithms of Durfee and Rogers 2019 as they are printed, or as they are easily got wrong; each must come out above 1.
"""

import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from itertools import combinations, product
from typing import Any

import numpy as np
from numpy.typing import NDArray
from tests.audit.sampler_tables import ideal_probability
from tests.loss.delta_at_orders import delta_from_rho

from pianissimo.selection import (
    FixedThresholdLaplace,
    LimitedDomain,
    LimitedLaplace,
    OptimalThreshold,
    PayWhatYouGet,
    Peeling,
    StrictDomain,
    UnkGauss,
)
from pianissimo.selection.known_and_unknown import largest, strictly_larger

Counts = tuple[int, ...]
Law = Mapping[Any, float | NDArray[np.float64]]
"""The chance of each answer; an array where the answer also holds noisy counts."""

THRESHOLD = -1
"""Stands for the threshold in an answer; labels are their places."""

ROOM = 1e-9
"""What floating-point sums may add to a quotient."""

_SMALLEST = 1e-15

# P[Z - Z' > 7] and P[Z > 4] at epsilon = 1, P[Z - Z' > 9] and P[Z > 5] at epsilon = 1/2, rounded up.
_MILLIONTHS = {Fraction(1): (1_122, 4_926), Fraction(1, 2): (14_079, 30_991)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A law to be held against a claim on all pairs of a size.

    >>> case = Case(name="always the same", law=lambda counts: {"": 1.0}, claims={1.0: 0.1}, labels=2, most=1)
    >>> worst_quotient(case)
    0.0
    """

    name: str
    law: Callable[[Counts], Law]
    """The chance of each answer about a histogram."""

    claims: Mapping[float, float]
    """The claimed delta at each epsilon."""

    labels: int
    """How many labels there are."""

    most: int
    """The largest count before the user comes."""

    bound: int | None = None
    """How many labels the user holds at most; None for all."""

    bases: tuple[Counts, ...] | None = None
    """The histograms before the user comes, where not all of them are tried."""

    is_mutant: bool = False
    """Whether it must be caught."""


def neighbors(
    labels: int, most: int, bound: int | None = None, bases: Iterable[Counts] | None = None
) -> Iterator[tuple[Counts, Counts]]:
    """All pairs of histograms that one user of at most `bound` labels tells apart, larger first.

    >>> list(neighbors(labels=1, most=1))
    [((1,), (0,)), ((2,), (1,))]
    """
    held = [user for user in product((0, 1), repeat=labels) if 0 < sum(user) <= (bound or labels)]
    for counts in product(range(most + 1), repeat=labels) if bases is None else bases:
        for user in held:
            yield tuple(count + one for count, one in zip(counts, user, strict=True)), counts


def hockey_stick(one: Law, other: Law, epsilon: float) -> float:
    """The sum of max(0, P - e^epsilon Q): the least delta at this epsilon in one direction.

    >>> hockey_stick({"a": 0.75, "b": 0.25}, {"a": 0.25, "b": 0.75}, 0.0)
    0.5
    """
    factor = math.exp(epsilon)
    return float(sum(np.maximum(0.0, chance - factor * other.get(answer, 0.0)).sum() for answer, chance in one.items()))


def worst_quotient(case: Case) -> float:
    """The largest exact delta over the claimed one, over all pairs, directions and epsilons.

    >>> worst_quotient(Case(name="the count", law=lambda counts: {counts: 1.0}, claims={1.0: 0.1}, labels=1, most=1))
    10.0
    """
    law = cache(case.law)
    worst = 0.0
    for larger, smaller in neighbors(case.labels, case.most, case.bound, case.bases):
        laws = law(larger), law(smaller)
        for epsilon, delta in case.claims.items():
            found = max(hockey_stick(*laws, epsilon), hockey_stick(*laws[::-1], epsilon))
            # What is below is rounding of the sums alone.
            worst = max(worst, 0.0 if found < _SMALLEST else found / delta if delta else math.inf)
    return worst


def peeled_law(counts: Mapping[int, float], k: int, epsilon: float) -> dict[tuple[int, ...], float]:
    """Draw with weight exp(epsilon count), remove, draw again, until k labels or the threshold: each answer's chance.

    >>> law = peeled_law({0: 2.0, 1: 1.0, 2: 0.0}, k=2, epsilon=1.0)
    >>> round(law[0, 1], 5)
    0.48633
    """
    if not counts:
        return {(): 1.0}
    highest = max(counts.values())
    weights = {item: math.exp(epsilon * (count - highest)) for item, count in counts.items()}
    law: dict[tuple[int, ...], float] = {}

    def walk(chosen: tuple[int, ...], chance: float, left: Sequence[int]) -> None:
        if len(chosen) == k or not left or chosen[-1:] == (THRESHOLD,):
            law[chosen] = chance
            return
        total = math.fsum(weights[item] for item in left)
        for item in left:
            walk((*chosen, item), chance * weights[item] / total, [other for other in left if other != item])

    walk((), 1.0, list(weights))
    return law


def race_law(
    counts: Counts, *, k: int, candidates: int, epsilon: Fraction, offset: float, strict: bool = False
) -> dict[tuple[int, ...], float]:
    """The law of a race to a threshold `offset` above the count of rank k_bar + 1.

    >>> law = race_law((5, 3, 3, 1), k=1, candidates=3, epsilon=Fraction(1), offset=1 + math.log(10))
    >>> [round(law[item,], 5) for item in (0, 1, 2, THRESHOLD)]
    [0.56544, 0.07652, 0.07652, 0.28151]
    """
    places, following = (strictly_larger if strict else largest)(np.array(counts), candidates)
    runners = {int(place): float(counts[place]) for place in places}
    return peeled_law({**runners, THRESHOLD: following + offset}, k, float(epsilon))


def k_bar_law(mechanism: OptimalThreshold, counts: Counts, *, plus: bool = False) -> list[float]:
    """The chance of each k_bar from k on; with `plus` that of the printed least score + Gumbel.

    >>> mechanism = OptimalThreshold(k=2, d_bar=5, epsilon=Fraction(1), delta=Fraction(1, 10))
    >>> [round(chance, 4) for chance in k_bar_law(mechanism, (9, 8, 3, 2, 1))]
    [0.1537, 0.2785, 0.5678]
    """
    ranked = sorted(counts, reverse=True) + [0] * mechanism.d_bar
    following = ranked[mechanism.k : mechanism.d_bar]
    scores = [count + float(offset) for count, offset in zip(following, mechanism.offsets, strict=True)]
    epsilon, lowest = float(mechanism.epsilon), min(scores)
    if not plus:
        weights = [math.exp(-epsilon * (score - lowest)) for score in scores]
        return [weight / math.fsum(weights) for weight in weights]
    # The least is the last of the race: inclusion and exclusion over those that it comes after.
    rates = [math.exp(epsilon * (score - lowest)) for score in scores]
    chances = []
    for place, rate in enumerate(rates):
        others = rates[:place] + rates[place + 1 :]
        subsets = (subset for size in range(len(others) + 1) for subset in combinations(others, size))
        chances.append(math.fsum((-1) ** len(subset) * rate / (rate + sum(subset)) for subset in subsets))
    return chances


def optimal_law(mechanism: OptimalThreshold, counts: Counts, *, plus: bool = False) -> dict[Hashable, float]:
    """The law of k_bar and the answer that goes with it.

    >>> mechanism = OptimalThreshold(k=2, d_bar=4, epsilon=Fraction(1), delta=Fraction(1, 10))
    >>> round(sum(optimal_law(mechanism, (3, 1, 1)).values()), 9)
    1.0
    """
    law: dict[Hashable, float] = {}
    for place, chance in enumerate(k_bar_law(mechanism, counts, plus=plus)):
        candidates = mechanism.k + place
        below = race_law(
            counts,
            k=mechanism.k - 1,
            candidates=candidates,
            epsilon=mechanism.epsilon,
            offset=float(mechanism.offsets[place]),
        )
        law.update({(candidates, answer): chance * part for answer, part in below.items()})
    return law


def repeated_law(
    single: Callable[[int], Mapping[tuple[int, ...], float]], *, steps: int, calls: int, pay_threshold: bool = True
) -> dict[tuple[tuple[int, ...], ...], float]:
    """The law of all answers to one question asked until steps or calls are used up; `single` takes the k that is left.

    >>> coin = lambda k: {(0,): 0.25, (THRESHOLD,): 0.75}
    >>> repeated_law(coin, steps=1, calls=2, pay_threshold=False)
    {((0,),): 0.25, ((-1,), (0,)): 0.1875, ((-1,), (-1,)): 0.5625}
    """
    law: dict[tuple[tuple[int, ...], ...], float] = {}

    def ask(answers: tuple[tuple[int, ...], ...], chance: float, left: int) -> None:
        if left <= 0 or len(answers) == calls:
            law[answers] = chance
            return
        for answer, part in single(left).items():
            cost = sum(1 for item in answer if pay_threshold or item != THRESHOLD)
            ask((*answers, answer), chance * part, left - cost)

    ask((), 1.0, steps)
    return law


@dataclass(frozen=True, slots=True)
class Lattice:
    """Discrete noise on the whole numbers from -reach to reach, beyond which its chance is below 10^-17.

    >>> Lattice.of("laplace", Fraction(1)).chances.sum().round(12)
    np.float64(1.0)
    """

    chances: NDArray[np.float64]
    reach: int

    @classmethod
    def of(cls, name: str, parameter: Fraction) -> "Lattice":
        """The noise of this name and parameter."""
        half = [float(ideal_probability(name, parameter, 0))]
        while half[-1] > 1e-18:
            half.append(float(ideal_probability(name, parameter, len(half))))
        return cls(np.array(half[:0:-1] + half), len(half) - 1)

    def at(self, values: NDArray[np.int64]) -> NDArray[np.float64]:
        """The chance of each value."""
        inside = np.abs(values) <= self.reach
        return np.where(inside, self.chances[np.clip(values + self.reach, 0, 2 * self.reach)], 0.0)


def noisy_threshold_law(
    counts: Counts, *, candidates: int, offset: int, noise: Lattice, window: NDArray[np.int64], ties_pass: bool = False
) -> dict[Hashable, NDArray[np.float64]]:
    """The law of labels and noisy counts above a noisy threshold: for each set of labels an array over their counts.

    >>> noise = Lattice.of("laplace", Fraction(1))
    >>> law = noisy_threshold_law((1,), candidates=1, offset=3, noise=noise, window=np.arange(-60, 70))
    >>> round(float(law[0,].sum()), 6)
    0.082333
    """
    places, following = largest(np.array(counts), candidates)
    level = noise.at(window - following - offset)
    densities = {int(place): noise.at(window - counts[place]) for place in sorted(places)}
    # The chance that a label with this law stays below a threshold at each place of the window.
    hidden = {item: np.cumsum(chances) - (chances if ties_pass else 0.0) for item, chances in densities.items()}
    law: dict[Hashable, NDArray[np.float64]] = {}
    for size in range(len(densities) + 1):
        for shown in combinations(densities, size):
            rest = math.prod((hidden[item] for item in densities if item not in shown), start=level)
            below = np.cumsum(rest) - (0.0 if ties_pass else rest)
            if not shown:
                law[shown] = np.array([rest.sum()])
                continue
            least = np.arange(len(window))
            chances = densities[shown[0]]
            for item in shown[1:]:
                least = np.minimum.outer(least, np.arange(len(window)))
                chances = np.multiply.outer(chances, densities[item])
            law[shown] = chances * below[least]
    return law


def fixed_threshold_law(
    counts: Counts, *, k: int, offset: int, noise: Lattice, window: NDArray[np.int64], guard: int | None = None
) -> dict[Hashable, NDArray[np.float64]]:
    """The law of labels and noisy gaps above a fixed threshold; `guard` is the printed test of the exact gap.

    >>> noise = Lattice.of("laplace", Fraction(1))
    >>> law = fixed_threshold_law((1,), k=1, offset=1, noise=noise, window=np.arange(-60, 70))
    >>> round(float(law[0,].sum()), 6)
    0.268941
    """
    places, following = strictly_larger(np.array(counts), k)
    gaps = {int(place): counts[place] - following for place in sorted(places)}
    if guard is not None:
        gaps = {item: gap for item, gap in gaps.items() if gap > guard}
    shown_part = {item: np.where(window > offset, noise.at(window - gap), 0.0) for item, gap in gaps.items()}
    hidden = {item: float(noise.at(window - gap)[window <= offset].sum()) for item, gap in gaps.items()}
    law: dict[Hashable, NDArray[np.float64]] = {}
    for size in range(len(gaps) + 1):
        for shown in combinations(gaps, size):
            chances = np.array(math.prod(hidden[item] for item in gaps if item not in shown))
            for item in shown:
                chances = np.multiply.outer(chances, shown_part[item])
            law[shown] = chances
    return law


def enumerated_cases() -> list[Case]:
    """The mechanisms and the mutants, with the sizes at which they are tried.

    >>> sum(case.is_mutant for case in enumerated_cases()) >= 6
    True
    """
    return [*_sound_races(), *_sound_thresholds(), *_repeated(), *_broken_races(), *_broken_thresholds()]


def _race_claim(mechanism: LimitedDomain | StrictDomain | OptimalThreshold | PayWhatYouGet) -> dict[float, float]:
    loss = mechanism.loss
    return {float(loss.epsilon): float(loss.bad)}


def _ledger_claim(rho: Fraction, bad: Fraction) -> dict[float, float]:
    """The delta of a ledger at several epsilons around where it falls."""
    spread = math.sqrt(2 * rho)
    epsilons = [float(rho) + factor * spread for factor in (0.0, 1.0, 2.0, 4.0)]
    return {epsilon: min(1.0, delta_from_rho(rho, epsilon) + float(bad)) for epsilon in epsilons}


def _limited(mechanism: LimitedDomain, *, offset: float | None = None) -> Callable[[Counts], Law]:
    height = float(mechanism.offset) if offset is None else offset

    def law(counts: Counts) -> Law:
        return race_law(
            counts, k=mechanism.k, candidates=mechanism.candidates, epsilon=mechanism.epsilon, offset=height
        )

    return law


def _strict(mechanism: StrictDomain, *, offset: float | None = None) -> Callable[[Counts], Law]:
    height = float(mechanism.offset) if offset is None else offset

    def law(counts: Counts) -> Law:
        return race_law(
            counts,
            k=mechanism.k,
            candidates=mechanism.candidates,
            epsilon=mechanism.epsilon,
            offset=height,
            strict=True,
        )

    return law


def _sound_races() -> Iterator[Case]:
    sizes = [
        (1, 1, None, Fraction(1), Fraction(1, 1000)),
        (2, 2, None, Fraction(1), Fraction(1, 100)),
        (2, 2, 1, Fraction(1, 2), Fraction(1, 1000)),
        (2, 3, 2, Fraction(2), Fraction(1, 1000)),
        (3, 4, 1, Fraction(1), Fraction(1, 20)),
        (3, 3, None, Fraction(1, 2), Fraction(1, 10**6)),
    ]
    for k, candidates, bound, epsilon, delta in sizes:
        what = f"k={k}, candidates={candidates}, epsilon={epsilon}, delta={delta}"
        limited = LimitedDomain(k=k, candidates=candidates, epsilon=epsilon, delta=delta, max_keys_per_user=bound)
        most = 2 if k == 3 else 3
        yield Case(
            name=f"limited domain, {what}, at most {bound} keys",
            law=_limited(limited),
            claims=_race_claim(limited),
            labels=4,
            most=most,
            bound=bound,
        )
        strict = StrictDomain(k=k, candidates=candidates, epsilon=epsilon, delta=delta)
        yield Case(
            name=f"strict domain, {what}, at most {bound} keys",
            law=_strict(strict),
            claims=_race_claim(strict),
            labels=4,
            most=most,
            bound=bound,
        )
    for k, d_bar, epsilon, delta in [(2, 4, Fraction(1, 2), Fraction(1, 10**4)), (3, 5, Fraction(1), Fraction(1, 100))]:
        optimal = OptimalThreshold(k=k, d_bar=d_bar, epsilon=epsilon, delta=delta)
        yield Case(
            name=f"optimal threshold, k={k}, d_bar={d_bar}, epsilon={epsilon}, delta={delta}",
            law=lambda counts, optimal=optimal: optimal_law(optimal, counts),  # type: ignore[misc]
            claims=_race_claim(optimal),
            labels=4,
            most=2,
        )
    yield _optimal_far(plus=False)
    peeling = Peeling(items=4, k=2, epsilon=Fraction(1))
    yield Case(
        name="peeling, k=2, epsilon=1",
        law=lambda counts: peeled_law({item: float(count) for item, count in enumerate(counts)}, peeling.k, 1.0),
        claims={
            float(peeling.loss.epsilon): 0.0,
            **_ledger_claim(peeling.loss.as_booked().rho, Fraction(0)),
        },
        labels=4,
        most=3,
    )


def _window(noise: Lattice, *, most: int, offset: int) -> NDArray[np.int64]:
    return np.arange(-noise.reach, noise.reach + most + offset + 2)


def _limited_laplace(
    mechanism: LimitedLaplace, *, labels: int, most: int, offset: int | None = None, flaw: str = ""
) -> Case:
    height = mechanism.offset if offset is None else offset
    noise = Lattice.of("laplace", 1 / mechanism.epsilon)
    window = _window(noise, most=most + 1, offset=height)
    what = _described(mechanism.epsilon, mechanism.delta)
    return Case(
        name=f"limited domain, Laplace, {what}, at most {mechanism.max_keys_per_user} keys{flaw}",
        law=lambda counts: noisy_threshold_law(
            counts, candidates=mechanism.candidates, offset=height, noise=noise, window=window
        ),
        claims={float(mechanism.pure_epsilon): float(mechanism.loss.bad)},
        labels=labels,
        most=most,
        bound=mechanism.max_keys_per_user,
        is_mutant=bool(flaw),
    )


def _fixed(
    mechanism: FixedThresholdLaplace,
    *,
    labels: int,
    most: int,
    lowered: int = 0,
    guard: int | None = None,
    flaw: str = "",
) -> Case:
    noise = Lattice.of("laplace", 1 / mechanism.epsilon)
    what = _described(mechanism.epsilon, mechanism.delta)
    height = mechanism.offset - lowered
    window = _window(noise, most=most + 1, offset=height)
    return Case(
        name=f"fixed threshold, Laplace, k={mechanism.k}, {what}{flaw}",
        law=lambda counts: fixed_threshold_law(
            counts, k=mechanism.k, offset=height, noise=noise, window=window, guard=guard
        ),
        claims={float(mechanism.pure_epsilon): float(mechanism.loss.bad)},
        labels=labels,
        most=most,
        is_mutant=bool(flaw),
    )


def _described(epsilon: Fraction, delta: Fraction) -> str:
    return f"epsilon={epsilon}, delta={delta}"


def _tight_laplaces() -> list[tuple[LimitedLaplace, FixedThresholdLaplace]]:
    """With deltas just above what the whole offset gives, so that its rounding leaves no room."""
    return [
        (
            LimitedLaplace(
                k=k, candidates=k, epsilon=epsilon, delta=keys * Fraction(difference, 10**6), max_keys_per_user=keys
            ),
            FixedThresholdLaplace(k=k, epsilon=epsilon, delta=Fraction(single, 10**6)),
        )
        for k, keys, epsilon, difference, single in (
            (1, 1, Fraction(1), *_MILLIONTHS[Fraction(1)]),
            (2, 1, Fraction(1), *_MILLIONTHS[Fraction(1)]),
            (2, 2, Fraction(1, 2), *_MILLIONTHS[Fraction(1, 2)]),
        )
    ]


def _sound_thresholds() -> Iterator[Case]:
    for limited, fixed in _tight_laplaces():
        labels, most = limited.k + 1, 6 if limited.k == 1 else 2
        yield _limited_laplace(limited, labels=labels, most=most)
        yield _fixed(fixed, labels=labels, most=most)
    gauss = UnkGauss(candidates=2, variance=Fraction(4), delta=Fraction(1, 1000), max_keys_per_event=2)
    noise = Lattice.of("gaussian", gauss.variance)
    window = _window(noise, most=3, offset=gauss.gap)
    yield Case(
        name="unknown labels with Gaussian noise, candidates=2, variance=4, delta=1/1000, at most 2 keys",
        law=lambda counts: noisy_threshold_law(
            counts, candidates=gauss.candidates, offset=gauss.gap, noise=noise, window=window, ties_pass=True
        ),
        claims=_ledger_claim(gauss.loss.rho, gauss.loss.bad),
        labels=3,
        most=2,
        bound=gauss.max_keys_per_event,
    )


def _ask_again(plan: PayWhatYouGet, *, most: int, pay_threshold: bool) -> Case:
    limited = LimitedDomain(k=1, candidates=1, epsilon=plan.epsilon, delta=plan.delta)
    offset = float(limited.offset)

    def law(counts: Counts) -> Law:
        single = race_law(counts, k=1, candidates=1, epsilon=plan.epsilon, offset=offset)
        return repeated_law(lambda _: single, steps=plan.steps, calls=plan.calls, pay_threshold=pay_threshold)

    return Case(
        name=f"{plan.calls} questions, {plan.steps} steps, {_described(plan.epsilon, plan.delta)}"
        + ("" if pay_threshold else ", threshold not charged"),
        law=law,
        claims=_race_claim(plan),
        labels=1,
        most=most,
        is_mutant=not pay_threshold,
    )


def _repeated() -> Iterator[Case]:
    sound = PayWhatYouGet(epsilon=Fraction(1, 2), delta=Fraction(1, 50), steps=3, calls=3)
    yield _ask_again(sound, most=20, pay_threshold=True)
    long = PayWhatYouGet(epsilon=Fraction(1, 2), delta=Fraction(1, 10**4), steps=1, calls=40)
    yield _ask_again(long, most=40, pay_threshold=True)
    yield _ask_again(long, most=40, pay_threshold=False)

    longer = LimitedDomain(k=2, candidates=2, epsilon=Fraction(1, 2), delta=Fraction(1, 50))

    def law(counts: Counts) -> Law:
        def single(left: int) -> dict[tuple[int, ...], float]:
            k = min(longer.k, left)
            return race_law(counts, k=k, candidates=2, epsilon=longer.epsilon, offset=float(longer.offset))

        return repeated_law(single, steps=sound.steps, calls=sound.calls)

    yield Case(name="3 questions for 2 labels, 3 steps", law=law, claims=_race_claim(sound), labels=3, most=2)


def _broken_races() -> Iterator[Case]:
    one, small = Fraction(1), Fraction(1, 1000)
    limited = LimitedDomain(k=1, candidates=2, epsilon=one, delta=small, max_keys_per_user=1)
    yield Case(
        name="limited domain without the + 1",
        law=_limited(limited, offset=float(limited.offset) - 1),
        claims=_race_claim(limited),
        labels=3,
        most=3,
        bound=1,
        is_mutant=True,
    )
    wide = LimitedDomain(k=1, candidates=2, epsilon=one, delta=small, max_keys_per_user=2)
    yield Case(
        name="limited domain of positive counts with m lowered to labels - k_bar",
        law=_limited(wide, offset=1 + math.log(1 * 999)),
        claims=_race_claim(wide),
        labels=3,
        most=2,
        bound=2,
        is_mutant=True,
    )
    strict = StrictDomain(k=1, candidates=3, epsilon=one, delta=small)
    yield Case(
        name="strict domain with m = min(max_keys_per_user, k_bar) (D17)",
        law=_strict(strict, offset=1 + math.log(1 * 999)),
        claims=_race_claim(strict),
        labels=4,
        most=2,
        bound=1,
        is_mutant=True,
    )
    yield _optimal_far(plus=True)


def _optimal_far(*, plus: bool) -> Case:
    """One label far ahead of six of count 0: with the wrong sign, the choice of a small k_bar costs five steps."""
    optimal = OptimalThreshold(k=2, d_bar=7, epsilon=Fraction(1, 2), delta=Fraction(1, 10**4))
    return Case(
        name="optimal threshold with score + Gumbel (D2)" if plus else "optimal threshold, one label far ahead",
        law=lambda counts: optimal_law(optimal, counts, plus=plus),
        claims=_race_claim(optimal),
        labels=7,
        most=22,
        bases=tuple((ahead, 0, 0, 0, 0, 0, 0) for ahead in (0, 10, 20, 22)),
        is_mutant=plus,
    )


def _broken_thresholds() -> Iterator[Case]:
    for epsilon in (Fraction(1), Fraction(2)):
        yield _limited_laplace(
            LimitedLaplace(k=1, candidates=1, epsilon=epsilon, delta=Fraction(1, 1000)),
            # ln(Delta / epsilon) is 0 or less; a whole number that is not below it.
            offset=1 + math.ceil(-math.log(epsilon)),
            labels=2,
            most=3,
            flaw=", printed offset (D1)",
        )
    for k, epsilon in ((1, Fraction(1)), (2, Fraction(2))):
        mechanism = FixedThresholdLaplace(k=k, epsilon=epsilon, delta=Fraction(1, 100))
        size, guard = mechanism.offset + 1, mechanism.offset
        yield _fixed(mechanism, labels=k + 1, most=size, guard=guard, flaw=", printed guard (D4)")
    for limited, fixed in _tight_laplaces():
        labels = limited.k + 1
        yield _limited_laplace(limited, labels=labels, most=2, offset=limited.offset - 1, flaw=", one too low")
        yield _fixed(fixed, labels=labels, most=2, lowered=1, flaw=", one too low")
