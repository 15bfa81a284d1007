"""Batched logistic regressions, and which scikit-learn estimators have a batched equivalent."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from quorate.compute.learners._gpu import fit_small_chunks
from quorate.compute.learners._losses import (
    BatchedCentroid,
    BatchedNaiveBayes,
    BatchedRidge,
    BinaryLoss,
    LinearLearner,
    Loss,
    MultinomialLoss,
    centred,
    minimise,
    row_space,
)
from quorate.compute.learners._tree import DEEPEST, BatchedTree
from quorate.compute.learners.backends import Array, Backend
from quorate.compute.learners.linear import LinearTeachers
from quorate.compute.learners.teachers import (
    LARGEST,
    Block,
    Chunks,
    Learner,
    Matrix,
    Teachers,
    check_queries,
    teachers_from_arrays,
)
from quorate.core.arrays import Integers
from quorate.core.checks import check_count, check_positive
from quorate.core.errors import InvalidInput


def product_count(features: int) -> int:
    """Return the number of columns of `with_products` for this number of features."""
    return features * (features + 3) // 2


def with_products(features: Matrix) -> Matrix:
    """Return the features and after them the product of every two, squares included, along the last axis.

    The order is that of scikit-learn's `PolynomialFeatures`. A product is rounded once, by itself (proof: step 17).

    >>> with_products(np.array([[2.0, 3.0]])).tolist()
    [[2.0, 3.0, 4.0, 6.0, 9.0]]
    """
    first, second = np.triu_indices(features.shape[-1])
    clipped = np.clip(features, -LARGEST, LARGEST)
    products = np.clip(clipped[..., first] * clipped[..., second], -LARGEST, LARGEST)
    return np.concatenate([clipped, products], axis=-1)


class QuadraticTeachers(Teachers):
    """Teachers whose scores are linear in the features and in their products: `linear`, asked with products."""

    kind = "quadratic"

    def __init__(self, linear: LinearTeachers, *, features: int) -> None:
        self._linear, self.features = linear, check_count("features", features)
        self.teachers, self.classes = linear.teachers, linear.classes
        columns = product_count(features)
        if linear.features != columns:
            raise InvalidInput(f"scores of {features} features must have {columns} coefficients, not {linear.features}")

    def votes(self, X: Any) -> NDArray[np.int64]:
        """Return how many teachers vote for each class: one row a query, one column a class."""
        return np.concatenate([self._linear.votes(columns) for columns in self._blocks(X)])

    def ballots(self, X: Any) -> NDArray[Any]:
        """Return the class that each teacher votes for: one row a query, one column a teacher."""
        return np.concatenate([self._linear.ballots(columns) for columns in self._blocks(X)])

    def _blocks(self, X: Any) -> Iterator[Matrix]:
        """Yield the queries with their products: as many together as fit into a part of the memory."""
        queries, self._linear.device = check_queries(X, features=self.features), self.device
        together = max(1, self.memory // (64 * self._linear.features))
        for start in range(0, max(1, len(queries)), together):
            yield with_products(queries[start : start + together])

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return all there is to save, as plain arrays. They are private."""
        return self._linear.arrays() | {"kind": np.array(self.kind), "features": np.array(self.features)}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "QuadraticTeachers":
        """Return the teachers that `arrays` describe."""
        if "features" not in arrays or np.asarray(arrays["features"]).ndim:
            raise InvalidInput("arrays must be of the kind 'quadratic' and hold a number as features")
        linear = LinearTeachers.from_arrays({**arrays, "kind": np.array("linear")})
        return cls(linear, features=int(arrays["features"]))


