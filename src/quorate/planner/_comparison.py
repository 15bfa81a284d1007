"""A comparison of methods: votes on each query, a student, a linear model, or one hypothesis chosen with public points.

No plan can know how well a model will do on records that it may not read. So the methods are compared on one reference
table whose best rule is known: independent normal columns and two labels that follow a logistic law, noisy enough for
the best rule to be wrong in 22 rows of 100. What a method gives is a direction that is off by an angle, and a direction
that is off by t differs from the best rule on t / pi of the rows:

    a learner of r rows      the moment estimate: tan(t)^2 = (d - 1) / r / c^2, where c = 2 * strength * information
    votes                    such learners on disjoint parts; on a query at distance u from the boundary the share
                             Phi(u / tan t) of them votes right, and the planner knows what noise does to that
    a student                the same votes on public points: labels that are wrong near the boundary alone, as those of
                             a stronger logistic law are, and the student learns from them
    a linear model           sampling and noise: tan(t)^2 = (d - 1) (1 / (n i) + steps * d / (L n i)^2) / strength^2,
                             where i is the information of a row and L the length that (epsilon, delta) allow
    one hypothesis           a bound that always holds, and not an expectation; for two labels alone

With c labels a query is between two of them, and 2 / c of the rows tell these two apart. More labels have more
boundaries: the scores of labels are taken as normal, and a loss grows as the density of their smallest gap at 0.

The reference is linear. Where the records are not, trees as teachers can win, and public labelled rows say so.
At the end stand bounds from the literature, with their published constants.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
from scipy.special import expit, ndtr, ndtri

from quorate.core.mechanisms.noisy_vector import largest_length
from quorate.planner._concept_bounds import sauer_growth, semi_private
from quorate.planner._teachers import LEAST_ROWS, best_draft
from quorate.planner.result import Method, PublishedBound
from quorate.planner.task import Draft, Task, VoteForecast

_STRENGTH = 2.0  # of the reference table's logistic law
_PLACES = ndtri((np.arange(200) + 0.5) / 200)  # distances of queries from the boundary
_PUBLIC_STEPS, _OWN_STEPS = 2.0, 6.0  # noise of a fit in steps over that of one release: with public rows, and without
_WHOLE = 10**6  # votes by which shares are told to the forecast
_MOST_LABELS = 20_000  # public points that a student learns from, at most


def compare_methods(task: Task, *, records: int, features: int, public: int) -> tuple[Method, ...]:
    """Return the methods that are open, the best first, for a table of `features` encoded columns."""
    methods = [_votes(task, records, features)]
    if task.delta > 0:
        methods.append(_linear(task, records, features, public))
    if public:
        methods.append(_student(task, records, features, public))
    if public and task.classes == 2:
        methods.append(_one_hypothesis(task, records, features, public))
    return tuple(sorted((_among(task.classes, method) for method in methods), key=lambda method: method.error))


def _among(classes: int, method: Method) -> Method:
    """Return the method with its error between two labels as the error among all of them."""
    boundaries = classes * (classes - 1) / 2 * float(np.mean(ndtr(_PLACES / math.sqrt(2)) ** (classes - 2)))
    return method if classes == 2 else replace(method, error=min(method.error * boundaries, 1 - 1 / classes))


@cache
def _information(strength: float = _STRENGTH) -> float:
    """Return what a row of a logistic law of this strength says about a column that does not matter."""
    right = expit(strength * _PLACES)
    return float(np.mean(right * (1 - right)))


def _strength_of(wrong: float) -> float:
    """Return the strength of the logistic law whose labels are this often on the wrong side of the boundary."""
    low, high = 1e-3, 1e3
    for _ in range(40):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if float(np.mean(expit(-middle * np.abs(_PLACES)))) > wrong else (low, middle)
    return high


def _informative_rows(task: Task, rows: int) -> float:
    """Return how many of these rows tell two given labels apart: all of them where there are two."""
    return 2 * rows / task.classes


def _share_off(squared_tangent: float) -> float:
    return math.atan(math.sqrt(squared_tangent)) / math.pi


def _linear(task: Task, records: int, features: int, public: int) -> Method:
    columns, outputs = features + 1, 1 if task.classes == 2 else task.classes
    information = _informative_rows(task, records) * _information()
    length = largest_length(epsilon=task.epsilon, delta=task.delta, entries=8 * columns * outputs)
    noise = (_PUBLIC_STEPS if public else _OWN_STEPS) * columns / max(length * information, 1e-9) ** 2
    loss = _share_off(features * (1 / information + noise) / _STRENGTH**2)
    rows = (
        "its geometry comes from public rows"
        if public
        else "it learns its columns within the same budget, unless they are declared"
    )
    why = f"a few noisy sums serve every query; it gives probabilities and may be published; {rows}"
    return Method("linear", "PrivateLogisticRegression", loss, why)


def _try_teachers(
    task: Task, records: int, features: int, aggregator: str = "auto"
) -> Iterator[tuple[float, int, Draft]]:
    """Yield what votes lose, for one number of teachers after another: too few are drowned by noise, too many naive."""
    teachers = 25
    while teachers == 25 or records // teachers >= LEAST_ROWS:
        rows = _informative_rows(task, max(records // teachers, 1))
        share = ndtr(np.abs(_PLACES) * (2 * _STRENGTH * _information()) / math.sqrt(features / rows))
        rest = [np.zeros(len(share))] * (task.classes - 2)
        votes = np.rint(np.stack([share, 1 - share, *rest], axis=1) * _WHOLE).astype(np.int64)
        draft = best_draft(aggregator, task, VoteForecast.from_votes(votes), teachers)
        information = _informative_rows(task, records) * _information()  # of all records together
        sampling_loss = _share_off(features / information / _STRENGTH**2)
        right = draft.expected.right + (1 - draft.expected.answered) / task.classes
        yield 1 - right + sampling_loss, teachers, draft
        teachers *= 2


def _votes(task: Task, records: int, features: int) -> Method:
    loss, teachers, draft = min(_try_teachers(task, records, features), key=lambda attempt: attempt[0])
    why = (
        f"about {teachers:,} teachers of {records // teachers:,} records do best there, with {draft.aggregator}; "
        f"{task.queries:,} queries share the budget; any learner may vote, so that nothing has to be linear"
    )
    return Method("votes", "PrivateClassifier", min(loss, 0.5), why)


def _student(task: Task, records: int, features: int, public: int) -> Method:
    """Return what a student loses with the best number of public labels: more of them are each noisier."""
    attempts = []
    for halvings in range(6):
        labels = min(public, _MOST_LABELS) >> halvings
        if labels < 10:
            break
        labelling = Task(task.epsilon, task.delta, labels, task.classes, task.no_quorums, task.guess)
        aggregator = "sharp_majority" if task.classes == 2 else "noisy_max"
        wrong = min(_try_teachers(labelling, records, features, aggregator), key=lambda attempt: attempt[0])[0]
        strength = _strength_of(wrong)
        information = _informative_rows(task, labels) * _information(strength)
        attempts.append((_share_off(features / information / strength**2), labels))
    loss, labels = min(attempts, default=(0.5, public))
    why = f"teachers label {labels:,} public points, and a student that may be published learns from them"
    return Method("student", "StudentClassifier", loss, why)


def _one_hypothesis(task: Task, records: int, features: int, public: int) -> Method:
    growth = sauer_growth(features + 1)
    loss = min(1.0, semi_private(records, log_growth=growth, epsilon=task.epsilon, public=public).error)
    why = "one hypothesis for each dichotomy of the public points; pure epsilon; it may be published"
    return Method("semi-private", "SemiPrivateClassifier", loss, why, is_bound=True)


_FAILURE = 0.05  # the probability beta with which the published guarantee of accuracy may fail


def stability_teachers(*, epsilon: float, delta: float, queries: int, disagreement: float) -> tuple[int, int]:
    """Return (teachers, no-quorums) that Bassily, Thakkar and Thakurta (2018, Section 3) ask for.

    T = 3 (g m + sqrt(g m log(m / b) / 2)) no-quorums for m queries, an error g of a teacher and b = 0.05;
    lambda = sqrt(32 T log(2 / delta)) / epsilon; k = 34 sqrt(2) lambda log(4 m T / min(delta, b / 2)).
    """
    expected = disagreement * queries
    cutoff = max(1, math.ceil(3 * (expected + math.sqrt(expected * math.log(queries / _FAILURE) / 2))))
    scale = math.sqrt(32 * cutoff * math.log(2 / delta)) / epsilon
    smallest = min(delta, _FAILURE / 2)
    return math.ceil(34 * math.sqrt(2) * scale * math.log(4 * queries * cutoff / smallest)), cutoff


def pate_epsilon(*, scale: float, queries: int, delta: float) -> float:
    """Return the epsilon of the plain cost order / scale**2 a query, at the best order (Papernot et al. 2018)."""
    ratio = queries / scale**2
    return ratio + 2 * math.sqrt(ratio * math.log(1 / delta))


def published_bounds(
    *, epsilon: float, delta: float, queries: int, disagreement: float, rows: int, scale: float | None
) -> tuple[PublishedBound, ...]:
    """Return the bounds that apply; `rows` is the least a teacher learns from, `scale` the noise of a noisy maximum."""
    if delta == 0:
        return ()
    teachers, cutoff = stability_teachers(epsilon=epsilon, delta=delta, queries=queries, disagreement=disagreement)
    bounds = [
        PublishedBound(
            "teachers",
            float(teachers),
            "Bassily, Thakkar and Thakurta 2018",
            f"the stability test with the published constants needs {teachers:,} teachers ({teachers * rows:,} records "
            f"at {rows} each) and {cutoff:,} no-quorums for these queries and this disagreement",
        )
    ]
    if scale is not None:
        stated = pate_epsilon(scale=scale, queries=queries, delta=delta)
        bounds.append(
            PublishedBound(
                "epsilon",
                stated,
                "Papernot et al. 2018",
                f"plain accounting of a noisy maximum (order / scale**2 a query) would state epsilon = {stated:.3g} "
                f"for the noise of scale {scale:.4g} that keeps epsilon = {epsilon:g} here",
            )
        )
    return tuple(bounds)
