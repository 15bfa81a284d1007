"""Import on use: names of a package (a linear model needs one mechanism and no ledger), and modules of an extra."""

from collections.abc import Callable, Mapping
from importlib import import_module
from sys import modules
from typing import Any

from quorate.core.errors import InvalidInput


def import_on_use(package: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package whose names stand in its modules.

    Parameters
    ----------
    package : str
        The dotted name of the package.
    homes : mapping of str to str
        The names that each module holds, separated by spaces. The package lists the same names in `__all__`.
    """
    modules_by_name = {name: module for module, names in homes.items() for name in names.split()}

    def import_name(name: str) -> Any:
        if name not in modules_by_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(f"{package}.{modules_by_name[name]}"), name)
        setattr(modules[package], name, value)
        return value

    return import_name


def import_extra(module: str, extra: str, *, use: str) -> Any:
    """Return a module that an extra of Quorate brings, or say how to install it; `use` is the subject of the error."""
    try:
        return import_module(module)
    except ImportError as error:
        library = (error.name or module).partition(".")[0]
        raise InvalidInput(f"{use} needs {library}; install it: pip install 'quorate[{extra}]'") from None
