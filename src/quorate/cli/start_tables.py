"""`quorate start --goal tables`: numbers by group, or all pairs of columns with synthetic records, from a table alone.

What is printed and written is made of the names of the columns, the number of rows or people, and the answers.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from rich.console import Console

from quorate.cli.options import split_list
from quorate.cli.output import show_rows
from quorate.cli.reading import TableFile
from quorate.cli.start_files import literal
from quorate.core.checks import is_named_id
from quorate.core.errors import InvalidInput
from quorate.tables import Schema
from quorate.tables.learned import check_learnable
from quorate.tables.persons import person_names
from quorate.tables.values import canonical_text, raw_column

MEASURES = ("total", "mean", "median")
QUESTIONS = {
    "groups": ("Who is protected? Name the column that says whose row it is, or none if each row is a person.", "none"),
    "by": (
        "Numbers of which groups? Columns, separated by commas, with parts of dates such as visited:month, or none for "
        "shares of all pairs of columns and synthetic records.",
        "none",
    ),
    "total": ("Totals of which columns of numbers, by group? Names, separated by commas, or none.", "none"),
    "mean": ("Means of which columns, by group? Names, or none.", "none"),
    "median": ("Medians of which columns, by group? Names, or none.", "none"),
}


@dataclass(frozen=True, kw_only=True)
class TablesJob:
    """What is to be released of a table, and where it goes."""

    source: TableFile
    columns: tuple[str, ...]
    rows: int
    units: int
    by: tuple[str, ...]
    measures: Mapping[str, tuple[str, ...]]
    epsilon: float
    delta: float
    out: Path
    schema: Path | None = None

    @cached_property
    def declared(self) -> Schema | None:
        """What the owner declares of the columns."""
        return None if self.schema is None else Schema.load(self.schema)

    @property
    def left_out(self) -> tuple[str, ...]:
        """The columns that are not released: ids, and those that a schema does not declare."""
        named = [name for name in self.columns if name != self.source.groups]
        known = self.columns if self.declared is None else self.declared.columns
        unused = [name for name in named if is_named_id(name) or name not in known]
        return tuple(dict.fromkeys([*split_list(self.source.leave_out), *unused]))

    def words(self) -> list[str]:
        """Return the arguments of `quorate` that make the release."""
        options = {
            "people": self.source.groups,
            "by": ",".join(self.by),
            **{name: ",".join(columns) for name, columns in self.measures.items()},
            "synthetic": None if self.by else self.rows,
            "leave-out": None if self.by else ",".join(self.left_out),
            **{name.replace("_", "-"): value for name, value in self.source.file_settings().items()},
            "columns": self.schema,
            "epsilon": canonical_text(self.epsilon),
            "delta": canonical_text(self.delta),
            "out": self.out / "published",
        }
        words = ["release", str(self.source.table)]
        for name, value in options.items():
            words += [f"--{name}", str(value)] if value else []
        return words

    def script(self) -> str:
        """Return the release as Python."""
        reading = "".join(f", {name}={literal(value)}" for name, value in self.source.file_settings().items())
        lines = [
            '"""Tables that may be published. Made by quorate start; change what you like."""\n',
            "import quorate as qr",
            f"from quorate.tables import {'Schema, ' if self.schema else ''}read_table\n",
            "# The private records. Nothing of them leaves but what is paid for below.",
            f'records = read_table({literal(self.source.table)}{reading}, role="private")\n',
        ]
        groups = "" if self.source.groups is None else f", groups={self._people}"
        budget = f"epsilon={canonical_text(self.epsilon)}, delta={canonical_text(self.delta)}"
        budget += f", columns=Schema.load({literal(self.schema)})" if self.schema else ""
        if self.by:
            measures = "".join(f", {name}s={literal(list(of))}" for name, of in self.measures.items() if of)
            lines.append(f"release = qr.GroupRelease({literal(list(self.by))}{measures}, {budget})")
            lines.append(f"release.fit(records{groups})")
        else:
            unused = [*self.left_out, *([self.source.groups] if self.source.groups else [])]
            lines.append(f"unused = {literal(unused)}")
            lines.append(f"release = qr.QueryRelease(qr.Workload.marginals(2), {budget})")
            lines.append(f"release.fit(records.drop_columns(unused){groups})")
        folder = literal(self.out / "published")
        return "\n".join(
            [*lines, "print(release.claim_)", "print(release.answer())", f"qr.save(release, {folder})", ""]
        )

    @property
    def _people(self) -> str:
        name = literal(self.source.groups)
        return name if self.by else f"records[{name}]"


def describe_tables(records: Any, source: TableFile, answers: Mapping[str, Any], **settings: Any) -> TablesJob:
    """Return the job that the answers describe; refuse names that the table does not have.

    Parameters
    ----------
    records
        The private table, of which names of columns and numbers of rows and people are read.
    source
        The file, and how it is written.
    answers
        The columns of `by`, "total", "mean" and "median", as lists of names.
    settings
        `epsilon`, `delta`, `out` and `schema`.
    """
    names = tuple(records.column_names)
    measures = {name: tuple(answers[name]) for name in MEASURES}
    if not answers["by"] and any(measures.values()):
        raise InvalidInput("--total, --mean and --median need --by, the columns that name groups")
    units = records.num_rows
    if source.groups is not None:
        units = len(person_names(raw_column(records[source.groups]))[1])
    job = TablesJob(
        source=source,
        columns=names,
        rows=records.num_rows,
        units=units,
        by=tuple(answers["by"]),
        measures=measures,
        **settings,
    )
    if not job.by and job.schema is None:
        columns = len(set(names) - {source.groups, *job.left_out})
        check_learnable(units, columns, epsilon=job.epsilon, delta=job.delta)
    return job


def show_tables_plan(console: Console, job: TablesJob) -> None:
    """Print what the release is expected to say, before anything is read."""
    console.print("\n[bold]The plan[/bold], made from public numbers alone")
    if job.by:
        from quorate.release import GroupRelease

        measures: dict[str, Any] = {f"{name}s": of for name, of in job.measures.items()}
        release = GroupRelease(job.by, **measures, epsilon=job.epsilon, delta=job.delta, columns=job.declared)
        rows = release.plan(is_person=job.source.groups is not None).to_pylist()
        show_rows(rows, is_result=True, limit=len(rows), title="Expected 95% intervals, as half of their widths")
    else:
        kinds = "learned from the records" if job.schema is None else f"those of {job.schema}"
        console.print(f"Shares of all pairs of columns, and synthetic records. The columns are {kinds}.", markup=False)
    if job.source.groups is not None:
        console.print(
            "Each person counts once, with the first record. quorate release --help says how more records count."
        )
    if job.left_out and not job.by:
        console.print(f"Not released: {', '.join(job.left_out)}.", markup=False)
    console.print(
        f"All of it together keeps epsilon = {canonical_text(job.epsilon)}, delta = {canonical_text(job.delta)}."
    )


def write_tables(job: TablesJob) -> None:
    """Write the script and the command into the folder."""
    job.out.mkdir(parents=True, exist_ok=True)
    (job.out / "script.py").write_text(job.script(), encoding="utf-8")
    command = shlex.join(["quorate", *job.words()])
    shell = "# Made by quorate start. Run this file or script.py, not both: each release has a budget of its own."
    (job.out / "commands.sh").write_text(f"#!/bin/sh\n{shell}\nset -e\n\n{command}\n", encoding="utf-8")


def parse_columns(text: str, names: Sequence[str]) -> list[str]:
    """Return a list of columns, "none" for no column; a column may end in a part of a date, such as :month."""
    wanted = [] if text == "none" else split_list(text)
    for name in wanted:
        if name not in names and name.rpartition(":")[0] not in names:
            raise InvalidInput(f"there is no column {name!r}; the columns are {', '.join(names)}")
    return list(wanted)
