"""What models learn from synthetic records: UCI Adult at epsilon 1, held against models that saw the real table.

What models learn from a peer's synthetic Adult at epsilon 1, as `learning_figures` measures ours.

The peer is OpenDP's MST: every column and a tree of pairs. (AIM takes longer than a bench should: the page of
benchmarks has its figures.) It gets half of the loss that epsilon 1 allows, which pays for one record replaced, as in
our own release. It also gets what ours must find: cells of every number, from the exact deciles of the table. Values
are spread evenly over a cell. Records are drawn here from the pairs of the fitted tree, not by mbi 1.1, which draws
wrongly.
"""

import csv
import gzip
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.figures import Figure, data_folder
from benchmarks.peers import loss_of, run_program
from quorate.core.arrays import Floats, Integers
from quorate.release import Columns, QueryRelease, Workload
from quorate.tables import Category, Number

TARGET = "income>50K"
AREAS = ("logistic", "boosted")
_RELEASES = 5
_ROWS = 100_000  # three times as many as the table has: the more, the less chance is in what is drawn
NUMBERS = ("age", "fnlwgt", "education-num", "capital-gain", "capital-loss", "hours-per-week")

Table = Mapping[str, list[Any]]


def learning_figures(quick: bool) -> Iterator[Figure]:
    """Yield the area under the curve of two models on Adult's test rows: learned from real and from synthetic rows."""
    folder = data_folder() / "adult"
    if not folder.exists():
        for name in AREAS:
            yield from ((f"release.learning.{name}.{end}", None, "share") for end in ("real", "synthetic", "lost"))
        return
    train, test = read_table(folder / "train.csv.gz"), read_table(folder / "test.csv.gz")
    real = learned_areas(train, test)
    runs = [learned_areas(release_adult(train, test), test) for _ in range(1 if quick else _RELEASES)]
    for name in AREAS:
        reached = median(run[name] for run in runs)
        yield f"release.learning.{name}.real", real[name], "share"
        yield f"release.learning.{name}.synthetic", reached, "share"
        yield f"release.learning.{name}.lost", real[name] - reached, "share"


def tail_figures(quick: bool) -> Iterator[Figure]:
    """Yield what synthetic records of credit cards keep, of numbers without declared bounds, at epsilon 1.

    Over all bills and payments: the largest relative errors of means and of 99th percentiles, and the largest error of
    a rank correlation of two numbers; medians of releases, with a target and without.
    """
    path = data_folder() / "credit" / "credit.csv.gz"
    table = read_credit(path) if path.exists() else None
    for label, target in (("alone", None), ("target", "default")):
        runs = [] if table is None else [credit_errors(table, target) for _ in range(1 if quick else _RELEASES)]
        for index, name in enumerate(("mean", "percentile99", "spearman")):
            yield f"release.tails.{label}.{name}", median(run[index] for run in runs) if runs else None, "ratio"


def read_credit(path: Path) -> Table:
    """Return the columns of the credit cards, without the id: numbers, and texts."""
    with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = {name.strip(): [row[name] for row in rows] for name in rows[0] if name != "ID"}
    is_number = {name: values[0].lstrip("-").isdecimal() for name, values in texts.items()}
    return {name: [float(text) for text in texts[name]] if is_number[name] else texts[name] for name in texts}


def credit_errors(table: Table, target: str | None) -> tuple[float, float, float]:
    """Release the table, and return the largest errors of means, of 99th percentiles, and of rank correlations."""
    from scipy.stats import spearmanr

    numbers = [name for name, values in table.items() if isinstance(values[0], float)]
    kinds = {name: Number() if name in numbers else Category(sorted(set(table[name])), closed=True) for name in table}
    settings: dict[str, Any] = {} if target is None else {"error": "weighted", "target": target}
    release = QueryRelease(Workload.marginals(2), columns=Columns(kinds), **settings).fit(table)
    made = release.synthetic(len(table[numbers[0]])).to_pydict()
    real, synthetic = (
        np.array([[math.nan if value is None else value for value in columns[name]] for name in numbers], dtype=float)
        for columns in (table, made)
    )
    amounts = [index for index, name in enumerate(numbers) if "AMT" in name]
    means, rare = (
        np.abs(figure(synthetic[amounts]) / figure(real[amounts]) - 1.0).max()
        for figure in (lambda rows: np.nanmean(rows, axis=1), lambda rows: np.nanquantile(rows, 0.99, axis=1))
    )
    ranks = [spearmanr(np.nan_to_num(rows), axis=1).statistic for rows in (real, synthetic)]
    return float(means), float(rare), float(np.abs(ranks[0] - ranks[1]).max())


