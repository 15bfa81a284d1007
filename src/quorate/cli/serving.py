"""`quorate serve` and `quorate ask`: answers over HTTP, from both sides."""

import inspect
import os
import stat
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from quorate.cli.options import (
    Device,
    Names,
    Trusted,
    options_from,
    require_extra,
    use_device,
    with_options,
)
from quorate.cli.output import QueryOptions, Replies, report_refusals, show_answers
from quorate.core.errors import InvalidInput
from quorate.tables.results import Table, make_table
from quorate.tables.values import kind_of_type, raw_column, read_texts

_PATIENCE = 3.0  # seconds without an answer after which a note is printed


def _client_options() -> Iterator[inspect.Parameter]:
    """Yield the settings of a client as options."""
    with suppress(ModuleNotFoundError):  # `ask` says what to install
        from quorate.service.client import Client

        yield from options_from([Client], skip="url key attempt_seconds rows transport")


@with_options(_client_options())
def ask(
    url: str,
    queries: Path,
    *,
    options: QueryOptions = QueryOptions(),
    key_file: Path | None = None,
    on_no_quorum: Literal["abstain", "raise"] = "abstain",
    id: str | None = None,
    **settings: Any,
) -> int:
    """Answer a table of queries from a model on a server. Exit code 1 if the budget could not pay for all of them.

    The answers have the format of `quorate predict`. The key is read from the environment variable QUORATE_KEY or from
    a file, and never from the command line, which others on the machine can see. A lost request is sent again with the
    same id, and charged once.

    Example: `quorate ask http://localhost:8900 new.csv --model triage --out answers.csv`

    Parameters
    ----------
    url
        The address of the server, such as https://triage.example.org.
    queries
        The queries: a table with the columns that the model takes.
    key_file
        A file that contains the key, and that nobody else may read.
    on_no_quorum
        What to do if the teachers do not agree: leave the answer empty, or end with exit code 1.
    id
        The id of a call that was abandoned: what was answered then is not charged again.
    """
    with require_extra("client", "a client"):
        from quorate.service.client import Client
    table, row_ids = options.read(queries)
    secret = _read_key(key_file)
    with Client(url, key=secret, **settings) as client:
        with _warn_of_silence(settings["seconds"]):
            metadata = client.metadata()
        table = options.select(table, [column["name"] for column in metadata["inputs"]])
        columns = client.ask(_as_texts(table, metadata), id=id).to_pydict()
    replies = Replies(columns.pop("answer"), columns.pop("outcome"), columns)
    show_answers(replies, row_ids, options)
    return report_refusals(replies.bill, on_no_quorum)


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
    """Return a file's texts for a model without a schema; a model with a schema defines missing values itself."""
    if "missing_texts" in model.get("parameters", {}):
        return table
    columns = {}
    for name in table.column_names:
        values = raw_column(table.column(name))
        columns[name] = read_texts(values) if kind_of_type(values.type) == "text" else values
    return make_table(columns)


def _read_key(path: Path | None) -> str | None:
    """Return the key from a file that only its owner may read, or None without a file to use the environment's key."""
    if path is None:
        return None
    if os.stat(path).st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise InvalidInput(f"{path} may be read by others on this machine; close it: chmod 600 {path}")
    try:
        return path.read_text(encoding="ascii").strip()
    except UnicodeDecodeError:
        raise InvalidInput(f"{path} must hold a key, as `quorate keys add` printed it, got other bytes") from None


def _server_options() -> Iterator[inspect.Parameter]:
    """Yield the settings of a server as options, each with its environment variable."""
    with suppress(ModuleNotFoundError):  # `serve` says what to install
        from quorate.service import Settings

        yield from options_from([Settings], skip="models trusted pace_ms", defaults={"port": 8900}, prefix="QUORATE_")


@with_options(_server_options())
def serve(
    *models: Annotated[
        Path, Parameter(name="model", help="The models' folders. Each is served under the name of its folder.")
    ],
    pace: Annotated[
        float,
        Parameter(
            env_var="QUORATE_PACE",
            help="Send answers only at whole multiples of this many milliseconds after the request arrived; 0 sends "
            "them at once.",
        ),
    ] = 20.0,
    trusted: Trusted = (),
    device: Annotated[
        Device, Parameter(env_var="QUORATE_DEVICE", help="Where ballots are counted, as for `quorate predict`.")
    ] = "auto",
    new_keys: Annotated[
        Names,
        Parameter(
            help="Callers, separated by commas, for each of whom a key of the first model is made and printed once, as "
            "`quorate keys add` does. A caller with a key gets no other."
        ),
    ] = (),
    **settings: Any,
) -> int:
    """Serve models over HTTP by the Open Inference Protocol, with a dashboard, until interrupted.

    Every answer is charged to the model's ledger before it is drawn. Callers need a key: --new-keys or `quorate keys
    add` makes one. A published model has no ledger: everybody may ask it, and nothing is charged.

    Example: `quorate serve model --port 8000`
    """
    from quorate.models.saving import PublishedFolder, open_folder

    with require_extra("service", "a server"):
        from quorate.service import Settings, serve
    port, host, keys = settings["port"], settings["host"], settings["keys"]
    if not 0 <= port < 2**16:
        raise InvalidInput(f"port must be a number from 0 to 65535, got {port}")
    if device != "auto":
        use_device(device)
    server = Settings.of(*models, pace_ms=pace, trusted=trusted, **settings)
    folders = map(open_folder, models)
    private = [folder.path for folder in folders if not isinstance(folder, PublishedFolder)]
    _make_keys(private * keys, new_keys)

    def ready() -> None:
        address, scheme = f"[{host}]" if ":" in host else host, "https" if settings["tls"] else "http"
        need = "everybody may ask what is published" if keys else "everybody on this machine may ask"
        if keys and private:
            need = f"callers need a key: quorate keys add {private[0]} NAME"
        print(f"quorate: the dashboard is at {scheme}://{address}:{port}/; {need}. Ctrl-C stops", file=sys.stderr)

    return serve(server, ready=ready if sys.stderr.isatty() else None)  # logs are for programs


def _make_keys(models: Sequence[Path], names: Sequence[str]) -> None:
    """Make keys of the first of these models for callers without one, and print them."""
    from quorate.cli.keys import make_keys

    if names and not models:
        raise InvalidInput("--new-keys needs a model with a ledger, and a server with keys")
    if names:
        make_keys(models[0], names)