@dataclass(frozen=True)
class BatchedLogistic(LinearLearner):
    """Logistic regression with scikit-learn's objective: C times the sum of log losses, plus half the squared weights.

    The intercept is not penalised. A chunk that shows two classes has one score; one that shows more is multinomial.
    With `class_weight="balanced"` a row weighs as in scikit-learn: the rows of each class that the chunk shows weigh
    the same together. Otherwise there is a weight for each class number.

    >>> from quorate.compute.learners import Deal
    >>> X, y = [[-2.0], [-1.0], [1.0], [2.0], [-3.0], [3.0]], [0, 0, 1, 1, 1, 0]
    >>> teachers = BatchedLogistic().fit(X, y, Deal.of([[0, 1, 2, 3], [4, 5]]), classes=2)
    >>> teachers.ballots([[-1.0], [1.0]]).tolist()
    [[0, 1], [1, 0]]
    """

    C: float = 1.0
    fit_intercept: bool = True
    class_weight: Literal["balanced"] | tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        check_positive("C", self.C)

    def _fit_block(self, backend: Backend, block: Block) -> Array:
        features, weights = backend.put(block.features), backend.put(block.weights)
        means = None
        if self.fit_intercept:
            features, means = centred(features, weights)
        design, basis = row_space(backend, features)
        minimum = self._minimum(backend, design, weights[:, :, None], block)
        coefficients = minimum[:, : design.shape[2]]
        if basis is not None:
            coefficients = basis @ coefficients
        intercepts = 0.0 * minimum[:, 0] if means is None else minimum[:, -1] - (means[:, None, :] @ coefficients)[:, 0]
        return backend.functions.concatenate([coefficients, intercepts[:, None, :]], 1).swapaxes(1, 2)

    def _minimum(self, backend: Backend, design: Array, weights: Array, block: Block) -> Array:
        """Return coefficients (chunks, columns, classes shown), the intercept in the last column if there is one."""
        penalties = np.ones((design.shape[2], 1))
        if self.fit_intercept:
            design, penalties = (
                backend.functions.concatenate([design, weights], 2),
                np.append(penalties, [[0.0]], axis=0),
            )
        target, penalties, weights = backend.put(block.indicators()), backend.put(penalties), self.C * weights
        if self.class_weight is not None:
            weights = weights * backend.put(self._class_weights(block))
        if block.class_codes.shape[1] > 2:
            loss: Loss = MultinomialLoss(backend, design, weights, target, penalties)
            return minimise(loss, outputs=block.class_codes.shape[1])
        loss = BinaryLoss(backend, design, weights, target[:, :, 1:], penalties)
        coefficients = minimise(loss, outputs=1)
        return backend.functions.concatenate([0.0 * coefficients, coefficients], 2)

    def _class_weights(self, block: Block) -> NDArray[np.float64]:
        """Return the weight of each row by its class, from the rows of its own chunk alone (proof: step 14)."""
        indicators = block.indicators()
        weights = np.zeros((len(indicators), indicators.shape[2]))
        weights[: len(block.class_codes)] = self._weights_of(
            indicators.sum(axis=1)[: len(block.class_codes)], block.class_codes
        )
        rows: NDArray[np.float64] = (indicators * weights[:, np.newaxis, :]).sum(axis=2)
        return rows[:, :, np.newaxis]

    def _weights_of(self, sizes: NDArray[np.float64], class_codes: Integers) -> NDArray[np.float64]:
        """Return what a row of each class weighs that a chunk shows, by how many rows of the chunk have that class."""
        if self.class_weight is None:
            return np.ones(class_codes.shape)
        if self.class_weight == "balanced":
            balanced: NDArray[np.float64] = sizes.sum(axis=1, keepdims=True) / (
                class_codes.shape[1] * np.maximum(sizes, 1.0)
            )
            return balanced
        # A class without a weight weighs 1.
        table = np.ones(max(len(self.class_weight), int(class_codes.max(initial=0)) + 1))
        table[: len(self.class_weight)] = self.class_weight
        return table[class_codes]

    def _fit_fused(self, chunks: Chunks) -> tuple[Integers, Matrix] | tuple[None, None]:
        if self.coefficients(chunks.features) != chunks.features:  # products, which the kernel does not make
            return None, None
        return fit_small_chunks(chunks, lambda *of: self.C * self._weights_of(*of), intercept=self.fit_intercept)

    def _bytes(self, rows: int, features: int, classes: int) -> int:
        columns = min(rows, features) + 1
        several = 6 * classes * (rows + columns) if classes > 2 else 0
        return 8 * (rows * (2 * features + 3 * columns + 8) + 4 * columns**2 + several)


