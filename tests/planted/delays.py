"""A delay that depends on the query, which an attack on timing must see."""

import time
from collections.abc import Callable
from typing import Any

from planted.membership import Ask
from quorate.core.checks import check_positive


class Delayed:
    """An `ask` that takes longer over some queries: a leak, planted."""

    def __init__(self, ask: Ask, *, when: Callable[[Any], bool], seconds: float) -> None:
        self._ask, self._when, self._seconds = ask, when, check_positive("seconds", seconds)

    def __call__(self, query: Any) -> object:
        answer = self._ask(query)
        end = time.perf_counter() + (self._seconds if self._when(query) else 0.0)
        while time.perf_counter() < end:
            pass
        return answer
