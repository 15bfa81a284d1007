"""Weights of maximum entropy: as near to a public distribution as noisy answers allow. Post-processing alone."""

from collections.abc import Callable

import numpy as np
from scipy import optimize

from quorate.release.queries import Floats

__all__ = ["fit_entropy"]

_STEPS = 200


def fit_entropy(
    forward: Callable[[Floats], Floats],
    backward: Callable[[Floats], Floats],
    *,
    targets: Floats,
    precisions: Floats,
    prior: Floats,
    strength: float,
    start: Floats | None = None,
) -> tuple[Floats, Floats]:
    """Return the weights w that minimise sum precisions (forward(w) - targets)^2 / 2 + strength * KL(w, prior) over the
    simplex, and the log ratios to start the next search from.

    >>> weights, _ = fit_entropy(
    ...     lambda w: w[:1], lambda r: np.array([r[0], 0.0, 0.0]), targets=np.array([0.5]),
    ...     precisions=np.array([1e6]), prior=np.full(3, 1 / 3), strength=1.0)
    >>> weights.round(3)
    array([0.5 , 0.25, 0.25])
    """
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

    first = np.zeros(prior.size) if start is None else start
    found = optimize.minimize(
        objective, first, jac=True, method="L-BFGS-B", options={"maxiter": _STEPS, "maxcor": 20}
    ).x
    return weigh(found), np.asarray(found)
