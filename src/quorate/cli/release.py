"""`quorate release`: from private records to a folder of answers that may be published.

Anyone may ask the folder again, at no privacy cost. With --online the queries are asked one at a time instead, and only
those are paid for that public data and earlier answers miss. With --growing a table is released after each update.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

from cyclopts import Group, Parameter
from rich.console import Console
from rich.table import Table

from quorate.cli.fit_methods import Method, options_of_method
from quorate.cli.options import RELEASE_OPTIONS, listed, refuse_idle
from quorate.cli.output import (
    check_apart,
    check_new_file,
    check_new_folder,
    check_report,
    show_bill,
    show_rows,
    to_csv,
    write_file,
)
from quorate.cli.reading import warn_of_delta
from quorate.cli.release_tables import (
    Subject,
    check_declared,
    check_table_name,
    columns_file,
    names_in,
    private_records,
    public_records,
    show_release,
    warn_of_gaps,
    warn_of_moved_cuts,
    write_release,
    write_synthetic,
    write_table,
)
from quorate.cli.signatures import with_options
from quorate.core.checks import check_count, check_rate
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.models.saving import Folder, load, open_folder, save
from quorate.planner import Plan
from quorate.release import Columns, GrowingRelease, OnlineRelease, QueryRelease
from quorate.release.answers import parse_queries, shown_answers
from quorate.release.auto_cuts import AutoCuts
from quorate.release.domain import make_domain
from quorate.release.plan import plan_release
from quorate.release.synthetic import MOST_ROWS
from quorate.release.utility import simulate_utility
from quorate.report.release import write_release_report
from quorate.tables import read_table

_SETTINGS = Method(
    "",
    ("quorate.release:QueryRelease", "quorate.release:GrowingRelease", "quorate.release:OnlineRelease"),
    extra="account",
    skip="subject columns error_weights domain public",
    helps={
        "epsilon": "The privacy loss allowed: of a release, of all updates (--growing) or of all answers (--online).",
        "delta": "The delta of (epsilon, delta)-differential privacy: far below one over the number of records.",
        "updates": "With --growing: how many updates the budget is for.",
        "alpha": "With --online or --plan: the largest error of an answer.",
        "engine": "The way to turn counts into answers: auto, plain, residual, adaptive, levels, prefix, weights or "
        "reweighting. auto takes the one with the smallest expected error, by public numbers alone.",
        "target": "The column to predict, whose pairs with others are released most exactly.",
    },
)
_GROUP = Group("Release", sort_key=1)
_Table = Annotated[
    Path | None,
    Parameter(
        group=_GROUP,
        help="The private records: .csv, .csv.gz, .parquet, .arrow or .feather; or the folder of a release to ask.",
    ),
]


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class ReleaseOptions:
    """The queries, the tables, what to read from a release, and where results go.

    Parameters
    ----------
    workload
        The queries: marginals:ORDER, thresholds:COLUMN[:BY,...], ranges:COLUMN[:BY,...],
        hierarchy:COLUMN[:BY,...], expressions:FILE, boxes:COLUMN,... or halfspaces:COLUMN,COLUMN.
    public
        A table of public records with the same columns. They define categories, cuts and cells, and help the engine.
    columns
        A JSON file that declares columns: {"sex": ["f", "m"], "age": {"cuts": [18, 65]}}. Declared columns are not read
        from the public table.
    groups
        The column that names the person of each record. The person is then protected, and the first record of each
        counts.
    leave_out
        Columns not to release, separated by commas: names, ids, notes.
    ask
        A query to answer, or a .txt file with one per line; may be given several times. An expression or the name of a
        query, {"column": value}, low:high,low:high for boxes, a,b>c for halfspaces.
    band
        Make the intervals hold for all answers of the release together with this probability, such as 0.95.
    counts
        Give answers as numbers of records, rounded to what the noise allows, instead of shares.
    synthetic
        How many synthetic records to write: to synthetic.csv in the folder or, when querying a folder, to --out.
    utility
        Estimate the errors of answers and synthetic records, and with --target of a classifier that learns from these:
        by releases of simulated records, never from the true answers. It costs no privacy, and some minutes at most.
    quantiles
        When querying a folder of thresholds: write a declaration of the column, with this many cells of about equally
        many records, to --out, as JSON for --columns.
    online
        Answer the queries of --ask one at a time, and pay only if public data and earlier answers are clearly wrong.
    growing
        A private folder for a table that grows, with one budget for all updates. The first command creates it; later
        ones give it with the next records, --update and --out.
    update
        With --growing, the name of this update, such as 2024-01. Repeating a name returns the same release again.
    plan
        Show what can be achieved with --records private records, without reading any.
    records
        With --plan, how many private records there are.
    out
        The folder for the release, or with --online for a model that answers from its budget; it must be new or empty.
        When asking a folder, a .csv or .parquet file for the answers.
    report
        An HTML page to write: the guarantee, the engines, and the error on simulated records.
    json
        Print one JSON object.
    """

    workload: str | None = None
    public: Path | None = None
    columns: Path | None = None
    groups: str | None = None
    leave_out: str | None = None
    ask: Annotated[list[str] | None, Parameter(negative="")] = None
    band: float | None = None
    counts: bool = False
    synthetic: int | None = None
    utility: bool = False
    quantiles: int | None = None
    online: bool = False
    growing: Path | None = None
    update: str | None = None
    plan: bool = False
    records: int | None = None
    out: Path | None = None
    report: Path | None = None
    json: bool = False

    @property
    def reading(self) -> dict[str, Any]:
        """How answers are given, as `QueryRelease.answer` takes it."""
        return {"band": self.band, "counts": self.counts}

    @property
    def queries(self) -> list[str]:
        """The queries: each --ask is one, or the name of a file with one a line."""
        texts: list[str] = []
        for text in self.ask or ():
            if text.endswith(".txt") and Path(text).is_file():
                lines = Path(text).read_text(encoding="utf-8").splitlines()
                texts.extend(line for line in lines if line.strip() and not line.lstrip().startswith("#"))
            else:
                texts.append(text)
        return texts


@with_options(options_of_method(_SETTINGS))
def release(table: _Table = None, *, options: ReleaseOptions = ReleaseOptions(), **settings: Any) -> int:
    """Release, plan, or ask a release that was published before, and print what it promises."""
    mode = _find_mode(table, options)
    refuse_idle(release, {"table": table, "options": options, **settings}, RELEASE_OPTIONS[mode], mode)
    used = {name: value for name, value in settings.items() if name in RELEASE_OPTIONS[mode].split()}
    if mode == "when a release is asked":
        assert table is not None
        return _ask_folder(table, options)
    if mode == "with a --growing folder that exists":
        return _continue_growing(table, options)
    subject = _parse_subject(options, table)
    declared = None if options.columns is None else Columns.load(options.columns)
    if options.plan:
        return _plan(subject, declared, options, used)
    if table is None:
        raise InvalidInput("name the table of private records, or the folder of a release to ask")
    check_apart(table, options.public)
    queries = parse_queries(options.queries, subject.about)
    if options.online:
        return _release_online(subject, table, declared, queries, options, settings=used)
    _check_people(options, used)
    if options.growing is not None:
        return _begin_growing(subject, table, options, {**used, "columns": declared})
    return _release_once(QueryRelease(subject.about, columns=declared, **used), subject, table, queries, options)


def _find_mode(table: Path | None, options: ReleaseOptions) -> str:
    """Return which options go together in this command, as a key of `RELEASE_OPTIONS`."""
    if table is not None and table.is_dir():
        return "when a release is asked"
    if options.plan or options.online:
        return "with --plan" if options.plan else "with --online"
    if options.growing is None:
        return "without --plan, --online or --growing"
    return f"with a --growing folder that {'exists' if options.growing.exists() else 'is new'}"


def _parse_subject(options: ReleaseOptions, table: Path | None) -> Subject:
    if options.workload is None:
        if table is not None and not table.exists():
            raise InvalidInput(f"{table}: there is no such table, and no such release")
        raise InvalidInput(
            "--workload names the queries: marginals:2, thresholds:COLUMN, ranges:COLUMN, hierarchy:COLUMN, "
            "expressions:FILE, boxes:COLUMN,COLUMN or halfspaces:COLUMN,COLUMN"
        )
    subject = Subject.parse(options.workload)
    subject.left_out = listed(options.leave_out)
    return subject


def _check_people(options: ReleaseOptions, settings: Mapping[str, Any]) -> None:
    if options.groups is None and settings["records_per_person"] != 1:
        raise InvalidInput("--records-per-person needs --groups, the column that names the person of each record")


def _check_answers(options: ReleaseOptions) -> None:
    """Refuse what could not be read of a release before it is paid for."""
    if options.synthetic is not None:
        check_count("synthetic", options.synthetic, most=MOST_ROWS)
    if options.band is not None:
        check_rate("band", options.band)


def _release_once(
    release: QueryRelease, subject: Subject, table: Path, queries: Sequence[Any], options: ReleaseOptions
) -> int:
    """Fit a release, write it, and print what it promises."""
    if options.out is None:
        raise InvalidInput("--out FOLDER says where to write the release")
    check_new_folder(options.out)
    check_report(options.report, inputs=[table, options.public, options.columns])
    _check_answers(options)
    public = public_records(subject, options.public, options.groups)
    private, people = private_records(subject, table, options.groups)
    subject.check_left_out(options.groups)
    warn_of_delta(release.delta, private, people)
    auto_cuts = AutoCuts.of(subject.about, release.columns, public)
    domain = make_domain(subject.about, public, release.columns if auto_cuts is None else auto_cuts.widest)
    check_declared(domain, private)
    if queries:  # what cannot be asked is refused before anything is paid
        domain.find_sums(queries)
        if auto_cuts is not None:
            auto_cuts.check_requests(domain, queries)
    release.fit(private, public, groups=people)
    write_release(release, subject.names, options.out, options.synthetic)
    utility = simulate_utility(release) if options.utility else None
    if options.report is not None:
        write_release_report(release, options.report, utility)
    if utility is not None and not options.json:
        print(utility.summary(), file=sys.stderr)
    figures = {"utility": utility.as_dict()} if utility is not None and options.json else {}
    return show_release(release, queries, options.out, options.reading, figures, as_json=options.json)


def _begin_growing(subject: Subject, table: Path, options: ReleaseOptions, settings: Mapping[str, Any]) -> int:
    """Make the first update of a release, and keep the release in a folder before its answers leave."""
    assert options.growing is not None
    if settings["updates"] is None:
        raise InvalidInput("--updates says how many updates there will be, at most: 24 for two years of months")
    check_new_folder(options.growing)
    people = None if options.groups is None else settings["records_per_person"]
    public = public_records(subject, options.public, options.groups)
    growing = GrowingRelease(subject.about, public=public, **{**settings, "records_per_person": people})
    return _update(growing, subject, table, options)


def _continue_growing(table: Path | None, options: ReleaseOptions) -> int:
    """Make an update of the release in a folder, or answer one that was made before as it was."""
    assert options.growing is not None
    if table is None:
        raise InvalidInput("name the table of private records of this update")
    folder = open_folder(options.growing)
    growing = load(folder, kind="growing release")
    subject = Subject(growing.subject, tuple(names_in(folder)))
    subject.left_out = listed(options.leave_out)
    try:
        return _update(growing, subject, table, options)
    finally:
        growing.close()


def _update(growing: GrowingRelease, subject: Subject, table: Path, options: ReleaseOptions) -> int:
    assert options.growing is not None
    if options.update is None:
        raise InvalidInput("--update names the update, as in --update 2024-01: the same name is answered as it was")
    if options.out is None:
        raise InvalidInput("--out FOLDER says where to write the release of this update")
    check_new_folder(options.out)
    _check_answers(options)
    queries = parse_queries(options.queries, growing.subject)
    if queries:  # what cannot be asked is refused before anything is drawn
        growing.domain_.find_sums(queries)
    private, people = private_records(subject, table, options.groups, lasting=True)
    check_declared(growing.domain_, private)
    update = growing.update(options.update, private, groups=people)
    if not growing.has_folder:
        save(growing, options.growing, extra=columns_file(subject.names))
        growing.close()
    write_release(update, subject.names, options.out, options.synthetic)
    assert update.update_ is not None
    figures = {"update": update.update_.name, "number": update.update_.number, "updates": update.update_.updates}
    return show_release(update, queries, options.out, options.reading, figures, as_json=options.json)


def _release_online(
    subject: Subject,
    table: Path,
    columns: Columns | None,
    queries: Sequence[Any],
    options: ReleaseOptions,
    *,
    settings: Mapping[str, Any],
) -> int:
    """Ask queries one at a time, and keep the model in a folder or its budget in a ledger."""
    if not queries and options.out is None:
        raise InvalidInput("--online answers the queries of the same command: --ask QUERY or --ask FILE.txt")
    if options.public is None:
        raise InvalidInput("--online starts from public records: --public TABLE")
    if (settings["ledger"] is None) == (options.out is None):
        raise InvalidInput(
            "--online keeps its budget in a folder, so that a later command goes on with it: --out FOLDER keeps the "
            "model too, and --ledger FOLDER the budget alone, for a command that reads the records again"
        )
    if options.out is not None:
        check_new_folder(options.out)
    public = public_records(subject, options.public, options.groups)
    set_options = {name: value for name, value in settings.items() if value is not None}
    online = OnlineRelease(subject.about, columns=columns, **set_options)
    make_domain(subject.about, public, columns).find(queries)  # what cannot be asked is refused before it is paid
    private, people = private_records(subject, table, options.groups)
    online.fit(private, public, groups=people)
    if options.out is not None:
        save(online, options.out)
    folder = {} if options.out is None else {"folder": str(options.out)}
    return _show_online(online, queries, folder, as_json=options.json)


def ask_online(folder: Folder, texts: Sequence[str], *, out: Path | None, caller: str = "", as_json: bool) -> int:
    """Ask an online release in a folder, which pays from its budget; exit code 1 where that could not pay for all."""
    if out is not None:
        check_new_file(out, inputs=[folder.path / "manifest.json"])
    online = load(folder, kind="online release")
    try:
        queries = parse_queries(texts, online.subject)
        online.domain_.find(queries)
    except InvalidInput:
        online.close()
        raise
    return _show_online(online, queries, {}, out=out, caller=caller, as_json=as_json)


def _show_online(
    online: OnlineRelease,
    queries: Sequence[Any],
    figures: dict[str, Any],
    *,
    out: Path | None = None,
    caller: str = "",
    as_json: bool,
) -> int:
    """Ask, close the ledger, and print the answers and the bill."""
    try:
        replies = online.ask(queries, caller=caller)
    except BudgetSpent:
        replies = []
    finally:
        online.close()
    warn_of_moved_cuts(online.domain_, queries)
    names = ("query", "answer", "error", "paid")
    answers = [{name: getattr(reply, name) for name in names} for reply in replies if not reply.refused]
    refused = len(queries) - len(answers)
    bill = figures | {
        "claim": online.claim_,
        "privacy_unit": online.unit_,
        "epsilon": online.budget_.epsilon,
        "delta": online.budget_.delta,
        "alpha": online.alpha_,
        "opening_epsilon": online.opening_epsilon_,
        "asked": len(queries),
        "paid": sum(answer["paid"] for answer in answers),
        "refused": refused,
        "answers": answers,
    }
    if out is not None:
        write_file(out, to_csv(answers, names))
    elif not as_json:
        show_rows(answers)
    show_bill("online release", bill, as_json=as_json)
    return 1 if refused else 0


def _ask_folder(path: Path, options: ReleaseOptions) -> int:
    """Ask the release of a folder: one that was published, or one that pays from its budget."""
    folder = open_folder(path)
    if folder.kind == "online release":
        return ask_online(folder, options.queries, out=options.out, as_json=options.json)
    return ask_published(
        folder,
        options.queries,
        out=options.out,
        synthetic=options.synthetic,
        quantiles=options.quantiles,
        reading=options.reading,
        as_json=options.json,
    )


def ask_published(
    folder: Folder,
    texts: Sequence[str],
    *,
    out: Path | None,
    synthetic: int | None = None,
    quantiles: int | None = None,
    reading: Mapping[str, Any] = MappingProxyType({}),
    as_json: bool,
) -> int:
    """Answer from a folder that was published before. Nothing is spent."""
    published = load(folder, kind="query release")
    if out is not None:
        check_new_file(out, inputs=[folder.path / "manifest.json"])
        if quantiles is None:
            check_table_name(out)
    if synthetic is not None:
        check_count("synthetic", synthetic)
        if out is None:
            raise InvalidInput("--out FILE.csv says where to write the synthetic records")
        write_synthetic(published, out, synthetic, names_in(folder))
        show_bill(f"synthetic records in {out}", {"rows": synthetic, "out": str(out)}, as_json=as_json)
        return 0
    if quantiles is not None:
        text = json.dumps(published.quantiles(quantiles).to_dict())
        if out is None:
            print(text)
        else:
            write_file(out, text + "\n")
        return 0
    table = published.answer(parse_queries(texts, published.subject) if texts else None, **reading)
    rows = table.to_pylist()
    warn_of_gaps(rows)
    rounded = shown_answers(rows, published.records_)
    if out is not None:
        write_table(out, table, rows=rounded)
    if as_json:
        print(json.dumps({"claim": published.claim_, "answers": rows if out is None else len(rows)}))
    elif out is None:
        print(to_csv(rounded, table.column_names), end="")
    return 0


def _plan(subject: Subject, columns: Columns | None, options: ReleaseOptions, settings: Mapping[str, Any]) -> int:
    """Plan from public numbers, print the plan, and write its page; exit code 1 where alpha is out of reach."""
    check_report(options.report, inputs=[options.public, options.columns])
    if options.records is None:
        raise InvalidInput("--plan reads no private record: --records says how many there are")
    public = 0 if options.public is None else subject.records(read_table(options.public, role="public"))
    set_options = {name: value for name, value in settings.items() if value is not None}
    plan = plan_release(subject.about, records=options.records, public=public, columns=columns, **set_options)
    if options.report is not None:
        from quorate.report.release import write_plan_report

        write_plan_report(plan, options.report)
    if options.json:
        print(json.dumps(plan.as_dict()))
    else:
        _show_plan(plan)
    return 0 if plan.feasible else 1


def _show_plan(plan: Plan) -> None:
    console = Console()
    console.print(plan.summary())
    table = Table("engine", "expected largest error", title="Expected", caption="* chosen by auto")
    for position, outlook in enumerate(plan.engines):
        table.add_row(outlook.engine + (" *" if position == 0 else ""), f"{outlook.error:.4g}")
    if plan.public:
        table.add_row("public records alone, if a fair sample", f"{plan.public_alone:.4g}")
    console.print(table)
    for sentence in plan.published:
        console.print(f"Beside it, as published: {sentence}.")
    if not plan.feasible:
        console.print(f"[bold]Not feasible[/bold]: {plan.error + plan.cover:.3g} is above alpha = {plan.alpha:g}.")
