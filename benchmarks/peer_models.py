"""Private models of other libraries, on the rows of a folder: a program that needs nothing of this project.

    python peer_models.py FOLDER PEER EPSILON [EPSILON ...]

The folder holds `private.csv` (its last column, `label`, is 0 or 1, or a number), `judges.csv`, perhaps `public.csv`,
and `facts.json` with the name of the table, the bounds of its columns and of the target if that is a number; it lists
the categories. Or it holds `features.npz` with the columns of `private` rows and of `judges` as numbers, and `labels`
of any number of classes, for DP-SGD alone. The scores of the judges go to PEER.npz in the folder, one array for each
epsilon. Delta is 1e-5.

Each peer is set up as a user of it would: categories become 0/1 columns, numbers are scaled by public rows or by
declared bounds. Where a peer has settings, `SETTINGS` holds those that did best, or as well as the best within the
scatter of one run, among the ones in `GRIDS`, judged by the labels of a split that is not reported; what such a search
would cost in privacy is not counted. For DP-SGD the search was made with a faster program of the same steps, or with a
looser accountant; on credit, bike and abalone the settings of the smallest epsilon were not searched for, and have few
steps.

- diffprivlib: objective perturbation (Chaudhuri et al. 2011), delta 0. One row replaced.
- dp_ebm: interpret's DPExplainableBoostingClassifier as it comes. It reads the bounds of numbers from private rows, and
  says so. dp_ebm_bounds: the same with bounds that are known. One row added or removed.
- dp_sgd_logistic, dp_sgd_network: opacus, Poisson batches, its own accountant. One row added or removed.
"""

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas

__all__ = ["GRIDS", "PEERS", "SETTINGS", "Rows", "best", "main", "settings_of"]

_DELTA = 1e-5
_FARTHEST = 4.0  # standard deviations
Settings = dict[str, Any]


class Rows:
    """The rows of a folder, as frames and as numbers. `targets` are the bounds of a target that is a number."""

    def __init__(self, folder: Path) -> None:
        self.facts = json.loads((folder / "facts.json").read_text())
        self.categories: dict[str, list[str]] = self.facts["categories"]
        texts = dict.fromkeys(self.categories, str)

        def read(name: str) -> Any:
            return pandas.read_csv(folder / name, dtype=texts, keep_default_na=False)

        private = read("private.csv")
        self.targets: tuple[float, float] | None = self.facts["targets"]
        self.labels = private.pop("label").to_numpy()
        self.private, self.judges = private, read("judges.csv")
        self.public = read("public.csv") if (folder / "public.csv").exists() else None
        self.numbers = [name for name in private.columns if name not in self.categories]

    def bounds(self) -> dict[str, tuple[float, float]]:
        """Return how small and how large each number is: in the public rows, or as declared."""
        if self.public is None:
            return {name: (float(low), float(high)) for name, (low, high) in self.facts["bounds"].items()}
        return {name: (float(self.public[name].min()), float(self.public[name].max())) for name in self.numbers}

    def encoded(self, *, logarithms: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return private rows and judges as numbers; with `logarithms`, large numbers grow slowly."""
        scales = {name: self._scale(name, logarithms) for name in self.numbers}

        def encode(frame: Any) -> np.ndarray:
            columns = []
            for name in frame.columns:
                if name in scales:
                    middle, spread = scales[name]
                    values = (_grown(frame[name].to_numpy(float), logarithms) - middle) / spread
                    columns.append(np.clip(values, -_FARTHEST, _FARTHEST)[:, None])
                else:
                    columns.append(frame[name].to_numpy()[:, None] == np.array(self.categories[name]))
            return np.hstack(columns).astype(np.float32)

        return encode(self.private), encode(self.judges)

    def _scale(self, name: str, logarithms: bool) -> tuple[float, float]:
        if self.public is not None:
            values = _grown(self.public[name].to_numpy(float), logarithms)
            return float(values.mean()), float(values.std()) or 1.0
        low, high = _grown(np.array(self.bounds()[name]), logarithms)
        return float(low + high) / 2, float(high - low) / 4


class Features:
    """The rows of a folder that are numbers already, with labels of any number of classes."""

    targets, public = None, None

    def __init__(self, folder: Path) -> None:
        self.facts = {"table": "features"}
        with np.load(folder / "features.npz") as arrays:
            self.private, self.judges, self.labels = (arrays[name] for name in ("private", "judges", "labels"))

    def encoded(self, *, logarithms: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return private rows and judges as they are."""
        return self.private.astype(np.float32), self.judges.astype(np.float32)


def _grown(values: np.ndarray, logarithms: bool) -> np.ndarray:
    return np.asarray(np.sign(values) * np.log1p(np.abs(values))) if logarithms else values


def _diffprivlib(rows: Rows, epsilon: float, *, norm: float, ridge: float, logarithms: bool) -> np.ndarray:
    from diffprivlib.models import LinearRegression, LogisticRegression

    private, judges = rows.encoded(logarithms=logarithms)
    if rows.targets is not None:
        sides = (-_FARTHEST, _FARTHEST)  # of every column
        regression = LinearRegression(epsilon=epsilon, bounds_X=sides, bounds_y=rows.targets)
        return np.asarray(regression.fit(private, rows.labels).predict(judges))
    model = LogisticRegression(epsilon=epsilon, data_norm=norm, C=ridge, max_iter=500)
    return np.asarray(model.fit(private, rows.labels).decision_function(_shortened(judges, norm)))


def _shortened(rows: np.ndarray, norm: float) -> np.ndarray:
    """Return rows as diffprivlib clips those that it fits."""
    return np.asarray(rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True) / norm, 1.0))


