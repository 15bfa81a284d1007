"""Linear models on five tables by three roads: with public rows, with declared columns, with nothing known at all.

With nothing known, the model learns its columns from the private rows within the same epsilon. Figures are medians over
splits (`tables.py`): the area under the curve of a label, R2 of a number, and how far the worst split is above the
constant; no value where the fit is refused, since rows are too few to learn the columns. Then the same on the first
500, 1,000 and 3,000 private rows, and generated tables whose columns are shared, repeated, constant or of odd scales.

Private models of other libraries on the same splits, and by how much ours are better. They run as `peer_models.py`, by
the Pythons that $QUORATE_PEERS names, where they have them. At one epsilon, ours protects more: a row that is replaced,
where DP-EBM and DP-SGD protect one that is added or removed (a replacement is one of each). diffprivlib protects
replacement, with delta 0. What tuning a peer would cost is not counted against it. Peers take declared bounds where
nothing is public, also beside a model of ours that has to learn them.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.figures import Figure
from benchmarks.peers import run_program
from benchmarks.tables import TABLES, TARGET_BOUNDS, Split, split_of

DELTA = 1e-5
SPLITS = 5
EPSILONS = (4.0, 1.0, 0.1)
ROADS = {"": "public", ".nothing_public": "declared", ".learned": "learned"}  # in the names of figures
PREFIXES = (500, 1000, 3000)
_PREFIX_EPSILON, _QUICK_PREFIX = 1.0, 1000
_PLAIN = {"diffprivlib": "diffprivlib.models", "dp_ebm": "interpret.privacy", "dp_ebm_bounds": "interpret.privacy"}
_SGD = {"dp_sgd_logistic": "opacus", "dp_sgd_network": "opacus"}
PEER_MODULES = _PLAIN | _SGD
_LIMIT = 420.0  # seconds for all epsilons of one peer on one split
_PEER_ROADS = {"": True, ".nothing_public": False}  # in the names of figures, and whether there are public rows
_COMPARED = {"": "", ".nothing_public": ".nothing_public", ".learned": ".nothing_public"}  # ours, and the peers' road
_ODD_SEEDS, _ODD_ROWS, _ODD_PUBLIC, _ODD_JUDGES = 3, 10_000, 1000, 4000
_CORRELATIONS = {"8_columns.rho0.5": (8, 0.5), "8_columns.rho0.95": (8, 0.95), "40_columns.rho0.999": (40, 0.999)}
Scores = dict[str, list[float]]  # of each split, by measure


def measure_name(table: str) -> str:
    """Return what a table is judged by: the area under the curve of labels, R2 of numbers."""
    return "r2" if table in TARGET_BOUNDS else "auc"


def table_figures(quick: bool) -> Iterator[Figure]:
    """Yield the figures of all tables and roads, of prefixes, and how far they are above those of peers."""
    medians: dict[str, float | None] = {}
    for table in TABLES:
        splits = _splits(table, quick)
        for suffix, road in ROADS.items():
            for epsilon in EPSILONS:
                about = f"linear.{table}{suffix}.epsilon{epsilon:g}"
                runs = _runs(splits if _is_run(epsilon, quick) else [], epsilon, road)
                yield from road_figures(about, table, runs)
                medians[about] = _median(run[0] for run in runs)
    yield from _peer_figures(medians, quick)
    yield from _prefix_figures(quick)
    yield from odd_figures(quick)


def _is_run(epsilon: float, quick: bool) -> bool:
    return not quick or epsilon == 1.0


def _splits(table: str, quick: bool) -> list[Split]:
    numbers = range(1 if quick else SPLITS)
    return [split for number in numbers if (split := split_of(table, number)) is not None]


def _runs(splits: Sequence[Split], epsilon: float, road: str) -> list[tuple[float, ...]]:
    """Return a run for each split; none where the fit is refused, which public numbers decide for all of them."""
    from quorate.core.errors import Infeasible

    try:
        return [run_linear(split, epsilon, road) for split in splits]
    except Infeasible:
        return []


def _median(values: Any) -> float | None:
    listed = list(values)
    return median(listed) if listed else None


def road_figures(about: str, table: str, runs: Sequence[Sequence[float]]) -> Iterator[Figure]:
    """Yield the medians of some runs, and how far the worst of them is above the constant."""
    units = (
        {"auc": "", "accuracy_percent": "%", "balanced_percent": "%"} if measure_name(table) == "auc" else {"r2": ""}
    )
    for index, (measure, unit) in enumerate(units.items()):
        yield f"{about}.{measure}", _median(run[index] for run in runs), unit
    constant = 0.5 if measure_name(table) == "auc" else 0.0
    yield f"{about}.worst_over_constant", min(run[0] for run in runs) - constant if runs else None, ""


def run_linear(split: Split, epsilon: float, road: str, public: Any = None) -> tuple[float, ...]:
    """Return R2; or the AUC, the accuracy, and the balanced accuracy where a class counts for its share.

    `public` are the public rows of the split if they are not given.
    """
    from quorate.models.linear import PrivateLinearRegression, PrivateLogisticRegression
    from quorate.tables.features import AdditiveColumns

    columns: Any = {"declared": AdditiveColumns(declared=split.declared()), "learned": "learned"}.get(road)
    rows = (split.public if public is None else public) if road in ("public", "wrong") else None
    if road == "wrong":  # public rows that may be refuted: bounds and categories are declared beside them
        columns = AdditiveColumns(declared=split.declared())
    common: dict[str, Any] = {"epsilon": epsilon, "delta": DELTA, "columns": columns}
    if split.target_bounds is not None:
        regression = PrivateLinearRegression(bounds=split.target_bounds, **common)
        regression.fit(split.private, split.labels, public=rows)
        return (float(regression.score(split.judges, split.truth)),)
    model = PrivateLogisticRegression(classes=[False, True], **common).fit(split.private, split.labels, public=rows)
    return _judge_labels(model, split)


def _judge_labels(model: Any, split: Split) -> tuple[float, float, float]:
    from sklearn.metrics import balanced_accuracy_score, roc_auc_score

    score = model.decision_function(split.judges)
    prior = model.predict_proba(split.public)[:, 1].mean()  # released, so that the threshold is free
    balanced = balanced_accuracy_score(split.truth, score > np.log(prior / (1 - prior)))
    correct = float(np.mean((score > 0) == split.truth))
    return float(roc_auc_score(split.truth, score)), 100 * correct, 100 * float(balanced)


def _peer_figures(ours: Mapping[str, float | None], quick: bool) -> Iterator[Figure]:
    """Yield what each peer reaches, and how far ours, given by the names of their figures, are above them."""
    reached: dict[tuple[str, str], dict[tuple[str, float], float]] = {}
    for table in TABLES:
        for suffix, public in _PEER_ROADS.items():
            reached[table, suffix] = peer_medians(table, public, quick)
            for peer in PEER_MODULES:
                for epsilon in EPSILONS:
                    value = reached[table, suffix].get((peer, epsilon))
                    yield f"models.peer.{peer}.{table}{suffix}.epsilon{epsilon:g}.{measure_name(table)}", value, ""
        for suffix, beside in _COMPARED.items():
            for epsilon in EPSILONS:
                about = f"linear.{table}{suffix}.epsilon{epsilon:g}"
                for kind, peers in (("plain_peers", _PLAIN), ("dp_sgd", _SGD)):
                    theirs = [
                        value for (peer, at), value in reached[table, beside].items() if at == epsilon and peer in peers
                    ]
                    mine = ours.get(about)
                    above = mine - max(theirs) if theirs and mine is not None else None
                    yield f"{about}.{measure_name(table)}_over_{kind}", above, ""


def peer_medians(table: str, public: bool, quick: bool, rows: int | None = None) -> dict[tuple[str, float], float]:
    """Return what the peers that are there reach: medians over splits, on the first `rows` private rows or on all."""
    epsilons = (1.0,) if quick or rows is not None else EPSILONS
    runs: dict[tuple[str, float], list[float]] = {}
    for split in _splits(table, quick):
        dealt = split if rows is None else split.prefix(rows)
        for peer in PEER_MODULES:
            for epsilon, score in peer_scores(peer, dealt, epsilons, public=public).items():
                runs.setdefault((peer, epsilon), []).append(_judge_peer(score, split))
    return {key: median(values) for key, values in runs.items()}


def _judge_peer(score: NDArray[Any], split: Split) -> float:
    from sklearn.metrics import r2_score, roc_auc_score

    return float((roc_auc_score if split.target_bounds is None else r2_score)(split.truth, score))


def peer_scores(peer: str, split: Split, epsilons: Sequence[float], *, public: bool) -> dict[float, NDArray[Any]]:
    """Return a peer's scores of the judges at each epsilon; nothing where it is missing, fails or takes too long."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        split.private.assign(label=split.labels.astype(float)).to_csv(folder / "private.csv", index=False)
        split.judges.to_csv(folder / "judges.csv", index=False)
        if public:
            split.public.to_csv(folder / "public.csv", index=False)
        facts = {
            "table": split.table,
            "bounds": split.bounds,
            "categories": split.categories,
            "targets": split.target_bounds,
        }
        (folder / "facts.json").write_text(json.dumps(facts))
        program = [str(Path(__file__).with_name("peer_models.py")), name, peer, *map(str, epsilons)]
        if run_program(peer, PEER_MODULES[peer], program, limit=_LIMIT) is None:
            return {}
        with np.load(folder / f"{peer}.npz") as scores:
            return {epsilon: scores[str(epsilon)] for epsilon in epsilons}


