"""Telling a process from its parent."""

import os

from quorate.errors import WrongProcess

__all__ = ["check_process", "process_identity"]

_forks = [0]  # how many forks lie between this process and the one that imported the module


def _count_fork() -> None:
    _forks[0] += 1


os.register_at_fork(after_in_child=_count_fork)


def process_identity() -> tuple[int, int]:
    """Return what tells this process from its parent, even where a process number comes round again."""
    return os.getpid(), _forks[0]


def check_process(what: str, opened_in: tuple[int, int]) -> None:
    """Refuse to go on with something that another process opened: both would spend it."""
    if process_identity() != opened_in:
        raise WrongProcess(f"{what} was opened by another process, which may be spending it too; open one here")
