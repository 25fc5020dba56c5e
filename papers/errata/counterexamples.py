"""Counterexamples to what the five papers print, each in closed form or by an exact sum.

Every function gives the number that the report tells (docs/report). None of them calls the mechanisms of this
project: what is computed is what the printed algorithm does, so that whoever doubts a correction can follow it here.

DR: Durfee and Rogers 2019. CR: Cardoso and Rogers 2022. LT: Lebeda and Tetek 2023. KMS: Kaplan, Mansour and Stemmer
2020. DLY: Dong, Luo and Yi 2023.
"""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

Sketch = dict[int, int]


def laplace_difference_tail(scaled: float) -> float:
    """P[Z - Z' > y] of two independent Laplace variables of scale b, at y = scaled * b.

    >>> laplace_difference_tail(0.0)
    0.5
    """
    tail = math.exp(-abs(scaled)) * (2 + abs(scaled)) / 4
    return tail if scaled >= 0 else 1 - tail


def laplace_offset_as_printed(epsilon: float, bound: int = 1) -> float:
    """DR Algorithm 4: one label of count 1, which the neighbor lacks, passes a threshold of 1 + ln(Delta / epsilon).

    The neighbor can never show it, so this chance is the exact delta at every epsilon.

    >>> round(laplace_offset_as_printed(1.0), 3), round(laplace_offset_as_printed(2.0), 3)
    (0.5, 0.788)
    """
    return laplace_difference_tail(epsilon * math.log(bound / epsilon))


def fixed_domain_loss(epsilon: float, delta: float, gap: float = 5.0) -> float:
    """DR Lemma 6.2: the loss, in units of epsilon, of one event (Delta = 1) over a fixed domain of three labels.

    The domain has two labels `gap` below a third one, u. One more event of u moves u and, since u passes the first
    label outside, the threshold too. The outcome is that both low labels come before either. Claimed is at most one.

    >>> round(fixed_domain_loss(1.0, 0.1), 2)
    1.84
    """
    offset = 1 + math.log(1 / delta) / epsilon
    before, after = (_both_low_ones_first(epsilon, each, each + offset) for each in (gap - 1, gap))
    return math.log(before / after) / epsilon


def _both_low_ones_first(epsilon: float, label: float, threshold: float) -> float:
    """That two labels of score 0 come before one of score `label` and a threshold, with Laplace noise on all."""

    def density(level: float) -> float:
        highest = _laplace_density(epsilon, level - label) * _laplace_below(epsilon, level - threshold)
        highest += _laplace_below(epsilon, level - label) * _laplace_density(epsilon, level - threshold)
        return highest * _laplace_below(epsilon, -level) ** 2

    return _integral(density, -60 / epsilon, 60 / epsilon)


def _laplace_density(epsilon: float, value: float) -> float:
    return epsilon * math.exp(-epsilon * abs(value)) / 2


def _laplace_below(epsilon: float, value: float) -> float:
    tail = math.exp(-epsilon * abs(value)) / 2
    return 1 - tail if value >= 0 else tail


def laplace_claim(epsilon: float, delta: float) -> tuple[float, float]:
    """DR Lemma 6.1, Delta = 1: the delta that is claimed of the mended Algorithm 4, and the exact bad mass.

    >>> [f"{each:.2e}" for each in laplace_claim(1.0, 1e-3)]
    ['9.21e-03', '2.23e-03']
    """
    claimed = (math.exp(epsilon) + 1) * delta / 4 * (3 + math.log(1 / delta))
    return claimed, laplace_difference_tail(math.log(1 / delta))


def fixed_threshold_as_printed(epsilon: float, delta: float) -> float:
    """DR Algorithm 8, k = 1: only counts above the threshold itself are looked at, so one event decides alone.

    The least whole count above the threshold against one less, which is never shown.

    >>> round(fixed_threshold_as_printed(1.0, 0.01), 2)
    0.54
    """
    threshold = 1 + math.log(1 / (2 * delta)) / epsilon
    least = math.floor(threshold) + 1
    return 1 - math.exp(-epsilon * (least - threshold)) / 2


