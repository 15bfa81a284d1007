"""Neighbours with one mistake each in what is kept of units: their file, their names, and what is said of a record."""

import contextlib
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from planted.bug import Caught, kind_bug, replaced, replacement_bug
from planted.neighbour_games import BALLOT, QUERIES, game_terms, game_units
from quorate.core.arrays import Integers
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger import Ledger
from quorate.core.privacy import Budget
from quorate.core.requests import OWN_CALLER
from quorate.models.knn import NeighbourClassifier
from quorate.models.knn import _estimators as model_module
from quorate.models.knn import _session as session_module
from quorate.models.knn._kernel import Kernel
from quorate.models.knn._session import NeighbourSession
from quorate.models.knn._unit_file import UnitFile, change_key
from quorate.models.knn._units import Units
from quorate.models.predictors.records import check_matrix
from quorate.tables.containers import Role
from quorate.tables.persons import name_persons
from quorate.tables.values import canonical_text
from support.quiet_folder import quiet_folder

Twin = tuple[ModuleType, str, Callable[..., Any]]  # a module, one of its functions, and what stands in for it


class _UnmarkedUnits(UnitFile):
    """Keeps the state of its units in the ledger as an answer, which is no charge and has no mark outside."""

    def _keep_sum(self, total: int) -> None:
        """Keep it with the answers of the ledger alone: that is the mistake."""
        self._ledger.keep({(OWN_CALLER, change_key(self._number)): total}, {}, [])


class _WritesWhatChanged(UnitFile):
    """Keeps what units have spent by an update, of which SQLite writes the pages that differ: it takes as long."""

    def keep_spends(self, spends: Integers) -> None:
        """Write over what is there: that is the mistake."""
        with self._change() as connection:
            packed = spends.astype("<i8").tobytes()
            connection.execute("UPDATE spends SET amounts = ?", (packed,))
            self._amounts = self._tag("spends", packed)


class _RefusesTheList(NeighbourSession):
    """Inserts all units of a list, or none: who is there already keeps all others out."""

    def insert(self, X: Any, labels: Any, ids: Any = None) -> list[str]:
        """Refuse the list where one of its units is there: that is the mistake."""
        if ids is not None and any(name in self.answerer.units for name in ids):
            raise InvalidInput("a unit of this name is there already")
        return super().insert(X, labels, ids)


class _KeepsTheLog(UnitFile):
    """Leaves the log of the file as it is: the pages that a deletion has changed are there as they were before."""

    def forget(self, numbers: Sequence[int], *, at: float) -> None:
        """Remove the records from the file, and leave the log: that is the mistake."""
        with self._change():
            removed = self._remove(numbers)
            self._add((number, name, at, None, None) for number, name, *_ in removed)


def _repeats_values(*given: Any, role: Role | None = None, **named: Any) -> Any:
    """Check private records as if they were queries, and repeat what is wrong with them: that is the mistake."""
    return check_matrix(*given, **named)


def _rolled_back(file: type[UnitFile]) -> Caught:
    """Ask, kill the process, put back a copy of the whole folder, and begin again."""
    whole = 0
    with quiet_folder() as place:
        folder, copied = place / "model", place / "copy"
        folder.mkdir()
        ledger = Ledger.create(folder / "ledger.sqlite", Budget(epsilon=1.0, delta=1e-5), fingerprint="planted")
        file.create(folder / "units.sqlite", ledger, game_units(), reports=0).close()
        ledger.close()
        shutil.copytree(folder, copied)
        for _ in range(3):
            try:
                whole += not _asked_and_killed(file, folder)
            except LedgerRefused:
                break
            shutil.rmtree(folder)
            shutil.copytree(copied, folder)
    evidence = f"{whole} of 3 processes began with units that had spent nothing, and charged them"
    return Caught("a copy that is put back", evidence, found=whole > 1)


def _asked_and_killed(file: type[UnitFile], folder: Path) -> int:
    """Return what units had spent, then charge them for a query, and leave no more behind than who is killed does."""
    ledger = Ledger.open(folder / "ledger.sqlite", fingerprint="planted")
    kernel = Kernel(shape="flat", squared_radius=400, top=3)
    units = Units(kernel, capacity=game_terms().capacity, features=2, table=BALLOT.table, persons=False)
    kept = file(folder / "units.sqlite", ledger)
    kept.read(units, features=2)
    before = int(units.spends().sum())
    units.count(QUERIES[:1])
    kept.keep_spends(units.spends())
    kept.close()
    ledger.close_store()
    return before


