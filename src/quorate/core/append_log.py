"""A file of queries that a model needs again after a restart: one line of JSON each, on the disk before it is used.

Several processes may append to one file. A line that a crash has cut off is left out, and so is one that is no JSON.
"""

import contextlib
import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class Journal:
    """Lines of plain values: in memory, and in a file where there is one.

    >>> journal = Journal()
    >>> journal.add([[1.5, "a"]])
    >>> journal.lines()
    [[1.5, 'a']]
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._read = path, 0
        self._lines: list[Any] = []

    def add(self, lines: Iterable[Any]) -> None:
        """Add lines, and return when they are on the disk."""
        if self._path is None:
            self._lines += lines
            return
        content = "".join(f"\n{json.dumps(line)}\n" for line in lines)  # after a line that was cut off, a new one
        descriptor = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
        with open(descriptor, "a", encoding="utf-8") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def copied(self, path: Path) -> "Journal":
        """Return a journal with the same lines in a new file."""
        copied = Journal(path)
        copied.add(self.lines())
        return copied

    def lines(self) -> list[Any]:
        """Return all lines, with those that other processes have added."""
        if self._path is not None:
            with contextlib.suppress(FileNotFoundError), open(self._path, "rb") as file:
                file.seek(self._read)
                content = file.read()
                complete = content.rpartition(b"\n")[0]
                self._read += len(complete)
                for line in complete.splitlines():
                    with contextlib.suppress(ValueError):
                        self._lines.append(json.loads(line))
        return self._lines
