"""A published model inside the folder of another: the files of its own folder, each with a prefix before its name."""

import tempfile
from pathlib import Path
from typing import Any

from quorate.core.errors import InvalidInput
from quorate.models.saving import kinds
from quorate.models.saving.folder import PublishedFolder, Trusted, open_folder

__all__ = ["files_inside", "model_inside"]


def files_inside(model: Any, prefix: str, trusted: Trusted = None) -> dict[str, bytes]:
    """Return the files of a model of Quorate's own that may be published."""
    with tempfile.TemporaryDirectory() as home:
        saved = kinds.save(model, Path(home) / "model", trusted=trusted)
        return {prefix + path.name: path.read_bytes() for path in sorted(saved.iterdir())}


def model_inside(contents: dict[str, bytes], prefix: str, trusted: Trusted) -> Any:
    """Return the model that `files_inside` has put among other files."""
    with tempfile.TemporaryDirectory() as home:
        for name, content in contents.items():
            if name.startswith(prefix):
                (Path(home) / name.removeprefix(prefix)).write_bytes(content)
        opened = open_folder(home)
        if not isinstance(opened, PublishedFolder):
            raise InvalidInput(f"the model inside is a {opened.kind}, which is not published; it is not loaded")
        return kinds.load(opened, trusted=trusted)
