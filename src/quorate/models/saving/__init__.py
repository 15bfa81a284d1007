"""Save, load and inspect models in folders.

    save, load              any model that can be saved, by its kind
    kind_of, schema_of      the kind and the schema that a folder declares
    reopen                  an everlasting model whose first phase was lost
    open_folder             the manifest: a PrivateFolder or a PublishedFolder

`folder` has the rules of files, `codecs` their contents, and `kinds` a module for each kind.
"""

from typing import TYPE_CHECKING, Any

from quorate.models.saving.folder import Folder, PrivateFolder, PublishedFolder, open_folder

if TYPE_CHECKING:
    from quorate.models.saving.kinds import kind_of, load, save, schema_of
    from quorate.models.saving.kinds.everlasting import reopen

__all__ = [
    "Folder",
    "PrivateFolder",
    "PublishedFolder",
    "kind_of",
    "load",
    "open_folder",
    "reopen",
    "save",
    "schema_of",
]


def __getattr__(name: str) -> Any:
    """Find what knows the kinds when it is first asked for: predictors, which stand below, need only the folder."""
    from importlib import import_module  # noqa: PLC0415

    if name not in __all__:
        raise AttributeError(f"module 'quorate.models.saving' has no attribute {name!r}")
    return getattr(import_module("quorate.models.saving.kinds" + (".everlasting" if name == "reopen" else "")), name)
