"""Several elements of one user: an (epsilon, delta) for m elements from one for a single element.

If adding one element is (e1, d1)-private, then along a chain of m elements d_m = d_(m-1) e^e1 + d1, so that m elements
are (m e1, d1 (e^(m e1) - 1) / (e^e1 - 1))-private. The elements may repeat and be far apart. A Misra-Gries sketch
really moves by m in one count, so no smaller noise would do for it.
"""

import decimal
from decimal import Decimal
from fractions import Fraction

from pianissimo.checks import Real, check_at_least, check_positive, check_probability
from pianissimo.sketches.laplace_tail import CONTEXT, short_bound, to_decimal
from pianissimo.sketches.thresholds import threshold

_SLACK = Decimal("1e-30")


def group_budget(*, epsilon: Real, delta: Real, elements: int) -> tuple[Fraction, Fraction]:
    """The (epsilon, delta) of one element that make this one for so many, the delta rounded down.

    >>> each = group_budget(epsilon=1, delta=1e-8, elements=16)
    >>> each[0], f"{float(each[1]):.3e}"
    (Fraction(1, 16), '3.753e-10')
    """
    check_positive(epsilon=epsilon)
    check_probability(delta=delta)
    check_at_least(1, elements=elements)
    share = Fraction(epsilon) / elements
    if elements == 1:
        return share, Fraction(delta)
    with decimal.localcontext(CONTEXT):
        least = to_decimal(delta) / _growth(share, elements) * (1 - _SLACK)
    return share, Fraction(least)


def group_delta(delta: Fraction, *, epsilon: Fraction, elements: int) -> Fraction:
    """What so many elements have for a delta, if one has (epsilon, delta); rounded up.

    >>> group_delta(Fraction(1, 100), epsilon=Fraction(1), elements=1)
    Fraction(1, 100)
    """
    if elements == 1:
        return delta
    with decimal.localcontext(CONTEXT):
        return short_bound(to_decimal(delta) * _growth(epsilon, elements) * (1 + _SLACK))


def group_threshold(*, epsilon: Real, delta: Real, k: int, elements: int) -> int:
    """The threshold of a sketch's release that hides so many elements of one user.

    >>> group_threshold(epsilon=1, delta=1e-8, k=1024, elements=16)
    389
    """
    share, part = group_budget(epsilon=epsilon, delta=delta, elements=elements)
    return threshold(epsilon=share, delta=part, k=k)


def _growth(epsilon: Fraction, elements: int) -> Decimal:
    """(e^(m epsilon) - 1) / (e^epsilon - 1)."""
    each = to_decimal(epsilon)
    return ((elements * each).exp() - 1) / (each.exp() - 1)
