"""How many, as it grows: noise plans and the running count over them."""

from pianissimo.counting.compare import Comparison, compare, comparison_table, make
from pianissimo.counting.counter import Counter, CounterState, Summer, grid_steps
from pianissimo.counting.doubling import DoublingPlan
from pianissimo.counting.haar import HaarPlan
from pianissimo.counting.haar_skip import HaarSkipPlan
from pianissimo.counting.noisy_total import NoisyTotal
from pianissimo.counting.spline import SplinePlan
from pianissimo.counting.toeplitz import ToeplitzPlan
from pianissimo.counting.top_down import TopDownPlan
from pianissimo.counting.tree import TreePlan, best_base

__all__ = [
    "Comparison",
    "Counter",
    "CounterState",
    "DoublingPlan",
    "HaarPlan",
    "HaarSkipPlan",
    "NoisyTotal",
    "SplinePlan",
    "Summer",
    "ToeplitzPlan",
    "TopDownPlan",
    "TreePlan",
    "best_base",
    "compare",
    "comparison_table",
    "grid_steps",
    "make",
]
