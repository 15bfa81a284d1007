"""Where to measure: directions and clipping chosen from public numbers, for the noise at hand.

A linear model is known up to a normal belief: weights w, covariance V. A noisy gradient is measured along directions Q:
u = Q' x times the residual, clipped. The part of the noise that falls on a direction is chosen to leave the least
expected loss: directions whose uncertainty matters less than the noise are not measured at all, and the others are
whitened. A direction that the sample hardly shows has little curvature, so that it is never stretched.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, eigh, solve_triangular

from quorate.core.arrays import Floats
from quorate.core.checks import set_validated
from quorate.models.linear._families import Family
from quorate.models.linear.exact import exact_weights, lengths

_LONGEST = 1.3  # a guess of the clipping threshold in units of the root mean square, to choose directions with
_WRONG_MEANS = 0.02  # the squared error of a made column's mean, in variances, for all of the error of its geometry
_MADE_POWER = 0.5  # of the dispersion, by which directions are chosen where rows are made
_LEAST_SPREAD = 0.01  # the variance of columns below which they are taken for rare, and not stretched further
_ROUNDS, _ENOUGH = 20, 1e-4  # of Gauss-Newton
_NEW_SLOPE = 0.05  # by how much slopes may differ, relatively, from those that a step is taken by


@dataclass(frozen=True)
class Belief:
    """What is known of the weights of one output: their mean, and a root R of their covariance V = R R'."""

    weights: Floats
    root: Floats

    @classmethod
    def before(cls, prior: Floats, variances: Floats) -> "Belief":
        """Return the belief before anything is measured; the first weight is the intercept."""
        return cls(prior, np.diag(np.sqrt(variances)))

    @property
    def variances(self) -> Floats:
        """The variance of each weight."""
        return np.asarray(np.einsum("ij,ij->i", self.root, self.root))


class Seen(Protocol):
    """A noisy gradient that was measured: at which weights, and with how much noise expected."""

    @property
    def at(self) -> Floats:
        """The weights."""

    @property
    def noise(self) -> Floats:
        """The covariance of what was measured, given its expectation over the sample."""

    @property
    def error(self) -> float:
        """How wrong that expectation may be, as a part of what is expected."""

    def along(self, sample: Floats) -> tuple[Floats, Floats]:
        """Return the sample along what was measured, and the largest residual of each row that is not clipped."""


@dataclass(frozen=True)
class Measurement:
    """A gradient to be measured at `at`: along which directions, clipped where, with how much noise expected.

    `at` and `directions` are rounded, so that their products with private rows are exact; what is concluded from the
    measurement uses the rounded ones too.
    """

    at: Floats
    directions: Floats
    radius: float
    noise: Floats  # covariance of what is measured: of the noise, of sampling, of clipping
    error: float = 0.0  # of what is expected, that a wrong geometry may add to it

    def __post_init__(self) -> None:
        set_validated(self, at=exact_weights(self.at), directions=exact_weights(self.directions))

    def vectors(self, features: Floats, targets: Floats, family: Family, centre: Floats | None = None) -> Floats:
        """Return the clipped gradient of each row. Features are those of `exact_features`, within [-1, 1].

        With a `centre`, of `exact_features` too, it is taken from the features, and a 1 for the intercept goes before.
        """
        residual = targets - family.mean(self.predictor(features, centre))
        along = _product(features, _moved(self.directions, centre))
        length = lengths(along) * np.abs(residual)
        along *= (residual * np.minimum(1.0, self.radius / np.maximum(length, 1e-300)))[:, None]
        return along

    def predictor(self, features: Floats, centre: Floats | None = None) -> Floats:
        """Return the linear predictor of each row at the weights where the gradient is measured."""
        return _product(features, _moved(self.at, centre))

    def along(self, sample: Floats) -> tuple[Floats, Floats]:
        """Return the sample along the directions, and the largest residual of each row that is not clipped."""
        along = sample @ self.directions
        length = np.sqrt(np.einsum("ij,ij->i", along, along))
        return along, self.radius / np.maximum(length, 1e-300)

    def widen(self, columns: int) -> "Measurement":
        """Return the same measurement among more columns, which it left out."""
        nothing = np.zeros((columns, self.directions.shape[1]))
        at, directions = np.append(self.at, np.zeros(columns)), np.vstack([self.directions, nothing])
        return Measurement(at, directions, self.radius, self.noise, self.error)

    def expected(self, weights: Floats, sample: Floats, family: Family) -> Floats:
        """Return the mean clipped gradient over the sample where `weights` are true."""
        along, t = self.along(sample)
        value, _ = family.clipped(sample @ weights, sample @ self.at, t)
        return np.asarray(along.T @ value / len(sample))


