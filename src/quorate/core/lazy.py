"""Import on use: names of a package (a linear model needs one mechanism and no ledger), and modules of an extra."""

import ast
import json
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from sys import modules
from typing import Any
from urllib.parse import unquote, urlsplit

from quorate.core.errors import InvalidInput


def import_on_use(package: str, file: str) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package that imports its names when they are used first.

    The package imports them under `if TYPE_CHECKING`, for type checkers. Its source says where each name is.

    Parameters
    ----------
    package : str
        The dotted name of the package.
    file : str
        The path of its `__init__.py`.
    """
    source = ast.parse(Path(file).read_text(encoding="utf-8"))
    blocks = [block for block in source.body if isinstance(block, ast.If)]
    imports = [line for block in blocks for line in block.body if isinstance(line, ast.ImportFrom)]
    modules_by_name = {alias.name: line.module for line in imports for alias in line.names}

    def import_name(name: str) -> Any:
        if name not in modules_by_name:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(str(modules_by_name[name])), name)
        setattr(modules[package], name, value)
        return value

    return import_name


def import_extra(module: str, extra: str, *, use: str) -> Any:
    """Return a module that an extra of Quorate brings, or say how to install it; `use` is the subject of the error."""
    try:
        return import_module(module)
    except ImportError as error:
        library = (error.name or module).partition(".")[0]
        raise InvalidInput(f"{use} needs {library}; install it: {install_command(extra)}") from None


def install_command(extra: str = "") -> str:
    """Return the command that installs Quorate, with an extra, from where this installation came from.

    >>> install_command("report")
    "pip install '...[report]'"
    """
    source = _source() + (f"[{extra}]" if extra else "")
    return f"pip install '{source}'"


def _source() -> str:
    """Return the folder or the file that Quorate was installed from, if it is still there; else its name."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415  # slow, and for errors alone

    with suppress(PackageNotFoundError, ValueError, KeyError):
        origin = json.loads(distribution("quorate").read_text("direct_url.json") or "{}")
        url = urlsplit(origin["url"])
        path = Path(unquote(url.path))
        if url.scheme == "file" and path.exists():
            return str(path)
    return "quorate"
