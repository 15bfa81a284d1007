"""What relabelling a data set by a privately chosen hypothesis adds to the epsilon of whatever is run on it.

The hypothesis is chosen among one representative of each dichotomy of the distinct points with probability
proportional to exp(-kappa * mistakes / 2). The sum `epsilon + relabelling_epsilon(...)` keeps delta as it is, and
the same term is added to a Renyi divergence of any order (PROOF.md, step 6).
"""

import math
from typing import Literal

from quorate.checks import check_count, check_positive
from quorate.errors import InvalidInput

__all__ = ["relabelling_epsilon"]


def relabelling_epsilon(
    *, kappa: float, change: Literal["labelled", "unlabelled"] = "labelled", rows: int = 1
) -> float:
    """Return the term (rounded up) for a unit of `rows` labelled or unlabelled points."""
    kappa, rows = check_positive("kappa", kappa), check_count("rows", rows)
    if change == "labelled":
        one = 2 * (kappa / 2 + math.log1p(math.exp(-kappa / 2)))
    elif change == "unlabelled":
        one = math.log(4.0)
    else:
        raise InvalidInput(f"change must be 'labelled' or 'unlabelled', not {change!r}")
    return rows * one * (1 + 2.0**-48)