def _dp_ebm(rows: Rows, epsilon: float, *, known: bool) -> np.ndarray:
    from interpret import privacy

    types = ["nominal" if name in rows.categories else "continuous" for name in rows.private.columns]
    common = {
        "epsilon": epsilon,
        "delta": _DELTA,
        "feature_names": list(rows.private.columns),
        "feature_types": types,
        "privacy_bounds": rows.bounds() if known else None,
        "n_jobs": 1,
    }
    if rows.targets is not None:
        low, high = rows.targets
        model = privacy.DPExplainableBoostingRegressor(privacy_target_min=low, privacy_target_max=high, **common)
        return np.asarray(model.fit(rows.private, rows.labels).predict(rows.judges))
    model = privacy.DPExplainableBoostingClassifier(**common)
    return np.asarray(model.fit(rows.private, rows.labels).decision_function(rows.judges))


def _dp_sgd(
    rows: Any, epsilon: float, *, width: int, rate: float, batch: int, clip: float, epochs: int, logarithms: bool
) -> np.ndarray:
    """Return the scores of a linear model (width 0) or of a network with one hidden layer."""
    import torch
    from opacus import GradSampleModule
    from opacus.accountants.utils import get_noise_multiplier
    from opacus.optimizers import DPOptimizer

    private, judges = (torch.from_numpy(part) for part in rows.encoded(logarithms=logarithms))
    targets, outputs, loss = _sgd_targets(rows)
    columns, share = private.shape[1], min(batch / len(private), 1.0)
    steps = round(epochs / share)
    noise = get_noise_multiplier(
        target_epsilon=epsilon, target_delta=_DELTA, sample_rate=share, steps=steps, accountant="prv"
    )
    layers = [torch.nn.Linear(columns, outputs)]
    if width:
        layers = [torch.nn.Linear(columns, width), torch.nn.ReLU(), torch.nn.Linear(width, outputs)]
    model = GradSampleModule(torch.nn.Sequential(*layers))
    optimizer = DPOptimizer(
        torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9),
        noise_multiplier=noise,
        max_grad_norm=clip,
        expected_batch_size=min(batch, len(private)),
    )
    for _ in range(steps):
        batch_rows = torch.rand(len(private)) < share  # Poisson sampling
        if not batch_rows.any():
            continue
        optimizer.zero_grad()
        scores = model(private[batch_rows])
        loss(scores[:, 0] if outputs == 1 else scores, targets[batch_rows]).backward()
        optimizer.step()
    with torch.no_grad():
        scores = np.asarray(model(judges).numpy())
    return _in_units(scores[:, 0], rows.targets) if outputs == 1 else scores


