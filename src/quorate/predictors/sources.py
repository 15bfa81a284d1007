"""What a private classifier may be made of beside rows in memory: teachers that stand elsewhere."""

from abc import ABC
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from quorate.ensemble import Electorate, Ensemble
from quorate.ensemble.electorate import as_electorate
from quorate.errors import InvalidInput
from quorate.predictors.base import check_records, declared_classes
from quorate.predictors.guided import GuidedClassifier

__all__ = ["OtherSources"]

_OF_A_FIT = (
    "estimator",
    "teachers",
    "holdout",
    "class_weight",
    "n_jobs",
    "backend",
)  # settings of teachers fitted here


class OtherSources(GuidedClassifier, ABC):
    """A classifier that need not fit its teachers itself."""

    epsilon: float
    delta: float

    @classmethod
    def from_teachers(
        cls,
        teachers: Electorate | Sequence[Any],
        *,
        classes: Any,
        public: Any,
        public_votes: Any = None,
        call_rows: int = 1,
        seconds: float = 30.0,
        **settings: Any,
    ) -> Self:
        """Return a classifier whose teachers you bring: networks, prompts with examples of their own, remote models.

        `teachers` are functions from rows to labels, or addresses of models that speak the Open Inference Protocol, or
        an `Electorate`, whose class numbers are places among the sorted `classes`. No record may have reached more than
        one of them: that is yours to see to, and the claim is about all that one teacher has learned from. `public` are
        a few rows that are not private: they show which columns queries have, and each teacher is tried on the first.

        A function gets `call_rows` queries in each call, a matrix of 64-bit floats or a data frame. With more than one
        you promise that it answers row by row, and that asking does not change it (`quorate.calls`). A teacher that
        raises, names no class, or whose server does not answer within `seconds`, votes for a class that its place among
        the teachers decides. `public_votes` guide the plan, as in `fit`; `settings` are those of the constructor.

        >>> X = np.random.default_rng(0).normal(size=(3, 2))
        >>> rules = [lambda rows, cut=cut: np.where(rows[:, 0] > cut, "ill", "well") for cut in np.linspace(-1, 1, 300)]
        >>> from quorate import PrivateClassifier
        >>> made = PrivateClassifier.from_teachers(rules, classes=["ill", "well"], public=X, epsilon=2.0, queries=10)
        >>> made.predict([[9.0, 0.0], [-9.0, 0.0]]).tolist(), made.unit_
        (['ill', 'well'], 'teacher')
        """
        for name in _OF_A_FIT:
            if name in settings:
                raise InvalidInput(
                    f"{name} is a setting of teachers that are fitted here; those that you bring are made"
                )
        made = cls(classes=classes, **settings)
        made.check_settings()
        made.classes_, _ = declared_classes(classes, np.asarray(classes))
        made.estimator_ = made.chosen_ = made.estimate_ = None
        shown = check_records(made, public, estimator=None, reset=True, frames=True, missing=False)
        electorate = as_electorate(
            teachers, labels=made.classes_.tolist(), public=shown, call_rows=call_rows, seconds=seconds
        )
        known = {} if public_votes is None else {"votes": public_votes, "disagreement": None}
        planned = made._plan(0, teachers=electorate.teachers, **known)
        made._warn(planned.warnings)
        made.unit_, made.declared_ = "teacher", True
        made.epsilon_, made.delta_ = float(made.epsilon), float(made.delta)
        made._open(Ensemble(electorate), planned)
        return made
