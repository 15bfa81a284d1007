"""Commands and exit codes: 0 done, 1 refused (the message says why), 2 wrong usage, 130 interrupted."""

import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cyclopts import App, CycloptsError, CycloptsPanel
from cyclopts.exceptions import MissingArgumentError, RepeatArgumentError, UnknownOptionError

from quorate import __version__
from quorate.cli.commands import audit, look, plan, start
from quorate.core.errors import QuorateError

_INTERRUPTED = "Interrupted. A charge that was made stays: quorate ledger show FOLDER shows what is spent."

app = App(
    name="quorate",
    help="Private answers from sensitive data by secret ballot, with a proved differential-privacy guarantee.",
    version=__version__,
    help_format="plaintext",  # the list of commands; importing a renderer of Markdown takes a fifth of a second
    suppress_keyboard_interrupt=False,  # `main` reports what an interrupt means
)

# The modules of these commands are imported when they are called: --help needs none of them.
_COMMANDS = {
    "quorate.cli.demo:demo": """\
Run a complete example on a generated clinic: plan, fit, ask, compare, report. Nothing private is read.
""",
    "quorate.cli.fit:fit": """\
Fit a model on a table of private records. Each method is a subcommand with its own options.

The encoding of columns as numbers is never learned from private records. It comes from a public table with the same
columns (--public), or from a schema (--schema); a table of numbers needs neither.

Example: `quorate fit subsample visits.csv --label outcome --classes ill,well --out model`
""",
    "quorate.cli.predict:predict": """\
Answer a table of queries from a model. Exit code 1 if the budget could not pay for all of them.

Answers are CSV: one line per query, with its row in the table, its answer and its outcome (answered, no_quorum or
refused); for a model with scores, also the noisy share of each class. A query that this caller asked before gets the
same answer again, at no privacy cost. A published model answers without a budget.

Example: `quorate predict model new.csv --key patient --out answers.csv`
""",
    "quorate.cli.serving:serve": """\
Serve models over HTTP by the Open Inference Protocol, with a dashboard, until interrupted.

Every answer is charged to the model's ledger before it is drawn. Callers need a key: `quorate keys add` makes one. A
published model has no ledger: everybody may ask it, and nothing is charged.

Example: `quorate serve model --port 8000`
""",
    "quorate.cli.serving:ask": """\
Answer a table of queries from a model on a server. Exit code 1 if the budget could not pay for all of them.

The answers have the format of `quorate predict`. The key is read from the environment variable QUORATE_KEY or from a
file, and never from the command line, which others on the machine can see. A lost request is sent again with the same
id, and charged once.
""",
    "quorate.cli.check:check": """\
Test a published classifier on held-out private records: error, recalls, auc and calibration, by group.

The guarantee covers everything that is printed. Exit code 1 if a given limit is not shown to hold.

Example: `quorate check rule later.csv --label outcome --epsilon 1 --by sex --max-error 0.2 --report check.html`
""",
    "quorate.cli.release:release": """\
Release answers to all marginals, thresholds, ranges, boxes, halfspaces or expressions of a table, once.

The folder that is written may be published: the guarantee covers all of its contents, and anyone may query it at no
further privacy cost. To query it, give that folder instead of the table.

Example: `quorate release private.csv --public public.csv --workload marginals:2 --out published`
""",
    "quorate.cli.nearest:neighbours": """\
Insert and forget records of a model of neighbours, and estimate how many are worn out.

Example: `quorate neighbours forget model p17,p20`
""",
    "quorate.cli.files:export": """\
Export a published model: as an ONNX file, or with a model card for a hub. A private folder is refused.

Example: `quorate export rule --onnx rule.onnx`
""",
    "quorate.cli.ledger:ledger": """\
Show, verify, compact, export, move or restore what a model has spent; open an account for several.
""",
    "quorate.cli.keys:keys": "Make, list, change and revoke the keys of a model's callers.",
    "quorate.cli.site:site": (
        "Answer together with other owners of records: make keys, run a site, coordinate all sites."
    ),
    "quorate.cli.files:datasets": """\
Write a small synthetic table that ships with the package as private.csv, public.csv and new.csv.

Example: `quorate datasets bank`
""",
    "quorate.cli.doctor:doctor": """\
Report what is installed, which extras are missing, and whether this machine is sound. Exit code 1 if not.
""",
}
_COMMANDS |= {
    f"{command.__module__}:{command.__name__}": inspect.cleandoc(command.__doc__ or "").partition("Parameters\n")[0]
    for command in (start, look, plan, audit)
}
_GROUPS = ("fit", "keys", "ledger", "neighbours", "site")  # of commands: their own modules set the format
for target, text in _COMMANDS.items():
    is_group = target.partition(":")[2] in _GROUPS
    app.command(target, help=text, **({} if is_group else {"help_format": "markdown"}))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    try:
        with _warn_at_once():
            result = app(
                list(sys.argv[1:] if arguments is None else arguments),
                exit_on_error=False,
                print_error=True,
                error_formatter=_usage_error,
                result_action="return_value",
            )
    except CycloptsError:
        return 2
    except QuorateError as error:
        print(f"quorate: {error}", file=sys.stderr)
        return 1
    except (BrokenPipeError, SystemExit) as ended:  # the reader of the output has closed it; Rich then exits by itself
        if isinstance(ended, SystemExit) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, a folder that cannot be read
        if error.strerror is None:
            raise
        print(f"quorate: {_file_error(error)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt as error:
        # The call that was interrupted notes what it has spent (`quorate.core.progress`); only it knows.
        print(f"quorate: {' '.join(getattr(error, '__notes__', [_INTERRUPTED]))}", file=sys.stderr)
        return 130
    return result if isinstance(result, int) else 0


def _file_error(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


@contextmanager
def _warn_at_once() -> Iterator[None]:
    """Print warnings of the library as they occur: before anything is spent."""
    print_warning = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *where: Any, **details: Any) -> None:
        if issubclass(category, UserWarning):
            print(f"quorate: {message}", file=sys.stderr)
        else:  # of another package
            print_warning(message, category, *where, **details)

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = show
        yield


def _usage_error(error: CycloptsError) -> object:
    """Return the error as printed. An unknown option is unknown to its command; another command may take it."""
    command = " ".join(["quorate", *(error.command_chain or ())])
    if isinstance(error, UnknownOptionError):
        return CycloptsPanel(str(error).replace("Unknown option:", f"{command} does not take", 1))
    if isinstance(error, RepeatArgumentError):
        once = f"{command} takes {error.token.keyword} once. An option that lists things separates them by commas: a,b"
        return CycloptsPanel(once)
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        _, mistaken, meant = str(error).partition(" Did you mean ")
        name = error.keyword or error.argument.name
        if error.keyword is not None or error.argument.tokens:
            needed = f"{name} takes a value, and none is given."
        elif error.argument.field_info.is_positional:
            needed = f"{command} needs {name.removeprefix('--').upper()}."
        else:
            needed = f"{command} needs {name}."
        return CycloptsPanel(f"{needed}{mistaken}{meant} See {command} --help")
    return CycloptsPanel(error)
