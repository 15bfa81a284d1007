"""Prediction sets and intervals: their coverage over many data sets, and their size against those without privacy.

The tables are simulated, so that coverage is known without a test set: errors of a known law, and classes whose
centres are drawn once.
"""

import math
from collections.abc import Iterator

import numpy as np
from scipy import special
from sklearn.linear_model import LinearRegression, LogisticRegression

from quorate.bench.figures import Figure
from quorate.models.evaluation import ConformalClassifier, ConformalRegressor

__all__ = ["coverage_and_width", "held_out_figures", "set_sizes"]

_ALPHA = 0.1


def held_out_figures(quick: bool) -> Iterator[Figure]:
    """Measure coverage at 2,000 units and epsilon 0.5, and sizes at 10,000 units."""
    coverage, _ = coverage_and_width(2000, 0.5, simulations=100 if quick else 1000)
    yield "conformal.coverage", coverage, "share"
    yield "conformal.coverage_at_most", coverage, "share"
    yield "conformal.set_size_over_not_private", set_sizes(10_000, 0.5, simulations=3 if quick else 20), "times"
    _, width = coverage_and_width(10_000, 0.5, simulations=20 if quick else 100)
    yield "conformal.width_over_not_private", width, "times"


def coverage_and_width(units: int, epsilon: float, *, simulations: int) -> tuple[float, float]:
    """Return the mean coverage of intervals, and their mean width over that without privacy, of normal errors."""
    random, model = np.random.default_rng(0), LinearRegression().fit([[0.0], [1.0]], [0.0, 0.0])
    rank, covered, wider = math.ceil((units + 1) * (1 - _ALPHA)), [], []
    for _ in range(simulations):
        X, y = random.normal(size=(units, 1)), random.normal(size=units)
        width = ConformalRegressor(model, epsilon, _ALPHA, largest_error=100.0).fit(X, y).width_
        covered.append(float(special.erf(width / math.sqrt(2))))
        wider.append(width / np.sort(np.abs(y))[rank - 1])
    return float(np.mean(covered)), float(np.mean(wider))


def set_sizes(units: int, epsilon: float, *, simulations: int) -> float:
    """Return the mean size of sets over that of sets without privacy, of six classes around random centres."""
    random = np.random.default_rng(1)
    centres = random.normal(size=(6, 4)) * 1.2

    def draw(rows: int) -> tuple[np.ndarray, np.ndarray]:
        labels = random.integers(6, size=rows)
        return centres[labels] + random.normal(size=(rows, 4)), labels

    X, y = draw(3000)
    model, (new, _) = LogisticRegression(max_iter=1000).fit(X, y), draw(10_000)
    said, sizes = model.predict_proba(new), []
    for _ in range(simulations):
        X, y = draw(units)
        scores = np.sort(1 - model.predict_proba(X)[np.arange(units), y])
        plain = 1 - said <= scores[math.ceil((units + 1) * (1 - _ALPHA)) - 1]
        private = ConformalClassifier(model, epsilon, _ALPHA).fit(X, y)
        sizes.append((said >= private.threshold_).sum() / plain.sum())
    return float(np.mean(sizes))
