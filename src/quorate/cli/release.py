"""`quorate release`: from private records to a folder of answers that may be published.

With --online the queries are asked one at a time instead, and only those are paid for that public data and earlier
answers miss. With --growing a table is released after each update.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter

from quorate.cli.fit_methods import Method
from quorate.cli.options import AsJson, Measures, Names, options_of, refuse_idle, split_list, with_options
from quorate.cli.output import (
    check_apart,
    check_new_folder,
    check_report,
    show,
    show_bill,
    show_plan,
    show_rows,
    to_csv,
)
from quorate.cli.reading import FileOptions, warn_of_delta
from quorate.cli.release_tables import (
    Subject,
    ask_release,
    columns_file,
    names_in,
    refuse_undeclared,
    show_online,
    warn_of_gaps,
    write_synthetic,
)
from quorate.core.checks import check_count, check_rate
from quorate.core.errors import InvalidInput
from quorate.models.saving import load, open_folder, save
from quorate.release import Columns, GroupRelease, GrowingRelease, OnlineRelease, QueryRelease
from quorate.release.answers import parse_queries
from quorate.release.auto_cuts import AutoCuts
from quorate.release.domain import make_domain
from quorate.release.plan import plan_release
from quorate.release.synthetic import MOST_ROWS
from quorate.release.utility import simulate_utility
from quorate.report import write_report
from quorate.report.groups import GroupReport
from quorate.report.release import release_bill, report_release
from quorate.tables import Schema
from quorate.tables.document import read_document, schema_fields
from quorate.tables.files import TableStream

_SYNTHETIC_FILE = "synthetic.csv"
_FILES = "encoding separator skip_last"
_MEASURES = "total mean median weights columns groups"
_TABLES, _ANSWERS = (
    "table workload public columns groups leave_out encoding separator skip_last",
    "ask band counts synthetic out json",
)
USED_OPTIONS = {  # by what a command does
    "when a release is asked": f"table {_ANSWERS} quantiles",
    "with --by and --plan": f"plan by table {_MEASURES} groups_per_person records_per_person epsilon delta json",
    "with --by": f"by table {_MEASURES} groups_per_person records_per_person {_FILES} epsilon delta account out json "
    "report",
    "with --sql": f"sql plan weights table columns groups groups_per_person records_per_person {_FILES} epsilon delta "
    "account out json report",
    "with --plan": "plan table workload public columns leave_out epsilon delta alpha records json",
    "with --online": f"online {_TABLES} epsilon delta alpha out ask json",
    "with a --growing folder that is new": f"growing update updates {_TABLES} records_per_person epsilon delta engine "
    f"error target account {_ANSWERS}",
    "with a --growing folder that exists": f"growing update table groups leave_out {_FILES} {_ANSWERS}",
    "without --plan, --online or --growing": f"{_TABLES} records_per_person epsilon delta engine error target account "
    f"{_ANSWERS} utility report",
}
_SETTINGS = Method(
    "",
    ("release:QueryRelease", "release:GrowingRelease", "release:OnlineRelease", "release:GroupRelease"),
    extra="account",
    skip="subject columns error_weights domain public ledger by totals means medians quantiles where",
    types={
        "engine": Literal["auto", "plain", "residual", "adaptive", "levels", "prefix", "weights", "reweighting"],
    },
    helps={
        "epsilon": "The privacy loss allowed: of a release, of all updates (--growing) or of all answers (--online).",
        "updates": "With --growing: how many updates the budget is for.",
        "alpha": "With --online or --plan: the largest error of an answer.",
        "engine": "How counts become answers. auto takes the one with the smallest expected error, by public numbers.",
        "error": "Which error to keep small: the largest of all answers or, for marginals, the mean total variation of "
        "a marginal; weighted gives those with --target more weight.",
        "records_per_person": "With --groups: how many records of a person count, at most. With --by "
        "each of them counts, otherwise each person counts once.",
        "weights": "With --by: the column of survey weights, declared in --columns with low and high.",
        "groups_per_person": "With --by and --groups: how many groups of a person count, at most.",
        "target": "With --error weighted: the column to predict, whose pairs with others are released most exactly.",
    },
)
_GROUP = Group("Release", sort_key=1)
_Table = Annotated[
    Path | None,
    Parameter(
        group=_GROUP,
        help="The private records: .csv, .csv.gz, .parquet, .arrow or .feather, with --by also a folder of such files; "
        "or the folder of a release to ask.",
    ),
]


@Parameter(name="*", group=_GROUP)
@dataclass(frozen=True, kw_only=True)
class ReleaseOptions(Measures, FileOptions):
    """The queries, the tables, what to read from a release, and where results go.

    Parameters
    ----------
    workload
        The queries: marginals:ORDER, thresholds:COLUMN[:BY,...], ranges:COLUMN[:BY,...],
        hierarchy:COLUMN[:BY,...], expressions:FILE, boxes:COLUMN,... or halfspaces:COLUMN,COLUMN.
    public
        A table of public records with the same columns. They define categories, cuts and cells, and help the engine.
    sql
        In place of --by: a query such as SELECT region, sum(cost), median(stay) FROM visits WHERE age >= 18 GROUP BY
        region. Its other measures are count(*), count(DISTINCT person), avg and approx_quantile(column, level).
    columns
        A JSON file that declares columns: {"sex": ["f", "m"], "age": {"cuts": [18, 65]}}. Declared columns are not read
        from the public table.
    groups
        The column that names the person of each record, also called --people. The person is then protected, and the
        first record of each counts.
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
        When asking a folder, a .csv, .parquet or .xlsx file for the answers.
    report
        An HTML page to write: the guarantee, the engines, and the error on simulated records.
    """

    workload: str = "marginals:2"
    public: Path | None = None
    sql: str | None = None
    columns: Path | None = None
    groups: Annotated[str | None, Parameter(name=["--groups", "--people"])] = None
    leave_out: Names = ()
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
    json: AsJson = False

    @property
    def reading(self) -> dict[str, Any]:
        """How answers are given, as `QueryRelease.answer` takes it."""
        return {"band": self.band, "counts": self.counts}

    @property
    def subject_settings(self) -> dict[str, Any]:
        """Which columns of the tables are not released, and how the private file is written, as `Subject` takes it."""
        return {"left_out": self.leave_out, "groups": self.groups, **self.file_settings()}

    def subject(self) -> Subject:
        """Return what the queries are about."""
        return Subject.parse(self.workload, **self.subject_settings)

    def declared_columns(self) -> Columns | None:
        """Return the declarations of the file of --columns."""
        return None if self.columns is None else Columns.load(self.columns, leave_out=self.leave_out)

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


@with_options(_SETTINGS.options())
def release(table: _Table = None, *, options: ReleaseOptions = ReleaseOptions(), **settings: Any) -> int:
    """Release answers to all marginals, thresholds, ranges, boxes, halfspaces or expressions of a table, once.

    The folder that is written may be published: the guarantee covers all of its contents, and anyone may query it at no
    further privacy cost. To query it, give that folder instead of the table.

    Of a table without public records and declared columns, what the columns hold is learned with noise, within epsilon.

    Example: `quorate release private.csv --synthetic 10000 --out published`
    """
    mode = _find_mode(table, options)
    used = USED_OPTIONS[mode].split()
    unused = {name for _, name, _ in options_of(release)} - set(used)
    refuse_idle(release, {"table": table, "options": options, **settings}, unused, mode)
    settings = {name: value for name, value in settings.items() if name in used}
    if options.plan:
        plan = _plan if options.by is None is options.sql else _plan_groups
        return plan(options, settings)
    if table is None:
        raise InvalidInput("name the table of private records, or the folder of a release to ask")
    if mode == "when a release is asked":
        return ask_release(
            open_folder(table),
            options.queries,
            out=options.out,
            synthetic=options.synthetic,
            quantiles=options.quantiles,
            as_json=options.json,
            **options.reading,
        )
    check_apart(table, options.public)
    if mode in ("with --by", "with --sql"):
        return _release_groups(table, options, settings)
    if options.growing is not None:
        return _update(table, options, settings)
    return (_release_online if options.online else _release_once)(table, options, settings)


def _find_mode(table: Path | None, options: ReleaseOptions) -> str:
    """Return which options go together in this command, as a key of `USED_OPTIONS`."""
    if table is not None and table.is_dir() and options.by is None is options.sql:
        return "when a release is asked"
    if options.sql is not None:
        return "with --sql"
    if options.by is not None:
        return "with --by and --plan" if options.plan else "with --by"
    if options.plan or options.online:
        return "with --plan" if options.plan else "with --online"
    if options.growing is None:
        return "without --plan, --online or --growing"
    return f"with a --growing folder that {'exists' if options.growing.exists() else 'is new'}"


def _check_out(options: ReleaseOptions) -> Path:
    """Refuse what could not be written, or read of a release, before it is paid for; return the folder to write."""
    if options.out is None:
        raise InvalidInput("--out FOLDER says where to write the release")
    check_new_folder(options.out)
    if options.synthetic is not None:
        check_count("synthetic", options.synthetic, most=MOST_ROWS)
    if options.band is not None:
        check_rate("band", options.band)
    return options.out


def _publish(
    release: QueryRelease, subject: Subject, queries: Sequence[Any], options: ReleaseOptions, **figures: Any
) -> int:
    """Write a release into its folder, with synthetic records if asked for, and print what it promises."""
    assert options.out is not None
    release.publish(options.out, extra=columns_file(subject.names))
    if options.synthetic is not None:
        write_synthetic(release, options.out / _SYNTHETIC_FILE, options.synthetic, subject.names)
    utility = simulate_utility(release) if options.utility else None
    if options.report is not None:
        write_report(report_release(release, utility), options.report)
    answers = release.answer(queries, **options.reading).to_pylist() if queries else []
    warn_of_gaps(answers)
    if utility is not None:
        figures["utility"] = utility.as_dict()
    if not options.json and utility is not None:
        print(utility.summary(), file=sys.stderr)
    return _show_release(release_bill(release) | figures, answers, options)


def _show_release(bill: dict[str, Any], answers: Sequence[dict[str, Any]], options: ReleaseOptions) -> int:
    """Print the answers, the bill and the notes of a release."""
    if not options.json:
        show_rows(answers)
    bill |= {"folder": str(options.out), "answers": answers}
    show_bill(f"The release in {options.out}", bill, as_json=options.json)
    for note in () if options.json else bill["notes"]:
        print(f"Note: {note}.", file=sys.stderr)
    return 0


def _check_people(options: ReleaseOptions, settings: Mapping[str, Any]) -> None:
    if options.groups is None and settings["records_per_person"] != 1:
        raise InvalidInput("--records-per-person needs --groups, the column that names the person of each record")


def _release_once(table: Path, options: ReleaseOptions, settings: Mapping[str, Any]) -> int:
    """Fit a release, write it, and print what it promises."""
    _check_people(options, settings)
    subject = options.subject()
    release = QueryRelease(subject.about, columns=options.declared_columns(), **settings)
    queries = parse_queries(options.queries, subject.about)
    _check_out(options)
    check_report(options.report, inputs=[table, options.public, options.columns])
    public = subject.read_public(options.public)
    private, people = subject.read_private(table)
    warn_of_delta(release.delta, private, people)
    auto_cuts = AutoCuts.of(subject.about, release.columns, public, table=private)
    domain = make_domain(subject.about, public, release.columns if auto_cuts is None else auto_cuts.widest)
    refuse_undeclared(domain, private)
    if queries:  # what cannot be asked is refused before anything is paid
        if auto_cuts is not None:
            auto_cuts.check_requests(domain, queries)
        domain.find_sums(queries)
    release.fit(private, public, groups=people)
    return _publish(release, subject, queries, options)


def _update(table: Path, options: ReleaseOptions, settings: dict[str, Any]) -> int:
    """Make an update of the release in a folder, or repeat the answers of an earlier one; the first makes the folder.

    The release is kept in its folder before its answers leave.
    """
    folder = options.growing
    assert folder is not None
    if folder.exists():
        opened = open_folder(folder)
        growing = load(opened, kind="growing release")
        subject = Subject(growing.subject, tuple(names_in(opened)), **options.subject_settings)
    else:
        _check_people(options, settings)
        if settings["updates"] is None:
            raise InvalidInput("--updates says how many updates there will be, at most: 24 for two years of months")
        check_new_folder(folder)
        settings["records_per_person"] = None if options.groups is None else settings["records_per_person"]
        subject = options.subject()
        public = subject.read_public(options.public)
        growing = GrowingRelease(subject.about, public=public, columns=options.declared_columns(), **settings)
    with closing(growing):
        if options.update is None:
            raise InvalidInput("--update names the update, as in --update 2024-01: the same name is answered as it was")
        _check_out(options)
        queries = parse_queries(options.queries, growing.subject)
        if queries:  # what cannot be asked is refused before anything is drawn
            growing.domain_.find_sums(queries)
        private, people = subject.read_private(table, lasting=True)
        refuse_undeclared(growing.domain_, private)
        release = growing.update(options.update, private, groups=people)
        if not growing.has_folder:
            save(growing, folder, extra=columns_file(subject.names))
    update = release.update_
    assert update is not None
    figures = {"update": update.name, "number": update.number, "updates": update.updates}
    return _publish(release, subject, queries, options, **figures)


def _release_online(table: Path, options: ReleaseOptions, settings: Mapping[str, Any]) -> int:
    """Open a release that answers queries one at a time, keep it in a folder, and ask it the first queries."""
    if options.public is None:
        raise InvalidInput("--online starts from public records: --public TABLE")
    subject, out, columns = options.subject(), _check_out(options), options.declared_columns()
    queries = parse_queries(options.queries, subject.about)
    public = subject.read_public(options.public)
    online = OnlineRelease(subject.about, columns=columns, **_without_none(settings))
    make_domain(subject.about, public, columns).find(queries)  # what cannot be asked is refused before it is paid
    private, people = subject.read_private(table)
    online.fit(private, public, groups=people)
    save(online, out)
    return show_online(online, queries, {"folder": str(out)}, as_json=options.json)


def _without_none(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if value is not None}


def _plan(options: ReleaseOptions, settings: Mapping[str, Any]) -> int:
    """Plan from public numbers, and print the plan; exit code 1 where alpha is out of reach."""
    if options.records is None:
        raise InvalidInput("--plan reads no private record: --records says how many there are")
    subject = options.subject()
    public = 0 if options.public is None else subject.read_public(options.public)
    numbers: dict[str, Any] = {"records": options.records, "public": public, "columns": options.declared_columns()}
    plan = plan_release(subject.about, **numbers, **_without_none(settings))
    return show_plan(plan, as_json=options.json)


def _make_group_release(options: ReleaseOptions, settings: Mapping[str, Any]) -> tuple[GroupRelease, str | None]:
    """Return the release by group that the options describe, and the column that names people."""
    if options.sql is None:
        names = {"by": options.by, "totals": options.total, "means": options.mean, "medians": options.median}
        query: dict[str, Any] = {name: split_list(text) for name, text in names.items()}
    else:
        query = GroupRelease.read_sql(options.sql)
    people = query.pop("groups", None) or options.groups
    columns: Any = None if options.columns is None else read_document(options.columns)
    if columns is not None and isinstance(columns.get("columns"), Mapping):
        columns = Schema(**schema_fields(columns))
    settings = dict(settings)
    settings["groups_per_person"] = groups = settings["groups_per_person"] or 1
    if settings["records_per_person"] == 1:
        settings["records_per_person"] = groups
    return GroupRelease(**query, columns=columns, **settings), people


def _plan_groups(options: ReleaseOptions, settings: Mapping[str, Any]) -> int:
    """Print the expected intervals for groups of some sizes."""
    release, people = _make_group_release(options, settings)
    rows = release.plan(is_person=people is not None).to_pylist()
    title = "Expected 95% intervals, as half of their widths"
    return show(rows, lambda: show_rows(rows, is_result=True, title=title), as_json=options.json)


def _release_groups(table: Path, options: ReleaseOptions, settings: Mapping[str, Any]) -> int:
    """Release numbers by group into a folder, and print them."""
    if (table / "manifest.json").exists():
        raise InvalidInput(f"{table} is the folder of a release or a model; --by reads private records")
    release, people = _make_group_release(options, settings)
    out = _check_out(options)
    check_report(options.report, inputs=[table, options.columns])
    release.fit(TableStream(table, **options.file_settings()), groups=people)
    answers = release.answer()
    rows = answers.to_pylist()
    save(release, out, extra={"answers.csv": to_csv(rows, answers.column_names).encode()})
    if options.report is not None:
        write_report(GroupReport(release=release), options.report)
    bill = {"claim": release.claim_, "privacy_unit": release.unit_, "groups": len(release.published_.keys)}
    return _show_release(bill | {"notes": list(release.notes_)}, rows, options)
