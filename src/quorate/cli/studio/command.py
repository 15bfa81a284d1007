"""`quorate studio`: the front door in a browser, served to one browser on this machine until it is stopped."""

import contextlib
import os
import signal
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from quorate.cli.options import require_extra
from quorate.cli.reading import FileOptions, TableFile
from quorate.core.errors import InvalidInput

_STOP_SECONDS = 2


def studio(
    table: Annotated[
        Path | None, Parameter(help="The private table to begin with. Without one, drop a file onto the first page.")
    ] = None,
    *,
    port: int = 0,
    files: FileOptions = FileOptions(),
) -> int:
    """Do the same in a browser: see the columns, choose what to make, see what an epsilon buys, run it, download it.

    The address that is printed opens the studio in one browser, on this machine alone. Files stay in a private folder,
    which is removed when you stop the studio with Ctrl-C: download what you want to keep. Planning reads no private
    value but what `quorate look` shows you, and spends nothing.

    Example: `quorate studio visits.csv`

    Parameters
    ----------
    port
        The port to listen on; 0 for any that is free.
    """
    with require_extra("service", "the studio"):
        import uvicorn

        from quorate.cli.studio.pages import make_studio
    if not 0 <= port < 2**16:
        raise InvalidInput(f"port must be a number from 0 to 65535, got {port}")
    with _listen(port) as listening, _private_folder() as folder:
        source = None if table is None else TableFile(table=_find(table), **files.file_settings())
        with contextlib.chdir(folder):  # Scripts and commands name files as their owner does: without the folder.
            made = make_studio(folder, port=listening.getsockname()[1], source=source)
            print(f"The studio: {made.guard.address}\nThe address works once. Ctrl-C stops it.", flush=True)
            config = uvicorn.Config(
                made.guard,
                log_level="critical",
                access_log=False,
                server_header=False,
                proxy_headers=False,
                ws="none",
                lifespan="off",
                timeout_graceful_shutdown=_STOP_SECONDS,
            )
            with _ignore_signals():
                uvicorn.Server(config).run(sockets=[listening])
                ended = made.project.close()
    if ended:
        print(f"quorate: {ended}")
    return 0


def _find(table: Path) -> Path:
    if not table.is_file():
        raise InvalidInput(f"there is no file {table}")
    return table.resolve()


@contextlib.contextmanager
def _private_folder() -> Iterator[Path]:
    """Yield a folder that nobody else may read, and remove it."""
    with tempfile.TemporaryDirectory(prefix="quorate-studio-", ignore_cleanup_errors=True) as folder:
        os.chmod(folder, 0o700)
        yield Path(folder).resolve()


def _listen(port: int) -> socket.socket:
    listening = socket.socket()
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen()  # A browser that comes before the server is ready waits.
    except OSError as error:
        listening.close()
        raise InvalidInput(f"127.0.0.1:{port} cannot be listened on: {error.strerror}") from None
    return listening


@contextlib.contextmanager
def _ignore_signals() -> Iterator[None]:
    """Let the signals that stop a server do nothing else: uvicorn raises them again once it has stopped.

    A terminal that is closed stops the studio, too.
    """
    former = {number: signal.signal(number, lambda number, frame: None) for number in (signal.SIGTERM, signal.SIGINT)}
    former[signal.SIGHUP] = signal.signal(signal.SIGHUP, lambda number, frame: signal.raise_signal(signal.SIGTERM))
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
