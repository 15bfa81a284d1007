"""`quorate predict`, `quorate serve` and `quorate ask`: answer a table of queries, from a folder or over HTTP."""

import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from quorate.cli.options import Device, listed, use_device
from quorate.core.errors import InvalidInput

__all__ = ["ServerLimits", "ask", "predict", "serve"]


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


def predict(
    folder: Path,
    queries: Path,
    *,
    out: Path | None = None,
    on_no_quorum: Literal["abstain", "random", "raise"] = "abstain",
    caller: str = "",
    key: str | None = None,
    dry_run: bool = False,
    unknown: Literal["answer", "refuse"] = "answer",
    leave_out: str | None = None,
    trusted: str | None = None,
    device: Annotated[Device, Parameter(env_var="QUORATE_DEVICE")] = "auto",
    report: Path | None = None,
    json: bool = False,
) -> int:
    """Answer a table of queries from a model. Exit code 1 if the budget could not pay for all of them.

    Answers are CSV: one line per query, with its row in the table, its answer and its outcome (answered, no_quorum or
    refused); for a model with scores, also the noisy share of each class. A query that this caller asked before gets
    the same answer again, at no privacy cost. A published model answers without a budget.

    Example: `quorate predict model new.csv --key patient --out answers.csv`

    Parameters
    ----------
    folder
        The model, as `quorate fit`, `quorate release` or `quorate.save` wrote it.
    queries
        The queries: a table with the columns that the model was fitted on. A label column is ignored. For a release,
        the column `query` has the queries, each as for `quorate release --ask`.
    out
        The CSV file for the answers. Without it they are printed.
    on_no_quorum
        What to do if the teachers do not agree: leave the answer empty, draw a label, or end with exit code 1.
    caller
        The name of the caller. Answers are remembered for each caller separately.
    key
        A column of the queries that names each row, such as an id. The answers show it instead of the row number, and
        the model does not see it, unless it was fitted on it.
    dry_run
        Ask nothing: show what the queries would cost and how many can be paid for. Exit code 1 if some may be refused.
    unknown
        What to do with a query whose category was not declared: answer it as none of the declared categories, and
        report how many there are; or refuse all queries before anything is spent.
    leave_out
        Columns of the queries that the model does not know, separated by commas: they are not read.
    trusted
        Types of estimators in the model that are not known to be safe, separated by commas, as given to quorate.save.
        They are imported, and their code runs: name only what you would run.
    device
        Where ballots are counted: on the CPU, on a GPU ("cuda"), or on a GPU if there is one. The ballots are the same.
    report
        An HTML page to write: what was spent, the answer rate, the labels released, the plan.
    json
        Print one JSON object, with the answers if there is no --out.
    """
    from quorate.cli.predict import Reading, run_dry, run_predict

    if device != "auto":
        use_device(device)

    left_out, types = listed(leave_out) if leave_out else (), listed(trusted) if trusted else None
    reading = Reading(unknown=unknown, leave_out=left_out, key=key, trusted=types)
    if dry_run:
        if out is not None or report is not None:
            raise InvalidInput(
                "--dry-run asks nothing, so that there is nothing to write: leave --out and --report out"
            )
        return run_dry(folder, queries, caller=caller, reading=reading, as_json=json)
    return run_predict(
        folder,
        queries,
        out=out,
        on_no_quorum=on_no_quorum,
        caller=caller,
        reading=reading,
        report=report,
        as_json=json,
    )


def ask(
    url: str,
    queries: Path,
    *,
    model: str | None = None,
    key_file: Path | None = None,
    out: Path | None = None,
    on_no_quorum: Literal["abstain", "raise"] = "abstain",
    key: str | None = None,
    leave_out: str | None = None,
    id: str | None = None,
    seconds: float = 300.0,
    rows: int = 512,
    insecure: bool = False,
    json: bool = False,
) -> int:
    """Answer a table of queries from a model on a server. Exit code 1 if the budget could not pay for all of them.

    The answers have the format of `quorate predict`. The key is read from the environment variable QUORATE_KEY or from
    a file, and never from the command line, which others on the machine can see. A lost request is sent again with the
    same id, and charged once.

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
        from quorate.cli.ask import key_of, run_ask
        from quorate.service.client import Client
    except ModuleNotFoundError as error:
        raise InvalidInput(f"a client needs {error.name}; install it: pip install 'quorate[client]'") from error
    client = Client(url, model=model, key=key_of(key_file), seconds=seconds, rows=rows, insecure=insecure)
    return run_ask(
        client,
        queries,
        seconds=seconds,
        out=out,
        key=key,
        leave_out=listed(leave_out) if leave_out else [],
        on_no_quorum=on_no_quorum,
        id=id,
        as_json=json,
    )


def serve(
    model: Path,
    *more: Path,
    host: Annotated[str, Parameter(env_var="QUORATE_HOST")] = "127.0.0.1",
    port: Annotated[int, Parameter(env_var="QUORATE_PORT")] = 8900,
    workers: Annotated[int, Parameter(env_var="QUORATE_WORKERS")] = 1,
    pace: Annotated[float, Parameter(env_var="QUORATE_PACE")] = 20.0,
    lease: Annotated[int, Parameter(env_var="QUORATE_LEASE")] = 100,
    keys: Annotated[bool, Parameter(env_var="QUORATE_KEYS")] = True,
    trusted: str | None = None,
    device: Annotated[Device, Parameter(env_var="QUORATE_DEVICE")] = "auto",
    cluster: Annotated[str, Parameter(env_var="QUORATE_CLUSTER")] = "",
    limits: ServerLimits | None = None,
) -> int:
    """Serve models over HTTP by the Open Inference Protocol, with a dashboard, until interrupted.

    Every answer is charged to the model's ledger before it is drawn. Callers need a key: `quorate keys add` makes one.
    A published model has no ledger: everybody may ask it, and nothing is charged.

    Example: `quorate serve model --port 8000`

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
    trusted
        Types of estimators in the models that are not known to be safe, as for `quorate predict`.
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
        raise InvalidInput(f"port must be a number from 0 to 65535, not {port}")
    if device != "auto":
        use_device(device)
    told = {"host": host, "port": port, "workers": workers, "pace_ms": pace, "lease": lease, "keys": keys}
    types = tuple(listed(trusted)) if trusted else ()
    told["cluster"] = cluster
    settings = Settings.of(model, *more, **told, trusted=types, **asdict(limits or ServerLimits()))
    opened = [open_folder(one) for one in (model, *more)]
    private = [folder for folder in opened if not isinstance(folder, PublishedFolder)]

    def ready() -> None:
        shown = f"[{host}]" if ":" in host else host
        need = "everybody on this machine may ask" if keys is False else "everybody may ask what is published"
        if keys and private:
            need = f"callers need a key: quorate keys add {private[0].path} NAME"
        print(f"quorate: the dashboard is at http://{shown}:{port}/; {need}. Ctrl-C stops", file=sys.stderr)

    return serve(settings, ready=ready if sys.stderr.isatty() else None)  # logs are for programs
