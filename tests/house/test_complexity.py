"""No function of the package branches so often that a reader loses its thread."""

import ast
from pathlib import Path

import quorate

PACKAGE = Path(quorate.__file__).parent
CEILING = 12
BRANCHES = (
    *(ast.If, ast.IfExp, ast.For, ast.AsyncFor, ast.While, ast.comprehension),
    *(ast.ExceptHandler, ast.Assert, ast.match_case),
)


def count_paths(function):
    """Return the cyclomatic complexity of a function, with that of the functions inside it."""
    count = 1
    for node in ast.walk(function):
        count += isinstance(node, BRANCHES)
        if isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += len(node.ifs)
    return count


def count_all(package):
    """Return the complexity of each function of a package, by its file, line and name."""
    return {
        f"{path.relative_to(package)}:{node.lineno} {node.name}": count_paths(node)
        for path in sorted(package.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def test_no_function_is_above_the_ceiling():
    assert {name: count for name, count in count_all(PACKAGE).items() if count > CEILING} == {}


def test_every_branch_is_counted(tmp_path):
    bodies = {
        "pass": 1,
        "if a: pass\n elif b and c or d: pass\n else: pass": 5,
        "for x in a: assert x\n while a: pass": 4,
        "try: pass\n except A: pass\n except B: pass": 3,
        "return {x: 1 if x else 2 for x in a if x if not x}": 5,
        "match a:\n  case 1: pass\n  case _: pass": 3,
        "def g():\n  if a: pass": 2,
    }
    for number, body in enumerate(bodies):
        (tmp_path / f"{number}.py").write_text(f"async def f():\n {body}\n")
    assert list(count_all(tmp_path).values()) == [1, 5, 4, 3, 5, 3, 2, 2]
