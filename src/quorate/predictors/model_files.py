"""The files that models of every kind are made of: manifests, hashes, teachers, estimators. Without pickle."""

import hashlib
import io
import json
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from quorate.ensemble.estimators import EstimatorTeachers
from quorate.errors import InvalidInput
from quorate.learners import Teachers, teachers_from_arrays
from quorate.ledger.place import LEDGER_FILES
from quorate.tables import SCHEMA_FILE

__all__ = [
    "array_from",
    "check_folder",
    "check_schema_listed",
    "checked_file",
    "digest_of",
    "from_skops",
    "listed_files",
    "manifest_text",
    "read_manifest",
    "teacher_files",
    "teachers_from",
    "to_skops",
    "with_extra",
    "write_new",
]

_FORMAT = 1
_TRUSTED = (  # scikit-learn's own, beyond those that skops lists: plain arrays with an index over them
    "sklearn.metrics._dist_metrics.EuclideanDistance64",
    "sklearn.neighbors._ball_tree.BallTree",
    "sklearn.neighbors._kd_tree.KDTree",
)


def digest_of(content: bytes) -> str:
    """Return the SHA-256 of a file's content: of a manifest it is the fingerprint that binds the ledger to the model.

    >>> digest_of(b"")[:8]
    'e3b0c442'
    """
    return hashlib.sha256(content).hexdigest()


