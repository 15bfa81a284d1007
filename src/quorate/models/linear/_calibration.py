"""The last releases of a fit: scores are calibrated, and the weights are compared with a baseline. PROOF.md, step 4.

Scores may be too large, too small or shifted. Of logistic scores, a noisy table says how many private units have about
such a score, and how many of them are 1. It depends on two numbers of private units in each cell and on nothing that
made rows guess. Of other scores, one Newton step for their shift and factor is taken by noisy sums of its gradient
and curvature. Then a noisy mean says whether the weights miss targets by less than the baseline does.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import expit

from quorate.core.arrays import Floats
from quorate.core.mechanisms import NoisyVectors
from quorate.models.linear._families import Family, Softmax
from quorate.models.linear._sums import PrivateSums
from quorate.models.linear.exact import clip_rows, exact_weights

_EDGES = np.linspace(-6.0, 6.0, 25)
_USUAL = 0.5  # the standard deviation of the shift and of the factor, before anything is known
_CELLS = len(_EDGES) + 1
_LONGEST = 3.0  # a row's part of the Newton step, in standard deviations
_USUAL_FACTOR, _USUAL_SHIFT = 0.3, 0.3  # standard deviations of what is found, before anything is known
_MOST_CURVATURE = 3.0  # of private rows, in units of that of made ones, and one over it the least
_USUAL_CLASS_FACTOR, _LEAST_FACTOR = 0.6, 0.05  # of several classes
CALIBRATION_ENTRIES = 2 * _CELLS


def calibration(
    score: Callable[[Floats], Floats], private: PrivateSums, noisy: NoisyVectors, fraction: float
) -> tuple[float, float]:
    """Return the shift a and the factor b for which a + b * score are the log odds, as far as the noise shows."""

    def vectors(features: Floats, targets: Floats) -> Floats:
        cell = np.searchsorted(_EDGES, score(features))
        table = np.zeros((len(features), 2 * _CELLS))
        table[np.arange(len(features)), cell + _CELLS * (targets[:, 0] > 0.5)] = 1.0
        return table

    table, noise = private.release(vectors, entries=CALIBRATION_ENTRIES, radius=1.0, noisy=noisy, fraction=fraction)
    share, ones = np.maximum(table[:_CELLS] + table[_CELLS:], 0.0), table[_CELLS:]
    middle = np.concatenate([[_EDGES[0]], (_EDGES[1:] + _EDGES[:-1]) / 2, [_EDGES[-1]]])
    columns = np.stack([np.ones(_CELLS), middle], axis=1)
    coefficients = np.array([0.0, 1.0])
    for _ in range(30):
        p = expit(columns @ coefficients)
        slope = columns * (share * p * (1 - p))[:, None]
        variance = share * p * (1 - p) / private.units + noise**2 * ((1 - p) ** 2 + p**2) + 1e-12
        precision = (slope / variance[:, None]).T @ slope + np.eye(2) / _USUAL**2
        miss = (slope / variance[:, None]).T @ (ones - share * p) + (np.array([0.0, 1.0]) - coefficients) / _USUAL**2
        step = np.linalg.solve(precision, miss)
        coefficients = coefficients + np.clip(step, -0.5, 0.5)
        if np.abs(step).max() < 1e-6:
            break
    return float(coefficients[0]), float(max(coefficients[1], 0.05))


def newton_calibration(
    score: Callable[[Floats], Floats],
    made_scores: Floats,
    family: Family,
    private: PrivateSums,
    noisy: NoisyVectors,
    *,
    fraction: float,
) -> tuple[float, float]:
    """Return the shift a and the factor b for which a + b * score are linear predictors, as far as the noise shows.

    `made_scores` are the scores of made rows: their mean, their spread and their residuals are the units of all sums.
    """
    middle, width = float(made_scores.mean()), max(float(made_scores.std()), 1e-9)
    away = (made_scores - middle) / width
    variance, slope = family.square(made_scores, np.full_like(made_scores, np.inf)), family.slope(made_scores)
    spread, spread_along = (float(np.sqrt(np.mean(variance * square))) for square in (1.0, away**2))
    curvature, curvature_along = (float(np.mean(slope * square)) for square in (1.0, away**2))

    def vectors(features: Floats, targets: Floats) -> Floats:
        eta = score(features)  # proof: step 2
        along, residual = (eta - middle) / width, targets[:, 0] - family.mean(eta)
        curved = family.slope(eta) * along**2 / curvature_along - 1
        return clip_rows(np.stack([residual / spread, residual * along / spread_along, curved], axis=1), _LONGEST)

    sums, noise = private.release(vectors, entries=3, radius=_LONGEST, noisy=noisy, fraction=fraction)
    noise = float(np.hypot(noise, 1 / np.sqrt(private.units)))
    curved = 1 + float(sums[2]) / (1 + noise**2)
    curved = min(max(curved, 1 / _MOST_CURVATURE), _MOST_CURVATURE)
    shift = _shrink(float(sums[0]), noise, _USUAL_SHIFT) * spread / curvature
    wanted = _shrink(float(sums[1]), noise, _USUAL_FACTOR * curvature_along * width / spread_along)
    factor = max(1 + wanted * spread_along / (curvature_along * width * curved), 0.0)
    return shift + (1 - factor) * middle, factor


def class_calibration(
    score: Callable[[Floats], Floats],
    made_scores: Floats,
    private: PrivateSums,
    noisy: NoisyVectors,
    *,
    fraction: float,
) -> float:
    """Return the factor of the linear predictors of several classes, by one Newton step of noisy sums."""
    family = Softmax()

    def slope_and_curvature(eta: Floats, targets: Floats) -> tuple[Floats, Floats]:
        means = family.mean(eta)
        along, average, square = (_sum_of_classes(weights) for weights in (targets * eta, means * eta, means * eta**2))
        return along - average, square - average**2

    _, variances = slope_and_curvature(made_scores, np.zeros_like(made_scores))
    curvature = max(float(variances.mean()), 1e-9)
    spread = float(np.sqrt(curvature))

    def vectors(features: Floats, targets: Floats) -> Floats:
        slope, variance = slope_and_curvature(score(features), targets)
        return clip_rows(np.stack([slope / spread, variance / curvature - 1], axis=1), _LONGEST)

    sums, noise = private.release(vectors, entries=2, radius=_LONGEST, noisy=noisy, fraction=fraction)
    noise = float(np.hypot(noise, 1 / np.sqrt(private.units)))
    curved = min(max(1 + float(sums[1]) / (1 + noise**2), 1 / _MOST_CURVATURE), _MOST_CURVATURE)
    wanted = _shrink(float(sums[0]), noise, _USUAL_CLASS_FACTOR * spread)
    return max(1 + wanted / (spread * curved), _LEAST_FACTOR)


def _sum_of_classes(terms: Floats) -> Floats:
    """Return the sum of each row, class by class. Proof: step 2."""
    return np.asarray(sum(terms.T))


def _shrink(measured: float, noise: float, usual: float) -> float:
    """Return what is believed of a number of this usual size that was measured with noise."""
    return measured * usual**2 / (usual**2 + noise**2)


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
    predictors = [(exact_weights(matrix[:, 1:].T), matrix[:, 0]) for matrix in (weights, baseline)]

    def vectors(features: Floats, targets: Floats) -> Floats:
        eta, base_eta = (features @ slopes + base for slopes, base in predictors)  # proof: step 2
        gains = family.miss(targets, base_eta) - family.miss(targets, eta)
        return np.asarray(sum(gains.T) / len(baseline))[:, None]  # proof: step 2: output by output

    eta, base_eta = (points @ slopes + base for slopes, base in predictors)
    mean = family.mean(eta)
    possible = (np.zeros((1, 1)), np.ones((1, 1)), mean, family.mean(base_eta))
    differences = [np.abs(vectors(points, targets)) for targets in possible]
    radius = float(np.quantile(np.max(differences, axis=0), _USUAL_GAINS)) + _LEAST_GAIN
    gain, noise = private.release(vectors, entries=1, radius=min(radius, 1.0), noisy=noisy, fraction=1.0)
    away = family.typical(eta, np.random.default_rng(0).random((len(eta), 1)))  # proof: step 4: nothing private
    expected = float(np.mean([vectors(points, mean + side * away) for side in (-1, 1)]))
    return bool(gain[0] > -noise * min(1.0, noise / max(expected, _LEAST_GAIN)))
