"""The target of a plan, the votes that are expected before any is cast, and the expected shares of answers.

Classes may have declared shares and weights. A teacher votes for the class that it finds most likely, and a class with
a share of 10% rarely is, even if the teachers rank well: answers that are labels name the common class for almost every
query.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc, betaincinv

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms.base import QueryMechanism, ThresholdMechanism
from quorate.core.privacy import best_order, to_capacity

_SUM_TOLERANCE = 1e-6  # between 1 and the sum of declared shares, which people round
_RARE_SHARE = 0.4  # of an equal share; with two classes, a class of less than a fifth of the records is rare
_LEAST_RECORDS = 5  # of each class in a teacher's chunk
_FEW_RECORDS = 10.0  # of a class in a teacher's chunk; below this it rarely wins a vote, even with a large weight


def by_class(name: str, values: Any, classes: Sequence[Any]) -> tuple[float, ...]:
    """Return the positive number of each class, in the order of `classes`, from a mapping or a sequence."""
    if isinstance(values, Mapping):
        if set(values) != set(classes):
            raise InvalidInput(f"{name} must name each class once: {', '.join(map(str, classes))}")
        values = [values[label] for label in classes]
    try:
        numbers = tuple(float(value) for value in values)
    except (TypeError, ValueError):
        raise InvalidInput(f"{name} must be numbers, one for each class, got {values!r}") from None
    if len(numbers) != len(classes) or not all(0 < number < math.inf for number in numbers):
        raise InvalidInput(f"{name} must be {len(classes)} positive numbers, one for each class, got {values!r}")
    return numbers


def check_prior(prior: Any, classes: Sequence[Any]) -> tuple[float, ...]:
    """Return declared shares of the classes, which must sum to 1."""
    shares = by_class("prior", prior, classes)
    if abs(math.fsum(shares) - 1) > _SUM_TOLERANCE:
        raise InvalidInput(f"prior must be shares that sum to 1, got a sum of {math.fsum(shares):g}")
    return shares


def few_rows_warning(classes: int, *, rows: int | None) -> str | None:
    """Return a warning if a teacher has fewer than a few records of each class, else None.

    >>> few_rows_warning(26, rows=21)
    'a teacher has 21 records for 26 classes, and hardly learns them from fewer than 130: use fewer teachers'
    """
    if rows is None or rows >= _LEAST_RECORDS * classes:
        return None
    has = "1 record" if rows == 1 else f"{rows} records"
    return (
        f"a teacher has {has} for {classes} classes, and hardly learns them from fewer than "
        f"{_LEAST_RECORDS * classes}: use fewer teachers"
    )


def rare_class_warning(prior: Sequence[float], *, weighted: bool, rows: int | None) -> str | None:
    """Return a warning if answers are labels and a class of this declared prior is rare, else None.

    `weighted` says whether teachers weight the classes, `rows` how many records each of them has, if that is known.
    """
    share = min(prior)
    rare = f"a class of share {100 * share:.2g}%"
    if share >= _RARE_SHARE / len(prior) or (weighted and (rows is None or share * rows >= _FEW_RECORDS)):
        return None
    if not weighted:
        remedy = "use scores=True or class_weight='balanced' (--scores, --class-weight), or a linear model"
        return f"{rare} will rarely win a majority: {remedy}"
    return (
        f"{rare} has about {share * (rows or 0):.0f} of the {rows} records of a teacher, and will "
        "rarely win a majority even with class_weight: use scores=True (--scores), fewer teachers or a linear model"
    )


def takes_class_weight(estimator: Any) -> bool:
    """Return whether the estimator, or a part of it, takes class weights."""
    return bool(_weight_names(estimator))


def _weight_names(estimator: Any) -> list[str]:
    return [name for name in estimator.get_params() if name.rpartition("__")[2] == "class_weight"]


def weigh_classes(estimator: Any, weights: Literal["balanced"] | tuple[float, ...]) -> Any:
    """Return a copy of the estimator with these class weights, by class number.

    With "balanced", each teacher computes the weights from its own rows.
    """
    names = _weight_names(estimator)
    if not names:
        raise InvalidInput(
            f"{type(estimator).__name__} takes no class_weight; LogisticRegression, trees and forests do"
        )
    value = weights if weights == "balanced" else dict(enumerate(weights))
    return estimator.set_params(**dict.fromkeys(names, value))


DEFAULT_DISAGREEMENT = 0.1
CONCENTRATION = 4.0  # of the Beta law of disagreement; 3.6 fits PATE's Adult votes, 11 its MNIST votes
_QUANTILES = 400  # queries that stand for the Beta law; more and more of them towards those that are disputed
_SHARE_DECIMALS = 12  # of shares: the last bits depend on the processor
_MOST_ROWS = 1000  # of public votes that are looked at one by one
_MOST_RIVALS = 6  # labels beside the first; the others are taken as equals


@dataclass(frozen=True, eq=False)
class VoteForecast:
    """Vote shares on typical queries, one row a query: the first label's, and its rivals' from the largest down.

    `weights` says how common each query is, `copies` how many labels each rival column stands for, and `evidence` how
    many public points stand behind it all: None for a guess.
    """

    top: Floats
    rivals: Floats
    weights: Floats
    copies: NDArray[np.int64]
    evidence: int | None

    @classmethod
    @lru_cache(maxsize=16)  # one forecast for one guess, so that searches know it again
    def from_disagreement(cls, disagreement: float, *, classes: int) -> "VoteForecast":
        """Return the forecast of a guess: the mean share of teachers that vote against the plurality.

        From query to query that share follows a Beta law of this mean and of concentration `CONCENTRATION`, cut at a
        half, and all who disagree vote for one rival: the worst case for more than two classes.
        """
        edges, quantiles = _beta_quantiles(disagreement)
        against = np.minimum(quantiles, 0.5)
        rivals, copies = [against], [1]
        if classes > 2:
            rivals, copies = [against, np.zeros(_QUANTILES)], [1, classes - 2]
        return cls(1 - against, np.stack(rivals, axis=1), np.diff(edges), np.array(copies), None)

    @classmethod
    def from_votes(cls, votes: Any) -> "VoteForecast":
        """Return the forecast of votes on public points, one row a point and one column a class."""
        counts = np.asarray(votes)
        if counts.ndim != 2 or counts.shape[0] < 1 or counts.shape[1] < 2:
            raise InvalidInput(
                "votes must be a matrix, one row a public point and one column for each of at least 2 classes, "
                f"not of shape {counts.shape}"
            )
        if counts.dtype.kind not in "iu" or counts.min() < 0 or (counts.sum(axis=1) == 0).any():
            raise InvalidInput("votes must be whole numbers of at least 0, with at least one vote for every point")
        shares = np.sort(counts / counts.sum(axis=1, keepdims=True), axis=1)[:, ::-1]
        if len(shares) > _MOST_ROWS:  # those in the middle of equal parts of the sorted points stand for all
            by_gap = np.argsort(shares[:, 0] - shares[:, 1], kind="stable")
            shares = shares[by_gap[((np.arange(_MOST_ROWS) + 0.5) * len(shares) / _MOST_ROWS).astype(np.int64)]]
        rivals, copies = shares[:, 1:], np.ones(counts.shape[1] - 1, dtype=np.int64)
        if rivals.shape[1] > _MOST_RIVALS:
            rest = rivals[:, _MOST_RIVALS - 1 :]
            rivals = np.concatenate([rivals[:, : _MOST_RIVALS - 1], rest.mean(axis=1, keepdims=True)], axis=1)
            copies = np.append(copies[: _MOST_RIVALS - 1], rest.shape[1])
        return cls(shares[:, 0], rivals, np.full(len(shares), 1 / len(shares)), copies, len(counts))

    def mean(self, values: Floats) -> float:
        """Return the mean over queries."""
        return float(self.means(values))

    def means(self, values: Floats) -> Floats:
        """Return the mean over queries, which are the last axis, of each row of values."""
        means: Floats = np.minimum(values @ self.weights, 1.0)
        return means.round(_SHARE_DECIMALS)

    @property
    def disagreement(self) -> float:
        """The mean share of teachers that vote against the plurality."""
        return 1 - self.mean(self.top)

    @property
    def gap(self) -> Floats:
        """The share by which the first label leads the second, query by query."""
        return self.top - self.rivals[:, 0]

    @cached_property
    def by_gap(self) -> "VoteForecast":
        """The forecast with every query as heavy as its gap: where the vote is even, the answer matters less."""
        weights = self.weights * self.gap
        return replace(self, weights=weights / max(float(weights.sum()), 1e-300))

    def distances(self, teachers: int) -> NDArray[np.int64]:
        """Return how many of this many ballots can change, query by query, without changing the label."""
        return np.maximum(0, np.ceil(self.gap * teachers / 2 - 1e-9).astype(np.int64) - 1)


@lru_cache(maxsize=16)
def _beta_quantiles(mean: float) -> tuple[Floats, Floats]:
    """Return levels that are finer towards 1, and the quantiles of the Beta law of this mean between them."""
    edges = 1 - (1 - np.arange(_QUANTILES + 1) / _QUANTILES) ** 3
    middles = (edges[1:] + edges[:-1]) / 2
    if mean == 0:
        return edges, np.zeros(_QUANTILES)
    quantiles = betaincinv(mean * CONCENTRATION, (1 - mean) * CONCENTRATION, middles)
    return edges, np.round(quantiles, _SHARE_DECIMALS)


@lru_cache(maxsize=16)
def normal_nodes(count: int) -> tuple[Floats, Floats]:
    """Return points and weights whose weighted mean is the mean over a standard normal (Gauss and Hermite's rule)."""
    points, weights = np.polynomial.hermite_e.hermegauss(count)
    return points, weights / weights.sum()


def binomial_capped_mean(trials: int, cap: float, probability: Floats) -> Floats:
    """Return the mean of min(X, cap) for binomial X, elementwise in the probability."""
    if cap >= trials:
        return trials * probability
    floor = math.floor(cap)
    below = betainc(trials - floor, floor, 1 - probability) if floor else 0.0  # P(Y < floor), one trial less
    mean: Floats = trials * probability * below + cap * betainc(floor + 1, trials - floor, probability)
    return mean


def binomial_tail(trials: int, threshold: int, probability: Floats) -> Floats:
    """Return P(X >= threshold) for binomial X and threshold >= 1, elementwise in the probability."""
    if threshold > trials:
        return np.zeros_like(probability)
    tail: Floats = betainc(threshold, trials - threshold + 1, probability)
    return tail


_DECIMALS = 9
_SPREAD_OF_A_GUESS = 0.4  # standard deviation of the logarithm of a rate that rests on a guessed disagreement


@dataclass(frozen=True)
class Task:
    """The target of a plan, without the ensemble. With `guess`, a query without a quorum gets a random label."""

    epsilon: float
    delta: float
    queries: int
    classes: int
    no_quorums: int | None = None
    guess: bool = False

    @cached_property
    def order(self) -> float:
        """The Renyi order at which queries of one constant cost are charged."""
        return best_order(epsilon=self.epsilon, delta=self.delta)

    @cached_property
    def capacity(self) -> float:
        """The capacity of the budget at that order."""
        return to_capacity(self.epsilon, delta=self.delta, order=self.order)


@dataclass(frozen=True)
class Expected:
    """The expected share of queries that are answered, and the share of answers with the plurality's label.

    `worth` is the expected share of correct answers, given the uncertainty of the forecast; aggregators are compared
    by it. `lasts` is the probability that no query is refused because the run or the budget has ended. All values are
    rounded to nine decimals, since plans are compared by them and the last bits depend on the processor.
    """

    answered: float
    agreement: float
    worth: float
    lasts: float = 1.0

    def __post_init__(self) -> None:
        for name in ("answered", "agreement", "worth", "lasts"):
            object.__setattr__(self, name, round(getattr(self, name), _DECIMALS))

    @property
    def right(self) -> float:
        """The share of all queries answered with the plurality's label."""
        return round(self.answered * self.agreement, _DECIMALS)

    def guessed(self, task: Task, *, no_quorum: float, likely: float) -> "Expected":
        """Return the expectation after each query without a quorum gets a random label, if the task allows guesses.

        `no_quorum` is the share of such queries, and `likely` the same share given the uncertainty of `worth`.
        """
        if not task.guess:
            return self
        answered = min(1.0, self.answered + no_quorum)
        agreement = (self.right + no_quorum / task.classes) / max(answered, 1e-300)
        return Expected(answered, min(1.0, agreement), self.worth + likely / task.classes, self.lasts)


@dataclass(frozen=True)
class Calibrated:
    """A calibrated mechanism, and the order and slack of the budget that pays for it."""

    mechanism: QueryMechanism | ThresholdMechanism
    order: float
    slack: float


@dataclass(frozen=True)
class Draft:
    """One aggregator before certification: its expectation, and functions that calibrate it and forecast it again."""

    aggregator: str
    expected: Expected
    no_quorums: int | None
    noise: Mapping[str, float]
    make: Callable[[], Calibrated]
    expect: Callable[[Any], Expected]

    def certify(self) -> tuple[Calibrated, Expected]:
        """Return the calibrated mechanism, and the expectation under its certified noise."""
        calibrated = self.make()
        return calibrated, self.expect(calibrated.mechanism)


def unsure(rate: Floats, evidence: int | None) -> tuple[Floats, Floats]:
    """Return possible true values of each rate, with weights, by a log-normal law for the rarer outcome.

    With `evidence` public points the law is centred on Jeffreys' estimate: an outcome that never occurred among a few
    hundred points may still have a rate of one in a thousand. Without evidence the rate is a guess within a factor of
    one and a half.
    """
    points, weights = normal_nodes(5)
    rare = np.minimum(rate, 1 - rate)
    if evidence is None:
        spread = np.full((rare.size, 1), _SPREAD_OF_A_GUESS)
    else:
        rare = (rare * evidence + 0.5) / (evidence + 1)
        spread = np.sqrt(np.log1p((1 - rare) / rare / (evidence + 2)))[:, np.newaxis]
    values = np.minimum(rare[:, np.newaxis] * np.exp(spread * points - spread**2 / 2), 1.0)
    return np.where(rate[:, np.newaxis] > 0.5, 1 - values, values), weights


def answered_before_stop(queries: int, no_quorums: int, missed: Floats) -> Floats:
    """Return, for each rate of no-quorums, the expected share of queries that a run of `no_quorums` answers.

    By Wald's equation the expected number of queries is that of the no-quorums divided by their rate.
    """
    met = binomial_capped_mean(queries, no_quorums, missed)
    with np.errstate(divide="ignore", invalid="ignore"):
        queried = np.where(missed > 0, met / missed, queries)
    return (np.minimum(queried, queries) - met) / queries


def lasts(queries: int, no_quorums: int, missed: Floats) -> Floats:
    """Return, for each rate of no-quorums, the probability that a run reaches its last query before it ends."""
    return 1 - binomial_tail(queries - 1, no_quorums, missed)


def least_agreement(classes: int) -> float:
    """Return the least agreement at which answers are closer to the plurality's label than to guesses."""
    return (1 + 1 / classes) / 2
