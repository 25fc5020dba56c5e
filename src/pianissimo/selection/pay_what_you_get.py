"""Many questions from one allowance of steps: each pays for the length of its answer.

Durfee and Rogers 2019, Algorithm 2 (multiLimitDom) and Theorem 2. Questions may depend on earlier answers. A question
for k labels reserves k steps, is answered by `LimitedDomain`, `StrictDomain` or `OptimalThreshold` with the epsilon and
delta of the allowance, and pays for what came back, the threshold included. What it did not use is free again. Who
reserves and settles is a `Ledger`, which stores the reservation before the question runs, so that a crash leaves it
paid: `Table` asks in this way, and its `StepAllowance` is one of these.

Corrected here:

* The paper's loop never ends if a question asks for more than is left; k is cut to what is left.
* The threshold is paid for. If it were not, 40 questions could be answered by it for nothing: an exact delta of 0.080
  at epsilon = 0.5, delta = 10^-4 and one step, where 0.008 is claimed.
* The bad mass is 1 - (1 - delta)^calls, half of the paper's 2 calls delta.
"""

from dataclasses import dataclass
from fractions import Fraction

from pianissimo.checks import check_at_least
from pianissimo.loss.losses import BoundedRange
from pianissimo.selection.race import race_distance
from pianissimo.selection.thresholds import at_least_one_of, check_exact

_MOST_LABELS = 10**6
"""No question looks at more labels; for the distance of the drawn noise alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PayWhatYouGet:
    """An allowance of so many steps and questions, all at one epsilon and delta.

    Guarantee: `steps` steps of bounded range epsilon, (steps epsilon^2 / 8) zCDP, and a bad mass of 1 - (1 -
    delta)^calls, for all answers together.
    """

    epsilon: Fraction
    """Of one step of any answer."""

    delta: Fraction
    """Of one question whose labels nobody knew beforehand: a call."""

    steps: int
    """How many labels and thresholds all answers hold together, at most: k*."""

    calls: int
    """How many calls there are at most: l*."""

    def __post_init__(self) -> None:
        check_exact(epsilon=self.epsilon, delta=self.delta)
        check_at_least(1, steps=self.steps, calls=self.calls)

    @property
    def loss(self) -> BoundedRange:
        return BoundedRange(
            steps=self.steps,
            width=self.epsilon,
            bad=at_least_one_of(self.calls, self.delta),
            # Each question's answer is cut to at most all the steps; the choice of a k_bar is one more race.
            distance=self.calls * race_distance(_MOST_LABELS + 1, self.steps + 1),
        )
