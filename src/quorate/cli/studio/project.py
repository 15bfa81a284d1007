"""What the studio holds: a table as `quorate look` sees it, what its owner says of it, and the jobs made of that."""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from quorate.cli.options import split_list
from quorate.cli.output import check_apart
from quorate.cli.reading import TableFile
from quorate.cli.start_files import Job
from quorate.cli.start_models import ModelJob, find_classes
from quorate.cli.start_tables import TablesJob
from quorate.cli.studio.downloads import to_notebook
from quorate.cli.studio.runs import Run
from quorate.core.checks import check_count, check_delta, is_named_id
from quorate.core.errors import InvalidInput, QuorateError
from quorate.report import check_installed
from quorate.tables import Category, Date, Number
from quorate.tables.csv_records import Irregularities
from quorate.tables.document import UNCHECKED, schema_fields
from quorate.tables.look import ColumnLook, TableLook, look_at

STOPS = (0.1, 0.2, 0.3, 0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 10.0)  # the epsilons of the slider
MEASURES = ("total", "mean", "median")
DATE_PARTS = ("day", "week", "month", "quarter", "year")
_ENDINGS = (".csv", ".csv.gz", ".parquet", ".arrow", ".feather", ".xlsx")
_OUT = "quorate-studio"

Form = Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Stop:
    """What one epsilon buys: the forecast of its job, or why there is none."""

    epsilon: float
    job: Job | None
    rows: list[dict[str, Any]]
    refusal: str = ""

    @classmethod
    def of(cls, job: Job, epsilon: float) -> "Stop":
        """Return the plan of a job at another epsilon."""
        try:
            job = job.at(epsilon)
            if not job.feasible:
                return cls(epsilon, None, [], job.shortfall())
            job.lines()  # which refuses names that no command can say
            return cls(epsilon, job, job.forecast())
        except QuorateError as error:
            return cls(epsilon, None, [], f"{error}")

    def checked_job(self) -> Job:
        """Return the job, or say why there is none."""
        if self.job is None:
            raise InvalidInput(self.refusal)
        return self.job