def check_folder(folder: Path) -> None:
    """Refuse a folder that is not new or empty.

    >>> check_folder(Path("/"))
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: / exists and is not an empty folder: a model is never overwritten; choose another
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} exists and is not an empty folder: a model is never overwritten; choose another")


def with_extra(contents: dict[str, bytes], extra: dict[str, bytes] | None) -> dict[str, bytes]:
    """Return the files of a model with those that travel with it.

    >>> with_extra({"teachers.npz": b""}, {"manifest.json": b""})
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: extra must be plain and new file names, not 'manifest.json'
    """
    for name in extra or {}:
        if name in (*contents, *LEDGER_FILES, "manifest.json") or Path(name).name != name:
            raise InvalidInput(f"extra must be plain and new file names, not {name!r}")
    return contents | (extra or {})


def manifest_text(manifest: dict[str, Any], contents: dict[str, bytes]) -> bytes:
    """Return a manifest with the hashes of these files. No two are equal, not even those of equal models.

    >>> manifest_text({}, {"a": b""}) == manifest_text({}, {"a": b""})
    False
    """
    described = {"format": _FORMAT, "identity": os.urandom(16).hex()} | manifest
    described["files"] = {name: digest_of(content) for name, content in contents.items()}
    return json.dumps(described, indent=1, default=_number).encode()


def read_manifest(folder: Path) -> tuple[dict[str, Any], bytes]:
    """Return the manifest of a model, and its text. Nothing of it is proved before the ledger is opened.

    >>> read_manifest(Path("no such folder"))
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: no such folder is not a model: it has no manifest.json
    """
    try:
        text = (folder / "manifest.json").read_bytes()
    except OSError:
        raise InvalidInput(f"{folder} is not a model: it has no manifest.json") from None
    try:
        manifest = json.loads(text)
    except ValueError:
        manifest = None
    return manifest if isinstance(manifest, dict) else {}, text


def _number(value: Any) -> Any:
    """Return a NumPy number as JSON takes it."""
    return value.item() if isinstance(value, np.generic) else str(value)


def write_new(path: Path, content: bytes, *, synced: bool = False) -> None:
    """Write a new file that its owner alone may read.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_new(Path(folder) / "a", b"")
    ...     oct((Path(folder) / "a").stat().st_mode)
    '0o100600'
    """
    with open(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
        if synced:
            file.flush()
            os.fsync(file.fileno())


def checked_file(path: Path, digest: str) -> bytes:
    """Return the content of a file, or refuse one that is not what was written.

    >>> checked_file(Path("no such file"), "")
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: no such file is missing from the model
    """
    try:
        content = path.read_bytes()
    except OSError:
        raise InvalidInput(f"{path} is missing from the model") from None
    if digest_of(content) != digest:
        raise InvalidInput(f"{path} was changed after the model was saved; it is not loaded")
    return content


def listed_files(folder: Path, manifest: dict[str, Any]) -> dict[str, bytes]:
    """Return the content of every file that a manifest lists, each checked by its hash.

    A schema decides what a query means, so one that lies in the folder and is not listed is refused, not left out.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_new(Path(folder) / "schema.json", b"{}")
    ...     listed_files(Path(folder), {"files": {}})
    Traceback (most recent call last):
    ...
    quorate.errors.InvalidInput: .../schema.json is not listed in the model's manifest, so that nothing proves it; ...
    """
    check_schema_listed(folder, manifest)
    return {name: checked_file(folder / name, digest) for name, digest in manifest["files"].items()}


def check_schema_listed(folder: Path, manifest: dict[str, Any]) -> bool:
    """Return whether the model has a schema. One that its manifest does not list is refused.

    >>> check_schema_listed(Path("no such folder"), {"files": {}})
    False
    """
    listed = SCHEMA_FILE in manifest.get("files", {})
    if not listed and os.path.lexists(folder / SCHEMA_FILE):
        raise InvalidInput(
            f"{folder / SCHEMA_FILE} is not listed in the model's manifest, so that nothing proves it; take it away, "
            "or fit the model again with it (quorate fit --schema)"
        )
    return listed


def array_from(described: dict[str, Any]) -> NDArray[Any]:
    """Return an array that a manifest describes.

    >>> array_from({"values": [1, 2], "type": "<i8"})
    array([1, 2])
    """
    return np.array(described["values"], dtype=np.dtype(described["type"]))


def teacher_files(teachers: Teachers | EstimatorTeachers) -> dict[str, bytes]:
    """Return the file of fitted teachers: plain arrays where they were fitted as one.

    >>> list(teacher_files(EstimatorTeachers([(None, 0)], classes=2)))
    ['teachers.skops']
    """
    if isinstance(teachers, EstimatorTeachers):
        models, majorities = zip(*teachers.fitted, strict=True)
        kept = {"models": list(models), "majorities": list(majorities), "classes": teachers.classes}
        return {"teachers.skops": to_skops(kept)}
    file = io.BytesIO()
    np.savez(file, allow_pickle=False, **teachers.arrays())
    return {"teachers.npz": file.getvalue()}


def teachers_from(contents: dict[str, bytes], trusted: Sequence[str] | None = None) -> Teachers | EstimatorTeachers:
    """Return the teachers of a file that `teacher_files` made.

    >>> teachers_from(teacher_files(EstimatorTeachers([(None, 0)], classes=2)))
    EstimatorTeachers(teachers=1, classes=2)
    """
    if "teachers.npz" in contents:
        with np.load(io.BytesIO(contents["teachers.npz"]), allow_pickle=False) as arrays:
            return teachers_from_arrays(dict(arrays))
    kept = from_skops(contents["teachers.skops"], trusted)
    return EstimatorTeachers(list(zip(kept["models"], kept["majorities"], strict=True)), classes=kept["classes"])


def to_skops(value: Any) -> bytes:
    """Return estimators as bytes without pickle.

    >>> from_skops(to_skops([1]))
    [1]
    """
    from skops.io import dumps  # noqa: PLC0415  takes a second to load

    return bytes(dumps(value, compression=zipfile.ZIP_DEFLATED))


def from_skops(content: bytes, trusted: Sequence[str] | None = None) -> Any:
    """Return what `to_skops` wrote, where it holds no type but known ones and those of `trusted`.

    >>> from_skops(to_skops({"a": 1}))
    {'a': 1}
    """
    from skops.io import get_untrusted_types, loads  # noqa: PLC0415

    allowed = [*_TRUSTED, *(trusted or ())]
    unknown = set(get_untrusted_types(data=content)) - set(allowed)
    if unknown:
        raise InvalidInput(
            f"the model holds types that are not known to be safe: {', '.join(sorted(unknown))}; if you know them, "
            "name them in trusted="
        )
    return loads(content, trusted=allowed)
