"""Backups of a model's folder: a consistent copy, what restoring it would charge, and putting it back.

A backup has no mark, so it is refused wherever it lies until `restore` has charged what was spent since.
"""

import fcntl
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from quorate.core.disk import sync_path, write_new
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger import LEDGER_FILE, PLACE_FILE, Ledger, find_ledger, find_losses
from quorate.core.ledger.chain import MARK_FILE

_PAGES = -1  # all in one step: of one moment
_NOT_COPIED = {MARK_FILE, LEDGER_FILE, *(Path(LEDGER_FILE).stem + suffix for suffix in (".lock", ".turn"))}
_NOT_COPIED |= {f"{LEDGER_FILE}-{suffix}" for suffix in ("wal", "shm", "journal")}


@dataclass(frozen=True)
class Drill:
    """What a restore of a backup would find.

    Parameters
    ----------
    entries
        The entries of the backup's ledger, all of which were checked.
    left
        The part of the budget that the backup says is left.
    left_by_marks
        The part that would be left after a restore by the marks of this machine; None where it has none.
    """

    entries: int
    left: float
    left_by_marks: float | None


def back_up(folder: Path, backup: Path, *, fingerprint: str) -> Drill:
    """Copy a model's folder, also while it is in use, and check every entry of the copy.

    Parameters
    ----------
    folder
        The folder of the model.
    backup
        A folder that does not exist yet. It is as private as the model.
    fingerprint
        The fingerprint of the model.
    """
    folder, backup = Path(folder), Path(backup)
    if os.path.lexists(backup):
        raise InvalidInput(f"{backup} exists, and a backup is never overwritten; choose another name")
    try:
        backup.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(dir=backup.parent, prefix=f".{backup.name}."))  # mode 700
    except OSError as error:
        raise InvalidInput(f"{backup.parent} cannot be written: {error.strerror}") from None
    try:
        _copy_files(folder, draft)
        if not (folder / PLACE_FILE).exists():
            _copy_database(folder / LEDGER_FILE, draft / LEDGER_FILE)
        drill = rehearse(folder, draft, fingerprint=fingerprint)
        for path in (*draft.iterdir(), draft):
            sync_path(path)
        os.rename(draft, backup)
        sync_path(backup.parent)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return drill


def rehearse(folder: Path, backup: Path, *, fingerprint: str) -> Drill:
    """Check that a backup can be restored, and say what that would charge. Neither of both folders is changed.

    Parameters
    ----------
    folder
        The folder of the model, which need not be there: its mark says what was spent since.
    backup
        The folder of the backup.
    fingerprint
        The fingerprint of the model.
    """
    with _folder_beside(Path(backup)) as copy:
        _copy_files(Path(backup), copy)
        if not (copy / PLACE_FILE).exists():
            _copy_file(Path(backup) / LEDGER_FILE, copy / LEDGER_FILE)
        if (Path(folder) / MARK_FILE).exists():
            shutil.copy(Path(folder) / MARK_FILE, copy / MARK_FILE)
        with closing_store(find_ledger(copy, fingerprint=fingerprint, verify=False)) as ledger:
            verification = ledger.check_entries()
            if verification.problems:
                raise LedgerRefused(f"this backup cannot be restored: {'; '.join(verification.problems)}")
            view = ledger.view()
            try:
                losses = find_losses(ledger, verification, charge="mark")
            except InvalidInput:  # no mark
                return Drill(view.entries, view.left, None)
            state = ledger.state()
            (spent, _), _ = losses.charge(state)
            return Drill(view.entries, view.left, (state.capacity[0] - spent) / state.capacity[0])


def put_back(folder: Path, backup: Path, *, fingerprint: str) -> None:
    """Put a backup in the place of a model's ledger, or of a model that is gone; `restore` then charges for it.

    Parameters
    ----------
    folder
        The folder of the model. Where it exists its marks are kept.
    backup
        The folder of the backup, of the same model.
    fingerprint
        The fingerprint of the model.
    """
    folder, backup = Path(folder), Path(backup)
    if (backup / PLACE_FILE).exists():
        raise InvalidInput(f"the ledger of {backup} is in a database: restore that by its own means")
    rehearse(folder, backup, fingerprint=fingerprint)
    _check_unused(folder, fingerprint)
    if not folder.exists():
        draft = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}."))
        _copy_files(backup, draft)
        _copy_file(backup / LEDGER_FILE, draft / LEDGER_FILE)
        os.rename(draft, folder)
        return
    draft = folder / f".{LEDGER_FILE}.{os.getpid()}"
    _copy_file(backup / LEDGER_FILE, draft)
    with open(os.open(folder / "ledger.lock", os.O_CREAT | os.O_RDWR, 0o600), "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            draft.unlink()
            raise InvalidInput(f"the ledger of {folder} is in use; stop the server first") from None
        for suffix in ("-wal", "-shm"):  # They belong to the ledger that goes. Without them it is an old one, refused.
            (folder / f"{LEDGER_FILE}{suffix}").unlink(missing_ok=True)
        os.replace(draft, folder / LEDGER_FILE)
        sync_path(folder)


def _check_unused(folder: Path, fingerprint: str) -> None:
    """Refuse to replace a ledger from which a process has a lease; one that is gone or damaged has no leases."""
    with suppress(LedgerRefused), closing_store(find_ledger(folder, fingerprint=fingerprint, verify=False)) as ledger:
        if any(not lease.gone for lease in ledger.view().leases):
            raise InvalidInput(f"a process has a lease from the ledger of {folder}; stop the server first")


@contextmanager
def _folder_beside(backup: Path) -> Iterator[Path]:
    """Make a private folder beside a backup, for a copy that is opened, and remove it at the end."""
    try:
        folder = tempfile.TemporaryDirectory(dir=backup.parent, prefix=".drill.")
    except OSError as error:
        raise InvalidInput(
            f"{backup.parent} cannot be written: {error.strerror}; copy the backup to a folder that can be"
        ) from None
    with folder as name:
        yield Path(name)


@contextmanager
def closing_store(ledger: Ledger) -> Iterator[Ledger]:
    """Close the file of a ledger at the end, without a mark."""
    try:
        yield ledger
    finally:
        ledger.close_store()


def _copy_files(source: Path, target: Path) -> None:
    """Copy the files of a folder but those of the ledger that are of one moment or one machine."""
    try:
        for path in source.iterdir():
            if path.is_file() and path.name not in _NOT_COPIED and not path.name.startswith("."):
                _copy_file(path, target / path.name)
    except OSError as error:
        raise InvalidInput(f"{source} cannot be copied: {error.strerror}") from None


def _copy_file(source: Path, target: Path) -> None:
    with source.open("rb") as old, open(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as new:
        shutil.copyfileobj(old, new)
        new.flush()
        os.fsync(new.fileno())


def _copy_database(source: Path, target: Path) -> None:
    """Copy an SQLite file as it is at one moment, with what is in its log."""
    write_new(target, b"")
    try:
        address = f"{source.absolute().as_uri()}?mode=rw"
        with closing(sqlite3.connect(address, uri=True)) as old, closing(sqlite3.connect(target)) as new:
            old.backup(new, pages=_PAGES)
            new.execute("PRAGMA journal_mode = DELETE")  # one file, which can be copied as it is
    except sqlite3.Error as error:
        raise LedgerRefused(f"{source} cannot be copied: {error}") from None
