"""`quorate plan`: the achievable answers, with alternatives and published bounds, before any record is read."""

from json import dumps
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from quorate.cli.options import AggregatorName, AsJson, ConceptName, make_concept, refuse_idle
from quorate.cli.output import show_rows
from quorate.cli.signatures import options_from, with_options
from quorate.core.errors import InvalidInput
from quorate.planner import Plan, plan_concept
from quorate.planner import plan as plan_votes

_CONCEPT_OPTIONS = {"concept", "features", "alpha", "public", "records", "epsilon", "delta", "queries"}
_HELPS = {  # where a value is written otherwise than in Python
    "votes": "A .npy or .csv file of vote counts on public points (one row per point, one column per class), to use "
    "instead of a guess.",
    "prior": "The shares of the classes, separated by commas. A warning says if one is too rare to win a majority.",
    "concept": "A class of hypotheses: compare the methods of `quorate fit` on it, by bounds that always hold.",
    "alpha": "With --concept, the target excess error over the best hypothesis; 0.1 by default.",
}
_METHODS_CAPTION = (
    "on a reference table: normal columns, a linear truth. Where the truth is not linear, votes of trees can win"
)
_BOUNDS_CAPTION = "* best here. The bounds hold for every law of the records: real data do better"


def read_votes(path: Path) -> NDArray[np.int64]:
    """Return the counts in a .npy or .csv file, one row a public point and one column a class."""
    if path.suffix not in (".npy", ".csv"):
        raise InvalidInput(f"votes must be a .npy or a .csv file of whole numbers, not {path.name!r}")
    try:
        if path.suffix == ".npy":
            return np.asarray(np.load(path, allow_pickle=False))
        return np.loadtxt(path, delimiter=",", dtype=np.int64, ndmin=2)
    except (OSError, ValueError) as error:
        raise InvalidInput(f"votes could not be read from {path.name!r}: {error}") from None


@with_options(
    options_from(
        [plan_votes, plan_concept],
        skip="teach vc_dimension realizable gamma",
        types={
            "aggregator": Literal[AggregatorName, "auto", "stability"],
            "class_weight": Literal["balanced"] | None,
            "concept": ConceptName,
            "on_no_quorum": Literal["abstain", "random"],
            "votes": Path | None,
        },
        helps=_HELPS,
    )
)
def plan(*, json: AsJson = False, **settings: Any) -> int:
    """Show the achievable answers before any private record is read. Exit code 1 if they miss the requirements.

    Example: `quorate plan --records 100000 --queries 10000 --disagreement 0.05`
    """
    concept = settings["concept"]
    unused = {"concept", "alpha"} if concept is None else set(settings) - _CONCEPT_OPTIONS
    refuse_idle(plan, settings | {"json": json}, unused, f"{'without' if concept is None else 'with'} --concept")
    planned = make_plan(**{name: value for name, value in settings.items() if name not in unused})
    if json:
        print(dumps(planned.as_dict()))
    elif concept is None:
        _show(planned)
    else:
        _show_methods(planned)
    return 0 if planned.feasible else 1


def make_plan(
    *,
    concept: ConceptName | None = None,
    votes: Path | None = None,
    prior: str | None = None,
    public: int | None = None,
    **options: Any,
) -> Plan:
    """Plan votes, or methods on a class of hypotheses, with `options` of `quorate.plan` or `plan_concept`."""
    if concept is not None:
        if options["records"] is None:
            raise InvalidInput("a plan for a class of hypotheses needs the number of records: --records")
        kind, alpha = make_concept(concept, options.pop("features") or 1), options.pop("alpha") or 0.1
        return plan_concept(concept=kind, public=public or 0, alpha=alpha, **options)
    shares = None if prior is None else prior.split(",")
    if shares is not None and options.get("classes") is None and votes is None:
        options["classes"] = len(shares)
    return plan_votes(votes=None if votes is None else read_votes(votes), prior=shares, public=public or 0, **options)


def _show(planned: Plan) -> None:
    console = Console()
    console.print(planned.summary().split(" This falls short")[0] + "\n")
    noise = ", ".join(f"{key.replace('_', ' ')} {value:.4g}" for key, value in planned.noise.items())
    candidates = [
        {
            "aggregator": candidate.aggregator + (" *" if candidate is planned else ""),
            "answered": f"{candidate.answered:.1%}",
            "of those, plurality": f"{candidate.agreement:.1%}",
            "of all queries": f"{candidate.right:.1%}",
            "no-quorums": "-" if candidate.no_quorums is None else f"{candidate.no_quorums:,}",
        }
        for candidate in (planned, *planned.candidates)
    ]
    title, caption = "Expected: plurality labels", f"* chosen, with {noise}"  # 80 columns hold no more noise
    show_rows(candidates, is_result=True, title=title, caption=caption)
    methods = [
        {
            "method": method.name,
            "with": method.estimator,
            "expected error": f"{'at most ' if method.is_bound else ''}{method.error:.1%}",
        }
        for method in planned.methods
    ]
    show_rows(methods, is_result=True, title="Methods", caption=_METHODS_CAPTION)
    for sentence in (
        *(f"{method.name}: {method.reason}." for method in planned.methods),
        *(f"Assumed: {assumption}." for assumption in planned.assumptions),
        *(f"Published, {bound.citation}: {bound.sentence}." for bound in planned.published),
    ):
        console.print(sentence)
    if not planned.feasible:
        console.print(f"\n[bold]Not feasible[/bold]: {planned.shortage}.")
        _show_changes(console, planned)


def _show_changes(console: Console, planned: Plan) -> None:
    changes = [
        {"any one of these would do": change.sentence, "of all queries": f"{change.right:.1%}"}
        for change in planned.nearest
    ]
    show_rows(changes, is_result=True, title="Nearest feasible")
    if not changes:
        console.print("No change of one number alone would do.")


def _show_methods(planned: Plan) -> None:
    methods = [
        {
            "method": method.name + (" *" if rank == 0 else ""),
            "excess error at most": method.error,
            f"records for {planned.alpha:g}": "no number" if method.needed is None else method.needed,
            "guarantee": method.reason,
        }
        for rank, method in enumerate(planned.methods)
    ]
    title = f"{planned.records:,} records, VC dimension {planned.vc_dimension}"
    show_rows(methods, is_result=True, title=title, caption=_BOUNDS_CAPTION)
    for sentence in planned.assumptions:
        print(f"Assumed: {sentence}.")
