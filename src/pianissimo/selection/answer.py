"""What a one-shot selection publishes."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Answer:
    """Labels in order, whether the threshold stopped the walk, and what else came with them.

    >>> answer = Answer(labels=("b", "a"), met_threshold=True)
    >>> answer.labels, answer.length
    (('b', 'a'), 3)
    """

    labels: tuple[str, ...]
    """The labels, the one that came first at the front."""

    met_threshold: bool
    """Whether the threshold is part of the answer: it came before a k-th label did."""

    counts: tuple[int, ...] | None = None
    """A noisy count for each label, or None where publishing it is not covered by the loss."""

    k_bar: int | None = None
    """How many labels were looked at, where the mechanism itself chose it."""

    @property
    def length(self) -> int:
        """How many things were learned: the labels, and the threshold if it was met."""
        return len(self.labels) + self.met_threshold