@dataclass
class Project:
    """One table and what is made of it. `version` changes with everything, so that an old page changes nothing."""

    folder: Path
    version: int = 0
    source: TableFile | None = None
    records: Any = None
    look: TableLook | None = None
    public: Path | None = None
    kinds: str = "learned"  # or "declared", or "public": who says what the columns hold
    used: dict[str, bool] = field(default_factory=dict)
    document: dict[str, Any] = field(default_factory=dict)  # the columns as the owner declares them
    answers: dict[str, Any] = field(default_factory=dict)
    stops: list[Stop] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def open(self, source: TableFile) -> None:
        """Read a table and look at it; nothing changes if it cannot be read."""
        self.check_idle()
        irregularities = Irregularities()
        records = source.read(irregularities)
        if not records.num_rows:
            raise InvalidInput("the table has no rows")
        look = look_at(records, irregularities=irregularities)
        self.version += 1
        self.source, self.records, self.look = source, records, look
        self.public, self.kinds, self.answers, self.stops = None, "learned", {}, []
        self.used = {column.name: not is_named_id(column.name) for column in look.columns}  # by names alone
        self.document = _read_document(look)

    @property
    def run(self) -> Run | None:
        """The last run."""
        return self.runs[-1] if self.runs else None

    @property
    def spent(self) -> float:
        """What all runs may have spent, together: each opens a budget of its own."""
        return sum(run.epsilon for run in self.runs if run.may_have_spent)

    def check_idle(self) -> None:
        """Refuse a change while commands run."""
        if self.run is not None and self.run.is_running:
            raise InvalidInput("commands are running; wait for them, or stop them first")

    def columns(self) -> list[ColumnLook]:
        """The columns as `quorate look` sees them."""
        assert self.look is not None
        return list(self.look.columns)

    def take_public(self, path: Path) -> None:
        """Take a public table that says what the columns hold."""
        self.public, self.kinds, self.stops = path, "public", []
        self.version += 1

    def declare(self, form: Form) -> None:
        """Take which columns are used, and what the owner declares of them."""
        self.check_idle()
        kinds = _first(form, "kinds") or "learned"
        used = {
            column.name: f"use-{number}" in form and not is_named_id(column.name)
            for number, column in enumerate(self.columns())
        }
        if not any(used.values()):
            raise InvalidInput("no column is used; tick those to use")
        if kinds == "public" and self.public is None:
            raise InvalidInput("choose the public table first")
        if kinds == "declared":
            if "checked" not in form:
                raise InvalidInput(
                    "what stands here was read from private records: check that it is public knowledge, and tick that"
                )
            names = [column.name for column in self.columns()]
            columns = _read_kinds(names, used, form)
            schema_fields(self.document | {"columns": columns})  # which refuses what is wrong in it
            self.document["columns"] |= columns  # Those that are not used stay in the form, and are not declared.
        self.kinds, self.used, self.stops = kinds, used, []
        self.version += 1

    def plan(self, form: Form) -> None:
        """Take what is wanted, and plan it at each epsilon. Nothing is fitted or spent."""
        self.check_idle()
        goal, groups = _first(form, "goal") or "model", _first(form, "groups") or None
        delta = check_delta(_read_number("delta", _first(form, "delta") or "1e-6"))
        answers: dict[str, Any] = {"goal": goal, "groups": groups, "delta": delta}
        answers |= {"by": list(form.get("by", ()))} | {name: list(form.get(name, ())) for name in MEASURES}
        answers |= {name: _first(form, name) for name in ("label", "classes", "queries")}
        answers["abstain"] = "abstain" in form
        self.answers, self.stops = answers, self._plan(answers)
        self.version += 1

    def _plan(self, answers: Mapping[str, Any]) -> list[Stop]:
        job = self._make_job(answers)
        return [Stop.of(job, epsilon) for epsilon in STOPS]

    def _make_job(self, answers: Mapping[str, Any]) -> Job:
        """Return the job that `quorate start` would make of these answers."""
        is_tables = answers["goal"] == "tables"
        label = None if is_tables else answers["label"]
        if not is_tables and label in ("", answers["groups"]):
            unnamed = "choose the column to predict"
            raise InvalidInput("the column to predict cannot say whose row it is" if label else unnamed)
        out = Path(f"{_OUT}-{len(self.runs) + 1}" if self.runs else _OUT)
        shutil.rmtree(out, ignore_errors=True)  # of a plan that was not run
        facts: dict[str, Any] = {
            "records": self.records,
            "source": self._choose_columns(answers, label),
            "schema": self._write_schema(out, {label, answers["groups"]}) if self.kinds == "declared" else None,
            "epsilon": STOPS[-1],
            "delta": answers["delta"],
            "out": out,
            "report": _has_report(),
        }
        if is_tables:
            return TablesJob(**facts, by=answers["by"], measures={name: answers[name] for name in MEASURES})
        return self._make_model_job(facts, answers)

    def _choose_columns(self, answers: Mapping[str, Any], label: str | None) -> TableFile:
        """Return the table with the columns of the roles, and without those that are not used."""
        assert self.source is not None
        kept = {label, answers["groups"], *(part.partition(":")[0] for part in answers["by"])}
        unused = [name for name, is_used in self.used.items() if not is_used and not is_named_id(name)]
        left_out = tuple(name for name in unused if name not in kept)
        return replace(self.source, label=label, groups=answers["groups"], leave_out=left_out)

    def _make_model_job(self, facts: Mapping[str, Any], answers: Mapping[str, Any]) -> Job:
        label, is_model = answers["label"], answers["goal"] == "model"
        public = self.public if self.kinds == "public" else None
        check_apart(facts["source"].table, public)
        classes = split_list(answers["classes"]) or self._declared_classes(label)
        is_declared = bool(classes)
        if not is_declared:
            classes, is_declared = find_classes(self.records, label, None)
        return ModelJob(
            **facts,
            label=label,
            classes=classes,
            is_declared=is_declared,
            public=public,
            queries=None if is_model else check_count("queries", read_whole(answers["queries"] or "1000")),
            abstain=answers["abstain"] and not is_model,
        )

    def _declared_classes(self, label: str) -> list[str]:
        """Return the categories that the owner declares of the label."""
        is_checked = self.kinds == "declared" and self.used[label]
        kind = self.document["columns"].get(label, {}) if is_checked else {}
        return list(kind.get("categories", ()))

    def _write_schema(self, out: Path, roles: set[str | None]) -> Path:
        """Write what the owner declares of the columns in use that have no other role."""
        kinds = self.document["columns"]
        columns = {name: kinds[name] for name in kinds if self.used[name] and name not in roles}
        known = {*columns, *roles}
        unused = [name for name in self.records.column_names if name not in known]
        out.mkdir()
        path = out / "schema.json"
        path.write_text(json.dumps(self.document | {"columns": columns, "leave_out": unused}, indent=1), "utf-8")
        return path

    def stop_at(self, form: Form) -> Stop:
        """Return the plan at the epsilon of a form."""
        number = read_whole(_first(form, "stop") or "")
        if not 0 <= number < len(self.stops):
            raise InvalidInput("plan first, and choose an epsilon")
        return self.stops[number]

    def start(self, form: Form) -> None:
        """Write the files of a job, and run its commands."""
        self.check_idle()
        job = self.stop_at(form).checked_job()
        if any(run.out == job.out for run in self.runs):  # Another run has a folder and a budget of its own.
            self.stops = self._plan(self.answers)
            job = self.stop_at(form).checked_job()
        self.version += 1
        job.write()
        (job.out / "notebook.ipynb").write_bytes(to_notebook(job.script()))
        self.runs.append(Run(job.steps(), folder=self.folder, epsilon=job.epsilon, out=job.out))

    def close(self) -> str:
        """End a run; return what it says of what is spent."""
        if self.run is None or not self.run.is_running:
            return ""
        self.run.stop()
        return f"The run was interrupted. {self.run.messages[-1]}"


