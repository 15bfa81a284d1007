"""The fit: a few noisy sums, each measured where the sums before it say that it tells most. PROOF.md.

means of the columns and targets -> do the public rows look like the private ones? -> public or made rows
then, step by step: a belief about the weights -> a measurement -> a noisy clipped gradient -> a better belief
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.mechanisms import NoisyVectors
from quorate.models.linear.calibration import CALIBRATION_ENTRIES, calibration
from quorate.models.linear.exact import exact_features, exact_weights
from quorate.models.linear.families import Bernoulli, Family, Gaussian
from quorate.models.linear.geometry import Belief, Measurement, choose_measurement, evidence, update
from quorate.models.linear.sample import Around, Shares, shift
from quorate.models.linear.sums import PrivateSums

_MEANS, _ONLY_MEANS = 0.03, 0.1  # of the budget, for the means: with public rows, and without any
_TARGETS_BUDGET_FRACTION = 0.02  # for the means of the targets alone, where those of the columns are known
_AS_EXACT = 0.6  # of the noise of means that are measured now: above it, means of an earlier release are not used
_PUBLIC_STEPS = (0.1, 0.2, 0.3, 0.4)  # parts of the rest, where public rows give the geometry
_PUBLIC_ERROR = (
    0.25  # of what is measured, that it may be wrong by: rows with the right means need not be the right ones
)
_MADE_STEPS = (1 / 6,) * 6  # where made rows do, and each step mends what the geometry of the one before got wrong
_MADE_ERROR = 0.5  # of what is measured, that a geometry of made rows may be wrong by
_LAST = 0.08  # of what the steps take, for a calibration of scores that were found by made rows
_LARGEST_SHIFT = 0.25  # in standard deviations, up to which public rows stand for private ones
_MOST_FAR = 0.1  # of private rows, beyond where nearly all public rows are
_SIGNIFICANT = 4.0  # standard deviations of the noise
_INTERCEPT = 9.0  # variance
_ROUNDS_OF_EVIDENCE = 5
_JOINT = 0.7  # the clipping threshold of several outputs together, of what each of them at its own would make


@dataclass(frozen=True)
class Problem:
    """What is fitted: outputs of one family, the blocks of the columns, and what values each block may take."""

    family: Family
    outputs: int
    atoms: Sequence[Floats]
    together: NDArray[np.int64]  # which columns are shrunk together
    start: float  # a mean of the targets, until they are measured
    variance: float = 1.0  # of a weight, before anything is known
    shares: tuple[Floats, float] | None = None  # released before: mean shares of the blocks, and their noise


@dataclass(frozen=True)
class Fitted:
    """Weights, one row an output, the intercept first; and what was found on the way, all of it released."""

    weights: Floats
    deviations: Floats  # standard deviations of the weights, as far as the noise goes
    covariances: Floats  # of the weights of each output, without the intercept
    centre: Floats  # where the columns lie on average
    family: Family
    shift: float | None
    public_used: bool
    steps: int
    directions: list[int]


def entries_of(problem: Problem) -> int:
    """Return the largest number of entries that the releases of a fit may have together."""
    width = 1 + sum(int(values.shape[1]) for values in problem.atoms)
    return (len(_MADE_STEPS) + 3) * problem.outputs * (width + 2) + CALIBRATION_ENTRIES


def fit(problem: Problem, private: PrivateSums, public: Floats | None, noisy: NoisyVectors) -> Fitted:
    """Return the fitted weights. Everything that `noisy` can pay for is released."""
    means = _measure_means(problem, private, public, noisy)
    moved = None if public is None else shift(public, means.columns, means.deviations)
    usable = moved is not None and moved <= _LARGEST_SHIFT and means.far <= _MOST_FAR + _SIGNIFICANT * means.noise
    if public is not None and not usable:  # clipped around wrong rows, the means are wrong too: once more, without them
        means = _measure_means(problem, private, None, noisy)
        moved = shift(public, means.columns, means.deviations)
    steps, error = (_PUBLIC_STEPS, _PUBLIC_ERROR) if usable else (_MADE_STEPS, _MADE_ERROR)
    run = _Run(problem, private, noisy, family=means.family, points=means.points)
    last = not usable and problem.outputs == 1 and isinstance(means.family, Bernoulli)
    beliefs = run.steps(means.intercepts, (*steps, _LAST * sum(steps)) if last else steps, error, len(steps))
    weights = np.array([belief.weights for belief in beliefs])
    weights[:, 0] -= weights[:, 1:] @ run.centre
    deviations = np.sqrt(np.array([belief.variances for belief in beliefs]))
    covariances = np.array([belief.root[1:] @ belief.root[1:].T for belief in beliefs])
    if last:
        base, slopes = weights[0, 0], exact_weights(weights[0, 1:])
        off, factor = calibration(lambda rows: base + rows @ slopes, private, noisy, 1.0)  # proof: step 2
        weights, deviations, covariances = weights * factor, deviations * factor, covariances * factor**2
        weights[:, 0] += off
    found = (run.family, moved, usable, len(steps), run.directions)
    return Fitted(weights, deviations, covariances, run.centre, *found)


def _with_ones(rows: Floats) -> Floats:
    return np.hstack([np.ones((len(rows), 1)), rows])


@dataclass(frozen=True)
class _Means:
    """What the first release says: means of the columns, how far they may be off, how many rows lie beyond, targets.

    `points` are the rows that stand for the private ones: public rows, or made ones.
    """

    columns: Floats
    deviations: Floats
    far: float
    noise: float
    points: Floats
    family: Family
    intercepts: list[float]


def _known_means(
    problem: Problem, private: PrivateSums, around: Shares | Around, noisy: NoisyVectors
) -> tuple[Floats, float] | None:
    """Return means that were released before, unless measuring them again would be much more exact."""
    if problem.shares is None:
        return None
    again = private.scale(noisy, _ONLY_MEANS) * around.radius / private.units
    return around.measured(*problem.shares) if problem.shares[1] <= _AS_EXACT * again else None


def _measure_means(problem: Problem, private: PrivateSums, public: Floats | None, noisy: NoisyVectors) -> _Means:
    """Return the means of the columns and targets of private rows, clipped around public ones if there are any."""
    around = Shares(problem.atoms) if public is None else Around(public)
    known = None if public is not None else _known_means(problem, private, around, noisy)
    farthest = max(problem.start, 1 - problem.start)  # of a target, which lies in [0, 1], from where it starts
    of_targets = problem.outputs * (farthest**2 + farthest**4)
    radius = float(np.sqrt(of_targets + (around.radius**2 if known is None else 0.0)))

    def vectors(features: Floats, targets: Floats) -> Floats:
        off = targets - problem.start
        return np.hstack([*([around.of(features)] if known is None else []), off, off**2])

    width = around.entries if known is None else 0
    fraction = _TARGETS_BUDGET_FRACTION if known is not None else _ONLY_MEANS if public is None else _MEANS
    mean, noise = private.release(
        vectors, entries=width + 2 * problem.outputs, radius=radius, noisy=noisy, fraction=fraction
    )
    seen, offs, squares = np.split(mean, [width, width + problem.outputs])
    family = problem.family
    if isinstance(family, Gaussian):
        family = Gaussian(float(np.sqrt(np.maximum(squares - offs**2, noise).mean())))
    intercepts = [family.link(problem.start + float(off)) for off in offs]
    if known is not None:
        seen, noise = known  # released with the schema: post-processing
    columns, deviations, far = around.means(seen, noise)
    return _Means(columns, deviations, far, noise, around.rows(seen, noise), family, intercepts)


class _Run:
    """The steps of one fit. What it knows is released, public or made of these."""

    def __init__(
        self, problem: Problem, private: PrivateSums, noisy: NoisyVectors, *, family: Family, points: Floats
    ) -> None:
        self.problem, self.private, self.noisy, self.family = problem, private, noisy, family
        self.centre = exact_features(points.mean(axis=0))
        self.sample = _with_ones(points - self.centre)
        self.whole = family.spread if isinstance(family, Gaussian) else 1.0
        self.directions: list[int] = []

    def steps(self, intercepts: Sequence[float], shares: Sequence[float], error: float, number: int) -> list[Belief]:
        """Return the belief about each output after so many steps; shares beyond them are left for later."""
        beliefs = [Belief.before(intercept, self._usual()) for intercept in intercepts]
        history: list[list[tuple[Floats, Measurement]]] = [[] for _ in intercepts]
        for index in range(number):
            fraction = shares[index] / sum(shares[index:]) if index < len(shares) - 1 else 1.0
            plans = self._plans(beliefs, fraction, error)
            for seen, measured, plan in zip(history, self._measure(plans, fraction), plans, strict=True):
                seen.append((measured, plan))
            if index and error:
                beliefs = [self._learn(belief, seen[-1:]) for belief, seen in zip(beliefs, history, strict=True)]
            else:
                beliefs = [self._with_evidence(*each) for each in zip(intercepts, history, strict=True)]
            if isinstance(self.family, Gaussian):
                self.family = Gaussian(self._left(beliefs))
        return beliefs

    def _left(self, beliefs: Sequence[Belief]) -> float:
        """Return the spread that the weights leave unexplained: never below a tenth of the whole."""
        explained = np.mean([np.var(self.sample @ belief.weights) for belief in beliefs])
        return float(np.sqrt(max(self.whole**2 - explained, (self.whole / 10) ** 2)))

    def _plans(self, beliefs: Sequence[Belief], fraction: float, error: float) -> list[Measurement]:
        """Return what is to be measured of each output."""
        self.radius = 1.0 if len(beliefs) == 1 else _JOINT * float(np.sqrt(len(beliefs)))
        scale = self.private.scale(self.noisy, fraction) * self.radius
        units = self.private.units
        return [
            choose_measurement(belief, self.sample, self.family, units=units, scale=scale, error=error)
            for belief in beliefs
        ]

    def _measure(self, plans: Sequence[Measurement], fraction: float) -> list[Floats]:
        """Return the mean clipped gradient of each output, with noise: one release for all of them."""
        sizes = [plan.directions.shape[1] for plan in plans]
        units = [plan.radius if len(plans) > 1 else 1.0 for plan in plans]  # several outputs share one length
        radius = self.radius if len(plans) > 1 else plans[0].radius
        self.directions.append(sum(sizes))

        def vectors(features: Floats, targets: Floats) -> Floats:
            parts = [
                plan.vectors(features, targets[:, output], self.family, self.centre)
                for output, plan in enumerate(plans)
            ]
            return parts[0] if len(parts) == 1 else np.hstack([p / unit for p, unit in zip(parts, units, strict=True)])

        total, _ = self.private.release(vectors, entries=sum(sizes), radius=radius, noisy=self.noisy, fraction=fraction)
        means = np.split(total, np.cumsum(sizes)[:-1])
        return [mean * unit for mean, unit in zip(means, units, strict=True)]

    def _learn(self, belief: Belief, seen: Sequence[tuple[Floats, Measurement]]) -> Belief:
        """Return the belief after these measurements, one after another."""
        for measured, plan in seen:
            belief = update(belief, measured, plan, self.sample, self.family)
        return belief

    def _with_evidence(self, intercept: float, seen: Sequence[tuple[Floats, Measurement]]) -> Belief:
        """Return the belief after all measurements, with the variances of the blocks that they make most probable."""
        variances = self._usual()
        for _ in range(_ROUNDS_OF_EVIDENCE):
            learned = self._learn(Belief.before(intercept, variances), seen)
            variances = evidence(learned, variances, self.problem.together, self.problem.variance)
        return self._learn(Belief.before(intercept, variances), seen)

    def _usual(self) -> Floats:
        """Return the variance of each weight before anything is measured."""
        variances = np.full(self.sample.shape[1], self.problem.variance)
        variances[0] = _INTERCEPT * self.problem.variance
        return variances
