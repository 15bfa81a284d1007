"""The base of prediction sets and intervals: held-out units, one private quantile of their scores, and the claims.

A score measures how badly the model did on a row. It is rounded up to a public grid. The quantile of the scores of
held-out units is released once, by the exponential mechanism; everything after that is post-processing.

Claim: the fitted object is epsilon-differentially private under replacement of one unit's rows (a row, or a person if
`groups` are given). The model is taken as public: its cost is not counted here.

Coverage: the set, or the interval, of a new unit contains its label with probability at least 1 - alpha, over the
held-out units, the new unit and the noise, if the new unit is exchangeable with the held-out ones and the model has
seen none of them. Nothing is assumed about the model or the distribution of the data. The proof is in PROOF.md.
"""

from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from quorate.core.arrays import Integers
from quorate.core.ballots import Ballots, release_counts
from quorate.core.checks import check_choice, check_count, check_positive, check_rate
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import PrivateQuantile
from quorate.core.privacy.claims import Claim, replaced
from quorate.models.evaluation.rows import check_published
from quorate.models.predictors.base import check_records
from quorate.models.predictors.sklearn_compat import KeepsPublished
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.contract import SavedModel, Spending, State

ROUNDING = 1e-9  # by which sets are widened, so that the last bits of a sum of the model's decide nothing
_FEWEST, _MOST = 100, 10_000  # cells of a grid whose size is chosen


class ConformalModel(SavedModel, KeepsPublished):
    """A published model and a public grid of scores, of which one cell is released."""

    spending = Spending(published=True, chargeable=True)
    summary = "Sets or intervals around the answers of a published model, as wide as private records ask for."
    saved_attributes = ("claim_", "covers_", "spent_epsilon_", "cell_")

    _published = "model"
    model: Any
    epsilon: float
    alpha: float
    cells: int | Literal["auto"]
    per_person: Literal["all", "first"]
    unit_: str
    covers_: str
    cell_: int

    def _check_settings(self, groups: Any) -> None:
        check_published(self.model)
        check_positive("epsilon", self.epsilon)
        if check_rate("alpha", self.alpha) == 1:
            raise InvalidInput("alpha must be below 1: sets that hold the label with probability 0 are empty")
        check_choice("per_person", self.per_person, ("all", "first"))
        if self.cells != "auto":
            check_count("cells", self.cells, least=2)
        if groups is None and self.per_person != "all":
            raise InvalidInput("per_person is for groups, which say whose each row is; there are none")

    def _forget(self) -> None:
        """Forget what an earlier fit has left."""
        for name in ("quantile_", "grid_", "cell_", "unit_", "claim_", "covers_", "coverage_", "spent_epsilon_"):
            self.__dict__.pop(name, None)

    def to_state(self) -> State:
        """Return settings, the grid and its released cell, and the model that the sets or intervals are about."""
        check_is_fitted(self, "cell_")
        state = State({**self.fitted_values(), "quantile": to_plain(self.quantile_)})
        state.put_arrays("grid", grid=self.grid_)
        state.put_model("model", self.model)
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the sets or intervals of a state, as they were after `fit`."""
        sets = cls.from_fitted_values(state.values, model=state.model("model"))
        sets.quantile_, sets.grid_ = from_plain(state.values["quantile"], PrivateQuantile), state.arrays("grid")["grid"]
        if not (sets.grid_.shape == (sets.quantile_.cells,) and 0 <= sets.cell_ < sets.quantile_.cells):
            raise InvalidInput("the released cell is none of the grid; the model is not loaded")
        sets.coverage_ = sets.quantile_.coverage()
        return sets

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return the coverage, and what is claimed of the model that the sets or intervals are about."""
        claim = getattr(self.model, "claim_", None)
        own = f"Its own claim: {claim}. For people whose rows served for both, the epsilons add up."
        own = "What it claims is said by who published it." if claim is None else own
        return [f"Coverage: {self.covers_}.", f"Model: {type(self.model).__name__}. {own}"]

    def checked(self, X: Any) -> Any:
        """Return queries in the form that the model takes, or raise an error."""
        check_is_fitted(self, "cell_")
        return check_records(self, X, estimator=self.model, reset=False, frames=True)

    def _grid_cells(self, units: int) -> int:
        """Return how many cells the grid has, from public numbers: as many as the noise lets be told apart."""
        if self.cells != "auto":
            return int(self.cells)
        return int(min(max(units * self.epsilon / 2, _FEWEST), _MOST))

    def _open(self, grid: NDArray[np.float64], units: int, groups: Any) -> None:
        """Choose the rank of the quantile, from public numbers; refuse too few units before anything is scored."""
        self.quantile_ = PrivateQuantile.calibrate(
            epsilon=self.epsilon, cells=len(grid), units=units, share=1 - self.alpha
        )
        self.grid_, self.coverage_ = grid, self.quantile_.coverage()
        self.unit_ = "row" if groups is None else "person"
        self.covers_ = self._covers()  # what is set later changes nothing of it

    def _release(self, cells: Integers, units: Integers, first: Integers) -> None:
        """Release the cell of the quantile; `cells` says in which one the score of each row lies."""
        if self.per_person == "first":
            scored = cells[first]
        else:
            scored = np.zeros(len(first), dtype=np.int64)
            np.maximum.at(scored, units, cells)  # proof: step 2
        counts = Ballots(np.bincount(scored, minlength=len(self.grid_)))
        self.cell_ = release_counts(counts, self.quantile_.release)  # proof: step 3
        self.spent_epsilon_ = float(self.epsilon)
        conditions = ("the model is taken as public",)
        self.claim_ = str(Claim(self.epsilon, 0.0, unit=replaced(self.unit_), conditions=conditions))

    def _covers(self) -> str:
        """Return what is guaranteed of the sets or intervals, in one sentence."""
        whom = "row holds its label"
        if self.unit_ == "person":
            whom = "person holds the label of every row" if self.per_person == "all" else "person's first row holds it"
        return (
            f"with probability at least {1 - self.alpha:g}, over held-out units and noise, what is said of a new {whom}"
        )