def safe_name(name: str) -> str:
    """Return the name of a file without what a shell, a command or a folder would take for something else.

    >>> safe_name("../-visits <2024>.csv")
    'visits _2024_.csv'
    """
    plain = re.sub(r"[^\w .()-]", "_", name.replace("\\", "/").rpartition("/")[2])[-120:].lstrip("-. ")
    if not plain.lower().endswith(_ENDINGS):
        raise InvalidInput(f"a table must be a file that ends with {', '.join(_ENDINGS)}")
    return plain


def _has_report() -> bool:
    try:
        check_installed()
    except InvalidInput:
        return False
    return True


def _read_document(look: TableLook) -> dict[str, Any]:
    """Return the schema that `quorate look` writes; the line that its owner deletes is a tick in the form."""
    lines = [line for line in look.schema_text().splitlines() if not line.lstrip().startswith("//")]
    document: dict[str, Any] = json.loads("\n".join(lines))
    del document[UNCHECKED]
    return document


def _read_kinds(names: Sequence[str], used: Mapping[str, bool], form: Form) -> dict[str, dict[str, Any]]:
    """Return the kinds of the columns that are used."""
    return {name: _read_kind(name, number, form) for number, name in enumerate(names) if used[name]}


def _read_kind(name: str, number: int, form: Form) -> dict[str, Any]:
    kind = _first(form, f"kind-{number}")
    if kind == "text":
        return {"kind": "text"}
    document: dict[str, Any] = {"kind": kind, "missing": "indicator"}
    if kind == "category":
        document["categories"] = [text.strip() for text in _first(form, f"categories-{number}").split("\n")]
        document["categories"] = [text for text in document["categories"] if text]
        return document
    for end in ("low", "high"):
        if text := _first(form, f"{end}-{number}"):
            document[end] = text if kind == "date" else _read_number(f"column {name!r}: {end}", text)
    return document


def kind_values(kind: Mapping[str, Any] | None) -> dict[str, str]:
    """Return what a form shows of a kind in a schema's document.

    >>> kind_values({"kind": "number", "low": 0})
    {'low': '0', 'high': '', 'kind': 'number', 'categories': ''}
    """
    kind = kind or {}
    values = {end: str(kind.get(end, "")) for end in ("low", "high")}
    return values | {"kind": kind.get("kind", ""), "categories": "\n".join(kind.get("categories", ()))}


def group_choices(columns: Sequence[ColumnLook]) -> list[str]:
    """Return what may name groups: categories, and the parts of dates."""
    names: list[str] = []
    for column in columns:
        if isinstance(column.kind, Category):
            names.append(column.name)
        if isinstance(column.kind, Date):
            names += [f"{column.name}:{part}" for part in DATE_PARTS]
    return names


def measure_choices(columns: Sequence[ColumnLook]) -> list[str]:
    """Return the columns of numbers."""
    return [column.name for column in columns if type(column.kind) is Number]


def _first(form: Form, name: str) -> str:
    return form.get(name, [""])[0].strip()


def _read_number(name: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InvalidInput(f"{name} must be a number, got {text!r}") from None


def read_whole(text: str) -> int:
    """Return the whole number that a field holds."""
    digits = text.replace(",", "")
    if not digits.isdecimal():
        raise InvalidInput(f"a whole number is needed, got {text!r}")
    return int(digits)
