"""The cells of the matrix: predictor x container x learner x unit, and what came of each."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Literal

import numpy as np

from matrix.company import company_differences
from matrix.compare import differences
from matrix.containers import CONTAINERS
from matrix.subjects import SUBJECTS, base_table
from matrix.trials import Arrival, Case, run_arrivals, run_records
from matrix.units import replaced_people, replaced_rows
from matrix.watch import Stage, teachers_of, told
from quorate.auditing.replay import entropy_tape
from quorate.core.errors import InvalidInput

_FEW = ("float64", "int64", "lists", "pandas")  # containers of predictors that do with them what another does
_QUICK = (  # patterns of the cells of the fast suite: every predictor, learner, unit, and what was wrong once
    "classifier/float64/*/row",
    "classifier/float64/tree/setting",
    "classifier/float64/*/company",
    "classifier/lists/tree/row",
    "classifier/pandas/tree/person",
    "classifier/pandas/by-type/row",
    "classifier-holdout/float64/polynomial/row",
    "student*/float64/tree/row",
    "everlasting/float64/logistic/*",
    "everlasting/float32/tree/query",
    "everlasting/pandas/by-type/query",
    "everlasting-pool/pandas/tree/pool",
    "everlasting-saved/float64/logistic/query",
    "everlasting-labelboost/float64/stumps/row",
    "everlasting-concepts/float64/stumps/query",
    "agnostic*/float64/*/row",
    "universal*/float64/*/row",
    "stable/lists/*/person",
    "stable-saved/float64/*/row",
    "pure-*/float64/*/row",
    "semi-private/float64/*/row",
    "search/lists/*/person",
    "release-*/float64/*/*",
)


@dataclass(frozen=True)
class Cell:
    """One cell, by its names."""

    subject: str
    container: str
    learner: str
    unit: str

    def __str__(self) -> str:
        return f"{self.subject}/{self.container}/{self.learner}/{self.unit}"


@dataclass(frozen=True)
class Outcome:
    """The result of a cell: "sound", "violated" and how, "refused" on both sides alike, or "skipped" and why."""

    cell: Cell
    status: Literal["sound", "violated", "refused", "skipped"]
    said: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether nothing was violated."""
        return self.status != "violated"


def matrix_cells(pattern: str = "*", *, quick: bool = False) -> list[Cell]:
    """Return the cells whose name matches the pattern; with `quick`, those of the fast suite."""
    matching = [cell for cell in _cells() if fnmatchcase(str(cell), pattern)]
    if quick:
        matching = [cell for cell in matching if any(fnmatchcase(str(cell), one) for one in _QUICK)]
    if not matching:
        raise InvalidInput(f"no cell is called like {pattern!r}; --list names them all")
    return matching


def _cells() -> Iterator[Cell]:
    for subject in SUBJECTS.values():
        containers = _FEW if subject.few else tuple(CONTAINERS)
        for container in containers:
            for learner in subject.learners:
                for unit in subject.units:
                    cell = Cell(subject.name, container, learner, unit)
                    if _says_something(cell):
                        yield cell


def _says_something(cell: Cell) -> bool:
    """Return whether no other cell says the same: settings know no container, and columns of a matrix one type."""
    if cell.unit == "setting":
        return cell.container in ("float64", "pandas")
    return cell.learner != "by-type" or CONTAINERS[cell.container].frame or cell.container == "float64"


def run_cell(cell: Cell, *, seed: int = 0) -> Outcome:
    """Replace one unit in each way that its cell knows, and return what came of it."""
    container = CONTAINERS[cell.container]
    missing = container.missing()
    if missing:
        return Outcome(cell, "skipped", (missing,))
    case = Case(SUBJECTS[cell.subject], cell.learner, container, seed)
    return run_case(case, cell.unit)


def run_case(case: Case, unit: str) -> Outcome:
    """Run a cell of any subject, also of one that the matrix does not list."""
    cell = Cell(case.subject.name, case.container.name, case.learner, unit)
    if case.subject.saved:  # what a process draws when it writes its first folder is drawn here
        table = base_table(case.subject.rows, columns=case.subject.columns)
        _ = run_arrivals(case, table, []) if case.subject.phases else run_records(case, table)
    return _UNITS[unit](cell, case)


def _outcome(cell: Cell, differing: list[str], first: list[Stage]) -> Outcome:
    return _judged(cell, differing, first[-1].public.get("refused", ""))


def _judged(cell: Cell, differing: list[str], refused: str) -> Outcome:
    if refused.startswith("not a refusal"):
        differing = [*differing, refused]
    if differing:
        return Outcome(cell, "violated", tuple(differing))
    return Outcome(cell, "refused", (refused,)) if refused else Outcome(cell, "sound")


def _rows(cell: Cell, case: Case) -> Outcome:
    subject = case.subject
    table = base_table(subject.rows, columns=subject.columns)
    first, differing = run_records(case, table), []
    trees = cell.learner in ("tree", "shallow-tree")
    missing = trees and cell.subject.startswith(("classifier", "everlasting"))  # who takes them
    for other in replaced_rows(table, case.container, rows=6 if subject.holdout else 2, missing=missing):
        differing += [f"{other.what}: {text}" for text in differences(first, run_records(case, other.table))]
    return _outcome(cell, differing, first)


