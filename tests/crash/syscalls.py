"""System calls of servers that answer one query, in the order in which they happened."""

import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_LOG = re.compile(r"(-wal|/pg_wal/[^>]*)>")  # the write-ahead logs of SQLite and of PostgreSQL
_CALL = re.compile(r"^(?P<thread>\d+)\s+(?P<name>\w+)\((?P<rest>.*)$")
_RESUMED = re.compile(r"^(?P<thread>\d+)\s+<\.\.\. (?P<name>\w+) resumed>(?P<rest>.*)$")
_SYNCS = ("fsync", "fdatasync")
_SENDS = ("sendto", "sendmsg", "write", "writev")
_TRACED = "fsync,fdatasync,sendto,sendmsg,write,writev,pwrite64,pwritev"


def can_trace():
    """Return whether processes may be traced here."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


class Tracing:
    """Trace these processes and their threads until the end of the `with` block; `text` is what they did then."""

    def __init__(self, processes, file):
        self._file = Path(file)
        options = [option for process in processes for option in ("-p", str(process))]
        self._command = ["strace", "-f", "-y", "-s", "65536", "-e", f"trace={_TRACED}", "-o", file, *options]
        self._wanted = len(processes)
        self.text = ""

    def __enter__(self):
        self._child = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True)
        attached = 0
        while attached < self._wanted:  # it says so once for each process
            line = self._child.stderr.readline()
            if not line:
                raise RuntimeError("strace ended before it began")
            attached += "attached" in line
        return self

    def __exit__(self, *unused):
        time.sleep(0.3)  # what was begun is finished
        self._child.send_signal(signal.SIGINT)
        self._child.stderr.close()
        self._child.wait(timeout=30)
        self.text = self._file.read_text(errors="replace")


@dataclass(frozen=True)
class Step:
    """Something that counts: "log" (written to, with `text`), "sync" (of a log, once it is over), "answer" (sent)."""

    kind: str
    text: str = ""


def steps_of(text):
    """Return the steps in a trace."""
    steps, begun = [], {}
    for line in text.splitlines():
        if found := _RESUMED.match(line):
            name, rest = found["name"], begun.pop(found["thread"], "") + found["rest"]
        elif found := _CALL.match(line):
            name, rest = found["name"], found["rest"]
            if rest.endswith("<unfinished ...>"):
                begun[found["thread"]] = rest
                if name in _SYNCS:
                    continue  # it counts when it is over
        else:
            continue
        step = _step(name, rest, resumed=line.find("resumed>") >= 0)
        if step is not None:
            steps.append(step)
    return steps


def _step(name, rest, *, resumed):
    log = _LOG.search(rest.split(",", 1)[0])
    if name in _SYNCS:
        return Step("sync") if log and rest.rstrip().endswith("= 0") else None
    if resumed:
        return None  # a write counts when it begins
    if log:
        return Step("log", rest)
    if name in _SENDS and "HTTP/1.1 200" in rest:
        return Step("answer")
    return None


def what_is_wrong(steps):
    """Return why an answer left too early, or nothing: both entries must be synced before it leaves."""
    kinds = [step.kind for step in steps]
    if "answer" not in kinds:
        return "no answer was seen"
    steps = steps[: kinds.index("answer")]
    position = 0
    for entry in ("leased", "answered"):
        written = next((at for at in range(position, len(steps)) if entry in steps[at].text), None)
        if written is None:
            return f"the entry {entry!r} was not written before the answer left"
        position = next((at for at in range(written, len(steps)) if steps[at].kind == "sync"), None)
        if position is None:
            return f"the entry {entry!r} was not synced before the answer left"
    if any(step.kind == "log" for step in steps[position:]):
        return "something was written and not synced before the answer left"
    return ""
