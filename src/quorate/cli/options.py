"""Types that options of several commands share, and which options go together.

An option that was given and that nothing would read is refused, not passed over in silence.
"""

import inspect
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from quorate.core.errors import InvalidInput

LearnerName = Literal[
    "logistic", "quadratic", "ridge", "centroid", "naive-bayes", "stump", "tree", "forest", "boosting"
]
ConceptName = Literal["stumps", "thresholds", "intervals", "boxes", "halfspaces", "conjunctions"]
Device = Literal["auto", "cpu", "cuda"]
ModelPath = Annotated[Path, Parameter(help="The model, as `quorate fit` wrote it.")]
AsJson = Annotated[bool, Parameter(help="Print one JSON object.")]
Trusted = Annotated[
    str,
    Parameter(
        help="Types of estimators in the model that are not known to be safe, separated by commas, as given to "
        "quorate.save. They are imported, and their code runs: name only what you would run."
    ),
]

PLAN_OPTIONS = {
    "with --concept": "concept features alpha public records epsilon delta queries json",
    "without --concept": "records teachers classes disagreement votes aggregator no_quorums answer_rate on_no_quorum "
    "scores prior class_weight features public epsilon delta queries json",
}
RELEASE_OPTIONS = {
    "when a release is asked": "table ask band counts out synthetic quantiles json",
    "with --plan": "plan table workload public columns leave_out epsilon delta alpha records report json",
    "with --online": "online table workload public columns groups leave_out epsilon delta alpha ledger out ask json",
    "with a --growing folder that is new": "growing update updates table workload public columns groups "
    "records_per_person leave_out epsilon delta engine error target account out ask band counts synthetic json",
    "with a --growing folder that exists": "growing update table groups leave_out out ask band counts synthetic json",
    "without --plan, --online or --growing": "table workload public columns groups records_per_person leave_out "
    "epsilon delta engine error target account out ask band counts synthetic utility report json",
}


def listed(text: str | None) -> list[str]:
    """Return what an option lists, separated by commas; nothing for an empty text."""
    return [part.strip() for part in text.split(",")] if text else []


def two_numbers(text: str) -> tuple[float, float]:
    """Return the bounds that an option gives."""
    try:
        low, high = (float(part) for part in text.split(","))
    except ValueError:
        raise InvalidInput(f"--bounds must be two numbers, as in 0,250, got {text!r}") from None
    return low, high


def options_of(command: Callable[..., Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the parameter that each option of a command is given by, the option's name and its default."""
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(parameter.default):  # a group of options
            yield from ((name, field.name, field.default) for field in fields(parameter.default))
        else:
            yield name, name, parameter.default


def refuse_idle(command: Callable[..., Any], given: Mapping[str, Any], used: str, when: str) -> None:
    """Refuse a value other than the default for an option that is not among those used."""
    for parameter, name, default in options_of(command):
        value = given[parameter]
        value = getattr(value, name) if is_dataclass(value) else value
        if name not in used.split() and value != default:
            raise InvalidInput(f"--{name.replace('_', '-')} does nothing {when}: leave it out")


def use_device(device: Device) -> None:
    """Count on this device, in this process and in those that it starts, wherever a model does not say."""
    from quorate.compute.learners.backends import choose_backend

    choose_backend(device)
    os.environ["QUORATE_DEVICE"] = device
