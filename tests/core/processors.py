"""The second kind of processor that the suite runs on: the kernels of one without AVX-512.

NumPy and OpenBLAS choose kernels by processor, and read these variables when they are loaded. Run as a program, this
says whether the processor has the level that they switch off.
"""

import sys

import numpy as np

LEVEL = "X86_V4"
SETTINGS = {"NPY_DISABLE_CPU_FEATURES": LEVEL, "OPENBLAS_CORETYPE": "Haswell"}


def has_level():
    """Return whether NumPy uses the kernels of this level here."""
    return LEVEL in np.show_config(mode="dicts")["SIMD Extensions"]["found"]


if __name__ == "__main__":
    if not has_level():
        sys.exit(
            f"NumPy has no kernels of the level {LEVEL} here: the tests ran on the only kind of processor there is"
        )