def release_adult(train: Table, test: Table) -> Table:
    """Return synthetic records of the table, at epsilon 1.

    Nothing is known of numbers but that none is below 0: the release finds their cuts. Categories are those that the
    table's documentation lists: all that either file has.
    """
    kinds: dict[str, Any] = {}
    for name in train:
        if name in NUMBERS:
            kinds[name] = Number(closed=True)
        else:
            kinds[name] = Category(sorted({*train[name], *test[name]}), closed=True)
    release = QueryRelease(Workload.marginals(2), columns=Columns(kinds), error="weighted", target=TARGET)
    rows = release.fit(train).synthetic(_ROWS).to_pydict()
    return {name: [max(0, value) for value in rows[name]] if name in NUMBERS else rows[name] for name in rows}


def read_table(path: Path) -> Table:
    """Return the columns of a file of Adult: numbers, and texts."""
    with gzip.open(path, "rt", newline="") as file:
        rows = list(csv.DictReader(file, skipinitialspace=True))
    texts = {name: [row[name].rstrip(".") for row in rows] for name in rows[0]}
    return {name: [float(text) for text in column] if name in NUMBERS else column for name, column in texts.items()}


def learned_areas(train: Table, test: Table) -> dict[str, float]:
    """Return the area under the curve, on the test rows, of each model that has learned from these rows."""
    from sklearn.ensemble import HistGradientBoostingClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import roc_auc_score

    labels = [np.array([value.startswith(">") for value in table[TARGET]]) for table in (train, test)]
    learned = {"logistic": (LogisticRegression(max_iter=500, C=0.1), _spread(train, test))}
    names = [name for name in train if name != TARGET]
    coded = [np.stack([_coded(one, train, test, name) for name in names], axis=1) for one in (train, test)]
    learned["boosted"] = (HistGradientBoostingClassifier(random_state=0, max_iter=100), coded)
    areas = {}
    for name, (model, (rows, queries)) in learned.items():
        model.fit(rows, labels[0])
        areas[name] = float(roc_auc_score(labels[1], model.predict_proba(queries)[:, 1]))
    return areas


def _coded(table: Table, train: Table, test: Table, name: str) -> Floats:
    if name in NUMBERS:
        return np.array(table[name], dtype=np.float64)
    indices = {value: index for index, value in enumerate(sorted({*train[name], *test[name]}))}
    return np.array([indices[value] for value in table[name]], dtype=np.float64)


def _spread(train: Table, test: Table) -> list[Floats]:
    """Return both tables with a column for each category, and numbers of mean 0 and deviation 1 in the first."""
    names = [name for name in train if name != TARGET]
    pairs = [_spread_column(name, *(_coded(table, train, test, name) for table in (train, test))) for name in names]
    return [np.concatenate(columns, axis=1) for columns in zip(*pairs, strict=True)]


def _spread_column(name: str, train: Floats, test: Floats) -> tuple[Floats, Floats]:
    if name not in NUMBERS:
        codes = np.eye(int(max(train.max(), test.max())) + 1)
        return codes[train.astype(int)], codes[test.astype(int)]
    if "capital" in name:
        train, test = np.log1p(train), np.log1p(test)
    middle, width = train.mean(), train.std() or 1.0
    return ((train - middle) / width)[:, None], ((test - middle) / width)[:, None]


_ROWS = 100_000

# As the programs of `benchmarks.peers`, but it gives the codes of records. The tree may be a forest.
_OPENDP_MST = """
import sys
import numpy as np, polars as pl, opendp.prelude as dp

dp.enable_features("contrib")
given = np.load(sys.argv[1])
names = ["c" + str(column) for column in range(given["codes"].shape[1])]
frame = pl.DataFrame({name: given["codes"][:, column] for column, name in enumerate(names)}).lazy()
rho = float(sys.argv[3])
context = dp.Context.compositor(
    data=frame, privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
)
table = context.query(rho=rho).contingency_table(
    cuts={name: list(range(int(size) - 1)) for name, size in zip(names, given["sizes"])},
    algorithm=dp.mbi.MST(),
).release()
near = {name: [] for name in names}
for one, other in (clique for clique in table.model.cliques if len(clique) == 2):
    near[one].append(other)
    near[other].append(one)
chance, rows, drawn = np.random.default_rng(), int(given["rows"]), {}


def draw(name, shares):  # a code for each row of shares
    upto = np.cumsum(shares, axis=1)
    drawn[name] = (chance.random(rows)[:, None] * upto[:, -1:] >= upto[:, :-1]).sum(axis=1)


for first in names:
    if first in drawn:
        continue
    draw(first, np.broadcast_to(np.asarray(table.project((first,))), (rows, len(table.project((first,))))))
    todo = [first]
    while todo:
        name = todo.pop()
        for other in near[name]:
            if other not in drawn:
                draw(other, np.asarray(table.project((name, other)))[drawn[name]])
                todo.append(other)
np.savez(sys.argv[2], codes=np.stack([drawn[name] for name in names], axis=1))
"""

