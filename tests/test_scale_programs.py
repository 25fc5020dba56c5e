"""The simulations of benchmarks/scale at their small sizes: what they assert holds, and they tell something."""

import math
from importlib import import_module

import pytest
from benchmarks.scale.__main__ import EVERY


@pytest.mark.parametrize("name", EVERY)
def test_a_simulation_holds_what_it_asserts(name: str) -> None:
    found = list(import_module(f"benchmarks.scale.{name}").figures(small=True))
    assert len({figure.what for figure in found}) == len(found) > 3
    assert all(math.isfinite(figure.value) and str(figure) for figure in found)
