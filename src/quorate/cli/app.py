"""Commands and exit codes: 0 done, 1 refused (the message says why), 2 wrong usage, 130 interrupted."""

import inspect
import os
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cyclopts import App, CycloptsError, CycloptsPanel, Group, Parameter
from cyclopts.exceptions import MissingArgumentError, RepeatArgumentError, UnknownOptionError

from quorate import __version__
from quorate.core.errors import QuorateError

_INTERRUPTED = "Interrupted. A charge that was made stays: quorate ledger show FOLDER shows what is spent."
_COMMANDS = {  # module.command, as `quorate --help` lists them
    "Begin": "start.start studio.command.studio files.demo files.look files.datasets doctor.doctor",
    "Make": "plan.plan fit.fit release.release neighbours.neighbours write.write",
    "Ask": "predict.predict serving.ask files.export",
    "Serve": "serving.serve keys.keys site.site",
    "Trust": "verify.verify verify.card check.check ledger.ledger audit.audit",
}


def _show_default(value: Any) -> str | None:
    """Return a default as it is typed; a switch, and an empty text, need no word."""
    if value is None or isinstance(value, bool) or value in ("", ()):
        return None
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


_OPTIONS = Group("Options", sort_key=len(_COMMANDS))
app = App(
    name="quorate",
    help="Private answers from sensitive data by secret ballot, with a proved differential-privacy guarantee.",
    version=__version__,
    help_format="plaintext",  # the list of commands; importing a renderer of Markdown takes a fifth of a second
    suppress_keyboard_interrupt=False,  # `main` reports what an interrupt means
    default_parameter=Parameter(negative=(), show_default=_show_default),
    group_parameters=_OPTIONS,
)
for _flag in ("--help", "--version"):
    app[_flag].group = _OPTIONS


def _read_help(module: str, name: str) -> tuple[str, bool]:
    """Return the docstring of a command without its parameters, and whether it is a group of commands.

    Its module is read and not imported, which would take a second. A group has the docstring of its module.
    """
    path = Path(__file__).parent.joinpath(*module.split(".")).with_suffix(".py")
    text = path.read_text(encoding="utf-8")
    position = text.find(f"\ndef {name}(")
    docstring = inspect.cleandoc(text[max(position, 0) :].split('"""', 2)[1])
    return docstring.partition("\nParameters\n")[0], position < 0


for _order, (_title, _targets) in enumerate(_COMMANDS.items()):
    _group = Group(_title, sort_key=_order)
    for _rank, _target in enumerate(_targets.split()):
        _module, _, _name = _target.rpartition(".")
        _help, _is_group = _read_help(_module, _name)
        _settings = {} if _is_group else {"help_format": "markdown"}  # the modules of groups set their own
        app.command(f"quorate.cli.{_module}:{_name}", help=_help, group=_group, sort_key=_rank, **_settings)


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
        print(f"quorate: {error.filename}: {error.strerror}".replace("None: ", ""), file=sys.stderr)
        return 1
    except (KeyboardInterrupt, ImportError) as error:  # an import that an interrupt cuts off is an ImportError
        if not _is_interrupted(error):
            raise
        # The call that was interrupted notes what it has spent (`quorate.core.progress`); only it knows.
        print(f"quorate: {' '.join(getattr(error, '__notes__', [_INTERRUPTED]))}", file=sys.stderr)
        return 130
    return result if isinstance(result, int) else 0


def main_or_report() -> int:
    """Run one command as a program: an error that nobody foresaw is one sentence, and its details are in a file."""
    try:
        return main()
    except Exception as error:
        notes = " ".join(getattr(error, "__notes__", ["What was charged before stays charged."]))
        print(
            f"quorate: an unexpected {type(error).__name__} ended the command. {notes} {write_crash()}",
            file=sys.stderr,
        )
        return 1


def write_crash() -> str:
    """Write the traceback, which may hold values of records, to a file of the user's alone; say where it is."""
    import traceback
    from tempfile import gettempdir, mkstemp

    from quorate.core.ledger.chain import state_folder

    try:
        folder = state_folder() or Path(gettempdir())
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        file, name = mkstemp(prefix="crash-", suffix=".txt", dir=folder)
        with open(file, "w", encoding="utf-8") as log:
            log.write(traceback.format_exc())
    except OSError:
        return "Its details could not be written."
    return f"Its details, which may hold values of records, are in {name}."


def _is_interrupted(error: BaseException | None) -> bool:
    """Return whether an error began with an interrupt."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


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
        return CycloptsPanel(f"{command} takes {error.token.keyword} once. A list is separated by commas: a,b")
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
