"""What a search costs, and which way of choosing leaves most to each trial: from public numbers alone."""

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal

from quorate.core.checks import check_choice, check_count, check_positive
from quorate.core.mechanisms import EveryCandidate, RandomStopping
from quorate.core.mechanisms.selection import ApproximateTrial, GaussianTrial, Trial
from quorate.core.notebook import html_card

Method = Literal["auto", "random stopping", "composition"]
METHODS = ("auto", "random stopping", "composition")


@dataclass(frozen=True, kw_only=True)
class SearchPlan:
    """How candidates are chosen among, and what each trial may cost.

    `trial_epsilon` and `trial_delta` are what one fit, and one score, get. `naive_epsilon` is what one such trial of
    each candidate would cost by composition. `tried` is the probability with which a given candidate is tried.
    """

    method: str
    candidates: int
    epsilon: float
    delta: float
    trial_epsilon: float
    trial_delta: float
    naive_epsilon: float
    tried: float
    mean_trials: float
    most_trials: int

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        return asdict(self)

    def summary(self) -> str:
        """Return the plan in a few sentences.

        >>> print(plan_search(candidates=20).summary())
        Candidates are drawn from 20 and tried, 82 times on average, with epsilon = 0.451 for each trial. All trials
        together keep epsilon = 1, delta = 1e-06. A candidate is tried with probability 90.0%; one such trial of each
        would cost epsilon = 2.27 by composition.
        """
        kept = f"All trials together keep epsilon = {self.epsilon:g}, delta = {self.delta:g}."
        if self.method == "composition":
            each = "The one candidate" if self.candidates == 1 else f"Each of {self.candidates:,} candidates"
            return f"{each} is tried once, with epsilon = {self.trial_epsilon:.3g}. {kept}"
        return (
            f"Candidates are drawn from {self.candidates:,} and tried, {self.mean_trials:,.0f} times on average, with "
            f"epsilon = {self.trial_epsilon:.3g} for each trial. {kept} A candidate is tried with probability "
            f"{self.tried:.1%}; one such trial of each would cost epsilon = {self.naive_epsilon:.3g} by composition."
        )

    def _repr_html_(self) -> str:
        facts = {"method": self.method, "candidates": self.candidates, "trial epsilon": self.trial_epsilon}
        facts |= {"epsilon": self.epsilon, "delta": self.delta}
        return html_card("Plan", facts, bar=("candidates expected to be tried", self.tried), lines=[self.summary()])


@lru_cache(maxsize=64)
def choose_selection(
    method: Method, *, candidates: int, epsilon: float, delta: float, gaussian: bool, tried: float
) -> RandomStopping | EveryCandidate:
    """Return the way of choosing that leaves more to each trial, or the one that is asked for."""
    check_choice("method", method, METHODS)
    trial: type[Trial] = GaussianTrial if gaussian else ApproximateTrial
    budget: dict[str, Any] = {"epsilon": check_positive("epsilon", epsilon), "delta": delta, "trial": trial}
    candidates = check_count("candidates", candidates)
    possible: list[RandomStopping | EveryCandidate] = []
    if method != "random stopping":
        possible.append(EveryCandidate.calibrate(candidates=candidates, **budget))
    if method != "composition" and (candidates > 1 or method != "auto"):
        possible.append(RandomStopping.calibrate(candidates=candidates, tried=tried, **budget))
    return max(possible, key=lambda one: one.trial.epsilon)


def plan_search(
    *,
    candidates: int,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    gaussian: bool = True,
    tried: float = 0.9,
    method: Method = "auto",
) -> SearchPlan:
    """Plan a private search: what each trial gets, and what composition would cost. Nothing private is read.

    `gaussian` says that all candidates are linear models, whose noise is Gaussian; of others nothing is assumed but
    their epsilon and delta. The other parameters are those of `PrivateSearchCV`.

    >>> few, many = (plan_search(candidates=number) for number in (2, 20))
    >>> few.method, round(few.trial_epsilon, 2), many.method, round(many.trial_epsilon, 2)
    ('composition', 0.69, 'random stopping', 0.45)
    >>> round(many.naive_epsilon, 1)  # of twenty such trials
    2.3
    """
    chosen = choose_selection(
        method, candidates=candidates, epsilon=epsilon, delta=delta, gaussian=gaussian, tried=tried
    )
    return plan_of(chosen, epsilon=epsilon, delta=delta)


def plan_of(chosen: RandomStopping | EveryCandidate, *, epsilon: float, delta: float) -> SearchPlan:
    """Return the plan of a way of choosing."""
    return SearchPlan(
        method="random stopping" if isinstance(chosen, RandomStopping) else "composition",
        candidates=chosen.candidates,
        epsilon=float(epsilon),
        delta=float(delta),
        trial_epsilon=chosen.trial.epsilon,
        trial_delta=chosen.trial.delta,
        naive_epsilon=chosen.trial.composed(
            chosen.candidates, delta=max(delta, 1.01 * chosen.candidates * chosen.trial.slack)
        ),
        tried=chosen.tried,
        mean_trials=chosen.mean_trials,
        most_trials=chosen.most_trials,
    )
