"""Deliberately broken mechanisms and predictors, each beside its sound twin, so that the audits are audited.

Each is a small change of a real class, one for each way in which this field has gone wrong, and shows what the real
code prevents. `python -m planted`, run from `tests/`, attacks all of them.
"""

from planted.batches import BATCHES
from planted.bug import Caught, PlantedBug
from planted.calls import CALLS
from planted.choices import CHOICES
from planted.clusters import CLUSTERS
from planted.columns import COLUMNS
from planted.compactions import COMPACTIONS
from planted.dealing import DEALING
from planted.exports import EXPORTS
from planted.filters import FILTERS
from planted.folders import FOLDERS
from planted.gate import GATE
from planted.guards import GUARDS
from planted.held_out import HELD_OUT
from planted.kept_units import KEPT_UNITS
from planted.learning import LEARNING
from planted.linear import LINEAR
from planted.lookups import LOOKUPS
from planted.nearest import NEAREST
from planted.neighbours import NEIGHBOURS
from planted.noisy_vectors import NOISY_VECTORS
from planted.numbers import NUMBERS
from planted.outsiders import OUTSIDERS
from planted.people import PEOPLE
from planted.plans import PLANS
from planted.releases import RELEASES
from planted.restarts import RESTARTS
from planted.schemas import SCHEMAS
from planted.scores import SCORES
from planted.selections import SELECTIONS
from planted.shares import SHARES
from planted.sites import SITES
from planted.states import STATES
from planted.sums import SUMS
from planted.text import TEXT
from planted.thresholds import THRESHOLDS
from planted.trees import TREES
from planted.words import WORDS

__all__ = ["PLANTED", "Caught", "PlantedBug"]

_NOISE = (*SUMS, *SCORES, *CHOICES, *THRESHOLDS, *PLANS, *NOISY_VECTORS, *SELECTIONS)
_MODELS = (
    *LINEAR,
    *TEXT,
    *WORDS,
    *COLUMNS,
    *HELD_OUT,
    *FILTERS,
    *KEPT_UNITS,
    *NEAREST,
    *PEOPLE,
    *RELEASES,
    *SCHEMAS,
    *GATE,
    *NUMBERS,
    *OUTSIDERS,
)
_TEACHERS = (*DEALING, *CLUSTERS, *BATCHES, *CALLS, *NEIGHBOURS, *TREES, *LEARNING)
_AROUND = (*STATES, *RESTARTS, *SHARES, *COMPACTIONS, *GUARDS, *LOOKUPS, *EXPORTS, *FOLDERS, *SITES)

PLANTED: tuple[PlantedBug, ...] = (*_NOISE, *_MODELS, *_TEACHERS, *_AROUND)
