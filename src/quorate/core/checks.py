"""Checks of parameters and of the process, with one error text for each, and warnings about columns of ids."""

import dataclasses
import math
import os
import re
import shlex
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from typing import Any

from quorate.core.errors import InvalidInput, WrongProcess

_SIZE = re.compile(r"(\d+(?:\.\d+)?) ?(KB|MB|GB|TB)?", re.IGNORECASE)
_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_ID = re.compile(r"(?i:(.*[_ .-])?(id|uuid|guid|nr|index|rownum|rowid)|unnamed: \d+)|.*[a-z]I[dD]")
_forks = [0]  # the number of forks between this process and the one that imported the module


def _count_fork() -> None:
    _forks[0] += 1


os.register_at_fork(after_in_child=_count_fork)


def process_identity() -> tuple[int, int]:
    """Return the identity of this process, which differs from its parent's even if the process number is reused."""
    return os.getpid(), _forks[0]


def check_bytes(name: str, value: object, *, least: int = 1) -> int:
    """Return a size in bytes, given as a whole number or as a text such as "2GB".

    >>> check_bytes("memory", "1.5GB")
    1500000000
    """
    written = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    size = round(float(written[1]) * _UNITS[(written[2] or "").upper()]) if written else value
    if isinstance(size, bool) or not isinstance(size, Integral) or int(size) < least:
        raise InvalidInput(f'{name} must be a size of at least {least:,} bytes, such as "2GB", got {value!r}')
    return int(size)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a setting that is not among the choices."""
    if value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(choices)}, got {value!r}")


def check_process(subject: str, opened_in: tuple[int, int]) -> None:
    """Refuse an object that another process opened, since both processes would spend its budget."""
    if process_identity() != opened_in:
        raise WrongProcess(f"{subject} was opened by another process, which may be spending it too; open it here again")


def _real(name: str, value: object, expected: str) -> float:
    if type(value) is float:  # The usual case, and fast: a search for an order checks thousands of values.
        return value
    if isinstance(value, bool) or not isinstance(value, Real):
        raise InvalidInput(f"{name} must be {expected}, got {value!r}")
    return float(value)


def check_positive(name: str, value: object) -> float:
    """Return `value` as a float if it is a positive finite number."""
    expected = "a positive finite number"
    number = _real(name, value, expected)
    if not 0 < number < math.inf:
        raise InvalidInput(f"{name} must be {expected}, got {value!r}")
    return number


def check_scale(name: str, value: object) -> float:
    """Return `value` as a float if it is a scale of noise from 1e-6 to 2**40, which samplers and accounting allow."""
    number = check_positive(name, value)
    if not 1e-6 <= number <= 2.0**40:
        raise InvalidInput(f"{name} must lie between 1e-6 and 2**40, got {value!r}")
    return number


def check_divergence(value: object) -> float:
    """Return `value` as a float if it is a Renyi divergence: at least 0, perhaps infinite."""
    expected = "a Renyi divergence of at least 0"
    number = _real("renyi", value, expected)
    if not number >= 0:
        raise InvalidInput(f"renyi must be {expected}, got {value!r}")
    return number


def set_validated(instance: object, **checked: object) -> None:
    """Set checked values on a frozen dataclass, so that later code uses exactly the checked values."""
    for name, value in checked.items():
        object.__setattr__(instance, name, value)


def check_delta(value: object, *, zero: bool = True, name: str = "delta") -> float:
    """Return `value` as a float if it is a valid delta; with `zero=False`, 0 is refused."""
    expected = "at least 0 and below 1" if zero else "above 0 and below 1"
    number = _real(name, value, expected)
    if not 0 <= number < 1 or (number == 0 and not zero):
        raise InvalidInput(f"{name} must be {expected}, got {value!r}")
    return number


def check_rate(name: str, value: object) -> float:
    """Return `value` as a float if it lies in (0, 1]."""
    expected = "above 0 and at most 1"
    number = _real(name, value, expected)
    if not 0 < number <= 1:
        raise InvalidInput(f"{name} must be {expected}, got {value!r}")
    return number


def check_order(value: object) -> float:
    """Return `value` as a float if it is a Renyi order: above 1, or infinity."""
    expected = "a Renyi order: above 1, or infinity"
    number = _real("order", value, expected)
    if not number > 1:
        raise InvalidInput(f"order must be {expected}, got {value!r}")
    return number


def check_finite_order(noise: str, order: object) -> float:
    """Return the order of a charge for noise whose divergence at order infinity is unbounded; refuse infinity."""
    number = check_order(order)
    if number == math.inf:
        raise InvalidInput(f"{noise} is charged at a finite order; open the budget at one, with delta above 0")
    return number


def check_count(name: str, value: object, *, least: int = 1, most: int | None = None) -> int:
    """Return `value` as an int if it is a whole number from `least` to `most`, None for no upper bound."""
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise InvalidInput(f"{name} must be a whole number of at least {least}, got {value!r}")
    if most is not None and int(value) > most:
        raise InvalidInput(f"{name} must be at most {most:,}")
    return int(value)


_FIELDS: dict[str, Callable[[str, object], object]] = {  # the check of each setting, by name
    **dict.fromkeys(
        (
            *("teachers", "no_quorums", "sensitivity", "allowed", "spread", "cells", "units", "rank", "columns"),
            *("threshold", "head", "keys_per_unit", "squared_sensitivity", "candidates", "subset", "rows"),
            *("full", "capacity", "reports", "reported", "entries", "replacement"),
        ),
        check_count,
    ),
    "classes": lambda name, value: check_count(name, value, least=2),
    **dict.fromkeys(("margin", "cap"), lambda name, value: check_count(name, value, least=0)),
    **dict.fromkeys(("scale", "threshold_scale", "query_scale", "test_scale", "winner_scale"), check_scale),
    **dict.fromkeys(("price", "epsilon", "epsilon_per_query"), check_positive),
    "order": lambda _, value: check_order(value),
    "slack": lambda name, value: check_delta(value, name=name),
}


def validate_fields(instance: Any, **checked: object) -> None:
    """Check the fields of a scheme by name, and set them together with those that the caller has `checked`."""
    names = [field.name for field in dataclasses.fields(instance) if field.name in _FIELDS]
    by_name = {name: _FIELDS[name](name, getattr(instance, name)) for name in names if name not in checked}
    set_validated(instance, **by_name, **checked)


def check_bounds(bounds: Any) -> tuple[float, float]:
    """Return the lowest and the highest target of a regression."""
    try:
        low, high = (float(bound) for bound in bounds)
    except (TypeError, ValueError):
        low = high = math.nan
    if not (math.isfinite(high - low) and low < high):
        raise InvalidInput(f"bounds must be two finite numbers, the lower one first, as in (0, 250), got {bounds!r}")
    return low, high


def warn_of_private(public: Any, private: Any) -> None:
    """Warn if the private rows themselves are passed as public rows."""
    if public is not None and public is private:
        warnings.warn(
            "the public rows are the private rows, so no row is protected; pass rows that everybody may see",
            UserWarning,
            stacklevel=4,
        )


def is_named_id(name: Any) -> bool:
    """Return whether a column has a typical name of row numbers or ids of persons."""
    return isinstance(name, str) and _ID.fullmatch(name.strip()) is not None


def warn_of_id(name: str, use: str = "is used as a feature") -> None:
    """Warn about a column that looks like an id by its name or by public values."""
    warnings.warn(
        f"column {name!r} looks like the id of a row or a person, and {use}; if so, leave it out "
        f"(leave_out=[{name!r}] of a schema, --leave-out {shlex.quote(name)}, or drop it), or, if it names the person "
        "of each row, pass it as groups",
        UserWarning,
        stacklevel=2,
    )
