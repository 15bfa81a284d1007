"""Answers as commands write them: a line a query, all of the file or nothing, and the exit code that they mean."""

import csv
import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quorate.cli.output import readable
from quorate.errors import InvalidInput

__all__ = ["Answer", "Keys", "verdict", "write_answers", "written"]

Answer = tuple[Any, str]  # a label or None, and what became of the query


@dataclass(frozen=True)
class Keys:
    """What names the rows of the queries: their number, from 1, or a column of theirs."""

    name: str
    values: Sequence[Any]


def written(answers: list[Answer], keys: Keys, beside: Mapping[str, list[Any]] | None = None) -> str:
    """Return the answers as CSV, a line a query, in the order of the queries; sets and several labels as JSON lists."""
    columns = beside or {}
    rows = zip(*columns.values(), strict=True) if columns else [()] * len(answers)
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([keys.name, "answer", "outcome", *columns])
    for name, (label, outcome), more in zip(keys.values, answers, rows, strict=True):
        first, *told = (json.dumps(one) if isinstance(one, list) else readable(one) for one in (label, *more))
        writer.writerow([name, "" if label is None else first, outcome, *told])
    return file.getvalue()


def write_answers(path: Path, text: str) -> None:
    """Write all of it or nothing: the answers are kept in the ledger, and can be asked for again."""
    beside = path.with_name(f".{path.name}.part")
    try:
        beside.write_text(text, encoding="utf-8")
        os.replace(beside, path)
    except OSError as error:
        raise InvalidInput(
            f"{path} could not be written: {error.strerror}; ask again elsewhere: what was answered is free"
        ) from None


def verdict(bill: dict[str, Any], on_no_quorum: str) -> int:
    """Return the exit code: 1 if a query was refused, or if one found no quorum where that is to count."""
    if bill["refused"]:
        print(
            f"quorate: {bill['refused']} of {bill['queries']} queries were refused: the budget cannot pay for them",
            file=sys.stderr,
        )
        return 1
    if on_no_quorum == "raise" and bill["no_quorum"]:
        print(
            f"quorate: {bill['no_quorum']} of {bill['queries']} queries found no quorum; they were paid for",
            file=sys.stderr,
        )
        return 1
    return 0
