"""No module is too small to stand alone: one below 45 lines that only one other imports belongs into that one."""

import ast
from pathlib import Path

import quorate

LINES = 45
EXCEPTIONS: set[str] = set()  # those that are a mechanism's or a proof's, by their dotted name; none is needed today


def modules_of(package):
    """Return the files of a package by their dotted names."""
    files = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


def importers_of(files):
    """Return for each module those that import it, whether at their top or inside a function."""
    importers = {name: set() for name in files}
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text())):
            targets = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{path}: imports are absolute"
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                targets = [one if one in files else node.module for one in whole]
            for target in targets:
                if target in files and target != name:
                    importers[target].add(name)
    return importers


def lone_modules(package):
    """Return the small modules with one importer. A package that only lists a module's names is not a second one."""
    files = modules_of(package)
    return {
        name
        for name, importers in importers_of(files).items()
        if importers and len(importers - {name.rpartition(".")[0]}) <= 1
        if files[name].name != "__init__.py" and len(files[name].read_text().splitlines()) < LINES
    }


def test_a_small_module_has_more_than_one_importer():
    assert lone_modules(Path(quorate.__file__).parent) == EXCEPTIONS


def test_the_rule_tells_small_modules_with_one_importer_from_others(tmp_path):
    package = tmp_path / "house"
    package.mkdir()
    sources = {
        "__init__": "from house.listed import a\n",
        "listed": "a = 1\n",
        "lone": "b = 1\n",
        "late": "c = 1\n",
        "shared": "d = 1\n",
        "large": "e = 1\n" * LINES,
        "one": "import house.lone\nfrom house import late, large\nfrom house.shared import d\n" * LINES,
        "two": "def f():\n    from house.shared import d\n" * LINES,
        "entry": "from house.one import lone\nfrom house.two import f\n",
    }
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source)
    assert lone_modules(package) == {"house.listed", "house.lone", "house.late"}
