"""Show, verify, compact, export, back up, move or restore the ledger of a model; open an account for several."""

import json as jsons
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, TextIO

from cyclopts import App

from quorate.cli.options import AsJson, ModelPath
from quorate.cli.output import check_new_file, show, show_bill, show_line
from quorate.core.errors import InvalidInput, LedgerRefused
from quorate.core.ledger import (
    Ledger,
    LedgerView,
    check_export,
    export_entries,
    key_figures,
    move,
    restore,
    share_figures,
)
from quorate.models.account import Account
from quorate.models.saving import reopen, whole_spending
from quorate.models.saving.backup import back_up, put_back, rehearse
from quorate.models.saving.folder import open_private

ledger = App(name="ledger", help_format="markdown")

_PHASE = {"number": "phase", "seats": "seats", "taken": "seats_taken", "met": "no_quorums"}
_PHASE |= {"closed": "closed", "lost": "lost"}


@contextmanager
def open_ledger(model: Path) -> Iterator[Ledger]:
    """Open the ledger of a model, and close it afterwards. A ledger that is not sound is refused."""
    opened = open_private(model).ledger()
    try:
        yield opened
    finally:
        opened.close()


def _ledger_figures(model: Path, view: LedgerView) -> dict[str, Any]:
    """Return the state of a model's ledger as JSON takes it: epsilon and delta are those of the model's claim."""
    view = whole_spending(open_private(model), view)
    figures = {
        "place": view.place,
        "entries": view.entries,
        "head": view.head,
        "epsilon": view.epsilon,
        "delta": view.delta,
        "order": view.order if math.isfinite(view.order) else None,
        "epsilon_spent": view.spent_epsilon,
        "left": view.left,
        "leases": [{"id": lease.id, "owner": lease.owner, "share": lease.share} for lease in view.leases],
        "keys": [key_figures(key, view) for key in view.keys],
        "projects": [{"name": project.name} | share_figures(project, view) for project in view.projects],
    }
    phase = getattr(view, "phase", None)  # Of an everlasting model. The holder of the folder is the owner.
    return figures | ({} if phase is None else {figure: getattr(phase, name) for name, figure in _PHASE.items()})


@ledger.command(name="show")
def _show(model: ModelPath, *, json: AsJson = False) -> int:
    """Show the guarantee, what is spent, what is leased, and how many keys there are."""
    with open_ledger(model) as opened:
        figures = _ledger_figures(model, opened.view())
    if not json:
        leases = figures["leases"]
        keys = [key for key in figures["keys"] if not key["revoked"]]
        figures |= {
            "left": f"{100 * figures['left']:.2f}%",
            "order": "infinite" if figures["order"] is None else figures["order"],
            "leases": f"{len(leases)} out, {100 * sum(lease['share'] for lease in leases):.2f}% of the budget",
            "keys": f"{len(keys)} in use, {len(figures['keys']) - len(keys)} revoked",
        }
    return show_bill(f"The ledger of {model}", figures, as_json=json, is_result=True)


@ledger.command(name="account")
def _account(
    folder: Path,
    *,
    epsilon: float | None = None,
    delta: float = 1e-6,
    unit: Literal["record", "person"] = "record",
    json: AsJson = False,
) -> int:
    """Open an account: a total that several releases about the same people draw on, or show what is left of one.

    Parameters
    ----------
    folder
        A new private folder, for `quorate release --account`; or an account to show.
    epsilon
        The total epsilon of a new account. The epsilons of all releases that draw on it add up to at most this.
    delta
        The total delta of a new account; deltas add up too.
    unit
        What is protected. An account of persons refuses releases that protect only records.
    """
    account = Account(folder) if epsilon is None else Account(folder, epsilon=epsilon, delta=delta, unit=unit)
    epsilon_left, delta_left = account.left()
    figures = {"epsilon": account.epsilon, "delta": account.delta, "privacy_unit": account.unit}
    figures |= {"epsilon_left": epsilon_left, "delta_left": delta_left}
    account.close()
    return show_bill(f"The account in {folder}", figures, as_json=json, is_result=True)


