"""Private logistic regression: two classes, many classes, or several labels at once.

Claim: the fitted object is (epsilon, delta)-differentially private under replacement of one unit's rows (a row, or a
person if `groups` are given). Public rows are not protected. Once fitted, nothing more is spent. See PROOF.md.
"""

from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import ClassifierMixin

from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.core.privacy.claims import LABELS_READ
from quorate.models.linear._engine import Fitted
from quorate.models.linear._families import Bernoulli, Softmax
from quorate.models.linear._tables import Target
from quorate.models.linear.model import LinearModel, refuse_weights
from quorate.models.predictors.labels import class_codes, declared_classes, known_codes, label_columns, label_matrix
from quorate.models.saving.contract import Outputs, State
from quorate.tables.containers import column_names, is_frame
from quorate.tables.features import AdditiveColumns, HashedColumns
from quorate.tables.schema import Schema


class PrivateLogisticRegression(ClassifierMixin, LinearModel):
    """Publishable logistic regression from a few noisy sums of private rows and from public rows.

    Parameters
    ----------
    epsilon, delta
        The guarantee of the fitted model.
    columns
        How rows become numbers, by the public rows: an `AdditiveColumns`, or a `HashedColumns` for a wide sparse matrix
        of counts; by default one of them with its defaults. "learned" needs no public rows: kinds, categories and cuts
        are learned from the private rows with a part of the same budget, and `schema_` has them. A `Schema` declares
        the columns; of its numbers without cuts these are learned in the same way, between the bounds if it has any.
    classes
        All labels that may occur. By default they are read from `y` and become public. For several labels at once, `y`
        is a matrix, a data frame or an Arrow table of zeros and ones, and there is nothing to declare.

    offset
        Log odds of the second of two classes that a public model gives to each row: the name of a column (its number,
        for a matrix), or for a matrix a function of one row that returns them. They are clipped to -10 and 10, and a
        missing one counts as 0. The fit starts from them and pays for their correction: a shift, a factor and the other
        columns. A correction that is no better than the offset, by the last noisy sum, is left out (`is_constant_`).

    The number of sums, their directions and their clipping are chosen from public numbers alone; there is nothing to
    tune. A model that is no better than the constant, by a last noisy sum, is replaced by it (`is_constant_`). If the
    public rows do not look like the private ones, the model reports it (`shift_`), ignores their geometry
    and takes smaller steps.

    `coef_` and `intercept_` belong to the columns of `columns_`; `coef_deviations_` shows how much of each coefficient
    may be noise; `curves_` shows what each column of the table adds, with standard deviations; `claim_` is the
    guarantee. `labels_` names several labels: by the columns of `y`, or by numbers if those have no names.

    >>> rng = np.random.default_rng(0)
    >>> X, public = rng.normal(size=(20_000, 2)), rng.normal(size=(1000, 2))
    >>> y = np.where(X[:, 0] + abs(X[:, 1]) > 1, "yes", "no")
    >>> model = PrivateLogisticRegression(epsilon=1.0, classes=["no", "yes"]).fit(X, y, public=public)
    >>> model.predict([[2.0, 2.0], [-2.0, 0.0]]).tolist(), model.score(X, y) > 0.9
    (['yes', 'no'], True)
    """

    kind = "linear model"

    labels_: NDArray[Any] | None
    predicts_likeliest = True  # A server need not ask for labels beside probabilities.

    def __init__(
        self,
        *,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        columns: AdditiveColumns | HashedColumns | Schema | str | None = None,
        classes: Any = None,
        offset: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.columns = columns
        self.classes = classes
        self.offset = offset

    def fit(
        self, X: Any, y: Any, groups: Any = None, public: Any = None, sample_weight: Any = None
    ) -> "PrivateLogisticRegression":
        """Fit on private rows, with the geometry of unlabelled `public` rows. This spends the whole budget."""
        refuse_weights(sample_weight)
        targets, conditions = self._targets(y)
        fitted = self._fit_rows(X, targets, groups=groups, public=public, **self._problem())
        return self._keep(fitted, conditions)

    def _problem(self) -> dict[str, Any]:
        outputs = len(self.classes_) if self.labels_ is None else len(self.labels_)
        outputs = 1 if outputs == 2 and not self.multilabel_ else outputs
        if self.offset is not None and (outputs > 1 or self.multilabel_):
            raise InvalidInput("offset is the log odds of one of two classes; leave it out for more classes or labels")
        family = Bernoulli() if outputs == 1 or self.multilabel_ else Softmax()
        return {"family": family, "outputs": outputs, "start": 0.5}

    def _keep(self, fitted: Fitted, conditions: tuple[str, ...] = ()) -> Self:
        self.coef_, self.intercept_ = fitted.weights[:, 1:], fitted.weights[:, 0]
        self.coef_deviations_ = fitted.deviations[:, 1:]
        self._draw(fitted)
        self.claim_ = self._claim(*conditions)
        return self

    def _target(self, schema: Schema, label: str | None) -> Target:
        if schema.label is None or label not in (None, schema.label.column):
            raise InvalidInput("the schema must declare the label with its classes: schema.with_label(column, classes)")
        classes = list(schema.label.classes)
        self.classes_, _ = declared_classes(classes, classes)
        self.multilabel_, self.labels_ = False, None
        order = np.append(known_codes(self.classes_, classes), -1)
        read, expand = partial(_read_codes, schema, order), partial(_expand_codes, len(classes))
        return Target(schema.label.column, read, expand)

    def _targets(self, y: Any) -> tuple[Floats, tuple[str, ...]]:
        """Return a column of zeros and ones for each output, and on what the claim depends."""
        if (outputs := label_columns(y)) > 1:
            if self.classes is not None:
                raise InvalidInput("several labels at once are a matrix of zeros and ones, without classes=")
            self.classes_, self.multilabel_ = np.array([0, 1]), True
            self.labels_ = np.array(column_names(y) if is_frame(y) else range(outputs))
            given = label_matrix(y)
            return np.where(np.isin(given, (0, 1)), given, np.nan), ()  # sums leave out what is neither
        self.classes_, labels = declared_classes(self.classes, y)
        self.multilabel_, self.labels_ = False, None
        conditions = () if self.classes is not None else (LABELS_READ,)
        return _expand_codes(len(self.classes_), class_codes(self.classes_, labels)), conditions

    @property
    def outputs(self) -> Outputs:
        """What an answer is: a class, or several labels at once."""
        return "several labels" if self.multilabel_ else "probabilities"

    def to_state(self) -> State:
        """Return the state of a linear model, and the names of several labels."""
        state = super().to_state()
        labels = None if self.labels_ is None else self.labels_.tolist()
        state.values = {**state.values, "labels": labels}
        return state

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model of a state, as it was after `fit`."""
        model, labels = super().from_state(state), state.values["labels"]
        model.multilabel_, model.labels_ = labels is not None, None if labels is None else np.array(labels)
        return model

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return how large the model is, and its classes or labels."""
        *facts, classes = super().page_facts(schema)
        if self.labels_ is not None:
            classes = f"Labels, each 0 or 1: {', '.join(map(str, self.labels_.tolist()))}."
        return [*facts, classes]

    def decision_function(self, X: Any) -> Floats:
        """Return log odds: a vector for two classes, else a column for each class or label. Nothing is spent."""
        eta = self._predictor(X)
        return eta[:, 0] if eta.shape[1] == 1 else eta

    def predict_proba(self, X: Any) -> Floats:
        """Return probabilities, a column for each of `classes_`, or for each label. Nothing is spent."""
        eta = self._predictor(X)
        if eta.shape[1] > 1 and not self.multilabel_:
            return Softmax().mean(eta)
        p = np.asarray(expit(eta))
        return p if self.multilabel_ else np.hstack([1 - p, p])

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most likely class, or which labels are more likely than not. Nothing is spent."""
        p = self.predict_proba(X)
        return (p > 0.5).astype(np.int64) if self.multilabel_ else self.classes_[p.argmax(axis=1)]


def _read_codes(schema: Schema, order: NDArray[np.int64], table: Any) -> Floats:
    return order[schema.label_codes(table)].astype(np.float64)


def _expand_codes(classes: int, codes: NDArray[Any]) -> Floats:
    """Return a column of zeros and ones for each output; those of a label that is no class are no numbers.

    Sums leave these out: models/linear/PROOF.md, step 1.
    """
    codes = codes.astype(np.int64, copy=False)
    if classes == 2:
        return np.where(codes < 0, np.nan, codes)[:, None]
    return np.asarray(np.vstack([np.eye(classes), np.full(classes, np.nan)])[codes])
