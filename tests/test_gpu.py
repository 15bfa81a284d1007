"""Where teachers are fitted and counted: `device` on classifiers, and the kernels of a GPU.

Without a GPU the kernels run in Triton's interpreter, where PyTorch and Triton are installed. Where there is a GPU,
they run there.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from quorate.errors import InvalidInput
from quorate.learners import BatchedCentroid, BatchedLogistic, BatchedNaiveBayes, BatchedRidge, Deal, LinearTeachers
from quorate.learners.backends import choose_backend
from quorate.learners.gpu import fits_kernel

KINDS = {  # learner, classes, features, one slice
    "one product and spare columns": (BatchedLogistic(), 2, 18, True),
    "one padded product": (BatchedRidge(), 2, 7, True),
    "three products": (BatchedRidge(), 2, 5, False),
    "squares": (BatchedNaiveBayes(), 2, 4, False),
    "many columns": (BatchedRidge(), 2, 70, True),
    "twelve classes": (BatchedCentroid(), 12, 3, True),
    "three classes in two slices": (BatchedCentroid(), 3, 4, False),
}
HERE = Path(__file__).parent
installed = all(importlib.util.find_spec(name) for name in ("torch", "triton"))
needs_triton = pytest.mark.skipif(not installed, reason="PyTorch or Triton is not installed here: kernels are not run")


def gpu() -> bool:
    try:
        return choose_backend("cuda").fused
    except InvalidInput:
        return False


needs_gpu = pytest.mark.skipif(not gpu(), reason="there is no GPU here that PyTorch and Triton can use")


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


@needs_triton
@pytest.mark.skipif(gpu(), reason="the kernels run on the GPU that is here")
@pytest.mark.parametrize("what", ["count", "fit"])
def test_kernels_in_the_interpreter(what):
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    subprocess.run([sys.executable, HERE / "interpreted_kernels.py", what], check=True, env=environment)


@needs_gpu
@pytest.mark.parametrize("kind", KINDS)
def test_ballots_on_a_gpu_are_those_of_the_cpu(kind):
    teachers, queries = teachers_of(kind)
    expected = teachers.votes(queries, device="cpu")
    assert (teachers.votes(queries, device="cuda") == expected).all()
    assert (teachers.votes(queries[5:6], device="cuda") == expected[5:6]).all()
    assert (teachers.ballots(queries, device="cuda") == teachers.ballots(queries, device="cpu")).all()


@needs_gpu
@pytest.mark.parametrize("rows", [20, 300])  # fitted by the kernel, and too many for it
def test_teachers_fitted_on_a_gpu_vote_as_those_of_the_cpu(rows):
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(40 * rows, 20)), rng.integers(0, 2, size=40 * rows)
    deal = Deal(rng.permutation(len(X)), [rows] * 40)
    one, two = (BatchedLogistic().fit(X, y, deal, classes=2, device=device) for device in ("cpu", "cuda"))
    assert (one.ballots(X) == two.ballots(X)).mean() > 0.999
    changed, others = X.copy(), deal.rows[rows:]
    changed[others] = rng.normal(size=(len(others), 20)) * 9.0
    again = BatchedLogistic().fit(changed, y, deal, classes=2, device="cuda")
    assert (again.arrays()["scores"][0] == two.arrays()["scores"][0]).all()


def test_a_chunk_is_fitted_by_the_kernel_where_its_own_size_allows_it():
    assert fits_kernel(np.array([2, 50, 256, 257]), 21).tolist() == [True, True, True, False]
    assert fits_kernel(np.array([2, 129]), 64).tolist() == [True, False]
    assert not fits_kernel(np.array([2]), 65).any()


def test_device_is_cpu_unless_there_is_a_gpu(monkeypatch):
    monkeypatch.delenv("QUORATE_DEVICE", raising=False)
    assert choose_backend("auto") is choose_backend("cuda" if gpu() else "cpu")
    monkeypatch.setenv("QUORATE_DEVICE", "cpu")
    assert choose_backend("auto") is choose_backend("cpu")
    monkeypatch.setenv("QUORATE_DEVICE", "abacus")
    with pytest.raises(InvalidInput, match='device must be "auto", "cpu", "cuda" or "torch", not \'abacus\''):
        choose_backend("auto")
