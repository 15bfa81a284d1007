"""Everlasting prediction: how many records it takes, how often it abstains and errs, how far it drifts, how fast it is.

Points of the line are uniform on the unit interval, and the boundary is at its middle; drift is measured in mass.
Everything is drawn afresh, with real noise, so that figures vary a little from run to run.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.cli.adult_columns import read_adult
from quorate.concepts import Thresholds
from quorate.errors import Infeasible
from quorate.everlasting import EverlastingClassifier

__all__ = ["Course", "everlasting_figures", "run_phases", "threshold_course"]

Figure = tuple[str, float | None, str]
_PROBES = 4001


@dataclass(frozen=True)
class Course:
    """What came of several phases: shares over all of their queries, and the largest drift that was met.

    >>> Course(queries=200, no_quorum=2, refused=0, wrong=1, drift=0.001, seconds=1.0).no_quorum_percent
    1.0
    """

    queries: int
    no_quorum: int
    refused: int
    wrong: int
    drift: float
    seconds: float

    @property
    def no_quorum_percent(self) -> float:
        """Queries without a quorum, in percent of those that were not refused.

        >>> Course(queries=200, no_quorum=2, refused=100, wrong=1, drift=0.001, seconds=1.0).no_quorum_percent
        2.0
        """
        return 100 * self.no_quorum / max(1, self.queries - self.refused)

    @property
    def error_percent(self) -> float:
        """Wrong answers, in percent of all answers.

        >>> Course(queries=200, no_quorum=0, refused=0, wrong=1, drift=0.001, seconds=1.0).error_percent
        0.5
        """
        return 100 * self.wrong / max(1, self.queries - self.refused - self.no_quorum)


def run_phases(
    classifier: EverlastingClassifier,
    draw: Callable[[int], Any],
    truth: Callable[[Any], Any],
    *,
    records: int,
    phases: int,
    drift: Callable[[EverlastingClassifier], float] = lambda _: 0.0,
) -> Course:
    """Fit on fresh records and ask through several phases, in batches.

    >>> def truth(X):
    ...     return (X[:, 0] >= 0.5).astype(int)
    >>> made = EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=100)
    >>> course = run_phases(made, lambda rows: np.random.random((rows, 1)), truth, records=20_000, phases=1)
    >>> course.queries, course.error_percent < 1
    (20000, True)
    """
    start = time.perf_counter()
    X = draw(records)
    classifier.fit(X, truth(X))
    counts, largest = np.zeros(4, dtype=np.int64), 0.0
    for _ in range(phases):
        left = classifier._seats.left or classifier._next_size()
        while left:
            X = draw(min(50_000, left))
            left -= len(X)
            made = classifier.predict(X)
            wrong = int(np.count_nonzero(made.labels[made.answered].astype(np.int64) != truth(X)[made.answered]))
            counts += len(X), int(made.no_quorum.sum()), made.refused, wrong
        largest = max(largest, drift(classifier))
    queries, no_quorum, refused, wrong = counts.tolist()
    return Course(queries, no_quorum, refused, wrong, drift=largest, seconds=time.perf_counter() - start)


def _uniform(rows: int) -> Any:
    return np.random.default_rng().random((rows, 1))


def _line_truth(X: Any) -> Any:
    return (X[:, 0] >= 0.5).astype(np.int64)


def _line_drift(classifier: EverlastingClassifier) -> float:
    """Return how far the boundary of the majority lies from the middle: the owner's look at his own teachers."""
    probes = np.linspace(0.3, 0.7, _PROBES)[:, np.newaxis]
    ahead = classifier._phase._ensemble.count(probes).put_to(lambda votes: votes[:, 1] > votes[:, 0])
    return abs(0.7 - 0.4 * float(ahead.mean()) - 0.5)


