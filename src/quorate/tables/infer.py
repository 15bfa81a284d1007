"""Kinds of columns from a public table, or from a header alone. Private rows are never looked at to choose one."""

import math
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from quorate.core.checks import check_count, is_named_id, warn_of_id
from quorate.core.errors import InvalidInput
from quorate.core.hypotheses.concept import cut_points
from quorate.tables.columns import Category, Date, Kind, Number, Text
from quorate.tables.dates import DateUnit, read_moments
from quorate.tables.reading import MISSING_TEXTS, TRUTHS, Reading
from quorate.tables.values import is_readable, raw_column, read_numbers, read_texts

MOST_CATEGORIES = 256  # a column with more different texts is a name or a number of a person, more often than not
_MOST_CELLS = 20_000  # categories of a release, where public rows have each of them more than once
_MOSTLY = 0.9  # of the values that are given: so many numbers make a column of numbers
_MANY = 100  # public values that all differ by chance less often
_WITHOUT_WORDS = Reading(true_texts=(), false_texts=())
_MARKS = ("?", "-", "--", ".", "*")  # what people write where a number is missing


def kinds_from_public(
    table: pa.Table, *, without: Collection[str], reading: Reading, sentences: Collection[str] = ()
) -> dict[str, Kind]:
    """Return a kind for each column of a public table: numbers or dates where all values are, else categories.

    A column of `sentences` is one of texts. One that looks like the number of a row or a person is warned of.
    """
    kinds, problems = dict[str, Kind](), list[TooManyTexts]()
    reading = replace(reading, true_texts=(), false_texts=())  # yes and no are categories, though they can be numbers
    for name in (name for name in table.column_names if name not in without):
        try:
            kinds[name] = Text() if name in sentences else _kind(name, table.column(name), reading)
        except TooManyTexts as error:
            problems.append(error)
    if problems:
        counts = {name: count for problem in problems for name, count in problem.counts.items()}
        raise TooManyTexts(counts, limit=MOST_CATEGORIES, sentences=True)
    for name, kind in kinds.items():
        if type(kind) is Number and _looks_like_id(name, table.column(name), reading):
            warn_of_id(name)
    return kinds


def kinds_from_names(
    names: Sequence[str], *, without: Collection[str], sentences: Collection[str] = ()
) -> dict[str, Kind]:
    """Return unscaled numbers for all columns but `sentences`, which are texts, and warn of a name like that of an id.

    Only the names are used. A value that is no number counts as missing.
    """
    kinds: dict[str, Kind] = {name: Number() for name in names if name not in without}
    for name in kinds:
        if is_named_id(name) and name not in sentences:
            warn_of_id(name)
    return kinds | {name: Text() for name in kinds if name in sentences}


def with_numbers(table: pa.Table) -> pa.Table:
    """Return a public table whose texts are numbers where all of a column are: files such as CSV have no types."""
    for index, name in enumerate(table.column_names):
        kind = table.column(name).type
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            values = raw_column(table.column(name))
            numbers = _numbers_without_words(values, _WITHOUT_WORDS)
            if np.isnan(numbers).sum() == read_texts(values, MISSING_TEXTS).null_count:
                table = table.set_column(index, name, pa.array(numbers))
    return table


def _looks_like_id(name: str, column: pa.ChunkedArray, reading: Reading) -> bool:
    """Return whether a public column is named like an id, or has whole numbers of which no two are equal."""
    if is_named_id(name):
        return True
    numbers = read_numbers(raw_column(column), reading)
    is_whole = bool(np.all(np.floor(numbers) == numbers))
    return is_whole and numbers.size >= _MANY and np.unique(numbers).size == numbers.size


def classes_from_public(table: pa.Table, label: str, *, missing: Sequence[str]) -> tuple[str, ...]:
    """Return the classes that the label column of a public table shows."""
    if label not in table.column_names:
        raise InvalidInput(
            f"the classes of the label {label!r} must be declared (classes=..., --classes, or in the schema): they are "
            "not taken from private records, and the public table has no such column"
        )
    return tuple(_different(label, raw_column(table.column(label)), missing))


