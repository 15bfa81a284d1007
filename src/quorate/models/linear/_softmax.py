"""The steps of a fit of several classes: one noisy gradient of all of them, along directions that they share.

A residual of softmax (a class as zeros and a one, less the probabilities) is no longer than the root of 2, however many
classes there are. A row's vector is the product of its features along the directions and its residual. Beliefs about
the classes have one covariance, so that a step decomposes one matrix, and not one for each class.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from quorate.core.arrays import Floats
from quorate.core.checks import set_validated
from quorate.core.mechanisms import NoisyVectors
from quorate.models.linear._families import Softmax
from quorate.models.linear._geometry import Belief, directions_for, evidence
from quorate.models.linear._sums import PrivateSums
from quorate.models.linear.exact import exact_features, exact_weights, lengths
from quorate.tables.features.combined import Interaction

_LONGEST = 1.3  # a guess of the clipping threshold in units of the root mean square, to choose directions with
_UNCLIPPED_PARTS = (0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 1.0)  # of the sample, that may stay unclipped
_ROUNDS, _ENOUGH, _SMALLEST_STEP = 20, 1e-4, 1e-2  # of Gauss-Newton
_ROUNDS_OF_EVIDENCE = 5
_INTERCEPT_VARIANCE = 9.0
_LEAST_RATIO, _LARGEST_RATIO = 0.05, 4.0  # of the curvature of a class, in units of the mean over classes
_MOST_POINTS = 3000  # of the sample: each is worked on for every class
_SIGNIFICANT = 4.0  # standard deviations of the noise
_LEAST_FACTOR = 0.1  # of a step that went too far
_DOUBT = 0.3  # of the covariance before a step, that is left after it
_ROUNDING = 1e-9  # of a variance
_TINY = 1e-300


@dataclass(frozen=True)
class ClassMeasurement:
    """A gradient of all classes to be measured: along which directions, clipped where, with how much noise expected."""

    at: Floats  # a column for each class
    directions: Floats
    radius: float
    slope: Floats
    noise: Floats

    def __post_init__(self) -> None:
        set_validated(self, at=exact_weights(self.at), directions=exact_weights(self.directions))

    def vectors(self, features: Floats, targets: Floats, centre: Floats) -> Floats:
        """Return the clipped gradient of each row, class by class. Features are those of `exact_features`."""
        eta = features @ self.at[1:] + (self.at[0] - centre @ self.at[1:])  # proof: step 2
        along = features @ self.directions[1:] + (self.directions[0] - centre @ self.directions[1:])  # proof: step 2
        residual = targets - Softmax().mean(eta)
        length = lengths(along) * lengths(residual)
        residual *= np.minimum(1.0, self.radius / np.maximum(length, _TINY))[:, None]
        return np.asarray((along[:, :, None] * residual[:, None, :]).reshape(len(along), -1))

    def expected(self, weights: Floats, sample: Floats) -> Floats:
        """Return the mean clipped gradient over the sample where `weights` are true: a column for each class."""
        family, along = Softmax(), sample @ self.directions
        base_means = family.mean(sample @ self.at)
        clipped_means = family.mean(sample @ weights) * _clipping(along, base_means, self.radius)
        return np.asarray(
            along.T @ (clipped_means - clipped_means.sum(axis=1, keepdims=True) * base_means) / len(sample)
        )


def _residual_lengths(means: Floats) -> Floats:
    """Return the length of the residual of each row if each of the classes is true."""
    return np.asarray(np.sqrt(np.maximum(1 - 2 * means + (means**2).sum(axis=1, keepdims=True), 0.0)))


def _clipping(along: Floats, means: Floats, radius: float) -> Floats:
    length = np.linalg.norm(along, axis=1)[:, None] * _residual_lengths(means)
    return np.asarray(np.minimum(1.0, radius / np.maximum(length, _TINY)))


def choose_class_measurement(
    weights: Floats, root: Floats, sample: Floats, *, units: int, scale: float, error: float
) -> ClassMeasurement:
    """Return the measurement after which the least loss is expected, for noise of `scale` at clipping threshold 1."""
    means = Softmax().mean(sample @ weights)
    classes = means.shape[1]
    curvature = (sample * (1 - (means**2).sum(axis=1))[:, None]).T @ sample / (len(sample) * classes)
    directions = directions_for(Belief(weights, root), curvature, (units / (scale * _LONGEST)) ** 2 / classes)
    along = sample @ directions
    drawn = (np.random.default_rng(0).random((len(means), 1)) > means.cumsum(axis=1)).sum(axis=1)  # proof: step 4
    of_drawn = np.take_along_axis(_residual_lengths(means), np.minimum(drawn, classes - 1)[:, None], axis=1)[:, 0]
    typical = np.linalg.norm(along, axis=1) * of_drawn
    loss_of = root.T @ curvature @ root
    best: tuple[float, ClassMeasurement] | None = None
    for radius in np.unique(np.quantile(typical, _UNCLIPPED_PARTS)):
        slope, covariance = _slope_and_covariance(along, means, float(radius), sample @ root)
        seen = slope @ slope.T
        noise = covariance / units + error**2 * seen
        noise[np.diag_indices_from(noise)] += (scale * radius / units) ** 2 + _TINY
        half = solve_triangular(cholesky(seen + noise, lower=True), slope, lower=True)
        loss = float(np.trace(loss_of) - np.einsum("ij,jk,ik->", half, loss_of, half))
        if best is None or loss < best[0]:
            best = loss, ClassMeasurement(weights, directions, float(radius), slope, noise)
    assert best is not None
    return best[1]


def _slope_and_covariance(along: Floats, means: Floats, radius: float, turned: Floats) -> tuple[Floats, Floats]:
    """Return the slope of a class's clipped gradient in its weights, and its covariance: means over the classes."""
    factors = _clipping(along, means, radius)
    slope = (means * (1 - means) * factors).mean(axis=1)
    square = (means * (_residual_lengths(means) * factors) ** 2).mean(axis=1)
    return (along * slope[:, None]).T @ turned / len(along), (along * square[:, None]).T @ along / len(along)


