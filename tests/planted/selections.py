"""Searches with one mistake each: three in how trials are counted, caught by enumeration, and two in their scores."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri
from sklearn.linear_model import LogisticRegression

from planted.bug import Caught, PlantedBug, twin_bug
from planted.trial_laws import epsilon_trials, released_best, worst_log_ratio
from quorate.auditing.replay import entropy_tape
from quorate.core.mechanisms import NoisyVector, RandomStopping
from quorate.core.mechanisms.distributions import gaussian_pmf
from quorate.core.mechanisms.selection import ApproximateTrial, GaussianTrial
from quorate.models.selection._trials import Scoring

_TAPES = 12


class FixedNumber(RandomStopping):
    """Always runs as many trials as there may be, and pays as though their number were random."""

    def draw_number(self, noise: Any) -> int:
        """Return the largest number: that is the mistake."""
        return self.most_trials


class OneTrialCharged(RandomStopping):
    """Pays for the one trial that is released."""

    def renyi(self, order: float) -> float:
        """Return the cost of a trial that was not chosen among others: that is the mistake."""
        return self.trial.renyi(order)


class NumberTold(RandomStopping):
    """Says how many trials there were, which does not depend on the data."""

    def draw_best(self, run: Callable[[int], Any], budget: Any, noise: Any) -> Any:
        """Return the number of trials with the best: the mistake, for the best of many known trials tells more."""
        trials: list[int] = []

        def counted(candidate: int) -> Any:
            trials.append(candidate)
            return run(candidate)

        best = super().draw_best(counted, budget, noise)
        return len(trials), best


class _ExactScore(Scoring):
    """Chooses by the share of labels that the model gets right, as it is."""

    def score(self, model: Any, X: Any, y: Any, *, epsilon: float, delta: float) -> float:
        """Return the accuracy without noise: that is the mistake."""
        return float(np.mean(model.predict(X) == y))


class _ScoreOfLessNoise(Scoring):
    """Takes the least noise that is (epsilon, delta)-DP by itself."""

    def noisy(self, squared_sensitivity: int, *, epsilon: float, delta: float) -> NoisyVector:
        """Leave `rounded` out: the mistake, for the best of many such trials tells more than Gaussian ones would."""
        return NoisyVector.calibrate(epsilon=epsilon, delta=delta, squared_sensitivities=(squared_sensitivity,))


def small_stopping(kind: type[RandomStopping] = RandomStopping) -> RandomStopping:
    """Return a mechanism that is small enough to be enumerated: mostly four trials, sometimes one."""
    return kind(candidates=1, weights=(1, 0, 0, 7), trial=ApproximateTrial(1.0, 0.0))


def _enumerate(stopping: RandomStopping) -> Caught:
    """Compare the largest log ratio of what is released, over trials of three outcomes, with what is claimed."""
    released = released_best(stopping, (0, 1, 2))
    loss, claimed = worst_log_ratio(released, epsilon_trials(stopping.trial.epsilon)), stopping.renyi(math.inf)
    evidence = f"two neighbours need epsilon {loss:.3f}, and {claimed:.3f} is claimed"
    return Caught("exact enumeration", evidence, found=loss > claimed + 1e-9)


def _same_scores(scoring: Scoring, _plays: int, seed: int) -> Caught:
    """Score one model on the same rows with noise of different tapes."""
    X = np.linspace(-3, 3, 200)[:, np.newaxis]
    y = (np.sin(9 * X[:, 0]) > -X[:, 0]).astype(np.int64)
    model, scores = LogisticRegression().fit([[-1.0], [1.0]], [0, 1]), set()
    for tape in range(seed, seed + _TAPES):
        with entropy_tape(tape):
            scores.add(scoring.score(model, X, y, epsilon=1.0, delta=1e-6))
    evidence = f"{_TAPES} scores of one model on the same rows have {len(scores)} values"
    return Caught("replay on tapes", evidence, found=len(scores) == 1)


def _told_apart(scoring: Scoring) -> Caught:
    """Compare how well each event {score >= k} tells two neighbours apart with what a Gaussian trial is charged for."""
    trial = GaussianTrial(8.0, 1e-6)
    [scale] = scoring.noisy(1, epsilon=trial.epsilon, delta=trial.delta).scales
    tails = np.cumsum(gaussian_pmf(scale, math.ceil(12 * scale))[::-1])[::-1]
    inside = (tails[:-1] > 1e-12) & (tails[:-1] < 1 - 1e-12)
    excess = float((ndtr(ndtri(tails[:-1]) - trial.length) / tails[1:])[inside].max())
    evidence = f"an event is {excess:.4f} times as rare on a neighbour as the cost of a Gaussian trial allows"
    return Caught("exact enumeration", evidence, found=excess > 1 + 1e-6)


def _counted(name: str, broken: type[RandomStopping]) -> PlantedBug:
    return PlantedBug(name, "enumeration", lambda: small_stopping(broken), small_stopping, _enumerate)


SELECTIONS = (
    _counted("fixed_number_of_trials", FixedNumber),
    _counted("one_trial_charged", OneTrialCharged),
    _counted("number_of_trials_told", NumberTold),
    twin_bug("search_by_exact_scores", "replay", _ExactScore, Scoring, _same_scores, "accuracy"),
    twin_bug("score_of_less_noise", "enumeration", _ScoreOfLessNoise, Scoring, _told_apart, "accuracy"),
)