LEARNED_PEERS: dict[str, tuple[str, str]] = {
    "opendp_mst": ("opendp.extras.mbi, mbi, polars; from opendp.extras.mbi import Marginals", _OPENDP_MST),
}


def learning_peer_figures(quick: bool) -> Iterator[Figure]:
    """Yield the area under the curve that each model loses on Adult's test rows, and the peer's seconds: one run."""
    folder = data_folder() / "adult"
    for name in LEARNED_PEERS:
        lost: dict[str, float | None] = dict.fromkeys(AREAS)
        seconds = None
        if folder.exists() and not quick:
            train, test = read_table(folder / "train.csv.gz"), read_table(folder / "test.csv.gz")
            drawn_records = peer_records(name, train, test, limit=420.0)
            if drawn_records is not None:
                synthetic, seconds = drawn_records
                real, reached = learned_areas(train, test), learned_areas(synthetic, test)
                lost = {area: real[area] - reached[area] for area in AREAS}
        for area in AREAS:
            yield f"release.peer.{name}.learning.{area}.lost", lost[area], "share"
        yield f"release.peer.{name}.learning.seconds", seconds, "s"


def peer_records(name: str, train: Table, test: Table, *, limit: float) -> tuple[Table, float] | None:
    """Return a peer's synthetic records and its seconds; None where it is missing, fails or takes too long."""
    cells = {column: cells_of(column, train[column]) for column in train if column in NUMBERS}
    texts = {column: sorted({*train[column], *test[column]}) for column in train if column not in NUMBERS}
    codes, sizes = [], []
    for column, values in train.items():
        if column in cells:
            codes.append(np.searchsorted(cells[column][0], np.array(values), side="right") - 1)
            sizes.append(len(cells[column][0]))
        else:
            codes.append(np.searchsorted(texts[column], values))
            sizes.append(len(texts[column]))
    module, program = LEARNED_PEERS[name]
    with tempfile.TemporaryDirectory() as folder:
        records_file, answered = Path(folder) / "given.npz", Path(folder) / "answered.npz"
        np.savez(records_file, codes=np.stack(codes, axis=1), sizes=np.array(sizes), rows=np.array(_ROWS))
        arguments = ["-c", program, str(records_file), str(answered), str(loss_of(1.0) / 2)]
        seconds = run_program(name, module, arguments, limit=limit)
        if seconds is None:
            return None
        with np.load(answered) as result:
            codes_drawn = result["codes"]
    chance, records = np.random.default_rng(), {}
    for index, column in enumerate(train):
        if column in cells:
            low, high = (ends[codes_drawn[:, index]] for ends in cells[column])
            records[column] = chance.integers(low, high, endpoint=True).astype(np.float64).tolist()
        else:
            records[column] = np.array(texts[column])[codes_drawn[:, index]].tolist()
    return records, seconds


def cells_of(column: str, values: list[float]) -> tuple[Integers, Integers]:
    """Return the lowest and the highest whole number of each cell: tenths of the records, and some by what they mean.

    Years of schooling have a cell each. Gains and losses are mostly 0, which has one by itself.

    >>> low, high = cells_of("age", list(range(17, 57)))
    >>> low.tolist(), high.tolist()
    ([17, 20, 24, 28, 32, 36, 40, 44, 48, 52], [19, 23, 27, 31, 35, 39, 43, 47, 51, 56])
    """
    numbers = np.array(values).astype(np.int64)
    if column == "education-num":
        low = np.unique(numbers)
    else:
        rest = numbers[numbers > 0] if column.startswith("capital") else numbers
        first = [0, 1] if column.startswith("capital") else [int(numbers.min())]
        low = np.unique([*first, *np.quantile(rest, np.arange(1, 10) / 10).astype(np.int64)])
    return low, np.append(low[1:] - 1, numbers.max())
