"""One-shot selections from a limited domain: cards 3.1 to 3.6, vectors, checks and bad input."""

import math
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from tests.audit.enumeration import race_law
from tests.audit.sampler_tables import ideal_probability
from tests.selection.label_noise import THRESHOLD, Draws, LabelNoise

import pianissimo.selection
from pianissimo.errors import BudgetError, InputError, ParameterError
from pianissimo.ledger import Charge, Ledger
from pianissimo.loss.losses import Booked, BoundedRange
from pianissimo.noise.exact_laws import enlarged, sum_tail, tail
from pianissimo.noise.keyed import DRAW_DISTANCE, Keys
from pianissimo.selection import (
    Answer,
    FixedThresholdLaplace,
    LimitedDomain,
    LimitedLaplace,
    OptimalThreshold,
    PayWhatYouGet,
    Peeling,
    StrictDomain,
    limited_domain,
    race_distance,
)
from pianissimo.selection.race import Counted
from pianissimo.selection.thresholds import (
    GRID,
    laplace_difference_offset,
    laplace_offset,
    race_offset,
)
from pianissimo.testing import NoNoise, SeededNoise

FALSE_ALARM_RATE = 1e-9
ONE, TENTH = Fraction(1), Fraction(1, 10)
CARD = {"a": 5, "b": 3, "c": 3, "d": 1}


def given_offset(mechanism: type, value: Fraction | int) -> Any:
    return patch.object(mechanism, "offset", new_callable=PropertyMock, return_value=value)


def on_grid(value: float) -> Fraction:
    return Fraction(math.ceil(value * GRID), GRID)


# 2.3: peeling


def test_peeling_gives_the_vector_of_the_card() -> None:
    """Card 2.3, labels only: {a: 2, b: 1, c: 0}, Gumbels .1, 1.3, .3 -> b, a, c."""
    noise = LabelNoise("abc", gumbels={("race", "a"): 0.1, ("race", "b"): 1.3, ("race", "c"): 0.3})
    counts = {"a": 2, "b": 1, "c": 0}
    for k in (1, 2, 3):
        assert Peeling(items=3, k=k, epsilon=ONE).answer(counts, noise).labels == ("b", "a", "c")[:k]


def is_plausible(found: int, runs: int, chance: float) -> bool:
    """Within the exact binomial tails. false_alarm_rate: 1e-9."""
    return bool(FALSE_ALARM_RATE / 2 < stats.binom.cdf(found, runs, chance) < 1 - FALSE_ALARM_RATE / 2)


def test_peeling_has_the_law_of_the_exponential_mechanism() -> None:
    """Card 2.3: P(a, then b) = .48633. false_alarm_rate: 1e-9; a twin 25 % off must fail (test_race: 10 %)."""
    runs, noise = 5000, SeededNoise(61)

    def found(epsilon: Fraction) -> int:
        mechanism = Peeling(items=3, k=2, epsilon=epsilon)
        counts = {"a": 2, "b": 1, "c": 0}
        return sum(mechanism.answer(counts, noise.at(run)).labels == ("a", "b") for run in range(runs))

    assert is_plausible(found(ONE), runs, 0.48633)
    assert not is_plausible(found(Fraction(5, 4)), runs, 0.48633)


def test_peeling_takes_the_whole_domain() -> None:
    mechanism = Peeling(items=3, k=2, epsilon=ONE)
    with pytest.raises(InputError, match="the 3 labels"):
        mechanism.answer({"a": 1}, NoNoise())
    with pytest.raises(ParameterError, match="k must be at most"):
        Peeling(items=1, k=2, epsilon=ONE)
    assert mechanism.loss == BoundedRange(steps=2, width=ONE, distance=race_distance(3, 2))
    assert mechanism.cost(Answer(("a", "b"), met_threshold=False)) == 2


# 3.1: limited domain


@pytest.mark.parametrize(("bot", "labels", "met"), [(0.3, ("a",), True), (0.1, ("a", "b"), False)])
def test_limited_domain_gives_the_vector_of_the_card(bot: float, labels: tuple[str, ...], met: bool) -> None:
    """The paper's offset: threshold at 4.302585; Gumbels a .2, b 1.5, c -.5; both answers cost 2."""
    mechanism = LimitedDomain(k=2, candidates=3, epsilon=ONE, delta=TENTH, max_keys_per_user=1)
    gumbels: Draws = {("race", "a"): 0.2, ("race", "b"): 1.5, ("race", "c"): -0.5, ("threshold", THRESHOLD): bot}
    with given_offset(LimitedDomain, on_grid(4.302585 - 1)):
        answer = mechanism.answer(CARD, LabelNoise("abcd", gumbels=gumbels))
    assert (answer.labels, answer.met_threshold, answer.counts) == (labels, met, None)
    assert mechanism.cost(answer) == 2


