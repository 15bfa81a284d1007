"""The contract of a model: what a class says once, so that folders, servers, accounts and cards need not know it.

A class that can be saved derives from `SavedModel` and says in its own module

    kind                    the word for models of its sort, in manifests and in messages
    to_state, from_state    what a fitted model is, as plain values, arrays, estimators and models inside it
    inputs, outputs         what a query is, and what an answer is
    spending                how it spends privacy: once, by its fit, or from a ledger, by its answers
    claim_part              the releases behind its claim, in integers that a program without this one can check

`quorate.models.saving.saving` writes and reads folders of it, `quorate.service.model` serves it,
`quorate.models.account` charges it. A class enters the registry by naming its kind; `find_class` imports the package of
a kind when a folder names it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from quorate.core.checks import check_process
from quorate.core.errors import InvalidInput
from quorate.core.privacy.claims import Node, Total, unverified_node
from quorate.models.saving.codecs import arrays_from, arrays_of, from_plain, from_skops, to_plain, to_skops
from quorate.tables.frames import FrameFormat

if TYPE_CHECKING:
    from quorate.core.answerers import Answerer
    from quorate.core.ledger import Ledger, LedgerView
    from quorate.core.session import Session
    from quorate.models.saving.folder import PrivateFolder

Inputs = Literal["rows", "queries"]
Outputs = Literal[
    "labels",  # a class, or no answer
    "probabilities",  # a class, and the probability of each
    "vote shares",  # a class, and the noisy share of the vote of each
    "label sets",  # a class, and the set of those that are likely enough
    "several labels",  # which of several labels hold, and the probability of each
    "values",  # a number
    "noisy values",  # a number, read off the answers of a session
    "intervals",  # a number, and an interval around it
    "released shares",  # shares of the records, released once
    "online shares",  # shares of the records, answered one by one
    "released numbers",  # counts, totals, means and quantiles of groups, released once
]
_CLASSES: dict[str, "type[SavedModel]"] = {}
_PACKAGES = {  # that define the classes of each kind
    "classifier": "quorate.models.predictors",
    "student first": "quorate.models.predictors",
    "agnostic": "quorate.models.predictors",
    "universal": "quorate.models.predictors",
    "stable": "quorate.models.predictors",
    "pure": "quorate.models.predictors",
    "everlasting": "quorate.models.everlasting",
    "neighbours": "quorate.models.knn",
    "linear model": "quorate.models.linear",
    "student": "quorate.models.students",
    "published hypothesis": "quorate.models.students",
    "conformal": "quorate.models.conformal",
    "query release": "quorate.release",
    "online release": "quorate.release",
    "growing release": "quorate.release",
    "group release": "quorate.release.numbers",
}
_KEPT_ELSEWHERE = ("estimator", "student", "model", "concept", "classes", "columns", "device")  # no plain settings


@dataclass(frozen=True)
class Spending:
    """How models of a class spend privacy.

    `published`: the fit has spent all of it, and anybody may have the model. Otherwise answers are paid from a ledger,
    and the folder is the owner's. `chargeable`: the whole claim is (epsilon, delta) of the settings, under replacement
    of one unit, so that an account can charge it. `searchable`: that claim also covers a fit that is one of several
    trials. `gaussian`: all that the fit releases has Gaussian noise. `one_process`: one process at a time may ask it.
    `hides_entries`: how many entries the ledger has tells of records, and is shown to the owner alone.
    """

    published: bool = False
    chargeable: bool = False
    searchable: bool = False
    gaussian: bool = False
    one_process: bool = False
    hides_entries: bool = False


@dataclass(frozen=True)
class Home:
    """Where a model with a budget continues: its folder, the ledger there, a server's lease and trusted types."""

    path: Path
    ledger: "Ledger"
    lease: int = 0
    trusted: tuple[str, ...] = ()

    def open_session(self, answerer: "Answerer", *, charged: bool = True) -> "Session":
        """Return a session that spends from the ledger; one whose answers are not charged has no budget."""
        from quorate.core.session import Session  # noqa: PLC0415  published models have none

        budget = self.ledger.budget(lease=self.lease) if charged else None
        return Session(answerer, budget, ledger=self.ledger)


