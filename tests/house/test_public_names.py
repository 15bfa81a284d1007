"""What is public is what `__all__` says, and it is documented; examples show something."""

import doctest
import importlib
import importlib.resources
import inspect
import pathlib
import pkgutil
import re
import types

import pytest

import quorate
from quorate.core import mechanisms

PAGE = (pathlib.Path(__file__).parents[2] / "docs" / "reference" / "api.md").read_text()
API = re.findall(r"^- `(quorate[\w.]*)\.(\w+)`: \S", PAGE, re.MULTILINE)
SEEDS = {"seed", "random_state", "rng", "generator"}


@pytest.fixture(scope="module")
def modules():
    """Every module of the package, by its dotted name."""
    names = ["quorate", *(info.name for info in pkgutil.walk_packages(quorate.__path__, "quorate."))]
    return {name: importlib.import_module(name) for name in sorted(names)}


def is_own(module, value):
    """Return whether a class or function is defined in this module."""
    return isinstance(value, type | types.FunctionType) and value.__module__ == module.__name__


def plain_functions(value):
    """Return the functions of a class by name, without their decorators; of a function, itself."""
    members = vars(value).items() if isinstance(value, type) else [(value.__name__, value)]
    plain = {name: getattr(member, "fget", None) or getattr(member, "__func__", member) for name, member in members}
    return {name: function for name, function in plain.items() if inspect.isfunction(function)}


def test_all_is_what_is_public(modules):
    for name, module in modules.items():
        listed = getattr(module, "__all__", None)
        if listed is None:
            assert not hasattr(module, "__path__"), f"the package {name} must have __all__"
            continue
        assert list(listed) == sorted(listed, key=lambda n: (not n.isupper(), not n[0].isupper(), n)), name
        assert all(hasattr(module, public) for public in listed), name
        own = {public for public, value in vars(module).items() if not public.startswith("_") and is_own(module, value)}
        assert own <= set(listed), name


def test_public_names_have_a_docstring(modules):
    missing = [name for name, module in modules.items() if not module.__doc__]
    for name, module in modules.items():
        for public, value in vars(module).items():
            if public.startswith("_") or not is_own(module, value):
                continue
            missing += [] if value.__doc__ else [f"{name}.{public}"]
            members = plain_functions(value) if isinstance(value, type) else {}
            missing += [
                f"{name}.{public}.{member}"
                for member, function in members.items()
                if not member.startswith("_") and not function.__doc__
            ]
    assert missing == []


def test_the_api_page_is_true():
    assert len(API) == len(set(API))
    assert {name for module, name in API if module == "quorate"} == set(quorate.__all__)
    for module, name in API:
        exported = importlib.import_module(module)
        assert name in getattr(exported, "__all__", vars(exported)), f"{module}.{name}"
        value = getattr(exported, name)
        if value is quorate.WrongProcess:  # an example would take a fork
            continue
        examples = doctest.DocTestParser().get_examples(value.__doc__)
        assert examples, f"{module}.{name} has no example"
        silent = value is quorate.set_progress  # which returns nothing
        assert silent or any(example.want for example in examples), f"the example of {module}.{name} shows nothing"


def test_examples_show_something(modules):
    """A name that is its own name, or that something is there, teaches nobody anything."""
    sources = {name: pathlib.Path(module.__file__).read_text() for name, module in modules.items()}
    assert [name for name, source in sources.items() if re.search(r"^ *>>> .*__name__$", source, re.MULTILINE)] == []


def test_no_public_signature_takes_a_seed(modules):
    for name, module in modules.items():
        if name.startswith("quorate.auditing"):
            continue
        for public, value in vars(module).items():
            if public.startswith("_") or not is_own(module, value):
                continue
            for member, function in plain_functions(value).items():
                assert not set(inspect.signature(function).parameters) & SEEDS, f"{name}.{public}.{member}"


def test_the_wheel_carries_proofs_and_types():
    folder = importlib.resources.files("quorate")
    assert (folder / "py.typed").is_file()
    core, models = folder / "core", folder / "models"
    exported = [getattr(mechanisms, name) for name in mechanisms.__all__]
    for mechanism in {value.__module__.rpartition(".")[2] for value in exported if isinstance(value, type)}:
        assert mechanism == "base" or (core / "mechanisms" / f"PROOF_{mechanism}.md").is_file(), mechanism
    for part in (
        "predictors",
        "students",
        "everlasting",
        "conformal",
        "evaluation",
        "linear",
        "knn",
        "selection",
        "text",
    ):
        assert (models / part / "PROOF.md").is_file(), part
    for part in (
        core / "privacy",
        core / "ledger",
        folder / "release",
        folder / "tables",
        folder / "compute" / "ensemble",
    ):
        assert (part / "PROOF.md").is_file(), part


def test_audit_is_a_function():
    assert isinstance(quorate.audit, types.FunctionType)