def test_our_offset_is_that_of_the_card_rounded_up() -> None:
    mechanism = LimitedDomain(k=2, candidates=3, epsilon=ONE, delta=TENTH, max_keys_per_user=1)
    assert 1 + mechanism.offset == pytest.approx(4.197225, abs=2 / GRID)
    assert mechanism.offset - 1 >= Fraction(math.log(9)) - Fraction(1, 10**12)
    # Without a bound, and with one above it, k_bar labels may be bad.
    for bound in (None, 3, 7):
        other = LimitedDomain(k=2, candidates=3, epsilon=ONE, delta=TENTH, max_keys_per_user=bound)
        assert other.offset == 1 + race_offset(3, TENTH, ONE)


@given(
    st.integers(1, 10**6),
    st.fractions(Fraction(1, 10**15), Fraction(9, 10)),
    st.fractions(Fraction(1, 1000), Fraction(20)),
)
def test_an_offset_of_the_race_is_the_least_on_its_grid(labels: int, delta: Fraction, epsilon: Fraction) -> None:
    offset = race_offset(labels, delta, epsilon)
    exact = math.log(labels * (1 - delta) / delta) / epsilon
    assert offset.denominator <= GRID
    assert exact - 1e-9 * (1 + abs(exact)) <= offset <= exact + 1 / GRID + 1e-9 * (1 + abs(exact))


def test_limited_domain_has_the_law_of_the_card() -> None:
    """Card 3.1's four chances with the paper's offset. false_alarm_rate: 4e-9; a twin 25 % off must fail."""
    runs, noise = 5000, SeededNoise(62)
    chances = {("a",): 0.56544, ("b",): 0.07652, ("c",): 0.07652, (): 0.28151}

    def found(epsilon: Fraction) -> dict[tuple[str, ...], int]:
        mechanism = LimitedDomain(k=1, candidates=3, epsilon=epsilon, delta=TENTH, max_keys_per_user=1)
        seen = dict.fromkeys(chances, 0)
        with given_offset(LimitedDomain, on_grid(1 + math.log(10))):
            for run in range(runs):
                seen[mechanism.answer(CARD, noise.at(run)).labels] += 1
        return seen

    assert all(is_plausible(number, runs, chances[labels]) for labels, number in found(ONE).items())
    assert not all(is_plausible(number, runs, chances[labels]) for labels, number in found(Fraction(5, 4)).items())


def test_limited_domain_for_two_has_the_law_of_peeling() -> None:
    """Whole answers, the threshold included. false_alarm_rate: 1e-9 for each of at most 13 answers."""
    runs, noise = 5000, SeededNoise(63)
    mechanism = LimitedDomain(k=2, candidates=3, epsilon=ONE, delta=Fraction(1, 4), max_keys_per_user=1)
    law = race_law((5, 3, 3, 1), k=2, candidates=3, epsilon=ONE, offset=float(mechanism.offset))
    seen: dict[tuple[int, ...], int] = dict.fromkeys(law, 0)
    for run in range(runs):
        answer = mechanism.answer(CARD, noise.at(run))
        seen[tuple("abcd".index(label) for label in answer.labels) + (-1,) * answer.met_threshold] += 1
    assert all(is_plausible(number, runs, law[answer]) for answer, number in seen.items())


def test_its_loss_is_that_of_the_card() -> None:
    mechanism = LimitedDomain(k=4, candidates=9, epsilon=Fraction(1, 2), delta=TENTH)
    loss = mechanism.loss
    assert (loss.width, loss.steps, loss.bad) == (Fraction(1, 2), 4, TENTH)
    assert loss.distance == race_distance(10, 4)
    assert loss.epsilon == 2
    assert loss.as_booked() == Booked(rho=Fraction(4, 32), bad=TENTH, distance=race_distance(10, 4))


