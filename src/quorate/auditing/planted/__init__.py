"""Deliberately broken mechanisms and predictors, each beside its sound twin: so that the audits are audited.

Each is a small change of a real class, one for each way in which this field has gone wrong, and shows what the real
code prevents. Nothing that serves may import this package: an import contract forbids it.
"""

from quorate.auditing.planted.batches import BATCHES
from quorate.auditing.planted.bug import Caught, PlantedBug
from quorate.auditing.planted.calls import CALLS
from quorate.auditing.planted.choices import CHOICES
from quorate.auditing.planted.clusters import CLUSTERS
from quorate.auditing.planted.columns import COLUMNS
from quorate.auditing.planted.compactions import COMPACTIONS
from quorate.auditing.planted.dealing import DEALING
from quorate.auditing.planted.exports import EXPORTS
from quorate.auditing.planted.filters import FILTERS
from quorate.auditing.planted.folders import FOLDERS
from quorate.auditing.planted.guards import GUARDS
from quorate.auditing.planted.held_out import HELD_OUT
from quorate.auditing.planted.kept_units import KEPT_UNITS
from quorate.auditing.planted.learning import LEARNING
from quorate.auditing.planted.linear import LINEAR
from quorate.auditing.planted.lookups import LOOKUPS
from quorate.auditing.planted.nearest import NEAREST
from quorate.auditing.planted.neighbours import NEIGHBOURS
from quorate.auditing.planted.noisy_vectors import NOISY_VECTORS
from quorate.auditing.planted.people import PEOPLE
from quorate.auditing.planted.plans import PLANS
from quorate.auditing.planted.releases import RELEASES
from quorate.auditing.planted.restarts import RESTARTS
from quorate.auditing.planted.schemas import SCHEMAS
from quorate.auditing.planted.scores import SCORES
from quorate.auditing.planted.selections import SELECTIONS
from quorate.auditing.planted.shares import SHARES
from quorate.auditing.planted.sites import SITES
from quorate.auditing.planted.states import STATES
from quorate.auditing.planted.sums import SUMS
from quorate.auditing.planted.thresholds import THRESHOLDS
from quorate.auditing.planted.trees import TREES
from quorate.auditing.planted.words import WORDS

__all__ = ["PLANTED", "Caught", "PlantedBug"]

_NOISE = (*SUMS, *SCORES, *CHOICES, *THRESHOLDS, *PLANS, *NOISY_VECTORS, *SELECTIONS)
_MODELS = (*LINEAR, *WORDS, *COLUMNS, *HELD_OUT, *FILTERS, *KEPT_UNITS, *NEAREST, *PEOPLE, *RELEASES, *SCHEMAS)
_TEACHERS = (*DEALING, *CLUSTERS, *BATCHES, *CALLS, *NEIGHBOURS, *TREES, *LEARNING)
_AROUND = (*STATES, *RESTARTS, *SHARES, *COMPACTIONS, *GUARDS, *LOOKUPS, *EXPORTS, *FOLDERS, *SITES)

PLANTED: tuple[PlantedBug, ...] = (*_NOISE, *_MODELS, *_TEACHERS, *_AROUND)
