"""The programs of the peers put every column and every code in its place: run against exact stand-ins for the peers.

The stand-ins have the peers' conventions: a model that gives the axes in the order asked for, labels for the codes that
occur and for no others, rare labels merged into one that comes last.
"""

import numpy as np
import pytest

from quorate.bench.peers import PEERS, run_peer
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
        model = algorithm.estimator(Domain(names, counts.shape), counts, potentials=None)
        table = SimpleNamespace(project=lambda names: model.project(names).values)
        return SimpleNamespace(release=lambda: table)


class Context:
    @staticmethod
    def compositor(*, data, privacy_unit, privacy_loss):
        return SimpleNamespace(query=lambda *, rho: Query(data))


enable_features = unit_of = loss_of = lambda *args, **more: None
mbi = SimpleNamespace(AIM=SimpleNamespace)
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
