"""`quorate predict` and `quorate serve`: answers of a model, to a table of queries or over HTTP."""

import sys
from pathlib import Path
from typing import Literal

from quorate.cli.options import listed
from quorate.errors import InvalidInput

__all__ = ["predict", "serve"]


def predict(
    folder: Path,
    queries: Path,
    *,
    out: Path | None = None,
    on_no_quorum: Literal["abstain", "random", "raise"] = "abstain",
    caller: str = "",
    key: str | None = None,
    dry_run: bool = False,
    trusted: str | None = None,
    report: Path | None = None,
    json: bool = False,
) -> int:
    """Answer a table of queries from a model. Exit code 1 if the budget could not pay for all of them.

    Answers are CSV: one line a query, with its row in the table, its answer and its outcome (answered, no_quorum or
    refused); of a model with scores, the noisy share of each class too. A query that this caller asked before gets the
    same answer again, at no privacy cost. What was published answers without a budget.

    Parameters
    ----------
    folder
        The model, as `quorate fit`, `quorate release` or `quorate.save` wrote it.
    queries
        The queries: a table with the columns that the model was fitted on. A label column is ignored. A release is
        asked by a column `query`, each as `quorate release --ask` takes it.
    out
        The CSV file for the answers. Without it they are printed.
    on_no_quorum
        What to do where the teachers do not agree: leave the answer empty, draw a label, or end with exit code 1.
    caller
        Who asks: answers are kept apart for each caller.
    key
        A column of the queries that names each row, such as an id. The answers have it in place of the row number, and
        the model does not see it, unless it was fitted on it.
    dry_run
        Ask nothing: say what the queries would cost and how many can be paid for. Exit code 1 if some may be refused.
    trusted
        Types of estimators in the model that are not known to be safe, separated by commas, as they were named to
        quorate.save. They are imported, and their code runs: name only what you would run.
    report
        An HTML page to write: what was spent, the answer rate, the labels released, the plan.
    json
        Print one JSON object, with the answers if there is no --out.
    """
    from quorate.cli.predict import run_dry, run_predict

    if dry_run:
        if out is not None or report is not None:
            raise InvalidInput(
                "--dry-run asks nothing, so that there is nothing to write: leave --out and --report out"
            )
        return run_dry(folder, queries, caller=caller, key=key, trusted=listed(trusted), as_json=json)
    return run_predict(
        folder,
        queries,
        out=out,
        on_no_quorum=on_no_quorum,
        caller=caller,
        key=key,
        trusted=listed(trusted),
        report=report,
        as_json=json,
    )


def serve(
    model: Path,
    *more: Path,
    host: str = "127.0.0.1",
    port: int = 8900,
    workers: int = 1,
    pace: float = 20.0,
    lease: int = 100,
    keys: bool = True,
    trusted: str | None = None,
) -> int:
    """Serve models over HTTP by the Open Inference Protocol, with a dashboard, until interrupted.

    Every answer is charged to the model's ledger before it is drawn. Callers need a key: `quorate keys add` makes one.
    A model that was published has no ledger: everybody may ask it, and nothing is charged.

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
        How many processes answer.
    pace
        Answers leave at whole multiples of so many milliseconds after the question came; 0 lets them go at once.
    lease
        How many no-quorums (or queries, where each is paid for) a worker takes out of the budget at a time. A crash
        loses what it has not used.
    keys
        Whether callers need a key. Without keys only this machine may reach the server.
    trusted
        Types of estimators in the models that are not known to be safe, as `quorate predict` takes them.
    """
    from quorate.models import PublishedFolder, open_folder

    try:
        from quorate.service import Settings, serve
    except ModuleNotFoundError as error:
        raise InvalidInput(f"a server needs {error.name}; install it: pip install 'quorate[service]'") from error
    if not 0 <= port < 2**16:
        raise InvalidInput(f"port must be a number from 0 to 65535, not {port}")
    told = {"pace_ms": pace, "lease": lease, "keys": keys, "trusted": tuple(listed(trusted) or ())}
    settings = Settings.of(model, *more, host=host, port=port, workers=workers, **told)
    opened = [open_folder(one) for one in (model, *more)]
    private = [folder for folder in opened if not isinstance(folder, PublishedFolder)]

    def ready() -> None:
        shown = f"[{host}]" if ":" in host else host
        need = "everybody on this machine may ask" if keys is False else "everybody may ask what is published"
        if keys and private:
            need = f"callers need a key: quorate keys add {private[0].path} NAME"
        print(f"quorate: the dashboard is at http://{shown}:{port}/; {need}. Ctrl-C stops", file=sys.stderr)

    return serve(settings, ready=ready if sys.stderr.isatty() else None)  # logs are for programs
