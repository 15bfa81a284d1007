"""Deprecated import path: `quorate.audit` is a function now, and its package is `quorate.auditing`.

For one release `from quorate.audit import ...` still finds the package's names, on the function.
"""

import sys
import warnings

from quorate import auditing

__all__: list[str] = []

warnings.warn("quorate.audit is a function; import from quorate.auditing", DeprecationWarning, stacklevel=2)
for _name in auditing.__all__:
    setattr(auditing.audit, _name, getattr(auditing, _name))
sys.modules[__name__] = auditing.audit  # type: ignore[assignment]  # so that importing this leaves a function behind