def test_far_apart_counts_come_in_their_true_order() -> None:
    """False alarms: below e^-700."""
    counts = {f"key-{place}": 1000 - 100 * place for place in range(9)}
    found = pianissimo.selection.limited_domain(
        counts, k=3, candidates=5, epsilon=8, delta=1e-6, ledger="not accounted for"
    )
    assert found == ["key-0", "key-1", "key-2"]


def test_the_counts_after_k_bar_are_enough_and_their_order_is_of_no_account() -> None:
    counts = {f"key-{place:02}": 40 - place // 3 for place in range(40)}
    shuffled = dict(sorted(counts.items(), key=lambda item: hash(item[0])))
    cut = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0].encode()))[:11])
    mechanism = LimitedDomain(k=5, candidates=10, epsilon=Fraction(1, 4), delta=Fraction(1, 4), max_keys_per_user=1)
    for run in range(50):
        noise = SeededNoise(64).at(run)
        answers = {mechanism.answer(given_counts, noise) for given_counts in (counts, shuffled, cut)}
        assert len(answers) == 1


def test_equal_counts_rank_by_bytes_and_zeros_are_not_candidates() -> None:
    # In bytes "é" comes after "z"; by length, or by what a dictionary says, it would not.
    counts = {"z": 7, "é": 7, "b": 7, "nobody": 0}
    mechanism = LimitedDomain(
        k=1, candidates=2, epsilon=Fraction(1, 1000), delta=Fraction(999, 1000), max_keys_per_user=1
    )
    seen = {mechanism.answer(counts, SeededNoise(65).at(run)).labels for run in range(200)}
    assert seen <= {(), ("b",), ("z",)}
    everything = LimitedDomain(k=4, candidates=4, epsilon=Fraction(1, 1000), delta=Fraction(9999, 10**4))
    labels = {label for run in range(200) for label in everything.answer(counts, SeededNoise(66).at(run)).labels}
    assert labels == {"z", "é", "b"}


def test_nothing_gives_the_threshold_alone() -> None:
    mechanism = LimitedDomain(k=2, candidates=3, epsilon=ONE, delta=TENTH)
    answer = mechanism.answer({}, SeededNoise(1))
    assert (answer.labels, answer.met_threshold, mechanism.cost(answer)) == ((), True, 1)


@given(st.dictionaries(st.text(max_size=4), st.integers(0, 30), max_size=12), st.integers(1, 4), st.integers(0, 5))
def test_an_answer_is_consistent(counts: dict[str, int], k: int, more: int) -> None:
    try:
        [key.encode() for key in counts]
    except UnicodeEncodeError:
        return
    mechanism = LimitedDomain(k=k, candidates=k + more, epsilon=ONE, delta=TENTH)
    answer = mechanism.answer(counts, SeededNoise(67))
    assert set(answer.labels) <= {key for key, count in counts.items() if count > 0}
    assert len(set(answer.labels)) == len(answer.labels)
    assert answer.met_threshold == (len(answer.labels) < k)
    assert 1 <= mechanism.cost(answer) <= k


# Bad input


ASK: dict[str, Any] = {"k": 2, "candidates": 3, "epsilon": 1.0, "delta": 1e-6}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"k": 4}, "k must be at most candidates"),
        ({"k": 0}, "k must be a whole number"),
        ({"candidates": 0}, "candidates must be a whole number"),
        ({"candidates": 2.5}, "candidates must be a whole number"),
        ({"epsilon": 0.0}, "epsilon must be finite and positive"),
        ({"epsilon": math.nan}, "epsilon must be finite and positive"),
        ({"epsilon": 1e-12}, "epsilon must be from"),
        ({"delta": 0.0}, "delta must be finite and positive"),
        ({"delta": 1.0}, "delta must be above 0 and below 1"),
        ({"delta": math.nan}, "delta must be finite and positive"),
        ({"max_keys_per_user": 0}, "max_keys_per_user must be"),
        # Thresholds of which 64 bits do not hold the multiples.
        ({"epsilon": Fraction(1, 2**32), "delta": Fraction(1, 10**8000)}, "delta must keep the threshold"),
        ({"epsilon": Fraction(1, 2**32), "delta": 1 - Fraction(1, 10**8000)}, "delta must keep the threshold"),
    ],
)
def test_impossible_questions_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        limited_domain({"a": 3}, **{**ASK, **wrong}, ledger="not accounted for")


