"""Where arrays are computed in tests: with NumPy, with PyTorch on the CPU, and on a GPU."""

import copy
import importlib.util

import pytest

from quorate import InvalidInput
from quorate.compute.learners.backends import choose_backend

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed here, so what it computes is not tested"
)
_installed = all(importlib.util.find_spec(name) for name in ("torch", "triton"))
needs_triton = pytest.mark.skipif(not _installed, reason="PyTorch or Triton is not installed here: kernels are not run")


def has_gpu() -> bool:
    """Whether there is a GPU here that our kernels can use."""
    try:
        return choose_backend("cuda").fused
    except InvalidInput:
        return False


needs_gpu = pytest.mark.skipif(not has_gpu(), reason="there is no GPU here that PyTorch and Triton can use")
WITH_TORCH = [pytest.param("torch", marks=needs_torch), pytest.param("cuda", marks=needs_gpu)]
DEVICES = ["cpu", *WITH_TORCH]


def on(teachers, **settings):
    """Return these teachers as they count with another `device` or `memory`."""
    counted = copy.copy(teachers)
    vars(counted).update(settings)
    return counted
