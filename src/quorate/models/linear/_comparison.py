"""The last release of a fit: do the weights miss targets by less than the baseline does? PROOF.md, step 4."""

import numpy as np

from quorate.core.arrays import Floats
from quorate.core.mechanisms import NoisyVectors
from quorate.models.linear._families import Family
from quorate.models.linear._sums import PrivateSums
from quorate.models.linear.exact import exact_weights

_USUAL_GAINS, _LEAST_GAIN = 0.98, 1e-3  # of the sample, that are not clipped


def is_better(
    weights: Floats,
    baseline: Floats,
    points: Floats,
    family: Family,
    *,
    private: PrivateSums,
    noisy: NoisyVectors,
) -> bool:
    """Return whether the weights are better than the baseline, by a noisy mean gain and the gain that they expect.

    The baseline has the mean of each output, or a calibrated offset; rows have the intercept first.

    The more the noise hides of the expected gain, the further below 0 the measured one may be, by one deviation at
    most: else the noise would replace many a good model of a small table. It takes all that is left of the budget.
    """
    predictors = [(exact_weights(each[:, 1:].T), each[:, 0]) for each in (weights, baseline)]

    def vectors(features: Floats, targets: Floats) -> Floats:
        eta, before = (features @ slopes + base for slopes, base in predictors)  # proof: step 2
        gains = family.miss(targets, before) - family.miss(targets, eta)
        return np.asarray(sum(gains.T) / len(baseline))[:, None]  # proof: step 2: output by output

    eta, before = (points @ slopes + base for slopes, base in predictors)
    mean = family.mean(eta)
    possible = (np.zeros((1, 1)), np.ones((1, 1)), mean, family.mean(before))
    differences = [np.abs(vectors(points, targets)) for targets in possible]
    radius = float(np.quantile(np.max(differences, axis=0), _USUAL_GAINS)) + _LEAST_GAIN
    gain, noise = private.release(vectors, entries=1, radius=min(radius, 1.0), noisy=noisy, fraction=1.0)
    away = family.typical(eta, np.random.default_rng(0).random((len(eta), 1)))  # proof: step 4: nothing private
    expected = float(np.mean([vectors(points, mean + side * away) for side in (-1, 1)]))
    return bool(gain[0] > -noise * min(1.0, noise / max(expected, _LEAST_GAIN)))