@dataclass
class State:
    """What a model is, for a folder: plain `values` for its manifest, and `files` by their names.

    Each `put_` method has a counterpart that reads the same part again. Estimators are read only if their types are
    known to be safe or `trusted`; `limited` arrays, which strangers may have written, unpack to a limited size. `home`
    is that of a model with a budget which is loaded.

    >>> state = State({"claim": "private"})
    >>> state.put_arrays("weights", coef=[1.0, 2.0])
    >>> state.arrays("weights")["coef"].tolist(), sorted(state.files)
    ([1.0, 2.0], ['weights.npz'])
    """

    values: Mapping[str, Any]
    files: dict[str, bytes] = field(default_factory=dict)
    later_files: dict[str, bytes] = field(default_factory=dict)  # that the model writes itself, and loads again
    trusted: Sequence[str] = ()
    limited: bool = False
    home: Home | None = None

    def __contains__(self, file: str) -> bool:
        return file in self.files

    def put_arrays(self, name: str, packed: bool = False, /, **arrays: Any) -> None:
        """Keep named arrays in one file."""
        self.files[f"{name}.npz"] = arrays_of(packed, **arrays)

    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """Return the arrays of a file."""
        return arrays_from(self.files[f"{name}.npz"], limited=self.limited)

    def put_estimator(self, name: str, estimator: Any) -> None:
        """Keep an estimator of scikit-learn, or a container of some, without pickle."""
        self.files[f"{name}.skops"] = to_skops(estimator)

    def estimator(self, name: str) -> Any:
        """Return the estimator of a file."""
        return from_skops(self.files[f"{name}.skops"], self.trusted)

    def put_document(self, name: str, document: Any) -> None:
        """Keep plain values in a file of their own."""
        self.files[f"{name}.json"] = json.dumps(document, indent=1).encode()

    def document(self, name: str) -> Any:
        """Return the plain values of a file."""
        return json.loads(self.files[f"{name}.json"])

    def put_model(self, name: str, model: Any) -> None:
        """Keep a published model inside this one: its state, if it is one of Quorate's own, or an estimator."""
        if not isinstance(model, SavedModel):
            self.put_estimator(name, model)
            return
        saved = model.saved_model()
        saved_class = saved.check_savable()
        if not saved.spending.published:
            raise InvalidInput(f"a {type(saved).__name__} is private, and is not kept inside another model")
        state = saved.to_state()
        inside = {"kind": saved_class.kind, "type": saved_class.__name__, **state.values}
        self.values = {**self.values, name: inside}
        self.files |= {f"{name}-{file}": content for file, content in state.files.items()}

    def model(self, name: str) -> Any:
        """Return the model that was put under this name."""
        if f"{name}.skops" in self.files:
            return self.estimator(name)
        values, prefix = self.values[name], f"{name}-"
        model_class = find_class(str(values["kind"]), str(values["type"]))
        if not model_class.spending.published:
            raise InvalidInput(f"the model inside is a {model_class.kind}, which is not published; it is not loaded")
        files = {file.removeprefix(prefix): text for file, text in self.files.items() if file.startswith(prefix)}
        return model_class.from_state(State(values, files, trusted=self.trusted, limited=self.limited))


def find_class(kind: str, name: str) -> "type[SavedModel]":
    """Return the class of this kind and name, which a manifest declares; import the package of the kind if need be."""
    if kind not in _PACKAGES:
        raise InvalidInput(f"the manifest names the kind {kind!r}, which this version does not know")
    getattr(import_module(_PACKAGES[kind]), name, None)  # a package may import its classes when they are asked for
    model_class = _CLASSES.get(name)
    if model_class is None or model_class.kind != kind:
        raise InvalidInput(f"the manifest names a {kind} of type {name!r}, which this version does not know")
    return model_class


