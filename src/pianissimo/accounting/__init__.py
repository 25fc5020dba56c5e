"""What losses add up to, and what they mean as (epsilon, delta): exact sums, conversions rounded against us.

An accountant prices losses and knows no mechanism.
"""

from pianissimo.accounting.bounded_range import (
    delta_by_recursion,
    epsilon_by_concentration,
    epsilon_by_orders,
    epsilon_by_recursion,
    kappa,
)
from pianissimo.accounting.budget import Budget
from pianissimo.accounting.composition import Price, compose, price
from pianissimo.accounting.conversion import delta_from_rho, epsilon_from_curve, epsilon_from_rho, rho_from_budget
from pianissimo.accounting.loss_distribution import epsilon_by_loss_distribution
from pianissimo.accounting.optimal import advanced_epsilon, optimal_delta, optimal_epsilon
from pianissimo.accounting.race import epsilon_beside, epsilon_of_races
from pianissimo.accounting.race_in_ledger import race_in_ledger

__all__ = [
    "Budget",
    "Price",
    "advanced_epsilon",
    "compose",
    "delta_by_recursion",
    "delta_from_rho",
    "epsilon_beside",
    "epsilon_by_concentration",
    "epsilon_by_loss_distribution",
    "epsilon_by_orders",
    "epsilon_by_recursion",
    "epsilon_from_curve",
    "epsilon_from_rho",
    "epsilon_of_races",
    "kappa",
    "optimal_delta",
    "optimal_epsilon",
    "price",
    "race_in_ledger",
    "rho_from_budget",
]
