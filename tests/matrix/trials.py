"""Runs on a tape: fitted and asked on one table, or fed with arrivals through the end of a phase."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from matrix.containers import Container
from matrix.subjects import Subject, Table, base_table
from matrix.watch import Stage, Watch, files_of, shown, told, watched
from quorate.core.ballots import release_counts
from quorate.core.errors import BudgetSpent, InvalidInput, NoQuorum
from quorate.models.saving import load, save
from quorate.release.people import first_records
from support.quiet_folder import quiet_folder

_QUERIES, _PROBE = 4, 12
_TRUSTED = ["matrix.witness.Witness"]  # the matrix's own estimator, in the files of a model


class Case(NamedTuple):
    """What a cell holds fixed: the predictor, the learner, the container, and the seed of the tape."""

    subject: Subject
    learner: str
    container: Container
    seed: int = 0

    def unfitted(self) -> Any:
        """Return the predictor, unfitted."""
        return self.subject.make(self.subject.learner(self.learner))

    def packed(self, rows: int, *, seed: int) -> Any:
        """Return packed rows that belong to no unit."""
        table = base_table(rows, columns=self.subject.columns, seed=seed)
        return self.container.pack(table.X, table.names)


class Arrival(NamedTuple):
    """A packed batch of an everlasting classifier, and whether it is the replaced unit itself."""

    rows: Any
    own: bool = False


def _fit(case: Case, model: Any, table: Table, watch: Watch, *, person: bool, settings: dict[str, Any]) -> bool:
    """Fit on the tape, and take note of all that can be seen; return whether it was fitted."""
    subject = case.subject
    packed, public = case.container.pack(table.X, table.names), case.packed(20, seed=3)
    groups = table.people if person else None
    try:
        subject.fit(model, packed, table, groups, public)
    except Exception as error:
        watch.stage("fit", public={"refused": told(error)})
        return False
    if settings:
        model.set_params(**settings)
    released = [
        repr(getattr(model, name, None))
        for name in ("estimate_", "labelled_", "hypothesis_", "best_score_", "best_index_")
    ]
    look = (model, model.check_queries(case.packed(_PROBE, seed=4))) if subject.ensemble else None
    public = shown(model, planned=not subject.holdout)
    stage = watch.stage("fit", public=public, released=" ".join(released), look=look, one_row=subject.holdout)
    if subject.release:
        first = packed if groups is None else first_records(packed, groups)
        stage.cells = release_counts(model.domain_.seal(first)[0], np.asarray)
    return True


def run_records(
    case: Case, table: Table, *, person: bool = False, settings: dict[str, Any] | None = None
) -> list[Stage]:
    """Fit on the table, write it where that is part of the case, and ask queries one by one."""
    model = case.unfitted()
    with quiet_folder() as home, watched(case.seed, rejects=case.subject.rejects) as watch:
        folder = home / "model"
        if not _fit(case, model, table, watch, person=person, settings=settings or {}):
            return watch.stages
        if case.subject.phases:
            batches = [Arrival(case.packed(rows, seed=7 + rows)) for rows in (8, model.progress_["seats"] - 8)]
            _arrive(case, model, batches, watch, folder=folder, now=1, opening=0)
            return watch.stages
        if case.subject.saved and not _save(model, folder, watch):
            return watch.stages
        for number in range(_QUERIES):
            model = _restarted(case, model, folder, watch) if number else model
            _ask(case, model, number, watch)
        if case.subject.saved:
            watch.stage("saved after the queries", public=files_of(folder))
            model.session_.close()
    return watch.stages


def _save(model: Any, folder: Path, watch: Watch) -> bool:
    """Write the model to a folder, and return whether it can be written: what a kind cannot keep, it refuses."""
    try:
        files = files_of(save(model, folder, trusted=_TRUSTED))
    except InvalidInput as error:
        watch.stage("saved", public={"refused": told(error)})
        return False
    watch.stage("saved", public=files)
    return True


def _restarted(case: Case, model: Any, folder: Path, watch: Watch) -> Any:
    """Return the model as the next process loads it, where it is in a folder."""
    if not case.subject.saved:
        return model
    model.session_.close()
    loaded = load(folder, trusted=_TRUSTED)
    watch.stage("loaded", public=shown(loaded))
    return loaded


def _ask(case: Case, model: Any, number: int, watch: Watch) -> None:
    """Ask one query; a refusal must come before anything is drawn."""
    public, released, broken = {"spent before": _spent(model)}, "", []
    try:
        released = case.subject.ask(model, case.packed(1, seed=20 + number), number)
    except (BudgetSpent, NoQuorum) as error:
        released = told(error)
    except Exception as error:
        public["refused"] = told(error)
        if watch.drawn() or _spent(model) != public["spent before"]:
            broken = [f"refused after {watch.drawn()} draws, or after it was paid for"]
    watch.stage(f"query {number}", public=public, released=released, broken=broken)


def _spent(model: Any) -> str:
    budget = getattr(model, "budget_", None)
    return "" if budget is None else repr(budget.spent())


def run_arrivals(
    case: Case, table: Table, arrivals: Sequence[Arrival], *, settings: dict[str, Any] | None = None
) -> list[Stage]:
    """Fit an everlasting classifier on the table, and let arrivals come until its second phase has begun."""
    model = case.unfitted()
    with quiet_folder() as home, watched(case.seed, rejects=case.subject.rejects) as watch:
        folder = home / "model"
        if not _fit(case, model, table, watch, person=False, settings=settings or {}):
            return watch.stages
        watch.stages[0].may_change = 0  # the records are the same
        if case.subject.saved and not _save(model, folder, watch):
            return watch.stages
        opening = model.teachers_ if case.subject.relabels else 1
        model = _arrive(case, model, arrivals, watch, folder=folder, now=0, opening=opening)
        if case.subject.saved:
            watch.stage("saved in phase 2", public=files_of(folder))
            model.session_.close()
    return watch.stages


def _arrive(
    case: Case, model: Any, arrivals: Sequence[Arrival], watch: Watch, *, folder: Path, now: int, opening: int
) -> Any:
    """Let all arrive, and then some of the next phase; `now` and `opening` of the teachers of each may have changed.

    Return the model, which is another object after a restart.
    """
    pool = case.subject.pool
    for number, arrival in enumerate(arrivals):
        if not _take(model, arrival, watch, f"arrivals {number}", feeds=pool, opening=now):
            return model
        model = _restarted(case, model, folder, watch)
    for number in range(2):
        query = Arrival(case.packed(1, seed=30 + number))
        if number == 0 and pool and not _take(model, query, watch, "opening of phase 2", feeds=True, opening=opening):
            break
        name = f"query {number} of phase 2"
        if not _take(model, query, watch, name, feeds=False, opening=opening, case=case):
            break
        model = _restarted(case, model, folder, watch)
    return model


def _take(
    model: Any, arrival: Arrival, watch: Watch, name: str, *, feeds: bool, opening: int = 0, case: Case | None = None
) -> bool:
    """Let a batch arrive, take note, and return whether it was taken."""
    seats, released = model.seats_taken_, ""
    try:
        released = "" if feeds and model.feed(arrival.rows) is model else repr(model.predict(arrival.rows).tolist())
    except Exception as error:
        late = watch.drawn() > 0 or model.seats_taken_ != seats
        broken = [f"refused after {watch.drawn()} draws or with a seat taken: {told(error)}"] if late else []
        if told(error).startswith("not a refusal"):
            broken.append(told(error))
        watch.stage(name, public={"refused": told(error)}, broken=broken, own=arrival.own)
        return False
    public, progress = shown(model), dict(getattr(model, "progress_", {}))
    public.pop("printed")
    released += watch.seated() if feeds else ""  # nobody sees these labels, but the mechanism released them to phase 2
    released += f" closed: {progress.pop('closed', None)}"  # by a noisy cutoff, which is paid for
    public["progress_"] = repr(progress)
    look = None if case is None else (model, model.check_queries(case.packed(_PROBE, seed=4)))
    shared = {"public": public, "released": released, "own": arrival.own, "one_row": arrival.own}
    stage = watch.stage(name, look=look, may_change=opening, **shared)
    if arrival.own:
        stage.public = {"seats_taken_": public["seats_taken_"]}  # what its own container says is its own
    return True
