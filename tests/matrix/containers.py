"""The containers that records and queries come in: one table of whole numbers, packed in each of them.

Where a container holds decimal numbers, those of the table are made so. A container whose types are declared (integer
matrices, data frames) keeps them whatever the values; `loose` packs a row as if it were written down afresh:
its types follow from its values.
"""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from quorate.core.arrays import Floats

Pack = Callable[[Floats, Sequence[Any]], Any]


@dataclass(frozen=True)
class Container:
    """A way to hand over rows: `pack` takes a table and a name for each row, which only some containers keep."""

    name: str
    pack: Pack
    loose: Pack
    needs: tuple[str, ...] = ()
    frame: bool = False
    decimal: bool = False

    def missing(self) -> str:
        """Return why it cannot be packed here, or nothing where it can."""
        for module in self.needs:
            try:
                importlib.import_module(module)
            except ImportError:
                return f"{module} is not installed"
        return ""


def _decimals(X: Floats) -> Floats:
    return X * 0.731 + 0.1


def _array(kind: Any, *, decimal: bool = False) -> Pack:
    def pack(X: Floats, names: Sequence[Any]) -> Any:
        values = _decimals(X) if decimal else np.where(np.isnan(X), 0.0, X)
        if np.dtype(kind).kind == "b":
            return values > 4
        limits = np.finfo(kind) if np.dtype(kind).kind == "f" else np.iinfo(kind)
        most = min(float(limits.max) / 8, 1e200) if decimal else min(float(limits.max), 2.0**40)
        return np.clip(values, max(-most, float(limits.min)), most).astype(kind)

    return pack


def _plain(X: Floats, names: Sequence[Any]) -> Any:
    """Return the numbers as they are written: a matrix of integers where all are whole."""
    whole = bool((np.abs(X) < 2.0**62).all() and (np.round(X) == X).all())
    return X.astype(np.int64) if whole else X.copy()


def _lists(X: Floats, names: Sequence[Any]) -> Any:
    return [[int(value) if value == round(value) else float(value) for value in row] for row in X.tolist()]


def _sparse(X: Floats, names: Sequence[Any]) -> Any:
    from scipy import sparse

    return sparse.csr_matrix(_decimals(X))


_KINDS = {  # of the columns, again and again
    "pandas": ("int64", "float64", "int64"),
    "pandas-index": ("int64", "float64", "int64"),
    "pandas-int": ("int64", "int64", "int64"),
    "pandas-nullable": ("Int64", "Float64", "Int64"),
    "pandas-category": ("category", "float64", "int64"),
}


def _frame(name: str, *, typed: bool) -> Pack:
    kinds, keeps_names = _KINDS[name], name == "pandas-index"

    def pack(X: Floats, names: Sequence[Any]) -> Any:
        import pandas as pd

        columns = {
            f"column {place}": _column(pd, X[:, place], kinds[place % 3], typed=typed) for place in range(X.shape[1])
        }
        return pd.DataFrame(columns, index=list(names) if keeps_names else None)

    return pack


def _column(pd: Any, values: Floats, kind: str, *, typed: bool) -> Any:
    """Return a column of this type; where it is not `typed`, of the type that its values have as they are written."""
    if kind == "category":
        texts = [f"level {int(value) % 10}" for value in np.nan_to_num(np.clip(values, 0, 1e6))]
        levels = [f"level {level}" for level in range(10)]
        return pd.Categorical(texts, categories=levels) if typed else pd.array(texts)
    if kind in ("float64", "Float64"):
        return pd.array(np.clip(_decimals(values), -1e200, 1e200), dtype=kind if typed else "float64")
    whole = np.clip(np.where(np.isnan(values), 0, values), -(2.0**40), 2.0**40)
    if not typed and (whole != np.round(whole)).any():
        return pd.array(whole, dtype="float64")
    column = pd.array(whole.astype(np.int64), dtype=kind if typed else "int64")
    if typed and kind == "Int64":
        column[np.isnan(values)] = pd.NA
    return column


def _other_frame(module: str, *, typed: bool) -> Pack:
    def pack(X: Floats, names: Sequence[Any]) -> Any:
        frame = _frame("pandas", typed=typed)(X, names)
        columns = {str(name): frame[name].to_numpy() for name in frame.columns}
        if module == "polars":
            return importlib.import_module("polars").DataFrame(columns)
        return importlib.import_module("pyarrow").table(columns)

    return pack


def _frames() -> list[Container]:
    containers = [
        Container(
            name,
            _frame(name, typed=True),
            _frame(name, typed=False),
            needs=("pandas",),
            frame=True,
            decimal=name != "pandas-int",
        )
        for name in _KINDS
    ]
    for name, module in (("polars", "polars"), ("arrow", "pyarrow")):
        packs = _other_frame(module, typed=True), _other_frame(module, typed=False)
        containers.append(Container(name, *packs, needs=("pandas", module), frame=True, decimal=True))
    return containers


CONTAINERS: dict[str, Container] = {
    one.name: one
    for one in (
        Container("float64", _array(np.float64, decimal=True), _plain, decimal=True),
        Container("float32", _array(np.float32, decimal=True), _plain, decimal=True),
        Container("int64", _array(np.int64), _plain),
        Container("uint8", _array(np.uint8), _plain),
        Container("bool", _array(np.bool_), _plain),
        Container("lists", _lists, _lists),
        Container("sparse", _sparse, _sparse, decimal=True),
        *_frames(),
    )
}
