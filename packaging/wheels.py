"""Build the wheel and the sdist, and try the wheel where there is nothing else: `make wheels`.

    python packaging/wheels.py                                   every Python, every extra
    python packaging/wheels.py --pythons 3.11 --extras report    some of them

The wheel is built from the sdist. It goes into a clean environment for each Python that this machine has, and is put to
`packaging/smoke.py`; on the first of them, each extra gets an environment of its own. A Python that is not there is
named at the end, with whether a wheel of every dependency is to be had for it.
"""

import argparse
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from smoke import PROMISES

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


def run(command: Sequence[str | Path], *, cwd: Path = ROOT, umask: int = -1, **variables: str) -> str:
    """Run a command and return what it printed; one that fails ends this script with what it said."""
    words, changed = [str(word) for word in command], os.environ | variables
    done = subprocess.run(words, cwd=cwd, env=changed, umask=umask, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}\nfailed: exit code {done.returncode}")
    return done.stdout


def source_date() -> str:
    """Return the time that is written into archives: that of the last commit, unless the environment names another."""
    return os.environ.get("SOURCE_DATE_EPOCH") or run(["git", "log", "-1", "--format=%ct"]).strip()


def build(source: Path, target: Path, **how: Any) -> list[Path]:
    """Build the sdist, and the wheel from it; check both as an index of packages would, and return them."""
    run([sys.executable, "-m", "build", "--outdir", target, source], SOURCE_DATE_EPOCH=source_date(), **how)
    files = sorted([*target.glob("quorate-*.tar.gz"), *target.glob("quorate-*.whl")])
    run([sys.executable, "-m", "twine", "check", "--strict", *files])
    return files


def find_python(version: str) -> str | None:
    """Return the path of the Python of this version, or None. A shim of pyenv answers for the version it is told."""
    told = os.environ | {"PYENV_VERSION": version}
    ask = [f"python{version}", "-c", "import sys; print(sys.executable)"]
    try:
        done = subprocess.run(ask, env=told, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@contextlib.contextmanager
def environment(python: str, *wanted: str) -> Iterator[tuple[Path, Path]]:
    """Yield the Python of a clean environment with what is wanted, and an empty folder to work in."""
    with tempfile.TemporaryDirectory(prefix="quorate-wheel-") as folder:
        home, place = Path(folder) / "venv", Path(folder) / "work"
        place.mkdir()
        run([python, "-m", "venv", home])
        inner = home / "bin" / "python"
        run([inner, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted], cwd=place)
        yield inner, place


def smoke(python: str, wheel: Path, extra: str = "") -> None:
    """Install the wheel, with an extra or alone, and put it to the smoke test."""
    began = time.perf_counter()
    with environment(python, f"{wheel}[{extra}]" if extra else str(wheel)) as (inner, place):
        state = {"QUORATE_STATE": str(place / "state"), "OMP_NUM_THREADS": "1"}
        run([inner, "-I", ROOT / "packaging" / "smoke.py", *filter(None, [extra])], cwd=place, **state)
        run([inner, "-m", "pip", "check"], cwd=place)
    print(f"  {extra or 'the library'}: {time.perf_counter() - began:.0f} s", flush=True)


def has_wheels(version: str, wheel: Path) -> bool:
    """Return whether a wheel of every dependency is to be had for a Python that is not here."""
    with tempfile.TemporaryDirectory() as folder:
        ask = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--target", folder]
        ask += ["--only-binary=:all:", "--python-version", version, str(wheel)]
        return subprocess.run(ask, capture_output=True, check=False).returncode == 0


def try_wheel(wheel: Path, pythons: Sequence[str], extras: Sequence[str]) -> None:
    """Try the wheel on each Python, and each extra on the first of them."""
    missing, waiting = [], list(extras)
    for version in pythons:
        python = find_python(version)
        if python is None:
            missing.append(version)
            continue
        print(f"Python {version}", flush=True)
        smoke(python, wheel)
        for extra in waiting:
            smoke(python, wheel, extra)
        waiting = []
    for version in missing:
        told = "has a wheel of every dependency" if has_wheels(version, wheel) else "LACKS A WHEEL OF A DEPENDENCY"
        print(f"Python {version} is not on this machine and was not tried; it {told}.")
    if len(missing) == len(pythons):
        sys.exit("no Python was tried")


def main() -> None:
    """Build into dist/, and try the wheel."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pythons", nargs="+", default=PYTHONS, choices=PYTHONS)
    parser.add_argument("--extras", nargs="*", default=sorted(PROMISES), choices=sorted(PROMISES))
    given = parser.parse_args()
    *_, wheel = files = build(ROOT, ROOT / "dist")
    for file in files:
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 2**20:.1f} MiB")
    try_wheel(wheel, given.pythons, given.extras)


if __name__ == "__main__":
    main()
