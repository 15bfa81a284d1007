"""The tables that `quorate release` reads, and the answers that it writes."""

import json
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from quorate.cli.output import check_new_file, show, show_bill, show_rows, to_csv, write_file, write_or_print
from quorate.cli.reading import show_problems
from quorate.core.checks import check_count
from quorate.core.errors import BudgetSpent, InvalidInput
from quorate.core.lazy import import_extra
from quorate.models.concepts import Boxes, Concept, Halfspaces
from quorate.models.saving import Folder, load
from quorate.release import GroupRelease, OnlineRelease, QueryRelease, Workload
from quorate.release.answers import parse_queries, shown_answers
from quorate.release.domain import Domain
from quorate.tables import Number, Schema, read_table
from quorate.tables.containers import is_arrow, open_columns, shown_names
from quorate.tables.csv_records import Irregularities
from quorate.tables.look import file_problems
from quorate.tables.results import excel_bytes, make_table, parquet_bytes
from quorate.tables.values import read_numbers

_UNWRITTEN_FORMATS = (".gz", ".arrow", ".feather", ".json")
COLUMNS_FILE = "columns.json"  # beside a release about a class of hypotheses: the columns that its points have
_MOVED = 5  # of those that are answered at another cut


class Subject:
    """What `--workload` says, a workload of tables or a class over columns of numbers, and how tables are read for it.

    `names` are the columns of such a class. `left_out` and `groups` are columns that are not released.
    """

    def __init__(
        self,
        about: Workload | Concept,
        names: tuple[str, ...] = (),
        *,
        left_out: Sequence[str] = (),
        groups: str | None = None,
        **file_settings: Any,
    ) -> None:
        self.about, self.names, self.left_out, self.groups = about, names, left_out, groups
        self._file_settings = file_settings  # how the private file is written
        self._seen: set[str] = set()  # columns of the tables that were read, these among them

    @classmethod
    def parse(cls, text: str, **settings: Any) -> "Subject":
        """Return the subject that one word says."""
        kind, _, rest = text.partition(":")
        if kind not in ("boxes", "halfspaces"):
            try:
                return cls(Workload.parse(text), **settings)
            except InvalidInput as error:
                raise InvalidInput(f"{error}; or boxes:COLUMN,... or halfspaces:COLUMN,COLUMN") from None
        names = tuple(name.strip() for name in rest.split(",") if name.strip())
        if not names or len(set(names)) != len(names):
            raise InvalidInput(f"{kind} are over different columns of numbers: {kind}:COLUMN,COLUMN, not {text!r}")
        return cls(Boxes(len(names)) if kind == "boxes" else Halfspaces(len(names)), names, **settings)

    def read_private(self, path: Path, *, lasting: bool = False) -> tuple[Any, Any]:
        """Return the private records and, with a column of people, their names, by `lasting` names if updates follow.

        A column to leave out that no table has is refused: the column that was meant would be released.
        """
        irregularities, people = Irregularities(), None
        table = read_table(path, role="private", irregularities=irregularities, **self._file_settings)
        show_problems(file_problems(irregularities))
        if self.groups is not None:
            if self.groups not in table.column_names:
                raise InvalidInput(f"--groups names {self.groups!r}, and the private table has no such column")
            people = Schema({"": Number()}, groups=self.groups).people(table, lasting=lasting)
        records = self._records(table)
        if lacking := [name for name in self.left_out if name not in self._seen]:
            raise InvalidInput(
                f"--leave-out names {shown_names(lacking)}, and no table has such a column; the columns are "
                f"{shown_names(sorted(self._seen))}"
            )
        return records, people

    def read_public(self, path: Path | None) -> Any:
        """Return the public records, or None."""
        if path is None:
            return None
        return self._records(read_table(path, role="public", encoding=self._file_settings.get("encoding")))

    def _records(self, table: Any) -> Any:
        """Return the columns of a table for the release, or its points with NaN for non-numbers."""
        self._seen |= set(table.column_names)
        if not self.names:
            unread = {*self.left_out, self.groups}
            return table.drop_columns([name for name in table.column_names if name in unread])
        return np.stack([read_numbers(column) for column in open_columns(table, self.names).values()], axis=1)


def refuse_undeclared(domain: Domain, private: Any) -> None:
    """Refuse a private table with undeclared columns, which would otherwise be dropped in silence."""
    if unread := domain.unread(private):
        raise InvalidInput(
            f"the private table has columns that are neither declared (--columns) nor public: "
            f"{shown_names(unread)}; declare them, or leave them out (--leave-out {shlex.quote(','.join(unread))})"
        )


def columns_file(names: Sequence[str]) -> dict[str, bytes] | None:
    """Return the file that says which columns the points of a class of hypotheses have."""
    return {COLUMNS_FILE: json.dumps({"columns": list(names)}).encode()} if names else None


def names_in(folder: Folder) -> list[str]:
    """Return the names of the columns that the points of a release have; none for a release of tables."""
    text = folder.contents.get(COLUMNS_FILE)
    return [] if text is None else [str(name) for name in json.loads(text)["columns"]]


