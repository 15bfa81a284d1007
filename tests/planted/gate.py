"""Readers of tables with one mistake each: what is read of one value depends on others, as in many libraries.

A bug replaces a function of `quorate.tables` wherever that was imported; the hostile tables must catch each of them.
"""

import codecs
import contextlib
import dataclasses
import hashlib
import inspect
import math
import random
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from sklearn.base import BaseEstimator
from sklearn.exceptions import DataConversionWarning
from sklearn.linear_model import LogisticRegression

from planted.bug import Caught, PlantedBug, replaced
from quorate import NeighbourClassifier, save
from quorate.core import rows
from quorate.core.mechanisms import distributions
from quorate.models.evaluation import rows as held_out_rows
from quorate.models.knn._ballots import Ballot
from quorate.models.knn._unit_file import UnitFile
from quorate.models.knn._units import SEALED
from quorate.models.predictors import labels, records
from quorate.service._codec import read_request
from quorate.service._errors import Refused
from quorate.service._inputs import MatrixInput
from quorate.tables import columns, containers, csv_files, dates, persons, values
from quorate.tables import frames as frame_module
from quorate.tables.reading import as_reading
from support.hostile_tables import ODD, broken_cells, cells

Bug = tuple[Any, str, Callable[[Any], Any]]  # a module, one of its functions, and what makes the broken one of it

CELLS = random.Random(0).sample(cells(), 40_000)
_CLEARED = 20  # cells of the sound twin: a test of its own looks at thousands of them


@contextlib.contextmanager
def replaced_everywhere(bug: Bug) -> Iterator[None]:
    """Replace a function in every module of Quorate that imported it, inside the block."""
    home, name, make = bug
    sound = getattr(home, name)
    owners = [(home, name)] + [
        (module, known)
        for key, module in list(sys.modules.items())
        if key.startswith("quorate") or key == "support.hostile_tables"
        for known, value in list(vars(module).items())
        if value is sound
    ]
    with contextlib.ExitStack() as stack:
        for owner, known in owners:
            stack.enter_context(replaced(owner, known, make(sound)))
        yield


