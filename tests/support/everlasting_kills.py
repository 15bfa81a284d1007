"""Kill a process at one step after the other while it asks an everlasting model, and see what the next one finds."""

import os
import signal

import numpy as np

from quorate.models.concepts import Thresholds
from quorate.models.everlasting import EverlastingClassifier
from support import step_kills

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
    from quorate.core.requests import REFUSED, Replies, Request

    (reply,) = session.ask_all([Request(X, id=name, body=X.tobytes())])
    if not isinstance(reply, Replies):
        return type(reply).__name__
    return np.where(reply.refused, REFUSED, reply.labels).tolist()


def _points_last():
    """Plant a bug: points are written after the entry that speaks of them; and die between the two."""
    from quorate.core.ledger import Ledger

    right = Ledger.keep_phase

    def wrong(self, before, after, *, write=lambda: None, **more):
        right(self, before, after, **more)
        os.kill(os.getpid(), signal.SIGKILL)

    Ledger.keep_phase = wrong


def _asking(folder, say, plant):
    from quorate.models.saving import load

    if plant == "points_last":
        _points_last()
    session = load(folder).session_
    for name, X in batches().items():
        say(name, ask(session, name, X))
    session.close()


def killed_at(home, **where):
    """Kill a process that asks at each of these steps; yield folders, and what was said in each."""
    return step_kills.killed_at(__file__, home, **where)


def what_is_wrong(folder, said):
    """Say what a kill has broken: ask everything again, and count."""
    from quorate.core.ledger import find_ledger
    from quorate.models.saving import load
    from quorate.models.saving.folder import digest_of

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
    import skops.io  # noqa: F401  once, rather than in every child

    step_kills.run_steps(_asking)
