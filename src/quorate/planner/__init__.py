"""Plans forecast what a private model can achieve, from public numbers alone. Nothing here reads private data.

    plan                 private prediction: the aggregator, the number of teachers, the expected answers
    plan_concept         classes of hypotheses: the method, and the number of records that each needs
    plan_student_first   a published student before the ensemble: the number of teachers that a dissent needs
    Plan                 the result: feasible, nearest, methods, figures, settings(), summary(), as_dict()

Models use these plans. `plan_everlasting` and `plan_release` are in the rooms above, beside their models.
"""

from typing import TYPE_CHECKING

from quorate.core.lazy import import_on_use

__all__ = [
    "Plan",
    "plan",
    "plan_concept",
    "plan_student_first",
]

if TYPE_CHECKING:
    from quorate.planner._concepts import plan_concept
    from quorate.planner._teachers import plan_student_first
    from quorate.planner.result import Plan
    from quorate.planner.votes import plan
else:
    __getattr__ = import_on_use(__name__, __file__)
