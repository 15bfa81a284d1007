"""Commands and exit codes: 0 done, 1 refused (the message says why), 2 wrong usage."""

import itertools
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError, CycloptsPanel
from cyclopts.exceptions import MissingArgumentError, RepeatArgumentError, UnknownOptionError

from quorate import __version__
from quorate.cli.commands import (
    ask,
    audit,
    datasets,
    demo,
    doctor,
    export,
    look,
    plan,
    predict,
    release,
    serve,
    start,
)
from quorate.cli.keys import keys
from quorate.cli.ledger import ledger
from quorate.core.errors import QuorateError
from quorate.core.progress import HIDDEN

__all__ = ["app", "main"]

app = App(
    name="quorate",
    help="Private answers from sensitive data by secret ballot, with a proved differential-privacy guarantee.",
    version=__version__,
    suppress_keyboard_interrupt=False,  # `main` says what an interrupt means
)

_FIT = """\
Fit a model on a table of private records. Each method is a subcommand with its own options.

The encoding of columns as numbers is never learned from private records. It comes from a public table with the same
columns (--public), or from a schema (--schema); a table of numbers needs neither.

Example: `quorate fit subsample visits.csv --label outcome --classes ill,well --out model`
"""
_CHECK = """\
Test a published classifier on held-out private records: error, recalls, auc and calibration, by group.

The guarantee covers everything that is printed. Exit code 1 if a given limit is not shown to hold.

Example: `quorate check rule later.csv --label outcome --epsilon 1 --by sex --max-error 0.2 --report check.html`
"""
_NEIGHBOURS = """\
Insert and forget records of a model of neighbours, and estimate how many are worn out.

Example: `quorate neighbours forget model p17,p20`
"""
_CHARGED = "what the account was charged stays charged: quorate ledger account says what it has left"
_SITE = "Answer together with other owners of records: make keys, run a site, coordinate all sites."
for command in (
    demo,
    start,
    look,
    plan,
    predict,
    serve,
    ask,
    release,
    export,
    audit,
    ledger,
    keys,
    datasets,
    doctor,
):
    app.command(command)
app.command("quorate.cli.commands.fit:fit", help=_FIT)  # by name: loaded when it is called
app.command("quorate.cli.commands.check:check", help=_CHECK)
app.command("quorate.cli.commands.neighbours:neighbours", help=_NEIGHBOURS)
app.command("quorate.cli.site:site", help=_SITE)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["fit"]:
        from quorate.cli.commands.fit import new_spelling

        given = new_spelling(given)
    hidden = HIDDEN.set(True)  # a command has a display of its own
    try:
        with _told_at_once():
            result = app(
                given,
                exit_on_error=False,
                print_error=True,
                error_formatter=_said,
                result_action="return_value",
            )
    except CycloptsError:
        return 2
    except QuorateError as error:
        print(f"quorate: {error}", file=sys.stderr)
        return 1
    except (BrokenPipeError, SystemExit) as ended:  # the reader of our output has closed it, and Rich ends by itself
        if isinstance(ended, SystemExit) and not isinstance(ended.__context__, BrokenPipeError):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, a folder that cannot be read
        if error.strerror is None:
            raise
        print(f"quorate: {f'{error.filename}: ' if error.filename else ''}{error.strerror}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        left = _CHARGED if any(text.partition("=")[0] == "--account" for text in given) else _left_by(given)
        print(f"quorate: interrupted; {left}", file=sys.stderr)
        return 130
    finally:
        HIDDEN.reset(hidden)
    return result if isinstance(result, int) else 0


@contextmanager
def _told_at_once() -> Iterator[None]:
    """Print what a command warns of when it does: before anything is spent."""
    shown = warnings.showwarning

    def tell(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if not issubclass(category, UserWarning):  # not ours
            shown(message, category, *place, **more)
        else:
            print(f"quorate: {message}", file=sys.stderr)

    with warnings.catch_warnings():
        warnings.simplefilter("default", UserWarning)
        warnings.showwarning = tell
        yield


def _left_by(arguments: Sequence[str]) -> str:
    """Return what is true of a command that was interrupted: what it has spent, and what it has written."""
    command, rest = next(iter(arguments), ""), arguments[1:]
    asked = Path(next((text for text in rest if not text.startswith("-")), "."))
    if command in ("ask", "predict") or (command == "release" and ("--online" in rest or asked.is_dir())):
        return "what was charged stays charged. Ask again: what was answered before is free"
    if command == "check":
        return "nothing was printed, and so nothing is spent"
    if command not in ("fit", "release"):
        return "nothing private was read" if command in ("audit", "demo", "plan") else "nothing is half done"
    out = next((Path(text) for option, text in itertools.pairwise(rest) if option == "--out"), None)
    out = next((Path(text.removeprefix("--out=")) for text in rest if text.startswith("--out=")), out)
    if out is None or not out.exists():
        return "nothing was written and nothing was answered, and so nothing is spent"
    from quorate.models.saving import open_folder

    try:
        open_folder(out)
    except QuorateError:
        return f"no model was written and nothing was answered, and so nothing is spent. {out} does not hold a model"
    return f"the model in {out} is whole. Its budget is spent by answers, and none was given"


def _said(error: CycloptsError) -> object:
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
        is_named = error.keyword is not None or error.argument.tokens
        needed = (
            f"{name} takes a value, and none is given." if is_named else f"{command} needs {_shown(error.argument)}."
        )
        return CycloptsPanel(f"{needed}{mistaken}{meant} See {command} --help")
    return CycloptsPanel(error)


def _shown(argument: Any) -> str:
    """Return an argument as the help names it: by its place, where it has one."""
    name: str = argument.name
    return name.removeprefix("--").upper() if argument.field_info.is_positional else name
