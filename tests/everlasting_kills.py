"""Kill a process at one step after the other while it asks an everlasting model, and see what the next one finds.

Run as a program: `python everlasting_kills.py HOME PLANT START STOP STRIDE`. It forks a child for each step, which is
killed when it comes to its step: a call of the operating system that writes, or a statement of the ledger. What a child
said before is in HOME/STEP.said, its model in HOME/STEP.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np

from quorate.concepts import Thresholds
from quorate.everlasting import EverlastingClassifier

CALLS = ("open", "fsync", "pwrite", "ftruncate", "replace", "unlink", "write", "close")
SEATS = 60
BATCHES = (40, 15, 45, 62, 10)  # the third and the fourth open a phase within


def small(refresh="queries", relabel="votes", **changes):
    """Return a classifier that is fitted in no time: 60 teachers, 60 seats, and an epsilon that protects nobody.

    In phase 1 it answers a point 2 away from the boundary, and rightly, but for one in 10**12.
    """
    X = np.random.default_rng(0).normal(size=(360, 1))
    settings = {"epsilon": 60.0, "delta": 1e-2, "chunk": 6, "no_quorums": 12, "phase_size": SEATS, "classes": [0, 1]}
    made = EverlastingClassifier(
        Thresholds(both_directions=False), refresh=refresh, relabel=relabel, **(settings | changes)
    )
    return made.fit(X, (X[:, 0] >= 0).astype(int))


def batches(seed=1):
    """Return requests of several rows, with their ids."""
    random = np.random.default_rng(seed)
    return {f"request-{place}": random.normal(size=(rows, 1)) for place, rows in enumerate(BATCHES)}


def ask(session, name, X):
    """Ask one request with an id, and return its outcome or what it was refused for."""
    from quorate.exchange import REFUSED, Replies, Request

    (reply,) = session.ask_all([Request(X, id=name, body=X.tobytes())])
    if not isinstance(reply, Replies):
        return type(reply).__name__
    return np.where(reply.refused, REFUSED, reply.labels).tolist()


def _die_at(step):
    """Make this process kill itself right before it does so many things that could matter after a crash."""
    from quorate.ledger import store

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


def _points_last():
    """Plant a bug: points are written after the entry that speaks of them; and die between the two."""
    from quorate.ledger import Ledger

    right = Ledger.keep_phase

    def wrong(self, before, after, *, write=lambda: None, **more):
        right(self, before, after, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    Ledger.keep_phase = wrong


def _asking(folder, said, step, plant):
    from quorate.models import load

    if plant == "points_last":
        _points_last()
    with open(said, "w", buffering=1) as file:
        _die_at(step)
        session = load(folder).session_
        for name, X in batches().items():
            file.write(json.dumps([name, ask(session, name, X)]) + "\n")
        session.close()


def _main(home, steps, plant):
    import skops.io  # noqa: F401  once, rather than in every child

    template = home / "model"
    for step in steps:
        shutil.copytree(template, home / str(step))
        os.environ["QUORATE_STATE"] = str(home / f"{step}.state")
        shutil.copytree(home / "state", os.environ["QUORATE_STATE"])
        child = os.fork()
        if child == 0:
            try:
                _asking(home / str(step), home / f"{step}.said", step, plant)
            except BaseException:
                import traceback

                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            if os.WEXITSTATUS(status):
                raise SystemExit(f"step {step} failed")
            print(step)  # noqa: T201  all steps are done
            return


def killed_at(home, *, start, stride, most=10**6, plant="nothing"):
    """Kill a process at each of these steps, until it comes to its end; yield folders, and what was said in each."""
    steps = [str(number) for number in (start, start + most * stride, stride)]
    subprocess.run([sys.executable, __file__, str(home), plant, *steps], check=True, timeout=1200)
    for path in sorted(home.glob("*.said"), key=lambda path: int(path.stem)):
        said = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("]")]
        yield home / path.stem, home / f"{path.stem}.state", dict(said)


def what_is_wrong(folder, said):
    """Say what a kill has broken: ask everything again, and count."""
    from quorate.ledger import find_ledger
    from quorate.models import load
    from quorate.models.folder import digest_of

    session = load(folder).session_
    problems = []
    for name, X in batches().items():
        got = ask(session, name, X)
        if name in said and got not in (said[name], "IdReused"):  # its phase may be over, and its answer forgotten
            problems.append(f"{name} was answered twice, and not alike")
        if name not in said and got == "IdReused":
            problems.append(f"the answer to {name} never left, and is forgotten")
    kept, _ = session.ledger.phase()
    arrivals = SEATS * (kept.number - 1) + kept.taken
    if arrivals != sum(BATCHES):
        problems.append(f"{arrivals} have arrived where {sum(BATCHES)} were sent: one sits twice, or not at all")
    if {path.name for path in folder.glob("phase-*")} != {*kept.files, kept.seated}:
        problems.append("files of an earlier phase, or of none, are kept")
    if (folder / kept.seated).stat().st_size != 16 * kept.taken:
        problems.append("the seats are not those of the ledger")
    session.close()
    if not find_ledger(folder, fingerprint=digest_of((folder / "manifest.json").read_bytes())).verify().sound:
        problems.append("the ledger is not sound")
    return problems


if __name__ == "__main__":
    _main(Path(sys.argv[1]), range(*map(int, sys.argv[3:])), sys.argv[2])
