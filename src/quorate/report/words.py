"""Numbers and names as people read them."""

import math
from numbers import Real
from typing import Any

__all__ = ["decimals_for", "figure", "percent", "words"]


def figure(value: Any) -> str:
    """Return a number as people read it; nothing for None, and anything else as its text."""
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, Real):
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    if number.is_integer():
        return f"{int(number):,}" if abs(number) < 1e15 else f"{number:.4g}"
    if 1e4 <= abs(number) < 1e15:
        return f"{number:,.0f}"
    return f"{number:,.4g}".replace("e-0", "e-")


def percent(share: float, digits: int = 1) -> str:
    """Return a share as a percentage."""
    return f"{100 * share:.{digits}f}%"


def words(name: Any) -> str:
    """Return a name of the code as words."""
    return str(name).replace("_", " ")


def decimals_for(value: float) -> int:
    """Return how many decimals show two digits of a small number that are not 0: from two to six."""
    return 6 if value <= 0 else min(6, max(2, 1 - math.floor(math.log10(value))))
