"""Python code in processes of its own, forked from one that has imported the package and opened nothing.

Importing scikit-learn takes seconds, forking takes milliseconds. Otherwise it is as with `python -c`.
"""

import atexit
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import types

SINGLE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}  # a fork takes no threads along
IMPORTED = (
    "quorate.service._run",
    "quorate.release",
    "quorate.models.students",
    "quorate.models.everlasting",
    "quorate.cli.app",
)
IMPORTED += ("skops.io", "sklearn.linear_model", "sklearn.tree")


class Forked:
    """A process that was forked: as much of `subprocess.Popen` as tests need."""

    def __init__(self, code, *arguments, stdout, stderr, **environment):
        order = {"code": code, "arguments": arguments, "environment": {**os.environ, **environment}}
        self.pid, self.returncode = _parent().order(order, stdout, stderr), None

    def poll(self):
        if self.returncode is None:
            self.returncode = _parent().order({"poll": self.pid})
        return self.returncode

    def wait(self, seconds):
        end = time.monotonic() + seconds
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(str(self.pid), seconds)
            time.sleep(0.01)
        return self.returncode

    def send_signal(self, number):
        if self.poll() is None:
            os.kill(self.pid, number)


def run_forked(code, *arguments, **environment):
    """Run code to its end; return its exit status, its output and its errors."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        status = Forked(code, *arguments, stdout=out.fileno(), stderr=errors.fileno(), **environment).wait(600)
        out.seek(0)
        errors.seek(0)
        return status, out.read(), errors.read()


class _Parent:
    """The process that forks, seen from the tests."""

    def __init__(self):
        self._socket, theirs = socket.socketpair()
        self._lock = threading.Lock()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=os.environ | SINGLE_THREAD | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        atexit.register(self._end)

    def order(self, order, *descriptors):
        with self._lock:
            sent = json.dumps(order).encode()
            socket.send_fds(self._socket, [len(sent).to_bytes(4, "big")], descriptors)
            self._socket.sendall(sent)
            answer = self._socket.recv(100)
        if not answer:
            raise RuntimeError("the process that forks has ended")
        return json.loads(answer)

    def _end(self):
        self._socket.close()
        self._process.wait(60)


_parents = {}


def _parent():
    """Return the process that forks; pytest's own forks have none."""
    if os.getpid() not in _parents:
        _parents[os.getpid()] = _Parent()
    return _parents[os.getpid()]


def _serve(orders):
    """Take orders until there are no more; return one in the process that was forked for it."""
    while True:
        size, descriptors, _, _ = socket.recv_fds(orders, 4, 2)
        if not size:
            return None
        sent = b""
        while len(sent) < int.from_bytes(size, "big"):
            sent += orders.recv(1 << 20)
        order = json.loads(sent)
        if "poll" in order:
            process, status = os.waitpid(order["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if process else None
        else:
            answer = os.fork()
            if answer == 0:
                return order, descriptors
            for descriptor in descriptors:
                os.close(descriptor)
        orders.sendall(json.dumps(answer).encode())


def _become(order, descriptors):
    """Make this process one that runs the code, as `python -c` would."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(descriptors, start=1):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(order["environment"])
    sys.argv = ["-c", *order["arguments"]]
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    status = 0
    try:
        exec(compile(order["code"], "<string>", "exec"), vars(main))
    except SystemExit as left:
        status = left.code
    if status is None or isinstance(status, int):
        _leave(status or 0)
    sys.exit(status)


def _leave(status):
    """End as Python does, but take no module down: that writes to every page, which a fork then copies.

    It takes half a second of processor time where many modules are loaded.
    """
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status & 0xFF)


if __name__ == "__main__":
    for name in IMPORTED:
        __import__(name)
    gc.freeze()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        taken = _serve(connection)
    if taken is not None:
        _become(*taken)
