"""Deliberately broken mechanisms and predictors, each beside its sound twin: so that the audits are audited.

Each is a small change of a real class, one for each way in which this field has gone wrong, and shows what the real
code prevents. Nothing that serves may import this package: an import contract forbids it.

>>> [bug.name for bug in PLANTED if bug.by == "state"]
['seed_repeated_after_fork', 'budget_reset_on_restart', 'double_spend', 'cache_shared_between_callers']
"""

from quorate.audit.planted.bug import Caught, PlantedBug
from quorate.audit.planted.choices import CHOICES
from quorate.audit.planted.dealing import DEALING
from quorate.audit.planted.neighbours import NEIGHBOURS
from quorate.audit.planted.states import STATES
from quorate.audit.planted.sums import SUMS
from quorate.audit.planted.thresholds import THRESHOLDS

__all__ = ["PLANTED", "Caught", "PlantedBug"]

PLANTED: tuple[PlantedBug, ...] = (*SUMS, *CHOICES, *THRESHOLDS, *DEALING, *NEIGHBOURS, *STATES)
