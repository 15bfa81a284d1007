"""`python tests/mutate.py`: change the lines that proofs cite, one at a time, and say which changes nothing notices.

Each mutant is one change of one line with `# proof:` in a copy of the package: a constant, a sign, a comparison, two
statements in the other order. The runs of `quorate audit` are played on it, and then the tests that name its module.
What both let pass is a survivor: a missing check, or a change that means the same.
"""

import argparse
import ast
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "src" / "quorate"
_CITED = re.compile(r"#.*proof:")
_SLOW = ("engine_adaptive", "engine_residual", "engine_reweighting", "engine_plain", "search")
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
    for number, candidate in enumerate(ast.walk(ast.parse(source))):
        if getattr(candidate, "lineno", 0) in cited or isinstance(getattr(candidate, "body", None), list):
            tree = ast.parse(source)
            for said in _change(list(ast.walk(tree))[number], cited):
                yield f"{path.relative_to(SOURCES)}:{said}", ast.unparse(tree)


def _change(node: ast.AST, cited: set[int]) -> Iterator[str]:
    """Change a node that begins on a cited line, if it is one of those that are changed, and say how."""
    line = getattr(node, "lineno", 0)
    body = getattr(node, "body", None)
    if line in cited and isinstance(node, ast.Constant) and type(node.value) in (int, float):
        node.value = node.value + 1
        yield f"{line}: {node.value - 1} becomes {node.value}"
    elif line in cited and isinstance(node, ast.BinOp | ast.BoolOp) and type(node.op) in _SWAPS:
        before, node.op = type(node.op).__name__, _SWAPS[type(node.op)]()  # type: ignore[assignment]
        yield f"{line}: {before} becomes {type(node.op).__name__}"
    elif line in cited and isinstance(node, ast.Compare) and type(node.ops[0]) in _SWAPS:
        before, node.ops[0] = type(node.ops[0]).__name__, _SWAPS[type(node.ops[0])]()  # type: ignore[call-overload]
        yield f"{line}: {before} becomes {type(node.ops[0]).__name__}"
    elif isinstance(body, list):
        for place, (first, second) in enumerate(itertools.pairwise(body)):
            if first.lineno in cited and isinstance(first, ast.Expr) and isinstance(first.value, ast.Call):
                body[place], body[place + 1] = second, first
                yield f"{first.lineno}: after the next statement"
                body[place], body[place + 1] = first, second


def _tests_of(path: Path) -> list[str]:
    """Return the test files that name the module, or else its package."""
    module = ".".join(["quorate", *path.relative_to(SOURCES).with_suffix("").parts])
    for name in (module, module.rpartition(".")[0]):
        named = re.compile(rf"{re.escape(name)}\b")
        found = [str(test) for test in sorted((ROOT / "tests").rglob("test_*.py")) if named.search(test.read_text())]
        if found:
            return found
    return []


def killed_by(path: Path, source: str, *, limit: float) -> str:
    """Return what notices the mutant: the runs of the auditor, a test, or nothing; or that the time did not suffice."""
    for name, check in {"the auditor": ["-c", _RUNS], "tests": [*_PYTEST, *_tests_of(path)]}.items():
        if check != _PYTEST:
            code = _run_check(path, source, check, limit)
            if code is None:
                return "UNDECIDED: out of time"
            if code:
                unchanged = ast.unparse(ast.parse(path.read_text()))
                sound = name == "the auditor" or _run_check(path, unchanged, check, limit) == 0
                return f"killed by {name}" if sound else "UNDECIDED: tests fail without the change"
    return "SURVIVES"


_RUNS = f"""from quorate.auditing.runs import RUNS, compare_run
assert all(compare_run(name).sound for name in RUNS if name not in {_SLOW!r})"""
_PYTEST = ["-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]


def _run_check(path: Path, source: str, check: list[str], limit: float) -> int | None:
    """Return the exit code of a check on a copy of the package with this source; None if it takes too long."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(ROOT / "src", copy, ignore=shutil.ignore_patterns("__pycache__"))
        (copy / "quorate" / path.relative_to(SOURCES)).write_text(source)
        python_path = f"{copy}:{ROOT / 'tests'}"
        environment = {**os.environ, "PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1"}
        command = [sys.executable, *check]
        try:
            return subprocess.run(
                command, env=environment, cwd=ROOT, capture_output=True, timeout=limit, check=False
            ).returncode
        except subprocess.TimeoutExpired:
            return None


def main() -> int:
    """Try a sample of all mutants, print what notices each, and return 1 if more than a tenth survives."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=0, help="how many mutants to try; 0 is all of them")
    parser.add_argument("--seed", type=int, default=0, help="the seed of the sample")
    parser.add_argument("--limit", type=float, default=1200.0, help="seconds for one check of a mutant")
    parser.add_argument("--under", default="", help="a folder or file of the package, such as core/mechanisms")
    options = parser.parse_args()
    paths = [path for path in sorted(SOURCES.rglob("*.py")) if str(path.relative_to(SOURCES)).startswith(options.under)]
    cited = [path for path in paths if _CITED.search(path.read_text())]
    mutants = [(path, *mutant) for path in cited for mutant in mutants_of(path)]
    chosen = random.Random(options.seed).sample(mutants, options.sample) if options.sample else mutants
    if chosen and _run_check(chosen[0][0], chosen[0][0].read_text(), ["-c", _RUNS], options.limit) != 0:
        parser.error("the runs of the auditor do not pass on the package as it is")
    outcomes = Counter[str]()
    for path, said, source in chosen:
        outcome = killed_by(path, source, limit=options.limit)
        outcomes[outcome.split(":")[0]] += 1
        sys.stdout.write(f"{said}: {outcome}\n")
        sys.stdout.flush()
    sys.stdout.write(f"{dict(outcomes)} of {len(mutants)} mutants at cited lines\n")
    return int(outcomes["SURVIVES"] > 0.1 * len(chosen))


if __name__ == "__main__":
    sys.exit(main())
