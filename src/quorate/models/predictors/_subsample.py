"""Subsample and aggregate: any learner on disjoint chunks, any mechanism on their ballots.

Claim: each unit (a row, or a person if `groups` are given) is dealt to one chunk by position. All outputs of `predict`
and `stream` together are (epsilon, delta)-differentially private under replacement of one unit's rows by others. The
number of units, the columns (names, types and, in a data frame, categories) and the classes are public. The proof is
in PROOF.md.
"""

from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_consistent_length

from quorate.compute.ensemble import Ensemble
from quorate.compute.ensemble.clusters import ClusterRows, ClusterTable, deal_table
from quorate.compute.ensemble.dealing import Encoded, people_of
from quorate.compute.ensemble.estimators import RowsInMemory
from quorate.compute.ensemble.sources import SpilledRows, spill_table
from quorate.compute.learners import count_coefficients
from quorate.compute.learners.backends import choose_backend
from quorate.core.checks import warn_of_private
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import NoisyShares
from quorate.models.predictors._voting import Estimate, VotingClassifier, estimate_rates
from quorate.models.predictors.labels import class_codes, declared_classes, known_codes
from quorate.models.predictors.records import allows_missing, check_records, fill_missing, is_auto, unless_auto
from quorate.planner import Plan
from quorate.planner.pilot import Pilot, run_pilot
from quorate.planner.task import Task, weigh_classes
from quorate.planner.trial import Goal, candidates, choose_learner
from quorate.planner.votes import check_aggregator
from quorate.tables import Schema, as_table


@dataclass(frozen=True, repr=False)
class Encoding:
    """How rows of a table become numbers and codes, in this process or on a worker."""

    schema: Schema
    classes: NDArray[Any]

    def __call__(self, table: Any) -> Encoded:
        """Return the rows, their class numbers, and whose they are."""
        assert self.schema.label is not None
        order = known_codes(self.classes, list(self.schema.label.classes))
        codes = np.append(order, -1)[self.schema.label_codes(table)]
        return self.schema.encode(table), codes, people_of(self.schema, table)


class PublicRows(NamedTuple):
    """Public rows as teachers take them, and the class numbers of their labels; None where there are none."""

    X: Any
    codes: NDArray[np.int64] | None