@pytest.mark.parametrize("delta", [Fraction(1, 10**300), 1 - Fraction(1, 10**300)])
def test_the_most_extreme_threshold_that_is_allowed_can_be_raced_for(delta: Fraction) -> None:
    ask = {**ASK, "epsilon": Fraction(1, 2**32), "delta": delta}
    for top in (1, 2**44 - 1):
        assert len(limited_domain({"a": top, "b": top}, **ask, ledger="not accounted for")) <= 2


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"a": -77}, "counts must be whole numbers"),
        ({"a": 7.7}, "counts must be whole numbers"),
        ({"a": math.nan}, "counts must be whole numbers"),
        ({"a": True}, "counts must be whole numbers"),
        ({"a": None}, "counts must be whole numbers"),
        ({"a": 2**44}, "counts must be whole numbers"),
        ({"a": 5, "b": -77}, "counts must be whole numbers"),
        ({"a": 5, "b": 2**44}, "counts must be whole numbers"),
        ({"a": 2**77}, "counts must be whole numbers"),
        ({None: 7}, "keys must not be null"),
        ({7: 7}, "keys must be texts"),
        ({"\ud800": 7}, "UTF-8"),
        ([("a", 7)], "counts must map"),
    ],
)
def test_what_cannot_be_counted_is_refused_without_telling(counts: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as refusal:
        limited_domain(counts, **ASK, ledger="not accounted for")
    assert "77" not in str(refusal.value)


def test_numpy_counts_are_counts() -> None:
    counts = {"a": np.int64(90), "b": np.uint32(70)}
    assert Counted.of(counts).counts.tolist() == [90, 70]  # type: ignore[arg-type]


def test_a_histogram_shows_nothing() -> None:
    assert "aspirin" not in repr(Counted.of({"aspirin": 77}))


@pytest.mark.parametrize(
    "make",
    [
        lambda **wrong: LimitedDomain(**{"k": 1, "candidates": 2, "epsilon": ONE, "delta": TENTH, **wrong}),
        lambda **wrong: StrictDomain(**{"k": 1, "candidates": 2, "epsilon": ONE, "delta": TENTH, **wrong}),
        lambda **wrong: LimitedLaplace(**{"k": 1, "candidates": 2, "epsilon": ONE, "delta": TENTH, **wrong}),
        lambda **wrong: FixedThresholdLaplace(**{"k": 1, "epsilon": ONE, "delta": TENTH, **wrong}),
        lambda **wrong: OptimalThreshold(**{"k": 2, "d_bar": 3, "epsilon": ONE, "delta": TENTH, **wrong}),
        lambda **wrong: PayWhatYouGet(**{"steps": 2, "calls": 3, "epsilon": ONE, "delta": TENTH, **wrong}),
    ],
)
def test_mechanisms_take_exact_parameters_alone(make: Callable[..., object]) -> None:
    make()
    for wrong in ({"epsilon": 1.0}, {"delta": 0.1}, {"delta": ONE}, {"epsilon": -ONE}):
        with pytest.raises(ParameterError, match=r"epsilon|delta"):
            make(**wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: StrictDomain(k=3, candidates=2, epsilon=ONE, delta=TENTH), "k must be at most candidates"),
        (lambda: LimitedLaplace(k=3, candidates=2, epsilon=ONE, delta=TENTH), "k must be at most candidates"),
        (lambda: OptimalThreshold(k=1, d_bar=5, epsilon=ONE, delta=TENTH), "k must be"),
        (lambda: OptimalThreshold(k=5, d_bar=5, epsilon=ONE, delta=TENTH), "k must be below d_bar"),
        (lambda: FixedThresholdLaplace(k=1, epsilon=ONE, delta=Fraction(2, 3)), "at most 1/2"),
    ],
)
def test_impossible_mechanisms_are_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ParameterError, match=message):
        make()


# 3.2: pay what you get


def test_an_allowance_books_its_bad_mass_exactly() -> None:
    loss = PayWhatYouGet(epsilon=Fraction(1, 2), delta=Fraction(1, 50), steps=3, calls=3).loss
    assert loss.bad == 1 - Fraction(49, 50) ** 3
    assert (loss.steps, loss.epsilon, loss.as_booked().rho) == (3, Fraction(3, 2), Fraction(3, 32))
    assert loss.distance < Fraction(1, 2**90)


