"""What is done around other people's code so that nothing of it is seen or shared: warnings silenced, seeds set."""

import random
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np


class _Silence:
    """Lets no warning out: it would speak of one teacher's rows. Threads share the filters: the last restores them."""

    def __init__(self) -> None:
        self._lock, self._inside = threading.Lock(), 0
        self._filters: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._filters = warnings.catch_warnings()
                self._filters.__enter__()
                warnings.simplefilter("ignore")
            self._inside += 1
        try:
            with np.errstate(all="ignore"):
                yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._filters.__exit__(None, None, None)


silence = _Silence()
_generators = threading.RLock()  # held while the global generators are seeded


@contextmanager
def global_randomness() -> Iterator[Callable[[int], None]]:
    """Yield what seeds the global generators, before each teacher; leave them as they were found."""

    def seed(value: int) -> None:
        np.random.seed(value)  # noqa: NPY002
        random.seed(value)

    with _generators, keep_randomness():
        yield seed


@contextmanager
def keep_randomness() -> Iterator[None]:
    """Leave the global generators as they were found; threads may seed them in between, as teachers do."""
    with _generators:
        states = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        yield
    finally:
        with _generators:
            np.random.set_state(states[0])  # noqa: NPY002
            random.setstate(states[1])
