"""What the words that --learner and --concept take stand for."""

from collections.abc import Callable
from typing import Any, Literal

from quorate.cli.options import ConceptName, LearnerName
from quorate.core.errors import InvalidInput
from quorate.models.concepts import Boxes, Concept, Conjunctions, Halfspaces, Intervals, Stumps, Thresholds


def make_concept(name: ConceptName, features: int) -> Concept:
    """Return the class of hypotheses of this name over this many columns of numbers.

    Conjunctions are over columns of 0 and 1, such as those that a schema makes of categories.
    """
    if name in ("thresholds", "intervals") and features != 1:
        raise InvalidInput(
            f"{name} are on a line, and the table has {features} columns of numbers: leave out all but one"
        )
    makers: dict[str, Callable[[], Concept]] = {
        "stumps": lambda: Stumps(features=features),
        "thresholds": Thresholds,
        "intervals": Intervals,
        "boxes": lambda: Boxes(features),
        "halfspaces": lambda: Halfspaces(features),
        "conjunctions": lambda: Conjunctions([2] * features),
    }
    return makers[name]()


def make_learner(name: LearnerName | Literal["auto", "direction"] | None) -> Any:
    """Return the scikit-learn estimator that each teacher is a copy of. Those up to "tree" are fitted as one array.

    What is left open, or "auto", is returned as it is: the fit chooses.
    """
    if name is None or name == "auto":
        return name
    from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
    from sklearn.linear_model import RidgeClassifier
    from sklearn.naive_bayes import GaussianNB
    from sklearn.neighbors import NearestCentroid
    from sklearn.tree import DecisionTreeClassifier

    from quorate.models.everlasting.directions import MeanDirection
    from quorate.planner.trial import CANDIDATES

    makers: dict[str, Callable[[], Any]] = {
        **CANDIDATES,
        "ridge": RidgeClassifier,
        "centroid": NearestCentroid,
        "naive-bayes": GaussianNB,
        "direction": MeanDirection,
        "stump": lambda: DecisionTreeClassifier(max_depth=1),
        "forest": lambda: RandomForestClassifier(n_estimators=10, max_depth=8),
        # Not the histogram kind: its threads cost more than they bring on chunks of a hundred rows.
        "boosting": lambda: GradientBoostingClassifier(n_estimators=20, max_depth=2),
    }
    return makers[name]()
