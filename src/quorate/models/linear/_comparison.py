"""The last release of a fit: do the weights miss targets by less than the mean alone does? PROOF.md, step 4."""

from collections.abc import Sequence

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.mechanisms import NoisyVectors
from quorate.models.linear._families import Family
from quorate.models.linear._sums import PrivateSums
from quorate.models.linear.exact import exact_weights

_USUAL_GAINS, _LEAST_GAIN = 0.98, 1e-3  # of the sample, that are not clipped


def is_better(
    weights: Floats,
    constants: Sequence[float],
    points: Floats,
    family: Family,
    *,
    private: PrivateSums,
    noisy: NoisyVectors,
) -> bool:
    """Return whether the weights are better than the mean, by a noisy mean gain and the gain that they expect.

    The more the noise hides of the expected gain, the further below 0 the measured one may be, by one deviation at
    most: else the noise would replace many a good model of a small table. It takes all that is left of the budget.
    """
    slopes, base = exact_weights(weights[:, 1:].T), weights[:, 0]

    def vectors(features: Floats, targets: Floats) -> Floats:
        eta = features @ slopes + base  # proof: step 2
        gains = family.miss(targets, np.broadcast_to(np.array(constants), eta.shape)) - family.miss(targets, eta)
        return np.asarray(sum(gains.T) / len(constants))[:, None]  # proof: step 2: output by output

    eta = points @ slopes + base
    mean = family.mean(eta)
    possible = (np.zeros((1, 1)), np.ones((1, 1)), mean, family.mean(np.array(constants)[None]))
    differences = [np.abs(vectors(points, targets)) for targets in possible]
    radius = float(np.quantile(np.max(differences, axis=0), _USUAL_GAINS)) + _LEAST_GAIN
    gain, noise = private.release(vectors, entries=1, radius=min(radius, 1.0), noisy=noisy, fraction=1.0)
    away = family.typical(eta, np.random.default_rng(0).random((len(eta), 1)))  # proof: step 4: nothing private
    expected = float(np.mean([vectors(points, mean + side * away) for side in (-1, 1)]))
    return bool(gain[0] > -noise * min(1.0, noise / max(expected, _LEAST_GAIN)))
