"""A planted bug: one mistake in a sound class, the sound twin, and the attack that tells them apart."""

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal

By = Literal["game", "enumeration", "replay", "state"]
Attack = Callable[..., "Caught"]


@dataclass(frozen=True)
class Caught:
    """The result of an attack: its name, the evidence in words, and whether that breaks the claim."""

    attack: str
    evidence: str
    found: bool


@dataclass(frozen=True)
class PlantedBug:
    """One way in which this field has gone wrong, made on purpose. Nothing here may ever answer for real records.

    `broken` and `sound` make the two twins, which differ in the mistake alone; the broken one documents it. `attack`
    takes either, a game also a number of plays and a seed, and must find the first and clear the second.
    """

    name: str
    by: By
    broken: Callable[[], Any] = field(repr=False)
    sound: Callable[[], Any] = field(repr=False)
    attack: Attack = field(repr=False)

    def catch(self, plays: int = 1_000_000, *, seed: int = 0) -> Caught:
        """Attack the broken twin. Where the attack is no game, `plays` and `seed` do not matter."""
        return self._attack(self.broken(), plays, seed)

    def clear(self, plays: int = 1_000_000, *, seed: int = 0) -> Caught:
        """Attack the sound twin in the same way."""
        return self._attack(self.sound(), plays, seed)

    def _attack(self, twin: Any, plays: int, seed: int) -> Caught:
        parameters = inspect.signature(self.attack).parameters.values()
        is_game = sum(parameter.default is inspect.Parameter.empty for parameter in parameters) == 3
        return self.attack(twin, plays, seed) if is_game else self.attack(twin)


def kind_bug(name: str, by: By, broken: Any, sound: Any, attack: Attack) -> PlantedBug:
    """Return a bug whose twins are handed to the attack as they are: two classes, or two functions."""
    return PlantedBug(name, by, lambda: broken, lambda: sound, attack)


def twin_bug(name: str, by: By, broken: Any, sound: Any, attack: Attack, *values: Any, **settings: Any) -> PlantedBug:
    """Return a bug whose twins are two classes, or two functions, called with the same values and settings."""
    return PlantedBug(name, by, lambda: broken(*values, **settings), lambda: sound(*values, **settings), attack)


def maker_bug(
    name: str, by: By, make: Callable[..., Any], broken: Any, sound: Any, attack: Attack, **settings: Any
) -> PlantedBug:
    """Return a bug whose twins are made of two classes by one function, with the same settings."""
    return PlantedBug(name, by, lambda: make(broken, **settings), lambda: make(sound, **settings), attack)


def replacement_bug(name: str, by: By, of: tuple[Any, str], broken: Any, attack: Callable[[Any], Caught]) -> PlantedBug:
    """Return a bug that replaces an attribute of a module or class; both twins are what `replaced` takes.

    A function that replaces a property or a class method becomes one. A name that its owner no longer has is an error,
    so that a bug cannot fade away when the code is renamed.
    """
    kind = type(inspect.getattr_static(*of))
    replacing = kind(broken) if kind in (property, classmethod) and callable(broken) else broken
    return PlantedBug(name, by, lambda: (*of, replacing), lambda: (*of, inspect.getattr_static(*of)), attack)


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    """Replace an attribute of a module or class inside the block; a name that is not there is an error."""
    sound, inherited = inspect.getattr_static(owner, name), name not in vars(owner)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if inherited:
            delattr(owner, name)
        else:
            setattr(owner, name, sound)


class AnnouncingLock:
    """A lock that announces the first thread that has to wait for it.

    An attack that lets threads meet waits for this instead of for a time: a busy machine then delays it, and no more.
    """

    def __init__(self) -> None:
        self._lock, self.contended = threading.Lock(), threading.Event()

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self.contended.set()
            self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait_until_contended_or(self, condition: Callable[[], bool]) -> None:
        """Wait until a thread waits for this lock, or the condition holds."""
        while not condition() and not self.contended.wait(0.002):
            pass


def run_together(count: int, work: Callable[[], Any]) -> list[Any]:
    """Return what `work` gives in each of this many threads, which start together."""
    results: list[Any] = []
    together = threading.Barrier(count)

    def run() -> None:
        together.wait(timeout=300)
        results.append(work())

    workers = [threading.Thread(target=run) for _ in range(count)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=300)
    return results
