"""One run, seen from everywhere: what is shown, written, logged, refused, drawn, asked of estimators, and by whom."""

import contextlib
import io
import json
import logging
import re
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import joblib
import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from matrix.witness import Call, Notes, noted_calls
from quorate.auditing.replay import Draw, entropy_tape, fitted_ensemble
from quorate.compute.ensemble import Ensemble
from quorate.core.errors import QuorateError
from quorate.models.everlasting._arrivals import Seats

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")
_RELEASED = {  # attributes that hold what was drawn with noise, or are compared otherwise; and a time
    "best_estimator_",
    "best_index_",
    "best_params_",
    "best_score_",
    "budget_",
    "corrections_",
    "estimate_",
    "hypothesis_",
    "labelled_",
    "model_",
    "notes_",
    "paid_",
    "released_",
    "seconds_",
    "spent_epsilon_",
    "student_",
}
_CLOCK = 2.0**31  # the time in every run: a ledger writes it, and another has other digits, or is in another minute
_PLANNED = {"mechanism_", "plan_"}  # with a holdout, by a released estimate


@dataclass
class Stage:
    """What was seen of one step of a run.

    `public` must be equal on neighbours, as long as all that was `released` before is. `own` marks a release that
    belongs to the replaced unit itself. Of the teachers, `may_change` may differ; with `one_row`, a row that they are
    asked about is the replaced unit, and may have other values.
    """

    name: str
    public: dict[str, str] = field(default_factory=dict)
    released: str = ""
    own: bool = False
    teachers: list[str] = field(default_factory=list)
    ballots: NDArray[Any] | None = None
    draws: list[Draw] = field(default_factory=list)
    calls: list[tuple[Call, ...]] = field(default_factory=list)
    counted: list[int] = field(default_factory=list)
    cells: NDArray[Any] | None = None  # counts of a release, of which one record moves one
    broken: list[str] = field(default_factory=list)  # what is wrong whatever the neighbour does
    may_change: int = 1
    one_row: bool = False
    rejects: bool = False  # the number of words drawn is not fixed


class Watch:
    """Collects the stages of a run: each holds what was seen since the one before."""

    def __init__(
        self, draws: list[Draw], notes: Notes, texts: list[io.StringIO], warned: list[Any], rejects: bool
    ) -> None:
        self.stages: list[Stage] = []
        self._counted: list[int] = []
        self._seated: list[list[int]] = []
        self._draws, self._notes, self._texts, self._warned = draws, notes, texts, warned
        self._drawn, self.rejects = 0, rejects

    def stage(self, name: str, *, look: tuple[Any, Any] | None = None, **seen: Any) -> Stage:
        """Close a stage with what is given and what was noted since the last one.

        With a fitted predictor and a probe to `look` at, the bytes and ballots of its teachers are part of it.
        """
        stage = Stage(name, rejects=self.rejects, **seen)
        stage.draws, stage.calls = self._draws[self._drawn :], self._notes.taken()
        stage.counted = self._counted.copy()
        if look is not None:
            stage.teachers, stage.ballots = teachers_of(*look)
        self._notes.taken()  # looking is no work of the predictor's
        self._drawn = len(self._draws)
        self._counted.clear()
        self._seated.clear()
        said = "".join(_clear(text) for text in self._texts) + "".join(str(one.message) for one in self._warned)
        self._warned.clear()
        stage.public["log and output"] = said
        self.stages.append(stage)
        return stage

    def drawn(self) -> int:
        """Return how many draws there were since the last stage."""
        return len(self._draws) - self._drawn

    def counts(self, queries: int) -> None:
        """Note how many queries are counted together."""
        self._counted.append(queries)

    def seats(self, labels: list[int]) -> None:
        """Take note of the noisy labels with which points take their seats."""
        self._seated.append(labels)

    def seated(self) -> str:
        """Return these labels since the last stage: a mechanism released them to the next phase."""
        return repr(self._seated)


def _clear(text: io.StringIO) -> str:
    said = text.getvalue()
    text.seek(0)
    text.truncate()
    return said