def wrong_sign_of_the_race(candidates: int, epsilon: float, gap: float = 12.0) -> float:
    """DR Algorithm 6: the loss, in units of epsilon, of choosing the least of score + Gumbel(1 / epsilon).

    One candidate is `gap` above the others, and an event moves all others by one. With the sign reversed the chance
    that it comes first falls as the product of all other tails, so that the losses of all others add up.

    >>> round(wrong_sign_of_the_race(5, 1.0), 2)
    4.0
    """
    before = _chance_of_least(candidates, epsilon, gap)
    after = _chance_of_least(candidates, epsilon, gap - 1)
    return math.log(after / before) / epsilon


def _chance_of_least(candidates: int, epsilon: float, gap: float) -> float:
    """That one candidate `gap` above all others has the least score + Gumbel noise, by Simpson's rule."""

    def density(noise: float) -> float:
        scaled = -epsilon * noise
        others = -math.expm1(-math.exp(-epsilon * (noise + gap)))
        return epsilon * math.exp(scaled - math.exp(scaled)) * others ** (candidates - 1)

    return _integral(density, -8 / epsilon, 60 / epsilon)


def _integral(density: Callable[[float], float], low: float, high: float, pieces: int = 20_000) -> float:
    step = (high - low) / pieces
    inner = sum((4 if number % 2 else 2) * density(low + number * step) for number in range(1, pieces))
    return (density(low) + inner + density(high)) * step / 3


def strict_domain_as_printed(candidates: int, delta: float) -> float:
    """DR Algorithm 5 with the offset ln(Delta / delta) of Algorithm 1, Delta = 1: the exact bad mass over delta.

    One event raises the first count outside by one and expels all candidates of that count.

    >>> round(strict_domain_as_printed(3, 1e-3), 2)
    2.99
    """
    return candidates / (1 + candidates * delta)


def conditioned_constants(epsilon: float = 1.0, delta: float = 0.01) -> tuple[float, float]:
    """DR Lemma 5.6: the least and largest of what the lemma has as one constant of at least 1 - delta.

    k = kbar = 2, counts (0, 0, 0, 1) against none. The domain holds the label of count 1, which is the bad one, and
    one of count 0; their weights are e^epsilon and 1, that of the threshold is e^epsilon / delta. For good outcomes the
    lemma compares the chance beside the bad label with that without it: here a stop, and the good label, then a stop.

    >>> [round(each, 5) for each in conditioned_constants()]
    [0.98033, 0.99013]
    """
    bad, stop, good = math.exp(epsilon), math.exp(epsilon) / delta, 1.0
    at_once = (good + stop) / (good + stop + bad)
    after_one = at_once * stop / (bad + stop)
    return after_one, at_once


def unknown_top_as_printed(candidates: int, delta: float) -> float:
    """CR Theorem 3, case 4, k = 1: kbar labels of count 1 that one event brings; the claim is 2 delta.

    At the offset (tau / 2) ln(1 / delta) that is needed. The printed one is twice that and hides it.

    >>> round(1e3 * unknown_top_as_printed(5, 1e-3), 2)
    4.98
    """
    return candidates * delta / (1 + candidates * delta)


def redrawn_noise(horizon: int, base: int) -> float:
    """CR Algorithm 7: how many times the claimed rho is lost where noise is drawn anew in each round.

    At tick t the noise has S(t) cells of variance L tau^2, S the digit sum: each round is one more look.

    >>> round(redrawn_noise(1000, 2), 1), round(redrawn_noise(1000, 4), 1)
    (23.1, 31.6)
    """
    return float(sum(Fraction(1, _digit_sum(tick, base)) for tick in range(1, horizon + 1)) / _digits(horizon, base))


def floating_digits(horizon: int, base: int) -> tuple[int, int]:
    """CR Algorithm 1: the number of digits by a floating-point logarithm, and by division.

    >>> floating_digits(243, 3)
    (5, 6)
    """
    return math.floor(math.log(horizon) / math.log(base)) + 1, _digits(horizon, base)


def shown_count_error(
    *, printed: bool, base: int = 3, levels: int = 5, above: float = 1.0, within: float = 3.0
) -> float:
    """CR Lemma 7.6: the chance that a shown count is off by `within` tau, c = `above`, (r - 1) L cells used.

    The statement has the deviation sqrt((r - 1) L) tau; each cell has variance L tau^2, so it is L sqrt(r - 1) tau.

    >>> round(shown_count_error(printed=True), 3), round(shown_count_error(printed=False), 3)
    (0.275, 0.604)
    """
    deviation = math.sqrt((base - 1) * levels) if printed else levels * math.sqrt(base - 1)
    return _normal(-within / deviation) / _normal(above / deviation)


