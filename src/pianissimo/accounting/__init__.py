"""What losses add up to, and what they mean as (epsilon, delta): exact sums, conversions rounded against us.

An accountant prices losses and knows no mechanism.
"""

from pianissimo.accounting.budget import Budget
from pianissimo.accounting.composition import Price, compose, price
from pianissimo.accounting.conversion import delta_from_rho, epsilon_from_rho, rho_from_budget

__all__ = [
    "Budget",
    "Price",
    "compose",
    "delta_from_rho",
    "epsilon_from_rho",
    "price",
    "rho_from_budget",
]
