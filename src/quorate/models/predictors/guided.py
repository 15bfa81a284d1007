"""What public rows decide about a fit: the learner, the number of teachers, the plan, and what it warns of."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length

from quorate.compute.ensemble import Ensemble
from quorate.compute.learners import DeviceName
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import NoisyShares
from quorate.models.predictors.base import SessionClassifier, check_records, is_auto
from quorate.models.predictors.labels import known_codes
from quorate.planner import Plan
from quorate.planner.pilot import Pilot, run_pilot
from quorate.planner.task import Task
from quorate.planner.trial import Goal, LearnerChoice, candidates, choose_learner

__all__ = ["GuidedClassifier", "PublicRows"]


class PublicRows(NamedTuple):
    """Public rows as teachers take them, and the class numbers of their labels; None where there are none."""

    X: Any
    codes: NDArray[np.int64] | None


class GuidedClassifier(SessionClassifier, ABC):
    """A classifier that public rows may guide. Nothing here is handed a private row (proof: step 4)."""

    estimator: Any
    estimator_: Any
    teachers: int | Literal["auto"]
    aggregator: str
    queries: int
    disagreement: float | None
    scores: bool
    class_weight: Any
    n_jobs: int | None
    backend: str | None
    device: DeviceName

    @abstractmethod
    def _plan(self, held_out: int, *, must: bool = True, **known: Any) -> Any:
        """Return the plan from public numbers; one that is not feasible is refused if it must be."""

    @abstractmethod
    def _left(self, held_out: int) -> tuple[float, float]:
        """Return (epsilon, delta) of the answers."""

    @abstractmethod
    def _open(self, ensemble: Ensemble, planned: Plan) -> None:
        """Open the budget of the plan, from which the ensemble answers."""

    @abstractmethod
    def _class_weight(self) -> Any:
        """Return the weights that teachers give to classes, or None for none."""

    def _public_rows(self, public: Any, labels: Any) -> PublicRows:
        """Return public rows in canonical form, or say what is wrong with them."""
        if public is None:
            if labels is not None:
                raise InvalidInput("public_labels are those of public rows: give public too")
            return PublicRows(None, None)
        if labels is None and not is_auto(self.estimator):
            return PublicRows(None, None)  # they serve to try an estimator, as they are
        X = check_records(self, public, estimator=self.estimator_, reset=False, role="public")
        check_consistent_length(X, labels)
        return PublicRows(X, None if labels is None else known_codes(self.classes_, labels, name="public_labels"))

    def _choose(self, public: PublicRows, *, records: int, held_out: int, teach: bool) -> None:
        """Take the estimator, where it is free, and the number of teachers that do best on public rows."""
        self.chosen_: LearnerChoice | None = None
        if public.codes is None and not is_auto(self.estimator):
            return
        free = self.estimator is None or is_auto(self.estimator)
        estimators = candidates(self._class_weight()) if free else {type(self.estimator_).__name__: self.estimator_}
        epsilon, delta = self._left(held_out)
        goal = Goal(
            Task(epsilon, delta, self.queries, len(self.classes_), guess=self.on_no_quorum == "random"),
            "noisy_shares" if self.scores else self.aggregator,
            records,
            teachers=None if self.teachers == "auto" else self.teachers,
            teach=teach,
            balanced=isinstance(self.class_weight, str) and self.class_weight == "balanced",
        )
        self.chosen_ = choose_learner(estimators, public.X, public.codes, goal)  # proof: step 4
        self.estimator_ = estimators[self.chosen_.learner]

    def _guided(self, held_out: int, known: dict[str, Any], public: PublicRows) -> Plan:
        """Return the plan, and warn of what it warns of: made with the help of public rows, where they have labels."""
        if public.codes is None:
            planned: Plan = self._plan(held_out, **known)
            self._warn_of(planned)
            return planned
        first = self._plan(held_out, must=False, **known)
        try:
            pilot = self._pilot(public.X, public.codes, first)
        except Infeasible as error:
            planned = self._plan(held_out, **known)
            reason = f"disagreement could not be measured: {error}"
            planned = replace(planned, assumptions=(*planned.assumptions, reason))
        else:
            measured = self.disagreement is None and "votes" not in known and not held_out
            own = {"votes": pilot.votes, "teachers": first.teachers} if measured else {}
            planned = self._plan(held_out, **known | own)
            scored = isinstance(planned.mechanism, NoisyShares)
            text = None if scored else pilot.warning(planned.mechanism, queries=self.queries)
            planned = replace(planned, warnings=(*planned.warnings, *([text] if text else [])))
        self._warn_of(planned)
        return planned

    def _pilot(self, X: Any, codes: NDArray[np.int64], planned: Plan) -> Pilot:
        """Try teachers of the planned size on labelled public rows, which do not stand for persons."""
        if self.unit_ == "person":
            raise Infeasible("teachers are dealt persons, and nobody says whose the public rows are")
        return run_pilot(
            X,
            codes,
            estimator=self.estimator_,
            units_per_teacher=planned.rows_per_teacher or 1,
            classes=len(self.classes_),
            n_jobs=self.n_jobs,
            backend=self.backend,
            device=self.device,
        )

    def _warn_of(self, planned: Plan) -> None:
        """Warn of what a plan warns of, and of one that falls short: where an aggregator is named, none is refused."""
        self._warn(planned.warnings if planned.feasible else (planned.shortfall(), *planned.warnings))

    def _warn(self, texts: Iterable[str]) -> None:
        """Say what is wrong with a plan before its budget is opened."""
        for text in texts:
            warnings.warn(text, UserWarning, stacklevel=6)
