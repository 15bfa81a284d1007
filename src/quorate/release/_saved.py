"""The state of a published release: noisy values, public values and the number of records, as plain values and arrays.

`fit` keeps no record and no exact count, so there is none that could be written.
"""

import csv
import io
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from quorate.core.errors import InvalidInput
from quorate.core.privacy import Budget
from quorate.core.privacy.claims import Total
from quorate.models.saving.codecs import from_plain, to_plain
from quorate.models.saving.contract import State
from quorate.release.answers import shown_answers
from quorate.release.domain import Domain, read_domain
from quorate.release.engines import Mixture, Released
from quorate.release.people import PERSON, RECORD, Update
from quorate.release.queries import Marginals, Rows

if TYPE_CHECKING:
    from quorate.release._release import QueryRelease

Release = TypeVar("Release", bound="QueryRelease")

_MOST_ANSWERS = 200_000  # in answers.csv
_ANSWERS = ("answers", "errors", "weights", "unbiased", "deviations")


def write_release(release: "QueryRelease", *, answers: bool) -> State:
    """Return the state of a fitted release; with `answers` also as a table, for readers without this package."""
    check_is_fitted(release, "released_")
    released = release.released_
    about, arrays = release.domain_.to_state()
    for name in _ANSWERS:
        if (figures := getattr(released, name)) is not None:
            arrays[name] = np.asarray(figures, dtype=np.float64)
    if released.support is not None:
        arrays |= {"support": released.support.codes, "sizes": np.array(released.support.sizes, dtype=np.int64)}
    if released.model is not None:
        arrays |= {"component_weights": released.model.weights, "component_shares": released.model.shares}
    values = {
        "claim": release.claim_,
        "claim_part": release.claim_part(),
        "epsilon": release.budget_.epsilon,  # of the fit, since parameters may have changed
        "delta": release.budget_.delta,
        "unit": release.unit_,
        "records_per_person": release.records_per_person,
        "records": release.records_,
        "total": to_plain(release.total_),
        "update": to_plain(release.update_),
        "engine": release.engine_,
        "expected_error": release.expected_error_,
        "notes": list(release.notes_),
        "details": {str(name): float(value) for name, value in released.details.items()},
        "order": repr(release.budget_.order),
        "about": about,
    }
    state = State(values)
    state.put_arrays("arrays", True, **arrays)
    if answers and (table := _write_answers(release)) is not None:
        state.files["answers.csv"] = table
    return state


def spent_budget(epsilon: float, delta: float, *, order: float | None = None) -> Budget:
    """Return a fully spent budget, that of a published release."""
    budget = Budget(epsilon=epsilon, delta=delta, order=order, slack=0.0)
    budget.spend(budget.remaining())
    return budget


def read_release(model_class: "type[Release]", state: State) -> "Release":
    """Return the release of a state, as it was after `fit`."""
    values, arrays = state.values, state.arrays("arrays")
    subject, domain = read_domain(values["about"], arrays)
    settings = {name: values[name] for name in ("epsilon", "delta", "engine", "records_per_person")}
    release = model_class(subject, **settings)
    if values["unit"] not in (RECORD, PERSON):
        raise InvalidInput("unit in the manifest must be known to this version; use the version that saved it")
    released = Released(
        answers=arrays.get("answers"),
        bars=arrays.get("errors"),
        weights=arrays.get("weights"),
        support=Rows(arrays["support"], arrays["sizes"].tolist(), arrays["weights"]) if "support" in arrays else None,
        engine=str(values["engine"]),
        notes=tuple(str(note) for note in values["notes"]),
        details={str(name): float(value) for name, value in values["details"].items()},
        model=_read_mixture(arrays, domain),
        unbiased=arrays.get("unbiased"),
        deviations=arrays.get("deviations"),
    )
    release.keep_release(
        domain,
        released,
        int(values["records"]),
        float(values["expected_error"]),
        unit=values["unit"],
        update=from_plain(values["update"], Update),
        total=from_plain(values["total"], Total),
    )
    release.budget_ = spent_budget(release.epsilon, release.delta, order=float(values["order"]))
    release.claim_part_ = values["claim_part"]
    release.seconds_ = 0.0
    return release


def _read_mixture(arrays: dict[str, NDArray[Any]], domain: Domain) -> Mixture | None:
    if "component_weights" not in arrays:
        return None
    if not isinstance(domain.queries, Marginals):
        raise InvalidInput("a release with components must have marginals; the folder is damaged")
    weights, shares, sizes = arrays["component_weights"], arrays["component_shares"], domain.queries.sizes
    if weights.ndim != 1 or shares.shape != (len(weights), sum(sizes)):
        raise InvalidInput("the components of a release must match its columns; the folder is damaged")
    return Mixture(sizes, weights, shares)


def _write_answers(release: "QueryRelease") -> bytes | None:
    """Return the answers as a table, if they can be listed and are not too many."""
    try:
        queries = release.domain_.every()
    except InvalidInput:
        return None
    if len(queries) > _MOST_ANSWERS:
        return None
    table, file = release.answer(queries), io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table.column_names)
    for row in shown_answers(table.to_pylist(), release.records_):
        writer.writerow("" if value is None else value for value in row.values())
    return file.getvalue().encode()


def release_facts(release: "QueryRelease") -> list[str]:
    """Return the lines of a published release's page."""
    share, counted = release.domain_.share(0.025), "Private records" if release.unit_ == RECORD else "People"
    facts = ["It was computed from noisy counts, from public records and from the number of private records."]
    if (update := release.update_) is not None:
        facts.append(f"It is update {update.number} of {update.updates}, {update.name!r}, of a growing table.")
    return [
        *facts,
        f"Engine: {release.engine_}. {counted}: {release.records_}. Queries: {release.domain_.queries.count}.",
        f"Largest error of the engine: {release.expected_error_:.4g} expected; {release.engine_error_bound(0.025):.4g} "
        f"{'at most, at 97.5%' if release.has_error_bars else 'is twice that'}.",
        f"Bound on the cover's own error, at 97.5%: {share:.4g}; it is the price of answering a query by one that "
        "public records cannot tell from it.",
        *(f"Note: {note}" for note in release.notes_),
    ]
