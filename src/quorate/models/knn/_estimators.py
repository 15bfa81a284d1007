"""Private nearest neighbours. Every unit pays for its own votes from a budget of its own, and records come and go.

Claim: all outputs of a model and of `wear` together are (epsilon, delta)-differentially private under addition or
removal of one unit (a row, or all rows of one person), against adversaries that choose every query, insertion and
deletion adaptively; and (`terms_.replaced_epsilon()`, delta) under replacement. The proof is in PROOF.md.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from quorate.core.arrays import Floats
from quorate.core.checks import check_bounds
from quorate.core.errors import InvalidInput
from quorate.models.knn._ballots import Labels, Levels, Shares
from quorate.models.knn._model import NeighbourModel
from quorate.models.predictors.base import ScoredClassifier
from quorate.models.predictors.labels import declared_classes, target_numbers
from quorate.models.predictors.scores import Scoring
from quorate.models.saving.contract import Outputs


@dataclass(eq=False, repr=False, kw_only=True)
class NeighbourClassifier(NeighbourModel, ScoredClassifier):
    """A classifier by noisy votes of the records near a query, weighted by their distance.

    A unit votes while its own budget pays for its own votes; then it stops, and nobody is told. So the number of
    queries is not limited.

    Parameters
    ----------
    epsilon, delta
        The privacy loss allowed, if one unit is added or removed.
    queries
        The number of queries to plan for. More can be asked: accuracy then suffers, not privacy.
    records
        About how many records (or people) there will be: a public number. It sets share and votes.
    radius
        How near a record must be to vote; by default set by the share of the public rows.
    share
        A query reaches as far as this share of the public rows.
    votes
        How many votes of full weight a unit may cast in total.
    kernel
        Whether weights fall with the squared distance, or are all equal within the radius.
    metric
        Whether distances are between directions ("cosine", for embeddings) or between rows ("euclidean"). The second
        needs public rows.
    scores
        Also give the noisy share of votes for each class: free for three classes and more, and for two with an eighth
        more noise.
    classes
        All labels that may occur. If not declared, the labels of `y` are used and become public.
    device
        Where votes are counted: "cpu", "cuda" for a GPU, or "auto", a GPU if there is one. They are the same on every
        device. The device is not saved.

    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 2, size=20_000)
    >>> X = rng.normal(size=(20_000, 8)) + np.where(y, 2.0, -2.0)[:, np.newaxis]
    >>> model = NeighbourClassifier(epsilon=1.0, records=20_000, queries=100, classes=[0, 1])
    >>> model.fit(X[2000:], y[2000:], public=X[:2000]).score(X[:100], y[:100]) > 0.9
    True
    >>> model.forget(["17", "18"])
    2
    >>> model.insert(X[:1], y[:1])
    ['18000']
    >>> model.claim_
    '(1, 1e-06)-differentially private under addition or removal of one row; (2.123, 1e-06) if it is replaced'
    """

    kind = "neighbours"
    saved_attributes = ("terms_", "scores_")

    classes: Any = None
    scores: bool = False

    def fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, *, public_labels: Any = None
    ) -> "NeighbourClassifier":
        """Plan on public rows, insert the records, and open the budget, all of which is charged at once.

        `groups` names the person of each row and makes the person the unit: it votes with its nearest record. Without
        it, each row is a unit, named by its number. `public` rows are not private; their labels, if any, guide the
        choice of the share. Neither is needed if `radius` and `votes` are set, for cosines.
        """
        self.check_settings()
        self._forget("session_", "plan_")
        self.classes_, labels = declared_classes(self.classes, y)
        self.declared_, self.scores_ = self.classes is not None, bool(self.scores)
        return self._fit_units(X, labels, self.ballot(), groups=groups, public=public, public_labels=public_labels)

    @property
    def outputs(self) -> Outputs:
        """What an answer is: a label, with noisy shares of the vote if the model was fitted for them."""
        return "vote shares" if self.scores_ else "labels"

    def ballot(self) -> Labels:
        """Return the kind of vote: for a class, perhaps with shares."""
        return Shares(self.classes_) if self.scores_ else Labels(self.classes_)

    def gives_scores(self) -> bool:
        """Return whether noisy shares of the votes are returned beside labels."""
        return bool(self.scores)

    def scoring(self) -> Scoring:
        """Return how shares become labels."""
        check_is_fitted(self)
        ballot = self.session_.answerer.ballot
        if not isinstance(ballot, Shares):
            raise InvalidInput("this model was fitted for labels; set scores=True and fit it again")
        return Scoring(ballot)


@dataclass(eq=False, repr=False, kw_only=True)
class NeighbourRegressor(RegressorMixin, NeighbourModel):
    """A regressor by the noisy mean target of the records near a query, weighted by their distance.

    The mean comes from two noisy sums. A target far from the centre moves the answer more, and its unit pays more. The
    centre is the mean of public targets, or the middle of the bounds; if few records are near, the answer is close to
    it. The other parameters are those of `NeighbourClassifier`.

    Parameters
    ----------
    bounds
        The lowest and the highest target: values beyond them are clipped. Declare them; they must not be read from the
        private records.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, size=(20_000, 2))
    >>> y = 100 * np.sin(3 * X[:, 0]) + rng.normal(size=20_000)
    >>> model = NeighbourRegressor(epsilon=1.0, records=19_000, queries=100, metric="euclidean", bounds=(-110, 110))
    >>> model.fit(X[1000:], y[1000:], public=X[:1000], public_targets=y[:1000]).score(X[:100], y[:100]) > 0.9
    True
    """

    kind = "neighbours"
    outputs = "noisy values"
    saved_attributes = ("terms_", "bounds_", "centre_", "declared_")

    bounds: tuple[float, float] = (0.0, 1.0)

    def fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, *, public_targets: Any = None
    ) -> "NeighbourRegressor":
        """Plan on public rows, insert the records, and open the budget, all of which is charged at once.

        The arguments are those of `NeighbourClassifier`; targets of public rows determine the centre and guide the
        choice of the share.
        """
        self.check_settings()
        self._forget("session_", "plan_")
        self.bounds_ = low, high = check_bounds(self.bounds)
        targets = None if public_targets is None else np.clip(np.nan_to_num(target_numbers(public_targets)), low, high)
        self.centre_ = (low + high) / 2 if targets is None else float(targets.mean())
        self.declared_ = True
        return self._fit_units(X, y, self.ballot(), groups=groups, public=public, public_labels=targets)

    def ballot(self) -> Levels:
        """Return the kind of vote: for the level of a target."""
        low, high = self.bounds_  # of the fit: what is set later does not change what levels stand for
        return Levels(low=low, high=high, centre=self.centre_)

    def predict(self, X: Any, caller: str = "") -> Floats:
        """Return the noisy mean of targets near each query, within the bounds.

        A query that this `caller` asked before gets the same answer again.
        """
        return self.read(self._ask_session(X, caller)[1].labels)

    def read(self, answers: Any) -> Floats:
        """Return the values that answers of the session stand for."""
        ballot = self.session_.answerer.ballot
        assert isinstance(ballot, Levels)
        return ballot.values(answers)