def _kind(name: str, column: pa.ChunkedArray, reading: Reading) -> Kind:
    if not is_readable(column.type):
        raise InvalidInput(
            f"column {name!r} is of type {column.type}: only numbers, dates, texts and truth values can be encoded; "
            f"turn it into one of them or leave it out (--leave-out {shlex.quote(name)})"
        )
    values, missing = raw_column(column), reading.missing_texts
    written = read_texts(values, missing)
    if pa.types.is_boolean(column.type):
        return Category(("false", "true"), missing="indicator" if values.null_count else "refuse")
    numbers, dates = _numbers_without_words(values, reading), read_moments(values, "days", reading)
    for kind, parsed in ((Number, numbers), (Date, dates)):
        if np.isnan(parsed).sum() == written.null_count:
            return _scaled_by_public(kind, name, parsed)
    _check_not_gaps(name, values, reading)
    return Category(_different(name, values, missing), missing="indicator" if written.null_count else "refuse")


def _numbers_without_words(values: pa.Array, reading: Reading) -> NDArray[np.float64]:
    """Return public values as numbers; NaN for true and false too, which are categories where nothing is declared."""
    lowered = pc.utf8_lower(read_texts(values, ()))
    truths = pc.fill_null(pc.is_in(lowered, value_set=pa.array(TRUTHS, pa.large_string())), False)
    return np.where(truths.to_numpy(zero_copy_only=False), np.nan, read_numbers(values, reading))


def _scaled_by_public(kind: type[Number], name: str, values: NDArray[np.float64]) -> Number:
    """Return a column of numbers or dates with the mean and the deviation of the public ones."""
    present = values[~np.isnan(values)]
    if not present.size:
        raise _no_value(name)
    with np.errstate(all="ignore"):
        centre, spread = float(present.mean()), float(present.std())
    if not (math.isfinite(centre) and math.isfinite(spread)):
        raise InvalidInput(f"column {name!r} holds numbers that are infinite or too large in the public table")
    return kind(centre=centre, spread=spread or 1.0, missing="indicator" if present.size < values.size else "refuse")


def _check_not_gaps(name: str, values: pa.Array, reading: Reading) -> None:
    """Refuse numbers among which a mark stands for a missing value: as categories they would mean nothing."""
    written = read_texts(values, reading.missing_texts)
    unread = np.isnan(_numbers_without_words(values, reading))
    marks = pc.is_in(written, value_set=pa.array(_MARKS, type=pa.large_string())).to_numpy(zero_copy_only=False)
    if unread.all() or unread.sum() > written.null_count + marks.sum():
        return
    mark = next(text for text in _MARKS if pc.any(pc.equal(written, text)).as_py())
    raise InvalidInput(
        f"column {name!r} holds numbers and {mark!r} in the public table: if that means a missing value, say so "
        "(missing_texts, --missing-texts); if not, declare the column in a schema"
    )


def cuts_from_public(name: str, column: pa.Array, *, bins: int | None, dates: bool = True, codes: bool = False) -> Kind:
    """Return a column as a release takes it: numbers or dates cut between public values, or the categories they show.

    Without `bins` every gap between neighbouring values is cut; with `bins`, into cells that hold about as many values.
    Whole numbers are cut at whole numbers; with `codes` few of them are categories. A few texts among numbers are no
    numbers, and count as missing.
    """
    if pa.types.is_timestamp(column.type):
        return _dates_cut(name, column, bins)
    written = read_texts(column)
    numbers = _numbers_without_words(column, _WITHOUT_WORDS)
    finite = numbers[np.isfinite(numbers)]
    present, distinct = len(written) - written.null_count, pc.count_distinct(written).as_py()
    if codes and bins is not None and distinct <= bins and _are_whole(finite):
        return Category(_ordered(_different(name, column, MISSING_TEXTS, sentences=False)))
    if finite.size and finite.size >= _MOSTLY * present:
        cuts, spans = _cuts_and_spans(finite, bins)
        return Number(cuts=cuts, spans=spans)
    if dates and np.isfinite(read_moments(column, "days")).sum() >= present:
        return _dates_cut(name, column, bins)
    is_small = len(written) < 2 * MOST_CATEGORIES or 2 * distinct > present
    limit = MOST_CATEGORIES if is_small else _MOST_CELLS
    return Category(_different(name, column, MISSING_TEXTS, sentences=False, limit=limit))


def _are_whole(numbers: NDArray[np.float64]) -> bool:
    return bool(numbers.size and (numbers == np.floor(numbers)).all())


def _ordered(values: list[str]) -> list[str]:
    """Return texts in order, numbers among them by size and first."""
    numbers_of = dict(zip(values, read_numbers(pa.array(values, type=pa.large_string())).tolist(), strict=True))
    plain = {text: number for text, number in numbers_of.items() if not math.isnan(number)}
    return sorted(values, key=lambda text: (text not in plain, plain.get(text, 0.0), text))


