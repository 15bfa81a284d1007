"""The commands of a job, run one after the other in a child process, with their progress and what they print."""

import codecs
import contextlib
import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

State = Literal["running", "done", "refused", "interrupted"]

_PROGRESS = re.compile(r"quorate: (.*) \(\d+:\d\d\)")  # the line that `quorate.core.progress` writes over itself
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_TERMINAL = {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
_NOTHING_WRITTEN = "No folder was written: nothing was released, and so nothing is spent."
_INTERRUPTED = 130  # The exit code of a command that was interrupted.
_STOP_SECONDS = 10.0


class Run:
    """Commands that run in children at a terminal of their own, so that they show progress, as they do to a person.

    Parameters
    ----------
    steps
        The arguments of `quorate` of each command, by a comment on it.
    folder
        Where they run.
    epsilon
        What they may spend.
    out
        The folder that they write.
    """

    def __init__(self, steps: Mapping[str, Sequence[str]], *, folder: Path, epsilon: float, out: Path) -> None:
        self.epsilon, self.out = epsilon, out
        self.state: State = "running"
        self.steps, self.step = len(steps), 0
        self._progress, self._text = "", ""
        self._began, self._is_cancelled = time.monotonic(), False
        self._seconds: float | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, args=(list(steps.values()), folder), daemon=True)
        self._thread.start()

    @property
    def is_running(self) -> bool:
        """Whether a command is still at work."""
        return self.state == "running"

    @property
    def may_have_spent(self) -> bool:
        """Whether anything of it may have been released: models, their budgets and releases are folders."""
        return self.is_running or any(path.is_dir() for path in self.out.iterdir())

    @property
    def seconds(self) -> int:
        """How long it has taken."""
        return int(self._seconds if self._seconds is not None else time.monotonic() - self._began)

    @property
    def text(self) -> str:
        """What the commands have printed, without progress."""
        with self._lock:
            lines = [_last_writing(line) for line in self._text.split("\n")]
        return "\n".join(line for line in lines if not _PROGRESS.fullmatch(line)).strip()

    @property
    def messages(self) -> list[str]:
        """The sentences that the commands say of themselves: refusals, warnings, and what an interruption spent."""
        lines = [line.removeprefix("quorate: ") for line in self.text.split("\n") if line.startswith("quorate: ")]
        if self.state == "done":
            return lines
        if self.may_have_spent:
            return [
                *lines,
                f"epsilon = {self.epsilon:g} may be spent: the folder has what was written.",
            ]
        return [*(line for line in lines if not line.startswith("Interrupted")), _NOTHING_WRITTEN]

    @property
    def progress(self) -> str:
        """What is under way, in words."""
        step = "" if self.steps == 1 else f"command {min(self.step, self.steps)} of {self.steps}: "
        return f"{step}{self._progress or 'starting'}"

    def cancel(self) -> None:
        """Interrupt the command, as Ctrl-C does: it says what is spent."""
        with self._lock:
            self._is_cancelled = True
            self._signal(signal.SIGINT)

    def stop(self) -> None:
        """Interrupt the command, wait until it has ended, and end it by force if it does not."""
        if self.is_running:
            self.cancel()
            self._thread.join(_STOP_SECONDS)
            with self._lock:
                self._signal(signal.SIGKILL)
            self._thread.join(_STOP_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None and self._child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)

    def _run(self, commands: Sequence[Sequence[str]], folder: Path) -> None:
        code = 0
        for command in commands:
            code = self._run_command(command, folder)
            if code:
                break
        interrupted = self._is_cancelled and code != 0
        self._seconds = time.monotonic() - self._began
        self.state = "interrupted" if interrupted else "refused" if code else "done"

    def _run_command(self, words: Sequence[str], folder: Path) -> int:
        with self._lock:
            if self._is_cancelled:
                return _INTERRUPTED
            ours, theirs = pty.openpty()
            self.step, self._progress = self.step + 1, ""
            self._child = subprocess.Popen(  # noqa: S603  our own program, without a shell
                [sys.executable, "-m", "quorate", *words],
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                env=os.environ | _TERMINAL,
                start_new_session=True,  # Ctrl-C at the studio's terminal reaches it through `stop` alone.
            )
        os.close(theirs)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux says so when the other side has closed.
                break
            if not part:
                break
            self._note(decoder.decode(part))
        os.close(ours)
        return self._child.wait()

    def _note(self, part: str) -> None:
        with self._lock:
            self._text += _ESCAPES.sub("", part).replace("\r\n", "\n")
            found = _PROGRESS.findall(self._text.rpartition("\n")[2])
            if found:
                self._progress = found[-1]
                self._text = self._text[: self._text.rfind("\n") + 1]


def _last_writing(line: str) -> str:
    """Return what a terminal would show of a line that was written over itself."""
    parts = [part.rstrip() for part in line.split("\r") if part.strip()]
    return parts[-1] if parts else ""
