"""Parameter checks that all speak alike: what must hold, then what came.

Conditions are written so that NaN fails. Each check takes one keyword argument, whose name goes into the message.
"""

import math
from fractions import Fraction

from pianissimo.errors import ParameterError

Real = int | float | Fraction


def check_positive(**parameter: Real) -> None:
    """Refuse what is not finite and above zero.

    >>> check_positive(sigma=float("nan"))
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: sigma must be finite and positive, got nan
    """
    for name, value in parameter.items():
        _check_real(name, value)
        if not (value > 0 and _is_finite(value)):
            raise ParameterError(f"{name} must be finite and positive, got {value}")


def check_at_least(least: int, **parameter: int) -> None:
    """Refuse what is not a whole number of at least `least`.

    >>> check_at_least(1, horizon=0)
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: horizon must be a whole number of at least 1, got 0
    """
    for name, value in parameter.items():
        if isinstance(value, bool) or not isinstance(value, int) or not value >= least:
            raise ParameterError(f"{name} must be a whole number of at least {least}, got {value!r}")


def check_probability(**parameter: Real) -> None:
    """Refuse what is not strictly between 0 and 1.

    >>> check_probability(delta=1.0)
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: delta must be above 0 and below 1, got 1.0
    """
    for name, value in parameter.items():
        _check_real(name, value)
        if not 0 < value < 1:
            raise ParameterError(f"{name} must be above 0 and below 1, got {value}")


def check_name(**parameter: str) -> None:
    """Refuse what is not a short text of letters, digits, `_` and `-`, as names of streams and queries are.

    >>> check_name(name="top drugs")
    Traceback (most recent call last):
    pianissimo.errors.ParameterError: name must be 1 to 64 letters, digits, '_' or '-', got 'top drugs'
    """
    for name, value in parameter.items():
        well_formed = (
            isinstance(value, str) and 1 <= len(value) <= 64 and value.replace("-", "_").replace("_", "a").isalnum()
        )
        if not (well_formed and value.isascii()):
            raise ParameterError(f"{name} must be 1 to 64 letters, digits, '_' or '-', got {value!r}")


def _check_real(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | Fraction):
        raise ParameterError(f"{name} must be a number, got {value!r}")


def _is_finite(value: Real) -> bool:
    return not isinstance(value, float) or math.isfinite(value)
