"""Answers from sensitive data by secret ballot, with a guarantee that is true.

    PrivateClassifier           any scikit-learn learner; every answer is private, and the total is never overdrawn
    StudentClassifier           labels public points privately and fits a model on them that may be published
    StudentFirstClassifier      a published student answers; the ensemble is asked only whether it clearly disagrees
    plan                        what is achievable, before any private record is read
    save, load                  models in a folder, without pickle, with their budget
    Budget, Cost                what may be spent

The way in is one folder per step of the data's path; start at `session.py`. The mechanisms by themselves are in
`quorate.mechanisms`.

>>> from quorate.mechanisms import Quorum
>>> quorum = Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=400, no_quorums=5)
>>> quorum.answer([400, 0])
0
"""

from typing import TYPE_CHECKING, Any

from quorate.errors import BudgetSpent, Infeasible, InvalidInput, NoQuorum, QuorateError, RunEnded, WrongProcess
from quorate.privacy import Budget, Cost

if TYPE_CHECKING:
    from quorate.planner import plan
    from quorate.predictors import PrivateClassifier, StudentFirstClassifier, load, save
    from quorate.students import StudentClassifier

__all__ = [
    "Budget",
    "BudgetSpent",
    "Cost",
    "Infeasible",
    "InvalidInput",
    "NoQuorum",
    "PrivateClassifier",
    "QuorateError",
    "RunEnded",
    "StudentClassifier",
    "StudentFirstClassifier",
    "WrongProcess",
    "load",
    "plan",
    "save",
]
__version__ = "0.1.0"

_LATER = {  # found when first asked for: scikit-learn takes a second to load
    "PrivateClassifier": "quorate.predictors",
    "StudentClassifier": "quorate.students",
    "StudentFirstClassifier": "quorate.predictors",
    "load": "quorate.predictors",
    "plan": "quorate.planner",
    "save": "quorate.predictors",
}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'quorate' has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_LATER[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LATER])