def _digits(number: int, base: int) -> int:
    digits = 0
    while number:
        number //= base
        digits += 1
    return digits


def _digit_sum(number: int, base: int) -> int:
    total = 0
    while number:
        number, digit = divmod(number, base)
        total += digit
    return total


def budget_series(first: int, terms: int = 200_000) -> float:
    """DLY appendix C: the sum of 3 / (i + 3)^2 over i >= first, which must be at most one.

    >>> round(budget_series(1), 3), round(budget_series(0), 3)
    (0.851, 1.185)
    """
    return sum(3 / (index + 3) ** 2 for index in range(first, terms)) + 3 / (terms + 2.5)


def printed_series(theta: float = 1.0, terms: int = 200_000) -> float:
    """DLY Algorithm 4: the sum of theta / (i + 1)^(1 + theta) over i >= 1, which is said to use up the budget.

    >>> round(printed_series(), 3)
    0.645
    """
    told: float = sum(theta / (index + 1) ** (1 + theta) for index in range(1, terms))
    return told + math.pow(terms + 0.5, -theta)


def kept_after_removal(times: Sequence[int], cap: int, removed: int) -> int:
    """DLY section III-A: how many kept units change if the first `removed` of a user's events go; the claim is `cap`.

    >>> kept_after_removal((1, 2, 4, 8, 16, 32, 64, 128), 4, 4)
    8
    """
    return len(set(times[:cap]) ^ set(times[removed : removed + cap]))


def two_streams(epsilon: float = 1.0) -> float:
    """DLY section VI: the noise of insertions minus deletions at epsilon / 2 each, over one signed stream's.

    >>> round(two_streams(), 2)
    2.83
    """
    one = math.sqrt(2) / epsilon
    return math.sqrt(2) * math.sqrt(2) / (epsilon / 2) / one


def half_to_even() -> Fraction:
    """The chance that a release at half of a Haar plan's horizon has the parity of the true count.

    The noise is half of a sum of two whole numbers: a half-integer half of the time, which is rounded to an even
    number; of the others half are even. Here for noise whose parities are fair; it must be one half.

    >>> half_to_even()
    Fraction(3, 4)
    """
    parities = [Fraction(total, 2) for total in range(4)]
    return Fraction(sum(round(noise) % 2 == 0 for noise in parities), len(parities))


def continuous_formula(variance: float = 1.0, epsilon: float = 5.33) -> float:
    """The exact delta of a discrete Gaussian that moves by one, over that of the formula for continuous noise.

    >>> round(continuous_formula(), 1)
    2.1
    """
    weights = {place: math.exp(-(place**2) / (2 * variance)) for place in range(-60, 61)}
    mass = sum(weights.values())
    exact = sum(
        max(0.0, weight - math.exp(epsilon) * weights.get(place - 1, 0.0)) / mass for place, weight in weights.items()
    )
    shift = 1 / math.sqrt(variance)
    return exact / (_normal(shift / 2 - epsilon / shift) - math.exp(epsilon) * _normal(-shift / 2 - epsilon / shift))


def _normal(value: float) -> float:
    return math.erfc(-value / math.sqrt(2)) / 2


def sketched(stream: Sequence[int], k: int, *, oldest: bool = False) -> Sketch:
    """LT Algorithm 1: the Misra-Gries sketch; with `oldest` it evicts by age and not by the order of keys.

    >>> sketched([5, 3, 7, 3, 9, 1, 7, 2, 2, 8, 4], 3)
    {2: 1, 8: 1, 4: 1}
    """
    counts: Sketch = {}
    for key in stream:
        zeros = [stored for stored, count in counts.items() if count == 0]
        if key in counts:
            counts[key] += 1
        elif len(counts) < k:
            counts[key] = 1
        elif zeros:
            del counts[zeros[0] if oldest else min(zeros)]
            counts[key] = 1
        else:
            counts = {stored: count - 1 for stored, count in counts.items()}
    return counts


