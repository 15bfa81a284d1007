"""The bar each promised figure is held against, read from bars.toml. A figure without a bar is reported only."""

import tomllib
from pathlib import Path

from quorate.bench.figures import Bar

__all__ = ["BARS"]

_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))

BARS: dict[str, dict[str, Bar | None]] = {
    bench: {name: None if bar == "none" else (bar[0], float(bar[1])) for name, bar in table.items()}
    for bench, table in _TABLES.items()
}
