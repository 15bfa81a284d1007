"""Kill a process at one step after the other, and see what it has left behind.

A step is a call of the operating system that writes, or a statement of a ledger. Somebody's program calls `run_steps`,
which forks a child for each step; the child is killed when it comes to its step. `killed_at` runs such a program. What
a child said before is in HOME/STEP.said; HOME/model, as it left it, in HOME/STEP; HOME/state, in HOME/STEP.state.
"""

import itertools
import json
import os
import shutil
import signal
import sys
import traceback
from pathlib import Path

from support.forked import Forked

CALLS = ("open", "fsync", "pwrite", "ftruncate", "replace", "unlink", "write", "close", "mkdir", "chmod")
_PROGRAM = "import runpy, sys; sys.argv.pop(0); runpy.run_path(sys.argv[0], run_name='__main__')"


def _die_at(step):
    """Make this process kill itself right before it does so many things that could matter after a crash."""
    from quorate.core.ledger import _store as store

    count = itertools.count(1)

    def counted(call):
        def called(*given, **named):
            if next(count) == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*given, **named)

        return called

    for name in CALLS:
        setattr(os, name, counted(getattr(os, name)))
    for name in ("run", "run_many"):
        setattr(store._Statements, name, counted(getattr(store._Statements, name)))


def run_steps(work):
    """Kill `work` at the steps of the command line. It is given a folder, what to say things with, and a plant."""
    home, plant, steps = Path(sys.argv[1]), sys.argv[2], range(*map(int, sys.argv[3:]))
    for step in steps:
        os.environ["QUORATE_STATE"] = str(home / f"{step}.state")
        for template, copy in ((home / "model", home / str(step)), (home / "state", home / f"{step}.state")):
            if template.exists():
                shutil.copytree(template, copy)
        child = os.fork()
        if child == 0:
            _child(work, home, step, plant)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            if os.WEXITSTATUS(status):
                raise SystemExit(f"step {step} failed")
            print(step)  # noqa: T201  all steps are done
            return


def _child(work, home, step, plant):
    try:
        with open(home / f"{step}.said", "w", buffering=1) as file:
            _die_at(step)
            work(home / str(step), lambda *said: file.write(json.dumps(said) + "\n"), plant)
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def killed_at(program, home, *, start=1, stride=1, most=10**6, plant="nothing"):
    """Kill a program at each of these steps, until it comes to its end; yield folders, states, and what was said."""
    steps = [str(number) for number in (start, start + most * stride, stride)]
    with open(os.devnull, "wb") as nowhere:
        assert Forked(_PROGRAM, program, str(home), plant, *steps, stdout=nowhere.fileno(), stderr=2).wait(1200) == 0
    for path in sorted(home.glob("*.said"), key=lambda path: int(path.stem)):
        said = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("]")]
        yield home / path.stem, home / f"{path.stem}.state", dict(said)
