"""Other libraries on the same records and the same queries: their largest error and their time.

They are not dependencies. Each runs as a small program with a time limit, in the Python that $QUORATE_PEERS names (this
one unless it is set; several, with the path separator between them), and only where it is installed there. They protect
against one record added or removed, the weaker promise, and use no public records. They run once, with their own
settings unless stated.

Answers are read from the model that a peer has fitted, not from records that it draws: mbi 1.1.0, required by
smartnoise-synth 1.0.8 and OpenDP 0.16.0, deals out rounded records so that columns which should be independent given a
third move together (fixed in mbi 2.0.0), and an error of 0.03 became 0.09.

- smartnoise-synth's MST measures every column and a tree of pairs. What a tree cannot hold stays wrong at any epsilon:
  the tree that its rule picks from Adult's exact counts, with exact pairs, has a largest error of 0.0278 on the 7
  columns and 0.0270 on the 15. (On small tables at epsilon 100 the peer is within 0.000003 of such a tree.)
- smartnoise-synth's AIM refits its model in 16 rounds a column and exceeds the limit; here it gets 2 rounds a column.
- OpenDP's AIM is run from version 0.16: before, it weighed marginals against the noise of the choice and not of the
  measurement, measured only single columns here, and had a largest error of 0.11.
- On Adult's 15 columns only the tree is tried: AIM exceeds the limit there.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from benchmarks.data import adult_columns, adult_split, mean_distance
from benchmarks.figures import Figure, data_folder
from quorate.core.privacy import best_order, to_capacity
from quorate.release.queries import Marginals, Rows

_EPSILONS = {"epsilon1": 1.0, "epsilon01": 0.1}

# Each program takes the file of the records, the file for its answers, epsilon at delta 1e-6, and the same as a
# zero-concentrated loss. It gives the cells of every clique, the columns in the clique's order, the last one fastest.
_SMARTNOISE = """
import sys
import numpy as np
from snsynth import Synthesizer

given = np.load(sys.argv[1])
sizes = [int(size) for size in given["sizes"]]
synth = Synthesizer.create({kind!r}, epsilon=float(sys.argv[3]), delta=1e-6{more})
synth.fit(given["codes"], categorical_columns=list(range(len(sizes))), preprocessor_eps=0.0)
held = {{}}
if hasattr(synth, "undo_compress_fn"):  # the tree merges rare labels into one: ask which it kept
    synth.reverse_data = lambda data, supports: supports
    held = synth.undo_compress_fn(None)
shares = []  # for each column, how each category of the model is shared out among the codes
for column, labeller in enumerate(synth._transformer.transformers):
    codes = np.array([int(labeller._inverse_transform(label)) for label in range(labeller.cardinality[0])])
    kept = np.asarray(held.get("col" + str(column), np.ones(len(codes), dtype=bool)))
    whole = np.eye(sizes[column])
    merged = [] if kept.all() else [whole[codes[~kept]].mean(axis=0)]
    shares.append(np.array([*whole[codes[kept]], *merged]))
answers = []
for clique in given["cliques"]:
    table = np.asarray(synth.synthesizer.project(tuple("col" + str(column) for column in clique)).values)
    for column in clique:  # the first axis is this column's, and its codes become the last
        table = np.tensordot(table, shares[column], axes=(0, 0))
    answers.append(table.ravel())
np.savez(sys.argv[2], answers=np.concatenate(answers))
"""

_OPENDP_AIM = """
import functools, math, sys
import numpy as np, polars as pl, opendp.prelude as dp
from mbi import Factor, MarkovRandomField, estimation


class Whole(MarkovRandomField):  # marginals summed from the whole table: the same numbers, many times sooner
    @functools.cached_property
    def cells(self):
        logs = sum(np.asarray(factor.expand(self.domain).values) for factor in self.potentials.arrays.values())
        cells = np.exp(logs - logs.max())
        return cells * (float(self.total) / cells.sum())

    def project(self, attrs):
        names = (attrs,) if isinstance(attrs, str) else tuple(attrs)
        axes = [self.domain.attributes.index(name) for name in names]
        left = sorted(axes)
        summed = self.cells.sum(axis=tuple(axis for axis in range(self.cells.ndim) if axis not in axes))
        return Factor(self.domain.project(names), summed.transpose([left.index(axis) for axis in axes]))


def estimate(domain, loss_fn, *, potentials=None):
    model = estimation.mirror_descent(domain, loss_fn, potentials=potentials)
    if math.prod(domain.shape) > 10_000_000:
        return model
    return Whole(potentials=model.potentials, marginals=model.marginals, total=model.total)


