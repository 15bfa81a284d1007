"""What `quorate audit` attacks, by name: an instance of every mechanism, predictors, and runs of all that releases.

`CLAIMS` names for each public class with a claim what attacks it. A class without an entry fails a test.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from quorate.auditing._canaries import audit_neighbours_once, audit_release_once
from quorate.auditing._sums import NoisyCount
from quorate.auditing.replay import Replay, replay
from quorate.auditing.runs import RUNS
from quorate.core.errors import InvalidInput
from quorate.core.mechanisms import (
    BetweenThresholds,
    ConfidentMax,
    Dissent,
    ExponentialChoice,
    NoisyMax,
    NoisyShares,
    NoisySum,
    PrivateQuantile,
    Quorum,
    Relabel,
    SharpMajority,
    SoftMajority,
    StabilityTest,
)
from quorate.core.mechanisms.above_threshold import AboveThreshold
from quorate.core.mechanisms.cutoff import NoisyCutoff
from quorate.core.mechanisms.noisy_vector import NoisyVector
from quorate.models.concepts import Thresholds
from quorate.models.everlasting import EverlastingClassifier
from quorate.models.predictors import PrivateClassifier

_ASK: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-2, "teachers": 60}


def _classifier(aggregator: str, **settings: Any) -> PrivateClassifier:
    chosen: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-3, "teachers": 60, "queries": 1, "classes": [0, 1]} | settings
    return PrivateClassifier(aggregator=aggregator, **chosen)


def _everlasting() -> EverlastingClassifier:
    return EverlastingClassifier(
        Thresholds(both_directions=False), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=30, classes=[0, 1]
    )


def _made_up(rows: int, features: int, *, seed: int) -> tuple[Any, Any]:
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features))
    return X, (X[:, 0] + 0.3 * random.normal(size=rows) > 0).astype(np.int64)


TARGETS: dict[str, Callable[[], Any]] = {
    "noisy_count": lambda: NoisyCount(epsilon=0.5),
    "noisy_sum": lambda: NoisySum(sensitivity=1, scale=1.0),
    "noisy_vector": lambda: NoisyVector.calibrate(epsilon=1.0, delta=1e-2, squared_sensitivities=(2,)),
    "soft_majority": lambda: SoftMajority(teachers=20, epsilon_per_query=1.0),
    "sharp_majority": lambda: SharpMajority.calibrate(epsilon=1.0, delta=1e-2, teachers=20, queries=1),
    "noisy_max": lambda: NoisyMax(teachers=20, classes=2, scale=2.0),
    "noisy_shares": lambda: NoisyShares(teachers=120, classes=3, scale=2.0),
    "confident_max": lambda: ConfidentMax(teachers=20, classes=2, threshold=12, test_scale=4.0, winner_scale=2.0),
    "quorum": lambda: Quorum.calibrate(no_quorums=1, **_ASK),
    "stability": lambda: StabilityTest.calibrate(no_quorums=1, **_ASK | {"epsilon": 6.0}),
    "between_thresholds": lambda: BetweenThresholds.calibrate(no_quorums=1, **_ASK),
    "dissent": lambda: Dissent.calibrate(dissents=1, **_ASK),
    "above_threshold": lambda: AboveThreshold.calibrate(epsilon=6.0, delta=1e-2, records=40, near=10, far=30),
    "exponential_choice": lambda: ExponentialChoice(epsilon=2.0),
    "private_quantile": lambda: PrivateQuantile(epsilon=1.0, cells=100, units=200, rank=150),
    "relabel": lambda: Relabel(concept=Thresholds(), kappa=1.0),
    "noisy_cutoff": lambda: NoisyCutoff(epsilon=0.5, allowed=4, spread=12),
    "classifier_soft_majority": lambda: _classifier("soft_majority"),
    "classifier_quorum": lambda: _classifier("quorum", queries=4, no_quorums=1),
    "everlasting": lambda: _everlasting().fit(*_made_up(6000, 1, seed=0)),
}


ONE_FIT = {"release": audit_release_once, "neighbours": audit_neighbours_once}
"""What `quorate audit --canaries` audits by one fit."""


def make_target(name: str) -> Any:
    """Return the instance of this name."""
    if name not in TARGETS:
        names = ", ".join(dict.fromkeys([*TARGETS, *REPLAYS, *RUNS]))
        raise InvalidInput(f"no target is called {name!r}; there are {names}")
    return TARGETS[name]()


REPLAYS: dict[str, Callable[[], Any]] = {
    "classifier_noisy_max": lambda: _classifier("noisy_max", teachers=100, queries=30),
    "classifier_noisy_shares": lambda: _classifier("noisy_shares", teachers=100, queries=30),
    "classifier_quorum": lambda: _classifier("quorum", teachers=200, queries=30),
    "everlasting": _everlasting,
}


_VOTES = ("noisy_max", "noisy_shares", "confident_max", "soft_majority", "sharp_majority", "quorum", "held_out")

CLAIMS: dict[str, tuple[str, ...]] = {
    "PrivateClassifier": (
        *("classifier_soft_majority", "classifier_quorum", "classifier_noisy_max", "classifier_noisy_shares"),
        *(f"votes_{name}" for name in _VOTES),
    ),
    "StudentFirstClassifier": ("student_first",),
    "AgnosticClassifier": ("agnostic",),
    "UniversalClassifier": ("universal",),
    "StableClassifier": ("stable",),
    "PureClassifier": ("pure_stable", "pure_relabel"),
    "NeighbourClassifier": ("nearest", "nearest_scores", "nearest_two", "nearest_replaced", "nearest_after_crashes"),
    "NeighbourRegressor": ("nearest_numbers",),
    "EverlastingClassifier": ("everlasting",),
    "StudentClassifier": ("student",),
    "SemiPrivateClassifier": ("semi_private",),
    "QueryReleaseClassifier": ("mistakes",),
    "PrivateLogisticRegression": ("logistic", "logistic_three"),
    "PrivateLinearRegression": ("least_squares",),
    "PrivatePoissonRegression": ("poisson",),
    "fit": ("fit",),
    "PrivateSearchCV": ("search",),
    "ConformalClassifier": ("conformal_sets",),
    "ConformalRegressor": ("conformal_intervals",),
    "check_model": ("check_model",),
    "PrivateWriter": ("writer",),
    "QueryRelease": tuple(name for name in RUNS if name.startswith(("engine_", "queries_", "release_"))),
    "OnlineRelease": ("online",),
    "GrowingRelease": ("growing", "growing_people"),
    "GroupRelease": ("groups", "groups_counted", "groups_of_people", "groups_found", "groups_with_bounds"),
    "Account": ("account",),
    "Quorum": ("quorum", "classifier_quorum"),
    "SharpMajority": ("sharp_majority",),
    "NoisyMax": ("noisy_max",),
    "NoisyShares": ("noisy_shares",),
    "ConfidentMax": ("confident_max",),
    "SoftMajority": ("soft_majority",),
    "StabilityTest": ("stability",),
    "BetweenThresholds": ("between_thresholds",),
    "Dissent": ("dissent",),
    "AboveThreshold": ("above_threshold",),
    "NoisyCutoff": ("noisy_cutoff",),
    "ExponentialChoice": ("exponential_choice",),
    "PrivateQuantile": ("private_quantile",),
    "Relabel": ("relabel",),
    "EveryCandidate": ("search",),
    "NoisySum": ("noisy_sum",),
    "NoisyVector": ("noisy_vector",),
    "LaplaceSums": ("groups_counted", "groups_found"),
}
"""The attacks and checks of each public class or function with a claim, by the names that `quorate audit` takes."""

ELSEWHERE = {
    "DistributedMax": "tests/planted/sites.py",
    "FederatedClassifier": "tests/planted/outsiders.py",
    "PromptClassifier": "tests/models/test_text_prompts.py",
    "RandomStopping": "tests/planted/selections.py",
}
"""Public classes whose claim is attacked by tests alone, and where: `quorate audit` has nothing for them."""


def select_targets(names: Sequence[str]) -> tuple[dict[str, Any], list[str], list[str]]:
    """Return the instances to attack and the names of the replays and of the runs, of these names or of all."""
    games = [name for name in names or TARGETS if name in TARGETS or name not in {**REPLAYS, **RUNS}]
    chosen = {name: make_target(name) for name in games}
    return chosen, *([name for name in kind if not names or name in names] for kind in (REPLAYS, RUNS))  # type: ignore[return-value]


def run_replay(name: str, *, seed: int = 0) -> Replay:
    """Replay the predictor of this name on made-up records of which one is replaced."""
    if name not in REPLAYS:
        raise InvalidInput(f"no replay is called {name!r}; there are {', '.join(REPLAYS)}")
    predictor = REPLAYS[name]()
    rows, features = (6000, 1) if isinstance(predictor, EverlastingClassifier) else (2000, 2)
    X, y = _made_up(rows, features, seed=seed)
    moved, flipped = X.copy(), y.copy()
    moved[5], flipped[5] = np.linspace(8.0, -8.0, features), 0  # far off, and mislabelled
    return replay(predictor, (X, y), (moved, flipped), _made_up(40, features, seed=seed + 1)[0], seed=seed)
