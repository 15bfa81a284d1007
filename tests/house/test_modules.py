"""No module is too small to stand alone: one below 45 lines that only one other imports belongs into that one."""

import ast
import functools
import re
from pathlib import Path

import quorate

PACKAGE = Path(quorate.__file__).parent
LINES = 45
PUBLIC_BY_DECISION = ("quorate.cli.", "quorate.core.mechanisms.")  # an application; what a reader of proofs looks up
EXCEPTIONS: set[str] = set()  # those that are a mechanism's or a proof's, by their dotted name; none is needed today


def modules_of(package):
    """Return the files of a package by their dotted names."""
    files = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return files


@functools.cache
def importers_of(package):
    """Return for each module of a package those that import it, whether at their top or inside a function."""
    files = modules_of(package)
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
        for name, importers in importers_of(package).items()
        if importers and len(importers - {name.rpartition(".")[0]}) <= 1
        if files[name].name != "__init__.py" and len(files[name].read_text().splitlines()) < LINES
    }


def test_a_small_module_has_more_than_one_importer():
    assert lone_modules(PACKAGE) == EXCEPTIONS


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


def test_private_modules_are_imported_by_their_own_package_alone():
    """An underscore says that nobody outside the folder needs a module, and its absence that somebody does."""
    files = modules_of(PACKAGE)
    documents = "".join(path.read_text() for path in Path(__file__).parents[2].joinpath("docs").rglob("*.md"))
    wrong = []
    for name, importers in importers_of(PACKAGE).items():
        package, _, module = name.rpartition(".")
        is_inside = all(user == package or user.startswith(f"{package}.") for user in importers)
        if module.startswith("_"):
            wrong += [] if is_inside else [name]
        elif is_inside and not name.startswith(PUBLIC_BY_DECISION) and files[name].name != "__init__.py":
            others = [path.read_text() for other, path in files.items() if not f"{other}.".startswith(f"{package}.")]
            wrong += [] if re.search(rf"{re.escape(name)}(?!\w)", "".join([documents, *others])) else [name]
    assert wrong == []
