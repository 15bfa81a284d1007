"""The ways in which teachers are fitted: in batches, through joblib, by estimators that look at more than values."""

from collections.abc import Callable
from typing import Any

from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from matrix.witness import CountsRows, FailsOnLarge, Onlooker, Witness
from quorate.models.concepts import Intervals, Stumps, Thresholds


def _by_type() -> Any:
    """Return a pipeline that takes whole numbers, decimal numbers and categories each in another way."""
    return make_pipeline(
        make_column_transformer(
            ("passthrough", make_column_selector(dtype_include=["float64", "Float64"])),
            (
                OneHotEncoder(handle_unknown="ignore", sparse_output=False),
                make_column_selector(dtype_include="category"),
            ),
            remainder="drop",
        ),
        DecisionTreeClassifier(max_depth=3),
    )


def _polynomial() -> Any:
    balanced = LogisticRegression(class_weight="balanced", max_iter=20)
    return make_pipeline(StandardScaler(), PolynomialFeatures(2), balanced)


LEARNERS: dict[str, Callable[[], Any]] = {
    "logistic": LogisticRegression,
    "ridge": RidgeClassifier,
    "naive-bayes": GaussianNB,
    "centroid": NearestCentroid,
    "stump": lambda: DecisionTreeClassifier(max_depth=1),
    "shallow-tree": lambda: DecisionTreeClassifier(max_depth=3, min_samples_leaf=2, class_weight="balanced"),
    "quadratic": lambda: make_pipeline(PolynomialFeatures(include_bias=False), LogisticRegression()),
    "tree": lambda: Witness(DecisionTreeClassifier(max_depth=3)),
    "polynomial": lambda: Witness(_polynomial()),
    "by-type": lambda: Witness(_by_type()),
    "neighbours": lambda: Witness(KNeighborsClassifier(n_neighbors=1)),
    "fails": lambda: Witness(FailsOnLarge()),
    "onlooker": lambda: Witness(Onlooker()),
    "counts-rows": lambda: Witness(CountsRows()),
}

CONCEPTS: dict[str, Callable[[], Any]] = {
    "thresholds": Thresholds,
    "stumps": lambda: Stumps(features=3),
    "intervals": Intervals,
}