def test_a_ledger_gives_the_vector_of_the_card(tmp_path: Path) -> None:
    """k* = 4, l* = 3: [a, b, BOT] leaves 1; the next k is cut to 1; [BOT] leaves 0; stop after 2 calls."""
    with Ledger.open(tmp_path / "b.db", key=None, budget=Charge(steps=4, calls=3)) as ledger:

        def ask(k: int, answer: Answer) -> None:
            charge, key = Charge(steps=k, calls=1), str(ledger.spent.calls)
            running = ledger.reserve(charge, hides="user", question="top", who="ann", idempotency_key=key)
            ledger.settle(running, Charge(steps=answer.length, calls=1))

        ask(4, Answer(("a", "b"), met_threshold=True))
        assert ledger.left == Charge(steps=1, calls=2)
        with pytest.raises(BudgetError, match="1 steps, got 4"):
            ask(4, Answer((), met_threshold=True))
        ask(1, Answer((), met_threshold=True))
        assert ledger.left == Charge(steps=0, calls=1)
        with pytest.raises(BudgetError, match="0 steps, got 1"):
            ask(1, Answer((), met_threshold=True))


# 3.3: Laplace noise


@pytest.mark.parametrize(("bot", "labels", "counts"), [(100, ("a", "b"), (5000, 4500)), (300, ("a",), (5000,))])
def test_laplace_gives_the_vector_of_the_card(bot: int, labels: tuple[str, ...], counts: tuple[int, ...]) -> None:
    """{a: 5, b: 3, c: 1}, k = k_bar = 2, threshold at 4.302585; Laplaces 0, 1.5 and .1 or .3: in thousandths."""
    mechanism = LimitedLaplace(k=2, candidates=2, epsilon=Fraction(1, 1000), delta=TENTH)
    noise = LabelNoise("abc", laplaces={("b",): 1500, ("threshold", THRESHOLD): bot})
    with given_offset(LimitedLaplace, math.ceil(1000 * (4.302585 - 1))):
        answer = mechanism.answer({"a": 5000, "b": 3000, "c": 1000}, noise)
    assert (answer.labels, answer.counts, answer.met_threshold) == (labels, counts, len(labels) < 2)


def laplace_tail(scale: Fraction, least: int) -> Decimal:
    return enlarged(lambda a: tail(a, least), 1 / scale)


def laplace_difference_tail(scale: Fraction, least: int) -> Decimal:
    return enlarged(lambda a: sum_tail(a, least), 1 / scale)


def test_laplace_passes_a_lone_label_as_often_as_the_card_says() -> None:
    """Card 3.3: continuous noise and ln(Delta / delta) give .10756; on a fine lattice the exact sum is the same."""
    fine = laplace_difference_tail(Fraction(10**5), math.ceil(10**5 * math.log(10)))
    assert float(fine) == pytest.approx(0.10756, abs=1e-5)
    assert float(fine) == pytest.approx((2 + math.log(10)) / 40, abs=1e-5)


def lattice_tails(name: str, parameter: Fraction, least: int) -> tuple[float, float]:
    """P[Z >= least] and P[Z - Z' >= least] by plain sums."""
    reach = 400
    law = np.array([float(ideal_probability(name, parameter, abs(x))) for x in range(-reach, reach + 1)])
    return float(law[reach + least :].sum()), float(np.convolve(law, law)[2 * reach + least :].sum())


@pytest.mark.parametrize("scale", [Fraction(1, 3), Fraction(1), Fraction(7, 2)])
@pytest.mark.parametrize("least", [1, 2, 5, 11])
def test_laplace_tails_are_the_sums(scale: Fraction, least: int) -> None:
    single, difference = lattice_tails("laplace", scale, least)
    assert float(laplace_tail(scale, least)) == pytest.approx(single, rel=1e-9)
    assert float(laplace_difference_tail(scale, least)) == pytest.approx(difference, rel=1e-9)


@given(st.fractions(Fraction(1, 8), Fraction(300)), st.fractions(Fraction(1, 10**12), Fraction(1, 2)))
def test_offsets_are_the_least_that_keep_their_delta(parameter: Fraction, delta: Fraction) -> None:
    tails: list[tuple[int, Callable[[int], Decimal | float]]] = [
        (laplace_offset(parameter, delta), lambda least: laplace_tail(parameter, least)),
        (laplace_difference_offset(parameter, delta), lambda least: laplace_difference_tail(parameter, least)),
    ]
    for offset, chance in tails:
        assert Fraction(chance(offset + 1)) <= delta
        if offset:
            assert Fraction(chance(offset)) > delta