def threshold_course(*, records: int, phases: int, epsilon: float = 1.0, no_quorums: int, **settings: Any) -> Course:
    """Play phases of thresholds on the unit interval; as many queries in each as there are records, unless they grow.

    >>> threshold_course(records=10_000, phases=2, epsilon=8.0, no_quorums=100, chunk=3, delta=1e-5).error_percent < 1
    True
    """
    settings = {"delta": 1e-6, "chunk": 3} | settings
    made = EverlastingClassifier(Thresholds(), epsilon=epsilon, no_quorums=no_quorums, **settings)
    return run_phases(made, _uniform, _line_truth, records=records, phases=phases, drift=_line_drift)


def _named(name: str, course: Course) -> Iterator[Figure]:
    yield f"everlasting.{name}.no_quorum_percent", course.no_quorum_percent, "percent"
    yield f"everlasting.{name}.error_percent", course.error_percent, "percent"
    yield f"everlasting.{name}.refused", course.refused, "queries"


def _threshold_figures(quick: bool) -> Iterator[Figure]:
    """Phases grow to twice (five times) the number of records: the boundary then comes to rest (PROOF.md, step 17)."""
    phases = 3 if quick else 30
    for records, no_quorums, chunk, growth, most in (
        (300_000, 3200, 8, 1.1, 600_000),
        (100_000, 3000, 4, 1.1, 500_000),
    ):
        settings = {"chunk": chunk, "growth": growth, "most_seats": most}
        course = threshold_course(records=records, phases=phases, no_quorums=no_quorums, **settings)
        yield from _named(f"thresholds.n{records}", course)
        yield f"everlasting.thresholds.n{records}.drift", course.drift, "mass"
        if records == 300_000:
            yield "everlasting.thresholds.n300000.seconds", course.seconds, "s"


def _smallest_figures(quick: bool) -> Iterator[Figure]:
    """Go down a ladder of sizes as long as all phases pass without a refusal and with an error of 0.1% at most."""
    ladders = {
        1.0: (3000, (40_000, 30_000, 25_000, 20_000, 17_000, 14_000, 12_000)),
        2.0: (1100, (10_000, 8000, 7000, 6000, 5000, 4000)),
        4.0: (380, (3000, 2500, 2000, 1700, 1400, 1200)),
    }
    for epsilon, (no_quorums, ladder) in ladders.items():
        smallest: float | None = None
        for records in ladder[: 1 if quick else None]:
            try:
                course = threshold_course(records=records, phases=10, epsilon=epsilon, no_quorums=no_quorums)
            except Infeasible:
                break
            if course.refused or course.error_percent > 0.1:
                break
            smallest, at = records, course.no_quorum_percent
        yield f"everlasting.thresholds.smallest_n.epsilon{epsilon:g}", smallest, "records"
        if smallest is not None:
            yield f"everlasting.thresholds.smallest_n_no_quorum_percent.epsilon{epsilon:g}", at, "percent"


def _halfspace_figures(quick: bool) -> Iterator[Figure]:
    """Teachers without intercept, nearly of largest margin. A phase has about as many no-quorums whatever its size."""
    from sklearn.linear_model import LogisticRegression

    for dimensions, records, no_quorums in ((5, 200_000, 11_300),):
        slope = np.ones(dimensions) / np.sqrt(dimensions)
        made = EverlastingClassifier(
            LogisticRegression(C=10.0, fit_intercept=False),
            epsilon=2.0,
            delta=1e-6,
            chunk=8,
            no_quorums=no_quorums,
            classes=[0, 1],
        )
        course = run_phases(
            made,
            lambda rows, columns=dimensions: np.random.default_rng().normal(size=(rows, columns)),  # type: ignore[misc]
            lambda X, along=slope: (X @ along >= 0).astype(np.int64),  # type: ignore[misc]
            records=records,
            phases=1 if quick else 10,
        )
        yield from _named(f"halfspaces{dimensions}.n{records}", course)


