"""Save, load and inspect models in folders.

    save, load              any model that can be saved, by its kind
    reopen                  an everlasting model whose first phase was lost
    open_folder             the manifest: a PrivateFolder or a PublishedFolder
    SavedModel              the contract that every model keeps to, and what it says of itself

`contract` is what a class says once, `saving` what is written against it, `folder` the rules of files, and `codecs`
their contents.
"""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use
from quorate.models.saving.contract import SavedModel

if TYPE_CHECKING:
    from quorate.models.saving.folder import Folder, PrivateFolder, PublishedFolder, open_folder
    from quorate.models.saving.saving import class_of, load, reopen, save, whole_spending

__all__ = [
    "Folder",
    "PrivateFolder",
    "PublishedFolder",
    "SavedModel",
    "class_of",
    "load",
    "open_folder",
    "reopen",
    "save",
    "whole_spending",
]

if not TYPE_CHECKING:
    __getattr__ = import_on_use(__name__, __file__)  # a model that is only fitted needs no ledger
