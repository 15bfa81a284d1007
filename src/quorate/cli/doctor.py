"""`quorate doctor`: checks of the installation, the randomness, the clock and the disk of this machine."""

import os
import platform
import re
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

from quorate import __version__
from quorate.cli.options import AsJson
from quorate.cli.output import show, show_rows
from quorate.core.errors import QuorateError
from quorate.core.lazy import install_command
from quorate.core.ledger.chain import state_folder

Verdict = Literal["ok", "missing", "warning", "unsound"]
_EARLIEST_CLOCK = 1_760_000_000  # seconds since 1970: this code is younger
_SYNCS = 20
_INSTANT_SECONDS = 20e-6  # no disk writes so fast
_MEMORY_SYSTEMS = ("tmpfs", "ramfs")
_SHARED_SYSTEMS = ("nfs", "nfs4", "cifs", "smb3", "fuse.sshfs", "9p")


@dataclass(frozen=True)
class Finding:
    """The subject of a check and its verdict."""

    subject: str
    verdict: Verdict
    text: str


def doctor(*, json: AsJson = False) -> int:
    """Check the installation, its extras, and this machine. Exit code 1 if the machine is unsound."""
    findings = [*_packages(), *_machine()]
    sound = not any(finding.verdict == "unsound" for finding in findings)
    rows = [asdict(finding) for finding in findings]
    show({"sound": sound, "findings": rows}, lambda: _show_findings(rows, sound=sound), as_json=json)
    return 0 if sound else 1


def _show_findings(rows: list[dict[str, Any]], *, sound: bool) -> None:
    print(f"quorate {__version__}")
    show_rows(rows, is_result=True)
    print("This machine is sound." if sound else "This machine is not sound: see above.")


def _packages() -> Iterator[Finding]:
    """Yield the packages that Quorate needs, then its extras, as the installed package lists them."""
    yield Finding("Python", "ok", f"{platform.python_version()} on {platform.system()}")
    extras: dict[str, list[str]] = {}
    for line in metadata.requires("quorate") or ():
        package, extra = re.split(r"[\s<>=!~;\[(]", line, maxsplit=1)[0], re.search(r"extra == ['\"](\w+)['\"]", line)
        if package != "quorate":
            extras.setdefault(extra[1] if extra else "", []).append(package)
    for package in extras.pop("", ()):
        version = _version(package)
        if version is None:
            yield Finding(package, "unsound", f"not installed, and needed: {install_command()}")
        else:
            yield Finding(package, "ok", version)
    for name, packages in extras.items():
        missing = [package for package in packages if _version(package) is None]
        text = f"{install_command(name)} brings {', '.join(missing)}" if missing else "installed"
        yield Finding(f"extra {name}", "missing" if missing else "ok", text)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _machine() -> Iterator[Finding]:
    checks: dict[str, Callable[[], tuple[Verdict, str]]] = {
        "entropy": _entropy,
        "noise": _noise,
        "clock": _clock,
        "sync, this folder": lambda: _sync(Path.cwd()),
        "sync, state folder": lambda: _sync(state_folder()),
    }
    for subject, check in checks.items():
        try:
            yield Finding(subject, *check())
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
    if {even.answer([50, 50]) for _ in range(64)} != {0, 1}:  # both, but for one chance in 2^63
        return "unsound", "the samplers of OpenDP always draw the same"
    return "ok", "the exact samplers of OpenDP draw"


def _clock() -> tuple[Verdict, str]:
    if time.time() < _EARLIEST_CLOCK:
        return "unsound", "the clock is years behind: keys, quotas and ledgers carry its times"
    start = time.monotonic()
    time.sleep(0.002)
    if time.monotonic() <= start:
        return "unsound", "the monotonic clock stands still"
    return "ok", f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}; hosts must agree within five minutes"


def _sync(folder: Path | None) -> tuple[Verdict, str]:
    """Write and sync a few bytes as the ledger does, and look at the file system they go to."""
    if folder is None:
        return "warning", "there is no home for marks that tell an old ledger: set QUORATE_STATE to a folder"
    while not folder.is_dir():
        folder = folder.parent
    system, times = _file_system(folder), []
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".quorate-doctor-") as file:
        for _ in range(_SYNCS):
            file.write(b"0123456789abcdef")
            file.flush()
            start = time.perf_counter()
            os.fsync(file.fileno())
            times.append(time.perf_counter() - start)
    median = sorted(times)[_SYNCS // 2]
    text = f"{folder}: {1000 * median:.2g} ms a sync" + (f" on {system}" if system else "")
    if system in _MEMORY_SYSTEMS:
        return "warning", f"{text}, which a restart empties: keep no model there"
    if system in _SHARED_SYSTEMS:
        return "warning", f"{text}, which several hosts share: keep the ledger in PostgreSQL"
    if median < _INSTANT_SECONDS:
        return "warning", f"{text}: too fast for a disk. A power cut may forget what was charged"
    return "ok", text


def _file_system(folder: Path) -> str | None:
    """Return the type of the file system that a folder is on, where the kernel tells."""
    try:
        mounts = [line.split() for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
    except OSError:
        return None
    path = folder.resolve()
    types = [(len(mount[1]), mount[2]) for mount in mounts if path.is_relative_to(mount[1].replace("\\040", " "))]
    return max(types, default=(0, None))[1]
