"""The size of each room, of the tests and of the benchmarks stays within its budget in `pyproject.toml`.

Raising one takes a commit that says why.
"""

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import quorate

PACKAGE = Path(quorate.__file__).parent
ROOT = Path(__file__).parents[2]
BESIDE = ("tests", "benchmarks")  # the package, with budgets of lines of their own
BUDGET = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["quorate"]["size"]


def sources_by_room(package):
    """Return the source files of each room; files at the top of the package belong to the room "top"."""
    rooms = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        rooms.setdefault(parts[0] if len(parts) > 1 else "top", []).append(path)
    return rooms


def count_lines(paths):
    """Return the number of lines of these files."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in paths)


def count_public_names(paths):
    """Return how many names these files list in `__all__`."""
    count = 0
    for path in paths:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
                count += len(getattr(node.value, "elts", ()))
    return count


def test_every_room_is_within_its_budget_of_lines():
    rooms = sources_by_room(PACKAGE)
    lines = {room: count_lines(paths) for room, paths in rooms.items()}
    lines |= {folder: count_lines((ROOT / folder).rglob("*.py")) for folder in BESIDE}
    assert lines.keys() == BUDGET["lines"].keys()
    assert {room: count for room, count in lines.items() if count > BUDGET["lines"][room]} == {}


def test_the_house_is_within_its_budget_of_modules_and_public_names():
    paths = list(PACKAGE.rglob("*.py"))
    assert len(paths) <= BUDGET["modules"]
    assert count_public_names(paths) <= BUDGET["public-names"]


def test_budgets_are_not_far_above_what_is_used():
    """A budget with much room left would allow growth that nobody has to explain."""
    rooms = sources_by_room(PACKAGE) | {folder: [*(ROOT / folder).rglob("*.py")] for folder in BESIDE}
    loose = {
        room: BUDGET["lines"][room]
        for room, paths in rooms.items()
        if BUDGET["lines"][room] > 1.05 * count_lines(paths) + 50
    }
    assert loose == {}


@pytest.mark.parametrize(("job", "most"), [("import quorate.models.linear", 90), ("import quorate.release", 110)])
def test_an_import_loads_no_more_modules_than_it_needs(job, most):
    count = f"import sys; {job}; print(sum(name.split('.')[0] == 'quorate' for name in sys.modules))"
    output = subprocess.run([sys.executable, "-c", count], check=True, capture_output=True, text=True).stdout
    assert int(output) <= most


def test_sizes_are_counted(tmp_path):
    (tmp_path / "room").mkdir()
    (tmp_path / "top.py").write_text("a = 1\n")
    (tmp_path / "room" / "one.py").write_text('__all__ = ["b", "c"]\nb = c = 1\n')
    rooms = sources_by_room(tmp_path)
    assert {room: count_lines(paths) for room, paths in rooms.items()} == {"top": 1, "room": 2}
    assert count_public_names(rooms["room"]) == 2
