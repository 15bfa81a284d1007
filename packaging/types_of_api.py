"""The public API under pyright: `make types`.

    python packaging/types_of_api.py build/tools/bin/basedpyright

Two things are held. A program that uses the API as the guides do (`tests/house/typed_use.py`) has no error. And every
function and method of a name in docs/reference/api.md has a type for each of its parameters and for what it returns.
Types that come from libraries without types of their own, such as scikit-learn, stay unknown; they are counted.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
NAMES = re.compile(r"^- `(quorate[\w.]*)\.(\w+)`:", re.MULTILINE)


def homes() -> set[str]:
    """Return where each public name is defined, with its module."""
    values = [
        getattr(importlib.import_module(module), name)
        for module, name in NAMES.findall((ROOT / "docs" / "reference" / "api.md").read_text(encoding="utf-8"))
    ]
    return {f"{value.__module__}.{value.__qualname__}" for value in values}


def missing(report: Mapping[str, Any], public: set[str]) -> Iterator[str]:
    """Yield what pyright finds missing in functions and methods of public names."""
    for symbol in report["typeCompleteness"]["symbols"]:
        name, owner = symbol["name"], symbol["name"].rpartition(".")[0]
        if symbol["category"] not in ("function", "method") or not {name, owner} & public:
            continue
        for found in symbol["diagnostics"]:
            if (
                "annotation" in found["message"]
                and "missing" in found["message"]
                and "override" not in found["message"]
            ):
                yield f"{name}: {found['message'].splitlines()[0]}"


def ask(pyright: str, *arguments: str) -> dict[str, Any]:
    """Return what pyright says, as JSON."""
    command = [pyright, "--outputjson", *arguments]
    place = Path(sys.executable).parent  # not by its path: pyright may follow a link to a Python without our packages
    here = os.environ | {"PATH": f"{place}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": sys.prefix}
    said = subprocess.run(command, cwd=ROOT, env=here, capture_output=True, text=True, check=False)
    try:
        return json.loads(said.stdout)
    except ValueError:
        sys.exit(f"{' '.join(command)}\n{said.stdout}{said.stderr}")


def main() -> None:
    """Hold both, and say how many types are known. The program is run too: its types are those of the values."""
    pyright = str(Path(sys.argv[1]).resolve())
    sys.path.insert(0, str(ROOT / "tests" / "house"))
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(action="ignore"):
        importlib.import_module("typed_use").use(Path(folder))
    used = ask(pyright, "--project", "pyproject.toml")
    errors = [
        f"{Path(one['file']).name}:{one['range']['start']['line'] + 1}: {one['message']}"
        for one in used["generalDiagnostics"]
        if one["severity"] == "error"
    ]
    if not used["summary"]["filesAnalyzed"]:
        errors.append("pyright looked at no file")
    report = ask(pyright, "--verifytypes", "quorate", "--ignoreexternal")
    public = homes()
    seen = {symbol["name"] for symbol in report["typeCompleteness"]["symbols"]}
    errors += [f"pyright does not see {name}" for name in sorted(public - seen)]
    errors += sorted(missing(report, public))
    counts = report["typeCompleteness"]["exportedSymbolCounts"]
    print(f"{len(public)} public names; of all symbols in all modules: {counts}")
    if errors:
        sys.exit("\n".join(errors))


if __name__ == "__main__":
    main()