@ledger.command(name="verify")
def _verify(model: ModelPath, *, export: Path | None = None, json: AsJson = False) -> int:
    """Check every entry of the ledger. Exit code 1 if it was edited, truncated, exchanged or rolled back.

    Parameters
    ----------
    export
        An earlier file of `quorate ledger export`: each of its entries must still be in the ledger, unchanged.
    """
    figures: dict[str, Any] = {"sound": False, "entries": None, "head": None}
    try:
        with open_ledger(model) as opened:
            verification = opened.verify()
            if export is not None:
                with export.open(encoding="utf-8", errors="replace") as lines:
                    check_export(opened, lines)
        problems = list(verification.problems)
        figures = {"sound": not problems, "entries": verification.entries, "head": verification.head}
    except LedgerRefused as error:
        problems = [str(error)]
    if problems:
        text = "\n".join(f"quorate: {problem}" for problem in problems)
        show(figures | {"problems": problems}, lambda: print(text, file=sys.stderr), as_json=json)
        return 1
    text = f"sound: {figures['entries']:,} entries, head {figures['head']}"
    return show(figures | {"problems": problems}, text, as_json=json)


@ledger.command(name="export")
def _export(model: ModelPath, *, out: Path | None = None) -> int:
    """Write every entry of the ledger as a line of JSON, oldest first.

    Lines contain amounts, counts (including no-quorums: for an everlasting model these are only for the owner), times,
    names of keys and hashes of their random secrets. They contain no query and no answer, and no hash of one that
    others could confirm by guessing: what entries record about answers is hashed with the ledger's key, which stays in
    the model's folder. `quorate ledger verify --export` compares them with the ledger.

    Parameters
    ----------
    out
        The file to write. Without it the entries are printed.
    """
    if out is not None:
        check_new_file(out)
    with open_ledger(model) as opened:
        if out is None:
            _write_entries(opened, sys.stdout)
            return 0
        with out.open("w", encoding="utf-8") as file:
            count = _write_entries(opened, file)
    print(f"quorate: {count:,} entries written to {out}", file=sys.stderr)
    return 0


def _write_entries(opened: Ledger, file: TextIO) -> int:
    count = 0
    for count, line in enumerate(export_entries(opened), start=1):  # noqa: B007  the last count is returned
        file.write(jsons.dumps(line) + "\n")
    return count


@ledger.command(name="compact")
def _compact(model: ModelPath, *, answers: float | None = None, json: AsJson = False) -> int:
    """Remove old entries, so that a server need not read them when it starts. Their totals are kept.

    The server may run meanwhile. Run this from time to time, such as once a week. If it is interrupted, run it again.
    Export the entries first if you want to keep them.

    Parameters
    ----------
    answers
        Also forget answers older than this many days. A query whose answer is forgotten is drawn, and paid for, again;
        an id whose answer is forgotten stays used, and is refused. Without this, all answers are kept.
    """
    with open_ledger(model) as opened:
        forgotten_before = opened.state().answers_forgotten
        compaction = opened.compact(answers_days=answers)
        forgotten = opened.state().answers_forgotten - forgotten_before
    text = f"entries up to {compaction.through:,} are compacted, and {forgotten:,} answers forgotten"
    return show_line(text, {"through": compaction.through, "answers_forgotten": forgotten}, as_json=json)


@ledger.command(name="move")
def _move(model: ModelPath, url: str, *, json: AsJson = False) -> int:
    """Move the ledger of a stopped model into a PostgreSQL database, so that several hosts can share it.

    The file stays where it is but can no longer be spent from. From then on the model folder refers to the database:
    copy the folder to each host.

    Parameters
    ----------
    url
        The database: postgresql://user@host/name. Its password belongs in ~/.pgpass or PGPASSWORD, not here.
    """
    moved = move(model, url, fingerprint=open_private(model).fingerprint)
    figures = _ledger_figures(model, moved.view())
    moved.close()
    return show_line(f"the ledger of {model} is at {moved.place} now", figures, as_json=json)


