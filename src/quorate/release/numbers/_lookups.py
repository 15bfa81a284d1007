"""Answers to single questions, such as {"measure": "total cost", "region": "north"}, read off a published release."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from quorate.core.errors import InvalidInput
from quorate.release.numbers._estimates import Answers
from quorate.release.numbers._keys import make_key
from quorate.release.numbers._published import Published
from quorate.tables.cells import OTHER
from quorate.tables.results import Table, make_table
from quorate.tables.values import canonical_text

_MOST_KEPT = 32  # ways to group that are kept
AnswersBy = Callable[[tuple[str, ...]], tuple[Published, dict[str, Answers]]]


class Lookups:
    """Finds answers by measure and group. Answers by each set of columns are computed once.

    Parameters
    ----------
    answers_by
        The function from columns that name groups to groups and answers; it refuses columns that are not there.
    """

    def __init__(self, answers_by: AnswersBy) -> None:
        self._answers_by = answers_by
        self._kept: dict[tuple[str, ...], tuple[dict[str, int], dict[str, Answers]]] = {}

    def _read(self, names: tuple[str, ...]) -> tuple[dict[str, int], dict[str, Answers]]:
        """Return the row of each group by these columns, and the answers of each measure."""
        if names not in self._kept:
            published, answers = self._answers_by(names)
            rows = {key: row for row, key in enumerate(published.keys)}
            if published.other.size:
                rows.setdefault(make_key([OTHER] * len(names)), len(published.keys))
            if len(self._kept) >= _MOST_KEPT:
                self._kept.clear()
            self._kept[names] = rows, answers
        return self._kept[names]

    def ask(self, queries: Sequence[Any]) -> Table:
        """Return measure, answer, low, high and note of each query, or refuse all if one is not of this release."""
        found = [self._find(query) for query in queries]
        figures = {
            name: np.array([getattr(answers, field)[row] for _, answers, row in found], dtype=np.float64)
            for name, field in (("answer", "answers"), ("low", "low"), ("high", "high"))
        }
        texts = {"measure": [measure for measure, _, _ in found]}
        notes = {"note": [answers.notes[row] for _, answers, row in found]}
        return make_table(texts | figures | notes, missing={name: ~np.isfinite(figures[name]) for name in figures})

    def _find(self, query: Any) -> tuple[str, Answers, int]:
        """Return the measure of a query, its answers and the row of its group."""
        if not isinstance(query, Mapping) or not isinstance(query.get("measure"), str):
            raise InvalidInput(
                'a query of numbers by group must name a measure and a group, such as {"measure": "records", '
                f'"region": "north"}}; got {query!r}'
            )
        names = tuple(str(name) for name in query if name != "measure")
        rows, answers = self._read(names)
        measure = query["measure"]
        if measure not in answers:
            raise InvalidInput(f"measure must be among {', '.join(answers)}, got {measure!r}")
        values = [query[name] for name in names]
        key = make_key([None if value is None else canonical_text(value) for value in values])
        if key not in rows:
            raise InvalidInput(f"no group {key} is published by {', '.join(names)}; answer() lists all of them")
        return measure, answers[measure], rows[key]
