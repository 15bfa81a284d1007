"""A model's folder: one manifest, written last and read once, and the files that it lists, each with its SHA-256.

    PrivateFolder      teachers, secret noise and a ledger: only for its owner (folder 0700, files 0600)
    PublishedFolder    what a guarantee covers: anybody may have it. GUARANTEE.md states the claim

The "access" entry of the manifest says which of both a folder is. A file that is not listed is not read. A schema
decides what a query means, so one that is not listed is refused. The ledger of a private folder is bound to the
manifest by its hash, so that a changed manifest is refused too; a published manifest is only as trustworthy as its
source. There is no pickle anywhere.
"""

import contextlib
import hashlib
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from quorate.core import ledger as ledgers
from quorate.core.disk import sync_path, write_new
from quorate.core.errors import InvalidInput
from quorate.core.privacy import Budget
from quorate.tables import SCHEMA_FILE, Schema

GUARANTEE_FILE = "GUARANTEE.md"
Extra = dict[str, bytes] | None  # files that travel with a model, and that its hashes cover
Trusted = list[str] | None  # types that load takes although they are not known to be safe
_FORMAT = 1
_MANIFEST = "manifest.json"
_UNCHARGED_EPSILON = 2.0**-20  # of the account of a model whose answers are not charged: a ledger has an account


class Folder(ABC):
    """The folder of a model and its manifest. `open_folder` reads one; `create` and `seal` write one."""

    access: ClassVar[str]

    def __init__(self, path: Path, manifest: dict[str, Any], text: bytes) -> None:
        self.path, self.manifest, self._text = path, manifest, text

    @property
    def kind(self) -> str:
        """The kind of model that the manifest declares."""
        return str(self.manifest.get("kind"))

    @property
    def fingerprint(self) -> str:
        """The hash of the manifest: it binds a ledger to the model."""
        return digest_of(self._text)

    @cached_property
    def contents(self) -> dict[str, bytes]:
        """The contents of the listed files. A file that is missing or was changed is refused."""
        if self.manifest.get("format") != _FORMAT:
            raise InvalidInput(f"{self.path} has format {self.manifest.get('format')!r}; this version reads {_FORMAT}")
        self._check_schema()
        return {name: checked_file(self.path / name, digest) for name, digest in self._file_digests.items()}

    def schema(self) -> Schema | None:
        """Return the schema that encodes queries, or None for a model that takes numbers as they are."""
        self._check_schema()
        if SCHEMA_FILE not in self._file_digests:
            return None
        path = self.path / SCHEMA_FILE
        return Schema.from_bytes(checked_file(path, self._file_digests[SCHEMA_FILE]), path)

    @property
    def _file_digests(self) -> dict[str, str]:
        listed: dict[str, str] = self.manifest.get("files", {})
        return listed

    def _check_schema(self) -> None:
        if SCHEMA_FILE not in self._file_digests and os.path.lexists(self.path / SCHEMA_FILE):
            raise InvalidInput(
                f"{self.path / SCHEMA_FILE} is not listed in the model's manifest, so that nothing proves it; take it "
                "away, or fit the model again with it (quorate fit --schema)"
            )

    @classmethod
    def create(
        cls,
        path: str | Path,
        kind: str,
        manifest: Mapping[str, Any],
        contents: dict[str, bytes],
        *,
        extra: Extra = None,
    ) -> Self:
        """Write the files of a new model, `extra` files included. It is not a model before `seal`."""
        for name in extra or {}:
            if name in (*contents, *ledgers.LEDGER_FILES, _MANIFEST, GUARANTEE_FILE) or Path(name).name != name:
                raise InvalidInput(f"extra must be plain and new file names, not {name!r}")
        check_folder(Path(path))
        contents = contents | (extra or {})
        described = {"format": _FORMAT, "kind": kind, "access": cls.access} | cls._identity() | dict(manifest)
        described["files"] = {name: digest_of(content) for name, content in contents.items()}
        described["extra"] = sorted(extra or {})  # listed and checked, and no part of the model
        created = cls(Path(path), described, json.dumps(described, indent=1, default=_number).encode())
        created._write(contents)
        return created

    @classmethod
    def _identity(cls) -> dict[str, Any]:
        return {}

    @abstractmethod
    def _write(self, contents: dict[str, bytes]) -> None:
        """Write files, readable by those whom the type of the folder names."""

    def seal(self) -> Path:
        """Write the manifest, after all files that it lists."""
        self._write({_MANIFEST: self._text})
        return self.path