def _prefix_figures(quick: bool) -> Iterator[Figure]:
    """Yield what few rows are enough for at epsilon 1, with declared and with learned columns, beside the best peer."""
    for rows in PREFIXES:
        below: dict[str, list[float]] = {"auc": [], "r2": []}
        for table in TABLES:
            is_run = not quick or rows == _QUICK_PREFIX
            splits = [split.prefix(rows) for split in _splits(table, quick)] if is_run else []
            for road in ("declared", "learned"):
                runs = _runs(splits, _PREFIX_EPSILON, road)
                about = f"linear.{table}.{road}.rows{rows}"
                yield f"{about}.{measure_name(table)}", _median(run[0] for run in runs), ""
                constant = 0.5 if measure_name(table) == "auc" else 0.0
                yield f"{about}.worst_over_constant", min(run[0] for run in runs) - constant if runs else None, ""
                if road == "declared":
                    reached = _median(run[0] for run in runs)
            theirs = peer_medians(table, False, quick, rows=rows) if is_run else {}
            above = reached - max(theirs.values()) if theirs and reached is not None else None
            yield f"linear.{table}.declared.rows{rows}.{measure_name(table)}_over_peers", above, ""
            below[measure_name(table)] += [] if above is None else [above]
        for measure, values in below.items():
            yield f"linear.tables.declared.rows{rows}.mean_{measure}_over_peers", mean(values) if values else None, ""


