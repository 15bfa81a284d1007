"""Rows in canonical form: matrices of 64-bit floats, or data frames of floats and texts (`quorate.tables.frames`).

Whatever is joined, dealt, cached or counted is in this form, so the value of a row does not depend on its neighbours.
Two rows are the same query if and only if their canonical bytes are.
"""

import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Result = TypeVar("Result")

_DIGEST = 16  # bytes
_BLOCK = 2**14  # rows converted together
_MANY = 2**16  # rows that are worth starting threads for


def in_blocks(work: Callable[[slice], Result], rows: int, *, block: int) -> list[Result]:
    """Return what `work` makes of each block of rows, in their order; on several threads where there are many rows."""
    if rows <= block:
        return [work(slice(0, rows))] if rows else []
    parts = [slice(start, min(start + block, rows)) for start in range(0, rows, block)]
    threads = 1 if rows < _MANY else usable_cores(most=8)
    if threads == 1:
        return [work(part) for part in parts]
    size = -(-len(parts) // threads)  # handing over every block by itself would take as long as the work on some
    shares = [parts[start : start + size] for start in range(0, len(parts), size)]
    with ThreadPoolExecutor(threads) as pool:
        results_by_share = pool.map(lambda share: [work(part) for part in share], shares)
        return [result for results in results_by_share for result in results]


def usable_cores(most: int | None = None) -> int:
    """Return how many cores this process may use, by its affinity and its container's quota, or `most` if fewer help.

    >>> 1 <= usable_cores(most=2) <= 2
    True
    """
    from joblib import cpu_count  # noqa: PLC0415  # a tenth of a second, for who counts cores alone

    cores = int(cpu_count())
    return cores if most is None else min(most, cores)


def canonical_matrix(X: Any) -> NDArray[np.float64]:
    """Return numbers as 64-bit floats in C order, with one zero and one nan. A sparse matrix is filled, once."""
    return canonical_and_finite(X)[0]


def canonical_and_finite(X: Any) -> tuple[NDArray[np.float64], bool]:
    """Return the canonical matrix, and whether all its numbers are surely finite: sums tell, but for an overflow."""
    if hasattr(X, "toarray"):
        values = matrix = np.asarray(X.toarray(order="C"), dtype=np.float64)
    else:
        values = np.asarray(X, dtype=np.float64, order="C")
        matrix = np.empty_like(values)

    def put_part(part: slice) -> bool:
        rows = np.add(values[part], 0.0, out=matrix[part])
        with np.errstate(all="ignore"):
            finite = bool(np.isfinite(rows.sum()))
        if not finite:
            np.copyto(rows, np.nan, where=np.isnan(rows))
        return finite

    return matrix, all(in_blocks(put_part, len(matrix), block=_BLOCK))


def take_rows(X: Any, rows: Any) -> Any:
    """Return these rows of a matrix or a data frame. A row does not keep the number that it had."""
    if hasattr(X, "iloc"):
        return X.iloc[rows].reset_index(drop=True)
    return X.take(rows) if _is_arrow(X) and not isinstance(rows, slice) else X[rows]


def copy_rows(X: Any) -> Any:
    """Return rows that an estimator may change, as some do."""
    if _is_arrow(X):
        return X  # nobody can change it
    return X.copy() if hasattr(X, "copy") else X.clone()


def join_rows(parts: Sequence[Any]) -> Any:
    """Return matrices or data frames in one canonical form as one."""
    if len(parts) == 1:
        return parts[0]
    if not parts or isinstance(parts[0], np.ndarray):
        return np.concatenate(parts) if parts else np.empty((0, 0))
    library = type(parts[0]).__module__.partition(".")[0]
    frames = importlib.import_module(library)
    if library == "pandas":
        return frames.concat(parts, ignore_index=True)
    return frames.concat_tables(parts) if library == "pyarrow" else frames.concat(parts)


def query_digests(X: Any) -> list[bytes]:
    """Return 16 bytes for each row in canonical form, which tell one query from another."""
    if len(X) == 0:
        return []
    names = named_rows(X) if isinstance(X, np.ndarray) else _named_frame_rows(X)
    return [blake2b(name, digest_size=_DIGEST).digest() for name in names]


def named_rows(X: NDArray[Any]) -> list[bytes]:
    """Return the bytes of each row of a matrix, after one that says so: what the digest of the row is made of."""
    rows = np.ascontiguousarray(X).view(np.uint8).reshape(len(X), -1)
    return [b"d" + row.tobytes() for row in rows]


def row_digest(name: bytes) -> bytes:
    """Return the digest of a named row; a digest is returned as it is."""
    return name if len(name) == _DIGEST else blake2b(name, digest_size=_DIGEST).digest()


def _named_frame_rows(X: Any) -> list[bytes]:
    """Return the canonical bytes of each row of a frame: the names of its columns, then each value with its length."""
    names = X.column_names if _is_arrow(X) else X.columns
    header = repr([str(name) for name in names]).encode()
    columns = [_column_bytes(X[name]) for name in names]
    return [b"f" + header + b"".join(row) for row in zip(*columns, strict=True)]


def _column_bytes(column: Any) -> list[bytes]:
    if _holds_floats(column):
        return [value.tobytes() for value in canonical_matrix(column.to_numpy())]
    return [_text_bytes(value) for value in (column.to_pylist() if _is_arrow(column) else column.to_list())]


def _text_bytes(value: Any) -> bytes:
    """Return the bytes of a text or a missing one. Any other value would be one query with all missing texts."""
    if isinstance(value, str):
        text = value.encode()
        return b"%d:%b" % (len(text), text)
    if value is None or value != value:  # noqa: PLR0124  a nan
        return b"-"
    raise TypeError("rows must be in canonical form, of floats and texts")


def _holds_floats(column: Any) -> bool:
    """Return whether a column of a canonical frame is of floats."""
    if _is_arrow(column):
        return str(column.type) == "double"
    kind = column.dtype
    return kind.kind == "f" if isinstance(kind, np.dtype) else str(kind) == "Float64"


def _is_arrow(X: Any) -> bool:
    """Return whether this is a table or a column of Arrow, which stand for frames where no library of frames is."""
    return type(X).__module__.partition(".")[0] == "pyarrow"