def update_classes(
    weights: Floats, root: Floats, measured: Floats, measurement: ClassMeasurement, sample: Floats
) -> tuple[Floats, Floats]:
    """Return the weights and the root of their covariance after a measurement: Gauss-Newton with halved steps.

    A class's slope is the mean one in proportion to its own curvature; what classes share is left to the rounds.
    """
    half = cholesky(measurement.noise, lower=True)
    seen = solve_triangular(half, measurement.slope, lower=True)
    left, sizes, right = np.linalg.svd(seen, full_matrices=False)
    means = Softmax().mean(sample @ measurement.at)
    spread = (means * (1 - means)).mean(axis=0)
    gains = sizes[:, None] * np.clip(spread / spread.mean(), _LEAST_RATIO, _LARGEST_RATIO)
    place = np.zeros_like(weights)

    def look(place: Floats) -> tuple[float, Floats]:
        miss = measured - measurement.expected(weights + root @ place, sample)
        miss = solve_triangular(half, miss, lower=True)
        return float((miss**2).sum() + (place**2).sum()) / 2, miss

    badness, miss = look(place)
    for _ in range(_ROUNDS):
        step = right.T @ ((gains * (left.T @ miss) + gains**2 * (right @ place)) / (1 + gains**2)) - place
        size = 1.0
        moved = look(place + step)
        while moved[0] >= badness and size > _SMALLEST_STEP:
            size /= 2
            moved = look(place + size * step)
        if moved[0] >= badness:
            break
        gained, (badness, miss) = badness - moved[0], moved
        place = place + size * step
        if gained < _ENOUGH * measured.shape[1]:
            break
    inner = seen.T @ seen + np.eye(root.shape[1])
    inverse = solve_triangular(cholesky(inner, lower=True), root.T, lower=True)
    return weights + root @ place, np.asarray(inverse.T)


def _doubt(prior_root: Floats, posterior_root: Floats) -> Floats:
    """Return a root of a covariance between those before and after a step: the curvature moves with the weights."""
    covariance = _DOUBT * prior_root @ prior_root.T + (1 - _DOUBT) * posterior_root @ posterior_root.T
    covariance[np.diag_indices_from(covariance)] *= 1 + _ROUNDING
    return np.asarray(cholesky(covariance, lower=True))


