"""The folder that a ledger's key lies in, and the key: 32 random bytes that prove the entries."""

import os
import secrets
from pathlib import Path

from quorate.errors import InvalidInput, LedgerRefused
from quorate.ledger.store import is_url

__all__ = ["folder_of", "make_key", "read_key"]

_KEY = "ledger.key"


def folder_of(place: str | Path, folder: Path | None) -> Path:
    """Return the folder of a ledger's model: that of its file unless another is given."""
    if folder is None:
        if is_url(place):
            raise InvalidInput("a ledger in PostgreSQL needs the folder of its model, where its key lies")
        return Path(place).absolute().parent
    return Path(folder).absolute()


def make_key(folder: Path) -> bytes:
    """Return the key beside the model, made where there is none yet."""
    try:
        with open(os.open(folder / _KEY, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
            file.write(secrets.token_hex(32) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except FileExistsError:
        pass
    except OSError as error:
        raise InvalidInput(f"{folder / _KEY} cannot be written: {error.strerror}") from None
    return read_key(folder)


def read_key(folder: Path) -> bytes:
    """Return the key beside the model."""
    try:
        key = bytes.fromhex((folder / _KEY).read_text(encoding="ascii").strip())
    except (OSError, ValueError):
        raise LedgerRefused(f"{folder / _KEY} is missing or is no key: without it nothing proves the ledger") from None
    if len(key) != 32:
        raise LedgerRefused(f"{folder / _KEY} is no key: it has {len(key)} bytes, not 32")
    return key
