"""Save models to folders and load them, by the contract alone (`quorate.models.saving.contract`)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zipfile import BadZipFile

from quorate.core.errors import InvalidInput
from quorate.core.privacy.claims import claim_document
from quorate.models.saving.codecs import check_loads, check_types
from quorate.models.saving.contract import Home, SavedModel, State, find_class
from quorate.models.saving.folder import (
    GUARANTEE_FILE,
    Extra,
    Folder,
    PrivateFolder,
    PublishedFolder,
    Trusted,
    check_folder,
    open_folder,
)
from quorate.tables import SCHEMA_FILE, Schema

if TYPE_CHECKING:
    from quorate.core.ledger import Ledger, LedgerView

CLAIM_NAME = "claim"  # of the file that `quorate.auditing.verify_claim` reads
_DAMAGE = (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError, BadZipFile)


def class_of(folder: Folder) -> type[SavedModel]:
    """Return the class of the model that a folder declares; refuse one whose access is not that of the class."""
    try:
        model_class = find_class(folder.kind, str(folder.manifest.get("type")))
    except InvalidInput as error:
        raise InvalidInput(f"{folder.path} cannot be loaded: {error}") from None
    if model_class.spending.published != isinstance(folder, PublishedFolder):
        raise InvalidInput(f"{folder.path} holds a {folder.kind} and says that it is {folder.access}; it is not loaded")
    return model_class


def whole_spending(folder: PrivateFolder, view: "LedgerView") -> "LedgerView":
    """Return the view of a model's ledger with epsilon, delta and what was spent as the model's claim counts them."""
    return class_of(folder).whole_spending(folder.manifest, view)


def default_share(folder: PrivateFolder, ledger: "Ledger", project: str = "") -> dict[str, Any]:
    """Return the limit of a key of this model for which none is given."""
    return ledger.default_share(project, phase_no_quorums=class_of(folder).phase_no_quorums(folder.manifest))


def load(
    folder: str | Path | Folder,
    *,
    trusted: Trusted = None,
    lease: int = 0,
    kind: str | None = None,
    outside_mark: bool = True,
) -> Any:
    """Load a model from a folder. A model with a budget spends from the folder's ledger.

    With a `lease` it takes the budget of this many answers at a time, as a server does: `session_.close()` returns the
    rest, and a crash loses it. Without one, each batch is charged by itself. If a `kind` is given, a model of another
    kind is refused.

    Files with a wrong hash are refused. So are estimators of a type that is not known to be safe, unless `trusted`
    names it, as it did when the model was saved. A type that is named here is imported, and its code runs: only name
    what you would also import.

    A mark in the state folder (`$QUORATE_STATE`) shows when an old copy of the folder is put back. Where it cannot be
    written, such as in a container without a volume, nothing is spent. With `outside_mark=False` it is spent all the
    same: then an old copy that is put back spends its budget again.

    >>> import tempfile
    >>> from quorate import SemiPrivateClassifier
    >>> made = SemiPrivateClassifier(classes=["no", "yes"]).fit([[0.0], [1.0]], ["no", "yes"], public=[[0.5]])
    >>> with tempfile.TemporaryDirectory() as home:
    ...     load(save(made, Path(home) / "rule")).hypothesis_ == made.hypothesis_
    True
    """
    opened = folder if isinstance(folder, Folder) else open_folder(folder)
    if kind is not None and opened.kind != kind:
        raise InvalidInput(f"{opened.path} holds a model of another kind, {opened.kind!r}; {kind!r} was asked for")
    model_class = class_of(opened)
    with _opened_state(opened, model_class, trusted=trusted, lease=lease) as state:
        if state.home is not None and not outside_mark:
            state.home.ledger.witness.is_waived = True
        try:
            return model_class.from_state(state)
        except InvalidInput:
            check_types(state.files, state.trusted)  # which names the types of all files, if one of them was refused
            raise
        except _DAMAGE:
            if state.home is not None:  # its ledger has proved the manifest
                raise
            raise InvalidInput(
                f"{opened.path}/manifest.json is damaged or was changed; the model is not loaded"
            ) from None


@contextmanager
def _opened_state(
    folder: Folder, model_class: type[SavedModel], *, trusted: Trusted, lease: int = 0
) -> Iterator[State]:
    """Read what a folder holds, and close its ledger if the block fails.

    Every file is checked, and the ledger proves the manifest, before any is used.
    """
    extra, types = folder.manifest.get("extra", []), tuple(trusted or ())
    files = {name: content for name, content in folder.contents.items() if name not in extra}
    home = Home(folder.path, folder.ledger(), lease, types) if isinstance(folder, PrivateFolder) else None
    try:
        yield State(folder.manifest, files, trusted=[*model_class.safe_types, *types], limited=home is None, home=home)
    except BaseException:
        if home is not None:
            home.ledger.close_store()
        raise


def reopen(folder: str | Path, *, trusted: Trusted = None) -> None:
    """Open phase 1 of an everlasting model again after its state was lost, and pay for all of it again.

    This is refused if the account cannot pay, and for later phases: the queries that taught them have no budget left.
    """
    opened = open_folder(folder)
    model_class = class_of(opened)
    reopen_phase = getattr(model_class, "reopen_phase", None)
    if reopen_phase is None:
        raise InvalidInput(f"{folder} holds no everlasting model")
    with _opened_state(opened, model_class, trusted=trusted) as state:
        reopen_phase(state)


def save(model: Any, folder: str | Path, *, extra: Extra = None, trusted: Trusted = None, **options: Any) -> Path:
    """Save a fitted model to a new folder, with `extra` files, which its hashes also cover.

    A classifier with a budget continues from the folder: it and every loaded copy share the ledger there. A publishable
    model is written so that everybody may read it, with a page that states the claim. A `PrivateSearchCV` is saved as
    the model that it chose. An everlasting model takes an `account` (`EverlastingClassifier.to_state`).

    What is saved can be loaded. Estimators of types that are not known to be safe (your own, XGBoost's) are refused
    here, before anything is written, unless `trusted` names them; `load` must then name them too.

    >>> import tempfile
    >>> from quorate import PrivateClassifier
    >>> X, y = [[0.0], [1.0]] * 2000, [0, 1] * 2000
    >>> classifier = PrivateClassifier(epsilon=2.0, teachers=200, queries=10, aggregator="noisy_max").fit(X, y)
    >>> with tempfile.TemporaryDirectory() as home:
    ...     folder = save(classifier, Path(home) / "model")
    ...     load(folder).predict([[1.0]]).tolist(), sorted(path.name for path in folder.iterdir())
    ([1], ['claim.json', 'estimator.skops', 'ledger.key', ... 'teachers.npz'])
    """
    if not isinstance(model, SavedModel):
        raise InvalidInput(f"a {type(model).__name__} cannot be saved; save a model of Quorate")
    model = model.saved_model()
    model_class = model.check_savable()
    check_folder(Path(folder))
    for name in extra or {}:
        if name.startswith(model.own_files):
            raise InvalidInput(f"extra must not be named like a file of the model itself, as {name!r} is")
    if not model.spending.published:
        model.check_movable()
    state = model.to_state(**options)
    claim = claim_document(model.claim_part(), unit=getattr(model, "unit_", ""), others=model.other_claims())
    state.put_document(CLAIM_NAME, claim)
    check_loads(state.files | state.later_files, [*model.safe_types, *(trusted or ())])
    values = {"type": model_class.__name__, **state.values}
    if not model.spending.published:
        private = PrivateFolder.create(folder, model_class.kind, values, state.files, extra=extra)
        model.move_to(private)
        return private.seal()
    schema = (extra or {}).get(SCHEMA_FILE)
    facts = model.page_facts(None if schema is None else Schema.from_bytes(schema, SCHEMA_FILE))
    page = _write_page(model.summary, state.values["claim"], facts, [*state.files, *(extra or {}), "manifest.json"])
    files = state.files | {GUARANTEE_FILE: page.encode()}
    return PublishedFolder.create(folder, model_class.kind, values, files, extra=extra).seal()


def _write_page(summary: str, claim: str, facts: Sequence[str], names: Sequence[str]) -> str:
    return f"""# What this folder may be used for

{summary}

## What is claimed

{claim[0].upper()}{claim[1:]}.

## Who may see it

Anybody. Everything here ({", ".join(sorted(names))}) that depends on private records is covered by the
claim. There is no exact count, no teacher, no secret noise and no ledger. Reading the folder, sharing it, asking the
model and computing with its answers, however often, costs no further privacy.

What the claim says is not protected may show here. The records and the folders of other models, from which this one was
made, stay with their owner.

## What is known of it

{"".join(f"- {fact}{chr(10)}" for fact in facts) or "- Nothing more."}"""
