"""Other libraries on the same records and the same queries: their largest error and their time.

They are not dependencies. Each runs as a small program of its own, with a time limit, in the Python that $QUORATE_PEERS
names (this one unless it is set; several, for libraries that do not go together, with the path separator between them),
and only where it is installed there. They protect against one record added or removed, which is the weaker promise.
They run once, with their default settings, in whatever versions are there: what they can do at best may be much better.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from quorate.cli.bench_release import adult_split
from quorate.privacy import best_order, to_capacity
from quorate.release.queries import Marginals, Rows

__all__ = ["PEERS", "peer_figures", "run_peer"]

Figure = tuple[str, float | None, str]

_SMARTNOISE = """
import sys, numpy as np, pandas as pd
from snsynth import Synthesizer
given = np.load(sys.argv[1])
names = ["c" + str(i) for i in range(given["codes"].shape[1])]
frame = pd.DataFrame(given["codes"], columns=names)
synth = Synthesizer.create({kind!r}, epsilon=float(sys.argv[3]), delta=1e-6{more})
synth.fit(frame, categorical_columns=names, preprocessor_eps=0.0)
np.savez(sys.argv[2], codes=synth.sample(len(frame))[names].to_numpy().astype(np.int64))
"""

_OPENDP_AIM = """
import sys, numpy as np, polars as pl, opendp.prelude as dp
dp.enable_features("contrib")
given = np.load(sys.argv[1])
names = [f"c{i}" for i in range(given["codes"].shape[1])]
frame = pl.DataFrame({name: given["codes"][:, i] for i, name in enumerate(names)}).lazy()
budget = {"rho": float(sys.argv[4])}
context = dp.Context.compositor(data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(**budget))
cliques = [tuple(names[c] for c in clique) for clique in given["cliques"]]
table = context.query(**budget).contingency_table(
    keys={name: list(range(int(size))) for name, size in zip(names, given["sizes"])},
    algorithm=dp.mbi.AIM(queries=len(cliques[0])),  # all interactions up to this degree
).release()
sizes = dict(zip(names, given["sizes"]))  # a further category, for missing values, comes last and is left out
tables = [np.asarray(table.project(c))[tuple(slice(0, int(sizes[name])) for name in c)].ravel() for c in cliques]
np.savez(sys.argv[2], answers=np.concatenate(tables))
"""

PEERS: dict[str, tuple[str, str]] = {  # what must be importable, and the program
    "smartnoise_mst": ("snsynth", _SMARTNOISE.format(kind="mst", more="")),
    "smartnoise_aim": ("snsynth", _SMARTNOISE.format(kind="aim", more=", degree=3")),
    "opendp_aim": ("opendp.extras.mbi, mbi, polars", _OPENDP_AIM),
}


def _interpreters() -> list[str]:
    named = os.environ.get("QUORATE_PEERS", "")
    return [path for path in named.split(os.pathsep) if path] or [sys.executable]


def _installed(module: str) -> str | None:
    """Return the first Python that can import these modules."""
    for python in _interpreters():
        try:
            tried = subprocess.run([python, "-c", f"import {module}"], capture_output=True, timeout=120, check=False)  # noqa: S603 - the operator names the Python
        except (OSError, subprocess.TimeoutExpired):
            continue
        if tried.returncode == 0:
            return python
    return None


def _rho(epsilon: float) -> float:
    """Return the zero-concentrated privacy loss that stays within epsilon at delta 1e-6, by the best conversion."""
    order = best_order(epsilon=epsilon, delta=1e-6)
    return to_capacity(epsilon, delta=1e-6, order=order) / order


def run_peer(
    name: str, queries: Marginals, private: Rows, *, epsilon: float, limit: float
) -> tuple[float, float] | None:
    """Return the largest error and the seconds of one peer; None where it is missing, fails or takes too long.

    >>> from quorate.release.queries import Marginals, Rows
    >>> run_peer.__name__
    'run_peer'
    """
    module, program = PEERS[name]
    python = _installed(module)
    if python is None:
        print(f"{name} is not installed: left out (name a Python that has it in QUORATE_PEERS)", file=sys.stderr)
        return None
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "given.npz", Path(folder) / "found.npz"
        np.savez(given, codes=private.codes, sizes=np.array(private.sizes), cliques=np.array(queries.cliques))
        start = time.perf_counter()
        command = [python, "-W", "ignore", "-c", program, str(given), str(found), str(epsilon), str(_rho(epsilon))]
        try:
            ended = subprocess.run(command, capture_output=True, text=True, timeout=limit, check=False)  # noqa: S603
        except subprocess.TimeoutExpired:
            print(f"{name} took more than {limit:g} s and was stopped", file=sys.stderr)
            return None
        seconds = time.perf_counter() - start
        if ended.returncode != 0:
            lines = ended.stderr.strip().splitlines() or ["no message"]
            print(f"{name} failed: {lines[-1]}", file=sys.stderr)
            return None
        with np.load(found) as result:
            answers = _answers(queries, private, dict(result))
    truth = queries.answers(private) / private.records
    return float(np.abs(answers - truth).max()), seconds


def _answers(queries: Marginals, private: Rows, result: dict[str, np.ndarray]) -> np.ndarray:
    """Return a peer's answers as shares, from the table it gives or from its synthetic records."""
    if "answers" in result:
        total = result["answers"].sum() / len(queries.cliques)
        return np.asarray(result["answers"] / total)
    rows = Rows(result["codes"], private.sizes)
    return np.asarray(queries.answers(rows) / rows.records)


def peer_figures(quick: bool) -> Iterator[Figure]:
    """Measure each peer once on the first split of Adult, 7 columns, all 3-way marginals, at epsilon 1.

    >>> peer_figures.__name__
    'peer_figures'
    """
    from quorate.cli.bench import data_folder  # which imports this module

    folder = data_folder() / "adult_release"
    split = adult_split(folder, 0) if folder.exists() else None
    for name in PEERS:
        measured = None
        if split is not None:
            measured = run_peer(name, split[0], split[1], epsilon=1.0, limit=45.0 if quick else 420.0)
        yield f"release.peer.{name}.largest_error", measured[0] if measured else None, "share"
        yield f"release.peer.{name}.seconds", measured[1] if measured else None, "s"
