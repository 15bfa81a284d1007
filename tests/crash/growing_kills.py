"""Kill a process at one step after the other while it releases a table that grows, and see what the next one finds.

The process opens an account, draws a release of three updates on it, saves it after the first, makes the second, and
loads it for the third. It says the answers of each update where a command would show them.
"""

import os
import signal

from quorate import Account, BudgetSpent, GrowingRelease, InvalidInput, Workload, load, save
from quorate.models.saving.folder import open_private
from support import step_kills

COLUMNS = {"kind": ["a", "b"]}
NAMES = ("jan", "feb", "mar")
EPSILON, TOTAL = 0.375, 1.0


def month(number):
    """Return the records of an update: 40 more than in the one before."""
    return {"kind": ["a"] * (100 + 40 * number) + ["b"] * 100}


def answers(release):
    """Return what an update tells, to the last bit."""
    return release.answer()["answer"].to_pylist()


def _ledger_first():
    """Plant a bug: the ledger speaks of an update before its file is there; and die between the two."""
    from quorate.core.ledger import Ledger
    from quorate.release import _update_files as update_files

    write, keep = update_files.write_new, Ledger.keep_own

    def keep_and_die(self, values):
        keep(self, values)
        if b"update 2" in values:
            os.kill(os.getpid(), signal.SIGKILL)

    update_files.write_new = lambda path, *given, **named: "0002" in path.name[:11] or write(path, *given, **named)
    Ledger.keep_own = keep_and_die


def _told_first():
    """Plant a bug: an update is told, and not kept."""
    from quorate.release._update_files import UpdateFiles

    right = UpdateFiles.keep
    UpdateFiles.keep = lambda self, number, update: right(self, number, update) if number == 1 else None


def releasing(folder, say, plant):
    """Do all of it, in the order in which the command line does it."""
    {"nothing": lambda: None, "ledger_first": _ledger_first, "told_first": _told_first}[plant]()
    folder.mkdir()
    account = Account(folder / "account", epsilon=TOTAL, delta=3e-6)
    release = GrowingRelease(
        Workload.marginals(1), updates=3, epsilon=EPSILON, columns=COLUMNS, engine="plain", account=account
    )
    first = release.update(NAMES[0], month(0))
    save(release, folder / "growing")
    say(NAMES[0], answers(first))
    say(NAMES[1], answers(release.update(NAMES[1], month(1))))
    release.close()
    release = load(folder / "growing")
    say(NAMES[2], answers(release.update(NAMES[2], month(2))))
    release.close()
    account.close()


def what_is_wrong(folder, said):
    """Say what a kill has broken: open the account and the release again, and go on to the end."""
    problems, charged = [], _charged(folder / "account")
    if charged is None or not (folder / "growing" / "manifest.json").exists():
        return [] if not said else ["an update was told, and its release or its account is not there"]
    if charged != EPSILON:
        problems.append(f"the account was charged {charged}, and a release of {EPSILON} was drawn on it")
    release = load(folder / "growing")
    made = release.updates_
    if made not in (list(NAMES[: len(said)]), list(NAMES[: len(said) + 1])):
        problems.append(f"{list(said)} were told, and {made} are there")
    if release.budget_.remaining().renyi:
        problems.append("some of the budget came back")
    for number, name in enumerate(NAMES):
        told = answers(release.update(name, None if name in made else month(number)))
        if name in said and told != said[name]:
            problems.append(f"{name} was told twice, and not alike")
    try:
        release.update("april", month(3))
        problems.append("an update was made that was not declared")
    except BudgetSpent:
        pass
    if len(list((folder / "growing").glob("update-*"))) != len(NAMES):
        problems.append("files of updates that were never made are kept")
    release.close()
    for place in ("growing", "account"):
        if not open_private(folder / place).ledger().verify().sound:
            problems.append(f"the ledger of the {place} is not sound")
    return problems


def _charged(place):
    """Return what was charged to the account, None where it was not even made."""
    try:
        account = Account(place)
    except InvalidInput:  # no manifest: nothing can be drawn on it
        return None
    charged = TOTAL - account.left()[0]
    account.close()
    return charged


def killed_at(home, **where):
    """Kill a process that releases at each of these steps; yield folders, and what was said in each."""
    return step_kills.killed_at(__file__, home, **where)


if __name__ == "__main__":
    step_kills.run_steps(releasing)