def _moved(weights: Floats, centre: Floats | None) -> tuple[Floats, Any]:
    """Return weights of features as they come, and what is added to their products."""
    return (weights, 0.0) if centre is None else (weights[1:], weights[0] - centre @ weights[1:])  # proof: step 2


def _product(features: Floats, weights: tuple[Floats, Any]) -> Floats:
    product: Floats = features @ weights[0]  # proof: step 2
    product += weights[1]
    return product


def directions_for(belief: Belief, curvature: Floats, signal: float) -> Floats:
    """Return the directions of least expected loss: `signal` is (units / noise scale)^2 at clipping threshold 1."""
    gain, turn = eigh(belief.root.T @ curvature @ belief.root)
    gain, turn = np.maximum(gain[::-1], 1e-15), turn[:, ::-1]
    level = (signal + np.cumsum(1 / gain)) / np.arange(1, len(gain) + 1)
    number = int(np.flatnonzero(level * gain > 1).max()) + 1
    weight = (level[number - 1] * gain[:number] - 1) / (gain[:number] ** 2 * signal)
    return np.asarray((belief.root @ turn[:, :number]) * np.sqrt(np.maximum(weight, 0.0)))


def choose_measurement(
    belief: Belief, sample: Floats, family: Family, *, units: int, scale: float, error: float, is_made: bool = False
) -> Measurement:
    """Return the measurement after which the least loss is expected, for noise of `scale` at clipping threshold 1.

    `error` is how wrong the geometry of the sample may be, as a part of what is measured; rows may be made ones.
    """
    eta = sample @ belief.weights
    # Residuals of this variance, for a slope of 1, are clipped and hidden by noise in proportion to their size. Made
    # rows may be wrong about directions of little variance: where all these were measured, steps diverged.
    square, slope = family.square(eta, np.full_like(eta, np.inf)), family.slope(eta)
    dispersion = float(square.mean() / slope.mean()) ** (_MADE_POWER if is_made else 1.0)
    curvature = (sample * slope[:, None]).T @ sample / len(sample)
    directions = directions_for(belief, curvature, (units / (scale * _LONGEST)) ** 2 / dispersion)
    along = sample @ directions
    length = np.maximum(np.sqrt(np.einsum("ij,ij->i", along, along)), 1e-300)
    typical = length * family.typical(eta, np.random.default_rng(0).random(len(eta)))  # proof: step 4: nothing private
    loss_of = belief.root.T @ curvature @ belief.root
    best: tuple[float, Measurement] | None = None
    for radius in np.unique(np.quantile(typical, family.parts)):
        if radius <= 0:
            continue
        value, slope = family.clipped(eta, eta, radius / length)
        seen = (along * slope[:, None]).T @ sample / len(sample) @ belief.root
        spread = (along * family.square(eta, radius / length)[:, None]).T @ along / len(sample)
        known = seen @ seen.T
        noise = spread / units + _taken_off(along, value, error)
        noise[np.diag_indices_from(noise)] += (scale * radius / units) ** 2
        half = solve_triangular(cholesky((1 + error**2) * known + noise, lower=True), seen, lower=True)
        loss = float(np.trace(loss_of) - np.einsum("ij,jk,ik->", half, loss_of, half))
        if best is None or loss < best[0]:
            best = loss, Measurement(belief.weights, directions, float(radius), noise, error)
    assert best is not None
    return best[1]


