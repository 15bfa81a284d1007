"""`quorate plan`: the achievable answers, with alternatives and published bounds, before any record is read."""

from typing import Any, Literal

from quorate.cli.options import (
    AggregatorName,
    AsJson,
    ConceptName,
    make_concept,
    options_from,
    refuse_idle,
    with_options,
)
from quorate.cli.output import show_plan
from quorate.core.errors import InvalidInput
from quorate.planner import plan as plan_votes
from quorate.planner import plan_concept

_CONCEPT_OPTIONS = {"concept", "features", "alpha", "public", "records", "epsilon", "delta", "queries"}
_HELPS = {  # where a value is written otherwise than in Python
    "prior": "The shares of the classes, separated by commas. A warning says if one is too rare to win a majority.",
    "concept": "A class of hypotheses: compare the methods of `quorate fit` on it, by bounds that always hold.",
    "alpha": "With --concept, the target excess error over the best hypothesis; 0.1 by default.",
}


@with_options(
    options_from(
        [plan_votes, plan_concept],
        skip="teach vc_dimension realizable gamma votes",
        types={
            "aggregator": Literal[AggregatorName, "auto", "stability"],
            "class_weight": Literal["balanced"] | None,
            "concept": ConceptName,
            "on_no_quorum": Literal["abstain", "random"],
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
    settings = {name: value for name, value in settings.items() if name not in unused}
    settings["public"] = settings["public"] or 0
    if concept is None:
        if settings["prior"] is not None:
            settings["prior"] = settings["prior"].split(",")
            settings["classes"] = settings["classes"] or len(settings["prior"])
        return show_plan(plan_votes(**settings), as_json=json)
    if settings["records"] is None:
        raise InvalidInput("a plan for a class of hypotheses needs the number of records: --records")
    settings["concept"] = make_concept(concept, settings.pop("features") or 1)
    return show_plan(plan_concept(**settings | {"alpha": settings["alpha"] or 0.1}), as_json=json)
