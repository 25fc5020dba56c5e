"""Many questions from one allowance of steps: each pays for the length of its answer.

Durfee and Rogers 2019, Algorithm 2 (multiLimitDom) and Theorem 2. Questions may depend on earlier answers. A question
for k labels reserves k steps, is answered by `LimitedDomain`, `StrictDomain` or `OptimalThreshold` with the epsilon and
delta of the allowance, and pays for what came back, the threshold included. What it did not use is free again.

Corrected here:

* The paper's loop never ends if a question asks for more than is left; k is cut to what is left.
* The threshold is paid for. If it were not, 40 questions could be answered by it for nothing: an exact delta of 0.080
  at epsilon = 0.5, delta = 10^-4 and one step, where 0.008 is claimed.
* The bad mass is 1 - (1 - delta)^calls, half of the paper's 2 calls delta.

An `Allowance` is a value. Whoever keeps it stores the reserved one before the question runs, so that a crash leaves the
whole reservation paid; `settle` needs an answer's length, and there is no way to give steps back on other grounds.
"""

from dataclasses import dataclass, replace
from fractions import Fraction

from pianissimo.checks import check_at_least
from pianissimo.errors import ParameterError
from pianissimo.loss.losses import BoundedRange
from pianissimo.selection.race import race_distance
from pianissimo.selection.thresholds import at_least_one_of, check_exact


@dataclass(frozen=True, slots=True)
class Allowance:
    """What is left of the steps and the questions, and what a running question holds.

    >>> Allowance(steps=4, calls=3).reserve(9).settle(3)
    Allowance(steps=1, calls=2, reserved=0)
    """

    steps: int
    """Left, those of a running question not counted."""

    calls: int
    """Questions left, the running one not counted."""

    reserved: int = 0
    """What the running question holds: the k it may ask for; 0 if none runs."""

    def __post_init__(self) -> None:
        check_at_least(0, steps=self.steps, calls=self.calls, reserved=self.reserved)

    @property
    def is_spent(self) -> bool:
        """Whether no further question may start."""
        return not (self.steps > 0 and self.calls > 0)

    def reserve(self, k: int) -> "Allowance":
        """Starts a question: it holds min(k, steps left) and uses up one call."""
        check_at_least(1, k=k)
        if self.reserved:
            raise ParameterError("a question must be settled before the next one starts, got one that is not")
        if self.is_spent:
            raise ParameterError("steps and calls must be left for a question, got none; start a new allowance")
        held = min(k, self.steps)
        return Allowance(steps=self.steps - held, calls=self.calls - 1, reserved=held)

    def settle(self, cost: int) -> "Allowance":
        """Ends the question: what its answer did not use of the reservation is free again."""
        # Every answer has something in it, if only the threshold.
        check_at_least(1, cost=cost)
        if not self.reserved:
            raise ParameterError("a question must be running to be settled, got none")
        if not cost <= self.reserved:
            raise ParameterError(f"cost must be at most the {self.reserved} steps reserved, got {cost}")
        return replace(self, steps=self.steps + self.reserved - cost, reserved=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PayWhatYouGet:
    """An allowance of so many steps and questions, all at one epsilon and delta.

    Guarantee: `steps` steps of bounded range epsilon, (steps epsilon^2 / 8) zCDP, and a bad mass of 1 - (1 -
    delta)^calls, for all answers together.

    >>> plan = PayWhatYouGet(epsilon=Fraction(1, 2), delta=Fraction(1, 50), steps=3, calls=3)
    >>> float(plan.loss.bad)
    0.058808
    """

    epsilon: Fraction
    """Of one step of any answer."""

    delta: Fraction
    """Of one question."""

    steps: int
    """How many labels and thresholds all answers hold together, at most: k*."""

    calls: int
    """How many questions there are at most: l*."""

    most_labels: int = 10**6
    """No question looks at more labels; for the distance of the drawn noise alone."""

    def __post_init__(self) -> None:
        check_exact(epsilon=self.epsilon, delta=self.delta)
        check_at_least(1, steps=self.steps, calls=self.calls, most_labels=self.most_labels)

    @property
    def loss(self) -> BoundedRange:
        return BoundedRange(
            steps=self.steps,
            width=self.epsilon,
            bad=at_least_one_of(self.calls, self.delta),
            # Each question's answer is cut to at most all the steps; the choice of a k_bar is one more race.
            distance=self.calls * race_distance(self.most_labels + 1, self.steps + 1),
        )

    def start(self) -> Allowance:
        """What is left before the first question."""
        return Allowance(steps=self.steps, calls=self.calls)
