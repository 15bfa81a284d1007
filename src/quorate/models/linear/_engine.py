"""The fit: a few noisy sums, each measured where the sums before it say that it tells most. PROOF.md.

means of the columns and targets -> do the public rows look like the private ones? -> public or made rows
then, step by step: a belief about the weights -> a measurement -> a noisy clipped gradient -> a better belief
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from quorate.core.arrays import Floats
from quorate.core.mechanisms import NoisyVectors
from quorate.models.linear._calibration import (
    CALIBRATION_ENTRIES,
    calibration,
    class_calibration,
    is_better,
    newton_calibration,
)
from quorate.models.linear._factors import draw_rows, moment_entries, moment_fraction
from quorate.models.linear._families import MEAN_DISTANCE, USUAL_MISS, Bernoulli, Family, Gaussian, Poisson, Softmax
from quorate.models.linear._geometry import (
    Belief,
    Measurement,
    choose_measurement,
    evidence,
    relative_variances,
    update,
)
from quorate.models.linear._pairs import PAIR_ENTRIES, CellMeasurement, PairPlan, find_pairs, plan_pairs
from quorate.models.linear._sample import Around, Shares, shift
from quorate.models.linear._softmax import ClassRun
from quorate.models.linear._sums import PrivateSums
from quorate.models.linear.exact import clip_rows, exact_features, exact_weights
from quorate.tables.features.combined import Interaction, Side

_MEANS, _ONLY_MEANS = 0.03, 0.1  # of the budget, for the means: with public rows, and without any
_TARGETS_BUDGET_FRACTION = 0.02  # for the means of the targets alone, where those of the columns are known
_SPREAD_BUDGET_FRACTION = 0.02  # for the mean distance of the targets from their mean
_MOST_PAIRS_FOR_DELTA = 1e12  # entries of a second moment for a delta of 1
_MISS_WEIGHT = 0.3  # of the length of a gradient: how much of a release tells how far targets are from their means
_SPREAD_DRIFT = 0.2  # by how much, relatively, a step may change the spread of residuals
_MOST_SPREAD_CHANGE = 3.0  # in one step
_TARGET_WEIGHT = 0.5  # of the length of columns: how much of the first release tells the means of the targets
_AS_EXACT = 0.6  # of the noise of means that are measured now: above it, means of an earlier release are not used
_PUBLIC_STEPS = (0.1, 0.2, 0.3, 0.4)  # parts of the rest, where public rows give the geometry
_PUBLIC_ERROR = (
    0.25  # of what is measured, that it may be wrong by: rows with the right means need not be the right ones
)
_MADE_STEPS = (1 / 6,) * 6  # where made rows do, and each step mends what the geometry of the one before got wrong
_MADE_ERROR = 0.5  # of what is measured, that a geometry of made rows may be wrong by, if residuals have a known law
_UNSURE_ERROR = 0.3  # the same where their spread is measured, and the variances of the weights at every step
_CALIBRATION = 0.08  # of what the steps take, for a calibration of scores that were found by made rows
_COMPARISON = 0.03  # of what the steps take, for the comparison with the constant or the offset
_OFFSET_DOUBT = 0.7  # the standard deviation of the factor of an offset, which is 1 before anything is known
_FARTHEST_SHIFT, _HALVINGS = 20.0, 50  # of an offset, for the mean of the targets
_LARGEST_SHIFT = 0.25  # in standard deviations, up to which public rows stand for private ones
_MOST_FAR = 0.1  # of private rows, beyond where nearly all public rows are
_SIGNIFICANT = 4.0  # standard deviations of the noise
_STEPS_BEFORE_PAIRS = 2
_MOST_CURVATURE = 20.0  # more than that of the sample, that one gradient can show
_INTERCEPT = 9.0  # variance
_TINY = 1e-300
_ROUNDS_OF_EVIDENCE, _MORE_ROUNDS = 5, 2
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
    sides: Callable[..., list[Side]] | None = None  # of columns of which pairs are tried, given the means of features
    offset: Floats | None = None  # the weights that make log odds known before of the columns, the intercept first


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
    constant: bool  # whether the weights were no better than the mean or the offset, which is then all that is kept
    interactions: tuple[Interaction, ...] = ()  # whose products stand after the columns


def entries_of(problem: Problem, delta: float = 1.0) -> int:
    """Return the largest number of entries that the releases of a fit may have together.

    A second moment is among them where its many entries take a small part of `delta`.
    """
    pairs = moment_entries(len(problem.atoms))
    return _entries_without_pairs(problem) + (pairs if pairs <= _MOST_PAIRS_FOR_DELTA * delta else 0)


def _entries_without_pairs(problem: Problem) -> int:
    width = 1 + _width_of(problem)
    return (len(_MADE_STEPS) + 3) * problem.outputs * (width + 3) + CALIBRATION_ENTRIES + PAIR_ENTRIES


def _width_of(problem: Problem) -> int:
    return sum(int(values.shape[1]) for values in problem.atoms)


def fit(problem: Problem, private: PrivateSums, public: Floats | None, noisy: NoisyVectors) -> Fitted:
    """Return the fitted weights. Everything that `noisy` can pay for is released."""
    means, moved, usable = _compare_public(problem, private, public, noisy)
    run = _start_run(problem, private, means, public if usable else None, noisy)
    baseline = _baseline(problem, means, run.points)
    # Clipping takes more off large counts than off small ones, so that sums of those would calibrate wrongly.
    in_classes = isinstance(means.family, Softmax)
    calibrated = in_classes or (not usable and problem.outputs == 1 and not isinstance(means.family, Poisson))
    later = (_CALIBRATION * calibrated, _COMPARISON)
    shares = _PUBLIC_STEPS if usable else _MADE_STEPS
    beliefs = run.steps(baseline, shares, later=sum(later))
    private = run.private  # with the pairs that were found
    weights, deviations, covariances = _weights_of(beliefs, run.centre)
    if calibrated:
        off, factor = _calibrate(run, weights, fraction=later[0] / sum(later))
        weights, deviations, covariances = weights * factor, deviations * factor, covariances * factor**2
        weights[:, 0] += off
    baseline = np.pad(baseline, ((0, 0), (0, weights.shape[1] - baseline.shape[1])))
    constant = not is_better(weights, baseline, run.points, run.family, private=private, noisy=noisy)
    if constant:
        weights, deviations[:, 1:], covariances = baseline, 0.0, 0 * covariances
    found = (run.family, moved, usable, len(shares), run.directions, constant)
    return Fitted(weights, deviations, covariances, run.centre, *found, run.interactions)


def _baseline(problem: Problem, means: "_Means", points: Floats) -> Floats:
    """Return the weights of the model before any correction: the mean of each output, or the offset with that mean."""
    baseline = np.zeros((problem.outputs, 1 + _width_of(problem)))
    baseline[:, 0] = means.intercepts
    if problem.offset is not None:
        log_odds = problem.offset[0] + points @ problem.offset[1:]
        mean = float(means.family.mean(baseline[:, 0])[0])
        low, high = -_FARTHEST_SHIFT, _FARTHEST_SHIFT
        for _ in range(_HALVINGS):
            shift = (low + high) / 2
            low, high = (shift, high) if means.family.mean(log_odds + shift).mean() < mean else (low, shift)
        baseline[0] = problem.offset
        baseline[0, 0] += shift
    return baseline


def _start_run(
    problem: Problem, private: PrivateSums, means: "_Means", public: Floats | None, noisy: NoisyVectors
) -> "_Run | ClassRun":
    """Return the run by public rows, or by made ones where no public rows stand for private ones."""
    if isinstance(means.family, Softmax):
        points = _made_rows(problem, means, private, noisy) if public is None else public
        error = _MADE_ERROR if public is None else _PUBLIC_ERROR
        return ClassRun(private, noisy, points, problem.together, error=error)
    if public is not None:
        return _Run(problem, private, noisy, means=means, points=public, error=_PUBLIC_ERROR, relearn=False)
    is_logistic = isinstance(means.family, Bernoulli)
    points = _made_rows(problem, means, private, noisy)
    error = _MADE_ERROR if is_logistic else _UNSURE_ERROR
    return _Run(problem, private, noisy, means=means, points=points, error=error, relearn=not is_logistic)


def _weights_of(beliefs: Sequence[Belief], centre: Floats) -> tuple[Floats, Floats, Floats]:
    """Return weights of rows that are not centred, their standard deviations, and the covariances of the slopes."""
    weights = np.array([belief.weights for belief in beliefs])
    weights[:, 0] -= weights[:, 1:] @ centre
    deviations = np.sqrt(np.array([belief.variances for belief in beliefs]))
    return weights, deviations, np.array([belief.root[1:] @ belief.root[1:].T for belief in beliefs])


def _compare_public(
    problem: Problem, private: PrivateSums, public: Floats | None, noisy: NoisyVectors
) -> tuple["_Means", float | None, bool]:
    """Return the means, how far public rows are from them, and whether public rows stand for private ones."""
    means = _measure_means(problem, private, public, noisy)
    if public is None:
        return means, None, False
    moved = shift(public, means.columns, means.deviations)
    if moved <= _LARGEST_SHIFT and means.far <= _MOST_FAR + _SIGNIFICANT * means.noise:
        return means, moved, True
    # Clipped around wrong rows, the means are wrong too: they are measured once more, without these.
    means = _measure_means(problem, private, None, noisy)
    return means, shift(public, means.columns, means.deviations), False


def _made_rows(problem: Problem, means: "_Means", private: PrivateSums, noisy: NoisyVectors) -> Floats:
    """Return made rows, with what columns share where a second moment can show it."""
    shares = Shares(problem.atoms)
    fraction = moment_fraction(private, noisy, shares.numbers) if _has_room(problem, noisy, shares.numbers) else 0.0
    return draw_rows(shares, means.shares, means.noise, private, noisy, fraction=fraction)


def _has_room(problem: Problem, noisy: NoisyVectors, scores: int) -> bool:
    """Return whether enough entries are left for a second moment beside the releases that follow it."""
    width = 1 + _width_of(problem)
    following = (len(_MADE_STEPS) + 1) * problem.outputs * (width + 3) + CALIBRATION_ENTRIES
    return noisy.entries >= following + moment_entries(scores)


def _calibrate(run: "_Run | ClassRun", weights: Floats, *, fraction: float) -> tuple[float, float]:
    """Return the shift and the factor of the linear predictors of one output or of all classes, by private rows."""
    base, slopes = weights[:, 0], exact_weights(weights[:, 1:].T)

    def scores(rows: Floats) -> Floats:
        return np.asarray(base + rows @ slopes)  # proof: step 2

    def score(rows: Floats) -> Floats:
        return scores(rows)[:, 0]

    if isinstance(run.family, Softmax):
        return 0.0, class_calibration(scores, scores(run.points), run.private, run.noisy, fraction=fraction)
    if isinstance(run.family, Bernoulli):
        return calibration(score, run.private, run.noisy, fraction)
    return newton_calibration(score, score(run.points), run.family, run.private, run.noisy, fraction=fraction)


def _with_ones(rows: Floats) -> Floats:
    return np.hstack([np.ones((len(rows), 1)), rows])


@dataclass(frozen=True)
class _Means:
    """What the first release says: means of the columns, how far they may be off, how many rows lie beyond, targets.

    `shares` are those of the blocks, less their middles, where there are no public rows.
    """

    columns: Floats
    deviations: Floats
    far: float
    noise: float
    shares: Floats
    family: Family
    spread_doubt: float  # the relative variance of the residuals' spread
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
    weight = 1.0 if known is not None else _TARGET_WEIGHT * around.radius / (farthest * np.sqrt(problem.outputs))
    of_targets = weight * farthest * np.sqrt(problem.outputs)
    radius = float(np.hypot(of_targets, around.radius if known is None else 0.0))

    def vectors(features: Floats, targets: Floats) -> Floats:
        off = weight * (targets - problem.start)
        return off if known is not None else np.hstack([around.of(features), off])

    width = around.entries if known is None else 0
    fraction = _TARGETS_BUDGET_FRACTION if known is not None else _ONLY_MEANS if public is None else _MEANS
    mean, noise = private.release(
        vectors, entries=width + problem.outputs, radius=radius, noisy=noisy, fraction=fraction
    )
    seen, offs = mean[:width], mean[width:] / weight
    family, doubt = problem.family, 1.0
    if isinstance(family, Gaussian):
        spread, doubt = _measure_spread(private, problem.start + float(offs[0]), noisy)
        family = Gaussian(spread)
    intercepts = [family.link(problem.start + float(off)) for off in offs]
    if known is not None:
        seen, noise = known  # released with the schema: post-processing
    columns, deviations, far = around.means(seen, noise)
    return _Means(columns, deviations, far, noise, seen, family, doubt, intercepts)


def _measure_spread(private: PrivateSums, middle: float, noisy: NoisyVectors) -> tuple[float, float]:
    """Return the standard deviation of normal targets as far from the middle, on average, and its relative variance."""
    middle = min(max(middle, 0.0), 1.0)
    mean, noise = private.release(
        lambda _, targets: np.abs(targets - middle),
        entries=1,
        radius=max(middle, 1 - middle),
        noisy=noisy,
        fraction=_SPREAD_BUDGET_FRACTION,
    )
    distance = float(max(mean[0], noise))
    return distance / MEAN_DISTANCE, (noise / distance) ** 2


_History = list[tuple[Floats, Measurement | CellMeasurement]]  # what was measured, and how


@dataclass
class _Output:
    """What is known of one output: the belief about its weights, and all that was measured of them."""

    prior: Floats
    variances: Floats
    belief: Belief
    seen: _History
    start: Floats | None = None  # the weights before the last step; None where the next is not one on from there

    @classmethod
    def before(cls, prior: Floats, variances: Floats) -> "_Output":
        """Return what is known before anything is measured."""
        return cls(prior, variances, Belief.before(prior, variances), [])


class _Run:
    """The steps of one fit. What it knows is released, public or made of these."""

    def __init__(
        self,
        problem: Problem,
        private: PrivateSums,
        noisy: NoisyVectors,
        *,
        means: "_Means",
        points: Floats,
        error: float,
        relearn: bool,
    ) -> None:
        family = means.family
        self.error = error  # of what is measured, that the geometry of the points may be wrong by
        self.relearn = relearn  # the variances of the weights after every step, and not after the first alone
        self.problem, self.private, self.noisy, self.family = problem, private, noisy, family
        self.points, self.centre = points, exact_features(points.mean(axis=0))
        self.sample = _with_ones(points - self.centre)
        self.miss_weight = 0.0 if isinstance(family, Bernoulli) else _MISS_WEIGHT  # whose law needs no measuring
        self.spread_doubt = means.spread_doubt
        self.directions: list[int] = []
        self.together = problem.together
        self.interactions: tuple[Interaction, ...] = ()
        # Of many columns each one's part is small: a wider prior would spend the first step on far too many directions.
        self.relative = relative_variances(self.sample[:, 1:], self.together)
        spread = float(self.sample[:, 1:].var(axis=0) @ self.relative)
        self.variance = min(problem.variance, family.signal / max(spread, _TINY))
        self.is_made = error != _PUBLIC_ERROR
        self.known: Floats | None = None  # the standard deviation of each weight of the offset

    def steps(self, baseline: Floats, shares: Sequence[float], *, later: float) -> list[Belief]:
        """Return the belief about each output after a step for each share of the budget; `later` is not spent.

        `baseline` has the weights that are believed before anything is measured, a row for each output.
        """
        pairs = self._plan_pairs(len(baseline))
        unspent = later + (pairs.fraction if pairs else 0.0)
        self.known = _OFFSET_DOUBT * np.abs(baseline[0]) if self.problem.offset is not None else None
        priors = [np.append(row[0] + row[1:] @ self.centre, row[1:]) for row in baseline]
        outputs = [_Output.before(prior, self._usual()) for prior in priors]
        for index, share in enumerate(shares):
            if pairs and index == _STEPS_BEFORE_PAIRS:
                unspent = later
                self._add_pairs(outputs[0], pairs, pairs.fraction / (sum(shares[index:]) + later + pairs.fraction))
            self._step(outputs, share / (sum(shares[index:]) + unspent))
        return [output.belief for output in outputs]

    def _step(self, outputs: "Sequence[_Output]", fraction: float) -> None:
        """Measure a gradient of each output and learn from it."""
        plans = self._plan([output.belief for output in outputs], fraction)
        gradients, noises, miss = self._measure(plans, fraction)
        for output, gradient, noise, plan in zip(outputs, gradients, noises, plans, strict=True):
            self._shorten_step(output, gradient, noise, plan)
        for output, gradient, plan in zip(outputs, gradients, plans, strict=True):
            output.start = output.belief.weights
            output.seen.append((gradient, plan))
            self._learn(output)
        if self.miss_weight:
            self._learn_spread(*miss)

    def _plan_pairs(self, outputs: int) -> PairPlan | None:
        """Return how pairs of columns are looked for, by public numbers alone.

        Not for labels of made rows: these seldom have the right products, and labels gain little from them.
        """
        if outputs > 1 or self.problem.sides is None or (self.is_made and isinstance(self.family, Bernoulli)):
            return None
        return plan_pairs(len(self._sides(1)), self.private, self.noisy)

    def _sides(self, pieces: int) -> list[Side]:
        """Return the columns of which pairs are tried. How categories go together, made rows do not know."""
        assert self.problem.sides is not None
        return self.problem.sides(self.points.mean(axis=0), pieces, numbers_alone=self.is_made)

    def _add_pairs(self, output: "_Output", plan: PairPlan, fraction: float) -> None:
        """Add the products of pairs that interact to the columns, and learn from what was measured of them."""
        found = find_pairs(
            self._sides,
            output.belief,
            self.sample,
            self.points,
            self.family,
            plan=plan,
            private=self.private,
            noisy=self.noisy,
            fraction=fraction,
            is_made=self.is_made,
        )
        if found is None:
            return
        products = found.of(self.points)
        width = products.shape[1]
        self.points = np.hstack([self.points, products])
        self.centre = exact_features(self.points.mean(axis=0))
        self.sample = np.hstack([self.sample, products - self.centre[-width:]])
        self.private = self.private.with_columns(found.of)
        self.together, self.interactions = found.families(self.together), found.interactions
        at = np.append(output.belief.weights, np.zeros(width))
        measurement = found.measurement(at, self.sample, self.family, self.private.units)
        output.seen = [(measured, plan.widen(width)) for measured, plan in output.seen]
        output.seen.append((found.measured, measurement))
        self.relative = relative_variances(self.sample[:, 1:], self.together)
        output.variances = np.append(output.variances, self.variance * self.relative[-width:])
        output.prior = np.append(output.prior, np.zeros(width))
        self._learn_variances(output)
        output.start = None

    def _learn(self, output: "_Output") -> None:
        """Learn from the last measurement; the variances of the weights are chosen by the first one or by all."""
        if len(output.seen) == 1 or self.relearn:
            self._learn_variances(output)
        else:
            output.belief = self._update(output.belief, output.seen[-1:])

    def _learn_spread(self, miss: float, noise: float) -> None:
        """Move the spread of residuals towards the one that was measured, the more the less is known of it."""
        doubt = self.spread_doubt + _SPREAD_DRIFT**2
        gain = doubt / (doubt + (noise / USUAL_MISS) ** 2)
        factor = 1 + gain * (miss / USUAL_MISS - 1)
        self.family = self.family.with_spread(min(max(factor, 1 / _MOST_SPREAD_CHANGE), _MOST_SPREAD_CHANGE))
        self.spread_doubt = (1 - gain) * doubt

    def _plan(self, beliefs: Sequence[Belief], fraction: float) -> list[Measurement]:
        """Return what is to be measured of each output."""
        self.radius = 1.0 if len(beliefs) == 1 else _JOINT * float(np.sqrt(len(beliefs)))
        scale = self.private.scale(self.noisy, fraction) * self.radius * float(np.hypot(1.0, self.miss_weight))
        units = self.private.units
        return [
            choose_measurement(
                belief, self.sample, self.family, units=units, scale=scale, error=self.error, is_made=self.is_made
            )
            for belief in beliefs
        ]

    def _measure(
        self, plans: Sequence[Measurement], fraction: float
    ) -> tuple[list[Floats], list[float], tuple[float, float]]:
        """Return mean clipped gradients of the outputs, their noise, and the mean miss of all with its noise."""
        sizes = [plan.directions.shape[1] for plan in plans]
        units = [plan.radius if len(plans) > 1 else 1.0 for plan in plans]  # several outputs share one length
        radius = self.radius if len(plans) > 1 else plans[0].radius
        weight = self.miss_weight * radius
        self.directions.append(sum(sizes))
        family, centre = self.family, self.centre  # which travel to where the rows are

        def vectors(features: Floats, targets: Floats) -> Floats:
            parts, misses = [], np.zeros(len(features))
            for output, (plan, unit) in enumerate(zip(plans, units, strict=True)):
                eta = plan.predictor(features, centre)
                misses += family.miss(targets[:, output], eta)
                parts.append(plan.vectors(features, targets[:, output], family, centre) / unit)
            gradients = clip_rows(np.hstack(parts), radius)
            return np.hstack([gradients, misses[:, None] * (weight / len(plans))])

        total, noise = self.private.release(
            vectors,
            entries=sum(sizes) + 1,
            radius=float(np.hypot(radius, weight)),
            noisy=self.noisy,
            fraction=fraction,
        )
        *means, miss = np.split(total, np.cumsum(sizes))
        gradients = [mean * unit for mean, unit in zip(means, units, strict=True)]
        spread = (float(miss[0]) / weight, noise / weight) if weight else (0.0, 0.0)
        return gradients, [noise * unit for unit in units], spread

    def _shorten_step(self, output: "_Output", gradient: Floats, noise: float, plan: Measurement) -> None:
        """Take back what the last step went too far, and give the sample the curvature that was found along it.

        The gradient at the end of a step is about 0 if the curvature along the step is that of the sample. Where it
        points back clearly, the curvature was `factor` times as large, and the step should have been that much shorter.
        """
        if output.start is None:
            return
        step, eta = output.belief.weights - output.start, self.sample @ output.belief.weights
        along, t = plan.along(self.sample)
        value, slope = self.family.clipped(eta, eta, t)
        foreseen = along.T @ (slope * (self.sample @ step)) / len(along)
        square = float(foreseen @ foreseen)
        back = (along.T @ value / len(along) - gradient) @ foreseen
        sampled = np.mean((along @ foreseen) ** 2 * self.family.square(eta, t)) / self.private.units
        if back <= _SIGNIFICANT * np.sqrt(noise**2 * square + sampled):
            return
        factor = 1 + min(float(back) / square, _MOST_CURVATURE)
        moved = self.sample[:, 1:] @ step[1:]  # The column of ones is no column whose spread was guessed.
        shared = moved @ self.sample[:, 1:] / max(float(moved @ moved), _TINY)
        self.sample[:, 1:] += (np.sqrt(factor) - 1) * np.outer(moved, shared)
        output.belief = Belief(output.start + step / factor, output.belief.root)

    def _update(self, belief: Belief, seen: "_History") -> Belief:
        """Return the belief after these measurements, one after another."""
        for measured, plan in seen:
            belief = update(belief, measured, plan, self.sample, self.family)
        return belief

    def _learn_variances(self, output: "_Output") -> None:
        """Learn from all measurements, with the variances of the blocks that they make most probable.

        Few rounds are enough where the variances are those after the measurements before.
        """
        is_known = self._is_known(len(output.prior))
        for _ in range(_ROUNDS_OF_EVIDENCE if len(output.seen) == 1 else _MORE_ROUNDS):
            learned = self._update(Belief.before(output.prior, output.variances), output.seen)
            off = np.where(is_known, 0.0, learned.weights - output.prior)
            variances = evidence(
                Belief(off, learned.root), output.variances, self.together, self.variance, self.relative
            )
            output.variances = np.where(is_known, self._usual(), variances)
        output.belief = self._update(Belief.before(output.prior, output.variances), output.seen)

    def _usual(self) -> Floats:
        """Return the variance of each weight before anything is measured."""
        variances = np.append(_INTERCEPT * self.problem.variance, self.variance * self.relative)
        if self.known is not None:
            is_known = self._is_known(len(variances))
            variances[is_known] = self.known[is_known[: len(self.known)]] ** 2
        return variances

    def _is_known(self, width: int) -> NDArray[np.bool_]:
        """Return which weights are those of the offset: evidence of other columns does not change their doubt."""
        is_known = np.zeros(width, dtype=np.bool_)
        if self.known is not None:
            is_known[1 : len(self.known)] = self.known[1:] > 0
        return is_known
