"""The options that say how private files are written, for every command that reads one."""

from dataclasses import dataclass
from typing import Any

from cyclopts import Group, Parameter


@Parameter(name="*", group=Group("Files", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class FileOptions:
    """How a CSV or Excel file is written, where its first line does not show it.

    Parameters
    ----------
    encoding
        The encoding of a CSV file, such as windows-1252. By default its first line shows it.
    separator
        What separates values of a CSV file: a comma, a semicolon, a tab or a bar. By default its first line shows it.
    skip_last
        How many records at the end of the file are none, such as a line of totals.
    """

    encoding: str | None = None
    separator: str | None = None
    skip_last: int = 0

    def settings(self) -> dict[str, Any]:
        """Return the options as `read_table`, `TableStream` and `CsvFormat` take them."""
        return dict(vars(self))

    def declared(self) -> dict[str, Any]:
        """Return the options that differ from their defaults."""
        return {name: value for name, value in vars(self).items() if value}
