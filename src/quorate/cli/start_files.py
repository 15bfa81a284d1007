"""What `quorate start` leaves behind: a commented script, and the same as commands."""

import json
import shlex
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from quorate.cli.options import split_list
from quorate.cli.reading import TableFile
from quorate.core.checks import is_named_id
from quorate.core.errors import InvalidInput
from quorate.tables import Schema
from quorate.tables.persons import person_names
from quorate.tables.values import canonical_text, raw_column


@dataclass(frozen=True, kw_only=True)
class Job(ABC):
    """What is to be made of a table, and where it goes: a plan, commands, and a script that does the same.

    Of the private records, the names of columns and the numbers of rows and people are read.
    """

    records: Any
    source: TableFile
    schema: Path | None
    epsilon: float
    delta: float
    out: Path
    report: bool = False  # whether the commands write a page, which needs the packages of quorate[report]

    def at(self, epsilon: float) -> Self:
        """Return the same job at another epsilon; the tables are read once for both."""
        job = replace(self, epsilon=epsilon)
        vars(job).update({name: getattr(self, name) for name in _READINGS if hasattr(type(self), name)})
        return job

    @cached_property
    def declared(self) -> Schema | None:
        """What the owner declares of the columns."""
        return None if self.schema is None else Schema.load(self.schema)

    @cached_property
    def units(self) -> int:
        """The number of people or, if no column names them, of rows."""
        groups = self.source.groups
        return self.records.num_rows if groups is None else len(person_names(raw_column(self.records[groups]))[1])

    @property
    def ids(self) -> list[str]:
        """The columns that are named as ids are, without those that the owner has named."""
        named = (self.source.label, self.source.groups)
        return [name for name in self.records.column_names if is_named_id(name) and name not in named]

    @property
    def budget(self) -> dict[str, str]:
        """Epsilon and delta with all their digits."""
        return {"epsilon": canonical_text(self.epsilon), "delta": canonical_text(self.delta)}

    @property
    def guarantee(self) -> str:
        """Epsilon and delta in one sentence."""
        return "All of it together keeps epsilon = {epsilon}, delta = {delta}.".format(**self.budget)

    @property
    def reading(self) -> str:
        """The call that reads the private table, as Python."""
        settings = "".join(f", {name}={literal(value)}" for name, value in self.source.file_settings().items())
        return f'read_table({literal(self.source.table)}{settings}, role="private")'

    def words(self, command: str, settings: Mapping[str, Any]) -> list[str]:
        """Return the arguments of `quorate` for a command that reads the table; empty settings are left out."""
        words = [*command.split(), str(self.source.table)]
        for name, value in (dict(settings) | self.source.file_settings() | self.budget).items():
            option = f"--{name.replace('_', '-')}"
            if value is True:
                words.append(option)
            elif value:
                text = _join(option, value) if isinstance(value, list) else str(value)
                words += [f"{option}={text}"] if text.startswith("-") else [option, text]  # not an option itself
        return words

    @property
    def page(self) -> Path | None:
        """The page that the commands write."""
        return self.out / "report.html" if self.report else None

    @property
    @abstractmethod
    def feasible(self) -> bool:
        """Whether what is made is expected to be good enough."""

    def shortfall(self) -> str:
        """Return what is missing, in words, of a job that is not feasible."""
        return ""

    @abstractmethod
    def forecast(self) -> list[dict[str, Any]]:
        """Return what to expect, as rows of a table: errors of methods, or widths of intervals. Nothing is spent."""

    @abstractmethod
    def notes(self) -> Iterator[str]:
        """Yield what becomes of columns, classes and people, and how the owner can change that."""

    @abstractmethod
    def show(self) -> None:
        """Print the plan."""

    @abstractmethod
    def as_dict(self) -> dict[str, Any]:
        """Return the job as JSON values."""

    @abstractmethod
    def steps(self) -> dict[str, list[str]]:
        """Return the arguments of `quorate` of each command, by a comment on it."""

    @abstractmethod
    def script(self) -> str:
        """Return the same as Python."""

    def lines(self) -> list[str]:
        """Return the shell commands."""
        return [shlex.join(["quorate", *words]) for words in self.steps().values()]

    def write(self) -> None:
        """Write the folder: the script, and the commands."""
        steps = zip(self.steps(), self.lines(), strict=True)
        shell = "".join(f"\n# {comment}\n{line}\n" for comment, line in steps)
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "script.py").write_text(self.script(), encoding="utf-8")
        (self.out / "commands.sh").write_text(f"{_SHELL}{shell}", encoding="utf-8")

    def run(self) -> int:
        """Run the commands one after the other until one is refused."""
        from quorate.cli.app import main

        for words in self.steps().values():
            if code := main(words):
                return code
        return 0


_READINGS = ("declared", "units", "public_rows", "wordy")  # of a job, which do not depend on epsilon
_SHELL = """#!/bin/sh
# Made by quorate start. Run this file or script.py, not both: each opens a budget of its own.
set -e
"""


def _join(option: str, names: list[str]) -> str:
    """Return names as one argument; a name that a command would read as others is refused."""
    for name in names:
        if split_list(name) != [name]:
            raise InvalidInput(f"{option} takes no commas in a name and no spaces at its ends; rename {name!r}")
    return ",".join(names)


def literal(value: Any) -> str:
    """Return a text, a list of texts or a number as Python. JSON writes them as Python does."""
    if value is None:
        return "None"
    value = str(value) if isinstance(value, Path) else value
    return json.dumps(value, ensure_ascii=False)  # two surrogates for one letter would stay two in Python


def to_lines(arguments: Mapping[str, Any]) -> str:
    """Return the keyword arguments of a call as lines of Python; empty ones are left out."""
    return "".join(f"    {name}={literal(value)},\n" for name, value in arguments.items() if value)
