"""UCI Adult: as twelve columns of numbers to learn from, and as the codes of 7 or 15 columns to release.

The twelve columns follow fixed rules: age up to the mid-forties, schooling, hours, capital, managers and professionals
rather than service and manual work, married earners.
"""

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.release.queries import Marginals, Rows

__all__ = ["adult_columns", "adult_split", "read_adult"]

_UPPER = ("Exec-managerial", "Prof-specialty")
_LOWER = ("Other-service", "Handlers-cleaners", "Farming-fishing", "Machine-op-inspct")


def read_adult(path: Path) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return twelve columns of the records in this file, and whether each earns more than 50,000."""
    with gzip.open(path, "rt", newline="") as file:
        table = list(csv.DictReader(file, skipinitialspace=True))

    def number(name: str) -> NDArray[np.float64]:
        return np.array([float(row[name]) for row in table])

    def among(name: str, values: tuple[str, ...]) -> NDArray[np.float64]:
        return np.array([row[name] in values for row in table], dtype=np.float64)

    age, schooling = number("age"), (number("education-num") - 10) / 2.5
    gain, loss = number("capital-gain"), number("capital-loss")
    married = among("marital-status", ("Married-civ-spouse",))
    columns = [
        np.minimum(age, 45) / 10 - 3.7,
        ((age - 45) / 15) ** 2 - 1,
        schooling,
        (number("hours-per-week") - 40) / 12,
        np.log1p(gain) / 4,
        2.0 * (gain > 5000),
        np.log1p(loss) / 4,
        2 * married - 1,
        among("occupation", _UPPER),
        among("occupation", _LOWER),
        among("sex", ("Male",)),
        married * schooling,
    ]
    rich = np.array([row["income>50K"].startswith(">") for row in table], dtype=np.int64)
    return np.stack(columns, axis=1), rich


def adult_columns(folder: Path, name: str, part: str = "") -> tuple[tuple[int, ...], Any]:
    """Return the sizes of the columns and the codes of one file of Adult, in the order of its domain."""
    domain = json.loads((folder / f"{name}_domain.json").read_text())
    with gzip.open(folder / f"{name}{part}.csv.gz", "rt", newline="") as file:
        lines = csv.reader(file)
        header = next(lines)
        codes = np.array([[int(value) for value in line] for line in lines], dtype=np.int64)
    return tuple(domain.values()), codes[:, [header.index(column) for column in domain]]


def adult_split(folder: Path, split: int) -> tuple[Marginals, Rows, Rows]:
    """Return all 3-way marginals of the 7 columns, nine tenths of the records as private and the rest as public."""
    sizes, codes = adult_columns(folder, "adult7")
    dealt = np.random.default_rng(split).permutation(len(codes))
    public = len(codes) // 10
    return Marginals.of_order(sizes, 3), Rows(codes[dealt[public:]], sizes), Rows(codes[dealt[:public]], sizes)
