"""`quorate serve` and `quorate ask`: answers over HTTP, from both sides."""

import os
import stat
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from quorate.cli.options import Device, Trusted, listed, use_device
from quorate.cli.output import Keys, check_new_file, show_answers, verdict
from quorate.core.errors import InvalidInput
from quorate.tables import read_table
from quorate.tables.results import Table, make_table
from quorate.tables.values import kind_of_type, raw_column, read_texts

__all__ = ["ServerLimits", "ask", "serve"]

_PATIENCE = 3.0  # seconds without an answer after which a note is printed


@Parameter(name="*")
@dataclass
class ServerLimits:
    """The limits and timeouts of a server. The defaults are those of `quorate.service.Settings`."""

    body_limit: Annotated[int, Parameter(env_var="QUORATE_BODY_LIMIT")] = 4 * 2**20
    "The largest size of a request body, in bytes."
    body_seconds: Annotated[float, Parameter(env_var="QUORATE_BODY_SECONDS")] = 30.0
    "How long a body may take to arrive."
    row_limit: Annotated[int, Parameter(env_var="QUORATE_ROW_LIMIT")] = 4096
    "The largest number of queries in a request."
    queue_limit: Annotated[int, Parameter(env_var="QUORATE_QUEUE_LIMIT")] = 1024
    "How many requests a worker holds before it reports that it is overloaded."
    connection_limit: Annotated[int, Parameter(env_var="QUORATE_CONNECTION_LIMIT")] = 1024
    "How many connections a worker holds; a new one replaces the one that has been idle longest."
    header_limit: Annotated[int, Parameter(env_var="QUORATE_HEADER_LIMIT")] = 2**15
    "The largest size of the headers of a request, in bytes."
    header_seconds: Annotated[float, Parameter(env_var="QUORATE_HEADER_SECONDS")] = 10.0
    "How long the headers may take to arrive."
    idle_seconds: Annotated[float, Parameter(env_var="QUORATE_IDLE_SECONDS")] = 60.0
    "How long a connection may be idle between two requests."
    stop_seconds: Annotated[float, Parameter(env_var="QUORATE_STOP_SECONDS")] = 8.0
    "How long pending requests, and then each model, may take to end after SIGTERM."
    traces: Annotated[str, Parameter(env_var="QUORATE_TRACES")] = ""
    "The address of an OpenTelemetry collector, which gets traces of requests, without values."


def ask(
    url: str,
    queries: Path,
    *,
    model: str | None = None,
    key_file: Path | None = None,
    out: Path | None = None,
    on_no_quorum: Literal["abstain", "raise"] = "abstain",
    key: str | None = None,
    leave_out: str = "",
    id: str | None = None,
    seconds: float = 300.0,
    rows: int = 512,
    insecure: bool = False,
    json: bool = False,
) -> int:
    """Answer a table of queries from a model on a server.

    Parameters
    ----------
    url
        The address of the server, such as https://triage.example.org.
    queries
        The queries: a table with the columns that the model takes.
    model
        The name of the model. It may be omitted if the key opens only one model.
    key_file
        A file that contains the key, and that nobody else may read.
    out
        The CSV file for the answers. Without it they are printed.
    on_no_quorum
        What to do if the teachers do not agree: leave the answer empty, or end with exit code 1.
    key
        A column of the queries that names each row, as for `quorate predict`.
    leave_out
        Columns of the queries that the model does not know, separated by commas: they are not sent.
    id
        The id of a call that was abandoned: what was answered then is not charged again.
    seconds
        How long the whole call may take.
    rows
        How many queries are sent at a time.
    insecure
        Send the key over plain HTTP to another machine.
    json
        Print one JSON object, with the answers if there is no --out.
    """
    try:
        from quorate.service.client import Client
    except ModuleNotFoundError as error:
        raise InvalidInput(f"a client needs {error.name}; install it: pip install 'quorate[client]'") from error
    if out is not None:
        check_new_file(out, inputs=[queries])
    table, unread = read_table(queries, role="query"), listed(leave_out)
    for option, name in (*(("--leave-out", name) for name in unread), *([("--key", key)] if key else [])):
        if name not in table.column_names:
            raise InvalidInput(f"{option} names {name!r}, and the queries have no such column")
    keys = Keys.of(table, key)
    secret = _read_key(key_file)
    with Client(url, model=model, key=secret, seconds=seconds, rows=rows, insecure=insecure) as client:
        with _warn_of_silence(seconds):
            metadata = client.metadata()
        inputs = [column["name"] for column in metadata["inputs"]]
        table = table.drop_columns([name for name in {*unread, *([key] if key else [])} if name not in inputs])
        columns = client.ask(_as_texts(table, metadata), id=id).to_pydict()
    labels, outcomes = columns.pop("answer"), columns.pop("outcome")
    counts = Counter(outcomes)
    bill = {"queries": len(labels)} | {name: counts[name] for name in ("answered", "no_quorum", "refused")}
    show_answers(labels, outcomes, columns, keys, bill=bill, out=out, as_json=json)
    return verdict(bill, on_no_quorum)


