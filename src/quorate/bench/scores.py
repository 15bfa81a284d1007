"""What scores from ballots are worth on UCI Bank Marketing, where one in eight says yes: medians over splits.

Two thirds of the records are private. Half of the others are public: by them the columns are encoded, and the prior is
declared. Of the rest, 1,000 are asked and judge. Settings are the defaults of `scores=True`, epsilon 4, delta 1e-5.
What the noise takes is the area under the curve of the teachers' vote shares without noise less that of the scores.
"""

from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

from quorate.bench.figures import Figure, data_folder
from quorate.core.session import release_votes

__all__ = ["score_figures"]

_NAMES = ("area", "area_lost_to_noise", "balanced_accuracy", "balanced_accuracy.labels")
_ASKED: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "queries": 1000, "classes": ["no", "yes"]}


def score_figures(quick: bool) -> Iterator[Figure]:
    """Yield the figures: None where there is no data."""
    path = data_folder() / "bank" / "bank-full.csv.gz"
    if not path.exists():
        yield from ((f"scores.bank.{name}", None, "share") for name in _NAMES)
        return
    from quorate.tables import read_table

    table = read_table(path, role="public")
    splits = [_split(table, np.random.default_rng()) for _ in range(3 if quick else 5)]
    for place, name in enumerate(_NAMES):
        yield f"scores.bank.{name}", median(values[place] for values in splits), "share"


def _split(table: Any, random: np.random.Generator) -> tuple[float, ...]:
    """Return the area under the curve, what noise takes of it, and balanced accuracies, with scores and with labels."""
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    from quorate.models.predictors import PrivateClassifier
    from quorate.tables import Schema

    order = random.permutation(len(table))
    private, public, rest = np.split(order, [len(order) * 2 // 3, len(order) * 5 // 6])
    schema = Schema.from_public(table.take(public), label="y", classes=["no", "yes"])
    X, y, asked = schema.encode(table, role="public"), schema.labels(table, role="public"), rest[: _ASKED["queries"]]
    prior = {label: float((y[public] == label).mean()) for label in ("no", "yes")}
    scored = PrivateClassifier(scores=True, threshold="balanced", prior=prior, **_ASKED)
    scored.fit(X[private], y[private], one_scale=schema.one_scale)
    labelled = PrivateClassifier(on_no_quorum="random", **_ASKED)
    labelled.fit(X[private], y[private], one_scale=schema.one_scale)
    true, area = y[asked] == "yes", float(roc_auc_score(y[asked] == "yes", scored.decision_function(X[asked])))
    counts = release_votes(scored.session_.answerer.ensemble, X[asked], lambda votes: votes)  # a bench may look
    return (
        area,
        float(roc_auc_score(true, counts[:, 1])) - area,
        *(float(balanced_accuracy_score(true, made.predict(X[asked]).labels == "yes")) for made in (scored, labelled)),
    )