@contextlib.contextmanager
def watched(seed: int, *, rejects: bool = False) -> Iterator[Watch]:
    r"""Watch one run on the tape of this seed."""
    out, log = io.StringIO(), io.StringIO()
    handler = logging.StreamHandler(log)
    root, level = logging.getLogger(), logging.getLogger().level
    count, take, clock = Ensemble.count, Seats.take, time.time
    with contextlib.ExitStack() as stack:
        stack.enter_context(threadpool_limits(1))  # nothing here is large
        draws = stack.enter_context(entropy_tape(seed))
        notes = stack.enter_context(noted_calls())
        warned = stack.enter_context(warnings.catch_warnings(record=True))
        warnings.simplefilter("always")
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(out))
        watch = Watch(draws, notes, [out, log], warned, rejects)

        def counting(self: Ensemble, X: Any) -> Any:
            watch.counts(len(X))
            return count(self, X)

        def seating(self: Seats, X: Any, labels: Any) -> None:
            take(self, X, labels)
            watch.seats(labels.tolist())

        root.addHandler(handler)
        root.setLevel(logging.DEBUG)
        Ensemble.count, Seats.take = counting, seating  # type: ignore[method-assign]
        time.time = lambda: _CLOCK
        try:
            yield watch
        finally:
            Ensemble.count, Seats.take, time.time = count, take, clock  # type: ignore[method-assign]
            root.removeHandler(handler)
            root.setLevel(level)


def told(error: BaseException) -> str:
    """Return the text of a refusal, or say that the error is not a refusal but unplanned."""
    said = f"{type(error).__name__}: {error}"
    planned = isinstance(error, QuorateError) or type(error) in (TypeError, ValueError)
    return said if planned else f"not a refusal, but {said}"


def shown(predictor: Any, *, planned: bool = True) -> dict[str, str]:
    """Return all public attributes of a fitted object as texts, and how it is printed."""
    hidden = _RELEASED if planned else _RELEASED | _PLANNED
    seen = {"printed": _text(predictor)}
    for name in dir(predictor):
        if name.startswith("_") or not name.endswith("_") or name in hidden:
            continue
        try:
            value = getattr(predictor, name)
        except Exception as error:  # a property of a later step
            seen[name] = told(error)
            continue
        if not callable(value):
            seen[name] = _text(value)
    return seen


def _text(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.tolist()} {value.dtype}"
    return _ADDRESS.sub("", repr(value))


def teachers_of(predictor: Any, probe: Any) -> tuple[list[str], NDArray[Any]]:
    """Return for each teacher of a fitted predictor a digest of what was fitted, and its ballots on the probe."""
    fitted = fitted_ensemble(predictor).electorate
    ballots = np.asarray(fitted.ballots(probe))
    if hasattr(fitted, "arrays"):
        each = [array for array in fitted.arrays().values() if np.ndim(array) and len(array) == fitted.teachers]
        digests = [joblib.hash([array[place] for array in each]) for place in range(fitted.teachers)]
    else:
        digests = [joblib.hash(_values(teacher)) for teacher in fitted.fitted]
    return digests, ballots


def _values(value: Any) -> Any:
    """Return an object as what it holds: the nodes of a tree that was loaded have unset bytes between their fields."""
    if isinstance(value, np.ndarray):
        names = value.dtype.names
        return value if names is None else {name: np.ascontiguousarray(value[name]) for name in names}
    if isinstance(value, dict):
        return {name: _values(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_values(part) for part in value]
    state = None if callable(value) else value.__getstate__()
    return (type(value).__qualname__, _values(state)) if state else value


def files_of(folder: Path) -> dict[str, str]:
    """Return what was written, without the teachers: the public files whole, and of the others their sizes."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.name == "manifest.json":
            written = json.loads(path.read_text())
            written |= {"files": sorted(written.get("files", ())), "identity": "drawn"}
            files[path.name] = json.dumps(written)
        elif path.is_file():
            private = path.name.startswith(("teachers", "phase")) or path.suffix == ".skops"  # skops writes addresses
            name = re.sub(r"-[0-9a-f]{8,}", "", path.name)
            files[name] = "there" if private else f"{path.stat().st_size} bytes"
    return files
