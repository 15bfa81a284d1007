"""Choose the radius and the noise from public points and public numbers alone, and forecast the answers.

Public points stand in for records and for queries. A query reaches as far as a share of the public points, so that it
finds about equally many records wherever it is. How often a record would vote, and how many votes a query would get,
follows from distances between public points; the effect of the noise is computed, not drawn. Near neighbours are alike:
the share is the smallest one that does hardly worse than any other. If public points have labels, this is measured by
how many of them would be answered correctly, otherwise by the harm that noise does.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from quorate.core.arrays import Floats, Integers
from quorate.core.checks import check_count
from quorate.core.errors import InvalidInput
from quorate.models.knn._ballots import Ballot, Labels, Levels, Shares, Terms
from quorate.models.knn._kernel import Kernel, Metric, Points, Shape, Space, squared_distances
from quorate.models.predictors.labels import target_numbers
from quorate.planner.result import Change, Plan

TOP = 32  # the largest weight: weights are whole numbers

MOST = 10**10  # records and queries that can be planned for
MOST_ANCHORS = 4000  # public points that stand for records, and that say how far a query reaches
_MOST_QUERIES = 1000  # those that stand for queries
_SHARES = tuple(2.0**-power for power in range(1, 13))  # of public points, that a query may reach
_LEAST_RANK = 5  # public points that a query reaches at least: the distance to one alone says little
_WEAR = (0.5, 1.0, 1.5, 2.0, 3.0)  # votes that a unit can pay for, in multiples of what a typical one would cast
_SPOILT = 0.5  # share of answers that noise spoils, from which on a plan is not feasible
_DOUBLED, _MOST_EPSILON = 12, 64.0  # how often a number is doubled or halved, and how far, to find a plan that is
_MARGIN = 0.5  # of all votes: by how much the right class leads, where no labels say
_HARM = 0.01  # more queries that noise may spoil, for a smaller radius
_FEWEST = 1 / 64  # votes of full weight: records that are far away cast small ones
_MOMENTS = (0.125, 0.375, 0.625, 0.875)  # of the planned queries, over which what is expected is averaged
_ROUNDING = 1e-6  # relative, above the difference of sums of single precision between processors
_LATER = (0.5, 1.0, 2.0, 4.0)  # when to say how far units are worn, in multiples of the planned queries
Numbers = Mapping[str, Any]  # records, queries, epsilon and delta


def plan_neighbours(
    public: Any,
    labels: Any = None,
    *,
    records: int,
    queries: int,
    epsilon: float,
    delta: float,
    metric: Metric = "cosine",
    kernel: Shape = "linear",
    radius: float | None = None,
    share: float | None = None,
    votes: float | None = None,
    classes: int | None = None,
    bounds: tuple[float, float] | None = None,
    scores: bool = False,
) -> Plan:
    """Plan a model of neighbours for this many records and queries, from public rows and any labels.

    No private record is read: `records` is a public or hypothetical number. A given `radius` for all queries, `share`
    or number of `votes` stays as it is. With `bounds`, labels are targets of a regression.

    Each line of the plan's `forecast` has a number of answered queries, the share of records worn out by then, and the
    quality of answers then: the share of right ones, or for targets the root mean squared error (None if public points
    have no labels). `nearest` has changes of one number that would make the plan feasible, to within a factor of 2.

    >>> rows = np.random.default_rng(0).normal(size=(400, 8)) + np.repeat([[4.0], [-4.0]], 200, axis=0)
    >>> known = np.repeat([0, 1], 200)
    >>> plan = plan_neighbours(rows, known, records=20_000, queries=1000, epsilon=1.0, delta=1e-6)
    >>> plan.feasible, plan.right > 0.99
    (True, True)
    """
    rows = np.asarray(public, dtype=np.float64)
    ballot: Ballot
    if bounds is not None:
        targets = None if labels is None else np.clip(np.nan_to_num(target_numbers(labels)), *bounds)
        ballot = Levels(low=bounds[0], high=bounds[1], centre=sum(bounds) / 2 if targets is None else targets.mean())
    else:
        names = range(classes or 2) if labels is None else np.unique(np.asarray(labels))
        ballot = Shares(names) if scores else Labels(names)
    return plan_for(
        ballot,
        rows,
        labels,
        space=Space.of_public(metric, _enough(rows), features=rows.shape[1]),
        numbers={"records": records, "queries": queries, "epsilon": epsilon, "delta": delta},
        kernel=kernel,
        radius=radius,
        share=share,
        votes=votes,
    )


def plan_for(
    ballot: Ballot,
    public: Floats,
    labels: Any,
    *,
    space: Space,
    numbers: Numbers,
    kernel: Shape,
    radius: float | None,
    share: float | None,
    votes: float | None,
) -> Plan:
    """Return the plan for such ballots, by public rows in their space."""
    for name in ("records", "queries"):
        check_count(name, numbers[name], most=MOST)
    sample = _spread(len(_enough(public)), MOST_ANCHORS)
    codes = None if labels is None else ballot.codes(labels)[sample]
    scene = _Scene(space.points(public[sample]), codes, ballot)
    weights = _weights_by_share(scene, Kernel.within(radius or 1.0, space, shape=kernel, top=TOP), radius, share)

    def choose(changed: Numbers) -> _Trial:
        return _best([trial for part in weights for trial in scene.trials(part, weights[part], votes, changed)])

    trial = choose(numbers)
    settings = dict(numbers) | {
        "radius": radius,
        "share": trial.share or None,
        "votes": trial.votes,
        "kernel": kernel,
        "metric": space.metric,
    }
    figures = settings | scene.quality(trial) | {"spoilt": trial.spoilt}
    figures["forecast"] = scene.forecast(trial, weights[trial.share], numbers)
    return Plan(
        family="neighbours",
        feasible=trial.is_feasible,
        keywords={name: value for name, value in settings.items() if value is not None},
        figures=figures,
        text=_text(figures),
        shortage=f"noise is expected to spoil {trial.spoilt:.0%} of the answers",
        nearest=() if trial.is_feasible else tuple(_changes(choose, scene, numbers)),
        shown=("records", "queries", "votes", "epsilon", "delta"),
        bar=("answers that noise is expected to leave right", 1 - trial.spoilt),
    )


def _weights_by_share(
    scene: "_Scene", kernel: Kernel, radius: float | None, share: float | None
) -> dict[float, NDArray[np.float32]]:
    """Return the weights of records on queries for each share that is tried; of one radius, under the share 0."""
    if radius is None:
        ranks = {part: rank_of(part, scene.points) for part in (_SHARES if share is None else [share])}
        weights = {part: scene.weights(kernel, rank) for part, rank in ranks.items() if share or rank >= _LEAST_RANK}
        if weights:
            return weights
    return {0.0: scene.weights(kernel)}


def _text(figures: dict[str, Any]) -> str:
    share, radius = figures["share"], figures["radius"]
    reach = f"records within {radius:.3g}" if share is None else f"about {share:.3%} of the records"
    text = (
        f"A query reaches {reach} ({figures['metric']}, {figures['kernel']} kernel), and a unit may cast "
        f"{figures['votes']:.3g} votes of full weight. After {figures['queries']:,} queries about "
        f"{figures['forecast'][1][1]:.0%} of the records are worn out, and noise spoils about {figures['spoilt']:.1%} "
        "of the answers"
    )
    if figures["error"] is not None:
        return f"{text}; they are off by about {figures['error']:.3g}."
    return f"{text}." if figures["right"] is None else f"{text}; about {figures['right']:.1%} are right."


def anchors_of(public: Floats, space: Space) -> Points:
    """Return the public points that say how far a query reaches."""
    return space.points(public[_spread(len(public), MOST_ANCHORS)])


def rank_of(share: float, anchors: int) -> int:
    """Return the rank of the public point that is as far as a query reaches."""
    return min(anchors, max(1, round(share * anchors)))


def _enough(rows: Floats) -> Floats:
    if rows.ndim != 2 or len(rows) < 10:
        raise InvalidInput("a plan looks at at least 10 public rows; pass more, or set radius= and votes=")
    return rows


@dataclass(frozen=True, eq=False)
class _Trial:
    """What is expected of answers if a query reaches this share of the points, and a unit may cast this many votes.

    `spoilt` is the share of answers that noise spoils. Where labels are known, `losses` has what is expected of each
    query: the chance of a wrong answer, or the square of what it is off by, in parts of the reach.
    """

    share: float
    votes: float
    spoilt: float
    losses: Floats | None

    @property
    def is_feasible(self) -> bool:
        return self.spoilt < _SPOILT

    @property
    def loss(self) -> float:
        """What is to be small: what is lost on average, or where labels do not say that, the share that is spoilt."""
        return self.spoilt if self.losses is None else _five_digits(float(self.losses.mean()))

    def is_hardly_worse(self, other: "_Trial") -> bool:
        """Whether what is lost more than by the other is within its own standard error, or hardly more is spoilt."""
        if self.losses is None or other.losses is None or not self.is_feasible:
            return self.spoilt <= other.spoilt + _HARM
        excess = self.losses - other.losses
        rounding = _ROUNDING * (1 + float(other.losses.mean()))
        return bool(excess.mean() <= excess.std() / math.sqrt(len(excess)) + rounding)


def _best(trials: list[_Trial]) -> _Trial:
    """Return the smallest share that answers hardly worse than any other, with the votes that are best for it.

    Near neighbours are alike; and the public points that a query reaches are fewer than the records that it will reach,
    which makes small shares look worse than they are.
    """
    best = min(trials, key=lambda trial: trial.loss)
    good = [trial for trial in trials if trial.is_hardly_worse(best)]
    smallest = min(trial.share for trial in good)
    return min((trial for trial in good if trial.share == smallest), key=lambda trial: trial.loss)


def _changes(choose: "Callable[[Numbers], _Trial]", scene: "_Scene", numbers: Numbers) -> Iterator[Change]:
    """Yield the first that does of ever more records, ever fewer queries, and an ever larger epsilon."""
    factors = [2**power for power in range(1, _DOUBLED + 1)]
    values: dict[str, list[float]] = {
        "records": [factor * numbers["records"] for factor in factors],
        "queries": [numbers["queries"] // factor for factor in factors if numbers["queries"] >= factor],
        "epsilon": [factor * numbers["epsilon"] for factor in factors if factor * numbers["epsilon"] <= _MOST_EPSILON],
    }
    says = {"records": "collect about {:,} records", "queries": "plan for {:,} queries", "epsilon": "set epsilon={:g}"}
    for parameter, sentence in says.items():
        for value in values[parameter]:
            trial = choose({**numbers, parameter: value})
            if trial.is_feasible:
                yield Change(parameter, value, scene.quality(trial)["right"], sentence.format(value))
                break


def _five_digits(value: float) -> float:
    """Return a forecast to five digits: plans are compared by it, and the last bits depend on the processor."""
    return float(f"{value:.5g}")


def _lasting(terms: Terms) -> float:
    """Return what a unit may spend before it is worn out, with a margin for the rounding of what is compared."""
    return terms.capacity * (1 + _ROUNDING)


def _spread(rows: int, limit: int) -> Integers:
    """Return at most so many rows, spread evenly over all."""
    return np.unique(np.linspace(0, rows - 1, min(rows, limit)).astype(np.int64))


class _Scene:
    """Public points, each of which stands for a share of the records and of the queries."""

    def __init__(self, points: Points, codes: Integers | None, ballot: Any) -> None:
        self.points, self._codes, self._ballot = len(points), codes, ballot
        self._queries = _spread(len(points), _MOST_QUERIES)
        self._distances = squared_distances(points[self._queries], points)
        self._distances[np.arange(len(self._queries)), self._queries] = np.inf  # no point is its own neighbour

    def weights(self, kernel: Kernel, rank: int | None = None) -> NDArray[np.float32]:
        """Return weights of records on queries, within the radius of a kernel or as far as the point of this rank."""
        radii = np.full(len(self._queries), kernel.squared_radius, dtype=np.float32)
        if rank is not None:
            index = min(rank, self.points - 1) - 1
            radii = np.maximum(np.partition(self._distances, index, axis=1)[:, index], np.float32(1))
        return kernel.weigh(radii[:, np.newaxis] - self._distances, radii)

    def trials(
        self, share: float, weights: NDArray[np.float32], votes: float | None, numbers: Numbers
    ) -> Iterator[_Trial]:
        """Yield what is expected of all planned queries, on average while records wear out, for numbers of votes.

        Those that are tried are multiples of what a typical record would cast, in votes of full weight.
        """
        spent = self._expected_spending(weights, numbers)
        typical = _five_digits(float(np.mean(spent)) / (TOP**2 * int(self._ballot.prices.max())))
        for number in [max(_FEWEST, factor * typical) for factor in _WEAR] if votes is None else [votes]:
            terms = self._terms(number, numbers)
            yield _Trial(share, number, *self._judge(weights, np.outer(spent, _MOMENTS), terms, numbers))

    def forecast(
        self, trial: _Trial, weights: NDArray[np.float32], numbers: Numbers
    ) -> tuple[tuple[int, float, float | None], ...]:
        """Return lines of queries answered, the share of records worn out by then, and how good answers are then."""
        lines, terms = [], self._terms(trial.votes, numbers)
        for factor in _LATER:
            spent = factor * self._expected_spending(weights, numbers)[:, np.newaxis]
            then = self.quality(_Trial(trial.share, trial.votes, *self._judge(weights, spent, terms, numbers)))
            worn = float((spent > _lasting(terms)).mean())
            lines.append(
                (
                    math.ceil(factor * numbers["queries"]),
                    worn,
                    then["right"] if then["error"] is None else then["error"],
                )
            )
        return tuple(lines)

    def quality(self, trial: _Trial) -> dict[str, float | None]:
        """Return the share of right answers of a vote, or how far means are off; None where labels are not known."""
        loss = None if trial.losses is None else float(trial.losses.mean())
        if isinstance(self._ballot, Levels):
            return {
                "right": None,
                "error": None if loss is None else _five_digits(self._ballot.reach * math.sqrt(loss)),
            }
        return {"right": None if loss is None else _five_digits(1 - loss), "error": None}

    def _terms(self, votes: float, numbers: Numbers) -> Terms:
        guarantee = {name: numbers[name] for name in ("epsilon", "delta")}
        return Terms.calibrate(**guarantee, votes=votes, top=TOP, ballot=self._ballot)

    def _expected_spending(self, weights: NDArray[np.float32], numbers: Numbers) -> Floats:
        """Return what a record in the place of each point would spend on the planned queries.

        Where labels are not known, it pays the price of a typical vote.
        """
        prices = self._ballot.prices.mean() if self._codes is None else self._ballot.prices[self._codes]
        squares = np.einsum("ij,ij->j", weights, weights)
        return np.asarray(numbers["queries"] * squares * prices / len(weights), dtype=np.float64)

    def _judge(
        self, weights: NDArray[np.float32], spent: Floats, terms: Terms, numbers: Numbers
    ) -> tuple[float, Floats | None]:
        """Return the share of spoilt answers and the losses, on average over moments: the columns of `spent`."""
        voters = (spent <= _lasting(terms)).astype(np.float32) * (numbers["records"] / self.points)
        judge = self._judge_means if isinstance(self._ballot, Levels) else self._judge_votes
        spoilt, losses = judge(weights, voters, terms.scale)
        return _five_digits(spoilt), losses

    def _judge_votes(
        self, weights: NDArray[np.float32], voters: NDArray[np.float32], scale: float
    ) -> tuple[float, Floats | None]:
        classes, noise = self._ballot.classes, self._ballot.contrast(scale)
        spoilt = float(np.minimum(1.0, (classes - 1) * ndtr(-_MARGIN * (weights @ voters) / noise)).mean())
        if self._codes is None:
            return spoilt, None
        ballots, truth = np.eye(classes, dtype=np.float32)[self._codes], self._codes[self._queries, np.newaxis]
        right = [_right(weights @ (ballots * now[:, np.newaxis]), truth, noise) for now in voters.T]
        return spoilt, 1 - np.mean(right, axis=0)

    def _judge_means(
        self, weights: NDArray[np.float32], voters: NDArray[np.float32], scale: float
    ) -> tuple[float, Floats | None]:
        total, levels = weights @ voters, self._ballot
        spoilt = float(np.mean(1 - levels.means(total, total, scale)[0]))  # what is drawn to the centre
        if self._codes is None:
            return spoilt, None
        targets = levels.targets(self._codes)[:, np.newaxis]
        means, deviation = levels.means(total, weights @ (voters * targets), scale)
        return spoilt, ((means - targets[self._queries]) ** 2 + deviation**2).mean(axis=1)


def _right(counts: NDArray[np.float32], truth: Integers, noise: float) -> Floats:
    lost = ndtr((counts - np.take_along_axis(counts, truth, axis=1)) / noise)
    np.put_along_axis(lost, truth, 0.0, axis=1)
    return np.asarray(np.maximum(0.0, 1 - lost.sum(axis=1)), dtype=np.float64)