def _adult_figures(quick: bool) -> Iterator[Figure]:
    """UCI Adult at epsilon 8: 24,000 records, queries drawn from the rest; accuracy of the answers by phase.

    Its labels are noisy and one class is rare. Points near the boundary are left out, most of them of the rare class,
    so that from phase to phase teachers lean to the other, until all say the same: this is what is to be seen here.
    """
    from sklearn.neighbors import NearestCentroid

    from quorate.cli.bench import data_folder  # which imports this module

    folder, shown = data_folder() / "adult", (1, 2) if quick else (1, 3, 10)
    if not folder.is_dir():
        yield from ((f"everlasting.adult.epsilon8.accuracy_percent.phase{phase}", None, "percent") for phase in shown)
        return
    parts = [read_adult(folder / name) for name in ("train.csv.gz", "test.csv.gz")]
    X, y = np.concatenate([part[0] for part in parts]), np.concatenate([part[1] for part in parts])
    X = (X - X.mean(axis=0)) / (X.std(axis=0) + 1e-9)
    order = np.random.default_rng().permutation(len(y))
    records, rest = order[:24_000], order[24_000:]
    made = EverlastingClassifier(
        NearestCentroid(), epsilon=8.0, delta=1e-6, chunk=24, no_quorums=3000, classes=[0, 1]
    ).fit(X[records], y[records])
    for phase in range(1, shown[-1] + 1):
        asked = np.random.default_rng().choice(rest, size=24_000)
        answers = made.predict(X[asked])
        right = answers.labels[answers.answered].astype(np.int64) == y[asked][answers.answered]
        if phase in shown:
            yield f"everlasting.adult.epsilon8.accuracy_percent.phase{phase}", 100 * float(right.mean()), "percent"


def _poison_figures(quick: bool) -> Iterator[Figure]:
    """One query in twenty lies just above the boundary; measure how far it moves in ten phases, of half of the rows."""

    def poisoned(rows: int) -> Any:
        X = _uniform(rows)
        X[: rows // 20] = 0.53
        return np.random.default_rng().permutation(X)

    phases, size = (2, 30_000) if quick else (10, 60_000)
    for refresh in ("queries", "pool"):
        made = EverlastingClassifier(
            Thresholds(), epsilon=4.0, delta=1e-6, chunk=5, no_quorums=1200, refresh=refresh, classes=[0, 1]
        )
        X = _uniform(size)
        made.fit(X, _line_truth(X))
        largest = 0.0
        for _ in range(phases):
            made.predict(poisoned(size))
            if refresh == "pool":
                made.feed(_uniform(size))
            made.predict(_uniform(1))
            largest = max(largest, _line_drift(made))
        yield f"everlasting.poisoned.{refresh}.drift", largest, "mass"


def _boost_figures(quick: bool) -> Iterator[Figure]:
    """LabelBoost with its tight accounting, and the published labels with the same records, on the line."""
    records, phases = (100_000, 1) if quick else (400_000, 3)
    for relabel, epsilon, no_quorums in (("labelboost", 2.0, 4000), ("votes", 2.0, 1400)):
        made = EverlastingClassifier(
            Thresholds(),
            epsilon=epsilon,
            delta=1e-6,
            chunk=5,
            no_quorums=no_quorums,
            relabel=relabel,  # type: ignore[arg-type]
            classes=[0, 1],
        )
        course = run_phases(made, _uniform, _line_truth, phases=phases, records=records, drift=_line_drift)
        yield from _named(f"{relabel}.epsilon{epsilon:g}.n{records}", course)
        yield f"everlasting.{relabel}.epsilon{epsilon:g}.n{records}.drift", course.drift, "mass"


def everlasting_figures(quick: bool) -> Iterator[Figure]:
    """Measure all of it; quickly, with fewer phases.

    >>> everlasting_figures.__name__
    'everlasting_figures'
    """
    parts = _threshold_figures, _smallest_figures, _halfspace_figures, _adult_figures, _poison_figures, _boost_figures
    for part in parts:
        yield from part(quick)
