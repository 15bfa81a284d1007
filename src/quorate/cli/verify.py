"""`quorate verify` and `quorate card`: check the claim of a saved model, and write what it shows for others."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from quorate.cli.options import AsJson, option, with_options
from quorate.cli.output import check_new_file, show
from quorate.core.errors import InvalidInput
from quorate.report.card import QUESTIONS, Card

_VERDICTS = {0: "verified", 1: "wrong", 3: "not verified"}


def verify(folder: Path | None = None, *, copy: Path | None = None, json: AsJson = False) -> int:
    """Recompute the privacy claim of a model from its integers. Exit code 0: verified, 1: wrong, 3: not verified.

    Example: `quorate verify model`

    The check is one file of Python's standard library alone, run in a process of its own. It shares no code with this
    package: `--copy` writes it out, to be read and run elsewhere.

    Parameters
    ----------
    folder
        The model, as `quorate fit`, `quorate release` or `quorate.save` wrote it.
    copy
        The file to write the program to: `python -I -S verify_claim.py FOLDER` runs it without this package.
    """
    if copy is not None:
        check_new_file(copy)
        copy.write_bytes(_find_program().read_bytes())
    if folder is None:
        if copy is None:
            raise InvalidInput("nothing to do: name a FOLDER to verify, or add --copy FILE")
        return 0
    code, lines = _run_program(folder)
    show({"folder": str(folder), "verdict": _VERDICTS[code], "lines": lines}, "\n".join(lines), as_json=json)
    return code


@with_options(option(name, str, "", question) for name, question in QUESTIONS.items())
def card(folder: Path, *, out: Path, json: AsJson = False, **answers: str) -> int:
    """Write the deployment card of a model: card.md, card.html, card.json and an entry for the public registry.

    Example: `quorate card model --out card --name "Ward visits"`

    What the folder shows is filled in, with the verdict of `quorate verify`. Six questions are for the owner: they are
    asked in a terminal, unless an option answers them. registry.yaml has the fields of the registry of deployments.

    Parameters
    ----------
    folder
        The model, as `quorate fit`, `quorate release` or `quorate.save` wrote it.
    out
        The new folder for the four files.
    json
        Print the names of the files as JSON.
    """
    if sys.stdin.isatty():
        answers = {key: text or input(f"{QUESTIONS[key]} ") for key, text in answers.items()}
    code, lines = _run_program(folder)
    verdict = _VERDICTS[code] if code == 0 else lines[-1]
    written = [str(path) for path in Card.read(folder, answers, verdict=verdict).write(out)]
    return show({"verdict": _VERDICTS[code], "written": written}, f"Written: {', '.join(written)}", as_json=json)


def _run_program(folder: Path) -> tuple[int, list[str]]:
    """Verify a folder in a process of its own; return the exit code and the lines that were printed."""
    command = [sys.executable, "-I", "-S", str(_find_program()), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own file
    return done.returncode if done.returncode in _VERDICTS else 1, (done.stdout + done.stderr).splitlines()


def _find_program() -> Path:
    """Return the file of the program, without importing the package that it lies in."""
    spec = find_spec("quorate")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "auditing" / "verify_claim.py"