def private_keys(*, oldest: bool) -> int:
    """How many keys of one sketch the neighbor's lacks, for the card's stream with and without its second element.

    >>> private_keys(oldest=False), private_keys(oldest=True)
    (2, 3)
    """
    stream = [7, 5, 2, 3, 8, 4, 7, 3, 2, 6, 1, 5]
    whole, less = (sketched(each, 4, oldest=oldest) for each in (stream, stream[:1] + stream[2:]))
    return max(len(set(whole) - set(less)), len(set(less) - set(whole)))


def merged(sketches: Sequence[Sketch], k: int) -> Sketch:
    """Agarwal et al.: add up, take the (k + 1)-th largest off, one after the other in the order given.

    >>> merged([{1: 3, 2: 2}, {2: 1, 3: 4}], 2)
    {3: 1}
    """
    total: Sketch = {}
    for each in sketches:
        for key, count in each.items():
            total[key] = total.get(key, 0) + count
        level = sorted(total.values(), reverse=True)[k] if len(total) > k else 0
        total = {key: count - level for key, count in total.items() if count > level}
    return total


def merged_by_length() -> tuple[Sketch, Sketch]:
    """LT section 7: merged shortest stream first, one element less moves a count by five; it may move by one.

    >>> merged_by_length()
    ({0: 6}, {0: 1})
    """
    streams = [[0, 1, 2, 2, 2, 0], [0] * 6, [1, 1, 0, 1]]
    neighbor = [streams[0], streams[1][1:], streams[2]]
    return _shortest_first(streams), _shortest_first(neighbor)


def _shortest_first(streams: Sequence[Sequence[int]]) -> Sketch:
    built = (sketched(stream, 1) for stream in sorted(streams, key=len))
    return merged([{key: count for key, count in each.items() if count} for each in built], 1)


def printed_threshold(epsilon: float, delta: float) -> int:
    """LT section 5.2: the published threshold of a private Misra-Gries sketch with geometric noise.

    >>> printed_threshold(1.0, 1e-8)
    41
    """
    return 1 + 2 * math.ceil(math.log(6 * math.exp(epsilon) / ((math.exp(epsilon) + 1) * delta)) / epsilon)


def standard_thresholds(epsilon: float = 1.0, delta: float = 1e-8, k: int = 1024) -> tuple[float, int]:
    """LT section 5.1: the published threshold of a sketch without keys of count zero, and the least with whole noise.

    One sketch may hold k keys of count 1 and the other none. The chance that none of these passes is exact.

    >>> published, least = standard_thresholds()
    >>> round(published, 1), least
    (50.3, 29)
    """
    ratio = math.exp(-epsilon)

    def one_passes(threshold: int) -> float:
        spread = range(-200, 201)
        law = ((1 - ratio) / (1 + ratio) * ratio ** abs(noise) for noise in spread)
        return sum(p * -math.expm1(k * _log_below(ratio, threshold - 1 - h)) for p, h in zip(law, spread, strict=True))

    least = next(threshold for threshold in range(1, 1000) if one_passes(threshold) <= delta)
    return 1 + 2 * math.log((k + 1) / (2 * delta)) / epsilon, least


def _log_below(ratio: float, value: int) -> float:
    """ln P[Z < value] of discrete Laplace noise, P[Z = z] proportional to ratio^|z|."""
    if value >= 1:
        return math.log1p(-(ratio**value) / (1 + ratio))
    return (1 - value) * math.log(ratio) - math.log1p(ratio)


def largest_move_of_a_sketch(k: int = 2, keys: int = 3, length: int = 5) -> int:
    """LT Lemma 8 on all small streams: how many of the numbers u(.) and D one element more moves. It is one.

    >>> largest_move_of_a_sketch()
    1
    """
    most = 0
    for stream in product(range(keys), repeat=length):
        for place in range(length):
            most = max(most, _moved(stream, stream[:place] + stream[place + 1 :], k))
    return most


def _moved(stream: Sequence[int], less: Sequence[int], k: int) -> int:
    (whole, down), (part, lower) = (_with_decrements(each, k) for each in (stream, less))
    shared = set(whole) & set(part)
    lone = [whole[key] + down - lower for key in set(whole) - shared]
    one_sided = any(value > 1 for value in lone)
    return int(down != lower) + sum(whole[key] + down != part[key] + lower for key in shared) + int(one_sided)


def _with_decrements(stream: Sequence[int], k: int) -> tuple[Sketch, int]:
    counts = sketched(stream, k)
    return counts, (len(stream) - sum(counts.values())) // (k + 1)