@contextmanager
def _warn_of_silence(seconds: float) -> Iterator[None]:
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


def _read_key(path: Path | None) -> str | None:
    """Return the key in a file that nobody else may read; None where no file is named: then the environment has it."""
    if path is None:
        return None
    try:
        if os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise InvalidInput(f"{path} may be read by others on this machine; close it: chmod 600 {path}")
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"no key can be read from {path}: {getattr(error, 'strerror', 'no text')}") from None


def serve(
    model: Path,
    *more: Path,
    host: Annotated[str, Parameter(env_var="QUORATE_HOST")] = "127.0.0.1",
    port: Annotated[int, Parameter(env_var="QUORATE_PORT")] = 8900,
    workers: Annotated[int, Parameter(env_var="QUORATE_WORKERS")] = 1,
    pace: Annotated[float, Parameter(env_var="QUORATE_PACE")] = 20.0,
    lease: Annotated[int, Parameter(env_var="QUORATE_LEASE")] = 100,
    keys: Annotated[bool, Parameter(env_var="QUORATE_KEYS")] = True,
    trusted: Trusted = "",
    device: Annotated[Device, Parameter(env_var="QUORATE_DEVICE")] = "auto",
    cluster: Annotated[str, Parameter(env_var="QUORATE_CLUSTER")] = "",
    limits: ServerLimits | None = None,
) -> int:
    """Serve models over HTTP by the Open Inference Protocol, with a dashboard, until interrupted.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it. It is served under the name of its folder.
    more
        More models.
    host
        The address to listen on. By default only this machine can reach it.
    port
        The port to listen on.
    workers
        The number of worker processes.
    pace
        Send answers only at whole multiples of this many milliseconds after the request arrived; 0 sends them at once.
    lease
        How many no-quorums (or queries, if each is paid for) a worker takes from the budget at a time. A crash loses
        what it has not used.
    keys
        Whether callers need a key. Without keys only this machine may reach the server.
    device
        Where ballots are counted: on the CPU, on a GPU ("cuda"), or on a GPU if there is one. The ballots are the same.
    cluster
        A Dask or Ray cluster that counts ballots, as for `quorate fit subsample`. Each worker of this server puts the
        teachers of each model there.
    limits
        The limits and timeouts of the server.
    """
    from quorate.models.saving import PublishedFolder, open_folder

    try:
        from quorate.service import Settings, serve
    except ModuleNotFoundError as error:
        raise InvalidInput(f"a server needs {error.name}; install it: pip install 'quorate[service]'") from error
    if not 0 <= port < 2**16:
        raise InvalidInput(f"port must be a number from 0 to 65535, got {port}")
    if device != "auto":
        use_device(device)
    settings = Settings.of(
        model,
        *more,
        host=host,
        port=port,
        workers=workers,
        pace_ms=pace,
        lease=lease,
        keys=keys,
        cluster=cluster,
        trusted=tuple(listed(trusted)),
        **asdict(limits or ServerLimits()),
    )
    folders = [open_folder(path) for path in (model, *more)]
    private = [folder for folder in folders if not isinstance(folder, PublishedFolder)]

    def ready() -> None:
        shown = f"[{host}]" if ":" in host else host
        need = "everybody on this machine may ask" if keys is False else "everybody may ask what is published"
        if keys and private:
            need = f"callers need a key: quorate keys add {private[0].path} NAME"
        print(f"quorate: the dashboard is at http://{shown}:{port}/; {need}. Ctrl-C stops", file=sys.stderr)

    return serve(settings, ready=ready if sys.stderr.isatty() else None)  # logs are for programs