def _sgd_targets(rows: Any) -> tuple[Any, int, Any]:
    """Return the targets as a tensor, the number of outputs, and the loss."""
    import torch

    if rows.targets is not None:
        low, high = rows.targets
        scaled = (rows.labels - (low + high) / 2) / ((high - low) / 4)
        return torch.from_numpy(scaled.astype(np.float32)), 1, torch.nn.MSELoss()
    classes = int(rows.labels.max()) + 1
    if classes > 2:
        return torch.from_numpy(rows.labels.astype(np.int64)), classes, torch.nn.CrossEntropyLoss()
    return torch.from_numpy(rows.labels.astype(np.float32)), 1, torch.nn.BCEWithLogitsLoss()


def _in_units(scores: np.ndarray, targets: tuple[float, float] | None) -> np.ndarray:
    """Return the scores of a number in the units of its target; scores of labels as they are."""
    if targets is None:
        return scores
    low, high = targets
    return np.asarray(np.clip(scores * (high - low) / 4 + (low + high) / 2, low, high))


PEERS: dict[str, Callable[..., np.ndarray]] = {
    "diffprivlib": _diffprivlib,
    "dp_ebm": _dp_ebm,
    "dp_ebm_bounds": _dp_ebm,
    "dp_sgd_logistic": _dp_sgd,
    "dp_sgd_network": _dp_sgd,
}
_RATES = {"logarithms": (False, True), "epochs": (10, 30), "rate": (0.1, 0.4, 1.6)}
GRIDS: dict[str, dict[str, tuple[Any, ...]]] = {
    "diffprivlib": {"norm": (1.0, 2.0), "ridge": (0.001, 0.01, 0.1), "logarithms": (False, True)},
    "dp_ebm": {"known": (False,)},
    "dp_ebm_bounds": {"known": (True,)},
    "dp_sgd_logistic": {"width": (0,), "batch": (512, 2048), "clip": (0.3, 1.0), **_RATES},
    "dp_sgd_network": {"width": (32,), "batch": (2048,), "clip": (1.0,), **_RATES},
}


def _norms(logarithms: bool, *chosen: tuple[float, float]) -> list[Settings]:
    return [{"norm": norm, "ridge": ridge, "logarithms": logarithms} for norm, ridge in chosen]


def _rates(width: int, *chosen: tuple[int, float, bool]) -> list[Settings]:
    common = {"width": width, "batch": 2048, "clip": 1.0}
    return [common | {"epochs": epochs, "rate": rate, "logarithms": logs} for epochs, rate, logs in chosen]


