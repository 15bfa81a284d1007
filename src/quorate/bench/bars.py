"""The bar each promised figure is held against, read from bars.toml. A figure without a bar is reported only."""

import tomllib
from pathlib import Path

from quorate.bench.figures import Bar

__all__ = ["BARS", "bar_of"]

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

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
