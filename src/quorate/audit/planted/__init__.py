"""Deliberately broken mechanisms and predictors, each beside its sound twin: so that the audits are audited.

Each is a small change of a real class, one for each way in which this field has gone wrong, and shows what the real
code prevents. Nothing that serves may import this package: an import contract forbids it.

>>> next(bug.what for bug in PLANTED if bug.name == "double_spend")
'a cost that is checked and charged in two steps'
"""

from quorate.audit.planted.batches import BATCHES
from quorate.audit.planted.bug import Caught, PlantedBug
from quorate.audit.planted.calls import CALLS
from quorate.audit.planted.choices import CHOICES
from quorate.audit.planted.dealing import DEALING
from quorate.audit.planted.exports import EXPORTS
from quorate.audit.planted.folders import FOLDERS
from quorate.audit.planted.guards import GUARDS
from quorate.audit.planted.lookups import LOOKUPS
from quorate.audit.planted.neighbours import NEIGHBOURS
from quorate.audit.planted.plans import PLANS
from quorate.audit.planted.states import STATES
from quorate.audit.planted.sums import SUMS
from quorate.audit.planted.thresholds import THRESHOLDS

__all__ = ["PLANTED", "Caught", "PlantedBug"]

_MECHANISMS = (*SUMS, *CHOICES, *THRESHOLDS, *PLANS)
_TEACHERS = (*DEALING, *BATCHES, *CALLS, *NEIGHBOURS)
_AROUND = (*STATES, *GUARDS, *LOOKUPS, *EXPORTS, *FOLDERS)

PLANTED: tuple[PlantedBug, ...] = (*_MECHANISMS, *_TEACHERS, *_AROUND)
