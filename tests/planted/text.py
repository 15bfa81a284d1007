"""Models of texts with one mistake each, caught by a replay on neighbours or by counting what a run pays."""

from typing import Any

import numpy as np

from planted.bug import Caught, replaced, replacement_bug
from quorate.models.linear import PrivateLogisticRegression
from quorate.models.linear.model import LinearModel


def _with_log_odds_of_all(self: Any, X: Any) -> Any:
    """Pass all rows to the function: that is the mistake, for it may centre them on each other."""
    return np.column_stack([X, self.offset(X)])


def _offset_replayed(twin: tuple[Any, str, Any]) -> Caught:
    """Compare the log odds of all rows but one, which is replaced; the function centres what it is given."""
    rows = np.random.default_rng(0).normal(size=(50, 3))
    other = rows.copy()
    other[-1] = 1e3
    model = PrivateLogisticRegression(offset=lambda X: X.mean(axis=-1) - X.mean())
    with replaced(*twin):
        first, second = (model._with_log_odds(table)[:-1, -1] for table in (rows, other))
    moved = int((first != second).sum())
    return Caught("replay on neighbours", f"one row moved the log odds of {moved} others", found=moved > 0)


TEXT = (
    replacement_bug(
        "offset_of_the_batch", "replay", (LinearModel, "_with_log_odds"), _with_log_odds_of_all, _offset_replayed
    ),
)
