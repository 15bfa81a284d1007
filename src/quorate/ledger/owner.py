"""Who holds a lease: a process, named so that another can tell whether it still runs."""

import os
import socket
from functools import lru_cache
from pathlib import Path

from quorate.process import process_identity

__all__ = ["is_gone", "owner_name"]

_SILENT = 600.0  # seconds after which a process of another host is taken for dead; an idle one returns its lease


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _started(process: int) -> str:
    """Return when a process started, or nothing where there is none, or no such file system."""
    after_name = _read(f"/proc/{process}/stat").rpartition(")")[2].split()
    return "" if len(after_name) < 20 or after_name[0] in "ZX" else after_name[19]


def _runs(process: int) -> bool:
    """Return whether there is a process of this number, where the file system does not say when it started."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _space() -> str:
    """Return what process numbers are counted in: this boot of this machine, and the namespace."""
    try:
        namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        namespace = ""
    return f"{socket.gethostname()}/{_read('/proc/sys/kernel/random/boot_id')}/{namespace}"


def owner_name() -> str:
    """Return the name of this process."""
    return _name(process_identity())


@lru_cache(maxsize=1)
def _name(process: tuple[int, int]) -> str:
    return f"{_space()}/{process[0]}/{_started(process[0])}"


def is_gone(owner: str, *, silent: float) -> bool:
    """Return whether the process of this name is dead for certain, or has been `silent` for too many seconds."""
    space, process, started = owner.rsplit("/", 2)
    if space == _space():
        return _started(int(process)) != started if started else not _runs(int(process))
    return silent > _SILENT
