"""Plans for everlasting prediction: the numbers of records, of teachers and of allowed no-quorums.

No private record is read. Teachers are fitted on a public labelled sample, or on points that a class of hypotheses
simulates; their votes on other such points show how many would find no quorum.
"""

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners import Deal, batched_equivalent
from quorate.core.arrays import Floats
from quorate.core.checks import check_count, check_delta, check_positive, check_rate
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import Quorum
from quorate.models.concepts import Concept, Halfspaces, Intervals, Stumps, Thresholds
from quorate.models.everlasting._classifier import EverlastingClassifier
from quorate.models.everlasting._teaching import teach
from quorate.models.everlasting._terms import Guarantee, cutoff_for, votes_terms
from quorate.models.everlasting.directions import MeanDirection
from quorate.planner.result import Change, Plan

Draw = Callable[[int], tuple[Any, NDArray[np.int64]]]


@dataclass(frozen=True, kw_only=True)
class ChunkForecast:
    """The forecast for one chunk size; `no_quorums` is the setting of the classifier."""

    chunk: int
    no_quorums: int
    no_quorum_rate: float
    error: float


@dataclass(frozen=True, kw_only=True)
class PlayedPhase:
    """The result of one phase that was played on public or simulated points."""

    no_quorum_rate: float
    refused: int
    error: float


CHUNKS = (1, 2, 3, 4, 5, 8, 10, 15, 20, 30, 50)
_ROWS, _TEACHERS, _QUERIES = 40_000, 2000, 20_000  # enough to see how votes fall: shares do not depend on the number
_SLOW = 300  # teachers that are fitted one by one
_REFERENCE = 1000  # no-quorums of the Quorum whose table is stretched: its distances grow like their square root
_LEAST_EPSILON = 0.25  # of that table: below it takes ever longer to make, and is the same, stretched
_MOST_STEPS = 120  # in the search for a number of records: 46 million
_ROOM = 1.12  # later phases have more no-quorums than the first, since points near the boundary do not teach
_LEAST = 50  # teachers, of the sample or of the records
_TRIES = 3  # chunk sizes whose phases are played


def simulated_points(concept: Any) -> Draw:
    """Return a source of points labelled by one hypothesis of the class: uniform, or Gaussian for halfspaces."""
    random = np.random.default_rng()
    features = getattr(concept, "features", 0)

    def uniform(rows: int) -> tuple[Floats, NDArray[np.int64]]:
        X = random.random((rows, features))
        inside = np.abs(X[:, 0] - 0.5) <= 0.25 if isinstance(concept, Intervals) else X[:, 0] >= 0.5
        return X, inside.astype(np.int64)

    def gaussian(rows: int) -> tuple[Floats, NDArray[np.int64]]:
        X = random.normal(size=(rows, features))
        return X, (X[:, 0] >= 0).astype(np.int64)

    if isinstance(concept, Halfspaces):
        return gaussian
    if isinstance(concept, Thresholds | Stumps | Intervals):
        return uniform
    raise InvalidInput(
        "points are simulated for thresholds, stumps, intervals and halfspaces; for another learner give "
        "sample=(X, y), public rows with labels"
    )


@dataclass(frozen=True)
class _Source:
    """Where rows to teach and rows to ask come from; `rows` may teach, and `distinct` ones be asked."""

    teaching: Draw
    asking: Draw
    classes: int
    rows: int
    distinct: int


def _sample_source(sample: Any, rate: float) -> _Source:
    """Return a source that teaches with one half of a public sample and asks the other."""
    X, y = np.asarray(sample[0]), np.unique(np.asarray(sample[1]), return_inverse=True)[1]
    if X.ndim != 2 or len(X) != len(y) or len(y) < 100:
        raise InvalidInput("sample must be (X, y): at least 100 public rows, and as many labels")
    half = len(y) // 2
    if rate * half < 1:
        raise InvalidInput(
            f"{2 * half:,} public rows cannot show a share of no-quorums as small as {rate:.2g}; give at least "
            f"{math.ceil(2 / rate):,}, or a larger no_quorum_rate"
        )
    random = np.random.default_rng()
    order = random.permutation(len(y))

    def draw_from(rows: NDArray[np.int64]) -> Draw:
        def draw(count: int) -> tuple[Any, NDArray[np.int64]]:
            within = count <= rows.size
            chosen = random.permutation(rows)[:count] if within else random.choice(rows, size=count)
            return X[chosen], y[chosen]

        return draw

    return _Source(draw_from(order[::2]), draw_from(order[1::2]), len(np.unique(y)), rows=half, distinct=half)


