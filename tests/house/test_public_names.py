"""What is public is what `__all__` says, and it is documented; examples show something."""

import doctest
import importlib
import importlib.resources
import inspect
import pathlib
import pkgutil
import re
import subprocess
import sys
import types

import pytest

import quorate

DEPRECATED = {"quorate.audit"}  # importing it warns
FOUND = {info.name for info in pkgutil.walk_packages(quorate.__path__, "quorate.")}
PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text()
API = re.findall(r"^- `(quorate[\w.]*)\.(\w+)`: \S", PAGE, re.MULTILINE)
MODULES = ["quorate", *sorted(FOUND - DEPRECATED)]


@pytest.mark.parametrize("name", MODULES)
def test_all_is_what_is_public(name):
    module = importlib.import_module(name)
    assert hasattr(module, "__all__"), "every module says what is public"
    assert list(module.__all__) == sorted(module.__all__, key=lambda n: (not n.isupper(), not n[0].isupper(), n))
    for public in module.__all__:
        assert hasattr(module, public)
    defined = {
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and isinstance(value, type | types.FunctionType)
    }
    assert defined <= set(module.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_public_names_have_a_docstring(name):
    module = importlib.import_module(name)
    assert module.__doc__
    for public in module.__all__:
        value = getattr(module, public)
        if getattr(value, "__module__", None) != module.__name__ or not isinstance(value, type | types.FunctionType):
            continue
        assert value.__doc__, f"{name}.{public}"
        for member, function in vars(value).items() if isinstance(value, type) else ():
            plain = getattr(function, "fget", None) or getattr(function, "__func__", function)
            if inspect.isfunction(plain) and not member.startswith("_"):
                assert plain.__doc__, f"{name}.{public}.{member}"


@pytest.mark.parametrize(("module", "name"), API)
def test_the_api_page_is_true(module, name):
    exported = importlib.import_module(module)
    value = getattr(exported, name)
    assert name in exported.__all__
    examples = doctest.DocTestParser().get_examples(value.__doc__)
    assert examples or value is quorate.WrongProcess, f"{module}.{name} has no example"  # that one takes a fork
    silent = value is quorate.WrongProcess or value is quorate.set_progress  # which returns nothing
    assert silent or any(example.want for example in examples), f"the example of {module}.{name} shows nothing"


def test_the_api_page_lists_what_the_package_exports():
    assert len(API) == len(set(API))
    assert {name for module, name in API if module == "quorate"} == set(quorate.__all__)


@pytest.mark.parametrize("name", MODULES)
def test_examples_show_something(name):
    """A name that is its own name, or that something is there, teaches nobody anything."""
    source = inspect.getsource(importlib.import_module(name))
    examples = [line.strip() for line in source.splitlines() if line.strip().startswith(">>> ")]
    assert not [line for line in examples if line.endswith("__name__")]


def test_no_public_signature_takes_a_seed():
    serving = [m for m in MODULES if not m.startswith(("quorate.auditing.simulation", "quorate.auditing"))]
    for name in serving:
        module = importlib.import_module(name)
        for public in module.__all__:
            value = getattr(module, public)
            functions = [value, *vars(value).values()] if isinstance(value, type) else [value]
            for function in functions:
                plain = getattr(function, "__func__", function)
                if inspect.isfunction(plain):
                    named = set(inspect.signature(plain).parameters)
                    assert not named & {"seed", "random_state", "rng", "generator"}, f"{name}.{public}"


def test_the_wheel_carries_proofs_and_types():
    folder = importlib.resources.files("quorate")
    assert (folder / "py.typed").is_file()
    for mechanism in (folder / "mechanisms").iterdir():
        if (mechanism / "mechanism.py").is_file():
            assert (mechanism / "PROOF.md").is_file(), mechanism.name
    for part in ("predictors", "students", "everlasting", "ledger", "release", "held_out"):
        assert (folder / part / "PROOF.md").is_file()
    assert (folder / "privacy" / "PROOF.md").is_file()


def test_audit_is_a_function_and_its_old_package_still_imports():
    assert isinstance(quorate.audit, types.FunctionType)
    code = (
        "import warnings; warnings.simplefilter('ignore'); import quorate\n"
        "from quorate.audit import epsilon_lower_bound; import quorate.audit\n"
        "from quorate.auditing import audit, epsilon_lower_bound as same\n"
        "assert quorate.audit is audit and same is epsilon_lower_bound"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    warned = subprocess.run(
        [sys.executable, "-W", "error", "-c", "import quorate.audit"], check=False, capture_output=True, text=True
    )
    assert "DeprecationWarning: quorate.audit is a function; import from quorate.auditing" in warned.stderr
