"""Model folders whose schema nothing proves, and a loader that reads it all the same.

A schema decides what a query means: another one in the folder can swap the answers to two categories.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from quorate.auditing.planted.bug import Caught, PlantedBug
from quorate.errors import InvalidInput
from quorate.models import schema_of
from quorate.models.folder import digest_of
from quorate.tables import SCHEMA_FILE, Category, QueryEncoder, Schema

__all__ = ["FOLDERS", "any_schema_of", "swap_categories"]

Loader = Callable[[Path], Schema | None]

_CATEGORIES = ("ill", "well")


def any_schema_of(folder: Path) -> Schema | None:
    """Return the schema that lies in a folder, whether or not its manifest lists it."""
    path = folder / SCHEMA_FILE
    return Schema.load(path) if path.is_file() else None  # the mistake


def swap_categories(load: Loader) -> Caught:
    """Put a schema with swapped categories into a folder, listed or not, and look for a query that it changes."""
    attack = "swap two categories in the folder's schema"
    original, swapped = (Schema({"state": Category(order)}) for order in (_CATEGORIES, _CATEGORIES[::-1]))
    for listed in (True, False):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            before = original.to_json().encode()
            files = {SCHEMA_FILE: digest_of(before)} if listed else {}
            (folder / "manifest.json").write_text(json.dumps({"files": files}))
            if listed and _encoded(load, folder, before) != [[0.0, 1.0]]:
                raise RuntimeError("a schema that the manifest lists must be read")
            if _encoded(load, folder, swapped.to_json().encode()) == [[1.0, 0.0]]:
                evidence = f"'well' is read as 'ill' by a schema that is {'changed' if listed else 'not listed'}"
                return Caught(attack, evidence, found=True)
    return Caught(attack, "a schema that is changed, or not listed, is refused", found=False)


def _encoded(load: Loader, folder: Path, schema: bytes) -> object:
    """Return a query as a model in this folder would be asked it, or None where that is refused."""
    (folder / SCHEMA_FILE).write_bytes(schema)
    try:
        read = load(folder)
    except InvalidInput:
        return None
    return None if read is None else QueryEncoder(read).encode("state", ["well"]).tolist()


FOLDERS = (
    PlantedBug(
        "schema_without_hash",
        "a server reads a schema that the model's manifest does not list, and so does not prove",
        "state",
        lambda: any_schema_of,
        lambda: schema_of,
        lambda target, plays, seed: swap_categories(target),
    ),
)