def odd_figures(quick: bool) -> Iterator[Figure]:
    """Yield how much R2 a model without public rows loses to one with them, where columns are odd."""
    for name, (columns, bounds, weights) in _odd_tables().items():
        seeds = range(1 if name == "scales" else 0) if quick else range(_ODD_SEEDS)
        yield f"linear.odd.{name}.r2_lost", _median(_odd_lost(columns, bounds, weights, seed) for seed in seeds), ""


def _odd_tables() -> dict[str, tuple[Any, Any, NDArray[np.float64]]]:
    """Return how to draw the columns of each table, what is declared of them, and what they say of the target."""

    def shared(count: int, rho: float) -> Any:
        def draw(generator: np.random.Generator, rows: int) -> Any:
            common = generator.normal(size=(rows, 1))
            return np.sqrt(rho) * common + np.sqrt(1 - rho) * generator.normal(size=(rows, count))

        return draw

    def repeated(generator: np.random.Generator, rows: int) -> Any:
        return np.repeat(generator.normal(size=(rows, 4)), 3, axis=1)

    def constant(generator: np.random.Generator, rows: int) -> Any:
        values = generator.normal(size=(rows, 8))
        values[:, 4:] = 1.0
        return values

    def scaled(generator: np.random.Generator, rows: int) -> Any:
        return generator.normal(size=(rows, 6)) * np.array([1e-9, 1e12, 1.0, 1e-9, 1e12, 1.0])

    def alike(count: int) -> NDArray[np.float64]:
        return np.ones(count)

    tables: dict[str, tuple[Any, Any, NDArray[np.float64]]] = {
        name: (shared(count, rho), [(-4.0, 4.0)] * count, alike(count)) for name, (count, rho) in _CORRELATIONS.items()
    }
    tables["duplicated"] = (repeated, [(-4.0, 4.0)] * 12, alike(12))
    tables["constant"] = (constant, [(-4.0, 4.0)] * 8, alike(8))
    scales = [1e-9, 1e12, 1.0] * 2
    tables["scales"] = (scaled, [(-4 * scale, 4 * scale) for scale in scales], 1 / np.array(scales))
    return tables


def _odd_lost(draw: Any, bounds: Any, weights: NDArray[np.float64], seed: int) -> float:
    from quorate.models.linear import PrivateLinearRegression
    from quorate.tables.features import AdditiveColumns

    generator = np.random.default_rng(seed)
    rows = draw(generator, _ODD_ROWS + _ODD_PUBLIC + _ODD_JUDGES)
    target = rows @ weights
    target = (target - target.mean()) / target.std() + 0.6 * generator.normal(size=len(target))
    private, public, judges = np.split(rows, [_ODD_ROWS, _ODD_ROWS + _ODD_PUBLIC])
    reached = []
    for columns, known in ((None, public), (AdditiveColumns(declared=dict(enumerate(bounds))), None)):
        model = PrivateLinearRegression(epsilon=1.0, delta=DELTA, bounds=(-5.0, 5.0), columns=columns)
        model.fit(private, target[:_ODD_ROWS], public=known)
        reached.append(float(model.score(judges, target[-_ODD_JUDGES:])))
    return reached[0] - reached[1]