def ask_release(
    folder: Folder,
    texts: Sequence[str],
    *,
    out: Path | None,
    synthetic: int | None = None,
    quantiles: int | None = None,
    caller: str = "",
    as_json: bool,
    **reading: Any,
) -> int:
    """Query the release of a folder: a published one, or one that pays from its budget.

    Without queries, all answers are printed or written. `reading` says how answers of shares are given.
    """
    if out is not None:
        check_new_file(out, inputs=[folder.path / "manifest.json"])
    if folder.kind == OnlineRelease.kind:
        return _ask_online(folder, texts, out=out, caller=caller, as_json=as_json)
    by_group = folder.kind == GroupRelease.kind
    if by_group and (synthetic is not None or quantiles is not None or any(reading.values())):
        raise InvalidInput("numbers by group are not read with --band, --counts, --synthetic or --quantiles")
    release = load(folder, kind=GroupRelease.kind if by_group else QueryRelease.kind)
    if synthetic is not None:
        check_count("synthetic", synthetic)
        if out is None:
            raise InvalidInput("--out FILE.csv says where to write the synthetic records")
        write_synthetic(release, out, synthetic, names_in(folder))
        return show_bill(f"Synthetic records in {out}", {"rows": synthetic, "out": str(out)}, as_json=as_json)
    if quantiles is not None:
        write_or_print(json.dumps(release.quantiles(quantiles).to_dict()) + "\n", out)
        return 0
    return _show_answers(release, texts, reading, out=out, as_json=as_json)


def _show_answers(
    release: Any, texts: Sequence[str], reading: Mapping[str, Any], *, out: Path | None, as_json: bool
) -> int:
    """Print the answers of a published release, or write them to a table."""
    if out is not None:
        check_table_name(out)
    table, rows = _find_answers(release, texts, reading)
    if out is not None:
        write_table(out, table, rows=rows)
    figures = {"claim": release.claim_, "answers": table.to_pylist() if out is None else len(rows)}
    text = to_csv(rows, table.column_names) if out is None else ""
    return show(figures, lambda: print(text, end=""), as_json=as_json)


def _find_answers(release: Any, texts: Sequence[str], reading: Mapping[str, Any]) -> tuple[Any, list[dict[str, Any]]]:
    """Return the answers of a published release to these queries, or all of them, and as rows for people."""
    if isinstance(release, GroupRelease):  # queries are measures, or {"measure": ..., "region": ...}
        is_single = any(text.lstrip().startswith("{") for text in texts)
        table = release.ask(parse_queries(texts, None)) if is_single else release.answer(texts or None)
        return table, table.to_pylist()
    table = release.answer(parse_queries(texts, release.subject) if texts else None, **reading)
    rows = table.to_pylist()
    warn_of_gaps(rows)
    return table, shown_answers(rows, release.records_)


def _ask_online(folder: Folder, texts: Sequence[str], *, out: Path | None, caller: str, as_json: bool) -> int:
    """Ask a release that pays from its budget; exit code 1 where that could not pay for all queries."""
    online = load(folder, kind="online release")
    try:
        queries = parse_queries(texts, online.subject)
        online.domain_.find(queries)
    except InvalidInput:
        online.close()
        raise
    return show_online(online, queries, {}, out=out, caller=caller, as_json=as_json)


def show_online(
    online: OnlineRelease,
    queries: Sequence[Any],
    figures: Mapping[str, Any],
    *,
    out: Path | None = None,
    caller: str = "",
    as_json: bool,
) -> int:
    """Ask, close the ledger, and print the answers and the bill."""
    try:
        replies = online.ask(queries, caller=caller) if queries else []
    except BudgetSpent:
        replies = []
    finally:
        online.close()
    warn_of_moved_cuts(online.domain_, queries)
    names = ("query", "answer", "error", "paid")
    answers = [{name: getattr(reply, name) for name in names} for reply in replies if not reply.refused]
    refused = len(queries) - len(answers)
    bill = {
        **figures,
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
    show_bill("The online release", bill, as_json=as_json)
    return 1 if refused else 0


def write_synthetic(release: QueryRelease, path: Path, rows: int, names: Sequence[str]) -> None:
    """Write synthetic records as CSV, Parquet or Excel, by the name of the file."""
    check_table_name(path)
    records = release.synthetic(rows)
    if not is_arrow(records):
        columns = names or [f"x{position + 1}" for position in range(records.shape[1])]
        records = make_table({name: records[:, position] for position, name in enumerate(columns)})
    write_table(path, records, full=True)


def check_table_name(path: Path) -> None:
    """Refuse the name of a file in another format than is written: CSV in it would be read as something else."""
    if path.suffix.lower() in _UNWRITTEN_FORMATS:
        raise InvalidInput(f"{path}: tables are written as .csv, .parquet or .xlsx")
    if path.suffix.lower() == ".xlsx":
        import_extra("openpyxl", "excel", use=f"{path}: writing Excel")


def write_table(path: Path, table: Any, *, rows: Sequence[dict[str, Any]] | None = None, full: bool = False) -> None:
    """Write a table as Parquet or Excel by its name, or as CSV, with these rows in place of its own where given."""
    check_table_name(path)
    write = {".parquet": parquet_bytes, ".xlsx": excel_bytes}.get(path.suffix.lower())
    if write is not None:
        write_file(path, write(table))
        return
    write_file(path, to_csv(table.to_pylist() if rows is None else rows, table.column_names, full=full))


def warn_of_moved_cuts(domain: Domain, queries: Sequence[Any]) -> None:
    """Print the queries that were moved to other cuts, if every query is in the workload."""
    descriptions = domain.describe(domain.find(queries), queries) if queries else []
    _print_moves([(row["asked"], f"at the nearest cut: {row['query']}") for row in descriptions if "asked" in row])


def warn_of_gaps(answers: Sequence[dict[str, Any]]) -> None:
    """Print which answers lie between two queries, and how far these are apart."""
    near = [row for row in answers if row.get("gap") is not None]
    _print_moves([(row["asked"], f"{row['query']}, which are {row['gap']:.3g} apart") for row in near])


def _print_moves(moved: Sequence[tuple[str, str]]) -> None:
    for query, answer in moved[:_MOVED]:
        print(f"quorate: {query} is answered {answer}", file=sys.stderr)
    if len(moved) > _MOVED:
        print(f"quorate: and {len(moved) - _MOVED} more in the same way", file=sys.stderr)