_EPSILONS = (0.25, 1.0, 4.0)  # at which settings were compared
SETTINGS: dict[tuple[str, str, bool], list[Settings]] = {  # by peer, table, and whether rows are public
    ("diffprivlib", "adult", True): _norms(False, (2, 0.001), (2, 0.01), (2, 0.1)),
    ("diffprivlib", "adult", False): _norms(True, (2, 0.001), (2, 0.01), (2, 0.1)),
    ("diffprivlib", "bank", True): _norms(True, (1, 0.01), (2, 0.1), (2, 0.1)),
    ("diffprivlib", "bank", False): _norms(True, (1, 0.01), (1, 0.1), (2, 0.1)),
    ("dp_sgd_logistic", "adult", True): _rates(0, (10, 1.6, False), (10, 1.6, False), (30, 0.4, False)),
    ("dp_sgd_logistic", "adult", False): _rates(0, (10, 1.6, False), (30, 1.6, False), (30, 1.6, False)),
    ("dp_sgd_logistic", "bank", True): _rates(0, (10, 1.6, True), (30, 0.4, True), (30, 1.6, True)),
    ("dp_sgd_logistic", "bank", False): _rates(0, (10, 1.6, True), (30, 1.6, True), (30, 1.6, True)),
    ("dp_sgd_network", "adult", True): _rates(32, (30, 0.1, False), (10, 0.4, False), (30, 0.4, False)),
    ("dp_sgd_network", "adult", False): _rates(32, (10, 0.4, True), (30, 0.4, True), (30, 1.6, False)),
    ("dp_sgd_network", "bank", True): _rates(32, (30, 0.1, False), (30, 0.4, True), (30, 1.6, True)),
    ("dp_sgd_network", "bank", False): _rates(32, (30, 0.1, True), (30, 0.4, True), (30, 1.6, True)),
    ("dp_sgd_logistic", "credit", True): _rates(0, (10, 0.1, True), (30, 0.4, False), (30, 0.4, False)),
    ("dp_sgd_logistic", "credit", False): _rates(0, (10, 0.1, True), (10, 0.1, True), (30, 0.1, True)),
    ("dp_sgd_network", "credit", True): _rates(32, (10, 0.1, False), (30, 0.4, False), (30, 1.6, True)),
    ("dp_sgd_network", "credit", False): _rates(32, (10, 0.1, True), (30, 0.4, True), (30, 1.6, True)),
    ("dp_sgd_logistic", "bike", True): _rates(0, (10, 0.1, True), (30, 0.1, True), (30, 0.1, True)),
    ("dp_sgd_logistic", "bike", False): _rates(0, (10, 0.1, True), (10, 0.4, True), (30, 0.1, True)),
    ("dp_sgd_network", "bike", True): _rates(32, (10, 0.1, False), (30, 0.4, False), (30, 0.4, False)),
    ("dp_sgd_network", "bike", False): _rates(32, (10, 0.1, False), (30, 0.4, False), (30, 0.4, False)),
    ("dp_sgd_logistic", "abalone", True): _rates(0, (10, 0.1, False), (30, 0.1, False), (30, 0.1, False)),
    ("dp_sgd_logistic", "abalone", False): _rates(0, (10, 0.1, False), (30, 0.4, False), (30, 0.1, False)),
    ("dp_sgd_network", "abalone", True): _rates(32, (10, 0.1, False), (30, 0.1, False), (30, 0.4, False)),
    ("dp_sgd_network", "abalone", False): _rates(32, (10, 0.1, False), (30, 0.4, False), (30, 0.4, False)),
    ("dp_sgd_logistic", "features", False): [
        {"width": 0, "batch": 512, "clip": 1.0, "epochs": 30, "rate": 0.4, "logarithms": False}
    ]
    * 3,
}


def settings_of(peer: str) -> Iterator[Settings]:
    """Yield every choice of a peer's grid."""
    names, values = zip(*GRIDS[peer].items(), strict=True)
    for chosen in product(*values):
        yield dict(zip(names, chosen, strict=True))


def best(rows: Rows, peer: str, epsilon: float) -> Settings:
    """Return the settings that did best for such rows at the nearest epsilon, or the only ones there are."""
    settings = SETTINGS.get((peer, rows.facts["table"], rows.public is not None))
    if settings is None:
        return next(settings_of(peer))
    return settings[int(np.argmin([abs(np.log(epsilon / known)) for known in _EPSILONS]))]


def main(arguments: list[str] | None = None) -> int:
    """Fit one peer at each epsilon and write its scores of the judges."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("peer", choices=PEERS)
    parser.add_argument("epsilons", type=float, nargs="+")
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    rows: Any = (Features if (options.folder / "features.npz").exists() else Rows)(options.folder)
    fit = PEERS[options.peer]
    scores: dict[str, Any] = {
        str(epsilon): fit(rows, epsilon, **best(rows, options.peer, epsilon)) for epsilon in options.epsilons
    }
    np.savez(options.folder / f"{options.peer}.npz", **scores)
    return 0


if __name__ == "__main__":
    sys.exit(main())
