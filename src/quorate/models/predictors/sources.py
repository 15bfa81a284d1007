"""Other sources of a private classifier than rows in memory: a table of any size, or teachers that you bring."""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_consistent_length

from quorate.compute.ensemble import Electorate, Ensemble
from quorate.compute.ensemble.clusters import ClusterRows, ClusterTable, ClusterTeachers
from quorate.compute.ensemble.dealing import Encoded
from quorate.compute.ensemble.electorate import as_electorate
from quorate.compute.ensemble.sources import SpilledRows, Units
from quorate.compute.learners import DeviceName
from quorate.core.arrays import Integers
from quorate.core.checks import check_bytes
from quorate.core.errors import Infeasible, InvalidInput
from quorate.core.mechanisms import NoisyShares
from quorate.core.progress import progress
from quorate.models.predictors.base import SessionClassifier, check_records, is_auto
from quorate.models.predictors.estimate import Estimate
from quorate.models.predictors.labels import declared_classes, known_codes
from quorate.planner import Plan
from quorate.planner.pilot import Pilot, run_pilot
from quorate.planner.task import Task
from quorate.planner.trial import Goal, LearnerChoice, candidates, choose_learner
from quorate.planner.votes import check_aggregator
from quorate.tables import Schema, as_table
from quorate.tables.files import TableStream

# Settings of teachers that are fitted here.
_OF_A_FIT = ("estimator", "teachers", "holdout", "class_weight", "n_jobs", "backend", "device")
_LEAST_MEMORY = 10**8  # bytes: a batch of rows of a wide table takes some ten million


class PublicRows(NamedTuple):
    """Public rows as teachers take them, and the class numbers of their labels; None where there are none."""

    X: Any
    codes: NDArray[np.int64] | None


