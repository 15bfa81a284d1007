"""Private nearest neighbours. Every unit pays for its own votes from a budget of its own, and records come and go.

Claim: all outputs of a model and of `wear` together are (epsilon, delta)-differentially private under addition or
removal of one unit (a row, or all rows of one person), against adversaries that choose every query, insertion and
deletion adaptively; and (`terms_.replaced_epsilon()`, delta) under replacement. The proof is in PROOF.md.
"""

from typing import Any, Literal

from sklearn.utils.validation import check_is_fitted

from quorate.compute.learners import DeviceName
from quorate.core.arrays import Floats, Integers
from quorate.core.errors import InvalidInput
from quorate.models.knn.ballots import Labels, Shares
from quorate.models.knn.kernel import Shape
from quorate.models.knn.model import NeighbourModel
from quorate.models.knn.points import Metric
from quorate.models.predictors.base import Predictions, SessionClassifier
from quorate.models.predictors.labels import declared_classes
from quorate.models.predictors.scores import Scoring
from quorate.models.predictors.sklearn_compat import only_with
from quorate.models.saving.contract import Outputs


def _gives_scores(classifier: Any) -> bool:
    return bool(classifier.scores)


class NeighbourClassifier(NeighbourModel, SessionClassifier):
    """A classifier by noisy votes of the records near a query, weighted by their distance.

    A unit votes while its own budget pays for its own votes; then it stops, and nobody is told. So the number of
    queries is not limited: `queries` is the number to plan for, and more cost accuracy, not privacy. `records` is about
    how many records there will be, a public number. A query reaches as far as a `share` of the public rows, or one
    `radius`. The share and `votes` (how many of full weight a unit may cast) are chosen on public rows if "auto". The
    metric is "cosine", for embeddings, or "euclidean". With `scores`, noisy shares of the votes are returned too: free
    for three classes and more, and for two with an eighth more noise. Votes are counted on the `device`: "cpu", "cuda"
    for a GPU, or "auto", a GPU if there is one. They are the same on every device. The device is not saved.

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
    saved_attributes = ("scores_",)

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        queries: int = 1000,
        records: int | None = None,
        radius: float | None = None,
        share: float | Literal["auto"] = "auto",
        votes: float | Literal["auto"] = "auto",
        kernel: Shape = "linear",
        metric: Metric = "cosine",
        classes: Any = None,
        scores: bool = False,
        device: DeviceName = "auto",
    ) -> None:
        self.epsilon, self.delta, self.queries, self.records = epsilon, delta, queries, records
        self.radius, self.share, self.votes, self.kernel, self.metric = radius, share, votes, kernel, metric
        self.classes, self.scores, self.device = classes, scores, device

    def fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, *, public_labels: Any = None
    ) -> "NeighbourClassifier":
        """Plan on public rows, insert the records, and open the budget, all of which is charged at once.

        `groups` names the person of each row and makes the person the unit: it votes with its nearest record. Without
        it, each row is a unit, named by its number. `public` rows are not private; their labels, if any, guide the
        choice of the share. Neither is needed if `radius` and `votes` are set, for cosines.
        """
        return self._fit(X, y, self.classes, groups=groups, public=public, public_labels=public_labels)

    def _fit(
        self, X: Any, y: Any, classes: Any, *, groups: Any, public: Any, public_labels: Any
    ) -> "NeighbourClassifier":
        self.check_settings()
        self._forget("session_", "plan_")
        self.classes_, labels = declared_classes(classes, y)
        self.declared_, self.scores_ = classes is not None, bool(self.scores)
        return self._fit_units(X, labels, self.ballot(), groups=groups, public=public, known=public_labels)

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, groups: Any = None, public: Any = None, *, public_labels: Any = None
    ) -> "NeighbourClassifier":
        """Insert records, fitting first if nothing was fitted before; `classes` declares all labels that may occur."""
        if not hasattr(self, "session_"):
            declared = self.classes if classes is None else classes
            return self._fit(X, y, declared, groups=groups, public=public, public_labels=public_labels)
        self.insert(X, y, ids=groups)
        return self

    @property
    def outputs(self) -> Outputs:
        """What an answer is: a label, with noisy shares of the vote if the model was fitted for them."""
        return "vote shares" if self.scores_ else "labels"

    def ballot(self) -> Labels:
        """Return the kind of vote: for a class, perhaps with shares."""
        return Shares(self.classes_) if self.scores_ else Labels(self.classes_)

    def scoring(self) -> Scoring:
        """Return how shares become labels."""
        check_is_fitted(self)
        ballot = self.session_.answerer.ballot
        if not isinstance(ballot, Shares):
            raise InvalidInput("this model was fitted for labels; set scores=True and fit it again")
        return Scoring(ballot)

    @only_with(_gives_scores, "scores=True")
    def predict_proba(self, X: Any, caller: str = "") -> Floats:
        """Return the noisy share of votes for each class, one row per query: at least 0 each, and together 1.

        They rank queries, but are not calibrated probabilities: if few records are near, they are close to equal.

        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> y = rng.integers(0, 2, size=5000)
        >>> X = rng.normal(size=(5000, 2)) + np.where(y, 3.0, -3.0)[:, np.newaxis]
        >>> model = NeighbourClassifier(epsilon=4.0, radius=0.5, votes=5.0, classes=[0, 1], scores=True).fit(X, y)
        >>> shares = model.predict_proba([[3.0, 3.0], [-3.0, -3.0]])
        >>> shares.round(1).tolist(), model.predict([[3.0, 3.0]]).scores.tolist() == shares[:1].tolist()
        ([[0.0, 1.0], [1.0, 0.0]], True)
        """
        return self.scoring().probabilities(self._asked(X, caller)[1].labels)

    @only_with(_gives_scores, "scores=True")
    def decision_function(self, X: Any, caller: str = "") -> Floats:
        """Return how far the noisy share of the second of two classes exceeds 0.5; for more classes, all shares."""
        return self.scoring().decisions(self._asked(X, caller)[1].labels)

    def _predictions(self, queries: Any, codes: Integers, **known: Any) -> Predictions:
        if not self.scores_:
            return super()._predictions(queries, codes, **known)
        scores = self.scoring().probabilities(codes)
        return Predictions.of(self.scoring().labels(codes), classes=self.classes_, scores=scores, **known)
