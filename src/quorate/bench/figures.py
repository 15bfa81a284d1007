"""What a figure and its bar are, where the data of benches lie, and how much memory a process took."""

import os
import resource
import sys
from pathlib import Path

__all__ = ["Bar", "Figure", "data_folder", "peak_bytes"]

Figure = tuple[str, float | None, str]  # its name, its value (None where its data are absent), its unit
Bar = tuple[str, float]  # ("<=" or ">=", value)


def data_folder() -> Path:
    """Return where benchmark data lies: $QUORATE_DATA, or the folder shared/data beside this checkout."""
    beside = Path(__file__).parents[4] / "shared" / "data"
    return Path(os.environ.get("QUORATE_DATA", beside))


def peak_bytes() -> int:
    """Return the most memory that this process has had; on Linux not counting the process it was forked from."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line[:6] == "VmHWM:") * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
