"""`quorate release --online`: queries one at a time, paid for only where public data and earlier answers miss."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from quorate.cli.commands.release_options import ReleaseOptions
from quorate.cli.output import check_new_file, check_new_folder, show_bill, write_file
from quorate.cli.release_tables import (
    Subject,
    print_answers,
    private_records,
    public_records,
    say_nearest,
    to_csv,
)
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.models.saving import Folder, load, save
from quorate.release import Columns, OnlineRelease
from quorate.release.answers import parse_queries
from quorate.release.domain import make_domain

__all__ = ["ask_online", "run_online"]


def run_online(
    subject: Subject, table: Path, columns: Columns | None, queries: Sequence[Any], options: ReleaseOptions
) -> int:
    """Ask queries one at a time, and keep the model in a folder or its budget in a ledger."""
    records, ledger, out = options.records, options.online.ledger, options.output.out
    if not queries and out is None:
        raise InvalidInput("--online answers the queries of the same command: --ask QUERY or --ask FILE.txt")
    if records.public is None:
        raise InvalidInput("--online starts from public records: --public TABLE")
    if (ledger is None) == (out is None):
        raise InvalidInput(
            "--online keeps its budget in a folder, so that a later command goes on with it: --out FOLDER keeps the "
            "model too, and --ledger FOLDER the budget alone, for a command that reads the records again"
        )
    if out is not None:
        check_new_folder(out)
    known = public_records(subject, records.public, records.groups)
    settings = {"epsilon": options.spending.epsilon, "delta": options.spending.delta, "alpha": options.online.alpha}
    release = OnlineRelease(subject.about, columns=columns, ledger=ledger, **settings)
    make_domain(subject.about, known, columns).find(queries)  # what cannot be asked is refused before it is paid
    private, people = private_records(subject, table, records.groups)
    release.fit(private, known, groups=people)
    if out is not None:
        save(release, out)
    return _told(release, queries, {} if out is None else {"folder": str(out)}, as_json=options.output.json)


def ask_online(folder: Folder, asked: Sequence[str], *, out: Path | None, caller: str = "", as_json: bool) -> int:
    """Ask an online release in a folder, which pays from its budget; exit code 1 where that could not pay for all."""
    if out is not None:
        check_new_file(out, inputs=[folder.path / "manifest.json"])
    release = load(folder, kind="online release")
    try:
        queries = parse_queries(asked, release.subject)
        release.domain_.find(queries)
    except InvalidInput:
        release.close()
        raise
    return _told(release, queries, {}, out=out, caller=caller, as_json=as_json)


def _told(
    release: OnlineRelease,
    queries: Sequence[Any],
    more: dict[str, Any],
    *,
    out: Path | None = None,
    caller: str = "",
    as_json: bool,
) -> int:
    """Ask, let go of the ledger, and print the answers and the bill."""
    try:
        told = release.ask(queries, caller=caller)
    except BudgetSpent:
        told = []
    finally:
        release.close()
    say_nearest(release.domain_, queries)
    answers: list[dict[str, Any]] = [
        {"query": answer.query, "answer": answer.answer, "error": answer.error, "paid": answer.paid}
        for answer in told
        if not answer.refused
    ]
    refused = len(queries) - len(answers)
    bill = more | {
        "claim": release.claim_,
        "privacy_unit": release.unit_,
        "epsilon": release.budget_.epsilon,
        "delta": release.budget_.delta,
        "alpha": release.alpha_,
        "opening_epsilon": release.opening_epsilon_,
        "asked": len(queries),
        "paid": sum(answer["paid"] for answer in answers),
        "refused": refused,
        "answers": answers,
    }
    if out is not None:
        write_file(out, to_csv(answers, ("query", "answer", "error", "paid")))
    elif not as_json:
        print_answers(answers)
    show_bill("online release", bill, as_json=as_json)
    return 1 if refused else 0