@dataclass(eq=False, repr=False)
class PrivateClassifier(VotingClassifier):
    """A classifier whose answers are all differentially private, with a total that is never overdrawn.

    Parameters
    ----------
    estimator
        Any scikit-learn classifier; `LogisticRegression()` by default. Each teacher is a clone of it. "auto" tries
        candidates on public rows; `chosen_.why` explains the choice.
    epsilon, delta
        The total privacy loss allowed for all answers that will ever be given.
    teachers
        The number of teachers, or "auto": planned from the number of units.
    aggregator
        "quorum", "sharp_majority", "noisy_max", "confident_max", "soft_majority", "stability", "between_thresholds",
        "noisy_shares" (set by `scores`), or "auto": the one that is expected to answer most queries correctly, chosen
        without reading the records. With `on_no_quorum="random"` a random label counts as an answer, so that every
        query is scored.
    queries
        The number of queries to plan for. A threshold mechanism may answer more.
    classes
        All labels that may occur. If not declared, the labels of `y` are used and become public.
    no_quorums
        How many queries may end without a quorum (threshold mechanisms), or "auto".
    disagreement
        The mean share of teachers expected to vote against the plurality, if known. It guides the plan.
    holdout
        The share of units, 0 to 0.5, kept from all teachers to estimate their disagreement privately, for a tenth of
        the budget. The estimate guides the plan; `estimate_.shares` are the noisy shares of the classes.
    scores
        Answer with the noisy share of votes for each class instead of a label; each query is paid for once. This adds
        `predict_proba` and `decision_function`; `predict` derives its labels from the same shares.
    threshold
        With `scores`: the noisy share at or above which `predict` answers with the second of two classes (0.5 by
        default), or "balanced": the class whose share exceeds its `prior` most.
    prior
        The declared shares of the classes, by class or in their order, or "holdout" to use the estimate. "balanced"
        compares with it, and `fit` warns if a class is too rare to win a majority.
    class_weight
        "balanced", a weight for each class, or None, passed to every teacher, which balances its own rows. "auto" is
        "balanced" with `scores` if the estimator takes weights, and None for labels. Balanced teachers spread the
        shares of a rare class, so that they rise above the noise.
    on_no_quorum
        "abstain" (None in the labels), "random" (a label drawn uniformly) or "raise". The choice does not change the
        cost of a query. After the last no-quorum of the run, queries are refused, not guessed.
    n_jobs
        How many processes fit teachers that are not fitted as one array; -1 for one on each core.
    backend
        The joblib backend that fits them: "loky", "dask", "ray" or "threading".
    device
        For teachers that are fitted as one array: where they are fitted and their ballots counted. "cpu", "cuda" for a
        GPU, or "auto": a GPU if there is one. Ballots are the same on every device. The device is not saved.

    Fitting opens the budget. Fitting again, here or in a copy, opens another: answering from both costs both.

    >>> import numpy as np
    >>> X = np.random.default_rng(0).normal(size=(20_000, 2))
    >>> y = np.where(X[:, 0] > 0, "yes", "no")
    >>> classifier = PrivateClassifier(epsilon=2.0, delta=1e-6, teachers=400, queries=100, classes=["no", "yes"])
    >>> answers = classifier.fit(X, y).predict([[3.0, 0.0], [-3.0, 0.0]])
    >>> answers.labels, answers.answered
    (array(['yes', 'no'], dtype='<U3'), array([ True,  True]))
    """

    kind = "classifier"

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        public: Any = None,
        *,
        public_labels: Any = None,
        one_scale: bool = False,
        teach: bool = False,
    ) -> "PrivateClassifier":
        """Deal the units, fit the teachers, plan the mechanism and open the budget.

        `groups` names the person of each row and makes the person the privacy unit. `public` rows, which are not
        private, are used to try an estimator that takes data frames before it sees a private row, and for "auto". If
        `public_labels` are given, learners (unless one is given) and numbers of teachers are tried on these rows;
        otherwise "auto" tries learners with simulated labels. The disagreement of teachers of the planned size on
        labelled public rows guides the plan; a warning says if public rows alone would do better.
        `one_scale` declares that all columns have about the same scale, as those of a schema do, so that ballots of
        linear teachers are counted three times as fast; this must be known without reading the records. `teach`
        declares that the answers are labels for a student, whose mistakes average out: fewer teachers are planned, and
        each learns from more rows.
        """
        warn_of_private(public, X)
        labels = self._begin(self.classes, y)
        X = check_records(self, X, estimator=self.estimator_, reset=True, public=public)
        check_consistent_length(X, labels)
        self.unit_, self.declared_ = "row" if groups is None else "person", self.classes is not None
        rows = RowsInMemory(X, class_codes(self.classes_, labels), groups)
        return self._fit_units(rows, public=public, public_labels=public_labels, one_scale=one_scale, teach=teach)

    def fit_table(
        self,
        source: Any,
        schema: Schema,
        *,
        public: Any = None,
        memory: int | str | None = None,
        spill: str | Path | None = None,
        cluster: Any = None,
        teach: bool = False,
    ) -> Self:
        """Fit from a table of any size, which is read once, some ten thousand rows at a time.

        `source` is a file, a folder or a pattern of CSV, Parquet or Arrow files, several of them, or a
        `pyarrow.dataset.Dataset`. The `schema` declares the columns, the label, its classes and, if there are any, the
        people; it is public. Rows are dealt to teachers as they are read, by a secret random word of each row or
        person. They wait on disk until their teachers are fitted: in the folder `spill`, or in the system's temporary
        folder. These files have no name, nobody else can read them, and they are gone when the call ends, however it
        ends. Apart from the program itself and the fitted teachers, about `memory` bytes are used (1GB by default).

        With a `cluster`, its workers read the files, deal the rows among themselves and fit the teachers, which stay
        and vote there: no row reaches this process. It is the address of a Dask scheduler (tcp://..., tls://...) or of
        a Ray cluster (ray://...), "local" for Dask workers on this machine, "ray" for the cluster that Ray chooses, or
        a `distributed.Client`. The memory and the folder where rows wait are then settings of the workers.

        `public` is a table of rows that are not private, with or without labels, which guide the plan as in `fit`.
        Queries are rows encoded by `schema.encode`.

        >>> import tempfile
        >>> import pyarrow as pa, pyarrow.parquet
        >>> from quorate import PrivateClassifier
        >>> from quorate.tables import Label, Number
        >>> schema = Schema({"age": Number(low=0, high=100)}, label=Label("ill", ["no", "yes"]))
        >>> ages = np.arange(20_000) % 100
        >>> table = pa.table({"age": ages, "ill": np.where(ages > 50, "yes", "no")})
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pyarrow.parquet.write_table(table, Path(folder, "visits.parquet"))
        ...     made = PrivateClassifier(epsilon=2.0, teachers=400, queries=100).fit_table(folder, schema)
        >>> made.predict(schema.encode(pa.table({"age": [20, 80]}), role="query")).tolist()
        ['no', 'yes']
        """
        if schema.label is None:
            raise InvalidInput("the schema has no label: declare its column and classes")
        elsewhere = cluster is not None or isinstance(source, ClusterTable)
        if elsewhere:
            self._check_place(memory, spill)
        self._begin(np.asarray(schema.label.classes), np.asarray(schema.label.classes))
        columns = np.zeros((1, len(schema.feature_names)))
        check_records(self, columns, estimator=self.estimator_, reset=True, frames=False)
        guides: dict[str, Any] = {"public": None, "public_labels": None}
        if public is not None:
            guides["public"] = schema.encode(public, role="public")
            labelled = schema.label.column in as_table(public).column_names
            guides["public_labels"] = schema.labels(public, role="public") if labelled else None
        self.unit_, self.declared_ = "row" if schema.groups is None else "person", True
        encoding = Encoding(schema, self.classes_)
        features = len(schema.feature_names)
        if elsewhere:
            table = deal_table(source, encoding, cluster, features=features, by_person=schema.groups is not None)
        rows = table if elsewhere else spill_table(source, encoding, features, memory=memory, spill=spill)
        with closing(rows):
            if not rows.count:
                raise InvalidInput("the table has no rows")
            return self._fit_units(rows, one_scale=schema.one_scale, teach=teach, **guides)

    def _check_place(self, memory: Any, spill: Any) -> None:
        """Refuse settings of this machine where the teachers are fitted on others."""
        settings = {"memory": memory, "spill": spill, "n_jobs": self.n_jobs, "backend": self.backend}
        for name, value in settings.items():
            if value is not None:
                raise InvalidInput(f"{name} is about this machine; on a cluster it is a setting of the workers")
        if self.holdout:
            raise InvalidInput("holdout needs rows in this process, and with a cluster there are none: leave it at 0")

    def _begin(self, classes: Any, y: Any) -> Any:
        """Forget an earlier fit, settle the classes and the estimator, and return the labels."""
        self.check_settings()
        choose_backend(self.device)  # or raise an error, before anything is read
        self._forget()
        self.classes_, labels = declared_classes(classes, y)
        self.estimator_ = clone(self._estimator())  # what is set later changes nothing of this fit
        if isinstance(self.threshold, int | float) and len(self.classes_) > 2:
            raise InvalidInput("threshold is a number for two classes; for more it is None or 'balanced'")
        if (weights := self._class_weight()) is not None:
            self.estimator_ = weigh_classes(self.estimator_, weights)  # proof: step 10
        return labels

    def _fit_units(
        self,
        rows: RowsInMemory | SpilledRows | ClusterRows,
        *,
        public: Any,
        public_labels: Any,
        one_scale: bool,
        teach: bool,
    ) -> Self:
        """Plan from the number of units, deal and fit them, estimate what is asked for, open the budget."""
        held_out = int(rows.count * self.holdout)
        units = rows.count - held_out
        guide = self._public_rows(public, public_labels)
        self._choose(guide, records=units, held_out=held_out, teach=teach)
        facts: dict[str, Any] = {"features": count_coefficients(self.estimator_, rows.features), "teach": teach}
        if self.chosen_ is not None and self.chosen_.teachers is not None:
            facts["teachers"] = self.chosen_.teachers
        planned = self._guided(held_out, facts | {"records": units}, guide)
        ensemble, held_rows, codes = rows.ensemble(
            teachers=planned.teachers,
            held_out=held_out,
            estimator=self.estimator_,
            classes=len(self.classes_),
            n_jobs=self.n_jobs,
            backend=self.backend,
            device=self.device,
            public=public,
            one_scale=one_scale,
        )
        self.estimate_ = None
        if held_out:
            self.estimate_ = self._estimate(ensemble, held_rows, codes)
            first, planned = planned, self._plan_with(self.estimate_, held_out, planned.teachers)
            self._warn([text for text in planned.warnings if text not in first.warnings])
        self.epsilon_, self.delta_ = float(self.epsilon), float(self.delta)
        self._open(ensemble, planned)
        return self

    def _plan_with(self, estimate: Estimate, held_out: int, teachers: int) -> Plan:
        try:
            return self._plan(held_out, teachers=teachers, disagreement=estimate.pessimistic)
        except Infeasible as error:
            raise Infeasible(
                f"{error}. (Planned for a disagreement of {estimate.pessimistic:.3f}: {estimate.disagreement:.3f} was "
                f"estimated on units held out, and twice the deviation of {estimate.deviation:.3f} added. The estimate "
                f"is paid for, epsilon = {estimate.epsilon:g}, and fitting again pays for another; it takes more "
                "teachers, or no holdout)"
            ) from None

    def _estimate(self, ensemble: Ensemble, X: Any, codes: NDArray[np.int64]) -> Estimate:
        epsilon, delta = self._shares()[0]
        rows = X if allows_missing(self.estimator_) else fill_missing(X)
        return estimate_rates(ensemble, rows, codes, epsilon=epsilon, delta=delta)

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
        self.chosen_ = None
        if public.codes is None and not is_auto(self.estimator):
            return
        free = self.estimator is None or is_auto(self.estimator)
        estimators = candidates(self._class_weight()) if free else {type(self.estimator_).__name__: self.estimator_}
        epsilon, delta = self._answer_budget(held_out)
        goal = Goal(
            Task(epsilon, delta, self.queries, len(self.classes_), guess=self.on_no_quorum == "random"),
            check_aggregator(self.aggregator, self.scores),
            records,
            teachers=unless_auto(self.teachers),
            teach=teach,
            balanced=isinstance(self.class_weight, str) and self.class_weight == "balanced",
        )
        chosen = choose_learner(estimators, public.X, public.codes, goal)  # proof: step 4
        self.chosen_, self.estimator_ = chosen, estimators[chosen.learner]

    def _guided(self, held_out: int, facts: dict[str, Any], public: PublicRows) -> Plan:
        """Return the plan, made with the help of labelled public rows if there are any, and repeat its warnings."""
        if public.codes is None:
            planned: Plan = self._plan(held_out, **facts)
            self._warn_of(planned)
            return planned
        first = self._plan(held_out, must=False, **facts)
        try:
            pilot = self._pilot(public.X, public.codes, first)
        except Infeasible as error:
            planned = self._plan(held_out, **facts)
            reason = f"disagreement could not be measured: {error}"
            planned = replace(planned, assumptions=(*planned.assumptions, reason))
        else:
            if self.disagreement is None and not held_out:
                facts = facts | {"votes": pilot.votes, "teachers": first.teachers}
            planned = self._plan(held_out, **facts)
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
