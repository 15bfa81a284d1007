"""The kernels of a GPU, run by Triton's interpreter on the CPU: `test_gpu.py` starts this in a process of its own.

They must count what NumPy counts, bit for bit, and fit what NumPy fits, each teacher from its own rows alone.
"""

import sys

import numpy as np
from test_gpu import KINDS, TWO, on_the_last_bit, teachers_of

from quorate.compute.learners import BatchedLogistic, Deal
from quorate.compute.learners import _gpu as gpu
from quorate.compute.learners._gpu import GpuTeachers, TwoClassChunks, fit_on_gpu


def _votes(placed, queries):
    """Return the counts of one batch, put together from its parts."""
    return np.concatenate(list(placed.votes_each([queries])), axis=1)


def counts_alike(kind: str) -> None:
    """Hold counts against NumPy's, for all queries at once, on one device and on two, and alone."""
    teachers, queries = teachers_of(kind)
    teachers.device = "cpu"
    expected = teachers.votes(queries)[:, 1:].T
    tables, intercepts = teachers.tables()
    for devices in (["cpu"], ["cpu", "cpu"]):
        placed = GpuTeachers(tables, intercepts, devices=devices)
        assert (_votes(placed, queries) == expected).all(), (kind, devices)
    gpu._REACH, whole = 2**9, gpu._REACH  # a table that is cut, since a number of 32 bits does not reach all of it
    try:
        assert (_votes(GpuTeachers(tables, intercepts, devices=["cpu"]), queries) == expected).all(), kind
    finally:
        gpu._REACH = whole
    assert (_votes(placed, queries[3:4]) == expected[:, 3:4]).all(), kind
    assert (np.concatenate(list(placed.votes_each(np.split(queries, [3, 3, 40]))), axis=1) == expected).all(), kind
    if kind in TWO:
        teachers, queries = on_the_last_bit(kind)
        teachers.device = "cpu"
        placed = GpuTeachers(*teachers.tables(), devices=["cpu"])
        assert (_votes(placed, queries) == teachers.votes(queries)[:, 1:].T).all(), kind


def fits_alike() -> None:
    """Hold teachers against NumPy's; then change all rows but those of teacher 1, which must stay to the last bit."""
    rng = np.random.default_rng(3)
    X, y = rng.normal(size=(90, 3)) * [1.0, 5.0, 0.1] + 2.0, rng.integers(1, 3, size=90)
    sizes = np.array([20, 30, 40])
    deal, starts, weights = Deal(rng.permutation(90), sizes), np.array([0, 20, 50]), np.full((3, 2), 0.5)

    def fitted(X: np.ndarray, y: np.ndarray, *, intercept: bool = True) -> np.ndarray:
        chunks = TwoClassChunks(X, y, deal.rows, starts, sizes, np.array([2, 2, 2]), weights)
        return fit_on_gpu(chunks, intercept=intercept, device="cpu")

    for intercept in (True, False):
        learner = BatchedLogistic(C=0.5, fit_intercept=intercept)
        scores = learner.fit(X, y - 1, deal, classes=2, device="cpu").arrays()["scores"][:, 0]
        assert np.abs(fitted(X, y, intercept=intercept) - scores).max() < 1e-6
    chunks = TwoClassChunks(X, y, deal.rows, starts, sizes, np.array([2, 2, 2]), weights)
    for most in (1, 50, 1000):  # rows sent together
        parts = [fit_on_gpu(part, intercept=True, device="cpu") for part in chunks.parts(most)]
        assert (np.concatenate(parts) == fitted(X, y)).all()
    others = np.delete(deal.rows, np.arange(20, 50))
    changed, labels = X.copy(), y.copy()
    changed[others], labels[others] = rng.normal(size=(60, 3)) * 1e30, 3 - y[others]
    assert (fitted(changed, labels)[1] == fitted(X, y)[1]).all()


if __name__ == "__main__":
    if sys.argv[1] == "fit":
        fits_alike()
    else:
        for name in KINDS:
            counts_alike(name)