class OtherSources(SessionClassifier, ABC):
    """A classifier that need not have all rows in memory, nor fit its teachers itself, and that public rows may guide.

    What guides it is handed no private row (proof: step 4).
    """

    estimator: Any
    estimator_: Any
    epsilon: float
    delta: float
    teachers: int | Literal["auto"]
    aggregator: str
    queries: int
    disagreement: float | None
    holdout: float
    scores: bool
    class_weight: Any
    n_jobs: int | None
    backend: str | None
    device: DeviceName
    estimate_: Estimate | None
    chosen_: LearnerChoice | None

    @abstractmethod
    def _begin(self, classes: Any, y: Any) -> NDArray[Any]:
        """Forget an earlier fit, settle the classes and the estimator, and return the labels."""

    @abstractmethod
    def _fit_units(
        self, rows: Units, *, public: Any, public_labels: Any, public_votes: Any, one_scale: bool, teach: bool
    ) -> Self:
        """Plan from the number of units, deal and fit them, estimate what is asked for, open the budget."""

    @abstractmethod
    def _plan(self, held_out: int, *, must: bool = True, **facts: Any) -> Any:
        """Return the plan from public numbers; one that is not feasible is refused if it must be."""

    @abstractmethod
    def _answer_budget(self, held_out: int) -> tuple[float, float]:
        """Return (epsilon, delta) of the answers."""

    @abstractmethod
    def _open(self, ensemble: Ensemble, planned: Plan) -> None:
        """Open the budget of the plan, from which the ensemble answers."""

    @abstractmethod
    def _class_weight(self) -> Any:
        """Return the weights that teachers give to classes, or None for none."""

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
        by_person, elsewhere = schema.groups is not None, cluster is not None or isinstance(source, ClusterTable)
        if elsewhere:
            self._check_place(memory, spill)
        self._begin(np.asarray(schema.label.classes), np.asarray(schema.label.classes))
        width = len(schema.feature_names)
        check_records(self, np.zeros((1, width)), estimator=self.estimator_, reset=True, frames=False)
        guides: dict[str, Any] = {"public": None, "public_labels": None, "public_votes": None}
        if public is not None:
            guides["public"] = schema.encode(public, role="public")
            labelled = schema.label.column in as_table(public).column_names
            guides["public_labels"] = schema.labels(public, role="public") if labelled else None
        self.unit_, self.declared_ = "person" if by_person else "row", True
        encoding = Encoding(schema, self.classes_)
        if elsewhere:
            table = source if isinstance(source, ClusterTable) else ClusterTable(source, cluster)
            rows: SpilledRows | ClusterRows = table.dealt(encoding, features=width, by_person=by_person)
        else:
            size = check_bytes("memory", "1GB" if memory is None else memory, least=_LEAST_MEMORY)
            stream = source if isinstance(source, TableStream) else TableStream(source)
            rows = spilled(stream, encoding, SpilledRows(width, memory=size, folder=spill))
        with closing(rows):
            if not rows.count:
                raise InvalidInput("the table has no rows")
            return self._fit_units(rows, one_scale=schema.one_scale, teach=teach, **guides)

    def place_teachers(self, cluster: Any) -> None:
        """Move the fitted teachers to a cluster, which counts their ballots from now on.

        `cluster` is as for `fit_table`. The answers are the same. Teachers that you brought, and those already on a
        cluster, stay where they are.
        """
        answerer = self.session_.answerer
        answerer.ensemble = Ensemble(ClusterTeachers.placed(answerer.ensemble.fitted, cluster))

    def _check_place(self, memory: Any, spill: Any) -> None:
        """Refuse settings of this machine where the teachers are fitted on others."""
        settings = {"memory": memory, "spill": spill, "n_jobs": self.n_jobs, "backend": self.backend}
        for name, value in settings.items():
            if value is not None:
                raise InvalidInput(f"{name} is about this machine; on a cluster it is a setting of the workers")
        if self.holdout:
            raise InvalidInput("holdout needs rows in this process, and with a cluster there are none: leave it at 0")

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
        """Return a classifier whose teachers you bring: networks, prompts with their own examples, remote models.

        `teachers` are functions from rows to labels, or addresses of models that speak the Open Inference Protocol, or
        an `Electorate`, whose class numbers are positions in the sorted `classes`. No record may have reached more than
        one of them: you must ensure this. The claim protects everything that one teacher has learned from. `public` are
        a few rows that are not private: they show which columns queries have, and each teacher is tried on the first.

        A function gets `call_rows` queries in each call, a matrix of 64-bit floats or a data frame. With more than one,
        you promise that it answers row by row and that calls do not change it (`quorate.core.estimator_calls`). A
        teacher that raises, names no class, or whose server does not answer within `seconds`, votes for a class that
        depends only on its position among the teachers. `public_votes` guide the plan, as in `fit`; `settings` are
        those of the constructor.

        >>> X = np.random.default_rng(0).normal(size=(3, 2))
        >>> rules = [lambda rows, cut=cut: np.where(rows[:, 0] > cut, "ill", "well") for cut in np.linspace(-1, 1, 300)]
        >>> from quorate import PrivateClassifier
        >>> made = PrivateClassifier.from_teachers(rules, classes=["ill", "well"], public=X, epsilon=2.0, queries=10)
        >>> made.predict([[9.0, 0.0], [-9.0, 0.0]]).tolist(), made.unit_
        (['ill', 'well'], 'teacher')
        """
        classifier = cls(classes=classes, **settings)
        rows = classifier._begin_brought(public, settings)
        labels = classifier.classes_.tolist()
        electorate = as_electorate(teachers, labels=labels, public=rows, call_rows=call_rows, seconds=seconds)
        votes = {} if public_votes is None else {"votes": public_votes, "disagreement": None}
        classifier._open_brought(electorate, classifier._plan(0, teachers=electorate.teachers, **votes))
        return classifier

    def _begin_brought(self, public: Any, settings: Iterable[str]) -> Any:
        """Settle the classes and the columns for teachers that are brought, and return the public rows as they are."""
        for name in _OF_A_FIT:
            if name in settings:
                raise InvalidInput(
                    f"{name} is a setting of teachers that are fitted here; those that you bring are made"
                )
        self.check_settings()
        self.classes_, _ = declared_classes(self.classes, np.asarray(self.classes))
        self.estimator_ = self.chosen_ = self.estimate_ = None
        return check_records(self, public, estimator=None, reset=True, frames=True, missing=False, role="public")

    def _open_brought(self, electorate: Electorate, planned: Plan) -> None:
        """Open the budget for teachers that were brought."""
        self._warn(planned.warnings)
        self.unit_, self.declared_ = "teacher", True
        self.epsilon_, self.delta_ = float(self.epsilon), float(self.delta)
        self._open(Ensemble(electorate), planned)

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
            teachers=None if self.teachers == "auto" else self.teachers,
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
            if self.disagreement is None and "votes" not in facts and not held_out:
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

    def _warn(self, texts: Iterable[str]) -> None:
        """Say what is wrong with a plan before its budget is opened."""
        for text in texts:
            warnings.warn(text, UserWarning, stacklevel=6)


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
        return self.schema.encode(table), codes, _people(self.schema, table)


def spilled(stream: TableStream, encoding: Encoding, rows: SpilledRows) -> SpilledRows:
    """Read a table and write its rows to the disk."""
    try:
        with progress("reading records"):
            for first, batch in stream.placed():
                rows.add(encoding(batch), first=first)
    except BaseException:
        rows.close()
        raise
    return rows


def _people(schema: Schema, table: Any) -> tuple[list[str], Integers] | None:
    """Return the names of the people in a table, and whose each row is; None where a row is a unit."""
    names = schema.people(table)
    if names is None:
        return None
    numbers = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return list(numbers), np.array([numbers[name] for name in names], dtype=np.int64)