def _taken_off(along: Floats, value: Floats, error: float) -> Floats:
    """Return how unsure it is what clipping takes off the gradient on average: the sample says it, as it says a mean.

    Where few are clipped that is little. A geometry that is wrong by `error` has means that are wrong too.
    """
    off = along * value[:, None]
    off -= off.mean(axis=0)
    return np.asarray(off.T @ off / len(off) * (1 / len(off) + error**2 * _WRONG_MEANS))


def update(belief: Belief, measured: Floats, measurement: "Seen", sample: Floats, family: Family) -> Belief:
    """Return the belief after a measurement: the most probable weights, by Gauss-Newton with halved steps."""
    along, t = measurement.along(sample)
    start, at = sample @ belief.weights, sample @ measurement.at
    place = np.zeros(sample.shape[1])  # weights = belief.weights + root @ place
    _, slope = family.clipped(start, at, t)
    expected = (along * slope[:, None]).T @ sample @ belief.root / len(sample)
    # A wrong geometry is wrong by a part of what is believed now, not of what was when the measurement was chosen.
    half = cholesky(measurement.noise + measurement.error**2 * expected @ expected.T, lower=True)
    target = solve_triangular(half, measured, lower=True)

    def whiten(vectors: Floats) -> Floats:
        return np.asarray(solve_triangular(half, vectors, lower=True))

    def look(place: Floats) -> tuple[float, Floats, Floats]:
        value, slope = family.clipped(start + sample @ (belief.root @ place), at, t)
        miss = target - whiten(along.T @ value / len(sample))
        return float(miss @ miss + place @ place) / 2, miss, slope

    seen, used = whiten(expected), slope
    badness, miss, slope = look(place)
    for _ in range(_ROUNDS):
        if np.abs(slope - used).mean() > _NEW_SLOPE * used.mean():
            seen, used = whiten((along * slope[:, None]).T @ sample @ belief.root / len(sample)), slope
        step = np.linalg.solve(seen.T @ seen + np.eye(len(place)), seen.T @ miss - place)
        size = 1.0
        moved = look(place + step)
        while moved[0] >= badness and size > 1e-3:
            size /= 2
            moved = look(place + size * step)
        if moved[0] >= badness:
            break
        gained, (badness, miss, slope) = badness - moved[0], moved
        place = place + size * step
        if gained < _ENOUGH:
            break
    if used is not slope:
        seen = whiten((along * slope[:, None]).T @ sample @ belief.root / len(sample))
    inverse = solve_triangular(cholesky(seen.T @ seen + np.eye(len(place)), lower=True), belief.root.T, lower=True)
    return Belief(belief.weights + belief.root @ place, np.asarray(inverse.T))


def relative_variances(sample: Floats, together: NDArray[np.int64]) -> Floats:
    """Return how large the variances of weights are, relative to each other, before anything is measured.

    Every straight line, and the curve or the levels of every column, may move linear predictors as much, however many
    cuts or categories there are. Those are shrunk together; straight lines have 0 there.
    """
    spread = sample.var(axis=0)
    every = np.where(together == 0, spread, np.bincount(together, weights=spread)[together])
    return np.asarray(1 / np.maximum(every, _LEAST_SPREAD))


def evidence(
    belief: Belief, variances: Floats, together: NDArray[np.int64], usual: float, relative: Floats | float = 1.0
) -> Floats:
    """Return variances for the weights that are shrunk together that make what was measured more probable.

    Empirical Bayes by MacKay's fixed point: squares divided by the number of weights that were really measured. Every
    number of `together` but 0 is pulled a little towards what they have in common, and that towards the `usual` one.
    Variances are those of weights that are shrunk together in proportion to `relative`. The intercept keeps its own.
    """
    size = int(together.max()) + 1
    measured = np.clip(1 - belief.variances[1:] / variances[1:], 0.0, 1.0)
    squares = np.bincount(together, weights=belief.weights[1:] ** 2 / relative, minlength=size)
    number = np.bincount(together, weights=measured, minlength=size)
    common = (squares[1:].sum() + usual) / (number[1:].sum() + 1)
    level = (squares + np.where(np.arange(size) == 0, usual, common)) / (number + 1)
    return np.concatenate([variances[:1], level[together] * relative])
