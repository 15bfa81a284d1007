"""The folder of an everlasting model: one process holds it at a time."""

import fcntl
import os
from pathlib import Path

from quorate.errors import InvalidInput

__all__ = ["LOCK", "hold", "sync"]

LOCK = "phase.lock"


def hold(folder: Path) -> int:
    """Return the open lock file of a model that no other process has open. It is let go when it is closed.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home:
    ...     file = hold(Path(home))
    ...     hold(Path(home))
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: ... is open elsewhere, and an everlasting model is asked by one process at a time; ...
    >>> os.close(file)
    """
    try:
        file = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise InvalidInput(f"{folder} cannot be locked: {error.strerror}") from None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(file)
        raise InvalidInput(
            f"{folder} is open elsewhere, and an everlasting model is asked by one process at a time; ask its server, "
            "or stop it first"
        ) from None
    return file


def sync(folder: Path) -> None:
    """Wait until the names in a folder are on the disk.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home:
    ...     sync(Path(home))
    """
    file = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
