"""`quorate ledger`: what a model has spent, and whether its ledger is sound."""

import json as jsons
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

from cyclopts import App

from quorate.core.errors import InvalidInput, LedgerRefused

if TYPE_CHECKING:
    from quorate.core.ledger import Ledger

__all__ = ["ledger"]

ledger = App(
    name="ledger",
    help="Show, verify, compact, export, move or restore what a model has spent; open an account for several.",
)


@ledger.command(name="show")
def _show(model: Path, *, json: bool = False) -> int:
    """Show the guarantee, what is spent, what is leased, and how many keys there are.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it.
    json
        Print one JSON object, with all leases and keys, instead of a table.
    """
    from quorate.cli.account import ledger_figures, opened_ledger
    from quorate.cli.output import show_bill

    with opened_ledger(model) as opened:
        figures = ledger_figures(model, opened.view())
    if not json:
        leases = figures["leases"]
        keys = [key for key in figures["keys"] if not key["revoked"]]
        figures |= {
            "left": f"{100 * figures['left']:.2f}%",
            "order": "infinite" if figures["order"] is None else figures["order"],
            "leases": f"{len(leases)} out, {100 * sum(lease['share'] for lease in leases):.2f}% of the budget",
            "keys": f"{len(keys)} in use, {len(figures['keys']) - len(keys)} revoked",
        }
    show_bill(f"The ledger of {model}", figures, as_json=json, asked=True)
    return 0