class SavedModel:
    """A model that can be saved, loaded and served. The module's top says what a subclass defines.

    A subclass that names no `kind` of its own cannot be saved, since another class would come back, unless `saved_as`
    says that this is meant.
    """

    kind: ClassVar[str]
    spending: ClassVar[Spending] = Spending()
    saved_as: "ClassVar[type[SavedModel] | None]" = None
    inputs: ClassVar[Inputs] = "rows"
    served: ClassVar[bool] = True  # False where only the owner asks
    summary: ClassVar[str] = ""  # of a published model, for the page of its folder
    saved_attributes: ClassVar[tuple[str, ...]] = ()  # fitted attributes whose values are plain, or of `saved_types`
    saved_types: ClassVar[tuple[type, ...]] = ()  # dataclasses and named tuples, written by their parameters
    own_files: ClassVar[tuple[str, ...]] = ()  # beginnings of the names of files that the model itself writes later
    safe_types: ClassVar[tuple[str, ...]] = ()  # of this package, that its estimators may hold
    session_: Any

    def __init_subclass__(cls, *, saved_as: "type[SavedModel] | None" = None, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.saved_as = saved_as
        if "kind" in vars(cls) and cls.__module__.startswith("quorate."):  # no other package is looked into
            cls.saved_as = _CLASSES[cls.__name__] = cls

    # --- What a subclass defines -------------------------------------------------------------------------------------

    @property
    def outputs(self) -> Outputs:
        """What an answer is."""
        return "labels"

    def to_state(self) -> State:
        """Return what the fitted model is, for a folder, or refuse a model that cannot be kept in one."""
        raise NotImplementedError

    @classmethod
    def from_state(cls, state: State) -> Self:
        """Return the model of a state; `state.home` has the ledger of one with a budget."""
        raise NotImplementedError

    def claim_part(self) -> Node:
        """Return the releases behind the claim as a tree of integers, for `claim.json` (`core.privacy.claims`)."""
        return unverified_node(f"the releases of a {type(self).__name__} are not described")

    def other_claims(self) -> Mapping[str, Node]:
        """Return what is claimed for other units, by their names, where there are several kinds."""
        return {}

    def page_facts(self, schema: Any = None) -> list[str]:
        """Return what the page of a published folder says of the model, line by line."""
        return []

    def published_estimator(self) -> Any:
        """Return what a model card carries beside the folder: the model, or the estimator that it wraps."""
        return self

    @classmethod
    def whole_spending(cls, values: Mapping[str, Any], view: "LedgerView") -> "LedgerView":
        """Return the view of the ledger with epsilon, delta and what was spent as the model's claim counts them.

        A ledger counts what answers pay. That is less than the claim where the fit has spent a part, where answers come
        from a secret sample of the records, or where a hypothesis is published beside them.
        """
        return view

    @classmethod
    def phase_no_quorums(cls, values: Mapping[str, Any]) -> int | None:
        """Return after how many no-quorums a phase may close; None for a model without phases."""
        return None

    # --- Saving ------------------------------------------------------------------------------------------------------

    def saved_model(self) -> "SavedModel":
        """Return the model that a folder keeps: this one, unless it stands for another."""
        return self

    def check_savable(self) -> "type[SavedModel]":
        """Return the class that a folder of this model names, or refuse a class that would come back as another."""
        model_class = type(self).saved_as
        if model_class is None:
            raise InvalidInput(
                f"a {type(self).__name__} cannot be saved; save a model of one of Quorate's own classes that have a "
                "folder format"
            )
        return model_class

    def check_movable(self) -> None:
        """Refuse a model that cannot continue from a folder: not fitted, saved before, or with a run that redraws."""
        check_is_fitted(self)
        mechanism, session = getattr(self, "mechanism_", None), self.session_
        if getattr(mechanism, "redraws", False):
            raise InvalidInput(
                f"a run of {type(mechanism).__name__} redraws its threshold and cannot be kept in a file; "
                "use aggregator='quorum'"
            )
        check_process("this classifier", session.process)
        if session.ledger is not None:
            raise InvalidInput("this classifier has a folder already, and one budget in it; load it from there")

    def move_to(self, folder: "PrivateFolder") -> None:
        """Continue from a new folder: its ledger has the budget and the run's secret noise from now on."""
        session = self.session_.move(folder.create_ledger)  # the old one answers no more
        self.keep_files(session, folder.path)
        self.session_ = session

    def keep_files(self, session: Any, path: Path) -> None:
        """Write the files in `own_files` that the session continues with."""

    def check_chargeable(self) -> None:
        """Refuse a model whose epsilon and delta do not cover all of a unit: an account charges exactly those."""
        if type(self).saved_as is not type(self) or not self.spending.chargeable:
            raise InvalidInput(
                f"a {type(self).__name__} is not charged to an account: its claim is not the epsilon and delta of its "
                "settings for one record or person"
            )

    # --- State that most models share --------------------------------------------------------------------------------

    def saved_settings(self) -> dict[str, Any]:
        """Return the plain settings of the fit; parts of the state have the others."""
        settings = getattr(self, "settings_", None) or self.get_params(deep=False)  # type: ignore[attr-defined]
        return {name: value for name, value in settings.items() if name not in _KEPT_ELSEWHERE}

    def fitted_values(self) -> dict[str, Any]:
        """Return settings, plain attributes, classes, and what the fitted model knows of the columns of its rows."""
        model: Any = self
        classes, form = getattr(model, "classes_", None), getattr(model, "form_", None)
        declared = getattr(model, "declared_", getattr(model, "classes", None) is not None)
        return {
            **{name.rstrip("_"): to_plain(getattr(model, name)) for name in self.saved_attributes},
            "settings": self.saved_settings(),
            "classes": to_plain(classes),
            "classes_public": not declared,
            "unit": model.unit_,
            "total": to_plain(getattr(model, "total_", None)),
            "features": model.n_features_in_,
            "missing": bool(get_tags(model).input_tags.allow_nan),
            "form": None if form is None else form.to_document(),
            "types_are_public": bool(getattr(model, "types_are_public_", False)),
            "feature_names": getattr(model, "feature_names_in_", np.array([])).tolist(),
        }

    @classmethod
    def from_fitted_values(cls, values: Mapping[str, Any], **parts: Any) -> Self:
        """Return a model with what `fitted_values` wrote; `parts` are the settings that other files keep."""
        model: Any = cls(**parts, **values["settings"])
        for name in cls.saved_attributes:
            setattr(model, name, from_plain(values[name.rstrip("_")], *cls.saved_types))
        if values["classes"] is not None:
            model.classes_, model.declared_ = from_plain(values["classes"]), not values["classes_public"]
            if hasattr(model, "classes"):
                model.classes = model.classes_ if model.declared_ else None
        model.unit_, model.n_features_in_ = values["unit"], int(values["features"])
        if values["total"] is not None:  # of the account that the model was drawn on
            model.total_ = from_plain(values["total"], Total)
        if values["feature_names"]:
            model.feature_names_in_ = np.array(values["feature_names"], dtype=object)
        model.form_ = None if values["form"] is None else FrameFormat.from_document(values["form"])
        model.types_are_public_ = bool(values["types_are_public"])
        restored: Self = model
        return restored
