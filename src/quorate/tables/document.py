"""A schema as a JSON document that can be written by hand."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from quorate.core.errors import InvalidInput
from quorate.tables._embedded import Embedded
from quorate.tables.columns import Category, Date, Kind, Label, Number, Text
from quorate.tables.containers import prefix_errors
from quorate.tables.dates import date_of
from quorate.tables.learned import LearnedFacts
from quorate.tables.reading import Reading

EXAMPLE = """{"columns": {"age": {"kind": "number", "centre": 40, "spread": 15},
             "hours": {"kind": "number", "low": 0, "high": 100},
             "sex": {"kind": "category", "categories": ["female", "male"], "missing": "indicator"},
             "hired": {"kind": "date", "low": "2000-01-01", "high": "2025-12-31"},
             "note": {"kind": "text"}},
 "label": {"column": "income", "classes": ["low", "high"]},
 "leave_out": ["name"]}"""

UNCHECKED = "read_from_private_records"  # a key of schemas that `quorate look` writes
SCHEMA_KEYS = ("columns", "label", "groups", "leave_out", "missing_texts", "reading", "learned", UNCHECKED)

_TYPES: dict[str, type[Any]] = {
    "number": Number,
    "date": Date,
    "category": Category,
    "text": Text,
    "embedded": Embedded,
}
_KEYS = {name: [field.name for field in fields(kind) if field.name != "model"] for name, kind in _TYPES.items()}
_NEEDED = {"category": ("categories",), "embedded": ("embedder", "width")}
_DEFAULTS = (("missing", "refuse"), ("unknown", "other"), ("closed", False))


def read_document(path: str | Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    path = Path(path)
    if not path.is_file():
        raise InvalidInput(f"{path}: there is no such file")
    return parse_document(path.read_bytes(), path)


def parse_document(content: bytes, path: str | Path) -> dict[str, Any]:
    """Return the JSON object that is the content of a file; `path` is for errors alone.

    A line that begins with // is a comment. No text of JSON goes over the end of a line, so it cannot be part of one.
    """
    try:
        lines = content.decode("utf-8").split("\n")
        plain = "\n".join("" if line.lstrip().startswith("//") else line for line in lines)
        document = json.loads(plain, object_pairs_hook=_no_twins)
        if isinstance(document, Mapping):
            refuse_unchecked(document)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path}: not valid JSON: {error.msg} in line {error.lineno}") from None
    except UnicodeDecodeError:
        raise InvalidInput(f"{path}: texts must be encoded as UTF-8") from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    if not isinstance(document, dict):
        raise InvalidInput(f"{path}: a schema must be a JSON object; for example:\n{EXAMPLE}")
    return document


def refuse_unchecked(document: Mapping[str, Any]) -> None:
    """Refuse a schema that was read from private records and is not yet checked by its owner."""
    if document.get(UNCHECKED, False) is not False:
        raise InvalidInput(
            "this schema was written by quorate look from private records, and what it lists may tell of them; check "
            f'that its kinds and categories are public knowledge, then delete the line "{UNCHECKED}"'
        )


def kind_from_document(column: str, document: object) -> Kind:
    """Return the kind of a column as the document describes it.

    A list is short for its categories; an object with categories or cuts need not say its kind.
    """
    if isinstance(document, Sequence) and not isinstance(document, str):
        document = {"categories": document}
    if not isinstance(document, Mapping):
        raise InvalidInput(f'column {column!r}: expected an object such as {{"kind": "number"}}, not {document!r}')
    short = "category" if "categories" in document else "number" if "cuts" in document else None
    kind = document.get("kind", short)
    if kind not in _TYPES:
        raise InvalidInput(
            f'column {column!r}: kind must be "number", "date", "category", "text" or "embedded", not {kind!r}; or a '
            "list of categories or an object with cuts is expected"
        )
    settings = {key: value for key, value in document.items() if key != "kind"}
    check_keys(f"column {column!r}", settings, _KEYS[kind])
    for key in _NEEDED.get(kind, ()):
        if key not in settings:
            raise InvalidInput(f"column {column!r}: kind {kind!r} requires {key!r}")
    with prefix_errors(f"column {column!r}: "):
        return _TYPES[kind](**settings)  # type: ignore[no-any-return]


def kind_to_document(kind: Kind) -> dict[str, Any]:
    """Return the description of a kind, without what has its default."""
    name = next(name for name, kind_type in _TYPES.items() if type(kind) is kind_type)
    document: dict[str, Any] = {"kind": name}
    for key in _KEYS[name]:
        value = getattr(kind, key)
        if value is not None and (key, value) not in _DEFAULTS:
            document[key] = json.loads(json.dumps(value)) if isinstance(value, tuple) else value
    if isinstance(kind, Date):
        _write_dates(document, kind)
    return document


def cells_to_document(kind: Kind) -> dict[str, Any]:
    """Return the description of a kind for a release, without the settings of learners."""
    document = kind_to_document(kind)
    implied = {"number": "cuts", "category": "categories"}
    unused = {"centre", "spread", "missing", "unknown"}
    if implied.get(document["kind"]) in document:
        unused.add("kind")
    return {key: value for key, value in document.items() if key not in unused}


def _write_dates(document: dict[str, Any], kind: Date) -> None:
    """Write the numbers of a description as dates."""
    document |= {key: date_of(document[key], kind.unit) for key in ("centre", "low", "high") if key in document}
    if kind.cuts is not None:
        document["cuts"] = [date_of(cut, kind.unit) for cut in kind.cuts]
    if kind.spans is not None:
        document["spans"] = [[date_of(end, kind.unit) for end in span] for span in kind.spans]


def label_from_document(document: object) -> Label:
    """Return the label as the document describes it."""
    if not isinstance(document, Mapping) or set(document) != {"column", "classes"}:
        raise InvalidInput('label must be an object such as {"column": "income", "classes": ["low", "high"]}')
    return Label(document["column"], document["classes"])


def schema_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the schema that a JSON object describes."""
    check_keys("a schema", document, SCHEMA_KEYS)
    refuse_unchecked(document)
    columns, label, learned = (document.get(key) for key in ("columns", "label", "learned"))
    if not isinstance(columns, Mapping):
        raise InvalidInput('a schema needs "columns", an object with one entry for each column to encode')
    return {key: document[key] for key in ("groups", "leave_out") if key in document} | {
        "columns": {name: kind_from_document(name, described) for name, described in columns.items()},
        "label": None if label is None else label_from_document(label),
        "reading": Reading.from_document(document),
        "learned": None if learned is None else LearnedFacts.from_document(learned),
    }


def schema_to_document(schema: Any) -> dict[str, Any]:
    """Return the JSON object that describes a schema."""
    document: dict[str, Any] = {"columns": {name: kind_to_document(kind) for name, kind in schema.columns.items()}}
    if schema.label is not None:
        document["label"] = {"column": schema.label.column, "classes": list(schema.label.classes)}
    if schema.groups is not None:
        document["groups"] = schema.groups
    document |= {"leave_out": list(schema.leave_out)} | schema.reading.to_document()
    return document if schema.learned is None else document | {"learned": schema.learned.to_document()}


def check_keys(subject: str, document: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Refuse keys that mean nothing: a mistyped one would be a setting that is silently not made."""
    for key in document:
        if key not in keys:
            raise InvalidInput(f"{subject}: {key!r} means nothing here; the keys are {', '.join(keys)}")


def _no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = [name for name, _ in pairs]
    for index, name in enumerate(names):
        if name in names[:index]:
            raise InvalidInput(f"{name!r} appears twice in one object")
    return dict(pairs)
