"""Where teachers are fitted and counted: `device` on classifiers, and the kernels of a GPU.

Without a GPU the kernels run in Triton's interpreter, where PyTorch and Triton are installed. Where there is a GPU,
they run there.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import scale
from benchmarks.figures import BARS
from quorate import EverlastingClassifier, PrivateClassifier, load, save
from quorate.cli.options import use_device
from quorate.cli.predict import predict
from quorate.compute.learners import (
    BatchedCentroid,
    BatchedLogistic,
    BatchedNaiveBayes,
    BatchedQuadratic,
    BatchedRidge,
    Deal,
)
from quorate.compute.learners import (
    _gpu as gpu,
)
from quorate.compute.learners._gpu import GpuTeachers, TwoClassChunks, fits_kernel
from quorate.compute.learners.backends import choose_backend
from quorate.compute.learners.linear import LinearTeachers, gridded_queries, sliced
from quorate.compute.learners.teachers import Learner, count_usable
from quorate.core.errors import InvalidInput
from support.devices import WITH_TORCH, has_gpu, needs_gpu, needs_triton, on

KINDS = {  # learner, classes, features, one slice
    "one product and spare columns": (BatchedLogistic(), 2, 18, True),
    "one padded product": (BatchedRidge(), 2, 7, True),
    "three products": (BatchedRidge(), 2, 5, False),
    "three wide products": (BatchedRidge(), 2, 20, False),
    "squares": (BatchedNaiveBayes(), 2, 4, False),
    "many squares": (BatchedNaiveBayes(), 2, 33, False),
    "many columns": (BatchedRidge(), 2, 70, True),
    "twelve classes": (BatchedCentroid(), 12, 3, True),
    "three classes in two slices": (BatchedCentroid(), 3, 4, False),
}
TWO = [kind for kind, (_, classes, *_) in KINDS.items() if classes == 2]
LEARNERS = [BatchedCentroid(), BatchedLogistic(), BatchedNaiveBayes(), BatchedQuadratic(), BatchedRidge()]
HERE = Path(__file__).parents[1]


def teachers_of(kind: str, *, rows: int = 20) -> tuple[LinearTeachers, np.ndarray]:
    """Return 70 teachers, and queries: some of any size, and some on which scores are equal."""
    learner, classes, features, one_scale = KINDS[kind]
    rng = np.random.default_rng(5)
    X, y = rng.normal(size=(70 * rows, features)), rng.integers(0, classes, size=70 * rows)
    deal = Deal(rng.permutation(len(X)), [rows] * 70)
    teachers = learner.fit(X, y, deal, classes=classes, device="cpu", one_scale=one_scale)
    queries = rng.normal(size=(67, features)) * 10.0 ** rng.integers(-4, 5, size=(67, 1))
    queries[0], queries[1] = 0.0, 1e300
    return teachers, queries


def on_the_last_bit(kind: str) -> tuple[LinearTeachers, np.ndarray]:
    """Return teachers of two classes, and queries: teacher i has the score 0 on query i, or the least above it."""
    teachers, _ = teachers_of(kind)
    queries = np.random.default_rng(6).normal(size=(70, teachers.features))
    total = np.zeros(70)
    for pair, power in zip(teachers.tables()[0], (queries, queries * queries), strict=False):
        across = sliced(gridded_queries, power, len(pair))
        for rank, left in enumerate(pair):
            for right in across[: len(pair) - rank]:
                total += (left * right).sum(axis=1)  # exact; adding it to the total is not
    arrays = teachers.arrays()
    arrays["scores"][:, 0, -1] = np.where(np.arange(70) % 2, -np.nextafter(total, -np.inf), -total)
    return LinearTeachers.from_arrays(arrays), queries


@pytest.mark.parametrize("kind", TWO)
def test_scores_are_on_the_last_bit(kind):
    teachers, queries = on_the_last_bit(kind)
    assert (np.diag(on(teachers, device="cpu").ballots(queries)) == np.arange(70) % 2).all()


@needs_triton
@pytest.mark.skipif(has_gpu(), reason="the kernels run on the GPU that is here")
@pytest.mark.parametrize("what", ["count", "fit"])
def test_kernels_in_the_interpreter(what):
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    subprocess.run([sys.executable, HERE / "compute" / "interpreted_kernels.py", what], check=True, env=environment)


@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
def test_ballots_on_a_gpu_are_those_of_the_cpu(kind):
    teachers, queries = teachers_of(kind)
    expected = on(teachers, device="cpu").votes(queries)
    assert (on(teachers, device="cuda").votes(queries) == expected).all()
    assert (on(teachers, device="cuda").votes(queries[5:6]) == expected[5:6]).all()
    assert (on(teachers, device="cuda").ballots(queries) == on(teachers, device="cpu").ballots(queries)).all()
    shared = GpuTeachers(*teachers.tables(), devices=["cuda"] * 3)
    assert (expected[:, 1:] == np.concatenate(list(shared.votes_each([queries])), axis=1).T).all()


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=needs_gpu)])
@pytest.mark.parametrize("kind", ["one product and spare columns", "twelve classes"])
def test_batches_are_counted_in_turn_up_to_one_with_a_query_that_is_no_number(kind, device, monkeypatch):
    monkeypatch.setattr(gpu, "_TOGETHER", 16)  # cut in parts; the kernel's own shape is the least
    teachers, queries = teachers_of(kind)
    queries = np.concatenate([queries, -queries, 2 * queries])
    expected = on(teachers, device="cpu").votes(queries)
    cuts = [5, 5, 120, 150]
    assert (np.concatenate(list(on(teachers, device=device).votes_each(np.split(queries, cuts)))) == expected).all()
    assert (on(teachers, device=device).votes(queries) == expected).all()
    assert on(teachers, device=device).votes(queries[:0]).shape == (0, teachers.classes)
    queries[130] = np.nan
    told = []
    with pytest.raises(InvalidInput, match="finite"):
        told.extend(votes for votes in on(teachers, device=device).votes_each(np.split(queries, cuts)))
    assert (np.concatenate(told) == expected[: sum(map(len, told))]).all()
    assert 120 <= sum(map(len, told)) <= 130


@needs_gpu
@pytest.mark.parametrize("kind", TWO)
def test_a_gpu_rounds_no_score_differently(kind):
    """A compiler that adds a product to another term by term flips ballots here, and hardly ever elsewhere."""
    teachers, queries = on_the_last_bit(kind)
    assert (on(teachers, device="cuda").votes(queries) == on(teachers, device="cpu").votes(queries)).all()


@needs_gpu
@pytest.mark.parametrize("rows", [20, 300])  # fitted by the kernel, and too many for it
def test_teachers_fitted_on_a_gpu_vote_as_those_of_the_cpu(rows):
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(40 * rows, 20)), rng.integers(0, 2, size=40 * rows)
    deal = Deal(rng.permutation(len(X)), [rows] * 40)
    one, two = (BatchedLogistic().fit(X, y, deal, classes=2, device=device) for device in ("cpu", "cuda"))
    assert (one.ballots(X) == two.ballots(X)).mean() > 0.999


@needs_gpu
def test_how_much_memory_is_free_changes_no_teacher(monkeypatch):
    """The number of rows is not public where people are dealt: it must not decide how others' teachers are fitted."""
    import torch

    rng = np.random.default_rng(9)
    X, y = rng.normal(size=(2000, 20)), rng.integers(0, 2, size=2000)
    deal = Deal(rng.permutation(len(X)), [20] * 100)
    scores = []
    for free in (2**40, 2 * X.nbytes, X.nbytes, 10_000):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda free=free: (free, 2**40))
        scores.append(BatchedLogistic().fit(X, y, deal, classes=2, device="cuda").arrays()["scores"])
    assert all((one == scores[0]).all() for one in scores)