@dataclass(frozen=True)
class BatchedQuadratic(BatchedLogistic):
    """Logistic regression on the features and on the product of every two of them, squares included.

    It is what scikit-learn fits with `PolynomialFeatures` in front: columns may act together, or up to a point and then
    back. The map is public and the same for every teacher.

    >>> from quorate.compute.learners import Deal
    >>> X, y = [[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]] * 9, [0, 1, 1, 0] * 9
    >>> teachers = BatchedQuadratic(C=100.0).fit(X, y, Deal.of([range(36)]), classes=2)
    >>> teachers.ballots(X[:4]).ravel().tolist()  # no line tells these apart
    [0, 1, 1, 0]
    """

    def coefficients(self, features: int) -> int:
        """Return how many columns a score has: the features and their products."""
        return product_count(features)

    def _fit_chunks(self, backend: Backend, chunks: Chunks, *, one_scale: bool) -> Teachers:
        linear = self._fit_linear(backend, chunks, one_scale=one_scale)
        return QuadraticTeachers(linear, features=chunks.features)

    def _fit_block(self, backend: Backend, block: Block) -> Array:
        return super()._fit_block(backend, replace(block, features=with_products(block.features)))  # proof: step 17

    def _bytes(self, rows: int, features: int, classes: int) -> int:
        columns = product_count(features)
        return super()._bytes(rows, columns, classes) + 16 * rows * columns


# Settings that change how scikit-learn gets to the answer, and not which answer it seeks.
_HOW = {"copy_X", "dual", "max_iter", "n_jobs", "random_state", "tol", "verbose", "warm_start"}


def batched_equivalent(estimator: Any) -> Learner | None:
    """Return the batched learner that fits what this scikit-learn estimator would fit on each chunk, or None.

    Recognised are `LogisticRegression` with an L2 penalty and a solver of that objective, `RidgeClassifier`,
    `NearestCentroid`, `GaussianNB` and `DecisionTreeClassifier` of up to 6 levels, which may have a whole number as
    `min_samples_leaf` and `class_weight="balanced"`, as long as every other setting has its default; a logistic
    regression may weigh classes, by their numbers, and may have `PolynomialFeatures(include_bias=False)` in front of it
    in a pipeline. A subclass is not recognised: it may do something else.

    >>> batched_equivalent(object()) is None
    True
    >>> from sklearn.linear_model import LogisticRegression
    >>> batched_equivalent(LogisticRegression(C=0.5))
    BatchedLogistic(C=0.5, fit_intercept=True, class_weight=None)
    >>> batched_equivalent(LogisticRegression(warm_start=True, l1_ratio=0.5)) is None
    True
    """
    if type(estimator).__module__.partition(".")[0] != "sklearn":
        return None
    if hasattr(estimator, "steps"):
        return _quadratic(estimator)
    translate = _translators().get(type(estimator))
    if translate is None:
        return None
    settings, defaults = estimator.get_params(deep=False), type(estimator)().get_params(deep=False)
    changed = {name: value for name, value in settings.items() if name not in _HOW and not _same(value, defaults[name])}
    return translate(settings, changed)


def count_coefficients(estimator: Any, features: int) -> int:
    """Return the approximate number of coefficients that a teacher learns, in columns of a linear score."""
    batched = batched_equivalent(estimator)
    return features if batched is None else batched.coefficients(features)


_Translator = Callable[[dict[str, Any], dict[str, Any]], Learner | None]


def _translators() -> dict[type, _Translator]:
    from sklearn.linear_model import LogisticRegression, RidgeClassifier  # noqa: PLC0415
    from sklearn.naive_bayes import GaussianNB  # noqa: PLC0415
    from sklearn.neighbors import NearestCentroid  # noqa: PLC0415
    from sklearn.tree import DecisionTreeClassifier  # noqa: PLC0415

    return {
        LogisticRegression: _logistic,
        RidgeClassifier: _ridge,
        NearestCentroid: lambda settings, changed: None if changed else BatchedCentroid(),
        GaussianNB: _naive_bayes,
        DecisionTreeClassifier: _tree,
    }