def _written(file: type[UnitFile]) -> Caught:
    """Ask where all records are and where none is, and compare how many pages are written."""
    here, kernel = np.zeros((5000, 2), dtype=np.float32), Kernel(shape="flat", squared_radius=400, top=3)
    units = Units(kernel, capacity=game_terms().capacity, features=2, table=BALLOT.table, persons=False)
    units.insert(units.new_names(len(here)), [1] * len(here), here, np.zeros(len(here), dtype=np.int64))
    pages = []
    with quiet_folder() as folder:
        ledger = Ledger.create(folder / "ledger.sqlite", Budget(epsilon=1.0, delta=1e-5), fingerprint="planted")
        kept, log = file.create(folder / "units.sqlite", ledger, units, reports=0), folder / "units.sqlite-wal"
        for query in (here[:1], here[:1] + 500):
            units.count(query)
            before = log.stat().st_size
            kept.keep_spends(units.spends())
            pages.append((log.stat().st_size - before) // 4096)
        kept.close()
        ledger.close()
    evidence = f"{pages[0]} pages were written for a query near all records, and {pages[1]} for one near none"
    return Caught("pages of the file", evidence, found=pages[0] != pages[1])


def _forgotten_on_disk(file: type[UnitFile]) -> Caught:
    """Insert a record, forget it, and look for its point in all files of the folder."""
    units, point = game_units(), np.array([[123, -45]], dtype=np.float32)
    with quiet_folder() as folder:
        ledger = Ledger.create(folder / "ledger.sqlite", Budget(epsilon=1.0, delta=1e-5), fingerprint="planted")
        kept = file.create(folder / "units.sqlite", ledger, units, reports=0)
        label = np.zeros(1, dtype=np.int64)
        kept.insert(units.insert(["7"], [1], point, label), ["7"], [1], point, label)
        kept.forget(units.forget(["7"]), at=0.0)
        found = [one.name for one in folder.iterdir() if one.is_file() and _holds(one, point)]
        kept.close()
        ledger.close()
    evidence = f"the point of a record that was forgotten is in {', '.join(found) or 'no file'}"
    return Caught("files of the folder", evidence, found=bool(found))


def _holds(path: Path, point: Any) -> bool:
    return point.astype("<i2").tobytes() + np.zeros(1, dtype="<i8").tobytes() in path.read_bytes()


def _second_budget(twin: Twin, first: Any, again: Any) -> Caught:
    """Wear a person out, forget it, insert it as somebody else writes its name, and look at what it adds to counts."""
    here, counts = [[1.0, 0.0]], []
    model = NeighbourClassifier(radius=0.5, votes=2.5, classes=[0, 1], device="cpu")
    with replaced(*twin):
        for there in (True, False):
            model.fit([[0.0, 1.0]], [0], groups=["another"])
            units = model.session_.answerer.units
            if there:
                model.insert(here, [1], ids=[first])
            seen = [units.count(model.space_.points(here)).put_to(np.ravel) for _ in range(3)]
            if there:
                model.forget([first])
                model.insert(here, [1], ids=np.array([again]))
            counts.append([*seen, *(units.count(model.space_.points(here)).put_to(np.ravel) for _ in range(3))])
    moved, paid = int(((np.array(counts[0]) - np.array(counts[1])) ** 2).sum()), model.terms_.capacity
    evidence = f"one person moves the counts by {moved} squares in all, and pays for {paid}"
    return Caught("a name that is written in two ways", evidence, found=moved > paid)


def _name_as_written(names: Any) -> list[str]:
    """Take the text of each name: that is the mistake."""
    return [canonical_text(name) for name in names]


def _named_by_a_long_number(twin: Twin) -> Caught:
    return _second_budget(twin, 2**53 + 1, 2.0**53)


def _named_in_two_ways(twin: Twin) -> Caught:
    return _second_budget(twin, 7, "7.0")


def _named_by_a_short_float(twin: Twin) -> Caught:
    try:
        return _second_budget(twin, 2**24 + 1, np.float32(2**24 + 1))
    except InvalidInput:
        return Caught("a name that is cut short", "a number that a float may have cut short is no name", found=False)


def _kept_out(session: type[NeighbourSession]) -> Caught:
    """Insert a list of arrivals, with a person who is there or without anybody of that name, and count their votes."""
    here, there, counts = [1.0, 0.0], [-1.0, 0.0], []
    model = NeighbourClassifier(radius=0.5, votes=2.5, classes=[0, 1], device="cpu")
    with replaced(model_module, "NeighbourSession", session):
        for known in (1, 0):
            model.fit([[0.0, 1.0], *[there] * known], [0] * (1 + known), groups=["another", *["i"] * known])
            with contextlib.suppress(InvalidInput):
                model.insert([here] * 5 + [there] * known, [1] * (5 + known), ids=[*"abcde", *["i"] * known])
            counts.append(model.session_.answerer.units.count(model.space_.points([here])).put_to(np.ravel))
    moved, paid = int(((counts[0] - counts[1]) ** 2).sum()), model.terms_.capacity
    evidence = f"one person moves the counts by {moved} squares in all, and pays for {paid}"
    return Caught("a list with somebody who is there", evidence, found=moved > paid)


def _said_of_a_record(twin: Twin) -> Caught:
    """Insert a record with a text in place of a number, and look for it in what is said."""
    model = NeighbourClassifier(radius=0.5, votes=2.5, classes=[0, 1], device="cpu").fit([[0.0, 1.0]], [0])
    said = ""
    with replaced(*twin):
        try:
            model.insert([["1.0", "a diagnosis"]], [1])
        except ValueError as error:
            said = str(error)
    told = "a diagnosis" in said
    evidence = f"the record is {'' if said else 'not '}refused, and its value is {'' if told else 'not '}repeated"
    return Caught("an error about a record", evidence, found=told)


KEPT_UNITS = (
    kind_bug("unmarked_units", "state", _UnmarkedUnits, UnitFile, _rolled_back),
    kind_bug("writes_what_changed", "state", _WritesWhatChanged, UnitFile, _written),
    kind_bug("log_of_the_forgotten", "state", _KeepsTheLog, UnitFile, _forgotten_on_disk),
    kind_bug("refuses_the_whole_list", "state", _RefusesTheList, NeighbourSession, _kept_out),
    replacement_bug(
        "second_name_of_a_unit", "state", (session_module, "lasting_names"), _name_as_written, _named_in_two_ways
    ),
    replacement_bug(
        "name_of_all_digits", "state", (session_module, "lasting_names"), _name_as_written, _named_by_a_long_number
    ),
    # A person whose number a 32-bit float cuts short has a second name, and a second budget.
    replacement_bug(
        "name_cut_short", "state", (session_module, "lasting_names"), name_persons, _named_by_a_short_float
    ),
    replacement_bug(
        "error_repeats_a_record", "state", (model_module, "check_matrix"), _repeats_values, _said_of_a_record
    ),
)
