"""Model folders whose schema nothing proves, an account that is told for a claim, and what a private record holds.

A schema decides what a query means: another one in the folder can swap the answers to two categories.
"""

import importlib
import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.dummy import DummyClassifier

from planted.bug import Caught, kind_bug, replaced
from quorate.core.errors import InvalidInput
from quorate.core.ledger import LedgerView
from quorate.models.concepts import Thresholds
from quorate.models.predictors import AgnosticClassifier
from quorate.models.saving import PrivateFolder, open_folder, save, whole_spending
from quorate.models.saving.folder import digest_of, open_private
from quorate.models.students import StudentClassifier
from quorate.tables import SCHEMA_FILE, Category, QueryEncoder, Schema
from quorate.tables.containers import Role, open_table
from quorate.tables.frames import ColumnKind, FrameFormat
from quorate.tables.values import read_numbers
from support.quiet_folder import quiet_folder

Loader = Callable[[Path], Schema | None]
Told = Callable[[PrivateFolder, LedgerView], LedgerView]

_CATEGORIES = ("ill", "well")


def any_schema_of(folder: Path) -> Schema | None:
    """Return the schema that lies in a folder, whether or not its manifest lists it."""
    path = folder / SCHEMA_FILE
    return Schema.load(path) if path.is_file() else None  # the mistake


def listed_schema_of(folder: Path) -> Schema | None:
    """Return the schema that the manifest of a folder lists."""
    return open_folder(folder).schema()


def swap_categories(load: Loader) -> Caught:
    """Put a schema with swapped categories into a folder, listed or not, and look for a query that it changes."""
    attack = "swap two categories in the folder's schema"
    original, swapped = (Schema({"state": Category(order)}) for order in (_CATEGORIES, _CATEGORIES[::-1]))
    for listed in (True, False):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            before = original.to_json().encode()
            files = {SCHEMA_FILE: digest_of(before)} if listed else {}
            (folder / "manifest.json").write_text(json.dumps({"access": "private", "files": files}))
            if listed and _encoded(load, folder, before) != [[0.0, 1.0]]:
                raise RuntimeError("a schema that the manifest lists must be read")
            if _encoded(load, folder, swapped.to_json().encode()) == [[1.0, 0.0]]:
                evidence = f"'well' is read as 'ill' by a schema that is {'changed' if listed else 'not listed'}"
                return Caught(attack, evidence, found=True)
    return Caught(attack, "a schema that is changed, or not listed, is refused", found=False)


def _encoded(load: Loader, folder: Path, schema: bytes) -> object:
    """Return a query as a model in this folder would be asked it, or None where that is refused."""
    (folder / SCHEMA_FILE).write_bytes(schema)
    try:
        read = load(folder)
    except InvalidInput:
        return None
    return None if read is None else QueryEncoder(read).encode("state", ["well"]).tolist()


_read_rows = vars(StudentClassifier)["_rows"]


@dataclass(frozen=True)
class _ListsCategories(FrameFormat):
    """A format that lists the categories of its columns, as the type of a data frame's column does."""

    categories: tuple[str, ...] = ()

    def to_document(self) -> dict[str, Any]:
        return super().to_document() | {"categories": list(self.categories)}


def _with_private_categories(self: StudentClassifier, X: Any, *, reset: bool, role: Role) -> Any:
    """Keep the categories of private rows in the format of the student: that is the mistake."""
    rows = _read_rows(self, X, reset=reset, role=role)
    if role == "private" and self.form_ is not None:
        shown = [str(text) for name in X.columns for text in X[name].unique()]
        self.form_ = _ListsCategories(**vars(self.form_), categories=tuple(shown))
    return rows


