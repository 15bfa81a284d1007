"""`python tests/mutate.py`: change the lines that proofs cite, one at a time, and say which changes nothing notices.

Each mutant is one change of one line with `# proof:` in a copy of the package: a constant, a sign, a comparison, two
statements in the other order. First the tests nearest to its module are run on it, and then, if these pass, the runs of
`quorate audit`. What both let pass is a survivor: a missing check, or a change that means the same.

By default some mutants are tried: those with the smallest SHA-256 of their description. Nobody chooses them, and they
are the same on every machine until the lines change.
"""

import argparse
import ast
import hashlib
import itertools
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "quorate"
_CITED = re.compile(r"#.*proof:")
_SAMPLE = 60
_TEST_FILES = 3  # nearest to a module
_LIMIT = 150.0  # seconds for one check of a mutant
_TOO_SLOW: set[str] = set()  # test files that did not end in time

_SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Gt: ast.LtE,
    ast.GtE: ast.Gt,
    ast.Lt: ast.GtE,
    ast.LtE: ast.Lt,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


def mutants_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each change of a cited line of a file in words, and the source of the file with it."""
    source = path.read_text()
    cited = {number for number, line in enumerate(source.splitlines(), start=1) if _CITED.search(line)}
    for node in ast.walk(ast.parse(source)):  # a statement of several lines is cited at its end
        if isinstance(node, ast.Assign | ast.Return | ast.Expr) and {node.lineno, node.end_lineno} & cited:
            cited |= {*range(node.lineno, (node.end_lineno or 0) + 1)}
    for node in ast.walk(ast.parse(source)):
        if getattr(node, "lineno", 0) in cited and (change := _change(node)) is not None:
            place = f"{path.relative_to(SOURCES)}:{node.lineno}:{node.col_offset}:{node.end_col_offset}"
            yield f"{place}: {change[0]} becomes {change[1]}", _replaced(source, node)
        body = getattr(node, "body", None)
        for first, second in itertools.pairwise(body if isinstance(body, list) else ()):
            if first.lineno in cited and isinstance(first, ast.Expr) and isinstance(first.value, ast.Call):
                lines = source.splitlines(keepends=True)
                one, two = (slice(part.lineno - 1, part.end_lineno) for part in (first, second))
                swapped = [*lines[: one.start], *lines[two], *lines[one.stop : two.start], *lines[one]]
                said = f"{path.relative_to(SOURCES)}:{first.lineno}: after the next statement"
                yield said, "".join([*swapped, *lines[two.stop :]])


def _change(node: Any) -> tuple[Any, Any] | None:
    """Change a node if it is one of those that are changed, and return what it was and what it is."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        node.value += 1
        return node.value - 1, node.value
    operator = node.ops[0] if isinstance(node, ast.Compare) else getattr(node, "op", None)
    if type(operator) not in _SWAPS:
        return None
    other = _SWAPS[type(operator)]()
    if isinstance(node, ast.Compare):
        node.ops[0] = other
    else:
        node.op = other
    return type(operator).__name__, type(other).__name__


def _replaced(source: str, node: Any) -> str:
    """Return the source with a changed node in its place."""
    text = f"({ast.unparse(node)})" if isinstance(node, ast.expr) else ast.unparse(node)
    lines = source.encode().splitlines(keepends=True)
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    after = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    return (before + text.encode() + after).decode()


_PYTEST = ["-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", "-x"]
_RUNS = [*_PYTEST, "-m", "attack", "-k", "unit_moves and not adaptive and not search", "tests/auditing/test_charges.py"]


@cache
def nearest_tests(path: Path) -> tuple[str, ...]:
    """Return the test files nearest to a module: of its name and room, then those with most of its names."""
    names = {getattr(part, "name", "") for part in ast.parse(path.read_text()).body} - {""}
    room, stem = path.relative_to(SOURCES).parts[0], path.stem.strip("_")
    named = re.compile(rf"\b({'|'.join(sorted(names | {stem}))})\b")
    nearness = {}
    for test in (ROOT / "tests").rglob("test_*.py"):
        if mentions := len(named.findall(test.read_text())):
            nearness[str(test)] = (stem in test.stem and test.parent.name == room, mentions)
    return tuple(sorted(nearness, key=lambda test: (nearness[test], test), reverse=True))