def _broken_by(broken: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return what makes the broken function of the sound one, which `broken` takes before all other arguments."""

    def make(sound: Any) -> Any:
        return lambda *given, **options: broken(sound, *given, **options)

    return make


def _reads(home: Any, name: str, *likely: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Plant a bug: the decorated function takes the place of this one, and is given it too.

    A bug that few cells show is looked for first at the sources, bases, readers and values that are `likely`.
    """

    def attack(bug: Bug | None) -> Caught:
        """Read tables in which one row is odd, and look for a second row that moved."""
        chosen = CELLS[:_CLEARED]
        if bug:
            chosen = sorted(CELLS, key=lambda cell: _count_likely(frozenset(likely), cell), reverse=True)
        with warnings.catch_warnings(action="ignore"), replaced_everywhere(bug) if bug else contextlib.nullcontext():
            moved = next(broken_cells(chosen), "")
        return Caught("hostile tables", moved or "no row moved but the odd one", found=bool(moved))

    def plant(broken: Callable[..., Any]) -> Callable[..., Any]:
        bug = (home, name, _broken_by(broken))
        _BUGS.append(PlantedBug(broken.__name__, "replay", lambda: bug, lambda: None, attack))
        return broken

    return plant


_BUGS: list[PlantedBug] = []


def _count_likely(likely: frozenset[str], cell: tuple[str, str, str, int]) -> int:
    odd = ODD[cell[3]]
    return len(likely.intersection([*cell[:3], odd if isinstance(odd, str) else ""]))


@_reads(values, "raw_column")
def truths_without_a_gap_are_numbers(sound: Any, column: Any) -> Any:
    """Truth values are numbers unless one is missing."""
    is_truth = isinstance(column, pa.Array) and pa.types.is_boolean(column.type)
    return column.cast(pa.int64()) if is_truth and column.null_count == 0 else sound(column)


@_reads(values, "_numbers_one_by_one", "number, decimal commas", "decimals", "1" * 700, "9" * 400)
def long_digits_unmark_typed_numbers(sound: Any, written: Any, typed: Any, reading: Any) -> Any:
    """Typed numbers lose their mark beside long digits."""
    longest = pc.max(pc.utf8_length(written)).as_py() or 0
    return sound(written, pc.and_(typed, False) if longest > 300 else typed, reading)


@_reads(csv_files, "_arrow_table", "unquoted csv", "frame of texts", "\ufeff1")
def first_mark_of_a_block_is_dropped(sound: Any, block: Any, *given: Any, **options: Any) -> Any:
    """A byte-order mark is dropped where a block of a file begins with it."""
    return sound(pa.py_buffer(block.to_pybytes().removeprefix(codecs.BOM_UTF8)), *given, **options)


@_reads(containers, "_listed_objects")
def numpy_finds_a_type(sound: Any, values: Any, name: Any, whose: str) -> Any:
    """NumPy finds one type for a container without any."""
    try:
        return np.array(list(values)).tolist()
    except ValueError:
        return sound(values, name, whose)


@_reads(values, "_decimal_texts", "record batch", "arrow", "decimals", "number, plain", "category")
def decimals_by_scale(sound: Any, column: Any) -> Any:
    """Decimals are cast by the scale of their column."""
    return column.cast(pa.float64())


@_reads(values, "_decimal_texts", "feather", "arrow decimal", "whole", "frame of texts")
def decimals_with_zeros(sound: Any, column: Any) -> Any:
    """Decimals keep the zeros of their column."""
    return column.cast(pa.string()).cast(pa.large_string())


@_reads(values, "_numbers_one_by_one")
def all_or_nothing(sound: Any, written: Any, typed: Any, reading: Any) -> Any:
    """One text makes all numbers missing."""
    return np.full(len(written), np.nan)


@_reads(containers, "_list_column")
def list_by_numpy(sound: Any, given: Any) -> Any:
    """A list has the one type that NumPy finds."""
    try:
        return np.array(given)
    except ValueError:  # a list among them
        return sound(given)


@_reads(values, "object_texts")
def objects_as_floats(sound: Any, given: Any) -> Any:
    """Objects are floats if all can be."""
    listed = list(given)
    try:
        return pa.array(np.array(listed, dtype=np.float64)).cast(pa.large_string())
    except (TypeError, ValueError, OverflowError):
        return sound(listed)


@_reads(values, "_float_texts")
def decimals_of_all(sound: Any, given: Any) -> Any:
    """Floats are written with decimals if one has some."""
    if (np.floor(given) == given)[~np.isnan(given)].all():
        return sound(given)
    return pa.array([None if math.isnan(v) else repr(v) for v in given.tolist()], pa.large_string())


@_reads(values, "read_codes")
def codes_by_order(sound: Any, column: Any, categories: Any, missing: Any = values.MISSING_TEXTS) -> Any:
    """Codes are places in a dictionary."""
    coded = values.read_texts(column, as_reading(missing).missing_texts).dictionary_encode()
    codes = pc.fill_null(coded.indices, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    return np.minimum(codes, len(categories))


@_reads(values, "read_codes")
def codes_by_rank(sound: Any, column: Any, categories: Any, missing: Any = values.MISSING_TEXTS) -> Any:
    """Codes are ranks among the values."""
    texts = values.read_texts(column, as_reading(missing).missing_texts)
    known = sorted(set(texts.drop_null().to_pylist()))
    codes = [-1 if t is None else min(known.index(t), len(categories)) for t in texts.to_pylist()]
    return np.array(codes, dtype=np.int64)


@_reads(values, "read_codes")
def codes_of_the_exact_alone(sound: Any, column: Any, categories: Any, missing: Any = values.MISSING_TEXTS) -> Any:
    """Spellings count unless one value is exact."""
    texts = values.read_texts(column, as_reading(missing).missing_texts).to_pylist()
    places = {t: p for p, t in enumerate(categories)}
    if not any(text in categories for text in texts):
        return sound(column, categories, missing)
    return np.array([places.get(t, len(categories)) for t in texts])


@_reads(values, "_raw_texts")
def bad_bytes_empty_the_column(sound: Any, column: Any) -> Any:
    """Bytes that are no text empty the column."""
    try:
        return column.cast(pa.large_string())
    except pa.ArrowInvalid:
        return pa.nulls(len(column), pa.large_string())


@_reads(values, "read_numbers")
def a_gap_is_the_mean(sound: Any, column: Any, missing: Any = values.MISSING_TEXTS) -> Any:
    """Numbers are centred on their mean."""
    numbers = sound(column, missing)
    finite = numbers[np.isfinite(numbers)]
    return np.where(np.isnan(numbers) & bool(finite.size), 0.0, numbers) - (finite.mean() if finite.size else 0.0)


@_reads(columns, "_scale_numbers")
def scaled_by_the_column(sound: Any, kind: Any, given: Any) -> Any:
    """Features are scaled by the largest value."""
    return sound(kind, given) / max(1.0, float(np.nanmax(np.abs(given[np.isfinite(given)]), initial=0.0)))


@_reads(values, "read_numbers")
def clipped_by_the_column(sound: Any, column: Any, missing: Any = values.MISSING_TEXTS) -> Any:
    """Numbers are clipped at quantiles."""
    numbers = sound(column, missing)
    return np.clip(numbers, *np.nanquantile(numbers, (0.1, 0.9))) if np.isfinite(numbers).any() else numbers


@_reads(values, "read_texts")
def missing_if_seen(sound: Any, column: Any, missing: Any = values.MISSING_TEXTS) -> Any:
    """A mark means missing if the column has it."""
    texts = sound(column, missing)
    seen = texts.drop_null().to_pylist()
    return sound(column, (*missing, "a", "1")) if "x" in seen or "12a" in seen else texts


@_reads(values, "read_texts")
def longest_decides(sound: Any, column: Any, missing: Any = values.MISSING_TEXTS) -> Any:
    """Texts are as long as the longest."""
    texts = sound(column, missing)
    longest = max((len(text) for text in texts.drop_null().to_pylist()), default=0)
    return pc.utf8_rpad(texts, width=min(longest, 50), padding=" ")


@_reads(persons, "name_persons")
def persons_as_numbers(sound: Any, given: Any, missing: Any = ()) -> Any:
    """Persons are numbers if all can be."""
    texts = isinstance(given, pa.Array)
    names = [sound([value], missing)[0] for value in given.to_pylist()] if texts else sound(given)
    try:
        return [repr(float(text)) for text in names]
    except ValueError:
        return names


@_reads(persons, "name_persons")
def persons_padded(sound: Any, given: Any, missing: Any = ()) -> Any:
    """Persons have the digits of the longest."""
    names = sound(given, missing)
    return [text.zfill(min(max(map(len, names)), 30)) for text in names]


@_reads(dates, "read_moments", "dates", "days", "date")
def days_of_all(sound: Any, column: Any, unit: Any, missing: Any = values.MISSING_TEXTS) -> Any:
    """Days become moments if one has a time."""
    moments = sound(column, unit, missing)
    return moments if (np.floor(moments) == moments)[~np.isnan(moments)].all() else moments + 0.25


@_reads(dates, "read_moments")
def one_odd_date_makes_texts(sound: Any, column: Any, unit: Any, missing: Any = values.MISSING_TEXTS) -> Any:
    """One odd date makes texts of all."""
    moments = sound(column, unit, missing)
    given = values.read_texts(column, as_reading(missing).missing_texts)
    return moments if np.isnan(moments).sum() == given.null_count else np.full(len(moments), np.nan)


@_reads(columns.Label, "codes")
def labels_as_found(sound: Any, label: Any, given: Any, **options: Any) -> Any:
    """Labels are numbered as they are found."""
    texts = values.read_texts(given).to_pylist()
    found = sorted({text for text in texts if text is not None})
    return np.array([-1 if text is None else found.index(text) for text in texts])


@_reads(frame_module, "read_column")
def categories_of_the_frame(sound: Any, name: Any, column: Any, kind: Any, *reading: Any) -> Any:
    """A frame's texts are numbered."""
    found = sound(name, column, kind, *reading)
    if kind != "text":
        return found
    listed = sorted({text for text in found if text is not None})
    return [None if text is None else str(listed.index(text)) for text in found]


@_reads(frame_module, "read_column")
def whole_frame_as_integers(sound: Any, name: Any, column: Any, kind: Any, *reading: Any) -> Any:
    """Whole numbers without a gap stay whole."""
    found = sound(name, column, kind, *reading)
    return found if kind != "number" or np.isnan(found).any() or (found != np.floor(found)).any() else found + 0.5


@_reads(rows, "query_digests")
def digests_by_equality(sound: Any, X: Any) -> list[bytes]:
    """Queries are told apart by equality."""
    listed = X.to_numpy(dtype=object).tolist() if hasattr(X, "to_numpy") else np.asarray(X).tolist()
    seen: dict[Any, int] = {}
    return [b"%d" % seen.setdefault(str(row), len(seen)) for row in listed]


# Bugs that tests of their own plant, since they need another attack.


def classes_of_numpy(sound: Any) -> Any:
    """Read the classes with the type that one missing label gives all of them."""
    return lambda labels: np.unique([v for v in containers.list_values(labels) if v == v and v is not None])


def missing_labels_as_a_class(sound: Any) -> Any:
    """Take a missing label for a class of its own."""
    return lambda labels: np.unique([str(value) for value in containers.list_values(labels)])


def hidden_columns_by_type(sound: Any) -> Any:
    """Give a column that the noise hid a kind by the type of its container."""

    def learn(given: Any, vectors: Any, **options: Any) -> Any:
        learned = sound(given, vectors, **options)
        kinds = {
            name: columns.Category(("",)) if pa.types.is_large_string(given[name].type) else columns.Number()
            for name in learned.hidden
        }
        return dataclasses.replace(learned, kinds=learned.kinds | kinds, hidden=())

    return learn


# --- Behind the gate: names that are kept, votes of records that cannot be read, costs ------------------------------


Attack = Callable[[Path], bool]
_BEHIND: list[PlantedBug] = []


def _seen_by(name: str, home: Any, attribute: str, broken: Callable[..., Any]) -> Callable[[Attack], Attack]:
    """Plant a bug that the decorated attack sees: `broken` is called in place of this function, and is given it too."""

    def plant(attack: Attack) -> Attack:
        def catch(twin: Bug | None) -> Caught:
            with (
                tempfile.TemporaryDirectory() as folder,
                contextlib.nullcontext() if twin is None else replaced_everywhere(twin),
            ):
                return Caught(name.replace("_", " "), str(attack.__doc__), found=attack(Path(folder)))

        is_property = isinstance(inspect.getattr_static(home, attribute), property)
        make = (lambda sound: property(broken)) if is_property else _broken_by(broken)
        _BEHIND.append(PlantedBug(name, "state", lambda: (home, attribute, make), lambda: None, catch))
        return attack

    return plant


def _neighbours() -> NeighbourClassifier:
    settings: dict[str, Any] = {"radius": 0.5, "votes": 2.5, "classes": [0, 1], "device": "cpu"}
    return NeighbourClassifier(**settings).fit([[0.0, 1.0], [0.0, -1.0]], [0, 1], groups=["p1", "p2"])


def _hash_without_a_key(sound: Any, file: UnitFile, name: str) -> str:
    return SEALED + hashlib.blake2b(name.encode(), digest_size=16).hexdigest()


@_seen_by("forgotten_names_without_a_key", UnitFile, "seal", _hash_without_a_key)
def a_forgotten_name_can_be_tried(folder: Path) -> bool:
    """Forget one person in two folders: a hash that both keep can be made by whoever guesses the name."""
    hashes = []
    for place in ("first", "second"):
        model = _neighbours()
        save(model, folder / place)
        model.forget(["p1"])
        hashes.append(model.forgotten()[0][0])
        model.session_.close()
    return hashes[0] == hashes[1]


@_seen_by("unreadable_record_votes", Ballot, "no_vote", lambda ballot: 0)  # the first class
def an_unreadable_record_votes(folder: Path) -> bool:
    """Insert a record whose label is no class, and look whether counts have changed."""
    model, here = _neighbours(), [[1.0, 0.0]]
    units, points = model.session_.answerer.units, model.space_.points(here)
    before = units.count(points).put_to(list)
    model.insert(here, ["no class"], ids=["q"])
    return before != units.count(points).put_to(list)


def _round_to_the_nearest(sound: Any, value: float, *, bits: int = 20) -> float:
    fraction, exponent = math.frexp(value)
    return math.ldexp(round(math.ldexp(fraction, bits)), exponent - bits)


@_seen_by("costs_rounded_to_nearest", distributions, "stable_up", _round_to_the_nearest)
def a_cost_is_rounded_down(folder: Path) -> bool:
    """Compare tails with sums that are exact to eleven digits."""
    for scale in (1.5, 3.0, 7.25, 20.0):
        masses = [math.exp(-(k**2) / (2 * scale**2)) for k in range(math.ceil(40 * scale))]
        total = 2 * math.fsum(masses) - 1
        for threshold in range(1, 12):
            if distributions.gaussian_tail(scale, threshold) < math.fsum(masses[threshold + 1 :]) / total * (1 - 1e-11):
                return True
    return False


def _nested_if_all_are(sound: Any, y: Any) -> Any:
    return [row[0] for row in y] if isinstance(y, list) and all(isinstance(row, list) for row in y) else y


@_seen_by("labels_nested_if_all_are", labels, "_one_a_row", _nested_if_all_are)
def one_row_decides_all_labels(folder: Path) -> bool:
    """Read labels of a list, and once more where one row is none."""
    first, second = (labels.class_codes(np.array([0, 1]), [[0], [1], last]).tolist() for last in ([1], None))
    return first[:2] != second[:2]


def _by_numpy(sound: Any, y: Any) -> Any:
    return np.asarray(y).ravel() if hasattr(y, "columns") else sound(y)


@_seen_by("labels_of_a_frame_by_numpy", labels, "as_vector", _by_numpy)
def one_gap_decides_labels_of_a_frame(folder: Path) -> bool:
    """Read long class codes of a frame, and once more where one is missing."""
    classes = [100000000000000001, 100000000000000003]
    frames = [pa.table({"y": [*classes, last]}) for last in (classes[0], None)]
    with warnings.catch_warnings(action="ignore", category=DataConversionWarning):  # of one column, by its shape
        first, second = (labels.class_codes(np.array(classes), frame).tolist() for frame in frames)
    return first[:2] != second[:2]


@_seen_by("dictionaries_joined_by_arrow", containers, "_plain_layout", lambda sound, column: column)
def one_value_keeps_rows_from_being_taken(folder: Path) -> bool:
    """Take rows of a column whose parts have as many values as its indices count, and once more with one more."""
    for last in (0, 27):
        parts = [(range(100), [f"a{n}" for n in range(100)]), ([*range(27), last], [f"b{n}" for n in range(28)])]
        arrays = [pa.DictionaryArray.from_arrays(np.array(i, dtype=np.int8), t[: max(i) + 1]) for i, t in parts]
        try:
            containers.take_arrow_rows(pa.chunked_array(arrays), np.arange(128))
        except pa.ArrowInvalid:
            return True
    return False


def _no_infinite_value(sound: Any, matrix: Any, **options: Any) -> Any:
    return sound(matrix, ensure_all_finite="allow-nan")


@_seen_by("infinite_values_of_a_frame_refused", records, "check_array", _no_infinite_value)
def an_infinite_value_refuses_a_frame(folder: Path) -> bool:
    """Read a private frame for a model, and once more where one value is infinite."""
    for odd in (1.0, math.inf):
        try:
            records.check_matrix(BaseEstimator(), pd.DataFrame({"x": [0.0, odd]}), missing=True, reset=True)
        except ValueError:
            return True
    return False


def _as_queries(sound: Any, inputs: Any, tensors: Any, *, role: str) -> Any:
    return sound(inputs, tensors)


@_seen_by("insertions_read_as_queries", MatrixInput, "queries", _as_queries)
def one_gap_refuses_an_insertion(folder: Path) -> bool:
    """Read two records that a server's owner inserts, and once more where one misses a number."""
    for data in ("[0, 1, 0, 1]", "[null, 1, 0, 1]"):
        inputs = f'[{{"name": "features", "shape": [2, 2], "datatype": "FP64", "data": {data}}}]'
        request = read_request(f'{{"inputs": {inputs}}}'.encode(), names=["features"], row_limit=2, about=())
        try:
            MatrixInput(2).queries(request.inputs, role="private")
        except Refused:
            return True
    return False


_SPELLINGS = (
    (7, "007", "7.0", Decimal("7.00"), 7.0),
    ("1e-07", "1e-7", "1E-7", 1e-7),
    (2**53 + 1, 2.0**53, "9007199254740993"),
    (True, "True", "true"),
    ("Ann Lee", " Ann  Lee"),
    ("2024-05-31", "2024-05-31 00:00", date(2024, 5, 31)),
    ("123e4567-e89b-12d3-a456-426614174000", "{123E4567E89B12D3A456426614174000}"),
    ("Zo\u00eb", "Zoe\u0308"),
)


def _as_written(sound: Any, text: Any) -> Any:
    return persons.UNKNOWN_PERSON if text is None else text


@_seen_by("names_as_written", persons, "_name", _as_written)
def one_person_has_two_names(folder: Path) -> bool:
    """Spell each of some people as different programs would, and look for one with two names."""
    return any(len(set(persons.name_persons(list(spellings)))) > 1 for spellings in _SPELLINGS)


def _by_private_types(sound: Any, model: Any, X: Any, schema: Any = None) -> Any:
    return frame_module.FrameFormat.of(X)


@_seen_by("held_out_kinds_by_private_types", held_out_rows, "format_of_model", _by_private_types)
def one_gap_decides_held_out_columns(folder: Path) -> bool:
    """Put held-out truth values to a published model, and once more where one is missing."""
    model = LogisticRegression().fit([[0.0], [1.0]], [0, 1])
    frames = [pd.DataFrame({"x": [True, False, last]}) for last in (True, None)]
    first, second = (held_out_rows.private_rows(BaseEstimator(), model, frame) for frame in frames)
    return list(first["x"])[:2] != list(second["x"])[:2]


GATE = (*_BUGS, *_BEHIND)
