"""`quorate verify`: check the claim of a saved model with a program that shares no code with this package."""

import subprocess
import sys
from importlib.util import find_spec
from json import dumps
from pathlib import Path

from quorate.cli.options import AsJson
from quorate.cli.output import check_new_file
from quorate.core.errors import InvalidInput

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
    program = _find_program()
    if copy is not None:
        check_new_file(copy)
        copy.write_bytes(program.read_bytes())
    if folder is None:
        if copy is None:
            raise InvalidInput("nothing to do: name a FOLDER to verify, or add --copy FILE")
        return 0
    command = [sys.executable, "-I", "-S", str(program), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  our own file
    lines = (done.stdout + done.stderr).splitlines()
    if json:
        print(dumps({"folder": str(folder), "verdict": _VERDICTS[done.returncode], "lines": lines}))
    else:
        print("\n".join(lines))
    return done.returncode


def _find_program() -> Path:
    """Return the file of the program, without importing the package that it lies in."""
    spec = find_spec("quorate")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "auditing" / "verify_claim.py"
