"""`quorate doctor`: what is installed, and whether randomness, clock and disk of this machine are sound."""

import os
import platform
import re
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from json import dumps
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from quorate import __version__
from quorate.cli.options import AsJson
from quorate.core.errors import QuorateError
from quorate.core.ledger.chain import state_folder

__all__ = ["Finding", "doctor"]

Verdict = Literal["ok", "missing", "warning", "unsound"]
_PURPOSES = {  # of the extras
    "report": "report pages",
    "service": "quorate serve",
    "client": "quorate ask, and a client for programs",
    "sites": "quorate site: a federation of owners",
    "tracing": "traces of a server's requests",
    "postgres": "a ledger that several hosts share",
    "excel": "tables in .xlsx files",
    "sql": "tables from queries to DuckDB and PostgreSQL",
    "dask": "teachers fitted on a Dask cluster",
    "ray": "teachers fitted on a Ray cluster",
    "torch": "batched learners on PyTorch",
    "onnx": "published models as ONNX files",
    "mlflow": "published models in an MLflow registry",
    "docs": "this documentation, built from source",
    "test": "the tests",
}
_RELEASED = 1_760_000_000  # seconds since 1970: this code is younger, so that a clock before it is wrong
_SYNCS = 20
_INSTANT = 20e-6  # seconds: no disk writes so fast
_MEMORY = ("tmpfs", "ramfs")
_SHARED = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p")


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    verdict: Verdict
    told: str


def doctor(*, json: AsJson = False) -> int:
    """Look at everything, print it, and return 1 if something is unsound."""
    findings = [*_installed(), *_extras(), *_machine()]
    sound = not any(finding.verdict == "unsound" for finding in findings)
    if json:
        print(dumps({"sound": sound, "findings": [asdict(finding) for finding in findings]}))
    else:
        _show(findings, sound=sound)
    return 0 if sound else 1


def _show(findings: list[Finding], *, sound: bool) -> None:
    styles = {"ok": "green", "missing": "dim", "warning": "yellow", "unsound": "bold red"}
    table = Table(show_header=False, title=f"quorate {__version__}")
    for finding in findings:
        style = styles[finding.verdict]
        table.add_row(f"[{style}]{finding.verdict}[/{style}]", finding.subject, escape(finding.told))
    console = Console()
    console.print(table)
    console.print("This machine is sound." if sound else "This machine is [bold]not sound[/bold]: see above.")


def _installed() -> Iterator[Finding]:
    yield Finding("Python", "ok", f"{platform.python_version()} on {platform.system()}")
    for package in _required().get("", ()):
        version = _version(package)
        told = "not installed, and needed: pip install quorate" if version is None else version
        yield Finding(package, "unsound" if version is None else "ok", told)


def _extras() -> Iterator[Finding]:
    for extra, packages in _required().items():
        if not extra:
            continue
        missing = [package for package in packages if _version(package) is None]
        told = _PURPOSES.get(extra, ", ".join(packages))
        if missing:
            told += f": pip install 'quorate[{extra}]' brings {', '.join(missing)}"
        yield Finding(f"extra {extra}", "missing" if missing else "ok", told)


def _required() -> dict[str, list[str]]:
    """Return the packages that each extra needs, as the installed package says; those of all under no name."""
    required: dict[str, list[str]] = {"": []}
    for line in metadata.requires("quorate") or ():
        package, extra = re.split(r"[\s<>=!~;\[(]", line, maxsplit=1)[0], re.search(r"extra == ['\"](\w+)['\"]", line)
        if package != "quorate":
            required.setdefault(extra[1] if extra else "", []).append(package)
    return required


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _machine() -> Iterator[Finding]:
    looks: dict[str, Callable[[], tuple[Verdict, str]]] = {
        "entropy": _entropy,
        "noise": _noise,
        "clock": _clock,
        "sync, this folder": lambda: _sync(Path.cwd()),
        "sync, state folder": _sync_state,
    }
    for subject, look in looks.items():
        try:
            yield Finding(subject, *look())
        except (OSError, QuorateError) as error:
            yield Finding(subject, "unsound", str(error))


def _entropy() -> tuple[Verdict, str]:
    if hasattr(os, "getrandom"):
        try:
            os.getrandom(32, os.GRND_NONBLOCK)
        except BlockingIOError:
            return "unsound", "the operating system has not gathered enough randomness yet"
    if not ssl.RAND_status():
        return "unsound", "OpenSSL's generator is not seeded"
    if len({os.urandom(16) for _ in range(64)}) < 64:
        return "unsound", "the operating system repeats its random words"
    return "ok", "the operating system and OpenSSL give random words"


def _noise() -> tuple[Verdict, str]:
    """Draw from a mechanism: the exact samplers must load and must not stand still."""
    from quorate.core.mechanisms import NoisyMax

    even = NoisyMax(teachers=100, classes=2, scale=50.0)
    labels = {even.answer([50, 50]) for _ in range(64)}  # both, but for one chance in 2^63
    if labels != {0, 1}:
        return "unsound", "the samplers of OpenDP always draw the same"
    return "ok", "the exact samplers of OpenDP draw"


def _clock() -> tuple[Verdict, str]:
    if time.time() < _RELEASED:
        return "unsound", "the clock is years behind: keys, quotas and ledgers carry its times"
    before = time.monotonic()
    time.sleep(0.002)
    if time.monotonic() <= before:
        return "unsound", "the monotonic clock stands still"
    if sys.platform == "linux" and _synchronised() is False:
        return "warning", "runs, but the system does not keep it synchronised; hosts must agree within five minutes"
    return "ok", time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())


def _synchronised() -> bool | None:
    """Return whether the kernel says that its clock follows another, or None where it does not say."""
    import ctypes

    class Timex(ctypes.Structure):
        _fields_ = (("modes", ctypes.c_uint), ("rest", ctypes.c_long * 64))

    try:
        state = ctypes.CDLL(None).adjtimex(ctypes.byref(Timex()))
    except (AttributeError, OSError):
        return None
    return None if state < 0 else state != 5  # TIME_ERROR


def _sync_state() -> tuple[Verdict, str]:
    folder = state_folder()
    if folder is None:
        return "warning", "there is no home for marks that tell an old ledger: set QUORATE_STATE to a folder"
    return _sync(folder)


def _sync(folder: Path) -> tuple[Verdict, str]:
    """Write and sync a few bytes as the ledger does, and look where they go."""
    near = folder
    while not near.is_dir():
        near = near.parent
    kind = _file_system(near)
    with tempfile.NamedTemporaryFile(dir=near, prefix=".quorate-doctor-") as file:
        times = []
        for _ in range(_SYNCS):
            file.write(b"0123456789abcdef")
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    typical = sorted(times)[_SYNCS // 2]
    told = f"{near}: {1000 * typical:.2g} ms a sync" + (f" on {kind}" if kind else "")
    if kind in _MEMORY:
        return "warning", f"{told}, which a restart empties: keep no model there"
    if kind in _SHARED:
        return "warning", f"{told}, which several hosts share: keep the ledger in PostgreSQL"
    if typical < _INSTANT:
        return "warning", f"{told}: too fast for a disk. A power cut may forget what was charged"
    return "ok", told


def _file_system(folder: Path) -> str | None:
    """Return the type of the file system that a folder is on, where the kernel tells."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    path = folder.resolve()
    kinds: list[tuple[int, str]] = [
        (len(mount[1]), mount[2]) for mount in mounts if path.is_relative_to(mount[1].replace("\\040", " "))
    ]
    return max(kinds, default=(0, None))[1]
