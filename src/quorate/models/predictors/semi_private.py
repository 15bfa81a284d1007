"""A hypothesis chosen privately from a cover that public points define (Beimel, Nissim and Stemmer 2013; Alon, Bassily
and Moran 2019).

Claim (replace-one units of at most `rows` rows; the public points do not depend on the private rows, or only through
what was released about them): the chosen hypothesis is epsilon-DP. PROOF_CONCEPTS.md, step 5, says why.
"""

import math
from typing import Any

from quorate.core.checks import check_count, check_rate
from quorate.core.hypotheses.points import check_queries
from quorate.core.hypotheses.sealed import opened, sealed_candidates
from quorate.core.mechanisms.exponential import ExponentialChoice
from quorate.core.privacy import Budget, Cost
from quorate.models.concepts import Concept, Hypothesis

__all__ = ["choose_from_cover", "cover_excess", "cover_points"]


def choose_from_cover(
    concept: Concept, X: Any, y: Any, public: Any, *, epsilon: float, rows: int = 1, budget: Budget | None = None
) -> tuple[Hypothesis, Cost]:
    """Return one hypothesis for all that the public points tell apart, chosen by private mistakes, and its cost.

    `rows` is the most that one unit has among the private rows. Where a `budget` is given, it is charged before
    anything is drawn; the cost is the one at its order, or plain epsilon where there is none.
    """
    choice = ExponentialChoice(epsilon=epsilon, sensitivity=rows)  # proof: step 5
    candidates = concept.dichotomies(check_queries(public, features=concept.features))  # of public points alone
    tally = sealed_candidates(candidates).tally(X, y)  # proof: step 0
    cost = choice.choice_cost(math.inf if budget is None else budget.order)
    return opened(choice.choose(tally, budget=budget)), cost


def cover_points(*, vc_dimension: int, alpha: float, beta: float) -> int:
    """Return how many public points from the same law make a cover of error alpha with probability 1 - beta.

    32 (d log(1/alpha) + log(1/beta)) / alpha: Algorithm 4 of Nandi and Bassily (2020).
    """
    dimension = max(1, check_count("vc_dimension", vc_dimension, least=0))
    alpha, beta = check_rate("alpha", alpha), check_rate("beta", beta)
    return max(1, math.ceil(32 * (dimension * math.log(1 / alpha) + math.log(1 / beta)) / alpha))


def cover_excess(concept: Concept, *, public: int, epsilon: float, beta: float, rows: int = 1) -> int:
    """Return how many mistakes above the fewest of the cover the choice makes, with probability 1 - beta at most."""
    choice = ExponentialChoice(epsilon=epsilon, sensitivity=rows)
    candidates = concept.growth(check_count("public", public))
    return math.ceil((math.log(candidates) - math.log(check_rate("beta", beta))) / float(choice.rate) * (1 + 1e-12))