def _gradient_rows(plan: ClassMeasurement, centre: Floats, features: Floats, targets: Floats) -> Floats:
    return plan.vectors(features, targets, centre)


class ClassRun:
    """The steps of one fit of several classes. What it knows is released, public or made of these."""

    def __init__(
        self, private: PrivateSums, noisy: NoisyVectors, points: Floats, together: NDArray[np.int64], *, error: float
    ) -> None:
        self.private, self.noisy, self._together, self._error = private, noisy, together, error
        self.family = Softmax()
        self.points = points
        self.centre = exact_features(points.mean(axis=0))
        sample = points[:: max(1, len(points) // _MOST_POINTS)] - self.centre
        self._sample = np.hstack([np.ones((len(sample), 1)), sample])
        self.directions: list[int] = []
        self.interactions: tuple[Interaction, ...] = ()

    def steps(self, baseline: Floats, shares: Sequence[float], *, later: float) -> list[Belief]:
        """Return the belief about each class after a step for each share of the budget; `later` is not spent."""
        variances = np.ones(self._sample.shape[1])
        variances[0] = _INTERCEPT_VARIANCE
        weights = np.zeros((len(variances), len(baseline)))
        weights[0] = baseline[:, 0]
        root = posterior_root = np.diag(np.sqrt(variances))
        former_weights = prior = weights
        for index, share in enumerate(shares):
            fraction = share / (sum(shares[index:]) + later)
            plan = self._plan(weights, root, fraction)
            gradient, noise = self._measure(plan, fraction)
            if index:
                weights = self._shorten_step(former_weights, weights, gradient, noise, plan)
                former_weights = weights
                weights, posterior_root = update_classes(weights, root, gradient, plan, self._sample)
                root = _doubt(root, posterior_root)
                continue
            for _ in range(_ROUNDS_OF_EVIDENCE):
                weights, root = update_classes(prior, np.diag(np.sqrt(variances)), gradient, plan, self._sample)
                pooled = Belief(np.sqrt((weights**2).mean(axis=1)), root)
                variances = evidence(pooled, variances, self._together, 1.0)
            root = np.diag(np.sqrt(variances))
            weights, posterior_root = update_classes(prior, root, gradient, plan, self._sample)
            root = _doubt(root, posterior_root)
        return [Belief(column, posterior_root) for column in weights.T]

    def _plan(self, weights: Floats, root: Floats, fraction: float) -> ClassMeasurement:
        scale, units = self.private.scale(self.noisy, fraction), self.private.units
        return choose_class_measurement(weights, root, self._sample, units=units, scale=scale, error=self._error)

    def _measure(self, plan: ClassMeasurement, fraction: float) -> tuple[Floats, float]:
        """Return the mean clipped gradient, a column for each class, and its noise."""
        number, classes = plan.directions.shape[1], plan.at.shape[1]
        self.directions.append(number * classes)
        total, noise = self.private.release(
            partial(_gradient_rows, plan, self.centre),  # which travels to where the rows are
            entries=number * classes,
            radius=plan.radius,
            noisy=self.noisy,
            fraction=fraction,
        )
        gradient = total.reshape(number, classes)
        return gradient - gradient.mean(axis=1, keepdims=True), noise  # residuals add up to 0

    def _shorten_step(
        self, former_weights: Floats, weights: Floats, gradient: Floats, noise: float, plan: ClassMeasurement
    ) -> Floats:
        """Take back what the last step went too far, by the gradient at its end."""
        here = plan.expected(plan.at, self._sample)
        foreseen = here - plan.expected(former_weights, self._sample)
        back, square = float(((here - gradient) * foreseen).sum()), float((foreseen**2).sum())
        if back <= _SIGNIFICANT * noise * np.sqrt(square) or square < _TINY:
            return weights
        return former_weights + (weights - former_weights) * max(1 / (1 + back / square), _LEAST_FACTOR)