@pytest.mark.parametrize("device", WITH_TORCH)
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("learner", LEARNERS, ids=repr)
def test_a_teacher_is_the_same_in_any_company(learner, classes, device, monkeypatch):
    """Among others, among those of other rows, alone, and whatever the memory: to the last bit."""
    rng = np.random.default_rng(7)
    sizes = np.array([60, 20, 20, 33, 300, 20])
    X, y = rng.normal(size=(sizes.sum(), 5)), rng.integers(0, classes, size=sizes.sum())
    deal = Deal(rng.permutation(len(X)), sizes)

    def teacher(place: int, *arguments) -> np.ndarray:
        return learner.fit(*arguments, classes=classes, device=device).arrays()["scores"][place]

    for place in (1, 4):
        monkeypatch.undo()
        expected = teacher(place, X, y, deal)
        own = np.split(deal.rows, np.cumsum(sizes)[:-1])[place]
        others = np.setdiff1d(deal.rows, own)
        changed, labels = X.copy(), y.copy()
        changed[others], labels[others] = 1e9 * X[others], (y[others] + 1) % classes
        assert (teacher(place, changed, labels, deal) == expected).all()
        assert (teacher(0, X, y, Deal(own, [len(own)])) == expected).all()
        monkeypatch.setattr(Learner, "memory", 2**20)
        assert (teacher(place, X, y, deal) == expected).all()


def test_a_chunk_is_fitted_by_the_kernel_where_its_own_size_allows_it():
    assert fits_kernel(np.array([2, 50, 256, 257]), 21).tolist() == [True, True, True, False]
    assert fits_kernel(np.array([2, 129]), 64).tolist() == [True, False]
    assert not fits_kernel(np.array([2]), 65).any()


