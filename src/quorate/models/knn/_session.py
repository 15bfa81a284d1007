"""The session of neighbours: answers queries while the owner inserts, forgets and estimates wear in between."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_consistent_length

from quorate.core.answerers import Prepaid
from quorate.core.arrays import Integers
from quorate.core.ballots import release_counts
from quorate.core.checks import check_process
from quorate.core.errors import InvalidInput
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import Answers
from quorate.core.privacy import Budget, Cost
from quorate.core.session import Session
from quorate.models.knn._ballots import Ballot, Terms
from quorate.models.knn._kernel import Space
from quorate.models.knn._unit_file import UnitFile
from quorate.models.knn._units import Units
from quorate.tables.persons import UNKNOWN_PERSON, lasting_names, unit_numbers


class Nearby(Prepaid):
    """The `Answerer` of a neighbour session. The whole budget is charged when it opens, and answers cost nothing more.

    How many queries there will be does not matter: units wear out instead (PROOF.md, step 5).
    """

    def __init__(self, space: Space, units: Units, terms: Terms, ballot: Ballot) -> None:
        self.space, self.units, self.terms, self.ballot = space, units, terms, ballot
        self.file: UnitFile | None = None
        self.reports = 0  # of wear, that were drawn
        self._mechanism = terms.mechanism

    def open(self, budget: Budget | None, ledger: Ledger | None) -> None:
        """Charge the whole budget, unless an earlier session has; what is charged for all queries is charged once."""
        assert budget is not None
        if (budget.epsilon, budget.delta) != (self.terms.epsilon, self.terms.delta):
            raise InvalidInput("a neighbour session has a budget of the epsilon and delta of its terms")
        total = Cost(budget.capacity().renyi)
        if not budget.covers((total, 1)):
            budget.spend(total)  # all of it, or refused; proof: step 5

    def draw(self, X: Any) -> Answers:
        """Charge the units near these queries, keep that, then release what they count with noise on every number."""
        ballots = self.units.count(self.space.points(X))
        if self.file is not None:
            self.file.keep_spends(self.units.spends())  # proof: step 8
        return Answers(labels=release_counts(ballots, self._answers), spent=Cost(0.0))

    def report(self) -> "Wear":
        """Release how many units can vote and how many are worn out, both with noise."""
        terms = self.terms
        if self.reports >= terms.reports:
            raise InvalidInput(f"all {terms.reports} reports of wear that the fit has paid for were drawn")
        self.reports += 1  # proof: step 4
        if self.file is not None:
            self.file.keep_reports(self.reports)
        voting, worn = (release_counts(self.units.worn(terms.reported), self._noisy)[0] / terms.reported).tolist()
        return Wear(voting, worn, terms.scale / terms.reported, terms.reports - self.reports)

    def _answers(self, counts: Integers) -> Integers:
        return self.ballot.answers(self._noisy(counts), self.terms.scale)

    def _noisy(self, counts: Integers) -> Integers:
        """Return the counts with noise on every entry, also where nobody has voted."""
        return self._mechanism.release([counts.ravel()])[0].reshape(counts.shape)


@dataclass(frozen=True)
class Wear:
    """A released estimate of how many units can still vote and how many are worn out. It is public.

    `deviation` is the standard deviation of the noise of either number, and `reports_left` the number of further
    estimates that are paid for.

    >>> str(Wear(voting=1480.0, worn=520.0, deviation=31.0, reports_left=15))
    'about 26% of 2,000 units are worn out (numbers of units to within 62)'
    """

    voting: float
    worn: float
    deviation: float
    reports_left: int

    @property
    def share(self) -> float:
        """The estimated share of units that are worn out."""
        return min(1.0, max(0.0, self.worn) / max(1.0, self.voting + self.worn))

    def __str__(self) -> str:
        units = max(0.0, self.voting + self.worn)
        within = f"(numbers of units to within {2 * self.deviation:,.0f})"
        return f"about {self.share:.0%} of {units:,.0f} units are worn out {within}"


class NeighbourSession(Session):
    """A session whose records come and go, in memory until `keep_in` gives it a file, which one process holds."""

    answerer: Nearby

    def insert(self, X: Any, labels: Any, ids: Any = None) -> list[str]:
        """Add the units of checked rows, with their labels, and return their names, which `ids` gives for each row.

        Without `ids` each row is a unit, named by the next unused number. A name that was forgotten continues with what
        it had spent. Units that are already there, or named a second time, stay as they are: all others are inserted,
        and then `InvalidInput` is raised. Rows without a name belong to one unknown unit; once it is there, further
        ones have no vote, and nothing is said of them.
        """
        units, ballot = self.answerer.units, self.answerer.ballot
        points, codes = self.answerer.space.points(X), ballot.codes(labels)
        check_consistent_length(points, codes)
        codes[~np.isfinite(X).all(axis=1)] = ballot.no_vote  # no record keeps others out
        if units.persons and ids is None:
            raise InvalidInput("the unit is a person: ids must name the person of each row")
        row_names = None if ids is None else _lasting_ids(ids, len(codes))
        with self._changing() as file:
            rows_by_unit = _rows_by_name(row_names or units.new_names(len(codes)))
            # The first row of a name is the unit, where that is a row. Who is there keeps nobody out: proof: step 6
            new = {
                name: rows if units.persons else rows[:1] for name, rows in rows_by_unit.items() if name not in units
            }
            names, sizes = list(new), [len(rows) for rows in new.values()]
            order = list(chain.from_iterable(new.values()))
            inserted = units.insert(names, sizes, points[order], codes[order])
            if file is not None:
                file.insert(inserted, names, sizes, points[order], codes[order])
        _check_inserted(rows_by_unit, new)
        return names

    def forget(self, names: Sequence[Any]) -> int:
        """Remove the records of these units, also from disk, and return how many. No budget is refunded.

        If some are not there, all others are forgotten, and then `InvalidInput` is raised.
        """
        units, at = self.answerer.units, time.time()
        wanted = list(dict.fromkeys(_lasting_ids(names, len(names)))) if len(names) else []
        with self._changing() as file:
            there = [name for name in wanted if name in units]  # proof: step 6
            numbers = units.forget(there, at=at)
            if file is not None:
                file.forget(numbers, at=at)
        if len(there) < len(wanted):
            raise InvalidInput("some of these units are not there; all others were forgotten")
        return len(there)

    def deletions(self) -> list[tuple[str, float]]:
        """Return which units were forgotten and when, oldest first, only for the owner."""
        with self._changing():
            return self.answerer.units.deletions()

    def wear(self) -> Wear:
        """Release an estimate of wear, which the fit has paid for."""
        with self._changing():
            return self.answerer.report()

    def keep_in(self, path: Path) -> None:
        """Write units and what they have spent to a new file, and keep it up to date from now on."""
        assert self.ledger is not None
        with self._changing():
            answerer = self.answerer
            answerer.file = UnitFile.create(path, self.ledger, answerer.units, reports=answerer.reports)

    def close(self) -> None:
        """Close the file and the ledger, so that another process may use the model."""
        with self._lock:
            if self.answerer.file is not None:
                self.answerer.file.close()
        super().close()

    @contextmanager
    def _changing(self) -> Iterator[UnitFile | None]:
        """Keep queries out while units change; where the disk may not have what memory has, go on with neither."""
        check_process("this model", self.process)
        with self._lock:
            self._check_location()
            file = self.answerer.file
            try:
                yield file
            except InvalidInput:  # nothing has changed
                raise
            except BaseException:
                if file is not None:
                    file.close()
                raise


def _lasting_ids(ids: Any, rows: int) -> list[str]:
    """Return the names that units go by, one for each row: 7, "7.0" and " 007 " are one. proof: step 6."""
    unit_numbers(rows, ids)  # refuses ids of another length
    return lasting_names(ids)


def _rows_by_name(names: Sequence[str]) -> dict[str, list[int]]:
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows.setdefault(name, []).append(row)
    return rows


def _check_inserted(rows_by_unit: dict[str, list[int]], inserted: dict[str, list[int]]) -> None:
    """Say that rows were left out. Nothing is said of rows without a name: one value of a row would decide it."""
    left_out = {name for name, rows in rows_by_unit.items() if len(rows) > len(inserted.get(name, ()))}
    if left_out - {UNKNOWN_PERSON}:
        raise InvalidInput(
            "some of these units are there already, and stay as they are; all others were inserted. Forget those "
            "first, or give new ones names of their own"
        )
