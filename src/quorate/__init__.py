"""Answers from sensitive data by secret ballot, with a guarantee that is true.

    fit                         one call from a private table to a publishable model that was tested privately
    PrivateClassifier           private answers from any scikit-learn learner; the total is never overdrawn
    StudentClassifier           labels public points privately and fits a publishable model on them
    StudentFirstClassifier      a published student answers; the ensemble is asked only whether it clearly disagrees
    AgnosticClassifier, UniversalClassifier, StableClassifier, PureClassifier
                                answers from a class of hypotheses (`quorate.models.concepts`), even if none fits
                                perfectly
    PrivateLogisticRegression, PrivateLinearRegression, PrivatePoissonRegression
                                publishable linear models with probabilities, fitted from a few noisy sums
    make_private_pipeline       columns made from public rows (`quorate.tables.features`) and a linear model, as one
                                estimator
    SemiPrivateClassifier       one publishable hypothesis, chosen privately among those that public points tell apart
    ConformalClassifier, ConformalRegressor
                                prediction sets and intervals around a published model, with guaranteed coverage
    PrivateSearchCV             the best of several publishable models; all private trials are paid for
    NeighbourClassifier, NeighbourRegressor
                                the records near a query vote; each pays for its own votes, and records come and go
    PrivateWriter               synthetic texts by a public language model that sees private ones, under one claim
    PromptClassifier            a public language model that private examples in prompts correct
    EverlastingClassifier       answers without end: queries train the teachers of later queries, and are protected too
    QueryRelease, OnlineRelease, GrowingRelease, GroupRelease, Workload
                                all thresholds, ranges, boxes, halfspaces or marginals of a table, using public data
    check_model                 a private test of a published model: error, auc, calibration, with confidence intervals
    plan, plan_concept, plan_everlasting, plan_neighbours, plan_release
                                what is achievable, before any private record is read
    audit                       attacks a claim and reports how close it came (`quorate.auditing` has the attacks)
    Account                     one total for everything that is released about the same people
    save, load                  models in a folder, without pickle, with their budget
    Budget, Cost                what may be spent, and what a release costs
    set_progress                whether long calls show their progress on a terminal or in a notebook

The source has ten rooms, each of which imports only those below it; start reading at `core/session.py`.
`quorate.core.mechanisms` has the mechanisms by themselves.

>>> from quorate.core.mechanisms import Quorum
>>> quorum = Quorum.calibrate(epsilon=2.0, delta=1e-5, teachers=400, no_quorums=5)
>>> quorum.answer([400, 0])
0
"""

from typing import TYPE_CHECKING

from quorate.core.errors import BudgetSpent, Infeasible, InvalidInput, NoQuorum, QuorateError, RunEnded, WrongProcess
from quorate.core.lazy import import_on_use
from quorate.core.privacy import Budget, Cost
from quorate.core.progress import set_progress

if TYPE_CHECKING:
    from quorate.auditing import audit
    from quorate.models.account import Account
    from quorate.models.conformal import ConformalClassifier, ConformalRegressor
    from quorate.models.evaluation import check_model
    from quorate.models.everlasting import EverlastingClassifier
    from quorate.models.everlasting.plan import plan_everlasting
    from quorate.models.fitting import fit
    from quorate.models.knn import NeighbourClassifier, NeighbourRegressor, plan_neighbours
    from quorate.models.linear import (
        PrivateLinearRegression,
        PrivateLogisticRegression,
        PrivatePoissonRegression,
        make_private_pipeline,
    )
    from quorate.models.predictors import (
        AgnosticClassifier,
        PrivateClassifier,
        PureClassifier,
        StableClassifier,
        StudentFirstClassifier,
        UniversalClassifier,
    )
    from quorate.models.saving import load, save
    from quorate.models.selection import PrivateSearchCV
    from quorate.models.students import SemiPrivateClassifier, StudentClassifier
    from quorate.models.text import PrivateWriter, PromptClassifier
    from quorate.planner import plan, plan_concept
    from quorate.release import GroupRelease, GrowingRelease, OnlineRelease, QueryRelease, Workload
    from quorate.release.plan import plan_release
else:
    __getattr__ = import_on_use(__name__, __file__)  # scikit-learn takes a second to load

__all__ = [
    "Account",
    "AgnosticClassifier",
    "Budget",
    "BudgetSpent",
    "ConformalClassifier",
    "ConformalRegressor",
    "Cost",
    "EverlastingClassifier",
    "GroupRelease",
    "GrowingRelease",
    "Infeasible",
    "InvalidInput",
    "NeighbourClassifier",
    "NeighbourRegressor",
    "NoQuorum",
    "OnlineRelease",
    "PrivateClassifier",
    "PrivateLinearRegression",
    "PrivateLogisticRegression",
    "PrivatePoissonRegression",
    "PrivateSearchCV",
    "PrivateWriter",
    "PromptClassifier",
    "PureClassifier",
    "QueryRelease",
    "QuorateError",
    "RunEnded",
    "SemiPrivateClassifier",
    "StableClassifier",
    "StudentClassifier",
    "StudentFirstClassifier",
    "UniversalClassifier",
    "Workload",
    "WrongProcess",
    "audit",
    "check_model",
    "fit",
    "load",
    "make_private_pipeline",
    "plan",
    "plan_concept",
    "plan_everlasting",
    "plan_neighbours",
    "plan_release",
    "save",
    "set_progress",
]
__version__ = "0.1.0"


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