class PrivateFolder(Folder):
    """A folder only for its owner, with a ledger. Each has its own fingerprint, even for equal models."""

    access = "private"

    @classmethod
    def _identity(cls) -> dict[str, Any]:
        return {"identity": os.urandom(16).hex()}

    def ledger(self) -> "ledgers.Ledger":
        """Open the model's ledger. It verifies the manifest, whose hash it knows."""
        return ledgers.find_ledger(self.path, fingerprint=self.fingerprint)

    def create_ledger(self, budget: Budget | None) -> "ledgers.Ledger":
        """Create the ledger of a new model, bound to its manifest; without a budget its account is never charged."""
        account = Budget(epsilon=_UNCHARGED_EPSILON, delta=0.0) if budget is None else budget
        return ledgers.Ledger.create(self.path / "ledger.sqlite", account, fingerprint=self.fingerprint)

    def _write(self, contents: dict[str, bytes]) -> None:
        sealed, begun = _MANIFEST in contents, list[str]()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.chmod(0o700)
            for name, content in contents.items():
                begun.append(name)
                write_new(self.path / name, content, synced=True)
            sync_path(self.path)
        except OSError as error:
            outcome = "it is no model, and none can load it"
            if not sealed:  # no ledger stands there yet: the folder can be used again
                _unlink(self.path, begun[:-1] if isinstance(error, FileExistsError) else begun)  # not somebody else's
                outcome = "nothing of it is there, and a classifier in memory goes on"
            raise InvalidInput(f"{self.path} cannot be written: {error.strerror}; {outcome}") from None


class PublishedFolder(Folder):
    """A folder that anybody may have: nothing in it is private. The same model gives the same bytes."""

    access = "published"

    def _write(self, contents: dict[str, bytes]) -> None:
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            for name, content in contents.items():
                (self.path / name).write_bytes(content)
        except OSError as error:
            _unlink(self.path, (*self._file_digests, _MANIFEST))  # half a model: its folder can be used again
            raise InvalidInput(
                f"{self.path} cannot be written: {error.strerror}. Nothing of it is there: make room, or choose "
                "another folder, and save it again"
            ) from None


def _unlink(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(OSError):
            (folder / name).unlink()


def open_folder(path: str | Path) -> PrivateFolder | PublishedFolder:
    """Return the folder of a model. Only its manifest is read, and nothing is verified yet."""
    path = Path(path)
    try:
        text = (path / _MANIFEST).read_bytes()
    except OSError:
        why = "it is a file, and a model is a folder" if os.path.isfile(path) else f"it has no {_MANIFEST}"
        raise InvalidInput(f"{path} is not a model: {why if os.path.exists(path) else 'it is not there'}") from None
    try:
        manifest = json.loads(text)
    except ValueError:
        manifest = None
    if (
        not isinstance(manifest, dict)
        or not _are_names(manifest.get("files", {}))
        or not isinstance(manifest.get("extra", []), list)
    ):
        raise InvalidInput(f"{path / _MANIFEST} is damaged or was changed; the model is not loaded")
    for folder_class in (PrivateFolder, PublishedFolder):
        if manifest.get("access") == folder_class.access:
            return folder_class(path, manifest, text)
    raise InvalidInput(f"{path / _MANIFEST} does not say whether the model is private or published")


def open_private(path: str | Path) -> PrivateFolder:
    """Return the folder of a model that has a ledger; one that was published has none."""
    folder = open_folder(path)
    if isinstance(folder, PublishedFolder):
        raise InvalidInput(f"{path} holds a {folder.kind} that was published: it has no ledger, and anybody may ask it")
    return folder


def _are_names(files: Any) -> bool:
    return isinstance(files, dict) and all(
        Path(name).name == name and isinstance(digest, str) for name, digest in files.items()
    )


def check_folder(folder: Path) -> None:
    """Refuse a folder that is not new or empty."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(
            f"{folder} exists and is not an empty folder: what is there is never overwritten; choose another"
        )


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def checked_file(path: Path, digest: str) -> bytes:
    """Return the content of a file, or refuse one that is not what was written."""
    try:
        content = path.read_bytes()
    except OSError:
        raise InvalidInput(f"{path} is missing from the model") from None
    if digest_of(content) != digest:
        raise InvalidInput(f"{path} was changed after the model was saved; it is not loaded")
    return content


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else str(value)
