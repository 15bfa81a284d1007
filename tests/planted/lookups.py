"""An input path that remembers the texts that callers have sent, beside the one that looks them up in a public table.

The attack counts work and not time: how many functions one caller's request calls, with and without another caller's
request before it. A clock would see the same through noise.
"""

import gc
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planted.bug import Caught, kind_bug
from quorate.core.arrays import Floats
from quorate.core.errors import InvalidInput
from quorate.tables import Category, Number, QueryEncoder, Schema

_TOWNS = tuple(f"town {number}" for number in range(60))


class RemembersTexts(QueryEncoder):
    """Keeps the row of every declared text that anybody has sent, so the next caller who sends it is served faster."""

    def __init__(self, schema: Schema) -> None:
        super().__init__(schema)
        self._known: dict[str, dict[str, Floats]] = {}

    def encode(self, name: str, values: Sequence[str] | NDArray[Any]) -> Floats:
        if name not in self._tables or not isinstance(values, list):
            return super().encode(name, values)
        known = self._known.setdefault(name, {})
        rows = [known.get(text) for text in values]
        if all(row is not None for row in rows):
            return np.array(rows)
        encoded = self._by_arrow(name, values)
        known.update({text: row for text, row in zip(values, encoded, strict=True) if row.any()})  # the mistake
        return encoded


def calls_made(work: Callable[[], object]) -> int:
    """Return how many functions are called, in Python and below it, while something is done.

    Nothing is collected meanwhile: garbage of others may call functions of its own when it goes.
    """
    count, collects = 0, gc.isenabled()

    def note(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    gc.disable()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return count


def ask_after_another_caller(kind: type[QueryEncoder]) -> Caught:
    """Send texts that another caller has sent before, or has not, and compare the work that is done for them."""
    attack, rows = "count the work of one caller's request", 512
    for text in (_TOWNS[7], f" {_TOWNS[7]} ", "elsewhere", ""):
        alone, after = (_work(kind, [text] * rows, others=others) for others in ([], [text]))
        if alone != after:
            evidence = f"{rows} equal rows: {alone} calls, and {after} where another caller has sent that text"
            return Caught(attack, evidence, found=True)
    return Caught(attack, "the same calls, whatever another caller has sent", found=False)


def _work(kind: type[QueryEncoder], texts: list[str], *, others: list[str]) -> int:
    encoder = kind(Schema({"town": Category(_TOWNS, missing="indicator"), "age": Number()}))
    _sent(encoder, [_TOWNS[0]])
    if others:
        _sent(encoder, others)
    return calls_made(lambda: _sent(encoder, texts))


def _sent(encoder: QueryEncoder, towns: list[str]) -> None:
    """Encode a request whose number is bad: it is refused, and nothing is charged for it."""
    try:
        encoder.encode("town", towns)
        encoder.encode("age", ["bad"] * len(towns))
    except InvalidInput:
        pass


LOOKUPS = (kind_bug("texts_remembered_for_all", "state", RemembersTexts, QueryEncoder, ask_after_another_caller),)