def test_laplace_offset_and_loss() -> None:
    mechanism = LimitedLaplace(k=3, candidates=5, epsilon=ONE, delta=Fraction(1, 100), max_keys_per_user=2)
    assert mechanism.offset == 1 + laplace_difference_offset(ONE, Fraction(1, 200))
    loss = mechanism.loss
    assert (mechanism.moved, loss.bad) == (2, Fraction(1, 100))
    assert (mechanism.pure_epsilon, loss.rho, loss.distance) == (Fraction(2), Fraction(1), 6 * DRAW_DISTANCE)
    assert mechanism.cost(Answer((), met_threshold=True)) == 2
    # More keys than counts that could move are no more of a loss.
    assert LimitedLaplace(k=1, candidates=1, epsilon=ONE, delta=TENTH, max_keys_per_user=9).moved == 2


def test_laplace_cuts_to_k_and_goes_by_noisy_counts() -> None:
    mechanism = LimitedLaplace(k=2, candidates=4, epsilon=ONE, delta=TENTH)
    noise = LabelNoise("abcd", laplaces={("a",): 5, ("b",): 15})
    answer = mechanism.answer({"a": 90, "b": 80, "c": 70, "d": 60}, noise)
    assert (answer.labels, answer.counts, answer.met_threshold) == (("a", "b"), (95, 95), False)


# 3.4: strict domain


def test_a_strict_domain_leaves_out_what_equals_the_next_count() -> None:
    """Card 3.4: {a: 5, b: 3, c: 1, d: 1}, k_bar = 3 -> {a, b}; with ranks {a, b, c}."""
    counts = {"a": 5, "b": 3, "c": 1, "d": 1}
    strict = StrictDomain(k=3, candidates=3, epsilon=Fraction(1, 1000), delta=Fraction(9999, 10**4))
    ranked = LimitedDomain(k=3, candidates=3, epsilon=Fraction(1, 1000), delta=Fraction(9999, 10**4))

    def seen(mechanism: StrictDomain | LimitedDomain) -> set[str]:
        return {label for run in range(100) for label in mechanism.answer(counts, SeededNoise(68).at(run)).labels}

    assert seen(strict) == {"a", "b"}
    assert seen(ranked) == {"a", "b", "c"}


def test_a_strict_domain_of_lone_labels_passes_any_with_its_chance() -> None:
    """Card 3.4: k_bar items of count 1: P(any) = delta / (1 + delta) with the paper's offset, delta with ours."""
    for candidates, delta in ((1, 0.05), (3, 0.01)):
        counts = (1,) * candidates + (0,)
        paper = race_law(
            counts, k=1, candidates=candidates, epsilon=ONE, offset=1 + math.log(candidates / delta), strict=True
        )
        assert 1 - paper[-1,] == pytest.approx(delta / (1 + delta))
        ours = StrictDomain(k=1, candidates=candidates, epsilon=ONE, delta=Fraction(delta))
        law = race_law(counts, k=1, candidates=candidates, epsilon=ONE, offset=float(ours.offset), strict=True)
        assert delta * (1 - 1e-4) <= 1 - law[-1,] <= delta
        assert (ours.loss.bad, ours.loss.as_booked().rho) == (Fraction(delta), Fraction(1, 8))


# 3.5: fixed threshold


def test_a_fixed_threshold_gives_the_vector_of_the_card() -> None:
    """{a: 12, b: 9, c: 2, d: 1}, k = 2, threshold at 6.912023; Laplaces -6, -2 -> {b}: in thousandths."""
    counts = {"a": 12_000, "b": 9000, "c": 2000, "d": 1000}
    laplace = FixedThresholdLaplace(k=2, epsilon=Fraction(1, 1000), delta=Fraction(1, 100))
    with given_offset(FixedThresholdLaplace, math.ceil(1000 * (6.912023 - 2))):
        answer = laplace.answer(counts, LabelNoise("abcd", laplaces={("a",): -6000, ("b",): -2000}))
    assert (answer.labels, answer.counts, answer.met_threshold) == (("b",), (5000,), True)


def test_a_fixed_threshold_passes_a_lone_label_with_its_chance() -> None:
    """Card 3.5: {a: 1}, k = 1, delta = .05: exactly .05 on a fine lattice."""
    scale, delta = Fraction(10**4), Fraction(1, 20)
    assert float(laplace_tail(scale, 1 + laplace_offset(scale, delta))) == pytest.approx(0.05, abs=1e-5)
    assert laplace_offset(scale, delta) == pytest.approx(10**4 * math.log(10), abs=2)


