"""Options that are read from signatures and docstrings of the library, so that nothing is declared twice."""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from importlib import import_module
from typing import Annotated, Any, get_origin

from cyclopts import Parameter

_NOTHING: Mapping[str, Any] = {}


def options_from(
    targets: Iterable[Any],
    *,
    skip: str = "",
    group: Any = None,
    defaults: Mapping[str, Any] = _NOTHING,
    types: Mapping[str, Any] = _NOTHING,
    helps: Mapping[str, str] = _NOTHING,
    prefix: str | None = None,
) -> Iterator[inspect.Parameter]:
    """Yield an option for each parameter of these functions or classes, which may have defaults, types and helps.

    A parameter that the first target lacks is optional. With a prefix, an environment variable may give the option.
    """
    seen = set(skip.split())
    for position, target in enumerate(targets):
        texts = _parameter_helps(target)
        for name, parameter in inspect.signature(target).parameters.items():
            if name in seen:
                continue
            seen.add(name)
            kind = types.get(name, _option_type(parameter.annotation))
            default = defaults.get(name, parameter.default)
            if position > 0:
                kind, default = kind | None, None
            variable = None if prefix is None else f"{prefix}{name.upper()}"
            yield option(name, kind, default, helps.get(name) or texts.get(name, ""), group=group, env_var=variable)


def option(name: str, kind: Any, default: Any, text: str, *, group: Any = None, env_var: Any = None) -> Any:
    """Return an option as a parameter of a command. A switch that is on by default has a negative form."""
    negative = f"--no-{name.replace('_', '-')}" if default is True else None
    settings = {"group": group, "env_var": env_var, "help": text or None, "negative": negative}
    annotation = Annotated[kind, Parameter(**{key: value for key, value in settings.items() if value is not None})]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def with_options(
    options: Iterable[inspect.Parameter], *, without: str = ""
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Return a decorator that gives a command these options for its `**settings`, and hides parameters `without`."""
    added = list(options)
    defaults = {option.name: option.default for option in added if option.default is not option.empty}

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        @wraps(command)
        def run(*arguments: Any, **settings: Any) -> int:
            return command(*arguments, **(defaults | settings))

        hidden = {*without.split(), "settings"}
        visible = [item for name, item in inspect.signature(command).parameters.items() if name not in hidden]
        parameters = sorted([*added, *visible], key=lambda parameter: parameter.kind)
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return run

    return decorate


def _option_type(annotation: Any) -> Any:
    """Return the type of an option: objects, and tuples such as bounds, are given as texts."""
    return str | None if annotation is Any or get_origin(annotation) is tuple else annotation


def _parameter_helps(target: Any) -> dict[str, str]:
    """Return what the docstring says of each parameter; "As for `X`" is read there.

    Words of Python become words of the command line: `scores` is --scores, and "auto" is auto.
    """
    parameters, helps = {*inspect.signature(target).parameters, "groups", "public"}, {}
    for names, text in re.findall(r"^(\w[\w, ]*)\n((?:    .*\n)+)", inspect.getdoc(target) or "", re.MULTILINE):
        sentence = " ".join(text.split())
        reference = re.match(r"As for `(\w+)`", sentence)
        sentence = re.sub(r"`(\w+)`", lambda word: _option_name(word[1], parameters), sentence)
        sentence = re.sub(r'"([a-z]+)"', r"\1", sentence)
        for name in names.split(", "):
            helps[name] = _parameter_helps(_find_class(reference[1])).get(name, sentence) if reference else sentence
    return helps


def _option_name(word: str, parameters: set[str]) -> str:
    return f"--{word.replace('_', '-')}" if word in parameters else f"`{word}`"


def _find_class(name: str) -> Any:
    packages = (import_module(package) for package in ("quorate", "quorate.models.predictors"))
    return next(getattr(package, name) for package in packages if hasattr(package, name))
