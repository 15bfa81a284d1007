"""The types of arrays, by one name each, and arrays whose mask is taken off."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Integers", "without_mask"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def without_mask(values: Any) -> Any:
    """Return a masked array of NumPy as objects, None where it is masked, whatever stands there; all else as it is."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    plain = np.array(values, dtype=object)
    plain[np.ma.getmaskarray(values)] = None
    return plain