def test_chunks_that_are_sent_some_at_a_time_bring_their_own_rows():
    rng = np.random.default_rng(8)
    X, y, rows = rng.normal(size=(40, 3)), rng.integers(0, 2, size=40), rng.permutation(40)
    starts, sizes, upper = np.array([3, 20, 25, 31]), np.array([10, 5, 6, 9]), np.array([1, 2, 3, 4])  # 30 of 40 rows
    whole = TwoClassChunks(X, y, rows, starts, sizes, upper, np.arange(8.0).reshape(4, 2))

    def each(chunks):
        for start, size, *known in zip(chunks.starts, chunks.sizes, chunks.upper, chunks.weights, strict=True):
            own = chunks.rows[start : start + size]
            yield (
                chunks.X[own].tolist(),
                chunks.y[own].tolist(),
                np.concatenate([np.atleast_1d(a) for a in known]).tolist(),
            )

    for most, number in ((1, 4), (15, 2), (16, 2), (30, 1), (1000, 1)):
        parts = list(whole.parts(most))
        assert len(parts) == number
        assert [one for part in parts for one in each(part)] == list(each(whole))
        assert all(len(part.X) <= most or len(part.sizes) == 1 for part in parts)


@needs_gpu
@pytest.mark.parametrize("missing", [False, True])
def test_rows_that_a_gpu_counts_are_those_that_numpy_counts(missing, monkeypatch):
    monkeypatch.setattr(gpu, "_BUFFERED", 1000)
    monkeypatch.setattr(gpu, "_CHECKED", 300)
    rng = np.random.default_rng(9)
    X, y = rng.normal(size=(5000, 4)), rng.integers(-1, 4, size=5000)
    X[rng.integers(0, 5000, 60), rng.integers(0, 4, 60)] = np.resize([np.nan, np.inf, -np.inf, 1e39, -1e38, 0.0], 60)
    sizes = rng.integers(0, 30, size=200)
    deal = Deal(rng.permutation(5000)[: sizes.sum()], sizes)
    rows, counts = count_usable(X, y, deal, classes=3, missing=missing)
    placed = gpu.place_rows(X, y, deal, classes=3, missing=missing)
    assert placed.rows.cpu().numpy().tolist() == rows.tolist()
    assert placed.counts.tolist() == counts.tolist()
    assert placed.X.cpu().numpy().tobytes() == X.tobytes()
    assert placed.y.cpu().numpy().tolist() == y.tolist()


def test_device_is_cpu_unless_there_is_a_gpu(monkeypatch):
    monkeypatch.delenv("QUORATE_DEVICE", raising=False)
    assert choose_backend("auto") is choose_backend("cuda" if has_gpu() else "cpu")
    monkeypatch.setenv("QUORATE_DEVICE", "cpu")
    assert choose_backend("auto") is choose_backend("cpu")
    monkeypatch.setenv("QUORATE_DEVICE", "abacus")
    with pytest.raises(InvalidInput, match='device must be "auto", "cpu", "cuda" or "torch", not \'abacus\''):
        choose_backend("auto")


@pytest.mark.skipif(has_gpu(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused_before_anything_is_read(tmp_path):
    X, y = np.zeros((400, 1)), np.arange(400) % 2
    for classifier in (PrivateClassifier(device="cuda"), EverlastingClassifier(device="cuda")):
        with pytest.raises(InvalidInput, match=r"device .cuda. (needs PyTorch|requires a GPU)"):
            classifier.fit(X, y)
    with pytest.raises(InvalidInput, match=r"device .cuda. (needs PyTorch|requires a GPU)"):
        predict(tmp_path / "absent", tmp_path / "absent.csv", device="cuda")


def test_a_saved_model_is_loaded_on_another_device(tmp_path, monkeypatch):
    monkeypatch.setenv("QUORATE_DEVICE", "cpu")
    X = np.linspace(-1, 1, 2000)[:, np.newaxis]
    settings = {
        "epsilon": 4.0,
        "teachers": 50,
        "queries": 5,
        "classes": [0, 1],
        "device": "cuda" if has_gpu() else "cpu",
    }
    classifier = PrivateClassifier(aggregator="quorum", **settings).fit(X, (X[:, 0] > 0).astype(int))
    assert classifier.session_.answerer.ensemble.electorate.device == settings["device"]
    save(classifier, tmp_path / "model")
    classifier.session_.close()
    loaded = load(tmp_path / "model")
    assert loaded.device == loaded.session_.answerer.ensemble.electorate.device == "auto"
    assert loaded.predict([[0.9], [-0.9]]).labels.tolist() == [1, 0]
    loaded.session_.close()


def test_a_command_chooses_the_device_of_what_it_starts(monkeypatch):
    monkeypatch.setenv("QUORATE_DEVICE", "auto")
    use_device("cpu")
    assert os.environ["QUORATE_DEVICE"] == "cpu"


def test_figures_of_a_gpu_are_absent_without_one(monkeypatch):
    monkeypatch.setattr(scale, "choose_backend", lambda device: choose_backend("cpu"))
    figures = list(scale.gpu_figures(quick=True))
    assert {name for name, _, _ in figures} <= set(BARS["scale"])
    assert all(value is None for _, value, _ in figures)
