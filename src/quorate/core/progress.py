"""Progress of long calls: one line on a terminal or in a notebook, and nowhere else.

Only public counts are shown: teachers, queries, steps. The line, like the duration of a call, is for the person who
runs it. Nested calls write into the same line. It goes to standard error, appears after half a second, and is removed
when the call ends. `html_card` is what a notebook shows of budgets, plans, models and answers.
"""

import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from html import escape
from typing import Any, TextIO

NOTHING_SPENT = "Interrupted: nothing was fitted, released or answered, and so nothing is spent."

_WAIT, _TICK = 0.5, 0.5  # seconds until a line appears, and between two of its changes


class _Setting:
    on = True


class Progress:
    """One line about a call that takes long."""

    def __init__(self, stream: TextIO) -> None:
        self._stream, self._began = stream, time.monotonic()
        self._what, self._done = "", 0
        self._total: int | None = None
        self._ended, self._width = threading.Event(), 0
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._tick, daemon=True, name="quorate-progress")
        self._thread.start()

    def begin(self, what: str, total: int | None) -> None:
        """Say what is done now, of which there is so much."""
        with self._lock:
            self._what, self._total, self._done = what, total, 0

    def advance(self, number: int) -> None:
        """Say that so much more is done."""
        with self._lock:
            self._done += number

    def __str__(self) -> str:
        with self._lock:
            count = "" if self._total is None else f" {self._done:,} of {self._total:,}"
            title = self._what
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"quorate: {title}{count} ({minutes}:{seconds:02d})"

    def _tick(self) -> None:
        if self._ended.wait(_WAIT):
            return
        while True:
            self._write(str(self))
            if self._ended.wait(_TICK):
                return

    def _write(self, text: str) -> None:
        try:
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()
            self._width = len(text)
        except (OSError, ValueError):  # nobody reads it any more
            self._ended.set()

    def end(self) -> None:
        """Take the line away."""
        self._ended.set()
        self._thread.join()
        if self._width:
            self._write("")
            self._write("")  # the first has written blanks over it


LINE: ContextVar[Progress | None] = ContextVar("quorate_progress", default=None)  # that of the call under way
HIDDEN: ContextVar[bool] = ContextVar("quorate_progress_hidden", default=False)


def set_progress(on: bool) -> None:
    """Set whether long calls show their progress; by default they do on a terminal and in a notebook.

    >>> set_progress(False)  # from now on nothing is shown
    >>> set_progress(True)
    """
    _Setting.on = bool(on)


@contextmanager
def progress(what: str, total: int | None = None, *, left: str = NOTHING_SPENT) -> Iterator[None]:
    """Show that this is under way; `advance` counts it. Whoever interrupts it is told what is `left` of it."""
    outer = LINE.get()
    line = outer if outer is not None else Progress(sys.stderr) if _is_watched() else None
    token = LINE.set(line)
    try:
        if line is not None:
            line.begin(what, total)
        yield
    except KeyboardInterrupt as error:
        if outer is None and not getattr(error, "__notes__", ()):
            error.add_note(left)
        raise
    finally:
        LINE.reset(token)
        if line is not None and outer is None:
            line.end()


def advance(number: int = 1) -> None:
    """Count what is done of what is under way, if anybody watches."""
    line = LINE.get()
    if line is not None:
        line.advance(number)


@contextmanager
def hidden_progress() -> Iterator[None]:
    """Show nothing of what is done here: it has a display of its own, or how often it is done is a secret."""
    tokens = LINE.set(None), HIDDEN.set(True)
    try:
        yield
    finally:
        LINE.reset(tokens[0])
        HIDDEN.reset(tokens[1])


def _is_watched() -> bool:
    """Return whether somebody sees a line: at a terminal, or in a notebook; never in a thread of a server."""
    if not _Setting.on or HIDDEN.get() or threading.current_thread() is not threading.main_thread():
        return False
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    notebook = type(shell).__name__ == "ZMQInteractiveShell"
    return notebook or bool(getattr(sys.stderr, "isatty", bool)())


_CELL = "text-align:left;padding:.1em 1em .1em 0;vertical-align:top"


def html_card(
    title: str, facts: Mapping[str, Any], *, bar: tuple[str, float] | None = None, lines: Iterable[str] = ()
) -> str:
    """Return a title, a bar (what it measures, and a share from 0 to 1), facts by name, and lines of text.

    >>> "50.0%" in html_card("Budget", {"epsilon": 1.0}, bar=("left", 0.5))
    True
    """
    rows = "".join(
        f'<tr><th style="{_CELL};font-weight:normal;opacity:.75">{escape(name)}</th>'
        f'<td style="{_CELL}">{escape(_format(value))}</td></tr>'
        for name, value in facts.items()
    )
    text = "".join(f'<p style="margin:.3em 0;max-width:50em">{escape(line)}</p>' for line in lines)
    table = f'<table style="border:0;margin:.3em 0">{rows}</table>' if rows else ""
    return (
        '<div style="border:1px solid currentColor;border-radius:.4em;padding:.5em 1em;display:inline-block">'
        f"<strong>{escape(title)}</strong>{'' if bar is None else _bar(*bar)}{table}{text}</div>"
    )


def _bar(measures: str, share: float) -> str:
    part = min(1.0, max(0.0, share))
    return (
        f'<div role="meter" aria-valuemin="0" aria-valuemax="100" aria-valuenow="{100 * part:.1f}" '
        f'aria-label="{escape(measures)}" style="border:1px solid currentColor;height:.6em;width:20em;margin:.4em 0">'
        f'<div style="background:currentColor;opacity:.6;height:100%;width:{100 * part:.1f}%"></div></div>'
        f"<div>{escape(measures)}: {100 * part:.1f}%</div>"
    )


def _format(value: Any) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
