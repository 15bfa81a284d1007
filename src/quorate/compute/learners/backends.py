"""A thin layer over NumPy and PyTorch: the few array functions whose names or behaviour differ between the two.

Code uses common spellings (`@`, `+`, `.sum(axis=...)`, `.swapaxes`, `functions.exp`) directly.
"""

import ctypes
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.core.errors import InvalidInput
from quorate.core.lazy import install_command

_EMULATED = "CUBLAS_EMULATE_DOUBLE_PRECISION"  # Makes CUDA emulate products of doubles.
_ROW = 512  # elements: along rows that are longer, a loop of NumPy's is worth its start
_SMALL = 10**6  # multiplications of a product
Array = Any  # an array of the chosen backend: numpy.ndarray or torch.Tensor


@dataclass(frozen=True, repr=False)
class Backend:
    """Array functions of one library, on one device.

    `fit_bytes` and `count_scores` (teachers times queries times scores) are the sizes of a block beyond which it gains
    nothing. `steady` backends choose their algorithms by the shape of a batch, so that every batch of chunks is filled
    up to `fit_bytes`: otherwise the last bit of a teacher's result could depend on who else is in its batch.
    """

    name: str
    fit_bytes: int
    count_scores: int
    steady: bool
    put: Callable[[NDArray[Any]], Array]  # from NumPy to the device
    take: Callable[[Array], NDArray[Any]]  # and back
    functions: Any  # the library, for functions that both spell alike: `exp`, `where`, `maximum`, `clip`, `amax`, ...
    solve: Callable[[Array, Array], Array]  # many linear systems; never raises
    product: Callable[..., Array]  # of two matrices, which writes to `out`, a contiguous one
    spread: Callable[[Array, int], Array]  # a column for rows of this length: repeated where this makes loops faster
    as_bytes: Callable[[Array], Array]  # flags as numbers of one byte, in their place
    count: Callable[..., Array]  # Column counts or sums of a matrix or a stack of matrices.
    fused: bool = False  # whether `gpu` has kernels for it that count, and fit, without writing scores to memory

    def __repr__(self) -> str:
        return f"Backend({self.name!r})"


def choose_backend(device: str) -> Backend:
    """Return what computes on this device: "cpu" with NumPy, "cuda" on a GPU with PyTorch, "torch" on the CPU with it.

    "auto" is the device that the variable QUORATE_DEVICE names, or a GPU where there is one that PyTorch can use.
    PyTorch is imported only where it is asked for, or where there is a GPU.
    """
    if device == "auto":
        device = os.environ.get("QUORATE_DEVICE", "auto")
    if device == "auto":
        device = "cuda" if _has_driver() and _has_torch() and _has_gpu() else "cpu"
    if device == "cpu":
        return _numpy()
    _check_device(device)
    return _torch("cuda" if device == "cuda" else "cpu")


def _check_device(device: str) -> None:
    """Refuse a device of PyTorch that is not there, or that would not count exactly."""
    if device not in ("torch", "cuda"):
        raise InvalidInput(f'device must be "auto", "cpu", "cuda" or "torch", not {device!r}')
    if not _has_torch():
        raise InvalidInput(f"device {device!r} needs PyTorch, which is not installed here: {install_command('torch')}")
    if device == "cuda" and not _has_gpu():
        raise InvalidInput('device "cuda" requires a GPU that PyTorch can use; use device="cpu"')
    if device == "cuda" and os.environ.get(_EMULATED, "0") not in ("", "0"):  # proof: claim B
        raise InvalidInput(f"{_EMULATED} makes products of doubles inexact, and ballots must be exact: unset it")


@contextmanager
def loops_along_rows(length: int) -> Iterator[None]:
    """Let NumPy say nothing of overflow, and take a number from each element of a long row without copying anything.

    Rows that are shorter than its buffer are copied for fewer and longer loops, which takes rows of 1000 twice as long.
    """
    with np.errstate(all="ignore"):  # Its end restores the buffer size.
        if length > _ROW:
            np.setbufsize(_ROW)
        yield


def _has_torch() -> bool:
    return importlib.util.find_spec("torch") is not None


@lru_cache(maxsize=1)
def _has_driver() -> bool:
    """Return whether the driver of a GPU is installed: importing PyTorch, to ask it, takes seconds."""
    try:
        ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return False
    return True


def _has_gpu() -> bool:
    import torch  # noqa: PLC0415

    return bool(torch.cuda.is_available())


@lru_cache(maxsize=1)
def _numpy() -> Backend:
    return Backend(
        name="numpy",
        fit_bytes=8 * 2**20,
        count_scores=90_000,
        steady=False,
        put=lambda array: array,
        take=lambda array: array,
        functions=np,
        solve=_numpy_solve,
        product=_numpy_product,
        spread=lambda column, times: column if times > _ROW else np.repeat(column, times, axis=1),
        as_bytes=lambda flags: flags.view(np.uint8),
        count=_numpy_count,
    )


def _numpy_product(rows: NDArray[Any], right: NDArray[Any], out: NDArray[Any]) -> NDArray[Any]:
    """Multiply, in two halves where each is small enough for OpenBLAS to take it as it is, without copying it first.

    `out` must be contiguous.
    """
    halved = _SMALL < rows.size * right.shape[1] <= 2 * _SMALL and len(rows) % 2 == 0
    shape = 1 + halved, -1
    np.matmul(rows.reshape(*shape, rows.shape[1]), right, out=out.reshape(*shape, out.shape[1]))
    return out


def _numpy_solve(matrices: NDArray[Any], right: NDArray[Any]) -> NDArray[Any]:
    """Solve each system; an exactly singular one returns its right side and does not affect the others."""
    try:
        return np.linalg.solve(matrices, right)
    except np.linalg.LinAlgError:
        solved = right.copy()
        for index in range(len(matrices)):
            try:
                solved[index] = np.linalg.solve(matrices[index : index + 1], right[index : index + 1])[0]
            except np.linalg.LinAlgError:
                continue
        return solved


def _numpy_count(flags: NDArray[Any], times: int = 1) -> NDArray[Any]:
    """Sum rows in bytes, as many as fit without overflow; this is as fast as reading them."""
    flags, step = flags.view(np.uint8), 255 // times
    if flags.shape[-1] < 32:
        return np.asarray(flags.sum(axis=-2, dtype=np.int64))
    total = np.add.reduce(flags[..., :step, :], axis=-2, dtype=np.uint8)
    for start in range(step, flags.shape[-2], step):
        part = np.add.reduce(flags[..., start : start + step, :], axis=-2, dtype=np.uint8)
        total = total + part.astype(np.int64)
    return np.asarray(total)


@lru_cache(maxsize=2)
def _torch(device: str) -> Backend:
    import torch  # noqa: PLC0415

    return Backend(
        name="torch",
        fit_bytes=8 * 2**20 if device == "cpu" else 2**28,
        count_scores=45_000 if device == "cpu" else 2**40,
        steady=True,
        put=lambda array: torch.tensor(array, device=device),
        take=lambda array: array.cpu().numpy(),
        functions=torch,
        solve=lambda matrices, right: torch.linalg.solve_ex(matrices, right).result,
        product=torch.mm,
        spread=lambda column, times: column,
        as_bytes=lambda flags: flags.view(torch.uint8),
        count=lambda flags, times=1: flags.sum(dim=-2),
        fused=device == "cuda" and importlib.util.find_spec("triton") is not None,
    )
