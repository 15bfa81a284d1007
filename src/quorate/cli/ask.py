"""Answers of a server to a table of queries: `quorate ask`."""

import os
import stat
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quorate.cli.output import Keys, check_new_file, show_bill, verdict, write_file, written
from quorate.core.errors import InvalidInput
from quorate.service.client import Client
from quorate.tables import read_table
from quorate.tables.results import Table, make_table
from quorate.tables.values import kind_of_type, raw_column, read_texts

__all__ = ["key_of", "run_ask"]

_PATIENCE = 3.0  # seconds without an answer after which that is said


def run_ask(
    client: Client,
    queries: Path,
    *,
    seconds: float,
    out: Path | None,
    key: str | None,
    leave_out: list[str],
    on_no_quorum: str,
    id: str | None,
    as_json: bool,
) -> int:
    """Ask, and write the answers and the bill as `quorate predict` does. Exit code 1 if a query was refused."""
    if out is not None:
        check_new_file(out, inputs=[queries])
    table = read_table(queries, role="query")
    keys = Keys("row", range(1, len(table) + 1))
    for option, name in (*(("--leave-out", one) for one in leave_out), *([("--key", key)] if key else [])):
        if name not in table.column_names:
            raise InvalidInput(f"{option} names {name!r}, and the queries have no such column")
    with client:
        with _told_of_silence(seconds):
            model = client.metadata()
        known = [one["name"] for one in model["inputs"]]
        if key is not None:
            keys = Keys(key, table[key].to_pylist())
        table = table.drop_columns([name for name in {*leave_out, *([key] if key else [])} if name not in known])
        columns = client.ask(_as_texts(table, model), id=id).to_pydict()
    answers = list(zip(columns.pop("answer"), columns.pop("outcome"), strict=True))
    outcomes = Counter(outcome for _, outcome in answers)
    bill: dict[str, Any] = {"queries": len(answers)}
    bill |= {name: outcomes[name] for name in ("answered", "no_quorum", "refused")}
    if out is not None:
        write_file(out, written(answers, keys, columns))
    elif as_json:
        bill["answers"], bill["outcomes"] = ([one[place] for one in answers] for place in (0, 1))
        bill |= columns
    else:
        sys.stdout.write(written(answers, keys, columns))
    show_bill("The bill", bill, as_json=as_json)
    return verdict(bill, on_no_quorum)


@contextmanager
def _told_of_silence(seconds: float) -> Iterator[None]:
    """Say that a server does not answer, where it does not for a while: a wrong address is found out at once."""
    text = f"quorate: the server does not answer yet; it is tried again for {seconds:g} seconds (--seconds)"
    timer = threading.Timer(_PATIENCE, print, args=[text], kwargs={"file": sys.stderr, "flush": True})
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _as_texts(table: Table, model: Any) -> Table:
    """Return a file's texts as a model without a schema takes them; one with a schema knows itself what is missing."""
    if "missing_texts" in model.get("parameters", {}):
        return table
    columns = {}
    for name in table.column_names:
        values = raw_column(table.column(name))
        columns[name] = read_texts(values) if kind_of_type(values.type) == "text" else values
    return make_table(columns)


def key_of(path: Path | None) -> str | None:
    """Return the key in a file that nobody else may read; None where no file is named: then the environment has it."""
    if path is None:
        return None
    try:
        if os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InvalidInput(f"{path} may be read by others on this machine; close it: chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"no key can be read from {path}: {getattr(error, 'strerror', 'no text')}") from None
