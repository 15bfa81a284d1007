"""The public API as programs with types use it: `make types` has pyright read this, and runs it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

import quorate as qr
from quorate.core.mechanisms import Quorum
from quorate.core.requests import Quote
from quorate.models.concepts import Thresholds
from quorate.models.predictors import Predictions
from quorate.tables import Category, Number, Schema

__all__ = ["use"]


def use(folder: Path) -> None:
    """Plan, fit, ask, publish, release, save and load, with a type for everything that is kept."""
    generator = np.random.default_rng(0)
    X: NDArray[np.float64] = generator.normal(size=(2000, 1))
    y: NDArray[np.int64] = (X[:, 0] > 0).astype(np.int64)

    plan = qr.plan(teachers=400, queries=20, disagreement=0.02)
    share: float = plan.right
    settings: dict[str, Any] = plan.settings()
    changes: tuple[str, ...] = tuple(change.sentence for change in plan.nearest)
    assert 0 <= share <= 1
    assert plan.feasible == (not changes)
    assert set(settings) >= {"epsilon", "teachers"}

    classifier = qr.PrivateClassifier(epsilon=4.0, queries=20, teachers=100, classes=[0, 1]).fit(X, y)
    quote: Quote = classifier.cost(X[:5])
    answers: Predictions = classifier.predict(X[:5])
    told: str = classifier.claim_
    assert len(answers) == 5
    assert "differentially private" in told
    assert quote

    model = qr.PrivateLogisticRegression(epsilon=4.0, classes=[0, 1]).fit(X, y, public=X[:100])
    chances: NDArray[np.float64] = model.predict_proba(X[:5])
    assert chances.shape == (5, 2)

    release = qr.QueryRelease(Thresholds(), epsilon=1.0).fit(X, X[:50])
    bound: float = release.error_bound()
    assert 0 <= bound <= 1

    path: Path = qr.save(classifier, folder / "model")
    assert len(qr.load(path).predict(X[:2])) == 2

    quorum = Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=400, no_quorums=5)
    winner: int | None = quorum.answer([400, 0])
    budget = qr.Budget(epsilon=1.0, delta=1e-6)
    left: qr.Cost = budget.remaining()
    assert winner == 0
    assert left.renyi > 0

    schema = Schema({"age": Number(low=0, high=100), "sex": Category(["f", "m"])})
    rows: NDArray[np.float64] = schema.encode(pa.table({"sex": ["m"], "age": [50]}), role="query")
    assert rows.shape == (1, 3)