def test_fixed_thresholds_book_every_gap() -> None:
    laplace = FixedThresholdLaplace(k=3, epsilon=Fraction(1, 2), delta=TENTH)
    assert laplace.loss.bad == 1 - Fraction(9, 10) ** 3
    assert (laplace.pure_epsilon, laplace.loss.rho) == (Fraction(3, 2), Fraction(3, 8))
    assert laplace.loss.distance == 3 * DRAW_DISTANCE
    nothing = Answer((), met_threshold=True)
    assert laplace.cost(nothing) == 3


def test_a_fixed_threshold_looks_at_counts_above_the_next_alone() -> None:
    noise = LabelNoise("abcd", laplaces={(label,): 1000 for label in "abcd"})
    mechanism = FixedThresholdLaplace(k=2, epsilon=ONE, delta=TENTH)
    assert mechanism.answer({"a": 5, "b": 2, "c": 2}, noise).labels == ("a",)
    assert mechanism.answer({"a": 5, "b": 3, "c": 2, "d": 1}, noise).labels == ("a", "b")
    # A gap of one is looked at, below the threshold as it is.
    assert mechanism.answer({"a": 1}, noise).labels == ("a",)


# 3.6: optimal threshold


class RankNoise(LabelNoise):
    """Gumbel values of the candidates for k_bar by their number."""

    ranks: Mapping[int, float] = {2: 0.0, 3: 0.7, 4: 2.0}

    def _values(self, draws: Any, keys: Keys) -> list[float]:
        if self.path == ("k_bar",):
            return [self.ranks[int(key)] for key in keys]
        return super()._values(draws, keys)


def test_an_optimal_threshold_gives_the_vector_of_the_card() -> None:
    """9, 8, 3, 2, 1, k = 2, d_bar = 5: scores 6.995732, 6.401197, 5.688879; Gumbels 0, .7, 2 -> k_bar = 4."""
    mechanism = OptimalThreshold(k=2, d_bar=5, epsilon=ONE, delta=TENTH)
    counts = {"a": 9, "b": 8, "c": 3, "d": 2, "e": 1}
    scores = [following + float(offset) for following, offset in zip((3, 2, 1), mechanism.offsets, strict=True)]
    # Ours have (1 - delta) / delta for 1 / delta.
    assert [score - math.log(0.9) for score in scores] == pytest.approx([6.995732, 6.401197, 5.688879], abs=2 / GRID)
    answer = mechanism.answer(counts, RankNoise("abcde"))
    assert (answer.candidates, answer.labels, answer.met_threshold) == (4, ("a",), False)
    assert mechanism.cost(answer) == 2
    # The wrong sign, least score + Gumbel, would give 2: 6.99, 7.10, 7.69.
    assert int(np.argmin(np.array(scores) + np.array([0, 0.7, 2]))) == 0


def test_k_bar_has_the_law_of_the_card() -> None:
    """Card 3.6: .15369, .27851, .56780. false_alarm_rate: 3e-9; a twin 25 % off must fail."""
    runs, noise = 20_000, SeededNoise(69)
    counts, chances = np.array([9, 8, 3, 2, 1]), [0.15369, 0.27851, 0.56780]

    def plausible(epsilon: Fraction) -> bool:
        mechanism = OptimalThreshold(k=2, d_bar=5, epsilon=epsilon, delta=TENTH)
        seen = np.bincount([mechanism.choose(counts, noise.at(run)) for run in range(runs)], minlength=3)
        return all(is_plausible(int(found), runs, chance) for found, chance in zip(seen, chances, strict=True))

    assert plausible(ONE)
    assert not plausible(Fraction(5, 4))


def test_an_optimal_threshold_counts_missing_labels_as_zeros() -> None:
    mechanism = OptimalThreshold(k=2, d_bar=6, epsilon=Fraction(1, 100), delta=TENTH)
    seen = {mechanism.answer({"a": 1}, SeededNoise(70).at(run)).candidates for run in range(200)}
    assert seen == {2, 3, 4, 5}
    loss = mechanism.loss
    assert (loss.steps, loss.bad) == (2, TENTH)
    assert loss.distance == race_distance(4, 1) + race_distance(6, 1)