class _Table:
    """How likely a query at some distance finds no quorum, for any number of no-quorums and any epsilon, nearly."""

    def __init__(self, epsilon: float, delta: float) -> None:
        self._epsilon = epsilon
        quorum = Quorum.calibrate(epsilon=epsilon, delta=delta, teachers=10**9, no_quorums=_REFERENCE)
        self._table, self._margin = np.array(quorum.table, dtype=np.float64) / 2.0**64, quorum.margin

    def missed(self, distance: Floats, *, no_quorums: int, epsilon: float) -> Floats:
        stretched = distance * (math.sqrt(_REFERENCE / no_quorums) * epsilon / self._epsilon)
        level = np.clip((stretched - self._margin + 1) / 2, 0, len(self._table) - 1)
        missed: Floats = self._table[level.astype(np.int64)]
        return missed


@dataclass(frozen=True)
class _Votes:
    """For one chunk size: how far each query's leading label is ahead, as a share of teachers, and whether it errs."""

    chunk: int
    ahead: Floats
    wrong: NDArray[np.bool_]
    rows: int  # different ones that were asked


def _votes(estimator: Any, chunk: int, source: _Source) -> _Votes:
    fast = isinstance(estimator, Thresholds | Stumps | MeanDirection) or batched_equivalent(estimator) is not None
    wanted = max(_TEACHERS, _ROWS // chunk) if fast else _SLOW
    teachers = max(_LEAST, min(wanted, source.rows // chunk))
    X, y = source.teaching(teachers * chunk)
    deal = Deal(np.arange(len(y)), np.full(teachers, chunk))
    ensemble = teach(estimator, X, y, deal, classes=source.classes, first=False)
    queries, labels = source.asking(_QUERIES)
    counts = ensemble.count(queries).put_to(lambda votes: votes)  # of public or simulated rows
    ordered = np.sort(counts, axis=1)
    ahead, wrong = (ordered[:, -1] - ordered[:, -2]) / (2 * teachers), counts.argmax(axis=1) != labels
    return _Votes(chunk, ahead, wrong, source.distinct)


@dataclass(frozen=True)
class _Outlook:
    """What teachers of several chunk sizes promise at one guarantee, for any number of records."""

    votes: Sequence[_Votes]
    table: _Table
    guarantee: Guarantee

    @classmethod
    def of(cls, estimator: Any, source: _Source, sizes: list[int], guarantee: Guarantee) -> "_Outlook":
        """Let teachers of each chunk size for which the source has enough rows vote."""
        votes = [_votes(estimator, size, source) for size in sizes if _LEAST * size <= source.rows]
        if not votes:
            raise InvalidInput(f"chunks {tuple(sizes)} are too large for a sample of {2 * source.rows} rows")
        table = _Table(max(_LEAST_EPSILON, 0.93 * guarantee.epsilon), 0.9 * guarantee.delta)
        return cls(votes, table, guarantee)

    def forecast(self, votes: _Votes, records: int) -> ChunkForecast | None:
        """Return what a chunk size gives at this number of records, with enough no-quorums for it; None if none are."""
        distance = votes.ahead * (records // votes.chunk)
        allowed = max(10, records // 50)
        for _ in range(8):
            cutoff = cutoff_for(self.guarantee, arrivals=records, no_quorums=allowed)
            epsilon = self.guarantee.epsilon - cutoff.epsilon
            missed = self.table.missed(distance, no_quorums=cutoff.most, epsilon=epsilon)
            expected = records * float(missed.mean())
            unsure = 3 * math.sqrt(expected * records / votes.rows)  # few rows near the boundary: others may have more
            allowed = math.ceil(_ROOM * expected + 4 * math.sqrt(expected) + 1 + unsure)
            if allowed > records / 2:
                return None
        answered = 1 - missed
        error = float((answered * votes.wrong).sum() / max(answered.sum(), 1e-12))
        return ChunkForecast(chunk=votes.chunk, no_quorums=allowed, no_quorum_rate=float(missed.mean()), error=error)

    def rank(self, records: int) -> list[ChunkForecast]:
        """Return the forecasts of all chunk sizes that can be used, the best first."""
        usable = [votes for votes in self.votes if votes.chunk <= records // _LEAST]
        forecasts = [forecast for votes in usable if (forecast := self.forecast(votes, records)) is not None]
        return sorted(forecasts, key=lambda forecast: forecast.no_quorum_rate + forecast.error)

    def smallest(self, rate: float) -> int:
        """Return about the smallest number of records at which some chunk size reaches the rate."""

        def is_enough(step: int) -> bool:
            ranked = self.rank(_step_records(step))
            return bool(ranked) and _ROOM * min(forecast.no_quorum_rate for forecast in ranked) <= rate

        if not is_enough(_MOST_STEPS):
            raise Infeasible(
                f"no number of records up to {_step_records(_MOST_STEPS):,} brings no-quorums down to {rate:.2%} with "
                "this learner; take another learner, a larger epsilon, or a larger no_quorum_rate"
            )
        return _step_records(bisect_left(range(_MOST_STEPS), True, key=is_enough))

    def nearest(self, rate: float, records: int) -> tuple[Change, ...]:
        """Return the number of records that would do, where there is one."""
        try:
            needed = self.smallest(rate)
        except Infeasible:
            return ()
        return (Change("records", needed, None, f"collect about {needed:,} records"),) if needed > records else ()


def _step_records(step: int) -> int:
    return int(round(500 * 1.1**step, -2)) if step else 500


def plan_everlasting(
    estimator: Any,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-6,
    records: int | None = None,
    no_quorum_rate: float = 0.02,
    sample: Any = None,
    chunks: Sequence[int] = CHUNKS,
    phases: int = 2,
) -> Plan:
    """Plan everlasting prediction, with one epsilon and delta for records and for queries.

    With `records`, the plan takes the chunk size with the fewest no-quorums and mistakes, and is feasible if their
    share stays within `no_quorum_rate`; without, it finds the smallest number of records for which it does. `sample` is
    public: labelled rows like those that will come. A class of hypotheses needs none. Then `phases` are played with
    real noise on such rows, since the votes of the first phase do not guarantee those of later phases.

    >>> plan = plan_everlasting(Thresholds(), epsilon=8.0, delta=1e-4, records=20_000, chunks=(3, 5), phases=1)
    >>> plan.no_quorum_rate < plan.target, len(plan.phases)
    (True, 1)
    """
    estimator = estimator.for_learning() if isinstance(estimator, Concept) else estimator
    guarantee = Guarantee(check_positive("epsilon", epsilon), check_delta(delta, zero=False))
    rate, phases = check_rate("no_quorum_rate", no_quorum_rate), check_count("phases", phases, least=0)
    if sample is None:
        draw = simulated_points(estimator)
        source = _Source(draw, draw, classes=2, rows=10**6, distinct=10**9)  # which do not run out
    else:
        source = _sample_source(sample, rate)
    outlook = _Outlook.of(estimator, source, [check_count("a chunk", chunk) for chunk in chunks], guarantee)
    count = outlook.smallest(rate) if records is None else check_count("records", records)
    for _ in range(_TRIES):
        ranked = outlook.rank(count)
        if not ranked:
            raise Infeasible(
                f"with {count:,} records half of all queries would find no quorum at any chunk size; it takes about "
                f"{outlook.smallest(0.2):,} records for one query in five"
            )
        plan = _play_best(estimator, ranked, source, guarantee, count, rate=rate, phases=phases)
        if plan.feasible or records is not None:
            break
        count = math.ceil(1.15 * count)  # the phases that were played had more no-quorums than the votes promised
    return plan if plan.feasible else replace(plan, nearest=outlook.nearest(rate, count))


def _play_best(
    estimator: Any,
    ranked: list[ChunkForecast],
    source: _Source,
    guarantee: Guarantee,
    records: int,
    *,
    rate: float,
    phases: int,
) -> Plan:
    """Return the plan of the best chunk size whose phases pass; of the first if none does."""
    plans = []
    for chosen in ranked[:_TRIES]:
        try:
            terms = votes_terms(
                teachers=records // chosen.chunk,
                arrivals=records,
                no_quorums=chosen.no_quorums,
                training=guarantee,
                queries=guarantee,
                refresh="queries",
            )
        except Infeasible:
            continue
        settings = {"chunk": chosen.chunk, "no_quorums": chosen.no_quorums}
        played = _play(estimator, settings, source, guarantee, records, phases=phases)
        passed = all(phase.refused == 0 and phase.error <= max(0.01, 2 * chosen.error) for phase in played)
        worst = max([chosen.no_quorum_rate, *(phase.no_quorum_rate for phase in played)])
        figures = {
            "records": records,
            "teachers": records // chosen.chunk,
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            "cutoff": terms.cutoff,
            "distance": terms.later.distance(),
            "target": rate,
            "candidates": tuple(ranked),
            "phases": tuple(played),
            **vars(chosen),
        }
        plan = Plan(
            family="everlasting",
            feasible=passed and worst <= 1.1 * rate,
            keywords={name: figures[name] for name in ("epsilon", "delta", "chunk", "no_quorums")},
            figures=figures,
            text=_text(figures),
            shortage=f"{rate:.2%} without quorum, and no refusals, are asked for",
            shown=("records", "teachers", "chunk", "no_quorums", "epsilon", "delta"),
            bar=("queries expected to find a quorum", 1 - chosen.no_quorum_rate),
        )
        if passed:
            return plan
        plans.append(plan)
    if not plans:
        raise Infeasible(f"{records:,} records are too few: even a unanimous ballot would mostly find no quorum")
    return plans[0]


def _play(
    estimator: Any,
    settings: dict[str, int],
    source: _Source,
    guarantee: Guarantee,
    records: int,
    *,
    phases: int,
) -> list[PlayedPhase]:
    if phases == 0:
        return []
    X, y = source.teaching(records)
    classifier = EverlastingClassifier(
        estimator,
        epsilon=guarantee.epsilon,
        delta=guarantee.delta,
        classes=list(range(source.classes)),
        **settings,  # type: ignore[arg-type]
    ).fit(X, y)
    played = []
    for _ in range(phases):
        X, y = source.asking(records)
        answers = classifier.predict(X)
        right = answers.labels[answers.answered].astype(np.int64) == y[answers.answered]
        admitted = max(1, records - answers.refused)
        played.append(
            PlayedPhase(
                no_quorum_rate=float(answers.no_quorum.sum()) / admitted,
                refused=int(answers.refused),
                error=1 - float(right.mean()) if right.size else 0.0,
            )
        )
    return played


def _text(figures: dict[str, Any]) -> str:
    records, phases = figures["records"], figures["phases"]
    sentences = [
        f"{records:,} records make {figures['teachers']:,} teachers of {figures['chunk']}.",
        f"About {figures['no_quorum_rate']:.2%} of queries are expected to find no quorum, and {figures['error']:.2%} "
        f"of the answers to be wrong; a phase of {records:,} queries may have {figures['no_quorums']:,} no-quorums.",
        f"Records and queries both keep epsilon = {figures['epsilon']:g}, delta = {figures['delta']:g}: a query pays "
        f"{figures['cutoff'].epsilon:g} of it for the cutoff.",
    ]
    if phases:
        sentences.append(
            f"In {len(phases)} phases played on such points up to {max(phase.no_quorum_rate for phase in phases):.2%} "
            f"found no quorum, up to {max(phase.error for phase in phases):.2%} of the answers were wrong, and "
            f"{sum(phase.refused for phase in phases):,} queries were refused."
        )
    return " ".join(sentences)
