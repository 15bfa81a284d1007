"""The privacy calculus: one budget, one Renyi order, and the rules by which costs are converted and combined.

Everything here is arithmetic on public numbers. Neighbouring data sets replace the rows of one unit (a row, or a
person); see PROOF.md beside this file for each rule used.
"""

from quorate.core.privacy.budget import RENYI_QUANTA, Budget, price_of_each
from quorate.core.privacy.cost import (
    Cost,
    amplify,
    amplify_inverse,
    best_order,
    exceeds,
    exponential_renyi,
    gaussian_renyi,
    pure_renyi,
    relabelling_epsilon,
    to_capacity,
    to_epsilon,
)

__all__ = [
    "RENYI_QUANTA",
    "Budget",
    "Cost",
    "amplify",
    "amplify_inverse",
    "best_order",
    "exceeds",
    "exponential_renyi",
    "gaussian_renyi",
    "price_of_each",
    "pure_renyi",
    "relabelling_epsilon",
    "to_capacity",
    "to_epsilon",
]