def _cuts_and_spans(
    values: NDArray[np.float64], bins: int | None
) -> tuple[list[float], list[tuple[float, float]] | None]:
    """Return cuts between public values, whole ones of whole values, and with `bins` the spans of the cells."""
    is_whole, cuts = _are_whole(values), cut_points(np.unique(values)) if bins is None else _binned(values, bins)
    cuts = np.ceil(cuts) if is_whole else np.asarray(cuts)
    return cuts.tolist(), None if bins is None else _spans(values, cuts, is_whole=is_whole)


def _dates_cut(name: str, column: pa.Array, bins: int | None) -> Date:
    """Return dates cut between public ones: at the beginning of a day where these have no times, else of a second."""
    unit: DateUnit = "days"
    moments = read_moments(column, unit)
    if (moments % 1 > 0).any():
        unit, moments = "seconds", read_moments(column, "seconds")
    moments = moments[np.isfinite(moments)]
    if not moments.size:
        raise _no_value(name)
    cuts, spans = _cuts_and_spans(moments, bins)
    return Date(cuts=cuts, unit=unit, spans=spans)


def _spans(values: NDArray[np.float64], cuts: NDArray[np.float64], *, is_whole: bool) -> list[tuple[float, float]]:
    """Return from where to where values lie in each cell; beyond the last cuts, so that their medians are met.

    The largest of a heavy tail says little of the others: evenly up to there, most would be much too large.
    """
    codes, spans = np.searchsorted(cuts, values, side="right"), list[tuple[float, float]]()
    for code in range(len(cuts) + 1):
        inside = values[codes == code]
        low, high = float(inside.min()), float(inside.max())
        middle = float(np.quantile(inside, 0.5, method="lower"))  # no mean of two, which may overflow
        if code == 0 and len(cuts) > 0:
            low = max(low, middle - (high - middle))
        if code == len(cuts) > 0:
            high = min(high, middle + (middle - low))
        end = float(cuts[code]) if code < len(cuts) else math.inf
        spans.append((math.floor(low), min(math.floor(high) + 1.0, end)) if is_whole else (low, high))
    return spans


def _binned(values: NDArray[np.float64], bins: int) -> NDArray[np.float64]:
    """Return cuts between distinct values that split the values about evenly into this number of cells."""
    distinct, counts = np.unique(values, return_counts=True)
    cuts, bins = cut_points(distinct), check_count("bins", bins)
    if cuts.size < bins:
        return cuts
    shares = np.cumsum(counts)[:-1] / values.size
    wanted = np.searchsorted(shares, np.arange(1, bins) / bins)
    return np.asarray(cuts[np.unique(np.minimum(wanted, cuts.size - 1))])


def _different(
    name: str, values: pa.Array, missing: Sequence[str], *, sentences: bool = True, limit: int = MOST_CATEGORIES
) -> list[str]:
    different = pc.drop_null(pc.unique(read_texts(values, missing))).to_pylist()
    if not different:
        raise _no_value(name)
    if len(different) > limit:
        raise TooManyTexts({name: len(different)}, limit=limit, sentences=sentences)
    return sorted(different)


class TooManyTexts(InvalidInput):
    """Columns of a public table have more different texts than can be taken for categories: `counts` says how many."""

    def __init__(self, counts: Mapping[str, int], *, limit: int, sentences: bool) -> None:
        self.counts = counts
        names = shlex.quote(",".join(counts))
        advice = f"leave them out (--leave-out {names}), or declare them"
        if sentences:
            advice = (
                f"leave them out (leave_out=, --leave-out {names}), take them for sentences (texts=, --texts), or "
                "declare them in a schema"
            )
        listed = ", ".join(f"{name!r} has {count} different texts" for name, count in counts.items())
        super().__init__(
            f"in the public table, column {listed}, and at most {limit} can be taken for categories: {advice}"
        )


def check_spelled(columns: Sequence[str], **options: str | None) -> None:
    """Refuse the name of a label or of people that a column has in other letters: as a feature it would tell all."""
    for option, name in options.items():
        folded = None if name is None else name.strip().casefold()
        alike = [column for column in columns if column.strip().casefold() == folded]
        if alike and name not in alike:
            raise InvalidInput(f"{option} names {name!r}, and there is no such column; is {alike[0]!r} meant?")


def _no_value(name: str) -> InvalidInput:
    return InvalidInput(
        f"column {name!r} has no value in the public table: leave it out (--leave-out {shlex.quote(name)}), or declare "
        "it in a schema"
    )
