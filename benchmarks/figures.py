"""What a figure is, the bar that it is held against (bars.toml), and where the data of benches lie.

A figure without a bar is reported only.
"""

import importlib
import os
import resource
import sys
import tomllib
from pathlib import Path
from typing import Any

Figure = tuple[str, float | None, str]  # its name, its value (None where its data are absent), its unit
Bar = tuple[str, float]  # ("<=" or ">=", value)


def data_folder() -> Path:
    """Return where benchmark data lies: $QUORATE_DATA, or the folder shared/data beside this checkout."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    return Path(os.environ.get("QUORATE_DATA", beside))


def peak_bytes() -> int:
    """Return the most memory that this process has had; on Linux not counting the process it was forked from."""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) for line in status.read_text().splitlines() if line[:6] == "VmHWM:") * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


_TABLES = tomllib.loads(Path(__file__).with_name("bars.toml").read_text(encoding="utf-8"))

BARS: dict[str, dict[str, Bar | None]] = {
    bench: {name: None if bar == "none" else (bar[0], float(bar[1])) for name, bar in table.items()}
    for bench, table in _TABLES.items()
}

_QUICK = {name: float(bar[2]) for table in _TABLES.values() for name, bar in table.items() if bar[2:] and bar != "none"}


def bar_of(bench: str, name: str, *, quick: bool) -> Bar | None:
    """Return the bar of a figure; some have another one in a quick run, which measures less.

    >>> bar_of("service", "service.timing.served.paced.auc_from_half", quick=False)
    ('<=', 0.03)
    >>> bar_of("service", "service.timing.served.paced.auc_from_half", quick=True)
    ('<=', 0.07)
    """
    bar = BARS[bench][name]
    return bar if bar is None or not quick else (bar[0], _QUICK.get(name, bar[1]))


def judge(figure: Figure, bar: Bar | None) -> dict[str, Any]:
    """Return a figure and its bar as JSON has them; `holds` is None where one of the two is missing."""
    name, measured, unit = figure
    value = None if measured is None else float(measured)  # JSON has no NumPy numbers
    holds: bool | None = None
    if value is not None and bar is not None:
        holds = value <= bar[1] if bar[0] == "<=" else value >= bar[1]
    return {"name": name, "value": value, "unit": unit, "bar": f"{bar[0]} {bar[1]:g}" if bar else None, "holds": holds}


def import_planted(module: str = "") -> Any:
    """Return the planted bugs, or a module of them: they are within reach of tests and benches alone."""
    tests = str(Path(__file__).parents[1] / "tests")
    if tests not in sys.path:
        sys.path.append(tests)
    return importlib.import_module(f"planted.{module}".rstrip("."))
