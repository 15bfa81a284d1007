"""`quorate start --goal tables`: numbers by group, or all pairs of columns with synthetic records, from a table alone.

What is printed and written is made of the names of the columns, the number of rows or people, and the answers.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rich.console import Console

from quorate.cli.output import show_rows
from quorate.cli.start_files import Job, literal
from quorate.core.errors import InvalidInput
from quorate.tables.learned import check_learnable


@dataclass(frozen=True, kw_only=True)
class TablesJob(Job):
    """What is to be released of a table: `measures` has the columns of "total", "mean" and "median"."""

    by: list[str]
    measures: Mapping[str, list[str]]
    feasible = True

    def __post_init__(self) -> None:
        if not self.by and any(self.measures.values()):
            raise InvalidInput("--total, --mean and --median need --by, the columns that name groups")
        if not self.by and self.schema is None:
            columns = len(set(self.records.column_names) - {self.source.groups, *self.left_out})
            check_learnable(self.units, columns, epsilon=self.epsilon, delta=self.delta)

    @cached_property
    def left_out(self) -> list[str]:
        """The columns that are not released: ids, and those that a schema does not declare."""
        names = [name for name in self.records.column_names if name != self.source.groups]
        undeclared = [name for name in names if self.declared is not None and name not in self.declared.columns]
        return list(dict.fromkeys([*self.source.leave_out, *self.ids, *undeclared]))

    def show(self) -> None:
        """Print what the release is expected to say, before anything is read."""
        print_line = Console(highlight=False, markup=False).print
        print_line("\nThe plan, made from public numbers alone")
        show_rows(self.forecast(), is_result=True, title="Expected 95% intervals, as half of their widths")
        for sentence in self.notes():
            print_line(sentence)
        print_line(self.guarantee)

    def forecast(self) -> list[dict[str, Any]]:
        """Return the expected half widths of intervals for groups of some sizes; nothing for pairs of columns."""
        if not self.by:
            return []
        from quorate.release import GroupRelease

        measures: dict[str, Any] = {f"{name}s": of for name, of in self.measures.items()}
        release = GroupRelease(self.by, **measures, epsilon=self.epsilon, delta=self.delta, columns=self.declared)
        rows: list[dict[str, Any]] = release.plan(is_person=self.source.groups is not None).to_pylist()
        return rows

    def notes(self) -> Iterator[str]:
        """Yield what is released of which columns, and how people count."""
        if not self.by:
            kinds = "learned from the records" if self.schema is None else f"those of {self.schema}"
            yield f"Shares of all pairs of columns, and synthetic records. The columns are {kinds}."
            if self.left_out:
                yield f"Not released: {', '.join(self.left_out)}."
        if self.source.groups is not None:
            yield "Each person counts once, with the first record. quorate release --help says how more records count."

    def steps(self) -> dict[str, list[str]]:
        """Return the command that makes the release."""
        settings: dict[str, Any] = {
            "people": self.source.groups,
            "by": self.by,
            **self.measures,
            "columns": self.schema,
        }
        if not self.by:
            settings |= {"synthetic": self.units, "leave_out": self.left_out}
        return {
            "It may be published.": self.words(
                "release", settings | {"out": self.out / "published", "report": self.page}
            )
        }

    def script(self) -> str:
        """Return the release as Python."""
        people = self.source.groups
        budget = f"{self.epsilon=}, {self.delta=}".replace("self.", "")
        budget += f", columns=Schema.load({literal(self.schema)})" if self.schema else ""
        if self.by:
            measures = "".join(f", {name}s={literal(of)}" for name, of in self.measures.items() if of)
            release = f"release = qr.GroupRelease({literal(self.by)}{measures}, {budget})\nrelease.fit(records"
            groups = literal(people)
        else:
            unused = literal([*self.left_out, *([people] if people else [])])
            release = f"unused = {unused}\nrelease = qr.QueryRelease(qr.Workload.marginals(2), {budget})\n"
            release += "release.fit(records.drop_columns(unused)"
            groups = f"records[{literal(people)}]"
        return _SCRIPT.format(
            schema="Schema, " if self.schema else "",
            reading=self.reading,
            release=release + (f", groups={groups}" if people else ""),
            folder=literal(self.out / "published"),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the job as JSON values."""
        return {"goal": "tables", "units": self.units, "commands": self.lines(), "out": str(self.out)}


_SCRIPT = '''"""Tables that may be published. Made by quorate start; change what you like."""

import quorate as qr
from quorate.tables import {schema}read_table

# The private records. Nothing of them leaves but what is paid for below.
records = {reading}

{release})
print(release.claim_)
print(release.answer())
qr.save(release, {folder})
'''
