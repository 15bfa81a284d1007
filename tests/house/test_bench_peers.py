"""The programs of the peers put every column and every code in its place: run against exact stand-ins for the peers.

The stand-ins have the peers' conventions: a model that gives the axes in the order asked for, labels for the codes that
occur and for no others, rare labels merged into one that comes last.
"""

from collections import Counter

import numpy as np
import pytest

from benchmarks.peers import PEERS, run_peer
from benchmarks.release_learning import LEARNED_PEERS, cells_of, peer_records
from quorate.release.queries import Marginals, Rows

_MBI = """
import numpy as np
from types import SimpleNamespace


class Domain:
    def __init__(self, attributes, shape):
        self.attributes, self.shape = tuple(attributes), tuple(shape)

    def project(self, names):
        return Domain(names, [self.shape[self.attributes.index(name)] for name in names])


class Factor:
    def __init__(self, domain, values):
        assert values.shape == domain.shape
        self.domain, self.values = domain, values

    def expand(self, domain):
        assert self.domain.attributes == domain.attributes
        return self


class MarkovRandomField:
    def __init__(self, *, potentials, marginals, total):
        self.potentials, self.marginals, self.total = potentials, marginals, total

    @property
    def domain(self):
        return self.potentials.domain


def mirror_descent(domain, loss_fn, *, potentials):
    with np.errstate(divide="ignore"):
        logs = Factor(domain, np.log(loss_fn))
    held = SimpleNamespace(domain=domain, arrays={"all": logs})
    return MarkovRandomField(potentials=held, marginals=None, total=loss_fn.sum())


estimation = SimpleNamespace(mirror_descent=mirror_descent)
"""

_OPENDP = """
import numpy as np
from types import SimpleNamespace
from mbi import Domain


class Query:
    def __init__(self, data):
        self.data = data

    def contingency_table(self, *, cuts, algorithm):
        names = list(self.data)
        codes = [np.searchsorted(cuts[name], self.data[name]) for name in names]  # a cut belongs to the bin below it
        counts = np.zeros([len(cuts[name]) + 1 for name in names])
        np.add.at(counts, tuple(codes), 1.0)
        if algorithm.kind == "mst":
            axes = lambda asked: [names.index(name) for name in asked]
            exact = lambda asked: np.einsum(counts, list(range(counts.ndim)), axes(asked))
            forest = SimpleNamespace(cliques=[("c1", "c0"), ("c1", "c3"), ("c2", "c4"), ("c0",)])
            return SimpleNamespace(release=lambda: SimpleNamespace(project=exact, model=forest))
        model = algorithm.estimator(Domain(names, counts.shape), counts, potentials=None)
        table = SimpleNamespace(project=lambda names: model.project(names).values)
        return SimpleNamespace(release=lambda: table)


class Context:
    @staticmethod
    def compositor(*, data, privacy_unit, privacy_loss):
        return SimpleNamespace(query=lambda *, rho: Query(data))


enable_features = unit_of = loss_of = lambda *args, **more: None
mbi = SimpleNamespace(
    AIM=lambda **more: SimpleNamespace(kind="aim", **more), MST=lambda: SimpleNamespace(kind="mst")
)
"""

_POLARS = """
from types import SimpleNamespace

DataFrame = lambda columns: SimpleNamespace(lazy=lambda: columns)
"""

_SNSYNTH = """
import numpy as np
from types import SimpleNamespace


class Labeller:
    def __init__(self, column):
        self.categories = sorted(set(column.tolist()))
        self.cardinality = [len(self.categories)]

    def _inverse_transform(self, label):
        return self.categories[label]


class Synthesizer:
    @staticmethod
    def create(kind, *, epsilon, delta, degree=None, rounds=None):
        synth = Synthesizer()
        synth.kind = kind
        return synth

    def fit(self, data, *, categorical_columns, preprocessor_eps):
        labellers = [Labeller(data[:, column]) for column in categorical_columns]
        self._transformer = SimpleNamespace(transformers=labellers)
        labels = [np.searchsorted(labeller.categories, data[:, i]) for i, labeller in enumerate(labellers)]
        if self.kind == "mst":
            supports = {f"col{i}": np.ones(labeller.cardinality[0], dtype=bool) for i, labeller in enumerate(labellers)}
            supports["col4"] = np.array([False, True, False, True])
            labels[4] = np.array([2, 0, 2, 1])[labels[4]]
            self.undo_compress_fn = lambda data: self.reverse_data(data, supports)
        self.synthesizer = Model({f"col{i}": column for i, column in enumerate(labels)})


class Model:
    def __init__(self, columns):
        self.columns = columns

    def project(self, names):
        counts = np.zeros([self.columns[name].max() + 1 for name in names])
        np.add.at(counts, tuple(self.columns[name] for name in names), 1.0)
        return SimpleNamespace(values=counts)
"""

_CLIQUES = [(0, 1, 4), (4, 1, 0), (1, 4, 3), (3, 2, 0), (2, 0, 1)]


@pytest.fixture
def stand_ins(tmp_path, monkeypatch):
    """Put the stand-ins before whatever is installed, in the programs that are started."""
    files = {"mbi.py": _MBI, "polars.py": _POLARS, "snsynth.py": _SNSYNTH, "opendp/prelude.py": _OPENDP}
    files |= {"opendp/__init__.py": "", "opendp/extras/__init__.py": "", "opendp/extras/mbi.py": "Marginals = None"}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("QUORATE_PEERS", raising=False)


