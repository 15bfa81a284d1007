"""The audit's own figures: how tight, how many planted bugs are caught, who is traced, who is found a member."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.figures import Figure, import_planted

_CLAIM = {"epsilon": 1.0, "delta": 1e-5}
_FEATURES = 8


def measure(quick: bool) -> Iterator[Figure]:
    """Measure what the audit sees, of sound things and of broken ones."""
    yield from _tight_figures(quick)
    yield from _planted_figures(quick)
    yield from _peer_figures()
    yield from _tracing_figures(quick)
    yield from _membership_figures(quick)
    yield from _timing_figures(quick)


def _tight_figures(quick: bool) -> Iterator[Figure]:
    """Measure how much of its claim a game shows to be needed; `exact` is what the same game needs by enumeration."""
    from quorate.auditing import audit
    from quorate.auditing.targets import make_target

    for name in ("noisy_count", "soft_majority", "noisy_max", "quorum", "stability"):
        runs = quick and name in {"quorum", "stability"}  # of these one play is a run of many queries
        verdict = audit(make_target(name), plays=100_000 if runs else 1_000_000)
        yield f"audit.measured_over_claimed.{name}", verdict.ratio, "ratio"
        exact = None if verdict.exact is None else verdict.exact / verdict.claim[0]
        yield f"audit.measured_over_claimed.{name}.exact", exact, "ratio"


def _planted_figures(quick: bool) -> Iterator[Figure]:
    planted_bugs = import_planted().PLANTED
    plays, repeats = (1_000_000, 1) if quick else (1_000_000, 20)
    caught, flagged, tried = 0, 0, 0
    for bug in planted_bugs:
        for seed in range(repeats if bug.by in {"game", "state"} else 1):  # the others give the same every time
            tried += 1
            caught += bug.catch(plays, seed=seed).found
            flagged += bug.clear(plays, seed=seed).found
    yield "audit.planted.bugs", float(len(planted_bugs)), "bugs"
    yield "audit.planted.caught_share", caught / tried, "share"
    yield "audit.planted.sound_twins_flagged", float(flagged), "twins"


def _peer_figures() -> Iterator[Figure]:
    from quorate.core.mechanisms import SoftMajority, StabilityTest

    peers = import_planted("peers")
    weights, gap = import_planted("choices").WeightsOfWholeEpsilon, import_planted("thresholds").GapForDistance
    for name, choice in (("soft_majority", SoftMajority), ("weights_of_whole_epsilon", weights)):
        yield f"audit.exact_over_claimed.{name}", peers.epsilon_of_choice(choice, epsilon=1.0).ratio, "ratio"
    for name, distance in (("stability", StabilityTest), ("gap_for_distance", gap)):
        yield f"audit.exact_over_claimed.{name}", peers.epsilon_of_distance(distance, epsilon=1.0).ratio, "ratio"


def _tracing_figures(quick: bool) -> Iterator[Figure]:
    from quorate.auditing import trace

    releases, repeats = import_planted("traced"), 2 if quick else 20
    traced = trace(releases.exact_means, repeats=repeats)
    yield "audit.tracing.exact.hits_at_1_percent", traced.hits(false_alarms=0.01), "share"
    for name, means in (("noisy", releases.noisy_means), ("query_release", releases.released_means)):
        traced = trace(means(epsilon=1.0, delta=1e-6), repeats=repeats)
        yield f"audit.tracing.{name}.hits_at_1_percent", traced.hits(false_alarms=0.01), "share"
        excess = traced.excess(epsilon=1.0, delta=1e-6, confidence=1 - 1e-9)
        yield f"audit.tracing.{name}.excess_over_epsilon_1", excess, "share"


def _membership_figures(quick: bool) -> Iterator[Figure]:
    membership = import_planted("membership")
    models, count = (24, 40) if quick else (160, 100)
    for name, train in (("forest", _forest), ("tree", _tree), ("private", _private), ("student", _student)):
        for poison in (0, 3):
            targets = membership.make_targets(records=2000, targets=count, features=_FEATURES, poison=poison, seed=1)
            roc = membership.attack_membership(train, targets, models=models if name != "forest" else models // 2)
            kind = f"audit.membership.{name}.{'poisoned' if poison else 'plain'}"
            yield f"{kind}.hits_at_0_1_percent", roc.hits(false_alarms=0.001), "share"
            yield f"{kind}.area", roc.area, "share"
            if name in {"private", "student"}:
                yield f"{kind}.excess_over_epsilon_1", roc.excess(**_CLAIM, confidence=1 - 1e-9), "share"


def _forest(X: Any, y: Any) -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(10, bootstrap=False, max_features=2).fit(X, y).predict_proba


def _tree(X: Any, y: Any) -> Any:
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier().fit(X, y).predict_proba


def _private(X: Any, y: Any) -> Any:
    from quorate.models.predictors import PrivateClassifier

    settings = {"teachers": 200, "aggregator": "noisy_max", "queries": 100, "classes": [0, 1]}
    classifier = PrivateClassifier(**_CLAIM, **settings).fit(X, y)  # type: ignore[arg-type]
    return lambda queries: classifier.predict(queries).labels


def _student(X: Any, y: Any) -> Any:
    from quorate.models.students import StudentClassifier

    public = np.random.default_rng(9).normal(size=(200, _FEATURES))
    settings = {"teachers": 200, "aggregator": "noisy_max", "queries": 100, "classes": [0, 1]}
    return StudentClassifier(**_CLAIM, **settings).fit(X, y, public=public).predict_proba  # type: ignore[arg-type]


def _timing_figures(quick: bool) -> Iterator[Figure]:
    """Tell close votes from clear ones by the time of `predict`, without the pace of a server; then with a delay."""
    from planted.delays import Delayed  # type: ignore[import-not-found]
    from quorate.models.predictors import PrivateClassifier

    generator, arm = np.random.default_rng(0), 500 if quick else 3000
    X = generator.normal(size=(6000, 5))
    limits = {"queries": 20 * arm, "no_quorums": 10 * arm}
    classifier = PrivateClassifier(epsilon=1e6, teachers=200, aggregator="quorum", classes=[0, 1], **limits)  # type: ignore[arg-type]
    classifier.fit(X, (X[:, 0] > 0).astype(int))
    slow = Delayed(classifier.predict, when=lambda query: abs(query[0, 0]) < 1, seconds=2e-4)
    for name, ask in (("predict", classifier.predict), ("delayed", slow)):
        clear, close = generator.normal(size=(2, arm, 1, 5))
        clear[..., 0] = 8 * np.sign(clear[..., 0])
        close *= 1e-3
        area = import_planted("membership").attack_timing(ask, list(clear), list(close)).area
        yield f"audit.timing.{name}.auc_from_half", abs(area - 0.5), "share"
