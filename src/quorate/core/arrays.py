"""The types of arrays, by one name each."""

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Integers"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