@cache
def _is_sound(test: str) -> bool:
    """Return whether a test passes on the package as it is."""
    path = SOURCES / "__init__.py"
    done = _run_check(path, path.read_text(), [*_PYTEST, test])
    return done is not None and done.returncode == 0


def killed_by(path: Path, source: str) -> str:
    """Return what notices the mutant: a test, or else a run of the auditor, or nothing."""
    for test in itertools.islice((test for test in nearest_tests(path) if test not in _TOO_SLOW), _TEST_FILES):
        done = _run_check(path, source, [*_PYTEST, test])
        if done is None and _is_sound(test):
            return f"killed by tests: {Path(test).name} does not end"
        if done is None:  # on a busy machine this says nothing about the mutant
            _TOO_SLOW.add(test)
            continue
        if done.returncode not in (0, 1):
            return f"killed by tests: {Path(test).name} cannot be imported"
        failed = re.findall(r"^FAILED (\S+)", done.stdout, flags=re.M)
        if failed and _is_sound(failed[0]):
            return f"killed by tests: {Path(failed[0]).name}"
    done = _run_check(path, source, _RUNS)
    return "SURVIVES" if done is None or done.returncode == 0 else "killed by the auditor"


@contextmanager
def _copied(path: Path, source: str) -> Iterator[dict[str, str]]:
    """Yield the environment of a copy of the package, in which one file has this source."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "quorate" / path.relative_to(SOURCES)).write_text(source)
        yield {**os.environ, "PYTHONPATH": f"{copy}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}


def _run_check(path: Path, source: str, check: Iterable[str]) -> subprocess.CompletedProcess[str] | None:
    """Run a check on a copy of the package with this source; None if it takes too long."""
    with _copied(path, source) as environment:
        command = [sys.executable, *check]
        try:
            return subprocess.run(
                command, env=environment, cwd=ROOT, capture_output=True, timeout=_LIMIT, check=False, text=True
            )
        except subprocess.TimeoutExpired:
            return None


def rate_interval(killed: int, tried: int) -> tuple[float, float]:
    """Return the Wilson interval of a rate, at 95%."""
    centre, width = killed + 1.92, 1.96 * math.sqrt(killed * (tried - killed) / tried + 0.96)
    return (centre - width) / (tried + 3.84), (centre + width) / (tried + 3.84)


def main() -> int:
    """Try some mutants or all, print what notices each, and return 1 if more than a tenth survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=_SAMPLE, help="how many mutants to try")
    parser.add_argument("--all", action="store_true", help="try all of them: many hours")
    parser.add_argument("--under", default="", help="a folder or file of the package, such as core/mechanisms")
    options = parser.parse_args()
    paths = [path for path in sorted(SOURCES.rglob("*.py")) if str(path.relative_to(SOURCES)).startswith(options.under)]
    cited = [path for path in paths if _CITED.search(path.read_text())]
    mutants = [(path, *mutant) for path in cited for mutant in mutants_of(path)]
    chosen = sorted(mutants, key=lambda mutant: hashlib.sha256(mutant[1].encode()).digest())
    chosen = chosen if options.all else chosen[: options.sample]
    outcomes = Counter[str]()
    for path, said, source in chosen:
        outcome = killed_by(path, source)
        outcomes[outcome.split(":")[0]] += 1
        sys.stdout.write(f"{said}: {outcome}\n")
        sys.stdout.flush()
    killed = sum(count for outcome, count in outcomes.items() if outcome.startswith("killed"))
    low, high = rate_interval(killed, len(chosen))
    sys.stdout.write(
        f"{killed} of {len(chosen)} killed ({low:.0%} to {high:.0%} of all {len(mutants)} mutants at cited lines): "
        f"{', '.join(f'{count} {outcome}' for outcome, count in outcomes.items())}\n"
    )
    return int(killed < 0.9 * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