@ledger.command(name="backup")
def _backup(model: ModelPath, backup: Path, *, json: AsJson = False) -> int:
    """Copy a model's folder with its ledger, also while a server runs, and check every entry of the copy.

    The backup has no mark, so it answers nothing until `quorate ledger restore` has charged what was spent since. What
    is out on lease counts as spent in it. A ledger in PostgreSQL stays there: back up the database by its own means.

    Parameters
    ----------
    backup
        A new folder. It is as private as the model; keep it elsewhere.
    """
    opened = open_private(model)
    drill = back_up(model, backup, fingerprint=opened.fingerprint)
    figures = {"backup": str(backup), "entries": drill.entries, "left": drill.left}
    return show_line(
        f"{backup} is a backup of {model}; its ledger is sound, with {drill.entries:,} entries", figures, as_json=json
    )


@ledger.command(name="drill")
def _drill(model: ModelPath, backup: Path, *, json: AsJson = False) -> int:
    """Check that a backup can be restored, file by file and entry by entry, and say what that would charge.

    Neither the model nor the backup is changed. Run it after each backup.

    Parameters
    ----------
    backup
        The folder of `quorate ledger backup`.
    """
    drill = rehearse(model, backup, fingerprint=_fingerprint_of_backup(model, backup))
    charge = "--charge all: this machine has no mark of this ledger"
    if drill.left_by_marks is not None:
        charge = f"--charge mark, which leaves {100 * drill.left_by_marks:.2f}% of the budget"
    figures = {"entries": drill.entries, "left": drill.left, "left_by_marks": drill.left_by_marks}
    return show_line(f"{backup} can be restored by {charge}", figures, as_json=json)


def _fingerprint_of_backup(model: Path, backup: Path) -> str:
    """Return the fingerprint of a backup whose files are whole, and that is of this model where that is there."""
    copy = open_private(backup)
    if model.exists() and open_private(model).fingerprint != copy.fingerprint:
        raise InvalidInput(f"{backup} is a backup of another model than {model}")
    copy.contents  # noqa: B018  every file is checked against the manifest
    return copy.fingerprint


@ledger.command(name="restore")
def _restore(
    model: ModelPath,
    *,
    backup: Path | None = None,
    charge: Literal["mark", "all"] = "mark",
    json: AsJson = False,
) -> int:
    """Accept a ledger from a backup. What was spent after the backup is charged first.

    Parameters
    ----------
    backup
        The folder of `quorate ledger backup`, to be put in the place of the model's ledger, or of a model that is gone.
        Without it the ledger that is in the model's folder is restored.
    charge
        What to charge: what was spent by the marks of this machine, or, if they are lost, the whole budget.
    """
    if backup is not None:
        put_back(model, backup, fingerprint=_fingerprint_of_backup(model, backup))
    view = restore(model, fingerprint=open_private(model).fingerprint, charge=charge)
    text = f"the ledger of {model} is in use again; {100 * view.left:.2f}% of the budget is left"
    return show_line(text, _ledger_figures(model, view), as_json=json)


@ledger.command(name="reopen")
def _reopen(model: ModelPath, *, json: AsJson = False) -> int:
    """Open phase 1 of an everlasting model again after its state was lost, and pay for all of it again.

    This is refused if the account cannot pay, which is the case unless the model was saved with a larger account; and
    for later phases, which queries taught: the budgets of those queries are spent.
    """
    reopen(model)
    figures = {"model": str(model), "reopened": True}
    return show_line(f"phase 1 of {model} is open again, and paid for again", figures, as_json=json)
