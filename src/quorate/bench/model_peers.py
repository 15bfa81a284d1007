"""Private classifiers of other libraries on the splits of the linear models, and by how much ours rank better.

They run as `peer_models.py`, by the Python that $QUORATE_PEERS names, where it has them. At one epsilon, ours protects
more: a row that is replaced, where DP-EBM and DP-SGD protect one that is added or removed (a replacement is one of
each). diffprivlib protects replacement, with delta 0. What tuning a peer would cost is not counted against it.
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median

import numpy as np

from quorate.bench.figures import Figure
from quorate.bench.peers import run_program
from quorate.bench.splits import TABLES, Split, split_of

__all__ = ["EPSILONS", "model_peer_figures", "peer_scores"]

EPSILONS = (4.0, 1.0, 0.25)
_PLAIN = {"diffprivlib": "diffprivlib.models", "dp_ebm": "interpret.privacy", "dp_ebm_bounds": "interpret.privacy"}
_SGD = {"dp_sgd_logistic": "opacus", "dp_sgd_network": "opacus"}
_SPLITS = 5
_LIMIT = 420.0  # seconds for all epsilons of one peer on one split
_ROADS = {"": True, ".nothing_public": False}  # in the names of figures, and whether there are public rows


def model_peer_figures(ours: Mapping[str, float | None], quick: bool) -> Iterator[Figure]:
    """Yield what each peer reaches, and how far ours, given by the names of their figures, are above them."""
    for table in TABLES:
        for road, public in _ROADS.items():
            measured = _medians(table, public, quick)
            for peer in _PLAIN | _SGD:
                for epsilon in EPSILONS:
                    values = measured.get((peer, epsilon), (None, None))
                    about = f"models.peer.{peer}.{table}{road}.epsilon{epsilon:g}"
                    yield f"{about}.auc", values[0], ""
                    yield f"{about}.accuracy_percent", values[1], "%"
            for epsilon in EPSILONS:
                about = f"linear.{table}{road}.epsilon{epsilon:g}.auc"
                for kind, peers in (("plain_peers", _PLAIN), ("dp_sgd", _SGD)):
                    theirs = [measured[peer, epsilon][0] for peer in peers if (peer, epsilon) in measured]
                    mine = ours.get(about)
                    yield f"{about}_over_{kind}", mine - max(theirs) if theirs and mine is not None else None, ""


def _medians(table: str, public: bool, quick: bool) -> dict[tuple[str, float], tuple[float, float]]:
    """Return the AUC and the accuracy of the peers that are there: medians over splits."""
    from sklearn.metrics import roc_auc_score

    runs: dict[tuple[str, float], list[tuple[float, float]]] = {}
    for seed in range(1 if quick else _SPLITS):
        split = split_of(table, seed)
        if split is None:
            return {}
        for peer in _PLAIN | _SGD:
            for epsilon, score in peer_scores(peer, split, (1.0,) if quick else EPSILONS, public=public).items():
                right = 100 * float(np.mean((score > 0) == split.truth))
                runs.setdefault((peer, epsilon), []).append((float(roc_auc_score(split.truth, score)), right))
    return {key: (median(auc for auc, _ in pairs), median(right for _, right in pairs)) for key, pairs in runs.items()}


def peer_scores(peer: str, split: Split, epsilons: tuple[float, ...], *, public: bool) -> dict[float, np.ndarray]:
    """Return a peer's scores of the judges at each epsilon; nothing where it is missing, fails or takes too long."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        split.private.assign(label=split.labels.astype(int)).to_csv(folder / "private.csv", index=False)
        split.judges.to_csv(folder / "judges.csv", index=False)
        if public:
            split.public.to_csv(folder / "public.csv", index=False)
        facts = {"table": split.table, "bounds": split.bounds, "categories": split.categories}
        (folder / "facts.json").write_text(json.dumps(facts))
        program = [str(Path(__file__).with_name("peer_models.py")), name, peer, *map(str, epsilons)]
        if run_program(peer, (_PLAIN | _SGD)[peer], program, limit=_LIMIT) is None:
            return {}
        with np.load(folder / f"{peer}.npz") as scores:
            return {epsilon: scores[str(epsilon)] for epsilon in epsilons}