def _with_private_types(self: StudentClassifier, X: Any, *, reset: bool, role: Role) -> Any:
    """Let private values say which columns are numbers, so that a missing one makes texts: that is the mistake."""
    rows = _read_rows(self, X, reset=reset, role=role)
    if role == "private" and self.form_ is not None:
        columns = open_table(X).columns.values()
        kinds: list[ColumnKind] = ["text" if np.isnan(read_numbers(one)).any() else "number" for one in columns]
        self.form_ = FrameFormat.of_kinds(X, self.form_.columns, kinds)
    return rows


def read_types(reader: Callable[..., Any]) -> Caught:
    """Publish a student of records, and one where a single value is missing, and compare what is said of columns."""
    frames, ages, told = importlib.import_module("pandas"), [20, 70] * 100, []
    made = StudentClassifier(DummyClassifier(), epsilon=4.0, delta=1e-3, teachers=20, queries=20, classes=[0, 1])
    for first in (20, None):
        private = frames.DataFrame({"age": [first, *ages[1:]]})
        with replaced(StudentClassifier, "_rows", reader), tempfile.TemporaryDirectory() as name:
            made.fit(private, np.arange(len(private)) % 2, public=frames.DataFrame({"age": ages}))
            told.append(json.loads((save(made, Path(name) / "student") / "manifest.json").read_text())["form"])
    said = "tell" if told[0] != told[1] else "do not tell"
    evidence = f"the published types {said} that one value is missing"
    return Caught("leave out one value of a record", evidence, found=told[0] != told[1])


def read_categories(reader: Callable[..., Any]) -> Caught:
    """Publish a student of records, one of which has a category of its own, and look for it in the folder."""
    frames, rare = importlib.import_module("pandas"), "a-town-of-one"
    places = ["north", "south"] * 100
    public, private = (frames.DataFrame({"place": frames.Categorical(each)}) for each in (places, [*places, rare]))
    made = StudentClassifier(DummyClassifier(), epsilon=4.0, delta=1e-3, teachers=20, queries=20, classes=[0, 1])
    with replaced(StudentClassifier, "_rows", reader):
        made.fit(private, np.arange(len(private)) % 2, public=public)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "student"
        save(made, folder)
        found = [path.name for path in folder.rglob("*") if path.is_file() and rare.encode() in path.read_bytes()]
    evidence = f"{', '.join(found)} names it" if found else "no file names it"
    return Caught("look for a record's own category in what is published", evidence, found=bool(found))


def view_of_account(folder: PrivateFolder, view: LedgerView) -> LedgerView:
    """Tell the epsilon of the account for that of the model, which samples and relabels before it pays."""
    return view  # the mistake


def compare_with_claim(told: Told) -> Caught:
    """Ask a model whose account is not the whole, and hold what is told of it against its claim."""
    X = np.linspace(0.0, 1.0, 2000)[:, np.newaxis]
    made = AgnosticClassifier(Thresholds(), epsilon=6.0, queries=4, teachers=40, aggregator="noisy_max", classes=[0, 1])
    with quiet_folder() as home:
        path = save(made.fit(X, (X[:, 0] > 0.5).astype(int)), home / "model")
        made.predict(X[:2])
        ledger = made.session_.ledger
        assert ledger is not None
        view = told(open_private(path), ledger.view())
        spent = made.spent_epsilon()
        made.session_.close()
    evidence = f"spent {view.spent_epsilon:.3f} of {view.epsilon:.3f}; by the claim {spent:.3f} of {made.epsilon_:.3f}"
    low = view.epsilon < made.epsilon_ or view.spent_epsilon < spent * (1 - 1e-9)
    return Caught("compare what is told with the claim", evidence, found=low)


FOLDERS = (
    kind_bug("account_told_for_the_claim", "state", view_of_account, whole_spending, compare_with_claim),
    kind_bug("categories_of_private_rows", "state", _with_private_categories, _read_rows, read_categories),
    kind_bug("types_of_private_rows", "state", _with_private_types, _read_rows, read_types),
    kind_bug("schema_without_hash", "state", any_schema_of, listed_schema_of, swap_categories),
)
