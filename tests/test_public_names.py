"""What is public is what `__all__` says, and it is documented with an example that runs."""

import importlib
import importlib.resources
import inspect
import pkgutil
import types

import pytest

import quorate

# What a command runs, on data it makes or reads itself: an example stands only where it shows something.
RUN_BY_COMMANDS = (
    "quorate.bench",
    "quorate.cli.commands.fit_options",  # what --help prints
    "quorate.demo",
    "quorate.report.plan_page",
    "quorate.report.theory",
)
MODULES = ["quorate", *(info.name for info in pkgutil.walk_packages(quorate.__path__, "quorate."))]


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
def test_public_names_have_a_docstring_with_an_example(name):
    module = importlib.import_module(name)
    assert module.__doc__
    for public in module.__all__:
        value = getattr(module, public)
        if getattr(value, "__module__", None) != module.__name__ or not isinstance(value, type | types.FunctionType):
            continue
        if value.__name__ in {"audit", "bench", "demo", "fit", "plan", "predict", "release", "serve"}:
            continue  # commands: their help is what they print, and tests/test_cli.py runs them
        assert value.__doc__, f"{name}.{public}"
        exempt = name.startswith(RUN_BY_COMMANDS)
        assert exempt or ">>>" in value.__doc__, f"{name}.{public} has no example"
        if not isinstance(value, type) or value.__name__ in {"Memory", "NoiseSource", "Statements", "Store"}:
            continue
        for member, function in vars(value).items():
            if member.startswith("_") or getattr(function, "__isabstractmethod__", False):
                continue
            plain = getattr(function, "fget", None) or getattr(function, "__func__", function)
            if inspect.isfunction(plain):
                assert plain.__doc__, f"{name}.{public}.{member}"
                assert exempt or ">>>" in plain.__doc__, f"{name}.{public}.{member} has no example"


def test_no_public_signature_takes_a_seed():
    serving = [m for m in MODULES if not m.startswith(("quorate.simulation", "quorate.audit"))]
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
    for part in ("predictors", "students", "everlasting", "ledger", "release"):
        assert (folder / part / "PROOF.md").is_file()
    assert (folder / "privacy" / "PROOF.md").is_file()
