"""Files that their owner alone may read, written whole, and on the disk before a later step relies on them."""

import os
from pathlib import Path


def write_new(path: Path, content: bytes, *, synced: bool = False) -> None:
    """Write a new file; raise `FileExistsError` where there is one."""
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        if synced:
            file.flush()
            os.fsync(file.fileno())


def write_whole(path: Path, text: str) -> None:
    """Write all of a file or nothing, over an earlier one."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    beside.unlink(missing_ok=True)
    write_new(beside, text.encode(), synced=True)
    is_new = not os.path.exists(path)
    os.replace(beside, path)
    if is_new:
        sync_path(path.parent)


def sync_path(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)
