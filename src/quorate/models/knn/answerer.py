"""What answers by neighbours: counts votes and charges units for them, keeps what was charged, then draws noise."""

from typing import Any

from quorate.core.arrays import Integers
from quorate.core.ballots import release_counts
from quorate.core.errors import InvalidInput
from quorate.core.ledger import Ledger
from quorate.core.mechanisms import Answers
from quorate.core.privacy import Budget, Cost
from quorate.models.knn.ballots import Ballot
from quorate.models.knn.points import Space
from quorate.models.knn.terms import Terms
from quorate.models.knn.unit_file import UnitFile
from quorate.models.knn.units import Units


class Nearby:
    """The `Answerer` of a neighbour session. The whole budget is charged when it opens, and answers cost nothing more.

    How many queries there will be does not matter: units wear out instead (PROOF.md, step 5).
    """

    stops_at_last_no_quorum = False

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
        whole = Cost(budget.capacity().renyi)
        if not budget.covers((whole, 1)):
            budget.spend(whole)  # all of it, or refused; proof: step 5

    def row_cost(self) -> Cost:
        """Return nothing: all queries are paid for."""
        return Cost(0.0)

    def affordable(self, most: int) -> int:
        """Return all of them: no query is refused because of what units have spent."""
        return most

    def quote(self, most: int) -> tuple[int, Cost]:
        """Return all of them, at no further cost."""
        return most, Cost(0.0)

    def draw(self, X: Any) -> Answers:
        """Charge the units near these queries, keep that, then release what they count with noise on every number."""
        ballots = self.units.count(self.space.points(X))
        if self.file is not None:
            self.file.keep_spends(self.units.spends())  # proof: step 8
        return Answers(labels=release_counts(ballots, self._answers), spent=Cost(0.0))

    def report(self) -> tuple[int, int]:
        """Release how many units can vote and how many are worn out, both with noise, times `terms.reported`."""
        if self.reports >= self.terms.reports:
            raise InvalidInput(f"all {self.terms.reports} reports of wear that the fit has paid for were drawn")
        self.reports += 1  # proof: step 4
        if self.file is not None:
            self.file.keep_reports(self.reports)
        voting, worn = release_counts(self.units.worn(self.terms.reported), self._noisy)[0].tolist()
        return voting, worn

    def close(self) -> None:
        """Do nothing: all of it is in this process, and the session lets go of the file."""

    def move(self, ledger: Ledger) -> None:
        """Leave nothing in the ledger: what units have spent goes into a file of its own."""

    def _answers(self, counts: Integers) -> Integers:
        """Return what is read of the counts, with noise on all of them."""
        return self.ballot.answers(self._noisy(counts), self.terms.scale)

    def _noisy(self, counts: Integers) -> Integers:
        """Return the counts with noise on every entry, also where nobody has voted."""
        return self._mechanism.release([counts.ravel()])[0].reshape(counts.shape)
