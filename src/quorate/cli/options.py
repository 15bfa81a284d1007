"""Types that options of several commands share, the meanings of their words, and checks of their combinations.

An option that was given and that nothing would read is refused, not passed over in silence.
"""

import inspect
import os
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from quorate.core.errors import InvalidInput
from quorate.core.lazy import install_command

if TYPE_CHECKING:
    from quorate.models.concepts import Concept

LearnerName = Literal[
    "logistic", "quadratic", "ridge", "centroid", "naive-bayes", "stump", "tree", "forest", "boosting"
]
ConceptName = Literal["stumps", "thresholds", "intervals", "boxes", "halfspaces", "conjunctions"]
AggregatorName = Literal[  # that a saved model can have; --scores takes another by itself
    "quorum", "sharp_majority", "noisy_max", "confident_max", "soft_majority", "between_thresholds"
]
Device = Literal["auto", "cpu", "cuda"]
ModelPath = Annotated[Path, Parameter(help="The model, as `quorate fit` wrote it.")]
AsJson = Annotated[bool, Parameter(help="Print one JSON object.")]
OutsideMark = Annotated[
    bool,
    Parameter(
        env_var="QUORATE_OUTSIDE_MARK",
        negative="--no-outside-mark",
        help="Spend only where a mark can be written outside the model's folder. Without one, an old copy of the "
        "folder that is put back spends its budget again.",
    ),
]
Trusted = Annotated[
    str,
    Parameter(
        help="Types of estimators in the model that are not known to be safe, separated by commas, as given to "
        "quorate.save. They are imported, and their code runs: name only what you would run."
    ),
]


def split_list(text: str | None) -> list[str]:
    """Return the texts of an option that are separated by commas; none for an empty text."""
    return [part.strip() for part in text.split(",")] if text else []


def two_numbers(text: str) -> tuple[float, float]:
    """Return the bounds that an option gives."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"--bounds must be two numbers, as in 0,250, got {text!r}") from None
    return low, high


def make_concept(name: ConceptName, features: int) -> "Concept":
    """Return the class of hypotheses of this name over this many columns of numbers.

    Conjunctions are over columns of 0 and 1, such as those that a schema makes of categories.
    """
    if name in ("thresholds", "intervals") and features != 1:
        raise InvalidInput(
            f"{name} are on a line, and the table has {features} columns of numbers: leave out all but one"
        )
    from quorate.models.concepts import Boxes, Conjunctions, Halfspaces, Intervals, Stumps, Thresholds

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


def options_of(command: Callable[..., Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the parameter that each option of a command is given by, the option's name and its default."""
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(parameter.default):  # a group of options
            yield from ((name, field.name, field.default) for field in fields(parameter.default))
        else:
            yield name, name, parameter.default


def refuse_idle(command: Callable[..., Any], values: Mapping[str, Any], unused: Container[str], when: str) -> None:
    """Refuse a value other than the default for an option that nothing would read."""
    for parameter, name, default in options_of(command):
        value = values[parameter]
        value = getattr(value, name) if is_dataclass(value) else value
        if name in unused and value != default:
            raise InvalidInput(f"--{name.replace('_', '-')} does nothing {when}: leave it out")


@contextmanager
def extra_needed(extra: str, what: str) -> Iterator[None]:
    """Say what to install where a package of an extra is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise InvalidInput(f"{what} needs {error.name}; install it: {install_command(extra)}") from error


def use_device(device: Device) -> None:
    """Set the default device for counting, in this process and its children."""
    from quorate.compute.learners.backends import choose_backend

    choose_backend(device)
    os.environ["QUORATE_DEVICE"] = device