@ledger.command(name="account")
def _account(
    folder: Path,
    *,
    epsilon: float | None = None,
    delta: float = 1e-6,
    unit: Literal["record", "person"] = "record",
    json: bool = False,
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
    json
        Print one JSON object.
    """
    from quorate.cli.output import show_bill
    from quorate.models.account import Account

    account = Account(folder) if epsilon is None else Account(folder, epsilon=epsilon, delta=delta, unit=unit)
    left = account.left()
    figures = {"epsilon": account.epsilon, "delta": account.delta, "privacy_unit": account.unit}
    figures |= {"epsilon_left": left[0], "delta_left": left[1]}
    account.close()
    show_bill(f"The account in {folder}", figures, as_json=json, asked=True)
    return 0


@ledger.command(name="verify")
def _verify(model: Path, *, export: Path | None = None, json: bool = False) -> int:
    """Check every entry of the ledger. Exit code 1 if it was edited, truncated, exchanged or rolled back.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it.
    export
        An earlier file of `quorate ledger export`: each of its entries must still be in the ledger, unchanged.
    json
        Print one JSON object.
    """
    verification = _verified(model, export)
    if json:
        print(jsons.dumps(verification))
    elif verification["sound"]:
        print(f"sound: {verification['entries']:,} entries, head {verification['head']}")
    else:
        for problem in verification["problems"]:
            print(f"quorate: {problem}", file=sys.stderr)
    return 0 if verification["sound"] else 1


@ledger.command(name="export")
def _export(model: Path, *, out: Path | None = None) -> int:
    """Write every entry of the ledger as a line of JSON, oldest first.

    Lines contain amounts, counts (including no-quorums: for an everlasting model these are only for the owner), times,
    names of keys and hashes of their random secrets. They contain no query and no answer, and no hash of one that
    others could confirm by guessing: what entries record about answers is hashed with the ledger's key, which stays in
    the model's folder. `quorate ledger verify --export` compares them with the ledger.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it.
    out
        The file to write. Without it the entries are printed.
    """
    from quorate.cli.account import opened_ledger
    from quorate.cli.output import check_new_file

    if out is not None:
        check_new_file(out)
    with opened_ledger(model) as opened:
        if out is None:
            _write_entries(opened, sys.stdout)
            return 0
        try:
            with out.open("w", encoding="utf-8") as file:
                count = _write_entries(opened, file)
        except OSError as error:
            raise InvalidInput(f"{out} could not be written: {error.strerror}") from None
    print(f"quorate: {count:,} entries written to {out}", file=sys.stderr)
    return 0


@ledger.command(name="compact")
def _compact(model: Path, *, answers: float | None = None, json: bool = False) -> int:
    """Remove old entries, so that a server need not read them when it starts. Their totals are kept.

    The server may run meanwhile. Run this from time to time, such as once a week. If it is interrupted, run it again.
    Export the entries first if you want to keep them.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it.
    answers
        Also forget answers older than this many days. A query whose answer is forgotten is drawn, and paid for, again;
        an id whose answer is forgotten stays used, and is refused. Without this, all answers are kept.
    json
        Print one JSON object.
    """
    from quorate.cli.account import opened_ledger

    with opened_ledger(model) as opened:
        before = opened.state()
        compaction = opened.compact(answers_days=answers)
        forgotten = opened.state().answers_forgotten - before.answers_forgotten
    if json:
        print(jsons.dumps({"through": compaction.through, "answers_forgotten": forgotten}))
    else:
        told = f"entries up to {compaction.through:,} are compacted, and {forgotten:,} answers forgotten"
        print(f"quorate: {told}", file=sys.stderr)
    return 0


@ledger.command(name="move")
def _move(model: Path, url: str, *, json: bool = False) -> int:
    """Move the ledger of a stopped model into a PostgreSQL database, so that several hosts can share it.

    The file stays where it is but can no longer be spent from. From then on the model folder refers to the database:
    copy the folder to each host.

    Parameters
    ----------
    model
        The model, as `quorate fit` wrote it.
    url
        The database: postgresql://user@host/name. Its password belongs in ~/.pgpass or PGPASSWORD, not here.
    json
        Print the state of the ledger as one JSON object.
    """
    from quorate.cli.account import ledger_figures
    from quorate.core.ledger import move
    from quorate.models.saving.folder import open_private

    moved = move(model, url, fingerprint=open_private(model).fingerprint)
    if json:
        print(jsons.dumps(ledger_figures(model, moved.view())))
    else:
        print(f"quorate: the ledger of {model} is at {moved.place} now", file=sys.stderr)
    moved.close()
    return 0


@ledger.command(name="restore")
def _restore(model: Path, *, charge: Literal["mark", "all"] = "mark", json: bool = False) -> int:
    """Accept a ledger from a backup. What was spent after the backup is charged first.

    Parameters
    ----------
    model
        The model, with the ledger from the backup in its folder.
    charge
        What to charge: what was spent by the marks of this machine, or, if they are lost, the whole budget.
    json
        Print the state of the ledger as one JSON object.
    """
    from quorate.cli.account import ledger_figures
    from quorate.core.ledger import restore
    from quorate.models.saving.folder import open_private

    view = restore(model, fingerprint=open_private(model).fingerprint, charge=charge)
    if json:
        print(jsons.dumps(ledger_figures(model, view)))
    else:
        left = f"{100 * view.left:.2f}% of the budget is left"
        print(f"quorate: the ledger of {model} is in use again; {left}", file=sys.stderr)
    return 0


@ledger.command(name="reopen")
def _reopen(model: Path, *, json: bool = False) -> int:
    """Open phase 1 of an everlasting model again after its state was lost, and pay for all of it again.

    This is refused if the account cannot pay, which is the case unless the model was saved with a larger account; and
    for later phases, which queries taught: the budgets of those queries are spent.

    Parameters
    ----------
    model
        The model, as `quorate fit everlasting` wrote it.
    json
        Print one JSON object.
    """
    from quorate.models.saving import reopen

    reopen(model)
    if json:
        print(jsons.dumps({"model": str(model), "reopened": True}))
        return 0
    print(f"quorate: phase 1 of {model} is open again, and paid for again", file=sys.stderr)
    return 0


def _verified(model: Path, export: Path | None) -> dict[str, Any]:
    """Return what reading all of it says. A ledger that is refused at the door is not sound either."""
    from quorate.cli.account import opened_ledger
    from quorate.core.ledger import check_export

    try:
        with opened_ledger(model) as opened:
            verification = opened.verify()
            if export is not None:
                with export.open(encoding="utf-8", errors="replace") as lines:
                    check_export(opened, lines)
    except OSError as error:
        raise InvalidInput(f"{export} cannot be read: {error.strerror}") from None
    except LedgerRefused as error:
        return {"sound": False, "entries": None, "head": None, "problems": [str(error)]}
    return {
        "sound": not verification.problems,
        "entries": verification.entries,
        "head": verification.head,
        "problems": list(verification.problems),
    }


def _write_entries(opened: "Ledger", file: TextIO) -> int:
    from quorate.core.ledger import export_entries

    count = 0
    for line in export_entries(opened):
        file.write(jsons.dumps(line) + "\n")
        count += 1
    return count
