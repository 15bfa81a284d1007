"""The folder of models that a server follows: a model that comes there is loaded, and one that leaves is unloaded.

A folder is looked at again and again, because that works on every file system. One that still changes is left alone:
whoever copies a model there gets it served once the copy is complete. Of a model that is served only the manifest is
watched, which changes when it is replaced.
"""

import grp
import os
import pwd
import stat
from collections.abc import Collection, Iterator, Set
from pathlib import Path
from typing import Any

from quorate.core.errors import InvalidInput
from quorate.service._settings import is_name

MANIFEST = "manifest.json"
_PASSING = ("-wal", "-journal")  # files of SQLite that come and go, empty, while a ledger is read


class Shelf:
    """What a folder of models holds, and what of it was loaded. `taken` are names of models from elsewhere."""

    def __init__(self, root: str | Path, *, taken: Collection[str]) -> None:
        self._root, self._taken = Path(root), taken
        try:
            status = self._root.stat()
        except OSError as error:
            raise InvalidInput(f"{root} must be a folder of models: {error.strerror}") from None
        if not stat.S_ISDIR(status.st_mode):
            raise InvalidInput(f"{root} must be a folder of models")
        check_writers(status, self._root, self._root)
        self._settled: dict[str, tuple[bool, Any]] = {}  # whether each was loaded, and how it looked
        self._changing: dict[str, Any] = {}  # how it looked the last time
        self._missing: Set[str] = set()  # what was not there the last time: a folder may be moved while it is read

    def changes(self, *, at_once: bool = False) -> list[tuple[str, bool]]:
        """Return the models to load (True) or to unload: those that have looked the same, or been gone, twice.

        With `at_once`, as at a start, what is there is not looked at twice.
        """
        try:
            found, changed = dict(self._folders()), []
        except OSError:  # A file system that is away for a while takes no model away.
            return []
        for name, path in found.items():
            loaded, former = self._settled.get(name, (False, None))
            if _look(path, loaded=loaded) == former:
                continue
            whole = _look(path, loaded=False)
            if at_once or self._changing.get(name) == whole:
                changed.append((name, True))
            self._changing[name] = whole
        missing = self._settled.keys() - found.keys()
        gone = [(name, False) for name in sorted(missing & self._missing)]
        self._missing = missing
        return changed + gone

    def settle(self, name: str, *, loaded: bool) -> None:
        """Remember how a model looks, once it was loaded, or could not be."""
        self._changing.pop(name, None)
        path = self._root / name
        if path.is_dir():
            self._settled[name] = loaded, _look(path, loaded=loaded)
        else:
            self._settled.pop(name, None)

    def _folders(self) -> Iterator[tuple[str, Path]]:
        for path in sorted(self._root.iterdir()):
            named = is_name(path.name) and path.name not in self._taken
            if named and not path.is_symlink() and (path / MANIFEST).is_file():
                yield path.name, path


def _look(path: Path, *, loaded: bool) -> Any:
    """Return what changes when a model is replaced; of one that is not loaded, when anything in it changes."""
    paths = [path / MANIFEST] if loaded else sorted(path.rglob("*"))
    stamps = [_stamp(path) for path in paths if not path.name.endswith("-shm")]
    return [stamp for stamp in stamps if stamp[-1] or not stamp[0].endswith(_PASSING)]


def _stamp(path: Path) -> tuple[str, int, int, int]:
    try:
        status = path.stat()
    except OSError:
        return str(path), 0, 0, 0
    return str(path), status.st_ino, status.st_mtime_ns, status.st_size


def check_writers(status: os.stat_result, path: Path, folder: Path) -> None:
    """Refuse a file or folder, in this folder of models, that other users may write to."""
    by_group = status.st_mode & stat.S_IWGRP and not _is_own_group(status.st_gid)
    if by_group or status.st_mode & stat.S_IWOTH:
        others = "its group" if by_group else "everybody on this machine"
        raise InvalidInput(f"{path} may be written by {others}; close it: chmod -R go-w {folder}")


def _is_own_group(group: int) -> bool:
    """Return whether this user alone is in a group, such as that of a container's volumes."""
    names = grp.getgrgid(group).gr_mem if group in {entry.gr_gid for entry in grp.getgrall()} else []
    members = {user.pw_uid for user in pwd.getpwall() if user.pw_gid == group or user.pw_name in names}
    return group == os.getegid() and members <= {os.geteuid()}