def _people(cell: Cell, case: Case) -> Outcome:
    table = base_table(case.subject.rows, columns=case.subject.columns)
    first, differing = run_records(case, table, person=True), []
    for other in replaced_people(table, people=4 if case.subject.holdout else 2):
        differing += [
            f"{other.what}: {text}" for text in differences(first, run_records(case, other.table, person=True))
        ]
    return _outcome(cell, differing, first)


def _company(cell: Cell, case: Case) -> Outcome:
    return _judged(cell, *company_differences(case))


def _queries(cell: Cell, case: Case) -> Outcome:
    """Replace one arrival of the first phase by another point, or by the same in another container or type."""
    subject = case.subject
    table = base_table(subject.rows, columns=subject.columns)
    chosen, seats, refused = _points(case)
    if refused:
        return Outcome(cell, "violated" if refused.startswith("not a refusal") else "refused", (refused,))
    clear, other, tied = chosen[:3]
    arrivals, differing, known = np.array(chosen[3:]), list[str](), dict[int, list[Stage]]()

    def challenged(place: int, own: Any) -> list[Stage]:
        before, after = (case.container.pack(part, range(len(part))) for part in np.split(arrivals, [place]))
        return run_arrivals(case, table, [Arrival(before), Arrival(own, own=True), Arrival(after)])

    for place, what, own in _challenges(case, clear, other, tied, seats):
        if place not in known:
            known[place] = challenged(place, case.container.pack(clear[np.newaxis], ["own"]))
        first, second = known[place], challenged(place, own)
        if second[-1].own and "refused" in second[-1].public and not first[-1].own:
            differing += [f"arrival {place} {what}: {text}" for text in second[-1].broken]  # refused, and no arrival
            continue
        differing += [f"arrival {place} {what}: {text}" for text in differences(first, second)]
    return _outcome(cell, differing, next(iter(known.values())))


def _points(case: Case) -> tuple[list[Any], int, str]:
    """Return points: two on which teachers are clear, one on which they are not, then clear ones of both labels."""
    subject = case.subject
    table, predictor = base_table(subject.rows, columns=subject.columns), case.unfitted()
    X = np.random.default_rng(12).integers(0, 10, size=(60, subject.columns)).astype(np.float64)
    with entropy_tape(case.seed):
        try:
            subject.fit(predictor, case.container.pack(table.X, table.names), table, None, None)
            packed = predictor.check_queries(case.container.pack(X, range(len(X))))
        except Exception as error:
            return [], 0, told(error)
        ahead = 2 * teachers_of(predictor, packed)[1].sum(axis=1) - predictor.teachers_
    order = np.argsort(ahead, kind="stable")
    clear = [place for pair in zip(order[-3::-1], order, strict=False) for place in pair]
    seats = predictor.progress_["seats"]
    chosen = [order[-1], order[-2], order[np.argmin(np.abs(ahead[order]))], *clear[: min(seats, 25) - 1]]
    return [*X[chosen], *X[clear[:1] * max(0, seats - 25)]], seats, ""


def _challenges(case: Case, clear: Any, other: Any, tied: Any, seats: int) -> Iterator[tuple[int, str, Any]]:
    container, place = case.container, seats // 3
    half = clear.copy()
    half[0] = 3.5
    yield place, "by another point", container.pack(other[np.newaxis], ["own"])
    yield place, "by one of half a digit", container.loose(half[np.newaxis], ["own"])
    yield place, "by the same, written anew", container.loose(clear[np.newaxis], ["own"])
    if container.frame:
        yield place, "by the same in a matrix", clear[np.newaxis].copy()
        yield place, "by the same under another name", container.pack(clear[np.newaxis], ["another"])
    elif not CONTAINERS["pandas"].missing():
        yield place, "by the same in a data frame", CONTAINERS["pandas"].pack(clear[np.newaxis], ["own"])
    for seat in (place, place + 1, place + 2):
        yield seat, "by one without a quorum", container.pack(tied[np.newaxis], ["own"])


def _settings(cell: Cell, case: Case) -> Outcome:
    """Change a setting after fitting: nothing may come of it, or it is refused."""
    subject = case.subject
    table, differing = base_table(subject.rows, columns=subject.columns), []
    first = run_records(case, table)
    for name, value in subject.settings.items():
        second = run_records(case, table, settings={name: value})
        for stages in (first, second):
            stages[0].public.pop("printed", None)  # settings are printed
        if "refused" in second[-1].public and "refused" not in first[-1].public and not second[-1].broken:
            continue
        differing += [f"{name} set after fitting: {text}" for text in differences(first, second, same=True)]
    return _outcome(cell, differing, first)


_UNITS: dict[str, Callable[[Cell, Case], Outcome]] = {
    "row": _rows,
    "person": _people,
    "query": _queries,
    "pool": _queries,
    "company": _company,
    "setting": _settings,
}
