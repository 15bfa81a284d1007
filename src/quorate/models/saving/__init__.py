"""Save, load and inspect models in folders.

    save, load              any model that can be saved, by its kind
    kind_of, schema_of      the kind and the schema that a folder declares
    reopen                  an everlasting model whose first phase was lost
    open_folder             the manifest: a PrivateFolder or a PublishedFolder
    SavedModel, State       the contract that every model keeps to, and what it says of itself

`contract` is what a class says once, `saving` what is written against it, `folder` the rules of files, and `codecs`
their contents.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quorate.models.saving.contract import SavedModel, Spending, State

if TYPE_CHECKING:
    from quorate.models.saving.folder import Folder, PrivateFolder, PublishedFolder, open_folder
    from quorate.models.saving.saving import class_of, kind_of, load, reopen, save, schema_of, whole_spending

__all__ = [
    "Folder",
    "PrivateFolder",
    "PublishedFolder",
    "SavedModel",
    "Spending",
    "State",
    "class_of",
    "kind_of",
    "load",
    "open_folder",
    "reopen",
    "save",
    "schema_of",
    "whole_spending",
]


def __getattr__(name: str) -> Any:
    """Import what reads and writes folders when it is first used: a model that is only fitted needs no ledger."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "folder" if name in ("Folder", "PrivateFolder", "PublishedFolder", "open_folder") else "saving"
    value = globals()[name] = getattr(import_module(f"{__name__}.{home}"), name)
    return value
