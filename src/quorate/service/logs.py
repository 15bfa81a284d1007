"""Structured logs: one JSON object a line, of fields that cannot hold a feature, a ballot or a key.

A request is logged as its route (the template, not the path), model, status, code, key id, and milliseconds in whole
paces. Neither headers nor bodies nor query strings come here, and of an exception only its type and where in this
package it arose. What the server underneath says is cut down to its template, without arguments and tracebacks.
"""

import asyncio
import logging
import sys
import time
import traceback
from pathlib import Path
from typing import Any, TextIO

import msgspec

__all__ = ["LineFormatter", "Log", "log_config"]

_PACKAGE = str(Path(__file__).resolve().parents[1])
_FLUSH_SECONDS = 0.1
_MOST_LINES = 4096  # kept for the next flush; a disk that stands still does not fill the memory


class Log:
    """Lines for a stream, written a few times a second.

    >>> log = Log(sys.stdout)
    >>> log.event("started", models=2)
    >>> log.flush()
    {"time":"...","event":"started","models":2}
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._lines: list[bytes] = []
        self._dropped = 0
        self._planned = False

    def event(self, event: str, /, **fields: str | int | float | bool | None) -> None:
        """Write down what happened. Fields are names, numbers and codes of our own.

        >>> Log(sys.stdout).event("stopped")
        """
        if len(self._lines) >= _MOST_LINES:
            self._dropped += 1
            return
        self._lines.append(msgspec.json.encode({"time": _now(), "event": event, **fields}))
        if not self._planned:
            try:
                asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)
                self._planned = True
            except RuntimeError:  # no loop: whoever logs flushes
                pass

    def failure(self, error: BaseException, *, route: str) -> None:
        """Write down that something failed that should not: the type of the exception, and where it arose.

        >>> log = Log(sys.stdout)
        >>> log.failure(ValueError("a secret"), route="/")
        >>> log.flush()
        {"time":"...","event":"failure","route":"/","kind":"ValueError","where":"unknown"}
        """
        frames = traceback.extract_tb(error.__traceback__)
        ours = [frame for frame in frames if frame.filename.startswith(_PACKAGE)]
        where = f"{Path(ours[-1].filename).relative_to(_PACKAGE)}:{ours[-1].lineno}" if ours else "unknown"
        self.event("failure", route=route, kind=type(error).__name__, where=where)

    def flush(self) -> None:
        """Write all lines out.

        >>> Log(sys.stdout).flush()
        """
        self._planned = False
        if not self._lines and not self._dropped:
            return
        if self._dropped:
            self._lines.append(
                msgspec.json.encode({"time": _now(), "event": "log_lines_dropped", "lines": self._dropped})
            )
        lines, self._lines, self._dropped = self._lines, [], 0
        stream = sys.stderr if self._stream is None else self._stream
        try:
            stream.write((b"\n".join(lines) + b"\n").decode())
            stream.flush()
        except (OSError, ValueError):  # nobody listens any more; answers go on
            pass


class LineFormatter(logging.Formatter):
    """Lines of other packages' loggers: the level and the template, no argument, no traceback.

    >>> record = logging.LogRecord("uvicorn.error", logging.ERROR, "", 0, "failed for %s", ("Smith",), None)
    >>> LineFormatter().format(record)
    '{"time":"...","event":"server","level":"error","text":"failed for %s"}'
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line.

        >>> record = logging.LogRecord("uvicorn.error", logging.INFO, "", 0, "Started", (), None)
        >>> LineFormatter().format(record)
        '{"time":"...","event":"server","level":"info","text":"Started"}'
        """
        text = str(record.msg).partition("\n")[0]
        line = {"time": _now(), "event": "server", "level": record.levelname.lower(), "text": text}
        return msgspec.json.encode(line).decode()


def log_config() -> dict[str, Any]:
    """Return the logging of the server underneath, in `logging.config` form.

    >>> log_config()["loggers"]["uvicorn.access"]["handlers"]
    []
    """
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"line": {"()": "quorate.service.logs.LineFormatter"}},
        "handlers": {"line": {"class": "logging.StreamHandler", "formatter": "line", "stream": "ext://sys.stderr"}},
        "loggers": {
            "uvicorn": {"handlers": ["line"], "level": "WARNING", "propagate": False},
            "uvicorn.access": {"handlers": [], "level": "CRITICAL", "propagate": False},
            "asyncio": {"handlers": ["line"], "level": "WARNING", "propagate": False},
        },
    }


def _now() -> str:
    now = time.time()
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(now))}.{int(now % 1 * 1000):03d}Z"
