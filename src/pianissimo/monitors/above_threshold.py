"""The sparse vector technique: answer tests until one says TOP, and pay once for all of them.

Dwork and Roth, "The algorithmic foundations of differential privacy", 2014, Algorithm 1, in the form of Lyu, Su and Li,
"Understanding the sparse vector technique for differential privacy", VLDB 2017: noise of scale 1 / e1 on the threshold,
once, and of scale 2 / e2 on each query, or 1 / e2 if the queries are monotone, that is if one more user never lowers
one. The whole output is (e1 + e2)-DP, however long and however the queries adapt. Here e1 = e2 = epsilon / 2.

*Monotone.* From the stream without the user to that with her, shift the threshold noise by one: every BOTTOM stays as
likely, and the last query, not lower, loses e^e2 at most. The other way keep the threshold noise: every BOTTOM gets
likelier. Queries that may move either way need twice the scale; with that of monotone ones they cost 1.5 epsilon.

Noise is whole-numbered, as are queries and threshold: the proof uses only that one step changes a chance by e^(1 /
scale).
"""

import math
import operator
from dataclasses import dataclass
from fractions import Fraction

from pianissimo.checks import Real, check_at_least, check_probability
from pianissimo.errors import HorizonError, InputError
from pianissimo.noise import DRAW_DISTANCE, Noise, exact_scale
from pianissimo.privacy import Pure


@dataclass(slots=True, repr=False)
class AboveThresholdState:
    """How many tests were made and whether the last said TOP; public, as the answers are."""

    tests: int = 0
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class AboveThreshold:
    """Whether a query is above a threshold, test after test, up to the first TOP.

    Guarantee: epsilon-DP for all answers together; each query moves by at most one per user.
    Error: a query that is above the threshold by `margin_of_detection` stops it.
    Cost: two integers; one draw a test.

    >>> from pianissimo.testing import NoNoise
    >>> svt, noise = AboveThreshold(threshold=10, epsilon=1), NoNoise()
    >>> state = svt.start()
    >>> [svt.test(state, query, noise) for query in (8, 10, 12)]
    [False, False, True]
    >>> svt.test(state, 1, noise)
    Traceback (most recent call last):
    pianissimo.errors.HorizonError: the test has said TOP and is over; start a new one with a budget of its own
    """

    threshold: int
    """TOP is said above it."""

    epsilon: Real
    """What the whole costs."""

    monotone: bool = True
    """Whether one more user never lowers a query."""

    def __post_init__(self) -> None:
        exact_scale(epsilon=self.epsilon)

    @property
    def threshold_scale(self) -> Fraction:
        """Of the noise on the threshold."""
        return 2 / exact_scale(epsilon=self.epsilon)

    @property
    def query_scale(self) -> Fraction:
        """Of the noise on each query."""
        return (2 if self.monotone else 4) / exact_scale(epsilon=self.epsilon)

    def loss(self, tests: int) -> Pure:
        """What is lost per user over so many tests; only the noise distance depends on them."""
        check_at_least(0, tests=tests)
        return Pure(exact_scale(epsilon=self.epsilon), distance=(tests + 1) * DRAW_DISTANCE)

    def margin_of_detection(self, failure_probability: float) -> float:
        """How far above the threshold a query must be to have stopped the test, but for this probability.

        >>> round(AboveThreshold(threshold=10, epsilon=1).margin_of_detection(0.05), 2)
        11.98
        """
        check_probability(failure_probability=failure_probability)
        scales = self.threshold_scale + self.query_scale
        return float(scales) * math.log(1 / failure_probability)

    def start(self) -> AboveThresholdState:
        """Before the first test."""
        return AboveThresholdState()

    def test(self, state: AboveThresholdState, query: int, noise: Noise) -> bool:
        """Test one query; True is TOP. `noise` is the same for all tests of one run, and another for the next run."""
        if state.stopped:
            raise HorizonError("the test has said TOP and is over; start a new one with a budget of its own")
        try:
            exact = operator.index(query)  # no fixed width, in which a sum could wrap
        except TypeError:
            raise InputError(f"a query must be a whole number, got {type(query).__name__}") from None
        state.tests += 1
        raised = self.threshold + int(noise.at("threshold").laplace(self.threshold_scale))
        state.stopped = exact + int(noise.at("query", state.tests).laplace(self.query_scale)) > raised
        return state.stopped
