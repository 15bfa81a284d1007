"""Points that stand for the private rows where the geometry is chosen: public rows, or rows made of released means.

Made rows have independent columns, each drawn from the values that the column may take, weighted so that their means
are those released. They know nothing of how columns go together; more and smaller steps make up for that.
"""

from collections.abc import Sequence

import numpy as np
from scipy.special import logsumexp, softmax

from quorate.arrays import Floats

__all__ = ["made_rows", "shift"]

_MADE = 5000  # rows
_MOST_UNSURE = 0.3  # of a made column, drawn from what it may be and not from what was released
_SIGNIFICANT = 4.0  # standard deviations of the noise


def shift(public: Floats, means: Floats, noise: float) -> float:
    """Return by how much the released means differ from the public ones beyond noise, in standard deviations."""
    centre = public.mean(axis=0)
    likely = np.clip(means, 0.0, 1.0)
    spread = np.maximum(public.var(axis=0), likely * (1 - likely))
    by_chance = _SIGNIFICANT * np.sqrt(noise**2 + spread / len(public))
    beyond = np.maximum(np.abs(means - centre) - by_chance, 0.0)
    return float(np.max(beyond / np.sqrt(spread + noise**2 + 1e-12)))


def made_rows(atoms: Sequence[Floats], means: Floats, noise: float) -> Floats:
    """Return rows with independent blocks of columns, whose means are as near to those released as the noise allows."""
    generator = np.random.default_rng(0)  # it hides nothing: proof, step 4
    made, first = [], 0
    for values in atoms:
        last = first + values.shape[1]
        prior = np.full(len(values), 1.0 / len(values))
        weights = _tilted(values, prior, means[first:last], noise)
        unsure = min(_MOST_UNSURE, noise * len(values) / 2)  # a rare value may be there though the noise hides it
        weights = (1 - unsure) * weights + unsure * prior
        made.append(values[generator.choice(len(values), size=_MADE, p=weights)])
        first = last
    return np.hstack(made)


def _tilted(values: Floats, prior: Floats, mean: Floats, noise: float) -> Floats:
    """Return the weights nearest to `prior`, in relative entropy, that have about this mean: by Newton, in the dual."""
    centred, tilt = values - mean, np.zeros(values.shape[1])
    ridge = max(noise**2, 1e-6)

    def dual(tilt: Floats) -> float:
        return float(logsumexp(centred @ tilt, b=prior) + ridge * (tilt @ tilt) / 2)

    for _ in range(60):
        weights = softmax(centred @ tilt + np.log(prior))
        slope = weights @ centred + ridge * tilt
        about = centred - weights @ centred
        curvature = (about * weights[:, None]).T @ about + ridge * np.eye(len(tilt))
        step, size, now = np.linalg.solve(curvature, slope), 1.0, dual(tilt)
        while dual(tilt - size * step) > now and size > 1e-6:
            size /= 2
        tilt = tilt - size * step
        if np.abs(slope).max() < 1e-6:
            break
    weights = softmax(centred @ tilt + np.log(prior))
    return np.asarray(weights / weights.sum())
