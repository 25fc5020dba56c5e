"""How many, as it grows: noise plans and the running count over them."""

from pianissimo.counting.counter import Counter, CounterState
from pianissimo.counting.haar import HaarPlan
from pianissimo.counting.tree import TreePlan, best_base

__all__ = ["Counter", "CounterState", "HaarPlan", "TreePlan", "best_base"]