@pytest.fixture
def rows():
    """A table whose marginals differ under every exchange of columns or codes.

    The second code of the second column does not occur; codes 0 and 2 of the last occur with the same rows.
    """
    base = np.array([cell for place, cell in enumerate(np.ndindex(3, 3, 2, 3)) for _ in range(1 + place % 11)])
    base[:, 1] = np.array([0, 2, 3])[base[:, 1]]
    parts = [(0, base), (2, base), (1, base[base[:, 0] > 0]), (3, base[base[:, 3] < 2])]
    codes = np.concatenate([np.column_stack([part, np.full(len(part), code)]) for code, part in parts])
    return Rows(codes, (3, 4, 2, 3, 4))


@pytest.mark.parametrize("name", sorted(PEERS))
def test_an_exact_peer_has_no_error_whatever_the_order_of_columns_and_codes(name, stand_ins, rows):
    error, distance, seconds = run_peer(name, Marginals(rows.sizes, _CLIQUES), rows, epsilon=1.0, limit=300.0)
    assert error < 1e-12
    assert distance < 1e-12
    assert seconds > 0


@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("smartnoise_aim", "table.ravel()", "table.T.ravel()"),
        ("smartnoise_aim", "for column in clique)).values", "for column in sorted(clique))).values"),
        ("smartnoise_aim", "labeller._inverse_transform(label)", "label"),
        ("smartnoise_mst", "*whole[codes[kept]], *merged", "*merged, *whole[codes[kept]]"),
        ("opendp_aim", "left.index(axis) for axis in axes", "axes.index(axis) for axis in left"),
        ("opendp_aim", "summed.transpose", "summed.T.transpose"),
    ],
)
def test_a_wrong_order_is_seen(name, right, wrong, stand_ins, rows, monkeypatch):
    module, program = PEERS[name]
    assert program.count(right) == 1
    monkeypatch.setitem(PEERS, "wrong", (module, program.replace(right, wrong)))
    measured = run_peer("wrong", Marginals(rows.sizes, _CLIQUES), rows, epsilon=1.0, limit=300.0)
    assert measured is None or measured[0] > 0.005


@pytest.fixture
def people():
    """A table of Adult's kinds of columns: the first two and the fourth go together, and so do the others."""
    chance = np.random.default_rng(0)
    age = chance.choice([17, 18, 30, 40, 41, 55, 90], 3000, p=[0.3, 0.1, 0.2, 0.1, 0.1, 0.15, 0.05])
    sex = np.where(chance.random(3000) < age / 100, "Male", "Female")
    gain = np.where(chance.random(3000) < 0.8, 0, chance.choice([100, 2000, 99999], 3000))
    race = np.where(chance.random(3000) < 0.2 + 0.5 * (sex == "Male"), "a", np.where(age > 30, "b", "c"))
    rich = np.where(chance.random(3000) < 0.1 + 0.8 * (gain > 1000), ">50K", "<=50K")
    columns = {"age": age.astype(float), "sex": sex, "capital-gain": gain.astype(float), "race": race}
    return {name: column.tolist() for name, column in {**columns, "income>50K": rich}.items()}


def _apart(people, drawn, pairs):
    """Return the largest difference in how often two values occur together: numbers as their cells."""
    cells = {name: cells_of(name, people[name])[0] for name in ("age", "capital-gain")}

    def shares(table, pair):
        columns = [
            np.searchsorted(cells[name], table[name], side="right").astype(str) if name in cells else table[name]
            for name in pair
        ]
        found = zip(*columns, strict=True)
        return {key: count / len(columns[0]) for key, count in Counter(found).items()}

    worst = 0.0
    for pair in pairs:
        real, other = shares(people, pair), shares(drawn, pair)
        worst = max(worst, *(abs(real.get(key, 0.0) - other.get(key, 0.0)) for key in {*real, *other}))
    return worst


_TIED = [("age", "sex"), ("sex", "race"), ("capital-gain", "income>50K")]


def test_records_are_drawn_from_the_trees_that_an_exact_peer_has_fitted(stand_ins, people):
    drawn, seconds = peer_records("opendp_mst", people, people, limit=300.0)
    assert seconds > 0
    assert {len(column) for column in drawn.values()} == {100_000}
    assert min(drawn["age"]) == 17
    assert max(drawn["capital-gain"]) <= 99999
    assert 0.0 in drawn["capital-gain"]
    assert _apart(people, drawn, _TIED) < 0.01
    # No tree holds these two together: given the sex, the age says no more about the race.
    assert _apart(people, drawn, [("age", "race")]) > 0.02


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("table.project((name, other)))[drawn[name]]", "table.project((name, other)))[drawn[name] * 0]"),
        ("drawn[name] for name in names], axis=1", "drawn[name] for name in names[::-1]], axis=1"),
        ("upto[:, :-1]).sum(axis=1)", "upto).sum(axis=1) * 0"),
    ],
)
def test_records_that_are_drawn_wrongly_are_seen(right, wrong, stand_ins, people, monkeypatch):
    module, program = LEARNED_PEERS["opendp_mst"]
    assert program.count(right) == 1
    monkeypatch.setitem(LEARNED_PEERS, "wrong", (module, program.replace(right, wrong)))
    try:
        drawn = peer_records("wrong", people, people, limit=300.0)
    except IndexError:  # a code that the column does not have
        return
    assert _apart(people, drawn[0], _TIED) > 0.05
