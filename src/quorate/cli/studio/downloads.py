"""The way back to code: a script as a notebook, and a folder as one file."""

import ast
import io
import json
import re
import zipfile
from pathlib import Path
from typing import Any

_METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def to_notebook(script: str) -> bytes:
    r"""Return a script as a Jupyter notebook: its docstring and each block of statements are cells.

    Blocks are separated by empty lines. Comments that begin a block of statements stay with it.

    >>> cells = json.loads(to_notebook("x = 1\n\n# Show it.\nprint(x)"))["cells"]
    >>> [cell["source"] for cell in cells]
    [['x = 1'], ['# Show it.\n', 'print(x)']]
    """
    about = ast.get_docstring(ast.parse(script)) or ""
    code = script.split('"""', 2)[2] if script.startswith('"""') else script
    blocks = [block.strip("\n") for block in re.split(r"\n\s*\n", code) if block.strip()]
    cells = [_cell(0, "markdown", about)] if about else []
    cells += [_cell(number, "code", block) for number, block in enumerate(blocks, start=1)]
    document = {"cells": cells, "metadata": _METADATA, "nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(document, indent=1, ensure_ascii=False) + "\n").encode()


def _cell(number: int, kind: str, text: str) -> dict[str, Any]:
    code: dict[str, Any] = {"execution_count": None, "outputs": []} if kind == "code" else {}
    return {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": text.splitlines(keepends=True)} | code


def to_zip(folder: Path) -> bytes:
    """Return a folder as a zip file that unpacks to a folder of the same name."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder.parent))
    return content.getvalue()