dp.enable_features("contrib")
given = np.load(sys.argv[1])
names = ["c" + str(column) for column in range(given["codes"].shape[1])]
frame = pl.DataFrame({name: given["codes"][:, column] for column, name in enumerate(names)}).lazy()
rho = float(sys.argv[4])
context = dp.Context.compositor(
    data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
)
cliques = [tuple(names[column] for column in clique) for clique in given["cliques"]]
table = context.query(rho=rho).contingency_table(
    # One bin for each code. With keys instead, each column would have one category more, for missing values.
    cuts={name: list(range(int(size) - 1)) for name, size in zip(names, given["sizes"])},
    algorithm=dp.mbi.AIM(queries=len(cliques[0]), estimator=estimate),  # all marginals of up to this many columns
).release()
np.savez(sys.argv[2], answers=np.concatenate([np.asarray(table.project(clique)).ravel() for clique in cliques]))
"""

PEERS: dict[str, tuple[str, str]] = {  # what must be importable, and the program
    "smartnoise_mst": ("snsynth", _SMARTNOISE.format(kind="mst", more="")),
    "smartnoise_aim": ("snsynth", _SMARTNOISE.format(kind="aim", more=", degree=3, rounds=2 * len(sizes)")),
    "opendp_aim": ("opendp.extras.mbi, mbi, polars; from opendp.extras.mbi import Marginals", _OPENDP_AIM),  # 0.16 on
}
_WIDE = ("smartnoise_mst",)  # the peers that are tried on 15 columns


def _interpreters() -> tuple[str, ...]:
    interpreters = os.environ.get("QUORATE_PEERS", "")
    return tuple(path for path in interpreters.split(os.pathsep) if path) or (sys.executable,)


@cache
def _installed(module: str, interpreters: tuple[str, ...]) -> str | None:
    """Return the first Python that can import these modules."""
    for python in interpreters:
        try:
            tried = subprocess.run([python, "-c", f"import {module}"], capture_output=True, timeout=120, check=False)  # noqa: S603 - the operator names the Python
        except (OSError, subprocess.TimeoutExpired):
            continue
        if tried.returncode == 0:
            return python
    return None


@cache
def _say_missing(name: str) -> None:
    """Say it once in a run."""
    print(f"{name} is not installed: left out (name a Python that has it in QUORATE_PEERS)", file=sys.stderr)


def run_program(name: str, module: str, arguments: Sequence[str], *, limit: float) -> float | None:
    """Run a Python program where these modules are: return its seconds, or None if it is missing, fails or is late."""
    python = _installed(module, _interpreters())
    if python is None:
        _say_missing(name)
        return None
    start = time.perf_counter()
    try:
        ended = subprocess.run(  # noqa: S603
            [python, "-W", "ignore", *arguments],
            capture_output=True,
            text=True,
            timeout=limit,
            check=False,
            env={**os.environ, "PYTHONSAFEPATH": "1"},  # benchmarks/numbers.py must not hide Python's own `numbers`
        )
    except subprocess.TimeoutExpired:
        print(f"{name} took more than {limit:g} s and was stopped", file=sys.stderr)
        return None
    if ended.returncode != 0:
        lines = ended.stderr.strip().splitlines() or ["no message"]
        print(f"{name} failed: {lines[-1]}", file=sys.stderr)
        return None
    return time.perf_counter() - start


def loss_of(epsilon: float) -> float:
    """Return the zero-concentrated privacy loss that stays within epsilon at delta 1e-6, by the best conversion."""
    order = best_order(epsilon=epsilon, delta=1e-6)
    return to_capacity(epsilon, delta=1e-6, order=order) / order


def run_peer(
    name: str, queries: Marginals, private: Rows, *, epsilon: float, limit: float
) -> tuple[float, float, float] | None:
    """Return the largest error, the mean distance of a marginal and the seconds of one peer.

    None where it is missing, fails or takes too long. The seconds are those of its whole program: loading the
    library, fitting the model and answering.
    """
    module, program = PEERS[name]
    with tempfile.TemporaryDirectory() as folder:
        records_file, answered = Path(folder) / "given.npz", Path(folder) / "answered.npz"
        np.savez(records_file, codes=private.codes, sizes=np.array(private.sizes), cliques=np.array(queries.cliques))
        arguments = ["-c", program, str(records_file), str(answered), str(epsilon), str(loss_of(epsilon))]
        seconds = run_program(name, module, arguments, limit=limit)
        if seconds is None:
            return None
        with np.load(answered) as result:
            answers = result["answers"]
    if answers.shape != (queries.count,):
        print(f"{name} gave {answers.size} answers to {queries.count} queries: left out", file=sys.stderr)
        return None
    shares = answers * (len(queries.cliques) / answers.sum())
    truth = queries.answers(private) / private.records
    return float(np.abs(shares - truth).max()), mean_distance(queries, shares, truth), seconds


def _adult15(folder: Path) -> tuple[Marginals, Rows]:
    sizes, codes = adult_columns(folder, "adult15", "_private")
    return Marginals.of_order(sizes, 2), Rows(codes, sizes)


def peer_figures(quick: bool) -> Iterator[Figure]:
    """Measure each peer once at each epsilon: all 3-way marginals of 7 columns of Adult, all 2-way ones of 15.

    The 7 columns are those of the first split's private part. With `quick` only those at epsilon 1 are measured, and
    the limit is short.
    """
    folder = data_folder() / "adult_release"
    few = adult_split(folder, 0)[:2] if folder.exists() else None
    many = _adult15(folder) if folder.exists() and not quick else None
    for table, peers, data in (("adult7", PEERS, few), ("adult15", _WIDE, many)):
        for name in peers:
            for label, epsilon in _EPSILONS.items():
                measured: tuple[float | None, ...] | None = None
                if data is not None and (epsilon == 1.0 or not quick):
                    measured = run_peer(name, *data, epsilon=epsilon, limit=45.0 if quick else 420.0)
                ends = ("largest_error", "share"), ("mean_distance", "share"), ("seconds", "s")
                for (end, unit), value in zip(ends, measured or (None, None, None), strict=True):
                    yield f"release.peer.{name}.{table}.{label}.{end}", value, unit
