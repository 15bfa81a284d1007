"""A process that has imported everything and opened nothing, and forks servers that can be killed.

Importing scikit-learn takes seconds, forking takes milliseconds. The nursery holds the listening socket, so clients
that connect between a kill and the next start wait in its queue. Run as a program it reads one JSON order a line:

    {"start": {"folder": ..., "job": "serve", "count": ..., ...}} -> {"processes": [...]}
    {"reap": process}                                             -> {"status": ...}
    {"drain": true}                                               -> {"drained": ...}
"""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent
SINGLE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}  # a fork takes no threads along


class Nursery:
    """The tests' end: starts the nursery, orders servers from it, kills them."""

    def __init__(self, log):
        self._log = open(log, "ab")  # noqa: SIM115
        self._child = subprocess.Popen(
            [sys.executable, HERE / "nursery.py"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=os.environ | SINGLE_THREAD,
        )
        self.port = self._read()["port"]
        self.alive = []

    def start(self, folder, *, wait=False, **options):
        """Fork servers of this model, or processes with another job; with `wait`, return once they are ready."""
        made = self._order({"start": {"folder": str(folder), "wait": wait, **options}})["processes"]
        self.alive += made
        return made

    def wait(self, process):
        """Wait for a process that ends by itself; return the exit status."""
        self.alive.remove(process)
        return self._order({"reap": process})["status"]

    def kill(self, process, number=signal.SIGKILL):
        """Send a signal and wait for the end; return the exit status."""
        os.kill(process, number)
        return self.wait(process)

    def drain(self):
        """Hang up on whoever waits in the queue: requests of a test that is over."""
        return self._order({"drain": True})["drained"]

    def stop(self):
        for process in list(self.alive):
            self.kill(process)
        self._child.stdin.close()
        self._child.stdout.close()
        self._child.wait(timeout=30)
        self._log.close()

    def _order(self, order):
        self._child.stdin.write(json.dumps(order).encode() + b"\n")
        self._child.stdin.flush()
        return self._read()

    def _read(self):
        line = self._child.stdout.readline()
        if not line:
            raise RuntimeError(f"the nursery died; see {self._log.name}")
        return json.loads(line)


def main():
    """Take orders until there are no more."""
    import plants
    from serving import warm_up

    warm_up()
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listening.bind(("127.0.0.1", 0))
    listening.listen(512)
    listening.set_inheritable(True)
    say({"port": listening.getsockname()[1]})
    for line in sys.stdin:
        order = json.loads(line)
        if "reap" in order:
            say({"status": os.waitpid(order["reap"], 0)[1]})
        elif "drain" in order:
            say({"drained": _drain(listening)})
        else:
            say({"processes": _fork(listening, plants, **order["start"])})


def say(answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def _drain(listening):
    drained = 0
    while select.select([listening], [], [], 0)[0]:
        listening.accept()[0].close()
        drained += 1
    return drained


def _fork(listening, plants, *, folder, wait, job="serve", plant=None, count=1, **options):
    made, ready = [], []
    for _ in range(count):
        reading, writing = os.pipe()
        process = os.fork()
        if process == 0:
            os.close(reading)
            plants.put_in(plant)
            _work(job, folder, options | {"listening": listening, "ready": partial(_tell, writing)})
        os.close(writing)
        made.append(process)
        ready.append(reading)
    give_up = time.monotonic() + 60
    for reading in ready:
        if wait:
            select.select([reading], [], [], max(0.0, give_up - time.monotonic()))
        os.close(reading)
    return made


def _tell(writing):
    with suppress(BrokenPipeError):  # nobody may be waiting to hear that it is ready
        os.write(writing, b".")


def _work(job, folder, options):
    """Do a job, and never come back."""
    code = 1
    try:
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, 0)
        os.dup2(2, 1)
        import serving

        getattr(serving, job)(folder, **options)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(code)


if __name__ == "__main__":
    main()
