"""Weights of maximum entropy: the nearest to a public distribution that noisy answers allow. Post-processing alone."""

from collections.abc import Callable
from functools import lru_cache

import numpy as np
from scipy import optimize
from threadpoolctl import ThreadpoolController

from quorate.core.arrays import Floats

_STEPS = 200


@lru_cache(maxsize=1)
def _threads() -> ThreadpoolController:
    return ThreadpoolController()


def descend(objective: Callable[[Floats], tuple[float, Floats]], start: Floats, *, steps: int) -> Floats:
    """Minimise an objective by L-BFGS from `start` in at most this many steps; it returns a value and its gradient.

    Its vectors are short: threads of the linear algebra would wait for each other longer than they work.
    """
    with _threads().limit(limits=1, user_api="blas"):
        options = {"maxiter": steps, "maxcor": 20}
        return np.asarray(optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x)


def fit_entropy(
    forward: Callable[[Floats], Floats],
    backward: Callable[[Floats], Floats],
    *,
    targets: Floats,
    precisions: Floats,
    prior: Floats,
    strength: float,
) -> Floats:
    """Return the weights w that minimise sum precisions (forward(w) - targets)^2 / 2 + strength * KL(w, prior)."""
    logs = np.log(prior)

    def weigh(ratios: Floats) -> Floats:
        logits = logs + ratios
        weights = np.exp(logits - logits.max())
        return np.asarray(weights / weights.sum())

    def objective(ratios: Floats) -> tuple[float, Floats]:
        weights = weigh(ratios)
        residuals = forward(weights) - targets
        change = np.log(np.maximum(weights, 1e-300)) - logs
        value = 0.5 * float(precisions @ residuals**2) + strength * float(weights @ change)
        slope = backward(precisions * residuals) + strength * change
        return value / strength, weights * (slope - weights @ slope) / strength

    return weigh(descend(objective, np.zeros(prior.size), steps=_STEPS))
