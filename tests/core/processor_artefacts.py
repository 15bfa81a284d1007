"""Make or open plans, mechanisms, releases and saved models, and write what they hold as JSON.

`python processor_artefacts.py OWN OTHER` fills the folder OWN, and opens the models in the folder OTHER once they are
there. test_processors.py runs two such processes, each with the kernels of one kind of processor.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.tree import DecisionTreeClassifier

import quorate
from quorate import (
    EverlastingClassifier,
    GrowingRelease,
    NeighbourClassifier,
    OnlineRelease,
    PrivateClassifier,
    PrivateLogisticRegression,
    QueryRelease,
    StudentClassifier,
    Workload,
    load,
    save,
)
from quorate.core.mechanisms import (
    AboveThreshold,
    BetweenThresholds,
    ConfidentMax,
    Dissent,
    DistributedMax,
    ExponentialChoice,
    NoisyCutoff,
    NoisyMax,
    NoisyShares,
    NoisySum,
    NoisyVector,
    PrivateQuantile,
    Quorum,
    RandomStopping,
    SharpMajority,
    SoftMajority,
    StabilityTest,
)
from quorate.core.mechanisms.between_thresholds import band_price
from quorate.core.mechanisms.dissent import calibrate_with_quorum
from quorate.core.mechanisms.distributions import (
    gaussian_pmf,
    gaussian_tail,
    gaussian_tail_quantile,
    laplace_tail_quantile,
)
from quorate.core.mechanisms.noisy_max import binary_winner_renyi, winner_renyi
from quorate.core.mechanisms.selection import ApproximateTrial, GaussianTrial
from quorate.core.privacy.budget import to_quanta
from quorate.models.concepts import Threshold, Thresholds
from quorate.models.saving.codecs import to_plain
from quorate.release.engines import expected_errors
from quorate.release.engines._components import plan_marginals
from quorate.release.queries import Marginals

CHANCE = np.random.default_rng(7)
X = CHANCE.normal(size=(4000, 3))
Y = (X @ [1.0, -0.5, 0.25] + 0.3 * CHANCE.normal(size=4000) > 0).astype(int)
PUBLIC = CHANCE.normal(size=(300, 3))
QUERIES = CHANCE.normal(size=(200, 3))
TABLE = {
    "sex": CHANCE.choice(["f", "m"], 3000).tolist(),
    "town": CHANCE.choice(["n", "s", "w"], 3000).tolist(),
    "ill": CHANCE.choice(["no", "yes"], 3000, p=[0.8, 0.2]).tolist(),
}
COLUMNS = {"sex": ["f", "m"], "town": ["n", "s", "w"], "ill": ["no", "yes"]}
ORDERS = (1.7, 8.0, 22.7)
COSTS = ("query_cost", "answer_cost", "opening_cost", "no_quorum_cost", "release_cost", "choice_cost")


def plain(value):
    """Return a document with its numbers as they are: floats keep all their digits in JSON."""
    return json.loads(
        json.dumps(value, default=lambda other: other.tolist() if hasattr(other, "tolist") else repr(other))
    )


# ---------------------------------------------------------------- mechanisms


def mechanisms():
    """Return one calibrated mechanism, or several, of every kind."""
    for epsilon, delta in ((1.0, 1e-6), (2.3, 1e-5)):
        target = {"epsilon": epsilon, "delta": delta, "teachers": 1500}
        for count in (1, 7, 100):
            yield Quorum.calibrate(**target | {"teachers": 9000}, no_quorums=count)
            yield Dissent.calibrate(**target | {"teachers": 9000}, dissents=count)
        yield StabilityTest.calibrate(**target, no_quorums=2)
        yield NoisyMax.calibrate(**target, classes=2, queries=300)
        yield ConfidentMax.calibrate(**target, classes=2, queries=100)
        yield SharpMajority.calibrate(**target, queries=100)
        yield SharpMajority.calibrate(**target | {"teachers": 301}, queries=4)
        yield SoftMajority.calibrate(**target, queries=100)
        yield DistributedMax.calibrate(**target, classes=3, queries=50, sites=20, corrupt=5)
        yield NoisySum.calibrate(epsilon=epsilon, delta=delta, sensitivity=9, releases=3)
        yield NoisyVector.calibrate(epsilon=epsilon, delta=delta, squared_sensitivities=(2, 2), shares=(0.3, 0.7))
        yield ExponentialChoice.calibrate(epsilon=epsilon, delta=delta, choices=10)
        yield PrivateQuantile.calibrate(epsilon=epsilon, cells=1000, units=5000, share=0.9)
        yield NoisyCutoff.calibrate(epsilon=epsilon / 4, delta=delta, no_quorums=300, arrivals=10_000)
        yield AboveThreshold.calibrate(epsilon=epsilon, delta=delta, records=10_000, near=250, far=500)
        yield from calibrate_with_quorum(**target | {"teachers": 9000}, dissents=10, no_quorums=10)
    yield BetweenThresholds.calibrate(epsilon=2.3, delta=1e-5, teachers=1500, no_quorums=4)
    yield RandomStopping.calibrate(epsilon=1.0, delta=1e-6, candidates=8, trial=GaussianTrial)
    yield RandomStopping.calibrate(epsilon=2.3, delta=1e-5, candidates=5, trial=ApproximateTrial)
    yield NoisyMax(teachers=900, classes=3, scale=9.0)
    yield NoisyShares(teachers=900, classes=3, scale=20.0)
    yield ConfidentMax(teachers=250, classes=10, threshold=200, test_scale=60.0, winner_scale=20.0, charge="joint")
    yield BetweenThresholds.calibrate(epsilon=2.0, delta=1e-3, teachers=3600, no_quorums=2, calibration="paper")


def describe_mechanism(mechanism):
    costs = {}
    for name in COSTS:
        for order in ORDERS:
            if hasattr(mechanism, name):
                costs[f"{name} {order}"] = [str(quanta) for quanta in to_quanta(getattr(mechanism, name)(order))]
    kept = not isinstance(mechanism, ExponentialChoice)  # which no file holds by itself
    settings = to_plain(mechanism) if kept else vars(mechanism)
    told = {"kind": type(mechanism).__name__, "settings": settings, "costs": costs}
    if hasattr(mechanism, "distance"):
        told["distance"] = mechanism.distance()
    return told


def refusals():
    """Return what is refused, and where: rates next to 1, and distances there."""
    told = {}
    for scale in (0.7, 6.0, 45.3, 300.0):
        for rate in (0.5, 0.99, 1 - 2.0**-40, 1 - 2.0**-53, 1.0):
            try:
                told[f"{scale} {rate!r}"] = NoisyMax(teachers=200, classes=2, scale=scale).distance(answer_rate=rate)
            except quorate.Infeasible:
                told[f"{scale} {rate!r}"] = "refused"
    for scale in (0.7, 6.0, 45.3):
        for probability in (0.5, 1e-3, 1e-9, 1 - 2.0**-53):
            told[f"tails {scale} {probability!r}"] = [
                gaussian_tail_quantile(scale, probability),
                laplace_tail_quantile(scale, probability),
            ]
    return told


def laws():
    """Return tables of laws, in which the last bits may differ."""
    return {str(scale): gaussian_pmf(scale, 30).tolist() for scale in (0.7, 6.0, 45.3)}


def costs():
    """Return costs and tails at many scales, as quanta and as numbers."""
    told = {}
    for scale in (0.7, 3.3, 12.1, 40.0, 97.3):
        for order in ORDERS:
            told[f"binary {scale} {order}"] = binary_winner_renyi(scale, order)
            if scale < 10:
                told[f"many {scale} {order}"] = winner_renyi(scale, order)
            told[f"band {scale} {order}"] = band_price(scale=scale, width=9 + round(8 * scale), order=order)
        for reach in (0, 1, 4, 9):
            told[f"tail {scale} {reach}"] = gaussian_tail(scale, round(reach * scale))
    return told


# ---------------------------------------------------------------- plans


def plans():
    """Return plans for votes, classes of hypotheses, neighbours and releases."""
    tasks = [
        {"teachers": 1000, "queries": 10_000, "disagreement": 0.001},
        {"teachers": 10**6, "queries": 1000, "disagreement": 0.0},  # Several numbers of no-quorums answer everything.
        {"teachers": 2000, "queries": 5000, "disagreement": 0.1, "on_no_quorum": "random"},
        {"records": 30_000, "queries": 50, "classes": 3, "aggregator": "noisy_max"},
        {"records": 200_000, "queries": 1000, "features": 20, "public": 2000},
        {"teachers": 150, "queries": 3000, "aggregator": "sharp_majority"},  # Not feasible: changes are named.
        {"teachers": 1000, "queries": 100, "votes": [[240, 10], [20, 230], [125, 125]]},
        {"teachers": 501, "queries": 10, "delta": 0.0},
    ]
    told = [quorate.plan(**task).as_dict() for task in tasks]
    told.append(quorate.plan_concept(records=200_000, vc_dimension=2, queries=100, public=1000).as_dict())
    told.append(quorate.plan_release(Thresholds(), records=100_000, public=300, alpha=0.01).as_dict())
    labels = (PUBLIC[:, 0] > 0).astype(int)
    known = {"records": 20_000, "queries": 1000, "epsilon": 1.0, "delta": 1e-6}
    told.append(quorate.plan_neighbours(PUBLIC, labels, **known).as_dict())
    return told


def engines():
    """Return which engine is taken for marginals, with expected errors, strategies and their shares."""
    told = {}
    shapes = {
        "one pair": Marginals((4, 5), [(0, 1)]),
        "all pairs": Marginals((3, 3, 3, 3), [(a, b) for a in range(4) for b in range(a)]),
        "columns": Marginals((5, 5, 2), [(0,), (1,), (2,)]),
        "mean": Marginals((3, 4, 2), [(0, 1), (0, 2), (1, 2)], importance=(1 / 3, 1 / 3, 1 / 3)),
        "uneven": Marginals((2, 8, 30), [(0, 1), (1, 2), (0, 1, 2)]),
    }
    for name, queries in shapes.items():
        errors = expected_errors(queries, records=20_000, epsilon=1.0, delta=1e-6)
        strategy = plan_marginals(queries, 1e-3)
        told[name] = {
            "engines": list(errors),
            "errors": list(errors.values()),
            "measured": [list(clique) for clique in strategy.cliques],
            "shares": strategy.shares.tolist(),
        }
    return told


# ---------------------------------------------------------------- models in folders


def boundary_queries(classifier):
    """Return a query on the boundary of each linear teacher, up to rounding."""
    scores = classifier.session_.answerer.ensemble.electorate.arrays()["scores"][:, -1]
    weights, intercepts = scores[:, :-1], scores[:, -1:]
    return -intercepts * weights / (weights**2).sum(axis=1, keepdims=True)


def make_models(home):
    """Save one model of every kind and return what is to be the same when it is opened elsewhere."""
    settings = {"epsilon": 4.0, "delta": 1e-6, "teachers": 60, "queries": 20, "classes": [0, 1]}
    made = {
        "quorum": PrivateClassifier(aggregator="quorum", no_quorums=4, **settings | {"epsilon": 20.0}).fit(X, Y),
        "noisy_max": PrivateClassifier(aggregator="noisy_max", **settings).fit(X, Y),
        "trees": PrivateClassifier(DecisionTreeClassifier(max_depth=2), aggregator="sharp_majority", **settings),
        "neighbours": NeighbourClassifier(epsilon=100.0, delta=1e-6, radius=0.5, votes=3.0, classes=[0, 1]),
        "everlasting": EverlastingClassifier(Thresholds(), epsilon=8.0, delta=1e-5, chunk=5, no_quorums=60),
        "online": OnlineRelease(Thresholds(), epsilon=4.0, alpha=0.1).fit(X[:, 0], PUBLIC[:, 0]),
    }
    made["trees"].fit(X, Y)
    made["neighbours"].fit(X, Y)
    made["everlasting"].fit(X[:, :1], Y)
    for name, model in made.items():
        save(model, home / name)
    made["growing"] = GrowingRelease(Workload.marginals(2), updates=3, columns=COLUMNS)
    made["growing"].update("first", TABLE)
    save(made["growing"], home / "growing")
    np.save(home / "boundary.npy", boundary_queries(made["noisy_max"]))
    student = StudentClassifier(epsilon=20.0, teachers=60, queries=100, aggregator="noisy_max", classes=[0, 1])
    linear = PrivateLogisticRegression(epsilon=4.0, classes=[0, 1])
    published = {
        "student": student.fit(X, Y, public=PUBLIC),
        "linear": linear.fit(X, Y, public=PUBLIC),
        "release": QueryRelease(Workload.marginals(2), epsilon=2.0, columns=COLUMNS).fit(TABLE),
        "line": QueryRelease(Thresholds(), epsilon=2.0).fit(X[:, 0], PUBLIC[:, 0]),
    }
    for name, model in published.items():
        save(model, home / name)
    told = describe_models(made | published, home)
    for model in made.values():
        close(model)
    return told


def close(model):
    """Let go of the ledger of a model."""
    session = getattr(model, "session_", None)
    if session is not None:
        session.close()
    elif hasattr(model, "close"):
        model.close()


def describe_models(models, home):
    """Return ballots, costs, spending and released numbers of the models, which opening must not change."""
    boundary, told = np.load(home / "boundary.npy"), {}
    for name in ("quorum", "noisy_max", "trees"):
        answerer = models[name].session_.answerer
        told[name] = {
            "ballots": answerer.ensemble.electorate.votes(QUERIES).tolist(),
            "boundary": answerer.ensemble.electorate.votes(boundary).tolist(),
            "cost": [str(quanta) for quanta in to_quanta(answerer.row_cost())],
            "spent": models[name].session_.budget.spent().renyi,
            "capacity": [str(quanta) for quanta in models[name].session_.budget.quanta()],
        }
    told["neighbours"] = models["neighbours"].session_.answerer.units.spends().tolist()
    told["student"] = models["student"].student_.predict(QUERIES).tolist()
    told["linear"] = [models["linear"].coef_.tolist(), models["linear"].intercept_.tolist()]
    for name in ("release", "line"):
        told[name] = {"engine": models[name].engine_}
    for name in ("online", "growing"):
        told[name] = {"spent": models[name].budget_.spent().renyi}
    told["claims"] = {name: str(model.claim_) for name, model in models.items() if hasattr(model, "claim_")}
    return told


def manifests(home):
    """Return the parts of manifests that neither noise nor a random deal decides."""
    told = {}
    for path in sorted(home.glob("*/manifest.json")):
        manifest = json.loads(path.read_text())
        parts = ("kind", "settings", "plan", "mechanism", "epsilon", "delta", "claim", "unit", "terms", "quantile")
        told[path.parent.name] = {part: manifest[part] for part in parts if part in manifest}
    return told


def open_models(home):
    """Load every model of a folder, describe it, and ask it."""
    names = [path.parent.name for path in sorted(home.glob("*/manifest.json"))]
    models = {name: load(home / name) for name in names}
    told = describe_models(models, home)
    for name in ("quorum", "noisy_max", "trees", "neighbours", "student", "linear"):
        models[name].predict(QUERIES[:3])
    models["everlasting"].predict([[2.0]])
    models["online"].ask([Threshold(0.0)])
    models["line"].answer([Threshold(0.0)])
    models["growing"].update("second", TABLE)
    for model in models.values():
        close(model)
    return told


def main(own, other):
    own, other = Path(own), Path(other)
    own.mkdir()
    made = {
        "mechanisms": [describe_mechanism(mechanism) for mechanism in mechanisms()],
        "refusals": refusals(),
        "costs": costs(),
        "laws": laws(),
        "plans": plans(),
        "engines": engines(),
        "models": make_models(own),
        "manifests": manifests(own),
    }
    (own / "made").write_text(json.dumps(plain(made)))
    (own / "made").rename(own / "made.json")
    while not (other / "made.json").exists():
        time.sleep(0.05)
    (own / "opened.json").write_text(json.dumps(plain(open_models(other))))


if __name__ == "__main__":
    main(*sys.argv[1:])
