"""Options: read from signatures of the library, shared by commands, and refused where nothing reads them.

Nothing is declared twice, and no option that was given is passed over in silence.
"""

import inspect
import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_origin

from cyclopts import Parameter, Token

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
_NOTHING: Mapping[str, Any] = {}
_HELPS = {"delta": "The delta of (epsilon, delta)-differential privacy: far below one over the number of records."}
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


def _split(_type: Any, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Return the texts that are separated by commas, of an option that may be given several times."""
    return tuple(part.strip() for token in tokens if token.value for part in token.value.split(","))


Names = Annotated[tuple[str, ...], Parameter(converter=_split)]
Trusted = Annotated[
    Names,
    Parameter(
        help="Types of estimators in the model that are not known to be safe, separated by commas, as given to "
        "quorate.save. They are imported, and their code runs: name only what you would run."
    ),
]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Measures:
    """The numbers of groups to release.

    Parameters
    ----------
    by
        Release numbers of groups instead of shares: the columns that name the groups, separated by commas, such as
        region,visited:month. The parts of dates are day, week, month, quarter and year. Groups of columns that are not
        declared appear if they are clearly there; all others are one row.
    total
        With --by: the columns whose totals to release, separated by commas.
    mean
        With --by: the columns whose means to release.
    median
        With --by: the columns whose medians to release.
    """

    by: str | None = None
    total: str | None = None
    mean: str | None = None
    median: str | None = None


def split_list(text: str | None) -> list[str]:
    """Return the texts of an option that are separated by commas; none for an empty text."""
    return [part.strip() for part in text.split(",")] if text else []


def parse_bounds(text: str) -> tuple[float, float]:
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
def require_extra(extra: str, what: str) -> Iterator[None]:
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


def options_from(
    targets: Iterable[Any],
    *,
    skip: str = "",
    group: Any = None,
    defaults: Mapping[str, Any] = _NOTHING,
    types: Mapping[str, Any] = _NOTHING,
    helps: Mapping[str, str] = _NOTHING,
    prefix: str | None = None,
) -> Iterator[inspect.Parameter]:
    """Yield an option for each parameter of these functions or classes, which may have defaults, types and helps.

    A parameter that the first target lacks is optional. With a prefix, an environment variable may give the option.
    """
    seen, helps = set(skip.split()), _HELPS | dict(helps)
    for position, target in enumerate(targets):
        texts = _parameter_helps(target)
        for name, parameter in inspect.signature(target).parameters.items():
            if name in seen:
                continue
            seen.add(name)
            kind = types.get(name, _option_type(parameter.annotation))
            default = defaults.get(name, parameter.default)
            if position > 0:
                kind, default = kind | None, None
            variable = None if prefix is None else f"{prefix}{name.upper()}"
            yield option(name, kind, default, helps.get(name) or texts.get(name, ""), group=group, env_var=variable)


def option(name: str, kind: Any, default: Any, text: str, *, group: Any = None, env_var: Any = None) -> Any:
    """Return an option as a parameter of a command. A switch that is on by default has a negative form."""
    negative = f"--no-{name.replace('_', '-')}" if default is True else None
    settings = {"group": group, "env_var": env_var, "help": text or None, "negative": negative}
    annotation = Annotated[kind, Parameter(**{key: value for key, value in settings.items() if value is not None})]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_options(
    options: Iterable[inspect.Parameter], *, without: str = ""
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that gives a command these options for its `**settings`, and hides parameters `without`."""
    added = list(options)
    defaults = {option.name: option.default for option in added if option.default is not option.empty}

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def run(*arguments: Any, **settings: Any) -> int:
            return command(*arguments, **(defaults | settings))

        visible = [
            parameter
            for name, parameter in inspect.signature(command).parameters.items()
            if parameter.kind != parameter.VAR_KEYWORD and name not in without.split()
        ]
        parameters = sorted([*added, *visible], key=lambda parameter: parameter.kind)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _option_type(annotation: Any) -> Any:
    """Return the type of an option: objects, and tuples such as bounds, are given as texts."""
    return str | None if annotation is Any or get_origin(annotation) is tuple else annotation


def _parameter_helps(target: Any) -> dict[str, str]:
    """Return what the docstring says of each parameter; "As for `X`" is read there.

    Words of Python become words of the command line: `scores` is --scores, and "auto" is auto.
    """
    parameters, helps = {*inspect.signature(target).parameters, "groups", "public"}, {}
    for names, text in re.findall(r"^(\w[\w, ]*)\n((?:    .*\n)+)", inspect.getdoc(target) or "", re.MULTILINE):
        sentence = " ".join(text.split())
        reference = re.match(r"As for `(\w+)`", sentence)
        sentence = re.sub(r"`(\w+)`", lambda word: _option_name(word[1], parameters), sentence)
        sentence = re.sub(r'"([a-z]+)"', r"\1", sentence)
        for name in names.split(", "):
            helps[name] = _parameter_helps(_find_class(reference[1])).get(name, sentence) if reference else sentence
    return helps


def _option_name(word: str, parameters: set[str]) -> str:
    return f"--{word.replace('_', '-')}" if word in parameters else f"`{word}`"


def _find_class(name: str) -> Any:
    packages = (import_module(package) for package in ("quorate", "quorate.models.predictors"))
    return next(getattr(package, name) for package in packages if hasattr(package, name))