def _logistic(settings: dict[str, Any], changed: dict[str, Any]) -> Learner | None:
    names = {"C", "fit_intercept", "solver", "penalty", "l1_ratio", "intercept_scaling", "class_weight"}
    translates, weights = set(changed) <= names, _class_weight(settings["class_weight"])
    squares = changed.get("penalty", "l2") == "l2" and changed.get("l1_ratio", 0) in (0, None)
    solves = settings["solver"] in ("lbfgs", "newton-cg", "newton-cholesky")
    if not (translates and squares and solves and not settings["dual"] and _positive(settings["C"])) or weights == ():
        return None
    return BatchedLogistic(C=float(settings["C"]), fit_intercept=bool(settings["fit_intercept"]), class_weight=weights)


def _quadratic(estimator: Any) -> Learner | None:
    from sklearn.pipeline import Pipeline  # noqa: PLC0415
    from sklearn.preprocessing import PolynomialFeatures  # noqa: PLC0415

    if type(estimator) is not Pipeline or len(estimator.steps) != 2:
        return None
    (_, products), (_, last) = estimator.steps
    alike = PolynomialFeatures(include_bias=False).get_params()
    if type(products) is not PolynomialFeatures or products.get_params() != alike:
        return None
    learner = batched_equivalent(last)
    return BatchedQuadratic(**vars(learner)) if type(learner) is BatchedLogistic else None


def _class_weight(weights: Any) -> Any:
    """Return weights as a batched learner takes them, by class numbers from 0 on; () for any others."""
    if weights is None or weights == "balanced":
        return weights
    if not isinstance(weights, dict) or set(weights) != set(range(len(weights))):
        return ()
    return tuple(float(weights[code]) for code in range(len(weights))) if all(map(_positive, weights.values())) else ()


def _ridge(settings: dict[str, Any], changed: dict[str, Any]) -> Learner | None:
    if not set(changed) <= {"alpha", "fit_intercept"} or not _positive(settings["alpha"]):
        return None
    return BatchedRidge(alpha=float(settings["alpha"]), fit_intercept=bool(settings["fit_intercept"]))


def _naive_bayes(settings: dict[str, Any], changed: dict[str, Any]) -> Learner | None:
    if not set(changed) <= {"var_smoothing"} or not _positive(settings["var_smoothing"]):
        return None
    return BatchedNaiveBayes(var_smoothing=float(settings["var_smoothing"]))


def _tree(settings: dict[str, Any], changed: dict[str, Any]) -> Learner | None:
    depth, smallest_leaf, weight = settings["max_depth"], settings["min_samples_leaf"], settings["class_weight"]
    translates = set(changed) <= {"max_depth", "min_samples_leaf", "class_weight"} and (
        weight is None or weight == "balanced"
    )
    integral = all(type(number) is int and number >= 1 for number in (depth, smallest_leaf))
    if not translates or not integral or depth > DEEPEST:
        return None
    return BatchedTree(max_depth=depth, min_samples_leaf=smallest_leaf, class_weight=weight)


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < math.inf


def _same(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, int | float | str) and value == default)


def joined_teachers(parts: Sequence[Teachers]) -> Teachers:
    """Return the teachers of several parts, which one learner has fitted, as one: the same ballots, to the last bit.

    >>> from quorate.compute.learners import Deal
    >>> X, y = [[-1.0], [1.0], [2.0], [5.0]], [0, 1, 0, 1]
    >>> parts = [BatchedCentroid().fit(X[a : a + 2], y[a : a + 2], Deal.of([[0, 1]]), classes=2) for a in (0, 2)]
    >>> joined_teachers(parts).ballots([[0.5], [3.0]]).tolist()
    [[1, 0], [1, 0]]
    """
    if len(parts) == 1:
        return parts[0]
    arrays = [part.arrays() for part in parts]
    joined = teachers_from_arrays(
        {
            name: np.concatenate([part_arrays.pop(name) for part_arrays in arrays]) if value.ndim else value
            for name, value in list(arrays[0].items())
        }
    )
    joined.device = parts[0].device
    return joined
